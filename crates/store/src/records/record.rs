//! Encoding of an OST's log records. See docs/formats/ost.md, "Log records".
//!
//! A record is a 40-byte head (version, kind, origin of the request, its answer, its place in the mirror) and a body by kind. Decoding
//! checks everything that can be checked without the medium and never panics.

use std::sync::Arc;

use types::{Epoch, Fid, ObjectId, PAGE_SIZE, Seq, SessionId, Time};
use wire::{Malformed, Reader, Wire};

use crate::records::error::DamageKind;
use crate::records::fill::{FillRecord, FillSessions};
use crate::records::patch::Fragment;
use crate::records::scrub_state::{get_scrub, put_scrub};
use crate::{Damage, Origin, Scrub};
use disk::alloc::Run;

/// Version of the record format.
pub const VERSION: u8 = 2;
/// Up to this version a record has no place in the mirror: its log seq counts as its mirror seq.
const VERSION_WITHOUT_PLACE: u8 = 1;

/// The name of an entry in its mirror: its line (the epoch under which it was ordered), and its mirror seq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct At {
    pub line: Epoch,
    pub seq: Seq,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Write(WriteRecord),
    Truncate(TruncateRecord),
    Reserve(ReserveRecord),
    Release(ReleaseRecord),
    Punch(PunchRecord),
    Destroy {
        objects: Vec<ObjectId>,
    },
    /// Sets the highest lease version that the object has seen.
    Fence {
        object: ObjectId,
        lease: u64,
    },
    Damage(Damage),
    /// Clears the damage records of this file (fid 0: of all files).
    DamageClear {
        fid: Fid,
    },
    SessionBegin {
        session: SessionId,
    },
    SessionEnd {
        session: SessionId,
    },
    /// Sets the state of the scrub.
    Scrub(Scrub),
    /// No change was necessary; the entry only records the slot.
    Nothing,
    /// A small write with its bytes.
    Patch(PatchRecord),
    /// A part of an object, for a member that is being filled.
    Fill(FillRecord),
    /// Sessions with their slots, for a member that is being filled.
    FillSessions(FillSessions),
    /// A damaged page has its bytes at another place again.
    Repair(RepairRecord),
    /// Everything that a filling has lies between the entry `since` and this one.
    FillEnd {
        since: Seq,
    },
}

impl Record {
    /// False for records that concern one medium only: they take no mirror seq, and are not shipped to the other member.
    pub fn is_public(&self) -> bool {
        !matches!(self, Record::Damage(_) | Record::DamageClear { .. } | Record::Scrub(_) | Record::Repair(_))
    }

    /// The objects that the record changes.
    pub fn objects(&self) -> &[ObjectId] {
        use std::slice::from_ref;
        match self {
            Record::Write(w) => from_ref(&w.object),
            Record::Truncate(t) => from_ref(&t.object),
            Record::Reserve(r) => from_ref(&r.object),
            Record::Release(r) => from_ref(&r.object),
            Record::Punch(p) => from_ref(&p.object),
            Record::Patch(p) => from_ref(&p.object),
            Record::Fill(f) => from_ref(&f.range.object),
            Record::Repair(r) => from_ref(&r.object),
            Record::Fence { object, .. } => from_ref(object),
            Record::Destroy { objects } => objects,
            Record::Damage(_)
            | Record::DamageClear { .. }
            | Record::SessionBegin { .. }
            | Record::SessionEnd { .. }
            | Record::Scrub(_)
            | Record::FillSessions(_)
            | Record::FillEnd { .. }
            | Record::Nothing => &[],
        }
    }
}

/// A write whose bytes are in the entry.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchRecord {
    pub object: ObjectId,
    /// Bytes.
    pub offset: u64,
    pub mtime: Time,
    pub lease: u64,
    /// In page order, without a gap; one at least.
    pub fragments: Vec<Fragment>,
}

impl PatchRecord {
    /// Least length of the object afterwards, in bytes.
    pub fn end(&self) -> u64 {
        self.offset + self.fragments.iter().map(|f| f.len as u64).sum::<u64>()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct WriteRecord {
    pub object: ObjectId,
    /// Least length of the object afterwards, in bytes.
    pub end: u64,
    pub mtime: Time,
    pub lease: u64,
    /// Places of the pages, in page order.
    pub placed: Vec<Placed>,
    /// One per page, in the order of `placed`.
    pub crcs: Arc<[u32]>,
}

/// Pages of an object, from `page` on, that lie in `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub page: u32,
    pub run: Run,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TruncateRecord {
    pub object: ObjectId,
    /// Bytes.
    pub len: u64,
    pub lease: u64,
    /// New place and CRC of the last page, if the truncation cut inside it.
    pub tail: Option<(u64, u32)>,
}

/// Reserves space for the pages of `[first, limit)` that have no bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ReserveRecord {
    pub object: ObjectId,
    pub first: u32,
    pub limit: u32,
    /// Least length of the object afterwards, in bytes.
    pub end: u64,
    pub mtime: Time,
    pub lease: u64,
}

/// Releases reserved space of pages `[first, limit)` that no write has used.
#[derive(Clone, Debug, PartialEq)]
pub struct ReleaseRecord {
    pub object: ObjectId,
    pub first: u32,
    pub limit: u32,
    pub lease: u64,
}

/// Removes the bytes of pages `[first, limit)`; the pages of `zeroed` were rewritten with zeros in a part.
#[derive(Clone, Debug, PartialEq)]
pub struct PunchRecord {
    pub object: ObjectId,
    pub first: u32,
    pub limit: u32,
    /// The space stays reserved.
    pub is_kept: bool,
    pub mtime: Time,
    pub lease: u64,
    /// Two at most.
    pub zeroed: Vec<Zeroed>,
}

/// A page that was damaged at one place, and has the same bytes at another one from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairRecord {
    pub object: ObjectId,
    pub page: u32,
    /// Of the page, at both places.
    pub crc: u32,
    pub before: u64,
    pub start: u64,
    pub kind: DamageKind,
    /// The medium could not take bytes at the old place either. It stays unused until the next start.
    pub is_bad: bool,
    pub found_sec: u64,
}

/// A page that was rewritten with zeros in a part: its new place and CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zeroed {
    pub page: u32,
    pub start: u64,
    pub crc: u32,
}

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Write(_) => 1,
            Record::Truncate(_) => 2,
            Record::Destroy { .. } => 3,
            Record::Fence { .. } => 4,
            Record::Damage(_) => 5,
            Record::DamageClear { .. } => 6,
            Record::SessionBegin { .. } => 7,
            Record::SessionEnd { .. } => 8,
            Record::Nothing => 9,
            Record::Reserve(_) => 10,
            Record::Release(_) => 11,
            Record::Punch(_) => 12,
            Record::Scrub(_) => 13,
            Record::Patch(_) => 14,
            Record::Fill(_) => 15,
            Record::FillSessions(_) => 16,
            Record::FillEnd { .. } => 17,
            Record::Repair(_) => 18,
        }
    }
}

/// Appends the record's bytes to `out`, without a place in the mirror.
pub fn encode(origin: Option<Origin>, answer: u64, record: &Record, out: &mut Vec<u8>) {
    let origin = origin.unwrap_or(Origin { session: SessionId(0), slot: 0, sequence: 0 });
    out.extend_from_slice(&[VERSION, record.kind(), 0, 0]);
    origin.session.put(out);
    origin.slot.put(out);
    origin.sequence.put(out);
    answer.put(out);
    out.extend_from_slice(&[0; PLACE.end - PLACE.start]);
    match record {
        Record::Write(w) => {
            let pages: usize = w.placed.iter().map(|p| p.run.pages as usize).sum();
            assert_eq!(pages, w.crcs.len(), "a write's entry has one CRC per page");
            let follows = w.placed.is_sorted_by(|a, b| a.page + a.run.pages == b.page);
            debug_assert!(follows, "a write's pages are in order, without a gap");
            w.object.put(out);
            w.end.put(out);
            w.mtime.put(out);
            w.lease.put(out);
            (w.placed.len() as u32).put(out);
            for p in &w.placed {
                p.page.put(out);
                p.run.start.put(out);
                p.run.pages.put(out);
            }
            w.crcs.iter().for_each(|crc| crc.put(out));
        }
        Record::Truncate(t) => {
            t.object.put(out);
            t.len.put(out);
            t.lease.put(out);
            let (start, crc) = t.tail.unwrap_or((0, 0));
            t.tail.is_some().put(out);
            start.put(out);
            crc.put(out);
        }
        Record::Reserve(r) => {
            r.object.put(out);
            r.first.put(out);
            r.limit.put(out);
            r.end.put(out);
            r.mtime.put(out);
            r.lease.put(out);
        }
        Record::Release(r) => {
            r.object.put(out);
            r.first.put(out);
            r.limit.put(out);
            r.lease.put(out);
        }
        Record::Punch(p) => {
            assert!(p.zeroed.len() <= 2, "a hole has two partial pages at most");
            assert!(p.zeroed.is_sorted_by(|a, b| a.page < b.page), "partial pages of a hole are in order");
            p.object.put(out);
            p.first.put(out);
            p.limit.put(out);
            p.is_kept.put(out);
            p.mtime.put(out);
            p.lease.put(out);
            out.push(p.zeroed.len() as u8);
            for z in &p.zeroed {
                z.page.put(out);
                z.start.put(out);
                z.crc.put(out);
            }
        }
        Record::Destroy { objects } => objects.put(out),
        Record::Fence { object, lease } => {
            object.put(out);
            lease.put(out);
        }
        Record::Damage(d) => put_damage(d, out),
        Record::DamageClear { fid } => fid.put(out),
        Record::SessionBegin { session } | Record::SessionEnd { session } => session.put(out),
        Record::Scrub(scrub) => put_scrub(scrub, out),
        Record::Nothing => {}
        Record::Fill(fill) => fill.put(out),
        Record::FillSessions(fill) => fill.put(out),
        Record::FillEnd { since } => since.put(out),
        Record::Repair(r) => {
            r.object.put(out);
            r.page.put(out);
            r.crc.put(out);
            r.before.put(out);
            r.start.put(out);
            (r.kind as u8).put(out);
            r.is_bad.put(out);
            r.found_sec.put(out);
        }
        Record::Patch(p) => {
            let follows = p.fragments.is_sorted_by(|a, b| a.page + 1 == b.page);
            debug_assert!(follows, "a small write's fragments are in page order, without a gap");
            p.object.put(out);
            p.offset.put(out);
            p.mtime.put(out);
            p.lease.put(out);
            ((p.end() - p.offset) as u32).put(out);
            p.fragments.iter().for_each(|f| f.crc.put(out));
            p.fragments.iter().for_each(|f| out.extend_from_slice(f.content()));
        }
    }
}

/// The bytes of a record that have the answer.
const ANSWER: std::ops::Range<usize> = 20..28;

/// The bytes of a record that have its place in the mirror.
const PLACE: std::ops::Range<usize> = 28..40;

/// Sets the place in the mirror of an encoded record.
pub fn set_place(bytes: &mut [u8], at: At) {
    let (line, seq) = bytes[PLACE].split_at_mut(4);
    line.copy_from_slice(&at.line.0.to_le_bytes());
    seq.copy_from_slice(&at.seq.0.to_le_bytes());
}

/// Replaces the answer in an encoded record.
pub fn set_answer(bytes: &mut [u8], answer: u64) {
    bytes[ANSWER].copy_from_slice(&answer.to_le_bytes());
}

/// A record with the origin of its request and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub origin: Option<Origin>,
    pub answer: u64,
    /// Seq 0: the record is private to its volume. `None`: an earlier release wrote it.
    pub at: Option<At>,
    pub record: Record,
}

pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
    let mut r = Reader::new(bytes);
    let head = r.take(4)?;
    if !(VERSION_WITHOUT_PLACE..=VERSION).contains(&head[0]) {
        return Err(Malformed("log record version"));
    }
    if head[2..] != [0, 0] {
        return Err(Malformed("reserved bytes of a log record"));
    }
    let (has_place, kind) = (head[0] > VERSION_WITHOUT_PLACE, head[1]);
    let origin =
        Origin { session: Wire::get(&mut r)?, slot: Wire::get(&mut r)?, sequence: Wire::get(&mut r)? };
    let answer = Wire::get(&mut r)?;
    let at = match has_place {
        true => Some(At { line: Wire::get(&mut r)?, seq: Wire::get(&mut r)? }),
        false => None,
    };
    let record = match kind {
        1 => Record::Write(get_write(&mut r)?),
        2 => Record::Truncate(get_truncate(&mut r)?),
        3 => Record::Destroy { objects: Wire::get(&mut r)? },
        4 => Record::Fence { object: Wire::get(&mut r)?, lease: Wire::get(&mut r)? },
        5 => Record::Damage(get_damage(&mut r)?),
        6 => Record::DamageClear { fid: Wire::get(&mut r)? },
        7 => Record::SessionBegin { session: Wire::get(&mut r)? },
        8 => Record::SessionEnd { session: Wire::get(&mut r)? },
        9 => Record::Nothing,
        10 => Record::Reserve(get_reserve(&mut r)?),
        11 => Record::Release(get_release(&mut r)?),
        12 => Record::Punch(get_punch(&mut r)?),
        13 => Record::Scrub(get_scrub(&mut r)?),
        14 => Record::Patch(get_patch(&mut r)?),
        15 => Record::Fill(FillRecord::get(&mut r)?),
        16 => Record::FillSessions(FillSessions::get(&mut r)?),
        17 => Record::FillEnd { since: Wire::get(&mut r)? },
        18 => Record::Repair(get_repair(&mut r)?),
        _ => return Err(Malformed("log record kind")),
    };
    r.end()?;
    Ok(Decoded { origin: (origin.sequence > 0).then_some(origin), answer, at, record })
}

fn get_write(r: &mut Reader<'_>) -> Result<WriteRecord, Malformed> {
    let (object, end, mtime, lease): (_, u64, _, _) =
        (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    if end > types::FILE_SIZE_MAX {
        return Err(Malformed("object length"));
    }
    let count = u32::get(r)? as usize;
    // Each placed run takes 16 bytes; a count that the remaining bytes cannot hold is malformed.
    if count == 0 || count > r.remaining() / 16 {
        return Err(Malformed("run count"));
    }
    let mut placed: Vec<Placed> = Vec::with_capacity(count);
    let mut pages = 0usize;
    for _ in 0..count {
        let p = Placed { page: Wire::get(r)?, run: Run { start: Wire::get(r)?, pages: Wire::get(r)? } };
        let follows = placed.last().is_none_or(|last| last.page + last.run.pages == p.page);
        let is_bounded = p.page.checked_add(p.run.pages).is_some() && p.run.start < 1 << 48;
        if p.run.pages == 0 || !follows || !is_bounded {
            return Err(Malformed("run"));
        }
        pages += p.run.pages as usize;
        placed.push(p);
    }
    if r.remaining() != pages * 4 {
        return Err(Malformed("page CRCs"));
    }
    let crcs = (0..pages).map(|_| u32::get(r)).collect::<Result<Vec<u32>, _>>()?;
    Ok(WriteRecord { object, end, mtime, lease, placed, crcs: crcs.into() })
}

fn get_truncate(r: &mut Reader<'_>) -> Result<TruncateRecord, Malformed> {
    let (object, len, lease) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let (has_tail, start, crc): (bool, u64, u32) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    if len > types::FILE_SIZE_MAX || start >= 1 << 48 || (!has_tail && (start, crc) != (0, 0)) {
        return Err(Malformed("truncation"));
    }
    Ok(TruncateRecord { object, len, lease, tail: has_tail.then_some((start, crc)) })
}

fn get_reserve(r: &mut Reader<'_>) -> Result<ReserveRecord, Malformed> {
    let (object, first, limit, end): (_, u32, u32, u64) =
        (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    if first >= limit || end > types::FILE_SIZE_MAX {
        return Err(Malformed("reservation"));
    }
    Ok(ReserveRecord { object, first, limit, end, mtime: Wire::get(r)?, lease: Wire::get(r)? })
}

fn get_release(r: &mut Reader<'_>) -> Result<ReleaseRecord, Malformed> {
    let (object, first, limit): (_, u32, u32) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    if first >= limit {
        return Err(Malformed("release"));
    }
    Ok(ReleaseRecord { object, first, limit, lease: Wire::get(r)? })
}

fn get_punch(r: &mut Reader<'_>) -> Result<PunchRecord, Malformed> {
    let (object, first, limit): (_, u32, u32) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let (is_kept, mtime, lease) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let count = u8::get(r)?;
    if first > limit || count > 2 {
        return Err(Malformed("punch"));
    }
    let mut zeroed: Vec<Zeroed> = Vec::new();
    for _ in 0..count {
        let z = Zeroed { page: Wire::get(r)?, start: Wire::get(r)?, crc: Wire::get(r)? };
        let is_new = zeroed.last().is_none_or(|last| last.page < z.page) && !(first..limit).contains(&z.page);
        if z.start >= 1 << 48 || z.page == u32::MAX || !is_new {
            return Err(Malformed("punch"));
        }
        zeroed.push(z);
    }
    Ok(PunchRecord { object, first, limit, is_kept, mtime, lease, zeroed })
}

fn get_repair(r: &mut Reader<'_>) -> Result<RepairRecord, Malformed> {
    let (object, page, crc): (_, u32, u32) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let (before, start): (u64, u64) = (Wire::get(r)?, Wire::get(r)?);
    let kind = DamageKind::from_u8(Wire::get(r)?).ok_or(Malformed("damage kind"))?;
    let (is_bad, found_sec) = (Wire::get(r)?, Wire::get(r)?);
    let is_page = matches!(kind, DamageKind::Checksum | DamageKind::Medium);
    if page == u32::MAX || before >= 1 << 48 || start >= 1 << 48 || before == start || !is_page {
        return Err(Malformed("repair"));
    }
    Ok(RepairRecord { object, page, crc, before, start, kind, is_bad, found_sec })
}

fn get_patch(r: &mut Reader<'_>) -> Result<PatchRecord, Malformed> {
    let (object, offset, mtime, lease): (_, u64, _, _) =
        (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let len = u32::get(r)? as u64;
    let is_inside = offset.checked_add(len).is_some_and(|end| end <= types::FILE_SIZE_MAX);
    if len == 0 || len > r.remaining() as u64 || !is_inside {
        return Err(Malformed("length of a patch"));
    }
    let cuts = cuts(offset, len as usize);
    let crcs = cuts.iter().map(|_| u32::get(r)).collect::<Result<Vec<u32>, _>>()?;
    if r.remaining() != len as usize {
        return Err(Malformed("bytes of a patch"));
    }
    let mut fragments = Vec::with_capacity(cuts.len());
    for ((page, skip, len), crc) in cuts.into_iter().zip(crcs) {
        let bytes = r.take(len)?;
        if types::crc::crc32c(bytes) != crc {
            return Err(Malformed("CRC of a patch"));
        }
        fragments.push(Fragment::new(page, skip, bytes, crc));
    }
    Ok(PatchRecord { object, offset, mtime, lease, fragments })
}

/// Cuts a byte range at page borders: the page, the offset in it where the part begins, and the part's bytes.
pub fn cuts(offset: u64, len: usize) -> Vec<(u32, usize, usize)> {
    let (mut at, end) = (offset, offset + len as u64);
    let mut cuts = Vec::new();
    while at < end {
        let (page, skip) = ((at / PAGE_SIZE as u64) as u32, (at % PAGE_SIZE as u64) as usize);
        let len = (PAGE_SIZE - skip).min((end - at) as usize);
        cuts.push((page, skip, len));
        at += len as u64;
    }
    cuts
}

/// In the kind of a damage: it was repaired.
const REPAIRED: u8 = 0x80;

pub fn put_damage(d: &Damage, out: &mut Vec<u8>) {
    d.object.put(out);
    d.offset.put(out);
    (d.kind as u8 | if d.is_repaired { REPAIRED } else { 0 }).put(out);
    d.found_sec.put(out);
}

pub fn get_damage(r: &mut Reader<'_>) -> Result<Damage, Malformed> {
    let (object, offset, kind): (_, _, u8) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let is_repaired = kind & REPAIRED != 0;
    let kind = DamageKind::from_u8(kind & !REPAIRED).ok_or(Malformed("damage kind"))?;
    Ok(Damage { object, offset, kind, found_sec: Wire::get(r)?, is_repaired })
}

#[cfg(test)]
mod tests;
