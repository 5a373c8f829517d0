//! A medium in memory: for tests, and for targets whose content may be lost with the process.

use std::io;

use parking_lot::RwLock;

use crate::{Disk, end_within};

/// Bytes in memory. A flush has nothing to do; a discard zeroes, so that freed bytes do not linger.
pub struct MemDisk {
    bytes: RwLock<Vec<u8>>,
    size_bytes: u64,
}

impl MemDisk {
    /// A medium of zeros.
    pub fn new(size_bytes: u64) -> MemDisk {
        MemDisk::from_bytes(vec![0; size_bytes as usize])
    }
    /// A medium with this content.
    pub fn from_bytes(bytes: Vec<u8>) -> MemDisk {
        MemDisk { size_bytes: bytes.len() as u64, bytes: RwLock::new(bytes) }
    }
    /// A copy of the whole content.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl Disk for MemDisk {
    fn size(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = end_within(self.size_bytes, offset, buf.len() as u64)?;
        buf.copy_from_slice(&self.bytes.read()[offset as usize..end as usize]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let end = end_within(self.size_bytes, offset, buf.len() as u64)?;
        self.bytes.write()[offset as usize..end as usize].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = end_within(self.size_bytes, offset, len)?;
        self.bytes.write()[offset as usize..end as usize].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_contract_of_a_disk() {
        crate::conformance::check(&MemDisk::new(1 << 20));
    }
}
