//! The trait that a file system implements.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::*;

/// The caller of a request, and flags of the request that are not arguments.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) unique: RequestId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) kills_privileges: bool,
    pub(crate) is_flock: bool,
    pub(crate) is_flush: bool,
    pub(crate) interrupted: Option<Arc<AtomicBool>>,
}

/// `uid` and `gid` of a request whose caller the kernel does not name. With FUSE_ALLOW_IDMAP the kernel names only callers of requests that
/// create something, after mapping their ids.
pub const UNKNOWN_ID: u32 = u32::MAX;

impl Request {
    pub fn unique(&self) -> RequestId {
        self.unique
    }
    /// `UNKNOWN_ID` if the kernel does not name the caller.
    pub fn uid(&self) -> u32 {
        self.uid
    }
    pub fn gid(&self) -> u32 {
        self.gid
    }
    /// 0 for a process outside of this process's pid namespace, and for the kernel itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }
    /// For `setattr`, `open` and `create` with FUSE_HANDLE_KILLPRIV_V2: set-id bits must be cleared.
    pub fn kills_privileges(&self) -> bool {
        self.kills_privileges
    }
    /// For `getlk` and `setlk`: the lock is one of `flock(2)`, not of `fcntl(2)`.
    pub fn is_flock(&self) -> bool {
        self.is_flock
    }
    /// A descriptor is closed. A caller that executes a program holds locks of its own `/proc` entries meanwhile.
    pub fn is_flush(&self) -> bool {
        self.is_flush
    }
    /// For `setlk` with `sleep`: the caller was interrupted. Check it after the request is stored where `Filesystem::interrupt` finds it.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.as_ref().is_some_and(|mark| mark.load(Ordering::SeqCst))
    }
}

/// A file system. Serving threads call its methods concurrently. The default of a method replies `ENOSYS` unless noted otherwise; the
/// kernel then stops sending that request.
#[allow(
    clippy::too_many_arguments,
    unused_variables,
    reason = "one argument per field of the kernel's request"
)]
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, before all others.
    fn init(&mut self, rq: &Request, config: &mut KernelConfig) -> io::Result<()> {
        Ok(())
    }
    /// Called once, after `init` and before all others. `notifier` sends notices.
    fn started(&mut self, notifier: Notifier) {}
    /// Called before each request that has a reply, on its thread.
    fn begins(&self, rq: &Request) {}
    /// Called once, after all others.
    fn destroy(&mut self) {}

    fn lookup(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::ENOSYS);
    }
    /// The kernel drops `lookups` of the references that it got by entries in replies. This request has no reply.
    fn forget(&self, rq: &Request, ino: INodeNo, lookups: u64) {}

    fn getattr(&self, rq: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.error(Errno::ENOSYS);
    }
    /// Replaces `getattr` when a program asks for the birth time. `mask` and `flags` as in `statx(2)`.
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
    /// `lock_owner`: the owner whose mandatory locks apply, if any.
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
    /// Called at each close of each descriptor; it drops the fcntl locks of `lock_owner` on the inode.
    fn flush(&self, rq: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
    /// Called when the last descriptor is closed. `lock_owner`: the owner of a flock lock that this close drops.
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

    /// `extra_flags`: 1 says that a new access ACL clears the set-gid bit.
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
    /// Not called with `default_permissions`.
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

    /// Called with FUSE_POSIX_LOCKS. `end`: the last byte, inclusive.
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
    /// With `sleep` the reply may wait until the lock is granted, and another thread may send it. The file system first stores such a
    /// request where `interrupt` finds it, and then checks `rq.is_interrupted()`. An interrupted request gets EINTR.
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
    /// The kernel's answer to `Notifier::retrieve`: it has this many of the requested bytes. It has no reply.
    fn retrieved(&self, question: u64, bytes: u32) {}

    /// The caller of a `setlk` with `sleep` got a signal. Only unanswered requests of that kind are reported here.
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
