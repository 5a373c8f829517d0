//! The simplest thing that could be a `Kv`: a map behind a lock, copied for each snapshot. It shows that the conformance
//! suite asks for nothing that only our table happens to do.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use kv::{Batch, Damage, Kv, Size, Snapshot, Value, record_bytes};
use parking_lot::Mutex;
use types::Key;

#[derive(Default)]
struct Plain(Mutex<BTreeMap<Key, Value>>);

#[derive(Clone)]
struct PlainSnapshot(Arc<BTreeMap<Key, Value>>);

impl Kv for Plain {
    type Snap = PlainSnapshot;
    fn snapshot(&self) -> PlainSnapshot {
        PlainSnapshot(Arc::new(self.0.lock().clone()))
    }
    fn apply(&self, batch: Batch) {
        let mut map = self.0.lock();
        for change in batch.0 {
            match change.value {
                Some(value) => map.insert(change.key, value),
                None => map.remove(&change.key),
            };
        }
    }
}

impl Snapshot for PlainSnapshot {
    fn get(&self, key: &Key) -> Result<Option<Arc<[u8]>>, Damage> {
        self.0.get(key).map(|v| v.verified(key).cloned()).transpose()
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Damage> {
        for (key, value) in self.0.iter().filter(|(k, _)| *k >= from && *k < to) {
            if !f(key, value.verified(key)?) {
                break;
            }
        }
        Ok(())
    }
    fn each(&self, f: &mut dyn FnMut(&Key, &Value) -> io::Result<()>) -> io::Result<()> {
        self.0.iter().try_for_each(|(key, value)| f(key, value))
    }
    fn size(&self) -> Size {
        Size {
            records: self.0.len() as u64,
            bytes: self.0.iter().map(|(k, v)| record_bytes(k, v.raw().len())).sum(),
        }
    }
}

#[test]
fn the_reference_conforms() {
    kv::conformance::all(Plain::default);
}
