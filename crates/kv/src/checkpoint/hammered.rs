//! Streams that no table wrote.

use disk::alloc::Run;
use disk::leaves::Place;
use hammer::Hammer;
use types::Seq;

use super::*;
use crate::medium::Named;
use crate::tree::Stretch;
use crate::{Engine, Table, View};

fn stream(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out).expect("memory takes it");
    for (key, value) in records {
        writer.record(&Key::new(key).expect("short"), value, crc32c(value)).expect("memory takes it");
    }
    writer.finish().expect("memory takes it");
    out
}

/// Sets valid checksums of values and of batches, wherever the lengths lead.
fn repair(bytes: &mut [u8]) {
    let mut at = 16;
    while let Some(head) = bytes.get(at..at + 12) {
        let u32_of = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize;
        let (count, len) = (u32_of(head), u32_of(&head[4..]));
        let Some(body) = bytes.get_mut(at + 12..).and_then(|b| b.get_mut(..len)) else { return };
        let mut place = 0;
        for _ in 0..count {
            let Some(key_len) = body.get(place).map(|len| len & !IS_LEAF) else { break };
            let begin = place + 1 + key_len as usize + 8;
            let Some(value_len) = body.get(begin - 8..begin - 4).map(u32_of) else { break };
            let Some(value) = body.get(begin..begin + value_len) else { break };
            let crc = crc32c(value);
            body[begin - 4..begin].copy_from_slice(&crc.to_le_bytes());
            place = begin + value_len;
        }
        let crc = crc32c(body);
        let crc = crc32c(&bytes[at..at + 8]).rotate_left(1) ^ crc;
        bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        at += 12 + len;
    }
}

#[test]
fn a_stream_is_read_or_refused() {
    let seeds = [stream(&[]), stream(&[(&[2, 7], b"hello"), (&[2, 8], b""), (&[5], &[9; 300])])];
    // A batch may claim a longest record, and memory for it is allocated before its bytes are read.
    let slack = 3 * (64 * 1024 + VALUE_MAX);
    let hammer = Hammer::new("MDT checkpoint").seeds(seeds).repair(&repair).bound(64, slack);
    let outcome = hammer.run(
        |mut bytes| Table::new().open(Seq(1), &mut bytes, &mut |_, _| false).ok(),
        |bytes, table: Table| {
            let mut sum = 0;
            let each = &mut |key: &Key, value: &[u8], crc| {
                sum += key.as_bytes().len()
                    + Value::stored(value, crc).verified(key).expect("it was verified").len();
                Ok(())
            };
            table.snapshot().each(each).expect("nothing fails");
            assert!(sum <= bytes.len());
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}

#[test]
fn a_stream_of_names_is_read_or_refused() {
    let name = |first: u8, start, pages| {
        let place = Place { bytes: u64::from(pages) * 4096 - 9, crc: 7, runs: vec![Run { start, pages }] };
        let (first, last) = (Key::new(&[first]), Key::new(&[first, 8]));
        let (first, last) = (first.expect("short"), last.expect("short"));
        Item::Leaf(Named { first, last, records: 5, record_bytes: 500, place })
    };
    let lost = Stretch { first: Key::new(&[3]).expect("short"), end: Key::new(&[3, 9]).expect("short") };
    let mut seed = Vec::new();
    let mut writer = Writer::of_leaves(&mut seed).expect("memory takes it");
    let items = [name(1, 3, 1), name(2, 70, 4), Item::Lost(lost)];
    items.iter().for_each(|item| writer.name(item).expect("memory takes it"));
    writer.record(&Key::new(&[8, 1]).expect("short"), b"slot", crc32c(b"slot")).expect("memory takes it");
    writer.finish().expect("memory takes it");
    // As above; a name has 35 bytes at least, and takes 120 in memory.
    let slack = 3 * (64 * 1024 + VALUE_MAX);
    let hammer = Hammer::new("MDT checkpoint of leaves").seeds([seed]).repair(&repair).bound(64, slack);
    let outcome = hammer.run(
        |mut bytes| {
            let mut records = Vec::new();
            let leaves = read_any(&mut bytes, &mut |batch| records.extend(batch.0)).ok()??;
            Some((leaves, records))
        },
        |bytes, (leaves, records): (Vec<Item>, Vec<crate::Change>)| {
            assert!(24 * leaves.len() + records.len() <= bytes.len());
            assert!(
                leaves.iter().all(|n| Item::decode(n.first(), &n.encode()).is_ok_and(|again| again == *n))
            );
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
