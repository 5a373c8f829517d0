//! The kernel's requests, each handed to `client::Fs` on the thread that received it.
//!
//! The kernel checks permissions and ACLs (`default_permissions`), and so does the MDT. The umask is passed on to the MDT, because a
//! default ACL takes its place.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use client::{DirItem, Fs, Handle, Leave, Mode, TimeOuts};
use fusedev::*;
use rustix::mount::MountFlags;
use types::{Attr, Buf, Cred, Fid, Kind};

use crate::aside::Aside;
use crate::attributes::Wanted;
use crate::coherence::{AttrReply, Questions, may_have_mapped, may_map, write_direct};
use crate::cred::is_root;
use crate::data;
use crate::forget::{Forget, ServedKernel};
use crate::fsflags::{Asked, asked};
use crate::handles::generation_of;
use crate::inuse::InUse;
use crate::jobs::Callers;
use crate::lock::LockAsked;
use crate::options::MountOptions;
use crate::pages::Pages;
use crate::remount::InForce;
use crate::reply::{answer_empty, errno, file_type, handle, node_kind};
use crate::served::Served;
use crate::session;
use crate::setid::{SetIdWatch, has_set_id};
use crate::synced;
use crate::write::Place;

/// `O_EXCL`, `O_TRUNC`, `O_APPEND` as the kernel sends them (equal on all of Linux's common processors).
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
pub(crate) const O_NOATIME: i32 = 0o1000000;
const O_APPEND: i32 = 0o2000;

thread_local! {
    /// Content on its way to the kernel: one buffer per serving thread, so that reads allocate nothing.
    static READ: RefCell<Buf> = RefCell::new(Buf::new());
}

pub struct Door {
    pub(crate) fs: Arc<Fs>,
    pub(crate) options: MountOptions,
    /// `options.flags` holds the flags at the time of mounting.
    pub(crate) flags: InForce,
    pub(crate) set_id: SetIdWatch,
    pub(crate) forget: Forget,
    pub(crate) in_use: InUse,
    pub(crate) questions: Questions,
    pub(crate) aside: Aside,
    pages: Pages,
    callers: Callers,
    pub(crate) has_locks: bool,
    pub(crate) generation: Generation,
}

impl Door {
    pub fn new(fs: Arc<Fs>, options: MountOptions) -> Door {
        let (set_id, forget, pages) = Default::default();
        let (in_use, questions, aside) = Default::default();
        let generation = generation_of(fs.uuid());
        let flags = InForce::new(options.flags);
        Door {
            fs,
            options,
            flags,
            set_id,
            forget,
            in_use,
            questions,
            aside,
            pages,
            callers: Callers::default(),
            has_locks: false,
            generation,
        }
    }

    /// fuse-P1: beside other clients the kernel keeps pages for descriptors that only read, of files that this mount does not write.
    pub(crate) fn fopen_flags(&self, fid: Fid, handle: Handle, write: bool) -> FopenFlags {
        if self.fs.is_shared() {
            // A read through pages ends at the size that the kernel knows. While it writes itself it takes no size of another mount.
            let is_direct = write || self.fs.is_inline(handle) || self.in_use.is_written(fid);
            let mut flags = session::fopen_flags_shared(is_direct, self.has_locks);
            flags.set(FopenFlags::FOPEN_KEEP_CACHE, !is_direct && self.fs.keeps_pages(fid));
            return flags;
        }
        let mut flags = session::fopen_flags(self.has_locks || (write && !self.fs.is_fate_shared()));
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, self.pages.may_be_kept(fid, self.fs.seasons_shared()));
        flags
    }

    /// Records an access; access times are updated unless the mount disables it.
    pub(crate) fn accessed(&self, rq: &Request, ino: INodeNo, known: Option<&Attr>, without: MountFlags) {
        if !self.flags.get().intersects(MountFlags::RDONLY | MountFlags::NOATIME | without) {
            self.fs.accessed(self.fid(ino), known, || self.reader(rq));
        }
    }

    /// The identity that the MDT gets where the kernel's check suffices: the caller if the MDT checks each request, else root.
    pub fn reader(&self, request: &Request) -> Cred {
        match (self.fs.is_judged(), self.fs.knows_groups()) {
            (false, _) => Cred::root(),
            (true, true) => Cred { uid: request.uid(), gid: request.gid(), groups: Vec::new() },
            (true, false) => self.cred(request),
        }
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// O_APPEND is not passed on; each write reports that it appends, and the file's end as the kernel knows it. While this client is
    /// alone, the kernel holds the inode's lock and the true size (fuse-I3), so that is the file's end. A handle that ignored offsets would
    /// misplace pages of a shared mapping, which the kernel sends by any writable handle.
    fn open_flags(&self, flags: i32) -> client::OpenFlags {
        let access = OpenFlags(flags).acc_mode();
        client::OpenFlags {
            read: access != OpenAccMode::O_WRONLY,
            write: access != OpenAccMode::O_RDONLY,
            append: false,
            appends_itself: flags & O_APPEND != 0,
            truncate: flags & O_TRUNC != 0,
            exclusive: flags & O_EXCL != 0,
            sync: flags & synced::O_DSYNC != 0 || self.is_sync(),
        }
    }
}

/// The identity for listing attributes: only root sees `trusted.*`.
fn lister(rq: &Request) -> Cred {
    if is_root(rq) { Cred::root() } else { Cred { uid: rq.uid(), gid: rq.gid(), groups: Vec::new() } }
}

/// The mode that a request asks for.
fn masked(mode: u32, umask: u32) -> Mode {
    Mode { bits: mode & 0o7777, umask }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        session::kernel_config(config, &self.options);
        if self.options.idmap {
            session::ask_for_idmap(config, self.fs.is_judged())?;
        }
        self.own().has_locks = self.fs.has_locks() && session::ask_for_locks(config);
        Ok(())
    }

    fn begins(&self, rq: &Request) {
        self.callers.begin(&self.options.jobid, &self.fs, rq);
    }

    fn started(&mut self, notifier: Notifier) {
        let forget = Forget { notifier: Some(notifier), root: self.door().fs.root().clone() };
        self.own().forget = forget.clone();
        let pages = forget.clone();
        self.own().fs.on_forget(Arc::new(ServedKernel::new(forget)));
        self.own().fs.on_recall(Box::new(move |fid, range| pages.pages(fid, range)));
    }

    // Names.

    fn lookup(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, name, cred) = (self.fid(parent), name.as_bytes(), self.reader(rq));
        let (mut found, mut leave) = self.fs.lookup_leased(parent, name, &cred);
        if found.as_ref().is_ok_and(|attr| self.fs.tell_accessed_of(attr.fid)) {
            (found, leave) = self.fs.lookup_leased(parent, name, &cred);
        }
        self.answer_entry("lookup", (name, found), &leave, reply);
    }

    fn forget(&self, _: &Request, _ino: INodeNo, _nlookup: u64) {}

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
        let open = self.open_flags(flags);
        let made =
            self.fs.create(self.fid(parent), name.as_bytes(), masked(mode, umask), open, &self.cred(rq));
        let kept =
            |(attr, handle)| self.kept(parent, Ok((attr, handle))).inspect_err(|_| self.fs.release(handle));
        let at = Some((self.fid(parent), name.as_bytes()));
        self.answer_created("create", at, made.and_then(kept), open, reply);
    }

    fn tmpfile(&self, rq: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        let open = self.open_flags(flags);
        let made = self.fs.tmpfile(self.fid(parent), masked(mode, umask), open, &self.cred(rq));
        self.answer_created("tmpfile", None, made, open, reply);
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
        let Some(kind) = node_kind(mode) else { return reply.error(Errno::EINVAL) };
        let made =
            self.fs.mknod(self.fid(parent), name.as_bytes(), kind, masked(mode, umask), rdev, &self.cred(rq));
        self.answer_made("mknod", (self.fid(parent), name.as_bytes()), self.kept(parent, made), reply);
    }

    fn mkdir(&self, rq: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self.fs.mkdir(self.fid(parent), name.as_bytes(), masked(mode, umask), &self.cred(rq));
        self.answer_made("mkdir", (self.fid(parent), name.as_bytes()), self.kept(parent, made), reply);
    }

    fn symlink(&self, rq: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made =
            self.fs.symlink(self.fid(parent), name.as_bytes(), target.as_os_str().as_bytes(), &self.cred(rq));
        self.answer_made("symlink", (self.fid(parent), name.as_bytes()), self.kept(parent, made), reply);
    }

    fn readlink(&self, rq: &Request, ino: INodeNo, reply: ReplyData) {
        self.accessed(rq, ino, None, MountFlags::empty());
        match self.fs.readlink(self.fid(ino)) {
            Ok(target) => reply.data(&target),
            Err(fault) => reply.error(errno("readlink", &fault)),
        }
    }

    fn link(&self, rq: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.fs.link(self.fid(ino), self.fid(parent), name.as_bytes(), &self.cred(rq));
        let linked = (name.as_bytes(), self.kept(parent, linked));
        self.answer_entry("link", linked, &Leave::default(), reply);
    }

    fn unlink(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.fs.unlink(self.fid(parent), name.as_bytes(), &self.cred(rq));
        answer_empty("unlink", self.kept(parent, gone), reply);
    }

    fn rmdir(&self, rq: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.fs.rmdir(self.fid(parent), name.as_bytes(), &self.cred(rq));
        answer_empty("rmdir", self.kept(parent, gone), reply);
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
        let (from, to) = (name.as_bytes(), new_name.as_bytes());
        let done =
            self.fs.rename(self.fid(parent), from, self.fid(new_parent), to, flags.bits(), &self.cred(rq));
        answer_empty("rename", self.kept(parent, done), reply);
    }

    // Attributes.

    fn getattr(&self, rq: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.fs.tell_accessed_of(self.fid(ino));
        match self.fs.getattr_leased(self.fid(ino)) {
            (Ok(attr), leave) => self.answer_attr(rq.pid(), attr, leave, AttrReply::Attr(reply)),
            (Err(fault), _) => reply.error(errno("getattr", &fault)),
        }
    }

    fn statx(
        &self,
        rq: &Request,
        ino: INodeNo,
        _fh: Option<FileHandle>,
        _flags: u32,
        _mask: u32,
        reply: ReplyStatx,
    ) {
        self.fs.tell_accessed_of(self.fid(ino));
        match self.fs.getattr_leased(self.fid(ino)) {
            (Ok(attr), leave) => self.answer_attr(rq.pid(), attr, leave, AttrReply::Statx(reply)),
            (Err(fault), _) => reply.error(errno("statx", &fault)),
        }
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
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted::new(mode, (uid, gid), size, (atime, mtime), fh.is_some());
        let set = &wanted.set;
        // Dirty pages would set mtime again when they are written. (With a size, the kernel writes none meanwhile and drops some.)
        if set.mtime.is_some() && set.size.is_none() && self.in_use.may_be_mapped(self.fid(ino)) {
            let (door, rq) = (self.door().clone(), rq.clone());
            return self.aside.run(Box::new(move || {
                door.write_mapped_pages(door.fid(ino));
                door.set_as_wanted(&rq, ino, &wanted, reply);
            }));
        }
        self.set_as_wanted(rq, ino, &wanted, reply);
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.fs.statfs() {
            Ok(s) => {
                let unit = s.block_size.max(512);
                let blocks = |bytes: u64| bytes / unit as u64;
                let (total, free, available) =
                    (blocks(s.bytes_total), blocks(s.bytes_free), blocks(s.bytes_available));
                reply.statfs(total, free, available, s.files_total, s.files_free, unit, s.name_max, unit)
            }
            Err(fault) => reply.error(errno("statfs", &fault)),
        }
    }

    // Content.

    fn open(&self, rq: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = self.open_flags(flags.0);
        let opened = self.fs.open_as(self.fid(ino), open, &self.reader(rq)).and_then(|(handle, attr)| {
            // O_TRUNC changes the content, so set-id bits must be cleared, as by truncate.
            let drops = open.truncate && !is_root(rq) && has_set_id(attr.mode);
            let dropped = if drops { self.drop_privileges(rq, self.fid(ino)).map(|_| ()) } else { Ok(()) };
            let cut =
                dropped.and_then(|()| if open.truncate { self.kept_attributes(ino, Ok(())) } else { Ok(()) });
            if let Err(fault) = cut {
                self.fs.release(handle);
                return Err(fault);
            }
            if open.read && !open.write && flags.0 & O_NOATIME == 0 {
                self.accessed(rq, ino, Some(&attr), MountFlags::empty());
            }
            Ok(handle)
        });
        match opened {
            Ok(handle) => {
                let flags = self.fopen_flags(self.fid(ino), handle, open.write);
                self.note_opened(self.fid(ino), handle, open, flags);
                // fuse-P2: noted first, so that pages that are read from here on come under the exclusive lease.
                if may_map(open)
                    && let Err(fault) = self.fs.own_pages(self.fid(ino))
                {
                    self.in_use.released(self.fid(ino), handle.0, true);
                    self.fs.release(handle);
                    return reply.error(errno("open", &fault));
                }
                reply.opened(FileHandle(handle.0), flags)
            }
            Err(fault) => reply.error(errno("open", &fault)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The kernel names an owner if it keeps no pages of what it reads.
        let is_for_pages = owner.is_none();
        let (ino, fh, size) = (self.fid(ino), handle(fh), size as usize);
        let read = |buf: &mut Buf| match is_for_pages {
            true => self.read_pages(ino, fh, (offset, size), buf),
            false => self.fs.read(fh, offset, size, buf),
        };
        READ.with_borrow_mut(|buf| match read(buf) {
            Ok(()) => reply.data(buf),
            Err(fault) => reply.error(errno("read", &fault)),
        });
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
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let is_cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let (ino, handle) = (self.fid(ino), handle(fh));
        let is_direct = self.is_direct(ino, fh.0, flags.0);
        let place = match flags.0 & O_APPEND != 0 {
            // Pages of a shared mapping carry their offset, whatever handle the kernel sends them by.
            _ if is_cached => Place::Mapped(offset),
            true => Place::End { end: offset, has_pages: !is_direct },
            false if is_direct => Place::At(offset),
            false => Place::Cached(offset),
        };
        if let Err(fault) = self.kill_privileges(rq, ino, handle, kill) {
            return reply.error(errno("write", &fault));
        }
        let write = move |door: &Door, data: &[u8]| {
            let len = door.put(handle, place, data)?;
            door.sync_if_asked(handle, flags.0).map(|()| len)
        };
        if !is_cached && is_direct {
            let begun = self.in_use.begin_direct(ino, offset, data.len());
            return write_direct(self.door(), begun, data, reply, write);
        }
        let written = match is_cached {
            // Writes of pages never extend the file.
            true => write(self, data),
            false => {
                let end = offset.saturating_add(data.len() as u64);
                let reached = |len: &usize| offset + *len as u64;
                self.growing(rq, ino, (offset, end), true, || write(self, data), reached)
            }
        };
        match written {
            Ok(len) => reply.written(len as u32),
            Err(fault) => reply.error(errno("write", &fault)),
        }
    }

    fn flush(&self, _: &Request, _ino: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let closed = self.fs.close_locks(handle(fh), owner.0);
        answer_empty("flush", self.fs.flush(handle(fh)).and(closed), reply);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        flock: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.in_use.released(self.fid(ino), fh.0, may_have_mapped(flags));
        self.set_id.forget(fh.0);
        self.fs.release_owned(handle(fh), flock.map(|owner| owner.0));
        reply.ok();
    }

    // Locks.

    fn getlk(
        &self,
        rq: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        self.test_lock(rq, &LockAsked { fh, owner, start, end, typ, pid }, reply);
    }

    fn setlk(
        &self,
        rq: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        self.take_lock(rq, &LockAsked { fh, owner, start, end, typ, pid }, sleep, reply);
    }

    fn retrieved(&self, question: u64, bytes: u32) {
        self.kernel_said(question, bytes);
    }

    fn interrupt(&self, unique: RequestId) {
        self.fs.interrupt_lock(unique.0);
    }

    fn fsync(&self, _: &Request, _ino: INodeNo, fh: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer_empty("fsync", self.fs.fsync(handle(fh), data_only), reply);
    }

    // Directories. They need no handle: a cookie alone continues a listing.

    fn readdir(
        &self,
        rq: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        cookie: u64,
        flags: OpenFlags,
        mut reply: ReplyDirectory,
    ) {
        let add = |item: &DirItem| {
            reply.add(self.ino(item.fid), item.cookie, file_type(item.kind), OsStr::from_bytes(&item.name))
        };
        self.begins_listing(rq, ino, cookie, flags);
        match self.list((rq, &self.reader(rq)), self.fid(ino), cookie, add) {
            Ok(()) => reply.ok(),
            Err(fault) => reply.error(errno("readdir", &fault)),
        }
    }

    fn readdirplus(
        &self,
        rq: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        cookie: u64,
        flags: OpenFlags,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.begins_listing(rq, ino, cookie, flags);
        let items = match self.list_plus((rq, &self.reader(rq)), self.fid(ino), cookie) {
            Ok(items) => items,
            Err(fault) => return reply.error(errno("readdirplus", &fault)),
        };
        // Taken once all servers have answered: notices wait for it.
        let replying = self.fs.reply(self.fid(ino));
        let add = |item: &DirItem| {
            let TimeOuts { name, attr } =
                replying.time_outs(&item.leave, Some((&item.name, item.kind == Kind::Dir)));
            let ttl = name.min(attr);
            let (name, generation) = (OsStr::from_bytes(&item.name), self.generation(item.fid));
            match &item.attr {
                Some(attr) => {
                    reply.add(self.ino(item.fid), item.cookie, name, &ttl, &self.file_attr(attr), generation)
                }
                // Inode number 0 means "no attributes here"; the entry still shows its number and kind.
                None => reply.add(INodeNo(0), item.cookie, name, &ttl, &self.bare_attr(item), generation),
            }
        };
        _ = items.iter().any(add);
        reply.ok()
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _fh: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        answer_empty("fsyncdir", self.fs.fsync_dir(self.fid(ino)), reply);
    }

    // Extended attributes.

    fn getxattr(&self, rq: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // It shows the calls of all users.
        if rq.uid() != 0 && name.as_bytes().starts_with(client::TRACE_ATTRIBUTE) {
            return reply.error(Errno::EPERM);
        }
        self.answer_xattr(
            "getxattr",
            self.fs.getxattr_as(self.fid(ino), name.as_bytes(), &self.reader(rq)),
            size,
            reply,
        );
    }

    fn setxattr(
        &self,
        rq: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.fs.setxattr(self.fid(ino), name.as_bytes(), value, flags as u32, &self.cred(rq));
        answer_empty("setxattr", self.kept_attributes(ino, done), reply);
    }

    fn listxattr(&self, rq: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let joined = self.fs.listxattr_as(self.fid(ino), &lister(rq)).map(|names| {
            names.iter().flat_map(|name| name.iter().copied().chain(std::iter::once(0))).collect()
        });
        self.answer_xattr("listxattr", joined, size, reply);
    }

    fn removexattr(&self, rq: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.fs.removexattr(self.fid(ino), name.as_bytes(), &self.cred(rq));
        answer_empty("removexattr", self.kept_attributes(ino, done), reply);
    }

    fn ioctl(
        &self,
        rq: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let done = match asked(cmd, in_data) {
            Asked::Get(form) => self.fs.flags(self.fid(ino)).map(|flags| form.answer(flags)),
            Asked::Set(flags) => self.fs.set_flags(self.fid(ino), flags, &self.cred(rq)).map(|()| {
                // The call changes ctime, and its reply cannot carry attributes.
                self.forget.attributes(self.fid(ino));
                Vec::new()
            }),
            Asked::Unsupported => return reply.error(Errno::EOPNOTSUPP),
            Asked::Unknown => return reply.error(Errno::ENOTTY),
        };
        match done {
            Ok(data) => reply.ioctl(0, &data),
            Err(fault) => reply.error(errno("ioctl", &fault)),
        }
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
        match self.allocate((rq, self.fid(ino)), handle(fh), offset, length, mode, errno) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn lseek(&self, _: &Request, _ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Some(whence) = data::whence(whence) else { return reply.error(Errno::EINVAL) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.fs.seek(handle(fh), offset, whence) {
            Ok(Some(at)) => reply.offset(at as i64),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(fault) => reply.error(errno("lseek", &fault)),
        }
    }

    fn copy_file_range(
        &self,
        rq: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = ((handle(fh_in), offset_in), (handle(fh_out), offset_out));
        match self.copy((rq, self.fid(ino_out)), from, to, len, errno) {
            Ok(copied) => reply.written(copied),
            Err(errno) => reply.error(errno),
        }
    }
}
