//! Bytes of the log entry header.

use super::*;

mod hammered;
use crate::SplitMix;

fn header() -> Header {
    Header {
        kind: EntryKind::Payload,
        ops: 1,
        tag: 0x1122_3344_5566_7788,
        seq: 0x0102_0304_0506_0708,
        pos: 0x2000_0000_0010,
        flushed_seq: 0x0102_0304_0506_0700,
        epoch: Epoch(0xaabb_ccdd),
        incarnation: Incarnation(7),
        payload_len: 0x1_0203,
        payload_crc: 0xdead_beef,
    }
}

/// Written once and never changed: old volumes hold it.
const GOLDEN: &str = "534c4531010000008877665544332211080706050403020110000000002000000007060504030201\
    ddccbbaa0700000003020100efbeadde0000000046053be7";

#[test]
fn the_bytes_are_as_documented() {
    let hex: String = header().encode().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    assert_eq!(Header::decode(&header().encode()), Some(header()));
    let many = Header { ops: 0x1234, ..header() };
    let bytes = many.encode();
    assert_eq!((bytes[5], &bytes[6..8]), (0, &[0x33, 0x12][..]), "one less than there are");
    assert_eq!(Header::decode(&bytes), Some(many.clone()));
    assert_eq!((many.last_seq(), header().last_seq()), (many.seq + 0x1233, header().seq));
    assert_eq!(Header::decode(&Header { kind: EntryKind::Mark, ..many }.encode()), None, "a mark is one");
    let mark = Header { kind: EntryKind::Mark, ..header() };
    assert_eq!(Header::decode(&mark.encode()), Some(mark.clone()));
    assert_eq!((mark.seq_before(), mark.last_seq()), (mark.seq, mark.seq), "it takes no seq");
    let old = Header { kind: EntryKind::NumberedMark, ..header() };
    assert_eq!(Header::decode(&old.encode()), Some(old.clone()));
    assert_eq!((old.seq_before(), old.last_seq()), (old.seq - 1, old.seq));
    // A flush mark may name the entry before, and none behind it.
    let upto =
        |kind, flushed_seq| Header::decode(&Header { kind, flushed_seq, ..header() }.encode()).is_some();
    let seq = header().seq;
    assert!(upto(EntryKind::Payload, seq - 1) && !upto(EntryKind::Payload, seq));
    assert!(upto(EntryKind::Mark, seq) && !upto(EntryKind::Mark, seq + 1));
}

#[test]
fn every_flipped_bit_is_refused() {
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = header().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::decode(&bytes), None, "bit {bit}");
    }
}

#[test]
fn no_input_panics_and_what_is_accepted_encodes_to_itself() {
    let mut rng = SplitMix::new(1);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = header().encode();
        for _ in 0..1 + rng.below(4) {
            bytes[rng.below(60) as usize] = rng.next_u64() as u8;
        }
        // With a valid checksum, so that the fields themselves are checked.
        seal(&mut bytes);
        if let Some(h) = Header::decode(&bytes) {
            accepted += 1;
            assert_eq!(h.encode(), bytes);
            assert!(h.flushed_seq < h.seq && h.last_seq() >= h.seq);
        }
    }
    assert!((1000..20_000).contains(&accepted));
    for len in [0, 1, 63, 65, 128] {
        assert_eq!(Header::decode(&vec![0; len]), None);
    }
}

#[test]
fn entries_are_padded_to_eight_bytes() {
    assert_eq!([0, 1, 8, 9].map(entry_bytes), [64, 72, 72, 80]);
}
