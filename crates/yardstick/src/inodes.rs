//! The pass-through's table of inodes that the kernel knows, each with an `O_PATH` descriptor of the file below.
//!
//! yardstick-I1. While the kernel counts lookups of an inode its descriptor is open, so the file system below cannot give the number to
//!     another file. Inode numbers below are therefore the numbers above, except that the exported root is 1.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::io::{Errno, Result};

const ROOT: u64 = 1;
/// Enough that serving threads rarely meet at one lock.
const SHARDS: usize = 64;

struct Inode {
    fd: Arc<OwnedFd>,
    lookups: u64,
}

pub struct Inodes {
    root: Arc<OwnedFd>,
    root_stat: Stat,
    shards: [Mutex<HashMap<u64, Inode>>; SHARDS],
}

impl Inodes {
    pub fn new(root: OwnedFd) -> Result<Inodes> {
        let root_stat = rustix::fs::fstat(&root)?;
        Ok(Inodes { root: Arc::new(root), root_stat, shards: std::array::from_fn(|_| Mutex::default()) })
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Inode>> {
        &self.shards[ino as usize % SHARDS]
    }

    pub fn get(&self, ino: u64) -> Result<Arc<OwnedFd>> {
        if ino == ROOT {
            return Ok(self.root.clone());
        }
        self.shard(ino).lock().get(&ino).map(|inode| inode.fd.clone()).ok_or(Errno::STALE)
    }

    /// The number that the kernel shall use for what `stat` describes.
    pub fn number(&self, stat: &Stat) -> u64 {
        if stat.st_ino == self.root_stat.st_ino { ROOT } else { stat.st_ino }
    }

    /// Counts one lookup. Another file system mounted below is refused: its numbers could be taken twice.
    pub fn remember(&self, fd: OwnedFd, stat: &Stat) -> Result<u64> {
        if stat.st_dev != self.root_stat.st_dev {
            return Err(Errno::XDEV);
        }
        let ino = self.number(stat);
        if ino != ROOT {
            let mut shard = self.shard(ino).lock();
            shard.entry(ino).or_insert_with(|| Inode { fd: Arc::new(fd), lookups: 0 }).lookups += 1;
        }
        Ok(ino)
    }

    pub fn forget(&self, ino: u64, lookups: u64) {
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.get_mut(&ino) {
            inode.lookups = inode.lookups.saturating_sub(lookups);
            if inode.lookups == 0 {
                shard.remove(&ino);
            }
        }
    }
}
