//! Pages of an object that have space and no bytes yet: `fallocate` promised it, and no write has used it.
//!
//! A reservation is a number, not a place: every write goes to new places (store-S1), so it is enough that the medium keeps as many
//! pages free as were promised (space.rs, store-R1).
//! A checkpoint or reader shares the set with the next change, which copies a few nodes of the tree and not all runs. `chunks.rs` is not
//! used here: one run may be as large as the medium, and would need an entry in each of its chunks.
//!
//! store-RV1: runs are not empty, do not overlap and do not touch.  store-RV2: `pages` is their sum.

use imbl::OrdMap;

/// A set of page numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reserved {
    /// First page → the page after the last.
    runs: OrdMap<u32, u32>,
    pages: u64,
}

impl Reserved {
    pub fn pages(&self) -> u64 {
        self.pages
    }
    pub fn len(&self) -> usize {
        self.runs.len()
    }
    /// Runs in order: first page, and the page after the last.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().map(|(first, limit)| (*first, *limit))
    }
    /// The page after the last reserved one; 0 if there is none.
    pub fn limit(&self) -> u32 {
        self.runs.get_max().map_or(0, |(_, limit)| *limit)
    }

    /// Number of pages in `[first, limit)` that are in the set.
    pub fn count(&self, first: u32, limit: u32) -> u64 {
        let from = self.runs.get_prev(&first).map_or(first, |(begin, _)| *begin);
        let within =
            |(begin, end): (&u32, &u32)| (*end.min(&limit)).saturating_sub(*begin.max(&first)) as u64;
        self.runs.range(from..limit.max(from)).map(within).sum()
    }

    pub fn insert(&mut self, mut first: u32, mut limit: u32) {
        if first >= limit {
            return;
        }
        // store-RV1: runs that overlap or touch become one.
        while let Some((begin, end)) = self.runs.get_prev(&limit).map(|(b, e)| (*b, *e))
            && end >= first
        {
            self.runs.remove(&begin);
            assert!(self.pages >= (end - begin) as u64, "store-RV2: the sum has each run");
            self.pages -= (end - begin) as u64;
            (first, limit) = (first.min(begin), limit.max(end));
        }
        let is_apart = self.runs.get_prev(&limit).is_none_or(|(_, end)| *end < first);
        debug_assert!(is_apart, "store-RV1: a run touches none before it");
        self.runs.insert(first, limit);
        self.pages += (limit - first) as u64;
    }

    pub fn remove(&mut self, first: u32, limit: u32) {
        if first >= limit {
            return;
        }
        while let Some((begin, end)) = self.runs.get_prev(&(limit - 1)).map(|(b, e)| (*b, *e))
            && end > first
        {
            self.runs.remove(&begin);
            self.pages -= (end - begin) as u64;
            // Put back the rest on both sides. The right one begins at `limit`, so the loop does not meet it again.
            for (begin, end) in [(begin, first), (limit, end)] {
                if begin < end {
                    self.runs.insert(begin, end);
                    self.pages += (end - begin) as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint clones the set under the tail lock, and the next change must not copy all of it.
    #[test]
    fn a_clone_shares_its_runs_and_stays_as_it_was() {
        let mut set = Reserved::default();
        (0..100_000).for_each(|i| set.insert(3 * i, 3 * i + 2));
        let kept = set.clone();
        assert!(kept.runs.ptr_eq(&set.runs));
        set.remove(30, 31);
        set.insert(299_999, 300_004);
        assert_eq!((kept.pages(), kept.len(), kept.count(30, 31)), (200_000, 100_000, 1));
        assert_eq!((set.pages(), set.len(), set.count(30, 31)), (200_004, 100_000, 0));
    }

    #[test]
    fn sets_agree_with_a_table() {
        let mut rng = disk::SplitMix::new(99);
        let (mut set, mut table) = (Reserved::default(), vec![false; 300]);
        for step in 0..5000 {
            let first = rng.below(280) as u32;
            let limit = first + rng.below(20) as u32;
            let is_in = rng.below(2) == 0;
            match is_in {
                true => set.insert(first, limit),
                false => set.remove(first, limit),
            }
            table[first as usize..limit as usize].fill(is_in);
            assert_eq!(set.pages(), table.iter().filter(|p| **p).count() as u64, "step {step}");
            let runs: Vec<_> = set.iter().collect();
            assert!(runs.iter().all(|(begin, end)| begin < end), "step {step}");
            assert!(runs.windows(2).all(|w| w[0].1 < w[1].0), "store-RV1, step {step}: {runs:?}");
            let (from, to) = (rng.below(300) as u32, rng.below(300) as u32);
            let want = if from < to { &table[from as usize..to as usize] } else { &[] };
            assert_eq!(set.count(from, to), want.iter().filter(|p| **p).count() as u64, "step {step}");
            assert_eq!(set.limit() as usize, table.iter().rposition(|p| *p).map_or(0, |p| p + 1));
        }
    }
}
