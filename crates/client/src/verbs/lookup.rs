//! Lookup and getattr: attributes of the MDT, with local changes on top that are not reported yet.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLockReadGuard;
use types::{Attr, Code, Cred, Fault, Fid, Kind};
use wire::codec::Bytes;
use wire::meta::{FIDS_MAX, FileState, GetAttr, GetAttrs, Inode, Lookup};
use wire::session::Claims;

use crate::Fs;
use crate::cache::files::{File, For};
use crate::cache::hold::To;
use crate::cache::leased::{Kernel, Known, Leave, TimeOuts};
use crate::session::section::Section;

/// A reply to the kernel about names and attributes of one directory. It must have left before this is dropped (client-LE3).
pub struct Replying<'a> {
    fs: &'a Fs,
    _guard: RwLockReadGuard<'a, ()>,
}

impl Replying<'_> {
    /// The time-outs that the kernel may be given with an answer of this directory. `name`: the name that the answer tells, and true if it is a
    /// directory's; `None`: the answer has attributes only.
    pub fn time_outs(&self, leave: &Leave, name: Option<(&[u8], bool)>) -> TimeOuts {
        self.fs.id.leased.time_outs(leave, name, self.fs.is_shared())
    }
}

impl Fs {
    /// The attributes of the file called `name` in `parent`, for root.
    pub fn lookup(&self, parent: Fid, name: &[u8]) -> Result<Attr, Fault> {
        self.lookup_as(parent, name, &Cred::root())
    }

    /// The attributes of the file called `name` in `parent`. `.` is `parent` itself, of whatever kind it is; `..` the directory above it.
    pub fn lookup_as(&self, parent: Fid, name: &[u8], cred: &Cred) -> Result<Attr, Fault> {
        self.lookup_leased(parent, name, cred).0
    }

    /// As `lookup_as`, with what the kernel may cache of the answer, also of an absent name.
    pub fn lookup_leased(&self, parent: Fid, name: &[u8], cred: &Cred) -> (Result<Attr, Fault>, Leave) {
        if name == b"." {
            return (self.attr_by_handle(parent), Leave::default());
        }
        if let Some(found) = self.cached(parent, name, cred) {
            return found;
        }
        if self.id.leased.wants_all(parent) {
            self.fetch_all(parent, cred);
            if let Some(found) = self.cached(parent, name, cred) {
                return found;
            }
        }
        let req = Lookup { parent, name: Bytes::from(name), cred: cred.clone() };
        let unshipped = &self.id.unshipped;
        // The answer may come from before a frame that is shipped meanwhile.
        let frames = (!unshipped.is_empty()).then(|| unshipped.frames());
        let is_older =
            |fid: Fid| unshipped.bears_on(fid) || frames.is_some_and(|frames| frames != unshipped.frames());
        match self.ask_until(parent, &req, self.deadline()) {
            // A directory in which changes wait: the MDT tells of it anew, after them.
            Ok(answer) if answer.reply.attr.kind == Kind::Dir && is_older(answer.reply.attr.fid) => {
                let fid = answer.reply.attr.fid;
                let anew = self.ask_until(fid, &GetAttr { fid }, self.deadline());
                (anew.and_then(|answer| self.attr_of(&answer.reply, None)), Leave::default())
            }
            Ok(answer) => (self.attr_of(&answer.reply, None), answer.leave),
            Err(fault) if fault.code == Code::NotFound => {
                let leave =
                    self.id.leased.name(parent, name).filter(|known| matches!(known.0, Known::Absent));
                (Err(fault), leave.map_or(Leave::default(), |(_, leave)| leave))
            }
            Err(fault) => (Err(fault), Leave::default()),
        }
    }

    fn cached(&self, parent: Fid, name: &[u8], cred: &Cred) -> Option<(Result<Attr, Fault>, Leave)> {
        match self.id.leased.name(parent, name).filter(|_| self.may_use_cached(cred))? {
            (Known::Absent, leave) => Some((Err(Code::NotFound.into()), leave)),
            (Known::There(_, Some(inode)), leave) => Some((self.attr_of(&inode, None), leave)),
            (Known::There(_, None), _) => None,
        }
    }

    /// True if the MDT need not check the caller's rights: a kernel has, or the caller may do everything. An MDT that judges each request may
    /// know better than the kernel what a user may see, unless the mount has one user only.
    pub(crate) fn may_use_cached(&self, cred: &Cred) -> bool {
        let is_trusted = !self.is_judged() || matches!(self.settings.claims, Claims::User(_));
        is_trusted && (cred.may_all() || self.id.leased.has_kernel())
    }

    pub fn getattr(&self, fid: Fid) -> Result<Attr, Fault> {
        self.getattr_leased(fid).0
    }

    /// As `getattr`, with what the kernel may cache of the answer.
    pub fn getattr_leased(&self, fid: Fid) -> (Result<Attr, Fault>, Leave) {
        // Taken before the request: the file may be reported and leave the table before the answer is read.
        let file = self.files.get(fid);
        file.iter().for_each(|file| self.await_behind_shortly(file, self.deadline()));
        // client-CL1: the lease stays until the answer is read.
        let leased = file.as_ref().and_then(|file| self.section_if_held(file));
        if let Some((inode, leave)) = self.id.leased.attr(fid) {
            return (self.attr_known(&inode, file, leased), leave);
        }
        match self.ask_until(fid, &GetAttr { fid }, self.deadline()) {
            Ok(answer) => {
                let leave = self.id.leased.keep_attr(&answer.told, &answer.reply);
                (self.attr_known(&answer.reply, file, leased), leave)
            }
            // Removed here a moment ago, and still open in a program.
            Err(fault) if fault.code == Code::Stale => {
                (self.id.gone.attr_of(fid).ok_or(fault), Leave::default())
            }
            Err(fault) => (Err(fault), Leave::default()),
        }
    }

    /// Mode and group of a file. Takes no lease of the content, which its writers would have to give back.
    pub fn mode_and_group(&self, fid: Fid) -> Result<(u32, u32), Fault> {
        let attr = match self.id.leased.attr(fid) {
            Some((inode, _)) => inode.attr,
            None => self.ask_until(fid, &GetAttr { fid }, self.deadline())?.reply.attr,
        };
        Ok((attr.mode, attr.gid))
    }

    /// The parts of a name that the kernel may cache. This client has just made it, with these attributes. Beside other clients the name is none of
    /// them: where they make names, too, dropping it would wait for the directory's lock, and that for them.
    pub fn leave_of(&self, dir: Fid, name: &[u8], attr: &Attr) -> Leave {
        match self.id.leased.name(dir, name) {
            Some((Known::There(fid, inode), leave)) if fid == attr.fid => {
                let leave = leave.with_attr_if(inode.is_some_and(|inode| inode.attr == *attr));
                if self.is_shared() { leave.made_without_name() } else { leave }
            }
            _ => Leave::default(),
        }
    }

    /// For a reply to the kernel about names and attributes of the directory that `leave` names: gives its time-outs. It must be dropped right
    /// after the reply has left.
    pub fn reply(&self, dir: Fid) -> Replying<'_> {
        Replying { fs: self, _guard: self.id.leased.replying(dir) }
    }

    /// A kernel is served, which is told what it must forget.
    pub fn on_forget(&self, kernel: Arc<dyn Kernel>) {
        self.id.leased.on_forget(Some(kernel));
    }

    /// Attributes for a file handle. `Stale` once the last name is gone, even if the file is open: a number from outside opens no removed file.
    fn attr_by_handle(&self, fid: Fid) -> Result<Attr, Fault> {
        let file = self.files.get(fid);
        let inode = self.ask(fid, &GetAttr { fid })?;
        match inode.attr.nlink {
            0 => Err(Fault::new(Code::Stale, format!("file {fid} has no name any more"))),
            _ => self.attr_of(&inode, file),
        }
    }

    /// As `getattr` of each, with few requests. `None`: the file is gone.
    pub fn getattrs(&self, fids: &[Fid]) -> Result<Vec<Option<Attr>>, Fault> {
        let mut attrs = Vec::with_capacity(fids.len());
        while attrs.len() < fids.len() {
            let some: Vec<Fid> = fids[attrs.len()..].iter().take(FIDS_MAX).copied().collect();
            let files: Vec<_> = some.iter().map(|fid| self.files.get(*fid)).collect();
            let inodes = self.ask(some[0], &GetAttrs { fids: some.clone() })?.inodes;
            if inodes.is_empty() {
                return Err(Fault::new(Code::Io, "the MDT tells of none of the files that it was asked for"));
            }
            for ((inode, file), fid) in inodes.into_iter().zip(files).zip(some) {
                attrs.push(match inode {
                    Some(inode) => Some(self.attr_of(&inode, file)?),
                    None => self.id.gone.attr_of(fid),
                });
            }
        }
        Ok(attrs)
    }

    /// The size, as reads see it, of a file that is open here while this client is alone.
    pub fn size_known(&self, fid: Fid) -> Option<u64> {
        let file = self.files.get(fid).filter(|_| !self.is_shared())?;
        let size = file.meta.lock().size();
        Some(size)
    }

    /// Replaces attributes by local ones. Beside other clients only those count that were not reported since they attached.
    pub(crate) fn overlay(&self, file: &File, attr: Attr, deadline: Instant) -> Result<Attr, Fault> {
        match self.knows_better(file) {
            true => file.overlay(attr, deadline),
            false => Ok(attr),
        }
    }
    fn knows_better(&self, file: &File) -> bool {
        !self.is_shared() || {
            let meta = file.meta.lock();
            meta.knows_better && meta.progress.is_untold()
        }
    }

    /// As `attr_of`, of an answer that came while `leased` was held, if it is there.
    fn attr_known(
        &self,
        inode: &Inode,
        file: Option<Arc<File>>,
        leased: Option<Section<'_>>,
    ) -> Result<Attr, Fault> {
        match leased {
            Some(section) => section.attr_of(inode.attr),
            None => self.attr_of(inode, file),
        }
    }

    /// Attributes of a file that some client writes. If it is this one, it knows them. If not, a shared lease brings what the others know
    /// (client-CL5).
    fn attr_of_written(&self, inode: &Inode, deadline: Instant) -> Result<Attr, Fault> {
        let fid = inode.attr.fid;
        let held = self.files.get(fid).and_then(|file| self.section_if_held(&file));
        if let Some(section) = held.filter(Section::is_exclusive) {
            return section.attr_of(inode.attr);
        }
        if Instant::now() >= deadline {
            return Err(Fault::new(Code::Timeout, format!("file {fid}: no time is left to ask its writer")));
        }
        let file = {
            let _fid_lock = self.names.lock_fid(fid, deadline)?;
            self.files.pin(fid, For::Reading)
        };
        let attr = self.section(&file, To::Read, deadline).and_then(|section| match section.attr {
            Some(attr) => Ok(attr),
            None => section.attr_of(self.ask_until(fid, &GetAttr { fid }, deadline)?.reply.attr),
        });
        self.unpin(&file, For::Reading, deadline);
        attr
    }

    /// The attributes to show for an inode of the MDT. A file of a dead session is recovered first.
    pub(crate) fn attr_of(&self, inode: &Inode, file: Option<Arc<File>>) -> Result<Attr, Fault> {
        self.attr_until(inode, file, self.deadline())
    }

    /// As `attr_of`. Past the deadline it does not wait.
    pub(crate) fn attr_until(
        &self,
        inode: &Inode,
        file: Option<Arc<File>>,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        if inode.attr.kind != Kind::File || self.settings.observer {
            return Ok(inode.attr);
        }
        let file = file.or_else(|| self.files.get(inode.attr.fid));
        file.iter().for_each(|file| self.await_behind_shortly(file, deadline));
        match file {
            Some(file) if (file.is_behind() || file.is_loaded()) && self.knows_better(&file) => {
                return file.overlay(inode.attr, deadline);
            }
            // Not in the table, or about to be, or just being changed. `recover` waits for that.
            _ => {}
        }
        match inode.state {
            FileState::Settled => Ok(inode.attr),
            FileState::Shared { .. } if !self.is_shared() => Ok(inode.attr),
            FileState::Shared { .. } => self.attr_of_written(inode, deadline),
            FileState::Writing(session) if session == self.session() && self.is_shared() => {
                self.attr_of_written(inode, deadline)
            }
            FileState::Writing(_) | FileState::Truncating { .. } => {
                self.recover(inode.attr.fid, deadline).or_else(|fault| match fault.code {
                    // This user may not recover the file, so the MDT's attributes are shown.
                    Code::Access => Ok(inode.attr),
                    _ => Err(fault),
                })
            }
        }
    }
}
