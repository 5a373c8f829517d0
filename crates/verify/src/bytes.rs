//! Numbers off bytes: little-endian, varints.

/// The unread rest of a byte string, and its name in findings.
#[derive(Clone)]
pub struct Bytes<'a> {
    rest: &'a [u8],
    what: &'a str,
}

pub type Read<T> = Result<T, String>;

impl<'a> Bytes<'a> {
    pub fn of(what: &'a str, rest: &'a [u8]) -> Bytes<'a> {
        Bytes { rest, what }
    }
    pub fn wrong<T>(&self, why: &str) -> Read<T> {
        Err(format!("{}: {why}", self.what))
    }
    pub fn left(&self) -> usize {
        self.rest.len()
    }
    pub fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        if n > self.rest.len() {
            return self.wrong(&format!("{n} bytes are wanted where {} are left", self.rest.len()));
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(head)
    }
    pub fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
    pub fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }
    pub fn u16(&mut self) -> Read<u16> {
        Ok(self.number(2)? as u16)
    }
    pub fn u32(&mut self) -> Read<u32> {
        Ok(self.number(4)? as u32)
    }
    pub fn u64(&mut self) -> Read<u64> {
        self.number(8)
    }
    fn number(&mut self, n: usize) -> Read<u64> {
        Ok(self.take(n)?.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
    /// Shortest form only.
    pub fn wide(&mut self) -> Read<u128> {
        let (mut all, mut shift) = (0u128, 0);
        loop {
            let byte = self.u8()?;
            if shift >= 126 {
                return self.wrong("a varint that is too long");
            }
            all |= u128::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    self.wrong("a varint in a longer form")
                } else {
                    Ok(all)
                };
            }
            shift += 7;
        }
    }
    pub fn varint(&mut self) -> Read<u64> {
        let wide = self.wide()?;
        u64::try_from(wide).or_else(|_| self.wrong("a varint above 64 bits"))
    }
    pub fn varint32(&mut self) -> Read<u32> {
        let wide = self.wide()?;
        u32::try_from(wide).or_else(|_| self.wrong("a varint above 32 bits"))
    }
    /// `2n`, or `-2n - 1`.
    pub fn signed(&mut self) -> Read<i128> {
        let wide = self.wide()?;
        let half = (wide >> 1) as i128;
        Ok(if wide & 1 == 0 { half } else { -half - 1 })
    }
    pub fn zeros(&mut self, n: usize) -> Read<()> {
        if self.take(n)?.iter().any(|byte| *byte != 0) {
            self.wrong("reserved bytes are not zero")
        } else {
            Ok(())
        }
    }
    pub fn end(&self) -> Read<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            self.wrong(&format!("{} bytes are left over", self.rest.len()))
        }
    }
}
