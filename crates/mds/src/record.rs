//! The MDT's log record: who asked, what was answered, what changed. The byte form is in `docs/formats/mdt.md`.
//!
//! R1: decoding never panics and allocates no more than a small multiple of the bytes at hand.  R2: every value comes with the
//! CRC that it was made with, and decoding checks it.  R3: reserved bytes are zero, else the record is of a later version.

use kv::{Batch, VALUE_MAX, Value};
use types::{Key, SessionId};
use wire::{Malformed, Reader, Wire};

/// Version of the record's form. Another one is refused: the program that wrote it can read it.
const VERSION: u8 = 1;
const DELETE: u8 = 0;
const PUT: u8 = 1;
/// Fewest bytes that a change takes; bounds what a count is believed to mean.
const CHANGE_BYTES_MIN: usize = 2;

/// The request that an entry answers, for exactly-once. Internal entries (ids reserved, sessions ended) have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub session: SessionId,
    pub slot: u32,
    /// ≥ 1.
    pub sequence: u32,
}

/// One log entry's payload, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The call that made it (0: internal), for audit.
    pub call: u16,
    pub origin: Option<Origin>,
    /// The reply's body without its head.
    pub reply: Vec<u8>,
    pub changes: Batch,
}

/// The bytes of a record. Takes its parts by reference: this runs once per mutating request.
pub fn encode(call: u16, origin: Option<Origin>, reply: &[u8], changes: &Batch) -> Vec<u8> {
    let size: usize = changes.0.iter().map(|c| 33 + c.value.as_ref().map_or(0, |v| v.raw().len())).sum();
    let mut out = Vec::with_capacity(32 + reply.len() + size);
    let (session, slot, sequence) = origin.map_or((SessionId(0), 0, 0), |o| (o.session, o.slot, o.sequence));
    out.push(VERSION);
    out.push(0);
    call.put(&mut out);
    slot.put(&mut out);
    session.put(&mut out);
    sequence.put(&mut out);
    (reply.len() as u32).put(&mut out);
    (changes.0.len() as u32).put(&mut out);
    0u32.put(&mut out);
    out.extend_from_slice(reply);
    for change in &changes.0 {
        let key = change.key.as_bytes();
        out.push(if change.value.is_some() { PUT } else { DELETE });
        out.push(key.len() as u8);
        out.extend_from_slice(key);
        if let Some(value) = &change.value {
            (value.raw().len() as u32).put(&mut out);
            value.crc().put(&mut out);
            out.extend_from_slice(value.raw());
        }
    }
    out
}

pub fn decode(bytes: &[u8]) -> Result<Record, Malformed> {
    let r = &mut Reader::new(bytes);
    if u8::get(r)? != VERSION {
        return Err(Malformed("log record: a version that this program does not know"));
    }
    if u8::get(r)? != 0 {
        return Err(Malformed("reserved byte of a log record"));
    }
    let (call, slot, session, sequence) = (u16::get(r)?, u32::get(r)?, SessionId::get(r)?, u32::get(r)?);
    let (reply_len, count) = (u32::get(r)? as usize, u32::get(r)? as usize);
    if u32::get(r)? != 0 {
        return Err(Malformed("reserved bytes of a log record"));
    }
    let origin = match (session.0, slot, sequence) {
        (0, 0, 0) => None,
        (0, _, _) | (_, _, 0) => return Err(Malformed("origin of a log record")),
        _ => Some(Origin { session, slot, sequence }),
    };
    let reply = r.take(reply_len)?.to_vec();
    if count > r.remaining() / CHANGE_BYTES_MIN {
        return Err(Malformed("change count of a log record"));
    }
    let mut changes = Batch(Vec::with_capacity(count.min(1024)));
    for _ in 0..count {
        get_change(r, &mut changes)?;
    }
    r.end()?;
    Ok(Record { call, origin, reply, changes })
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

    fn sample() -> Record {
        let mut changes = Batch::new();
        changes.put(Key::new(&[1, 2, 3]).unwrap(), Value::new(b"hello"));
        changes.delete(Key::new(&[9]).unwrap());
        changes.put(Key::new(&[]).unwrap(), Value::new(b""));
        let origin = Some(Origin { session: SessionId(0x1122_3344), slot: 5, sequence: 77 });
        Record { call: 0x0204, origin, reply: b"reply".to_vec(), changes }
    }

    fn bytes_of(r: &Record) -> Vec<u8> {
        encode(r.call, r.origin, &r.reply, &r.changes)
    }

    #[test]
    fn golden() {
        let bytes = bytes_of(&sample());
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert_eq!(decode(&bytes), Ok(sample()));
    }
    /// Head; reply; put 010203 = "hello"; delete 09; put of the empty key = "".
    const GOLDEN: &str = concat!(
        "01000402",
        "05000000",
        "4433221100000000",
        "4d000000",
        "05000000",
        "03000000",
        "00000000",
        "7265706c79",
        "0103010203",
        "05000000",
        "4cbb719a",
        "68656c6c6f",
        "000109",
        "0100",
        "00000000",
        "00000000",
    );

    #[test]
    fn internal_records_have_no_origin() {
        let r = Record { call: 0, origin: None, reply: vec![], changes: Batch::new() };
        assert_eq!(decode(&bytes_of(&r)), Ok(r));
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
                if let Ok(record) = decode(&bad) {
                    assert_eq!(bytes_of(&record), bad, "one record, one byte form");
                }
            }
        }
    }

    #[test]
    fn a_huge_count_allocates_nothing_huge() {
        let mut bytes = bytes_of(&Record { changes: Batch::new(), ..sample() });
        bytes[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode(&bytes).is_err());
    }
}
