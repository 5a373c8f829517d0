//! Free space: allocates pages for data, and frees superseded pages when that is safe (store-O1).
//!
//! Superseded runs wait in log order until the entry that superseded them is sealed. Before that a recovery may need their old bytes. Runs
//! that no entry named are freed at once.
//!
//! store-R1: the pages that are free, or become free by sealing, cover all promised pages that are not taken yet: promises to objects, and
//!     to clients (`grants`).

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use disk::volume::VolumeError;
use types::{ObjectId, PAGE_SIZE, Seq, SessionId};

use crate::records::error::StoreError;
use crate::records::index::State;
use crate::state::engine::Engine;
use crate::state::grants::{Grants, Spent};
use disk::alloc::{Buddy, Run};
use disk::freed::Freed;

/// Page counts over all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pages {
    pub reserved: u64,
    pub patched: u64,
    /// Patched pages that have a data page below the patch.
    pub patched_over: u64,
}

/// Sealing rounds before a request is refused, since another writer may take the pages that a round freed.
const SEAL_ROUNDS_MAX: usize = 3;
/// Pages that writes may not take: 1/256 of the medium, at most 64 MiB, at least 16 pages. Truncation to the middle of a page
/// rewrites that page and must work on a full medium.
pub fn reserve_pages(total: u64) -> u64 {
    (total / 256).clamp(16, 16 << 10).min(total / 2)
}

/// Most waits of a request for readers that still use freed places; and for overwrites under way, or because other requests took the pages
/// that were sealed while enough others wait.
const READER_WAITS_MAX: u32 = 10_000;
const WRITER_WAITS_MAX: u32 = 2_000;
/// The same for the destager, which readers may wait for.
const DESTAGE_WAITS_MAX: u32 = 5;
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// The use of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Does not touch the reserve.
    Write,
    /// May take the last page.
    Reserved,
    /// For patches, whose places are promised. It must not wait for anything that needs space in the log.
    Destage,
}

#[derive(Debug)]
pub struct Space {
    pub(crate) buddy: Buddy,
    /// Superseded runs, each with its superseding entry and stamp, in log order.
    waiting: VecDeque<(Seq, u64, Run)>,
    waiting_pages: u64,
    /// store-G1: runs that destaging replaced, free after the next checkpoint.
    pinned: Vec<Run>,
    /// Runs that were pinned and now wait for readers only, each with its stamp, in order.
    seen: VecDeque<(u64, Run)>,
    /// Pages of `pinned`, of `seen`, and of runs that a checkpoint under way will free.
    pinned_pages: u64,
    /// Reserved pages of all objects.
    pub(crate) reserved: u64,
    /// Pages with a patch, of all objects. Each needs a place later.
    pub(crate) patched: u64,
    /// Patched pages with a page below, which becomes free then.
    pub(crate) patched_over: u64,
    /// Pages that are about to be reserved or patched.
    held: u64,
    /// Pages kept for clients.
    pub(crate) grants: Grants,
    /// Changes that have taken pages and are not logged yet. The pages that they supersede are about to become free.
    on_their_way: u64,
    /// Promised pages for which writes under way have taken space already.
    claimed: u64,
    /// Freed space that is to be discarded.
    pub(crate) freed: Freed,
}

impl Space {
    /// `freed`: free space that is to be discarded.
    pub fn new(buddy: Buddy, freed: Freed) -> Space {
        Space {
            buddy,
            waiting: VecDeque::new(),
            waiting_pages: 0,
            pinned: Vec::new(),
            seen: VecDeque::new(),
            pinned_pages: 0,
            reserved: 0,
            patched: 0,
            patched_over: 0,
            held: 0,
            grants: Grants::default(),
            on_their_way: 0,
            claimed: 0,
            freed,
        }
    }
    /// Sums over all objects.
    pub fn pages(&self) -> Pages {
        Pages { reserved: self.reserved, patched: self.patched, patched_over: self.patched_over }
    }
    pub fn set_pages(&mut self, pages: Pages) {
        (self.reserved, self.patched, self.patched_over) =
            (pages.reserved, pages.patched, pages.patched_over);
    }
    /// Adds the pages of an object.
    pub fn add_pages(&mut self, state: &State) {
        self.reserved += state.reserved.pages();
        self.patched += state.patches.len() as u64;
        self.patched_over += state.patches.over_pages();
    }
    pub fn total_pages(&self) -> u64 {
        self.buddy.total_pages()
    }
    /// Pages that can be taken now.
    pub fn free_pages(&self) -> u64 {
        self.buddy.free_pages()
    }
    /// Pages that become free by sealing or by a checkpoint.
    pub fn waiting_pages(&self) -> u64 {
        self.waiting_pages + self.pinned_pages
    }
    /// True if sealing would free something.
    pub fn is_unsealed(&self) -> bool {
        self.waiting_pages > 0
    }

    /// True if some pages wait for readers only.
    pub fn is_seen(&self, sealed: Seq) -> bool {
        !self.seen.is_empty() || self.waiting.front().is_some_and(|(seq, _, _)| *seq <= sealed)
    }

    /// Queues runs that become free with the next checkpoint.
    pub fn pin(&mut self, runs: &mut Vec<Run>) {
        self.pinned_pages += runs.iter().map(|r| r.pages as u64).sum::<u64>();
        self.pinned.append(runs);
    }
    /// The runs that a checkpoint, which begins now, will free.
    pub fn take_pinned(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.pinned)
    }
    /// Takes the runs of a failed checkpoint back.
    pub fn put_pinned(&mut self, mut runs: Vec<Run>) {
        self.pinned.append(&mut runs);
    }
    /// Frees the runs of a durable checkpoint, once readers have gone.
    pub fn unpin(&mut self, runs: Vec<Run>, stamp: u64) {
        self.seen.extend(runs.into_iter().map(|run| (stamp, run)));
    }

    /// Allocation unit in pages.
    pub fn unit_pages(&self) -> u64 {
        self.buddy.unit_pages()
    }

    /// Pages that must stay free because they are promised.
    pub fn promised_pages(&self) -> u64 {
        (self.reserved + self.patched + self.held + self.grants.pages()).saturating_sub(self.claimed)
    }
    /// Free pages that are not promised, with the reserve.
    pub fn unpromised_pages(&self) -> u64 {
        self.free_pages().saturating_sub(self.promised_pages())
    }

    /// Queues runs that entry `seq` superseded. Entries come in order.
    pub fn supersede(&mut self, seq: Seq, stamp: u64, runs: &mut Vec<Run>) {
        let is_last = self.waiting.back().is_none_or(|(last, at, _)| *last <= seq && *at <= stamp);
        assert!(is_last, "store-O1: superseded runs wait in log order, and their stamps rise");
        for run in runs.drain(..) {
            self.waiting_pages += run.pages as u64;
            self.waiting.push_back((seq, stamp, run));
        }
    }

    /// store-H1: frees runs that entries up to `sealed` superseded and that no reader may use.
    fn reclaim(&mut self, sealed: Seq, unseen: impl FnOnce() -> u64) {
        // Most small writes find nothing to free, and asking for readers touches many cache lines.
        if !self.is_seen(sealed) {
            return;
        }
        let unseen = unseen();
        while let Some((seq, stamp, run)) = self.waiting.front().copied()
            && seq <= sealed
            && stamp <= unseen
        {
            self.waiting.pop_front();
            assert!(self.waiting_pages >= run.pages as u64, "waiting pages are the sum of the waiting runs");
            self.waiting_pages -= run.pages as u64;
            self.free(run);
        }
        while let Some((stamp, run)) = self.seen.front().copied()
            && stamp <= unseen
        {
            self.seen.pop_front();
            assert!(
                self.pinned_pages >= run.pages as u64,
                "pinned pages count the runs that wait for readers"
            );
            self.pinned_pages -= run.pages as u64;
            self.free(run);
        }
        assert!(!self.waiting.is_empty() || self.waiting_pages == 0, "no run waits, so no page does");
    }

    fn free(&mut self, run: Run) {
        self.buddy.give_back(run.start, run.pages as u64);
        self.freed.add(run);
    }
}

/// Pages that were taken and that no entry names yet. Dropping them frees them.
pub struct Taken<'a> {
    engine: &'a Engine,
    pub runs: Vec<Run>,
    /// Promised pages among them.
    claim: Cell<u64>,
    /// The part that came out of a grant.
    spent: Option<Spent>,
}

impl Taken<'_> {
    /// An entry names them now.
    pub fn keep(mut self) {
        self.runs.clear();
        self.spent = None;
    }

    /// True if they came out of a grant.
    pub fn is_granted(&self) -> bool {
        self.spent.is_some()
    }

    /// Ends the claim before the entry is applied, which ends the promise. In between the pages count as promised and as taken. At worst
    /// that refuses a request for a moment; in the other order a request could take promised pages.
    pub fn give_up_claim(&self) {
        let claim = self.claim.take();
        if claim > 0 {
            let mut space = self.engine.space.lock();
            assert!(space.claimed >= claim, "a claim is counted until it ends");
            space.claimed -= claim;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.give_up_claim();
        let mut space = self.engine.space.lock();
        space.on_their_way -= 1;
        // store-RP2: an entry of the log may name them. Another write would make a recovery cut that entry.
        if self.engine.mirror.has_ended() {
            return;
        }
        self.runs.iter().for_each(|r| space.buddy.give_back(r.start, r.pages as u64));
        self.spent.into_iter().for_each(|spent| space.grants.put_back(spent));
    }
}

/// Pages that are about to be reserved. Dropping it ends that.
pub struct Held<'a> {
    engine: &'a Engine,
    pub pages: u64,
    spent: Option<Spent>,
}

impl Held<'_> {
    /// An entry has reserved or patched them.
    pub fn keep(mut self) {
        self.spent = None;
    }

    /// True if they came out of a grant.
    pub fn is_granted(&self) -> bool {
        self.spent.is_some()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut space = self.engine.space.lock();
        assert!(space.held >= self.pages, "held pages are counted until they are dropped");
        space.held -= self.pages;
        self.spent.into_iter().for_each(|spent| space.grants.put_back(spent));
    }
}

impl Engine {
    /// Takes `pages` pages, of which `claim` are promised to the caller. Pages that wait to be sealed are space too: they are sealed before
    /// the call returns `NoSpace`.
    pub(crate) fn take(&self, pages: u32, claim: u64, purpose: Purpose) -> Result<Taken<'_>, StoreError> {
        self.take_near(pages, None, claim, purpose, None)
    }

    /// As `take`, at `near` if that is free, where the object's stream goes on. If all free pages are promised, takes them out of the grant
    /// of `holder`.
    pub(crate) fn take_near(
        &self,
        pages: u32,
        near: Option<u64>,
        claim: u64,
        purpose: Purpose,
        holder: Option<SessionId>,
    ) -> Result<Taken<'_>, StoreError> {
        let wanted = Wanted { pages: pages.into(), claim, purpose, holder };
        self.with_space(wanted, |space| {
            let mut runs = Vec::new();
            let spent = match wanted.fits(space, space.free_pages()) {
                true => None,
                false => Some(space.grants.spend(holder?, wanted.beyond_claim(space))?),
            };
            if !space.buddy.take(pages, near, &mut runs) {
                // store-R1: enough becomes free by sealing.
                spent.into_iter().for_each(|spent| space.grants.put_back(spent));
                return None;
            }
            let count: u64 = runs.iter().map(|run| u64::from(run.pages)).sum();
            assert_eq!(count, u64::from(pages), "the allocator gives as many pages as were asked for");
            let is_inside = runs.iter().all(|run| run.pages > 0 && run.end() <= space.total_pages());
            assert!(is_inside, "allocated runs lie in the data region");
            space.claimed += claim;
            space.on_their_way += 1;
            if purpose == Purpose::Write && spent.is_none() && u64::from(pages) != claim {
                assert!(
                    space.promised_pages() <= space.free_pages(),
                    "store-R1: a write leaves the promised pages"
                );
            }
            Some(Taken { engine: self, runs, claim: Cell::new(claim), spent })
        })
    }

    /// Sets `pages` pages aside, so that they can be promised.
    pub(crate) fn hold(&self, pages: u64, holder: Option<SessionId>) -> Result<Held<'_>, StoreError> {
        let wanted = Wanted { pages, claim: 0, purpose: Purpose::Write, holder };
        self.with_space(wanted, |space| {
            let promised = space.promised_pages();
            let spent = match wanted.fits(space, space.free_pages()) {
                true => None,
                // The promise of a grant becomes this one.
                false => Some(space.grants.spend(holder?, pages)?),
            };
            space.held += pages;
            let (free, now) = (space.free_pages(), space.promised_pages());
            match spent {
                Some(_) => assert_eq!(now, promised, "store-Q1: pages of a spent grant stay promised"),
                None => assert!(pages == 0 || now <= free, "store-R1: pages that are held are free"),
            }
            Some(Held { engine: self, pages, spent })
        })
    }

    pub(crate) fn with_space<T>(
        &self,
        wanted: Wanted,
        mut try_it: impl FnMut(&mut Space) -> Option<T>,
    ) -> Result<T, StoreError> {
        let purpose = wanted.purpose;
        let (mut round, mut reader_waits, mut writer_waits, mut has_folded) = (0, 0, 0, false);
        loop {
            let (is_waiting, is_unsealed, is_seen, is_coming, is_patched) = {
                let mut space = self.space.lock();
                self.reclaim(&mut space);
                if let Some(done) = try_it(&mut space) {
                    return Ok(done);
                }
                let is_seen = space.is_seen(self.vol.sealed_seq());
                (
                    space.waiting_pages() > 0,
                    space.is_unsealed(),
                    is_seen,
                    space.on_their_way > 0 || (!is_seen && wanted.will_fit(&space)),
                    space.patched_over > 0,
                )
            };
            // Readers end soon. On a hung device the deadline ends them.
            let waits_max = if purpose == Purpose::Destage { DESTAGE_WAITS_MAX } else { READER_WAITS_MAX };
            if is_seen && reader_waits < waits_max {
                reader_waits += 1;
                std::thread::sleep(SHORT_WAIT);
                continue;
            }
            // After the last round the request waits only for pages that other changes are about to supersede, or took first.
            if !is_waiting || round == SEAL_ROUNDS_MAX {
                // Pages below patches become free by destaging. The destager itself must not wait for that.
                if is_patched && !std::mem::replace(&mut has_folded, true) && purpose != Purpose::Destage {
                    round = 0;
                    match self.make_space() {
                        Err(e @ StoreError::Volume(_)) => return Err(e),
                        // Everything that can be folded is folded.
                        Ok(()) | Err(_) => continue,
                    }
                }
                if is_coming && writer_waits < WRITER_WAITS_MAX {
                    writer_waits += 1;
                    round = 0;
                    std::thread::sleep(SHORT_WAIT);
                    continue;
                }
                break;
            }
            round += 1;
            // A checkpoint seals too, and needs no space in the log.
            match is_unsealed && purpose != Purpose::Destage && round < SEAL_ROUNDS_MAX {
                true => self.seal()?,
                false => self.make_checkpoint()?,
            }
        }
        Err(StoreError::NoSpace("the medium is full"))
    }

    /// Frees runs that are sealed and that no reader may use.
    fn reclaim(&self, space: &mut Space) {
        space.reclaim(self.vol.sealed_seq(), || self.readers.unseen());
    }

    /// Flushes, logs the flush mark, and flushes that. Afterwards everything acknowledged before the call is sealed (store-O1).
    pub(crate) fn seal(&self) -> Result<(), StoreError> {
        let wanted = self.vol.last_seq();
        let _one = self.sealing.lock();
        // The holder before may have sealed this call's entries too.
        if self.vol.sealed_seq() >= wanted {
            return Ok(());
        }
        self.vol.flush()?;
        self.mark_flushed()?;
        self.vol.flush()?;
        Ok(())
    }

    /// Logs the flush mark. A full log is checkpointed instead, which has the same effect.
    pub(crate) fn mark_flushed(&self) -> Result<(), StoreError> {
        self.mirror.check_alive()?;
        match self.vol.mark() {
            Err(VolumeError::LogFull { .. }) => self.make_log_room(),
            other => Ok(other?),
        }
    }

    /// Frees runs that a durable checkpoint no longer names.
    pub(crate) fn unpin(&self, runs: Vec<Run>, stamp: u64) {
        let mut space = self.space.lock();
        space.unpin(runs, stamp);
        self.reclaim(&mut space);
    }

    /// Frees what is possible, in the background, so that writers seldom must.
    pub(crate) fn reclaim_now(&self) {
        self.reclaim(&mut self.space.lock());
    }

    pub(crate) fn write_pages(&self, object: ObjectId, page: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_parts(object, &[(self.at(page), bytes)])
    }

    /// Writes whole pages at medium offsets of the data region, all at once. The caller has no other place for them.
    pub(crate) fn write_parts(&self, object: ObjectId, parts: &[(u64, &[u8])]) -> Result<(), StoreError> {
        self.try_parts(object, parts).inspect_err(|e| {
            if let StoreError::Medium { source, .. } = e {
                self.vol.troubles().note_refused("the medium refuses a write", source);
            }
        })
    }

    /// As `write_parts`, for a caller that tries other places.
    pub(crate) fn try_parts(&self, object: ObjectId, parts: &[(u64, &[u8])]) -> Result<(), StoreError> {
        let region = self.vol.data_region();
        let is_inside =
            |(at, bytes): &(u64, &[u8])| *at >= region.start && at + bytes.len() as u64 <= region.end;
        assert!(parts.iter().all(is_inside), "data is written to the data region only");
        let is_whole = |(at, bytes): &(u64, &[u8])| {
            ((at - region.start) as usize).is_multiple_of(PAGE_SIZE) && bytes.len().is_multiple_of(PAGE_SIZE)
        };
        assert!(parts.iter().all(is_whole), "data is written in whole pages");
        let _place = self.lane.enter(parts.iter().map(|(_, bytes)| bytes.len()).sum());
        self.vol.disk().write_many(parts).map_err(|source| match disk::is_full(&source) {
            // A sparse medium may promise more than its host file system has. The pages are freed, and the store goes on.
            true => StoreError::NoSpace("the file system that holds this target is full"),
            // The error names the place.
            false => StoreError::Medium { object, at: parts.first().map_or(0, |p| p.0), source },
        })
    }

    /// Medium offset of a page of the data region.
    pub(crate) fn at(&self, page: u64) -> u64 {
        self.data_begin + page * PAGE_SIZE as u64
    }
}

/// A request for space.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub pages: u64,
    /// Promised pages among them.
    pub claim: u64,
    pub purpose: Purpose,
    /// The session whose grant may be used.
    pub holder: Option<SessionId>,
}

impl Wanted {
    /// True if the request may take its pages out of so many free ones.
    fn fits(&self, space: &Space, free_pages: u64) -> bool {
        let kept = match self.purpose {
            // store-S6: a request for promised pages only always fits.
            Purpose::Write if self.pages == self.claim => 0,
            Purpose::Write => {
                reserve_pages(space.total_pages()) + space.promised_pages().saturating_sub(self.claim)
            }
            Purpose::Reserved | Purpose::Destage => 0,
        };
        free_pages >= kept + space.buddy.rounded(self.pages)
    }

    /// True if the request fits once all waiting pages are free, unless another request takes them first.
    fn will_fit(&self, space: &Space) -> bool {
        let free_pages = space.free_pages() + space.waiting_pages();
        let is_granted =
            || self.holder.is_some_and(|holder| space.grants.has(holder, self.beyond_claim(space)));
        space.waiting_pages() > 0
            && (self.fits(space, free_pages)
                || (is_granted() && free_pages >= space.buddy.rounded(self.pages)))
    }

    fn beyond_claim(&self, space: &Space) -> u64 {
        space.buddy.rounded(self.pages) - self.claim
    }
}
