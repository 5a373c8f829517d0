//! Leaves on the medium: where one lies (`Home`), and one that memory need not have (`Away`).
//!
//! kv-H1: what lies at a home does not change while somebody has it: the durable head, the checkpoint under way, and each `Away` of whatever
//!     state. The last one to let go of it frees its pages.
//! kv-H2: an `Away` is filled once, and keeps that while it lives, so that who reads may borrow from it. The table forgets what it was
//!     filled with by an empty one in its place, in a new state.
//! kv-H3: it is broken if the medium itself gave bytes twice that are not those that were written, and somebody wants them. What cannot be
//!     read at all says nothing of them: it stays as it is, and who wants it is told.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::leaves::{LeafArea, Place};
use types::Key;

use crate::Size;
use crate::leaf::Leaf;

/// What homes stand on, and what was brought from there.
pub struct Ground {
    pub area: LeafArea,
    /// That leaves take which some `Away` was filled with.
    filled_bytes: AtomicU64,
    loads: AtomicU64,
    broken: AtomicU64,
}

impl Ground {
    pub fn new(area: LeafArea) -> Ground {
        let zero = AtomicU64::default;
        Ground { area, filled_bytes: zero(), loads: zero(), broken: zero() }
    }
    pub fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Ordering::Relaxed)
    }
    #[cfg(test)]
    pub fn count_filled(&self, bytes: u64) {
        self.filled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Leaves that were brought so far.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }
    /// Leaves that were not what had been written there, or could not be read.
    pub fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }
}

/// Where a leaf lies, and what a head says of it.
pub struct Home {
    /// Of its records.
    pub first: Key,
    pub last: Key,
    pub size: Size,
    pub place: Place,
    pub ground: Arc<Ground>,
}

impl Drop for Home {
    /// kv-H1.
    fn drop(&mut self) {
        self.ground.area.give_back(&self.place);
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the leaf of {:?} at medium offset {}", self.first, self.at())
    }
}

/// What was found at a home is not what was written there.
#[derive(Clone, Copy, Debug)]
pub struct Broken;

impl Home {
    /// The leaf, read anew each time. `InvalidData`: it is not what was written there (kv-H3).
    pub fn read(&self) -> io::Result<Arc<Leaf>> {
        self.leaf_of(self.ground.area.read(&self.place))
    }

    /// Offset on the medium, bytes.
    pub fn at(&self) -> u64 {
        self.ground.area.begin(&self.place)
    }

    fn leaf_of(&self, bytes: io::Result<Vec<u8>>) -> io::Result<Arc<Leaf>> {
        match self.decoded(bytes) {
            // It may have been the way here.
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

/// Were there bytes, and not those that were written?
fn is_wrong(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::InvalidData
}

/// A leaf that memory need not have.
#[derive(Debug)]
pub struct Away {
    pub home: Arc<Home>,
    found: OnceLock<Result<Arc<Leaf>, Broken>>,
    /// It is in the ground's `filled_bytes`.
    is_counted: AtomicBool,
}

impl Away {
    pub fn new(home: Arc<Home>) -> Away {
        Away { home, found: OnceLock::new(), is_counted: AtomicBool::new(false) }
    }

    /// The newest state has something else in its place: what it was filled with is memory of older ones.
    pub fn replaced(&self) {
        if let Some(Ok(leaf)) = self.found.get()
            && self.is_counted.swap(false, Ordering::Relaxed)
        {
            self.home.ground.filled_bytes.fetch_sub(leaf.memory_bytes(), Ordering::Relaxed);
        }
    }

    /// What it was filled with.
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
        // Of two who bring it one counts.
        if self.found.set(found).is_ok() {
            ground.filled_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.is_counted.store(true, Ordering::Relaxed);
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

/// Brings those that are not here: all that are `wanted`, or there is an error; and those of `ahead` that are sound.
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
                // kv-H3: it is nobody's loss yet.
                Err(_) if !is_wanted => {}
                Err(e) if is_wrong(&e) => {
                    tracing::error!(why = %e, "records of the MDT are lost: restore them from a mirror or run fsck");
                    away.fill(Err(Broken));
                }
                Err(e) => failed = failed.or(Some(e)),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Reads them, as they lie, and those that follow each other at once.
pub fn read(leaves: Vec<Arc<Away>>) -> Vec<(Arc<Away>, io::Result<Arc<Leaf>>)> {
    let Some(first) = leaves.first() else { return Vec::new() };
    let ground = first.home.ground.clone();
    let mut order: Vec<usize> = (0..leaves.len()).collect();
    order.sort_unstable_by_key(|i| leaves[*i].home.at());
    let places: Vec<&Place> = order.iter().map(|i| &leaves[*i].home.place).collect();
    let mut read: Vec<_> = leaves.iter().map(|_| None).collect();
    for (i, bytes) in order.into_iter().zip(ground.area.read_all(&places)) {
        read[i] = Some(leaves[i].home.leaf_of(bytes));
    }
    leaves.into_iter().zip(read.into_iter().flatten()).collect()
}

/// Leaves: bounds what is in memory twice, and is enough for a device to work on.
const READ_AT_ONCE: usize = 128;
