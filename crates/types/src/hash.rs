//! h64: the hash of a name. It is on disk and is the cookie of directory listings, so it is our own and pinned by tests.

/// Low bits of a cookie that hold the collision number; h64 leaves them zero.
pub const COLLISION_BITS: u32 = 8;
/// Cookies of `.` and `..`; h64 never yields a cookie this small.
pub const COOKIE_DOT: u64 = 1;
pub const COOKIE_DOTDOT: u64 = 2;

/// Hashes `name` to 55 bits, placed at bits 8 to 62, so that `h64 | collision` is a positive `off_t`.
///
/// Eight bytes at a time: multiply, rotate, multiply (constants: the first digits of pi and of the golden ratio, made odd);
/// the length goes in first and murmur3's finalizer closes.
pub fn h64(name: &[u8]) -> u64 {
    const K1: u64 = 0x9e37_79b9_7f4a_7c15;
    const K2: u64 = 0x243f_6a88_85a3_08d3;
    let mut h = (name.len() as u64).wrapping_mul(K1) ^ K2;
    for chunk in name.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let k = u64::from_le_bytes(word).wrapping_mul(K1).rotate_left(31).wrapping_mul(K2);
        h = (h ^ k).rotate_left(27).wrapping_mul(5).wrapping_add(0x52dc_e729);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^= h >> 33;
    let h = h & 0x7fff_ffff_ffff_ff00;
    if h == 0 { 1 << COLLISION_BITS } else { h }
}

/// The cookie of the entry `(h64, collision)`: the key's order is the cookie's order.
pub fn cookie(h: u64, collision: u8) -> u64 {
    h | collision as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let names: [(&[u8], u64); 4] = [
            (b"", GOLDEN[0]),
            (b"a", GOLDEN[1]),
            (b"Makefile", GOLDEN[2]),
            (b"a-longer-name-than-eight.txt", GOLDEN[3]),
        ];
        for (name, want) in names {
            assert_eq!(h64(name), want, "{:?}: {:#x}", name, h64(name));
        }
    }

    /// Computed by an independent implementation of the same definition.
    const GOLDEN: [u64; 4] = [0x7acdbb98b1344200, 0x3fee3da17af1ba00, 0x7fc7e450b6cef100, 0x4229a35105d4c500];

    #[test]
    fn spreads_short_names() {
        let mut seen: Vec<u64> = (0..100_000).map(|n| h64(format!("file.{n}").as_bytes())).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100_000);
        let low_half = seen.iter().filter(|h| **h < 1 << 62).count();
        assert!((49_000..51_000).contains(&low_half), "{low_half}");
    }
}
