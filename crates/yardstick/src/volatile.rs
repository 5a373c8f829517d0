//! A volatile write cache below a pass-through mount: the power may fail, and then what no flush has made durable may be lost.
//!
//! volatile-V1: a write that ended before a flush of its file began is durable after that flush.
//! volatile-V2: of all other bytes each page keeps what it has, or gets what it had at the last flush. Pages fall one by one, as a drive
//!     writes its cache in any order.
//!
//! The bytes before each write are kept in memory until the next flush of the file. Sizes of files are never lost: images of targets have
//! theirs from the start.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::{Result, pread, pwrite};

const PAGE: u64 = 4096;

/// A file with writes that may be lost. Writes of a file take turns, so that what is kept of them has their order.
#[derive(Debug)]
struct Unflushed {
    fd: OwnedFd,
    /// Offset and old bytes of each write, in order.
    before: Vec<(u64, Vec<u8>)>,
    /// Writes that are durable already, of all that there were.
    durable: usize,
}

/// By device and inode.
type Files = HashMap<(u64, u64), Arc<Mutex<Unflushed>>>;

#[derive(Debug, Default)]
pub struct Volatile {
    files: Mutex<Files>,
}

impl Volatile {
    fn file(&self, fd: &OwnedFd) -> Result<Arc<Mutex<Unflushed>>> {
        let stat = fstat(fd)?;
        let mut files = self.files.lock();
        if let Some(file) = files.get(&(stat.st_dev, stat.st_ino)) {
            return Ok(file.clone());
        }
        let file = Arc::new(Mutex::new(Unflushed { fd: anew(fd)?, before: vec![], durable: 0 }));
        files.insert((stat.st_dev, stat.st_ino), file.clone());
        Ok(file)
    }

    /// Carries out a write of so many bytes, which may be lost until the next flush.
    pub fn write(
        &self,
        fd: &OwnedFd,
        offset: u64,
        len: usize,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let file = self.file(fd)?;
        let mut file = file.lock();
        let old = read_at(&file.fd, offset, len)?;
        file.before.push((offset, old));
        write()
    }

    /// Carries out a flush: writes that were done before it are durable.
    pub fn flush(&self, fd: &OwnedFd, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let file = self.file(fd)?;
        let up_to = {
            let file = file.lock();
            file.durable + file.before.len()
        };
        flush()?;
        // Another flush may have ended meanwhile, and more writes may have come.
        let mut file = file.lock();
        let more = up_to.saturating_sub(file.durable);
        file.before.drain(..more);
        file.durable += more;
        Ok(())
    }

    /// Forgets what may be lost: from now on writes do not come here.
    pub fn end(&self) {
        self.files.lock().clear();
    }

    /// The power fails. No write may be under way. Returns the pages that were lost, and those that could have been.
    pub fn lose(&self, seed: u64) -> Result<(u64, u64)> {
        let (mut lost, mut all) = (0, 0);
        for ((_, inode), file) in std::mem::take(&mut *self.files.lock()) {
            let file = file.lock();
            let mut pages: Vec<u64> =
                file.before.iter().flat_map(|(at, old)| pages(*at, old.len())).collect();
            pages.sort_unstable();
            pages.dedup();
            all += pages.len() as u64;
            for page in pages.into_iter().filter(|page| is_lost(seed, inode, *page)) {
                lost += 1;
                // The oldest bytes come last.
                for (at, old) in file.before.iter().rev() {
                    let (from, to) =
                        ((page * PAGE).max(*at), (page * PAGE + PAGE).min(at + old.len() as u64));
                    if from < to {
                        write_at(&file.fd, from, &old[(from - at) as usize..(to - at) as usize])?;
                    }
                }
            }
        }
        Ok((lost, all))
    }
}

fn pages(at: u64, len: usize) -> std::ops::Range<u64> {
    at / PAGE..(at + len as u64).div_ceil(PAGE)
}

/// Half of the pages, by a mix of the seed (the finalizer of SplitMix64).
fn is_lost(seed: u64, inode: u64, page: u64) -> bool {
    let mut mixed = seed ^ inode.rotate_left(32) ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) & 1 == 0
}

/// Bytes past the end of the file are zeros: a write that extends it and is lost leaves zeros.
fn read_at(fd: impl AsFd, offset: u64, len: usize) -> Result<Vec<u8>> {
    let (mut bytes, mut done) = (vec![0; len], 0);
    while done < len {
        match pread(&fd, &mut bytes[done..], offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(bytes)
}

fn write_at(fd: impl AsFd, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += pwrite(&fd, &bytes[done..], offset + done as u64)?;
    }
    Ok(())
}

/// The same file, without the conditions of direct I/O.
fn anew(fd: &OwnedFd) -> Result<OwnedFd> {
    rustix::fs::open(
        format!("/proc/self/fd/{}", fd.as_raw_fd()),
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> (std::path::PathBuf, OwnedFd) {
        let path = std::env::temp_dir().join(format!("stria-volatile-{}-{name}", std::process::id()));
        let file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path);
        (path, file.unwrap().into())
    }

    fn put(cache: &Volatile, fd: &OwnedFd, offset: u64, bytes: &[u8]) {
        cache.write(fd, offset, bytes.len(), || write_at(fd, offset, bytes)).unwrap();
    }

    #[test]
    fn what_was_flushed_stays_and_other_pages_are_old_or_new() {
        let (path, fd) = file("pages");
        let cache = Volatile::default();
        const COUNT: usize = 64;
        put(&cache, &fd, 0, &[1; COUNT * 4096]);
        cache.flush(&fd, || Ok(())).unwrap();
        // Two writes over one another that no page border parts, after the flush.
        put(&cache, &fd, 100, &[2; COUNT * 4096 - 100]);
        put(&cache, &fd, 0, &[3; COUNT * 2048]);
        let (lost, all) = cache.lose(7).unwrap();
        assert_eq!(all, COUNT as u64);
        assert!((8..56).contains(&lost), "{lost} of {all}");
        let found = read_at(&fd, 0, COUNT * 4096).unwrap();
        std::fs::remove_file(path).unwrap();
        let mut old = 0;
        for (number, page) in found.chunks(4096).enumerate() {
            let new = if number < COUNT / 2 { 3 } else { 2 };
            old += u64::from(page.iter().all(|byte| *byte == 1));
            assert!(page.iter().all(|byte| *byte == 1) || page.iter().all(|byte| *byte == new), "{number}");
        }
        assert_eq!(old, lost);
    }

    #[test]
    fn a_loss_after_a_flush_takes_nothing() {
        let (path, fd) = file("flushed");
        let cache = Volatile::default();
        put(&cache, &fd, 5, b"kept");
        cache.flush(&fd, || Ok(())).unwrap();
        assert_eq!(cache.lose(1), Ok((0, 0)));
        assert_eq!(read_at(&fd, 5, 4).unwrap(), b"kept");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_flush_that_fails_makes_nothing_durable() {
        let (path, fd) = file("failed");
        let cache = Volatile::default();
        put(&cache, &fd, 0, &[9; 64 * 4096]);
        cache.flush(&fd, || Err(rustix::io::Errno::IO)).unwrap_err();
        assert_eq!(cache.lose(3).unwrap().1, 64);
        std::fs::remove_file(path).unwrap();
    }
}
