//! Freed space that will be discarded, which returns it to the medium or, under a sparse file, to the host.
//!
//! disk-FR1: freed space is kept for a while, because reusing it is cheaper than fresh space. If the host has little free space left, it is
//!     discarded at once.
//! disk-FR2: no free space is forgotten: a sweep over all free space finds runs that could not be remembered or were freed before the
//!     start.
//! disk-FR3: a run is out of the allocator while it is discarded, so no new data can be in it.

use std::collections::BTreeSet;

use crate::Disk;
use crate::alloc::{Buddy, Run};

/// Smallest discarded run, 1 MiB: smaller ones would make the file system below track many small holes.
pub const ORDER_MIN: usize = 8;
/// Rounds from one aging step to the next; freed space is kept for at least one such time and at most two. A round comes
/// with each commit interval, so these are one and two minutes.
pub const ROUNDS_YOUNG: u32 = 60;
/// Rounds for which a host counts as short of space after it was: removing a large file frees its space in several steps.
const ROUNDS_URGENT: u32 = 15;
/// Runs discarded in a round, 512 MiB at most, so that a round neither delays a stop nor blocks the file system below.
pub const RUNS_MAX: usize = 64;
/// Stretches of 2^`ORDER_MIN` pages that are remembered of each age, 64 GiB. A sweep finds the others.
const STRETCHES_MAX: usize = 65_536;
/// Stretches that a sweep examines in a round: 64 GiB of space that is in use.
const LOOKS_MAX: u64 = 65_536;

/// Stretches in which pages were freed.
#[derive(Debug, Default)]
pub struct Freed {
    /// Freed since the last aging step.
    young: BTreeSet<u64>,
    /// Freed between the last two steps.
    resting: BTreeSet<u64>,
    /// Freed before that: to be discarded.
    due: BTreeSet<u64>,
    /// Rounds since the last aging step.
    rounds: u32,
    /// Rounds for which freed space is discarded at once (disk-FR1).
    urgent: u32,
    /// disk-FR2: pages were freed that none of these sets has.
    is_lost: bool,
    /// The next stretch of the sweep, while one is under way.
    sweep: Option<u64>,
    /// Stretches that this round's sweep may still examine.
    looks: u64,
    /// Pages that are being discarded, or may still be: free, and out of the allocator.
    pub out_pages: u64,
}

impl Freed {
    /// Space to discard after a start: under a sparse file all free space, since an earlier process may have freed it. A device is not
    /// swept: its old free space is discarded only after it is used and freed again.
    pub fn at_start(disk: &dyn Disk) -> Freed {
        if disk.room_below().is_some() { Freed::with_sweep() } else { Freed::default() }
    }

    fn with_sweep() -> Freed {
        Freed { sweep: Some(0), ..Freed::default() }
    }

    pub fn add(&mut self, run: Run) {
        assert!(run.pages > 0, "a freed run has a page");
        match self.young.len() < STRETCHES_MAX {
            true => self.young.extend(run.start >> ORDER_MIN..=(run.end() - 1) >> ORDER_MIN),
            false => self.is_lost = true,
        }
    }

    /// Begins a round. `is_short`: the host has little free space left (disk-FR1).
    pub fn age(&mut self, is_short: bool) {
        self.looks = LOOKS_MAX;
        self.rounds += 1;
        self.urgent = if is_short { ROUNDS_URGENT } else { self.urgent.saturating_sub(1) };
        if self.urgent > 0 {
            self.due.append(&mut self.resting);
            self.due.append(&mut self.young);
        }
        // Only once all due stretches are done, so that no set outgrows its bound.
        if self.rounds >= ROUNDS_YOUNG && self.due.is_empty() {
            self.rounds = 0;
            self.due = std::mem::replace(&mut self.resting, std::mem::take(&mut self.young));
            if self.sweep.is_none() && std::mem::take(&mut self.is_lost) {
                self.sweep = Some(0);
            }
        }
    }

    /// Takes out the next run to discard. `may`: is enough space free without the run? A run that may not go now is left to a later sweep.
    pub fn take(&mut self, buddy: &mut Buddy, may: impl Fn(&Buddy) -> bool) -> Option<Run> {
        while let Some(stretch) = self.next(buddy.total_pages()) {
            let Some(run) = buddy.take_around(stretch << ORDER_MIN, ORDER_MIN) else { continue };
            if !may(buddy) {
                buddy.give_back(run.start, run.pages as u64);
                self.is_lost = true;
                continue;
            }
            // The run is discarded as a whole, so its other stretches are done too.
            assert!(run.pages >= 1 << ORDER_MIN, "no run below 1 MiB is discarded");
            let next = run.end() >> ORDER_MIN;
            self.due = self.due.split_off(&next);
            self.sweep = self.sweep.map(|at| if at > stretch { at.max(next) } else { at });
            self.out_pages += run.pages as u64;
            return Some(run);
        }
        None
    }

    fn next(&mut self, total_pages: u64) -> Option<u64> {
        if let Some(stretch) = self.due.pop_first() {
            return Some(stretch);
        }
        let stretch = self.sweep.filter(|_| self.looks > 0)?;
        self.looks -= 1;
        let is_last = (stretch + 1) << ORDER_MIN >= total_pages;
        self.sweep = (!is_last).then_some(stretch + 1);
        Some(stretch)
    }

    /// Returns a run that was discarded, or will not be.
    pub fn return_run(&mut self, buddy: &mut Buddy, run: Run) {
        assert!(self.out_pages >= run.pages as u64, "disk-FR3: a run that returns was out");
        self.out_pages -= run.pages as u64;
        buddy.give_back(run.start, run.pages as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRETCH: u64 = 1 << ORDER_MIN;

    fn free(pages: u64) -> Buddy {
        let mut buddy = Buddy::all_used(pages);
        buddy.give_back(0, pages);
        buddy
    }

    /// All runs of a round, which are then returned.
    fn round(freed: &mut Freed, buddy: &mut Buddy) -> Vec<Run> {
        let mut runs = Vec::new();
        while let Some(run) = freed.take(buddy, |_| true) {
            runs.push(run);
        }
        runs.iter().for_each(|run| freed.return_run(buddy, *run));
        runs
    }

    #[test]
    fn a_sweep_finds_all_that_is_free_and_nothing_else_once() {
        let (mut freed, mut buddy) = (Freed::with_sweep(), Buddy::all_used(10 * STRETCH));
        // Free: the first stretch, a part of the third, and the last two, which are one run.
        for (start, pages) in [(0, STRETCH), (2 * STRETCH, STRETCH / 2), (8 * STRETCH, 2 * STRETCH)] {
            buddy.give_back(start, pages);
        }
        freed.age(false);
        let run = |start, pages| Run { start: start * STRETCH, pages: (pages * STRETCH) as u32 };
        assert_eq!(round(&mut freed, &mut buddy), [run(0, 1), run(8, 2)]);
        freed.age(false);
        assert_eq!((round(&mut freed, &mut buddy), freed.out_pages), (vec![], 0));
    }

    #[test]
    fn what_is_freed_rests_unless_the_host_is_short_of_room() {
        for is_short in [false, true] {
            let (mut freed, mut buddy) = (Freed::default(), free(4 * STRETCH));
            freed.add(Run { start: 0, pages: 8 });
            freed.age(is_short);
            assert_eq!(round(&mut freed, &mut buddy).len(), usize::from(is_short));
        }
    }

    #[test]
    fn what_is_freed_soon_after_the_host_was_short_of_room_goes_at_once_too() {
        let (mut freed, mut buddy) = (Freed::default(), free(4 * STRETCH));
        freed.age(true);
        for is_soon in [true, false] {
            freed.add(Run { start: 0, pages: 8 });
            freed.age(false);
            assert_eq!(round(&mut freed, &mut buddy).len(), usize::from(is_soon));
            (0..ROUNDS_URGENT).for_each(|_| freed.age(false));
        }
    }

    #[test]
    fn what_might_not_go_is_swept_later() {
        let (mut freed, mut buddy) = (Freed::default(), free(4 * STRETCH));
        freed.add(Run { start: 0, pages: 8 });
        freed.age(true);
        assert_eq!(freed.take(&mut buddy, |_| false), None);
        (0..ROUNDS_YOUNG).for_each(|_| freed.age(false));
        assert_eq!(round(&mut freed, &mut buddy).len(), 1);
    }
}
