//! Copies of the few records that every start or every change needs: root directory, id counters, totals, the mark that directories are
//! counted. The head of a checkpoint has them, so that a damaged leaf does not lose the whole MDT.
//!
//! mds-KP1: the copies are of the checkpoint's state. A start that finds such a record damaged puts its copy in place before it replays.
//! mds-KP2: a record that cannot be read at a checkpoint has not changed since the one before, so that one's copy is kept.

use std::collections::BTreeMap;

use kv::{Batch, Engine, Miss, Value, View};
use types::{Code, Fault, Key, Seq};

use crate::records::look::{Trouble, look, until_loaded};

/// Key kind of a copy: `(13, the record's key)` → its value. In checkpoints only.
pub const KIND_COPY: u8 = meta::keys::COPY;

/// Records, by their own keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept(BTreeMap<Key, Value>);

impl Kept {
    /// The copies of a state. `before`: those of the checkpoint before.
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

    /// The records for a checkpoint.
    pub fn records(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        let key =
            |key: &Key| Key::new(&[&[KIND_COPY], key.as_bytes()].concat()).expect("these keys are short");
        self.0.iter().map(move |(of, value)| (key(of), value.clone()))
    }

    /// Takes back a record of a checkpoint.
    pub fn restore(&mut self, key: &Key, value: &Value) -> Result<(), &'static str> {
        let of = key.as_bytes().get(1..).and_then(Key::new).ok_or("its key")?;
        match self.0.insert(of, value.clone()) {
            None => Ok(()),
            Some(_) => Err("it stands twice"),
        }
    }

    /// mds-KP1. Runs after the table was opened and before the replay. `at`: seq of the checkpoint.
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
