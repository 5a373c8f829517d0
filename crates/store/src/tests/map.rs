//! Where the structures of a medium lie, by docs/formats/volume.md: read from its bytes and from a store that is open on it.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::world::PAGE;
use super::*;
use crate::records::record::{self, Record};
use disk::alloc::Run;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Superblock,
    BothSuperblocks,
    /// The bytes between the superblocks and the log.
    Gap,
    /// Of the log's medium, if it has one.
    LogLabel,
    BothLogLabels,
    /// Entries that recovery reads and knows to be flushed.
    LogSealed,
    /// Entries that recovery reads behind the last flush mark.
    LogTail,
    LogDead,
    CheckpointLive,
    CheckpointDead,
    /// Of the index: read when one of its objects is wanted.
    Leaf,
    DataSealed,
    /// Data of entries behind the last flush mark.
    DataTail,
    DataFree,
}

pub const PARTS: [Part; 14] = [
    Part::Superblock,
    Part::BothSuperblocks,
    Part::Gap,
    Part::LogLabel,
    Part::BothLogLabels,
    Part::LogSealed,
    Part::LogTail,
    Part::LogDead,
    Part::CheckpointLive,
    Part::CheckpointDead,
    Part::Leaf,
    Part::DataSealed,
    Part::DataTail,
    Part::DataFree,
];

pub const SUPERBLOCK_PLACES: [u64; 2] = [0, 64 << 10];
const LOG_BEGIN: u64 = 128 << 10;
const HEADER_BYTES: u64 = 64;

pub struct Map {
    pub parts: BTreeMap<Part, Vec<Range<u64>>>,
    /// The live entries of the log in order.
    pub entries: Vec<Entry>,
    /// The superblock's flush mark.
    pub flushed: u64,
    /// Entries behind the last flush mark, and the data that each names: what recovery verifies.
    pub data_of_tail: Vec<(u64, Range<u64>)>,
}

pub struct Entry {
    pub seq: u64,
    /// The flush mark that it carries.
    pub mark: u64,
    /// Header and payload on the medium; two pieces where the ring wraps.
    pub places: Vec<Range<u64>>,
}

/// A part of the medium that wraps around.
#[derive(Clone, Copy)]
struct Ring {
    begin: u64,
    bytes: u64,
}

impl Ring {
    fn places(self, range: Range<u64>) -> [Range<u64>; 2] {
        let (from, len) = (range.start % self.bytes, range.end.saturating_sub(range.start));
        let first = len.min(self.bytes - from);
        [self.begin + from..self.begin + from + first, self.begin..self.begin + len - first]
    }
    fn read(self, medium: &SimDisk, pos: u64, len: u64) -> Vec<u8> {
        self.places(pos..pos + len).into_iter().flat_map(|r| bytes_at(medium, r)).collect()
    }
}

pub fn bytes_at(medium: &SimDisk, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    medium.read_at(&mut bytes, range.start).unwrap();
    bytes
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Map {
    /// Of a medium whose store was opened and has done things since.
    pub fn of(medium: &SimDisk, store: &Engine) -> Map {
        let copies = SUPERBLOCK_PLACES.map(|at| bytes_at(medium, at..at + 4096));
        let sb = copies.iter().max_by_key(|b| u64_at(b, 40)).unwrap();
        let mut map =
            Map { parts: BTreeMap::new(), entries: vec![], flushed: u64_at(sb, 200), data_of_tail: vec![] };
        map.add_head_and_checkpoints(sb, medium.second_at());
        for leaf in &store.index.leaves_now().leaves {
            store.index.leaves.places(leaf).for_each(|place| map.add(Part::Leaf, place));
        }
        let named_by_tail = map.add_log(medium, sb, store.vol.position().pos);
        let place = |run: &Run| store.at(run.start)..store.at(run.end());
        map.data_of_tail = named_by_tail.iter().map(|(seq, run)| (*seq, place(run))).collect();
        map.add_data(store, &named_by_tail);
        map
    }

    fn add(&mut self, part: Part, range: Range<u64>) {
        if !range.is_empty() {
            self.parts.entry(part).or_default().push(range);
        }
    }

    fn add_head_and_checkpoints(&mut self, sb: &[u8], log_at: Option<u64>) {
        for at in SUPERBLOCK_PLACES {
            // The fields by themselves too: most of a copy is reserved.
            self.add(Part::Superblock, at..at + 4096);
            self.add(Part::Superblock, at..at + 328);
        }
        self.add(Part::BothSuperblocks, 0..328);
        self.add(Part::BothSuperblocks, 4092..4096);
        self.add(Part::Gap, 4096..SUPERBLOCK_PLACES[1]);
        self.add(Part::Gap, SUPERBLOCK_PLACES[1] + 4096..LOG_BEGIN);
        if let Some(log_at) = log_at {
            for at in SUPERBLOCK_PLACES {
                self.add(Part::LogLabel, log_at + at..log_at + at + 4096);
            }
            self.add(Part::BothLogLabels, log_at..log_at + 168);
            self.add(Part::BothLogLabels, log_at + 4092..log_at + 4096);
        }
        for (slot, field) in [(1, 136), (2, 152)] {
            let (begin, bytes) = (u64_at(sb, field), u64_at(sb, field + 8));
            let live = if sb[216] == slot { u64_at(sb, 224) } else { 0 };
            self.add(Part::CheckpointLive, begin..begin + live);
            // Remains of older checkpoints lie near the beginning.
            self.add(Part::CheckpointDead, begin + live..begin + 4096.max(live));
            self.add(Part::CheckpointDead, begin + live..begin + bytes);
        }
    }

    /// Gives the pages that entries behind the last flush mark name: recovery verifies them.
    fn add_log(&mut self, medium: &SimDisk, sb: &[u8], end: u64) -> Vec<(u64, Run)> {
        let log = Ring { begin: medium.second_at().unwrap_or(0) + u64_at(sb, 120), bytes: u64_at(sb, 128) };
        let start = u64_at(sb, 184);
        let (mut pos, mut sealed, mut named) = (start, self.flushed, vec![]);
        // Behind the last entry there may be marks, which no entry needs.
        let mut needed = 0;
        while pos < end {
            let head = log.read(medium, pos, HEADER_BYTES);
            let (seq, mark, len) = (u64_at(&head, 16), u64_at(&head, 32), u64_at(&head, 48) & 0xffff_ffff);
            sealed = sealed.max(mark);
            if head[4] == 1 {
                let payload = log.read(medium, pos + HEADER_BYTES, len);
                let runs = runs_of(&record::decode(&payload).unwrap().record);
                named.extend(runs.into_iter().map(|run| (seq, run)));
            }
            let places = log.places(pos..pos + HEADER_BYTES + len).into();
            // A flush mark has no seq (kind 3). It is known to be flushed with the entry behind it.
            let is_mark = head[4] == 3;
            let seq = if is_mark { seq + 1 } else { seq };
            self.entries.push(Entry { seq, mark, places });
            needed = if is_mark { needed } else { self.entries.len() };
            pos += (HEADER_BYTES + len).next_multiple_of(8);
        }
        assert_eq!(pos, end, "the test knows where entries lie");
        let places: Vec<_> = self.entries.iter().map(|e| (e.seq <= sealed, e.places.clone())).collect();
        for (n, (is_sealed, places)) in places.into_iter().enumerate() {
            let part = match is_sealed {
                _ if n >= needed => Part::LogDead,
                true => Part::LogSealed,
                false => Part::LogTail,
            };
            places.into_iter().for_each(|r| self.add(part, r));
        }
        log.places(end..start + log.bytes).into_iter().for_each(|r| self.add(Part::LogDead, r));
        named.into_iter().filter(|(seq, _)| *seq > sealed).collect()
    }

    fn add_data(&mut self, store: &Engine, named_by_tail: &[(u64, Run)]) {
        let mut named = HashSet::new();
        for (_, state) in store.index.snapshot() {
            for (page, e) in state.extents.iter() {
                let is_hidden = |page| state.patches.get(page).is_some_and(|p| p.is_whole());
                let seen = (page..).zip(e.run.start..e.run.end()).filter(|(page, _)| !is_hidden(*page));
                named.extend(seen.map(|(_, place)| place));
            }
        }
        let region = store.vol.data_region();
        for page in 0..(region.end - region.start) / PAGE as u64 {
            let is_tail = named_by_tail.iter().any(|(_, r)| (r.start..r.end()).contains(&page));
            let part = match (is_tail, named.contains(&page)) {
                (true, _) => Part::DataTail,
                (false, true) => Part::DataSealed,
                (false, false) => Part::DataFree,
            };
            let at = region.start + page * PAGE as u64;
            self.add(part, at..at + PAGE as u64);
        }
    }

    /// The structures that a range touches.
    pub fn touched(&self, hit: &Range<u64>) -> Vec<Part> {
        let is_touched =
            |ranges: &Vec<Range<u64>>| ranges.iter().any(|r| r.start < hit.end && hit.start < r.end);
        self.parts.iter().filter(|(_, ranges)| is_touched(ranges)).map(|(part, _)| *part).collect()
    }

    /// The last entry that the medium still proves to be flushed when the bytes of a range are rotten, and the first that is rotten.
    pub fn proven_without(&self, hit: &Range<u64>) -> (u64, Option<u64>) {
        let is_hit = |e: &Entry| e.places.iter().any(|r| r.start < hit.end && hit.start < r.end);
        let whole = self.entries.iter().filter(|e| !is_hit(e));
        let proven = whole.map(|e| e.mark).fold(self.flushed, u64::max);
        (proven, self.entries.iter().find(|e| is_hit(e)).map(|e| e.seq))
    }
}

/// Pages of data that an entry names.
fn runs_of(record: &Record) -> Vec<Run> {
    match record {
        Record::Write(w) => w.placed.iter().map(|p| p.run).collect(),
        Record::Truncate(t) => t.tail.iter().map(|(start, _)| Run { start: *start, pages: 1 }).collect(),
        Record::Punch(p) => p.zeroed.iter().map(|z| Run { start: z.start, pages: 1 }).collect(),
        _ => vec![],
    }
}
