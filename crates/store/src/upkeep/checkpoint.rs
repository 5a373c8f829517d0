//! A checkpoint holds the sessions, the damage records and the places of the index's leaves, which hold the objects (leaf.rs). See
//! docs/formats/ost.md, "Checkpoint".
//!
//! The volume below protects the stream with CRCs. Checkpoints of earlier releases have the objects in the stream. They are still read, and
//! the next checkpoint moves the objects into leaves.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::LogPoint;
use disk::volume::VolumeError;
use types::{Epoch, ObjectId, Seq, SessionId};
use wire::{Reader, Wire};

use crate::records::codec::*;
use crate::records::error::StoreError;
use crate::records::index::{State, Totals};
use crate::records::leaf::{Base, Leaf};
use crate::records::named::Named;
use crate::records::record::{At, get_damage, put_damage};
use crate::records::rewrite::Failed;
use crate::records::scrub_state::{SCRUB_BYTES, get_scrub, put_scrub};
use crate::state::engine::Engine;
use crate::state::room::{DAMAGE_BYTES, DAMAGE_MAX, SESSIONS_MAX};
use crate::state::service::{SERVICE_BYTES, get_service, put_service};
use crate::state::slots::Session;
use crate::state::space::Pages;
use crate::{Damage, Scrub, Service, Slot};
use disk::alloc::Run;
use disk::leaves::{Place, head_bytes};

const MAGIC: [u8; 4] = *b"SOX1";
const VERSION: u8 = 6;
/// Up to this version there is no place in the mirror.
const VERSION_WITHOUT_PLACE: u8 = 5;
/// Up to this version the stream has the objects.
const VERSION_OF_STREAM: u8 = 4;
/// Up to this version there are neither service times nor patches.
const VERSION_WITHOUT_PATCHES: u8 = 3;
/// Up to this version there is no scrub state.
const VERSION_WITHOUT_SCRUB: u8 = 2;

/// Slots that have executed a request, with their numbers.
type UsedSlots = Vec<(u8, Slot)>;

/// The state at one point of the log, without the objects.
pub struct Head {
    /// Each with the log entry that began it and its used slots.
    pub sessions: Vec<(SessionId, Seq, UsedSlots)>,
    pub damage: Vec<Damage>,
    pub scrub: Scrub,
    pub service: Service,
    /// The last entry that the state has. `None`: an earlier release wrote the checkpoint.
    pub at: Option<At>,
    pub totals: Totals,
    pub pages: Pages,
    pub named: Named,
}

/// The objects of a checkpoint.
pub enum Objects {
    Leaves(Base),
    /// As earlier releases have them, in id order.
    Stream(Vec<(ObjectId, State)>),
}

/// The part of the log that goes with a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trim {
    /// All that neither the checkpoint nor live patches need (store-G3).
    All,
    Nothing,
}

impl Engine {
    /// Writes the changed objects to leaves, commits a checkpoint and trims the log.
    pub(crate) fn make_checkpoint(&self) -> Result<(), StoreError> {
        let _one = self.checkpointing.lock();
        self.checkpoint_alone(Trim::All)
    }

    /// For the stop of a mirror's member. The other member may have stopped before, and then lacks the last entries: with them in the log
    /// it is not filled. A log that is more than half full is trimmed, as the next start would do so at once.
    pub(crate) fn make_last_checkpoint(&self) -> Result<(), StoreError> {
        let _one = self.checkpointing.lock();
        let is_short = self.vol.log_used() * 2 <= self.vol.log_capacity();
        self.checkpoint_alone(if is_short { Trim::Nothing } else { Trim::All })
    }

    /// For a caller that found memory full of changed objects. It skips its checkpoint if one that it waited for has freed memory.
    pub(crate) fn make_index_room(&self) -> Result<(), StoreError> {
        let _one = self.checkpointing.lock();
        if self.index.is_full() { self.checkpoint_alone(Trim::All) } else { Ok(()) }
    }

    fn checkpoint_alone(&self, trim: Trim) -> Result<(), StoreError> {
        if let Some(why) = self.vol.failure() {
            return Err(VolumeError::Failed(why.into()).into());
        }
        // store-RP2: the log may have an entry that the state has not.
        self.mirror.check_alive()?;
        // 1. Snapshot all state as of one log entry. Later changes keep the old state for the checkpoint.
        let (at, from, head, mut changed, pinned, stamp) = {
            let _tail = self.tail.still();
            self.mirror.check_alive()?;
            let at = self.vol.position();
            let from = match trim {
                Trim::All => self.oldest_patch().unwrap_or(at),
                Trim::Nothing => self.vol.log_start(),
            };
            assert!(
                from.pos <= at.pos && from.seq <= at.seq,
                "store-G3: live patches begin before the log's end"
            );
            let changed = self.index.begin_checkpoint();
            let pinned = self.space.lock().take_pinned();
            self.overlay.folded.store(0, Ordering::Relaxed);
            (at, from, self.head(changed.totals), changed, pinned, self.readers.changed())
        };
        // 2. Write the leaves, which no checkpoint names yet, and the head, which names them.
        let made = self.index.rewrite(&mut changed, self.settings.leaf_bytes);
        let made = made.map_err(|e| self.not_rewritten(e)).and_then(|made| {
            let done = self.write_head(&head, &made.base).and_then(|stream| {
                let write = &mut |out: &mut dyn io::Write| out.write_all(&stream);
                Ok(self.vol.checkpoint_keeping(at, from, write)?)
            });
            match done {
                Ok(()) => Ok(made),
                Err(e) => {
                    made.written.iter().for_each(|leaf| self.index.leaves.give_back(leaf));
                    Err(e)
                }
            }
        });
        // 3. Adopt the new leaves, or go back to the state before.
        match made {
            Ok(made) => {
                self.index.end_checkpoint(changed, Some(made));
                if let Some(old) = self.old_stream.lock().take() {
                    self.index.leaves.let_go(old);
                }
                self.unpin(pinned, stamp);
                self.mirror.set_log_begin(from.seq);
                self.checkpoints.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Err(e) => {
                self.index.end_checkpoint(changed, None);
                self.space.lock().put_pinned(pinned);
                Err(e)
            }
        }
    }

    fn not_rewritten(&self, failed: Failed) -> StoreError {
        match failed {
            Failed::Read(e) => self.index.unreadable(e),
            // No checkpoint names the leaf that could not be written, so no acknowledged change is in doubt.
            Failed::Write(e) => VolumeError::CheckpointWrite(e).into(),
        }
    }

    fn write_head(&self, head: &Head, base: &Base) -> Result<Vec<u8>, StoreError> {
        let mut stream = Vec::new();
        let is_in_order = head.sessions.is_sorted_by(|a, b| a.0 < b.0);
        debug_assert!(is_in_order, "a checkpoint has each session once, in order");
        assert_eq!(base.leaves.is_empty(), base.last.is_none(), "leaves have a last object");
        put_head(head, base, &mut stream);
        let [slot, _] = self.vol.layout().slots;
        let capacity = head_bytes(slot.end - slot.start);
        let chunk_heads = (stream.len() as u64 / (1 << 20) + 2) * 32;
        match stream.len() as u64 + chunk_heads <= capacity {
            true => Ok(stream),
            false => Err(VolumeError::CheckpointFull { capacity }.into()),
        }
    }

    /// Under the tail lock: all state except the objects, as of the last entry.
    fn head(&self, totals: Totals) -> Head {
        let used = |session: &Session| -> UsedSlots {
            let slots = session.slots.iter().enumerate();
            slots.filter(|(_, s)| s.sequence > 0).map(|(i, s)| (i as u8, *s)).collect()
        };
        let known = self.sessions.lock();
        let mut sessions: Vec<_> = known.iter().map(|(id, s)| (*id, s.begun, used(s))).collect();
        drop(known);
        sessions.sort_unstable_by_key(|(id, _, _)| *id);
        let (damage, scrub, service) = (self.damage_list(), self.scrub_now(), self.stats_now().service);
        let pages = self.space.lock().pages();
        let named = self.named.lock().clone();
        let at = Some(self.mirror.at_end());
        Head { sessions, damage, scrub, service, at, totals, pages, named }
    }

    /// Loads a checkpoint's content into an empty engine. `kept`: the range of the medium where the checkpoint itself lies.
    pub(crate) fn load(&self, head: Head, objects: Objects, kept: Range<u64>) -> Result<(), StoreError> {
        for (session, begun, slots) in head.sessions {
            self.apply_session_begin(session, begun);
            for (slot, s) in slots {
                let origin = crate::Origin { session, slot: slot as u32, sequence: s.sequence };
                self.apply_slot(origin, s.seq, s.answer);
            }
        }
        head.damage.iter().for_each(|d| self.apply_damage(d));
        *self.scrub.lock() = head.scrub;
        *self.service.lock() = head.service;
        let of_log = At { line: self.vol.label().epoch, seq: self.vol.checkpoint_seq() };
        if head.at.is_none() {
            self.mirror.set_unshipped(of_log.seq);
        }
        self.mirror.begin(head.at.unwrap_or(of_log));
        let wrong = |e: io::Error| StoreError::Corrupt(e.to_string());
        match objects {
            Objects::Leaves(base) => {
                self.index.leaves.free_all_but(&base, None).map_err(wrong)?;
                self.index.begin_with(base, head.totals);
                *self.named.lock() = head.named;
                self.space.lock().set_pages(head.pages);
                self.count_patches(head.pages.patched as i64);
            }
            Objects::Stream(objects) => {
                self.index.leaves.free_all_but(&Base::default(), Some(kept.clone())).map_err(wrong)?;
                *self.old_stream.lock() = Some(kept);
                objects.into_iter().try_for_each(|(id, state)| self.load_object(&id, state))?;
            }
        }
        Ok(())
    }

    /// Loads one object of a checkpoint of an earlier release.
    fn load_object(&self, id: &ObjectId, state: State) -> Result<(), StoreError> {
        let _object = self.index.load(id)?;
        self.count_patches(state.patches.len() as i64);
        state.extents.iter().for_each(|(_, e)| self.named.lock().add(e.run));
        self.space.lock().add_pages(&state);
        self.index.change(id, |s| *s = state);
        Ok(())
    }
}

fn put_head(head: &Head, base: &Base, buf: &mut Vec<u8>) {
    buf.extend_from_slice(&MAGIC);
    buf.extend_from_slice(&[VERSION, 0, 0, 0]);
    put_varint(buf, head.sessions.len() as u64);
    for (session, begun, slots) in &head.sessions {
        session.put(buf);
        put_varint(buf, begun.0);
        buf.push(slots.len() as u8);
        for (number, slot) in slots {
            buf.push(*number);
            put_varint(buf, slot.sequence as u64);
            put_varint(buf, slot.seq.0);
            put_varint(buf, slot.answer);
        }
    }
    put_varint(buf, head.damage.len() as u64);
    head.damage.iter().for_each(|d| put_damage(d, buf));
    put_scrub(&head.scrub, buf);
    put_service(&head.service, buf);
    let at = head.at.unwrap_or_default();
    at.line.put(buf);
    at.seq.put(buf);
    for n in [head.totals.objects, head.totals.bytes] {
        put_varint(buf, n);
    }
    for n in [head.pages.reserved, head.pages.patched, head.pages.patched_over] {
        put_varint(buf, n);
    }
    head.named.put(buf);
    put_base(base, buf);
}

fn put_base(base: &Base, buf: &mut Vec<u8>) {
    put_varint(buf, base.leaves.len() as u64);
    let (mut fid, mut place) = (0, 0);
    for leaf in &base.leaves {
        put_id(buf, &leaf.first, fid);
        fid = leaf.first.fid.0;
        put_varint(buf, leaf.objects);
        let Place { bytes, crc, runs } = &leaf.place;
        put_varint(buf, *bytes);
        crc.put(buf);
        put_varint(buf, runs.len() as u64);
        for run in runs {
            put_varint(buf, zigzag(run.start as i64 - place));
            put_varint(buf, run.pages as u64);
            place = run.end() as i64;
        }
    }
    if let Some(last) = &base.last {
        put_id(buf, last, fid);
    }
}

/// Reads a stream that `put_head` or an earlier release wrote; `InvalidData` if it is anything else.
/// `point`: where the log with the patches' bytes begins. `data_pages`: data pages of the medium.
pub fn read_checkpoint(from: &mut dyn Read, point: LogPoint, data_pages: u64) -> io::Result<(Head, Objects)> {
    let mut r = io::BufReader::with_capacity(256 << 10, from);
    let r = &mut r;
    let form: [u8; 8] = get_bytes(r)?;
    let version = form[4];
    if form[..4] != MAGIC || form[5..] != [0; 3] || !(VERSION_WITHOUT_SCRUB..=VERSION).contains(&version) {
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
    if version > VERSION_WITHOUT_PATCHES {
        let bytes: [u8; SERVICE_BYTES as usize] = get_bytes(r)?;
        service = get_service(&mut Reader::new(&bytes)).map_err(|_| malformed("service"))?;
    }
    let mut at = None;
    if version > VERSION_WITHOUT_PLACE {
        let line = Epoch(u32::from_le_bytes(get_bytes(r)?));
        at = Some(At { line, seq: Seq(u64::from_le_bytes(get_bytes(r)?)) });
    }
    let (mut totals, mut pages, mut named) = Default::default();
    let objects = if version > VERSION_OF_STREAM {
        totals = Totals { objects: get_varint(r)?, bytes: get_varint(r)? };
        pages = Pages { reserved: get_varint(r)?, patched: get_varint(r)?, patched_over: get_varint(r)? };
        named = Named::get(r, data_pages)?;
        Objects::Leaves(get_base(r)?)
    } else {
        let patches_after = (version > VERSION_WITHOUT_PATCHES).then_some(point.seq);
        Objects::Stream(get_stream(r, patches_after)?)
    };
    match r.read(&mut [0])? {
        0 => Ok((Head { sessions, damage, scrub, service, at, totals, pages, named }, objects)),
        _ => Err(malformed("bytes after the last object")),
    }
}

fn get_base(r: &mut impl Read) -> io::Result<Base> {
    let mut leaves: Vec<Arc<Leaf>> = Vec::new();
    let mut place = 0i64;
    for _ in 0..get_varint(r)? {
        let before = leaves.last().map(|leaf| leaf.first);
        let first = get_id(r, before.map_or(0, |id| id.fid.0))?;
        let (objects, bytes) = (get_varint(r)?, get_varint(r)?);
        let crc = u32::from_le_bytes(get_bytes(r)?);
        let mut runs = Vec::new();
        let mut room = 0;
        for _ in 0..get_varint(r)? {
            let start =
                place.checked_add(unzigzag(get_varint(r)?)).filter(|start| (0..1 << 48).contains(start));
            let start = start.ok_or_else(|| malformed("place of a leaf"))?;
            let pages = get_u32(r)?;
            runs.push(Run { start: start as u64, pages });
            room += u64::from(pages) * 4096;
            place = start + i64::from(pages);
        }
        // A leaf has exactly as many pages as its bytes need.
        if objects == 0
            || bytes == 0
            || bytes > room
            || room - bytes >= 4096
            || before.is_some_and(|b| first <= b)
        {
            return Err(malformed("leaf"));
        }
        leaves.push(Arc::new(Leaf::new(first, objects, Place { bytes, crc, runs })));
    }
    let last = match leaves.last() {
        Some(leaf) => Some(get_id(r, leaf.first.fid.0)?).filter(|last| *last >= leaf.first),
        None => None,
    };
    match last.is_some() == leaves.is_empty() {
        true => Err(malformed("last object")),
        false => Ok(Base { leaves, last }),
    }
}

fn get_stream(r: &mut impl Read, patches_after: Option<Seq>) -> io::Result<Vec<(ObjectId, State)>> {
    let mut objects: Vec<(ObjectId, State)> = Vec::new();
    for _ in 0..get_varint(r)? {
        let before = objects.last().map(|(id, _)| *id);
        let (id, state) = get_object(r, before.map_or(0, |id| id.fid.0), patches_after)?;
        if before.is_some_and(|before| id <= before) {
            return Err(malformed("object order"));
        }
        objects.push((id, state));
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
