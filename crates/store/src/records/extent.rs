//! An object's extent map: where each page lies on the medium, and its CRC.
//!
//! It is kept in chunks (chunks.rs); an extent that crosses a chunk border becomes two. A chunk's pieces are 16 bytes each, and its CRCs
//! are in one array: an extent of one page takes 20 bytes, and a put that replaces whole pieces moves nothing.
//! store-X1: extents do not overlap, none is empty and none crosses the border of a chunk.  store-X2: `pages` and `extents` are their sums.
//! store-X3: a chunk has one CRC per page of its pieces, in page order; `rank` is the number of CRCs before a piece's first.

use std::ops::Range;
use std::sync::Arc;

use crate::records::chunks::{CHUNK_PAGES, Chunks};
use disk::alloc::Run;

/// CRCs of an extent's pages.
#[derive(Clone, Debug)]
enum Crcs {
    One(u32),
    Many { all: Arc<[u32]>, skip: u32 },
}

/// Contiguous pages of an object that are contiguous on the medium.
#[derive(Clone, Debug)]
pub struct Extent {
    pub run: Run,
    crcs: Crcs,
}

impl Extent {
    /// Its CRCs are `run.pages` of `all`, from index `skip` on.
    pub fn new(run: Run, all: &Arc<[u32]>, skip: u32) -> Extent {
        assert!(run.pages > 0 && all.len() >= (skip + run.pages) as usize, "one CRC per page");
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
}

/// An extent, or a part of one, borrowed from the map.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub run: Run,
    crcs: &'a [u32],
}

impl<'a> Part<'a> {
    pub fn crcs(&self) -> &'a [u32] {
        self.crcs
    }
    fn to_extent(self) -> Extent {
        match self.crcs {
            [crc] => Extent::one(self.run.start, *crc),
            crcs => Extent { run: self.run, crcs: Crcs::Many { all: crcs.into(), skip: 0 } },
        }
    }
}

/// The place and CRC of one page. Equal sites hold equal bytes for a thread whose `Reading` began before it saw the first (readers.rs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub page: u64,
    pub crc: u32,
}

/// An extent in a chunk. Page numbers count from the chunk's first page.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    start: u64,
    page: u16,
    pages: u16,
    rank: u16,
}

impl Piece {
    fn end(&self) -> u32 {
        self.page as u32 + self.pages as u32
    }
    fn end_rank(&self) -> usize {
        self.rank as usize + self.pages as usize
    }
    /// The part within pages `[first, limit)`, which must overlap the piece.
    fn clip(&self, first: u32, limit: u32) -> Piece {
        let begin = first.max(self.page as u32);
        let skip = begin - self.page as u32;
        Piece {
            start: self.start + skip as u64,
            page: begin as u16,
            pages: (limit.min(self.end()) - begin) as u16,
            rank: self.rank + skip as u16,
        }
    }
    fn run(&self) -> Run {
        Run { start: self.start, pages: self.pages as u32 }
    }
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// In page order.
    pieces: Vec<Piece>,
    crcs: Vec<u32>,
}

impl Chunk {
    /// Indexes of the pieces that overlap pages `[first, limit)`.
    fn between(&self, first: u32, limit: u32) -> Range<usize> {
        let from = self.pieces.partition_point(|p| p.end() <= first);
        let some = self.pieces[from..].partition_point(|p| (p.page as u32) < limit);
        from..from + some
    }

    /// Replaces pages `[first, limit)` by an extent's place and CRCs, or by nothing. The runs that it replaces are appended to `freed`.
    fn replace(&mut self, first: u32, limit: u32, by: Option<(u64, &[u32])>, freed: &mut Vec<Run>) {
        let (start, crcs) = by.unwrap_or_default();
        assert!(first < limit && limit <= CHUNK_PAGES, "store-X1: a change of a chunk stays inside it");
        let is_full = by.is_none() || crcs.len() == (limit - first) as usize;
        assert!(is_full, "store-X3: an extent has one CRC per page");
        let range = self.between(first, limit);
        let old = &self.pieces[range.clone()];
        freed.extend(old.iter().map(|p| p.clip(first, limit).run()));
        // The CRCs of the clipped pieces are replaced. Without such pieces, the new CRCs go after those of the piece before.
        let begin = match (old.first(), range.start.checked_sub(1)) {
            (Some(p), _) => p.clip(first, limit).rank as usize,
            (None, Some(before)) => self.pieces[before].end_rank(),
            (None, None) => 0,
        };
        let end = old.last().map_or(begin, |p| p.clip(first, limit).end_rank());
        let mut new = [Piece::default(); 3];
        let mut count = 0;
        let mut push = |p: Piece| {
            new[count] = p;
            count += 1;
        };
        if let Some(left) = old.first().filter(|p| (p.page as u32) < first) {
            push(left.clip(0, first));
        }
        if !crcs.is_empty() {
            push(Piece { start, page: first as u16, pages: crcs.len() as u16, rank: begin as u16 });
        }
        if let Some(right) = old.last().filter(|p| p.end() > limit) {
            push(Piece { rank: (begin + crcs.len()) as u16, ..right.clip(limit, CHUNK_PAGES) });
        }
        let behind = range.start + count;
        replace(&mut self.pieces, range, &new[..count]);
        replace(&mut self.crcs, begin..end, crcs);
        let (more, less) = (crcs.len() as u16, (end - begin) as u16);
        if more != less {
            self.pieces[behind..].iter_mut().for_each(|p| p.rank = p.rank + more - less);
        }
        debug_assert!(self.pieces.iter().all(|p| p.pages > 0), "store-X1: no extent is empty");
        let is_in_order = self.pieces.is_sorted_by(|a, b| a.end() <= b.page as u32);
        debug_assert!(is_in_order, "store-X1: extents are in order and do not overlap");
        let is_ranked = self.pieces.is_sorted_by(|a, b| a.end_rank() == b.rank as usize);
        debug_assert!(is_ranked, "store-X3: ranks count the CRCs before a piece");
        let count = self.pieces.last().map_or(0, Piece::end_rank);
        assert_eq!(count, self.crcs.len(), "store-X3: a chunk has one CRC per page");
    }

    fn part(&self, p: &Piece) -> Part<'_> {
        Part { run: p.run(), crcs: &self.crcs[p.rank as usize..p.end_rank()] }
    }
}

/// Replaces a range of an array. The array grows by a quarter at least, and shrinks when less than half of its capacity is used.
fn replace<T: Copy + Default>(row: &mut Vec<T>, range: Range<usize>, by: &[T]) {
    let (len, more) = (row.len(), by.len().saturating_sub(range.len()));
    if more > 0 {
        if len + more > row.capacity() {
            row.reserve_exact(more.max(len / 4));
        }
        row.resize(len + more, T::default());
    }
    row.copy_within(range.end..len, range.start + by.len());
    row[range.start..range.start + by.len()].copy_from_slice(by);
    row.truncate(len - range.len() + by.len());
    if row.len() < row.capacity() / 2 {
        row.shrink_to_fit();
    }
}

/// The map: object page number → extent.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap {
    chunks: Chunks<Chunk>,
    pages: u64,
    extents: u32,
}

impl ExtentMap {
    pub fn pages(&self) -> u64 {
        self.pages
    }
    pub fn len(&self) -> usize {
        self.extents as usize
    }
    pub fn iter(&self) -> impl Iterator<Item = (u32, Part<'_>)> {
        self.chunks.iter().flat_map(|(number, chunk)| {
            let pieces = chunk.pieces.iter();
            pieces.map(move |p| (number * CHUNK_PAGES + p.page as u32, chunk.part(p)))
        })
    }

    /// Pieces of extents within pages `[first, limit)`, in order, each with its first page.
    pub fn range(&self, first: u32, limit: u32) -> impl Iterator<Item = (u32, Extent)> + '_ {
        self.clipped(first, limit).map(|(chunk, base, p)| (base + p.page as u32, chunk.part(&p).to_extent()))
    }

    /// Number of mapped pages in `[first, limit)`.
    pub fn count(&self, first: u32, limit: u32) -> u64 {
        self.within(first, limit).map(|(begin, end)| (end - begin) as u64).sum()
    }
    /// The first mapped page at or after `page`.
    pub fn first_from(&self, page: u32) -> Option<u32> {
        self.within(page, u32::MAX).next().map(|(begin, _)| begin)
    }
    /// The first page at or after `page` that is not mapped.
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
    /// As `range`, page numbers only: each piece's first page, and the one after its last.
    pub fn within(&self, first: u32, limit: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.clipped(first, limit).map(|(_, base, p)| (base + p.page as u32, base + p.end()))
    }
    /// As `range`, each piece with its chunk and the chunk's first page.
    fn clipped(&self, first: u32, limit: u32) -> impl Iterator<Item = (&Chunk, u32, Piece)> + '_ {
        self.chunks.between(first, limit).flat_map(move |at| {
            let (number, chunk) = self.chunks.at(at);
            let (first, limit) = inside(number, first, limit);
            let pieces = chunk.pieces[chunk.between(first, limit)].iter();
            pieces.map(move |p| (chunk, number * CHUNK_PAGES, p.clip(first, limit)))
        })
    }

    pub fn site(&self, page: u32) -> Option<Site> {
        let chunk = self.chunks.get(page / CHUNK_PAGES)?;
        let page = page % CHUNK_PAGES;
        let p = chunk.pieces.get(chunk.pieces.partition_point(|p| p.end() <= page))?;
        let skip = page.checked_sub(p.page as u32)?;
        Some(Site { page: p.start + skip as u64, crc: chunk.crcs[(p.rank as u32 + skip) as usize] })
    }

    /// Puts an extent at `page`. The runs that it replaces are appended to `freed`.
    pub fn put(&mut self, page: u32, extent: Extent, freed: &mut Vec<Run>) {
        let (mut page, mut start, mut crcs) = (page, extent.run.start, extent.crcs());
        while !crcs.is_empty() {
            let first = page % CHUNK_PAGES;
            let (these, rest) = crcs.split_at(crcs.len().min((CHUNK_PAGES - first) as usize));
            let chunk = self.chunks.get_mut(page / CHUNK_PAGES);
            let before = (chunk.pieces.len(), chunk.crcs.len());
            chunk.replace(first, first + these.len() as u32, Some((start, these)), freed);
            self.extents = self.extents + chunk.pieces.len() as u32 - before.0 as u32;
            self.pages = self.pages + chunk.crcs.len() as u64 - before.1 as u64;
            (page, start, crcs) = (page + these.len() as u32, start + these.len() as u64, rest);
        }
    }

    /// Removes pages `[first, limit)`. Their runs are appended to `freed`.
    pub fn cut(&mut self, first: u32, limit: u32, freed: &mut Vec<Run>) {
        let mut is_one_empty = false;
        for at in self.chunks.between(first, limit) {
            let (number, chunk) = self.chunks.at(at);
            let (first, limit) = inside(number, first, limit);
            let before = (chunk.pieces.len(), chunk.crcs.len());
            let is_left = (chunk.pieces[0].page as u32) < first || chunk.pieces[before.0 - 1].end() > limit;
            let mut after = (0, 0);
            if is_left {
                if chunk.between(first, limit).is_empty() {
                    continue;
                }
                let chunk = self.chunks.at_mut(at);
                chunk.replace(first, limit, None, freed);
                after = (chunk.pieces.len(), chunk.crcs.len());
            } else {
                freed.extend(chunk.pieces.iter().map(Piece::run));
                self.chunks.clear(at);
                is_one_empty = true;
            }
            self.extents = self.extents + after.0 as u32 - before.0 as u32;
            self.pages = self.pages + after.1 as u64 - before.1 as u64;
        }
        if is_one_empty {
            self.chunks.drop_empty(|chunk| chunk.pieces.is_empty());
        }
    }
}

/// The part of pages `[first, limit)` that lies in a chunk, counted from the chunk's first page.
fn inside(number: u32, first: u32, limit: u32) -> (u32, u32) {
    let base = number * CHUNK_PAGES;
    (first.saturating_sub(base), CHUNK_PAGES.min(limit - base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_and_cuts_agree_with_a_table() {
        // Within a chunk, over the border of two, and over several chunks at once.
        agrees_with_a_table(0, 600, 90, 3000);
        agrees_with_a_table(CHUNK_PAGES - 300, 600, 90, 3000);
        agrees_with_a_table(5 * CHUNK_PAGES - 100, 3 * CHUNK_PAGES as usize, 5000, 200);
        // The last pages that a file can have.
        let last = (types::FILE_SIZE_MAX / types::PAGE_SIZE as u64) as u32;
        agrees_with_a_table(last - 600, 600, 90, 300);
    }

    /// Random changes of up to `pages_max` of `size` pages from `base` on.
    fn agrees_with_a_table(base: u32, size: usize, pages_max: u64, steps: u32) {
        let mut rng = disk::SplitMix::new(12345);
        let mut below = |n: u64| rng.below(n);
        let mut map = ExtentMap::default();
        let mut table: Vec<Option<Site>> = vec![None; size];
        let mut next = 1000u64;
        for step in 0..steps {
            let first = below(size as u64 - 10) as usize;
            let pages = (1 + below(pages_max) as usize).min(size - first);
            let of_table = first..first + pages;
            let page = base + first as u32;
            let mut freed = vec![];
            let mut gone: Vec<u64> = table[of_table.clone()].iter().flatten().map(|s| s.page).collect();
            if below(3) > 0 {
                let all: Arc<[u32]> = (0..pages as u32 + 2).map(|i| next as u32 + i).collect();
                let run = Run { start: next, pages: pages as u32 };
                map.put(page, Extent::new(run, &all, 2), &mut freed);
                let site = |i: u64| Some(Site { page: next + i, crc: (next + 2 + i) as u32 });
                of_table.enumerate().for_each(|(i, at)| table[at] = site(i as u64));
                next += pages as u64;
            } else {
                map.cut(page, page + pages as u32, &mut freed);
                table[of_table].fill(None);
            }
            let mut out: Vec<u64> = freed.iter().flat_map(|r| r.start..r.end()).collect();
            out.sort_unstable();
            gone.sort_unstable();
            assert_eq!(out, gone, "step {step}: exactly what was replaced is freed");
            assert_eq!(map.pages(), table.iter().flatten().count() as u64);
            assert_eq!(map.len(), map.iter().count(), "store-X2");
            for (i, want) in table.iter().enumerate() {
                assert_eq!(map.site(base + i as u32), *want, "step {step} page {i}");
            }
            let half = size as u64 / 2;
            let (from, to) = (below(half) as usize, (half + below(half)) as usize);
            let mut seen = vec![None; size];
            for (at, e) in map.range(base + from as u32, base + to as u32) {
                for (i, crc) in e.crcs().iter().enumerate() {
                    seen[(at - base) as usize + i] = Some(Site { page: e.run.start + i as u64, crc: *crc });
                }
            }
            let holds = |p: &usize| table[*p].is_some();
            let (first, end) = (base + from as u32, base + to as u32);
            assert_eq!(map.count(first, end), (from..to).filter(holds).count() as u64);
            assert_eq!(map.first_from(first), (from..size).find(holds).map(|p| base + p as u32));
            let gap = (from..size).find(|p| !holds(p)).unwrap_or(size);
            assert_eq!(map.end_of_run(first), base + gap as u32);
            for (page, seen) in seen.into_iter().enumerate() {
                assert_eq!(seen, if (from..to).contains(&page) { table[page] } else { None });
            }
        }
        map.cut(0, u32::MAX, &mut vec![]);
        assert_eq!((map.pages(), map.len(), map.iter().count(), map.chunks.iter().count()), (0, 0, 0, 0));
    }

    /// A clone, which a checkpoint writes meanwhile, stays as it was. Only the changed chunk is copied.
    #[test]
    fn a_change_copies_the_chunk_that_it_touches() {
        let mut map = ExtentMap::default();
        for page in (0..4 * CHUNK_PAGES).step_by(512) {
            map.put(page, Extent::one(page as u64, page), &mut vec![]);
        }
        let seen =
            |map: &ExtentMap| map.iter().map(|(page, e)| (page, e.run, e.crcs()[0])).collect::<Vec<_>>();
        let (before, was) = (map.clone(), seen(&map));
        map.put(CHUNK_PAGES + 512, Extent::one(77, 7), &mut vec![]);
        map.cut(2 * CHUNK_PAGES, 3 * CHUNK_PAGES, &mut vec![]);
        map.cut(3 * CHUNK_PAGES + 1, 3 * CHUNK_PAGES + 500, &mut vec![]);
        assert_eq!(seen(&before), was);
        let is_shared =
            |number| std::ptr::eq(map.chunks.get(number).unwrap(), before.chunks.get(number).unwrap());
        assert_eq!([0, 1, 3].map(is_shared), [true, false, true]);
        assert!(map.chunks.get(2).is_none());
    }

    /// Most objects are small, and there are 10^7 of them.
    #[test]
    fn an_extent_of_one_page_takes_twenty_bytes() {
        let mut map = ExtentMap::default();
        map.put(3, Extent::one(5, 6), &mut vec![]);
        let Chunks::One(0, chunk) = &map.chunks else { panic!("a single chunk has no list") };
        let heap = chunk.pieces.capacity() * size_of::<Piece>() + chunk.crcs.capacity() * 4;
        assert_eq!((heap, size_of::<ExtentMap>() <= 72), (20, true));
    }
}
