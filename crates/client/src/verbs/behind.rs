//! Write-behind: a buffered write returns once its bytes are here, and threads of the client send it (decision 0086).
//!
//! client-WB1: a call that looks at a file's bytes, size or times, changes them otherwise, or makes them durable waits for the writes behind.
//!     Such a call then meets their errors.
//! client-WB2: of two overlapping writes the later one begins after the earlier one has ended (plan-B1).
//! client-WB3: a write behind holds its use of the exclusive lease, or counts as a call of a lone client, until it has ended. So no other
//!     client sees the file without it. It holds the body shared, as a write under way does, and keeps the file in the table.
//! client-WB4: a write goes behind only if its OSTs keep space for it (a grant). So a full OST refuses `write` itself.
//! client-WB5: a write behind that fails leaves the file errored, with the cause: `fsync` and `close` report it. The kernel drops its pages.
//! client-WB6: `close` waits too, but no longer than writes of the file end. `execve` closes files under locks that stop all readers of the
//!     process's `/proc`; the process may be the very server that the writes wait for.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Instant;

use plan::behind::Due;
use plan::range::pieces;
use types::{BULK_MAX, Code, FILE_SIZE_MAX, Fault, Layout, MirrorId, Piece, Time};

use crate::Fs;
use crate::cache::files::{File, For, Opened};
use crate::cache::hold::{Pages, To, Wish};
use crate::session::behind::{Job, SENDERS, Started};
use crate::session::grants::Share;
use crate::session::jobs;
use crate::session::link::Link;
use crate::session::request::IN_FLIGHT_MAX;
use crate::session::section::Section;
use crate::upkeep::elsewhere::Want;
use crate::upkeep::objects::Stopped;
use crate::upkeep::room::Tries;
use crate::verbs::read::RESUMES_MAX;
use crate::verbs::write::{share, share_bytes};

/// Longest wait of a call that only shows attributes. Size and times are known without it; blocks are estimated then.
const SHOWN_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

impl Fs {
    /// client-WB1.
    pub(crate) fn await_behind(&self, file: &File, deadline: Instant) -> Result<(), Fault> {
        match self.behind.await_file(file.fid, deadline) {
            true => Ok(()),
            false => Err(Fault::new(
                Code::Timeout,
                format!("file {}: earlier writes wait for their OSTs; see 'stria status'", file.fid),
            )),
        }
    }

    /// client-WB1: before attributes are shown.
    pub(crate) fn await_behind_shortly(&self, file: &File, deadline: Instant) {
        self.behind.await_file(file.fid, deadline.min(Instant::now() + SHOWN_AFTER));
    }

    /// Takes over bytes that the kernel has in its pages already. False: they are to be written at once.
    pub(crate) fn write_behind(
        &self,
        opened: &Opened,
        offset: u64,
        data: &[u8],
        is_append: bool,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let file = &opened.file;
        let Some(end) = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX) else {
            return Ok(false);
        };
        let is_meant = self.behind.is_on() && !opened.flags.sync && data.len() <= 4 * BULK_MAX;
        if !is_meant || !file.is_striped() || self.is_fate_shared() || !self.has_senders() {
            return Ok(false);
        }
        self.check_poison(file)?;
        // Before the lease is used: meanwhile another client may get it.
        if !self.behind.await_turn(file.fid, &(offset..end), deadline) {
            return Err(self.await_behind(file, Instant::now()).err().unwrap_or(Code::Timeout.into()));
        }
        let pages = Pages::Filled { range: offset..end, only_beside: false, is_read: false };
        let section = self.section_beside(file, Wish { to: To::Change, pages }, deadline)?;
        let is_own = match section.is_among_others() {
            true => section.is_exclusive() && !is_append && file.hold.is_free(),
            false => true,
        };
        if !is_own {
            return Ok(false);
        }
        let Some(body) = file.body.try_read_arc_until(deadline) else { return Ok(false) };
        let Some(layout) = body.layout.as_ref().filter(|_| body.is_loaded) else { return Ok(false) };
        if !file.meta.lock().may_write_behind() {
            return Ok(false);
        }
        let pieces = pieces(layout, file.fid, offset, data.len());
        let Some(shares) = self.take_shares(&pieces, deadline) else { return Ok(false) };
        let (bytes, mtime, session) = (self.behind.copy(data), self.now(), self.session());
        let held = section.park();
        let job = Job { bytes, held, body: Some(body), mtime, tag: jobs::current(), shares, session };
        // client-WB3: kept until the last write has ended.
        self.files.pin(file.fid, For::Writing);
        let (rest, is_first, is_added) = match self.behind.add(file, offset, job) {
            Ok((rest, is_first)) => (rest, is_first, true),
            Err(job) => (Some(job), false, false),
        };
        if !is_first {
            self.unpin(file, For::Writing, deadline);
        }
        if let Some(Job { held, shares, .. }) = rest {
            drop(self.take_up(held, deadline));
            if !is_added {
                self.put_back(&shares);
            }
        }
        Ok(is_added)
    }

    /// client-WB4: the space of these pieces, piece by piece; `None`: not all of them have a grant.
    fn take_shares(&self, pieces: &[Piece], deadline: Instant) -> Option<Vec<(MirrorId, Share)>> {
        let mut shares = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let link = self.cluster.link(piece.mirror).filter(|link| link.keeps() && link.is_ready());
            let mut of_piece = link.as_ref().map_or(Share::default(), |link| share(piece, link));
            if let Some(link) = link.filter(|_| of_piece.bytes == 0) {
                link.want_grant(deadline);
                of_piece = share(piece, &link);
            }
            if of_piece.bytes == 0 {
                self.put_back(&shares);
                return None;
            }
            shares.push((piece.mirror, of_piece));
        }
        Some(shares)
    }

    fn put_back(&self, shares: &[(MirrorId, Share)]) {
        for (mirror, share) in shares {
            self.cluster.link(*mirror).into_iter().for_each(|link| link.granted.put_back(*share));
        }
    }

    /// Starts the senders with the first write. False: there are none.
    fn has_senders(&self) -> bool {
        if self.behind.has_senders.load(Ordering::Acquire) {
            return true;
        }
        let Some(owner) = self.id.owner.get() else { return false };
        let mut threads = self.threads.lock();
        if self.is_stopping() || self.behind.has_senders.load(Ordering::Acquire) {
            return !self.is_stopping();
        }
        for n in 0..SENDERS {
            let weak = owner.clone();
            match std::thread::Builder::new().name("stria-send".into()).spawn(move || send_loop(&weak)) {
                Ok(thread) => threads.push(thread),
                Err(e) if n == 0 => {
                    tracing::debug!("no thread for writes behind: {e}");
                    return false;
                }
                Err(_) => break,
            }
        }
        self.behind.has_senders.store(true, Ordering::Release);
        true
    }

    /// For a sender: carries out a write, and ends it.
    fn send(&self, Started { file, due: Due { range, number, what: job } }: Started) {
        let Job { bytes, held, body, mtime, tag, mut shares, session } = job;
        jobs::set_job(tag);
        let deadline = self.deadline();
        let section = self.take_up(held, deadline);
        let write = Behind { at: range.start, bytes: &bytes, mtime, session };
        let (file, mut body, mut tries) = (&file, body, Tries::default());
        let sent = loop {
            let held = match body.take().or_else(|| file.body.try_read_arc_until(deadline)) {
                Some(held) => held,
                None => break Err(Fault::new(Code::Timeout, "another call on the file does not end")),
            };
            let done = self.send_once(file, held.layout.as_ref(), &write, &mut shares, deadline);
            drop(held);
            let Err(stopped) = done else { break Ok(()) };
            // The remedy may need the body for itself.
            self.behind.let_go(file.fid);
            if let Err(fault) = self.remedy(&section, stopped, &write, &mut tries) {
                break Err(fault);
            }
        };
        self.put_back(&shares);
        if let Err(fault) = sent {
            // client-WB5.
            let code = if matches!(fault.code, Code::NoSpace | Code::Access) { fault.code } else { Code::Io };
            let (fid, len, at) = (file.fid, bytes.len(), range.start);
            tracing::warn!("file {fid}: {len} bytes at {at} that a program wrote are lost: {fault}");
            let why = format!("file {fid}: {len} bytes at {at} are lost: {fault}");
            file.meta.lock().failed_behind.get_or_insert(Fault::new(code, why));
        }
        self.files.enqueue(file);
        drop(section);
        // Before the calls that wait go on: they may close the file. The release of an orphan comes after, since it takes the fid's lock, which
        // one of them may have.
        let unpin = || {
            let is_orphan = file.meta.lock().is_orphan;
            (!is_orphan).then(|| self.files.unpin(file, For::Writing))
        };
        let is_failed = file.meta.lock().failed_behind.is_some();
        match self.behind.ended(file, number, bytes, unpin) {
            None => return jobs::set_job(0),
            Some(Some(is_released)) => self.after_unpin(file, is_released, self.deadline()),
            Some(None) => self.unpin(file, For::Writing, self.deadline()),
        }
        // A later reader would find there what no server has. Not before all have ended: a program's next write of a page may wait for that, and the
        // kernel for that program.
        if is_failed && !self.is_stopping() {
            self.drop_all_pages(file.fid);
        }
        jobs::set_job(0);
    }

    fn send_once(
        &self,
        file: &Arc<File>,
        layout: Option<&Layout>,
        write: &Behind<'_>,
        shares: &mut Vec<(MirrorId, Share)>,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        self.check_poison(file)?;
        if self.session() != write.session {
            return Err(
                Fault::new(Code::NoSession, "the session in which they were written was ended").into()
            );
        }
        let (cap, latest) = {
            let meta = file.meta.lock();
            if meta.cutting.is_some() {
                return Err(Stopped::Cut);
            }
            let cap = meta.cap.clone().ok_or(Stopped::Refresh(None))?;
            (cap, meta.progress.written_at)
        };
        let Some(layout) = layout else { return Err(Stopped::NeedLayout) };
        let pieces = pieces(layout, file.fid, write.at, write.bytes.len());
        for window in pieces.chunks(IN_FLIGHT_MAX) {
            let mut links = Vec::with_capacity(window.len());
            for piece in window {
                links.push(self.ost(piece.mirror, deadline)?);
            }
            let of_window: Vec<Share> =
                window.iter().zip(&links).map(|(p, link)| take_share(shares, p, link)).collect();
            let bytes = |p: &Piece| &write.bytes[(p.file_offset - write.at) as usize..][..p.len];
            let answers =
                self.write_window(file, (&cap, 0), window, &links, &bytes, &of_window, write.mtime, deadline);
            for ((share, link), answer) in of_window.iter().zip(&links).zip(&answers) {
                link.granted.answered(*share, answer);
                link.want_grant(deadline);
            }
            // Writes behind end in any order, and the last time stays.
            let noted = self.note_written(file, window, answers, write.mtime.max(latest));
            noted.map_err(|halt| halt.stopped.with(&cap, layout))?;
        }
        Ok(())
    }

    /// As `resume`, while the lease is kept (client-WB3).
    fn remedy(
        &self,
        section: &Section<'_>,
        stopped: Stopped,
        write: &Behind<'_>,
        tries: &mut Tries,
    ) -> Result<(), Fault> {
        let (file, deadline) = (&section.file, section.deadline);
        tries.count += 1;
        match stopped {
            Stopped::Refresh(refused) if tries.count <= RESUMES_MAX && Instant::now() < deadline => {
                self.await_key(file, tries, deadline);
                self.refresh(file, refused, deadline)
            }
            Stopped::Full { fault, mirrors, seen } => {
                tries.want = Want { at: write.at, len: write.bytes.len() as u64 };
                match self.move_on(section, (&mirrors, seen), tries)? {
                    true => Ok(()),
                    false => self.await_room(file, (fault, mirrors), tries, deadline),
                }
            }
            stopped => Err(stopped.fault()),
        }
    }
}

/// A write behind that is under way.
struct Behind<'a> {
    at: u64,
    bytes: &'a [u8],
    mtime: Time,
    session: types::SessionId,
}

/// The space of a piece: of what was reserved, or of the present grant if this is a further try.
fn take_share(shares: &mut Vec<(MirrorId, Share)>, piece: &Piece, link: &Link) -> Share {
    let mut taken = Share::default();
    let want = share_bytes(piece);
    shares.retain_mut(|(mirror, share)| {
        let is_same = taken.bytes == 0 || taken.is_of_same(share);
        if *mirror != piece.mirror || taken.bytes == want || !is_same {
            return true;
        }
        taken = share.split(taken.bytes, want);
        share.bytes > 0
    });
    if taken.bytes == want {
        return taken;
    }
    link.granted.put_back(taken);
    share(piece, link)
}

/// A thread that sends writes behind.
fn send_loop(weak: &Weak<Fs>) {
    let Some(behind) = weak.upgrade().map(|fs| fs.behind.clone()) else { return };
    while let Some(started) = behind.next() {
        let Some(fs) = weak.upgrade() else { return };
        fs.send(started);
    }
}
