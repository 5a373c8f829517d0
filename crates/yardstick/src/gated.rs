//! Puts a fuser file system behind the gate: each request is counted in and out, and forwarded unchanged.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::*;

use fuse::gate::{Class, Gate};

pub struct Gated<F> {
    pub inner: F,
    pub gate: Arc<Gate>,
}

/// One line per request: its class, its name, its arguments.
macro_rules! pass {
    ($($class:ident $name:ident($($arg:ident: $kind:ty),* $(,)?);)*) => {
        $(fn $name(&self, $($arg: $kind),*) {
            self.gate.serve(Class::$class, || self.inner.$name($($arg),*));
        })*
    };
}

impl<F: Filesystem> Filesystem for Gated<F> {
    fn init(&mut self, request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.inner.init(request, config)
    }
    fn destroy(&mut self) {
        self.inner.destroy();
    }
    /// Not counted: one request may forget many inodes, FORGET has no reply, and it is quick.
    fn forget(&self, rq: &Request, ino: INodeNo, lookups: u64) {
        self.inner.forget(rq, ino, lookups);
    }

    pass! {
        Look lookup(rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry);
        Look getattr(rq: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr);
        Change setattr(
            rq: &Request, ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>, fh: Option<FileHandle>,
            crtime: Option<SystemTime>, chgtime: Option<SystemTime>, bkuptime: Option<SystemTime>,
            flags: Option<BsdFileFlags>, reply: ReplyAttr,
        );
        Look readlink(rq: &Request, ino: INodeNo, reply: ReplyData);
        Change mknod(rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry);
        Change mkdir(rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry);
        Change unlink(rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
        Change rmdir(rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
        Change symlink(rq: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry);
        Change rename(
            rq: &Request, parent: INodeNo, name: &OsStr, new_parent: INodeNo, new_name: &OsStr, flags: RenameFlags,
            reply: ReplyEmpty,
        );
        Change link(rq: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry);
        Open open(rq: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        Read read(
            rq: &Request, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags,
            owner: Option<LockOwner>, reply: ReplyData,
        );
        Write write(
            rq: &Request, ino: INodeNo, fh: FileHandle, offset: u64, data: &[u8], write_flags: WriteFlags,
            flags: OpenFlags, owner: Option<LockOwner>, reply: ReplyWrite,
        );
        Close flush(rq: &Request, ino: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty);
        Close release(
            rq: &Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, owner: Option<LockOwner>, flush: bool,
            reply: ReplyEmpty,
        );
        Sync fsync(rq: &Request, ino: INodeNo, fh: FileHandle, data_only: bool, reply: ReplyEmpty);
        Open opendir(rq: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        Look readdir(rq: &Request, ino: INodeNo, fh: FileHandle, cookie: u64, reply: ReplyDirectory);
        Look readdirplus(rq: &Request, ino: INodeNo, fh: FileHandle, cookie: u64, reply: ReplyDirectoryPlus);
        Close releasedir(rq: &Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, reply: ReplyEmpty);
        Sync fsyncdir(rq: &Request, ino: INodeNo, fh: FileHandle, data_only: bool, reply: ReplyEmpty);
        Look statfs(rq: &Request, ino: INodeNo, reply: ReplyStatfs);
        Change setxattr(
            rq: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32, reply: ReplyEmpty,
        );
        Look getxattr(rq: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);
        Look listxattr(rq: &Request, ino: INodeNo, size: u32, reply: ReplyXattr);
        Change removexattr(rq: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty);
        Look access(rq: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty);
        Change create(
            rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32, reply: ReplyCreate,
        );
        Look ioctl(
            rq: &Request, ino: INodeNo, fh: FileHandle, flags: IoctlFlags, cmd: u32, in_data: &[u8], out_size: u32,
            reply: ReplyIoctl,
        );
        Write fallocate(
            rq: &Request, ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty,
        );
        Look lseek(rq: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek);
        Write copy_file_range(
            rq: &Request, ino_in: INodeNo, fh_in: FileHandle, offset_in: u64, ino_out: INodeNo, fh_out: FileHandle,
            offset_out: u64, len: u64, flags: CopyFileRangeFlags, reply: ReplyWrite,
        );
    }
}
