//! Space: taking pages for data, and giving superseded ones back when that is safe (O1).
//!
//! Superseded runs wait in log order until the entry that superseded them is sealed; only then can no recovery want to see
//! their old bytes. Runs that were taken and never named by an entry go back at once.

use std::collections::VecDeque;

use disk::volume::VolumeError;
use types::{ObjectId, PAGE_SIZE, Seq};

use crate::alloc::{Buddy, Run};
use crate::discard::Freed;
use crate::engine::Engine;
use crate::error::StoreError;

/// Sealing rounds before a full medium is called full: another writer may take what the first round freed.
const SEAL_ROUNDS_MAX: usize = 3;
/// Pages that writes may not take: 1/256 of the medium, at most 64 MiB, at least 16 pages. Truncation to the middle of a page
/// rewrites that page and must work on a full medium.
pub fn reserve_pages(total: u64) -> u64 {
    (total / 256).clamp(16, 16 << 10).min(total / 2)
}

/// What the pages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Leaves the reserve alone.
    Write,
    /// May take the last page.
    Reserved,
}

#[derive(Debug)]
pub struct Space {
    pub(crate) buddy: Buddy,
    /// Superseded runs with the entry that superseded them, in log order.
    waiting: VecDeque<(Seq, Run)>,
    waiting_pages: u64,
    /// What to discard.
    pub(crate) freed: Freed,
}

impl Space {
    pub fn new(buddy: Buddy) -> Space {
        Space { buddy, waiting: VecDeque::new(), waiting_pages: 0, freed: Freed::default() }
    }
    pub fn total_pages(&self) -> u64 {
        self.buddy.total_pages()
    }
    /// What can be taken.
    pub fn free_pages(&self) -> u64 {
        self.buddy.free_pages()
    }
    pub fn waiting_pages(&self) -> u64 {
        self.waiting_pages
    }

    /// Queues runs that entry `seq` superseded. Entries come in order.
    pub fn supersede(&mut self, seq: Seq, runs: &mut Vec<Run>) {
        for run in runs.drain(..) {
            self.waiting_pages += run.pages as u64;
            self.waiting.push_back((seq, run));
        }
    }

    /// Frees what entries up to `sealed` superseded; true if that was anything.
    fn reclaim(&mut self, sealed: Seq) -> bool {
        let before = self.waiting.len();
        while let Some((seq, run)) = self.waiting.front().copied()
            && seq <= sealed
        {
            self.waiting.pop_front();
            self.waiting_pages -= run.pages as u64;
            self.buddy.give_back(run.start, run.pages as u64);
            self.freed.add(run);
        }
        self.waiting.len() < before
    }
}

/// Pages that were taken and are not yet named by an entry. Dropped, they go back.
pub struct Taken<'a> {
    engine: &'a Engine,
    pub runs: Vec<Run>,
}

impl Taken<'_> {
    /// An entry names them now.
    pub fn keep(mut self) {
        self.runs.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        let mut space = self.engine.space.lock();
        self.runs.iter().for_each(|r| space.buddy.give_back(r.start, r.pages as u64));
    }
}

impl Engine {
    /// Takes `pages` pages. What waits to be sealed is space too: it is sealed before `NoSpace` is said.
    pub(crate) fn take(&self, pages: u32, purpose: Purpose) -> Result<Taken<'_>, StoreError> {
        for round in 0..=SEAL_ROUNDS_MAX {
            let waiting = {
                let mut space = self.space.lock();
                self.reclaim(&mut space);
                let mut taken = Taken { engine: self, runs: Vec::new() };
                if self.may_take(&space, pages, purpose) && space.buddy.take(pages, &mut taken.runs) {
                    return Ok(taken);
                }
                space.waiting_pages
            };
            // The last look is for what the last sealing freed.
            if waiting == 0 || round == SEAL_ROUNDS_MAX {
                break;
            }
            self.seal()?;
        }
        Err(StoreError::NoSpace("the medium is full"))
    }

    fn may_take(&self, space: &Space, pages: u32, purpose: Purpose) -> bool {
        let kept = match purpose {
            Purpose::Write => reserve_pages(space.total_pages()),
            Purpose::Reserved => 0,
        };
        space.free_pages() >= kept + pages as u64
    }

    /// Frees what is sealed. Readers that saw the old place notice by the reuse count.
    fn reclaim(&self, space: &mut Space) {
        if space.reclaim(self.vol.sealed_seq()) {
            self.reused.fetch_add(1, std::sync::atomic::Ordering::Release);
        }
    }

    /// Flushes, logs that, and flushes that: afterwards everything acknowledged before the call is sealed (O1).
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

    /// Frees what can be freed now, in the background, so that writers seldom have to.
    pub(crate) fn reclaim_now(&self) {
        self.reclaim(&mut self.space.lock());
    }

    pub(crate) fn write_pages(&self, object: ObjectId, page: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let at = self.at(page);
        self.vol.disk().write_at(bytes, at).map_err(|source| match disk::is_full(&source) {
            // A sparse medium may promise more than its host has: the pages go back, and the store goes on.
            true => StoreError::NoSpace("the file system that holds this target is full"),
            false => StoreError::Medium { object, at, source },
        })
    }

    /// Medium offset of a page of the data region.
    pub(crate) fn at(&self, page: u64) -> u64 {
        self.data_begin + page * PAGE_SIZE as u64
    }
}
