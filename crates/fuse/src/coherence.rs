//! Coherence of one file over all ways to reach it: pages, direct I/O, and reported size and times.
//!
//! The rules are those of `inuse`; this file applies them with the kernel's notices. Work that may wait for the kernel runs `aside`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Handle, Leave};
use fusedev::{ReplyAttr, ReplyStatx, ReplyWrite, Request};
use parking_lot::Mutex;
use types::{Attr, Buf, Code, Fault, Fid};

use crate::door::Door;
use crate::inuse::{Begun, Told};
use crate::reply::errno;

/// A descriptor flag: its reads and writes bypass the page cache.
pub const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
/// How long the door keeps asking the kernel whether the thread of an extending call has run on. Such a thread only needs a processor. If
/// the kernel has dropped the pages meanwhile, it cannot tell.
const ASKED_MAX: Duration = Duration::from_millis(100);
/// Longest wait of a page fill for a direct write; as long as a call of the client may take.
const FILL_WAITS_MAX: Duration = Duration::from_secs(60);

/// The reply that waits for attributes.
pub enum AttrReply {
    Attr(ReplyAttr),
    Statx(ReplyStatx),
}

/// A reply that waits until the kernel has reported its own size.
struct Waiting {
    fid: Fid,
    tid: u32,
    attr: Attr,
    leave: Leave,
    reply: AttrReply,
    since: Instant,
    growth: u64,
    end: u64,
}

/// Waiting replies, by the number of the question to the kernel.
#[derive(Default)]
pub struct Questions {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
}

impl Door {
    /// Replies with attributes that follow fuse-G1.
    pub(crate) fn answer_attr(&self, tid: u32, attr: Attr, leave: Leave, reply: AttrReply) {
        let since = Instant::now();
        self.answer_or_ask(
            Waiting { fid: attr.fid, tid, attr, leave, reply, since, growth: 0, end: 0 },
            false,
        );
    }

    fn answer_or_ask(&self, waiting: Waiting, is_unread: bool) {
        let attr = waiting.attr;
        match self.in_use.told(waiting.fid, waiting.tid, attr.size, is_unread) {
            Told::Unsure { growth, end } if waiting.since.elapsed() < ASKED_MAX => {
                self.ask_kernel(Waiting { growth, end, ..waiting });
            }
            Told::Unsure { .. } => self.put_attr(waiting.reply, &attr, &waiting.leave),
            Told::Size(size) => {
                // A size that is not the file's own must not be cached.
                let leave = if size == attr.size { waiting.leave } else { Leave::default() };
                self.put_attr(waiting.reply, &Attr { size, ..attr }, &leave)
            }
        }
    }

    /// Asks for the last byte of the answered requests: the kernel returns none beyond the size up to which it reads.
    fn ask_kernel(&self, waiting: Waiting) {
        let (ino, offset) = (self.ino(waiting.fid), waiting.end - 1);
        let question = self.questions.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.questions.waiting.lock().insert(question, waiting);
        let asked =
            self.forget.notifier.as_ref().is_some_and(|n| n.retrieve(question, ino, offset, 1).is_ok());
        if !asked && let Some(waiting) = self.questions.waiting.lock().remove(&question) {
            self.put_attr(waiting.reply, &waiting.attr, &waiting.leave);
        }
    }

    /// Called with the kernel's answer: the number of bytes that it has.
    pub(crate) fn kernel_said(&self, question: u64, bytes: u32) {
        let Some(waiting) = self.questions.waiting.lock().remove(&question) else { return };
        let is_unread = bytes == 0;
        match is_unread {
            true => std::thread::yield_now(),
            false => self.in_use.kernel_reads(waiting.fid, waiting.growth, waiting.end),
        }
        self.answer_or_ask(waiting, is_unread);
    }

    /// Runs a call of the thread `rq.pid()` that may extend a file to `end`; `reached` returns how far it did.
    pub(crate) fn growing<T>(
        &self,
        rq: &Request,
        fid: Fid,
        (offset, end): (u64, u64),
        has_pages: bool,
        does: impl FnOnce() -> Result<T, Fault>,
        reached: impl FnOnce(&T) -> u64,
    ) -> Result<T, Fault> {
        let Some(size) = self.fs.size_known(fid).filter(|_| end > offset) else { return does() };
        self.in_use.begin_growth(fid, rq.pid(), offset, end, size, has_pages);
        let done = does();
        self.in_use.end_growth(fid, done.as_ref().ok().map(reached));
        done
    }

    /// Whether a write through this descriptor bypasses the kernel's page cache.
    pub(crate) fn is_direct(&self, fid: Fid, fh: u64, flags: i32) -> bool {
        flags & O_DIRECT != 0 || self.in_use.is_uncached(fid, fh)
    }

    /// fuse-G2: drops the kernel's pages in the range of a direct write. May wait for the kernel.
    pub(crate) fn clear(&self, begun: &Begun) {
        let Range { start, end } = begun.range;
        for pass in 1.. {
            self.drop_pages(begun.fid, start as i64, (end - start) as i64);
            if !self.in_use.clear_again(begun, pass) {
                return;
            }
        }
    }

    /// Drops pages of the kernel, which first writes dirty ones. May wait for the kernel.
    fn drop_pages(&self, fid: Fid, offset: i64, len: i64) {
        let Some(notifier) = &self.forget.notifier else { return };
        if let Err(error) = notifier.inval_inode(self.ino(fid), offset, len) {
            tracing::debug!(%error, "dropping pages of the kernel");
        }
    }

    /// Writes the pages that programs have changed through mappings, before the file's times are set: a later write would change the times
    /// again. May wait for the kernel.
    pub(crate) fn write_mapped_pages(&self, fid: Fid) {
        self.drop_pages(fid, 0, 0);
    }
}

/// Carries out a direct write by `write`. fuse-G2: reads of its pages wait until it is done.
pub fn write_direct(
    door: &Arc<Door>,
    begun: Option<Begun>,
    data: &[u8],
    reply: ReplyWrite,
    write: impl FnOnce(&Door, &[u8]) -> Result<usize, Fault> + Send + 'static,
) {
    let answer = |written: Result<usize, Fault>, reply: ReplyWrite| match written {
        Ok(len) => reply.written(len as u32),
        Err(fault) => reply.error(errno("write", &fault)),
    };
    match begun {
        Some(begun) if begun.must_clear => {
            let (aside, data) = (door.clone(), data.to_vec());
            door.aside.run(Box::new(move || {
                aside.clear(&begun);
                let written = write(&aside, &data);
                aside.in_use.end_direct(&begun);
                answer(written, reply);
            }));
        }
        begun => {
            let written = write(door, data);
            if let Some(begun) = &begun {
                door.in_use.end_direct(begun);
            }
            answer(written, reply);
        }
    }
}

/// Whether the descriptor may have a writable shared mapping.
pub fn may_map(flags: client::OpenFlags) -> bool {
    flags.read && flags.write
}

/// The same for a descriptor that is closed, by the kernel's flags.
pub fn may_have_mapped(flags: fusedev::OpenFlags) -> bool {
    flags.acc_mode() == fusedev::OpenAccMode::O_RDWR
}

/// Reads for pages, and open descriptors.
impl Door {
    /// Reads pages that the kernel keeps. fuse-G2: after direct writes of these pages. A direct write may wait for a lease that is given back,
    /// and that for the kernel to drop the page which is read here. Such a page is read at once: it is dropped.
    pub(crate) fn read_pages(
        &self,
        fid: Fid,
        handle: Handle,
        at: (u64, usize),
        buf: &mut Buf,
    ) -> Result<(), Fault> {
        let range = at.0..at.0 + at.1 as u64;
        let deadline = Instant::now() + FILL_WAITS_MAX;
        loop {
            let is_dropped = || self.fs.is_dropping_pages(fid);
            let only_beside = !self.in_use.fill(fid, range.clone(), deadline, is_dropped);
            let may_be_stored = self.in_use.may_be_stored(fid);
            match self.fs.read_pages(handle, at, may_be_stored, only_beside, buf) {
                Err(fault) if only_beside && fault.code == Code::NotReady && Instant::now() < deadline => {}
                // fuse-P2: a descriptor that may store was opened meanwhile.
                Ok(()) if !may_be_stored && self.in_use.may_be_stored(fid) => {}
                done => return done,
            }
        }
    }

    pub(crate) fn note_opened(
        &self,
        fid: Fid,
        handle: Handle,
        open: client::OpenFlags,
        flags: fusedev::FopenFlags,
    ) {
        let is_uncached = flags.contains(fusedev::FopenFlags::FOPEN_DIRECT_IO);
        self.in_use.opened(fid, handle.0, (open.write, may_map(open), is_uncached));
    }
}
