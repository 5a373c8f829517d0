//! Space: taking pages for data, and giving superseded ones back when that is safe (store-O1).
//!
//! Superseded runs wait in log order until the entry that superseded them is sealed; only then can no recovery want to see
//! their old bytes. Runs that were taken and never named by an entry go back at once.
//!
//! store-R1: as many pages are free, or free once what waits is sealed, as are promised and not taken yet: to objects, and to clients
//! (`grants`).

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

/// Pages of all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pages {
    pub reserved: u64,
    pub patched: u64,
    /// Those of them that have a page below.
    pub patched_over: u64,
}

/// Sealing rounds before a look at whether the medium is full: another writer may take what the first round freed.
const SEAL_ROUNDS_MAX: usize = 3;
/// Pages that writes may not take: 1/256 of the medium, at most 64 MiB, at least 16 pages. Truncation to the middle of a page
/// rewrites that page and must work on a full medium.
pub fn reserve_pages(total: u64) -> u64 {
    (total / 256).clamp(16, 16 << 10).min(total / 2)
}

/// How often who lacks space waits for readers of places that are free but for them; and for overwrites under way, or because others
/// were quicker to take what was sealed while enough for him waits again.
const READER_WAITS_MAX: u32 = 10_000;
const WRITER_WAITS_MAX: u32 = 2_000;
/// A destager has the role that readers may wait for.
const DESTAGE_WAITS_MAX: u32 = 5;
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// What the pages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Leaves the reserve alone.
    Write,
    /// May take the last page.
    Reserved,
    /// For patches, which have their places promised. It may wait for nothing that needs room in the log.
    Destage,
}

#[derive(Debug)]
pub struct Space {
    pub(crate) buddy: Buddy,
    /// Superseded runs with the entry that superseded them and its stamp, in log order.
    waiting: VecDeque<(Seq, u64, Run)>,
    waiting_pages: u64,
    /// Runs that destaging left, which the next checkpoint names no more (store-G1 of `destage`).
    pinned: Vec<Run>,
    /// Once pinned, and now only seen by readers: with the stamp, in order.
    seen: VecDeque<(u64, Run)>,
    /// These, those before, and those that a checkpoint under way will free.
    pinned_pages: u64,
    /// Of all objects, pages that are reserved.
    pub(crate) reserved: u64,
    /// Of all objects, pages with a patch: each will want a place.
    pub(crate) patched: u64,
    /// Those of them that have a page below, which is free then.
    pub(crate) patched_over: u64,
    /// About to be reserved or patched.
    held: u64,
    /// Kept for clients.
    pub(crate) grants: Grants,
    /// Changes that have taken pages and are not logged yet: what they supersede is about to be free.
    on_their_way: u64,
    /// Of the promised ones, those that writes under way have taken space for.
    claimed: u64,
    /// What to discard.
    pub(crate) freed: Freed,
}

impl Space {
    /// `freed`: what is to be discarded of what is free.
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
    /// Of all objects.
    pub fn pages(&self) -> Pages {
        Pages { reserved: self.reserved, patched: self.patched, patched_over: self.patched_over }
    }
    pub fn set_pages(&mut self, pages: Pages) {
        (self.reserved, self.patched, self.patched_over) =
            (pages.reserved, pages.patched, pages.patched_over);
    }
    /// With those of one more.
    pub fn add_pages(&mut self, state: &State) {
        self.reserved += state.reserved.pages();
        self.patched += state.patches.len() as u64;
        self.patched_over += state.patches.over_pages();
    }
    pub fn total_pages(&self) -> u64 {
        self.buddy.total_pages()
    }
    /// What can be taken.
    pub fn free_pages(&self) -> u64 {
        self.buddy.free_pages()
    }
    /// What will be free once what superseded it is sealed, or checkpointed.
    pub fn waiting_pages(&self) -> u64 {
        self.waiting_pages + self.pinned_pages
    }
    /// True if sealing would free something.
    pub fn is_unsealed(&self) -> bool {
        self.waiting_pages > 0
    }

    /// True if something is kept for readers only.
    pub fn is_seen(&self, sealed: Seq) -> bool {
        !self.seen.is_empty() || self.waiting.front().is_some_and(|(seq, _, _)| *seq <= sealed)
    }

    /// Takes over runs that are free after the next checkpoint.
    pub fn pin(&mut self, runs: &mut Vec<Run>) {
        self.pinned_pages += runs.iter().map(|r| r.pages as u64).sum::<u64>();
        self.pinned.append(runs);
    }
    /// At a checkpoint's begin: what its end frees.
    pub fn take_pinned(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.pinned)
    }
    /// The checkpoint came to nothing.
    pub fn put_pinned(&mut self, mut runs: Vec<Run>) {
        self.pinned.append(&mut runs);
    }
    /// The checkpoint is durable.
    pub fn unpin(&mut self, runs: Vec<Run>, stamp: u64) {
        self.seen.extend(runs.into_iter().map(|run| (stamp, run)));
    }

    /// Space is given out in pieces of this many pages.
    pub fn unit_pages(&self) -> u64 {
        self.buddy.unit_pages()
    }

    /// What must stay free for those to whom it was promised.
    pub fn promised_pages(&self) -> u64 {
        (self.reserved + self.patched + self.held + self.grants.pages()).saturating_sub(self.claimed)
    }
    /// What anybody may take, but for the reserve.
    pub fn unpromised_pages(&self) -> u64 {
        self.free_pages().saturating_sub(self.promised_pages())
    }

    /// Queues runs that entry `seq` superseded. Entries come in order.
    pub fn supersede(&mut self, seq: Seq, stamp: u64, runs: &mut Vec<Run>) {
        for run in runs.drain(..) {
            self.waiting_pages += run.pages as u64;
            self.waiting.push_back((seq, stamp, run));
        }
    }

    /// Frees what entries up to `sealed` superseded and nobody sees (store-H1 of `readers`).
    fn reclaim(&mut self, sealed: Seq, unseen: impl FnOnce() -> u64) {
        // Most writes of small bytes find nothing, and who reads is a look at many cache lines.
        if !self.is_seen(sealed) {
            return;
        }
        let unseen = unseen();
        while let Some((seq, stamp, run)) = self.waiting.front().copied()
            && seq <= sealed
            && stamp <= unseen
        {
            self.waiting.pop_front();
            self.waiting_pages -= run.pages as u64;
            self.free(run);
        }
        while let Some((stamp, run)) = self.seen.front().copied()
            && stamp <= unseen
        {
            self.seen.pop_front();
            self.pinned_pages -= run.pages as u64;
            self.free(run);
        }
    }

    fn free(&mut self, run: Run) {
        self.buddy.give_back(run.start, run.pages as u64);
        self.freed.add(run);
    }
}

/// Pages that were taken and are not yet named by an entry. Dropped, they go back.
pub struct Taken<'a> {
    engine: &'a Engine,
    pub runs: Vec<Run>,
    /// How many of the pages were promised.
    claim: Cell<u64>,
    /// What of them came out of a grant.
    spent: Option<Spent>,
}

impl Taken<'_> {
    /// An entry names them now.
    pub fn keep(mut self) {
        self.runs.clear();
        self.spent = None;
    }

    /// Did they come out of a grant?
    pub fn is_granted(&self) -> bool {
        self.spent.is_some()
    }

    /// Before the entry is applied, which takes the promise away: counted in between as promised and as taken, which at worst
    /// refuses somebody for a moment; the other way round somebody could take what is promised.
    pub fn give_up_claim(&self) {
        let claim = self.claim.take();
        if claim > 0 {
            self.engine.space.lock().claimed -= claim;
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.give_up_claim();
        let mut space = self.engine.space.lock();
        space.on_their_way -= 1;
        self.runs.iter().for_each(|r| space.buddy.give_back(r.start, r.pages as u64));
        self.spent.into_iter().for_each(|spent| space.grants.put_back(spent));
    }
}

/// Pages that are about to be reserved. Dropped, they are not any more.
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

    /// Did they come out of a grant?
    pub fn is_granted(&self) -> bool {
        self.spent.is_some()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut space = self.engine.space.lock();
        space.held -= self.pages;
        self.spent.into_iter().for_each(|spent| space.grants.put_back(spent));
    }
}

impl Engine {
    /// Takes `pages` pages, of which `claim` are promised to who takes them. What waits to be sealed is space too: it is sealed
    /// before `NoSpace` is said.
    pub(crate) fn take(&self, pages: u32, claim: u64, purpose: Purpose) -> Result<Taken<'_>, StoreError> {
        self.take_near(pages, None, claim, purpose, None)
    }

    /// As `take`, at `near` if that is free: where the object's stream goes on. What nobody may take any more comes out of the grant of
    /// `holder`.
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
                // store-R1: it comes, when what waits is sealed.
                spent.into_iter().for_each(|spent| space.grants.put_back(spent));
                return None;
            }
            space.claimed += claim;
            space.on_their_way += 1;
            Some(Taken { engine: self, runs, claim: Cell::new(claim), spent })
        })
    }

    /// Keeps `pages` pages from everybody, so that they can be promised.
    pub(crate) fn hold(&self, pages: u64, holder: Option<SessionId>) -> Result<Held<'_>, StoreError> {
        let wanted = Wanted { pages, claim: 0, purpose: Purpose::Write, holder };
        self.with_space(wanted, |space| {
            let spent = match wanted.fits(space, space.free_pages()) {
                true => None,
                // One promise becomes another.
                false => Some(space.grants.spend(holder?, pages)?),
            };
            space.held += pages;
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
            // Readers are done soon; a device that hangs has a deadline, and they with it.
            let waits_max = if purpose == Purpose::Destage { DESTAGE_WAITS_MAX } else { READER_WAITS_MAX };
            if is_seen && reader_waits < waits_max {
                reader_waits += 1;
                std::thread::sleep(SHORT_WAIT);
                continue;
            }
            // The last look is for what the last sealing freed, or for what others are about to supersede, or have: they took it first.
            if !is_waiting || round == SEAL_ROUNDS_MAX {
                // What patches replace is free once they are folded. A destager does that anyhow.
                if is_patched && !std::mem::replace(&mut has_folded, true) && purpose != Purpose::Destage {
                    round = 0;
                    match self.make_space() {
                        Err(e @ StoreError::Volume(_)) => return Err(e),
                        // What could be folded is.
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
            // A checkpoint seals too, and needs no room in the log.
            match is_unsealed && purpose != Purpose::Destage && round < SEAL_ROUNDS_MAX {
                true => self.seal()?,
                false => self.make_checkpoint()?,
            }
        }
        Err(StoreError::NoSpace("the medium is full"))
    }

    /// Frees what is sealed and seen by nobody.
    fn reclaim(&self, space: &mut Space) {
        space.reclaim(self.vol.sealed_seq(), || self.readers.unseen());
    }

    /// Flushes, logs that, and flushes that: afterwards everything acknowledged before the call is sealed (store-O1).
    pub(crate) fn seal(&self) -> Result<(), StoreError> {
        let wanted = self.vol.last_seq();
        let _one = self.sealing.lock();
        // Whoever waited for the lock finds that it was done for him too.
        if self.vol.sealed_seq() >= wanted {
            return Ok(());
        }
        self.vol.flush()?;
        self.mark_flushed()?;
        self.vol.flush()?;
        Ok(())
    }

    /// Logs the flush mark; a full log is checkpointed, which does the same.
    pub(crate) fn mark_flushed(&self) -> Result<(), StoreError> {
        match self.vol.mark() {
            Err(VolumeError::LogFull { .. }) => self.make_log_room(),
            other => Ok(other?),
        }
    }

    /// A checkpoint is durable that names these no more.
    pub(crate) fn unpin(&self, runs: Vec<Run>, stamp: u64) {
        let mut space = self.space.lock();
        space.unpin(runs, stamp);
        self.reclaim(&mut space);
    }

    /// Frees what can be freed now, in the background, so that writers seldom have to.
    pub(crate) fn reclaim_now(&self) {
        self.reclaim(&mut self.space.lock());
    }

    pub(crate) fn write_pages(&self, object: ObjectId, page: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_parts(object, &[(self.at(page), bytes)])
    }

    /// Writes whole pages at medium offsets of the data region, all at once.
    pub(crate) fn write_parts(&self, object: ObjectId, parts: &[(u64, &[u8])]) -> Result<(), StoreError> {
        self.vol.disk().write_many(parts).map_err(|source| match disk::is_full(&source) {
            // A sparse medium may promise more than its host has: the pages go back, and the store goes on.
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

/// Space that somebody wants.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub pages: u64,
    /// Of the pages, those that were promised to him.
    pub claim: u64,
    pub purpose: Purpose,
    /// Who may spend his grant on it.
    pub holder: Option<SessionId>,
}

impl Wanted {
    /// May he take it of so many free pages?
    fn fits(&self, space: &Space, free_pages: u64) -> bool {
        let kept = match self.purpose {
            // store-S6: who takes only what was promised to him needs nobody's leave.
            Purpose::Write if self.pages == self.claim => 0,
            Purpose::Write => {
                reserve_pages(space.total_pages()) + space.promised_pages().saturating_sub(self.claim)
            }
            Purpose::Reserved | Purpose::Destage => 0,
        };
        free_pages >= kept + space.buddy.rounded(self.pages)
    }

    /// Will he find it once what waits is sealed and seen by nobody, if no other takes it first?
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
