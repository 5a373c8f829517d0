//! The index: object → state. The leaves of the last checkpoint have all objects as of then (leaf.rs). Memory has the objects that changed
//! since, and those that were used lately. Readers and writers of different objects share only a shard's read lock.
//!
//! store-I1: an object is in the index iff it exists or has seen a lease version.
//! store-I2: only the holder of the log's tail changes states (tail.rs), so a still tail shows one consistent index.
//! store-I3: `bytes` is an upper bound of the index in leaves.
//! store-I4: an object whose state differs from the present leaves is in memory.
//! store-I5: an object with patches is in memory.
//! store-I6: a thread loads an object before it takes the tail lock, and keeps it loaded while it changes it. Nothing is read under that
//!     lock.
//!
//! A *round* ends where a checkpoint begins. Ending it visits no object: an object that changes before its state was written keeps the old
//! state beside the new one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::Volume;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use types::{ObjectId, PAGE_SIZE, Time};

use crate::Attrs;
use crate::records::codec::{
    EXTENT_BYTES_MAX, OBJECT_BYTES_MAX, PATCHED_PAGE_BYTES, RESERVED_PAGE_BYTES, Records,
};
use crate::records::error::StoreError;
use crate::records::extent::{Extent, ExtentMap};
use crate::records::leaf::{Base, Leaf, Leaves, Unreadable};
use crate::records::patch::Patches;
use crate::records::reserved::Reserved;
use crate::records::rewrite::{Failed, Rewritten, rewrite};
use disk::alloc::Run;

use crate::records::index_report::{BadLeaf, IndexStats, VerifiedLeaves};

/// 64 shards: with 32 serving threads two seldom want the same one, and a shard of a million objects stays shallow.
const SHARDS: usize = 64;

/// Memory of an object without extents (with its places in the shard's tree and in the list of changed objects), of an extent and of a run,
/// as measured with a counting allocator.
const OBJECT_MEMORY: u64 = 480;
const EXTENT_MEMORY: u64 = 20;
const RUN_MEMORY: u64 = 64;

/// An object's state; a checkpoint shares it and the next change copies it.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub exists: bool,
    /// Bytes.
    pub len: u64,
    pub mtime: Time,
    pub lease: u64,
    pub extents: ExtentMap,
    /// Small writes that are not in an extent yet.
    pub patches: Patches,
    /// Reserved pages. None of them is in `extents` or `patches`.
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
    pub fn bytes(&self) -> u64 {
        let extents = self.extents.len() as u64 * EXTENT_BYTES_MAX + self.extents.pages() * 4;
        let patches = self.patches.len() as u64 * PATCHED_PAGE_BYTES;
        OBJECT_BYTES_MAX + extents + patches + self.reserved.pages() * RESERVED_PAGE_BYTES
    }

    /// Bytes of memory, about. The bytes of patches are counted elsewhere.
    fn memory(&self) -> u64 {
        let extents = self.extents.len() as u64 * EXTENT_MEMORY + self.extents.pages() * 5;
        OBJECT_MEMORY + extents + (self.reserved.len() + self.patches.len()) as u64 * RUN_MEMORY
    }

    /// store-I1: the object neither exists nor has seen a lease version.
    pub fn is_absent(&self) -> bool {
        !self.exists && self.lease == 0
    }

    /// True if the page has bytes.
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

    /// Puts an extent at `page`, over anything there. Appends the replaced runs to `freed`.
    pub fn put(&mut self, page: u32, extent: Extent, freed: &mut Vec<Run>) {
        self.patches.cut(page, page + extent.run.pages);
        self.extents.put(page, extent, freed);
    }
    /// Removes the bytes of pages `[first, limit)`. Appends their runs to `freed`.
    pub fn cut(&mut self, first: u32, limit: u32, freed: &mut Vec<Run>) {
        self.patches.cut(first, limit);
        self.extents.cut(first, limit, freed);
    }
}

/// An object in memory, shared by all threads that use it. It stays in memory as long as one does.
#[derive(Debug, Default)]
pub struct Object {
    known: RwLock<Known>,
    /// It was used since eviction looked at it last.
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    state: Arc<State>,
    /// The round of the last change that the base does not have; 0: the base has the present state.
    changed_in: u64,
    /// The state for the checkpoint under way, if the object changed since that began.
    frozen: Option<Arc<State>>,
}

impl Object {
    fn unchanged(state: State) -> Object {
        let known = Known { state: Arc::new(state), changed_in: 0, frozen: None };
        Object { known: RwLock::new(known), is_used: AtomicBool::new(true) }
    }

    pub fn read(&self) -> MappedRwLockReadGuard<'_, Arc<State>> {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        RwLockReadGuard::map(self.known.read(), |known| &known.state)
    }
    pub fn attrs(&self) -> Attrs {
        self.read().attrs()
    }
}

#[derive(Debug, Default)]
struct Shard {
    objects: BTreeMap<ObjectId, Arc<Object>>,
    /// Where eviction looks next.
    hand: Option<ObjectId>,
}

/// The behaviour of a range read at a lost leaf.
#[derive(Clone, Copy)]
enum Lost {
    Fail,
    /// End at its first object. A read that begins behind it skips the leaf.
    End,
}

/// Some objects in id order, and the id up to which (inclusive) they are all; `None`: up to the end.
type Stretch<T> = (Vec<(ObjectId, T)>, Option<ObjectId>);

/// Bytes of leaves that one call verifies, about: as much as the scrub reads in one step.
const VERIFY_BYTES: u64 = 1 << 20;

/// Objects that changed since the last checkpoint began, for the one that begins now.
#[derive(Debug)]
pub struct Changed {
    round: u64,
    /// In order.
    ids: Vec<ObjectId>,
    pub totals: Totals,
}

/// Sums over all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Objects that exist.
    pub objects: u64,
    /// Upper bound of their bytes in leaves.
    pub bytes: u64,
}

pub struct Index {
    shards: Vec<RwLock<Shard>>,
    objects: AtomicU64,
    bytes: AtomicU64,
    /// Memory of all loaded objects, and of those with changes that the base does not have.
    memory: AtomicU64,
    memory_changed: AtomicU64,
    /// `memory_changed` at the end of the last checkpoint. Only a checkpoint makes it less.
    memory_left: AtomicU64,
    memory_max: u64,
    base: RwLock<Arc<Base>>,
    pub leaves: Leaves,
    round: AtomicU64,
    /// Objects changed in the present round.
    changed: Mutex<Vec<ObjectId>>,
    /// The checkpoint of the round before is under way.
    is_freezing: AtomicBool,
}

/// Objects that eviction looks at per loaded object.
const LOOKS: usize = 8;

impl Index {
    /// An empty index. `memory_max`: bytes.
    pub fn new(vol: &Volume, memory_max: u64) -> Index {
        Index {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            memory_changed: AtomicU64::new(0),
            memory_left: AtomicU64::new(0),
            memory_max: memory_max / 4 * 3,
            base: RwLock::default(),
            leaves: Leaves::new(vol, memory_max / 4),
            round: AtomicU64::new(1),
            changed: Mutex::default(),
            is_freezing: AtomicBool::new(false),
        }
    }

    /// Sets the base from the checkpoint, at a start.
    pub fn begin_with(&self, base: Base, totals: Totals) {
        *self.base.write() = Arc::new(base);
        self.objects.store(totals.objects, Ordering::Relaxed);
        self.bytes.store(totals.bytes, Ordering::Relaxed);
    }

    /// Objects that exist.
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }
    /// store-I3: upper bound of all objects in leaves, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    pub fn stats(&self) -> IndexStats {
        let (loaded, leaf_bytes, leaf_bytes_max) = self.leaves.in_memory();
        let leaves = self.base().leaves.len() as u64;
        IndexStats {
            memory_bytes: self.memory() + leaf_bytes,
            memory_bytes_max: self.memory_max + leaf_bytes_max,
            leaves,
            // A checkpoint that ends at this moment may not have freed all replaced leaves.
            leaves_loaded: loaded.min(leaves),
            objects_changed: self.changed.lock().len() as u64,
        }
    }
    /// Bytes of memory that objects take.
    pub fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }
    /// True if memory that only a checkpoint can free is half of the limit.
    pub fn is_pressed(&self) -> bool {
        self.memory_changed() > (self.memory_max / 2).max(self.memory_left() + self.memory_max / 8)
    }
    /// True if such memory reaches the limit. One large object may exceed the limit; then a quarter of it more is allowed.
    pub fn is_full(&self) -> bool {
        self.memory_changed() > self.memory_max.max(self.memory_left() + self.memory_max / 4)
    }
    fn memory_changed(&self) -> u64 {
        self.memory_changed.load(Ordering::Relaxed)
    }
    fn memory_left(&self) -> u64 {
        self.memory_left.load(Ordering::Relaxed)
    }
    /// An object that is in memory and in the index. Without `load` an object on the medium is not found.
    pub fn get(&self, id: &ObjectId) -> Option<Arc<Object>> {
        let object = self.in_memory(id)?;
        let is_there = !object.known.read().state.is_absent();
        is_there.then_some(object)
    }

    /// Attributes of an object in memory. Without `load` an object on the medium is not found.
    pub fn attrs(&self, id: &ObjectId) -> Attrs {
        // The state's lock is taken under the shard's: one lookup, no reference count.
        self.shard(id).read().objects.get(id).map(|o| o.attrs()).unwrap_or_default()
    }

    fn in_memory(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.shard(id).read().objects.get(id).cloned()
    }

    /// An object that is in the index.
    pub fn find(&self, id: &ObjectId) -> Result<Option<Arc<Object>>, StoreError> {
        let object = match self.in_memory(id) {
            Some(object) => object,
            // Another thread may have made it meanwhile.
            None if self.base.read().leaf_of(id).is_none() => return Ok(self.get(id)),
            None => self.load(id)?,
        };
        let is_there = !object.known.read().state.is_absent();
        Ok(is_there.then_some(object))
    }

    /// Loads an object. An absent one has an empty state. While the caller keeps the result, the object can be changed.
    pub fn load(&self, id: &ObjectId) -> Result<Arc<Object>, StoreError> {
        loop {
            if let Some(object) = self.in_memory(id) {
                return Ok(object);
            }
            let base = self.base();
            let found = self.leaves.find(&base, id);
            let mut shard = self.shard(id).write();
            // store-I4: while this base is the present one, objects changed after it are in memory.
            if !Arc::ptr_eq(&base, &self.base.read()) {
                continue;
            }
            if let Some(object) = shard.objects.get(id) {
                return Ok(object.clone());
            }
            let state = found.map_err(|e| self.unreadable(e))?.unwrap_or_default();
            self.memory.fetch_add(state.memory(), Ordering::Relaxed);
            let object = Arc::new(Object::unchanged(state));
            shard.objects.insert(*id, object.clone());
            self.let_some_go(&mut shard);
            return Ok(object);
        }
    }

    fn base(&self) -> Arc<Base> {
        self.base.read().clone()
    }

    pub fn unreadable(&self, e: Unreadable) -> StoreError {
        self.leaves.note_trouble(&e);
        StoreError::Index { at: e.at, source: e.source }
    }

    /// Evicts objects whose state the base has, that no thread uses, and that were not used since the last look.
    fn let_some_go(&self, shard: &mut Shard) {
        if self.memory() <= self.memory_max {
            return;
        }
        use std::ops::Bound::{Excluded, Unbounded};
        let from = shard.hand.map_or(Unbounded, Excluded);
        let looked: Vec<(ObjectId, bool)> = shard
            .objects
            .range((from, Unbounded))
            .take(LOOKS)
            .map(|(id, object)| (*id, Self::may_go(object)))
            .collect();
        shard.hand = if looked.len() == LOOKS { looked.last().map(|(id, _)| *id) } else { None };
        for (id, _) in looked.iter().filter(|(_, may_go)| *may_go) {
            if let Some(object) = shard.objects.remove(id) {
                self.memory.fetch_sub(object.known.read().state.memory(), Ordering::Relaxed);
            }
        }
    }

    /// True if the object may be evicted. store-I5: an object with patches stays, since their bytes are in memory only.
    fn may_go(object: &Arc<Object>) -> bool {
        let was_used = object.is_used.swap(false, Ordering::Relaxed);
        let known = object.known.read();
        Arc::strong_count(object) == 1
            && known.changed_in == 0
            && known.state.patches.is_empty()
            && (!was_used || known.state.is_absent())
    }

    /// Changes an object that is loaded, and makes it if it is absent. Only under the tail lock (store-I2).
    pub fn change<T>(&self, id: &ObjectId, change: impl FnOnce(&mut State) -> T) -> T {
        let object = self.in_memory(id).expect("store-I6: an object is loaded before it is changed");
        let mut known = object.known.write();
        let round = self.round.load(Ordering::Relaxed);
        let (before, memory_before) = (known.totals(), known.state.memory());
        let was_changed = known.changed_in != 0;
        if known.changed_in != round {
            assert!(known.changed_in < round, "rounds of changes rise");
            if was_changed && self.is_freezing.load(Ordering::Relaxed) {
                assert!(known.frozen.is_none(), "a checkpoint freezes one state per object");
                known.frozen = Some(known.state.clone());
            }
            known.changed_in = round;
            self.changed.lock().push(*id);
        }
        let answer = change(Arc::make_mut(&mut known.state));
        let (after, memory) = (known.totals(), known.state.memory());
        self.bytes.fetch_add(after.bytes.wrapping_sub(before.bytes), Ordering::Relaxed);
        self.objects.fetch_add(after.objects.wrapping_sub(before.objects), Ordering::Relaxed);
        self.memory.fetch_add(memory.wrapping_sub(memory_before), Ordering::Relaxed);
        let counted = if was_changed { memory_before } else { 0 };
        self.memory_changed.fetch_add(memory.wrapping_sub(counted), Ordering::Relaxed);
        answer
    }

    /// Removes an object that is loaded. Only under the tail lock (store-I2).
    pub fn remove(&self, id: &ObjectId) -> State {
        self.change(id, std::mem::take)
    }

    /// Begins a checkpoint of the state under the tail lock, which the caller holds. `end_checkpoint` ends it.
    pub fn begin_checkpoint(&self) -> Changed {
        let round = self.round.load(Ordering::Relaxed);
        let ids = std::mem::take(&mut *self.changed.lock());
        let was_freezing = self.is_freezing.swap(true, Ordering::Relaxed);
        assert!(!was_freezing, "one checkpoint is made at a time");
        self.round.store(round + 1, Ordering::Relaxed);
        Changed { round, ids, totals: Totals { objects: self.objects(), bytes: self.bytes() } }
    }

    /// The leaves of that checkpoint.
    pub fn rewrite(&self, changed: &mut Changed, leaf_bytes: usize) -> Result<Rewritten, Failed> {
        changed.ids.sort_unstable();
        let base = self.base();
        rewrite(&self.leaves, &base, leaf_bytes, &changed.ids, |id| self.state_in(id, changed.round))
    }

    /// The state at the end of a round, which is the present one or the one before.
    fn state_in(&self, id: &ObjectId, round: u64) -> Option<Arc<State>> {
        let object = self.in_memory(id).expect("store-I4: a changed object stays in memory");
        let known = object.known.read();
        let is_kept = known.changed_in <= round || known.frozen.is_some();
        assert!(is_kept, "store-I4: a checkpoint has the old state of an object that changed meanwhile");
        let state = if known.changed_in > round { known.frozen.clone() } else { Some(known.state.clone()) };
        state.filter(|state| !state.is_absent())
    }

    /// Ends a checkpoint. `made`: its leaves, if it is durable; they become the base.
    pub fn end_checkpoint(&self, changed: Changed, made: Option<Rewritten>) {
        assert_eq!(
            self.round.load(Ordering::Relaxed),
            changed.round + 1,
            "a checkpoint is of the round before"
        );
        let is_done = made.is_some();
        if let Some(made) = made {
            // Before objects are evicted whose present state only this base has.
            *self.base.write() = Arc::new(made.base);
            made.replaced.iter().for_each(|leaf| self.leaves.give_back(leaf));
        }
        for id in &changed.ids {
            let object = self.in_memory(id).expect("store-I4: a changed object stays in memory");
            let mut known = object.known.write();
            known.frozen = None;
            if known.changed_in != changed.round {
                continue;
            }
            if is_done {
                known.changed_in = 0;
                self.memory_changed.fetch_sub(known.state.memory(), Ordering::Relaxed);
            } else {
                known.changed_in = changed.round + 1;
                self.changed.lock().push(*id);
            }
        }
        self.is_freezing.store(false, Ordering::Relaxed);
        self.memory_left.store(self.memory_changed(), Ordering::Relaxed);
    }

    /// The states of up to `max` objects after `after`, in id order; fewer only at the end.
    pub fn page(
        &self,
        mut after: Option<ObjectId>,
        max: usize,
    ) -> Result<Vec<(ObjectId, Arc<State>)>, StoreError> {
        let mut out = Vec::new();
        while out.len() < max {
            let (some, end) = self.stretch(after, max - out.len(), Lost::Fail)?;
            out.extend(some);
            match end {
                Some(end) => after = Some(end),
                None => break,
            }
        }
        Ok(out)
    }

    /// One range of up to `max` states. Of lost leaves it has only the objects in memory. It touches two lost leaves at most: where it
    /// begins and where it ends.
    pub fn readable(&self, after: Option<ObjectId>, max: usize) -> Result<Stretch<Arc<State>>, StoreError> {
        self.stretch(after, max, Lost::End)
    }

    fn stretch(
        &self,
        after: Option<ObjectId>,
        max: usize,
        lost: Lost,
    ) -> Result<Stretch<Arc<State>>, StoreError> {
        loop {
            let base = self.base();
            let (of_memory, is_all) = self.memory_after(after, max);
            // Up to here memory knows all changed objects.
            let limit = if is_all { None } else { of_memory.last().map(|(id, _)| *id) };
            let of_base = self.base_after(&base, after, limit, max, lost);
            if !Arc::ptr_eq(&base, &self.base.read()) {
                continue;
            }
            let (of_base, end) = of_base.map_err(|e| self.unreadable(e))?;
            // Up to here the leaves were read.
            let limit = end.or(limit);
            let is_within = |id: &ObjectId| limit.is_none_or(|limit| *id <= limit);
            let mut both: BTreeMap<ObjectId, Arc<State>> = of_base.into_iter().collect();
            both.extend(of_memory.into_iter().filter(|(id, _)| is_within(id)));
            let mut out: Vec<_> = both.into_iter().filter(|(_, state)| !state.is_absent()).collect();
            if out.len() <= max {
                return Ok((out, limit));
            }
            out.truncate(max);
            let limit = out.last().map(|(id, _)| *id);
            return Ok((out, limit));
        }
    }

    /// Up to `max` objects of those in memory, absent ones too, and whether these are all.
    fn memory_after(&self, after: Option<ObjectId>, max: usize) -> (Vec<(ObjectId, Arc<State>)>, bool) {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let mut out: Vec<(ObjectId, Arc<State>)> = Vec::new();
        // Shards have about equal shares. If one has more, everything behind the part taken from it waits for the next call.
        let of_shard = max.div_ceil(SHARDS).saturating_mul(2).saturating_add(16).min(max);
        let mut limit = None;
        for shard in &self.shards {
            let (shard, before) = (shard.read(), out.len());
            let some = shard.objects.range((from, Unbounded)).take(of_shard);
            out.extend(some.map(|(id, object)| (*id, object.known.read().state.clone())));
            if out.len() - before == of_shard {
                let last = out.last().map(|(id, _)| *id);
                limit = limit.map_or(last, |limit: ObjectId| last.min(Some(limit)));
            }
        }
        out.sort_unstable_by_key(|(id, _)| *id);
        if let Some(limit) = limit {
            out.truncate(out.partition_point(|(id, _)| *id <= limit));
        }
        let is_all = limit.is_none() && out.len() < max;
        out.truncate(max);
        (out, is_all)
    }

    /// Up to `max` objects of the leaves up to `limit`.
    fn base_after(
        &self,
        base: &Base,
        after: Option<ObjectId>,
        limit: Option<ObjectId>,
        max: usize,
        lost: Lost,
    ) -> Result<Stretch<Arc<State>>, Unreadable> {
        let mut out: Vec<(ObjectId, Arc<State>)> = Vec::new();
        let first =
            after.map_or(0, |after| base.leaves.partition_point(|leaf| leaf.first <= after).max(1) - 1);
        for leaf in base.leaves.iter().skip(first) {
            if limit.is_some_and(|limit| leaf.first > limit) {
                break;
            }
            let told = |e| self.leaves.unreadable(leaf, e);
            let content = match (self.leaves.read(leaf), lost) {
                (Ok(content), _) => content,
                (Err(e), Lost::End) if !disk::is_passing(&e) => {
                    if after.is_none_or(|after| leaf.first > after) {
                        return Ok((out, Some(leaf.first)));
                    }
                    continue;
                }
                (Err(e), _) => return Err(told(e)),
            };
            for record in Records::of(&content) {
                let record = record.map_err(told)?;
                if after.is_some_and(|after| record.id <= after) {
                    continue;
                }
                if limit.is_some_and(|limit| record.id > limit) {
                    return Ok((out, None));
                }
                if out.len() == max {
                    let end = out.last().map(|(id, _)| *id);
                    return Ok((out, end));
                }
                out.push((record.id, Arc::new(record.state().map_err(told)?)));
            }
        }
        Ok((out, None))
    }

    /// Verifies on the medium the leaves whose first object is in `(after, until]`, up to the first unreadable one or `VERIFY_BYTES`.
    pub fn verify_leaves(&self, after: ObjectId, until: ObjectId) -> Result<VerifiedLeaves, StoreError> {
        let base = self.base();
        let begin = base.leaves.partition_point(|leaf| leaf.first <= after);
        let limit = base.leaves.partition_point(|leaf| leaf.first <= until).max(begin);
        let mut found = VerifiedLeaves::default();
        for (leaf, left) in base.leaves[begin..limit].iter().zip((0..limit - begin).rev()) {
            found.bytes += leaf.place.bytes;
            // A single failure is not damage yet, so the leaf is read again.
            let failed = self.leaves.verify(leaf).or_else(|_| self.leaves.verify(leaf)).err();
            let is_enough = failed.is_some() || found.bytes >= VERIFY_BYTES;
            if let Some(source) = failed {
                found.bad = self.bad_leaf(leaf, source)?;
            }
            // A failing medium may take half a minute per leaf, so the caller decides in between whether to go on.
            if is_enough {
                found.end = (left > 0).then_some(leaf.first);
                break;
            }
        }
        Ok(found)
    }

    /// Reports an unreadable leaf, and rescues its objects if memory has them.
    fn bad_leaf(&self, leaf: &Arc<Leaf>, source: io::Error) -> Result<Option<BadLeaf>, StoreError> {
        let e = self.leaves.unreadable(leaf, source);
        // A passing error: the scrub goes on when the device does.
        if disk::is_passing(&e.source) {
            return Err(self.unreadable(e));
        }
        // A checkpoint may have replaced the leaf meanwhile, so that its place has other bytes.
        if !self.base().leaves.iter().any(|now| Arc::ptr_eq(now, leaf)) {
            return Ok(None);
        }
        let is_saved = self.leaves.rescue(leaf);
        if !is_saved {
            self.leaves.note_trouble(&e);
        }
        Ok(Some(BadLeaf { first: leaf.first, at: e.at, is_saved }))
    }

    /// The greatest id in the index.
    pub fn last(&self) -> Option<ObjectId> {
        let of_memory = |shard: &RwLock<Shard>| {
            let shard = shard.read();
            let there = |(_, object): &(&ObjectId, &Arc<Object>)| !object.known.read().state.is_absent();
            shard.objects.iter().rev().find(there).map(|(id, _)| *id)
        };
        let greatest = self.shards.iter().filter_map(of_memory).max();
        greatest.max(self.base().last)
    }

    /// Every state, in id order.
    #[cfg(test)]
    pub fn snapshot(&self) -> Vec<(ObjectId, Arc<State>)> {
        self.page(None, usize::MAX).unwrap()
    }

    /// The present base.
    #[cfg(test)]
    pub fn leaves_now(&self) -> Arc<Base> {
        self.base()
    }

    fn shard(&self, id: &ObjectId) -> &RwLock<Shard> {
        &self.shards[spread(id) % SHARDS]
    }
}

impl Known {
    fn totals(&self) -> Totals {
        match self.state.is_absent() {
            true => Totals::default(),
            false => Totals { objects: self.state.exists as u64, bytes: self.state.bytes() },
        }
    }
}

/// Hashes an id to a shard. It is used in memory only, so it may change.
pub fn spread(id: &ObjectId) -> usize {
    let low = (id.generation.0 as u64) << 32 | (id.component as u64) << 16 | id.stripe as u64;
    let mixed = (id.fid.0 ^ low.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize
}
