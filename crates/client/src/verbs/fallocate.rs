//! `fallocate`: promises space to ranges of a file, ends promises, or makes bytes zeros.
//!
//! client-F1: a refused call leaves nothing behind. Promises of other objects are taken back, and the size has not changed.
//! client-F2: the object that proves a new size is asked last, when all the space is promised.

use std::sync::Arc;
use std::time::Instant;

use plan::size::proven;
use plan::spans::{Span, end_of, spans};
use types::{Code, FILE_SIZE_MAX, Fault, Layout, PAGE_SIZE, Time};
use wire::meta::AllocateInline;
use wire::object::{Capability, Punch, Release, Reserve, ReserveReply};

use crate::Fs;
use crate::cache::api::{Allocate, Handle};
use crate::cache::files::{Body, File};
use crate::cache::hold::To;
use crate::session::request::Answer;
use crate::upkeep::elsewhere::Want;
use crate::upkeep::objects::Stopped;
use crate::upkeep::room::Tries;

/// Whether a reservation extends the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grows {
    Yes,
    No,
}

impl Fs {
    /// Applies `what` to `len` bytes at `offset`.
    pub fn fallocate(&self, handle: Handle, offset: u64, len: u64, what: Allocate) -> Result<(), Fault> {
        let opened = self.opened(handle)?;
        let file = &opened.file;
        if !opened.flags.write || len == 0 {
            let why = if len == 0 { "no bytes" } else { "not open for writing" };
            return Err(Fault::new(Code::Invalid, format!("file {}: {why}", file.fid)));
        }
        let Some(end) = end_of(offset, len) else {
            let detail = format!("file {}: {len} bytes at {offset} end past the limit", file.fid);
            return Err(Fault::new(Code::FileTooBig, detail));
        };
        let deadline = self.deadline();
        let mut tries = Tries::of(Want { at: end - 1, len });
        loop {
            let section = self.section(file, To::Change, deadline)?;
            let done = {
                let body = file.own_body(deadline)?;
                self.fallocate_body(file, &body, offset, end, what, deadline)
            };
            match done {
                Ok(()) => {
                    self.files.enqueue(file);
                    return Ok(());
                }
                Err(stopped) => self.resume(section, stopped, &mut tries)?,
            }
        }
    }

    /// As `fallocate`. The caller holds the body exclusively.
    fn fallocate_body(
        &self,
        file: &Arc<File>,
        body: &Body,
        begin: u64,
        end: u64,
        what: Allocate,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        self.check_poison(file)?;
        self.check_stale(file)?;
        let Some(layout) = &body.layout else {
            return self.fallocate_inline(file, begin, end, what, deadline);
        };
        let cap = {
            let mut meta = file.meta.lock();
            meta.need_writable(file.fid, if what.erases() { 0 } else { u64::MAX })?;
            if meta.cutting.is_some() {
                return Err(Stopped::Cut);
            }
            if !meta.progress.is_untold() {
                meta.session = self.session();
            }
            meta.cap.clone().ok_or(Stopped::Refresh(None))?
        };
        let size = file.meta.lock().progress.size;
        let end = match what {
            // The last page has no byte behind the file's end, so it is punched whole.
            Allocate::Punch if end > size => end.next_multiple_of(PAGE_SIZE as u64).min(FILE_SIZE_MAX),
            _ => end,
        };
        self.cut_overshoot(file, body, deadline)?;
        let spans = spans(layout, file.fid, begin, end);
        let now = self.now();
        let done = self.fallocate_spans(file, &cap, &spans, end, what, now, deadline);
        // A refused call may have changed some objects, so the blocks are counted in any case.
        let counted = self.count_space(file, &cap, layout, deadline);
        if let (Err(_), Ok(blocks)) = (&done, &counted) {
            file.meta.lock().progress.blocks = *blocks;
        }
        done.map_err(|stopped| stopped.with(&cap, layout))?;
        file.meta.lock().progress.changed(counted?, now);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    fn fallocate_spans(
        &self,
        file: &File,
        cap: &Capability,
        spans: &[Span],
        end: u64,
        what: Allocate,
        now: Time,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        // 1. The space first: if it is refused, nothing has changed.
        if what.allocates() {
            let is_longer = what.grows() && end > file.meta.lock().progress.size;
            let grows = if is_longer { Grows::Yes } else { Grows::No };
            self.reserve(file, cap, spans, grows, now, deadline)?;
            if is_longer {
                file.meta.lock().progress.reached(end, now);
            }
        }
        // 2. Then the zeros.
        if what.erases() {
            let punch = |s: &Span| Punch {
                cap: cap.clone(),
                object: s.object,
                offset: s.begin,
                len: s.end - s.begin,
                keep: what.allocates(),
                mtime: now,
            };
            let mut asked = Vec::with_capacity(spans.len());
            for span in spans {
                asked.push((self.ost(span.mirror, deadline)?, punch(span)));
            }
            let mut failed = Vec::new();
            for (span, answer) in spans.iter().zip(self.ask_each(file.fid, &asked, deadline)) {
                match answer {
                    // Punching does not make an absent object, so its written bit stays.
                    Ok(answer) => file.meta.lock().progress.wrote(span.object, true, answer.mark),
                    Err(fault) => failed.push((span.mirror, fault)),
                }
            }
            if let Some(stopped) = Stopped::at(failed) {
                return Err(stopped);
            }
        }
        Ok(())
    }

    /// Promises space to every page of the spans, or to none.
    pub(crate) fn reserve(
        &self,
        file: &File,
        cap: &Capability,
        spans: &[Span],
        grows: Grows,
        now: Time,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        let request = |s: &Span, end| Reserve {
            cap: cap.clone(),
            object: s.object,
            offset: s.begin,
            len: s.end - s.begin,
            end,
            mtime: now,
        };
        // client-F2: the last span, which proves the size, goes alone after the others.
        let Some((last, others)) = spans.split_last() else { return Ok(()) };
        let mut promised: Vec<(&Span, ReserveReply)> = Vec::new();
        for (some, end) in
            [(others, 0), (std::slice::from_ref(last), if grows == Grows::Yes { last.end } else { 0 })]
        {
            let mut asked = Vec::with_capacity(some.len());
            for span in some {
                asked.push((self.ost(span.mirror, deadline)?, request(span, end)));
            }
            let mut failed = Vec::new();
            for (span, answer) in some.iter().zip(self.ask_each(file.fid, &asked, deadline)) {
                match answer {
                    Ok(Answer { reply, mark, .. }) => {
                        let mut meta = file.meta.lock();
                        meta.progress.wrote(span.object, span.written, mark);
                        meta.progress.took(reply.pages);
                        drop(meta);
                        promised.push((span, reply));
                    }
                    Err(fault) => failed.push((span.mirror, fault)),
                }
            }
            if let Some(stopped) = Stopped::at(failed) {
                self.take_back(file, cap, &promised, deadline);
                return Err(stopped);
            }
        }
        Ok(())
    }

    /// client-F1: ends promises of a refused call. A promise that existed in the range before cannot be told from the new one, so both stay.
    fn take_back(
        &self,
        file: &File,
        cap: &Capability,
        promised: &[(&Span, ReserveReply)],
        deadline: Instant,
    ) {
        for (span, _) in promised.iter().filter(|(_, reply)| reply.pages > 0 && !reply.mixed) {
            let (offset, len) = (span.begin, span.end - span.begin);
            let release = Release { cap: cap.clone(), object: span.object, offset, len };
            let taken =
                self.ost(span.mirror, deadline).and_then(|link| link.ask(file.fid, &release, deadline));
            match taken {
                Ok(answer) => file.meta.lock().progress.wrote(span.object, true, answer.mark),
                Err(fault) => {
                    tracing::warn!("file {}: space stays reserved in {}: {fault}", file.fid, span.object)
                }
            }
        }
    }

    /// Blocks of 512 bytes that the objects use.
    fn count_space(
        &self,
        file: &File,
        cap: &Capability,
        layout: &Layout,
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let objects: Vec<_> = {
            let meta = file.meta.lock();
            let is_there = |o, bit| bit || meta.progress.has_written(o);
            layout
                .objects(file.fid)
                .filter(|(o, _, bit)| is_there(*o, *bit))
                .map(|(o, mirror, _)| (o, mirror))
                .collect()
        };
        Ok(proven(layout, &self.glimpse(cap, objects.into_iter(), deadline)?).blocks)
    }

    fn fallocate_inline(
        &self,
        file: &File,
        begin: u64,
        end: u64,
        what: Allocate,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        let req = AllocateInline {
            fid: file.fid,
            offset: begin,
            len: end - begin,
            erase: what.erases(),
            allocate: what.allocates(),
            grow: what.grows(),
            now: self.now(),
            held: file.held(),
        };
        let Answer { reply, mark, .. } = self.ask_until(file.fid, &req, deadline)?;
        let mut meta = file.meta.lock();
        meta.progress.set_size(reply.attr.size, reply.attr.blocks, reply.attr.mtime);
        meta.saw(mark);
        Ok(())
    }
}
