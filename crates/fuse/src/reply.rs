//! Converts the client's attributes, kinds, times and errors for the kernel.

use std::time::SystemTime;

use client::DirItem;
use fusedev::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use types::{Attr, Fault, Kind, Time};

/// `st_blksize` of files. The C library's buffered streams write in pieces of this size; pieces of 4 KiB would make a request each.
const BLOCK_SIZE_HINT: u32 = 64 * 1024;

pub fn handle(fh: fusedev::FileHandle) -> client::Handle {
    client::Handle(fh.0)
}

pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::Char => FileType::CharDevice,
        Kind::Block => FileType::BlockDevice,
    }
}

/// The attributes of a listing entry that has none: its number and kind.
pub fn bare_attr(ino: INodeNo, item: &DirItem) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: file_type(item.kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// The kind in the mode of `mknod`; without type bits it is a regular file. `None`: directories and symlinks are created otherwise.
pub fn node_kind(mode: u32) -> Option<Kind> {
    match mode & 0o170000 {
        0 | 0o100000 => Some(Kind::File),
        0o010000 => Some(Kind::Fifo),
        0o140000 => Some(Kind::Socket),
        0o020000 => Some(Kind::Char),
        0o060000 => Some(Kind::Block),
        _ => None,
    }
}

pub fn file_attr(ino: INodeNo, attr: &Attr) -> FileAttr {
    FileAttr {
        ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.btime.into(),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_SIZE_HINT,
        flags: 0,
    }
}

pub fn answer_empty(verb: &str, result: Result<(), Fault>, reply: fusedev::ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(fault) => reply.error(errno(verb, &fault)),
    }
}

pub fn time(wanted: TimeOrNow, now: SystemTime) -> Time {
    match wanted {
        TimeOrNow::Now => now.into(),
        TimeOrNow::SpecificTime(t) => t.into(),
    }
}

/// The errno of a fault. EIO is logged, too, since the caller sees neither the object nor the reason.
pub fn errno(verb: &str, fault: &Fault) -> Errno {
    let errno = Errno::from_i32(client::errno_of(fault.code));
    if errno.code() == Errno::EIO.code() {
        tracing::warn!(verb, %fault, "a caller gets EIO; see `stria status` and `stria damage list`");
    }
    errno
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_mknod() {
        assert_eq!(node_kind(0o644), Some(Kind::File));
        assert_eq!(node_kind(0o100644), Some(Kind::File));
        assert_eq!(node_kind(0o010600), Some(Kind::Fifo));
        assert_eq!(node_kind(0o140755), Some(Kind::Socket));
        assert_eq!(node_kind(0o040755), None);
        assert_eq!(node_kind(0o120777), None);
    }
}
