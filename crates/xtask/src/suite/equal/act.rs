//! Executes a sequence in a directory, on a thread of its own that assumes the ids of its users. Returns the outcome of each call.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{self as sys, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::call::{Call, FLAGS, Node, SLOTS, Slot, Step, Time, USERS, User};

/// The outcome of calls on files for which `Actor::is_gone` holds.
const GONE: &str = "on what is gone";

/// The result of a call, without the parts that may differ between file systems.
pub type Outcome = std::result::Result<String, Errno>;

/// A directory to act in: through one mount, or through each in turn.
pub struct Side {
    pub places: Vec<PathBuf>,
    /// The sequence is carried out through two mounts here or on the other side.
    pub two: bool,
    /// `O_DIRECT` is asked for where the call says so. (On ext4 it would need alignment; what it gives is what buffered calls give.)
    pub direct: bool,
    /// Changes of times can be told from each other (`tells_times`).
    pub times: bool,
}

struct Actor {
    slots: Vec<Option<OwnedFd>>,
    places: Vec<OwnedFd>,
    two: bool,
    direct: bool,
    times: bool,
}

/// Carries out `steps`; the process's working directory and umask are as before afterwards.
pub fn act(side: &Side, steps: &[Step]) -> Result<Vec<Outcome>> {
    let home = sys::open(".", OFlags::PATH, Mode::empty())?;
    let open =
        |p: &PathBuf| sys::open(p, OFlags::PATH, Mode::empty()).with_context(|| p.display().to_string());
    let mut actor = Actor {
        slots: (0..SLOTS).map(|_| None).collect(),
        places: side.places.iter().map(open).collect::<Result<_>>()?,
        two: side.two,
        direct: side.direct,
        times: side.times,
    };
    let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let outcomes = std::thread::scope(|scope| scope.spawn(move || actor.run(steps)).join());
    rustix::process::umask(umask);
    rustix::process::fchdir(home)?;
    outcomes.map_err(|_| anyhow::anyhow!("the acting thread panicked"))?
}

impl Actor {
    fn run(&mut self, steps: &[Step]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(steps.len());
        for (n, step) in steps.iter().enumerate() {
            rustix::process::fchdir(&self.places[n % self.places.len()])?;
            let before = step.watch.then(|| self.watched(&step.call));
            become_user(USERS[step.who])?;
            let outcome = self.call(&step.call);
            become_user(USERS[0])?;
            outcomes.push(match before {
                Some(before) if self.times && outcome.as_deref() != Ok(GONE) => {
                    let changes = changes(&before, &self.watched(&step.call));
                    outcome.map(|said| format!("{said}; changed {changes}"))
                }
                _ => outcome,
            });
        }
        Ok(outcomes)
    }

    fn fd(&self, slot: Slot) -> std::result::Result<&OwnedFd, Errno> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    fn put(&mut self, slot: Slot, fd: OwnedFd) -> Outcome {
        self.slots[slot] = Some(fd);
        done(())
    }

    /// Whether an unlinked open file is gone: no regular file, or held by `O_PATH` only (SEMANTICS, exceptions).
    fn is_gone(&self, slot: Slot) -> bool {
        let Ok(fd) = self.fd(slot) else { return false };
        let is_path = sys::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::PATH));
        match sys::fstat(fd) {
            Ok(stat) => {
                let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                stat.st_nlink == 0 && (!is_file || is_path)
            }
            Err(e) => e == Errno::STALE,
        }
    }

    fn call(&mut self, call: &Call) -> Outcome {
        if let Some(slot) = call.slot()
            && self.is_gone(slot)
        {
            return Ok(GONE.into());
        }
        let mode = |m: &u32| Mode::from_raw_mode(*m);
        match call {
            // Without O_NONBLOCK a fifo would hold the test up.
            Call::Open { slot, path, flags, mode: m } => {
                let mut flags = OFlags::from_bits_retain(*flags) | OFlags::NONBLOCK;
                flags.set(OFlags::DIRECT, self.direct && is_for_direct(path, flags));
                let fd = sys::openat(CWD, path.as_str(), flags, mode(m))?;
                self.put(*slot, fd)
            }
            Call::TmpFile { slot, path, mode: m } => {
                let fd = sys::openat(CWD, path.as_str(), OFlags::TMPFILE | OFlags::RDWR, mode(m))?;
                self.put(*slot, fd)
            }
            Call::Close(slot) => {
                self.slots[*slot] = None;
                done(())
            }
            Call::Dup { from, to } => {
                let fd = rustix::io::fcntl_dupfd_cloexec(self.fd(*from)?, 0)?;
                self.put(*to, fd)
            }
            Call::SetAppend(slot, on) => {
                let fd = self.fd(*slot)?;
                let mut flags = sys::fcntl_getfl(fd)?;
                flags.set(OFlags::APPEND, *on);
                done(sys::fcntl_setfl(fd, flags)?)
            }
            Call::Read(slot, len) => {
                let mut bytes = vec![0; *len];
                let n = rustix::io::read(self.fd(*slot)?, &mut bytes[..])?;
                Ok(content(&bytes[..n]))
            }
            Call::Pread(slot, at, len) => {
                let mut bytes = vec![0; *len];
                let n = rustix::io::pread(self.fd(*slot)?, &mut bytes[..], *at)?;
                Ok(content(&bytes[..n]))
            }
            Call::Write(slot, len, fill) => {
                Ok(rustix::io::write(self.fd(*slot)?, &pattern(*len, *fill))?.to_string())
            }
            Call::Pwrite(slot, at, len, fill) => {
                Ok(rustix::io::pwrite(self.fd(*slot)?, &pattern(*len, *fill), *at)?.to_string())
            }
            Call::Seek(slot, whence, at) => self.seek(*slot, *whence, *at),
            Call::Ftruncate(slot, len) => done(sys::ftruncate(self.fd(*slot)?, *len)?),
            Call::Fallocate(slot, flags, at, len) => {
                let flags = sys::FallocateFlags::from_bits_retain(*flags);
                done(sys::fallocate(self.fd(*slot)?, flags, *at, *len)?)
            }
            Call::CopyRange { from, at, to, to_at, len } => {
                let (mut at, mut to_at) = (*at, *to_at);
                if self.is_gone(*from) || self.is_gone(*to) {
                    return Ok(GONE.into());
                }
                if self.two {
                    // Descriptors of two mounts are of two files to the kernel; and it takes the source's size as it saw it last
                    // (SEMANTICS, exceptions).
                    let (source, target) = (sys::fstat(self.fd(*from)?), sys::fstat(self.fd(*to)?));
                    if source.is_ok_and(|s| target.is_ok_and(|t| s.st_ino == t.st_ino)) {
                        return Ok("within one file".into());
                    }
                }
                let n = sys::copy_file_range(
                    self.fd(*from)?,
                    Some(&mut at),
                    self.fd(*to)?,
                    Some(&mut to_at),
                    *len,
                )?;
                Ok(format!("{n}, then at {at} and {to_at}"))
            }
            Call::Fsync(slot) => done(sys::fsync(self.fd(*slot)?)?),
            Call::Fdatasync(slot) => done(sys::fdatasync(self.fd(*slot)?)?),
            Call::Flock(slot, kind) => done(sys::flock(self.fd(*slot)?, lock(*kind))?),
            Call::Lock(slot, kind) => done(sys::fcntl_lock(self.fd(*slot)?, lock(*kind))?),
            Call::Fchmod(slot, m) => done(sys::fchmod(self.fd(*slot)?, mode(m))?),
            Call::Fchown(slot, uid, gid) => {
                done(sys::fchown(self.fd(*slot)?, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?)
            }
            Call::Futimens(slot, a, m) => {
                let fd = self.fd(*slot)?;
                sys::futimens(fd, &stamps(*a, *m))?;
                Ok(times_shown(&sys::fstat(fd)?, a))
            }
            Call::Fstat(slot) => Ok(shown(&sys::fstat(self.fd(*slot)?)?)),
            Call::SetFlags(slot, flags) => {
                let fd = self.fd(*slot)?;
                let old = sys::ioctl_getflags(fd)?;
                let (mask, new) =
                    (sys::IFlags::from_bits_retain(FLAGS), sys::IFlags::from_bits_retain(*flags));
                sys::ioctl_setflags(fd, old.difference(mask).union(new))?;
                Ok(format!("{:x} before", old.intersection(mask).bits()))
            }
            Call::LinkFd(slot, path) => {
                let fd = format!("/proc/self/fd/{}", self.fd(*slot)?.as_raw_fd());
                done(sys::linkat(CWD, fd.as_str(), CWD, path.as_str(), AtFlags::SYMLINK_FOLLOW)?)
            }
            // As a program does after ESTALE of a rename, when the other mount has moved the directory (SEMANTICS, exceptions).
            Call::Rename(from, to, _) if self.two => by_name(call).or_else(|e| match e {
                Errno::STALE => {
                    for name in [from, to] {
                        let _ = sys::statat(CWD, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
                    }
                    by_name(call)
                }
                _ => Err(e),
            }),
            other => by_name(other),
        }
    }

    /// `SEEK_DATA` and `SEEK_HOLE` (3, 4) may answer by other units than ext4: what is between 0 and the end is right, and the
    /// position is put where it does not matter.
    fn seek(&mut self, slot: Slot, whence: u32, at: i64) -> Outcome {
        let fd = self.fd(slot)?;
        let to = match whence {
            0 => sys::SeekFrom::Start(at.unsigned_abs()),
            1 => sys::SeekFrom::Current(at),
            2 => sys::SeekFrom::End(at / 4),
            3 => sys::SeekFrom::Data(at.unsigned_abs()),
            _ => sys::SeekFrom::Hole(at.unsigned_abs()),
        };
        let kind = FileType::from_raw_mode(sys::fstat(fd)?.st_mode);
        if kind == FileType::Directory {
            // Its positions are the file system's own.
            return Ok("in a directory".into());
        }
        if whence < 3 {
            return Ok(sys::seek(fd, to)?.to_string());
        }
        let inside = (at.unsigned_abs() as i64) < sys::fstat(fd)?.st_size;
        let found = sys::seek(fd, to);
        if kind != FileType::RegularFile || !inside {
            return found.map(|p| p.to_string());
        }
        sys::seek(fd, sys::SeekFrom::Start(0))?;
        match found {
            Ok(_) | Err(Errno::NXIO) => Ok("somewhere".into()),
            Err(e) => Err(e),
        }
    }

    /// mtime and ctime of what a call is about: the file of a descriptor; the file and the directory of each name.
    fn watched(&self, call: &Call) -> Vec<Option<[i64; 5]>> {
        let of = |s: Stat| {
            [s.st_ino as i64, s.st_mtime, s.st_mtime_nsec as i64, s.st_ctime, s.st_ctime_nsec as i64]
        };
        let name = |path: &str| {
            let dir = path.rfind('/').map_or(".", |at| &path[..at.max(1)]);
            [path, dir].map(|p| sys::statat(CWD, p, AtFlags::SYMLINK_NOFOLLOW).ok().map(of))
        };
        let stat = |s: Slot| self.slots[s].as_ref().and_then(|fd| sys::fstat(fd).ok());
        // I/O on a fifo or a device does not change its times (SEMANTICS, exceptions).
        let is_file = |s: &Stat| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile;
        let content = |s: Slot| stat(s).filter(is_file).map(of);
        match call {
            Call::Read(s, _)
            | Call::Pread(s, ..)
            | Call::Write(s, ..)
            | Call::Pwrite(s, ..)
            | Call::Ftruncate(s, _)
            | Call::Fallocate(s, ..)
            | Call::Fsync(s) => vec![content(*s)],
            Call::Fchmod(s, _) | Call::Fchown(s, ..) | Call::SetFlags(s, _) => vec![stat(*s).map(of)],
            Call::CopyRange { from, to, .. } => vec![content(*from), content(*to)],
            Call::Open { path, .. }
            | Call::Mkdir(path, _)
            | Call::Rmdir(path)
            | Call::Unlink(path)
            | Call::Symlink(_, path)
            | Call::Mknod(path, ..)
            | Call::Chmod(path, _)
            | Call::Truncate(path, _)
            | Call::Chown(path, ..)
            | Call::SetXattr(path, ..)
            | Call::RemoveXattr(path, ..)
            | Call::List(path) => name(path).to_vec(),
            Call::Rename(from, to, _) | Call::Link(from, to, _) => [name(from), name(to)].concat(),
            _ => Vec::new(),
        }
    }
}

/// Only regular files take it, and those that a call makes.
fn is_for_direct(path: &str, flags: OFlags) -> bool {
    let there = sys::statat(CWD, path, AtFlags::empty());
    flags.contains(OFlags::DIRECT)
        && !flags.intersects(OFlags::PATH | OFlags::DIRECTORY)
        && there.map_or(true, |s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile)
}

/// The calls that take names and no descriptor.
fn by_name(call: &Call) -> Outcome {
    let mode = |m: &u32| Mode::from_raw_mode(*m);
    let nofollow = |no: bool| if no { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    match call {
        Call::Mkdir(path, m) => done(sys::mkdirat(CWD, path.as_str(), mode(m))?),
        Call::Rmdir(path) => done(sys::unlinkat(CWD, path.as_str(), AtFlags::REMOVEDIR)?),
        Call::Unlink(path) => done(sys::unlinkat(CWD, path.as_str(), AtFlags::empty())?),
        Call::Rename(from, to, flags) => {
            let flags = sys::RenameFlags::from_bits_retain(*flags);
            done(sys::renameat_with(CWD, from.as_str(), CWD, to.as_str(), flags)?)
        }
        Call::Link(from, to, follow) => {
            let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            done(sys::linkat(CWD, from.as_str(), CWD, to.as_str(), flags)?)
        }
        Call::Symlink(target, path) => done(sys::symlinkat(target.as_str(), CWD, path.as_str())?),
        Call::Readlink(path) => {
            Ok(sys::readlinkat(CWD, path.as_str(), Vec::new())?.to_string_lossy().into_owned())
        }
        Call::Mknod(path, node, m) => {
            let (kind, dev) = match node {
                Node::Fifo => (FileType::Fifo, 0),
                Node::Socket => (FileType::Socket, 0),
                // The null device, which may be opened, and a block device that no driver has.
                Node::Char => (FileType::CharacterDevice, sys::makedev(1, 3)),
                Node::Block => (FileType::BlockDevice, sys::makedev(240, 7)),
                Node::File => (FileType::RegularFile, 0),
            };
            done(sys::mknodat(CWD, path.as_str(), kind, mode(m), dev)?)
        }
        Call::Truncate(path, len) => {
            let cut = nix::unistd::truncate(path.as_str(), *len as i64);
            done(cut.map_err(|e| Errno::from_raw_os_error(e as i32))?)
        }
        Call::Chmod(path, m) => done(sys::chmodat(CWD, path.as_str(), mode(m), AtFlags::empty())?),
        Call::Chown(path, uid, gid, no) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            done(sys::chownat(CWD, path.as_str(), uid, gid, nofollow(*no))?)
        }
        Call::Utimens(path, a, m, no) => {
            sys::utimensat(CWD, path.as_str(), &stamps(*a, *m), nofollow(*no))?;
            Ok(times_shown(&sys::statat(CWD, path.as_str(), nofollow(*no))?, a))
        }
        Call::Stat(path, no) => Ok(shown(&sys::statat(CWD, path.as_str(), nofollow(*no))?)),
        Call::Access(path, how) => {
            done(sys::accessat(CWD, path.as_str(), sys::Access::from_bits_retain(*how), AtFlags::empty())?)
        }
        Call::List(path) => list(path),
        Call::SetXattr(path, name, len, flags, no) => {
            let (value, flags) = (pattern(*len, 7), sys::XattrFlags::from_bits_retain(*flags));
            let set = if *no {
                sys::lsetxattr(path.as_str(), *name, &value, flags)
            } else {
                sys::setxattr(path.as_str(), *name, &value, flags)
            };
            done(set?)
        }
        Call::GetXattr(path, name, no) => {
            let mut value = vec![0; 70_000];
            let n = if *no {
                sys::lgetxattr(path.as_str(), *name, &mut value[..])?
            } else {
                sys::getxattr(path.as_str(), *name, &mut value[..])?
            };
            Ok(content(&value[..n]))
        }
        Call::ListXattr(path, no) => Ok(xattr_names(path, *no)?.join(" ")),
        Call::RemoveXattr(path, name, no) => {
            let removed = if *no {
                sys::lremovexattr(path.as_str(), *name)
            } else {
                sys::removexattr(path.as_str(), *name)
            };
            done(removed?)
        }
        Call::SetAcl(path, default, which) => {
            let name = if *default { "system.posix_acl_default" } else { "system.posix_acl_access" };
            done(sys::setxattr(path.as_str(), name, &acl(*which), sys::XattrFlags::empty())?)
        }
        Call::Umask(mask) => {
            rustix::process::umask(Mode::from_raw_mode(*mask));
            done(())
        }
        _ => Err(Errno::NOSYS),
    }
}

/// Effective and real ids of this thread alone; the saved id stays root's, so that it can come back.
fn become_user(user: User) -> Result<()> {
    let (root, uid, gid) = (Uid::ROOT, Uid::from_raw(user.id), Gid::from_raw(user.id));
    rustix::thread::set_thread_res_uid(root, root, root)?;
    let groups: Vec<Gid> = user.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, root)?)
}

fn done((): ()) -> Outcome {
    Ok("done".into())
}

fn lock(kind: u32) -> sys::FlockOperation {
    match kind {
        0 => sys::FlockOperation::NonBlockingLockShared,
        1 => sys::FlockOperation::NonBlockingLockExclusive,
        _ => sys::FlockOperation::NonBlockingUnlock,
    }
}

fn stamps(a: Time, m: Time) -> Timestamps {
    let stamp = |t: Time| match t {
        Time::Omit => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
        Time::Now => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_NOW },
        Time::At(sec, nsec) => Timespec { tv_sec: sec, tv_nsec: nsec as _ },
    };
    Timestamps { last_access: stamp(a), last_modification: stamp(m) }
}

/// Bytes that differ with their place, so that moved data shows.
pub fn pattern(len: usize, fill: u8) -> Vec<u8> {
    (0..len).map(|i| fill.wrapping_add((i / 7) as u8)).collect()
}

/// Length and checksum (FNV-1a); short ones in full.
pub fn content(bytes: &[u8]) -> String {
    if bytes.len() <= 16 {
        return format!("{} bytes {bytes:?}", bytes.len());
    }
    let hash =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3));
    format!("{} bytes {hash:016x}", bytes.len())
}

/// Directories have sizes of their own; times are elsewhere.
pub fn shown(s: &Stat) -> String {
    let is_dir = FileType::from_raw_mode(s.st_mode) == FileType::Directory;
    let size = if is_dir { 0 } else { s.st_size };
    format!(
        "{:o} links {} size {size} owner {}:{} device {}",
        s.st_mode, s.st_nlink, s.st_uid, s.st_gid, s.st_rdev
    )
}

/// Times that a call set show as they are, those of the clock as `now`.
pub fn time_shown(sec: i64, nsec: i64) -> String {
    if sec > 1 << 30 { "now".into() } else { format!("{sec}.{nsec:09}") }
}
/// An access time that this call did not set may have been changed by a read, here within a second and there not at all.
fn times_shown(s: &Stat, atime: &Time) -> String {
    // I/O on a fifo does not change its times here (SEMANTICS, exceptions).
    let is_fifo = FileType::from_raw_mode(s.st_mode) == FileType::Fifo;
    let mtime = if is_fifo { "of a fifo".into() } else { time_shown(s.st_mtime, s.st_mtime_nsec as i64) };
    match atime {
        Time::Omit => format!("mtime {mtime}"),
        _ => format!("atime {} mtime {mtime}", time_shown(s.st_atime, s.st_atime_nsec as i64)),
    }
}

fn list(path: &str) -> Outcome {
    let fd = sys::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME, Mode::empty())
        .or_else(|_| sys::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in sys::Dir::read_from(fd)? {
        let entry = entry?;
        names.push(format!("{}:{:?}", entry.file_name().to_string_lossy(), entry.file_type()));
    }
    names.sort();
    Ok(names.join(" "))
}

pub fn xattr_names(path: &str, nofollow: bool) -> std::result::Result<Vec<String>, Errno> {
    let mut buf = vec![0; 70_000];
    let n = if nofollow { sys::llistxattr(path, &mut buf[..])? } else { sys::listxattr(path, &mut buf[..])? };
    let mut names: Vec<String> = buf[..n]
        .split(|b| *b == 0)
        .filter(|s| !s.is_empty())
        .map(|s| String::from_utf8_lossy(s).into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Entries in the kernel's form: tag, permissions, id.
fn acl(which: usize) -> Vec<u8> {
    const ANY: u32 = u32::MAX;
    let (user_obj, user, group_obj, group, mask, other) = (1, 2, 4, 8, 16, 32);
    let entries: &[(u16, u16, u32)] = match which {
        0 => &[(user_obj, 6, ANY), (group_obj, 4, ANY), (other, 4, ANY)],
        1 => &[(user_obj, 7, ANY), (user, 7, 1000), (group_obj, 5, ANY), (mask, 7, ANY), (other, 0, ANY)],
        2 => &[(user_obj, 7, ANY), (group_obj, 0, ANY), (group, 6, 2000), (mask, 6, ANY), (other, 5, ANY)],
        3 => &[(user_obj, 6, ANY), (user, 4, 1001), (group_obj, 6, ANY), (mask, 4, ANY), (other, 0, ANY)],
        // No mask although a user is named: refused.
        _ => &[(user_obj, 7, ANY), (user, 7, 1000), (group_obj, 5, ANY), (other, 0, ANY)],
    };
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// For each file that was there before and after: which of mtime (m) and ctime (c) changed.
fn changes(before: &[Option<[i64; 5]>], after: &[Option<[i64; 5]>]) -> String {
    let pairs = before.iter().zip(after).map(|pair| match pair {
        (Some(b), Some(a)) if a[0] != b[0] => "[another]".into(),
        (Some(b), Some(a)) => {
            let m = if a[1..3] != b[1..3] { "m" } else { "" };
            let c = if a[3..] != b[3..] { "c" } else { "" };
            format!("[{m}{c}]")
        }
        (None, Some(_)) => "[new]".into(),
        (Some(_), None) => "[gone]".into(),
        (None, None) => "[none]".into(),
    });
    pairs.collect()
}
