//! Variable-length numbers: LEB128, seven bits per byte, the least significant group first; a set top bit means that another
//! byte follows. Each number has one form, the shortest;
//! other forms are refused. Signed numbers use zigzag, so that small ones of either sign are short.

use crate::codec::{Malformed, Reader};

const MORE: u8 = 0x80;

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= MORE as u64 {
        out.push(value as u8 | MORE);
        value >>= 7;
    }
    debug_assert!(value < MORE as u64, "the last byte has no mark for more");
    out.push(value as u8);
}

/// As `put_varint`, for a number that seldom exceeds 64 bits.
pub fn put_wide(out: &mut Vec<u8>, mut value: u128) {
    while value > u64::MAX as u128 {
        out.push(value as u8 | MORE);
        value >>= 7;
    }
    put_varint(out, value as u64)
}

impl<'a> Reader<'a> {
    /// Reads a number below 2^64. Errors: too long, or not the shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        if first < MORE {
            return Ok(first as u64);
        }
        let mut value = (first & !MORE) as u64;
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            value |= ((byte & !MORE) as u64) << shift;
            if byte < MORE {
                let fits = shift < 63 || byte <= 1;
                return if fits && byte > 0 { Ok(value) } else { Err(Malformed("a number's form")) };
            }
        }
        Err(Malformed("a number's form"))
    }

    /// Reads a number below 2^126. Errors: too long, or not the shortest form.
    pub fn wide(&mut self) -> Result<u128, Malformed> {
        const BYTES_MAX: usize = 18;
        // Nine bytes hold 63 bits. Longer numbers are rare, and two-word arithmetic is slow.
        let (mut low, mut high) = (0u64, 0u64);
        for at in 0..BYTES_MAX {
            let byte = self.byte()?;
            let bits = (byte & !MORE) as u64;
            match at < 9 {
                true => low |= bits << (7 * at),
                false => high |= bits << (7 * (at - 9)),
            }
            if byte < MORE {
                let value = low as u128 | (high as u128) << 63;
                return if byte > 0 || at == 0 { Ok(value) } else { Err(Malformed("a number's form")) };
            }
        }
        Err(Malformed("a number's form"))
    }
}

pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

pub fn zigzag_wide(value: i128) -> u128 {
    (value << 1 ^ value >> 127) as u128
}

pub fn unzigzag_wide(value: u128) -> i128 {
    (value >> 1) as i128 ^ -((value & 1) as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        out
    }

    #[test]
    fn forms_are_the_shortest_and_come_back() {
        let table: [(u64, &[u8]); 6] = [
            (0, &[0]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (1 << 63, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ];
        for (value, bytes) in table {
            assert_eq!(form(value), bytes, "{value}");
        }
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, (1 << shift) + 1] {
                let bytes = form(value);
                let mut r = Reader::new(&bytes);
                assert_eq!((r.varint(), r.remaining()), (Ok(value), 0), "{value}");
                let mut r = Reader::new(&bytes);
                assert_eq!(r.wide(), Ok(value as u128));
                for cut in 0..bytes.len() {
                    assert!(Reader::new(&bytes[..cut]).varint().is_err());
                }
            }
        }
        for shift in 0..126 {
            let (value, mut out) = (1u128 << shift | 5, Vec::new());
            put_wide(&mut out, value);
            let mut r = Reader::new(&out);
            assert_eq!((r.wide(), r.remaining()), (Ok(value), 0), "{value}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        let bad: [&[u8]; 5] = [
            &[],
            &[0x80],
            &[0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0],
        ];
        for bytes in bad {
            assert!(Reader::new(bytes).varint().is_err(), "{bytes:02x?}");
        }
        assert!(Reader::new(&[0xff; 40]).wide().is_err());
    }

    #[test]
    fn zigzag_keeps_small_numbers_small() {
        for (value, wanted) in [(0, 0), (-1, 1), (1, 2), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)] {
            assert_eq!((zigzag(value), unzigzag(wanted)), (wanted, value));
            assert_eq!(unzigzag_wide(zigzag_wide(value as i128)), value as i128);
        }
        let far = i64::MIN as i128 * 2_000_000_000;
        assert_eq!(unzigzag_wide(zigzag_wide(far)), far);
    }
}
