//! Space for an owner's leaves: the parts of a volume's two checkpoint slots behind the heads of checkpoints, in pages. The owner writes
//! leaves to free pages there, and its next checkpoint names them.
//!
//! disk-L1: a leaf that the durable checkpoint names is never overwritten: its pages are in use until the owner gives them back, after
//!     a checkpoint without the leaf is durable.
//! disk-L2: free pages are discarded after a while (`freed`), except those that were reserved when the medium was formatted: the next
//!     checkpoint finds space there, even below a sparse file whose host is full.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use types::crc::crc32c;

use crate::Disk;
use crate::alloc::{Buddy, Run};
use crate::freed::{Freed, RUNS_MAX};
use crate::volume::slot_bytes_reserved;

const PAGE: u64 = types::PAGE_SIZE as u64;
/// Share of a slot that the head of a checkpoint may take: a 16th, and at least what many sessions and damage records take in a small slot.
const HEAD_SHARE: u64 = 16;
const HEAD_BYTES_MIN: u64 = 512 << 10;
/// Pages of leaves that are read or written at once.
const ROW_PAGES: u64 = 256;

/// Bytes of a slot that the head of a checkpoint may take.
pub fn head_bytes(slot_bytes: u64) -> u64 {
    let head = (slot_bytes / HEAD_SHARE).max(HEAD_BYTES_MIN.min(slot_bytes / 2));
    head / PAGE * PAGE
}

/// The pages of a leaf, and its length and checksum as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub bytes: u64,
    pub crc: u32,
    /// In pages of the leaf area; bytes beyond `bytes` are zeros.
    pub runs: Vec<Run>,
}

/// Leaves to be written at once.
#[derive(Default)]
pub struct Row {
    /// The leaves, each padded to whole pages.
    bytes: Vec<u8>,
    /// Length and checksum of each leaf.
    leaves: Vec<(u64, u32)>,
}

impl Row {
    pub fn push(&mut self, leaf: &[u8]) {
        self.bytes.extend_from_slice(leaf);
        self.bytes.resize(self.bytes.len().next_multiple_of(PAGE as usize), 0);
        self.leaves.push((leaf.len() as u64, crc32c(leaf)));
    }

    /// The row has as many bytes as one write should have.
    pub fn is_full(&self) -> bool {
        self.bytes.len() as u64 >= ROW_PAGES * PAGE
    }
}

/// The two stretches of the medium. One page number between them is unused, so that no run has parts of both.
pub struct LeafArea {
    disk: Arc<dyn Disk>,
    stretches: [Range<u64>; 2],
    /// disk-L2: the begin of each stretch stays reserved up to this medium offset.
    reserved_to: [u64; 2],
    free: Mutex<Buddy>,
    /// Locked after `free`.
    freed: Mutex<Freed>,
    discarding: Mutex<()>,
}

impl LeafArea {
    /// `slots`: the volume's checkpoint slots. All pages are in use until `give_back` or `free_all_but` frees them.
    pub fn new(disk: Arc<dyn Disk>, slots: &[Range<u64>; 2]) -> LeafArea {
        let stretches = slots.clone().map(|slot| slot.start + head_bytes(slot.end - slot.start)..slot.end);
        let [first, second] = stretches.clone().map(|s| (s.end - s.start) / PAGE);
        let reserved_to = slots.clone().map(|slot| slot.start + slot_bytes_reserved(disk.size()));
        let free = Mutex::new(Buddy::all_used(first + 1 + second));
        let (freed, discarding) = Default::default();
        LeafArea { disk, stretches, reserved_to, free, freed, discarding }
    }

    /// The unused page number between the two stretches.
    fn gap(&self) -> u64 {
        (self.stretches[0].end - self.stretches[0].start) / PAGE
    }

    fn at(&self, page: u64) -> u64 {
        debug_assert!(page != self.gap(), "the page between the stretches is nowhere");
        match page.checked_sub(self.gap() + 1) {
            None => self.stretches[0].start + page * PAGE,
            Some(page) => self.stretches[1].start + page * PAGE,
        }
    }

    fn is_within(&self, run: Run) -> bool {
        let (gap, end) = (self.gap(), self.free.lock().total_pages());
        run.pages > 0 && (run.end() <= gap || (run.start > gap && run.end() <= end))
    }

    /// Pages that leaves can have.
    pub fn pages(&self) -> u64 {
        self.free.lock().total_pages() - 1
    }

    /// Pages that leaves take.
    pub fn pages_used(&self) -> u64 {
        let free = self.free.lock();
        free.total_pages() - 1 - free.free_pages() - self.freed.lock().out_pages
    }

    /// At a start: frees all pages except those of `leaves` and those with a byte of `kept`, a range of the medium. `InvalidData` if
    /// two leaves share a page or one lies outside the area.
    pub fn free_all_but<'a>(
        &self,
        leaves: impl Iterator<Item = &'a Place>,
        kept: Option<Range<u64>>,
    ) -> io::Result<()> {
        let mut used: Vec<Run> = leaves.flat_map(|leaf| leaf.runs.iter().copied()).collect();
        if !used.iter().all(|run| self.is_within(*run)) {
            return Err(invalid("a leaf of the index lies outside its area"));
        }
        used.push(Run { start: self.gap(), pages: 1 });
        used.sort_unstable();
        if used.windows(2).any(|two| two[0].end() > two[1].start) {
            return Err(invalid("two leaves of the index share a page"));
        }
        let mut free = self.free.lock();
        let mut at = 0;
        let end = Run { start: free.total_pages(), pages: 0 };
        for run in used.into_iter().chain([end]) {
            match &kept {
                None => free.give_back(at, run.start - at),
                Some(kept) => {
                    let is_kept = |page: &u64| self.is_in(*page, kept);
                    (at..run.start).filter(|page| !is_kept(page)).for_each(|page| free.give_back(page, 1));
                }
            }
            at = run.end();
        }
        *self.freed.lock() = Freed::at_start(&*self.disk);
        Ok(())
    }

    /// A round, once per commit interval: discards some pages that were freed a while ago and are still free. Pages that are being
    /// discarded cannot be allocated meanwhile, which does no harm because half of all pages is always free.
    pub fn discard(&self) -> io::Result<()> {
        let _one = self.discarding.lock();
        self.freed.lock().age(crate::is_host_short(&*self.disk));
        for _ in 0..RUNS_MAX {
            let run = {
                let mut free = self.free.lock();
                let least = free.total_pages() / 8;
                self.freed.lock().take(&mut free, |free| free.free_pages() >= least)
            };
            let Some(run) = run else { break };
            let done = self.discard_run(run);
            // After a time-out the device may still carry out the discard: the pages stay out of use until the next start.
            if !done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut) {
                let mut free = self.free.lock();
                self.freed.lock().return_run(&mut free, run);
            }
            done?;
        }
        Ok(())
    }

    fn discard_run(&self, run: Run) -> io::Result<()> {
        assert!(self.is_within(run), "the page between the stretches is never free");
        let end = self.at(run.start) + u64::from(run.pages) * PAGE;
        let begin = self.at(run.start).max(self.reserved_to[usize::from(run.start > self.gap())]);
        if begin < end { self.disk.discard(begin, end - begin) } else { Ok(()) }
    }

    fn is_in(&self, page: u64, range: &Range<u64>) -> bool {
        let at = self.at(page);
        at < range.end && at + PAGE > range.start
    }

    /// Frees the pages of a range that `free_all_but` kept.
    pub fn let_go(&self, kept: Range<u64>) {
        let mut free = self.free.lock();
        let gap = self.gap();
        let pages = (0..free.total_pages()).filter(|page| *page != gap && self.is_in(*page, &kept));
        pages.collect::<Vec<_>>().into_iter().for_each(|page| free.give_back(page, 1));
    }

    fn parts<'a>(&'a self, runs: &'a [Run], bytes: u64) -> impl Iterator<Item = (u64, Range<usize>)> + 'a {
        let mut at = 0;
        runs.iter().map(move |run| {
            let from = at;
            at = (at + u64::from(run.pages) * PAGE).min(bytes);
            (self.at(run.start), from as usize..at as usize)
        })
    }

    /// Where a leaf's bytes lie on the medium.
    pub fn places<'a>(&'a self, leaf: &'a Place) -> impl Iterator<Item = Range<u64>> + 'a {
        self.parts(&leaf.runs, leaf.bytes).map(|(place, part)| place..place + part.len() as u64)
    }

    /// Medium offset of the leaf's first byte.
    pub fn begin(&self, leaf: &Place) -> u64 {
        leaf.runs.first().map_or(0, |run| self.at(run.start))
    }

    /// Writes a leaf to free pages. It is durable with the checkpoint that names it. `StorageFull` if there is no free space.
    pub fn write(&self, bytes: &mut Vec<u8>) -> io::Result<Place> {
        let (len, crc) = (bytes.len() as u64, crc32c(bytes));
        // Whole pages, so that the page cache need not read the rest of one.
        bytes.resize(len.next_multiple_of(PAGE) as usize, 0);
        Ok(Place { bytes: len, crc, runs: self.put(bytes)? })
    }

    /// As `write` for each leaf of the row, side by side where free space allows that. The row is empty afterwards.
    pub fn write_row(&self, row: &mut Row) -> io::Result<Vec<Place>> {
        let runs = self.put(&row.bytes)?;
        row.bytes.clear();
        let (mut runs, mut rest) = (runs.into_iter(), Run { start: 0, pages: 0 });
        let place = |(bytes, crc): (u64, u32)| {
            let (mut pages, mut own) = (bytes.div_ceil(PAGE) as u32, Vec::with_capacity(1));
            while pages > 0 {
                if rest.pages == 0 {
                    rest = runs.next().expect("the runs have all pages of the row");
                }
                let part = Run { pages: pages.min(rest.pages), ..rest };
                rest = Run { start: part.end(), pages: rest.pages - part.pages };
                pages -= part.pages;
                own.push(part);
            }
            Place { bytes, crc, runs: own }
        };
        let places = row.leaves.drain(..).map(place).collect();
        assert_eq!(rest.pages, 0, "each page of a row belongs to a leaf");
        assert!(runs.next().is_none(), "each run of a row belongs to a leaf");
        Ok(places)
    }

    /// Writes whole pages to free ones.
    fn put(&self, bytes: &[u8]) -> io::Result<Vec<Run>> {
        let (len, mut runs) = (bytes.len() as u64, Vec::new());
        assert!(len.is_multiple_of(PAGE), "leaves are written in whole pages");
        if !self.free.lock().take((len / PAGE) as u32, None, &mut runs) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no room for the index"));
        }
        assert!(runs.iter().all(|run| self.is_within(*run)), "leaves are written within their area");
        let pages = runs.iter().map(|run| u64::from(run.pages)).sum::<u64>();
        assert_eq!(pages * PAGE, len, "leaves have as many pages as are written");
        let written =
            self.parts(&runs, len).try_for_each(|(place, part)| self.disk.write_at(&bytes[part], place));
        match written {
            Ok(()) => Ok(runs),
            Err(e) => {
                self.give_back(&Place { bytes: len, crc: 0, runs });
                Err(e)
            }
        }
    }

    /// Frees a leaf that no checkpoint names, now or later.
    pub fn give_back(&self, leaf: &Place) {
        let mut free = self.free.lock();
        leaf.runs.iter().for_each(|run| free.give_back(run.start, run.pages.into()));
        let mut freed = self.freed.lock();
        leaf.runs.iter().for_each(|run| freed.add(*run));
    }

    /// Reads and verifies a leaf: `InvalidData` if the bytes are not the written ones.
    pub fn read(&self, leaf: &Place) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; leaf.bytes as usize];
        for (place, part) in self.parts(&leaf.runs, leaf.bytes) {
            self.disk.read_at(&mut bytes[part], place)?;
        }
        if crc32c(&bytes) == leaf.crc { Ok(bytes) } else { Err(invalid("wrong checksum")) }
    }

    /// As `read` for each leaf. Leaves that follow each other on the medium, and in the list, are read at once.
    pub fn read_all(&self, leaves: &[&Place]) -> Vec<io::Result<Vec<u8>>> {
        let mut rows: Vec<&[&Place]> = Vec::new();
        let mut rest = leaves;
        while !rest.is_empty() {
            let (row, behind) = rest.split_at(self.row(rest));
            (rest, _) = (behind, rows.push(row));
        }
        if let [_, others @ ..] = &rows[..] {
            others.iter().copied().flatten().for_each(|leaf| self.will_read(leaf));
        }
        rows.into_iter().flat_map(|row| self.read_row(row)).collect()
    }

    /// Number of leaves, from the first on, that lie side by side.
    fn row(&self, leaves: &[&Place]) -> usize {
        let run = |leaf: &Place| if let [run] = leaf.runs[..] { Some(run) } else { None };
        let Some(first) = run(leaves[0]) else { return 1 };
        let mut end = first.end();
        let follows = |leaf: &&&Place| {
            let next = run(leaf).filter(|next| next.start == end && (next.end() - first.start) <= ROW_PAGES);
            end = next.map_or(end, |next| next.end());
            next.is_some()
        };
        1 + leaves[1..].iter().take_while(follows).count()
    }

    fn read_row(&self, row: &[&Place]) -> Vec<io::Result<Vec<u8>>> {
        let begin = self.begin(row[0]);
        let end = self.places(row[row.len() - 1]).last().map_or(begin, |part| part.end);
        let mut bytes = vec![0; end.saturating_sub(begin) as usize];
        if row.len() == 1 || self.disk.read_at(&mut bytes, begin).is_err() {
            // Read each by itself, so that one unreadable leaf does not affect its neighbours.
            return row.iter().map(|leaf| self.read(leaf)).collect();
        }
        let part = |leaf: &&Place| {
            let at = (self.begin(leaf) - begin) as usize;
            let bytes = &bytes[at..at + leaf.bytes as usize];
            if crc32c(bytes) == leaf.crc { Ok(bytes.to_vec()) } else { Err(invalid("wrong checksum")) }
        };
        row.iter().map(part).collect()
    }

    /// Hints that the leaf will be read soon.
    pub fn will_read(&self, leaf: &Place) {
        self.places(leaf).for_each(|at| self.disk.will_read(at.start, at.end - at.start));
    }

    /// As `read`, from the medium itself and past all caches.
    pub fn read_medium(&self, leaf: &Place) -> io::Result<Vec<u8>> {
        // Direct I/O transfers whole pages only.
        let mut bytes = vec![0; leaf.bytes.next_multiple_of(PAGE) as usize];
        for (place, part) in self.parts(&leaf.runs, bytes.len() as u64) {
            self.disk.read_medium_at(&mut bytes[part], place)?;
        }
        bytes.truncate(leaf.bytes as usize);
        if crc32c(&bytes) == leaf.crc { Ok(bytes) } else { Err(invalid("wrong checksum")) }
    }

    /// Is the leaf on the medium as it was written?
    pub fn verify(&self, leaf: &Place) -> io::Result<()> {
        self.read_medium(leaf).map(drop)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimDisk, SplitMix};

    /// Records discards, and pretends that its host has little free space.
    struct Sparse {
        below: SimDisk,
        discarded: Mutex<Vec<Range<u64>>>,
        room_bytes: u64,
    }

    impl Disk for Sparse {
        fn size(&self) -> u64 {
            self.below.size()
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.below.read_at(buf, offset)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
            self.below.write_at(buf, offset)
        }
        fn flush(&self) -> io::Result<()> {
            self.below.flush()
        }
        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            self.discarded.lock().push(offset..offset + len);
            self.below.discard(offset, len)
        }
        fn room_below(&self) -> Option<u64> {
            Some(self.room_bytes)
        }
    }

    #[test]
    fn free_pages_go_back_to_the_medium_but_for_those_reserved() {
        let (slot, reserved) = (32 << 20, slot_bytes_reserved(64 << 20));
        for (room_bytes, rounds) in [(1 << 40, 2 * crate::freed::ROUNDS_YOUNG), (0, 1)] {
            let below = SimDisk::new(64 << 20);
            let disk = Arc::new(Sparse { below, discarded: Mutex::default(), room_bytes });
            let area = LeafArea::new(disk.clone(), &[0..slot, slot..2 * slot]);
            area.free_all_but(std::iter::empty(), None).unwrap();
            let kept = area.write(&mut vec![1; 5000]).unwrap();
            let gone = area.write(&mut vec![2; 8 << 20]).unwrap();
            // 1. Space that an earlier process freed is discarded at once: no leaf's pages, and no reserved ones.
            area.discard().unwrap();
            let swept = std::mem::take(&mut *disk.discarded.lock());
            let is_free = |at: &Range<u64>| {
                let leaves = [&kept, &gone].into_iter().flat_map(|leaf| area.places(leaf));
                let in_use = leaves.chain([0..reserved, slot..slot + reserved]).collect::<Vec<_>>();
                in_use.iter().all(|used| used.end <= at.start || at.end <= used.start)
            };
            assert!(!swept.is_empty() && swept.iter().all(is_free), "{swept:?}");
            // 2. Space that is freed now is discarded after a while, or at once if the host is short of space; its pages are free again then.
            let places: Vec<Range<u64>> = area.places(&gone).collect();
            let used = area.pages_used();
            area.give_back(&gone);
            // The round above counts, and the one below.
            (2..rounds).for_each(|_| area.discard().unwrap());
            assert_eq!(*disk.discarded.lock(), [], "it is left alone for a while");
            area.discard().unwrap();
            let discarded = std::mem::take(&mut *disk.discarded.lock());
            let covers = |at: u64| discarded.iter().any(|range| range.contains(&at));
            let middles = places.iter().map(|range| (range.start + range.end) / 2);
            assert!(
                middles.filter(|at| *at >= slot + reserved || (reserved..slot).contains(at)).all(covers),
                "{discarded:?}"
            );
            assert_eq!(area.pages_used(), used - 2048);
            assert_eq!(area.read(&kept).unwrap(), [1; 5000]);
        }
    }

    #[test]
    fn a_row_is_one_write_for_each_free_stretch() {
        let (disk, slot) = (Arc::new(SimDisk::new(32 << 20)), 16 << 20);
        let area = LeafArea::new(disk.clone(), &[0..slot, slot..2 * slot]);
        area.free_all_but(std::iter::empty(), None).unwrap();
        let mut random = SplitMix::new(3);
        let mut leaf = |row: &mut Row| {
            let bytes = vec![random.below(256) as u8; 1 + random.below(9000) as usize];
            row.push(&bytes);
            bytes
        };
        let write = |leaf: &mut dyn FnMut(&mut Row) -> Vec<u8>, some: usize| {
            let mut row = Row::default();
            let leaves: Vec<_> = (0..some).map(|_| leaf(&mut row)).collect();
            disk.record();
            let places = area.write_row(&mut row).unwrap();
            let writes = disk.take_recording().map(|recording| recording.events.len());
            let runs: Vec<Run> = places.iter().flat_map(|place| place.runs.iter().copied()).collect();
            let stretches = 1 + runs.windows(2).filter(|two| two[0].end() != two[1].start).count();
            assert!(writes.is_some_and(|writes| writes <= stretches), "{writes:?} for {stretches}");
            for (place, bytes) in places.iter().zip(&leaves) {
                assert_eq!(area.read(place).unwrap(), *bytes);
            }
            (places, stretches)
        };
        // 1. In free space the leaves lie side by side.
        let (mut old, stretches) = write(&mut leaf, 150);
        assert_eq!((old.len(), stretches), (150, 1));
        while area.pages_used() < area.pages() / 10 * 9 {
            old.extend(write(&mut leaf, 50).0);
        }
        // 2. In small gaps they take the pages that there are, and none twice.
        let free = |place: &Place| area.give_back(place);
        old.iter().step_by(2).for_each(free);
        let mut kept: Vec<Place> = old.into_iter().skip(1).step_by(2).collect();
        let used: u64 = kept.iter().flat_map(|place| &place.runs).map(|run| u64::from(run.pages)).sum();
        assert_eq!(area.pages_used(), used);
        while area.pages_used() < area.pages() / 10 * 9 {
            kept.extend(write(&mut leaf, 50).0);
        }
        let mut runs: Vec<Run> = kept.iter().flat_map(|place| place.runs.iter().copied()).collect();
        runs.sort_unstable();
        assert!(runs.windows(2).all(|two| two[0].end() <= two[1].start));
        // 3. Nothing is taken if there is not enough for all.
        let (used, mut row) = (area.pages_used(), Row::default());
        while row.bytes.len() as u64 / PAGE <= area.pages() - used {
            leaf(&mut row);
        }
        assert_eq!(area.write_row(&mut row).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(area.pages_used(), used);
    }
}
