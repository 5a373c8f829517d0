//! Destaging: folds the oldest patches (small writes that live in the log and in memory) into extents on the medium, many at once.
//!
//! Moving a patch to an extent writes no log entry: only stuck patches are logged again. The log tells the bytes of a patch, not their place. Recovery rebuilds the patches from the log until
//! a checkpoint names the new places.
//!
//! store-G1: the space of a page below a patch is reused only after a durable checkpoint no longer names it.
//! store-G2: a patch that changed while its page was being written stays. The page that was written is freed.
//! store-G3: the log is trimmed up to the oldest live patch, and no further.
//! store-G4: one destager runs at a time, and it holds no lock of a request while it reads and writes. A read of a hung device cannot be
//!     cancelled, so threads that wait for the destager's lock also check the device (`destager`).

use disk::LogPoint;
use parking_lot::MutexGuard;
use types::crc::crc32c;
use types::{Epoch, ObjectId, PAGE_SIZE, Seq};

use crate::records::error::StoreError;
use crate::records::extent::Extent;
use crate::records::patch::{Fragment, Patch};
use crate::records::record::{self, PatchRecord, Record};
use crate::state::engine::Engine;
use crate::state::overlay::{Name, Work};
use crate::state::space::{Purpose, Taken};
use crate::verbs::read::Unread;
use crate::verbs::small::FILL_PRESSED;
use disk::alloc::Run;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pages of one batch, 4 MiB: large enough for any drive's full rate, and done in a few milliseconds.
const BATCH_PAGES: usize = 1024;
/// Batches of one background round, 1 GiB. A stop waits for at most one round.
const BATCHES_MAX: usize = 256;
/// A thread that waits for the destager's lock checks the medium this often. The check costs nothing beside a batch.
const LOCK_CHECK: Duration = Duration::from_millis(100);
/// Rounds after which a patch is old. There is one round per commit interval.
const ROUNDS_OLD: usize = 5;

/// One whole page that is about to be written to an extent.
struct Job {
    name: Name,
    patch: Arc<Patch>,
    crc: u32,
}

impl Engine {
    /// Locks the destager. Fails if the medium is lost meanwhile, since the lock's holder may hang in a read (store-G4).
    fn destager(&self) -> Result<MutexGuard<'_, Work>, StoreError> {
        loop {
            if let Some(work) = self.overlay.destager.try_lock_for(LOCK_CHECK) {
                return Ok(work);
            }
            self.vol.check_media()?;
        }
    }

    /// A background round: folds old patches, or all of them if nothing was written since the last round.
    pub(crate) fn destage_old(&self) -> Result<(), StoreError> {
        self.overlay.queue.lock().stuck.clear();
        let now = self.vol.last_seq();
        let until = {
            let mut rounds = self.overlay.rounds.lock();
            let is_idle = rounds.back() == Some(&now);
            rounds.push_back(now);
            let old = if rounds.len() > ROUNDS_OLD { rounds.pop_front() } else { None };
            if is_idle { Some(now) } else { old }
        };
        // The lock is free between batches, for writers that need free space at once.
        for _ in 0..BATCHES_MAX {
            let Some(until) = until else { break };
            let mut work = self.destager()?;
            if self.destage_batch(&mut work, until)? == 0 {
                break;
            }
            self.overlay.ease();
        }
        let _work = self.destager()?;
        self.log_stuck_again()
    }

    /// Folds the oldest patches and trims the log until both are below their pressure limit. The background calls this after
    /// `wait_pressed`.
    pub(crate) fn relieve(&self) -> Result<(), StoreError> {
        while self.fullness() >= FILL_PRESSED && self.help()? {}
        Ok(())
    }

    /// One step of `relieve`. False: this step made no progress.
    pub(crate) fn help(&self) -> Result<bool, StoreError> {
        let mut work = self.destager()?;
        // The destager that held the lock may have done enough.
        if self.fullness() < FILL_PRESSED {
            return Ok(true);
        }
        let done = self.destage_batch(&mut work, Seq(u64::MAX))?;
        self.overlay.ease();
        self.log_stuck_again()?;
        // A checkpoint trims the log up to what is folded. Begun now, it ends before the log is full.
        let trims = self.trimmable() > self.vol.log_capacity() / 8 || self.is_much_folded();
        if trims {
            self.make_checkpoint()?;
            self.overlay.ease();
        }
        Ok(done > 0 || trims)
    }

    /// True once enough was folded since the last checkpoint. A recovery finds all of that unfolded again, in memory.
    pub(crate) fn is_much_folded(&self) -> bool {
        self.overlay.folded.load(Ordering::Relaxed) * PAGE_SIZE as u64 > self.overlay_bytes_max()
    }

    /// Folds patches until a batch folds none.
    pub(crate) fn destage_all(&self) -> Result<(), StoreError> {
        self.overlay.queue.lock().stuck.clear();
        loop {
            let mut work = self.destager()?;
            if self.destage_batch(&mut work, Seq(u64::MAX))? == 0 {
                return Ok(());
            }
        }
    }

    /// For writers that found the log full: folds until the log can be trimmed to its half, then checkpoints. A writer that waited for
    /// another one's checkpoint here returns at once.
    pub(crate) fn make_log_room(&self) -> Result<(), StoreError> {
        let seen = self.checkpoints.load(Ordering::Acquire);
        let mut work = self.destager()?;
        if self.checkpoints.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        while self.trimmable() < self.vol.log_capacity() / 2 {
            match self.destage_batch(&mut work, Seq(u64::MAX)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e @ StoreError::Volume(_)) => return Err(e),
                // No space, or an unwritable place: the checkpoint may still free some of the log.
                Err(_) => break,
            }
        }
        // The log keeps a reserve for these entries.
        match self.log_stuck_again() {
            Err(e @ StoreError::Volume(disk::VolumeError::Failed(_))) => Err(e),
            _ => self.make_checkpoint(),
        }
    }

    /// For writers that found no space: pages below patches become free once the patches are folded and checkpointed.
    pub(crate) fn make_space(&self) -> Result<(), StoreError> {
        self.destage_all()?;
        self.make_checkpoint()
    }

    /// Bytes of the log that a checkpoint would free now.
    pub(crate) fn trimmable(&self) -> u64 {
        let end = self.vol.position().pos;
        let from = self.oldest_patch().map_or(end, |oldest| oldest.pos);
        self.vol.log_used().saturating_sub(end.saturating_sub(from))
    }

    /// store-G3: the place in the log of the oldest live patch, if there is one.
    pub(crate) fn oldest_patch(&self) -> Option<LogPoint> {
        loop {
            let oldest = self.overlay.queue.lock().names.first().copied()?;
            if self.live(&oldest).is_some() {
                return Some(oldest.point());
            }
            self.overlay.queue.lock().remove(&oldest);
        }
    }

    /// The patch that `name` stands for, if it is still the same one.
    fn live(&self, name: &Name) -> Option<Arc<Patch>> {
        let object = self.index.get(&name.object)?;
        let state = object.read();
        state.patches.get(name.page).filter(|p| p.since() == name.since).cloned()
    }

    /// Counts live patches. The caller holds the tail lock.
    pub(crate) fn count_patches(&self, more: i64) {
        self.recorder.set_overlay(self.overlay.count(more) * PAGE_SIZE as u64);
    }

    /// Queues the patches of these pages, which began with entry `since`. The caller holds the tail lock.
    pub(crate) fn name_patches(&self, object: &ObjectId, pages: &[u32], since: Seq, point: LogPoint) {
        assert!(point.seq < since, "store-OV1: a name's point is before its entry");
        let name =
            |page: &u32| Name { pos: point.pos, since, object: *object, page: *page, before: point.seq };
        self.overlay.queue.lock().names.extend(pages.iter().map(name));
    }

    /// Folds up to `BATCH_PAGES` of the oldest patches that began at or before `until`. Returns how many names left the queue; 0: there
    /// is nothing to do now.
    fn destage_batch(&self, work: &mut Work, until: Seq) -> Result<usize, StoreError> {
        // The names stay queued, and keep the log from being trimmed, until their patches are gone.
        let mut dropped = 0;
        let names = loop {
            let names = self.overlay.queue.lock().oldest(BATCH_PAGES, until);
            let (live, dead): (Vec<Name>, Vec<Name>) =
                names.iter().partition(|name| self.live(name).is_some());
            let mut queue = self.overlay.queue.lock();
            dead.iter().for_each(|name| queue.remove(name));
            dropped += dead.len();
            // A page that is written often leaves many dead names. Then live ones follow, and the batch is filled with those.
            if dead.len() < BATCH_PAGES / 2 || live.len() + dead.len() < BATCH_PAGES {
                break live;
            }
        };
        let stuck = self.destage_names(work, &names)?;
        let gone: Vec<&Name> = names.iter().filter(|name| self.live(name).is_none()).collect();
        let mut queue = self.overlay.queue.lock();
        gone.iter().for_each(|name| queue.remove(name));
        queue.stuck.extend(stuck);
        Ok(dropped + gone.len())
    }

    /// Folds the patches of `names`. Returns the names that cannot be folded: the page below or the patch's bytes are damaged.
    fn destage_names(&self, work: &mut Work, names: &[Name]) -> Result<Vec<Name>, StoreError> {
        // 1. Sort, so that neighbouring pages of an object lie side by side.
        let mut found: Vec<(Name, Arc<Patch>)> =
            names.iter().filter_map(|name| Some((*name, self.live(name)?))).collect();
        found.sort_unstable_by_key(|(name, _)| (name.object, name.page));
        found.dedup_by_key(|(name, _)| (name.object, name.page));
        if found.is_empty() {
            return Ok(vec![]);
        }
        let count = found.len();
        assert!(count <= BATCH_PAGES, "a batch of the destager is bounded");
        // 2. Make whole pages, in one buffer.
        let unit = self.settings.write_unit as usize;
        let space = work.bytes.space((found.len() * PAGE_SIZE).next_multiple_of(unit));
        let reading = self.readers.begin();
        let is_read = self.read_below_all(&found, space);
        let (mut jobs, mut stuck) = (Vec::with_capacity(found.len()), Vec::new());
        for (i, (name, patch)) in found.into_iter().enumerate() {
            // A stuck page leaves no gap in the buffer.
            let (from, to) = (i * PAGE_SIZE, jobs.len() * PAGE_SIZE);
            space.copy_within(from..from + PAGE_SIZE, to);
            match self.fold(&name, &patch, &mut space[to..to + PAGE_SIZE], is_read)? {
                Some(crc) => jobs.push(Job { name, patch, crc }),
                None => stuck.push(name),
            }
        }
        drop(reading);
        assert_eq!(jobs.len() + stuck.len(), count, "each page of a batch is folded or stuck");
        let key = |job: &Job| (job.name.object, job.name.page);
        debug_assert!(
            jobs.is_sorted_by(|a, b| key(a) < key(b)),
            "the destager writes in object and page order"
        );
        if jobs.is_empty() {
            return Ok(stuck);
        }
        // 3. Write them to new places, in whole write units; the last one is padded.
        let unit_pages = unit / PAGE_SIZE;
        let wanted = jobs.len().next_multiple_of(unit_pages);
        let mut taken = match self.take(wanted as u32, jobs.len() as u64, Purpose::Destage) {
            Ok(taken) => taken,
            Err(StoreError::NoSpace(_)) if wanted > jobs.len() => {
                self.take(jobs.len() as u32, jobs.len() as u64, Purpose::Destage)?
            }
            Err(e) => return Err(e),
        };
        space[jobs.len() * PAGE_SIZE..].fill(0);
        // In one call: where free space is fragmented, the runs are many and short.
        let mut rest = &*space;
        let parts: Vec<(u64, &[u8])> = taken
            .runs
            .iter()
            .map(|run| {
                let (bytes, behind) = rest.split_at(run.pages as usize * PAGE_SIZE);
                rest = behind;
                (self.at(run.start), bytes)
            })
            .collect();
        if let Err(e) = self.try_parts(jobs[0].name.object, &parts) {
            if matches!(&e, StoreError::Medium { source, .. } if !disk::is_passing(source)) {
                // Withheld from allocation until the next checkpoint, so that the next batch gets other pages.
                let mut runs = std::mem::take(&mut taken.runs);
                self.space.lock().pin(&mut runs);
            }
            return Err(e);
        }
        parts.iter().for_each(|(_, bytes)| self.recorder.destaged(bytes.len()));
        // 4. Replace the patches by extents.
        self.move_in(&jobs, taken);
        Ok(stuck)
    }

    /// Reads the pages below partial patches in one call, each to its place in `space`. False: the read failed.
    fn read_below_all(&self, found: &[(Name, Arc<Patch>)], space: &mut [u8]) -> bool {
        let pages = found.iter().zip(space.chunks_exact_mut(PAGE_SIZE));
        let site = |name: &Name| self.index.get(&name.object)?.read().extents.site(name.page);
        let mut parts: Vec<(u64, &mut [u8])> = pages
            .filter(|((_, patch), _)| !patch.is_whole())
            .filter_map(|((name, _), bytes)| Some((self.at(site(name)?.page), bytes)))
            .collect();
        parts.sort_unstable_by_key(|(place, _)| *place);
        parts.is_empty() || self.vol.disk().read_many(&mut parts).is_ok()
    }

    /// Merges a patch into the page below, and returns the CRC of the whole page. `None`: the page below is damaged or gone, or the
    /// patch's bytes in memory are damaged. `is_read`: `bytes` has
    /// the page below already.
    fn fold(
        &self,
        name: &Name,
        patch: &Patch,
        bytes: &mut [u8],
        is_read: bool,
    ) -> Result<Option<u32>, StoreError> {
        if !patch.is_whole() {
            // store-P2: the page below changes only together with the patch, and then store-G2 drops this result.
            let site = self.index.get(&name.object).and_then(|o| o.read().extents.site(name.page));
            let Some(site) = site else { return Ok(None) };
            if !is_read || crc32c(bytes) != site.crc {
                let mut page = [0; PAGE_SIZE];
                match self.read_site(site, &mut page) {
                    Ok(()) => bytes.copy_from_slice(&page),
                    Err(Unread::Damage(_)) => return Ok(None),
                    Err(why) => return Err(self.unread(name.object, name.page, why)),
                }
            }
        }
        if !patch.is_sound() {
            return Ok(None);
        }
        patch.lay_over(bytes, 0);
        Ok(Some(patch.whole_crc().unwrap_or_else(|| crc32c(bytes))))
    }

    /// Replaces patches by extents at the pages' new places, under the tail lock.
    fn move_in(&self, jobs: &[Job], mut taken: Taken<'_>) {
        let count: usize = taken.runs.iter().map(|run| run.pages as usize).sum();
        assert!(count >= jobs.len(), "each page that is folded has a place");
        let mut places = taken.runs.iter().flat_map(|run| run.start..run.end());
        let mut freed: Vec<Run> = Vec::new();
        let mut unused: Vec<u64> = Vec::new();
        let (mut folded, mut over) = (0, 0);
        {
            let _tail = self.tail.still();
            for of_object in jobs.chunk_by(|a, b| a.name.object == b.name.object) {
                let id = of_object[0].name.object;
                let places: Vec<u64> = places.by_ref().take(of_object.len()).collect();
                // `change` would create the object again if it is gone.
                let Some(_kept) = self.index.get(&id) else {
                    unused.extend(places);
                    continue;
                };
                self.index.change(&id, |state| {
                    let over_before = state.patches.over_pages();
                    let is_same = |job: &Job| {
                        state.patches.get(job.name.page).is_some_and(|p| Arc::ptr_eq(p, &job.patch))
                    };
                    let kept: Vec<(u32, u64, u32)> = of_object
                        .iter()
                        .zip(places)
                        .filter(|(job, place)| {
                            let is_same = is_same(job);
                            // store-G2
                            if !is_same {
                                unused.push(*place);
                            }
                            is_same
                        })
                        .map(|(job, place)| (job.name.page, place, job.crc))
                        .collect();
                    folded += kept.len();
                    // Pages that are neighbours in the object and on the medium become one extent.
                    for near in kept.chunk_by(|a, b| a.0 + 1 == b.0 && a.1 + 1 == b.1) {
                        let crcs: Arc<[u32]> = near.iter().map(|(_, _, crc)| *crc).collect();
                        let run = Run { start: near[0].1, pages: near.len() as u32 };
                        state.put(near[0].0, Extent::new(run, &crcs, 0), &mut freed);
                    }
                    over += over_before - state.patches.over_pages();
                });
            }
            unused.extend(places);
            assert_eq!(folded + unused.len(), count, "store-G2: each place is used or freed");
            let below: u64 = freed.iter().map(|run| u64::from(run.pages)).sum();
            assert_eq!(below, over, "store-P2: the pages below folded patches are superseded, and no others");
            {
                let mut named = self.named.lock();
                freed.iter().for_each(|run| named.remove(*run));
                taken.runs.iter().for_each(|run| named.add(*run));
                unused.iter().for_each(|start| named.remove(Run { start: *start, pages: 1 }));
            }
            // The pages are in use now, so their reservation ends.
            taken.give_up_claim();
            let mut space = self.space.lock();
            space.patched -= folded as u64;
            space.patched_over -= over;
            space.pin(&mut freed);
            unused.iter().for_each(|place| space.buddy.give_back(*place, 1));
            drop(space);
            self.count_patches(-(folded as i64));
            self.overlay.folded.fetch_add(folded as u64, Ordering::Relaxed);
        }
        taken.runs.clear();
    }

    /// Logs stuck patches again once they keep a quarter of the log from being trimmed. They begin at their new entry then.
    fn log_stuck_again(&self) -> Result<(), StoreError> {
        let old = self.vol.position().pos.saturating_sub(self.vol.log_capacity() / 4);
        let stuck: Vec<Name> =
            self.overlay.queue.lock().stuck.iter().take_while(|name| name.pos < old).copied().collect();
        stuck.iter().try_for_each(|name| self.log_again(name))
    }

    fn log_again(&self, name: &Name) -> Result<(), StoreError> {
        let _tail = self.tail.still();
        self.mirror.check_alive()?;
        let Some(patch) = self.live(name) else {
            self.overlay.queue.lock().remove(name);
            return Ok(());
        };
        if !patch.is_sound() {
            // The bytes in memory are damaged. The log still has good ones, so the old entry stays: the log is not trimmed past it until
            // a restart or an overwrite.
            return Ok(());
        }
        let len = self.index.attrs(&name.object).len;
        let begin = name.page as u64 * PAGE_SIZE as u64;
        let point = self.vol.position();
        let mut first = None;
        for (from, to, bytes) in patch.parts() {
            let to = to.min(len.saturating_sub(begin) as usize);
            if from >= to {
                continue;
            }
            assert!(to <= PAGE_SIZE, "a part of a patch lies in its page");
            let bytes = &bytes[..to - from];
            let fragments = vec![Fragment::new(name.page, from, bytes, crc32c(bytes))];
            let (object, offset) = (name.object, begin + from as u64);
            let again = PatchRecord { object, offset, mtime: Default::default(), lease: 0, fragments };
            let mut out = Vec::new();
            record::encode(None, 0, &Record::Patch(again), &mut out);
            // The other member has these bytes by their first entry, so this one is private: its mirror seq is 0.
            let seq = self.vol.append(Epoch(self.epoch.load(Ordering::Relaxed)), &out)?;
            self.mirror.note_private(seq);
            first.get_or_insert(seq);
        }
        // All of it is past the object's end, so there was nothing to log.
        let Some(since) = first else { return Ok(()) };
        assert!(point.seq < since, "store-OV1: a patch logged again starts after the log's end before it");
        self.index.change(&name.object, |state| state.patches.begin_at(name.page, since));
        let again = Name { pos: point.pos, since, before: point.seq, ..*name };
        let mut queue = self.overlay.queue.lock();
        queue.remove(name);
        queue.names.insert(again);
        queue.stuck.insert(again);
        Ok(())
    }
}
