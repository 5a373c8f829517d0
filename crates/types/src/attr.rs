//! A file's attributes as every layer speaks of them, and the identity that a caller claims.

use crate::{Fid, Time};

/// What a file is. The numbers are on wire and disk.
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

/// Who asks: what the kernel or the library says of the calling process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; at most `GROUPS_MAX` on the wire.
    pub groups: Vec<u32>,
}

impl Cred {
    /// NGROUPS_MAX of Linux is 65,536; a request that lists more than this many is refused rather than cut.
    pub const GROUPS_MAX: usize = 1024;
    pub fn root() -> Cred {
        Cred::default()
    }
    /// No group has this number. Among the groups it says that the client's kernel has allowed the request, as `checked` does.
    const CHECKED: u32 = u32::MAX;

    /// A caller that the client's kernel has judged by rules of its own (an idmapped mount): rules refuse it nothing. `uid` and `gid` own
    /// what is made. A server that judges requests itself does not believe it (`unchecked`).
    pub fn checked(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: vec![Cred::CHECKED] }
    }
    fn is_checked(&self) -> bool {
        self.groups.contains(&Cred::CHECKED)
    }
    /// The same caller without its kernel's word.
    pub fn unchecked(mut self) -> Cred {
        self.groups.retain(|gid| *gid != Cred::CHECKED);
        self
    }
    /// Root, or a caller that the client's kernel has judged.
    pub fn may_all(&self) -> bool {
        self.uid == 0 || self.is_checked()
    }
    /// Whether it is known who asks.
    pub fn is_known(&self) -> bool {
        self.uid != u32::MAX
    }
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
