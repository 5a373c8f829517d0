//! Inode numbers, and file handles (NFS): the kernel makes them of the inode number and the generation.
//!
//! A fid names one file for ever, so all files of a file system have one generation. It tells apart handles of two file systems: a file
//! system that is made anew at the same place gives out the same fids.

use client::DirItem;
use fusedev::{FileAttr, Generation, INodeNo};
use types::{Attr, Fid, Uuid};

use crate::door::Door;
use crate::reply::{bare_attr, file_attr};

impl Door {
    pub(crate) fn fid(&self, ino: INodeNo) -> Fid {
        self.fs.root().fid(ino.0)
    }
    pub(crate) fn ino(&self, fid: Fid) -> INodeNo {
        INodeNo(self.fs.root().ino(fid))
    }
    /// The kernel accepts only 0 for the root.
    pub(crate) fn generation(&self, fid: Fid) -> Generation {
        if fid == self.fs.root().get() { Generation(0) } else { self.generation }
    }
    pub(crate) fn file_attr(&self, attr: &Attr) -> FileAttr {
        file_attr(self.ino(attr.fid), attr)
    }
    pub(crate) fn bare_attr(&self, item: &DirItem) -> FileAttr {
        bare_attr(self.ino(item.fid), item)
    }
}

/// 32 bits of the file system's uuid: the kernel keeps no more.
pub fn generation_of(fs: Uuid) -> Generation {
    let words = fs.0.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    Generation(words.fold(0, |all, word| all ^ word) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_of_one_file_system() {
        let mut bytes = [0; 16];
        assert_eq!(generation_of(Uuid(bytes)), Generation(0));
        bytes[5] = 0xa7;
        assert_eq!(generation_of(Uuid(bytes)), Generation(0xa700));
        bytes[15] = 0x81;
        assert_eq!(generation_of(Uuid(bytes)), Generation(0x8100_a700));
    }
}
