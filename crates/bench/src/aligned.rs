//! Buffers for direct I/O.

use crate::pattern::PAGE_BYTES;

/// A buffer at a page border, as direct I/O wants it.
pub struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + PAGE_BYTES];
        let begin = bytes.as_ptr().align_offset(PAGE_BYTES);
        Aligned { bytes, begin, len }
    }
    pub fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.len]
    }
}
