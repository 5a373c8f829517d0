//! A buddy allocator over pages: power-of-two runs from 4 KiB to 8 MiB, lowest address first.
//!
//! Lowest first, because space that the medium has used before is cheaper than fresh space (a sparse file allocates, a drive maps), and
//! because it keeps free space in large pieces at the far end. A stream continues where its last write ended, or moves to a whole free
//! piece of the largest size. Writes of other streams leave the rest of that piece to it. Concurrent streams therefore do not interleave on
//! the medium, and freeing one of them frees large runs.
//!
//! With a fixed sub-block, space is allocated in such pieces, and a piece is free again when none of its pages is in use. This serves
//! comparisons with file systems that do so. Pages of a piece beyond the requested ones are waste until then.
//! disk-I1: free runs are aligned to their size and never overlap.  disk-I2: two free buddies are always merged.
//! disk-I3: `free` is the sum of all free runs.  disk-I4: with a fixed sub-block, free runs are whole sub-blocks; `partial` has those in
//!     partial use.

use std::collections::{BTreeSet, HashMap};

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
    /// Space is allocated in pieces of 2^this pages.
    unit_order: usize,
    /// Pieces with pages in use and wasted pages: the number in use.
    partial: HashMap<u64, u32>,
}

/// A write of at least this many pages that continues where the one before ended belongs to a stream: 1 MiB, the most that a client sends.
pub const STREAM_PAGES: u32 = 256;

impl Buddy {
    /// `total` pages, all in use; `give_back` frees them.
    pub fn all_used(total: u64) -> Buddy {
        Buddy::in_sub_blocks(total, 0)
    }
    /// As `all_used`, allocating in sub-blocks of 2^`unit_order` pages.
    pub fn in_sub_blocks(total: u64, unit_order: u8) -> Buddy {
        let unit_order = usize::from(unit_order).min(ORDER_MAX);
        Buddy { orders: Default::default(), free: 0, total, unit_order, partial: HashMap::new() }
    }

    pub fn free_pages(&self) -> u64 {
        self.free
    }
    pub fn total_pages(&self) -> u64 {
        self.total
    }

    /// Pages of a sub-block.
    pub fn unit_pages(&self) -> u64 {
        1 << self.unit_order
    }
    /// Pages that an allocation of `pages` takes.
    pub fn rounded(&self, pages: u64) -> u64 {
        pages.next_multiple_of(self.unit_pages())
    }

    /// Takes `pages` pages in as few runs as possible, appended to `out`. False, and nothing taken, if there are not enough. `near`: where
    /// the stream of these pages would continue.
    pub fn take(&mut self, pages: u32, near: Option<u64>, out: &mut Vec<Run>) -> bool {
        let taken = self.rounded(pages.into()) as u32;
        if u64::from(taken) > self.free {
            return false;
        }
        let before = self.free;
        match near.and_then(|near| self.take_for_stream(taken, near)) {
            Some(run) => out.push(run),
            None => self.take_any(taken, out),
        }
        assert_eq!(before - self.free, u64::from(taken), "disk-I3: as many pages were free as are taken");
        debug_assert!(out.iter().all(|run| run.end() <= self.total), "a run lies within the medium");
        self.leave_waste(out, taken - pages);
        true
    }

    fn take_any(&mut self, pages: u32, out: &mut Vec<Run>) {
        let mut rest = pages;
        while rest > 0 {
            let run = self.take_one(rest).expect("disk-I3: there are that many free pages");
            rest -= run.pages;
            match out.last_mut() {
                // Neighbours become one run: fewer device writes and a smaller log entry.
                Some(last) if last.end() == run.start => last.pages += run.pages,
                _ => out.push(run),
            }
        }
    }

    /// Takes one run at `near`, or at the begin of a whole piece of the largest size.
    fn take_for_stream(&mut self, pages: u32, near: u64) -> Option<Run> {
        if self.is_free(near, pages) {
            return Some(self.take_at(near, pages));
        }
        let start = *self.orders[ORDER_MAX].first().filter(|_| pages <= 1 << ORDER_MAX)?;
        Some(self.take_at(start, pages))
    }

    /// The free piece that has `page`.
    fn piece_around(&self, page: u64) -> Option<(u64, usize)> {
        (0..=ORDER_MAX).map(|o| (page >> o << o, o)).find(|(start, o)| self.orders[*o].contains(start))
    }

    fn is_free(&self, start: u64, pages: u32) -> bool {
        let (mut at, end) = (start, start + u64::from(pages));
        if !start.is_multiple_of(self.unit_pages()) {
            return false;
        }
        while at < end {
            let Some((piece, order)) = self.piece_around(at) else { return false };
            at = piece + (1 << order);
        }
        true
    }

    /// Takes pages that are free.
    fn take_at(&mut self, start: u64, pages: u32) -> Run {
        let (mut at, end) = (start, start + u64::from(pages));
        while at < end {
            let (piece, order) = self.piece_around(at).expect("these pages are free");
            self.orders[order].remove(&piece);
            assert!(self.free >= 1 << order, "disk-I3: a free run counts as free");
            self.free -= 1 << order;
            let piece_end = piece + (1 << order);
            self.free_run(piece, at - piece);
            self.free_run(end.min(piece_end), piece_end - end.min(piece_end));
            at = piece_end;
        }
        Run { start, pages }
    }

    /// Records that the last `waste` pages of an allocation belong to its last sub-block and are not in use.
    fn leave_waste(&mut self, taken: &mut [Run], waste: u32) {
        assert!(u64::from(waste) < self.unit_pages(), "disk-I4: waste is less than a sub-block");
        if let Some(last) = taken.last_mut().filter(|_| waste > 0) {
            assert!(last.pages > waste, "disk-I4: the last sub-block of a run is in use");
            last.pages -= waste;
            self.partial.insert(last.end() >> self.unit_order, self.unit_pages() as u32 - waste);
        }
    }

    /// Takes one run of up to `want` pages. A piece is aligned to its size: a request for multiples of a unit gets whole, aligned ones,
    /// while there are any.
    fn take_one(&mut self, want: u32) -> Option<Run> {
        let fits = (want.next_power_of_two().trailing_zeros() as usize).min(ORDER_MAX);
        let order = match self.lowest_from(fits) {
            Some(order) => order,
            None => (0..fits).rev().find(|o| !self.orders[*o].is_empty())?,
        };
        let start = self.orders[order].pop_first().expect("the order was found not empty");
        assert!(start.is_multiple_of(1 << order), "disk-I1: a free run is aligned to its size");
        assert!(self.free >= 1 << order, "disk-I3: a free run counts as free");
        self.free -= 1 << order;
        let pages = (want as u64).min(1 << order);
        // The unneeded rest goes back at once, so that a 5 KiB file costs 8 KiB and not 8 MiB.
        self.free_run(start + pages, (1 << order) - pages);
        Some(Run { start, pages: pages as u32 })
    }

    /// The order, at least `order`, whose first run has the lowest address.
    fn lowest_from(&self, order: usize) -> Option<usize> {
        (order..=ORDER_MAX)
            .filter_map(|o| self.orders[o].first().map(|start| (*start, o)))
            .min()
            .map(|(_, o)| o)
    }

    /// Takes the whole free run that has `page`, if it has at least 2^`order` pages.
    pub fn take_around(&mut self, page: u64, order: usize) -> Option<Run> {
        let (start, order) = (order..=ORDER_MAX)
            .map(|o| (page >> o << o, o))
            .find(|(start, o)| self.orders[*o].contains(start))?;
        self.orders[order].remove(&start);
        assert!(self.free >= 1 << order, "disk-I3: a free run counts as free");
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

    /// Frees pages; they need not be a run that was taken as one. Their sub-blocks are free once none of their pages is in use.
    pub fn give_back(&mut self, start: u64, pages: u64) {
        assert!(start + pages <= self.total, "pages beyond the medium were freed");
        if self.unit_order == 0 {
            return self.free_run(start, pages);
        }
        let (unit, mut at) = (self.unit_pages(), start);
        while at < start + pages {
            let block = at >> self.unit_order;
            let freed = ((block + 1) * unit).min(start + pages) - at;
            let in_use = u64::from(self.partial.remove(&block).unwrap_or(unit as u32));
            assert!(freed <= in_use, "pages of sub-block {block} were freed twice");
            match in_use - freed {
                0 => self.insert(block * unit, self.unit_order),
                left => drop(self.partial.insert(block, left as u32)),
            }
            at += freed;
        }
    }

    /// disk-I4: whole sub-blocks.
    fn free_run(&mut self, mut start: u64, mut pages: u64) {
        while pages > 0 {
            let by_place = start.trailing_zeros() as usize;
            let by_size = pages.ilog2() as usize;
            let order = by_place.min(by_size).min(ORDER_MAX);
            self.insert(start, order);
            start += 1 << order;
            pages -= 1 << order;
        }
    }

    /// Is a smaller run free within these 2^`order` pages?
    fn has_free_within(&self, start: u64, order: usize) -> bool {
        (0..order).any(|o| self.orders[o].range(start..start + (1 << order)).next().is_some())
    }

    fn insert(&mut self, mut start: u64, mut order: usize) {
        debug_assert!(self.piece_around(start).is_none(), "disk-I1: page {start} was freed twice");
        debug_assert!(!self.has_free_within(start, order), "disk-I1: a page from {start} on was freed twice");
        self.free += 1 << order;
        assert!(self.free <= self.total, "disk-I3: no more pages are free than there are");
        while order < ORDER_MAX && self.orders[order].remove(&(start ^ 1 << order)) {
            start &= !(1 << order);
            order += 1;
        }
        assert!(start.is_multiple_of(1 << order), "disk-I1: a free run is aligned to its size");
        let is_new = self.orders[order].insert(start);
        assert!(is_new, "page {start} was freed twice");
    }
}

#[cfg(test)]
mod tests {
    use crate::SplitMix;

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
                    let ok = b.take(want, None, &mut out);
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
        assert!(b.take(256, None, &mut out));
        assert!(b.take(256, None, &mut out));
        assert_eq!(out, [Run { start: 0, pages: 512 }], "neighbours are one run");
        b.give_back(0, 256);
        let mut again = vec![];
        assert!(b.take(2, None, &mut again));
        assert_eq!(again, [Run { start: 0, pages: 2 }]);
    }

    #[test]
    fn a_free_run_is_taken_whole_wherever_it_is_met() {
        let mut b = fresh(4096);
        let mut out = vec![];
        assert!(b.take(256, None, &mut out));
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

    /// A destager asks a fragmented medium for whole units. It gets whole units as long as one is free, wherever it lies.
    #[test]
    fn whole_units_begin_at_units_while_there_are_any() {
        for (seed, unit) in [(1, 4u64), (2, 16), (3, 256)] {
            let mut rng = SplitMix::new(seed);
            let (mut aligned, mut split) = (0, 0);
            for _ in 0..60 {
                let mut b = Buddy::all_used(20_000);
                let mut at = 0;
                while at < 19_000 {
                    let pages = 1 + rng.below(3 * unit);
                    b.give_back(at, pages.min(20_000 - at));
                    at += pages + 1 + rng.below(2 * unit);
                }
                let is_unit_left =
                    |b: &Buddy| (unit.ilog2() as usize..=ORDER_MAX).any(|order| !b.orders[order].is_empty());
                loop {
                    let (was_left, mut out) = (is_unit_left(&b), vec![]);
                    if !b.take(((1 + rng.below(8)) * unit) as u32, None, &mut out) {
                        break;
                    }
                    let is_whole =
                        |r: &Run| r.start.is_multiple_of(unit) && u64::from(r.pages).is_multiple_of(unit);
                    if is_unit_left(&b) {
                        assert!(out.iter().all(is_whole), "unit {unit}: {out:?}");
                        aligned += 1;
                    } else {
                        // Units first, and pieces only when there are no more.
                        assert!(!was_left || out[0].start.is_multiple_of(unit));
                        split += out.iter().any(|r| !is_whole(r)) as u32;
                    }
                }
            }
            assert!(aligned > 100 && split > 10, "both were met: {aligned}, {split}");
        }
    }

    #[test]
    fn odd_sizes_take_what_they_need() {
        let mut b = fresh(2048);
        let mut out = vec![];
        assert!(b.take(3, None, &mut out));
        assert_eq!((out[0].pages, b.free_pages()), (3, 2045));
        assert!(!b.take(2046, None, &mut out), "more than there is: nothing is taken");
        assert!(b.take(2045, None, &mut out));
        assert_eq!(b.free_pages(), 0);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_a_bug_that_stops() {
        let mut b = Buddy::all_used(64);
        b.give_back(5, 1);
        b.give_back(5, 1);
    }

    /// Four streams at once: each has runs of 8 MiB, not of one write.
    #[test]
    fn streams_at_once_do_not_lie_in_turns() {
        let mut b = fresh(64 * 2048);
        let mut ends: [Option<u64>; 4] = [None; 4];
        let mut fragments = 0;
        for _ in 0..32 {
            for end in &mut ends {
                let mut out = vec![];
                assert!(b.take(STREAM_PAGES, *end, &mut out));
                fragments += out.iter().filter(|r| Some(r.start) != *end).count();
                *end = out.last().map(Run::end);
            }
        }
        // 32 MiB each: the first MiB, and then pieces of 8 MiB.
        assert!(fragments <= 4 * 5, "{fragments}");
    }

    #[test]
    fn a_stream_goes_on_over_pieces_and_elsewhere_when_it_cannot() {
        let mut b = fresh(2048 * 4);
        let mut take = |pages, near| {
            let mut out = vec![];
            assert!(b.take(pages, near, &mut out));
            out
        };
        let run = |start, pages| vec![Run { start, pages }];
        assert_eq!(take(256, None), run(0, 256));
        assert_eq!(take(1900, Some(256)), run(256, 1900), "into the next piece");
        assert_eq!(take(256, Some(100)), run(4096, 256), "taken: a whole piece");
        assert_eq!(take(256, Some(4096 + 256)), run(4096 + 256, 256));
        assert_eq!(take(3, None), run(2156, 3), "others leave the rest to the stream");
        assert!(take(4096, Some(0)).len() > 1, "larger than any piece: as ever");
    }

    /// disk-I4, against a table of pages.
    #[test]
    fn fixed_sub_blocks_are_free_when_nothing_of_them_is_in_use() {
        for (seed, order) in [(1, 1u8), (2, 3), (3, 6)] {
            let (unit, total) = (1u64 << order, 9000u64);
            let mut rng = SplitMix::new(seed);
            let mut b = Buddy::in_sub_blocks(total, order);
            b.give_back(0, total);
            assert_eq!(b.free_pages(), total / unit * unit, "a piece at the end is none");
            let mut used = vec![false; total as usize];
            let mut held: Vec<Run> = vec![];
            for _ in 0..3000 {
                if rng.below(2) == 0 {
                    let want = 1 + rng.below(200) as u32;
                    let near = held.last().map(Run::end).filter(|_| rng.below(2) == 0);
                    let (mut out, before) = (vec![], b.free_pages());
                    let ok = b.take(want, near, &mut out);
                    assert_eq!(ok, b.rounded(want.into()) <= before);
                    assert_eq!(out.iter().map(|r| r.pages).sum::<u32>(), if ok { want } else { 0 });
                    assert!(out.iter().all(|r| r.start.is_multiple_of(unit)));
                    for page in out.iter().flat_map(|r| r.start..r.end()) {
                        assert!(
                            !std::mem::replace(&mut used[page as usize], true),
                            "page {page} given twice"
                        );
                    }
                    held.extend(out);
                } else if !held.is_empty() {
                    let r = held.swap_remove(rng.below(held.len() as u64) as usize);
                    let from = r.start + rng.below(r.pages.into());
                    b.give_back(from, r.end() - from);
                    used[from as usize..r.end() as usize].fill(false);
                    held.extend(
                        (from > r.start).then(|| Run { start: r.start, pages: (from - r.start) as u32 }),
                    );
                }
                let free = used.chunks_exact(unit as usize).filter(|block| !block.contains(&true)).count();
                assert_eq!(b.free_pages(), free as u64 * unit);
            }
            held.iter().for_each(|r| b.give_back(r.start, r.pages.into()));
            assert_eq!(b.free_pages(), total / unit * unit);
            assert!(b.partial.len() <= 1, "but for the piece at the end");
        }
    }
}
