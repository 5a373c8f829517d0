//! Notes for the changelog (decision 0032): the rules make them, the executor numbers and stores them.
//!
//! meta-N1: a note and the changes that it describes are in one transaction, so both are stored or neither is.  meta-N2: a replay of the
//! notes on names, in order, on an empty tree gives the same names for the same fids as the MDT has.  meta-N3: a rule makes no note that
//! no consumer wants.

use types::*;
use wire::changelog::{CHANGE_EXCHANGE, CHANGE_LAST, Change, ChangeOp, Who};
use wire::codec::{Bytes, Malformed, Reader, Wire};
use wire::meta::{Rename, UnlinkReply};
use wire::{put_varint, unzigzag, zigzag};

use crate::records::VERSION;
use crate::{Txn, keys};

/// The effect of an operation. As `wire::changelog::Change`, without the fields that the executor fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub op: ChangeOp,
    pub flags: u8,
    pub who: Option<Who>,
    pub fid: Fid,
    pub parent: Fid,
    pub name: Vec<u8>,
    pub old_parent: Fid,
    pub old_name: Vec<u8>,
    pub other: Fid,
    pub what: u32,
}

impl Note {
    /// A note about a file but none of its names.
    fn of(op: ChangeOp, fid: Fid, who: Option<&Cred>) -> Note {
        Note {
            op,
            flags: 0,
            who: who.filter(|cred| cred.is_known()).map(|cred| Who { uid: cred.uid, gid: cred.gid }),
            fid,
            parent: Fid(0),
            name: Vec::new(),
            old_parent: Fid(0),
            old_name: Vec::new(),
            other: Fid(0),
            what: 0,
        }
    }
}

/// Notes that `fid` has a new name.
pub fn named(txn: &mut dyn Txn, op: ChangeOp, fid: Fid, at: (Fid, &[u8]), cred: &Cred) {
    if txn.is_noted(op) {
        txn.note(Note { parent: at.0, name: at.1.to_vec(), ..Note::of(op, fid, Some(cred)) });
    }
}

/// Notes that a name is gone; `left` is its file.
pub fn unnamed(txn: &mut dyn Txn, op: ChangeOp, left: &UnlinkReply, at: (Fid, &[u8]), cred: &Cred) {
    if txn.is_noted(op) {
        let note = Note::of(op, left.attr.fid, Some(cred));
        txn.note(Note { flags: last(left), parent: at.0, name: at.1.to_vec(), ..note });
    }
}

/// The effect of a rename on the file that had the new name.
pub enum Other<'a> {
    None,
    Lost(&'a UnlinkReply),
    Exchanged(Fid),
}

pub fn renamed(txn: &mut dyn Txn, fid: Fid, req: &Rename, other: Other<'_>) {
    if !txn.is_noted(ChangeOp::Rename) {
        return;
    }
    let (flags, other) = match other {
        Other::None => (0, Fid(0)),
        Other::Lost(left) => (last(left), left.attr.fid),
        Other::Exchanged(fid) => (CHANGE_EXCHANGE, fid),
    };
    txn.note(Note {
        flags,
        parent: req.new_parent,
        name: req.new_name.0.clone(),
        old_parent: req.parent,
        old_name: req.name.0.clone(),
        other,
        ..Note::of(ChangeOp::Rename, fid, Some(&req.cred))
    });
}

fn last(left: &UnlinkReply) -> u8 {
    if left.attr.nlink == 0 { CHANGE_LAST } else { 0 }
}

/// Notes a change of a file itself, with the user if the request names one.
pub fn changed(txn: &mut dyn Txn, op: ChangeOp, fid: Fid, who: Option<&Cred>) {
    if txn.is_noted(op) {
        txn.note(Note::of(op, fid, who));
    }
}

pub fn attributes(txn: &mut dyn Txn, fid: Fid, what: u32, cred: &Cred) {
    if txn.is_noted(ChangeOp::SetAttr) {
        txn.note(Note { what, ..Note::of(ChangeOp::SetAttr, fid, Some(cred)) });
    }
}

pub fn xattr(txn: &mut dyn Txn, fid: Fid, name: &[u8], cred: &Cred) {
    if txn.is_noted(ChangeOp::SetXattr) {
        txn.note(Note { name: name.to_vec(), ..Note::of(ChangeOp::SetXattr, fid, Some(cred)) });
    }
}

/// The value of a change record: kind 14, with the number as key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Bytes of all records before it, whether they still exist or not. The difference of two of them is the size of the records between.
    pub bytes_before: u64,
    pub time: Time,
    pub session: SessionId,
    pub note: Note,
}

/// A name's length fits its length byte.
const _: () = assert!(NAME_MAX <= u8::MAX as usize && crate::xattr::XATTR_NAME_MAX <= u8::MAX as usize);

/// Numbers and sums of bytes rise by what a device can write. Those beyond cannot be real, and sums of them would overflow.
pub const NUMBER_MAX: u64 = u64::MAX >> 2;

impl ChangeRecord {
    pub fn encode(&self) -> Vec<u8> {
        let Note { op, flags, who, fid, parent, name, old_parent, old_name, other, what } = &self.note;
        let mut out = Vec::with_capacity(64 + name.len() + old_name.len());
        out.extend([VERSION, *op as u8, *flags, who.is_some() as u8]);
        put_varint(&mut out, self.bytes_before);
        put_varint(&mut out, zigzag(self.time.sec));
        put_varint(&mut out, self.time.nsec as u64);
        put_varint(&mut out, self.session.0);
        for id in who.iter().flat_map(|who| [who.uid, who.gid]) {
            put_varint(&mut out, id as u64);
        }
        [fid, parent, old_parent, other].into_iter().for_each(|fid| put_varint(&mut out, fid.0));
        put_varint(&mut out, *what as u64);
        for name in [name, old_name] {
            assert!(name.len() <= u8::MAX as usize, "a name fits its length byte");
            out.push(name.len() as u8);
            out.extend_from_slice(name);
        }
        debug_assert!(ChangeRecord::decode(&out).is_ok_and(|r| r == *self), "a change reads back as written");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<ChangeRecord, Malformed> {
        let r = &mut Reader::new(bytes);
        if u8::get(r)? != VERSION {
            return Err(Malformed("record version"));
        }
        let (op, flags, has_who) = (ChangeOp::get(r)?, u8::get(r)?, bool::get(r)?);
        if flags & !(CHANGE_LAST | CHANGE_EXCHANGE) != 0 {
            return Err(Malformed("flags of a change"));
        }
        let bytes_before = real(r.varint()?)?;
        let (sec, nsec) = (unzigzag(r.varint()?), word(r)?);
        if nsec >= 1_000_000_000 {
            return Err(Malformed("nanoseconds"));
        }
        let session = SessionId(r.varint()?);
        let who = has_who.then(|| Ok(Who { uid: word(r)?, gid: word(r)? })).transpose()?;
        let [fid, parent, old_parent, other] =
            [Fid(r.varint()?), Fid(r.varint()?), Fid(r.varint()?), Fid(r.varint()?)];
        let what = word(r)?;
        let (name, old_name) = (name(r)?, name(r)?);
        r.end()?;
        let note = Note { op, flags, who, fid, parent, name, old_parent, old_name, other, what };
        Ok(ChangeRecord { bytes_before, time: Time::new(sec, nsec), session, note })
    }

    /// The change in the form that consumers get.
    pub fn to_wire(self, number: u64) -> Change {
        let ChangeRecord { time, session, note, .. } = self;
        let Note { op, flags, who, fid, parent, name, old_parent, old_name, other, what } = note;
        Change {
            number,
            op,
            flags,
            time,
            session,
            who,
            fid,
            parent,
            name: Bytes(name),
            old_parent,
            old_name: Bytes(old_name),
            other,
            what,
        }
    }
}

fn real(number: u64) -> Result<u64, Malformed> {
    if number <= NUMBER_MAX {
        Ok(number)
    } else {
        Err(Malformed("a number of the changelog is out of range"))
    }
}

fn word(r: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(r.varint()?).map_err(|_| Malformed("number of a change"))
}

fn name(r: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let len = u8::get(r)? as usize;
    Ok(r.take(len)?.to_vec())
}

/// The value of a consumer: kind 15, with the id as key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRecord {
    pub name: String,
    /// Bit n: `ChangeOp` n.
    pub mask: u64,
    /// The consumer has acknowledged all changes up to here.
    pub acked: u64,
    pub acked_at: Time,
    /// First and last change that it can never read. (0, 0): there is none, or the consumer was informed.
    pub lost: (u64, u64),
}

impl ConsumerRecord {
    pub fn encode(&self) -> Vec<u8> {
        let ConsumerRecord { name, mask, acked, acked_at, lost } = self;
        let mut out = vec![VERSION];
        mask.put(&mut out);
        acked.put(&mut out);
        acked_at.put(&mut out);
        lost.0.put(&mut out);
        lost.1.put(&mut out);
        assert!(name.len() <= u8::MAX as usize, "a consumer's name fits its length byte");
        assert!(lost.0 <= lost.1, "a lost range ends after its begin");
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<ConsumerRecord, Malformed> {
        let r = &mut Reader::new(bytes);
        if u8::get(r)? != VERSION {
            return Err(Malformed("record version"));
        }
        let (mask, acked, acked_at) = (u64::get(r)?, real(u64::get(r)?)?, Time::get(r)?);
        let lost = (u64::get(r)?, real(u64::get(r)?)?);
        if lost.0 > lost.1 || (lost.0 == 0) != (lost.1 == 0) {
            return Err(Malformed("lost changes of a consumer"));
        }
        let name = String::from_utf8(name(r)?).map_err(|_| Malformed("name of a consumer"))?;
        r.end()?;
        Ok(ConsumerRecord { name, mask, acked, acked_at, lost })
    }
}

/// The record of kind 15 without an id: state that must outlive all consumers and change records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangelogRecord {
    /// No change up to this number is ever numbered again.
    pub number: u64,
    /// The newest id of a consumer.
    pub consumer: u32,
}

impl ChangelogRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.number.put(&mut out);
        self.consumer.put(&mut out);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<ChangelogRecord, Malformed> {
        let r = &mut Reader::new(bytes);
        if u8::get(r)? != VERSION {
            return Err(Malformed("record version"));
        }
        let record = ChangelogRecord { number: real(u64::get(r)?)?, consumer: u32::get(r)? };
        r.end()?;
        Ok(record)
    }
}

/// The number of a key of kind 14. `None` also if it is out of range.
pub fn number_of(key: &Key) -> Option<u64> {
    match key.as_bytes() {
        [keys::CHANGE, number @ ..] => real(u64::from_be_bytes(number.try_into().ok()?)).ok(),
        _ => None,
    }
}

/// The lowest number of a record whose key is at or above this one; `None` if no number is.
pub fn number_from(key: &Key) -> Option<u64> {
    match key.as_bytes() {
        [keys::CHANGE, rest @ ..] => {
            let number = u64::from_be_bytes(std::array::from_fn(|n| rest.get(n).copied().unwrap_or(0)));
            // A key above a record's key has a higher number.
            if rest.len() > 8 { number.checked_add(1) } else { Some(number) }
        }
        [kind, ..] if *kind > keys::CHANGE => None,
        _ => Some(0),
    }
}

/// The id of a key of kind 15; 0 for the record without an id.
pub fn consumer_of(key: &Key) -> Option<u32> {
    match key.as_bytes() {
        [keys::CONSUMER] => Some(0),
        [keys::CONSUMER, id @ ..] => Some(u32::from_be_bytes(id.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
