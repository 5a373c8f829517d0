//! File attributes that all layers share, and the identity that a caller claims.

use crate::{Fid, Time};

/// The kind of a file. The numbers are on wire and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    File = 1,
    Dir = 2,
    Symlink = 3,
    Fifo = 4,
    Socket = 5,
    Char = 6,
    Block = 7,
}

impl Kind {
    pub fn from_u8(n: u8) -> Option<Kind> {
        use Kind::*;
        [File, Dir, Symlink, Fifo, Socket, Char, Block].into_iter().find(|k| *k as u8 == n)
    }
}

/// Attributes of a file, as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    pub fid: Fid,
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: the low 12 bits of `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte units, as `st_blocks`.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
}

/// The identity of a caller, as the kernel or the library reports it for the calling process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; at most `GROUPS_MAX` on the wire.
    pub groups: Vec<u32>,
}

impl Cred {
    /// Most groups of a request. NGROUPS_MAX of Linux is 65,536; a request with more groups than this is refused, not cut.
    pub const GROUPS_MAX: usize = 1024;
    pub fn root() -> Cred {
        Cred::default()
    }
    /// No group has this number. Among the groups it means that the client's kernel has allowed the request (see `checked`).
    const CHECKED: u32 = u32::MAX;

    /// A caller that the client's kernel has checked by its own rules (an idmapped mount): the MDT's rules refuse it nothing. `uid` and
    /// `gid` own new files. A server that checks requests itself ignores the mark (`unchecked`).
    pub fn checked(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: vec![Cred::CHECKED] }
    }
    fn is_checked(&self) -> bool {
        self.groups.contains(&Cred::CHECKED)
    }
    /// The same caller without the mark of its kernel.
    pub fn unchecked(mut self) -> Cred {
        self.groups.retain(|gid| *gid != Cred::CHECKED);
        self
    }
    /// True for root, and for a caller that the client's kernel has checked.
    pub fn may_all(&self) -> bool {
        self.uid == 0 || self.is_checked()
    }
    /// True if the caller's user is known.
    pub fn is_known(&self) -> bool {
        self.uid != u32::MAX
    }
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
