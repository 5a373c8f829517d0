//! What a store of somebody else's must do to stand behind the contract of `kv`, and the adapter that makes a side of it.

use std::collections::BTreeMap;
use std::path::Path;

use kv::{Batch, Value};
use parking_lot::RwLock;
use types::Key;

/// One engine under test. One writer at a time, any number of readers.
pub trait Side: Send + Sync + Sized + 'static {
    type Reader<'a>: Look
    where
        Self: 'a;
    fn open(dir: &Path, cache_bytes: u64) -> Self;
    fn reader(&self) -> Self::Reader<'_>;
    /// Visible when it returns (K1), not durable. Seqs rise.
    fn apply(&self, seq: u64, batch: Batch);
    /// Durable when it returns: `open` gives a state not older than this (K2).
    fn persist(&self);
    /// The last entry that is in it: of a side that was opened, what a log would be replayed from.
    fn seq(&self) -> u64;
    fn close(self);
}

pub trait Look {
    /// Shows the value, verified; false: there is none.
    fn get(&self, key: &Key, f: &mut dyn FnMut(&[u8])) -> bool;
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&[u8], &[u8]) -> bool);
}

/// A library's store: bytes to bytes, in transactions.
pub trait Store: Send + Sync + Sized + 'static {
    type Txn<'a>: RawLook
    where
        Self: 'a;
    fn open(dir: &Path, cache_bytes: u64) -> Self;
    fn txn(&self) -> Self::Txn<'_>;
    fn commit(&self, changes: &mut dyn Iterator<Item = (&[u8], Option<&[u8]>)>);
    fn persist(&self);
    fn close(self) {}
}

pub trait RawLook {
    fn get(&self, key: &[u8], f: &mut dyn FnMut(&[u8]));
    fn range(&self, from: &[u8], to: &[u8], f: &mut dyn FnMut(&[u8], &[u8]) -> bool);
}

/// Behind all keys of records: the last entry that is in the store.
const SEQ_KEY: [u8; 1] = [0xff];

/// A store as a side. `MAX` changes are kept in a map in front of it and go to it in one transaction; 0: each batch is one of its own.
pub struct Behind<S, const MAX: usize> {
    store: S,
    recent: RwLock<(BTreeMap<Key, Option<Value>>, u64)>,
}

pub struct BehindReader<'a, S: Store, const MAX: usize> {
    recent: Option<parking_lot::RwLockReadGuard<'a, (BTreeMap<Key, Option<Value>>, u64)>>,
    txn: S::Txn<'a>,
}

fn stored(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + value.raw().len());
    out.extend_from_slice(&value.crc().to_le_bytes());
    out.extend_from_slice(value.raw());
    out
}

/// K3.
fn shown<'a>(stored: &'a [u8]) -> &'a [u8] {
    let (crc, bytes) = stored.split_first_chunk::<4>().expect("as it was stored");
    assert_eq!(u32::from_le_bytes(*crc), types::crc::crc32c(bytes), "damage");
    bytes
}

impl<S: Store, const MAX: usize> Behind<S, MAX> {
    fn flush(&self, recent: &mut (BTreeMap<Key, Option<Value>>, u64)) {
        let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = std::mem::take(&mut recent.0)
            .into_iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_ref().map(stored)))
            .chain([(SEQ_KEY.to_vec(), Some(recent.1.to_le_bytes().to_vec()))])
            .collect();
        self.store.commit(&mut changes.iter().map(|(k, v)| (&k[..], v.as_deref())));
    }
}

impl<S: Store, const MAX: usize> Side for Behind<S, MAX> {
    type Reader<'a> = BehindReader<'a, S, MAX>;

    fn open(dir: &Path, cache_bytes: u64) -> Self {
        let store = S::open(dir, cache_bytes);
        let mut seq = 0;
        store.txn().get(&SEQ_KEY, &mut |v| seq = u64::from_le_bytes(v.try_into().expect("eight bytes")));
        Behind { store, recent: RwLock::new((BTreeMap::new(), seq)) }
    }

    fn reader(&self) -> BehindReader<'_, S, MAX> {
        let recent = (MAX > 0).then(|| self.recent.read());
        BehindReader { recent, txn: self.store.txn() }
    }

    fn apply(&self, seq: u64, batch: Batch) {
        let mut recent = self.recent.write();
        recent.1 = seq;
        recent.0.extend(batch.0.into_iter().map(|c| (c.key, c.value)));
        if recent.0.len() > MAX {
            self.flush(&mut recent);
        }
    }

    fn persist(&self) {
        let mut recent = self.recent.write();
        if !recent.0.is_empty() {
            self.flush(&mut recent);
        }
        drop(recent);
        self.store.persist();
    }

    fn seq(&self) -> u64 {
        self.recent.read().1
    }

    fn close(self) {
        self.persist();
        self.store.close();
    }
}

impl<S: Store, const MAX: usize> Look for BehindReader<'_, S, MAX> {
    fn get(&self, key: &Key, f: &mut dyn FnMut(&[u8])) -> bool {
        if let Some(changed) = self.recent.as_ref().and_then(|recent| recent.0.get(key)) {
            return changed.as_ref().map(|v| f(v.verified(key).expect("no damage"))).is_some();
        }
        let mut found = false;
        self.txn.get(key.as_bytes(), &mut |v| {
            found = true;
            f(shown(v));
        });
        found
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let none = BTreeMap::new();
        let map = self.recent.as_ref().map_or(&none, |recent| &recent.0);
        let mut recent = map.range(*from..*to).peekable();
        let mut go_on = true;
        self.txn.range(from.as_bytes(), to.as_bytes(), &mut |key, value| {
            while let Some((changed, value)) = recent.next_if(|(changed, _)| changed.as_bytes() < key) {
                go_on = value.as_ref().is_none_or(|v| f(changed.as_bytes(), v.raw()));
                if !go_on {
                    return false;
                }
            }
            go_on = match recent.next_if(|(changed, _)| changed.as_bytes() == key) {
                None => f(key, shown(value)),
                Some((_, changed)) => changed.as_ref().is_none_or(|v| f(key, v.raw())),
            };
            go_on
        });
        while let (true, Some((changed, value))) = (go_on, recent.next()) {
            go_on = value.as_ref().is_none_or(|v| f(changed.as_bytes(), v.raw()));
        }
    }
}
