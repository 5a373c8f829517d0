//! Giving freed space back to the medium, which under a sparse file is the host's.
//!
//! D1: a run is taken out of the free space while it is discarded, so nobody's bytes can be in it. D2: only what no recovery wants
//! to see is ever free (O1), so a discard is as safe as a reuse. D3: space is left alone for a while after it was freed: reusing it
//! is cheaper than fresh space. D4: so much stays free meanwhile that no writer misses what is out. D5: what a hung device may yet
//! discard stays out until the next start.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use types::PAGE_SIZE;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::space::{Space, reserve_pages};
use disk::alloc::Run;

/// The least that is discarded, 1 MiB: for less, the file system below would keep books of many small holes.
const ORDER_MIN: usize = 8;
/// Rounds from one ripening to the next; what was freed is left alone for one such time at least and two at most. One round comes
/// with each commit interval, so these are a minute and two.
pub const ROUNDS_YOUNG: u32 = 60;
/// Runs discarded in a round, 512 MiB at most, so that a stop is not kept waiting and the file system below not held up.
const RUNS_MAX: usize = 64;
/// Stretches of 2^`ORDER_MIN` pages that are remembered of each age, 64 GiB. Past it space stays with the medium.
const STRETCHES_MAX: usize = 65_536;

/// Stretches of which something was freed.
#[derive(Debug, Default)]
pub struct Freed {
    /// Since the last ripening.
    young: BTreeSet<u64>,
    /// Between the last two.
    resting: BTreeSet<u64>,
    /// Before that.
    due: BTreeSet<u64>,
    /// Since the last ripening.
    rounds: u32,
    /// Pages that are being discarded, or may yet be (D5): free, and out of the allocator.
    pub out_pages: u64,
}

impl Freed {
    pub fn add(&mut self, run: Run) {
        if self.young.len() < STRETCHES_MAX {
            self.young.extend(run.start >> ORDER_MIN..=(run.end() - 1) >> ORDER_MIN);
        }
    }

    /// D3
    fn age(&mut self) {
        self.rounds += 1;
        // Not before all that was due is done: so no age outgrows its bound.
        if self.rounds >= ROUNDS_YOUNG && self.due.is_empty() {
            self.rounds = 0;
            self.due = std::mem::replace(&mut self.resting, std::mem::take(&mut self.young));
        }
    }
}

impl Space {
    /// D1: takes out the next run to discard.
    fn take_discardable(&mut self) -> Option<Run> {
        while let Some(stretch) = self.freed.due.pop_first() {
            let Some(run) = self.buddy.take_around(stretch << ORDER_MIN, ORDER_MIN) else { continue };
            // D4
            if self.unpromised_pages() < self.total_pages() / 8 + reserve_pages(self.total_pages()) {
                self.buddy.give_back(run.start, run.pages as u64);
                continue;
            }
            // It goes as a whole, so its other stretches are done too.
            self.freed.due = self.freed.due.split_off(&(run.end() >> ORDER_MIN));
            self.freed.out_pages += run.pages as u64;
            return Some(run);
        }
        None
    }

    fn return_discarded(&mut self, run: Run) {
        self.freed.out_pages -= run.pages as u64;
        self.buddy.give_back(run.start, run.pages as u64);
    }
}

impl Engine {
    /// A round: discards some of what was freed a while ago and is free still.
    pub(crate) fn discard_freed(&self) -> Result<(), StoreError> {
        let _one = self.discarding.lock();
        self.space.lock().freed.age();
        for _ in 0..RUNS_MAX {
            let Some(run) = self.space.lock().take_discardable() else { break };
            let (at, len) = (self.at(run.start), run.pages as u64 * PAGE_SIZE as u64);
            let done = self.vol.disk().discard(at, len);
            // D5: else it could erase what was written there meanwhile, and acknowledged.
            match done.as_ref().is_err_and(|e| e.kind() == ErrorKind::TimedOut) {
                true => self.vol.check_media()?,
                false => self.space.lock().return_discarded(run),
            }
            done.map_err(|source| StoreError::Discard { at, source })?;
        }
        Ok(())
    }
}
