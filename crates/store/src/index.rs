//! The index in memory: object → state. Readers and writers of different objects share only a shard's read lock.
//!
//! I1: an object is in the index iff it exists or has seen a lease version.  I2: states change only under the engine's tail
//! lock, so whoever holds it sees one consistent whole.  I3: `bytes` bounds what the index takes in a checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::{ObjectId, PAGE_SIZE, Time};

use crate::Attrs;
use crate::alloc::Run;
use crate::checkpoint::{EXTENT_BYTES_MAX, OBJECT_BYTES_MAX, PATCHED_PAGE_BYTES, RESERVED_PAGE_BYTES};
use crate::extent::{Extent, ExtentMap};
use crate::patch::Patches;
use crate::reserved::Reserved;

/// 64 shards: with 32 serving threads two seldom want the same one, and a shard of a million objects stays shallow.
const SHARDS: usize = 64;

/// An object's state; a checkpoint shares it and the next change copies it.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub exists: bool,
    /// Bytes.
    pub len: u64,
    pub mtime: Time,
    pub lease: u64,
    pub extents: ExtentMap,
    /// Small writes that are in no extent yet.
    pub patches: Patches,
    /// None of these is in `extents` or `patches`.
    pub reserved: Reserved,
}

impl State {
    pub fn attrs(&self) -> Attrs {
        let page = PAGE_SIZE as u64;
        Attrs {
            exists: self.exists,
            len: self.len,
            used: (self.extents.pages() + self.patches.new_pages() + self.reserved.pages()) * page,
            reserved_end: self.reserved.limit() as u64 * page,
            mtime: self.mtime,
            lease: self.lease,
        }
    }

    /// Upper bound of its bytes in a checkpoint, also after writes to its reserved pages.
    fn bytes(&self) -> u64 {
        let extents = self.extents.len() as u64 * EXTENT_BYTES_MAX + self.extents.pages() * 4;
        let patches = self.patches.len() as u64 * PATCHED_PAGE_BYTES;
        OBJECT_BYTES_MAX + extents + patches + self.reserved.pages() * RESERVED_PAGE_BYTES
    }

    /// Has the page bytes?
    pub fn has(&self, page: u32) -> bool {
        self.patches.get(page).is_some() || self.extents.site(page).is_some()
    }
    /// How many of pages `[first, limit)` have bytes.
    pub fn count(&self, first: u32, limit: u32) -> u64 {
        self.extents.count(first, limit) + self.patches.count_new(first, limit)
    }
    /// The first page at or after `page` that has bytes.
    pub fn first_from(&self, page: u32) -> Option<u32> {
        let patch = self.patches.range(page, u32::MAX).next().map(|(page, _)| page);
        let extent = self.extents.first_from(page);
        patch.into_iter().chain(extent).min()
    }
    /// The first page at or after `page` that has none.
    pub fn end_of_run(&self, page: u32) -> u32 {
        let mut at = page;
        loop {
            at = self.extents.end_of_run(at);
            if self.patches.get(at).is_none() {
                return at;
            }
            at += 1;
        }
    }
    /// Pages that have bytes in `[first, limit)`, as stretches.
    pub fn stretches(&self, first: u32, limit: u32) -> Vec<(u32, u32)> {
        let extents = self.extents.within(first, limit);
        let patches = self.patches.range(first, limit).map(|(page, _)| (page, page + 1));
        extents.chain(patches).collect()
    }

    /// Puts an extent at `page`, over whatever was there; the runs that it replaces are appended to `freed`.
    pub fn put(&mut self, page: u32, extent: Extent, freed: &mut Vec<Run>) {
        self.patches.cut(page, page + extent.run.pages);
        self.extents.put(page, extent, freed);
    }
    /// Takes the bytes of pages `[first, limit)` away; their runs are appended to `freed`.
    pub fn cut(&mut self, first: u32, limit: u32, freed: &mut Vec<Run>) {
        self.patches.cut(first, limit);
        self.extents.cut(first, limit, freed);
    }
}

pub type Object = RwLock<Arc<State>>;
type Shard = RwLock<BTreeMap<ObjectId, Arc<Object>>>;

#[derive(Debug)]
pub struct Index {
    shards: Vec<Shard>,
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl Index {
    pub fn new() -> Index {
        Index {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Objects that exist.
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }
    /// Upper bound of what all objects take in a checkpoint (I3).
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn get(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.shard(id).read().get(id).cloned()
    }

    pub fn attrs(&self, id: &ObjectId) -> Attrs {
        // The state's lock is taken under the shard's: one lookup, no reference count.
        self.shard(id).read().get(id).map(|o| o.read().attrs()).unwrap_or_default()
    }

    /// Changes an object, which is made if it is not there. Only under the tail lock (I2).
    pub fn change(&self, id: &ObjectId, change: impl FnOnce(&mut State)) {
        let found = self.get(id);
        let (object, mut before, existed) = match found {
            Some(o) => (o, 0, false),
            None => (self.shard(id).write().entry(*id).or_default().clone(), 0, false),
        };
        let mut guard = object.write();
        let is_counted = guard.exists || guard.lease > 0;
        if is_counted {
            before = guard.bytes();
        }
        let existed = existed || guard.exists;
        let state = Arc::make_mut(&mut guard);
        change(state);
        let after = state.bytes();
        self.bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        self.objects.fetch_add((state.exists as u64).wrapping_sub(existed as u64), Ordering::Relaxed);
    }

    /// Takes an object out. Only under the tail lock (I2).
    pub fn remove(&self, id: &ObjectId) -> Option<Arc<State>> {
        let object = self.shard(id).write().remove(id)?;
        // A reader that found the object before must see that it is gone, and not read space that is used again.
        let state = std::mem::take(&mut *object.write());
        self.bytes.fetch_sub(state.bytes(), Ordering::Relaxed);
        self.objects.fetch_sub(state.exists as u64, Ordering::Relaxed);
        Some(state)
    }

    /// The states of up to `max` objects after `after`, in id order.
    pub fn page(&self, after: Option<ObjectId>, max: usize) -> Vec<(ObjectId, Arc<State>)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let mut out: Vec<(ObjectId, Arc<State>)> = Vec::new();
        for shard in &self.shards {
            let shard = shard.read();
            let some = shard.range((from, Unbounded)).take(max);
            out.extend(some.map(|(id, o)| (*id, o.read().clone())));
        }
        out.sort_unstable_by_key(|(id, _)| *id);
        out.truncate(max);
        out
    }

    /// The states of up to `max` objects of one shard after `after`, in id order; `None`: there is no such shard.
    pub fn page_of_shard(
        &self,
        shard: usize,
        after: Option<ObjectId>,
        max: usize,
    ) -> Option<Vec<(ObjectId, Arc<State>)>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let shard = self.shards.get(shard)?.read();
        let some = shard.range((after.map_or(Unbounded, Excluded), Unbounded)).take(max);
        Some(some.map(|(id, o)| (*id, o.read().clone())).collect())
    }

    /// The greatest id.
    pub fn last(&self) -> Option<ObjectId> {
        self.shards.iter().filter_map(|shard| shard.read().keys().next_back().copied()).max()
    }

    /// Every state, in id order. Under the tail lock it is one consistent whole.
    pub fn snapshot(&self) -> Vec<(ObjectId, Arc<State>)> {
        self.page(None, usize::MAX)
    }

    fn shard(&self, id: &ObjectId) -> &Shard {
        &self.shards[spread(id) % SHARDS]
    }
}

/// Spreads ids; in memory only, so it may change at will.
pub fn spread(id: &ObjectId) -> usize {
    let low = (id.generation.0 as u64) << 32 | (id.component as u64) << 16 | id.stripe as u64;
    let mixed = (id.fid.0 ^ low.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize
}
