//! The index on the medium: what a checkpoint holds. See docs/formats/ost.md, "Checkpoint".
//!
//! A stream: head, sessions with their used slots, damage, objects in id order with their extents; whole numbers as LEB128
//! varints, differences where neighbours are near. The volume below guards the stream with CRCs.
//! I1: no object takes more than the `*_BYTES_MAX` here say, so that room can be checked before a write is admitted.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::LogPoint;
use types::{Fid, Generation, ObjectId, PAGE_SIZE, Seq, SessionId, Time};
use wire::{Reader, Wire};

use crate::alloc::Run;
use crate::damage::DAMAGE_MAX;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::extent::{Extent, ExtentMap};
use crate::index::State;
use crate::patch::{Patch, Patches};
use crate::record::{get_damage, put_damage};
use crate::reserved::Reserved;
use crate::scrub::{SCRUB_BYTES, get_scrub, put_scrub};
use crate::service::{SERVICE_BYTES, get_service, put_service};
use crate::sessions::SESSIONS_MAX;
use crate::slots::Session;
use crate::{Damage, Scrub, Service, Slot};

const MAGIC: [u8; 4] = *b"SOX1";
const VERSION: u8 = 4;
/// The one before had neither service nor patches; it is read too.
const VERSION_BEFORE: u8 = 3;
/// And the one before that no scrub.
const VERSION_WITHOUT_SCRUB: u8 = 2;

/// Varints: fid 10, generation 5, component 3, stripe 3, flags 1, length 7, mtime 10 + 5, lease 10, extent count 5, counts of
/// reserved runs and patches 10.
pub const OBJECT_BYTES_MAX: u64 = 69;
/// Varints: page gap 5, place 7 (below 2^48, as a difference with sign), pages 2; each page's CRC is counted apart.
pub const EXTENT_BYTES_MAX: u64 = 14;
/// A reserved page: as an extent of one page with its CRC, which it may become, or as a run of its own (gap 5, pages 5), whichever
/// its neighbours make of it: both, to be safe. Less than the 32 bytes that the slot has for each page.
pub const RESERVED_PAGE_BYTES: u64 = EXTENT_BYTES_MAX + 4 + 10;
/// A patched page: its name (page gap 5, entry 5), and the extent of one page with its CRC that it becomes.
pub const PATCHED_PAGE_BYTES: u64 = 10 + EXTENT_BYTES_MAX + 4;
/// Session 8, begun 10, used slots 1, each used slot: number 1, sequence 5, seq 10, answer 10.
pub const SESSION_BYTES_MAX: u64 = 19 + 64 * 26;
/// A damage record: object 24, offset 8, kind 1, time 8.
const DAMAGE_BYTES: u64 = 41;
/// Kept free for writes that were admitted and are not yet in the index: 64 at once of 257 pages each.
const ADMITTED_BYTES: u64 = 64 * (OBJECT_BYTES_MAX + 257 * (EXTENT_BYTES_MAX + 4));

/// What of a checkpoint slot of `capacity` bytes the index may take; the rest is for damage records, chunk heads and writes
/// under way.
pub fn index_bytes_max(capacity: u64) -> u64 {
    let chunk_heads = (capacity / (1 << 20) + 2) * 32;
    let damage = DAMAGE_MAX as u64 * DAMAGE_BYTES;
    capacity.saturating_sub(chunk_heads + damage + SCRUB_BYTES + SERVICE_BYTES + ADMITTED_BYTES + 64)
}

/// Slots with something done in them, by number.
type UsedSlots = Vec<(u8, Slot)>;

/// The state at one point of the log. Taking it copies no extents: changes made while it is written copy what they touch.
pub struct Snapshot {
    /// Each with the entry that began it and its used slots.
    pub sessions: Vec<(SessionId, Seq, UsedSlots)>,
    pub damage: Vec<Damage>,
    pub scrub: Scrub,
    pub service: Service,
    /// The last entry before those that the log keeps for it.
    pub log_begin: Seq,
    pub objects: Vec<(ObjectId, Arc<State>)>,
}

impl Engine {
    /// Writes the index out and trims the log.
    pub(crate) fn make_checkpoint(&self) -> Result<(), StoreError> {
        let _one = self.checkpointing.lock();
        self.checkpoint_alone()
    }

    fn checkpoint_alone(&self) -> Result<(), StoreError> {
        let (at, from, snapshot, pinned, stamp) = {
            let _tail = self.tail.lock();
            let at = self.vol.position();
            let from = self.oldest_patch().unwrap_or(at);
            let pinned = self.space.lock().take_pinned();
            self.overlay.folded.store(0, Ordering::Relaxed);
            (at, from, self.snapshot(from.seq), pinned, self.readers.changed())
        };
        if let Err(e) = self.vol.checkpoint_keeping(at, from, &mut |out| write_snapshot(&snapshot, out)) {
            self.space.lock().put_pinned(pinned);
            return Err(e.into());
        }
        self.unpin(pinned, stamp);
        self.checkpoints.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Under the tail lock: everything, as of the last entry.
    pub(crate) fn snapshot(&self, log_begin: Seq) -> Snapshot {
        let used = |session: &Session| -> UsedSlots {
            let slots = session.slots.iter().enumerate();
            slots.filter(|(_, s)| s.sequence > 0).map(|(i, s)| (i as u8, *s)).collect()
        };
        let known = self.sessions.lock();
        let mut sessions: Vec<_> = known.iter().map(|(id, s)| (*id, s.begun, used(s))).collect();
        drop(known);
        sessions.sort_unstable_by_key(|(id, _, _)| *id);
        let (damage, scrub, service) = (self.damage_list(), self.scrub_now(), self.stats_now().service);
        Snapshot { sessions, damage, scrub, service, log_begin, objects: self.index.snapshot() }
    }

    /// Puts a snapshot's content into an empty engine.
    pub(crate) fn load(&self, snapshot: Snapshot) {
        for (session, begun, slots) in snapshot.sessions {
            self.apply_session_begin(session, begun);
            for (slot, s) in slots {
                let origin = crate::Origin { session, slot: slot as u32, sequence: s.sequence };
                self.apply_slot(origin, s.seq, s.answer);
            }
        }
        snapshot.damage.iter().for_each(|d| self.apply_damage(d));
        *self.scrub.lock() = snapshot.scrub;
        *self.service.lock() = snapshot.service;
        for (id, state) in snapshot.objects {
            let state = Arc::unwrap_or_clone(state);
            self.count_patches(state.patches.len() as i64);
            self.index.change(&id, |s| *s = state);
        }
    }
}

pub fn write_snapshot(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    // Gathered per object, so that the stream below sees few large writes.
    let mut buf = Vec::with_capacity(64 << 10);
    buf.extend_from_slice(&MAGIC);
    buf.extend_from_slice(&[VERSION, 0, 0, 0]);
    put_varint(&mut buf, snapshot.sessions.len() as u64);
    for (session, begun, slots) in &snapshot.sessions {
        session.put(&mut buf);
        put_varint(&mut buf, begun.0);
        buf.push(slots.len() as u8);
        for (number, slot) in slots {
            buf.push(*number);
            put_varint(&mut buf, slot.sequence as u64);
            put_varint(&mut buf, slot.seq.0);
            put_varint(&mut buf, slot.answer);
        }
    }
    put_varint(&mut buf, snapshot.damage.len() as u64);
    snapshot.damage.iter().for_each(|d| put_damage(d, &mut buf));
    put_scrub(&snapshot.scrub, &mut buf);
    put_service(&snapshot.service, &mut buf);
    put_varint(&mut buf, snapshot.objects.len() as u64);
    let mut fid = 0;
    for (id, state) in &snapshot.objects {
        if state.patches.iter().any(|(_, patch)| patch.since() <= snapshot.log_begin) {
            // Better no checkpoint than one that cannot be read.
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a patch of {id} lies before the log"),
            ));
        }
        put_object(&mut buf, id, state, fid, snapshot.log_begin);
        fid = id.fid.0;
        if buf.len() >= 60 << 10 {
            out.write_all(&buf)?;
            buf.clear();
        }
    }
    out.write_all(&buf)
}

fn put_object(buf: &mut Vec<u8>, id: &ObjectId, state: &State, fid_before: u64, log_begin: Seq) {
    put_varint(buf, id.fid.0 - fid_before);
    put_varint(buf, id.generation.0 as u64);
    put_varint(buf, id.component as u64);
    put_varint(buf, id.stripe as u64);
    buf.push(state.exists as u8);
    put_varint(buf, state.len);
    put_varint(buf, zigzag(state.mtime.sec));
    put_varint(buf, state.mtime.nsec as u64);
    put_varint(buf, state.lease);
    put_varint(buf, state.extents.len() as u64);
    let (mut page_before, mut place_before) = (0u32, 0i64);
    for (page, e) in state.extents.iter() {
        put_varint(buf, (page - page_before) as u64);
        put_varint(buf, zigzag(e.run.start as i64 - place_before));
        put_varint(buf, e.run.pages as u64);
        e.crcs().iter().for_each(|crc| crc.put(buf));
        (page_before, place_before) = (page + e.run.pages, e.run.end() as i64);
    }
    put_varint(buf, state.reserved.len() as u64);
    let mut page_before = 0;
    for (first, limit) in state.reserved.iter() {
        put_varint(buf, (first - page_before) as u64);
        put_varint(buf, (limit - first) as u64);
        page_before = limit;
    }
    put_varint(buf, state.patches.len() as u64);
    let mut page_before = 0;
    for (page, patch) in state.patches.iter() {
        put_varint(buf, (page - page_before) as u64);
        put_varint(buf, patch.since().0 - log_begin.0);
        page_before = page;
    }
}

/// Reads a stream that `write_snapshot` wrote. `InvalidData` if it is anything else.
/// `point`: where the log begins that has the patches' bytes.
pub fn read_snapshot(from: &mut dyn Read, point: LogPoint) -> io::Result<Snapshot> {
    let mut r = io::BufReader::with_capacity(256 << 10, from);
    let r = &mut r;
    let head: [u8; 8] = get_bytes(r)?;
    let version = head[4];
    if head[..4] != MAGIC || head[5..] != [0; 3] || !(VERSION_WITHOUT_SCRUB..=VERSION).contains(&version) {
        return Err(malformed("checkpoint head or version"));
    }
    let mut sessions = Vec::new();
    for _ in 0..get_limited(r, SESSIONS_MAX as u64, "session count")? {
        let session = SessionId(u64::from_le_bytes(get_bytes(r)?));
        let begun = Seq(get_varint(r)?);
        let [count] = get_bytes(r)?;
        let mut slots = Vec::new();
        for _ in 0..count {
            let [number] = get_bytes(r)?;
            let sequence = get_u32(r)?;
            slots.push((number, Slot { sequence, seq: Seq(get_varint(r)?), answer: get_varint(r)? }));
        }
        sessions.push((session, begun, slots));
    }
    let mut damage = Vec::new();
    for _ in 0..get_limited(r, DAMAGE_MAX as u64, "damage count")? {
        let bytes: [u8; DAMAGE_BYTES as usize] = get_bytes(r)?;
        damage.push(get_damage(&mut Reader::new(&bytes)).map_err(|_| malformed("damage record"))?);
    }
    let mut scrub = Scrub::default();
    if version > VERSION_WITHOUT_SCRUB {
        let bytes: [u8; SCRUB_BYTES as usize] = get_bytes(r)?;
        scrub = get_scrub(&mut Reader::new(&bytes)).map_err(|_| malformed("scrub"))?;
    }
    let mut service = Service::default();
    if version > VERSION_BEFORE {
        let bytes: [u8; SERVICE_BYTES as usize] = get_bytes(r)?;
        service = get_service(&mut Reader::new(&bytes)).map_err(|_| malformed("service"))?;
    }
    let count = get_varint(r)?;
    let mut objects: Vec<(ObjectId, Arc<State>)> = Vec::new();
    for _ in 0..count {
        let before = objects.last().map_or(ObjectId::default(), |(id, _)| *id);
        let (id, mut state) = get_object(r, before.fid.0)?;
        if version > VERSION_BEFORE {
            get_patches(r, &mut state, point)?;
        }
        if !objects.is_empty() && id <= before {
            return Err(malformed("object order"));
        }
        objects.push((id, Arc::new(state)));
    }
    match r.read(&mut [0])? {
        0 => Ok(Snapshot { sessions, damage, scrub, service, log_begin: point.seq, objects }),
        _ => Err(malformed("bytes after the last object")),
    }
}

fn get_object(r: &mut impl Read, fid_before: u64) -> io::Result<(ObjectId, State)> {
    let fid = get_varint(r)?.checked_add(fid_before).ok_or_else(|| malformed("fid"))?;
    let generation = Generation(get_u32(r)?);
    let component = get_limited(r, u16::MAX as u64, "component")? as u16;
    let stripe = get_limited(r, u16::MAX as u64, "stripe")? as u16;
    let id = ObjectId { fid: Fid(fid), generation, component, stripe, snapshot: 0 };
    let exists = match get_bytes(r)? {
        [0] => false,
        [1] => true,
        _ => return Err(malformed("object flags")),
    };
    let len = get_limited(r, types::FILE_SIZE_MAX, "object length")?;
    let sec = unzigzag(get_varint(r)?);
    let nsec = get_limited(r, 999_999_999, "nanoseconds")? as u32;
    let lease = get_varint(r)?;
    let extents = get_extents(r, len)?;
    let reserved = get_reserved(r, &extents)?;
    let (mtime, patches) = (Time { sec, nsec }, Patches::default());
    Ok((id, State { exists, len, mtime, lease, extents, patches, reserved }))
}

fn get_patches(r: &mut impl Read, state: &mut State, point: LogPoint) -> io::Result<()> {
    let limit = state.len.div_ceil(PAGE_SIZE as u64);
    let mut page = 0;
    for i in 0..get_limited(r, limit, "count of patches")? {
        let gap = get_limited(r, limit, "page gap")?;
        page += gap;
        let after = get_limited(r, u32::MAX as u64, "entry of a patch")?;
        let since = Seq(point.seq.0 + after);
        let is_sound = page < limit && (i == 0 || gap > 0) && after > 0;
        if !is_sound || state.reserved.count(page as u32, page as u32 + 1) > 0 {
            return Err(malformed("patch"));
        }
        let is_new = state.extents.site(page as u32).is_none();
        state.patches.insert(page as u32, Patch::named(since, is_new));
    }
    Ok(())
}

fn get_reserved(r: &mut impl Read, extents: &ExtentMap) -> io::Result<Reserved> {
    let limit = types::FILE_SIZE_MAX / PAGE_SIZE as u64;
    let mut reserved = Reserved::default();
    let mut page = 0;
    for i in 0..get_limited(r, limit, "count of reserved runs")? {
        let first = page + get_limited(r, limit, "page gap")?;
        let end = first + get_limited(r, limit, "pages of a reserved run")?;
        // Runs do not touch, and what has bytes is not reserved.
        let is_sound = first < end && end <= limit && (i == 0 || first > page);
        if !is_sound || extents.count(first as u32, end as u32) > 0 {
            return Err(malformed("reserved run"));
        }
        reserved.insert(first as u32, end as u32);
        page = end;
    }
    Ok(reserved)
}

fn get_extents(r: &mut impl Read, len: u64) -> io::Result<ExtentMap> {
    let limit = len.div_ceil(PAGE_SIZE as u64);
    let mut map = ExtentMap::default();
    let (mut page, mut place, mut freed) = (0u64, 0i64, Vec::new());
    for _ in 0..get_limited(r, limit, "extent count")? {
        page += get_limited(r, limit, "page gap")?;
        place = place.checked_add(unzigzag(get_varint(r)?)).ok_or_else(|| malformed("place"))?;
        let pages = get_limited(r, limit, "pages of an extent")?;
        if pages == 0 || page + pages > limit || !(0..1 << 48).contains(&place) {
            return Err(malformed("extent"));
        }
        let mut crcs = Vec::new();
        for _ in 0..pages {
            crcs.push(u32::from_le_bytes(get_bytes(r)?));
        }
        let run = Run { start: place as u64, pages: pages as u32 };
        map.put(page as u32, Extent::new(run, &crcs.into(), 0), &mut freed);
        page += pages;
        place += pages as i64;
    }
    Ok(map)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what} in a checkpoint"))
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn get_varint(r: &mut impl Read) -> io::Result<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = get_bytes(r)?;
        let bits = (byte & 0x7f) as u64;
        if shift == 63 && bits > 1 {
            return Err(malformed("number"));
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(malformed("number"))
}

fn get_limited(r: &mut impl Read, max: u64, what: &str) -> io::Result<u64> {
    let n = get_varint(r)?;
    if n <= max { Ok(n) } else { Err(malformed(what)) }
}

fn get_u32(r: &mut impl Read) -> io::Result<u32> {
    Ok(get_limited(r, u32::MAX as u64, "number")? as u32)
}

fn get_bytes<const N: usize>(r: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    r.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}
fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

#[cfg(test)]
mod tests;
