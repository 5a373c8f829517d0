//! A medium that is read but never written: writes stay in memory. So a stopped cluster can be recovered and examined like a running one,
//! and its files stay unchanged.
//!
//! cli-S1: the disk below is only read.  cli-S2: memory is bounded by `WRITTEN_BYTES_MAX`; further writes fail.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use disk::Disk;

const PAGE: usize = types::PAGE_SIZE;
/// Recovery writes marks, checkpoints and purges; on the clusters of one machine these are far below this.
pub const WRITTEN_BYTES_MAX: usize = 1 << 30;

pub struct Scratch {
    below: Arc<dyn Disk>,
    written: std::sync::RwLock<HashMap<u64, Box<[u8; PAGE]>>>,
}

impl Scratch {
    pub fn over(below: Arc<dyn Disk>) -> Scratch {
        Scratch { below, written: Default::default() }
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.below.size() => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the range ends past the medium")),
        }
    }

    /// The page on the disk below; a short last page is zero-filled.
    fn page_below(&self, page: u64) -> io::Result<Box<[u8; PAGE]>> {
        let mut bytes = Box::new([0; PAGE]);
        let at = page * PAGE as u64;
        let len = (self.below.size() - at).min(PAGE as u64) as usize;
        self.below.read_at(&mut bytes[..len], at)?;
        Ok(bytes)
    }
}

/// The parts of a range by page: `(page, begin within it, begin in the buffer, length)`.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    types::crc::fragments(offset, len).map(move |(at, n)| {
        let position = offset + at as u64;
        (position / PAGE as u64, (position % PAGE as u64) as usize, at, n)
    })
}

impl Disk for Scratch {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let written = self.written.read().map_err(|_| poisoned())?;
        self.below.read_at(buf, offset)?;
        if !written.is_empty() {
            for (page, within, at, n) in parts(offset, buf.len()) {
                if let Some(bytes) = written.get(&page) {
                    buf[at..at + n].copy_from_slice(&bytes[within..within + n]);
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let mut written = self.written.write().map_err(|_| poisoned())?;
        for (page, within, at, n) in parts(offset, buf.len()) {
            if !written.contains_key(&page) {
                if written.len() * PAGE >= WRITTEN_BYTES_MAX {
                    return Err(io::Error::other(
                        "recovery writes more than memory may hold; start the cluster instead",
                    ));
                }
                written.insert(page, self.page_below(page)?);
            }
            let bytes = written.get_mut(&page).expect("it was just put there");
            bytes[within..within + n].copy_from_slice(&buf[at..at + n]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len as usize)
    }
    fn will_read(&self, offset: u64, len: u64) {
        self.below.will_read(offset, len)
    }
}

fn poisoned() -> io::Error {
    io::Error::other("a thread panicked while it held the written pages")
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::MemDisk;

    #[test]
    fn what_is_written_is_read_back_and_the_disk_below_is_untouched() {
        let below: Arc<dyn Disk> = Arc::new(MemDisk::new(3 * PAGE as u64 + 100));
        below.write_at(&[7; 2 * PAGE], 0).unwrap();
        let scratch = Scratch::over(below.clone());
        scratch.write_at(&[1; 200], PAGE as u64 - 100).unwrap();
        scratch.write_at(&[2; 100], 3 * PAGE as u64).unwrap();
        let mut got = vec![0; 3 * PAGE + 100];
        scratch.read_at(&mut got, 0).unwrap();
        let mut want = vec![7; 2 * PAGE];
        want.resize(3 * PAGE, 0);
        want.resize(3 * PAGE + 100, 2);
        want[PAGE - 100..PAGE + 100].fill(1);
        assert_eq!(got, want);
        below.read_at(&mut got, 0).unwrap();
        assert!(got[..2 * PAGE].iter().all(|b| *b == 7) && got[2 * PAGE..].iter().all(|b| *b == 0));
        assert!(scratch.write_at(&[0; 101], 3 * PAGE as u64).is_err());
    }
}
