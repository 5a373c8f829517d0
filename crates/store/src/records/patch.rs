//! Patches: bytes of small writes that are in the log and not in an extent yet, page by page. They overlay the extents: a read takes
//! the patch's bytes where it has some, and the bytes of the page below elsewhere.
//!
//! store-P1: an object has one patch per page at most. It has all small writes to that page since an extent last had the whole page.
//! store-P2: a change that gives a page another place, or removes it, also removes its patch.
//! store-P3: without a page below, the patch has the whole page: its other bytes are zeros.

use std::sync::Arc;

use types::crc::crc32c;
use types::{PAGE_SIZE, Seq};

use crate::records::chunks::{CHUNK_PAGES, Chunks};
use crate::records::page::Page;

/// The part of one page that a small write changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    pub page: u32,
    /// The written bytes: from `skip` on, `len` of them. All others are zeros.
    pub skip: u16,
    pub len: u16,
    /// CRC of the written bytes.
    pub crc: u32,
    pub bytes: Arc<Page>,
}

impl Fragment {
    /// `bytes` must end in the page.
    pub fn new(page: u32, skip: usize, bytes: &[u8], crc: u32) -> Fragment {
        assert!(skip + bytes.len() <= PAGE_SIZE, "a fragment lies in one page");
        let whole = match bytes.try_into() {
            Ok(page) => Page::with(page),
            Err(_) => {
                let mut whole = Page::zeros();
                whole[skip..skip + bytes.len()].copy_from_slice(bytes);
                whole
            }
        };
        Fragment { page, skip: skip as u16, len: bytes.len() as u16, crc, bytes: Arc::new(whole) }
    }

    pub fn content(&self) -> &[u8] {
        &self.bytes[self.skip as usize..self.end()]
    }
    fn end(&self) -> usize {
        self.skip as usize + self.len as usize
    }
    pub fn is_whole(&self) -> bool {
        self.len as usize == PAGE_SIZE
    }
}

/// The byte ranges of a page that a patch has, in rising order; they do not touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known(Vec<(u16, u16)>);

const WHOLE: (u16, u16) = (0, PAGE_SIZE as u16);

impl Known {
    fn whole() -> Known {
        Known(vec![WHOLE])
    }
    pub fn is_whole(&self) -> bool {
        self.0 == [WHOLE]
    }
    /// Begin and end of each part.
    pub fn parts(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.0.iter().map(|(begin, end)| (*begin as usize, *end as usize))
    }
    fn add(&mut self, mut begin: u16, mut end: u16) {
        assert!(begin < end && end as usize <= PAGE_SIZE, "a part of a page has bytes");
        // Parts that overlap or touch become one.
        self.0.retain(|(b, e)| {
            let is_apart = *e < begin || *b > end;
            if !is_apart {
                (begin, end) = (begin.min(*b), end.max(*e));
            }
            is_apart
        });
        let at = self.0.partition_point(|(b, _)| *b < begin);
        self.0.insert(at, (begin, end));
        debug_assert!(self.0.is_sorted_by(|a, b| a.1 < b.0), "parts rise and do not touch");
    }
}

/// The small writes to one page.
#[derive(Clone, Debug)]
pub struct Patch {
    bytes: Arc<Page>,
    known: Known,
    /// CRC of the whole page, if one write wrote all of it.
    crc: Option<u32>,
    /// The first log entry that has bytes of this patch.
    since: Seq,
    /// The last log entry that changed it.
    seq: Seq,
    /// There is no page below.
    is_new: bool,
    /// A checkpoint named it, and replay has not reached the entry with its bytes yet.
    is_named_only: bool,
}

impl Patch {
    /// A patch as a checkpoint names it; its bytes come from the log.
    pub fn named(since: Seq, is_new: bool) -> Patch {
        let known = if is_new { Known::whole() } else { Known(vec![]) };
        Patch {
            bytes: Arc::new(Page::zeros()),
            known,
            crc: None,
            since,
            seq: since,
            is_new,
            is_named_only: true,
        }
    }

    fn first(f: &Fragment, seq: Seq, is_new: bool) -> Patch {
        let known =
            if is_new || f.is_whole() { Known::whole() } else { Known(vec![(f.skip, f.end() as u16)]) };
        let crc = f.is_whole().then_some(f.crc);
        Patch { bytes: f.bytes.clone(), known, crc, since: seq, seq, is_new, is_named_only: false }
    }

    fn add(&mut self, f: &Fragment, seq: Seq) {
        let (skip, end) = (f.skip as usize, f.end());
        Arc::make_mut(&mut self.bytes)[skip..end].copy_from_slice(f.content());
        self.known.add(f.skip, end as u16);
        self.crc = None;
        self.seq = seq;
    }

    pub fn since(&self) -> Seq {
        self.since
    }
    pub fn seq(&self) -> Seq {
        self.seq
    }
    pub fn is_whole(&self) -> bool {
        self.known.is_whole()
    }
    #[cfg(test)]
    pub fn is_new(&self) -> bool {
        self.is_new
    }
    /// CRC of the whole page; `None` if the page below has some of its bytes.
    pub fn whole_crc(&self) -> Option<u32> {
        self.is_whole().then(|| self.crc.unwrap_or_else(|| crc32c(&self.bytes[..])))
    }
    /// False if the bytes in memory do not match the client's CRC any more.
    pub fn is_sound(&self) -> bool {
        self.crc.is_none_or(|crc| crc == crc32c(&self.bytes[..]))
    }
    /// Begin, end and bytes of each part.
    pub fn parts(&self) -> impl Iterator<Item = (usize, usize, &[u8])> {
        self.known.parts().map(|(begin, end)| (begin, end, &self.bytes[begin..end]))
    }
    /// Overwrites `bytes`, which begin `skip` bytes into the page, with the patch's bytes.
    pub fn lay_over(&self, bytes: &mut [u8], skip: usize) {
        for (begin, end) in self.known.parts() {
            let (begin, end) = (begin.max(skip), end.min(skip + bytes.len()));
            if begin < end {
                bytes[begin - skip..end - skip].copy_from_slice(&self.bytes[begin..end]);
            }
        }
    }
}

/// Patches of a chunk's pages, in page order.
type Chunk = Vec<(u32, Arc<Patch>)>;

/// An object's patches, in chunks as its extents are (chunks.rs). One object may have all patches of the overlay.
#[derive(Clone, Debug, Default)]
pub struct Patches {
    chunks: Chunks<Chunk>,
    count: u64,
    /// Patches without a page below.
    new_pages: u64,
}

impl Patches {
    pub fn len(&self) -> usize {
        self.count as usize
    }
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    pub fn new_pages(&self) -> u64 {
        self.new_pages
    }
    /// Patches with a page below.
    pub fn over_pages(&self) -> u64 {
        self.count - self.new_pages
    }
    pub fn get(&self, page: u32) -> Option<&Arc<Patch>> {
        let chunk = self.chunks.get(page / CHUNK_PAGES)?;
        Some(&chunk[place(chunk, page).ok()?].1)
    }
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Patch>)> {
        self.chunks.iter().flat_map(|(_, chunk)| chunk).map(|(page, patch)| (*page, patch))
    }
    /// The patches of pages `[first, limit)`.
    pub fn range(&self, first: u32, limit: u32) -> impl Iterator<Item = (u32, &Arc<Patch>)> {
        let chunks = self.chunks.between(first, limit).map(|at| self.chunks.at(at).1);
        let some = chunks.flat_map(move |chunk| &chunk[between(chunk, first, limit)]);
        some.map(|(page, patch)| (*page, patch))
    }
    /// Number of pages in `[first, limit)` that have a patch without a page below.
    pub fn count_new(&self, first: u32, limit: u32) -> u64 {
        self.range(first, limit).filter(|(_, p)| p.is_new).count() as u64
    }

    /// Inserts a patch, in the place of the page's present one.
    pub fn insert(&mut self, page: u32, patch: Patch) {
        self.remove(page);
        self.new_pages += patch.is_new as u64;
        self.count += 1;
        let chunk = self.chunks.get_mut(page / CHUNK_PAGES);
        let at = place(chunk, page).expect_err("it was removed");
        if chunk.is_empty() {
            // Most objects that have patches have a single one.
            chunk.reserve_exact(1);
        }
        chunk.insert(at, (page, Arc::new(patch)));
    }

    /// Adds a fragment of log entry `seq`; `has_page`: an extent has this page. True if the patch starts with this entry.
    pub fn add(&mut self, f: &Fragment, seq: Seq, has_page: bool) -> bool {
        match self.get_mut(f.page) {
            Some(patch) if !f.is_whole() => {
                Arc::make_mut(patch).add(f, seq);
                false
            }
            Some(patch) => {
                *patch = Arc::new(Patch::first(f, seq, patch.is_new));
                true
            }
            None => {
                self.insert(f.page, Patch::first(f, seq, !has_page));
                true
            }
        }
    }

    /// For replay of an entry before the checkpoint: adds the fragment's bytes if they belong to the patch that the checkpoint names.
    /// True if the patch starts with them.
    pub fn fill(&mut self, f: &Fragment, seq: Seq) -> bool {
        let Some(patch) = self.get_mut(f.page) else { return false };
        match (patch.is_named_only, seq == patch.since) {
            (true, true) => {
                *patch = Arc::new(Patch::first(f, seq, patch.is_new));
                true
            }
            (false, false) if seq > patch.since => {
                Arc::make_mut(patch).add(f, seq);
                false
            }
            _ => false,
        }
    }

    /// Sets the first log entry of a page's patch, after all its bytes were logged again.
    pub fn begin_at(&mut self, page: u32, since: Seq) {
        if let Some(patch) = self.get_mut(page) {
            let patch = Arc::make_mut(patch);
            assert!(patch.since < since, "a patch that is logged again starts later");
            patch.since = since;
        }
    }

    pub fn remove(&mut self, page: u32) {
        self.cut(page, page + 1);
    }

    /// Removes the patches of pages `[first, limit)`.
    pub fn cut(&mut self, first: u32, limit: u32) {
        let mut is_one_empty = false;
        for at in self.chunks.between(first, limit) {
            let chunk = self.chunks.at(at).1;
            let gone = between(chunk, first, limit);
            if gone.is_empty() {
                continue;
            }
            self.count -= gone.len() as u64;
            self.new_pages -= chunk[gone.clone()].iter().filter(|(_, patch)| patch.is_new).count() as u64;
            assert!(self.new_pages <= self.count, "new pages are among the patched ones");
            if gone.len() < chunk.len() {
                self.chunks.at_mut(at).drain(gone);
            } else {
                self.chunks.clear(at);
                is_one_empty = true;
            }
        }
        if is_one_empty {
            self.chunks.drop_empty(Vec::is_empty);
        }
    }

    fn get_mut(&mut self, page: u32) -> Option<&mut Arc<Patch>> {
        self.get(page)?;
        let chunk = self.chunks.get_mut(page / CHUNK_PAGES);
        let at = place(chunk, page).expect("it was just found");
        Some(&mut chunk[at].1)
    }
}

fn place(chunk: &Chunk, page: u32) -> Result<usize, usize> {
    chunk.binary_search_by_key(&page, |(page, _)| *page)
}

fn between(chunk: &Chunk, first: u32, limit: u32) -> std::ops::Range<usize> {
    let before = |page: u32| chunk.partition_point(|(other, _)| *other < page);
    before(first)..before(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_page_agree_with_a_table() {
        let mut rng = disk::SplitMix::new(5);
        for _ in 0..200 {
            let mut known = Known(vec![]);
            let mut table = [false; PAGE_SIZE];
            for _ in 0..12 {
                let begin = rng.below(PAGE_SIZE as u64) as usize;
                let end = begin + 1 + rng.below((PAGE_SIZE - begin) as u64) as usize;
                known.add(begin as u16, end as u16);
                table[begin..end].fill(true);
                let mut seen = [false; PAGE_SIZE];
                let mut last = None;
                for (begin, end) in known.parts() {
                    assert!(
                        begin < end && last.is_none_or(|last| last < begin),
                        "parts rise and do not touch"
                    );
                    seen[begin..end].fill(true);
                    last = Some(end);
                }
                assert_eq!(seen, table);
                assert_eq!(known.is_whole(), table.iter().all(|k| *k));
            }
        }
    }

    #[test]
    fn a_patch_lies_over_the_page_below_where_it_has_bytes() {
        let mut patches = Patches::default();
        let part = |skip: usize, bytes: &[u8]| Fragment::new(7, skip, bytes, crc32c(bytes));
        assert!(patches.add(&part(10, &[1; 20]), Seq(3), true));
        assert!(!patches.add(&part(20, &[2; 20]), Seq(4), true), "the same patch");
        let patch = patches.get(7).unwrap();
        assert_eq!((patch.since(), patch.seq(), patch.whole_crc()), (Seq(3), Seq(4), None));
        let mut bytes = [9; 30];
        patch.lay_over(&mut bytes, 5);
        let want: Vec<u8> = [[9; 5].as_slice(), &[1; 10], &[2; 15]].concat();
        assert_eq!(bytes[..], want);
        // A whole page starts a new patch; without a page below, a part makes a whole patch (store-P3).
        assert!(patches.add(&part(0, &[5; PAGE_SIZE]), Seq(5), true));
        assert_eq!(patches.get(7).unwrap().whole_crc(), Some(crc32c(&[5; PAGE_SIZE])));
        patches.cut(0, 8);
        assert!(patches.add(&part(4000, &[3; 96]), Seq(6), false));
        let patch = patches.get(7).unwrap();
        assert!(patch.is_whole() && patch.is_new() && patches.new_pages() == 1);
        let mut bytes = [9; PAGE_SIZE];
        patch.lay_over(&mut bytes, 0);
        assert!(bytes[..4000] == [0; 4000] && bytes[4000..] == [3; 96]);
        patches.cut(7, 8);
        assert_eq!((patches.len(), patches.new_pages()), (0, 0));
    }

    /// Over chunk borders too; a clone stays as it was.
    #[test]
    fn patches_agree_with_a_table() {
        let mut rng = disk::SplitMix::new(77);
        let mut below = |n: u64| rng.below(n);
        let (base, size) = (CHUNK_PAGES - 100, CHUNK_PAGES as usize + 200);
        let (mut patches, mut table) = (Patches::default(), vec![None; size]);
        let seen = |patches: &Patches| patches.iter().map(|(page, p)| (page, p.since())).collect::<Vec<_>>();
        for step in 1..2000u64 {
            let (first, len) = (below(size as u64) as usize, below(20) as usize);
            let limit = (first + if below(50) == 0 { len * 200 } else { len }).min(size);
            let (before, was) = (patches.clone(), seen(&patches));
            if below(3) == 0 {
                patches.cut(base + first as u32, base + limit as u32);
                table[first..limit].fill(None);
            } else {
                let has_page = below(2) == 0;
                let f = Fragment::new(base + first as u32, 0, &[1; PAGE_SIZE], 0);
                assert!(patches.add(&f, Seq(step), has_page), "a whole page begins anew");
                let is_new = table[first].map_or(!has_page, |(_, is_new)| is_new);
                table[first] = Some((Seq(step), is_new));
            }
            assert_eq!(seen(&before), was, "step {step}");
            for (i, want) in table.iter().enumerate() {
                let patch = patches.get(base + i as u32).map(|p| (p.since(), p.is_new()));
                assert_eq!(patch, *want, "step {step} page {i}");
            }
            assert_eq!(patches.len(), table.iter().flatten().count());
            assert_eq!(
                patches.new_pages(),
                table.iter().flatten().filter(|(_, is_new)| *is_new).count() as u64
            );
            let some = patches.range(base + first as u32, base + limit as u32).map(|(page, _)| page - base);
            let want = (first..limit).filter(|i| table[*i].is_some()).map(|i| i as u32);
            assert!(some.eq(want), "step {step}");
        }
        patches.cut(0, u32::MAX);
        assert!(patches.is_empty() && patches.chunks.iter().next().is_none());
    }
}
