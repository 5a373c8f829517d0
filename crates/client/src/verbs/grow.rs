//! Inline-to-object migration (`Grow`): an inline file moves to objects (meta-O4).

use std::sync::Arc;
use std::time::Instant;

use plan::retry::CHECKSUM_TRIES;
use plan::spans::spans;
use types::crc::verify_fragments;
use types::{Attr, BULK_MAX, Buf, Code, Fault, Layout, PAGE_SIZE, Time};
use wire::meta::{Grow, GrowReply, Inode, ReadInline, SeekInline, SeekInlineReply, Switch};
use wire::object::Capability;

use crate::Fs;
use crate::cache::files::File;
use crate::cache::files::is_written;
use crate::upkeep::objects::Stopped;
use crate::verbs::fallocate::Grows;
use crate::verbs::write::Use;

/// Most migrations of one call. All but the last were abandoned because other clients changed the record meanwhile. As in `room`.
const GROWTHS_MAX: u32 = 8;

impl Fs {
    /// Moves the file to objects. No read or write runs meanwhile. Does nothing if another call has done it. It does not wait for free space,
    /// since the caller is in a section; the caller may wait without it.
    ///
    /// Without free space it leaves a pending layout. The next try abandons that layout for a new one, so each try costs a record in the unlink
    /// log and writes all bytes again.
    pub(crate) fn grow(&self, file: &Arc<File>, deadline: Instant) -> Result<(), Stopped> {
        self.grow_once(file, deadline).map_err(|stopped| match stopped {
            Stopped::Failed(_) | Stopped::Full { .. } | Stopped::Refresh(_) => stopped,
            _ => {
                let why = format!("file {}: its new objects refuse this client", file.fid);
                Stopped::Failed(Fault::new(Code::Fenced, why))
            }
        })
    }

    fn grow_once(&self, file: &Arc<File>, deadline: Instant) -> Result<(), Stopped> {
        let _order = file.lock_order(deadline).map_err(Stopped::Failed)?;
        let mut body = file.own_body(deadline).map_err(Stopped::Failed)?;
        if body.layout.is_some() {
            return Ok(());
        }
        let mut tries = 0;
        let (cap, inode, mark) = loop {
            // 1. The MDT makes a layout; that of an empty file counts at once.
            let req =
                Grow { fid: file.fid, now: self.now(), held: file.held(), avoid: self.mirrors_to_avoid() };
            let answer = self.ask_until(file.fid, &req, deadline).map_err(Stopped::Failed)?;
            let GrowReply { mut inode, layout, cap, switched } = answer.reply;
            if switched {
                inode.layout.get_or_insert(layout);
                break (cap, inode, answer.mark);
            }
            self.carry_over(file, &inode.attr, &layout, &cap, deadline)?;
            tries += 1;
            match self.switch(file, layout, &cap, inode.attr.mtime, deadline) {
                // Another client has changed the record since, which abandons this migration.
                Err(fault) if fault.code == Code::Stale && tries < GROWTHS_MAX => {}
                switched => break (cap, switched.map_err(Stopped::Failed)?, answer.mark),
            }
        };
        // It is written from here on.
        file.meta.lock().is_kernel_told = false;
        self.tell_kernel_of_writing(file);
        body.is_loaded = true;
        body.layout = inode.layout;
        let mut meta = file.meta.lock();
        meta.progress.start_anew(inode.attr.size, inode.attr.blocks, inode.attr.mtime);
        meta.cap = Some(cap);
        meta.is_marked = is_written(inode.state);
        meta.session = self.session();
        meta.saw(mark);
        Ok(())
    }

    /// 2. Writes all bytes to the objects, and flushes them.
    fn carry_over(
        &self,
        file: &File,
        attr: &Attr,
        layout: &Layout,
        cap: &Capability,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        file.meta.lock().progress.start_anew(attr.size, 0, attr.mtime);
        self.copy_inline(file, layout, cap, attr, deadline)?;
        let snapshot = file.meta.lock().progress.snapshot();
        self.flush_marks(file, &snapshot.marks, deadline).map_err(Stopped::Failed)
    }

    /// 3. One entry switches the layout and drops the inline bytes. `Stale`: the pending layout was abandoned.
    fn switch(
        &self,
        file: &File,
        layout: Layout,
        cap: &Capability,
        now: Time,
        deadline: Instant,
    ) -> Result<Inode, Fault> {
        let snapshot = file.meta.lock().progress.snapshot();
        let (fid, generation, written) = (file.fid, layout.generation, snapshot.written);
        let req = Switch { fid, generation, written, now, held: Some(cap.clone()) };
        let switched = self.ask_until(fid, &req, deadline)?;
        file.meta.lock().saw(switched.mark);
        let mut inode = switched.reply.inode;
        inode.attr.blocks = snapshot.blocks;
        inode.layout.get_or_insert(layout);
        Ok(inode)
    }

    fn copy_inline(
        &self,
        file: &File,
        layout: &Layout,
        cap: &Capability,
        attr: &Attr,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        let mut buf = Buf::new();
        let mut at = 0;
        let mut until = attr.size;
        let has_holes = attr.blocks < attr.size.div_ceil(512);
        let mut reserved = None;
        while at < attr.size {
            // A hole stays a hole.
            if has_holes || reserved.is_none_or(|pages| pages > 0) {
                let found = self.seek_in_record(file, at, deadline).map_err(Stopped::Failed)?;
                reserved = Some(found.reserved);
                let Some(data) = found.data else { break };
                at = data;
                until = match found.hole > data {
                    true => found.hole,
                    false => self.seek_in_record(file, data, deadline).map_err(Stopped::Failed)?.hole,
                };
            }
            let len = (until - at).min(BULK_MAX as u64) as usize;
            self.fetch_inline(file, at, len, &mut buf, deadline).map_err(Stopped::Failed)?;
            self.write_pieces(file, layout, cap, (at, &buf), Use::Free.into(), deadline)
                .map_err(|halt| halt.stopped)?;
            at += buf.len() as u64;
        }
        // Reserved pages stay reserved.
        let pages = reserved.unwrap_or(0);
        for page in (0..64).filter(|p| pages >> p & 1 == 1) {
            let begin = page * PAGE_SIZE as u64;
            let spans = spans(layout, file.fid, begin, begin + PAGE_SIZE as u64);
            self.reserve(file, cap, &spans, Grows::No, self.now(), deadline)?;
        }
        Ok(())
    }

    fn seek_in_record(&self, file: &File, offset: u64, deadline: Instant) -> Result<SeekInlineReply, Fault> {
        Ok(self
            .ask_until(file.fid, &SeekInline { fid: file.fid, offset, held: file.held() }, deadline)?
            .reply)
    }

    /// Exactly `len` bytes of inline content at `offset`.
    fn fetch_inline(
        &self,
        file: &File,
        offset: u64,
        len: usize,
        buf: &mut Buf,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let mdt = self.mdt(file.fid)?;
        for _ in 0..CHECKSUM_TRIES {
            let req = ReadInline { fid: file.fid, offset, len: len as u32, held: file.held() };
            let reply = mdt.exchange(file.fid, &req, &[], buf, deadline)?.reply;
            if buf.len() == len && verify_fragments(offset, buf, &reply.crcs).is_ok() {
                return Ok(());
            }
        }
        Err(Fault::new(
            Code::BadChecksum,
            format!("inline content of file {} at {offset} arrives changed", file.fid),
        ))
    }
}
