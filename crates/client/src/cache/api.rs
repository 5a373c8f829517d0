//! The plain values that callers of `Fs` hand in and get back.

use std::time::Duration;

use types::{Attr, Fid, Kind, Time};
use wire::session::Claims;

/// How a client behaves. `Default` is what a mount uses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Every call ends within this time; its error is then `Code::Timeout`.
    pub op_timeout: Duration,
    /// Time between two background rounds that flush and settle files without an fsync.
    pub commit_interval: Duration,
    /// Most bytes of acknowledged but unflushed requests kept per target for replay; past it a caller waits for a flush.
    pub retain_bytes_max: usize,
    /// Shown to people in the servers' lists of clients: host, pid, mount point.
    pub name: String,
    /// How long the kernel may go on using names and attributes that it was told before another client came in.
    pub kernel_remembers: Duration,
    /// A tool that only reads: it takes no session and does not count as a client.
    pub observer: bool,
    /// The users that the mount acts for.
    pub claims: Claims,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            op_timeout: Duration::from_secs(60),
            commit_interval: Duration::from_secs(1),
            // One commit interval of a 2 Gb/s link; a faster one waits for flushes that happen anyway.
            retain_bytes_max: 256 << 20,
            name: String::new(),
            kernel_remembers: Duration::ZERO,
            observer: false,
            claims: Claims::All,
        }
    }
}

/// An open file description of this client. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    /// Every write goes to the file's end as it is then, whatever offset it names.
    pub append: bool,
    /// The caller appends and sees to the offsets by itself; append-only files may be opened.
    pub appends_itself: bool,
    /// Empties the file.
    pub truncate: bool,
    /// `create` only: an existing name is `Exists`.
    pub exclusive: bool,
    /// What the descriptor changes is durable before the call returns: see `Fs::sync_if_asked`.
    pub sync: bool,
}

impl OpenFlags {
    pub fn read_only() -> OpenFlags {
        OpenFlags { read: true, ..OpenFlags::default() }
    }
    pub fn read_write() -> OpenFlags {
        OpenFlags { read: true, write: true, ..OpenFlags::default() }
    }
}

/// The mode that a new file is asked for. The umask counts unless the directory has a default ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mode {
    pub bits: u32,
    pub umask: u32,
}
impl From<u32> for Mode {
    fn from(bits: u32) -> Mode {
        Mode { bits, umask: 0 }
    }
}

/// What `setattr` changes; `None` stays as it is. Ctime becomes the present time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    /// Those times are the present moment: who may write the file may set both.
    pub touch: bool,
    /// Takes set-id bits away, as a change of content does.
    pub kill_privileges: bool,
}

/// An entry of a listing. `cookie` continues the listing after this entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    pub name: Vec<u8>,
    pub fid: Fid,
    pub kind: Kind,
    pub cookie: u64,
    /// Only if asked for, and never for `.` and `..`; missing also if its servers did not tell in time. Ask for the file then.
    pub attr: Option<Attr>,
}

/// The file system's numbers: bytes are of the OSTs, files of the MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatFs {
    pub bytes_total: u64,
    pub bytes_free: u64,
    /// Bytes that ordinary users may still take.
    pub bytes_available: u64,
    pub files_total: u64,
    pub files_free: u64,
    /// Unit in bytes in which space is best counted.
    pub block_size: u32,
    pub name_max: u32,
}

/// What `fallocate` does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Every byte has space afterwards, and the file reaches at least to the range's end.
    Grow,
    /// Every byte has space afterwards; the size stays.
    KeepSize,
    /// Bytes become zeros, and give their space back where whole pages do.
    Punch,
    /// Bytes become zeros and have space; the file reaches at least to the range's end.
    Zero,
    /// Bytes become zeros and have space; the size stays.
    ZeroKeepSize,
}

impl Allocate {
    pub(crate) fn allocates(self) -> bool {
        self != Allocate::Punch
    }
    pub(crate) fn erases(self) -> bool {
        matches!(self, Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize)
    }
    pub(crate) fn grows(self) -> bool {
        matches!(self, Allocate::Grow | Allocate::Zero)
    }
}
