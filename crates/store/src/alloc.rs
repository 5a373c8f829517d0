//! A buddy allocator over pages: power-of-two runs from 4 KiB to 8 MiB, lowest address first.
//!
//! Lowest first, because space that the medium has used before is cheaper than fresh space (a sparse file allocates, a drive
//! maps), and because it keeps free space in large pieces at the far end.
//! I1: free runs are aligned to their size and never overlap.  I2: two free buddies never stay apart.
//! I3: `free` is the sum of all free runs.

use std::collections::BTreeSet;

/// Largest run: 2^11 pages of 4 KiB are the 8 MiB block of the design.
pub const ORDER_MAX: usize = 11;

/// A run of neighbouring pages on the medium; page numbers count from the data region's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    pub start: u64,
    pub pages: u32,
}

impl Run {
    pub fn end(&self) -> u64 {
        self.start + self.pages as u64
    }
}

/// Free pages of a medium.
#[derive(Debug)]
pub struct Buddy {
    orders: [BTreeSet<u64>; ORDER_MAX + 1],
    free: u64,
    total: u64,
}

impl Buddy {
    /// `total` pages, all in use; `give_back` frees them.
    pub fn all_used(total: u64) -> Buddy {
        Buddy { orders: Default::default(), free: 0, total }
    }

    pub fn free_pages(&self) -> u64 {
        self.free
    }
    pub fn total_pages(&self) -> u64 {
        self.total
    }

    /// Takes `pages` pages in as few runs as can be, appended to `out`; false, and nothing taken, if there are not enough.
    pub fn take(&mut self, pages: u32, out: &mut Vec<Run>) -> bool {
        if pages as u64 > self.free {
            return false;
        }
        let mut rest = pages;
        while rest > 0 {
            let run = self.take_one(rest).expect("I3: there are that many free pages");
            rest -= run.pages;
            match out.last_mut() {
                // Neighbours become one run: fewer device writes and a smaller log entry.
                Some(last) if last.end() == run.start => last.pages += run.pages,
                _ => out.push(run),
            }
        }
        true
    }

    /// Takes one run of up to `want` pages.
    fn take_one(&mut self, want: u32) -> Option<Run> {
        let fits = (want.next_power_of_two().trailing_zeros() as usize).min(ORDER_MAX);
        let order = match self.lowest_from(fits) {
            Some(order) => order,
            None => (0..fits).rev().find(|o| !self.orders[*o].is_empty())?,
        };
        let start = self.orders[order].pop_first().expect("the order was found not empty");
        self.free -= 1 << order;
        let pages = (want as u64).min(1 << order);
        // What the request does not need goes back at once, so that a 5 KiB file costs 8 KiB and not 8 MiB.
        self.give_back(start + pages, (1 << order) - pages);
        Some(Run { start, pages: pages as u32 })
    }

    /// The order, at least `order`, whose first run has the lowest address.
    fn lowest_from(&self, order: usize) -> Option<usize> {
        (order..=ORDER_MAX)
            .filter_map(|o| self.orders[o].first().map(|start| (*start, o)))
            .min()
            .map(|(_, o)| o)
    }

    /// Takes the whole free run that `page` lies in, if it has at least 2^`order` pages.
    pub fn take_around(&mut self, page: u64, order: usize) -> Option<Run> {
        let (start, order) = (order..=ORDER_MAX)
            .map(|o| (page >> o << o, o))
            .find(|(start, o)| self.orders[*o].contains(start))?;
        self.orders[order].remove(&start);
        self.free -= 1 << order;
        Some(Run { start, pages: 1 << order })
    }

    /// Free pieces that begin in pages `[begin, limit)`, in order. Both are multiples of the largest piece.
    pub fn free_within(&self, begin: u64, limit: u64) -> Vec<Run> {
        let of_order =
            |o: usize| self.orders[o].range(begin..limit).map(move |s| Run { start: *s, pages: 1 << o });
        let mut pieces: Vec<Run> = (0..=ORDER_MAX).flat_map(of_order).collect();
        pieces.sort_unstable();
        pieces
    }

    /// Frees pages; they need not be a run that was taken as one.
    pub fn give_back(&mut self, mut start: u64, mut pages: u64) {
        assert!(start + pages <= self.total, "pages beyond the medium were freed");
        while pages > 0 {
            let by_place = start.trailing_zeros() as usize;
            let by_size = pages.ilog2() as usize;
            let order = by_place.min(by_size).min(ORDER_MAX);
            self.insert(start, order);
            start += 1 << order;
            pages -= 1 << order;
        }
    }

    fn insert(&mut self, mut start: u64, mut order: usize) {
        self.free += 1 << order;
        while order < ORDER_MAX && self.orders[order].remove(&(start ^ 1 << order)) {
            start &= !(1 << order);
            order += 1;
        }
        let is_new = self.orders[order].insert(start);
        assert!(is_new, "page {start} was freed twice");
    }
}

#[cfg(test)]
mod tests {
    use disk::SplitMix;

    use super::*;

    fn fresh(total: u64) -> Buddy {
        let mut b = Buddy::all_used(total);
        b.give_back(0, total);
        b
    }

    fn shape(b: &Buddy) -> Vec<Vec<u64>> {
        b.orders.iter().map(|o| o.iter().copied().collect()).collect()
    }

    #[test]
    fn runs_never_overlap_and_all_freed_coalesces() {
        for (seed, total) in [(1, 10_000u64), (2, 4096), (3, 2048 * 5 + 77), (4, 1)] {
            let mut rng = SplitMix::new(seed);
            let mut b = fresh(total);
            let whole = shape(&b);
            let mut owner = vec![false; total as usize];
            let mut held: Vec<Run> = vec![];
            for _ in 0..4000 {
                if rng.below(2) == 0 {
                    let mut out = vec![];
                    let most = if rng.below(4) == 0 { 3000 } else { 300 };
                    let want = 1 + rng.below(most) as u32;
                    let before = b.free_pages();
                    let ok = b.take(want, &mut out);
                    assert_eq!(ok, want as u64 <= before);
                    assert_eq!(out.iter().map(|r| r.pages as u64).sum::<u64>(), before - b.free_pages());
                    for r in &out {
                        for p in r.start..r.end() {
                            assert!(
                                !std::mem::replace(&mut owner[p as usize], true),
                                "page {p} given out twice"
                            );
                        }
                    }
                    held.extend(out);
                } else if !held.is_empty() {
                    // Give back a part of a run, as an overwrite in the middle of an extent does.
                    let i = rng.below(held.len() as u64) as usize;
                    let r = held.swap_remove(i);
                    let from = r.start + rng.below(r.pages as u64);
                    let pages = 1 + rng.below(r.end() - from);
                    b.give_back(from, pages);
                    owner[from as usize..(from + pages) as usize].fill(false);
                    let parts = [(r.start, from), (from + pages, r.end())];
                    held.extend(
                        parts
                            .iter()
                            .filter(|(s, e)| e > s)
                            .map(|(s, e)| Run { start: *s, pages: (e - s) as u32 }),
                    );
                }
                assert_eq!(b.free_pages(), owner.iter().filter(|o| !**o).count() as u64);
            }
            held.iter().for_each(|r| b.give_back(r.start, r.pages as u64));
            assert_eq!(shape(&b), whole, "seed {seed}: everything freed is as it was");
        }
    }

    #[test]
    fn the_lowest_address_is_used_again_first() {
        let mut b = fresh(8192);
        let mut out = vec![];
        assert!(b.take(256, &mut out));
        assert!(b.take(256, &mut out));
        assert_eq!(out, [Run { start: 0, pages: 512 }], "neighbours are one run");
        b.give_back(0, 256);
        let mut again = vec![];
        assert!(b.take(2, &mut again));
        assert_eq!(again, [Run { start: 0, pages: 2 }]);
    }

    #[test]
    fn a_free_run_is_taken_whole_wherever_it_is_met() {
        let mut b = fresh(4096);
        let mut out = vec![];
        assert!(b.take(256, &mut out));
        // Free: 256 to 4096, in runs of 256, 512, 1024 and 2048 pages.
        assert_eq!(b.take_around(100, 8), None, "in use");
        assert_eq!(b.take_around(300, 9), None, "free, and too small");
        assert_eq!(b.take_around(300, 8), Some(Run { start: 256, pages: 256 }));
        assert_eq!(b.take_around(300, 8), None, "taken");
        assert_eq!(b.take_around(4095, 8), Some(Run { start: 2048, pages: 2048 }));
        assert_eq!(b.free_pages(), 512 + 1024);
        b.give_back(256, 256);
        b.give_back(2048, 2048);
        b.give_back(0, 256);
        assert_eq!(shape(&b), shape(&fresh(4096)));
    }

    #[test]
    fn odd_sizes_take_what_they_need() {
        let mut b = fresh(2048);
        let mut out = vec![];
        assert!(b.take(3, &mut out));
        assert_eq!((out[0].pages, b.free_pages()), (3, 2045));
        assert!(!b.take(2046, &mut out), "more than there is: nothing is taken");
        assert!(b.take(2045, &mut out));
        assert_eq!(b.free_pages(), 0);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_a_bug_that_stops() {
        let mut b = Buddy::all_used(64);
        b.give_back(5, 1);
        b.give_back(5, 1);
    }
}
