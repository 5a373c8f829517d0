//! Free space that is yet to be given back to the medium, which under a sparse file is the host's.
//!
//! disk-FR1: space is left alone for a while after it was freed: reusing it is cheaper than fresh space. Where the host has little room left, it is
//!     not.
//! disk-FR2: nothing is forgotten: what cannot be remembered, or was freed before the start, a sweep over all free space finds.
//! disk-FR3: a run is out of the allocator while it is discarded, so nobody's bytes can be in it.

use std::collections::BTreeSet;

use crate::Disk;
use crate::alloc::{Buddy, Run};

/// The least that is discarded, 1 MiB: for less, the file system below would keep books of many small holes.
pub const ORDER_MIN: usize = 8;
/// Rounds from one ripening to the next; what was freed is left alone for one such time at least and two at most. One round comes
/// with each commit interval, so these are a minute and two.
pub const ROUNDS_YOUNG: u32 = 60;
/// Rounds for which a host that was short of room is taken to be: removing a large file frees its space in several steps.
const ROUNDS_URGENT: u32 = 15;
/// Runs discarded in a round, 512 MiB at most, so that a stop is not kept waiting and the file system below not held up.
pub const RUNS_MAX: usize = 64;
/// Stretches of 2^`ORDER_MIN` pages that are remembered of each age, 64 GiB. What is beyond is swept.
const STRETCHES_MAX: usize = 65_536;
/// Stretches that a sweep looks at in a round: 64 GiB of space that is in use.
const LOOKS_MAX: u64 = 65_536;

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
    /// Rounds for which nothing is left alone (disk-FR1).
    urgent: u32,
    /// disk-FR2: something was freed that none of these has.
    is_lost: bool,
    /// The stretch at which a sweep goes on.
    sweep: Option<u64>,
    /// Stretches that this round's sweep may yet look at.
    looks: u64,
    /// Pages that are being discarded, or may yet be: free, and out of the allocator.
    pub out_pages: u64,
}

impl Freed {
    /// What is to be discarded at a start: under a sparse file all that is free, since an earlier process may have freed it. A device keeps
    /// what it was not told of, until it is used and freed again.
    pub fn at_start(disk: &dyn Disk) -> Freed {
        if disk.room_below().is_some() { Freed::with_sweep() } else { Freed::default() }
    }

    fn with_sweep() -> Freed {
        Freed { sweep: Some(0), ..Freed::default() }
    }

    pub fn add(&mut self, run: Run) {
        match self.young.len() < STRETCHES_MAX {
            true => self.young.extend(run.start >> ORDER_MIN..=(run.end() - 1) >> ORDER_MIN),
            false => self.is_lost = true,
        }
    }

    /// A round begins. `is_short`: the host has little room left (disk-FR1).
    pub fn age(&mut self, is_short: bool) {
        self.looks = LOOKS_MAX;
        self.rounds += 1;
        self.urgent = if is_short { ROUNDS_URGENT } else { self.urgent.saturating_sub(1) };
        if self.urgent > 0 {
            self.due.append(&mut self.resting);
            self.due.append(&mut self.young);
        }
        // Not before all that was due is done: so no age outgrows its bound.
        if self.rounds >= ROUNDS_YOUNG && self.due.is_empty() {
            self.rounds = 0;
            self.due = std::mem::replace(&mut self.resting, std::mem::take(&mut self.young));
            if self.sweep.is_none() && std::mem::take(&mut self.is_lost) {
                self.sweep = Some(0);
            }
        }
    }

    /// Takes out the next run to discard. `may`: is enough free without it? What may not go now is swept later.
    pub fn take(&mut self, buddy: &mut Buddy, may: impl Fn(&Buddy) -> bool) -> Option<Run> {
        while let Some(stretch) = self.next(buddy.total_pages()) {
            let Some(run) = buddy.take_around(stretch << ORDER_MIN, ORDER_MIN) else { continue };
            if !may(buddy) {
                buddy.give_back(run.start, run.pages as u64);
                self.is_lost = true;
                continue;
            }
            // It goes as a whole, so its other stretches are done too.
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

    /// It was discarded, or will not be.
    pub fn return_run(&mut self, buddy: &mut Buddy, run: Run) {
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

    /// All runs of a round, which go back.
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
        // The first, a part of the third, and the last two, which are one run.
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
