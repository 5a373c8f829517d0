//! Leaves: the index on the medium. A leaf has the objects of one stretch of ids, in order; it is written once, read when one of them is
//! wanted, and replaced by a later checkpoint. A checkpoint names all of them. They lie in what the two checkpoint slots have behind
//! their heads, page by page, wherever there is room.
//!
//! L1: a leaf that the durable checkpoint names is never overwritten; what replaces it lies elsewhere.
//! L2: between two neighbours' firsts lies nothing but the first one's objects.
//! L3: a leaf that is not the last has `FILL_MIN` bytes at least, so that pages bound what the index takes on the medium.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use disk::Disk;
use parking_lot::Mutex;
use types::ObjectId;
use types::crc::crc32c;

use crate::alloc::{Buddy, Run};
use crate::codec::Records;
use crate::index::State;

const PAGE: u64 = types::PAGE_SIZE as u64;
/// Of a slot, what the head of a checkpoint may take: a 16th, and what many sessions and damage records take in a small slot.
const HEAD_SHARE: u64 = 16;
const HEAD_BYTES_MIN: u64 = 512 << 10;

/// What the head of a checkpoint may take of a slot.
pub fn head_bytes(slot_bytes: u64) -> u64 {
    let head = (slot_bytes / HEAD_SHARE).max(HEAD_BYTES_MIN.min(slot_bytes / 2));
    head / PAGE * PAGE
}

/// Bytes of objects that always find room, whatever leaves lie where: twice them and what pages that are not full cost, one copy that
/// is named and one that is being written.
pub fn objects_bytes_max(slot_bytes: u64) -> u64 {
    (slot_bytes - head_bytes(slot_bytes)) / 5 * 4
}

/// Where an index's leaf lies.
#[derive(Debug)]
pub struct Leaf {
    /// Its first object.
    pub first: ObjectId,
    pub objects: u64,
    pub bytes: u64,
    pub crc: u32,
    /// In pages of the leaf area; what they have beyond `bytes` is zeros.
    pub runs: Vec<Run>,
    content: Mutex<Content>,
    /// What it has, if that is not on the medium any more: the next checkpoint writes it anew.
    rescued: OnceLock<Arc<Vec<u8>>>,
}

/// What memory has of a leaf.
#[derive(Debug, Default)]
enum Content {
    #[default]
    Unread,
    /// It was read lately; in `Recent` under this number, unless newer ones took its room.
    Kept { number: u64, bytes: Weak<Vec<u8>> },
    /// No checkpoint names it any more: who still reads it has it for himself.
    Gone,
}

impl Content {
    fn known(&self) -> Option<Arc<Vec<u8>>> {
        match self {
            Content::Kept { bytes, .. } => bytes.upgrade(),
            Content::Unread | Content::Gone => None,
        }
    }
}

impl Leaf {
    pub fn new(first: ObjectId, objects: u64, bytes: u64, crc: u32, runs: Vec<Run>) -> Leaf {
        Leaf { first, objects, bytes, crc, runs, content: Mutex::default(), rescued: OnceLock::new() }
    }

    pub fn is_rescued(&self) -> bool {
        self.rescued.get().is_some()
    }
}

/// The leaves that a checkpoint names.
#[derive(Debug, Default)]
pub struct Base {
    pub leaves: Vec<Arc<Leaf>>,
    /// No object has a greater id; `None`: there are no leaves.
    pub last: Option<ObjectId>,
}

impl Base {
    /// The leaf that an object is in, if it is in one; its number.
    pub fn leaf_of(&self, id: &ObjectId) -> Option<usize> {
        if self.last.is_none_or(|last| *id > last) {
            return None;
        }
        self.leaves.partition_point(|leaf| leaf.first <= *id).checked_sub(1)
    }
}

/// Where leaves lie, and those read last.
pub struct Leaves {
    disk: Arc<dyn Disk>,
    area: Area,
    free: Mutex<Buddy>,
    recent: Mutex<Recent>,
    /// What that may take.
    memory_bytes: u64,
    /// Read from the medium since the start.
    reads: AtomicU64,
    /// A leaf that had other bytes than were written when it was read last, by its place, and why.
    trouble: Mutex<Option<(u64, String)>>,
}

/// The two stretches of the medium, one page apart in numbers, so that no run has parts of both.
#[derive(Debug)]
struct Area {
    stretches: [Range<u64>; 2],
}

/// By number, in the order of reading.
#[derive(Default)]
struct Recent {
    contents: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: u64,
    last: u64,
}

impl Recent {
    /// Its number. The oldest make room.
    fn add(&mut self, content: Arc<Vec<u8>>, bytes_max: u64) -> u64 {
        self.last += 1;
        self.bytes += content.len() as u64;
        self.contents.insert(self.last, content);
        while self.bytes > bytes_max
            && let Some((_, old)) = self.contents.pop_first()
        {
            self.bytes -= old.len() as u64;
        }
        self.last
    }
    fn remove(&mut self, number: u64) {
        if let Some(old) = self.contents.remove(&number) {
            self.bytes -= old.len() as u64;
        }
    }
}

impl Area {
    fn pages(&self, i: usize) -> u64 {
        (self.stretches[i].end - self.stretches[i].start) / PAGE
    }
    fn place(&self, page: u64) -> u64 {
        match page.checked_sub(self.pages(0) + 1) {
            None => self.stretches[0].start + page * PAGE,
            Some(page) => self.stretches[1].start + page * PAGE,
        }
    }
    fn is_within(&self, run: Run) -> bool {
        let first = self.pages(0);
        run.pages > 0 && (run.end() <= first || (run.start > first && run.end() <= first + 1 + self.pages(1)))
    }
}

impl Leaves {
    /// `slots`: those of checkpoints. Everything is in use until `give_back` or `free_all_but` says otherwise. Of what was read, up to
    /// a part of `memory_bytes` is kept.
    pub fn new(disk: Arc<dyn Disk>, slots: &[Range<u64>; 2], memory_bytes: u64) -> Leaves {
        let behind_head = |slot: &Range<u64>| slot.start + head_bytes(slot.end - slot.start)..slot.end;
        let area = Area { stretches: [behind_head(&slots[0]), behind_head(&slots[1])] };
        let free = Mutex::new(Buddy::all_used(area.pages(0) + 1 + area.pages(1)));
        Leaves {
            disk,
            area,
            free,
            recent: Mutex::default(),
            memory_bytes,
            reads: AtomicU64::new(0),
            trouble: Mutex::default(),
        }
    }

    /// Leaves that are kept in memory, their bytes, and what these may be.
    pub fn in_memory(&self) -> (u64, u64, u64) {
        let recent = self.recent.lock();
        (recent.contents.len() as u64, recent.bytes, self.memory_bytes)
    }

    #[cfg(test)]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// At the start: all is free but what the leaves lie in, and pages that have a byte of `kept`, a range of the medium. `InvalidData` if
    /// two leaves share a page or one lies elsewhere.
    pub fn free_all_but(&self, base: &Base, kept: Option<Range<u64>>) -> io::Result<()> {
        let mut used: Vec<Run> = base.leaves.iter().flat_map(|leaf| leaf.runs.iter().copied()).collect();
        if !used.iter().all(|run| self.area.is_within(*run)) {
            return Err(invalid("a leaf of the index lies outside its area".into()));
        }
        let first = self.area.pages(0);
        used.push(Run { start: first, pages: 1 });
        used.sort_unstable();
        if used.windows(2).any(|two| two[0].end() > two[1].start) {
            return Err(invalid("two leaves of the index share a page".into()));
        }
        let is_kept = |page: u64| {
            let place = self.area.place(page);
            kept.as_ref().is_some_and(|kept| place < kept.end && place + PAGE > kept.start)
        };
        let mut free = self.free.lock();
        let mut at = 0;
        let end = Run { start: free.total_pages(), pages: 0 };
        for run in used.into_iter().chain([end]) {
            match kept {
                None => free.give_back(at, run.start - at),
                Some(_) => {
                    (at..run.start).filter(|page| !is_kept(*page)).for_each(|page| free.give_back(page, 1));
                }
            }
            at = run.end();
        }
        Ok(())
    }

    /// Pages of a range of the medium that `free_all_but` kept are free from now on.
    pub fn let_go(&self, kept: Range<u64>) {
        let mut free = self.free.lock();
        let first = self.area.pages(0);
        for page in (0..free.total_pages()).filter(|page| *page != first) {
            let place = self.area.place(page);
            if place < kept.end && place + PAGE > kept.start {
                free.give_back(page, 1);
            }
        }
    }

    /// Pages that leaves take.
    #[cfg(test)]
    pub fn pages_used(&self) -> u64 {
        let free = self.free.lock();
        free.total_pages() - 1 - free.free_pages()
    }

    fn parts<'a>(&'a self, runs: &'a [Run], bytes: u64) -> impl Iterator<Item = (u64, Range<usize>)> + 'a {
        let mut at = 0;
        runs.iter().map(move |run| {
            let from = at;
            at = (at + u64::from(run.pages) * PAGE).min(bytes);
            (self.area.place(run.start), from as usize..at as usize)
        })
    }

    /// Where a leaf lies on the medium.
    #[cfg(test)]
    pub fn places<'a>(&'a self, leaf: &'a Leaf) -> impl Iterator<Item = Range<u64>> + 'a {
        self.parts(&leaf.runs, leaf.bytes).map(|(place, part)| place..place + part.len() as u64)
    }

    /// Writes a leaf to a free place. It is durable with the checkpoint that names it. `StorageFull` if there is no room.
    pub fn write(&self, first: ObjectId, objects: u64, bytes: &mut Vec<u8>) -> io::Result<Leaf> {
        let len = bytes.len() as u64;
        let mut runs = Vec::new();
        if !self.free.lock().take(len.div_ceil(PAGE) as u32, None, &mut runs) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no room for the index"));
        }
        let leaf = Leaf::new(first, objects, len, crc32c(bytes), runs);
        // Whole pages, so that the page cache need not read the rest of one.
        bytes.resize(len.next_multiple_of(PAGE) as usize, 0);
        let written = self
            .parts(&leaf.runs, bytes.len() as u64)
            .try_for_each(|(place, part)| self.disk.write_at(&bytes[part], place));
        match written {
            Ok(()) => Ok(leaf),
            Err(e) => {
                self.give_back(&leaf);
                Err(e)
            }
        }
    }

    /// A leaf that no checkpoint names, or will.
    pub fn give_back(&self, leaf: &Leaf) {
        self.forget_trouble(leaf);
        let content = std::mem::replace(&mut *leaf.content.lock(), Content::Gone);
        if let Content::Kept { number, .. } = content {
            self.recent.lock().remove(number);
        }
        let mut free = self.free.lock();
        leaf.runs.iter().for_each(|run| free.give_back(run.start, run.pages.into()));
    }

    /// A leaf's content, verified.
    pub fn read(&self, leaf: &Leaf) -> io::Result<Arc<Vec<u8>>> {
        if let Some(known) = leaf.rescued.get().cloned().or_else(|| leaf.content.lock().known()) {
            return Ok(known);
        }
        let mut bytes = vec![0; leaf.bytes as usize];
        for (place, part) in self.parts(&leaf.runs, leaf.bytes) {
            self.disk.read_at(&mut bytes[part], place)?;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        if crc32c(&bytes) != leaf.crc {
            return Err(invalid("wrong checksum".into()));
        }
        self.forget_trouble(leaf);
        Ok(self.keep(leaf, bytes))
    }

    fn keep(&self, leaf: &Leaf, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let mut content = leaf.content.lock();
        // Another who missed it too was quicker.
        if let Some(known) = content.known() {
            return known;
        }
        let bytes = Arc::new(bytes);
        if !matches!(*content, Content::Gone) {
            let number = self.recent.lock().add(bytes.clone(), self.memory_bytes);
            *content = Content::Kept { number, bytes: Arc::downgrade(&bytes) };
        }
        bytes
    }

    /// Is it on the medium as it was written, whatever memory and caches of the medium have?
    pub fn verify(&self, leaf: &Leaf) -> io::Result<()> {
        // Whole pages: past the page cache goes nothing else.
        let mut bytes = vec![0; leaf.bytes.next_multiple_of(PAGE) as usize];
        for (place, part) in self.parts(&leaf.runs, bytes.len() as u64) {
            self.disk.read_medium_at(&mut bytes[part], place)?;
        }
        let crc = crc32c(&bytes[..leaf.bytes as usize]);
        if crc == leaf.crc { Ok(()) } else { Err(invalid("wrong checksum".into())) }
    }

    /// Keeps what memory, or a cache of the medium, has of a leaf that the medium has lost; false if none has it.
    pub fn rescue(&self, leaf: &Leaf) -> bool {
        self.read(leaf).map(|content| leaf.rescued.get_or_init(|| content)).is_ok()
    }

    /// An object's state as its leaf has it; `None`: it is not there.
    pub fn find(&self, base: &Base, id: &ObjectId) -> Result<Option<State>, Unreadable> {
        let Some(leaf) = base.leaf_of(id).map(|i| &base.leaves[i]) else { return Ok(None) };
        let told = |e| self.unreadable(leaf, e);
        let content = self.read(leaf).map_err(told)?;
        for record in Records::of(&content) {
            let record = record.map_err(told)?;
            if record.id >= *id {
                return (record.id == *id).then(|| record.state()).transpose().map_err(told);
            }
        }
        Ok(None)
    }

    pub fn unreadable(&self, leaf: &Leaf, source: io::Error) -> Unreadable {
        Unreadable { at: self.place_of(leaf), source }
    }

    /// A leaf that counts is not what was written. (A read that failed may be well the next time.)
    pub fn note_trouble(&self, e: &Unreadable) {
        let Unreadable { at, source } = e;
        if source.kind() == io::ErrorKind::InvalidData {
            *self.trouble.lock() =
                Some((*at, format!("the index cannot be read at medium offset {at}: {source}")));
        }
    }

    /// Why a part of the index is lost, if so.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().as_ref().map(|(_, why)| why.clone())
    }

    fn forget_trouble(&self, leaf: &Leaf) {
        let mut trouble = self.trouble.lock();
        if trouble.as_ref().is_some_and(|(at, _)| *at == self.place_of(leaf)) {
            *trouble = None;
        }
    }

    fn place_of(&self, leaf: &Leaf) -> u64 {
        leaf.runs.first().map_or(0, |run| self.area.place(run.start))
    }
}

/// A leaf that could not be read.
#[derive(Debug)]
pub struct Unreadable {
    /// On the medium, bytes.
    pub at: u64,
    pub source: io::Error,
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
