//! The way there and back, and bytes that are not what they should be.

use types::{Fid, Generation};

use super::*;

fn range() -> FillRange {
    let object = ObjectId { fid: Fid(7), generation: Generation(1), component: 0, stripe: 2, snapshot: 0 };
    let attrs = FillAttrs { exists: true, len: 40_000, mtime: Time::new(5, 6), lease: 9 };
    FillRange { object, first: 2, limit: 10, attrs, reserved: vec![(5, 6)], pages: vec![(2, 4), (8, 10)] }
}

fn bytes_of(range: &FillRange) -> Vec<u8> {
    let mut out = Vec::new();
    range.put(&mut out);
    out
}

#[test]
fn ranges_survive_the_way_and_impossible_ones_are_refused() {
    let get = |range: &FillRange| FillRange::get(&mut Reader::new(&bytes_of(range)));
    assert_eq!(get(&range()), Ok(range()));
    let none = FillAttrs { lease: 4, ..FillAttrs::default() };
    let gone =
        FillRange { first: 0, limit: u32::MAX, attrs: none, reserved: vec![], pages: vec![], ..range() };
    assert_eq!(get(&gone), Ok(gone.clone()), "only its lease version is known");
    for bad in [
        FillRange { limit: 2, pages: vec![], reserved: vec![], ..range() },
        FillRange { limit: 9, ..range() },
        FillRange { first: 3, ..range() },
        FillRange { pages: vec![(8, 10), (2, 4)], ..range() },
        FillRange { pages: vec![(2, 2)], ..range() },
        FillRange { reserved: vec![(3, 5)], ..range() },
        FillRange { limit: 1000, pages: vec![(2, 300)], reserved: vec![], ..range() },
        FillRange { attrs: FillAttrs { len: u64::MAX, ..range().attrs }, ..range() },
        FillRange { attrs: FillAttrs { exists: false, ..range().attrs }, ..range() },
        FillRange { limit: 7, ..gone },
    ] {
        assert!(get(&bad).is_err(), "{bad:?}");
    }
}

#[test]
fn each_page_with_bytes_has_its_place() {
    let runs = vec![Run { start: 50, pages: 3 }, Run { start: 9, pages: 1 }];
    let placed = Some(FillPlaces { runs, crcs: [1, 2, 3, 4].into() });
    let fill = FillRecord { range: range(), placed };
    let sites: Vec<_> = fill.sites().collect();
    assert_eq!(sites, [(2, 50, 1), (3, 51, 2), (8, 52, 3), (9, 9, 4)]);
    let mut out = Vec::new();
    fill.put(&mut out);
    assert_eq!(FillRecord::get(&mut Reader::new(&out)), Ok(fill));
    let own = FillRecord { range: range(), placed: None };
    assert_eq!(own.sites().count(), 0);
    let count = bytes_of(&range()).len() + 1;
    for (at, byte) in [(count, 1), (count + 12, 2), (count + 12, 0)] {
        let mut bad = out.clone();
        bad[at] = byte;
        assert!(FillRecord::get(&mut Reader::new(&bad)).is_err(), "{at}");
    }
}

#[test]
fn sessions_survive_the_way_and_lie_in_their_range() {
    let slot = Slot { sequence: 3, seq: Seq(4), answer: 5 };
    let one = FilledSession { session: SessionId(7), begun: Seq(2), slots: vec![(0, slot), (63, slot)] };
    let two = FilledSession { session: SessionId(9), begun: Seq(3), slots: vec![] };
    let fill =
        FillSessions { first: SessionId(7), last: SessionId(9), sessions: vec![one.clone(), two.clone()] };
    let get = |fill: &FillSessions| {
        let mut out = Vec::new();
        fill.put(&mut out);
        FillSessions::get(&mut Reader::new(&out))
    };
    assert_eq!(get(&fill), Ok(fill.clone()));
    let slots = |slots: Vec<(u8, Slot)>| vec![FilledSession { slots, ..one.clone() }];
    for bad in [
        FillSessions { last: SessionId(8), ..fill.clone() },
        FillSessions { first: SessionId(8), ..fill.clone() },
        FillSessions { first: SessionId(10), sessions: vec![], ..fill.clone() },
        FillSessions { sessions: vec![two, one.clone()], ..fill.clone() },
        FillSessions { sessions: slots(vec![(64, slot)]), ..fill.clone() },
        FillSessions { sessions: slots(vec![(2, slot), (2, slot)]), ..fill.clone() },
        FillSessions { sessions: slots(vec![(2, Slot::default())]), ..fill.clone() },
    ] {
        assert!(get(&bad).is_err(), "{bad:?}");
    }
}
