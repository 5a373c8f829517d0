//! `passfs`: each request becomes the same system call on the directory below, as libfuse's `passthrough_hp` does it.
//!
//! Names go through the parent's `O_PATH` descriptor, content through real descriptors with `pread` and `pwrite`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuse::MountOptions;
use fuser::*;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{self, AtFlags, Mode, OFlags, RawDir, SeekFrom, Stat, Timespec, Timestamps, XattrFlags};
use rustix::io::Result;

use crate::faults::Faults;
use crate::inodes::Inodes;
use crate::session::{fopen_flags, kernel_config};

/// Direct I/O below wants buffers at page borders.
const ALIGN: usize = 4096;
/// One listing's worth of entries below; the kernel's own buffer is at most as large with glibc.
const DIR_BUFFER: usize = 32 * 1024;
const SHARDS: usize = 64;
/// Largest extended attribute, and list of their names, in Linux.
const XATTR_MAX: usize = 65_536;

thread_local! {
    static CONTENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An open file or directory below.
struct Open {
    fd: OwnedFd,
    direct: bool,
    /// Concurrent listings through this handle share the directory's position.
    listing: Mutex<()>,
}

pub struct Pass {
    inodes: Inodes,
    /// `/proc/self/fd`: opens and changes a file by its `O_PATH` descriptor.
    proc_fds: OwnedFd,
    opens: [RwLock<HashMap<u64, Arc<Open>>>; SHARDS],
    next_handle: AtomicU64,
    options: MountOptions,
    with_xattrs: bool,
    /// The medium below fails as these say. Content is then not cached above, so that each request comes here.
    faults: Option<Arc<Faults>>,
}

impl Pass {
    /// `with_xattrs`: forward extended attributes (as Stria has them); without, the kernel is told that there are none.
    pub fn new(source: &Path, options: MountOptions, with_xattrs: bool) -> Result<Pass> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(source, flags, Mode::empty())?;
        let proc_fds = fs::open("/proc/self/fd", flags, Mode::empty())?;
        // The kernel applies the caller's umask; ours must not come on top.
        rustix::process::umask(Mode::empty());
        Ok(Pass {
            inodes: Inodes::new(root)?,
            proc_fds,
            opens: std::array::from_fn(|_| RwLock::default()),
            next_handle: AtomicU64::new(1),
            options,
            with_xattrs,
            faults: None,
        })
    }

    #[must_use]
    pub fn with_faults(mut self, faults: Arc<Faults>) -> Pass {
        self.faults = Some(faults);
        self
    }

    /// True if the medium below fails a request.
    fn check(&self, ask: impl FnOnce(&Faults) -> Result<()>) -> Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| ask(faults))
    }

    fn fopen_flags(&self, flags: i32) -> FopenFlags {
        match self.faults {
            Some(_) => FopenFlags::FOPEN_DIRECT_IO,
            None => fopen_flags(is_writable(flags)),
        }
    }

    fn look_up(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let parent = self.inodes.get(parent)?;
        let fd =
            fs::openat(&*parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fs::fstat(&fd)?;
        let ino = self.inodes.remember(fd, &stat)?;
        Ok(attr_of(&stat, ino))
    }

    /// After a name was made: it belongs to the caller, and is looked up.
    fn made(&self, request: &Request, parent: u64, name: &OsStr) -> Result<FileAttr> {
        if request.uid() != 0 || request.gid() != 0 {
            let (uid, gid) = (fs::Uid::from_raw(request.uid()), fs::Gid::from_raw(request.gid()));
            fs::chownat(&*self.inodes.get(parent)?, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        self.look_up(parent, name)
    }

    fn stat(&self, ino: u64) -> Result<FileAttr> {
        Ok(attr_of(&fs::fstat(&*self.inodes.get(ino)?)?, ino))
    }

    fn reopen(&self, ino: u64, flags: OFlags) -> Result<OwnedFd> {
        let fd = self.inodes.get(ino)?;
        fs::openat(
            &self.proc_fds,
            proc_name(&fd),
            (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    fn keep(&self, fd: OwnedFd, flags: OFlags) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let open = Open { fd, direct: flags.contains(OFlags::DIRECT), listing: Mutex::new(()) };
        self.opens[handle as usize % SHARDS].write().insert(handle, Arc::new(open));
        FileHandle(handle)
    }

    fn opened(&self, handle: FileHandle) -> Result<Arc<Open>> {
        self.opens[handle.0 as usize % SHARDS].read().get(&handle.0).cloned().ok_or(rustix::io::Errno::BADF)
    }

    fn close(&self, handle: FileHandle) {
        self.opens[handle.0 as usize % SHARDS].write().remove(&handle.0);
    }

    fn set(&self, ino: u64, set: &Set, handle: Option<FileHandle>) -> Result<FileAttr> {
        let fd = self.inodes.get(ino)?;
        let name = proc_name(&fd);
        if let Some(mode) = set.mode {
            fs::chmodat(&self.proc_fds, &name, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(fs::Uid::from_raw), set.gid.map(fs::Gid::from_raw));
            fs::chownat(&*fd, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = set.size {
            match handle {
                Some(handle) => fs::ftruncate(&self.opened(handle)?.fd, size)?,
                None => fs::ftruncate(self.reopen(ino, OFlags::WRONLY)?, size)?,
            }
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            fs::utimensat(&self.proc_fds, &name, &times, AtFlags::empty())?;
        }
        self.stat(ino)
    }

    /// Calls `add` with each entry from `cookie` on, until it says that the kernel's buffer is full.
    fn list(
        &self,
        handle: FileHandle,
        cookie: u64,
        mut add: impl FnMut(&fs::RawDirEntry<'_>) -> bool,
    ) -> Result<()> {
        let open = self.opened(handle)?;
        let _alone = open.listing.lock();
        fs::seek(&open.fd, SeekFrom::Start(cookie))?;
        let mut buffer = [const { MaybeUninit::uninit() }; DIR_BUFFER];
        let mut dir = RawDir::new(&open.fd, &mut buffer);
        while let Some(entry) = dir.next() {
            if add(&entry?) {
                break;
            }
        }
        Ok(())
    }

    fn proc_path(&self, ino: u64) -> Result<(Arc<OwnedFd>, String)> {
        let fd = self.inodes.get(ino)?;
        let path = format!("/proc/self/fd/{}", proc_name(&fd));
        Ok((fd, path))
    }

    fn answer_xattr(
        &self,
        size: u32,
        reply: ReplyXattr,
        get: impl FnOnce(&str, &mut [u8]) -> Result<usize>,
        ino: INodeNo,
    ) {
        if !self.with_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let mut value = vec![0; if size == 0 { 0 } else { (size as usize).min(XATTR_MAX) }];
        // A buffer of no bytes asks the file system below for the size too.
        match self.proc_path(ino.0).and_then(|(_fd, path)| get(&path, &mut value)) {
            Ok(len) if size == 0 => reply.size(len as u32),
            Ok(len) => reply.data(&value[..len]),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn answer_entry(&self, result: Result<FileAttr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => reply.entry_with_ttls(
                &self.options.attr_timeout,
                &self.options.entry_timeout,
                &attr,
                Generation(0),
            ),
            Err(e) => reply.error(errno(e)),
        }
    }
}

struct Set {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
}

fn errno(e: rustix::io::Errno) -> Errno {
    Errno::from_i32(e.raw_os_error())
}

fn proc_name(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    fd.as_raw_fd().to_string()
}

/// Flags for the descriptor below: the kernel has found the end for O_APPEND, and created or refused already.
fn flags_below(flags: i32) -> OFlags {
    let above = OFlags::from_bits_retain(flags as u32);
    above - (OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NOCTTY)
}

fn is_writable(flags: i32) -> bool {
    OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY
}

fn system_time(sec: i64, nsec: u64) -> SystemTime {
    match sec >= 0 {
        true => UNIX_EPOCH + Duration::new(sec as u64, nsec as u32),
        false => UNIX_EPOCH - Duration::from_secs(sec.unsigned_abs()) + Duration::from_nanos(nsec),
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(t)) => {
            let since = t.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

fn kind_of(file_type: fs::FileType) -> FileType {
    match file_type {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::NamedPipe,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::CharDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attr_of(stat: &Stat, ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: system_time(stat.st_atime, stat.st_atime_nsec),
        mtime: system_time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: system_time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind_of(fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

/// `len` bytes of this thread's buffer, at a page border.
fn with_buffer<R>(len: usize, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
    CONTENT.with_borrow_mut(|buffer| {
        if buffer.len() < len + ALIGN {
            buffer.resize(len + ALIGN, 0);
        }
        let begin = buffer.as_ptr().align_offset(ALIGN);
        use_it(&mut buffer[begin..begin + len])
    })
}

fn write_all(fd: &OwnedFd, mut data: &[u8], mut offset: u64) -> Result<()> {
    while !data.is_empty() {
        let written = rustix::io::pwrite(fd, data, offset)?;
        data = &data[written..];
        offset += written as u64;
    }
    Ok(())
}

fn answer_empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

impl Filesystem for Pass {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        kernel_config(config, &self.options);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer_entry(self.look_up(parent.0, name), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.inodes.forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.stat(ino.0) {
            Ok(attr) => reply.attr(&self.options.attr_timeout, &attr),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.set(ino.0, &Set { mode, uid, gid, size, atime, mtime }, fh) {
            Ok(attr) => reply.attr(&self.options.attr_timeout, &attr),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.inodes.get(ino.0).and_then(|fd| fs::readlinkat(&*fd, "", Vec::new())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn mknod(
        &self,
        rq: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (kind, bits) = (fs::FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        let made =
            self.inodes.get(parent.0).and_then(|dir| fs::mknodat(&*dir, name, kind, bits, rdev.into()));
        self.answer_entry(made.and_then(|()| self.made(rq, parent.0, name)), reply);
    }

    fn mkdir(&self, rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let bits = Mode::from_raw_mode(mode & 0o7777);
        let made = self.inodes.get(parent.0).and_then(|dir| fs::mkdirat(&*dir, name, bits));
        self.answer_entry(made.and_then(|()| self.made(rq, parent.0, name)), reply);
    }

    fn symlink(&self, rq: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.inodes.get(parent.0).and_then(|dir| fs::symlinkat(target, &*dir, name));
        self.answer_entry(made.and_then(|()| self.made(rq, parent.0, name)), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let link = || {
            let (file, dir) = (self.inodes.get(ino.0)?, self.inodes.get(parent.0)?);
            fs::linkat(&*file, "", &*dir, name, AtFlags::EMPTY_PATH)?;
            self.look_up(parent.0, name)
        };
        self.answer_entry(link(), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.inodes.get(parent.0).and_then(|dir| fs::unlinkat(&*dir, name, AtFlags::empty()));
        answer_empty(gone, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.inodes.get(parent.0).and_then(|dir| fs::unlinkat(&*dir, name, AtFlags::REMOVEDIR));
        answer_empty(gone, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.inodes.get(parent.0)?, self.inodes.get(new_parent.0)?);
            fs::renameat_with(&*from, name, &*to, new_name, fs::RenameFlags::from_bits_retain(flags.bits()))
        };
        answer_empty(rename(), reply);
    }

    fn create(
        &self,
        rq: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let below =
            OFlags::from_bits_retain(flags as u32) & (OFlags::EXCL | OFlags::TRUNC) | flags_below(flags);
        let create = || {
            let dir = self.inodes.get(parent.0)?;
            let all = below | OFlags::CREATE | OFlags::CLOEXEC;
            let fd = fs::openat(&*dir, name, all, Mode::from_raw_mode(mode & 0o7777))?;
            Ok((self.made(rq, parent.0, name)?, self.keep(fd, below)))
        };
        match create() {
            Ok((attr, handle)) => {
                let ttl = self.options.both_timeout();
                reply.created(&ttl, &attr, Generation(0), handle, self.fopen_flags(flags))
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let below = flags_below(flags.0);
        match self.reopen(ino.0, below) {
            Ok(fd) => reply.opened(self.keep(fd, below), self.fopen_flags(flags.0)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = |buffer: &mut [u8]| match self
            .check(|faults| faults.on_read(offset, size.into()))
            .and_then(|()| self.opened(fh))
            .and_then(|f| rustix::io::pread(&f.fd, &mut *buffer, offset))
        {
            Ok(len) => reply.data(&buffer[..len]),
            Err(e) => reply.error(errno(e)),
        };
        with_buffer(size as usize, read);
    }

    fn write(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.opened(fh).and_then(|f| {
            let write = || match f.direct {
                false => write_all(&f.fd, data, offset),
                true => with_buffer(data.len(), |buffer| {
                    buffer.copy_from_slice(data);
                    write_all(&f.fd, buffer, offset)
                }),
            };
            match &self.faults {
                Some(faults) => faults.write(&f.fd, offset, data.len(), write),
                None => write(),
            }
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn flush(&self, _: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(fh);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _ino: INodeNo, fh: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let synced = self.opened(fh).and_then(|f| {
            let sync = || if data_only { fs::fdatasync(&f.fd) } else { fs::fsync(&f.fd) };
            match &self.faults {
                Some(faults) => faults.flush(&f.fd, sync),
                None => sync(),
            }
        });
        answer_empty(synced, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.inodes.get(ino.0).and_then(|fd| fs::openat(&*fd, ".", flags, Mode::empty())) {
            Ok(fd) => reply.opened(self.keep(fd, flags), FopenFlags::empty()),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdir(&self, _: &Request, _ino: INodeNo, fh: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        let listed = self.list(fh, cookie, |entry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            reply.add(INodeNo(entry.ino()), entry.next_entry_cookie(), kind_of(entry.file_type()), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let ttl = self.options.both_timeout();
        let listed = self.list(fh, cookie, |entry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let next = entry.next_entry_cookie();
            let dots = matches!(name.as_bytes(), b"." | b"..");
            match if dots { None } else { self.look_up(ino.0, name).ok() } {
                Some(attr) => {
                    let full = reply.add(attr.ino, next, name, &ttl, &attr, Generation(0));
                    if full {
                        self.inodes.forget(attr.ino.0, 1);
                    }
                    full
                }
                // Number 0: the kernel takes no attributes from this entry and counts no lookup.
                None => {
                    let bare = FileAttr {
                        ino: INodeNo(entry.ino()),
                        kind: kind_of(entry.file_type()),
                        ..crate::null_tree::blank(0, FileType::RegularFile)
                    };
                    reply.add(INodeNo(0), next, name, &ttl, &bare, Generation(0))
                }
            }
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn releasedir(&self, _: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.close(fh);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _ino: INodeNo, fh: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        answer_empty(self.opened(fh).and_then(|dir| fs::fsync(&dir.fd)), reply);
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.inodes.get(1).and_then(|root| fs::fstatvfs(&*root)) {
            Ok(mut s) => {
                if self.faults.as_ref().is_some_and(|faults| faults.is_full()) {
                    (s.f_bfree, s.f_bavail) = (0, 0);
                }
                reply.statfs(
                    s.f_blocks,
                    s.f_bfree,
                    s.f_bavail,
                    s.f_files,
                    s.f_ffree,
                    s.f_bsize as u32,
                    s.f_namemax as u32,
                    s.f_frsize as u32,
                )
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.answer_xattr(size, reply, |path, value| fs::getxattr(path, name, value), ino);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer_xattr(size, reply, |path, list| fs::listxattr(path, list), ino);
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if !self.with_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let set = self.proc_path(ino.0).and_then(|(_fd, path)| fs::setxattr(path, name, value, flags));
        answer_empty(set, reply);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if !self.with_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let removed = self.proc_path(ino.0).and_then(|(_fd, path)| fs::removexattr(path, name));
        answer_empty(removed, reply);
    }
}
