//! One log entry, applied to the state of an MDT that is not its primary's: by a replay, and by a standby.
//!
//! `prepare` does all that may fail or must wait for the medium. So a standby prepares, appends, and then applies.

use kv::Engine;
use meta::counts::Learned;
use types::{Code, Fault, Key, Seq};

use crate::records::look::{Trouble, look, until_loaded};
use crate::records::record::{self, Record};
use crate::rules::Rules;
use crate::upkeep::abandoned::Abandoned;
use crate::upkeep::checkpoint::State;
use crate::upkeep::counts::changed;

/// A log entry that can be read.
pub struct Entry {
    pub record: Record,
    abandoned: Option<Abandoned>,
}

impl Entry {
    /// `ops`: operations of the entry by its head. The volume counts seqs by it, and members get theirs by the record. They must agree.
    pub fn decode(payload: &[u8], ops: u32) -> Result<Entry, String> {
        let record = record::decode(payload).map_err(|why| why.to_string())?;
        if record.ops() != ops {
            return Err(format!("{ops} operations, {} members", record.members.len()));
        }
        let abandoned = Abandoned::by(&record.changes).map_err(|why| why.to_string())?;
        Ok(Entry { record, abandoned })
    }
}

/// An entry that can be applied: all records that it changes are in memory.
pub struct Ready {
    entry: Entry,
    learned: Learned,
}

impl State {
    pub fn prepare(&self, rules: &dyn Rules, entry: Entry) -> Result<Ready, Fault> {
        let changes = &entry.record.changes;
        let mut learned = Learned::default();
        if rules.counts() {
            learned = match look(&*self.kv, &mut |view| self.counts.learn(view, changed(changes))) {
                // The request that needs the record reports its damage, and fsck finds wrong sums.
                Err(fault) if fault.code == Code::Damaged => Learned::default(),
                found => found?,
            };
        }
        until_loaded(&*self.kv, &mut || self.kv.admits(changes.keys()).map_err(Trouble::Absent))?;
        Ok(Ready { entry, learned })
    }

    /// `first`: seq of the entry's first operation. No `tidy` may have run since `prepare`.
    pub fn apply(&mut self, first: Seq, ready: Ready) -> Result<(), Fault> {
        let Ready { entry: Entry { record, abandoned }, learned } = ready;
        let last = Seq(first.0 + u64::from(record.ops()) - 1);
        let put: Vec<Key> = match abandoned {
            Some(_) => record.changes.keys().copied().collect(),
            None => Vec::new(),
        };
        self.counts.add(learned);
        self.slots.apply(&record.members, first, &record.changes);
        self.kv.apply(last, record.changes);
        abandoned.map_or(Ok(()), |given| given.forget(&*self.kv, last, &put))
    }

    /// True if the state shows every effect of this entry: its records and its slots. Exact for the last entry that was applied.
    pub fn shows(&self, first: Seq, record: &Record) -> Result<bool, Fault> {
        let has_all = look(&*self.kv, &mut |view| {
            // Of two changes of one key the later counts.
            let is_last = |at: usize, key: &Key| !record.changes.0[at + 1..].iter().any(|c| c.key == *key);
            let mut changes = record.changes.0.iter().enumerate().filter(|(at, c)| is_last(*at, &c.key));
            changes.all(|(_, c)| {
                let found = meta::View::get(view, &c.key);
                found.as_deref() == c.value.as_ref().map(|value| value.raw())
            })
        })?;
        Ok(has_all && self.slots.shows(&record.members, first))
    }
}
