//! A buffer for direct I/O.

use std::io;

use ring::Buffers;

/// A buffer at a page border, as direct I/O wants it, in a huge page if it is of more than a page.
pub struct Aligned {
    buffers: Buffers,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize) -> io::Result<Aligned> {
        Ok(Aligned { buffers: Buffers::new(1, len)?, len })
    }
    pub fn get(&mut self) -> &mut [u8] {
        &mut self.buffers.get(0)[..self.len]
    }
}
