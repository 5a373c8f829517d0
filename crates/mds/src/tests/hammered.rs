//! Records that no MDT wrote: log entries, slots, sessions, counters.

use hammer::Hammer;
use kv::{Batch, Value};
use meta::mem::MemTxn;
use types::crc::crc32c;
use types::{Key, SessionId, Uuid};

use crate::executor::slots::Slots;
use crate::records::ids::{Ids, KIND_COUNTER};
use crate::records::record::{self, Member, Origin};
use crate::sessions::{Load, Session};
use crate::upkeep::abandoned::Abandoned;

/// Checksums of the values of a log record, wherever its lengths lead.
fn repair_record(bytes: &mut [u8]) {
    let u32_at = |b: &[u8], at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?) as usize);
    // Version 1 has one member in its head.
    let (count, mut at) = match bytes.first() {
        Some(1) => (u32_at(bytes, 24), u32_at(bytes, 20).map(|len| 32 + len)),
        _ => (u32_at(bytes, 4), u32_at(bytes, 8).map(|len| 16 + len)),
    };
    for _ in 0..count.unwrap_or(0) {
        let Some(here) = at.filter(|at| at + 2 <= bytes.len()) else { return };
        let start = here + 2 + bytes[here + 1] as usize;
        if bytes[here] == 0 {
            at = Some(start);
            continue;
        }
        let Some(len) = u32_at(bytes, start) else { return };
        let Some(value) = bytes.get(start + 8..start + 8 + len) else { return };
        let crc = crc32c(value);
        bytes[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        at = Some(start + 8 + len);
    }
}

#[test]
fn a_log_record_is_read_or_refused() {
    let mut changes = Batch::new();
    changes.put(Key::new(&[1, 2, 3]).unwrap(), Value::new(b"hello"));
    changes.delete(Key::new(&[9]).unwrap());
    changes.put(Key::new(&[]).unwrap(), Value::new(b""));
    let origin = Some(Origin { session: SessionId(0x1122_3344), slot: 5, sequence: 77 });
    let member = Member { call: 0x0204, origin, reply: b"reply"[..].into() };
    let encode = |members: &[Member], changes: &Batch| {
        let mut out = Vec::new();
        record::encode(members, changes, &mut out);
        out
    };
    // Version 1 of the second, but for its changes.
    let mut first_version = vec![1, 0, 4, 2, 5, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 77, 0, 0, 0];
    first_version.extend([0u8; 12]);
    let seeds = [
        encode(&[member.clone(), Member { origin: None, ..member.clone() }], &changes),
        encode(&[member], &changes),
        encode(&[], &Batch::new()),
        first_version,
    ];
    // A change has 2 bytes and, in memory, a key of 25 and a value; room for 1024 of them is taken at once.
    let hammer = Hammer::new("MDT log record").seeds(seeds).repair(&repair_record).bound(80, 80 << 10);
    let outcome = hammer.run(
        |bytes| record::decode(bytes).ok(),
        |bytes, r| {
            if bytes[0] != 1 {
                assert_eq!(encode(&r.members, &r.changes), bytes, "two byte forms");
            }
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}

/// Key and value of a record in one input: the key's length, the key, the value.
fn join(key: &Key, value: &[u8]) -> Vec<u8> {
    [&[key.as_bytes().len() as u8], key.as_bytes(), value].concat()
}
fn split(bytes: &[u8]) -> Option<(Key, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (key, value) = rest.split_at_checked(*len as usize)?;
    Some((Key::new(key)?, value))
}

#[test]
fn a_slot_is_read_or_refused() {
    let key = |slot: u8| Key::new(&[8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, slot]).unwrap();
    let value = [&9u32.to_le_bytes()[..], &8u64.to_le_bytes(), b"reply"].concat();
    let seeds = [join(&key(0), &value), join(&key(63), &value[..12])];
    // A session has room for all its slots from its first one on.
    let hammer = Hammer::new("slot").seeds(seeds).bound(4, 8 << 10);
    let read = |bytes: &[u8]| {
        let (key, value) = split(bytes)?;
        let mut slots = Slots::default();
        slots.restore(&key, value).ok().map(|()| slots)
    };
    let outcome = hammer.run(read, |bytes, slots| {
        let (_, value) = split(bytes).expect("it was just read");
        let records: Vec<_> = slots.records().collect();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].1.raw(), value);
        bytes.len()
    });
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}

fn table_with(key: &Key, value: &[u8]) -> MemTxn {
    let mut table = MemTxn::default();
    table.records.insert(*key, value.into());
    table
}

#[test]
fn a_session_is_read_or_refused() {
    let seed = |name: &str| {
        let (key, value) =
            Session::new(SessionId(3), Uuid([7; 16]), name, wire::session::Claims::All, 0).to_record();
        join(&key, &value)
    };
    // The table that it is put into, and a list of one.
    let hammer = Hammer::new("session").seeds([seed("host, pid 7"), seed("")]).bound(8, 64 << 10);
    let read = |bytes: &[u8]| {
        let (key, value) = split(bytes)?;
        let mut load = Load::new(0);
        load.go_on(&table_with(&key, value));
        load.end().ok()
    };
    let outcome = hammer.run(read, |bytes, _| bytes.len());
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}

#[test]
fn a_counter_is_read_or_refused() {
    let seed = |which| join(&Key::new(&[KIND_COUNTER, which]).unwrap(), &77u64.to_le_bytes());
    let hammer = Hammer::new("counter").seeds([seed(1), seed(2), seed(3)]).bound(8, 64 << 10);
    let read = |bytes: &[u8]| {
        let (key, value) = split(bytes)?;
        Ids::load(&table_with(&key, value)).ok()
    };
    let outcome = hammer.run(read, |bytes, mut ids| {
        // It may be refused, near the end of the fids; near the end of other numbers nothing is loaded.
        let _ = ids.promise();
        bytes.len()
    });
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}

#[test]
fn what_was_abandoned_is_read_or_refused() {
    let key = |bytes: &[u8]| Key::new(bytes).unwrap();
    let seed = |first: &[u8], end: &[u8]| Abandoned { first: key(first), end: key(end) }.encode();
    let seeds = [seed(&[2, 0, 1], &[2, 0, 9]), seed(&[], &[1]), seed(&[1; 22], &[1; 23])];
    let hammer = Hammer::new("given up").seeds(seeds).bound(8, 8 << 10);
    let outcome = hammer.run(
        |bytes| Abandoned::decode(bytes).ok(),
        |bytes, given| {
            assert_eq!(given.encode(), bytes, "two byte forms");
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
