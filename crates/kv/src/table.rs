//! The table in memory: a persistent tree of packed leaves (tree.rs, leaf.rs), and on top of it a small persistent map with the latest
//! changes. A snapshot shares all nodes with the table; the writer copies the few that it changes and publishes the new roots.
//!
//! Why two: each batch is published at once, so each copies its path from the root. In the small map that path is one branch
//! and a leaf, in cache; the tree is changed once per `RECENT_MAX` changes, and copies each touched leaf once for all.

use std::borrow::Cow;
use std::io;
use std::ops::{Bound, ControlFlow, Deref};
use std::sync::Arc;

use imbl::OrdMap;
use types::{Key, Seq, Word};

use crate::checkpoint::{self, StreamError};
use crate::leaf::Content;
use crate::published::{Published, Reader};
use crate::tree::{Shape, Tree};
use crate::value::verified;
use crate::{Absent, Batch, Change, Engine, Figures, Miss, Size, TakeRecord, Value, View, record_bytes};

/// Changes in the small map before they move to the tree: about 16 nodes of 16, so that a path is two nodes, and a
/// move (0.1 ms) is short for who waits behind it.
const RECENT_MAX: usize = 192;

/// One state of the table. I1: `size` is the sum over what `recent` over `base` shows.  I2: `recent` has at most `RECENT_MAX`
/// keys and one batch's more.
#[derive(Clone, Default)]
pub struct Version {
    base: Tree,
    /// The latest changes; `None` hides a record of `base`.
    recent: OrdMap<Key, Option<Value>>,
    size: Size,
    seq: Seq,
}

impl Version {
    fn get(&self, key: &Key) -> Option<Content<'_>> {
        match self.recent.get(key) {
            Some(changed) => changed.as_ref().map(Content::of),
            None => self.base.get(key),
        }
    }

    /// Bytes of the record that only older states have now.
    fn change(&mut self, Change { key, value }: Change) -> u64 {
        let old = self.get(&key).map(|old| record_bytes(&key, old.raw().len()));
        if let Some(bytes) = old {
            self.size.bytes -= bytes;
            self.size.records -= 1;
        }
        if let Some(new) = &value {
            self.size.bytes += record_bytes(&key, new.raw().len());
            self.size.records += 1;
        }
        self.recent.insert(key, value);
        old.unwrap_or(0)
    }

    /// Moves the latest changes to the tree.
    fn settle(&mut self, shape: &Shape) {
        let edits: Vec<_> = self.recent.iter().map(|(key, value)| (key, value.as_ref())).collect();
        self.base = self.base.edit(&edits, shape);
        self.recent = OrdMap::new();
    }

    /// Shows `f` the records with `from <= key`, and `key < to` if that is given, in order, until it breaks.
    fn walk<B>(
        &self,
        from: &Key,
        to: Option<&Key>,
        f: &mut impl FnMut(&Key, Content<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let end = to.map_or(Bound::Unbounded, |to| Bound::Excluded(*to));
        let mut recent = self.recent.range((Bound::Included(*from), end)).peekable();
        self.base.range(from, to, &mut |key, stored| {
            while let Some((changed, value)) = recent.next_if(|(changed, _)| **changed < key) {
                value.as_ref().map_or(ControlFlow::Continue(()), |value| f(changed, Content::of(value)))?;
            }
            match recent.next_if(|(changed, _)| **changed == key) {
                None => f(&key, stored),
                Some((_, Some(value))) => f(&key, Content::of(value)),
                Some((_, None)) => ControlFlow::Continue(()),
            }
        })?;
        recent
            .filter_map(|(key, value)| Some((key, value.as_ref()?)))
            .try_for_each(|(key, value)| f(key, Content::of(value)))
    }
}

/// The table that an MDT serves from.
pub struct Table {
    published: Published<Version>,
    shape: Shape,
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

    fn shaped(shape: Shape) -> Table {
        Table { published: Published::new(Version::default()), shape }
    }
}

/// A state of a `Table`, for one request or for as long as one likes; a clone of the latter costs a count.
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
        self.published.publish(|newest| {
            let mut next = newest.clone();
            assert!(upto >= next.seq, "entry {upto} is applied after {}", next.seq);
            next.seq = upto;
            let replaced = batch.0.into_iter().map(|change| next.change(change)).sum();
            if next.recent.len() > RECENT_MAX {
                next.settle(&self.shape);
            }
            (next, replaced)
        })
    }

    /// All of it is in memory: no view says `Absent`.
    fn load(&self, _: Absent) -> io::Result<()> {
        Ok(())
    }

    fn checkpoint(
        &self,
        of: &Self::Snap,
        rest: &mut dyn Iterator<Item = (Key, Value)>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let mut w = checkpoint::Writer::new(out)?;
        of.each(&mut |key, value, crc| w.record(key, value, crc))?;
        for (key, value) in rest {
            w.record(&key, value.raw(), value.crc())?;
        }
        w.finish()
    }

    fn open(
        at: Seq,
        from: &mut dyn io::Read,
        is_rest: &mut dyn FnMut(&Key, &Value) -> bool,
    ) -> Result<Table, StreamError> {
        let table = Table::new();
        let mut records = 0;
        checkpoint::read_stream(from, &mut |mut batch| {
            batch.0.retain(|c| !c.value.as_ref().is_some_and(|value| is_rest(&c.key, value)));
            records += batch.0.len() as u64;
            table.apply(at, batch);
        })?;
        // A key that stood twice would have replaced itself.
        match table.figures().size.records == records {
            true => Ok(table),
            false => Err(StreamError::Malformed("a key stands twice")),
        }
    }

    fn figures(&self) -> Figures {
        Figures { size: self.published.snapshot().size, states_kept: self.published.kept() }
    }

    fn words(&self) -> Vec<Word> {
        self.published.words()
    }
}

impl<D: Deref<Target = Version>> View for TableView<D> {
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
        let value = self.0.get(key).map(|v| verified(key, v.raw(), v.crc())).transpose()?;
        Ok(value.map(Cow::Borrowed))
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
        if from >= to {
            return Ok(());
        }
        let walked =
            self.0.walk(from, Some(to), &mut |key, value| match verified(key, value.raw(), value.crc()) {
                Err(damage) => ControlFlow::Break(Err(damage.into())),
                Ok(value) if f(key, value) => ControlFlow::Continue(()),
                Ok(_) => ControlFlow::Break(Ok(())),
            });
        walked.break_value().unwrap_or(Ok(()))
    }

    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()> {
        let walked =
            self.0.walk(&Key::default(), None, &mut |key, value| match f(key, value.raw(), value.crc()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => ControlFlow::Break(e),
            });
        walked.break_value().map_or(Ok(()), Err)
    }

    fn size(&self) -> Size {
        self.0.size
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
        crate::conformance::all(|| Table::shaped(Shape { leaf_bytes: 256, fanout: 4 }));
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
