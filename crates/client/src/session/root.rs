//! The directory that this client sees as its root, and inode numbers of the kernel, where the root always has number 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::Fid;

/// Shared by all that speak of inode numbers. The MDT's answer to attach sets it, so it may change with a new session.
#[derive(Clone, Debug)]
pub struct Root(Arc<AtomicU64>);

impl Default for Root {
    fn default() -> Root {
        Root(Arc::new(AtomicU64::new(Fid::ROOT.0)))
    }
}

impl Root {
    pub fn get(&self) -> Fid {
        Fid(self.0.load(Ordering::Relaxed))
    }
    pub(crate) fn set(&self, root: Fid) {
        self.0.store(root.0, Ordering::Relaxed);
    }
    /// The file of an inode number.
    pub fn fid(&self, ino: u64) -> Fid {
        if ino == Fid::ROOT.0 { self.get() } else { Fid(ino) }
    }
    /// The inode number of a file.
    pub fn ino(&self, fid: Fid) -> u64 {
        if fid == self.get() { Fid::ROOT.0 } else { fid.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_number_1_whatever_directory_it_is() {
        let root = Root::default();
        assert_eq!((root.get(), root.fid(1), root.fid(9), root.ino(Fid(1))), (Fid::ROOT, Fid(1), Fid(9), 1));
        root.set(Fid(9));
        assert_eq!((root.fid(1), root.ino(Fid(9)), root.fid(9)), (Fid(9), 1, Fid(9)));
        assert_eq!((root.ino(Fid(10)), root.fid(10)), (10, Fid(10)));
    }
}
