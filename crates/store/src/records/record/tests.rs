//! Golden bytes, the way there and back, and bytes that are not what they should be.

use disk::SplitMix;
use types::{Fid, Generation, ObjectId, SessionId, Time};

use super::*;
use crate::Slot;
use crate::records::fill::{FillAttrs, FillPlaces, FillRange, FilledSession};

mod hammered;

/// Line and mirror seq of a record that has none yet.
const NO_PLACE: &str = "00000000 0000000000000000";
const ORIGIN: Origin = Origin { session: SessionId(0x55), slot: 3, sequence: 9 };

fn object() -> ObjectId {
    ObjectId { fid: Fid(0x1122_3344), generation: Generation(7), component: 1, stripe: 2, snapshot: 0 }
}

fn samples() -> Vec<(Option<Origin>, u64, Record)> {
    let placed = vec![
        Placed { page: 5, run: Run { start: 0x10, pages: 2 } },
        Placed { page: 7, run: Run { start: 0x40, pages: 1 } },
    ];
    let write = WriteRecord {
        object: object(),
        end: 0x8000,
        mtime: Time::new(1_700_000_000, 5),
        lease: 1 << 32 | 4,
        placed,
        crcs: [0xa1, 0xa2, 0xa3].into(),
    };
    let truncate = TruncateRecord { object: object(), len: 100, lease: 2, tail: Some((0x99, 0xc0ffee)) };
    let mtime = Time::new(1_700_000_000, 5);
    let reserve = ReserveRecord { object: object(), first: 2, limit: 6, end: 0x5800, mtime, lease: 3 };
    let zeroed = vec![Zeroed { page: 1, start: 0x77, crc: 0xb1 }, Zeroed { page: 6, start: 0x78, crc: 0xb2 }];
    let punch = PunchRecord { object: object(), first: 2, limit: 6, is_kept: true, mtime, lease: 3, zeroed };
    let damage = Damage {
        object: object(),
        offset: 8192,
        kind: DamageKind::Medium,
        found_sec: 77,
        is_repaired: false,
    };
    let repair = RepairRecord {
        object: object(),
        page: 5,
        crc: 0xa1,
        before: 0x10,
        start: 0x40,
        kind: DamageKind::Medium,
        is_bad: true,
        found_sec: 77,
    };
    let part = |page, skip, bytes: &[u8]| Fragment::new(page, skip, bytes, types::crc::crc32c(bytes));
    let fragments = vec![part(1, 4094, b"ab"), part(2, 0, b"c")];
    let patch = PatchRecord { object: object(), offset: 0x1ffe, mtime, lease: 3, fragments };
    let attrs = FillAttrs { exists: true, len: 0x5800, mtime, lease: 3 };
    let range = FillRange {
        object: object(),
        first: 2,
        limit: 8,
        attrs,
        reserved: vec![(4, 5)],
        pages: vec![(2, 4), (6, 7)],
    };
    let runs = vec![Run { start: 0x10, pages: 2 }, Run { start: 0x40, pages: 1 }];
    let placed = Some(FillPlaces { runs, crcs: [0xa1, 0xa2, 0xa3].into() });
    let slot = Slot { sequence: 9, seq: Seq(0x66), answer: 0x8000 };
    let session = FilledSession { session: SessionId(8), begun: Seq(0x44), slots: vec![(3, slot)] };
    let sessions = FillSessions { first: SessionId(2), last: SessionId(0x10), sessions: vec![session] };
    vec![
        (Some(ORIGIN), 0x8000, Record::Write(write)),
        (Some(ORIGIN), 100, Record::Truncate(truncate.clone())),
        (None, 0, Record::Truncate(TruncateRecord { tail: None, ..truncate })),
        (None, 0, Record::Destroy { objects: vec![object()] }),
        (None, 0, Record::Fence { object: object(), lease: 6 }),
        (None, 0, Record::Damage(damage)),
        (None, 0, Record::DamageClear { fid: Fid(4) }),
        (None, 0, Record::SessionBegin { session: SessionId(8) }),
        (None, 0, Record::SessionEnd { session: SessionId(8) }),
        (Some(ORIGIN), 0, Record::Nothing),
        (Some(ORIGIN), 4, Record::Reserve(reserve)),
        (None, 0, Record::Release(ReleaseRecord { object: object(), first: 2, limit: 6, lease: 3 })),
        (Some(ORIGIN), 0x9000, Record::Punch(punch.clone())),
        (None, 0, Record::Punch(PunchRecord { is_kept: false, zeroed: vec![], ..punch })),
        (None, 0, Record::Scrub(crate::records::scrub_state::sample())),
        (Some(ORIGIN), 0x2001, Record::Patch(patch)),
        (None, 0, Record::Fill(FillRecord { range: range.clone(), placed })),
        (None, 0, Record::Fill(FillRecord { range, placed: None })),
        (None, 0, Record::FillSessions(sessions)),
        (None, 0, Record::FillEnd { since: Seq(0x77) }),
        (None, 0, Record::Repair(repair)),
        (None, 0, Record::Damage(Damage { is_repaired: true, ..damage })),
    ]
}

fn bytes_of(sample: &(Option<Origin>, u64, Record)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(sample.0, sample.1, &sample.2, &mut out);
    out
}

#[test]
fn the_bytes_are_golden() {
    let head_of = |kind: &str| format!("02{kind}0000 5500000000000000 03000000 09000000");
    let nobody =
        |kind: &str| format!("02{kind}0000 0000000000000000 00000000 00000000 0000000000000000 {NO_PLACE}");
    let id = "4433221100000000 07000000 0100 0200 00000000 00000000";
    let golden = [
        format!(
            "{} 0080000000000000 {NO_PLACE} {id} 0080000000000000 00f1536500000000 05000000 0400000001000000 02000000 \
             05000000 1000000000000000 02000000 07000000 4000000000000000 01000000 a1000000 a2000000 a3000000",
            head_of("01")
        ),
        format!(
            "{} 6400000000000000 {NO_PLACE} {id} 6400000000000000 0200000000000000 01 9900000000000000 eeffc000",
            head_of("02")
        ),
        format!("{} {id} 6400000000000000 0200000000000000 00 0000000000000000 00000000", nobody("02")),
        format!("{} 01000000 {id}", nobody("03")),
        format!("{} {id} 0600000000000000", nobody("04")),
        format!("{} {id} 0020000000000000 03 4d00000000000000", nobody("05")),
        format!("{} 0400000000000000", nobody("06")),
        format!("{} 0800000000000000", nobody("07")),
        format!("{} 0800000000000000", nobody("08")),
        format!("{} 0000000000000000 {NO_PLACE}", head_of("09")),
        format!(
            "{} 0400000000000000 {NO_PLACE} {id} 02000000 06000000 0058000000000000 00f1536500000000 05000000 0300000000000000",
            head_of("0a")
        ),
        format!("{} {id} 02000000 06000000 0300000000000000", nobody("0b")),
        format!(
            "{} 0090000000000000 {NO_PLACE} {id} 02000000 06000000 01 00f1536500000000 05000000 0300000000000000 02 \
             01000000 7700000000000000 b1000000 06000000 7800000000000000 b2000000",
            head_of("0c")
        ),
        format!("{} {id} 02000000 06000000 00 00f1536500000000 05000000 0300000000000000 00", nobody("0c")),
        format!(
            "{} 01 0000000002000000 0300000000000000 0400000000000000 {id} 05000000 10000000 {id} 0600000000000000 0700000000000000 \
             0800000000000000 0900000000000000 0a00000000000000 0b00000000000000 0c00000000000000 0d00000000000000 \
             0e00000000000000 0f00000000000000",
            nobody("0d")
        ),
        format!(
            "{} 0120000000000000 {NO_PLACE} {id} fe1f000000000000 00f1536500000000 05000000 0300000000000000 03000000 3629a2e2 c733eb20 616263",
            head_of("0e")
        ),
        format!(
            "{} {id} 02000000 08000000 01 0058000000000000 00f1536500000000 05000000 0300000000000000 \
             01000000 04000000 05000000 02000000 02000000 04000000 06000000 07000000 \
             01 02000000 1000000000000000 02000000 4000000000000000 01000000 a1000000 a2000000 a3000000",
            nobody("0f")
        ),
        format!(
            "{} {id} 02000000 08000000 01 0058000000000000 00f1536500000000 05000000 0300000000000000 \
             01000000 04000000 05000000 02000000 02000000 04000000 06000000 07000000 00",
            nobody("0f")
        ),
        format!(
            "{} 0200000000000000 1000000000000000 01000000 0800000000000000 4400000000000000 01 \
             03 09000000 6600000000000000 0080000000000000",
            nobody("10")
        ),
        format!("{} 7700000000000000", nobody("11")),
        format!(
            "{} {id} 05000000 a1000000 1000000000000000 4000000000000000 03 01 4d00000000000000",
            nobody("12")
        ),
        format!("{} {id} 0020000000000000 83 4d00000000000000", nobody("05")),
    ];
    for (sample, want) in samples().iter().zip(&golden) {
        let hex: String = bytes_of(sample).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, want.replace(' ', ""), "{:?}", sample.2);
    }
    assert_eq!(samples().len(), golden.len());
}

#[test]
fn every_record_survives_the_way_there_and_back() {
    for sample in samples() {
        let (origin, answer, record) = sample.clone();
        assert_eq!(
            decode(&bytes_of(&sample)),
            Ok(Decoded { origin, answer, at: Some(At::default()), record })
        );
    }
}

#[test]
fn a_place_is_set_in_bytes_that_are_ready() {
    for sample in samples() {
        let at = At { line: Epoch(0x0102_0304), seq: Seq(0x1122_3344_5566_7788) };
        let mut bytes = bytes_of(&sample);
        set_place(&mut bytes, at);
        let (origin, answer, record) = sample;
        assert_eq!(decode(&bytes), Ok(Decoded { origin, answer, at: Some(at), record }));
        assert_eq!(bytes[28..40], [4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    }
}

#[test]
fn records_of_the_version_before_have_no_place() {
    for sample in samples() {
        let mut bytes = bytes_of(&sample);
        bytes[0] = 1;
        bytes.drain(28..40);
        let (origin, answer, record) = sample;
        assert_eq!(decode(&bytes), Ok(Decoded { origin, answer, at: None, record }));
    }
}

#[test]
fn other_versions_kinds_and_reserved_bytes_are_refused() {
    for (at, value) in [(0, 0), (0, 3), (1, 0), (1, 99), (2, 1), (3, 1)] {
        let mut bytes = bytes_of(&samples()[0]);
        bytes[at] = value;
        assert!(decode(&bytes).is_err(), "byte {at} = {value}");
    }
}

#[test]
fn mutated_bytes_never_panic_and_what_decodes_is_sound() {
    let mut rng = SplitMix::new(1);
    for sample in samples() {
        let whole = bytes_of(&sample);
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut]).is_err(), "a part of a record is no record");
        }
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = [0, 0xff, 0x80, rng.next_u64() as u8][rng.below(4) as usize];
            }
            if let Ok(Decoded { record: Record::Write(w), .. }) = decode(&bytes) {
                let pages: u64 = w.placed.iter().map(|p| p.run.pages as u64).sum();
                assert_eq!(pages, w.crcs.len() as u64);
            }
        }
    }
}
