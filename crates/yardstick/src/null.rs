//! `nullfs`: names, attributes and sizes in memory; written data is dropped, read data is zeros. It measures the cost of FUSE alone.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuse::{MAX_REQUEST_BYTES, MountOptions};
use fuser::*;

use crate::null_tree::{Names, Tree, blank};
use crate::session::{fopen_flags, kernel_config};

static ZEROS: [u8; MAX_REQUEST_BYTES as usize] = [0; MAX_REQUEST_BYTES as usize];

pub struct Null {
    tree: Tree,
    options: MountOptions,
}

impl Null {
    pub fn new(options: MountOptions) -> Null {
        Null { tree: Tree::new(), options }
    }

    fn find(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let dir = self.tree.get(parent)?;
        let names = dir.names.lock();
        let ino = names.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
        Ok(self.tree.show(&*self.tree.get(ino)?))
    }

    fn add(
        &self,
        rq: &Request,
        parent: u64,
        name: &OsStr,
        attr: FileAttr,
        target: &[u8],
    ) -> Result<FileAttr, Errno> {
        let dir = self.tree.get(parent)?;
        let mut names = dir.names.lock();
        if names.get(name.as_bytes()).is_some() {
            return Err(Errno::EEXIST);
        }
        let node = self.tree.make(FileAttr { uid: rq.uid(), gid: rq.gid(), ..attr }, target.to_vec());
        let attr = self.tree.show(&node);
        names.insert(name.as_bytes(), attr.ino.0);
        Ok(attr)
    }

    fn remove(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let dir = self.tree.get(parent)?;
        let mut names = dir.names.lock();
        let ino = names.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
        if !self.tree.get(ino)?.names.lock().is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        names.remove(name.as_bytes());
        drop(names);
        self.tree.unlinked(ino);
        Ok(())
    }

    fn link(&self, ino: u64, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let (node, dir) = (self.tree.get(ino)?, self.tree.get(parent)?);
        let mut names = dir.names.lock();
        if names.get(name.as_bytes()).is_some() {
            return Err(Errno::EEXIST);
        }
        names.insert(name.as_bytes(), ino);
        node.attr.lock().nlink += 1;
        Ok(self.tree.show(&node))
    }

    /// The kernel holds its own lock over renames, so two tables are never taken in two orders at once.
    fn rename(
        &self,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (from, to) = (self.tree.get(parent)?, self.tree.get(new_parent)?);
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            return Err(Errno::EINVAL);
        }
        if flags.contains(RenameFlags::RENAME_NOREPLACE) && to.names.lock().get(new_name.as_bytes()).is_some()
        {
            return Err(Errno::EEXIST);
        }
        let moved = from.names.lock().remove(name.as_bytes()).ok_or(Errno::ENOENT)?;
        let mut names = to.names.lock();
        let replaced = names.remove(new_name.as_bytes());
        names.insert(new_name.as_bytes(), moved);
        drop(names);
        if let Some(ino) = replaced.filter(|ino| *ino != moved) {
            self.tree.unlinked(ino);
        }
        Ok(())
    }

    fn answer_entry(&self, result: Result<FileAttr, Errno>, reply: ReplyEntry) {
        match result {
            Ok(attr) => reply.entry_with_ttls(
                &self.options.attr_timeout,
                &self.options.entry_timeout,
                &attr,
                Generation(0),
            ),
            Err(e) => reply.error(e),
        }
    }
}

/// Lists `names` after `cookie`, `.` and `..` first; `add` says when the kernel's buffer is full.
fn list(dir: u64, names: &Names, cookie: u64, mut add: impl FnMut(u64, u64, &[u8]) -> bool) {
    // Cookies of names begin above those of the two dots.
    for (at, name) in [(1, &b"."[..]), (2, &b".."[..])] {
        if cookie < at && add(dir, at, name) {
            return;
        }
    }
    for (at, name, ino) in names.after(cookie.saturating_sub(2)) {
        if add(ino, at + 2, name) {
            return;
        }
    }
}

fn attr_of_mode(mode: u32, kind: FileType) -> FileAttr {
    FileAttr { perm: (mode & 0o7777) as u16, ..blank(0, kind) }
}

fn kind_of_mode(mode: u32) -> FileType {
    match mode & 0o170000 {
        0o010000 => FileType::NamedPipe,
        0o140000 => FileType::Socket,
        0o020000 => FileType::CharDevice,
        0o060000 => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn answer_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        kernel_config(config, &self.options);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer_entry(self.find(parent.0, name), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.tree.forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.get(ino.0) {
            Ok(node) => reply.attr(&self.options.attr_timeout, &node.attr.lock()),
            Err(e) => reply.error(e),
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
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = match self.tree.get(ino.0) {
            Ok(node) => node,
            Err(e) => return reply.error(e),
        };
        let now = SystemTime::now();
        let time = |t: Option<TimeOrNow>, old| match t {
            None => old,
            Some(TimeOrNow::Now) => now,
            Some(TimeOrNow::SpecificTime(t)) => t,
        };
        let mut attr = node.attr.lock();
        attr.perm = mode.map_or(attr.perm, |m| (m & 0o7777) as u16);
        attr.uid = uid.unwrap_or(attr.uid);
        attr.gid = gid.unwrap_or(attr.gid);
        attr.size = size.unwrap_or(attr.size);
        attr.mtime = if size.is_some() { now } else { attr.mtime };
        (attr.atime, attr.mtime, attr.ctime) = (time(atime, attr.atime), time(mtime, attr.mtime), now);
        reply.attr(&self.options.attr_timeout, &attr);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.tree.get(ino.0) {
            Ok(node) => reply.data(&node.target),
            Err(e) => reply.error(e),
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
        let attr = FileAttr { rdev, ..attr_of_mode(mode, kind_of_mode(mode)) };
        self.answer_entry(self.add(rq, parent.0, name, attr, b""), reply);
    }

    fn mkdir(&self, rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let attr = FileAttr { nlink: 2, ..attr_of_mode(mode, FileType::Directory) };
        self.answer_entry(self.add(rq, parent.0, name, attr, b""), reply);
    }

    fn symlink(&self, rq: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let attr = FileAttr { size: target.len() as u64, ..attr_of_mode(0o777, FileType::Symlink) };
        self.answer_entry(self.add(rq, parent.0, name, attr, target), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer_entry(self.link(ino.0, parent.0, name), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(parent.0, name), reply);
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
        answer_empty(self.rename(parent.0, name, new_parent.0, new_name, flags), reply);
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
        let writable = OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY;
        match self.add(rq, parent.0, name, attr_of_mode(mode, FileType::RegularFile), b"") {
            Ok(attr) => {
                let ttl = self.options.both_timeout();
                reply.created(&ttl, &attr, Generation(0), FileHandle(0), fopen_flags(writable))
            }
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        const O_TRUNC: i32 = 0o1000;
        if let (Ok(node), true) = (self.tree.get(ino.0), flags.0 & O_TRUNC != 0) {
            node.attr.lock().size = 0;
        }
        reply.opened(FileHandle(0), fopen_flags(flags.acc_mode() != OpenAccMode::O_RDONLY));
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree.get(ino.0) {
            Ok(node) => {
                let left = node.attr.lock().size.saturating_sub(offset);
                reply.data(&ZEROS[..left.min(size as u64).min(ZEROS.len() as u64) as usize])
            }
            Err(e) => reply.error(e),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.tree.get(ino.0) {
            Ok(node) => {
                let mut attr = node.attr.lock();
                attr.size = attr.size.max(offset + data.len() as u64);
                attr.blocks = attr.size.div_ceil(512);
                attr.mtime = SystemTime::now();
                reply.written(data.len() as u32)
            }
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _ino: INodeNo, _fh: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _ino: INodeNo, _fh: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _fh: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        match self.tree.get(ino.0) {
            Ok(dir) => {
                list(ino.0, &dir.names.lock(), cookie, |ino, at, name| {
                    let kind = match at {
                        1 | 2 => FileType::Directory,
                        _ => self.tree.get(ino).map_or(FileType::RegularFile, |node| node.attr.lock().kind),
                    };
                    reply.add(INodeNo(ino), at, kind, OsStr::from_bytes(name))
                });
                reply.ok()
            }
            Err(e) => reply.error(e),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let ttl = self.options.both_timeout();
        let dir = match self.tree.get(ino.0) {
            Ok(dir) => dir,
            Err(e) => return reply.error(e),
        };
        list(ino.0, &dir.names.lock(), cookie, |ino, at, name| {
            let name = OsStr::from_bytes(name);
            match self.tree.get(ino) {
                Ok(node) if at > 2 => {
                    let attr = self.tree.show(&node);
                    let full = reply.add(attr.ino, at, name, &ttl, &attr, Generation(0));
                    if full {
                        self.tree.forget(ino, 1);
                    }
                    full
                }
                // Number 0: the kernel takes no attributes from this entry and counts no lookup.
                _ => reply.add(INodeNo(0), at, name, &ttl, &blank(ino, FileType::Directory), Generation(0)),
            }
        });
        reply.ok();
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        // Free space that no test can fill.
        reply.statfs(1 << 40, 1 << 40, 1 << 40, 1 << 32, 1 << 32, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}
