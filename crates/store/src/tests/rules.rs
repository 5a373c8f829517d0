//! The order rules by name, damage, checksums, gates.

use disk::FaultyDisk;

use super::*;

#[test]
fn o1_space_is_reused_only_after_the_superseding_entry_is_sealed() {
    let rig = Rig::placing();
    let (old, new) = (pattern(1, 4096), pattern(2, 4096));
    rig.write(id(1), 0, &old).unwrap();
    rig.seal();
    let place = rig.place(id(1), 0);
    rig.write(id(1), 0, &new).unwrap();
    // The lowest free address would be the old place, were it free.
    for n in 10..30 {
        rig.write(id(n), 0, &pattern(n, 4096)).unwrap();
        assert_ne!(rig.place(id(n), 0), place, "not superseded for good yet");
    }
    assert_eq!(rig.crashed(Crash::DropAll).content(id(1)).unwrap(), old, "the flushed content is intact");
    // Flushed is not enough: recovery must know that it was.
    rig.store.flush().unwrap();
    rig.write(id(40), 0, &new).unwrap();
    assert_ne!(rig.place(id(40), 0), place);
    rig.seal();
    rig.write(id(41), 0, &new).unwrap();
    assert_eq!(rig.place(id(41), 0), place, "sealed: the lowest address is used again first");
}

#[test]
fn o2_recovery_cuts_at_the_first_entry_whose_data_is_not_there() {
    let rig = Rig::new();
    rig.write(id(1), 0, &pattern(1, 8192)).unwrap();
    rig.seal();
    rig.write(id(2), 0, &pattern(2, 8192)).unwrap();
    rig.write(id(3), 0, &pattern(3, 8192)).unwrap();
    rig.write(id(4), 0, &pattern(4, 8192)).unwrap();
    let place = rig.place(id(3), 1);
    let torn = rig.disk.crash(Crash::KeepAll);
    torn.write_at(&[0; 512], place + 1024).unwrap();
    let again = Rig::open(Arc::new(torn));
    let names: Vec<_> = again.store.list(None, 10).unwrap().0.iter().map(|(id, _)| *id).collect();
    assert_eq!(names, [id(1), id(2)], "the entry with torn data and what follows it are gone");
    assert_eq!(again.content(id(2)).unwrap(), pattern(2, 8192));
    // Bytes that were cut away stay away.
    again.write(id(5), 0, &[5; 100]).unwrap();
    let third = again.crashed(Crash::KeepAll);
    assert_eq!(third.store.list(None, 10).unwrap().0.len(), 3);
}

#[test]
fn o2_data_of_flushed_entries_is_not_cut_but_damage() {
    let rig = Rig::new();
    rig.write(id(1), 0, &pattern(1, 8192)).unwrap();
    rig.seal();
    rig.write(id(2), 0, &pattern(2, 100)).unwrap();
    rig.flip(rig.place(id(1), 1) + 7);
    let again = rig.crashed(Crash::KeepAll);
    assert!(matches!(again.read(id(1), 0, 8192), Err(StoreError::Damaged { offset: 4096, .. })));
    assert_eq!(again.content(id(2)).unwrap(), pattern(2, 100));
}

#[test]
fn o2_an_unreadable_page_is_damage_and_does_not_cut_what_may_be_flushed() {
    let disk = Arc::new(FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES))));
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open_with(disk.clone(), PLACING).unwrap();
    let place = |n, page| {
        let site = store.index.get(&id(n)).unwrap().read().extents.site(page).unwrap();
        store.at(site.page)
    };
    write(&store, id(1), 0, &pattern(1, 4 * 4096), None).unwrap();
    write(&store, id(2), 0, &pattern(2, 4096), None).unwrap();
    write(&store, id(3), 0, &pattern(3, 5000), None).unwrap();
    store.truncate(&Truncate { object: id(3), len: 100, lease: 0, gate: &anyone, origin: None }).unwrap();
    let lost = [place(1, 2), place(2, 0), place(3, 0)];
    // This page is superseded, so its loss does not matter.
    write(&store, id(2), 0, &pattern(4, 4096), None).unwrap();
    // Flushed as a client asks for it: the log does not say so yet.
    store.flush().unwrap();
    drop(store);
    lost.into_iter().for_each(|at| disk.make_unreadable(at..at + 1));
    let again = Engine::open(disk.clone()).unwrap();
    assert_eq!(again.take_unreadable(), [(id(1), 8192), (id(3), 0)]);
    assert_eq!(again.take_unreadable(), []);
    assert_eq!(read(&again, id(2), 0, 4096).unwrap().unwrap(), pattern(4, 4096));
    assert_eq!(read(&again, id(1), 0, 8192).unwrap().unwrap(), pattern(1, 4 * 4096)[..8192]);
    let failed = read(&again, id(1), 0, 16384).unwrap_err();
    assert!(matches!(failed, StoreError::Damaged { offset: 8192, kind: DamageKind::Medium, .. }), "{failed}");
}

#[test]
fn o5_the_incarnation_rises_before_anything_is_served() {
    let rig = Rig::new();
    let first = rig.store.incarnation();
    // Power fails at once: the next start must not take the same number again.
    let second = rig.crashed(Crash::DropAll);
    assert!(second.store.incarnation() > first);
    let third = second.crashed(Crash::DropAll);
    assert!(third.store.incarnation() > second.store.incarnation());
    third.store.close().unwrap();
    let fourth = third.crashed(Crash::DropAll);
    assert_eq!(fourth.store.incarnation(), third.store.incarnation(), "a clean stop is proof enough");
}

#[test]
fn a_flipped_bit_in_any_data_page_is_damage_and_never_other_bytes() {
    let rig = Rig::placing();
    let bytes = pattern(1, 5 * 4096 + 100);
    rig.write(id(1), 0, &bytes).unwrap();
    for page in 0..6u32 {
        let at = rig.place(id(1), page) + 13 * page as u64;
        rig.flip(at);
        let offset = page as u64 * 4096;
        let damaged = |r: Result<Option<Vec<u8>>, StoreError>| matches!(r, Err(StoreError::Damaged { offset: o, kind: DamageKind::Checksum, .. }) if o == offset);
        assert!(damaged(rig.read(id(1), 0, 1 << 20)), "page {page}, whole");
        assert!(damaged(rig.read(id(1), offset + 50, 10)), "page {page}, ten bytes that are good");
        assert_eq!(rig.store.verify(id(1), 0, u32::MAX).unwrap().bad, [(offset, DamageKind::Checksum)]);
        // A merge would give the bad bytes a good checksum.
        assert!(matches!(rig.write(id(1), offset + 60, b"x"), Err(StoreError::Damaged { .. })));
        rig.flip(at);
        assert_eq!(rig.content(id(1)).unwrap(), bytes);
    }
    // A whole-page write does not need the old bytes, so it heals.
    rig.flip(rig.place(id(1), 2));
    rig.write(id(1), 8192, &bytes[8192..12288]).unwrap();
    assert_eq!(rig.content(id(1)).unwrap(), bytes);
}

#[test]
fn damage_records_persist_once_and_can_be_cleared() {
    let rig = Rig::new();
    let damage = |n, offset| Damage {
        object: id(n),
        offset,
        kind: DamageKind::Missing,
        found_sec: 5,
        is_repaired: false,
    };
    assert_eq!(rig.store.record_damage(damage(1, 0)).unwrap(), Recorded::New);
    assert_eq!(rig.store.record_damage(damage(1, 0)).unwrap(), Recorded::Known);
    rig.store.checkpoint().unwrap();
    rig.store.record_damage(damage(1, 4096)).unwrap();
    rig.store.record_damage(damage(2, 0)).unwrap();
    let rig = rig.crashed(Crash::KeepAll);
    assert_eq!(rig.store.damage(), [damage(1, 0), damage(1, 4096), damage(2, 0)]);
    rig.store.clear_damage(id(1).fid).unwrap();
    assert_eq!(rig.store.damage(), [damage(2, 0)]);
    rig.store.clear_damage(Fid(0)).unwrap();
    assert_eq!(rig.crashed(Crash::KeepAll).store.damage(), []);
}

#[test]
fn a_full_damage_list_says_so() {
    let rig = Rig::new();
    let damage =
        |n| Damage { object: id(n), offset: 0, kind: DamageKind::Missing, found_sec: 5, is_repaired: false };
    for n in 0..DAMAGE_MAX as u64 {
        assert_eq!(rig.store.record_damage(damage(n)).unwrap(), Recorded::New);
    }
    let seq = rig.store.vol.last_seq();
    assert_eq!(rig.store.record_damage(damage(1 << 20)).unwrap(), Recorded::Full);
    assert_eq!(rig.store.record_damage(damage(7)).unwrap(), Recorded::Known, "that one is on it");
    assert_eq!((rig.store.damage().len(), rig.store.vol.last_seq()), (DAMAGE_MAX, seq));
}

#[test]
fn bytes_that_arrive_wrong_are_refused_before_anything_is_written() {
    let rig = Rig::new();
    let data = pattern(1, 9000);
    let mut crcs = fragment_crcs(10, &data);
    crcs[2] ^= 1;
    rig.disk.record();
    let w = Write {
        object: id(1),
        offset: 10,
        data: &data,
        crcs: &crcs,
        mtime: Time::default(),
        lease: 0,
        gate: &anyone,
        origin: None,
        holder: None,
    };
    let at = match rig.store.write(&w) {
        Err(StoreError::BadChecksum { offset, .. }) => offset,
        other => panic!("{other:?}"),
    };
    assert_eq!(at, 8192);
    assert_eq!(rig.disk.take_recording().unwrap().events, []);
    assert_eq!(rig.store.stat(id(1)).unwrap(), None);
}

#[test]
fn the_gate_sees_the_object_as_it_is_and_a_refusal_leaves_nothing() {
    let rig = Rig::new();
    rig.write(id(1), 0, &[1; 5000]).unwrap();
    rig.store.fence(id(1), 7).unwrap();
    let free = rig.store.usage().bytes_free;
    let seq = rig.store.vol.last_seq();
    let gate = |a: &Attrs| match a.lease > 6 {
        true => Err(Fault::from(Code::Fenced)),
        false => Ok(()),
    };
    let crcs = fragment_crcs(0, &[2; 10]);
    let w = Write {
        object: id(1),
        offset: 0,
        data: &[2; 10],
        crcs: &crcs,
        mtime: Time::default(),
        lease: 6,
        gate: &gate,
        origin: None,
        holder: None,
    };
    let is_fenced = |e: StoreError| matches!(e, StoreError::Refused(f) if f.code == Code::Fenced);
    assert!(is_fenced(rig.store.write(&w).unwrap_err()));
    let t = Truncate { object: id(1), len: 0, lease: 6, gate: &gate, origin: None };
    assert!(is_fenced(rig.store.truncate(&t).unwrap_err()));
    let r = Read { object: id(1), offset: 0, len: 1, gate: &gate };
    assert!(is_fenced(rig.store.read(&r, &mut Buf::new(), &mut vec![]).unwrap_err()));
    assert_eq!((rig.store.usage().bytes_free, rig.store.vol.last_seq()), (free, seq));
    rig.store.fence(id(1), 3).unwrap();
    assert_eq!(
        (rig.store.lease(id(1)).unwrap(), rig.store.vol.last_seq()),
        (7, seq),
        "a lower version changes and logs nothing"
    );
}

#[test]
fn the_gate_is_asked_again_at_the_moment_of_the_change() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let rig = Rig::new();
    rig.write(id(1), 0, &[1; 5000]).unwrap();
    let (usage, seq) = (rig.store.usage(), rig.store.vol.last_seq());
    // Open while the request is prepared, closed when it would change things: a fence came in between.
    let asked = AtomicU32::new(0);
    let gate = |_: &Attrs| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Fault::from(Code::Fenced)),
    };
    let crcs = fragment_crcs(0, &[2; 10]);
    let w = Write {
        object: id(1),
        offset: 0,
        data: &[2; 10],
        crcs: &crcs,
        mtime: Time::default(),
        lease: 0,
        gate: &gate,
        origin: None,
        holder: None,
    };
    assert!(matches!(rig.store.write(&w), Err(StoreError::Refused(_))));
    asked.store(0, Ordering::Relaxed);
    let t = Truncate { object: id(1), len: 100, lease: 0, gate: &gate, origin: None };
    assert!(matches!(rig.store.truncate(&t), Err(StoreError::Refused(_))));
    assert_eq!(
        (rig.store.usage(), rig.store.vol.last_seq()),
        (usage, seq),
        "the space that was taken went back"
    );
    assert_eq!(rig.content(id(1)).unwrap(), [1; 5000]);
}

#[test]
fn holes_cuts_and_extensions_read_as_zeros() {
    let rig = Rig::new();
    rig.write(id(1), 20_000, &[9; 100]).unwrap();
    let mut want = vec![0; 20_100];
    want[20_000..].fill(9);
    assert_eq!(rig.content(id(1)).unwrap(), want);
    assert_eq!(rig.store.stat(id(1)).unwrap().unwrap().used, 4096, "a hole takes no space");
    rig.truncate(id(1), 20_050).unwrap();
    rig.truncate(id(1), 30_000).unwrap();
    want.truncate(20_050);
    want.resize(30_000, 0);
    assert_eq!(rig.content(id(1)).unwrap(), want, "what was cut away does not come back");
    rig.write(id(1), 29_999, &[1]).unwrap();
    rig.truncate(id(1), 0).unwrap();
    assert_eq!(rig.store.stat(id(1)).unwrap().map(|a| (a.len, a.used)), Some((0, 0)));
    assert_eq!(rig.truncate(id(2), 50).unwrap().answer, 0);
    assert_eq!(rig.store.stat(id(2)).unwrap(), None, "truncation makes nothing");
    assert_eq!(rig.read(id(2), 0, 10).unwrap(), None);
    assert_eq!(rig.read(id(1), u64::MAX - 5, 5).unwrap(), Some(vec![]), "past the end is nothing");
}

#[test]
fn listing_goes_page_by_page_and_skips_what_only_has_a_lease() {
    let rig = Rig::new();
    for n in 0..50 {
        match n % 5 {
            0 => rig.write(id(n), 0, &[1]).map(|_| ()).unwrap(),
            _ => rig.store.fence(id(n), 1).unwrap(),
        }
    }
    let (mut after, mut seen) = (None, vec![]);
    loop {
        let (page, more) = rig.store.list(after, 3).unwrap();
        assert!(page.len() <= 3 && (page.len() == 3 || !more));
        seen.extend(page.iter().map(|(id, _)| *id));
        after = seen.last().copied();
        if !more {
            break;
        }
    }
    assert_eq!(seen, (0..50).step_by(5).map(id).collect::<Vec<_>>());
}

#[test]
fn a_medium_error_is_damage_of_the_page_that_has_it() {
    use disk::{FaultyDisk, MemDisk, Op, When};
    let faulty = Arc::new(FaultyDisk::new(Arc::new(MemDisk::new(MEDIUM_BYTES))));
    Engine::format(&*faulty, label(), false).unwrap();
    let store = Engine::open_with(faulty.clone(), PLACING).unwrap();
    write(&store, id(1), 0, &pattern(1, 40_000), None).unwrap();
    faulty.fail(Op::Read, When::Always);
    let e = read(&store, id(1), 4096, 8192).unwrap_err();
    assert!(matches!(e, StoreError::Damaged { offset: 4096, kind: DamageKind::Medium, .. }), "{e}");
    // One hiccup is not damage: the read is tried again.
    faulty.fail(Op::Read, When::Once);
    assert!(read(&store, id(1), 4096, 8192).is_ok());
    faulty.fail(Op::Write, When::Once);
    let free = store.usage().bytes_free;
    assert!(matches!(write(&store, id(2), 0, &[1; 4096], None), Err(StoreError::Medium { .. })));
    assert_eq!(
        (store.usage().bytes_free, store.stat(id(2)).unwrap()),
        (free, None),
        "a failed write leaves nothing"
    );
}

/// Reads of data never come back in time; the log does.
struct HangingData(Arc<SimDisk>);

impl Disk for HangingData {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.0.discard(offset, len)
    }
    fn read_many(&self, _: &mut [(u64, &mut [u8])]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::TimedOut.into())
    }
}

#[test]
fn o2_a_device_that_hangs_fails_the_start_and_is_no_damage() {
    let rig = Rig::placing();
    rig.write(id(1), 0, &pattern(1, 8192)).unwrap();
    rig.store.flush().unwrap();
    rig.write(id(1), 0, &pattern(2, 8192)).unwrap();
    // The last write was not flushed, and has not reached the medium.
    let medium = Arc::new(rig.disk.crash(Crash::KeepAll));
    let place = rig.place(id(1), 1);
    medium.write_at(&[0; 4096], place).unwrap();
    let hung = Engine::open(Arc::new(HangingData(medium.clone()))).map(|_| ());
    assert!(matches!(hung, Err(StoreError::Hung { .. })), "{hung:?}");
    let store = Engine::open(medium).unwrap();
    assert_eq!(store.take_unreadable(), []);
    assert_eq!(read(&store, id(1), 0, 8192).unwrap().unwrap(), pattern(1, 8192), "cut, not kept");
}
