//! Leaves: the index on the medium. A leaf has the objects of one range of ids, in order. It is written once, read when one of them is
//! needed, and replaced by a later checkpoint. A checkpoint names all leaves. `disk::leaves` allocates their space.
//!
//! store-L1: as in `disk::leaves`.
//! store-L2: all objects from a leaf's first id up to the next leaf's first id are in that leaf.
//! store-L3: every leaf but the last has `FILL_MIN` bytes at least, so that partly filled pages cannot inflate the index on the medium.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use disk::leaves::{LeafArea, Place, head_bytes};
use disk::{Troubles, Volume};
use parking_lot::Mutex;
use types::ObjectId;

use crate::records::codec::Records;
use crate::records::index::State;

/// Bytes of objects that always fit, wherever the leaves lie: two copies, one that the checkpoint names and one that is being
/// written, plus the loss in partly filled pages.
pub fn objects_bytes_max(slot_bytes: u64) -> u64 {
    (slot_bytes - head_bytes(slot_bytes)) / 5 * 4
}

/// A leaf of the index, and its place on the medium.
#[derive(Debug)]
pub struct Leaf {
    /// Its first object.
    pub first: ObjectId,
    pub objects: u64,
    pub place: Place,
    content: Mutex<Content>,
    /// Its content, if the medium has lost it. The next checkpoint writes it anew.
    rescued: OnceLock<Arc<Vec<u8>>>,
}

/// A leaf's content in memory.
#[derive(Debug, Default)]
enum Content {
    #[default]
    Unread,
    /// It was read lately, and is in `Recent` under this number unless newer ones have evicted it.
    Kept { number: u64, bytes: Weak<Vec<u8>> },
    /// No checkpoint names it any more. A thread that still reads it gets a copy that is not cached.
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
    pub fn new(first: ObjectId, objects: u64, place: Place) -> Leaf {
        Leaf { first, objects, place, content: Mutex::default(), rescued: OnceLock::new() }
    }

    pub fn is_rescued(&self) -> bool {
        self.rescued.get().is_some()
    }
}

/// The leaves that a checkpoint names.
#[derive(Debug, Default)]
pub struct Base {
    pub leaves: Vec<Arc<Leaf>>,
    /// An upper bound of all ids; `None`: there are no leaves.
    pub last: Option<ObjectId>,
}

impl Base {
    /// The index of the leaf that may have an object; `None` if none can.
    pub fn leaf_of(&self, id: &ObjectId) -> Option<usize> {
        if self.last.is_none_or(|last| *id > last) {
            return None;
        }
        self.leaves.partition_point(|leaf| leaf.first <= *id).checked_sub(1)
    }
}

/// The area of the leaves on the medium, and a cache of those read last.
pub struct Leaves {
    area: LeafArea,
    /// Of the volume.
    troubles: Arc<Troubles>,
    recent: Mutex<Recent>,
    /// Limit of `recent`.
    memory_bytes: u64,
    /// Read from the medium since the start.
    reads: AtomicU64,
    /// Place of a leaf whose content was wrong when it was last read, and the reason.
    trouble: Mutex<Option<(u64, String)>>,
}

/// Cached contents by number, in the order of reading.
#[derive(Default)]
struct Recent {
    contents: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: u64,
    last: u64,
}

impl Recent {
    /// Caches a content and returns its number. The oldest contents are evicted.
    fn add(&mut self, content: Arc<Vec<u8>>, bytes_max: u64) -> u64 {
        self.last += 1;
        self.bytes += content.len() as u64;
        self.contents.insert(self.last, content);
        while self.bytes > bytes_max
            && let Some((_, old)) = self.contents.pop_first()
        {
            self.bytes -= old.len() as u64;
        }
        assert!(self.bytes <= bytes_max || self.contents.is_empty(), "cached leaves stay within their limit");
        self.last
    }
    fn remove(&mut self, number: u64) {
        if let Some(old) = self.contents.remove(&number) {
            assert!(self.bytes >= old.len() as u64, "the cache's size has each leaf");
            self.bytes -= old.len() as u64;
        }
    }
}

impl Leaves {
    /// As `LeafArea::new`. Contents that were read are cached, up to `memory_bytes`.
    pub fn new(vol: &Volume, memory_bytes: u64) -> Leaves {
        Leaves {
            area: LeafArea::new(vol.disk().clone(), &vol.layout().slots),
            troubles: vol.troubles().clone(),
            recent: Mutex::default(),
            memory_bytes,
            reads: AtomicU64::new(0),
            trouble: Mutex::default(),
        }
    }

    /// Leaves in memory, their bytes, and the limit of these.
    pub fn in_memory(&self) -> (u64, u64, u64) {
        let recent = self.recent.lock();
        (recent.contents.len() as u64, recent.bytes, self.memory_bytes)
    }

    #[cfg(test)]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// As `LeafArea::free_all_but`.
    pub fn free_all_but(&self, base: &Base, kept: Option<Range<u64>>) -> io::Result<()> {
        self.area.free_all_but(base.leaves.iter().map(|leaf| &leaf.place), kept)
    }

    /// Frees the pages of a range of the medium that `free_all_but` kept.
    pub fn let_go(&self, kept: Range<u64>) {
        self.area.let_go(kept)
    }

    /// Pages that leaves take.
    #[cfg(test)]
    pub fn pages_used(&self) -> u64 {
        self.area.pages_used()
    }

    /// Where a leaf lies on the medium.
    #[cfg(test)]
    pub fn places<'a>(&'a self, leaf: &'a Leaf) -> impl Iterator<Item = Range<u64>> + 'a {
        self.area.places(&leaf.place)
    }

    /// Writes a leaf to a free place. It becomes durable with the checkpoint that names it. `StorageFull` if there is no free space.
    pub fn write(&self, first: ObjectId, objects: u64, bytes: &mut Vec<u8>) -> io::Result<Leaf> {
        let len = bytes.len() as u64;
        let place = self.area.write(bytes)?;
        assert_eq!(place.bytes, len, "a leaf's place has the leaf's bytes");
        Ok(Leaf::new(first, objects, place))
    }

    /// Frees a leaf that no checkpoint names or will name.
    pub fn give_back(&self, leaf: &Leaf) {
        self.forget_trouble(leaf);
        let content = std::mem::replace(&mut *leaf.content.lock(), Content::Gone);
        if let Content::Kept { number, .. } = content {
            self.recent.lock().remove(number);
        }
        self.area.give_back(&leaf.place);
    }

    /// A leaf's content, verified.
    pub fn read(&self, leaf: &Leaf) -> io::Result<Arc<Vec<u8>>> {
        if let Some(known) = leaf.rescued.get().cloned().or_else(|| leaf.content.lock().known()) {
            return Ok(known);
        }
        let read = self.area.read(&leaf.place);
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = read?;
        self.forget_trouble(leaf);
        Ok(self.keep(leaf, bytes))
    }

    fn keep(&self, leaf: &Leaf, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let mut content = leaf.content.lock();
        // Another thread that missed it too has cached it first.
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

    /// Verifies the leaf on the medium itself, past memory and the medium's caches.
    pub fn verify(&self, leaf: &Leaf) -> io::Result<()> {
        self.area.verify(&leaf.place)
    }

    /// Keeps the copy that memory or a cache of the medium has of a leaf that the medium has lost; false if neither has one.
    pub fn rescue(&self, leaf: &Leaf) -> bool {
        self.read(leaf).map(|content| leaf.rescued.get_or_init(|| content)).is_ok()
    }

    /// An object's state in its leaf; `None` if the leaves do not have it.
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

    /// Notes that a leaf of the current checkpoint has wrong content. (A read that failed may succeed the next time.) A mirror's other member
    /// may take over for either.
    pub fn note_trouble(&self, e: &Unreadable) {
        let Unreadable { at, source } = e;
        self.troubles.note_unread(&format!("the OST's index at medium offset {at}"), source);
        if source.kind() == io::ErrorKind::InvalidData {
            *self.trouble.lock() =
                Some((*at, format!("the index cannot be read at medium offset {at}: {source}")));
        }
    }

    /// The reason why a part of the index is lost, if one is.
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
        self.area.begin(&leaf.place)
    }
}

/// A leaf that could not be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its place on the medium, bytes.
    pub at: u64,
    pub source: io::Error,
}
