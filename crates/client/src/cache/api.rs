//! Values of the interface of `Fs`.

use std::sync::Arc;
use std::time::Duration;

use mgmt::params::{Param, Params};
use types::{Attr, Fid, Kind, Time};
use wire::session::Claims;

use crate::cache::leased::Leave;

/// Settings of a client. A mount uses `Default`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Every call ends within this time, at worst with `Code::Timeout`.
    pub op_timeout: Duration,
    /// Time between two background rounds of flushes and updates.
    pub commit_interval: Duration,
    /// Most bytes of unflushed requests that are retained per target for replay. Past it a caller waits for a flush.
    pub retain_bytes_max: usize,
    /// Shown to people in the servers' lists of clients: host, pid, mount point.
    pub name: String,
    /// A tool that only reads: it takes no session and does not count as a client.
    pub observer: bool,
    /// Users that the mount acts for.
    pub claims: Claims,
    /// Small files are made and removed here first, and the MDT hears of it a moment later, in bulk. A kill of this process loses what it had
    /// not shipped.
    pub ships_names: bool,
    /// Most bytes of buffered writes that programs were told are done, and whose targets have not acknowledged them. 0: `write` waits for them.
    pub write_behind: usize,
    /// If the servers live in this process, locks stay with the kernel (decision 0015). Other mounts get none meanwhile.
    pub own_locks: bool,
    /// Parameters that the client follows: those that the cluster map keeps for mounts. `None`: the settings stay as they are, as those of tools.
    pub params: Option<Tuned>,
}

/// The parameters of a mount.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// Their values, with the options of the mount.
    pub params: Arc<Params>,
    /// Values without options and kept values.
    pub base: fn(Param) -> u64,
}

impl Tuned {
    /// The value that holds.
    pub fn value(&self, param: Param) -> u64 {
        self.params.get(param).unwrap_or_else(|| (self.base)(param))
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            op_timeout: Duration::from_secs(60),
            commit_interval: Duration::from_secs(1),
            // One commit interval of a 2 Gb/s link; a faster one waits for flushes that happen anyway.
            retain_bytes_max: 256 << 20,
            name: String::new(),
            observer: false,
            claims: Claims::All,
            ships_names: true,
            // A tenth of a second of a 5 Gb/s link; the kernel has these bytes as well.
            write_behind: 64 << 20,
            own_locks: false,
            params: None,
        }
    }
}

/// An open file description of this client. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// Flags of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    /// Every write goes to the present end of the file, whatever offset it names.
    pub append: bool,
    /// The caller appends and chooses offsets itself. Append-only files may be opened.
    pub appends_itself: bool,
    /// Empties the file.
    pub truncate: bool,
    /// `create` only: an existing name is `Exists`.
    pub exclusive: bool,
    /// Changes by this descriptor are durable before the call returns: see `Fs::sync_if_asked`.
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

/// Mode of a new file. The umask counts unless the directory has a default ACL.
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

/// Attributes that `setattr` changes. `None` stays as it is. Ctime becomes the present time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    /// The times are the present time, so that any user with write permission may set both.
    pub touch: bool,
    /// Removes set-id bits, as a change of content does.
    pub kill_privileges: bool,
}

/// An entry of a listing. `cookie` continues the listing after this entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    pub name: Vec<u8>,
    pub fid: Fid,
    pub kind: Kind,
    pub cookie: u64,
    /// Attributes if they were asked for, never for `.` and `..`. `None` also if the servers did not answer in time; then ask for the file.
    pub attr: Option<Attr>,
    /// Parts of it that the kernel may cache.
    pub leave: Leave,
}

/// Numbers of the file system: bytes of the OSTs, files of the MDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatFs {
    pub bytes_total: u64,
    pub bytes_free: u64,
    /// Bytes that ordinary users may still take.
    pub bytes_available: u64,
    pub files_total: u64,
    pub files_free: u64,
    /// Unit of space in bytes.
    pub block_size: u32,
    pub name_max: u32,
}

/// Kinds of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Every byte gets space. The file ends at the range's end at least.
    Grow,
    /// Every byte gets space. The size stays.
    KeepSize,
    /// Bytes become zeros. Whole pages give their space back.
    Punch,
    /// Bytes become zeros and have space. The file ends at the range's end at least.
    Zero,
    /// Bytes become zeros and have space. The size stays.
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
