//! A transaction in memory, for tests: every change is visible at once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use types::{Fid, Key, Shard};
use wire::changelog::ChangeOp;

use crate::{Note, Txn, View};

#[derive(Clone, Debug)]
pub struct MemTxn {
    pub records: BTreeMap<Key, Arc<[u8]>>,
    pub fid: u64,
    pub lease: u32,
    /// The test transaction takes every note.
    pub notes: Vec<Note>,
}

impl Default for MemTxn {
    fn default() -> MemTxn {
        MemTxn { records: BTreeMap::new(), fid: Fid::FIRST, lease: 0, notes: Vec::new() }
    }
}

impl View for MemTxn {
    fn get(&self, key: &Key) -> Option<Cow<'_, [u8]>> {
        self.records.get(key).map(|v| Cow::Borrowed(&v[..]))
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) {
        if from >= to {
            return;
        }
        for (k, v) in self.records.range(*from..*to) {
            if !f(k, v) {
                break;
            }
        }
    }
}

impl Txn for MemTxn {
    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.records.insert(key, value.into());
    }
    fn delete(&mut self, key: &Key) {
        self.records.remove(key);
    }
    fn next_fid(&mut self) -> Fid {
        self.fid += 1;
        Fid::new(Shard(0), self.fid - 1)
    }
    fn next_lease(&mut self) -> u32 {
        self.lease += 1;
        self.lease
    }
    fn is_noted(&self, _: ChangeOp) -> bool {
        true
    }
    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
}
