//! Golden bytes, the way there and back, bounds, and bytes that are not what they should be.

use disk::SplitMix;

use super::*;
use crate::error::DamageKind;

mod hammered;

fn id(fid: u64, stripe: u16) -> ObjectId {
    ObjectId { fid: Fid(fid), generation: Generation(1), component: 0, stripe, snapshot: 0 }
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

fn sample() -> Snapshot {
    let slot = Slot { sequence: 200, seq: Seq(300), answer: 4096 };
    let damage = Damage { object: id(16, 0), offset: 4096, kind: DamageKind::Checksum, found_sec: 9 };
    let fenced = State { lease: 5, ..State::default() };
    Snapshot {
        sessions: vec![(SessionId(3), Seq(1), vec![(0, slot), (63, slot)]), (SessionId(4), Seq(2), vec![])],
        damage: vec![damage],
        scrub: crate::scrub::sample(),
        service: crate::service::sample(),
        log_begin: START.seq,
        objects: vec![
            (id(16, 0), patched(patched(state(9000, &[(0, 700, 2), (2, 10, 1)]), 0, 300), 2, 1)),
            (id(16, 1), Arc::new(fenced)),
            (id(99, 0), reserving(state(1 << 40, &[(1 << 20, 3, 1)]), 5, 300)),
        ],
    }
}

fn bytes_of(s: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    write_snapshot(s, &mut out).unwrap();
    out
}

#[test]
fn the_bytes_are_golden() {
    let golden = "534f583104000000 02 0300000000000000 01 02 00 c801 ac02 8020 3f c801 ac02 8020 0400000000000000 02 00 \
        01 1000000000000000 01000000 0000 0000 00000000 00000000 0010000000000000 01 0900000000000000 \
        01 0000000002000000 0300000000000000 0400000000000000 4433221100000000 07000000 0100 0200 00000000 00000000 \
        05000000 10000000 4433221100000000 07000000 0100 0200 00000000 00000000 0600000000000000 0700000000000000 0800000000000000 0900000000000000 0a00000000000000 \
        0b00000000000000 0c00000000000000 0d00000000000000 0e00000000000000 0f00000000000000 \
        0000000005000000 0300000000000000 0900000000000000 0300000000000000 \
        03 10 01 00 00 01 a846 09 07 8080808010 02 00 f80a 02 bc020000bd020000 00 e70a 01 0a000000 00 02 00 ac02 02 01 \
        00 01 00 01 00 00 00 00 05 00 00 00 \
        53 01 00 00 01 808080808020 09 07 8080808010 01 808040 06 01 03000000 01 05 a702 00";
    let hex: String = bytes_of(&sample()).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, golden.replace(' ', ""));
}

#[test]
fn a_snapshot_survives_the_way_there_and_back() {
    let bytes = bytes_of(&sample());
    let back = read_snapshot(&mut &bytes[..], START).unwrap();
    assert_eq!(back.sessions, sample().sessions);
    assert_eq!(back.damage, sample().damage);
    assert_eq!((back.scrub, back.service), (sample().scrub, sample().service));
    assert_eq!(back.objects.len(), 3);
    for ((a, x), (b, y)) in back.objects.iter().zip(&sample().objects) {
        assert_eq!((a, x.attrs()), (b, y.attrs()));
        assert!((0..20).chain([1 << 20]).all(|p| x.extents.site(p) == y.extents.site(p)));
        assert_eq!(x.reserved, y.reserved);
        let names =
            |s: &State| s.patches.iter().map(|(page, p)| (page, p.since(), p.is_new())).collect::<Vec<_>>();
        assert_eq!(names(x), names(y));
    }
    assert_eq!(bytes_of(&back), bytes);
}

/// What releases wrote before there were patches and a count of what was written, or a scrub.
#[test]
fn the_versions_before_are_read() {
    let objects = vec![(id(16, 0), state(9000, &[(0, 700, 2), (2, 10, 1)]))];
    let mut bytes = bytes_of(&Snapshot { objects, ..sample() });
    assert_eq!(bytes.pop(), Some(0), "the count of patches");
    let mut without = |part: Vec<u8>, version: u8| {
        let at = bytes.windows(part.len()).position(|w| w == part).unwrap();
        bytes.drain(at..at + part.len());
        bytes[4] = version;
        (read_snapshot(&mut &bytes[..], START).unwrap(), part.len() as u64)
    };
    let (mut scrub, mut service) = (Vec::new(), Vec::new());
    put_scrub(&sample().scrub, &mut scrub);
    put_service(&sample().service, &mut service);
    let (back, len) = without(service, 3);
    assert_eq!((back.service, back.scrub, len), (Service::default(), sample().scrub, SERVICE_BYTES));
    let (back, len) = without(scrub, 2);
    assert_eq!((back.scrub, back.damage, len), (Scrub::default(), sample().damage, SCRUB_BYTES));
    assert_eq!(back.objects.len(), 1);
    for version in [0, 1, 5] {
        bytes[4] = version;
        assert!(read_snapshot(&mut &bytes[..], START).is_err(), "version {version}");
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
    worst.patches.insert(last - 2, Patch::named(Seq(u32::MAX.into()), true));
    put_object(&mut buf, &id, &worst, 0, Seq(0));
    let bound = OBJECT_BYTES_MAX + 2 * (EXTENT_BYTES_MAX + 4) + 2 * RESERVED_PAGE_BYTES + PATCHED_PAGE_BYTES;
    assert!(buf.len() as u64 <= bound, "{}", buf.len());
    let slot = Slot { sequence: u32::MAX, seq: Seq(u64::MAX), answer: u64::MAX };
    let sessions = vec![(SessionId(u64::MAX), Seq(u64::MAX), (0..64).map(|i| (i, slot)).collect())];
    let (scrub, service, log_begin) = (Scrub::default(), Service::default(), Seq(0));
    let alone = bytes_of(&Snapshot { sessions, damage: vec![], scrub, service, log_begin, objects: vec![] });
    assert!(alone.len() as u64 - 11 - SCRUB_BYTES - SERVICE_BYTES <= SESSION_BYTES_MAX, "{}", alone.len());
}

#[test]
fn mutated_bytes_never_panic() {
    let whole = bytes_of(&sample());
    for cut in 0..whole.len() {
        assert!(read_snapshot(&mut &whole[..cut], START).is_err(), "a part of a checkpoint is none");
    }
    let mut rng = SplitMix::new(7);
    let mut survived = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] = [0, 0xff, 0x80, rng.next_u64() as u8][rng.below(4) as usize];
        survived += read_snapshot(&mut &bytes[..], START).is_ok() as u32;
    }
    assert!(survived > 0, "the volume's CRC is what guards values; form alone cannot");
}
