//! Truncate. The MDT does everything except cutting objects. It records that first, so that any client can finish it.

use std::sync::Arc;
use std::time::Instant;

use plan::size::{cuts, proven};
use types::{Attr, Code, Cred, FILE_SIZE_MAX, Fault};
use wire::meta::{Truncate, TruncateReply};

use crate::Fs;
use crate::cache::api::OpenFlags;
use crate::cache::files::is_written;
use crate::cache::files::{Body, File, For};
use crate::cache::hold::To;
use crate::session::asks::Asks;
use crate::upkeep::objects::Stopped;
use crate::upkeep::room::Tries;
use crate::verbs::read::RESUMES_MAX;

impl Fs {
    /// Sets the size of a file that need not be open.
    pub(crate) fn truncate(
        &self,
        fid: types::Fid,
        size: u64,
        cred: &Cred,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        let file = {
            let _fid_lock = self.names.lock_fid(fid, deadline)?;
            self.files.pin(fid, For::Writing)
        };
        let attr = self.truncate_pinned(&file, size, cred, deadline);
        self.unpin(&file, For::Writing, deadline);
        attr
    }

    /// As `truncate`, in a section beside other clients.
    pub(crate) fn truncate_pinned(
        &self,
        file: &Arc<File>,
        size: u64,
        cred: &Cred,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        let mut tries = Tries::default();
        loop {
            let section = self.section(file, To::Change, deadline)?;
            self.open_if_new(file, cred, deadline)?;
            match self.truncate_file(file, size, cred, deadline) {
                Ok(attr) => return Ok(attr),
                Err(Stopped::Full { fault, mirrors, .. }) => {
                    drop(section);
                    self.await_growth(file, (fault, mirrors), &mut tries, deadline)?;
                }
                Err(Stopped::Refresh(refused)) if tries.count < RESUMES_MAX && Instant::now() < deadline => {
                    tries.count += 1;
                    self.await_key(file, &tries, deadline);
                    self.refresh(file, refused, deadline)?;
                }
                Err(stopped) => return Err(stopped.fault()),
            }
        }
    }

    /// Opens a file that is not open here, which also finds a file that needs recovery.
    pub(crate) fn open_if_new(&self, file: &Arc<File>, cred: &Cred, deadline: Instant) -> Result<(), Fault> {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        // Released before the open, which may take it exclusively.
        let is_loaded = file.share_body(deadline)?.is_loaded;
        match is_loaded {
            true => Ok(()),
            false => {
                let _order = file.lock_order(deadline)?;
                self.open_in_order(file, Asks::New(flags, cred), deadline).map(|_| ())
            }
        }
    }

    /// Sets the size of a pinned, loaded file.
    fn truncate_file(
        &self,
        file: &Arc<File>,
        size: u64,
        cred: &Cred,
        deadline: Instant,
    ) -> Result<Attr, Stopped> {
        if size > FILE_SIZE_MAX {
            let detail = format!("file {}: {size} bytes are past {FILE_SIZE_MAX}", file.fid);
            return Err(Fault::new(Code::FileTooBig, detail).into());
        }
        loop {
            match self.truncate_once(file, size, cred, deadline) {
                // The size exceeds the inline limit.
                Err(fault) if fault.code == Code::NeedLayout => self.grow(file, deadline)?,
                done => return Ok(done?),
            }
        }
    }

    fn truncate_once(
        &self,
        file: &Arc<File>,
        size: u64,
        cred: &Cred,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        let _order = file.lock_order(deadline)?;
        if size > 0 {
            self.trust_again(file, deadline)?;
        }
        let mut body = file.own_body(deadline)?;
        if size > 0 {
            // Finish an earlier truncation that failed. A truncation to 0 needs none of its cuts.
            self.cut_if_due(file, &mut body, deadline)?;
            self.cut_overshoot(file, &body, deadline)?;
        }
        // 1. The MDT does everything, or records the intent to cut objects.
        let req = Truncate { fid: file.fid, size, now: self.now(), held: file.held(), cred: cred.clone() };
        let answer = self.ask_until(file.fid, &req, deadline).inspect_err(|_| file.distrust())?;
        let TruncateReply { inode, cap, pending } = answer.reply;
        {
            let mut meta = file.meta.lock();
            meta.saw(answer.mark);
            meta.cap = cap.or(meta.cap.take());
            meta.is_marked = is_written(inode.state);
            meta.cutting = pending.then_some(size);
            let is_new =
                body.layout.as_ref().map(|l| l.generation) != inode.layout.as_ref().map(|l| l.generation);
            if is_new {
                if let Some(old) = &body.layout {
                    self.id.gone.add(file.fid, Some(old.generation));
                }
                body.layout = inode.layout;
                meta.progress.start_anew(inode.attr.size, inode.attr.blocks, inode.attr.mtime);
            } else {
                // Its stripes may lie on other OSTs by now, if others used the file until a moment ago.
                let mine = std::mem::replace(&mut body.layout, inode.layout);
                body.layout.iter_mut().zip(&mine).for_each(|(told, mine)| told.learn_written(mine));
                let blocks = if pending { meta.progress.blocks } else { inode.attr.blocks };
                meta.progress.set_size(inode.attr.size, blocks, inode.attr.mtime);
            }
        }
        // 2. This client cuts the objects.
        self.cut_if_due(file, &mut body, deadline)?;
        let progress = &file.meta.lock().progress;
        Ok(Attr { size: progress.size, blocks: progress.blocks, mtime: progress.mtime, ..inode.attr })
    }

    /// Finishes a truncation that failed.
    pub(crate) fn finish_cut(&self, file: &Arc<File>, deadline: Instant) -> Result<(), Fault> {
        let _order = file.lock_order(deadline)?;
        self.trust_again(file, deadline)?;
        let mut body = file.own_body(deadline)?;
        self.cut_if_due(file, &mut body, deadline)
    }

    /// Asks the MDT what is to be cut, if a later change of size has an unknown outcome. The caller holds `order`.
    fn trust_again(&self, file: &Arc<File>, deadline: Instant) -> Result<(), Fault> {
        let is_unknown = {
            let meta = file.meta.lock();
            meta.cutting.is_some() && meta.cap.is_none()
        };
        match is_unknown {
            true => self.open_in_order(file, Asks::Again, deadline).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Cuts the objects to the recorded size, flushes, and reports the update. The caller holds `order` and `body`.
    fn cut_if_due(&self, file: &File, body: &mut Body, deadline: Instant) -> Result<(), Fault> {
        let (size, cap, mtime) = {
            let meta = file.meta.lock();
            let Some(size) = meta.cutting else { return Ok(()) };
            (size, meta.cap.clone(), meta.progress.mtime)
        };
        let (Some(layout), Some(cap)) = (&mut body.layout, cap) else {
            return Err(Fault::new(
                Code::Stale,
                format!("file {}: a shrink without objects; open it again", file.fid),
            ));
        };
        // 1. Cut every object that is too long.
        let objects = || layout.objects(file.fid).map(|(object, mirror, _)| (object, mirror));
        let before = self.glimpse(&cap, objects(), deadline)?;
        let marks = self.cut_objects(&cap, layout, &cuts(layout, size, &before), deadline)?;
        let after = proven(layout, &self.glimpse(&cap, objects(), deadline)?);
        // 2. plan-O3: flush that, with all other unflushed bytes of the file, before the report.
        let snapshot = file.meta.lock().progress.snapshot();
        let all: Vec<_> = marks.into_iter().chain(snapshot.marks.iter().copied()).collect();
        self.flush_marks(file, &all, deadline)?;
        if self.is_shared() {
            self.flush_objects(layout, file.fid, deadline)?;
        }
        // 3. The MDT sets the size.
        let (answer, done) = self.report_proven(file, layout, size, mtime, &after, deadline)?;
        let mut meta = file.meta.lock();
        meta.cutting = None;
        meta.is_marked = !done;
        meta.progress.flushed(&snapshot);
        meta.progress.was_told(&snapshot);
        meta.progress.set_size(size, after.blocks, mtime);
        meta.saw(answer.mark);
        Ok(())
    }
}
