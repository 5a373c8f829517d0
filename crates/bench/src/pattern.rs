//! What files contain: a seeded random block, repeated, with a stamp at each page's begin that says where the page belongs.
//!
//! I1. A page's content follows from `(seed, file, offset, version)`: a page that is lost, old, misplaced or damaged differs.

use anyhow::{Result, bail};

pub const PAGE_BYTES: usize = 4096;
/// Every page's stamp is checked, and every n-th page whole: a full compare would cost a core that the file system needs.
const WHOLE_EVERY: u64 = 16;
const STAMP_BYTES: usize = 24;

/// Names one file's one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub file: u64,
    pub version: u64,
}

pub struct Pattern {
    base: Vec<u8>,
    verify: bool,
}

impl Pattern {
    /// `block_bytes`, a multiple of the page: the length after which content other than stamps repeats. Without `verify` every
    /// content passes.
    pub fn new(seed: u64, block_bytes: usize, verify: bool) -> Pattern {
        assert_eq!(block_bytes % PAGE_BYTES, 0);
        let mut state = seed;
        let words = (0..block_bytes / 8).flat_map(|_| next(&mut state).to_le_bytes());
        Pattern { base: words.collect(), verify }
    }

    /// What stands at `offset`, before its pages are stamped. `offset` and `len` are multiples of the page, in one block.
    pub fn base_at(&self, offset: u64, len: usize) -> &[u8] {
        let begin = (offset % self.base.len() as u64) as usize;
        &self.base[begin..begin + len]
    }

    /// Makes `buffer`, which holds base content of its place, the content at `offset`.
    pub fn stamp(mark: Mark, offset: u64, buffer: &mut [u8]) {
        for (i, page) in buffer.chunks_exact_mut(PAGE_BYTES).enumerate() {
            page[..STAMP_BYTES].copy_from_slice(&stamp_of(mark, offset + (i * PAGE_BYTES) as u64));
        }
    }

    /// Fills `buffer` with the content at `offset`.
    pub fn fill(&self, mark: Mark, offset: u64, buffer: &mut [u8]) {
        buffer.copy_from_slice(self.base_at(offset, buffer.len()));
        Self::stamp(mark, offset, buffer);
    }

    /// Checks a sample of what was read at `offset`: stamps of all pages, all of some pages. `turn` moves that choice. Returns how
    /// many pages were looked at.
    pub fn check(&self, mark: Mark, offset: u64, buffer: &[u8], turn: u64) -> Result<u64> {
        if !self.verify {
            return Ok(0);
        }
        for (i, page) in buffer.chunks_exact(PAGE_BYTES).enumerate() {
            let at = offset + (i * PAGE_BYTES) as u64;
            let whole = (i as u64 + turn).is_multiple_of(WHOLE_EVERY) || buffer.len() == PAGE_BYTES;
            let body = STAMP_BYTES..if whole { PAGE_BYTES } else { STAMP_BYTES };
            let good = page[..STAMP_BYTES] == stamp_of(mark, at)
                && page[body.clone()] == self.base_at(at, PAGE_BYTES)[body];
            if !good {
                bail!("content is wrong: file {} at byte {at} holds {}", mark.file, describe(page, mark, at));
            }
        }
        Ok((buffer.len() / PAGE_BYTES) as u64)
    }
}

fn stamp_of(mark: Mark, offset: u64) -> [u8; STAMP_BYTES] {
    let mut stamp = [0; STAMP_BYTES];
    stamp[..8].copy_from_slice(&mark.file.to_le_bytes());
    stamp[8..16].copy_from_slice(&offset.to_le_bytes());
    stamp[16..].copy_from_slice(&mark.version.to_le_bytes());
    stamp
}

/// For the report: what a wrong page looks like tells where to search.
fn describe(page: &[u8], mark: Mark, at: u64) -> String {
    let word = |i: usize| u64::from_le_bytes(page[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
    match (word(0), word(1), word(2)) {
        _ if page.iter().all(|b| *b == 0) => "zeros".into(),
        (file, offset, version) if (file, offset, version) == (mark.file, at, mark.version) => {
            "a damaged page".into()
        }
        (file, offset, version) if file == mark.file && offset == at => {
            format!("version {version} of the page")
        }
        (file, offset, _) => format!("a page that says file {file}, byte {offset}"),
    }
}

/// splitmix64: seeded, quick, and the same everywhere.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_recognised_and_anything_else_is_not() {
        let pattern = Pattern::new(1, 4 * PAGE_BYTES, true);
        let mark = Mark { file: 3, version: 1 };
        let offset = 8 * PAGE_BYTES as u64;
        let mut buffer = vec![0; 4 * PAGE_BYTES];
        pattern.fill(mark, offset, &mut buffer);
        assert_eq!(pattern.check(mark, offset, &buffer, 0).unwrap(), 4);
        assert!(
            pattern.check(mark, 0, &buffer, 0).unwrap_err().to_string().contains("says file 3, byte 32768")
        );
        assert!(pattern.check(Mark { version: 2, ..mark }, offset, &buffer, 0).is_err());
        assert!(pattern.check(Mark { file: 4, ..mark }, offset, &buffer, 0).is_err());
        assert!(pattern.check(mark, offset, &[0; PAGE_BYTES], 0).unwrap_err().to_string().contains("zeros"));
        // A flipped bit in a page that is compared whole.
        buffer[PAGE_BYTES + 100] ^= 1;
        assert!(pattern.check(mark, offset, &buffer, 15).unwrap_err().to_string().contains("damaged"));
        assert_eq!(Pattern::new(1, PAGE_BYTES, false).check(mark, 0, &buffer, 0).unwrap(), 0);
    }
}
