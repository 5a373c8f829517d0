//! Decodes the kernel's requests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    AccessFlags, CopyFileRangeFlags, FileHandle, INodeNo, InitFlags, IoctlFlags, LockOwner, OpenFlags,
    RenameFlags, RequestId, TimeOrNow, WriteFlags, opcode,
};

/// Length of the header of each request.
pub const HEADER_LEN: usize = 40;

/// The header of a request: its opcode, inode and caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub opcode: u32,
    pub unique: RequestId,
    pub node: INodeNo,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub fh: FileHandle,
    pub owner: LockOwner,
    pub start: u64,
    /// The last byte, inclusive.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub typ: i32,
    pub pid: u32,
    /// `flock(2)`, not `fcntl(2)`.
    pub is_flock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
    pub ctime: Option<SystemTime>,
    pub fh: Option<FileHandle>,
    /// Set-id bits must be cleared.
    pub kills_privileges: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    pub name: &'a OsStr,
    pub flags: i32,
    pub mode: u32,
    pub umask: u32,
    pub kills_privileges: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub fh: FileHandle,
    pub offset: u64,
    pub size: u32,
    pub flags: OpenFlags,
    pub owner: Option<LockOwner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: InitFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    pub fh_in: FileHandle,
    pub offset_in: u64,
    pub ino_out: INodeNo,
    pub fh_out: FileHandle,
    pub offset_out: u64,
    pub len: u64,
    pub flags: CopyFileRangeFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    Lookup {
        name: &'a OsStr,
    },
    Forget {
        lookups: u64,
    },
    /// Pairs of inode and count, 16 bytes each.
    BatchForget {
        pairs: &'a [u8],
    },
    GetAttr {
        fh: Option<FileHandle>,
    },
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a OsStr,
        target: &'a Path,
    },
    MkNod {
        name: &'a OsStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    RmDir {
        name: &'a OsStr,
    },
    Rename {
        new_parent: INodeNo,
        name: &'a OsStr,
        new_name: &'a OsStr,
        flags: RenameFlags,
    },
    Link {
        ino: INodeNo,
        name: &'a OsStr,
    },
    Open {
        flags: OpenFlags,
        kills_privileges: bool,
    },
    Read(Read),
    Write {
        to: Read,
        write_flags: WriteFlags,
        data: &'a [u8],
    },
    StatFs,
    Release {
        fh: FileHandle,
        flags: OpenFlags,
        flush: bool,
        owner: Option<LockOwner>,
    },
    Fsync {
        fh: FileHandle,
        data_only: bool,
    },
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: i32,
        extra_flags: u32,
    },
    GetXattr {
        name: &'a OsStr,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a OsStr,
    },
    Flush {
        fh: FileHandle,
        owner: LockOwner,
    },
    Init(Init),
    OpenDir {
        flags: OpenFlags,
    },
    ReadDir {
        fh: FileHandle,
        cookie: u64,
        size: u32,
        flags: OpenFlags,
        plus: bool,
    },
    ReleaseDir {
        fh: FileHandle,
        flags: OpenFlags,
    },
    FsyncDir {
        fh: FileHandle,
        data_only: bool,
    },
    GetLk(Lock),
    SetLk {
        lock: Lock,
        sleep: bool,
    },
    Access {
        mask: AccessFlags,
    },
    Create(Create<'a>),
    TmpFile(Create<'a>),
    Interrupt {
        unique: RequestId,
    },
    Destroy,
    Ioctl {
        fh: FileHandle,
        flags: IoctlFlags,
        cmd: u32,
        data: &'a [u8],
        out_size: u32,
    },
    /// The number of bytes that the kernel holds of those that `Notifier::retrieve` asked for.
    NotifyReply {
        bytes: u32,
    },
    Fallocate {
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
    },
    Lseek {
        fh: FileHandle,
        offset: i64,
        whence: i32,
    },
    CopyFileRange(CopyRange),
    SyncFs,
    Statx {
        fh: Option<FileHandle>,
        flags: u32,
        mask: u32,
    },
    /// An opcode of a later protocol, or one that was not negotiated.
    Unknown,
}

const GETATTR_FH: u32 = 1 << 0;
const READ_LOCKOWNER: u32 = 1 << 1;
const OPEN_KILL_SUIDGID: u32 = 1 << 0;
const RELEASE_FLUSH: u32 = 1 << 0;
const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
const LK_FLOCK: u32 = 1 << 0;
const FSYNC_DATA_ONLY: u32 = 1 << 0;

/// The header and the arguments. `None` if the header is cut short or its length is wrong.
pub fn header(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let mut args = Args(bytes);
    let (len, opcode, unique, node) = (args.u32()?, args.u32()?, args.u64()?, args.u64()?);
    let (uid, gid, pid) = (args.u32()?, args.u32()?, args.u32()?);
    let extensions = args.u16()? as usize * 8;
    args.u16()?;
    if len as usize != bytes.len() {
        return None;
    }
    // Extensions follow the arguments; this crate negotiates none.
    let body = &args.0[..args.0.len().checked_sub(extensions)?];
    let header = Header { opcode, unique: RequestId(unique), node: INodeNo(node), uid, gid, pid };
    Some((header, body))
}

/// Decodes the arguments; `None` if they are cut short or invalid. `long_setxattr`: FUSE_SETXATTR_EXT was negotiated.
pub fn operation(opcode: u32, body: &[u8], long_setxattr: bool) -> Option<Operation<'_>> {
    let mut a = Args(body);
    Some(match opcode {
        opcode::LOOKUP => Operation::Lookup { name: a.name()? },
        opcode::FORGET => Operation::Forget { lookups: a.u64()? },
        opcode::BATCH_FORGET => {
            let count = a.u32()? as usize;
            a.u32()?;
            Operation::BatchForget { pairs: a.bytes(count.checked_mul(16)?)? }
        }
        opcode::GETATTR => {
            let flags = a.u32()?;
            a.u32()?;
            let fh = a.handle()?;
            Operation::GetAttr { fh: (flags & GETATTR_FH != 0).then_some(fh) }
        }
        opcode::STATX => {
            let flags = a.u32()?;
            a.u32()?;
            let fh = a.handle()?;
            let (sx_flags, mask) = (a.u32()?, a.u32()?);
            Operation::Statx { fh: (flags & GETATTR_FH != 0).then_some(fh), flags: sx_flags, mask }
        }
        opcode::SETATTR => Operation::SetAttr(set_attr(&mut a)?),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => Operation::Symlink { name: a.name()?, target: Path::new(a.name()?) },
        opcode::MKNOD => {
            let (mode, rdev, umask) = (a.u32()?, a.u32()?, a.u32()?);
            a.u32()?;
            Operation::MkNod { name: a.name()?, mode, rdev, umask }
        }
        opcode::MKDIR => {
            let (mode, umask) = (a.u32()?, a.u32()?);
            Operation::MkDir { name: a.name()?, mode, umask }
        }
        opcode::UNLINK => Operation::Unlink { name: a.name()? },
        opcode::RMDIR => Operation::RmDir { name: a.name()? },
        opcode::RENAME | opcode::RENAME2 => {
            let new_parent = INodeNo(a.u64()?);
            let flags = match opcode {
                opcode::RENAME => 0,
                _ => {
                    let flags = a.u32()?;
                    a.u32()?;
                    flags
                }
            };
            let (name, new_name) = (a.name()?, a.name()?);
            Operation::Rename { new_parent, name, new_name, flags: RenameFlags::from_bits_retain(flags) }
        }
        opcode::LINK => Operation::Link { ino: INodeNo(a.u64()?), name: a.name()? },
        opcode::OPEN => {
            let (flags, extra) = (a.open_flags()?, a.u32()?);
            Operation::Open { flags, kills_privileges: extra & OPEN_KILL_SUIDGID != 0 }
        }
        opcode::OPENDIR => Operation::OpenDir { flags: a.open_flags()? },
        opcode::READ => Operation::Read(read(&mut a)?.0),
        opcode::READDIR | opcode::READDIRPLUS => {
            let (Read { fh, offset, size, flags, .. }, _) = read(&mut a)?;
            Operation::ReadDir { fh, cookie: offset, size, flags, plus: opcode == opcode::READDIRPLUS }
        }
        opcode::WRITE => {
            let (to, flags) = read(&mut a)?;
            let data = a.bytes(to.size as usize)?;
            Operation::Write { to, write_flags: WriteFlags::from_bits_retain(flags), data }
        }
        opcode::STATFS => Operation::StatFs,
        opcode::RELEASE | opcode::RELEASEDIR => {
            let (fh, flags, release, owner) = (a.handle()?, a.open_flags()?, a.u32()?, LockOwner(a.u64()?));
            match opcode {
                opcode::RELEASEDIR => Operation::ReleaseDir { fh, flags },
                _ => Operation::Release {
                    fh,
                    flags,
                    flush: release & RELEASE_FLUSH != 0,
                    owner: (release & RELEASE_FLOCK_UNLOCK != 0).then_some(owner),
                },
            }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let (fh, data_only) = (a.handle()?, a.u32()? & FSYNC_DATA_ONLY != 0);
            match opcode {
                opcode::FSYNC => Operation::Fsync { fh, data_only },
                _ => Operation::FsyncDir { fh, data_only },
            }
        }
        opcode::SETXATTR => {
            let (size, flags) = (a.u32()?, a.u32()? as i32);
            let extra_flags = if long_setxattr { a.u32()? } else { 0 };
            if long_setxattr {
                a.u32()?;
            }
            let name = a.name()?;
            Operation::SetXattr { name, value: a.bytes(size as usize)?, flags, extra_flags }
        }
        opcode::GETXATTR => {
            let size = a.u32()?;
            a.u32()?;
            Operation::GetXattr { name: a.name()?, size }
        }
        opcode::LISTXATTR => Operation::ListXattr { size: a.u32()? },
        opcode::REMOVEXATTR => Operation::RemoveXattr { name: a.name()? },
        opcode::FLUSH => {
            let fh = a.handle()?;
            a.u64()?;
            Operation::Flush { fh, owner: LockOwner(a.u64()?) }
        }
        opcode::INIT => Operation::Init(init(&mut a)?),
        opcode::GETLK => Operation::GetLk(lock(&mut a)?),
        opcode::SETLK | opcode::SETLKW => {
            Operation::SetLk { lock: lock(&mut a)?, sleep: opcode == opcode::SETLKW }
        }
        opcode::ACCESS => Operation::Access { mask: AccessFlags::from_bits_retain(a.u32()? as i32) },
        opcode::CREATE => Operation::Create(create(&mut a)?),
        opcode::TMPFILE => Operation::TmpFile(create(&mut a)?),
        opcode::INTERRUPT => Operation::Interrupt { unique: RequestId(a.u64()?) },
        opcode::DESTROY => Operation::Destroy,
        opcode::IOCTL => {
            let (fh, flags, cmd) = (a.handle()?, IoctlFlags::from_bits_retain(a.u32()?), a.u32()?);
            a.u64()?;
            let (in_size, out_size) = (a.u32()?, a.u32()?);
            Operation::Ioctl { fh, flags, cmd, data: a.bytes(in_size as usize)?, out_size }
        }
        opcode::NOTIFY_REPLY => {
            let (_, _offset, bytes) = (a.u64()?, a.u64()?, a.u32()?);
            Operation::NotifyReply { bytes }
        }
        opcode::FALLOCATE => {
            let (fh, offset, length, mode) = (a.handle()?, a.u64()?, a.u64()?, a.u32()? as i32);
            Operation::Fallocate { fh, offset, length, mode }
        }
        opcode::LSEEK => {
            let (fh, offset, whence) = (a.handle()?, a.u64()? as i64, a.u32()? as i32);
            Operation::Lseek { fh, offset, whence }
        }
        opcode::COPY_FILE_RANGE => Operation::CopyFileRange(CopyRange {
            fh_in: a.handle()?,
            offset_in: a.u64()?,
            ino_out: INodeNo(a.u64()?),
            fh_out: a.handle()?,
            offset_out: a.u64()?,
            len: a.u64()?,
            flags: CopyFileRangeFlags::from_bits_retain(a.u64()?),
        }),
        opcode::SYNCFS => Operation::SyncFs,
        _ => Operation::Unknown,
    })
}

/// The pairs of a `BatchForget`.
pub fn forgets(pairs: &[u8]) -> impl Iterator<Item = (INodeNo, u64)> + '_ {
    pairs.as_chunks::<16>().0.iter().filter_map(|pair| {
        let mut args = Args(pair);
        Some((INodeNo(args.u64()?), args.u64()?))
    })
}

fn set_attr(a: &mut Args<'_>) -> Option<SetAttr> {
    let valid = a.u32()?;
    a.u32()?;
    let has = |bit: u32| valid & (1 << bit) != 0;
    let (fh, size) = (a.handle()?, a.u64()?);
    let _lock_owner = a.u64()?;
    let seconds = [a.u64()? as i64, a.u64()? as i64, a.u64()? as i64];
    let nanos = [a.u32()?, a.u32()?, a.u32()?];
    let mode = a.u32()?;
    a.u32()?;
    let (uid, gid) = (a.u32()?, a.u32()?);
    a.u32()?;
    let wanted = |which: usize, bit: u32, now_bit: u32| match (has(bit), has(now_bit)) {
        (false, _) => Some(None),
        (true, true) => Some(Some(TimeOrNow::Now)),
        (true, false) => Some(Some(TimeOrNow::SpecificTime(time(seconds[which], nanos[which])?))),
    };
    Some(SetAttr {
        mode: has(0).then_some(mode),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: wanted(0, 4, 7)?,
        mtime: wanted(1, 5, 8)?,
        fh: has(6).then_some(fh),
        ctime: if has(10) { Some(time(seconds[2], nanos[2])?) } else { None },
        kills_privileges: has(11),
    })
}

/// Nanoseconds count forward, also before 1970.
fn time(seconds: i64, nanos: u32) -> Option<SystemTime> {
    let whole = match seconds {
        0.. => UNIX_EPOCH.checked_add(Duration::from_secs(seconds as u64)),
        _ => UNIX_EPOCH.checked_sub(Duration::from_secs(seconds.unsigned_abs())),
    };
    whole?.checked_add(Duration::from_nanos(nanos.min(999_999_999) as u64))
}

/// Arguments of READ and WRITE; the second value is their own flags.
fn read(a: &mut Args<'_>) -> Option<(Read, u32)> {
    let (fh, offset, size, own_flags) = (a.handle()?, a.u64()?, a.u32()?, a.u32()?);
    let (owner, flags) = (LockOwner(a.u64()?), a.open_flags()?);
    a.u32()?;
    let owner = (own_flags & READ_LOCKOWNER != 0).then_some(owner);
    Some((Read { fh, offset, size, flags, owner }, own_flags))
}

fn create<'a>(a: &mut Args<'a>) -> Option<Create<'a>> {
    let (flags, mode, umask, extra) = (a.u32()? as i32, a.u32()?, a.u32()?, a.u32()?);
    Some(Create { name: a.name()?, flags, mode, umask, kills_privileges: extra & OPEN_KILL_SUIDGID != 0 })
}

fn lock(a: &mut Args<'_>) -> Option<Lock> {
    let (fh, owner, start, end) = (a.handle()?, LockOwner(a.u64()?), a.u64()?, a.u64()?);
    let (typ, pid, flags) = (a.u32()? as i32, a.u32()?, a.u32()?);
    Some(Lock { fh, owner, start, end, typ, pid, is_flock: flags & LK_FLOCK != 0 })
}

fn init(a: &mut Args<'_>) -> Option<Init> {
    let (major, minor) = (a.u32()?, a.u32()?);
    let (max_readahead, low) = (a.u32()?, a.u32()? as u64);
    let has_more = low & InitFlags::FUSE_INIT_EXT.bits() != 0;
    let high = if has_more { a.u32()? as u64 } else { 0 };
    Some(Init { major, minor, max_readahead, flags: InitFlags::from_bits_retain(low | high << 32) })
}

/// The arguments of a request that are not decoded yet.
struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }
    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }
    fn handle(&mut self) -> Option<FileHandle> {
        self.u64().map(FileHandle)
    }
    fn open_flags(&mut self) -> Option<OpenFlags> {
        self.u32().map(|flags| OpenFlags(flags as i32))
    }
    /// The bytes up to the next NUL; `None` without one.
    fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|b| *b == 0)?;
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Some(name)
    }
}
