//! Golden bytes, the way there and back, and bytes that are not what they should be.

use disk::alloc::Run;
use hammer::Hammer;
use types::{Fid, Generation};

use super::*;
use crate::records::fill::{FillAttrs, FillRecord};
use crate::records::record::{Placed, PunchRecord, TruncateRecord, WriteRecord, Zeroed};

const ORIGIN: Origin = Origin { session: SessionId(0x55), slot: 3, sequence: 9 };

fn object() -> ObjectId {
    ObjectId { fid: Fid(0x1122_3344), generation: Generation(7), component: 1, stripe: 2, snapshot: 0 }
}

fn write() -> Record {
    Record::Write(WriteRecord {
        object: object(),
        end: 0x8000,
        mtime: Time::new(1_700_000_000, 5),
        lease: 4,
        placed: vec![Placed { page: 5, run: Run { start: 0x10, pages: 2 } }],
        crcs: [0xa1, 0xa2].into(),
    })
}

/// The entry's bytes, and what they decode to.
fn sample(page: &[u8]) -> (Vec<u8>, Vec<Change<'_>>) {
    let mtime = Time::new(1_700_000_000, 5);
    let zeroed = vec![Zeroed { page: 1, start: 0x77, crc: 0xb1 }, Zeroed { page: 6, start: 0x78, crc: 0xb2 }];
    let punch = PunchRecord { object: object(), first: 2, limit: 6, is_kept: true, mtime, lease: 3, zeroed };
    let truncate = TruncateRecord { object: object(), len: 100, lease: 2, tail: Some((0x99, 0xc0ffee)) };
    let fence = Record::Fence { object: object(), lease: 6 };
    let (first, second) = (Form::Bytes(page), Form::Lost);
    let mut out = Vec::new();
    begin(6, &mut out);
    put(Some(ORIGIN), 1, &write(), &Pages::Staged(StageId(0x77)), &mut out);
    put(Some(ORIGIN), 2, &write(), &Pages::Inline(vec![first, second]), &mut out);
    put(None, 3, &Record::Truncate(truncate.clone()), &Pages::Inline(vec![Form::Zeros]), &mut out);
    put(None, 4, &Record::Punch(punch), &Pages::Inline(vec![first, Form::Zeros]), &mut out);
    put(None, 0, &fence, &Pages::Inline(vec![]), &mut out);
    put(Some(ORIGIN), 0, &Record::Nothing, &Pages::Inline(vec![]), &mut out);
    let wrote = |crcs, pages| {
        Change::Write(Wrote { object: object(), end: 0x8000, mtime, lease: 4, first: 5, crcs, pages })
    };
    let want = vec![
        wrote(vec![0xa1, 0xa2], Pages::Staged(StageId(0x77))),
        wrote(vec![first.crc(), second.crc()], Pages::Inline(vec![first, second])),
        Change::Truncate { object: object(), len: 100, lease: 2, tail: Some(Form::Zeros) },
        Change::Punch {
            object: object(),
            first: 2,
            limit: 6,
            is_kept: true,
            mtime,
            lease: 3,
            zeroed: vec![(1, first), (6, Form::Zeros)],
        },
        Change::Plain(fence),
        Change::Plain(Record::Nothing),
    ];
    (out, want)
}

#[test]
fn an_entry_survives_the_way_there_and_back() {
    let page = [7; PAGE_SIZE];
    let (bytes, want) = sample(&page);
    let items = decode(&bytes).unwrap();
    let found: Vec<_> = items.iter().map(|item| item.change.clone()).collect();
    assert_eq!(found, want);
    let heads: Vec<_> = items.iter().map(|item| (item.origin.is_some(), item.answer)).collect();
    assert_eq!(heads, [(true, 1), (true, 2), (false, 3), (false, 4), (false, 0), (true, 0)]);
}

#[test]
fn the_bytes_are_golden() {
    let mut bytes = Vec::new();
    begin(2, &mut bytes);
    put(Some(ORIGIN), 1, &write(), &Pages::Staged(StageId(0x77)), &mut bytes);
    let fence = Record::Fence { object: object(), lease: 6 };
    put(None, 0, &fence, &Pages::Inline(vec![]), &mut bytes);
    let id = "4433221100000000 07000000 0100 0200 00000000 00000000";
    let want = format!(
        "01000000 02000000 01 5500000000000000 03000000 09000000 0100000000000000 {id} 0080000000000000 \
         00f1536500000000 05000000 0400000000000000 05000000 02000000 a1000000 a2000000 01 7700000000000000 \
         00 48000000 02040000 0000000000000000 00000000 00000000 0000000000000000 00000000 0000000000000000 \
         {id} 0600000000000000"
    );
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, want.replace(' ', ""));
}

#[test]
fn a_page_that_changed_on_the_way_is_refused() {
    let page = [7; PAGE_SIZE];
    let (mut bytes, _) = sample(&page);
    let at = bytes.windows(PAGE_SIZE).position(|w| w == page).unwrap();
    bytes[at + 100] ^= 1;
    assert_eq!(decode(&bytes), Err(Malformed("CRC of a shipped page")));
}

#[test]
fn private_records_and_records_with_places_do_not_travel_as_they_are() {
    let plain = |record: &Record| {
        let mut bytes = Vec::new();
        begin(1, &mut bytes);
        bytes.push(PLAIN);
        let mut encoded = Vec::new();
        record::encode(None, 0, record, &mut encoded);
        (encoded.len() as u32).put(&mut bytes);
        bytes.extend_from_slice(&encoded);
        decode(&bytes).map(|items| items.len())
    };
    assert_eq!(plain(&Record::Nothing), Ok(1));
    assert!(plain(&write()).is_err());
    assert!(plain(&Record::DamageClear { fid: Fid(1) }).is_err());
}

#[test]
fn a_shipped_entry_is_read_or_refused() {
    let page = [7; PAGE_SIZE];
    let (bytes, _) = sample(&page);
    let mut small = Vec::new();
    begin(2, &mut small);
    put(Some(ORIGIN), 1, &write(), &Pages::Staged(StageId(0x77)), &mut small);
    put(None, 0, &Record::Fence { object: object(), lease: 6 }, &Pages::Inline(vec![]), &mut small);
    let hammer = Hammer::new("shipped entry").seeds([bytes, small]).bound(48, 4096 + 2 * 4200);
    let outcome = hammer.run(
        |bytes| decode(bytes).ok().map(|items| items.len()),
        |bytes, count| {
            assert!(count <= bytes.len() / 32);
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{outcome:?}");
}

#[test]
fn a_fill_survives_the_way_and_has_each_of_its_pages() {
    let attrs = FillAttrs { exists: true, len: 0x5800, mtime: Time::new(1, 2), lease: 3 };
    let (reserved, pages) = (vec![(4, 5)], vec![(2, 3), (6, 7)]);
    let range = FillRange { object: object(), first: 2, limit: 8, attrs, reserved, pages };
    let record = Record::Fill(FillRecord { range: range.clone(), placed: None });
    let page = [7; PAGE_SIZE];
    let forms = vec![Form::Bytes(&page), Form::Lost];
    let crcs: Vec<u32> = forms.iter().map(Form::crc).collect();
    let mut bytes = Vec::new();
    begin(2, &mut bytes);
    put(None, 0, &record, &Pages::Inline(forms.clone()), &mut bytes);
    put_fill(&range, &[1, 2], &Pages::Staged(StageId(5)), &mut bytes);
    let found: Vec<_> = decode(&bytes).unwrap().into_iter().map(|item| item.change).collect();
    let want = [
        Change::Fill { range: range.clone(), crcs, pages: Pages::Inline(forms) },
        Change::Fill { range, crcs: vec![1, 2], pages: Pages::Staged(StageId(5)) },
    ];
    assert_eq!(found, want);
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len}");
    }
    // A record of the log has places, and does not travel.
    let mut plain = Vec::new();
    begin(1, &mut plain);
    plain.push(PLAIN);
    let mut inner = Vec::new();
    record::encode(None, 0, &record, &mut inner);
    (inner.len() as u32).put(&mut plain);
    plain.extend(inner);
    assert!(decode(&plain).is_err());
}
