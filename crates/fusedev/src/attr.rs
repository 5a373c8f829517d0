//! Attributes of a file, as a file system reports them.

use std::time::SystemTime;

use crate::INodeNo;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    NamedPipe,
    CharDevice,
    BlockDevice,
    Directory,
    RegularFile,
    Symlink,
    Socket,
}

impl FileType {
    /// The bits of `st_mode`.
    pub fn mode(self) -> u32 {
        match self {
            FileType::NamedPipe => 0o010000,
            FileType::CharDevice => 0o020000,
            FileType::Directory => 0o040000,
            FileType::BlockDevice => 0o060000,
            FileType::RegularFile => 0o100000,
            FileType::Symlink => 0o120000,
            FileType::Socket => 0o140000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    pub ino: INodeNo,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: SystemTime,
    pub mtime: SystemTime,
    pub ctime: SystemTime,
    /// Birth time; only a STATX reply carries it.
    pub crtime: SystemTime,
    pub kind: FileType,
    /// Permissions and set-id bits: `0o7777`.
    pub perm: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Packed as the C library does: 12 bits of major and 20 of minor, in the kernel's old encoding.
    pub rdev: u32,
    pub blksize: u32,
    /// Flags of the protocol itself (submount, DAX); always 0 here.
    pub flags: u32,
}

/// Attributes that only a STATX reply carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatxAttr {
    /// `STATX_ATTR_*`. Linux 6.18 does not pass them on.
    pub attributes: u64,
    /// The bits of `attributes` that this file system knows.
    pub attributes_mask: u64,
}

/// A time that SETATTR sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    SpecificTime(SystemTime),
    Now,
}
