//! The standby's side of a mirror: takes entries of the primary into log and state, with places of its own.
//!
//! Destaging, checkpoints, flushes and the scrub run here as at any store. A standby that has no space for an entry ends with `NoSpace`: it
//! cannot go on without the entry, and is in sync again once it has space and was resynced.
//!
//! store-RP6: an entry waits for no checkpoint: its sender's seat would give no promise meanwhile. The destager is called early, and an entry
//!     that finds the log or the index full is put off (`has_room_to_follow`). The owner bounds how long.

use std::sync::Arc;

use disk::alloc::Run;
use disk::volume::VolumeError;
use types::crc::crc32c;
use types::{Epoch, Incarnation, ObjectId, PAGE_SIZE};

use crate::Origin;
use crate::records::codec::{EXTENT_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::records::error::StoreError;
use crate::records::fill::{FillPlaces, FillRange, FillRecord};
use crate::records::index::{Object, State};
use crate::records::record::{self, Placed, PunchRecord, Record, TruncateRecord, WriteRecord, Zeroed};
use crate::records::shipped::{Change, Form, Item, Pages, Place, Shipped, StageId, Wrote, decode};
use crate::state::engine::Engine;
use crate::state::mirror::{BatchError, Companion, gap};
use crate::state::room::Wish;
use crate::state::space::{Held, Purpose, Taken};
use crate::state::tail::{Batch, Member};
use crate::verbs::small::FILL_PRESSED;

/// The log's part of a record, beside its bytes: the head of its entry, origin, answer and places.
const RECORD_BYTES: usize = 192;
/// Checkpoints that one entry makes to free the log.
const LOG_ROUNDS_MAX: usize = 8;

/// The space that an entry takes from the medium until it is applied.
#[derive(Default)]
struct Claims<'a> {
    taken: Vec<Taken<'a>>,
    held: Vec<Held<'a>>,
    staged: Vec<StageId>,
    /// The entry has a page that the primary has lost.
    has_lost: bool,
}

impl Engine {
    /// Stores pages for an entry that follows. Without space for them it does nothing: the entry then comes with its pages.
    pub fn stage(&self, id: StageId, pages: &[u8]) -> Result<(), StoreError> {
        if pages.is_empty() || !pages.len().is_multiple_of(PAGE_SIZE) {
            return Err(StoreError::Foreign(format!("{} staged bytes are no whole pages", pages.len())));
        }
        self.shrink_stages(self.staged_bytes_max().saturating_sub(pages.len() as u64));
        let mut taken = match self.take((pages.len() / PAGE_SIZE) as u32, 0, Purpose::Write) {
            Ok(taken) => taken,
            Err(StoreError::NoSpace(_)) => return Ok(()),
            Err(e) => return Err(e),
        };
        match self.write_to(&taken.runs, pages, ObjectId::default()) {
            Ok(()) => {}
            Err(StoreError::NoSpace(_)) => return Ok(()),
            Err(e) => return Err(e),
        }
        let crcs = pages.chunks_exact(PAGE_SIZE).map(crc32c).collect();
        let runs = std::mem::take(&mut taken.runs);
        drop(taken);
        let before = self.stages.lock().add(id, runs, crcs);
        before.into_iter().for_each(|stage| self.free_stage(stage));
        Ok(())
    }

    /// False: the entry names pages that are not here, or it is malformed. Stages that it names are kept for it.
    pub fn can_append(&self, content: &[u8]) -> bool {
        let Ok(items) = decode(content) else { return false };
        let mut stages = self.stages.lock();
        items.iter().all(|item| match &item.change {
            Change::Write(Wrote { pages: Pages::Staged(id), crcs, .. })
            | Change::Fill { pages: Pages::Staged(id), crcs, .. } => stages.name(*id, crcs),
            _ => true,
        })
    }

    /// store-RP6. False: the entry would wait until a checkpoint has freed the log or the index; the destager is called.
    pub fn has_room_to_follow(&self, content: &[u8]) -> bool {
        let Ok(items) = decode(content) else { return true };
        // Pages do not go to the log.
        let pages: usize = items.iter().map(|item| pages_inside(&item.change)).sum();
        let bytes = (content.len() - pages * PAGE_SIZE + items.len() * RECORD_BYTES) as u64;
        let (used, capacity) = (self.vol.log_used(), self.vol.log_capacity());
        // One that is large for the log goes the slow way.
        let is_log_room = bytes > capacity / 4 || used + bytes <= capacity / 16 * 15;
        if is_log_room && !self.index.is_full() {
            return true;
        }
        self.overlay.ring();
        false
    }

    /// Takes the primary's next entry into log and state (store-RP4).
    pub fn append_shipped(&self, entry: &Shipped) -> Result<(), StoreError> {
        let _one = self.following.lock();
        self.mirror.check_alive()?;
        let place = entry.place;
        let items = decode(&entry.content).map_err(|e| StoreError::Foreign(e.to_string()))?;
        if !self.mirror.is_standby() {
            return Err(StoreError::Foreign("this member orders entries itself".into()));
        }
        let end = self.mirror.end();
        if place.first.0 != end.0 + 1 || place.last.0 != end.0 + items.len() as u64 {
            return Err(StoreError::Foreign(gap(place, end)));
        }
        if self.index.is_full() {
            self.make_index_room()?;
        }
        // 1. Give the pages places of this medium, without any lock.
        let mut claims = Claims::default();
        let mut batch = Batch::default();
        let mut kept = Vec::new();
        for item in &items {
            let record = self.place_item(item, &mut claims, &mut kept)?;
            push(&mut batch, place.line, (item.origin, item.answer), record);
        }
        // 2. Log and apply.
        let claimed = &claims.taken;
        self.log_following(batch, Some(place), || claimed.iter().for_each(Taken::give_up_claim))?;
        // 3. The pages are named now.
        claims.taken.into_iter().for_each(Taken::keep);
        claims.held.into_iter().for_each(Held::keep);
        let mut stages = self.stages.lock();
        claims.staged.iter().for_each(|id| drop(stages.take(*id)));
        drop(stages);
        // At a primary the writers call it.
        if self.fullness() >= FILL_PRESSED {
            self.overlay.ring();
        }
        // Recovery would cut an unflushed entry whose page does not match its CRC.
        if claims.has_lost { self.seal() } else { Ok(()) }
    }

    /// `place`: `None` of records of this member alone.
    pub(crate) fn log_following(
        &self,
        mut batch: Batch,
        place: Option<Place>,
        is_certain: impl Fn(),
    ) -> Result<(), StoreError> {
        let bytes = batch.entries.ring_bytes();
        for _ in 0..LOG_ROUNDS_MAX {
            let held = self.tail.still();
            if self.is_log_room(&held, bytes as usize) {
                match self.log_batch(&mut batch, place) {
                    Ok(before) => {
                        is_certain();
                        self.apply_batch(&batch, before, place, &mut Vec::new());
                        return Ok(());
                    }
                    Err(BatchError::Volume(VolumeError::LogFull { .. })) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            drop(held);
            self.make_log_room()?;
        }
        Err(StoreError::NoSpace("the log stays full"))
    }

    /// The record of this volume for a record of the entry. Writes its pages.
    fn place_item<'a>(
        &'a self,
        item: &Item<'_>,
        claims: &mut Claims<'a>,
        kept: &mut Vec<Arc<Object>>,
    ) -> Result<Record, StoreError> {
        match &item.change {
            Change::Plain(record) => {
                for id in record.objects() {
                    kept.push(self.index.load(id)?);
                }
                self.claim_plain(record, claims)?;
                Ok(record.clone())
            }
            Change::Write(w) => {
                kept.push(self.index.load(&w.object)?);
                self.place_write(w, claims)
            }
            Change::Fill { range, crcs, pages } => {
                kept.push(self.index.load(&range.object)?);
                self.place_fill(range, (pages, crcs), claims)
            }
            Change::Truncate { object, len, lease, tail } => {
                kept.push(self.index.load(object)?);
                let tail = tail.map(|form| self.place_page(*object, &form, claims)).transpose()?;
                Ok(Record::Truncate(TruncateRecord { object: *object, len: *len, lease: *lease, tail }))
            }
            Change::Punch { object, first, limit, is_kept, mtime, lease, zeroed } => {
                kept.push(self.index.load(object)?);
                let mut placed = Vec::new();
                for (page, form) in zeroed {
                    let (start, crc) = self.place_page(*object, form, claims)?;
                    placed.push(Zeroed { page: *page, start, crc });
                }
                Ok(Record::Punch(PunchRecord {
                    object: *object,
                    first: *first,
                    limit: *limit,
                    is_kept: *is_kept,
                    mtime: *mtime,
                    lease: *lease,
                    zeroed: placed,
                }))
            }
        }
    }

    /// Space that a record without places promises (store-W1, store-S6).
    fn claim_plain<'a>(&'a self, record: &Record, claims: &mut Claims<'a>) -> Result<(), StoreError> {
        let pages = match record {
            Record::Patch(p) => {
                let (first, limit) = (p.fragments[0].page, p.fragments[0].page + p.fragments.len() as u32);
                let patched = |s: &State| s.patches.range(first, limit).count() as u64;
                self.lacking_of(&p.object, first, limit, patched)
            }
            Record::Reserve(r) => self.lacking_of(&r.object, r.first, r.limit, |s| s.count(r.first, r.limit)),
            Record::SessionBegin { session } if !self.has_room_for(*session) => {
                return Err(StoreError::NoSpace("no room for one more session"));
            }
            _ => 0,
        };
        if pages > 0 {
            self.check_index_room(OBJECT_BYTES_MAX + pages * (EXTENT_BYTES_MAX + 4), Wish::Fence)?;
            claims.held.push(self.with_stages_as_space(|| self.hold(pages, None))?);
        }
        Ok(())
    }

    /// Pages of a range that are neither reserved nor counted by `has`.
    fn lacking_of(&self, id: &ObjectId, first: u32, limit: u32, has: impl Fn(&State) -> u64) -> u64 {
        let all = u64::from(limit - first);
        let Some(object) = self.index.get(id) else { return all };
        let state = object.read();
        all.saturating_sub(state.reserved.count(first, limit) + has(&state))
    }

    fn place_write<'a>(&'a self, w: &Wrote<'_>, claims: &mut Claims<'a>) -> Result<Record, StoreError> {
        let (count, limit) = (w.crcs.len() as u32, w.first + w.crcs.len() as u32);
        let claim = || self.index.get(&w.object).map_or(0, |o| o.read().reserved.count(w.first, limit));
        let runs = self.place_pages(w.object, (&w.pages, &w.crcs), claim, claims)?;
        self.check_index_room(OBJECT_BYTES_MAX + u64::from(count) * (EXTENT_BYTES_MAX + 4), Wish::Fence)?;
        let mut page = w.first;
        let place = |run: Run| {
            let placed = Placed { page, run };
            page += run.pages;
            placed
        };
        Ok(Record::Write(WriteRecord {
            object: w.object,
            end: w.end,
            mtime: w.mtime,
            lease: w.lease,
            placed: runs.into_iter().map(place).collect(),
            crcs: w.crcs.clone().into(),
        }))
    }

    /// Space that the fill frees is for later entries, and is not counted on for this one.
    fn place_fill<'a>(
        &'a self,
        range: &FillRange,
        (pages, crcs): (&Pages<'_>, &[u32]),
        claims: &mut Claims<'a>,
    ) -> Result<Record, StoreError> {
        let runs = match crcs.is_empty() {
            true => vec![],
            false => self.place_pages(range.object, (pages, crcs), || 0, claims)?,
        };
        let reserved: u64 = range.reserved.iter().map(|(first, limit)| u64::from(limit - first)).sum();
        let had =
            self.index.get(&range.object).map_or(0, |o| o.read().reserved.count(range.first, range.limit));
        let wanted = (crcs.len() as u64 + reserved) * (EXTENT_BYTES_MAX + 4);
        self.check_index_room(OBJECT_BYTES_MAX + wanted, Wish::Fence)?;
        if reserved > had {
            claims.held.push(self.with_stages_as_space(|| self.hold(reserved - had, None))?);
        }
        let placed = Some(FillPlaces { runs, crcs: crcs.into() });
        Ok(Record::Fill(FillRecord { range: range.clone(), placed }))
    }

    /// Places for the pages of a record: those of its stage, or new ones, which are written. `claim`: pages that are reserved for them.
    fn place_pages<'a>(
        &'a self,
        object: ObjectId,
        (pages, crcs): (&Pages<'_>, &[u32]),
        claim: impl Fn() -> u64,
        claims: &mut Claims<'a>,
    ) -> Result<Vec<Run>, StoreError> {
        match pages {
            Pages::Staged(id) => {
                let stages = self.stages.lock();
                let Some(runs) = stages.runs(*id, crcs) else {
                    return Err(StoreError::Foreign(format!("stage {} is not here", id.0)));
                };
                claims.staged.push(*id);
                Ok(runs.to_vec())
            }
            Pages::Inline(forms) => {
                let count = crcs.len() as u32;
                let taken = self.with_stages_as_space(|| self.take(count, claim(), Purpose::Write))?;
                let mut bytes = Vec::with_capacity(forms.len() * PAGE_SIZE);
                for form in forms {
                    match form {
                        Form::Bytes(page) => bytes.extend_from_slice(page),
                        Form::Zeros | Form::Lost => bytes.resize(bytes.len() + PAGE_SIZE, 0),
                    }
                    claims.has_lost |= *form == Form::Lost;
                }
                self.write_to(&taken.runs, &bytes, object)?;
                let runs = taken.runs.clone();
                claims.taken.push(taken);
                Ok(runs)
            }
        }
    }

    /// Writes a page that was cut or punched in a part. Returns its place and CRC.
    fn place_page<'a>(
        &'a self,
        object: ObjectId,
        form: &Form<'_>,
        claims: &mut Claims<'a>,
    ) -> Result<(u64, u32), StoreError> {
        let taken = self.with_stages_as_space(|| self.take(1, 0, Purpose::Reserved))?;
        let zeros = [0; PAGE_SIZE];
        let bytes = if let Form::Bytes(page) = form { page } else { &zeros[..] };
        claims.has_lost |= *form == Form::Lost;
        self.write_to(&taken.runs, bytes, object)?;
        let start = taken.runs[0].start;
        claims.taken.push(taken);
        Ok((start, form.crc()))
    }

    /// Tries again without stages if there is no space: an entry that is here counts more than pages of entries that may come.
    fn with_stages_as_space<T>(&self, take: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match take() {
            Err(StoreError::NoSpace(_)) => {
                self.shrink_stages(0);
                take()
            }
            done => done,
        }
    }

    fn write_to(&self, runs: &[Run], mut bytes: &[u8], object: ObjectId) -> Result<(), StoreError> {
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let (now, rest) = bytes.split_at(run.pages as usize * PAGE_SIZE);
            parts.push((self.at(run.start), now));
            bytes = rest;
        }
        assert!(bytes.is_empty(), "pages that travel get a place each");
        self.write_parts(object, &parts)
    }

    /// Ends the standby: the member orders entries from here on. `above`: the highest incarnation that the mirror ever showed. Returns the
    /// new one. The whole log is flushed.
    pub fn promote(
        &self,
        above: Incarnation,
        companion: Option<Arc<dyn Companion>>,
    ) -> Result<Incarnation, StoreError> {
        let _one = self.following.lock();
        // No mark may come between the flush and the new life.
        let _sealing = self.sealing.lock();
        let _tail = self.tail.still();
        let incarnation = self.vol.begin_life(above)?;
        self.shrink_stages(0);
        self.mirror.set_companion(companion);
        self.mirror.set_standby(false);
        Ok(incarnation)
    }
}

/// Pages whose bytes are in the entry.
fn pages_inside(change: &Change<'_>) -> usize {
    let is_inside = |form: &&Form<'_>| matches!(form, Form::Bytes(_));
    match change {
        Change::Write(Wrote { pages: Pages::Inline(forms), .. })
        | Change::Fill { pages: Pages::Inline(forms), .. } => forms.iter().filter(is_inside).count(),
        Change::Truncate { tail, .. } => tail.iter().filter(is_inside).count(),
        Change::Punch { zeroed, .. } => zeroed.iter().filter(|(_, form)| is_inside(&form)).count(),
        Change::Write(_) | Change::Fill { .. } | Change::Plain(_) => 0,
    }
}

pub(crate) fn push(batch: &mut Batch, line: Epoch, (origin, answer): (Option<Origin>, u64), record: Record) {
    let mut bytes = Vec::new();
    record::encode(origin, answer, &record, &mut bytes);
    batch.entries.push(line, &bytes, 0);
    batch.members.push(Member { origin, answer, record: Arc::new(record), carried: None });
}
