//! CRC32C (Castagnoli, RFC 3720 appendix B.4) over headers and over 4 KiB pages.
//!
//! Bulk bytes carry one CRC per *fragment*: the range is cut where its offset crosses a multiple of 4 KiB, so a fragment
//! is a whole page or the head or tail of one.

use crate::PAGE_SIZE;

/// CRC32C of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// CRC32C of a page of zeros, as which a hole reads.
pub const ZERO_PAGE: u32 = 0x98f9_4189;

/// The fragments of `len` bytes at `offset`: `(start in the buffer, length)`, in order.
pub fn fragments(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let in_page = ((offset + at as u64) % PAGE_SIZE as u64) as usize;
        let n = (PAGE_SIZE - in_page).min(len - at);
        at += n;
        Some((at - n, n))
    })
}

/// How many fragments `len` bytes at `offset` have.
pub fn fragment_count(offset: u64, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let page = PAGE_SIZE as u64;
    ((offset + len as u64 - 1) / page - offset / page + 1) as usize
}

/// One CRC per fragment of `data`, which lies at `offset`.
pub fn fragment_crcs(offset: u64, data: &[u8]) -> Vec<u32> {
    fragments(offset, data.len()).map(|(at, n)| crc32c(&data[at..at + n])).collect()
}

/// The buffer position of the first fragment of `data` whose CRC differs from `crcs`; `Ok` when all agree and the count is right.
pub fn verify_fragments(offset: u64, data: &[u8], crcs: &[u32]) -> Result<(), usize> {
    if crcs.len() != fragment_count(offset, data.len()) {
        return Err(0);
    }
    for ((at, n), want) in fragments(offset, data.len()).zip(crcs) {
        if crc32c(&data[at..at + n]) != *want {
            return Err(at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_hold() {
        // RFC 3720 B.4: 32 bytes of zeros, and the check value of "123456789".
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; PAGE_SIZE]), ZERO_PAGE);
    }

    #[test]
    fn fragments_cut_at_pages() {
        assert_eq!(fragments(4000, 5000).collect::<Vec<_>>(), [(0, 96), (96, 4096), (4192, 808)]);
        assert_eq!(fragments(0, 4096).collect::<Vec<_>>(), [(0, 4096)]);
        for (offset, len) in [(0, 0), (1, 1), (4095, 2), (4096, 8192), (77, 100_000)] {
            assert_eq!(fragments(offset, len).count(), fragment_count(offset, len));
        }
    }

    #[test]
    fn a_flipped_bit_is_found_where_it_is() {
        let mut data = vec![7u8; 10_000];
        let crcs = fragment_crcs(100, &data);
        assert_eq!(verify_fragments(100, &data, &crcs), Ok(()));
        data[5000] ^= 1;
        assert_eq!(verify_fragments(100, &data, &crcs), Err(3996));
        assert_eq!(verify_fragments(100, &data, &crcs[1..]), Err(0));
    }
}
