//! The engine: its parts, and the one place where log order becomes apply order.
//!
//! Locks, in the order in which they may be taken: merge → following → sealing → checkpointing → tail → (shard → object) → space, sessions, damage,
//! scrub, service. During data I/O only a merge lock is held, by a thread that writes or cuts a part of a page. The tail is more than a
//! lock: tail.rs.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use disk::LogPoint;
use disk::freed::Freed;
use disk::volume::{Volume, VolumeError};
use parking_lot::Mutex;
use spent::Spent;
use types::{Epoch, ObjectId, PAGE_SIZE, Seq, SessionId};

use crate::records::error::{DamageKind, StoreError};
use crate::records::extent::{Extent, Site};
use crate::records::fill::{FillAttrs, FillRecord};
use crate::records::index::{Index, State, spread};
use crate::records::named::Named;
use crate::records::record::{
    self, At, PatchRecord, PunchRecord, Record, RepairRecord, ReserveRecord, TruncateRecord, WriteRecord,
};
use crate::records::settings::Settings;
use crate::records::shipped::{self, CONTENT_BYTES_MAX, Place};
use crate::state::finding::Finding;
use crate::state::lane::Lane;
use crate::state::mirror::{BatchError, Carried, Companion, Mirror};
use crate::state::overlay::Overlay;
use crate::state::readers::Readers;
use crate::state::room::{index_bytes_max, sessions_bytes_max};
use crate::state::slots::Session;
use crate::state::space::Space;
use crate::state::stages::Stages;
use crate::state::stats::Recorder;
use crate::state::tail::{Batch, Flight, Held, Member, Tail, Turn};
use crate::{Attrs, Done, Gate, Origin, Scrub, Service};
use disk::alloc::{Buddy, Run};

/// Locks of partial-page writers, shared by objects: enough that two objects seldom share one.
const MERGE_LOCKS: usize = 1024;
/// Most checkpoints that one request makes to free the log. Each frees the whole log, so a second one is needed only if other requests fill
/// the log in between.
const LOG_ROUNDS_MAX: usize = 8;

/// Settings that may change while the engine is used. Bytes.
pub(crate) struct Tuned {
    pub patch_bytes_max: AtomicU64,
    pub overlay_bytes_max: AtomicU64,
}

/// Objects on one volume. Made by `Engine::format` and `Engine::open`.
pub struct Engine {
    pub(crate) vol: Volume,
    /// Medium offset of the first data page, bytes.
    pub(crate) data_begin: u64,
    /// Bytes that objects may take in leaves, and sessions in a checkpoint's head.
    pub(crate) index_bytes_max: u64,
    pub(crate) sessions_bytes_max: u64,
    pub(crate) index: Index,
    /// Under the tail lock it has the state of the last entry.
    pub(crate) named: Mutex<Named>,
    /// Place of a checkpoint that an earlier release wrote, until the first new one is durable.
    pub(crate) old_stream: Mutex<Option<Range<u64>>>,
    pub(crate) space: Mutex<Space>,
    pub(crate) readers: Readers,
    pub(crate) mirror: Mirror,
    pub(crate) stages: Mutex<Stages>,
    /// Held while an entry of the primary is taken.
    pub(crate) following: Mutex<()>,
    pub(crate) lane: Lane,
    pub(crate) tail: Tail,
    pub(crate) overlay: Overlay,
    pub(crate) settings: Settings,
    pub(crate) tuned: Tuned,
    pub(crate) sessions: Mutex<HashMap<SessionId, Box<Session>>>,
    pub(crate) damage: Mutex<BTreeMap<(ObjectId, u64, DamageKind), Finding>>,
    /// Tests take its rules away.
    #[cfg(test)]
    pub(crate) repair_gone: Mutex<Option<crate::state::finding::Planted>>,
    pub(crate) scrub: Mutex<Scrub>,
    pub(crate) sealing: Mutex<()>,
    pub(crate) checkpointing: Mutex<()>,
    /// Taken before space, and under no other lock.
    pub(crate) discarding: Mutex<()>,
    /// Number of checkpoints since the start.
    pub(crate) checkpoints: AtomicU64,
    pub(crate) merging: Vec<Mutex<()>>,
    pub(crate) epoch: AtomicU32,
    pub(crate) recorder: Recorder,
    /// State at the open.
    pub(crate) service: Mutex<Service>,
    /// Pages that recovery could not read.
    pub(crate) unreadable: Mutex<Vec<(ObjectId, u32, Site)>>,
}

/// An entry without its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub seq: Seq,
    /// Its mirror seq; for a private entry that of the last public one.
    pub mirror_seq: Seq,
    /// The log's end before the entry, or an earlier point.
    pub point: LogPoint,
    pub origin: Option<Origin>,
    pub answer: u64,
}

/// An entry's payload with its probable answer, built before any lock is taken.
struct Draft {
    bytes: Vec<u8>,
    answer: u64,
}

thread_local! {
    /// Memory of this thread's last draft, for reuse.
    static DRAFT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Draft {
    fn new(origin: Option<Origin>, answer: u64, record: &Record) -> Draft {
        let mut bytes = DRAFT.take();
        bytes.clear();
        record::encode(origin, answer, record, &mut bytes);
        Draft { bytes, answer }
    }

    fn set_answer(&mut self, answer: u64) {
        if answer != self.answer {
            record::set_answer(&mut self.bytes, answer);
            self.answer = answer;
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        DRAFT.set(std::mem::take(&mut self.bytes));
    }
}

/// Why `admit` is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To build the entry. It will be asked again.
    Ahead,
    /// Under the tail's lock, with space in the log. The change comes next.
    ForGood,
}

/// Why a prepared change was not made.
pub(crate) enum Stop {
    /// The state that it was based on has changed. Prepare it anew.
    Again,
    Failed(StoreError),
}

impl From<StoreError> for Stop {
    fn from(e: StoreError) -> Stop {
        Stop::Failed(e)
    }
}

impl Engine {
    /// Writes below `patch_bytes_max` go to the log first; they take memory up to `overlay_bytes_max`. More than that is moved to its place.
    pub fn tune(&self, patch_bytes_max: u64, overlay_bytes_max: u64) {
        self.tuned.patch_bytes_max.store(patch_bytes_max, Ordering::Relaxed);
        self.tuned.overlay_bytes_max.store(overlay_bytes_max, Ordering::Relaxed);
    }

    /// An empty engine in which all pages count as used.
    pub(crate) fn new(vol: Volume, settings: Settings) -> Engine {
        let layout = vol.layout();
        let pages = (layout.data.end - layout.data.start) / PAGE_SIZE as u64;
        let slot_bytes = layout.slots[0].end - layout.slots[0].start;
        Engine {
            data_begin: layout.data.start,
            epoch: AtomicU32::new(vol.label().epoch.0),
            index_bytes_max: index_bytes_max(slot_bytes),
            sessions_bytes_max: sessions_bytes_max(slot_bytes, pages),
            index: Index::new(&vol, settings.index_bytes_max),
            named: Mutex::new(Named::none_of(pages)),
            old_stream: Mutex::default(),
            space: Mutex::new(Space::new(Buddy::all_used(pages), Freed::default())),
            vol,
            mirror: Mirror::default(),
            stages: Mutex::default(),
            following: Mutex::default(),
            lane: Lane::default(),
            readers: Readers::new(),
            tail: Tail::default(),
            overlay: Overlay::new(),
            tuned: Tuned {
                patch_bytes_max: u64::from(settings.patch_bytes_max).into(),
                overlay_bytes_max: settings.overlay_bytes_max.into(),
            },
            settings,
            sessions: Mutex::default(),
            damage: Mutex::default(),
            #[cfg(test)]
            repair_gone: Mutex::default(),
            scrub: Mutex::default(),
            sealing: Mutex::default(),
            checkpointing: Mutex::default(),
            discarding: Mutex::default(),
            checkpoints: AtomicU64::new(0),
            recorder: Recorder::default(),
            service: Mutex::default(),
            unreadable: Mutex::default(),
            merging: (0..MERGE_LOCKS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The volume below, for its label.
    pub fn volume(&self) -> &Volume {
        &self.vol
    }

    pub(crate) fn merge_lock(&self, object: &ObjectId) -> &Mutex<()> {
        &self.merging[spread(object) % MERGE_LOCKS]
    }

    /// store-S3: logs a record and applies it, in one order (tail.rs). `admit` is asked under the tail's lock, and returns the answer that
    /// is logged with the change. No other change comes between that could alter its result. It is also asked before, without the lock, so
    /// that the entry is built outside the lock.
    pub(crate) fn commit<E: From<StoreError>>(
        &self,
        origin: Option<Origin>,
        record: impl Into<Arc<Record>>,
        mut admit: impl FnMut() -> Result<u64, E>,
    ) -> Result<Done, E> {
        self.commit_carrying(origin, record, None, false, |_| admit())
    }

    /// As `commit`, with the record's pages for the other member of the mirror, and with a callback once the change is certain. `is_plain`: as for
    /// `Engine::touched`.
    pub(crate) fn commit_carrying<E: From<StoreError>>(
        &self,
        origin: Option<Origin>,
        record: impl Into<Arc<Record>>,
        mut carried: Option<Carried>,
        is_plain: bool,
        mut admit: impl FnMut(Asked) -> Result<u64, E>,
    ) -> Result<Done, E> {
        if self.index.is_full() {
            self.make_index_room()?;
        }
        let record = record.into();
        for _ in 0..LOG_ROUNDS_MAX {
            let mut draft = Draft::new(origin, admit(Asked::Ahead)?, &record);
            let max = self.vol.payload_bytes_max();
            if draft.bytes.len() > max {
                let len = draft.bytes.len();
                return Err(StoreError::from(VolumeError::TooLarge { len, max }).into());
            }
            if let Some(done) =
                self.try_commit(&mut draft, origin, (&record, is_plain), &mut carried, &mut admit)?
            {
                return Ok(done);
            }
            // store-S5: a checkpoint frees the log even if the data region is full.
            self.make_log_room()?;
        }
        Err(StoreError::NoSpace("the log stays full").into())
    }

    /// `None`: the log is full.
    fn try_commit<E: From<StoreError>>(
        &self,
        draft: &mut Draft,
        origin: Option<Origin>,
        (record, is_plain): (&Arc<Record>, bool),
        carried: &mut Option<Carried>,
        admit: &mut impl FnMut(Asked) -> Result<u64, E>,
    ) -> Result<Option<Done>, E> {
        // 1. Admit the change, by the state that it will change (store-T2).
        let mut touched = Engine::touched(record, carried.as_ref(), is_plain);
        let mut held = match &touched {
            Some(_) => self.tail.join(),
            None => self.tail.still(),
        };
        if touched.as_ref().is_some_and(|t| !self.is_shareable(record) || !held.takes_in(t)) {
            touched = None;
            held = held.wait_still();
        }
        let is_shared = touched.is_some();
        if !self.is_log_room(&held, draft.bytes.len()) {
            return Ok(None);
        }
        let answer = admit(Asked::ForGood)?;
        draft.set_answer(answer);
        // 2. Add it to the batch.
        assert!(draft.bytes.len() <= self.vol.payload_bytes_max(), "an entry fits into the log");
        assert!(
            is_shared || held.is_empty(),
            "store-T2: only overwrites and plain writes join changes under way"
        );
        let place = held.next.members.len();
        touched.into_iter().for_each(|touched| held.touch(touched));
        // The CRC is computed once the place in the mirror is known.
        held.next.entries.push(Epoch(self.epoch.load(Ordering::Relaxed)), &draft.bytes, 0);
        // A log that is full all the same leaves the record without its pages, which are then read where they were written.
        held.next.members.push(Member { origin, answer, record: record.clone(), carried: carried.take() });
        // 3. The leader writes and applies the batch.
        let outcome = match is_shared {
            false => held.write_alone(|batch, freed| self.write_batch(batch, freed)),
            true => {
                let (fate, rounds) = (held.next.fate.clone(), self.rounds_of(record));
                let lead = |held: Held<'_>| {
                    self.tail.lead(held, rounds, |batch| self.write_batch(batch, &mut Vec::new()))
                };
                if held.has_leader {
                    drop(held)
                } else {
                    lead(held)
                }
                loop {
                    match fate.wait(place, &self.tail.led) {
                        Turn::Lead => lead(self.tail.hold()),
                        Turn::Done(outcome) => break outcome,
                    }
                }
            }
        };
        match outcome {
            Ok(first) => Ok(Some(Done { seq: Seq(first.0 + place as u64), answer })),
            Err(BatchError::Volume(VolumeError::LogFull { .. })) => Ok(None),
            Err(e) => Err(StoreError::from(e).into()),
        }
    }

    /// Commits records that `build` makes of the state under the tail's lock, as one entry. It may be asked again. `None`: it made none.
    pub(crate) fn commit_built(
        &self,
        mut build: impl FnMut() -> Result<Vec<(Record, Option<Carried>)>, Stop>,
    ) -> Result<Option<Seq>, Stop> {
        if self.index.is_full() {
            self.make_index_room()?;
        }
        for _ in 0..LOG_ROUNDS_MAX {
            let mut held = self.tail.still();
            let built = build()?;
            if built.is_empty() {
                return Ok(None);
            }
            let mut batch = Batch::default();
            let line = Epoch(self.epoch.load(Ordering::Relaxed));
            for (record, carried) in built {
                let mut bytes = Vec::new();
                record::encode(None, 0, &record, &mut bytes);
                assert!(bytes.len() <= self.vol.payload_bytes_max(), "an entry fits into the log");
                batch.entries.push(line, &bytes, 0);
                batch.members.push(Member { origin: None, answer: 0, record: Arc::new(record), carried });
            }
            if self.is_log_room(&held, batch.entries.ring_bytes() as usize) {
                held.next = batch;
                match held.write_alone(|batch, freed| self.write_batch(batch, freed)) {
                    Ok(first) => return Ok(Some(first)),
                    Err(BatchError::Volume(VolumeError::LogFull { .. })) => {}
                    Err(e) => return Err(Stop::Failed(e.into())),
                }
            }
            drop(held);
            self.make_log_room()?;
        }
        Err(Stop::Failed(StoreError::NoSpace("the log stays full")))
    }

    /// store-T1: writes the whole batch to the log before it applies the first entry. store-RP1: between the two the other member of the
    /// mirror gets it. Returns the mirror seq of the first entry.
    fn write_batch(&self, batch: &mut Batch, freed: &mut Vec<Run>) -> Result<Seq, BatchError> {
        let before = Spent::now();
        let done = self.write_batch_whole(batch, freed);
        self.tail.led.note(&Spent::since(before));
        done
    }

    fn write_batch_whole(&self, batch: &mut Batch, freed: &mut Vec<Run>) -> Result<Seq, BatchError> {
        assert!(!batch.members.is_empty(), "a batch has an entry");
        self.mirror.check_alive()?;
        let is_public = batch.members[0].record.is_public();
        assert!(
            batch.members.iter().all(|m| m.record.is_public() == is_public),
            "a private record comes alone"
        );
        if !is_public {
            let before = self.log_batch(batch, None)?;
            self.apply_batch(batch, before, None, freed);
            return Ok(self.mirror.end());
        }
        // 1. Ready what travels, and the log: after the order nothing may fail.
        let companion = self.mirror.companion();
        let content = companion.as_ref().map(|_| self.content_of(batch)).transpose()?;
        if companion.is_some() {
            self.check_log_room(batch)?;
        }
        // From the log on, as entries are shipped from there too.
        let objects = batch.members.iter().flat_map(|member| member.record.objects()).copied();
        let _under_way = companion.as_ref().map(|_| self.mirror.under_way.begin(objects));
        // 2. Order.
        let place = self.next_place(companion.as_ref(), batch.members.len() as u32)?;
        // 3. Log.
        let before = match self.log_batch(batch, Some(place)) {
            Err(e) if companion.is_some() => {
                return Err(BatchError::Ended(self.mirror.end_life(StoreError::from(e).to_string())));
            }
            done => done?,
        };
        // 4. Commit.
        if let (Some(companion), Some(content)) = (&companion, &content) {
            self.commit_at(&**companion, place, content)?;
        }
        // 5. Apply.
        self.apply_batch(batch, before, Some(place), freed);
        Ok(place.first)
    }

    fn commit_at(&self, companion: &dyn Companion, place: Place, content: &[u8]) -> Result<(), BatchError> {
        let done = companion.commit(place, content);
        // store-RP2. Another thread may have ended this life meanwhile.
        done.map_err(|fault| BatchError::Ended(self.mirror.end_life(fault.to_string())))?;
        self.mirror.check_alive()
    }

    /// Leaves a part of the log for marks, so that an entry that was ordered finds space.
    fn check_log_room(&self, batch: &Batch) -> Result<(), VolumeError> {
        let (used, wanted, capacity) =
            (self.vol.log_used(), batch.entries.ring_bytes(), self.vol.log_capacity());
        match used > 0 && used + wanted > capacity / 32 * 31 {
            true => Err(VolumeError::LogFull { used, capacity, wanted }),
            false => Ok(()),
        }
    }

    /// The batch as it travels.
    fn content_of(&self, batch: &Batch) -> Result<Vec<u8>, BatchError> {
        let mut content = Vec::new();
        shipped::begin(batch.members.len() as u32, &mut content);
        for member in &batch.members {
            let refused = |e: StoreError| BatchError::Refused(e.into());
            self.put_member(member, &mut content).map_err(refused)?;
        }
        assert!(content.len() <= CONTENT_BYTES_MAX, "a batch fits a frame of the wire");
        Ok(content)
    }

    /// Writes a batch to the log, at its place in the mirror if it is public. Returns the log's end before it.
    pub(crate) fn log_batch(&self, batch: &mut Batch, place: Option<Place>) -> Result<LogPoint, BatchError> {
        assert_eq!(batch.entries.len(), batch.members.len(), "a batch has one entry per member");
        for i in 0..batch.members.len() {
            let at = place.map_or(At::default(), |p| At { line: p.line, seq: Seq(p.first.0 + i as u64) });
            batch.entries.edit(i, |payload| record::set_place(payload, at));
        }
        let before = self.vol.append_many(&mut batch.entries)?;
        let last = before.seq.0 + batch.members.len() as u64;
        assert!(self.vol.last_seq().0 >= last, "store-T1: the batch is in the log before it is applied");
        self.tail.note_written();
        Ok(before)
    }

    pub(crate) fn apply_batch(
        &self,
        batch: &Batch,
        before: LogPoint,
        place: Option<Place>,
        freed: &mut Vec<Run>,
    ) {
        let first = Seq(before.seq.0 + 1);
        match place {
            Some(Place { line, first: seq, .. }) => {
                self.mirror.note_public(first, At { line, seq }, batch.members.len() as u64)
            }
            None => self.mirror.note_private(first),
        }
        let mut point = before;
        for (i, (member, bytes)) in batch.members.iter().zip(batch.entries.sizes()).enumerate() {
            let seq = Seq(point.seq.0 + 1);
            let mirror_seq = place.map_or(self.mirror.end(), |p| Seq(p.first.0 + i as u64));
            let entry = Entry { seq, mirror_seq, point, origin: member.origin, answer: member.answer };
            self.apply(&entry, &member.record, freed);
            point = LogPoint { seq, pos: point.pos + bytes };
        }
        assert_eq!(
            point.seq.0,
            before.seq.0 + batch.members.len() as u64,
            "every entry of the batch is applied"
        );
        self.mirror.note_applied();
    }

    /// True if the log has space for an entry. A reserve stays for logging stuck patches again (destage.rs); without it the log could not
    /// be trimmed.
    pub(crate) fn is_log_room(&self, flight: &Flight, bytes: usize) -> bool {
        // In this order, a batch that is just being logged may count twice, but is never missed.
        let under_way = self.tail.writing_bytes() + flight.next.entries.ring_bytes();
        let used = self.vol.log_used() + under_way;
        used == 0 || used + bytes as u64 <= self.vol.log_capacity() / 16 * 15
    }

    /// Applies a record to the state in memory, live or replayed.
    pub(crate) fn apply(&self, entry: &Entry, record: &Record, freed: &mut Vec<Run>) {
        let &Entry { seq, mirror_seq, point, origin, answer } = entry;
        let (mut reserved, mut patched, mut over) = (0, 0, 0);
        let mut change = |id: &ObjectId, change: &mut dyn FnMut(&mut State)| {
            self.index.change(id, |state| {
                let before = (state.reserved.pages(), state.patches.len(), state.patches.over_pages());
                change(state);
                reserved = state.reserved.pages() as i64 - before.0 as i64;
                patched = state.patches.len() as i64 - before.1 as i64;
                over = state.patches.over_pages() as i64 - before.2 as i64;
            })
        };
        match record {
            Record::Write(w) => change(&w.object, &mut |state| apply_write(state, w, freed)),
            Record::Truncate(t) => change(&t.object, &mut |state| apply_truncate(state, t, freed)),
            Record::Reserve(r) => change(&r.object, &mut |state| apply_reserve(state, r)),
            Record::Release(r) => change(&r.object, &mut |state| {
                state.reserved.remove(r.first, r.limit);
                state.lease = state.lease.max(r.lease);
            }),
            Record::Punch(p) => change(&p.object, &mut |state| apply_punch(state, p, freed)),
            Record::Destroy { objects } => {
                for id in objects {
                    let state = self.index.remove(id);
                    freed.extend(state.extents.iter().map(|(_, e)| e.run));
                    reserved -= state.reserved.pages() as i64;
                    patched -= state.patches.len() as i64;
                    over -= state.patches.over_pages() as i64;
                }
            }
            Record::Fence { object, lease } => {
                self.index.change(object, |state| state.lease = state.lease.max(*lease))
            }
            Record::Nothing => {}
            Record::Patch(p) => {
                let mut begun = Vec::new();
                change(&p.object, &mut |state| apply_patch(state, p, seq, &mut begun));
                self.name_patches(&p.object, &begun, seq, point);
            }
            Record::Damage(d) => self.apply_damage(d),
            Record::DamageClear { fid } => self.apply_damage_clear(*fid),
            Record::Scrub(scrub) => *self.scrub.lock() = *scrub,
            Record::SessionBegin { session } => self.apply_session_begin(*session, mirror_seq),
            Record::SessionEnd { session } => self.apply_session_end(*session),
            Record::Fill(fill) if fill.placed.is_some() => {
                change(&fill.range.object, &mut |state| apply_fill(state, fill, freed))
            }
            Record::Repair(r) => {
                let is_compared = self.is_place_compared();
                change(&r.object, &mut |state| apply_repair(state, r, is_compared, freed));
                self.apply_repaired(r);
            }
            Record::FillSessions(fill) => self.apply_fill_sessions(fill),
            Record::Fill(_) | Record::FillEnd { .. } => {}
        }
        if let Some(origin) = origin {
            self.apply_slot(origin, mirror_seq, answer);
        }
        self.name_pages(record, freed);
        if let Record::Repair(RepairRecord { is_bad: true, before, .. }) = record {
            // No write is to find it before the next start, which takes it for free again.
            freed.retain(|run| run.start != *before);
        }
        if !freed.is_empty() || reserved != 0 || patched != 0 {
            let stamp = self.readers.changed();
            let mut space = self.space.lock();
            space.supersede(seq, stamp, freed);
            space.reserved = space.reserved.wrapping_add_signed(reserved);
            space.patched = space.patched.wrapping_add_signed(patched);
            space.patched_over = space.patched_over.wrapping_add_signed(over);
        }
        if patched != 0 {
            self.count_patches(patched);
        }
    }

    /// store-N1: updates the bits of named pages.
    fn name_pages(&self, record: &Record, freed: &[Run]) {
        let mut named = self.named.lock();
        freed.iter().for_each(|run| named.remove(*run));
        let one = |start: u64| Run { start, pages: 1 };
        match record {
            Record::Write(w) => w.placed.iter().for_each(|p| named.add(p.run)),
            Record::Truncate(t) => t.tail.iter().for_each(|(start, _)| named.add(one(*start))),
            Record::Punch(p) => p.zeroed.iter().for_each(|z| named.add(one(z.start))),
            Record::Fill(f) => {
                f.placed.iter().flat_map(|placed| &placed.runs).for_each(|run| named.add(*run))
            }
            // A page that was not moved has given up no place.
            Record::Repair(r) if freed.iter().any(|run| run.start == r.before) => named.add(one(r.start)),
            _ => {}
        }
    }

    /// Asks the caller's gate about the present state of the object.
    pub(crate) fn pass_gate(&self, object: &ObjectId, gate: Gate<'_>) -> Result<Attrs, StoreError> {
        let attrs = self.index.attrs(object);
        gate(&attrs).map_err(StoreError::Refused)?;
        Ok(attrs)
    }
}

fn apply_write(state: &mut State, w: &WriteRecord, freed: &mut Vec<Run>) {
    let mut skip = 0;
    for p in &w.placed {
        state.put(p.page, Extent::new(p.run, &w.crcs, skip), freed);
        state.reserved.remove(p.page, p.page + p.run.pages);
        skip += p.run.pages;
    }
    state.exists = true;
    state.len = state.len.max(w.end);
    state.mtime = state.mtime.max(w.mtime);
    state.lease = state.lease.max(w.lease);
}

/// Applies a patch. Appends to `begun` the pages whose patch begins with this entry.
fn apply_patch(state: &mut State, p: &PatchRecord, seq: Seq, begun: &mut Vec<u32>) {
    for f in &p.fragments {
        let has_page = state.extents.site(f.page).is_some();
        if state.patches.add(f, seq, has_page) {
            begun.push(f.page);
        }
        state.reserved.remove(f.page, f.page + 1);
    }
    state.exists = true;
    state.len = state.len.max(p.end());
    state.mtime = state.mtime.max(p.mtime);
    state.lease = state.lease.max(p.lease);
}

fn apply_truncate(state: &mut State, t: &TruncateRecord, freed: &mut Vec<Run>) {
    let page = types::PAGE_SIZE as u64;
    state.cut(t.len.div_ceil(page) as u32, u32::MAX, freed);
    state.reserved.remove(t.len.div_ceil(page) as u32, u32::MAX);
    if let Some((start, crc)) = t.tail {
        state.put((t.len / page) as u32, Extent::one(start, crc), freed);
    }
    state.exists = true;
    state.len = t.len;
    state.lease = state.lease.max(t.lease);
}

fn apply_reserve(state: &mut State, r: &ReserveRecord) {
    state.reserved.insert(r.first, r.limit);
    for (first, limit) in state.stretches(r.first, r.limit) {
        state.reserved.remove(first, limit);
    }
    state.exists = true;
    state.len = state.len.max(r.end);
    state.mtime = state.mtime.max(r.mtime);
    state.lease = state.lease.max(r.lease);
}

fn apply_punch(state: &mut State, p: &PunchRecord, freed: &mut Vec<Run>) {
    match p.is_kept {
        true => {
            let had = state.stretches(p.first, p.limit);
            had.into_iter().for_each(|(first, limit)| state.reserved.insert(first, limit));
        }
        false => state.reserved.remove(p.first, p.limit),
    }
    state.cut(p.first, p.limit, freed);
    for z in &p.zeroed {
        state.put(z.page, Extent::one(z.start, z.crc), freed);
    }
    state.mtime = state.mtime.max(p.mtime);
    state.lease = state.lease.max(p.lease);
}

/// A replay may find the page at another place, where it stays: folding small writes into pages is not logged.
fn apply_repair(state: &mut State, r: &RepairRecord, is_compared: bool, freed: &mut Vec<Run>) {
    let is_there = state.extents.site(r.page) == Some(Site { page: r.before, crc: r.crc });
    if is_there || !is_compared {
        // Patches over it stay: the extent alone has moved.
        state.extents.put(r.page, Extent::one(r.start, r.crc), freed);
    }
}

fn apply_fill(state: &mut State, fill: &FillRecord, freed: &mut Vec<Run>) {
    let range = &fill.range;
    state.cut(range.first, range.limit, freed);
    state.reserved.remove(range.first, range.limit);
    for (page, start, crc) in fill.sites() {
        state.put(page, Extent::one(start, crc), freed);
    }
    range.reserved.iter().for_each(|(first, limit)| state.reserved.insert(*first, *limit));
    let FillAttrs { exists, len, mtime, lease } = range.attrs;
    (state.exists, state.len, state.mtime, state.lease) = (exists, len, mtime, lease);
}
