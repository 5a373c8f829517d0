//! A transaction as the rules see it: a snapshot with the changes made so far on top.
//!
//! The rules' traits know no damage and no shortage, so what goes wrong below them is kept here (`trouble`) and the
//! executor throws the whole outcome away: V1: after trouble nothing that a rule computed is used.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{Batch, Change, Damage, Snapshot, TableSnapshot, VALUE_MAX, Value};
use meta::{Txn, View};
use types::{Code, Fault, Fid, Key, SessionId};

use crate::ids::Ids;

/// Why what a rule computed must not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    Damage(Damage),
    /// The rule drew more ids than are reserved.
    NoIds,
}

impl From<Trouble> for Fault {
    fn from(t: Trouble) -> Fault {
        match t {
            Trouble::Damage(d) => Fault::new(Code::Damaged, d.to_string()),
            Trouble::NoIds => Fault::new(Code::NotReady, "no reserved ids are left; try again"),
        }
    }
}

/// A snapshot as the rules read it.
pub struct SnapView<'a> {
    snap: &'a TableSnapshot,
    trouble: RefCell<Option<Trouble>>,
}

impl<'a> SnapView<'a> {
    pub fn new(snap: &'a TableSnapshot) -> SnapView<'a> {
        SnapView { snap, trouble: RefCell::new(None) }
    }

    /// Ends the reading: was everything that it saw good?
    pub fn finish(self) -> Result<(), Fault> {
        self.trouble.into_inner().map_or(Ok(()), |t| Err(t.into()))
    }

    fn note(&self, d: Damage) {
        self.trouble.borrow_mut().get_or_insert(Trouble::Damage(d));
    }
}

impl View for SnapView<'_> {
    fn get(&self, key: &Key) -> Option<Arc<[u8]>> {
        self.snap.get(key).unwrap_or_else(|d| {
            self.note(d);
            None
        })
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) {
        if let Err(d) = self.snap.range(from, to, f) {
            self.note(d);
        }
    }
}

/// A transaction.
pub struct Overlay<'a> {
    base: SnapView<'a>,
    changes: BTreeMap<Key, Option<Value>>,
    ids: &'a mut Ids,
    /// What the high half of lease numbers adds to the epoch; see `Ids::next_lease`.
    lease_high: &'a Cell<u32>,
}

impl<'a> Overlay<'a> {
    pub fn new(snap: &'a TableSnapshot, ids: &'a mut Ids, lease_high: &'a Cell<u32>) -> Overlay<'a> {
        Overlay { base: SnapView::new(snap), changes: BTreeMap::new(), ids, lease_high }
    }

    pub fn next_session(&mut self) -> SessionId {
        let id = self.ids.next_session();
        self.drawn(id)
    }

    /// Has this fid been given out?
    pub fn was_given(&self, fid: Fid) -> bool {
        self.ids.was_given(fid)
    }
    /// Keys of the records that are put.
    pub fn put_keys(&self) -> impl Iterator<Item = &Key> {
        self.changes.iter().filter(|(_, v)| v.is_some()).map(|(k, _)| k)
    }

    /// The changes in key order, if nothing went wrong.
    pub fn finish(self) -> Result<Batch, Fault> {
        self.base.finish()?;
        // What a checkpoint or the next start would refuse must not get into the log.
        let too_long =
            self.changes.iter().find(|(_, v)| v.as_ref().is_some_and(|v| v.raw().len() > VALUE_MAX));
        if let Some((key, _)) = too_long {
            return Err(Fault::new(
                Code::NoSpace,
                format!("record {key:?} would be longer than {VALUE_MAX} bytes"),
            ));
        }
        Ok(Batch(self.changes.into_iter().map(|(key, value)| Change { key, value }).collect()))
    }

    /// Sets trouble when ids ran out; the default that stands in is never used (V1).
    fn drawn<T: Default>(&self, id: Option<T>) -> T {
        id.unwrap_or_else(|| {
            self.base.trouble.borrow_mut().get_or_insert(Trouble::NoIds);
            T::default()
        })
    }
}

impl View for Overlay<'_> {
    fn get(&self, key: &Key) -> Option<Arc<[u8]>> {
        match self.changes.get(key) {
            // Made by this transaction a moment ago: the bytes are those that the CRC was computed from.
            Some(value) => value.as_ref().map(|v| v.shared()),
            None => self.base.get(key),
        }
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) {
        if from >= to {
            return;
        }
        let mut changed = self.changes.range(*from..*to).peekable();
        if changed.peek().is_none() {
            return self.base.range(from, to, f);
        }
        let mut go_on = true;
        self.base.range(from, to, &mut |key, stored| {
            // Changed records before this one first, then this one as changed, as deleted, or as it was.
            while let Some((k, value)) = changed.next_if(|(k, _)| *k < key) {
                go_on = value.as_ref().is_none_or(|v| f(k, v.raw()));
                if !go_on {
                    return false;
                }
            }
            go_on = match changed.next_if(|(k, _)| *k == key) {
                Some((_, Some(v))) => f(key, v.raw()),
                Some((_, None)) => true,
                None => f(key, stored),
            };
            go_on
        });
        for (k, value) in changed {
            go_on = go_on && value.as_ref().is_none_or(|v| f(k, v.raw()));
            if !go_on {
                return;
            }
        }
    }
}

impl Txn for Overlay<'_> {
    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.changes.insert(key, Some(Value::new(&value)));
    }
    fn delete(&mut self, key: &Key) {
        // What was never stored needs no deletion in the log.
        match self.base.snap.get(key) {
            Ok(None) => self.changes.remove(key),
            _ => self.changes.insert(*key, None),
        };
    }
    fn next_fid(&mut self) -> Fid {
        let fid = self.ids.next_fid();
        self.drawn(fid)
    }
    fn next_lease(&mut self) -> u32 {
        let number = self.ids.next_lease();
        let number = self.drawn(number);
        self.lease_high.set((number >> 32) as u32);
        number as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Kv, Table};

    fn key(n: u8) -> Key {
        Key::new(&[n]).unwrap()
    }

    fn table() -> Table {
        let t = Table::new();
        let mut b = Batch::new();
        for n in [10, 20, 30, 40] {
            b.put(key(n), Value::new(&[n]));
        }
        t.apply(b);
        t
    }

    fn keys(view: &dyn View, from: u8, to: u8, max: usize) -> Vec<(u8, u8)> {
        let mut out = vec![];
        view.range(&key(from), &key(to), &mut |k, v| {
            out.push((k.as_bytes()[0], v[0]));
            out.len() < max
        });
        out
    }

    #[test]
    fn a_range_shows_base_and_changes_in_order_and_stops() {
        let t = table();
        let snap = t.snapshot();
        let (mut ids, high) = (Ids::load(&snap).unwrap(), Cell::new(0));
        let mut o = Overlay::new(&snap, &mut ids, &high);
        o.put(key(5), vec![1]);
        o.put(key(20), vec![2]);
        o.delete(&key(30));
        o.put(key(35), vec![3]);
        o.put(key(50), vec![4]);
        let all = [(5, 1), (10, 10), (20, 2), (35, 3), (40, 40), (50, 4)];
        assert_eq!(keys(&o, 0, 99, 99), all);
        for max in 1..=6 {
            assert_eq!(keys(&o, 0, 99, max), all[..max]);
        }
        assert_eq!(keys(&o, 5, 50, 99), all[..5]);
        assert_eq!(keys(&o, 9, 9, 99), []);
        assert_eq!(o.get(&key(30)), None);
        assert_eq!(o.get(&key(20)).as_deref(), Some(&[2][..]));
        o.put(key(60), vec![0]);
        o.delete(&key(60));
        assert_eq!(o.finish().unwrap().0.len(), 5, "what came and went leaves no change");
    }

    #[test]
    fn trouble_spoils_the_outcome() {
        let t = table();
        let mut b = Batch::new();
        b.put(key(15), Value::stored(&[1], 99));
        t.apply(b);
        let snap = t.snapshot();
        let (mut ids, high) = (Ids::load(&snap).unwrap(), Cell::new(0));
        let o = Overlay::new(&snap, &mut ids, &high);
        assert_eq!(o.get(&key(15)), None);
        assert_eq!(o.finish().unwrap_err().code, Code::Damaged);
        let mut o = Overlay::new(&snap, &mut ids, &high);
        o.next_fid();
        assert_eq!(o.finish().unwrap_err().code, Code::NotReady, "nothing was reserved");
        let view = SnapView::new(&snap);
        assert_eq!(keys(&view, 0, 99, 99), [(10, 10)]);
        assert_eq!(view.finish().unwrap_err().code, Code::Damaged);
    }
}
