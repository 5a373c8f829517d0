//! What a file system answers.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::*;

/// Who asks, and what a request says beyond its arguments.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) unique: RequestId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) kills_privileges: bool,
    pub(crate) is_flock: bool,
    pub(crate) interrupted: Option<Arc<AtomicBool>>,
}

/// What `uid` and `gid` are where the kernel does not say who asks: under FUSE_ALLOW_IDMAP it does so only of requests that make
/// something, whose ids it has mapped.
pub const UNKNOWN_ID: u32 = u32::MAX;

impl Request {
    pub fn unique(&self) -> RequestId {
        self.unique
    }
    /// `UNKNOWN_ID`: not told.
    pub fn uid(&self) -> u32 {
        self.uid
    }
    pub fn gid(&self) -> u32 {
        self.gid
    }
    /// 0: a process that our name space does not see, or the kernel itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }
    /// Of `setattr`, `open`, `create` under FUSE_HANDLE_KILLPRIV_V2: set-id bits are to go.
    pub fn kills_privileges(&self) -> bool {
        self.kills_privileges
    }
    /// Of `getlk`, `setlk`: it is `flock(2)`, not `fcntl(2)`.
    pub fn is_flock(&self) -> bool {
        self.is_flock
    }
    /// Of `setlk` with `sleep`: its caller has given up. To be asked after the request is where `Filesystem::interrupt` finds it.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.as_ref().is_some_and(|mark| mark.load(Ordering::SeqCst))
    }
}

/// A file system. Methods are called from all serving threads at once. What is not implemented is `ENOSYS`, by which the kernel
/// learns not to ask again, unless said otherwise.
#[allow(
    clippy::too_many_arguments,
    unused_variables,
    reason = "one argument per field of the kernel's request"
)]
pub trait Filesystem: Send + Sync + 'static {
    /// Once, before all others.
    fn init(&mut self, rq: &Request, config: &mut KernelConfig) -> io::Result<()> {
        Ok(())
    }
    /// Once, after `init` and before all others: what notices are sent with.
    fn started(&mut self, notifier: Notifier) {}
    /// Once, after all others.
    fn destroy(&mut self) {}

    fn lookup(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOSYS);
    }
    /// The kernel drops so many of the references that entries in replies gave it. There is no answer.
    fn forget(&self, rq: &Request, ino: INodeNo, lookups: u64) {}

    fn getattr(&self, rq: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.error(Errno::ENOSYS);
    }
    /// Asked instead of `getattr` when a program wants the birth time. `mask` and `flags` as in `statx(2)`.
    fn statx(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: Option<FileHandle>,
        flags: u32,
        mask: u32,
        reply: ReplyStatx,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn setattr(
        &self,
        rq: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        crtime: Option<SystemTime>,
        chgtime: Option<SystemTime>,
        bkuptime: Option<SystemTime>,
        flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn readlink(&self, rq: &Request, ino: INodeNo, reply: ReplyData) {
        reply.error(Errno::ENOSYS);
    }
    fn mknod(
        &self,
        rq: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn mkdir(&self, rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        reply.error(Errno::ENOSYS);
    }
    fn unlink(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    fn rmdir(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    fn symlink(&self, rq: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }
    fn rename(
        &self,
        rq: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn link(&self, rq: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, rq: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }
    /// `lock_owner`: whose mandatory locks count, if any.
    fn read(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn write(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// At each close of each descriptor; `lock_owner`'s fcntl locks on the inode go.
    fn flush(&self, rq: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    /// The last descriptor is closed. `lock_owner`: of a flock that goes with it.
    fn release(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
    fn fsync(&self, rq: &Request, ino: INodeNo, fh: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    /// `sync(2)` and `syncfs(2)`. Linux (6.18) sends it for virtiofs and mounts of block devices only.
    fn syncfs(&self, rq: &Request, ino: INodeNo, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, rq: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }
    fn readdir(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        cookie: u64,
        flags: OpenFlags,
        reply: ReplyDirectory,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn readdirplus(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        cookie: u64,
        flags: OpenFlags,
        reply: ReplyDirectoryPlus,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn releasedir(&self, rq: &Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }
    fn fsyncdir(&self, rq: &Request, ino: INodeNo, fh: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    fn statfs(&self, rq: &Request, ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 512);
    }

    /// `extra_flags`: 1 says that a new access ACL takes the set-gid bit away.
    fn setxattr(
        &self,
        rq: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        extra_flags: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn getxattr(&self, rq: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
    fn listxattr(&self, rq: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
    fn removexattr(&self, rq: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    /// Not asked under `default_permissions`.
    fn access(&self, rq: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    fn create(
        &self,
        rq: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// A file without a name, open (`O_TMPFILE`).
    fn tmpfile(&self, rq: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        reply.error(Errno::EOPNOTSUPP);
    }

    /// Asked under FUSE_POSIX_LOCKS. `end`: the last byte, inclusive.
    fn getlk(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// `sleep`: the reply may be kept until the lock is there, and sent from another thread. Whoever keeps it puts it first where
    /// `interrupt` finds it, and asks `rq.is_interrupted()` then; an interrupted one is answered EINTR.
    fn setlk(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// The answer to `Notifier::retrieve`: the kernel has so many bytes of what was asked for. There is no answer to it.
    fn retrieved(&self, question: u64, bytes: u32) {}

    /// The caller of a `setlk` that sleeps has got a signal. Only such requests come here, while they are not answered.
    fn interrupt(&self, unique: RequestId) {}

    fn ioctl(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
    fn fallocate(
        &self,
        rq: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }
    fn lseek(&self, rq: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }
    fn copy_file_range(
        &self,
        rq: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
