//! `SEEK_DATA` and `SEEK_HOLE`: asks each object of the rest of the file once.

use std::sync::Arc;
use std::time::Instant;

use plan::spans::{Span, Whence, found, spans};
use types::{Code, Fault};
use wire::meta::SeekInline;
use wire::object::{Capability, Seek, SeekFrom, Sought};

use crate::Fs;
use crate::cache::api::Handle;
use crate::cache::files::{Body, File};
use crate::cache::hold::To;
use crate::upkeep::objects::Stopped;
use crate::upkeep::room::Tries;

/// Objects in one request; a target refuses more than 2048.
const OBJECTS_MAX: usize = 1024;

impl Fs {
    /// The first byte at or after `offset` that was written (or was not), by pages. `None`: there is none before the file's end, or `offset` is past
    /// it. A hole is always found, since every file ends with one.
    pub fn seek(&self, handle: Handle, offset: u64, whence: Whence) -> Result<Option<u64>, Fault> {
        let opened = self.opened(handle)?;
        let deadline = self.deadline();
        let mut tries = Tries::default();
        loop {
            let section = self.section(&opened.file, To::Read, deadline)?;
            let body = opened.file.share_body(deadline)?;
            let stopped = match self.seek_body(&opened.file, &body, offset, whence, deadline) {
                Ok(at) => return Ok(at),
                Err(stopped) => stopped,
            };
            drop(body);
            self.resume(section, stopped, &mut tries)?;
        }
    }

    pub(crate) fn seek_body(
        &self,
        file: &Arc<File>,
        body: &Body,
        offset: u64,
        whence: Whence,
        deadline: Instant,
    ) -> Result<Option<u64>, Stopped> {
        self.check_poison(file)?;
        self.check_stale(file)?;
        let Some(layout) = &body.layout else { return self.seek_inline(file, offset, whence, deadline) };
        let (size, cap) = {
            let meta = file.meta.lock();
            if meta.cutting.is_some() {
                return Err(Stopped::Cut);
            }
            (meta.progress.size, meta.cap.clone())
        };
        if offset >= size {
            return Ok(None);
        }
        let cap = cap.ok_or(Stopped::Refresh(None))?;
        let mut all = spans(layout, file.fid, offset, size);
        {
            let meta = file.meta.lock();
            all.iter_mut().for_each(|s| s.written |= meta.progress.has_written(s.object));
        }
        let sought = self.ask_where(&cap, &all, deadline).map_err(|f| Stopped::from(f).with(&cap, layout))?;
        let of = |span: Span| {
            let at = sought.binary_search_by_key(&span.object, |s| s.object).ok()?;
            Some((span, sought[at].clone()))
        };
        Ok(found(layout, size, offset, whence, all.into_iter().filter_map(of)))
    }

    /// Asks the objects. The answers are in the order of `all`.
    fn ask_where(&self, cap: &Capability, all: &[Span], deadline: Instant) -> Result<Vec<Sought>, Fault> {
        let mut by_mirror: std::collections::BTreeMap<_, Vec<SeekFrom>> = Default::default();
        for span in all {
            let from = SeekFrom { object: span.object, offset: span.begin };
            by_mirror.entry(span.mirror).or_default().push(from);
        }
        let mut asked = Vec::new();
        for (mirror, objects) in by_mirror {
            let link = self.ost(mirror, deadline)?;
            for part in objects.chunks(OBJECTS_MAX) {
                asked.push((link.clone(), Seek { cap: cap.clone(), objects: part.to_vec() }));
            }
        }
        let answers = self.ask_all(cap.fid, &asked, deadline)?;
        let mut sought: Vec<Sought> = answers.into_iter().flat_map(|a| a.reply.objects).collect();
        sought.sort_unstable_by_key(|s| s.object);
        match sought.len() == all.len() {
            true => Ok(sought),
            false => Err(Fault::new(Code::Io, format!("file {}: an answer lacks objects", cap.fid))),
        }
    }

    fn seek_inline(
        &self,
        file: &File,
        offset: u64,
        whence: Whence,
        deadline: Instant,
    ) -> Result<Option<u64>, Stopped> {
        let reply = self
            .ask_until(file.fid, &SeekInline { fid: file.fid, offset, held: file.held() }, deadline)?
            .reply;
        let at = match whence {
            Whence::Data => reply.data,
            Whence::Hole => Some(reply.hole),
        };
        Ok(at.filter(|_| offset < reply.size))
    }
}
