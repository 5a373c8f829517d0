//! The in-memory table: a persistent (copy-on-write) tree of packed leaves (tree.rs, leaf.rs) under a memtable of the latest changes
//! (memtable.rs). Both are shared with every snapshot.
//!
//! Why a memtable: each batch is published at once, and in the tree each batch would copy its path from the root. The memtable copies
//! nothing; the tree changes once per `Shape::changes` changes and copies each touched leaf once for all of them. The full memtable of a
//! version (`active`) becomes its immutable one, and a new one takes its place. The mover applies the immutable memtable to the tree while
//! the writer goes on (mover.rs).
//!
//! kv-I1: `size` of a version is the sum over the records that it shows: `active` hides `immutable`, and `immutable` hides `base`.
//! kv-I2: a memtable has at most `Shape::changes` changes and `MEMTABLE_BYTES_MAX` of values, plus one batch. `active` may hold
//!     `MOVES_LATE` times as much while the mover is late.
//! kv-I3: the leaf of each key in a memtable is in memory in `base`, or lost.
//! kv-I4: while `immutable` is set, `base` does not change.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use types::{Key, Seq, Word};

use crate::checkpoint::{self, StreamError};
use crate::home::{self, Away};
use crate::leaf::{Content, Edit, Leaf};
use crate::medium::{Item, Medium, OnMedium};
use crate::memtable::Memtable;
use crate::published::{Published, Reader};
use crate::tree::{Edited, Gap, Shape, Stretch, Tip, Tree};
use crate::value::{Damage, verified};
use crate::{
    Absent, Batch, Change, CheckedLeaves, Engine, Figures, Miss, Room, Size, TakeRecord, Tidied, Value, View,
    record_bytes,
};

mod cache;
mod mover;

use cache::Cache;
use mover::{Immutable, Mover};

/// Bytes of values in a memtable at which its changes move to the tree.
const MEMTABLE_BYTES_MAX: u64 = 1 << 20;
/// Extra capacity of a memtable for one more batch; most batches are smaller.
const BATCH_ROOM: usize = 64;
/// A mover is late when the active memtable is this many times full. The writer then moves both memtables itself, and does not wait.
const MOVES_LATE: usize = 4;

/// Leaves that a range scan loads at once: about as many as one page of a listing needs.
const AHEAD: usize = 96;
/// Leaves that a range scan examines to find them: most of the following leaves may be in memory already.
const AHEAD_WITHIN: usize = 8 * AHEAD;

/// One version of the table (kv-I1 to kv-I4).
#[derive(Clone, Default)]
pub struct Version {
    base: Tree,
    /// The immutable memtable, whose changes are moving to `base`.
    immutable: Option<Immutable>,
    /// The active memtable. The value `None` is a tombstone: it hides a record below.
    active: Memtable,
    size: Size,
    /// `size.bytes` when changes last moved to the tree.
    settled_bytes: u64,
    seq: Seq,
}

/// A new active memtable.
fn empty_memtable(shape: &Shape) -> Memtable {
    Memtable::with_capacity(shape.changes + BATCH_ROOM)
}

impl Version {
    fn get(&self, key: &Key) -> Result<Option<Content<'_>>, Gap<'_>> {
        let changed = self.active.get(key).or_else(|| self.immutable.as_ref()?.memtable.get(key));
        match changed {
            Some(changed) => Ok(changed.map(Content::of)),
            None => self.base.get(key),
        }
    }

    /// Returns the bytes of the replaced record, which only older versions have from now on.
    fn change(&mut self, Change { key, value }: Change) -> u64 {
        let old = match self.get(&key) {
            Ok(old) => old.map(|old| record_bytes(&key, old.raw().len())),
            Err(Gap::Lost(_)) => None,
            Err(Gap::Away(away)) => panic!("kv-I3: {:?} is not in memory, and {key:?} changes", away.home),
        };
        if let Some(bytes) = old {
            assert!(self.size.bytes >= bytes, "kv-I1: a record that is replaced counts in the bytes");
            assert!(self.size.records > 0, "kv-I1: a record that is replaced counts in the records");
            self.size.bytes -= bytes;
            self.size.records -= 1;
        }
        if let Some(new) = &value {
            self.size.bytes += record_bytes(&key, new.raw().len());
            self.size.records += 1;
        }
        self.active.add(key, value);
        old.unwrap_or(0)
    }

    /// Moves all changes of both memtables to the tree.
    fn settle(&mut self, shape: &Shape) {
        self.take(self.base.edited(&self.edits(), shape));
        (self.immutable, self.active) = (None, empty_memtable(shape));
        self.settled_bytes = self.size.bytes;
        debug_assert!(self.is_summed(), "kv-I1: moved changes lead to the same sums");
    }

    /// Makes the active memtable the immutable one. Returns the mover's work.
    fn begin_to_move(&mut self, shape: &Shape) -> (Tree, Immutable) {
        assert!(self.immutable.is_none(), "kv-I4: one memtable moves at a time");
        assert!(self.active.changes() > 0, "an empty memtable does not move");
        let memtable = std::mem::replace(&mut self.active, empty_memtable(shape));
        let immutable = Immutable { memtable, settled_bytes: self.size.bytes };
        self.immutable = Some(immutable.clone());
        (self.base.clone(), immutable)
    }

    /// Puts the mover's tree in place of `base` and drops the immutable memtable.
    fn end_to_move(&mut self, moved: Edited) {
        let Some(immutable) = self.immutable.take() else { return };
        let before = self.size.bytes;
        self.take(moved);
        assert!(self.size.bytes <= before, "kv-I1: a move adds no record");
        self.settled_bytes = immutable.settled_bytes.saturating_sub(before - self.size.bytes);
        debug_assert!(self.is_summed(), "kv-I1: moved changes lead to the same sums");
    }

    /// kv-I1, checked for small versions without damage whose leaves are all in memory; other versions pass.
    fn is_summed(&self) -> bool {
        // Without `range`, which marks leaves as used and so keeps them in memory.
        const RECORDS_MAX: u64 = 2048;
        let sums = self.base.sums();
        if sums.away > 0 || sums.lost != Size::default() || self.size.records > RECORDS_MAX {
            return true;
        }
        let (tree, mut sum) = (self.settled(&Shape::default()), Size::default());
        let mut add = |tip: Tip<'_>| match tip {
            Tip::Here(leaf) => {
                let Size { records, bytes } = leaf.size();
                sum = Size { records: sum.records + records, bytes: sum.bytes + bytes };
                ControlFlow::Continue(())
            }
            Tip::Away(_) | Tip::Lost(_) => ControlFlow::Break(()),
        };
        tree.tips(&Key::default(), None, &mut add).is_break() || sum == self.size
    }

    fn is_full(&self, shape: &Shape, times: usize) -> bool {
        self.active.changes() > shape.changes * times
            || self.active.bytes() > MEMTABLE_BYTES_MAX * times as u64
    }

    /// Replaces `base`, and subtracts records that were newly found lost from `size`.
    fn take(&mut self, Edited { tree: base, replaced, .. }: Edited) {
        let before = self.base.sums().lost;
        replaced.iter().for_each(|away| away.replaced());
        self.base = base;
        let lost = self.base.sums().lost;
        assert!(lost.records >= before.records, "lost records stay lost");
        assert!(lost.bytes >= before.bytes, "bytes of lost records stay lost");
        self.size.records = self.size.records.saturating_sub(lost.records - before.records);
        self.size.bytes = self.size.bytes.saturating_sub(lost.bytes - before.bytes);
    }

    /// The tree with the changes of both memtables in it.
    fn settled(&self, shape: &Shape) -> Tree {
        self.base.edit(&self.edits(), shape)
    }

    fn edits(&self) -> Vec<Edit<'_>> {
        self.latest(&Key::default(), None).collect()
    }

    /// The latest change of each key with `from <= key`, and `key < to` if that is given, in key order: a merge of both memtables.
    fn latest<'a>(&'a self, from: &Key, to: Option<&Key>) -> impl Iterator<Item = Edit<'a>> + use<'a> {
        let mut older = self
            .immutable
            .as_ref()
            .map(|immutable| immutable.memtable.range(from, to))
            .into_iter()
            .flatten()
            .peekable();
        let mut newer = self.active.range(from, to).peekable();
        std::iter::from_fn(move || match (older.peek(), newer.peek()) {
            (Some((old, _)), Some((new, _))) if old == new => {
                older.next();
                newer.next()
            }
            (Some((old, _)), Some((new, _))) if old < new => older.next(),
            (Some(_), None) => older.next(),
            _ => newer.next(),
        })
    }

    /// Shows `f` the records with `from <= key`, and `key < to` if that is given, in order, until it breaks. `gap`: see `Tree::range`.
    fn walk<B>(
        &self,
        from: &Key,
        to: Option<&Key>,
        f: &mut impl FnMut(&Key, Content<'_>) -> ControlFlow<B>,
        gap: &mut impl FnMut(Gap<'_>) -> ControlFlow<B, Arc<Leaf>>,
    ) -> ControlFlow<B> {
        let mut changes = self.latest(from, to).peekable();
        let mut stored = |key: Key, stored: Content<'_>| {
            while let Some((changed, value)) = changes.next_if(|(changed, _)| **changed < key) {
                value.map_or(ControlFlow::Continue(()), |value| f(changed, Content::of(value)))?;
            }
            match changes.next_if(|(changed, _)| **changed == key) {
                None => f(&key, stored),
                Some((_, Some(value))) => f(&key, Content::of(value)),
                Some((_, None)) => ControlFlow::Continue(()),
            }
        };
        self.base.range(from, to, &mut stored, gap)?;
        changes
            .filter_map(|(key, value)| Some((key, value?)))
            .try_for_each(|(key, value)| f(key, Content::of(value)))
    }
}

impl Version {
    /// As `View::range`, except that a lost range also hides the latest changes in and before it.
    fn show(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
        let mut record = |key: &Key, value: Content<'_>| match verified(key, value.raw(), value.crc()) {
            Err(damage) => ControlFlow::Break(Err(damage.into())),
            Ok(value) if f(key, value) => ControlFlow::Continue(()),
            Ok(_) => ControlFlow::Break(Ok(())),
        };
        let mut gap = |gap: Gap<'_>| {
            let key = *gap.first().max(from);
            ControlFlow::Break(Err(match gap {
                Gap::Lost(stretch) => Damage { key, end: stretch.end }.into(),
                Gap::Away(away) => {
                    let ahead = self.base.absent(&key, Some(to), AHEAD, AHEAD_WITHIN);
                    Absent { key, leaves: vec![away.clone()], ahead }.into()
                }
            }))
        };
        self.walk(from, Some(to), &mut record, &mut gap).break_value().unwrap_or(Ok(()))
    }
}

/// A writer that accepts at most `left` bytes.
struct Bounded<'a> {
    out: &'a mut dyn io::Write,
    left: u64,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            // The space after the head belongs to leaves. Not `StorageFull`: freeing leaves would not make the head shorter.
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the head of the checkpoint is too long",
            ));
        }
        let written = self.out.write(bytes)?;
        assert!(written <= bytes.len(), "a writer takes no more than it was given");
        self.left -= written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The table that an MDT serves from.
pub struct Table {
    published: Published<Version>,
    shape: Shape,
    /// `None`: the stream of a checkpoint has all records.
    medium: Option<OnMedium>,
    cache: Cache,
    mover: Mover,
}

impl Default for Table {
    fn default() -> Table {
        Table::shaped(Shape::default())
    }
}

impl Table {
    pub fn new() -> Table {
        Table::default()
    }

    /// An empty table whose checkpoints write leaves to the medium and name them in their stream. If the medium has a checkpoint, call
    /// `open`.
    pub fn over(medium: Medium) -> io::Result<Table> {
        Table::over_shaped(medium, Shape::default())
    }

    pub(crate) fn over_shaped(medium: Medium, shape: Shape) -> io::Result<Table> {
        Ok(Table { medium: Some(OnMedium::new(medium)?), ..Table::shaped(shape) })
    }

    #[cfg(test)]
    pub(crate) fn on_medium(&self) -> Option<&OnMedium> {
        self.medium.as_ref()
    }

    fn shaped(shape: Shape) -> Table {
        let published = Published::new(Version::default());
        Table { published, shape, medium: None, cache: Cache::default(), mover: Mover::default() }
    }

    /// Moves all changes now, and cancels the mover's work if it has not begun.
    fn settle_all(&self, next: &mut Version) {
        self.mover.withdraw();
        next.settle(&self.shape);
    }
}

/// A view of one version of a `Table`: for one request (`Reader`), or for any time (`Arc`; a clone raises a reference count).
#[derive(Clone)]
pub struct TableView<D>(D);

impl Engine for Table {
    type Reader<'a> = TableView<Reader<'a, Version>>;
    type Snap = TableView<Arc<Version>>;

    fn reader(&self) -> Self::Reader<'_> {
        TableView(self.published.reader())
    }

    fn snapshot(&self) -> Self::Snap {
        TableView(self.published.snapshot())
    }

    fn apply(&self, upto: Seq, batch: Batch) {
        let (mut is_settled, mut to_move) = (false, None);
        let is_full = |next: &Version, times| next.is_full(&self.shape, times);
        self.published.publish(|newest| {
            let mut next = newest.clone();
            assert!(upto >= next.seq, "entry {upto} is applied after {}", next.seq);
            next.seq = upto;
            let replaced = batch.0.into_iter().map(|change| next.change(change)).sum();
            match next.immutable {
                None if is_full(&next, 1) => to_move = Some(next.begin_to_move(&self.shape)),
                // The mover has not begun this memtable, or it is late.
                Some(_) if is_full(&next, 1) && (self.mover.withdraw() || is_full(&next, MOVES_LATE)) => {
                    self.settle_all(&mut next);
                    is_settled = true;
                }
                _ => {}
            }
            (next, replaced)
        });
        // Only after publication: the mover compares its work with the published version.
        if let Some((base, immutable)) = to_move {
            self.mover.ask(base, immutable);
        }
        if is_settled {
            self.see_to_memory();
        }
    }

    fn admits<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Result<(), Absent> {
        let newest = self.published.reader();
        if newest.base.sums().away == 0 {
            return Ok(());
        }
        let mut absent: Option<Absent> = None;
        for key in keys {
            if let Some(away) = newest.base.needs(key) {
                absent.get_or_insert_with(|| Absent::of(*key)).leaves.push(away.clone());
            }
        }
        absent.map_or(Ok(()), Err)
    }

    fn bare(&self, from: &Key, to: &Key) -> Result<(), Absent> {
        let bare = Stretch { first: *from, end: *to };
        // A leaf must be loaded to learn whether it is lost.
        let mut leaves = self.published.reader().base.absent(from, Some(to), usize::MAX, usize::MAX);
        leaves.retain(|away| away.home.last >= *from);
        if !leaves.is_empty() {
            return Err(Absent { leaves, ..Absent::of(*from) });
        }
        self.published.publish(|newest| {
            let mut next = newest.clone();
            self.settle_all(&mut next);
            next.take(next.base.bared(&bare, &self.shape));
            next.settled_bytes = next.size.bytes;
            (next, 0)
        });
        Ok(())
    }

    fn load(&self, what: Absent) -> io::Result<()> {
        home::fill(what.leaves, what.ahead)?;
        self.see_to_memory();
        Ok(())
    }

    fn forgotten(&self, of: &Self::Snap) -> Self::Snap {
        let version = Version::clone(&of.0);
        // The memtables move first: the leaves of their keys must be in memory (kv-I3), and `forgotten` drops leaves.
        let base = version.settled(&self.shape).forgotten();
        TableView(Arc::new(Version { base, immutable: None, active: Memtable::default(), ..version }))
    }

    fn settle(&self) {
        self.published.publish_if(|newest| {
            let mut next =
                (newest.active.changes() > 0 || newest.immutable.is_some()).then(|| newest.clone())?;
            self.settle_all(&mut next);
            Some((next, 0))
        });
        self.see_to_memory();
    }

    fn tidy(&self) -> Tidied {
        self.tidy_step()
    }

    fn discard(&self) -> io::Result<()> {
        self.medium.as_ref().map_or(Ok(()), |medium| medium.ground.area.discard())
    }

    fn until_untidy(&self, at_most: Duration) {
        self.cache.wait(at_most);
    }

    fn wake(&self) {
        self.cache.ring();
        self.mover.wake();
    }

    fn move_changes(&self, at_most: Duration) {
        self.move_next(at_most);
    }

    fn warm(&self, from: &mut Key) -> io::Result<bool> {
        self.warm_part(from)
    }

    fn checkpoint(
        &self,
        of: &Self::Snap,
        rest: &mut dyn Iterator<Item = (Key, Value)>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let mut out = Bounded { out, left: self.room().head_bytes };
        let mut w = match &self.medium {
            None => {
                let mut w = checkpoint::Writer::new(&mut out)?;
                of.each(&mut |key, value, crc| w.record(key, value, crc))?;
                w
            }
            Some(medium) => {
                let mut w = checkpoint::Writer::of_leaves(&mut out)?;
                medium.write(&of.0.settled(&self.shape), &mut w)?;
                w
            }
        };
        for (key, value) in rest {
            w.record(&key, value.raw(), value.crc())?;
        }
        w.finish()
    }

    fn end_checkpoint(&self, is_named: bool) {
        self.medium.iter().for_each(|medium| medium.end(is_named));
        // Only a checkpoint that succeeded makes more leaves evictable.
        if is_named {
            self.cache.checkpoint_named();
            self.see_to_memory();
        } else {
            // Versions that no reader holds may keep the space that the failed checkpoint needed: free them.
            self.mover.forget();
            self.published.release();
        }
    }

    fn open(
        self,
        at: Seq,
        from: &mut dyn io::Read,
        is_rest: &mut dyn FnMut(&Key, &Value) -> bool,
    ) -> Result<Table, StreamError> {
        let mut records = 0;
        let leaves = checkpoint::read_any(from, &mut |mut batch| {
            batch.0.retain(|c| !c.value.as_ref().is_some_and(|value| is_rest(&c.key, value)));
            records += batch.0.len() as u64;
            self.apply(at, batch);
        })?;
        // A key that occurs twice replaced its own record, so the count is too low.
        if self.figures().size.records != records {
            return Err(StreamError::Malformed("a key stands twice"));
        }
        match (leaves, &self.medium) {
            (None, None) => {}
            (None, Some(medium)) => drop(medium.open(Vec::new(), &self.shape)?),
            (Some(_), None) => return Err(StreamError::Malformed("it names leaves, and there is no medium")),
            (Some(_), _) if records > 0 => {
                return Err(StreamError::Malformed("a record of the table beside its leaves"));
            }
            (Some(leaves), Some(medium)) => {
                let mut size = Size::default();
                for item in &leaves {
                    let Item::Leaf(leaf) = item else { continue };
                    size.records += u64::from(leaf.records);
                    size.bytes += leaf.record_bytes;
                }
                let base = medium.open(leaves, &self.shape)?;
                let version =
                    Version { base, size, settled_bytes: size.bytes, seq: at, ..Version::default() };
                self.published.publish(|_| (version, 0));
            }
        }
        Ok(self)
    }

    fn room(&self) -> Room {
        let endless = Room { leaves_bytes: u64::MAX / 2, head_bytes: u64::MAX / 2 };
        self.medium.as_ref().map_or(endless, OnMedium::room)
    }

    fn figures(&self) -> Figures {
        let newest = self.published.snapshot();
        let ground = self.medium.as_ref().map(|medium| &medium.ground);
        Figures {
            size: newest.size,
            states_kept: self.published.kept(),
            memory_bytes: self.memory(&newest).all(),
            memory_bytes_max: self
                .medium
                .as_ref()
                .map_or(u64::MAX, |medium| medium.cache_bytes.load(Ordering::Relaxed)),
            leaves: newest.base.sums().leaves,
            loads: ground.map_or(0, |ground| ground.loads()),
            evictions: self.cache.evictions(),
            broken: ground.map_or(0, |ground| ground.broken()),
            moves: self.mover.moved(),
        }
    }

    fn check_leaves(&self, after: Option<&Key>, max: usize) -> CheckedLeaves {
        self.medium.as_ref().map_or_else(CheckedLeaves::default, |medium| medium.check(after, max))
    }

    fn lost(&self) -> u64 {
        self.published.snapshot().base.lost(&Key::default(), None).len() as u64
    }

    fn words(&self) -> Vec<Word> {
        self.published.words()
    }
}

impl<D: Deref<Target = Version>> View for TableView<D> {
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
        let value = self.0.get(key).map_err(|gap| match gap {
            Gap::Lost(_) => Miss::Damage(Damage::of(*key)),
            Gap::Away(away) => Miss::Absent(Absent { leaves: vec![away.clone()], ..Absent::of(*key) }),
        })?;
        let value = value.map(|v| verified(key, v.raw(), v.crc())).transpose()?;
        Ok(value.map(Cow::Borrowed))
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
        if from >= to {
            return Ok(());
        }
        let mut seen = *from;
        let shown = self.0.show(from, to, &mut |key, value| {
            seen = key.after();
            f(key, value)
        });
        match shown {
            // Some keys before the end of the lost range were changed since: in the tree those changes divide the range.
            Err(Miss::Damage(lost)) if self.0.latest(&seen, Some(&lost.end)).next().is_some() => {
                let base = self.0.settled(&Shape::default());
                let settled =
                    Version { base, immutable: None, active: Memtable::default(), ..Version::clone(&self.0) };
                settled.show(&seen, to, f)
            }
            shown => shown,
        }
    }

    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()> {
        let mut record = |key: &Key, value: Content<'_>| match f(key, value.raw(), value.crc()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => ControlFlow::Break(e),
        };
        // Reads the following leaves together with the needed one. They do not stay in memory for other views.
        let mut ahead = VecDeque::new();
        let mut gap = |gap: Gap<'_>| {
            let away = match gap {
                Gap::Away(away) => away,
                Gap::Lost(stretch) => {
                    let damage = Damage { key: stretch.first, end: stretch.end };
                    return ControlFlow::Break(io::Error::new(io::ErrorKind::InvalidData, damage));
                }
            };
            let is_it = |(next, _): &(Arc<Away>, _)| Arc::ptr_eq(next, away);
            if !ahead.front().is_some_and(is_it) {
                ahead = home::read(self.0.base.absent(&away.home.first, None, AHEAD, AHEAD_WITHIN)).into();
            }
            // Another thread may have loaded the leaf meanwhile, so that the read-ahead does not have it.
            let read = ahead.pop_front().filter(is_it).map_or_else(|| away.home.read(), |(_, read)| read);
            read.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        };
        let walked = self.0.walk(&Key::default(), None, &mut record, &mut gap);
        walked.break_value().map_or(Ok(()), Err)
    }

    fn size(&self) -> Size {
        self.0.size
    }

    fn medium_bytes(&self) -> u64 {
        let unsettled = self.0.size.bytes.saturating_sub(self.0.settled_bytes);
        self.0.base.sums().pages * types::PAGE_SIZE as u64 + unsettled
    }

    fn seq(&self) -> Seq {
        self.0.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::all(Table::new);
    }

    /// Small leaves, so that a few hundred records make a tree of several levels.
    #[test]
    fn conforms_with_small_leaves() {
        crate::conformance::all(|| Table::shaped(Shape { leaf_bytes: 256, fanout: 4, changes: 256 }));
    }

    #[test]
    fn readers_see_whole_batches_beside_a_writer() {
        let table = Table::new();
        let keys: Vec<Key> = (0..8u8).map(|n| Key::new(&[n]).expect("short")).collect();
        let put = |n: u32| {
            Batch(
                keys.iter().map(|k| Change { key: *k, value: Some(Value::new(&n.to_le_bytes())) }).collect(),
            )
        };
        table.apply(Seq(0), put(0));
        std::thread::scope(|s| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    s.spawn(|| {
                        let mut last = 0;
                        while last < 2000 {
                            let snap = table.reader();
                            let first = snap.get(&keys[0]).unwrap().unwrap();
                            assert!(keys.iter().all(|k| snap.get(k).unwrap().unwrap() == first));
                            let now = u32::from_le_bytes(first[..].try_into().unwrap());
                            assert!(now >= last, "a later snapshot is never older");
                            last = now;
                        }
                    })
                })
                .collect();
            (1..=2000).for_each(|n| table.apply(Seq(n as u64), put(n)));
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }
}
