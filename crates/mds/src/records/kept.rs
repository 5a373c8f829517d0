//! Copies of the few records without which an MDT cannot start or create files: the root directory, reserved ids, totals, and the mark that
//! directories are counted. The head of a checkpoint has them, so that one damaged leaf does not cost all others.
//!
//! mds-KP1: copies are of the checkpoint's state. A start that finds such a record lost puts its copy back before it replays the log.
//! mds-KP2: a record that the table cannot read at a checkpoint has not changed since the one before. Its older copy stays.

use std::collections::BTreeMap;

use kv::{Batch, Engine, Miss, Value, View};
use types::{Code, Fault, Key, Seq};

use crate::records::look::{Trouble, look, until_loaded};

/// Key kind of a copy: `(13, the record's key)` → its value. In checkpoints only.
pub const KIND_COPY: u8 = meta::keys::COPY;

/// Copies by the keys of their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept(BTreeMap<Key, Value>);

impl Kept {
    /// Copies of a state. `before`: copies of the checkpoint before.
    pub fn of<E: Engine>(kv: &E, snap: &E::Snap, keys: &[Key], before: &Kept) -> Kept {
        let mut kept = BTreeMap::new();
        for key in keys {
            let found = until_loaded(kv, &mut || match snap.get(key) {
                Err(Miss::Absent(what)) => Err(Trouble::Absent(what)),
                Err(Miss::Damage(damage)) => Err(Trouble::Damage(damage)),
                Ok(value) => Ok(value.map(|value| Value::new(&value))),
            });
            // mds-KP2.
            let value = found.unwrap_or_else(|_| before.0.get(key).cloned());
            kept.extend(value.map(|value| (*key, value)));
        }
        Kept(kept)
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.0.get(key)
    }

    /// The copies as records of a checkpoint.
    pub fn records(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        let key =
            |key: &Key| Key::new(&[&[KIND_COPY], key.as_bytes()].concat()).expect("these keys are short");
        self.0.iter().map(move |(of, value)| (key(of), value.clone()))
    }

    /// Takes a copy out of a checkpoint's record.
    pub fn restore(&mut self, key: &Key, value: &Value) -> Result<(), &'static str> {
        let of = key.as_bytes().get(1..).and_then(Key::new).ok_or("its key")?;
        match self.0.insert(of, value.clone()) {
            None => Ok(()),
            Some(_) => Err("it stands twice"),
        }
    }

    /// mds-KP1. Called after the table was opened, which has all entries up to `at`.
    pub fn put_back<E: Engine>(&self, kv: &E, at: Seq) -> Result<(), Fault> {
        for (key, value) in &self.0 {
            match look(kv, &mut |view| meta::View::get(view, key).is_some()) {
                Err(fault) if fault.code == Code::Damaged => {}
                found => {
                    found?;
                    continue;
                }
            }
            tracing::error!(
                ?key,
                "this record is lost, and its copy in the checkpoint's head takes its place; run fsck"
            );
            let mut batch = Batch::new();
            batch.put(*key, value.clone());
            until_loaded(kv, &mut || kv.admits(batch.keys()).map_err(Trouble::Absent))?;
            kv.apply(at, batch);
        }
        Ok(())
    }
}
