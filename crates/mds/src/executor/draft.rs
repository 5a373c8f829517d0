//! A log entry that is being built: the changes of a batch's operations so far, on top of the newest state.

use std::cell::Cell;

use kv::{Batch, Change, Miss, Value, record_bytes};
use types::Key;

use crate::executor::execute::Stop;
use crate::records::ledger::Noted;
use crate::records::overlay::Layer;
use crate::records::record::{self, Member, Origin};

/// `changes` is the result of `members`, run one after the other on `snap`. No two members have the same slot, since a repeat is recognised
/// only by logged entries.
pub struct Draft<'s> {
    pub snap: &'s dyn kv::View,
    pub changes: Layer,
    pub members: Vec<Member>,
    /// Records that the entry adds to the unlink log.
    pub died: usize,
    /// mds-M7: a member's reply lets its client change objects.
    pub lets_change: bool,
    /// Change records among `changes`.
    pub noted: Noted,
    /// Records that the rules have read, those of refused requests too.
    pub looks: Cell<u64>,
    /// Bytes of the entry, about.
    bytes: usize,
    /// Bytes that the changes may add to the table.
    put_bytes: u64,
}

impl<'s> Draft<'s> {
    pub fn new(snap: &'s dyn kv::View) -> Draft<'s> {
        Draft {
            snap,
            changes: Layer::new(),
            members: Vec::new(),
            died: 0,
            lets_change: false,
            noted: Noted::default(),
            looks: Cell::new(0),
            bytes: 0,
            put_bytes: 0,
        }
    }

    /// Bytes of the table on the medium with this entry, without the space that the entry frees.
    pub fn table_bytes(&self) -> u64 {
        self.snap.medium_bytes() + self.put_bytes
    }

    pub fn has_slot_of(&self, origin: &Origin) -> bool {
        let is_same = |o: &Origin| (o.session, o.slot) == (origin.session, origin.slot);
        self.members.iter().any(|m| m.origin.as_ref().is_some_and(is_same))
    }

    /// True if an operation with this reply and these changes fits an entry of at most `max` bytes. The first one always does.
    pub fn has_room(&self, reply: &[u8], changes: &Layer, max: usize) -> bool {
        let bytes = record::bytes_of(reply, changes.iter().map(|(k, v)| (k, v.as_ref())));
        self.members.is_empty() || self.bytes + bytes <= max
    }

    /// Adds the next operation, whose changes were made on top of those here. Returns its place.
    pub fn add(&mut self, member: Member, mut changes: Layer) -> usize {
        assert!(!changes.is_empty(), "a member of an entry changes something");
        self.bytes += record::bytes_of(&member.reply, changes.iter().map(|(k, v)| (k, v.as_ref())));
        self.put_bytes += put_bytes(&changes);
        match self.changes.is_empty() {
            true => self.changes = changes,
            false => self.changes.append(&mut changes),
        }
        let is_distinct = |o: &Origin| !self.has_slot_of(o);
        debug_assert!(member.origin.as_ref().is_none_or(is_distinct), "mds-I2: one member for each slot");
        self.members.push(member);
        self.members.len() - 1
    }

    /// Bytes of records that the changes replace, in the table or in this entry. Called only when space is short.
    pub fn replaced(&self, changes: &Layer) -> Result<u64, Stop> {
        let bytes = |key: &Key, len: Option<usize>| len.map_or(0, |len| record_bytes(key, len));
        let old = |key| match self.changes.get(key) {
            Some(value) => Ok(bytes(key, value.as_ref().map(|v| v.raw().len()))),
            None => match self.snap.get(key) {
                Ok(value) => Ok(bytes(key, value.map(|v| v.len()))),
                Err(Miss::Damage(_)) => Ok(0),
                Err(Miss::Absent(what)) => Err(Stop::Absent(what)),
            },
        };
        changes.keys().map(old).sum()
    }
}

/// Bytes of the records that a layer puts.
pub fn put_bytes(changes: &Layer) -> u64 {
    let put = |(key, value): (&Key, &Option<Value>)| value.as_ref().map(|v| record_bytes(key, v.raw().len()));
    changes.iter().filter_map(put).sum()
}

pub fn to_batch(changes: Layer) -> Batch {
    Batch(changes.into_iter().map(|(key, value)| Change { key, value }).collect())
}
