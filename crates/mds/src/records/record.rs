//! The MDT's log record: requests, their replies, and the changes. The byte form is in `docs/formats/mdt.md`.
//!
//! mds-R1: decoding never panics, and allocates at most a small multiple of the bytes that it got.
//! mds-R2: every value has the CRC of its creation, and decoding checks it.
//! mds-R3: reserved bytes are zero. If not, the record is of a later version.

use std::sync::Arc;

use kv::{Batch, VALUE_MAX, Value};
use types::{Key, SessionId};
use wire::{Malformed, Reader, Wire};

/// Version of the record's form. A later one is refused; the program that wrote it can read it.
const VERSION: u8 = 2;
/// The version in which an entry had one operation. It is read, and no longer written.
const VERSION_OF_ONE: u8 = 1;
const DELETE: u8 = 0;
const PUT: u8 = 1;
/// Fewest bytes of a change. Bounds the count of changes that is believed.
const CHANGE_BYTES_MIN: usize = 2;
/// Bytes before the first member.
#[cfg(test)]
const HEAD_BYTES: usize = 16;
/// Bytes of a member beside its reply.
const MEMBER_BYTES: usize = 22;

/// The request behind an operation, for exactly-once. Internal operations (ids reserved, sessions ended) and requests without a slot have
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub session: SessionId,
    pub slot: u32,
    /// ≥ 1.
    pub sequence: u32,
}

/// A request that an entry carried out. Its seq is that of the entry plus its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// For audit.
    pub call: u16,
    pub origin: Option<Origin>,
    /// The reply's body without its head.
    pub reply: Arc<[u8]>,
}

/// One log entry's payload, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// In execution order. Empty: an internal change.
    pub members: Vec<Member>,
    /// Changes of all members together.
    pub changes: Batch,
}

impl Record {
    /// Operations of the entry, which takes as many seqs.
    pub fn ops(&self) -> u32 {
        ops_of(&self.members)
    }
}

/// Operations of an entry with these members.
pub fn ops_of(members: &[Member]) -> u32 {
    members.len().max(1) as u32
}

/// Upper bound of the bytes that a member with these changes adds to a record.
pub fn bytes_of<'a>(reply: &[u8], changes: impl Iterator<Item = (&'a Key, Option<&'a Value>)>) -> usize {
    let of_change =
        |(key, value): (&Key, Option<&Value>)| 10 + key.as_bytes().len() + value.map_or(0, |v| v.raw().len());
    MEMBER_BYTES + reply.len() + changes.map(of_change).sum::<usize>()
}

/// Writes a record into `out`, replacing its content. Takes its parts by reference, since this runs for every entry.
pub fn encode(members: &[Member], changes: &Batch, out: &mut Vec<u8>) {
    assert!(members.len() <= usize::from(u16::MAX), "the count of members fits its field");
    out.clear();
    out.push(VERSION);
    out.push(0);
    (members.len() as u16).put(out);
    (changes.0.len() as u32).put(out);
    (members.iter().map(|m| MEMBER_BYTES + m.reply.len()).sum::<usize>() as u32).put(out);
    0u32.put(out);
    for Member { call, origin, reply } in members {
        let (session, slot, sequence) =
            origin.map_or((SessionId(0), 0, 0), |o| (o.session, o.slot, o.sequence));
        assert_eq!(session.0 == 0, sequence == 0, "an origin has both session and sequence, or neither");
        call.put(out);
        slot.put(out);
        session.put(out);
        sequence.put(out);
        (reply.len() as u32).put(out);
        out.extend_from_slice(reply);
    }
    for change in &changes.0 {
        let key = change.key.as_bytes();
        out.push(if change.value.is_some() { PUT } else { DELETE });
        assert!(key.len() <= usize::from(u8::MAX), "a key's length fits its field");
        out.push(key.len() as u8);
        out.extend_from_slice(key);
        if let Some(value) = &change.value {
            assert!(value.raw().len() <= VALUE_MAX, "a value that is logged can be read back");
            (value.raw().len() as u32).put(out);
            value.crc().put(out);
            out.extend_from_slice(value.raw());
        }
    }
}

pub fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
    let r = &mut Reader::new(bytes);
    let version = u8::get(r)?;
    if u8::get(r)? != 0 {
        return Err(Malformed("reserved byte of a log record"));
    }
    let (members, count) = match version {
        VERSION => get_members(r)?,
        VERSION_OF_ONE => get_one(r)?,
        _ => return Err(Malformed("log record: a version that this program does not know")),
    };
    if count > r.remaining() / CHANGE_BYTES_MIN {
        return Err(Malformed("change count of a log record"));
    }
    let mut changes = Batch(Vec::with_capacity(count.min(1024)));
    for _ in 0..count {
        get_change(r, &mut changes)?;
    }
    r.end()?;
    Ok(Record { members, changes })
}

/// Decodes the members, and the number of changes that follow.
fn get_members(r: &mut Reader<'_>) -> Result<(Vec<Member>, usize), Malformed> {
    let (n, count, len) = (u16::get(r)? as usize, u32::get(r)? as usize, u32::get(r)? as usize);
    if u32::get(r)? != 0 {
        return Err(Malformed("reserved bytes of a log record"));
    }
    if len > r.remaining() || n > len / MEMBER_BYTES {
        return Err(Malformed("member count of a log record"));
    }
    let r = &mut Reader::new(r.take(len)?);
    let mut members = Vec::with_capacity(n);
    for _ in 0..n {
        let (call, slot, session, sequence) = (u16::get(r)?, u32::get(r)?, SessionId::get(r)?, u32::get(r)?);
        let origin = origin_of(session, slot, sequence)?;
        let reply_len = u32::get(r)? as usize;
        members.push(Member { call, origin, reply: r.take(reply_len)?.into() });
    }
    r.end()?;
    Ok((members, count))
}

/// The same for version 1. Call 0 is an internal operation.
fn get_one(r: &mut Reader<'_>) -> Result<(Vec<Member>, usize), Malformed> {
    let (call, slot, session, sequence) = (u16::get(r)?, u32::get(r)?, SessionId::get(r)?, u32::get(r)?);
    let (reply_len, count) = (u32::get(r)? as usize, u32::get(r)? as usize);
    if u32::get(r)? != 0 {
        return Err(Malformed("reserved bytes of a log record"));
    }
    let origin = origin_of(session, slot, sequence)?;
    let member = Member { call, origin, reply: r.take(reply_len)?.into() };
    Ok((if call == 0 { vec![] } else { vec![member] }, count))
}

fn origin_of(session: SessionId, slot: u32, sequence: u32) -> Result<Option<Origin>, Malformed> {
    match (session.0, slot, sequence) {
        (0, 0, 0) => Ok(None),
        (0, _, _) | (_, _, 0) => Err(Malformed("origin of a log record")),
        _ => Ok(Some(Origin { session, slot, sequence })),
    }
}

fn get_change(r: &mut Reader<'_>, changes: &mut Batch) -> Result<(), Malformed> {
    let (op, key_len) = (u8::get(r)?, u8::get(r)? as usize);
    let key = Key::new(r.take(key_len)?).ok_or(Malformed("key of a log record"))?;
    match op {
        DELETE => changes.delete(key),
        PUT => {
            let (len, crc) = (u32::get(r)? as usize, u32::get(r)?);
            if len > VALUE_MAX {
                return Err(Malformed("value length of a log record"));
            }
            let value = Value::stored(r.take(len)?, crc);
            value.verified(&key).map_err(|_| Malformed("value checksum of a log record"))?;
            changes.put(key, value);
        }
        _ => return Err(Malformed("change of a log record")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Batch {
        let mut changes = Batch::new();
        changes.put(Key::new(&[1, 2, 3]).unwrap(), Value::new(b"hello"));
        changes.delete(Key::new(&[9]).unwrap());
        changes.put(Key::new(&[]).unwrap(), Value::new(b""));
        changes
    }

    fn first() -> Member {
        let origin = Some(Origin { session: SessionId(0x1122_3344), slot: 5, sequence: 77 });
        Member { call: 0x0204, origin, reply: b"reply"[..].into() }
    }

    fn sample() -> Record {
        let second = Member { call: 0x0205, origin: None, reply: [][..].into() };
        Record { members: vec![first(), second], changes: changes() }
    }

    fn bytes_of(r: &Record) -> Vec<u8> {
        let mut out = vec![1, 2, 3];
        encode(&r.members, &r.changes, &mut out);
        out
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn golden() {
        let bytes = bytes_of(&sample());
        assert_eq!(hex(&bytes), format!("{GOLDEN}{GOLDEN_CHANGES}"));
        assert_eq!(decode(&bytes), Ok(sample()));
        assert_eq!(sample().ops(), 2);
    }
    /// Head; two members, the first with a reply.
    const GOLDEN: &str = concat!(
        "0200",
        "0200",
        "03000000",
        "31000000",
        "00000000",
        "0402",
        "05000000",
        "4433221100000000",
        "4d000000",
        "05000000",
        "7265706c79",
        "0502",
        "00000000",
        "0000000000000000",
        "00000000",
        "00000000",
    );
    /// Put 010203 = "hello"; delete 09; put of the empty key = "".
    const GOLDEN_CHANGES: &str = concat!(
        "0103010203",
        "05000000",
        "4cbb719a",
        "68656c6c6f",
        "000109",
        "0100",
        "00000000",
        "00000000",
    );

    /// Version 1: head, reply, changes; with a call and of the MDT itself.
    #[test]
    fn records_of_one_operation_are_read() {
        let bytes = |call: &str, origin: &str, reply: &str| -> Vec<u8> {
            let text = format!(
                "0100{call}{origin}{:02x}00000003000000{:08}{reply}{GOLDEN_CHANGES}",
                reply.len() / 2,
                0
            );
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let asked = bytes("0402", "0500000044332211000000004d000000", "7265706c79");
        assert_eq!(decode(&asked), Ok(Record { members: vec![first()], changes: changes() }));
        let internal = bytes("0000", "00000000000000000000000000000000", "");
        assert_eq!(decode(&internal), Ok(Record { members: vec![], changes: changes() }));
        for cut in 0..asked.len() {
            assert!(decode(&asked[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn internal_records_have_no_members_and_one_seq() {
        let r = Record { members: vec![], changes: Batch::new() };
        assert_eq!(decode(&bytes_of(&r)), Ok(r.clone()));
        assert_eq!(r.ops(), 1);
    }

    #[test]
    fn the_bytes_of_members_and_changes_are_reckoned_well() {
        let r = sample();
        let changes = r.changes.0.iter().map(|c| (&c.key, c.value.as_ref()));
        let reckoned =
            HEAD_BYTES + super::bytes_of(&r.members[0].reply, changes) + super::bytes_of(&[], [].into_iter());
        let true_bytes = bytes_of(&r).len();
        assert!((true_bytes..true_bytes + 16).contains(&reckoned), "{reckoned} for {true_bytes}");
    }

    #[test]
    fn changed_and_cut_records_never_panic() {
        let whole = bytes_of(&sample());
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff, whole[at] ^ 1] {
                let mut bad = whole.clone();
                bad[at] = value;
                // Some changes make another valid record (the log entry around it has a CRC of its own); none may panic.
                if let Ok(record) = decode(&bad)
                    && bad[0] == VERSION
                {
                    assert_eq!(bytes_of(&record), bad, "one record, one byte form");
                }
            }
        }
    }

    #[test]
    fn a_huge_count_allocates_nothing_huge() {
        let sound = bytes_of(&Record { changes: Batch::new(), ..sample() });
        for at in [2, 4, 6] {
            let mut bytes = sound.clone();
            bytes[at..at + 2].copy_from_slice(&u16::MAX.to_le_bytes());
            assert!(decode(&bytes).is_err(), "count at {at}");
        }
    }
}
