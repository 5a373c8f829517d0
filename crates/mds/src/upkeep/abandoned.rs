//! Abandoned ranges: key ranges of the table that are damaged and that an administrator abandons by `stria fsck --repair`. From then on the
//! range is known to be empty, and new records can be made in it.
//!
//! mds-G1: abandoning is logged, so that a replay cannot bring the range back. The entry has a record of the range (`Abandoned`), and
//!     leaves in it only what it puts itself, even if a replay finds the leaf readable again.
//! mds-G2: a start needs some records (`checkpoint::needed`). If they are in the range, the entry puts their copies (kept.rs). Without a copy
//!     the range is not abandoned.

use kv::{Batch, Engine, Miss, Value};
use types::{Code, Fault, Key, Seq};
use wire::{Malformed, Reader, Wire};

use crate::Core;
use crate::executor::execute::Stop;
use crate::records::kept::Kept;
use crate::records::look::{Trouble, look, until_loaded};
use crate::records::overlay::Layer;
use crate::upkeep::checkpoint::needed;

const VERSION: u8 = 1;

/// The record of kind 16: the last abandoned range, from `first` on and below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandoned {
    pub first: Key,
    pub end: Key,
}

impl Abandoned {
    pub fn key() -> Key {
        meta::keys::kind_start(meta::keys::GIVEN_UP)
    }

    pub fn encode(&self) -> Vec<u8> {
        let (first, end) = (self.first.as_bytes(), self.end.as_bytes());
        assert!(self.first < self.end, "an abandoned range is not empty");
        assert!(first.len().max(end.len()) <= usize::from(u8::MAX), "a key's length fits its field");
        [&[VERSION, first.len() as u8], first, &[end.len() as u8], end].concat()
    }

    pub fn decode(bytes: &[u8]) -> Result<Abandoned, Malformed> {
        let r = &mut Reader::new(bytes);
        if u8::get(r)? != VERSION {
            return Err(Malformed("version of an abandoned range"));
        }
        let mut key = || {
            let len = u8::get(r)?;
            Key::new(r.take(len.into())?).ok_or(Malformed("a key of an abandoned range"))
        };
        let (first, end) = (key()?, key()?);
        r.end()?;
        if first < end {
            Ok(Abandoned { first, end })
        } else {
            Err(Malformed("the end of what was given up"))
        }
    }

    /// The range that an entry abandons.
    pub fn by(changes: &Batch) -> Result<Option<Abandoned>, Malformed> {
        let value =
            changes.0.iter().find(|change| change.key == Abandoned::key()).and_then(|c| c.value.as_ref());
        value.map(|value| Abandoned::decode(value.raw())).transpose()
    }

    fn has(&self, key: &Key) -> bool {
        (self.first..self.end).contains(key)
    }

    /// mds-G1: empties the range, after its entry at `at` is applied. `put`: keys that the entry put. The caller is the leader and waits for the
    /// medium here, the exception to mds-E5: no change may come between the entry and this.
    pub fn forget<E: Engine>(&self, kv: &E, at: Seq, put: &[Key]) -> Result<(), Fault> {
        until_loaded(kv, &mut || kv.bare(&self.first, &self.end).map_err(Trouble::Absent))?;
        let there = look(kv, &mut |view| {
            let mut there = Vec::new();
            meta::View::range(view, &self.first, &self.end, &mut |key, _| {
                there.push(*key);
                true
            });
            there
        })?;
        let mut rest = Batch::new();
        there.into_iter().filter(|key| !put.contains(key)).for_each(|key| rest.delete(key));
        if !rest.0.is_empty() {
            until_loaded(kv, &mut || kv.admits(rest.keys()).map_err(Trouble::Absent))?;
            kv.apply(at, rest);
        }
        Ok(())
    }
}

impl Core {
    /// Abandons the lost ranges among these keys. Records that were made in a range since divide it.
    pub fn abandon(&self, first: &Key, end: &Key) -> Result<bool, Fault> {
        // mds-KP2: copies of lost records do not change.
        let kept = self.checkpointing.lock().clone();
        let (mut at, mut any) = (*first, false);
        while let Some(given) = self.until_done(&mut || {
            let mut seat = self.executor.lead();
            seat.check_ready()?;
            self.kv.settle();
            let Some(given) = self.lost_from(&at, end)? else { return Ok(None) };
            let mut changes = self.copies_for(&given, &kept, seat.counts.is_counting())?;
            changes.insert(Abandoned::key(), Some(Value::new(&given.encode())));
            let put: Vec<Key> = changes.keys().copied().collect();
            let seq = self.commit_changes(&mut seat, changes)?;
            given.forget(&self.kv, seq, &put)?;
            Ok(Some(given))
        })? {
            assert!(at < given.end, "each step goes on behind the one before");
            (at, any) = (given.end, true);
        }
        Ok(any)
    }

    /// The next lost range.
    pub fn lost_from(&self, from: &Key, end: &Key) -> Result<Option<Abandoned>, Stop> {
        let reader = self.kv.reader();
        match kv::View::range(&reader, from, end, &mut |_, _| true) {
            Ok(()) => Ok(None),
            Err(Miss::Absent(what)) => Err(Stop::Absent(what)),
            Err(Miss::Damage(damage)) => Ok(Some(Abandoned { first: damage.key, end: damage.end.min(*end) })),
        }
    }

    /// mds-G2: copies of the needed records in the range.
    pub fn copies_for(&self, given: &Abandoned, kept: &Kept, is_counting: bool) -> Result<Layer, Stop> {
        let mut copies = Layer::new();
        let begun = meta::counts::begun();
        for key in needed(&*self.rules).into_iter().filter(|key| given.has(key)) {
            let value = match kept.get(&key) {
                Some(value) => value.clone(),
                // The first builds made no copy of this record; its content is known.
                None if key == begun.0 && is_counting => Value::new(&begun.1),
                None => {
                    let why = format!(
                        "record {key:?} is lost, and there is no copy of it: restore the MDT from a backup"
                    );
                    return Err(Fault::new(Code::Damaged, why).into());
                }
            };
            copies.insert(key, Some(value));
        }
        Ok(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Key {
        Key::new(bytes).unwrap()
    }

    #[test]
    fn golden() {
        let given = Abandoned { first: key(&[2, 0, 0x11]), end: key(&[2, 0, 0x12, 0]) };
        let bytes = [1, 3, 2, 0, 0x11, 4, 2, 0, 0x12, 0];
        assert_eq!((Abandoned::key(), given.encode()), (key(&[16]), bytes.to_vec()));
        assert_eq!(Abandoned::decode(&bytes), Ok(given));
        assert!(Abandoned::decode(&[2, 3, 2, 0, 0x11, 4, 2, 0, 0x12, 0]).is_err(), "version");
        assert!(Abandoned::decode(&[1, 1, 2, 1, 2]).is_err(), "its end is behind its begin");
        assert!(Abandoned::decode(&[1, 1, 2, 1, 3, 0]).is_err(), "what follows");
    }
}
