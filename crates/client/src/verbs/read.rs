//! Read: bytes land in the caller's buffer, checked against the CRCs that their writer computed.
//!
//! A piece whose object is missing although it was written is damage: it is reported to the target, and the read fails.
//! Zeros stand for holes only.

use std::sync::Arc;
use std::time::Instant;

use plan::range::{Share, clip, judge, pieces};
use plan::retry::CHECKSUM_TRIES;
use types::crc::verify_fragments;
use types::{BULK_MAX, Buf, Code, Fault, Piece};
use wire::meta::ReadInline;
use wire::object::{Capability, Read, ReadReply, ReportMissing};

use crate::Fs;
use crate::cache::api::Handle;
use crate::cache::files::{Body, File};
use crate::cache::hold::{Pages, To, Wish};
use crate::session::request::{Answer, IN_FLIGHT_MAX, Patience, Pending};
use crate::session::section::Section;
use crate::upkeep::objects::Stopped;
use crate::upkeep::room::Tries;
use crate::verbs::write::{Reach, reach};

/// Most retries of one call. A file that many threads open at once changes its lease as often.
pub(crate) const RESUMES_MAX: u32 = 64;
/// Of these, tries without a wait.
const AT_ONCE: u32 = 2;

impl Fs {
    /// Reads up to `len` bytes at `offset`. `into` gets the bytes that the file has there.
    pub fn read(&self, handle: Handle, offset: u64, len: usize, into: &mut Buf) -> Result<(), Fault> {
        self.read_for(To::Read.into(), handle, offset, len, into)
    }

    /// As `read`, for pages that the kernel keeps. `may_be_stored`: a program may change them through a mapping, and no call tells of that.
    /// `only_beside`: the caller has seen `is_dropping_pages`. If that is over, or ends before the call can go on, it is `NotReady`.
    pub fn read_pages(
        &self,
        handle: Handle,
        (offset, len): (u64, usize),
        may_be_stored: bool,
        only_beside: bool,
        into: &mut Buf,
    ) -> Result<(), Fault> {
        let to = if may_be_stored { To::Change } else { To::Read };
        let pages =
            Pages::Filled { range: offset..offset.saturating_add(len as u64), only_beside, is_read: true };
        self.read_for(Wish { to, pages }, handle, offset, len, into)
    }

    fn read_for(
        &self,
        wish: Wish,
        handle: Handle,
        offset: u64,
        len: usize,
        into: &mut Buf,
    ) -> Result<(), Fault> {
        let opened = self.opened(handle)?;
        let deadline = self.deadline();
        let mut tries = Tries::default();
        if self.is_shared()
            && !wish.is_for_pages()
            && self.read_if_inline(&opened.file, offset, len, into, deadline)?
        {
            return Ok(());
        }
        if wish == Wish::from(To::Read)
            && self.read_beside_writers(&opened.file, offset, len, into, deadline)?
        {
            return Ok(());
        }
        loop {
            let section = self.section_for(&opened.file, wish.clone(), deadline)?;
            let body = opened.file.share_body(deadline)?;
            let stopped = match self.read_body(&opened.file, (&body, false), offset, len, into, deadline) {
                Ok(()) => return Ok(()),
                Err(stopped) => stopped,
            };
            drop(body);
            self.resume(section, stopped, &mut tries)?;
        }
    }

    /// client-CL8: reads under a many lease, if the range is known to be in the file. False: another lease is needed.
    fn read_beside_writers(
        &self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        into: &mut Buf,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let Some(_section) = self.section_if_many(file) else { return Ok(false) };
        let body = file.share_body(deadline)?;
        let size = file.meta.lock().progress.size;
        let is_there = offset.checked_add(len as u64).is_some_and(|end| end <= size);
        let reach = reach(file, &body, offset, len);
        if !is_there || reach == Reach::File {
            return Ok(false);
        }
        match self.read_body(file, (&body, reach == Reach::Several), offset, len, into, deadline) {
            Ok(()) => Ok(true),
            Err(Stopped::Failed(fault)) => Err(fault),
            Err(_) => Ok(false),
        }
    }

    /// Reads inline content. It needs no section, since the MDT orders all reads and writes of it.
    fn read_if_inline(
        &self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        into: &mut Buf,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let is_inline = {
            let body = file.share_body(deadline)?;
            body.is_loaded && body.layout.is_none()
        };
        if !is_inline {
            return Ok(false);
        }
        self.check_poison(file)?;
        match self.read_inline(file, offset, len, into, deadline) {
            Ok(()) => Ok(true),
            Err(Stopped::NotInline) => Ok(false),
            Err(Stopped::Failed(fault)) => Err(fault),
            Err(_) => Ok(false),
        }
    }

    /// `is_locked`: under range locks.
    pub(crate) fn read_body(
        &self,
        file: &File,
        (body, is_locked): (&Body, bool),
        offset: u64,
        len: usize,
        into: &mut Buf,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        self.check_poison(file)?;
        self.check_stale(file)?;
        let Some(layout) = &body.layout else { return self.read_inline(file, offset, len, into, deadline) };
        let (size, cap) = {
            let meta = file.meta.lock();
            if meta.cutting.is_some() {
                return Err(Stopped::Cut);
            }
            (meta.progress.size, meta.cap.clone())
        };
        let len = clip(size, offset, len);
        if len == 0 {
            into.clear();
            return Ok(());
        }
        if self.settings.observer {
            return Err(Fault::new(Code::Unsupported, "an observer has no capability to read objects").into());
        }
        let cap = cap.ok_or(Stopped::Refresh(None))?;
        let mut pieces = pieces(layout, file.fid, offset, len);
        // Noted before the first request leaves: an object whose first write is acknowledged later may be absent from the answer.
        {
            let meta = file.meta.lock();
            pieces.iter_mut().for_each(|p| p.written |= meta.progress.has_written(p.object));
        }
        let mut read = |lock| match pieces.as_slice() {
            [piece] => self.read_piece(file, (cap.clone(), lock), piece, into, deadline),
            pieces => self.read_pieces(file, (&cap, lock), offset, pieces, into, len, deadline),
        };
        let done = match is_locked {
            true => self.under_locks(file, &cap, (&pieces, false), deadline, read),
            false => read(0),
        };
        done.map_err(|stopped| stopped.with(&cap, layout))
    }

    fn read_inline(
        &self,
        file: &File,
        offset: u64,
        len: usize,
        into: &mut Buf,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        if self.read_kept(file, offset, len, into) {
            return Ok(());
        }
        let mdt = self.mdt(file.fid)?;
        let req = ReadInline { fid: file.fid, offset, len: len.min(BULK_MAX) as u32, held: file.held() };
        for _ in 0..CHECKSUM_TRIES {
            let reply = mdt.exchange(file.fid, &req, &[], into, deadline)?.reply;
            if into.len() <= len && verify_fragments(offset, into, &reply.crcs).is_ok() {
                return Ok(());
            }
        }
        Err(mangled(format!("inline content of file {} at {offset}", file.fid)).into())
    }

    /// Reads one piece into the caller's buffer.
    fn read_piece(
        &self,
        file: &File,
        (cap, lock): (Capability, u64),
        piece: &Piece,
        into: &mut Buf,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        let link = self.ost(piece.mirror, deadline)?;
        let (object, offset, len) = (piece.object, piece.object_offset, piece.len as u32);
        let req = Read { cap, object, offset, len, lock };
        if let Some(known) = link.aside_for(&req, deadline) {
            let made = Pending::new(&link, file.fid, &req, &[], into, deadline, Patience::Wait)?;
            let mut pending = made.expect("a read needs no slot");
            pending.go_aside(known);
            let answer = pending.run()?;
            if is_plain(piece, &answer, into) {
                into.extend_zero(piece.len - into.len());
                return Ok(());
            }
        }
        for _ in 0..CHECKSUM_TRIES {
            into.clear();
            let reply = link.exchange(file.fid, &req, &[], into, deadline)?.reply;
            if self.accept(&req.cap, piece, &reply, into, deadline)? {
                assert!(into.len() <= piece.len, "an accepted answer is no longer than the piece");
                into.extend_zero(piece.len - into.len());
                assert_eq!(into.len(), piece.len, "a piece is read whole");
                return Ok(());
            }
        }
        Err(mangled(format!("object {} at {}", piece.object, piece.object_offset)).into())
    }

    /// Judges an answer. `Ok(false)`: its bytes changed on the way, so ask again.
    fn accept(
        &self,
        cap: &Capability,
        piece: &Piece,
        reply: &ReadReply,
        got: &mut Buf,
        deadline: Instant,
    ) -> Result<bool, Stopped> {
        match judge(piece, reply.exists, got.len()) {
            Share::Bytes(_) => Ok(verify_fragments(piece.object_offset, got, &reply.crcs).is_ok()),
            Share::Hole => {
                got.clear();
                Ok(true)
            }
            Share::Excess => Ok(false),
            Share::Missing => {
                self.report_missing(cap, piece, deadline);
                let detail = format!(
                    "object {} is missing on mirror {}; see 'stria damage'",
                    piece.object, piece.mirror
                );
                Err(Fault::new(Code::Damaged, detail).into())
            }
        }
    }

    fn report_missing(&self, cap: &Capability, piece: &Piece, deadline: Instant) {
        let req = ReportMissing { cap: cap.clone(), object: piece.object, mirror: piece.mirror };
        let told =
            self.ost(piece.mirror, deadline).and_then(|link| link.ask(piece.object.fid, &req, deadline));
        if let Err(fault) = told {
            tracing::error!("object {} is missing and could not be reported: {fault}", piece.object);
        }
    }

    /// Reads several pieces, one window at a time. Each piece lands in a buffer of its own.
    #[allow(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    fn read_pieces(
        &self,
        file: &File,
        (cap, lock): (&Capability, u64),
        offset: u64,
        pieces: &[Piece],
        into: &mut Buf,
        len: usize,
        deadline: Instant,
    ) -> Result<(), Stopped> {
        into.space(len);
        for window in pieces.chunks(IN_FLIGHT_MAX) {
            let mut bufs: Vec<Buf> = window.iter().map(|_| self.take_buf()).collect();
            let outcome = self.read_window(file, (cap, lock), window, &mut bufs, deadline);
            for (piece, buf) in window.iter().zip(bufs) {
                assert!(piece.file_offset >= offset, "pieces begin within the range that is read");
                let at = (piece.file_offset - offset) as usize;
                assert!(at + piece.len <= len, "pieces end within the range that is read");
                let to = &mut into[at..at + piece.len];
                if outcome.is_ok() {
                    to[..buf.len()].copy_from_slice(&buf);
                    to[buf.len()..].fill(0);
                }
                self.give_buf(buf);
            }
            outcome?;
        }
        Ok(())
    }

    fn read_window(
        &self,
        file: &File,
        (cap, lock): (&Capability, u64),
        window: &[Piece],
        bufs: &mut [Buf],
        deadline: Instant,
    ) -> Result<(), Stopped> {
        let request = |p: &Piece| Read {
            cap: cap.clone(),
            object: p.object,
            offset: p.object_offset,
            len: p.len as u32,
            lock,
        };
        let mut links = Vec::with_capacity(window.len());
        for piece in window {
            links.push(self.ost(piece.mirror, deadline)?);
        }
        // 1. Send all pieces that can be sent without a wait.
        let mut pending = Vec::with_capacity(window.len());
        let mut is_any_under_way = false;
        for ((piece, link), buf) in window.iter().zip(&links).zip(bufs.iter_mut()) {
            buf.clear();
            let req = request(piece);
            let made = Pending::new(link, file.fid, &req, &[], buf, deadline, Patience::Wait)?;
            let mut p = made.expect("a read needs no slot");
            if let Some(known) = link.aside_for(&req, deadline) {
                p.go_aside(known);
            }
            is_any_under_way |= p.send(Patience::of(is_any_under_way));
            pending.push(p);
        }
        // 2. Receive all answers, even after a failure, so that no connection has one outstanding. Then send the others, and repeat failed ones
        //    (client-C6).
        pending.iter_mut().for_each(Pending::land);
        let answers: Vec<_> = pending.into_iter().map(|p| p.run()).collect();
        // 3. Judge the answers. A piece whose bytes changed on the way is read again by itself.
        for ((piece, answer), buf) in window.iter().zip(answers).zip(bufs) {
            let answer = answer?;
            let is_good = match answer.is_aside {
                true => is_plain(piece, &answer, buf),
                false => self.accept(cap, piece, &answer.reply, buf, deadline)?,
            };
            if !is_good {
                self.read_piece(file, (cap.clone(), lock), piece, buf, deadline)?;
            }
        }
        Ok(())
    }

    /// client-KY1: servers hear of another key of capabilities one after another. So a capability that was fetched just now may be refused, and
    /// the next try waits. The first tries do not: most refusals have other causes.
    pub(crate) fn await_key(&self, file: &File, tries: &Tries, deadline: Instant) {
        let late = tries.count.saturating_sub(AT_ONCE);
        if late > 0
            && let Ok(mdt) = self.mdt(file.fid)
        {
            mdt.wait(plan::retry::backoff(late), deadline);
        }
    }

    /// Prepares another try of a stopped read or write.
    pub(crate) fn resume(
        &self,
        section: Section<'_>,
        stopped: Stopped,
        tries: &mut Tries,
    ) -> Result<(), Fault> {
        let (file, deadline) = (section.file.clone(), section.deadline);
        let file = &file;
        if !matches!(stopped, Stopped::Full { .. }) {
            tries.count += 1;
        }
        let is_over = tries.count > RESUMES_MAX || Instant::now() >= deadline;
        if is_over && !matches!(stopped, Stopped::Failed(_) | Stopped::Full { .. }) {
            let count = tries.count;
            let detail = format!("file {}: {count} tries, and its layout or lease keeps changing", file.fid);
            return Err(Fault::new(Code::Fenced, detail));
        }
        match stopped {
            // The lease is confirmed before its next use, which brings the present state of the file.
            Stopped::Refresh(_) | Stopped::NotInline if section.is_among_others() => {
                self.await_key(file, tries, deadline);
                file.hold.doubt();
                Ok(())
            }
            Stopped::Refresh(refused) => {
                self.await_key(file, tries, deadline);
                self.refresh(file, refused, deadline)
            }
            Stopped::NotInline => self.refresh(file, None, deadline),
            Stopped::NeedLayout => match self.grow(file, deadline) {
                Ok(()) => Ok(()),
                Err(Stopped::Full { fault, mirrors, .. }) => {
                    drop(section);
                    self.await_growth(file, (fault, mirrors), tries, deadline)
                }
                // Another layout is made, with another capability.
                Err(Stopped::Refresh(_)) => {
                    self.await_key(file, tries, deadline);
                    Ok(())
                }
                Err(stopped) => Err(stopped.fault()),
            },
            Stopped::Cut => {
                drop(section);
                let _section = self.section(file, To::Change, deadline)?;
                match self.finish_cut(file, deadline) {
                    Err(fault) if fault.code == Code::Fenced => {
                        self.await_key(file, tries, deadline);
                        self.refresh(file, None, deadline)
                    }
                    done => done,
                }
            }
            Stopped::Full { fault, mirrors, seen } => {
                if self.move_on(&section, (&mirrors, seen), tries)? {
                    return Ok(());
                }
                // Without the section, so that other clients can use the file meanwhile.
                drop(section);
                self.await_room(file, (fault, mirrors), tries, deadline)
            }
            Stopped::Failed(fault) => Err(fault),
        }
    }
}

/// client-M2: an answer of the mirror's other member that needs no second look. An object that is missing there is the primary's to judge.
fn is_plain(piece: &Piece, answer: &Answer<ReadReply>, got: &Buf) -> bool {
    match judge(piece, answer.reply.exists, got.len()) {
        Share::Bytes(_) => verify_fragments(piece.object_offset, got, &answer.reply.crcs).is_ok(),
        Share::Hole => got.is_empty(),
        Share::Excess | Share::Missing => false,
    }
}

fn mangled(what: String) -> Fault {
    Fault::new(
        Code::BadChecksum,
        format!("{what}: bytes arrive changed again and again; check memory and network"),
    )
}
