//! The table in memory: a persistent B+tree. A snapshot shares all nodes with the table; the writer copies the few that it
//! changes and publishes the new root.

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use parking_lot::Mutex;
use types::Key;

use crate::{Batch, Change, Damage, Kv, Size, Snapshot, Value, record_bytes};

/// One state of the table. I1: `size` is the sum over `records`.
#[derive(Clone, Default)]
struct Version {
    records: OrdMap<Key, Value>,
    size: Size,
}

impl Version {
    fn change(&mut self, Change { key, value }: Change) {
        let added = value.as_ref().map(|v| record_bytes(&key, v.raw().len()));
        let old = match value {
            Some(v) => self.records.insert(key, v),
            None => self.records.remove(&key),
        };
        if let Some(old) = old {
            self.size.records -= 1;
            self.size.bytes -= record_bytes(&key, old.raw().len());
        }
        if let Some(bytes) = added {
            self.size.records += 1;
            self.size.bytes += bytes;
        }
    }
}

/// The table that an MDT serves from.
#[derive(Default)]
pub struct Table {
    published: ArcSwap<Version>,
    /// One writer at a time; readers never touch it.
    writer: Mutex<()>,
}

impl Table {
    pub fn new() -> Table {
        Table::default()
    }
}

/// A state of a `Table`; a clone costs a count.
#[derive(Clone)]
pub struct TableSnapshot(Arc<Version>);

impl Kv for Table {
    type Snap = TableSnapshot;

    fn snapshot(&self) -> TableSnapshot {
        TableSnapshot(self.published.load_full())
    }

    fn apply(&self, batch: Batch) {
        let _one_writer = self.writer.lock();
        let mut next = Version::clone(&self.published.load());
        for change in batch.0 {
            next.change(change);
        }
        self.published.store(Arc::new(next));
    }
}

impl Snapshot for TableSnapshot {
    fn get(&self, key: &Key) -> Result<Option<Arc<[u8]>>, Damage> {
        self.0.records.get(key).map(|v| v.verified(key).cloned()).transpose()
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Damage> {
        if from >= to {
            return Ok(());
        }
        for (key, value) in self.0.records.range(*from..*to) {
            if !f(key, value.verified(key)?) {
                break;
            }
        }
        Ok(())
    }

    fn each(&self, f: &mut dyn FnMut(&Key, &Value) -> std::io::Result<()>) -> std::io::Result<()> {
        self.0.records.iter().try_for_each(|(key, value)| f(key, value))
    }

    fn size(&self) -> Size {
        self.0.size
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
        table.apply(put(0));
        std::thread::scope(|s| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    s.spawn(|| {
                        let mut last = 0;
                        while last < 2000 {
                            let snap = table.snapshot();
                            let first = snap.get(&keys[0]).unwrap().unwrap();
                            assert!(keys.iter().all(|k| snap.get(k).unwrap().unwrap() == first));
                            let now = u32::from_le_bytes(first[..].try_into().unwrap());
                            assert!(now >= last, "a later snapshot is never older");
                            last = now;
                        }
                    })
                })
                .collect();
            (1..=2000).for_each(|n| table.apply(put(n)));
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }
}
