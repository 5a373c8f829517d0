//! The simplest possible `Engine`: a map behind a lock, copied for each view. It shows that the conformance suite demands nothing that
//! only the table of this crate happens to do.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use kv::checkpoint::{Writer, read_stream};
use kv::{Absent, Batch, Engine, Figures, Miss, Size, StreamError, TakeRecord, Value, View, record_bytes};
use parking_lot::Mutex;
use types::{Key, Seq};

type Records = BTreeMap<Key, Value>;

#[derive(Default)]
struct Plain(Mutex<(Seq, Records)>);

#[derive(Clone)]
struct PlainSnapshot(Arc<(Seq, Records)>);

impl Engine for Plain {
    type Reader<'a> = PlainSnapshot;
    type Snap = PlainSnapshot;

    fn reader(&self) -> PlainSnapshot {
        self.snapshot()
    }
    fn snapshot(&self) -> PlainSnapshot {
        PlainSnapshot(Arc::new(self.0.lock().clone()))
    }
    fn apply(&self, upto: Seq, batch: Batch) {
        let (seq, map) = &mut *self.0.lock();
        *seq = upto;
        for change in batch.0 {
            match change.value {
                Some(value) => map.insert(change.key, value),
                None => map.remove(&change.key),
            };
        }
    }
    fn load(&self, _: Absent) -> io::Result<()> {
        Ok(())
    }
    fn checkpoint(
        &self,
        of: &PlainSnapshot,
        rest: &mut dyn Iterator<Item = (Key, Value)>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let mut w = Writer::new(out)?;
        of.each(&mut |key, value, crc| w.record(key, value, crc))?;
        for (key, value) in rest {
            w.record(&key, value.raw(), value.crc())?;
        }
        w.finish()
    }
    fn open(
        self,
        at: Seq,
        from: &mut dyn io::Read,
        is_rest: &mut dyn FnMut(&Key, &Value) -> bool,
    ) -> Result<Plain, StreamError> {
        let mut map = Records::new();
        read_stream(from, &mut |batch| {
            let records = batch.0.into_iter().filter_map(|c| Some((c.key, c.value?)));
            map.extend(records.filter(|(key, value)| !is_rest(key, value)));
        })?;
        Ok(Plain(Mutex::new((at, map))))
    }
    fn figures(&self) -> Figures {
        Figures { size: self.snapshot().size(), ..Figures::default() }
    }
}

impl View for PlainSnapshot {
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
        Ok(self.0.1.get(key).map(|v| v.verified(key)).transpose()?.map(Cow::Borrowed))
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
        for (key, value) in self.0.1.iter().filter(|(k, _)| *k >= from && *k < to) {
            if !f(key, value.verified(key)?) {
                break;
            }
        }
        Ok(())
    }
    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()> {
        self.0.1.iter().try_for_each(|(key, value)| f(key, value.raw(), value.crc()))
    }
    fn size(&self) -> Size {
        Size {
            records: self.0.1.len() as u64,
            bytes: self.0.1.iter().map(|(k, v)| record_bytes(k, v.raw().len())).sum(),
        }
    }
    fn seq(&self) -> Seq {
        self.0.0
    }
}

#[test]
fn the_reference_conforms() {
    kv::conformance::all(Plain::default);
}
