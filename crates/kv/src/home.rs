//! Leaves on the medium: the place of a leaf (`Home`), and a leaf that need not be in memory (`Away`).
//!
//! kv-H1: the bytes at a home do not change while the home is referenced: by the durable head, by the checkpoint under way, or by an `Away`
//!     of any version. The last reference frees its pages.
//! kv-H2: an `Away` is filled once and keeps the leaf while it lives, so that readers may borrow from it. To evict the leaf, the table puts
//!     an empty `Away` in its place, in a new version.
//! kv-H3: a leaf is broken if the medium itself returned other bytes than were written, twice, and a caller wanted the leaf. A read that
//!     fails says nothing about the bytes: the `Away` stays empty, and the caller gets the error. Either is noted as a trouble of the volume.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::Troubles;
use disk::leaves::{LeafArea, Place};
use types::Key;

use crate::Size;
use crate::leaf::Leaf;

/// The medium below all homes, and statistics of what was loaded from it.
pub struct Ground {
    pub area: LeafArea,
    troubles: Arc<Troubles>,
    /// Memory of the leaves that fill an `Away`.
    filled_bytes: AtomicU64,
    loads: AtomicU64,
    broken: AtomicU64,
}

impl Ground {
    pub fn new(area: LeafArea, troubles: Arc<Troubles>) -> Ground {
        let zero = AtomicU64::default;
        Ground { area, troubles, filled_bytes: zero(), loads: zero(), broken: zero() }
    }
    pub fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Ordering::Relaxed)
    }
    #[cfg(test)]
    pub fn count_filled(&self, bytes: u64) {
        self.filled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Leaves loaded so far.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }
    /// Leaves found damaged so far (kv-H3).
    pub fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }
}

/// The place of a leaf, and what a head says about the leaf.
pub struct Home {
    /// The first and the last key of its records.
    pub first: Key,
    pub last: Key,
    pub size: Size,
    pub place: Place,
    pub ground: Arc<Ground>,
}

impl Drop for Home {
    /// kv-H1: frees the pages.
    fn drop(&mut self) {
        self.ground.area.give_back(&self.place);
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the leaf of {:?} at medium offset {}", self.first, self.at())
    }
}

/// The bytes at a home are not the ones that were written (kv-H3).
#[derive(Clone, Copy, Debug)]
pub struct Broken;

impl Home {
    /// Reads and decodes the leaf, anew at each call. The error `InvalidData` says that the bytes are wrong (kv-H3).
    pub fn read(&self) -> io::Result<Arc<Leaf>> {
        self.leaf_of(self.ground.area.read(&self.place))
    }

    /// Reads the leaf from the medium itself and checks it. One bad read may be an error on the way, two are not.
    pub fn check(&self) -> io::Result<()> {
        let read = || self.decoded(self.ground.area.read_medium(&self.place)).map(drop);
        read().or_else(|_| read())
    }

    /// Offset on the medium, bytes.
    pub fn at(&self) -> u64 {
        self.ground.area.begin(&self.place)
    }

    fn leaf_of(&self, bytes: io::Result<Vec<u8>>) -> io::Result<Arc<Leaf>> {
        match self.decoded(bytes) {
            // The error may have happened on the way: read once more, past caches.
            Err(e) if is_wrong(&e) => self.decoded(self.ground.area.read_medium(&self.place)),
            read => read,
        }
    }

    fn decoded(&self, bytes: io::Result<Vec<u8>>) -> io::Result<Arc<Leaf>> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, format!("{self:?}: {why}")));
        let bytes = match bytes {
            Err(e) if is_wrong(&e) => return wrong(&e.to_string()),
            bytes => bytes?,
        };
        match Leaf::decode(&bytes) {
            Err(why) => wrong(why),
            Ok(leaf) if (leaf.first(), leaf.last(), leaf.size()) == (self.first, self.last, self.size) => {
                Ok(leaf)
            }
            Ok(_) => wrong("it is not the one that was written there"),
        }
    }
}

/// Did the medium return bytes, but wrong ones?
fn is_wrong(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::InvalidData
}

/// A leaf that need not be in memory.
#[derive(Debug)]
pub struct Away {
    pub home: Arc<Home>,
    found: OnceLock<Result<Arc<Leaf>, Broken>>,
    /// The leaf counts in the ground's `filled_bytes`.
    is_counted: AtomicBool,
}

impl Away {
    pub fn new(home: Arc<Home>) -> Away {
        Away { home, found: OnceLock::new(), is_counted: AtomicBool::new(false) }
    }

    /// The newest version no longer has this `Away`: its leaf is memory of older versions.
    pub fn replaced(&self) {
        if let Some(Ok(leaf)) = self.found.get()
            && self.is_counted.swap(false, Ordering::Acquire)
        {
            let bytes = leaf.memory_bytes();
            let before = self.home.ground.filled_bytes.fetch_sub(bytes, Ordering::Relaxed);
            assert!(before >= bytes, "each loaded leaf is counted once");
        }
    }

    /// The leaf, if it was loaded.
    pub fn found(&self) -> Option<Result<&Arc<Leaf>, Broken>> {
        self.found.get().map(|found| found.as_ref().map_err(|broken| *broken))
    }

    fn fill(&self, found: Result<Arc<Leaf>, Broken>) {
        let ground = &self.home.ground;
        let bytes = found.as_ref().map_or(0, |leaf| leaf.memory_bytes());
        if let Ok(leaf) = &found {
            leaf.set_home(&self.home);
        }
        let is_broken = found.is_err();
        // If two threads load it, one of them counts.
        if self.found.set(found).is_ok() {
            ground.filled_bytes.fetch_add(bytes, Ordering::Relaxed);
            // `replaced` subtracts after it has seen this.
            self.is_counted.store(true, Ordering::Release);
            ground.loads.fetch_add(1, Ordering::Relaxed);
            ground.broken.fetch_add(is_broken.into(), Ordering::Relaxed);
        }
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        self.replaced();
    }
}

/// Loads leaves that are not in memory: all `wanted` ones, or returns an error; and those of `ahead` that are sound.
pub fn fill(wanted: Vec<Arc<Away>>, ahead: Vec<Arc<Away>>) -> io::Result<()> {
    let wanted = wanted.into_iter().map(|away| (away, true));
    let mut leaves: Vec<_> = wanted.chain(ahead.into_iter().map(|away| (away, false))).collect();
    leaves.retain(|(away, _)| away.found().is_none());
    leaves.sort_unstable_by_key(|(away, is_wanted)| (away.home.at(), Arc::as_ptr(away), !is_wanted));
    leaves.dedup_by(|(a, _), (b, _)| Arc::ptr_eq(a, b));
    let mut failed = None;
    for some in leaves.chunks(READ_AT_ONCE) {
        let (some, is_wanted): (Vec<_>, Vec<bool>) = some.iter().cloned().unzip();
        for ((away, leaf), is_wanted) in read(some).into_iter().zip(is_wanted) {
            match leaf {
                Ok(leaf) => away.fill(Ok(leaf)),
                // kv-H3: no caller wants it, so it is not yet broken.
                Err(_) if !is_wanted => {}
                Err(e) => {
                    away.home.ground.troubles.note_unread(LEAF, &e);
                    if !is_wrong(&e) {
                        failed = failed.or(Some(e));
                        continue;
                    }
                    tracing::error!(why = %e, "records of the MDT are lost: restore them from a mirror or run fsck");
                    away.fill(Err(Broken));
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Reads the leaves in the order of their places, and leaves that follow each other in one request.
pub fn read(leaves: Vec<Arc<Away>>) -> Vec<(Arc<Away>, io::Result<Arc<Leaf>>)> {
    let Some(first) = leaves.first() else { return Vec::new() };
    let ground = first.home.ground.clone();
    let mut order: Vec<usize> = (0..leaves.len()).collect();
    order.sort_unstable_by_key(|i| leaves[*i].home.at());
    let places: Vec<&Place> = order.iter().map(|i| &leaves[*i].home.place).collect();
    let mut read: Vec<_> = leaves.iter().map(|_| None).collect();
    let bytes = ground.area.read_all(&places);
    assert_eq!(bytes.len(), places.len(), "each leaf that is read has a result");
    for (i, bytes) in order.into_iter().zip(bytes) {
        read[i] = Some(leaves[i].home.leaf_of(bytes));
    }
    leaves.into_iter().zip(read.into_iter().flatten()).collect()
}

/// A leaf, in the words of `Troubles`.
const LEAF: &str = "a leaf of the MDT's table";

/// Leaves per read: bounds the bytes that are in memory twice, and is enough to keep a device busy.
const READ_AT_ONCE: usize = 128;
