//! An entry in the making: what the operations of a batch changed so far, on top of the newest state.

use std::cell::Cell;

use kv::{Batch, Change, Miss, Value, record_bytes};
use types::Key;

use crate::executor::execute::Stop;
use crate::records::ledger::Noted;
use crate::records::overlay::Layer;
use crate::records::record::{self, Member, Origin};

/// mds-I1: `changes` is what `members`, one after the other, made of `snap`.  mds-I2: no two members have the same slot: a repeat is told
/// from a new request by what the log has.
pub struct Draft<'s> {
    pub snap: &'s dyn kv::View,
    pub changes: Layer,
    pub members: Vec<Member>,
    /// Records of dead objects that began to wait for the purge.
    pub died: usize,
    /// mds-M7: a member's client changes objects on the strength of it.
    pub lets_change: bool,
    /// Of the changes: records of the changelog.
    pub noted: Noted,
    /// Records that its rules have looked at, also those of what was refused.
    pub looks: Cell<u64>,
    /// Of the record, about.
    bytes: usize,
    /// That the changes may add to the table.
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

    /// Bytes that the table takes on the medium, as far as is known before the entry is applied.
    pub fn table_bytes(&self) -> u64 {
        self.snap.medium_bytes() + self.put_bytes
    }

    pub fn has_slot_of(&self, origin: &Origin) -> bool {
        let is_same = |o: &Origin| (o.session, o.slot) == (origin.session, origin.slot);
        self.members.iter().any(|m| m.origin.as_ref().is_some_and(is_same))
    }

    /// May an operation with this reply and these changes still join an entry of at most `max` bytes? The first may always.
    pub fn has_room(&self, reply: &[u8], changes: &Layer, max: usize) -> bool {
        let bytes = record::bytes_of(reply, changes.iter().map(|(k, v)| (k, v.as_ref())));
        self.members.is_empty() || self.bytes + bytes <= max
    }

    /// The next operation's changes, which were made on top of those that are here; its place.
    pub fn add(&mut self, member: Member, mut changes: Layer) -> usize {
        self.bytes += record::bytes_of(&member.reply, changes.iter().map(|(k, v)| (k, v.as_ref())));
        self.put_bytes += put_bytes(&changes);
        match self.changes.is_empty() {
            true => self.changes = changes,
            false => self.changes.append(&mut changes),
        }
        self.members.push(member);
        self.members.len() - 1
    }

    /// Bytes that the changes free of what is in the table or comes into it by this entry. Asked only when room is short.
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

/// Bytes of the records that are put.
pub fn put_bytes(changes: &Layer) -> u64 {
    let put = |(key, value): (&Key, &Option<Value>)| value.as_ref().map(|v| record_bytes(key, v.raw().len()));
    changes.iter().filter_map(put).sum()
}

pub fn to_batch(changes: Layer) -> Batch {
    Batch(changes.into_iter().map(|(key, value)| Change { key, value }).collect())
}
