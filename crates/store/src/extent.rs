//! An object's extent map: which pages lie where, with each page's CRC.
//!
//! I1: extents do not overlap and none is empty.  I2: `pages` is their sum.  I3: an extent has one CRC per page.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::alloc::Run;

/// CRCs of an extent's pages. Pieces of a cut extent share the CRCs of the whole: a cut copies nothing.
#[derive(Clone, Debug)]
enum Crcs {
    One(u32),
    Many { all: Arc<[u32]>, skip: u32 },
}

/// Neighbouring pages of an object that are neighbours on the medium.
#[derive(Clone, Debug)]
pub struct Extent {
    pub run: Run,
    crcs: Crcs,
}

impl Extent {
    /// `run.pages` CRCs of `all` from `skip` on.
    pub fn new(run: Run, all: &Arc<[u32]>, skip: u32) -> Extent {
        assert!(run.pages > 0 && all.len() >= (skip + run.pages) as usize, "I3: one CRC per page");
        match run.pages {
            1 => Extent { run, crcs: Crcs::One(all[skip as usize]) },
            _ => Extent { run, crcs: Crcs::Many { all: all.clone(), skip } },
        }
    }
    pub fn one(start: u64, crc: u32) -> Extent {
        Extent { run: Run { start, pages: 1 }, crcs: Crcs::One(crc) }
    }

    pub fn crcs(&self) -> &[u32] {
        match &self.crcs {
            Crcs::One(crc) => std::slice::from_ref(crc),
            Crcs::Many { all, skip } => &all[*skip as usize..(*skip + self.run.pages) as usize],
        }
    }

    /// The piece of `pages` pages that begins `skip` pages in.
    pub fn piece(&self, skip: u32, pages: u32) -> Extent {
        let run = Run { start: self.run.start + skip as u64, pages };
        match &self.crcs {
            Crcs::One(crc) => Extent { run, crcs: Crcs::One(*crc) },
            Crcs::Many { all, skip: old } => Extent::new(run, all, old + skip),
        }
    }
}

/// Where one page lies and what its CRC is: equal sites hold equal bytes for who reads since before he saw the first (readers.rs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub page: u64,
    pub crc: u32,
}

/// The map: object page number → extent.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    map: BTreeMap<u32, Extent>,
    pages: u64,
}

impl ExtentMap {
    pub fn pages(&self) -> u64 {
        self.pages
    }
    pub fn len(&self) -> usize {
        self.map.len()
    }
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Extent)> {
        self.map.iter().map(|(p, e)| (*p, e))
    }

    /// Pieces of extents within pages `[first, limit)`, in order, each with its first page.
    pub fn range(&self, first: u32, limit: u32) -> impl Iterator<Item = (u32, Extent)> + '_ {
        let from = self.map.range(..=first).next_back().map_or(first, |(p, _)| *p);
        self.map.range(from..limit.max(from)).filter_map(move |(at, e)| {
            let begin = first.max(*at);
            let end = limit.min(at + e.run.pages);
            (begin < end).then(|| (begin, e.piece(begin - at, end - begin)))
        })
    }

    /// How many of pages `[first, limit)` there are.
    pub fn count(&self, first: u32, limit: u32) -> u64 {
        self.within(first, limit).map(|(begin, end)| (end - begin) as u64).sum()
    }
    /// The first page at or after `page`.
    pub fn first_from(&self, page: u32) -> Option<u32> {
        self.within(page, u32::MAX).next().map(|(begin, _)| begin)
    }
    /// The first page at or after `page` that is not there.
    pub fn end_of_run(&self, page: u32) -> u32 {
        let mut at = page;
        for (begin, end) in self.within(page, u32::MAX) {
            if begin > at {
                break;
            }
            at = end;
        }
        at
    }
    /// As `range`, page numbers only.
    fn within(&self, first: u32, limit: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let from = self.map.range(..=first).next_back().map_or(first, |(p, _)| *p);
        let clip = move |(at, e): (&u32, &Extent)| (first.max(*at), limit.min(at + e.run.pages));
        self.map.range(from..limit.max(from)).map(clip).filter(|(begin, end)| begin < end)
    }

    pub fn site(&self, page: u32) -> Option<Site> {
        let (at, e) = self.map.range(..=page).next_back()?;
        let skip = page - at;
        (skip < e.run.pages).then(|| Site { page: e.run.start + skip as u64, crc: e.crcs()[skip as usize] })
    }

    /// Puts an extent at `page`; what it replaces is appended to `freed`.
    pub fn put(&mut self, page: u32, extent: Extent, freed: &mut Vec<Run>) {
        self.cut(page, page + extent.run.pages, freed);
        self.pages += extent.run.pages as u64;
        self.map.insert(page, extent);
    }

    /// Takes pages `[first, limit)` out; their runs are appended to `freed`.
    pub fn cut(&mut self, first: u32, limit: u32, freed: &mut Vec<Run>) {
        if first >= limit {
            return;
        }
        // Only the last extent at or before `first` can reach in from the left.
        if let Some((at, e)) = self.map.range(..first).next_back()
            && at + e.run.pages > first
        {
            let (at, e) = (*at, e.clone());
            let end = at + e.run.pages;
            self.map.insert(at, e.piece(0, first - at));
            if end > limit {
                self.map.insert(limit, e.piece(limit - at, end - limit));
            }
            let gone = e.piece(first - at, end.min(limit) - first);
            self.pages -= gone.run.pages as u64;
            freed.push(gone.run);
        }
        while let Some((at, _)) = self.map.range(first..limit).next() {
            let at = *at;
            let e = self.map.remove(&at).expect("it was just found");
            let end = at + e.run.pages;
            let gone = e.piece(0, end.min(limit) - at);
            if end > limit {
                self.map.insert(limit, e.piece(limit - at, end - limit));
            }
            self.pages -= gone.run.pages as u64;
            freed.push(gone.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_and_cuts_agree_with_a_table() {
        let mut rng = disk::SplitMix::new(12345);
        let mut below = |n: u64| rng.below(n);
        let mut map = ExtentMap::default();
        let mut table: Vec<Option<Site>> = vec![None; 600];
        let mut next = 1000u64;
        for step in 0..3000 {
            let first = below(500) as u32;
            let pages = 1 + below(90) as u32;
            let mut freed = vec![];
            let mut gone: Vec<u64> =
                table[first as usize..(first + pages) as usize].iter().flatten().map(|s| s.page).collect();
            if below(3) > 0 {
                let all: Arc<[u32]> = (0..pages + 2).map(|i| next as u32 + i).collect();
                map.put(first, Extent::new(Run { start: next, pages }, &all, 2), &mut freed);
                for i in 0..pages {
                    table[(first + i) as usize] =
                        Some(Site { page: next + i as u64, crc: next as u32 + 2 + i });
                }
                next += pages as u64;
            } else {
                map.cut(first, first + pages, &mut freed);
                table[first as usize..(first + pages) as usize].fill(None);
            }
            let mut out: Vec<u64> = freed.iter().flat_map(|r| r.start..r.end()).collect();
            out.sort_unstable();
            gone.sort_unstable();
            assert_eq!(out, gone, "step {step}: exactly what was replaced is freed");
            assert_eq!(map.pages(), table.iter().flatten().count() as u64);
            for (page, want) in table.iter().enumerate() {
                assert_eq!(map.site(page as u32), *want, "step {step} page {page}");
            }
            let (from, to) = (below(300) as u32, 300 + below(300) as u32);
            let mut seen = vec![None; 600];
            for (at, e) in map.range(from, to) {
                for (i, crc) in e.crcs().iter().enumerate() {
                    seen[at as usize + i] = Some(Site { page: e.run.start + i as u64, crc: *crc });
                }
            }
            let holds = |p: &u32| table[*p as usize].is_some();
            assert_eq!(map.count(from, to), (from..to).filter(holds).count() as u64);
            assert_eq!(map.first_from(from), (from..600).find(holds));
            assert_eq!(map.end_of_run(from), (from..600).find(|p| !holds(p)).unwrap_or(600));
            for page in 0..600 {
                let want = if (from as usize..to as usize).contains(&page) { table[page] } else { None };
                assert_eq!(seen[page], want);
            }
        }
    }
}
