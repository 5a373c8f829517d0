//! Destaging: the oldest patches become extents, many at once, in one stretch of the medium.
//!
//! Nothing of it is logged. The log says what the bytes are, not where: until the next checkpoint a recovery finds the patches in
//! the log again, and the checkpoint names the new places.
//!
//! G1: what a page had below its patch is used again only after a checkpoint that does not name it is durable.
//! G2: a patch that changed while its page was written stays, and what was written goes back.
//! G3: the log is trimmed to the oldest live patch, and no further.
//! G4: one at a time, by whoever has the role; it takes no lock of a request while it reads and writes.

use disk::LogPoint;
use types::crc::crc32c;
use types::{Buf, Epoch, ObjectId, PAGE_SIZE, Seq};

use crate::alloc::Run;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::extent::Extent;
use crate::overlay::Name;
use crate::patch::{Fragment, Patch};
use crate::read::Unread;
use crate::record::{self, PatchRecord, Record};
use crate::small::FILL_PRESSED;
use crate::space::{Purpose, Taken};

use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pages of one batch, 4 MiB: large enough for any drive's full rate, and done in a few milliseconds.
const BATCH_PAGES: usize = 1024;
/// Rounds after which a patch is old; a round comes with each commit interval.
const ROUNDS_OLD: usize = 5;

/// A destager's working memory.
#[derive(Debug, Default)]
pub struct Work {
    bytes: Buf,
}

/// One page on its way to an extent.
struct Job {
    name: Name,
    patch: Arc<Patch>,
    crc: u32,
}

impl Engine {
    /// A round in the background: what is old is folded, and all if nothing was written since the last round.
    pub(crate) fn destage_old(&self) -> Result<(), StoreError> {
        let mut work = self.overlay.role.lock();
        self.retry_stuck();
        let now = self.vol.last_seq();
        let until = {
            let mut rounds = self.overlay.rounds.lock();
            let is_idle = rounds.back() == Some(&now);
            rounds.push_back(now);
            match (is_idle, rounds.len() > ROUNDS_OLD) {
                (true, _) => Some(now),
                (false, true) => rounds.pop_front(),
                (false, false) => None,
            }
        };
        if let Some(until) = until {
            while self.destage_batch(&mut work, until)? > 0 {}
        }
        Ok(())
    }

    /// Folds the oldest and trims the log until neither is pressed. For the background, when `wait_pressed` says so.
    pub(crate) fn relieve(&self) -> Result<(), StoreError> {
        while self.fullness() >= FILL_PRESSED && self.help()? {}
        Ok(())
    }

    /// One step of that; false if there is nothing left to do.
    pub(crate) fn help(&self) -> Result<bool, StoreError> {
        let mut work = self.overlay.role.lock();
        // Whoever waited for the role finds that some of it was done for him.
        if self.fullness() < FILL_PRESSED {
            return Ok(true);
        }
        let folded = self.destage_batch(&mut work, Seq(u64::MAX))?;
        self.overlay.ease();
        let is_stuck = !self.overlay.queue.lock().stuck.is_empty();
        if is_stuck {
            self.log_stuck_again()?;
        }
        // Half of what small writes may take of the log: a checkpoint now trims what is folded, and is done before it is full.
        let trims = self.trimmable() > self.vol.log_capacity() / 8;
        if trims {
            self.make_checkpoint()?;
            self.overlay.ease();
        }
        Ok(folded > 0 || trims)
    }

    /// Folds all, as far as that can be.
    pub(crate) fn destage_all(&self) -> Result<(), StoreError> {
        let mut work = self.overlay.role.lock();
        self.retry_stuck();
        while self.destage_batch(&mut work, Seq(u64::MAX))? > 0 {}
        Ok(())
    }

    /// Folds until the log may be trimmed to its half, as far as that can be, and checkpoints. For those who found the log full; who
    /// waited for another that did it is served.
    pub(crate) fn make_log_room(&self) -> Result<(), StoreError> {
        let seen = self.checkpoints.load(Ordering::Acquire);
        let mut work = self.overlay.role.lock();
        if self.checkpoints.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        while self.trimmable() < self.vol.log_capacity() / 2 {
            match self.destage_batch(&mut work, Seq(u64::MAX)) {
                Ok(0) => break,
                Ok(_) => {}
                // The checkpoint may help all the same.
                Err(StoreError::NoSpace(_)) => break,
                Err(e) => return Err(e),
            }
        }
        self.make_checkpoint()
    }

    /// Bytes of the log that a checkpoint would free now.
    pub(crate) fn trimmable(&self) -> u64 {
        let end = self.vol.position().pos;
        let from = self.oldest_patch().map_or(end, |oldest| oldest.pos);
        self.vol.log_used().saturating_sub(end - from)
    }

    /// G3: where the log begins to be needed, if any patch needs it.
    pub(crate) fn oldest_patch(&self) -> Option<LogPoint> {
        loop {
            let (front, kept) = {
                let queue = self.overlay.queue.lock();
                (queue.names.front().copied(), queue.kept())
            };
            let Some(front) = front else { return kept };
            if kept.is_some_and(|kept| kept.pos <= front.point.pos) {
                return kept;
            }
            if self.live(&front).is_some() {
                return Some(front.point);
            }
            let mut queue = self.overlay.queue.lock();
            if queue.names.front() == Some(&front) {
                queue.names.pop_front();
            }
        }
    }

    /// The patch that a name names, if it still does.
    fn live(&self, name: &Name) -> Option<Arc<Patch>> {
        let object = self.index.get(&name.object)?;
        let state = object.read();
        state.patches.get(name.page).filter(|p| p.since() == name.since).cloned()
    }

    /// Under the tail lock: so many more patches are live.
    pub(crate) fn count_patches(&self, more: i64) {
        self.recorder.set_overlay(self.overlay.count(more) * PAGE_SIZE as u64);
    }

    /// Under the tail lock: these pages' patches began with entry `since`.
    pub(crate) fn name_patches(&self, object: &ObjectId, pages: &[u32], since: Seq, point: LogPoint) {
        let names = pages.iter().map(|page| Name { object: *object, page: *page, since, point });
        self.overlay.queue.lock().names.extend(names);
    }

    /// Folds up to `BATCH_PAGES` of the oldest patches that began at or before `until`. Answers how many names are done with; 0: there
    /// is nothing to be done now.
    fn destage_batch(&self, work: &mut Work, until: Seq) -> Result<usize, StoreError> {
        // 1. The oldest. From here on until the end `flying` keeps the log for them.
        let names = self.overlay.queue.lock().take(BATCH_PAGES, until);
        let done = self.destage_names(work, &names);
        // 2. What changed meanwhile comes again.
        let stuck = done.as_deref().unwrap_or_default();
        let is_left = |name: &&Name| !stuck.contains(name) && self.live(name).is_some();
        let left: Vec<Name> = names.iter().filter(is_left).copied().collect();
        let mut queue = self.overlay.queue.lock();
        queue.flying = None;
        queue.stuck.extend(stuck);
        left.iter().rev().for_each(|name| queue.names.push_front(*name));
        done.map(|_| names.len() - left.len())
    }

    /// Answers with those that cannot be folded: what they lie over cannot be read.
    fn destage_names(&self, work: &mut Work, names: &[Name]) -> Result<Vec<Name>, StoreError> {
        // 1. Neighbours side by side.
        let mut found: Vec<(Name, Arc<Patch>)> =
            names.iter().filter_map(|name| Some((*name, self.live(name)?))).collect();
        found.sort_unstable_by_key(|(name, _)| (name.object, name.page));
        found.dedup_by_key(|(name, _)| (name.object, name.page));
        if found.is_empty() {
            return Ok(vec![]);
        }
        // 2. Whole pages, in one piece of memory.
        let unit = self.settings.write_unit as usize;
        let space = work.bytes.space((found.len() * PAGE_SIZE).next_multiple_of(unit));
        let (mut jobs, mut stuck) = (Vec::with_capacity(found.len()), Vec::new());
        let reading = self.readers.begin();
        for (name, patch) in found {
            let bytes = &mut space[jobs.len() * PAGE_SIZE..][..PAGE_SIZE];
            match self.fold(&name, &patch, bytes)? {
                Some(crc) => jobs.push(Job { name, patch, crc }),
                None => stuck.push(name),
            }
        }
        drop(reading);
        if jobs.is_empty() {
            return Ok(stuck);
        }
        // 3. To new places. Whole units are written, whatever of the last one is used.
        let unit_pages = unit / PAGE_SIZE;
        let wanted = jobs.len().next_multiple_of(unit_pages);
        let taken = match self.take(wanted as u32, jobs.len() as u64, Purpose::Destage) {
            Ok(taken) => taken,
            Err(StoreError::NoSpace(_)) if wanted > jobs.len() => {
                self.take(jobs.len() as u32, jobs.len() as u64, Purpose::Destage)?
            }
            Err(e) => return Err(e),
        };
        space[jobs.len() * PAGE_SIZE..].fill(0);
        let mut at = 0;
        for run in &taken.runs {
            let len = run.pages as usize * PAGE_SIZE;
            self.write_pages(jobs[0].name.object, run.start, &space[at..at + len])?;
            self.recorder.destaged(len);
            at += len;
        }
        // 4. There they are.
        self.move_in(&jobs, taken);
        Ok(stuck)
    }

    /// Makes a patch's page whole, and its CRC; `None` if what it lies over is damaged.
    fn fold(&self, name: &Name, patch: &Patch, bytes: &mut [u8]) -> Result<Option<u32>, StoreError> {
        if !patch.is_whole() {
            // The site cannot change under a patch that does not (I2 of `patch`); if it does, G2 throws this away.
            let site = self.index.get(&name.object).and_then(|o| o.read().extents.site(name.page));
            let Some(site) = site else { return Ok(None) };
            let mut page = [0; PAGE_SIZE];
            match self.read_site(site, &mut page) {
                Ok(()) => bytes.copy_from_slice(&page),
                Err(Unread::Damage(_)) => return Ok(None),
                Err(why) => return Err(self.unread(name.object, name.page, why)),
            }
        }
        if !patch.is_sound() {
            return Ok(None);
        }
        patch.lay_over(bytes, 0);
        Ok(Some(patch.whole_crc().unwrap_or_else(|| crc32c(bytes))))
    }

    /// The pages' new places take the patches' place.
    fn move_in(&self, jobs: &[Job], mut taken: Taken<'_>) {
        let mut places = taken.runs.iter().flat_map(|run| run.start..run.end());
        let mut freed: Vec<Run> = Vec::new();
        let mut unused: Vec<u64> = Vec::new();
        let (mut folded, mut over) = (0, 0);
        {
            let _tail = self.tail.lock();
            for of_object in jobs.chunk_by(|a, b| a.name.object == b.name.object) {
                let id = of_object[0].name.object;
                let places: Vec<u64> = places.by_ref().take(of_object.len()).collect();
                // An object that is gone must not be made again.
                if self.index.get(&id).is_none() {
                    unused.extend(places);
                    continue;
                }
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
                            // G2
                            if !is_same {
                                unused.push(*place);
                            }
                            is_same
                        })
                        .map(|(job, place)| (job.name.page, place, job.crc))
                        .collect();
                    folded += kept.len();
                    // Neighbours on both sides become one extent.
                    for near in kept.chunk_by(|a, b| a.0 + 1 == b.0 && a.1 + 1 == b.1) {
                        let crcs: Arc<[u32]> = near.iter().map(|(_, _, crc)| *crc).collect();
                        let run = Run { start: near[0].1, pages: near.len() as u32 };
                        state.put(near[0].0, Extent::new(run, &crcs, 0), &mut freed);
                    }
                    over += over_before - state.patches.over_pages();
                });
            }
            unused.extend(places);
            // The promise is kept.
            taken.give_up_claim();
            let mut space = self.space.lock();
            space.patched -= folded as u64;
            space.patched_over -= over;
            space.pin(&mut freed);
            unused.iter().for_each(|place| space.buddy.give_back(*place, 1));
            drop(space);
            self.count_patches(-(folded as i64));
        }
        taken.runs.clear();
    }

    /// What could not be folded is tried again.
    fn retry_stuck(&self) {
        let mut queue = self.overlay.queue.lock();
        let stuck = std::mem::take(&mut queue.stuck);
        stuck.into_iter().rev().for_each(|name| queue.names.push_front(name));
    }

    /// What cannot be folded must not hold the log for ever: its bytes are logged again, and begin there.
    fn log_stuck_again(&self) -> Result<(), StoreError> {
        let stuck = std::mem::take(&mut self.overlay.queue.lock().stuck);
        for (i, name) in stuck.iter().enumerate() {
            if let Err(e) = self.log_again(name) {
                self.overlay.queue.lock().stuck.extend(&stuck[i..]);
                return Err(e);
            }
        }
        Ok(())
    }

    fn log_again(&self, name: &Name) -> Result<(), StoreError> {
        let _tail = self.tail.lock();
        let Some(patch) = self.live(name) else { return Ok(()) };
        let len = self.index.attrs(&name.object).len;
        let begin = name.page as u64 * PAGE_SIZE as u64;
        let point = self.vol.position();
        let mut first = None;
        for (from, to, bytes) in patch.parts() {
            let to = to.min(len.saturating_sub(begin) as usize);
            if from >= to {
                continue;
            }
            let bytes = &bytes[..to - from];
            let fragments = vec![Fragment::new(name.page, from, bytes, crc32c(bytes))];
            let (object, offset) = (name.object, begin + from as u64);
            let again = PatchRecord { object, offset, mtime: Default::default(), lease: 0, fragments };
            let mut out = Vec::new();
            record::encode(None, 0, &Record::Patch(again), &mut out);
            let seq = self.vol.append(Epoch(self.epoch.load(Ordering::Relaxed)), &out)?;
            first.get_or_insert(seq);
        }
        let since = first.unwrap_or(name.since);
        self.index.change(&name.object, |state| state.patches.begin_at(name.page, since));
        let mut queue = self.overlay.queue.lock();
        queue.names.push_back(Name { since, point, ..*name });
        Ok(())
    }
}
