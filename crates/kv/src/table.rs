//! The table in memory: two persistent B+trees, a large one and a small one with the latest changes on top. A snapshot shares
//! all nodes with the table; the writer copies the few that it changes and publishes the new roots.
//!
//! Why two: each batch is published at once, so each copies its path from the root. In the small tree that path is one branch
//! and a leaf, in cache; the large one is changed once per `RECENT_MAX` changes, and copies each touched node once for all.

use std::borrow::Cow;
use std::io;
use std::iter::Peekable;
use std::ops::Deref;
use std::sync::Arc;

use imbl::OrdMap;
use types::{Key, Seq};

use crate::checkpoint::{self, StreamError};
use crate::published::{Published, Reader};
use crate::{Absent, Batch, Change, Engine, Figures, Miss, Size, TakeRecord, Value, View, record_bytes};

/// Changes in the small tree before they move to the large one: about 16 nodes of 16, so that a path is two nodes, and a
/// move (0.1 ms) is short for who waits behind it.
const RECENT_MAX: usize = 192;

/// One state of the table. I1: `size` is the sum over what `recent` over `base` shows.  I2: `recent` has at most `RECENT_MAX`
/// keys and one batch's more.
#[derive(Clone, Default)]
pub struct Version {
    base: OrdMap<Key, Value>,
    /// The latest changes; `None` hides a record of `base`.
    recent: OrdMap<Key, Option<Value>>,
    size: Size,
    seq: Seq,
}

impl Version {
    fn get(&self, key: &Key) -> Option<&Value> {
        match self.recent.get(key) {
            Some(changed) => changed.as_ref(),
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

    /// Moves the latest changes to the large tree.
    fn settle(&mut self) {
        for (key, value) in std::mem::take(&mut self.recent) {
            match value {
                Some(v) => self.base.insert(key, v),
                None => self.base.remove(&key),
            };
        }
    }

    fn merged<'a>(
        base: impl Iterator<Item = (&'a Key, &'a Value)>,
        recent: impl Iterator<Item = (&'a Key, &'a Option<Value>)>,
    ) -> Merged<impl Iterator<Item = (&'a Key, &'a Value)>, impl Iterator<Item = (&'a Key, &'a Option<Value>)>>
    {
        Merged { base: base.peekable(), recent: recent.peekable() }
    }
}

/// The records of two sorted runs, the later one winning, its `None` hiding.
struct Merged<B: Iterator, R: Iterator> {
    base: Peekable<B>,
    recent: Peekable<R>,
}

impl<'a, B, R> Iterator for Merged<B, R>
where
    B: Iterator<Item = (&'a Key, &'a Value)>,
    R: Iterator<Item = (&'a Key, &'a Option<Value>)>,
{
    type Item = (&'a Key, &'a Value);

    fn next(&mut self) -> Option<(&'a Key, &'a Value)> {
        loop {
            let Some((changed, _)) = self.recent.peek() else { return self.base.next() };
            if let Some(stored) = self.base.next_if(|(stored, _)| stored < changed) {
                return Some(stored);
            }
            self.base.next_if(|(stored, _)| stored == changed);
            if let Some((key, Some(value))) = self.recent.next() {
                return Some((key, value));
            }
        }
    }
}

/// The table that an MDT serves from.
pub struct Table(Published<Version>);

impl Default for Table {
    fn default() -> Table {
        Table(Published::new(Version::default()))
    }
}

impl Table {
    pub fn new() -> Table {
        Table::default()
    }
}

/// A state of a `Table`, for one request or for as long as one likes; a clone of the latter costs a count.
#[derive(Clone)]
pub struct TableView<D>(D);

impl Engine for Table {
    type Reader<'a> = TableView<Reader<'a, Version>>;
    type Snap = TableView<Arc<Version>>;

    fn reader(&self) -> Self::Reader<'_> {
        TableView(self.0.reader())
    }

    fn snapshot(&self) -> Self::Snap {
        TableView(self.0.snapshot())
    }

    fn apply(&self, upto: Seq, batch: Batch) {
        self.0.publish(|newest| {
            let mut next = newest.clone();
            assert!(upto >= next.seq, "entry {upto} is applied after {}", next.seq);
            next.seq = upto;
            let replaced = batch.0.into_iter().map(|change| next.change(change)).sum();
            if next.recent.len() > RECENT_MAX {
                next.settle();
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
        Figures { size: self.0.snapshot().size, states_kept: self.0.kept() }
    }
}

impl<D: Deref<Target = Version>> View for TableView<D> {
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
        let value = self.0.get(key).map(|v| v.verified(key)).transpose()?;
        Ok(value.map(Cow::Borrowed))
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
        if from >= to {
            return Ok(());
        }
        for (key, value) in Version::merged(self.0.base.range(*from..*to), self.0.recent.range(*from..*to)) {
            if !f(key, value.verified(key)?) {
                break;
            }
        }
        Ok(())
    }

    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()> {
        let mut all = Version::merged(self.0.base.iter(), self.0.recent.iter());
        all.try_for_each(|(key, value)| f(key, value.raw(), value.crc()))
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
