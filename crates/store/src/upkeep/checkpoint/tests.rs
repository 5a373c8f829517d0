//! Golden bytes, the way there and back, bounds, and bytes that are not what they should be.

use disk::SplitMix;

use types::{Fid, Generation, Time};

use super::*;
use crate::records::error::DamageKind;
use crate::records::extent::{Extent, ExtentMap};
use crate::records::patch::Patch;
use crate::state::room::SESSION_BYTES_MAX;

mod hammered;

fn id(fid: u64, stripe: u16) -> ObjectId {
    ObjectId { fid: Fid(fid), generation: Generation(1), component: 0, stripe, snapshot: 0 }
}

fn place(bytes: u64, crc: u32, runs: Vec<Run>) -> Place {
    Place { bytes, crc, runs }
}

fn state(len: u64, extents: &[(u32, u64, u32)]) -> Arc<State> {
    let mut map = ExtentMap::default();
    for (page, start, pages) in extents {
        let crcs: Arc<[u32]> = (0..*pages).map(|i| *start as u32 + i).collect();
        map.put(*page, Extent::new(Run { start: *start, pages: *pages }, &crcs, 0), &mut vec![]);
    }
    Arc::new(State {
        exists: true,
        len,
        mtime: Time::new(-5, 7),
        lease: 1 << 32,
        extents: map,
        patches: Default::default(),
        reserved: Default::default(),
    })
}

/// With pages `[first, limit)` reserved.
fn reserving(state: Arc<State>, first: u32, limit: u32) -> Arc<State> {
    let mut state = Arc::unwrap_or_clone(state);
    state.reserved.insert(first, limit);
    Arc::new(state)
}

/// With a patch on a page that begins so many entries after the log.
fn patched(state: Arc<State>, page: u32, after: u64) -> Arc<State> {
    let mut state = Arc::unwrap_or_clone(state);
    let is_new = state.extents.site(page).is_none();
    state.patches.insert(page, Patch::named(Seq(START.seq.0 + after), is_new));
    Arc::new(state)
}

/// Where the log begins.
const START: LogPoint = LogPoint { seq: Seq(1000), pos: 64_000 };
const DATA_PAGES: u64 = 70_000;

/// Three objects, as a checkpoint of an earlier release has them.
fn objects() -> Vec<(ObjectId, Arc<State>)> {
    let fenced = State { lease: 5, ..State::default() };
    vec![
        (id(16, 0), patched(patched(state(9000, &[(0, 700, 2), (2, 10, 1)]), 0, 300), 2, 1)),
        (id(16, 1), Arc::new(fenced)),
        (id(99, 0), reserving(state(1 << 40, &[(1 << 20, 3, 1)]), 5, 300)),
    ]
}

fn sample() -> (Head, Base) {
    let slot = Slot { sequence: 200, seq: Seq(300), answer: 4096 };
    let damage = Damage {
        object: id(16, 0),
        offset: 4096,
        kind: DamageKind::Checksum,
        found_sec: 9,
        is_repaired: false,
    };
    let run = |start, pages| Run { start, pages };
    let mut named = Named::none_of(DATA_PAGES);
    [run(3, 1), run(10, 1), run(700, 2), run(32_768, 32_768), run(65_536, 5)]
        .into_iter()
        .for_each(|run| named.add(run));
    let head = Head {
        sessions: vec![(SessionId(3), Seq(1), vec![(0, slot), (63, slot)]), (SessionId(4), Seq(2), vec![])],
        damage: vec![damage],
        scrub: crate::records::scrub_state::sample(),
        service: crate::state::service::sample(),
        at: Some(At { line: Epoch(5), seq: Seq(0x2a) }),
        totals: Totals { objects: 2, bytes: 9000 },
        pages: Pages { reserved: 295, patched: 2, patched_over: 1 },
        named,
    };
    let leaves = vec![
        Arc::new(Leaf::new(id(16, 0), 300, place(32_000, 0x0102_0304, vec![run(70, 8)]))),
        Arc::new(Leaf::new(id(99, 0), 1, place(9000, 0x0506_0708, vec![run(2, 1), run(300, 2)]))),
    ];
    (head, Base { leaves, last: Some(id(99, 7)) })
}

fn bytes_of((head, base): &(Head, Base)) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(head, base, &mut out);
    out
}

fn read(bytes: &[u8]) -> io::Result<(Head, Objects)> {
    read_checkpoint(&mut &*bytes, START, DATA_PAGES)
}

fn leaves_of(bytes: &[u8]) -> (Head, Base) {
    match read(bytes).unwrap() {
        (head, Objects::Leaves(base)) => (head, base),
        _ => panic!("the present form has leaves"),
    }
}

const HEAD: &str = "02 0300000000000000 01 02 00 c801 ac02 8020 3f c801 ac02 8020 0400000000000000 02 00 \
    01 1000000000000000 01000000 0000 0000 00000000 00000000 0010000000000000 01 0900000000000000 \
    01 0000000002000000 0300000000000000 0400000000000000 4433221100000000 07000000 0100 0200 00000000 00000000 \
    05000000 10000000 4433221100000000 07000000 0100 0200 00000000 00000000 0600000000000000 0700000000000000 0800000000000000 0900000000000000 0a00000000000000 \
    0b00000000000000 0c00000000000000 0d00000000000000 0e00000000000000 0f00000000000000 \
    0000000005000000 0300000000000000 0900000000000000 0300000000000000";

/// Written by the release before: head, version 4, and objects.
const STREAM: &str = "03 10 01 00 00 01 a846 09 07 8080808010 02 00 f80a 02 bc020000bd020000 00 e70a 01 0a000000 00 02 00 ac02 02 01 \
    00 01 00 01 00 00 00 00 05 00 00 00 \
    53 01 00 00 01 808080808020 09 07 8080808010 01 808040 06 01 03000000 01 05 a702 00";

fn bytes_from(hex: &str) -> Vec<u8> {
    let hex = hex.replace(' ', "");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn stream() -> Vec<u8> {
    bytes_from(&format!("534f583104000000 {HEAD} {STREAM}"))
}

#[test]
fn the_bytes_are_golden() {
    let golden = format!(
        "534f583106000000 {HEAD} 05000000 2a00000000000000 02 a846 a702 02 01 \
        f0a204 03 03 03 01 06 01 b105 02 01 03 01 00 05 \
        02 10 01 00 00 ac02 80fa01 04030201 01 8c01 08 53 01 00 00 01 a846 08070605 02 9701 01 d204 02 00 01 00 07"
    );
    let hex: String = bytes_of(&sample()).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, golden.replace(' ', ""));
}

#[test]
fn a_checkpoint_survives_the_way_there_and_back() {
    let bytes = bytes_of(&sample());
    let (head, base) = leaves_of(&bytes);
    let (wanted, _) = sample();
    assert_eq!(head.at, wanted.at);
    assert_eq!((&head.sessions, &head.damage), (&wanted.sessions, &wanted.damage));
    assert_eq!((head.scrub, head.service), (wanted.scrub, wanted.service));
    assert_eq!((head.totals, head.pages), (wanted.totals, wanted.pages));
    assert_eq!(bytes_of(&(head, base)), bytes);
    // Of another medium.
    assert!(read_checkpoint(&mut &bytes[..], START, DATA_PAGES - 1).is_err());
}

#[test]
fn a_checkpoint_of_the_version_before_has_no_place_in_the_mirror() {
    let mut bytes = bytes_of(&sample());
    let at = bytes.windows(12).position(|w| w == [5, 0, 0, 0, 0x2a, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    bytes.drain(at..at + 12);
    bytes[4] = 5;
    let (head, base) = leaves_of(&bytes);
    assert_eq!((head.at, head.totals, base.leaves.len()), (None, sample().0.totals, 2));
}

#[test]
fn leaves_that_make_no_sense_are_refused() {
    type Spoil = fn(&mut Base);
    let spoils: [(&str, Spoil); 6] = [
        ("order", |base| base.leaves.swap(0, 1)),
        ("twice", |base| base.leaves.push(base.leaves[1].clone())),
        ("empty", |base| base.leaves[1] = Arc::new(Leaf::new(id(99, 0), 0, place(0, 0, vec![])))),
        ("too few pages", |base| {
            base.leaves[1] =
                Arc::new(Leaf::new(id(99, 0), 1, place(9000, 0, vec![Run { start: 2, pages: 2 }])))
        }),
        ("too many", |base| {
            base.leaves[1] =
                Arc::new(Leaf::new(id(99, 0), 1, place(9000, 0, vec![Run { start: 2, pages: 4 }])))
        }),
        ("last before first", |base| {
            base.last = Some(id(99, 0)).map(|id| ObjectId { generation: Generation(0), ..id })
        }),
    ];
    for (what, spoil) in spoils {
        let (head, mut base) = sample();
        spoil(&mut base);
        let mut bytes = Vec::new();
        // Ids go down here, which no checkpoint has.
        if what == "order" {
            let leaf = &base.leaves[0];
            base.leaves[1] = Arc::new(Leaf::new(id(99, 0), 1, place(9000, 0, leaf.place.runs.clone())));
        }
        put_head(&head, &base, &mut bytes);
        assert!(read(&bytes).is_err(), "{what}");
    }
}

/// Checkpoints of releases before leaves, before patches and service counters, and before the scrub.
#[test]
fn the_versions_before_are_read() {
    let (wanted, _) = sample();
    let objects_of = |objects: Objects| match objects {
        Objects::Stream(objects) => objects,
        Objects::Leaves(_) => panic!("these had none"),
    };
    let (head, found) = read(&stream()).unwrap();
    assert_eq!(
        (head.sessions, head.damage, head.scrub),
        (wanted.sessions, wanted.damage.clone(), wanted.scrub)
    );
    let found = objects_of(found);
    assert_eq!(found.len(), 3);
    for ((a, x), (b, y)) in found.iter().zip(&objects()) {
        assert_eq!((a, x.attrs()), (b, y.attrs()));
        assert!((0..20).chain([1 << 20]).all(|p| x.extents.site(p) == y.extents.site(p)));
        assert_eq!(x.reserved, y.reserved);
        let names =
            |s: &State| s.patches.iter().map(|(page, p)| (page, p.since(), p.is_new())).collect::<Vec<_>>();
        assert_eq!(names(x), names(y));
    }
    // One object, without its count of patches.
    let mut bytes = bytes_from(&format!(
        "534f583104000000 {HEAD} 01 53 01 00 00 01 808080808020 09 07 8080808010 01 808040 06 01 03000000 01 05 a702"
    ));
    let mut without = |part: Vec<u8>, version: u8| {
        let at = bytes.windows(part.len()).position(|w| w == part).unwrap();
        bytes.drain(at..at + part.len());
        bytes[4] = version;
        (read(&bytes).unwrap(), part.len() as u64)
    };
    let (mut scrub, mut service) = (Vec::new(), Vec::new());
    put_scrub(&wanted.scrub, &mut scrub);
    put_service(&wanted.service, &mut service);
    let ((head, _), len) = without(service, 3);
    assert_eq!((head.service, head.scrub, len), (Service::default(), wanted.scrub, SERVICE_BYTES));
    let ((head, found), len) = without(scrub, 2);
    assert_eq!((head.scrub, head.damage, len), (Scrub::default(), wanted.damage, SCRUB_BYTES));
    assert_eq!(objects_of(found).len(), 1);
    for version in [0, 1, 7] {
        bytes[4] = version;
        assert!(read(&bytes).is_err(), "version {version}");
    }
}

/// Those of a leaf; with the entry that begins a patch as it is, and not counted from the log's begin.
#[test]
fn objects_of_a_leaf_come_back() {
    let mut leaf = Vec::new();
    objects().iter().for_each(|(id, state)| put_record(&mut leaf, id, state));
    let found: Vec<_> =
        Records::of(&leaf).map(|r| r.map(|r| (r.id, r.state().unwrap()))).collect::<Result<_, _>>().unwrap();
    assert_eq!(found.len(), 3);
    let mut again = Vec::new();
    for ((a, x), (b, y)) in found.iter().zip(&objects()) {
        assert_eq!((a, x.attrs()), (b, y.attrs()));
        assert!(x.patches.iter().map(|(_, p)| p.since()).eq(y.patches.iter().map(|(_, p)| p.since())));
        put_record(&mut again, a, x);
    }
    assert_eq!(again, leaf);
    for cut in 1..leaf.len() {
        let good = Records::of(&leaf[..cut]).filter_map(Result::ok).count();
        let whole = Records::of(&leaf[..cut]).all(|r| r.is_ok());
        assert!(
            good < 3
                && (good == 0
                    || !whole
                    || Records::of(&leaf).take(good).map(|r| r.unwrap().bytes.len()).sum::<usize>() == cut)
        );
    }
}

#[test]
fn bounds_hold_for_the_worst_object_and_session() {
    let mut worst = State {
        exists: true,
        len: types::FILE_SIZE_MAX,
        mtime: Time::new(i64::MIN, 999_999_999),
        lease: u64::MAX,
        extents: ExtentMap::default(),
        patches: Default::default(),
        reserved: Default::default(),
    };
    let last = (types::FILE_SIZE_MAX / 4096 - 1) as u32;
    worst.extents.put(0, Extent::one((1 << 48) - 2, 1), &mut vec![]);
    worst.extents.put(last, Extent::one(0, 1), &mut vec![]);
    let id = ObjectId {
        fid: Fid(u64::MAX),
        generation: Generation(u32::MAX),
        component: u16::MAX,
        stripe: u16::MAX,
        snapshot: 0,
    };
    worst.reserved.insert(1 << 29, (1 << 29) + 1);
    worst.reserved.insert(last - 1, last);
    let mut buf = Vec::new();
    worst.patches.insert(last - 2, Patch::named(Seq(u64::MAX), true));
    put_record(&mut buf, &id, &worst);
    let bound = OBJECT_BYTES_MAX + 2 * (EXTENT_BYTES_MAX + 4) + 2 * RESERVED_PAGE_BYTES + PATCHED_PAGE_BYTES;
    assert!(buf.len() as u64 <= bound, "{}", buf.len());
    let slot = Slot { sequence: u32::MAX, seq: Seq(u64::MAX), answer: u64::MAX };
    let sessions = vec![(SessionId(u64::MAX), Seq(u64::MAX), (0..64).map(|i| (i, slot)).collect())];
    let (head, _) = sample();
    let rest = bytes_of(&(Head { sessions: vec![], ..sample().0 }, Base::default())).len();
    let alone = bytes_of(&(Head { sessions, ..head }, Base::default()));
    assert!((alone.len() - rest) as u64 <= SESSION_BYTES_MAX, "{}", alone.len());
}

#[test]
fn mutated_bytes_never_panic() {
    for whole in [bytes_of(&sample()), stream()] {
        mutate(&whole);
    }
}

fn mutate(whole: &[u8]) {
    for cut in 0..whole.len() {
        assert!(read(&whole[..cut]).is_err(), "a part of a checkpoint is none");
    }
    let mut rng = SplitMix::new(7);
    let mut survived = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] = [0, 0xff, 0x80, rng.next_u64() as u8][rng.below(4) as usize];
        survived += read(&bytes).is_ok() as u32;
    }
    assert!(survived > 0, "the volume's CRC is what guards values; form alone cannot");
}
