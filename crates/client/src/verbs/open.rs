//! Open, and the renewal of capabilities and layouts.

use std::sync::Arc;
use std::time::Instant;

use plan::settle::{Mark, Progress};
use types::{Attr, Buf, Cred, Fault, Fid, Kind};
use wire::meta::{FileState, OpenReply};
use wire::object::RIGHT_WRITE;

use crate::Fs;
use crate::cache::api::{Handle, OpenFlags};
use crate::cache::files::{File, For, Found, is_written};
use crate::cache::hold::To;
use crate::session::asks::{Asks, read_only};
use crate::session::request::Answer;
use crate::upkeep::objects::{Lease, lease_of};

impl Fs {
    /// Opens a file by fid, for root.
    pub fn open(&self, fid: Fid, flags: OpenFlags) -> Result<(Handle, Attr), Fault> {
        self.open_as(fid, flags, &Cred::root())
    }

    /// Opens a file by fid.
    pub fn open_as(&self, fid: Fid, flags: OpenFlags, cred: &Cred) -> Result<(Handle, Attr), Fault> {
        if flags.write || flags.truncate {
            self.refuse_observer()?;
        }
        let deadline = self.deadline();
        let why = if flags.write { For::Writing } else { For::Reading };
        // client-C4: in the table first. An unlink that runs now has either ended, or finds the file.
        let file = {
            let _fid_lock = self.names.lock_fid(fid, deadline)?;
            self.files.pin(fid, why)
        };
        let attr = match flags.truncate {
            true => self.open_empty(&file, flags, cred, deadline),
            false => self.open_again(&file, Asks::New(flags, cred), deadline),
        };
        self.make_handle(file, flags, attr, deadline)
    }

    /// Asks for attributes, layout and a capability that covers the file's descriptors.
    pub(crate) fn open_again(
        &self,
        file: &Arc<File>,
        asks: Asks<'_>,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        if self.settings.observer {
            return self.observe(file, deadline);
        }
        let asked = match asks {
            Asks::New(..) if self.is_shared() => Some(self.ask_leave(file, asks, deadline)?),
            _ => None,
        };
        if let Some((attr, true)) = asked {
            return Ok(attr);
        }
        // client-H1: beside other clients an open reads the file under its lease.
        let section = self.section_beside(file, To::Read.into(), deadline)?;
        if let Some(attr) = section.attr {
            return Ok(attr);
        }
        if let Some((attr, _)) = asked.filter(|_| section.is_among_others()) {
            // It was asked before the lease's use began, and no other client changed the file since.
            return section.attr_of(attr);
        }
        let _order = file.lock_order(deadline)?;
        self.open_in_order(file, asks, deadline)
    }

    /// Asks for permission to make a descriptor. True: the file is inline, so that it needs no lease.
    fn ask_leave(&self, file: &Arc<File>, asks: Asks<'_>, deadline: Instant) -> Result<(Attr, bool), Fault> {
        let _order = file.lock_order(deadline)?;
        let write = file.meta.lock().writers > 0;
        let Answer { reply, mark, .. } = self.ask_open(file, write, asks, deadline)?;
        let body = file.share_body(deadline)?;
        // Objects, and a file that needs recovery, are handled in a section.
        let is_inline =
            |open: &OpenReply| open.inode.layout.is_none() && open.inode.state == FileState::Settled;
        if is_inline(&reply) && !(body.is_loaded && body.layout.is_some()) {
            drop(body);
            let attr = reply.inode.attr;
            self.take_open(file, reply, mark, deadline)?;
            return Ok((attr, true));
        }
        let mut meta = file.meta.lock();
        meta.cap = reply.cap.or(meta.cap.take());
        Ok((reply.inode.attr, false))
    }

    /// Fetches a new capability in place of the refused one, unless another thread has done it. A new capability fences earlier ones, so if every
    /// thread fetched its own, they would refuse each other for ever.
    pub(crate) fn refresh(
        &self,
        file: &Arc<File>,
        refused: Option<Lease>,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let _order = file.lock_order(deadline)?;
        let is_new = {
            let meta = file.meta.lock();
            let is_able = meta.cap.as_ref().is_some_and(|c| meta.writers == 0 || c.rights & RIGHT_WRITE != 0);
            is_able && refused.is_some() && meta.cap.as_ref().map(lease_of) != refused
        };
        match is_new {
            true => Ok(()),
            false => self.open_in_order(file, Asks::Again, deadline).map(|_| ()),
        }
    }

    /// `order` is held.
    pub(crate) fn open_in_order(
        &self,
        file: &Arc<File>,
        asks: Asks<'_>,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        let write = file.meta.lock().writers > 0;
        let answer = self.ask_open(file, write, asks, deadline)?;
        let attr = answer.reply.inode.attr;
        match self.take_open(file, answer.reply, answer.mark, deadline)? {
            Found::Settled => Ok(attr),
            Found::LeftOver => self.recover_open(file, deadline),
        }
    }

    /// `order` is held.
    pub(crate) fn ask_open(
        &self,
        file: &File,
        write: bool,
        asks: Asks<'_>,
        deadline: Instant,
    ) -> Result<Answer<OpenReply>, Fault> {
        let req = asks.request(file, write, self.now());
        // The open is noted before the request, and its close is reported even if the open is refused.
        self.note_open(file, deadline)?;
        // client-C3: a read passes stuck requests, and its answer would be out of date after them.
        let is_stuck = self.mdt(file.fid)?.slots.has_stuck();
        let wish = self.wish_for(file);
        if let Some(look) = read_only(&req, wish.bytes_max()).filter(|_| !is_stuck) {
            let mut bytes = Buf::new();
            let Answer { reply, mark, leave, told, is_aside } =
                self.mdt(file.fid)?.exchange(file.fid, &look, &[], &mut bytes, deadline)?;
            if let Some(open) = reply.open {
                if let Some(crcs) = reply.crcs {
                    self.keep_content(file, wish, &open.inode.attr, &bytes, &crcs);
                }
                return Ok(Answer { reply: open, mark, leave, told, is_aside });
            }
        }
        self.ask_until(file.fid, &req, deadline)
    }

    /// O_TRUNC: the MDT truncates the file in the same entry.
    fn open_empty(
        &self,
        file: &Arc<File>,
        flags: OpenFlags,
        cred: &Cred,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        let _section = self.section(file, To::Change, deadline)?;
        let _order = file.lock_order(deadline)?;
        let mut body = file.own_body(deadline)?;
        let write = file.meta.lock().writers > 0;
        let req = Asks::New(flags, cred).request(file, write, self.now());
        let answer = self.ask_until(file.fid, &req, deadline).inspect_err(|_| file.distrust())?;
        let OpenReply { inode, cap } = answer.reply;
        if let Some(old) = &body.layout {
            self.id.gone.add(file.fid, Some(old.generation));
        }
        if is_written(inode.state) {
            self.tell_kernel_of_writing(file);
        }
        body.is_loaded = true;
        body.layout = inode.layout;
        let mut meta = file.meta.lock();
        meta.progress.start_anew(inode.attr.size, inode.attr.blocks, inode.attr.mtime);
        meta.cap = cap;
        meta.is_marked = is_written(inode.state);
        (meta.is_stale, meta.is_part) = (false, false);
        meta.session = self.session();
        meta.saw(answer.mark);
        Ok(inode.attr)
    }

    /// An observer has no session and no capability: it reads inline content and attributes.
    fn observe(&self, file: &Arc<File>, deadline: Instant) -> Result<Attr, Fault> {
        let req = wire::meta::GetAttr { fid: file.fid };
        let inode = self.ask_until(file.fid, &req, deadline)?.reply;
        let mut body = file.own_body(deadline)?;
        (body.is_loaded, body.layout) = (true, inode.layout);
        file.meta.lock().progress = Progress::new(inode.attr.size, inode.attr.blocks, inode.attr.mtime);
        Ok(inode.attr)
    }

    /// As `take_open`, in a section: the answer holds until the section ends. If this client changed the file while it was alone, it reports
    /// that first; no other client is attached yet then.
    pub(crate) fn adopt(
        &self,
        file: &Arc<File>,
        reply: OpenReply,
        mark: Mark,
        deadline: Instant,
    ) -> Result<Found, Fault> {
        let Attr { size, blocks, mtime, .. } = reply.inode.attr;
        let found = self.take_open_as(file, reply, mark, true, deadline)?;
        let mut meta = file.meta.lock();
        if !(meta.knows_better && meta.progress.is_untold()) {
            meta.progress.adopt(size, blocks, mtime);
            meta.knows_better = false;
        }
        Ok(found)
    }

    /// Once for each time that a file is open: this client begins to write it. From then on other clients may change its size without a word
    /// from the MDT (client-CL5), so the kernel asks before it shows the attributes that it has. A notice makes the kernel ignore an answer
    /// about attributes that is under way. So none is sent while such a request is served.
    pub(crate) fn tell_kernel_of_writing(&self, file: &File) {
        let is_due = {
            let mut meta = file.meta.lock();
            let is_due = self.is_shared() && meta.writers > 0 && !meta.is_kernel_told;
            meta.is_kernel_told |= is_due;
            is_due
        };
        if is_due {
            self.id.leased.kernel_forgets(file.fid);
        }
    }

    /// Takes the MDT's answer to an open or create. The caller holds `order`, so the answer still holds.
    pub(crate) fn take_open(
        &self,
        file: &Arc<File>,
        reply: OpenReply,
        mark: Mark,
        deadline: Instant,
    ) -> Result<Found, Fault> {
        self.take_open_as(file, reply, mark, !self.is_shared(), deadline)
    }

    /// `is_turn`: no other client changes the file meanwhile.
    pub(crate) fn take_open_as(
        &self,
        file: &Arc<File>,
        reply: OpenReply,
        mark: Mark,
        is_turn: bool,
        deadline: Instant,
    ) -> Result<Found, Fault> {
        let OpenReply { inode, cap } = reply;
        let attr = inode.attr;
        if attr.kind != Kind::File {
            return Ok(Found::Settled);
        }
        if matches!(inode.state, FileState::Shared { .. }) {
            self.tell_kernel_of_writing(file);
        }
        let mine = self.session();
        let found = match inode.state {
            FileState::Writing(session) if session != mine => Found::LeftOver,
            FileState::Truncating { .. } => Found::LeftOver,
            _ => Found::Settled,
        };
        // An unchanged layout needs no exclusive lock, so that reads and writes go on while another descriptor is opened.
        let generation = inode.layout.as_ref().map(|l| l.generation);
        let (is_same, is_loaded, is_known) = {
            let body = file.share_body(deadline)?;
            let is_same = body.is_loaded && body.layout.as_ref().map(|l| l.generation) == generation;
            (is_same, body.is_loaded, body.layout == inode.layout)
        };
        if is_same && is_turn && !is_known {
            // Another client has written further stripes, or the file has moved on to other OSTs.
            let mut body = file.own_body(deadline)?;
            let mine = std::mem::replace(&mut body.layout, inode.layout.clone());
            body.layout.iter_mut().zip(&mine).for_each(|(told, mine)| told.learn_written(mine));
        }
        if !is_same && (is_turn || !is_loaded) {
            let mut body = file.own_body(deadline)?;
            // Another client has moved the file to other objects. Nothing is replayed to the old ones.
            if let Some(old) = body.layout.as_ref().filter(|_| body.is_loaded) {
                self.id.gone.add(file.fid, Some(old.generation));
            }
            (body.is_loaded, body.layout) = (found == Found::Settled, inode.layout);
            file.meta.lock().progress.start_anew(attr.size, attr.blocks, attr.mtime);
        }
        let mut meta = file.meta.lock();
        meta.cap = cap.or(meta.cap.take());
        meta.flags = inode.flags;
        if !matches!(inode.state, FileState::Truncating { .. }) {
            // The truncation that was begun has been superseded: by one to size 0, or by a recovery of the file.
            meta.cutting = None;
        }
        meta.is_marked |= inode.state == FileState::Writing(mine)
            || (matches!(inode.state, FileState::Shared { .. }) && meta.writers > 0);
        let is_part = std::mem::take(&mut meta.is_part);
        if std::mem::take(&mut meta.is_stale) {
            match meta.progress.is_untold() {
                false => meta.progress.adopt(attr.size, attr.blocks, attr.mtime),
                true if is_part => meta.progress.join(attr.size, attr.blocks, attr.mtime),
                true => {}
            }
        }
        if meta.session != mine && !meta.progress.is_untold() {
            meta.session = mine;
        }
        meta.saw(mark);
        Ok(found)
    }
}
