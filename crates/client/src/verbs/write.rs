//! Write: returns when every byte is acknowledged by its target, unless the write goes behind (`behind`).
//!
//! client-W1: of two overlapping writes of this client one comes after the other in every byte. A write within one object is one request,
//!     which its OST carries out whole. Any other write excludes the rest, unless the kernel has the bytes in its pages: it runs one such
//!     write of a file at a time.

use std::sync::Arc;
use std::time::Instant;

use plan::range::{clip, pieces};
use types::crc::fragment_crcs;
use types::{BULK_MAX, Buf, Code, FILE_SIZE_MAX, Fault, INLINE_MAX, Layout, PAGE_SIZE, Piece, Time};
use wire::meta::{self, GetStripe, WriteInline};
use wire::object::{Capability, Write, WriteReply};

use crate::Fs;
use crate::cache::api::Handle;
use crate::cache::content::Changing;
use crate::cache::files::{Body, File, Opened};
use crate::cache::hold::{Pages, To, Wish};
use crate::session::grants::Share;
use crate::session::link::Link;
use crate::session::request::IN_FLIGHT_MAX;
use crate::session::request::is_definite;
use crate::session::request::{Answer, Patience, Pending};
use crate::upkeep::elsewhere::Want;
use crate::upkeep::objects::Stopped;
use crate::upkeep::room::Tries;

/// The space that a write may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Free space only. The write waits for its OSTs, and reports `NoSpace` itself.
    Free,
    /// The client's grant too: the kernel told the program long ago that the write is done.
    Grant,
}

/// Of requests to objects: the space that they may use, and the range lock under which they are sent (0: none).
#[derive(Clone, Copy)]
pub(crate) struct How {
    space: Use,
    lock: u64,
    /// Of the objects; `None`: now.
    mtime: Option<Time>,
}

impl How {
    /// The bytes were written at this time, to other objects.
    pub fn copied(mtime: Time) -> How {
        How { space: Use::Free, lock: 0, mtime: Some(mtime) }
    }
}

impl From<Use> for How {
    fn from(space: Use) -> How {
        How { space, lock: 0, mtime: None }
    }
}

/// The objects that a call reaches, and whether it may go on beside other writers (client-CL8).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// One request to one object, which its OST carries out whole.
    One,
    /// Several requests, under range locks.
    Several,
    /// It needs the file for itself.
    File,
}

/// The place of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    To(meta::Place),
    /// The file's end as of the begin of the call. It holds while this client is alone.
    EndAt(u64),
}

const END: Place = Place::To(meta::Place::End);

/// The acknowledged part of a write that stopped.
#[derive(Default)]
struct Part {
    len: usize,
    /// End of that part. An append goes on if the file ends there too.
    end: u64,
    /// Some bytes behind it may be written, now or later.
    is_unknown: bool,
}

/// Why and where a write stopped.
pub(crate) struct Halt {
    pub stopped: Stopped,
    /// Acknowledged bytes from the offset on, without a gap.
    reached: usize,
    /// Some of the other bytes may be written, now or later.
    is_unknown: bool,
}

impl Halt {
    /// `len` bytes in front of it were acknowledged before.
    fn behind(self, len: usize) -> Halt {
        Halt { reached: self.reached + len, ..self }
    }

    fn with(self, cap: &Capability, layout: &Layout) -> Halt {
        Halt { stopped: self.stopped.with(cap, layout), ..self }
    }
}

impl From<Stopped> for Halt {
    fn from(stopped: Stopped) -> Halt {
        Halt { stopped, reached: 0, is_unknown: false }
    }
}

/// The halt of one request.
impl From<Fault> for Halt {
    fn from(fault: Fault) -> Halt {
        Halt { is_unknown: fault.code == Code::Timeout, ..Stopped::from(fault).into() }
    }
}

impl Fs {
    /// Writes all of `data` at `offset`, or at the file's end if the descriptor appends. Returns the number of bytes. Only an append returns
    /// fewer, if a full OST stopped it: its bytes are never interleaved with those of other writers.
    ///
    /// On an error a part may have been written. The part that is contiguous from `offset` on counts for the file's size.
    pub fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<usize, Fault> {
        let opened = self.opened(handle)?;
        let place = if opened.flags.append { END } else { Place::To(meta::Place::At(offset)) };
        self.write_opened(&opened, place, data, false)
    }

    /// As `write`, of bytes that the kernel has in its pages already.
    pub fn write_cached(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<usize, Fault> {
        self.write_opened(&*self.opened(handle)?, Place::To(meta::Place::At(offset)), data, true)
    }

    /// Writes `data` at the file's end: all of it, or as much as finds space.
    pub fn append(&self, handle: Handle, data: &[u8]) -> Result<usize, Fault> {
        self.write_opened(&*self.opened(handle)?, END, data, false)
    }

    /// As `append`. The caller saw the file's end at `end`, and keeps other appends of this client away while it is alone. `has_pages`: the
    /// kernel has the bytes in its pages already, at that place.
    pub fn append_at(&self, handle: Handle, end: u64, data: &[u8], has_pages: bool) -> Result<usize, Fault> {
        self.write_opened(&*self.opened(handle)?, Place::EndAt(end), data, has_pages)
    }

    /// Writes pages of a shared mapping. They do not extend the file. Bytes past its end were cut off since the kernel saw the size, perhaps by
    /// another client, and are dropped.
    pub fn write_mapped(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let place = Place::To(meta::Place::Within(offset));
        self.write_opened(&*self.opened(handle)?, place, data, true).map(drop)
    }

    fn write_opened(
        &self,
        opened: &Opened,
        place: Place,
        data: &[u8],
        has_pages: bool,
    ) -> Result<usize, Fault> {
        if !opened.flags.write {
            return Err(Fault::new(
                Code::Invalid,
                format!("file {}: the handle is not open for writing", opened.file.fid),
            ));
        }
        if data.is_empty() {
            return Ok(0);
        }
        let mut part = Part::default();
        let is_append = matches!(place, END | Place::EndAt(_));
        match self.write_in_turns(opened, place, (data, has_pages), &mut part) {
            // The rest was not written. The written part is reported, and the next call meets the error.
            Err(_) if is_append && part.len > 0 && !part.is_unknown => {
                self.files.enqueue(&opened.file);
                Ok(part.len)
            }
            done => done,
        }
    }

    fn write_in_turns(
        &self,
        opened: &Opened,
        place: Place,
        (data, has_pages): (&[u8], bool),
        part: &mut Part,
    ) -> Result<usize, Fault> {
        let (file, deadline, seasons) = (&opened.file, self.deadline(), self.seasons_shared());
        let at = match place {
            Place::To(meta::Place::At(offset)) => Some((offset, false)),
            Place::EndAt(end) => Some((end, true)),
            _ => None,
        };
        if let Some((at, is_append)) = at.filter(|_| has_pages)
            && self.write_behind(opened, at, data, is_append, deadline)?
        {
            return Ok(data.len());
        }
        if self.is_shared() && !has_pages && self.write_if_inline(file, place, data, deadline)? {
            return Ok(data.len());
        }
        let mut tries = Tries::default();
        let mut to = match place {
            Place::To(meta::Place::At(offset)) if self.is_shared() && !has_pages => {
                let body = file.share_body(deadline)?;
                if reach(file, &body, offset, data.len()) == Reach::File { To::Change } else { To::Many }
            }
            _ => To::Change,
        };
        let is_append = matches!(place, END | Place::EndAt(_));
        loop {
            // client-CL9: also of the time before the lease is granted.
            if is_append && self.is_shared() {
                file.hold.note_append(Instant::now());
            }
            let pages = match place {
                Place::To(meta::Place::Within(_)) => Pages::Written,
                Place::To(meta::Place::At(offset)) | Place::EndAt(offset) if has_pages => {
                    let range = offset..offset.saturating_add(data.len() as u64);
                    Pages::Filled { range, only_beside: false, is_read: false }
                }
                _ => Pages::None,
            };
            let wish = Wish { to, pages };
            let section = self.section_for(file, wish, deadline)?;
            if is_append && section.is_among_others() {
                file.hold.note_append(Instant::now());
            }
            let seen_end = if let Place::EndAt(end) = place { Some(end) } else { None };
            let place = match place {
                // No lock is held between two tries. Another client may have come, written behind that end, and left again.
                Place::EndAt(_) if section.is_among_others() || self.seasons_shared() != seasons => {
                    meta::Place::End
                }
                Place::EndAt(end) => meta::Place::At(end),
                Place::To(place) => place,
            };
            let rest = &data[part.len..];
            let size = || file.meta.lock().size();
            let (at, done) = match place {
                meta::Place::End => {
                    // With the body exclusive, so that the end stays the end until the bytes are written.
                    let body = file.own_body(deadline)?;
                    let end = size();
                    if has_pages && seen_end.is_some_and(|seen| seen != end) {
                        // Another client has appended, so the kernel has these bytes at a wrong place.
                        self.give_up_pages_of(file);
                    }
                    // Another client has appended. The rest would be separated from the first part without an error.
                    if part.len > 0 && (part.end != end || body.layout.is_none()) {
                        self.files.enqueue(file);
                        return Ok(part.len);
                    }
                    (end, self.write_body(file, &body, (place, false), rest, deadline))
                }
                meta::Place::At(offset) => {
                    let at = offset + part.len as u64;
                    if !section.is_many() {
                        self.tidy_gap(file, at, deadline);
                    }
                    let body = file.share_body(deadline)?;
                    let (is_many, reach) = (section.is_many(), reach(file, &body, at, rest.len()));
                    // client-CL8.
                    if is_many && reach == Reach::File {
                        to = To::Change;
                        continue;
                    }
                    let place = meta::Place::At(at);
                    // client-W1.
                    let is_ordered = is_many || has_pages || body.layout.is_none();
                    let is_one = reach == Reach::One;
                    let _whole = (!is_ordered).then(|| file.keep_whole(is_one, deadline)).transpose()?;
                    let is_locked = is_many && reach == Reach::Several;
                    (at, self.write_body(file, &body, (place, is_locked), rest, deadline))
                }
                meta::Place::Within(offset) => {
                    let at = offset + part.len as u64;
                    let body = file.share_body(deadline)?;
                    (at, self.write_body(file, &body, (meta::Place::Within(at), false), rest, deadline))
                }
            };
            if done.is_err() && !section.is_many() {
                self.tidy_up(file, deadline);
            }
            let Halt { stopped, reached, is_unknown } = match done {
                Ok(()) => {
                    self.files.enqueue(file);
                    return Ok(data.len());
                }
                Err(halt) => halt,
            };
            part.is_unknown |= is_unknown;
            if section.is_many() {
                // client-RL2: the whole is written anew. client-CL8: what it needs beyond that is done under the exclusive lease.
                let is_again = matches!(stopped, Stopped::Refresh(_) | Stopped::Failed(_));
                match is_again && !file.meta.lock().overshot {
                    true => self.resume(section, stopped, &mut tries)?,
                    false => to = To::Change,
                }
                continue;
            }
            tries.want = Want { at: at + reached as u64, len: (rest.len() - reached) as u64 };
            (part.len, part.end) = (part.len + reached, at + reached as u64);
            self.resume(section, stopped, &mut tries)?;
        }
    }

    /// Writes inline content without a section, among several clients too: the MDT orders all reads and writes of it (decision 0035). False: the
    /// file has objects, or is in inline-to-object migration (meta-O4), so the write needs a section.
    fn write_if_inline(
        &self,
        file: &Arc<File>,
        place: Place,
        data: &[u8],
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let _change = Changing::begin(file);
        let body = file.share_body(deadline)?;
        if !body.is_loaded || body.layout.is_some() {
            return Ok(false);
        }
        self.check_poison(file)?;
        let place = match place {
            Place::To(place) => place,
            Place::EndAt(_) => meta::Place::End,
        };
        match self.write_inline(file, place, data, false, deadline).map_err(|halt| halt.stopped) {
            Ok(()) => Ok(true),
            Err(Stopped::Failed(fault)) if fault.code != Code::NeedSection => Err(fault),
            Err(_) => Ok(false),
        }
    }

    /// Writes while the caller holds the body: exclusive if `place` is the file's end. `is_locked`: under range locks.
    fn write_body(
        &self,
        file: &Arc<File>,
        body: &Body,
        (place, is_locked): (meta::Place, bool),
        data: &[u8],
        deadline: Instant,
    ) -> Result<(), Halt> {
        self.check_poison(file)?;
        self.check_stale(file)?;
        let Some(layout) = &body.layout else { return self.write_inline(file, place, data, true, deadline) };
        let size = file.meta.lock().progress.size;
        let (offset, data, space) = match place {
            meta::Place::At(offset) => (offset, data, Use::Free),
            meta::Place::End => (size, data, Use::Free),
            // The shared body excludes truncation, so a range within the file stays within it.
            meta::Place::Within(offset) => (offset, &data[..clip(size, offset, data.len())], Use::Grant),
        };
        if data.is_empty() {
            return Ok(());
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(too_big(file, offset, data).into());
        }
        let cap = {
            let meta = file.meta.lock();
            meta.need_writable(file.fid, offset)?;
            if meta.cutting.is_some() {
                return Err(Stopped::Cut.into());
            }
            meta.cap.clone().ok_or(Stopped::Refresh(None))?
        };
        let write = |lock| {
            self.write_pieces(file, layout, &cap, (offset, data), How { space, lock, mtime: None }, deadline)
        };
        let done = match is_locked {
            true => {
                let pieces = pieces(layout, file.fid, offset, data.len());
                self.under_locks(file, &cap, (&pieces, true), deadline, write)
            }
            false => write(0),
        };
        done.map_err(|halt| halt.with(&cap, layout))
    }

    /// Writes inline content. `in_section`: this client is in the file's section, or alone.
    fn write_inline(
        &self,
        file: &File,
        place: meta::Place,
        data: &[u8],
        in_section: bool,
        deadline: Instant,
    ) -> Result<(), Halt> {
        // A write past the largest size is refused here.
        let end = match place {
            meta::Place::At(offset) => match offset.checked_add(data.len() as u64) {
                Some(end) if end <= FILE_SIZE_MAX => end,
                _ => return Err(too_big(file, offset, data).into()),
            },
            meta::Place::End => data.len() as u64,
            meta::Place::Within(_) => 0,
        };
        if data.len() > BULK_MAX
            || (end > INLINE_MAX as u64 && end > self.inline_max_of(file, deadline)? as u64)
        {
            return Err(Stopped::NeedLayout.into());
        }
        let now = self.now();
        if let Some(attr) = self.write_here(file, place, data, now) {
            let mut meta = file.meta.lock();
            meta.progress.set_size(attr.size, attr.blocks, attr.mtime);
            return Ok(());
        }
        let mdt = self.mdt(file.fid)?;
        let (fid, crcs, held) = (file.fid, fragment_crcs(0, data), file.held());
        let req = WriteInline { fid, place, in_section, crcs, now, held };
        let Answer { reply, mark, .. } = mdt.exchange(file.fid, &req, data, &mut Buf::new(), deadline)?;
        let mut meta = file.meta.lock();
        if in_section {
            // The answers of two writes may be read in another order than the writes were carried out.
            let (size, blocks) =
                (meta.progress.size.max(reply.attr.size), meta.progress.blocks.max(reply.attr.blocks));
            meta.progress.set_size(size, blocks, reply.attr.mtime);
        }
        meta.saw(mark);
        Ok(())
    }

    /// The file's inline limit, which its directory may set. The MDT is asked once per open file.
    fn inline_max_of(&self, file: &File, deadline: Instant) -> Result<u32, Fault> {
        if let Some(max) = file.meta.lock().inline_max {
            return Ok(max);
        }
        let max = self.ask_until(file.fid, &GetStripe { fid: file.fid }, deadline)?.reply.inline_max;
        file.meta.lock().inline_max = Some(max);
        Ok(max)
    }

    /// Writes to objects. The caller holds the body, shared or exclusive.
    pub(crate) fn write_pieces(
        &self,
        file: &File,
        layout: &Layout,
        cap: &Capability,
        (offset, data): (u64, &[u8]),
        How { space, lock, mtime }: How,
        deadline: Instant,
    ) -> Result<(), Halt> {
        let now = mtime.unwrap_or_else(|| self.now());
        let pieces = pieces(layout, file.fid, offset, data.len());
        for window in pieces.chunks(IN_FLIGHT_MAX) {
            let before = (window[0].file_offset - offset) as usize;
            let mut links = Vec::with_capacity(window.len());
            for piece in window {
                // No request of this window was sent.
                let link =
                    self.ost(piece.mirror, deadline).map_err(|f| Halt::from(Stopped::from(f)).behind(before));
                links.push(link?);
            }
            // The share of the grant per piece, in order; empty if the grant may not be used.
            let shares: Vec<Share> = match space {
                Use::Free => Vec::new(),
                Use::Grant => window.iter().zip(&links).map(|(p, link)| share(p, link)).collect(),
            };
            let bytes = |p: &Piece| &data[(p.file_offset - offset) as usize..][..p.len];
            let answers = match (window, links.as_slice()) {
                ([piece], [link]) => {
                    let req = request(cap, piece, (bytes(piece), lock), now, shares.first());
                    vec![link.exchange(file.fid, &req, bytes(piece), &mut Buf::new(), deadline)]
                }
                _ => self.write_window(file, (cap, lock), window, &links, &bytes, &shares, now, deadline),
            };
            for ((share, link), answer) in shares.iter().zip(&links).zip(&answers) {
                link.granted.answered(*share, answer);
                link.want_grant(deadline);
            }
            self.note_written(file, window, answers, now).map_err(|halt| halt.behind(before))?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    pub(crate) fn write_window<'d>(
        &self,
        file: &File,
        (cap, lock): (&Capability, u64),
        window: &[Piece],
        links: &[Arc<Link>],
        bytes: &dyn Fn(&Piece) -> &'d [u8],
        shares: &[Share],
        now: Time,
        deadline: Instant,
    ) -> Vec<Result<Answer<WriteReply>, Fault>> {
        let mut bufs: Vec<Buf> = window.iter().map(|_| Buf::new()).collect();
        // 1. Send all pieces that can be sent without a wait.
        let mut pending = Vec::with_capacity(window.len());
        let (mut is_any_slot_held, mut is_any_under_way) = (false, false);
        for (i, ((piece, link), into)) in window.iter().zip(links).zip(&mut bufs).enumerate() {
            let req = request(cap, piece, (bytes(piece), lock), now, shares.get(i));
            let patience = Patience::of(is_any_slot_held);
            let mut made = Pending::new(link, file.fid, &req, bytes(piece), into, deadline, patience);
            if let Ok(Some(p)) = &mut made {
                is_any_slot_held = true;
                is_any_under_way |= p.send(Patience::of(is_any_under_way));
            }
            pending.push((made, req));
        }
        // 2. Receive all answers. Then send the others and repeat failed ones (client-C6); last those that found no slot or no space.
        pending.iter_mut().filter_map(|(made, _)| made.as_mut().ok()?.as_mut()).for_each(Pending::land);
        let answers =
            pending.into_iter().zip(window).zip(links).map(|(((made, req), piece), link)| match made {
                Ok(Some(p)) => (Some(p.run()), req, piece, link),
                Ok(None) => (None, req, piece, link),
                Err(fault) => (Some(Err(fault)), req, piece, link),
            });
        let first: Vec<_> = answers.collect();
        let late = |req: &Write, piece: &Piece, link: &Link| {
            link.exchange(file.fid, req, bytes(piece), &mut Buf::new(), deadline)
        };
        first.into_iter().map(|(a, req, piece, link)| a.unwrap_or_else(|| late(&req, piece, link))).collect()
    }

    /// Notes each acknowledged piece. The size follows the pieces that are acknowledged without a gap.
    pub(crate) fn note_written(
        &self,
        file: &File,
        window: &[Piece],
        answers: Vec<Result<Answer<WriteReply>, Fault>>,
        now: Time,
    ) -> Result<(), Halt> {
        let mut failed = Vec::new();
        // Acknowledged bytes without a gap, and the end of acknowledged bytes behind a refused piece.
        let (mut reached, mut furthest) = (0, 0);
        let mut meta = file.meta.lock();
        if !meta.progress.is_untold() {
            // Earlier bytes were reported under their session. Later ones belong to the present session.
            meta.session = self.session();
        }
        for (piece, answer) in window.iter().zip(answers) {
            match answer {
                Ok(answer) => {
                    meta.progress.wrote(piece.object, piece.written, answer.mark);
                    meta.progress.took(answer.reply.pages as u64);
                    let end = piece.file_offset + piece.len as u64;
                    match failed.is_empty() {
                        true => {
                            meta.progress.reached(end, now);
                            reached += piece.len;
                        }
                        false => furthest = furthest.max(end),
                    }
                }
                Err(fault) => failed.push((piece.mirror, fault)),
            }
        }
        let is_unknown = failed.iter().any(|(_, fault)| fault.code == Code::Timeout);
        let is_over = failed.first().is_some_and(|(_, fault)| is_definite(fault.code));
        match Stopped::at(failed) {
            None => Ok(()),
            Some(stopped) => {
                meta.overshot |= is_over && furthest > meta.progress.size;
                Err(Halt { stopped, reached, is_unknown })
            }
        }
    }
}

/// client-CL8: what a call on objects reaches.
pub(crate) fn reach(file: &File, body: &Body, offset: u64, len: usize) -> Reach {
    let Some(layout) = body.layout.as_ref().filter(|_| body.is_loaded) else { return Reach::File };
    let is_in_range = offset.checked_add(len as u64).is_some_and(|end| end <= FILE_SIZE_MAX);
    if !is_in_range || len > IN_FLIGHT_MAX * BULK_MAX || file.meta.lock().overshot {
        return Reach::File;
    }
    match pieces(layout, file.fid, offset, len).len() {
        1 => Reach::One,
        // One window, so that the locks are held for a round trip.
        2..=IN_FLIGHT_MAX => Reach::Several,
        _ => Reach::File,
    }
}

fn too_big(file: &File, offset: u64, data: &[u8]) -> Fault {
    let detail = format!("file {}: {} bytes at {offset} end past {FILE_SIZE_MAX}", file.fid, data.len());
    Fault::new(Code::FileTooBig, detail)
}

/// The share of the grant that a piece may use: all its pages.
pub(crate) fn share(piece: &Piece, link: &Link) -> Share {
    link.granted.take(share_bytes(piece), Instant::now())
}
pub(crate) fn share_bytes(piece: &Piece) -> u64 {
    let page = PAGE_SIZE as u64;
    let (begin, end) = (piece.object_offset / page, (piece.object_offset + piece.len as u64).div_ceil(page));
    (end - begin) * page
}

fn request(
    cap: &Capability,
    piece: &Piece,
    (bytes, lock): (&[u8], u64),
    mtime: Time,
    share: Option<&Share>,
) -> Write {
    let crcs = fragment_crcs(piece.object_offset, bytes);
    Write {
        cap: cap.clone(),
        object: piece.object,
        offset: piece.object_offset,
        crcs,
        mtime,
        granted: share.is_some_and(|s| s.bytes > 0),
        lock,
    }
}
