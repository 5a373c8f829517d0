//! A test double that acts like a table larger than memory: at first no record is in memory, and loaded records are evicted again. It tests
//! callers: a rule that meets an absent record must have no effect, and start over once the record was loaded.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use types::{Key, Seq};

use crate::{
    Absent, Batch, CheckedLeaves, Engine, Figures, Medium, Miss, Room, Size, StreamError, Table, TakeRecord,
    Tidied, Value, View,
};

/// Loads after which all records are evicted.
const LOADS: usize = 24;
/// One of so many requests must wait for a load.
const ADMISSIONS: usize = 17;
/// Bytes of a key that its neighbours in a leaf have in common, at most: a kind, and all of an id but its last byte.
const LEAF_BYTES: usize = 8;

/// The leaves in memory, and counts of calls.
#[derive(Default)]
struct Loaded {
    leaves: BTreeSet<Key>,
    loads: usize,
    admissions: usize,
    admits_all: bool,
    /// A key whose change must wait for a load, and whether that load succeeds.
    lacks: Option<(Key, bool)>,
}

#[derive(Default)]
pub struct AwayTable {
    table: Table,
    loaded: Arc<Mutex<Loaded>>,
}

impl AwayTable {
    pub fn new() -> AwayTable {
        AwayTable::default()
    }
    pub fn over(medium: Medium) -> io::Result<AwayTable> {
        Ok(AwayTable { table: Table::over(medium)?, ..AwayTable::default() })
    }
    /// From here on no change waits. For tests of operations that share a log entry.
    pub fn admit_all(&self) {
        self.loaded.lock().admits_all = true;
    }
    /// A change of this key waits for a load; `is_there` says whether the load succeeds.
    pub fn lack(&self, key: Key, is_there: bool) {
        self.loaded.lock().lacks = Some((key, is_there));
    }
    /// The number of loads so far.
    pub fn loads(&self) -> usize {
        self.loaded.lock().loads
    }
}

#[derive(Clone)]
pub struct AwayView<V> {
    inner: V,
    loaded: Arc<Mutex<Loaded>>,
}

impl<V> AwayView<V> {
    fn need(&self, key: &Key) -> Result<(), Absent> {
        let is_here = self.loaded.lock().leaves.contains(&leaf_of(key));
        if is_here { Ok(()) } else { Err(Absent::of(*key)) }
    }
}

fn leaf_of(key: &Key) -> Key {
    let bytes = key.as_bytes();
    Key::new(&bytes[..bytes.len().saturating_sub(1).min(LEAF_BYTES)]).expect("shorter than a key")
}

impl Engine for AwayTable {
    type Reader<'a> = AwayView<<Table as Engine>::Reader<'a>>;
    type Snap = AwayView<<Table as Engine>::Snap>;

    fn reader(&self) -> Self::Reader<'_> {
        AwayView { inner: self.table.reader(), loaded: self.loaded.clone() }
    }
    fn snapshot(&self) -> Self::Snap {
        AwayView { inner: self.table.snapshot(), loaded: self.loaded.clone() }
    }
    fn apply(&self, upto: Seq, batch: Batch) {
        self.table.apply(upto, batch)
    }
    /// As the table below says, and sometimes the first key is reported absent.
    fn admits<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Result<(), Absent> {
        let loaded = &mut *self.loaded.lock();
        loaded.admissions += 1;
        let keys: Vec<&Key> = keys.collect();
        match (loaded.lacks, keys.first()) {
            (Some((key, _)), _) if keys.contains(&&key) => Err(Absent::of(key)),
            (_, Some(first)) if !loaded.admits_all && loaded.admissions.is_multiple_of(ADMISSIONS) => {
                Err(Absent::of(**first))
            }
            _ => self.table.admits(keys.into_iter()),
        }
    }
    fn bare(&self, from: &Key, to: &Key) -> Result<(), Absent> {
        self.table.bare(from, to)
    }
    fn load(&self, what: Absent) -> io::Result<()> {
        {
            let loaded = &mut *self.loaded.lock();
            match loaded.lacks {
                Some((key, false)) if key == what.key => return Err(io::Error::other("it is not there")),
                Some((key, true)) if key == what.key => loaded.lacks = None,
                _ => {}
            }
            loaded.loads += 1;
            if loaded.loads.is_multiple_of(LOADS) {
                loaded.leaves.clear();
            }
            loaded.leaves.insert(leaf_of(&what.key));
        }
        self.table.load(what)
    }
    fn tidy(&self) -> Tidied {
        self.table.tidy()
    }
    fn until_untidy(&self, at_most: Duration) {
        self.table.until_untidy(at_most);
    }
    fn wake(&self) {
        self.table.wake();
    }
    fn settle(&self) {
        self.table.settle();
    }
    fn move_changes(&self, at_most: Duration) {
        self.table.move_changes(at_most);
    }
    fn warm(&self, from: &mut Key) -> io::Result<bool> {
        self.table.warm(from)
    }
    fn checkpoint(
        &self,
        of: &Self::Snap,
        rest: &mut dyn Iterator<Item = (Key, Value)>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        self.table.checkpoint(&of.inner, rest, out)
    }
    fn end_checkpoint(&self, is_named: bool) {
        self.table.end_checkpoint(is_named)
    }
    fn open(
        self,
        at: Seq,
        from: &mut dyn io::Read,
        is_rest: &mut dyn FnMut(&Key, &Value) -> bool,
    ) -> Result<AwayTable, StreamError> {
        Ok(AwayTable { table: self.table.open(at, from, is_rest)?, ..AwayTable::default() })
    }
    fn room(&self) -> Room {
        self.table.room()
    }
    fn figures(&self) -> Figures {
        self.table.figures()
    }
    fn check_leaves(&self, after: Option<&Key>, max: usize) -> CheckedLeaves {
        self.table.check_leaves(after, max)
    }
    fn lost(&self) -> u64 {
        self.table.lost()
    }
}

impl<V: View> View for AwayView<V> {
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
        self.need(key)?;
        self.inner.get(key)
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
        if from >= to {
            return Ok(());
        }
        self.need(from)?;
        let mut absent = None;
        self.inner.range(from, to, &mut |key, value| {
            absent = self.need(key).err();
            absent.is_none() && f(key, value)
        })?;
        absent.map_or(Ok(()), |what| Err(what.into()))
    }

    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()> {
        self.inner.each(f)
    }
    fn size(&self) -> Size {
        self.inner.size()
    }
    fn medium_bytes(&self) -> u64 {
        self.inner.medium_bytes()
    }
    fn seq(&self) -> Seq {
        self.inner.seq()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::all(AwayTable::new);
    }

    #[test]
    fn what_was_not_loaded_is_absent() {
        let table = AwayTable::new();
        let key = Key::new(&[1; 9]).unwrap();
        let mut batch = Batch::new();
        batch.put(key, Value::new(b"v"));
        table.apply(Seq(1), batch);
        let view = table.reader();
        let absent = Absent::of(key);
        assert_eq!(view.get(&key), Err(absent.clone().into()));
        assert_eq!(view.range(&key, &Key::new(&[2]).unwrap(), &mut |_, _| true), Err(absent.clone().into()));
        table.load(absent).unwrap();
        assert_eq!(view.get(&key).unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(table.loads(), 1);
    }
}
