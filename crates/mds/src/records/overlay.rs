//! A transaction in the form that rules see: a snapshot, the changes of earlier operations of the same entry, and its own changes on top.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use kv::{VALUE_MAX, Value};
use meta::{Note, Txn, View};
use types::{Fid, Key, SessionId};
use wire::changelog::ChangeOp;

use crate::records::ids::Ids;
use crate::records::look::{SnapView, Trouble};

/// Changes on top of a state. `None` hides the record below.
pub type Layer = BTreeMap<Key, Option<Value>>;

/// A transaction.
pub struct Overlay<'a> {
    base: SnapView<'a>,
    /// Changes of earlier operations of the entry.
    below: &'a Layer,
    changes: Layer,
    ids: &'a mut Ids,
    /// High half of the drawn lease number; see `Ids::next_lease`.
    lease_high: &'a Cell<u32>,
    /// Kinds of changes that are noted, by `ChangeOp::bit`.
    mask: u64,
    notes: Vec<Note>,
    looks: Cell<u64>,
}

impl<'a> Overlay<'a> {
    pub fn new(
        snap: &'a dyn kv::View,
        below: &'a Layer,
        ids: &'a mut Ids,
        lease_high: &'a Cell<u32>,
    ) -> Overlay<'a> {
        let (base, changes, notes) = (SnapView::new(snap), Layer::new(), Vec::new());
        Overlay { base, below, changes, ids, lease_high, mask: 0, notes, looks: Cell::new(0) }
    }

    /// Notes changes of the kinds in `mask`.
    pub fn noting(self, mask: u64) -> Self {
        Overlay { mask, ..self }
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Number of records that were asked for by key.
    pub fn looks(&self) -> u64 {
        self.looks.get()
    }

    pub fn next_session(&mut self) -> SessionId {
        let id = self.ids.next_session();
        self.drawn(id)
    }

    /// True if this fid was given out.
    pub fn was_given(&self, fid: Fid) -> bool {
        self.ids.was_given(fid)
    }
    /// Keys of the records that are put.
    pub fn put_keys(&self) -> impl Iterator<Item = &Key> {
        self.changes.iter().filter(|(_, v)| v.is_some()).map(|(k, _)| k)
    }

    /// Its own changes, unless there was trouble.
    pub fn finish(self) -> Result<Layer, Trouble> {
        self.base.finish()?;
        let too_long =
            self.changes.iter().find(|(_, v)| v.as_ref().is_some_and(|v| v.raw().len() > VALUE_MAX));
        if let Some((key, _)) = too_long {
            return Err(Trouble::TooLong(*key));
        }
        Ok(self.changes)
    }

    /// Notes trouble when ids ran out. The default is then returned and never used (mds-V1).
    fn drawn<T: Default>(&self, id: Option<T>) -> T {
        id.unwrap_or_else(|| {
            self.base.note(Trouble::NoIds);
            T::default()
        })
    }
}

impl View for Overlay<'_> {
    fn get(&self, key: &Key) -> Option<Cow<'_, [u8]>> {
        self.looks.set(self.looks.get() + 1);
        match self.changes.get(key).or_else(|| self.below.get(key)) {
            // The CRC was computed from these bytes in memory, so it is not checked again.
            Some(value) => value.as_ref().map(|v| Cow::Borrowed(v.raw())),
            None => self.base.get(key),
        }
    }

    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) {
        if from >= to {
            return;
        }
        over(&self.changes, from, to, f, &mut |f| {
            over(self.below, from, to, f, &mut |f| self.base.range(from, to, f))
        });
    }
}

/// Takes a record; false ends the range.
type Take<'f> = dyn FnMut(&Key, &[u8]) -> bool + 'f;

/// Gives `f` the records of `base` with those of `layer` on top, in key order.
fn over(layer: &Layer, from: &Key, to: &Key, f: &mut Take<'_>, base: &mut dyn FnMut(&mut Take<'_>)) {
    let mut changed = layer.range(*from..*to).peekable();
    if changed.peek().is_none() {
        return base(f);
    }
    let mut go_on = true;
    base(&mut |key, stored| {
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

impl Txn for Overlay<'_> {
    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.changes.insert(key, Some(Value::new(&value)));
    }
    fn delete(&mut self, key: &Key) {
        // A record that was never stored needs no deletion in the log. A damaged one may be deleted.
        let is_stored = match self.below.get(key) {
            Some(value) => value.is_some(),
            None => match self.base.snap.get(key).map(|value| value.is_some()) {
                Err(kv::Miss::Absent(what)) => return self.base.note(Trouble::Absent(what)),
                is_stored => is_stored.unwrap_or(true),
            },
        };
        match is_stored {
            true => self.changes.insert(*key, None),
            false => self.changes.remove(key),
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
    fn is_noted(&self, op: ChangeOp) -> bool {
        self.mask & op.bit() != 0
    }
    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
}

#[cfg(test)]
mod tests {
    use kv::{Batch, Damage, Engine, Table};
    use types::Seq;

    use super::*;

    fn key(n: u8) -> Key {
        Key::new(&[n]).unwrap()
    }

    fn table() -> Table {
        let t = Table::new();
        let mut b = Batch::new();
        for n in [10, 20, 30, 40] {
            b.put(key(n), Value::new(&[n]));
        }
        t.apply(Seq(1), b);
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
        let (mut ids, high) = (Ids::load(&SnapView::new(&snap)).unwrap(), Cell::new(0));
        let nothing = Layer::new();
        let mut o = Overlay::new(&snap, &nothing, &mut ids, &high);
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
        assert_eq!(o.finish().unwrap().len(), 5, "what came and went leaves no change");
    }

    /// The changes of the operations before, in the same entry, are seen as if they were applied.
    #[test]
    fn what_others_of_the_batch_changed_lies_below() {
        let t = table();
        let snap = t.snapshot();
        let (mut ids, high) = (Ids::load(&SnapView::new(&snap)).unwrap(), Cell::new(0));
        let value = |n: u8| Some(Value::new(&[n]));
        let below =
            Layer::from([(key(5), value(1)), (key(20), None), (key(30), value(2)), (key(50), value(3))]);
        let mut o = Overlay::new(&snap, &below, &mut ids, &high);
        assert_eq!(keys(&o, 0, 99, 99), [(5, 1), (10, 10), (30, 2), (40, 40), (50, 3)]);
        assert_eq!((o.get(&key(20)), o.get(&key(30)).as_deref()), (None, Some(&[2][..])));
        o.delete(&key(5));
        o.put(key(20), vec![4]);
        o.delete(&key(30));
        o.put(key(45), vec![5]);
        let all = [(10, 10), (20, 4), (40, 40), (45, 5), (50, 3)];
        assert_eq!(keys(&o, 0, 99, 99), all);
        for max in 1..=5 {
            assert_eq!(keys(&o, 0, 99, max), all[..max]);
        }
        // A record that is absent needs no deletion; a record that only the batch has needs one.
        o.delete(&key(20));
        o.put(key(60), vec![0]);
        o.delete(&key(60));
        let changes = o.finish().unwrap();
        let deleted: Vec<_> =
            changes.iter().filter(|(_, v)| v.is_none()).map(|(k, _)| k.as_bytes()[0]).collect();
        assert_eq!((deleted, changes.len()), (vec![5, 30], 3));
    }

    #[test]
    fn trouble_spoils_the_outcome() {
        let t = table();
        let mut b = Batch::new();
        b.put(key(15), Value::stored(&[1], 99));
        t.apply(Seq(1), b);
        let snap = t.snapshot();
        let (mut ids, high) = (Ids::load(&SnapView::new(&snap)).unwrap(), Cell::new(0));
        let nothing = Layer::new();
        let o = Overlay::new(&snap, &nothing, &mut ids, &high);
        let damage = Trouble::Damage(Damage::of(key(15)));
        assert_eq!(o.get(&key(15)), None);
        assert_eq!(o.finish(), Err(damage.clone()));
        let mut o = Overlay::new(&snap, &nothing, &mut ids, &high);
        o.next_fid();
        assert_eq!(o.finish(), Err(Trouble::NoIds), "nothing was reserved");
        let view = SnapView::new(&snap);
        assert_eq!(keys(&view, 0, 99, 99), [(10, 10)]);
        assert_eq!(view.finish(), Err(damage));
    }
}
