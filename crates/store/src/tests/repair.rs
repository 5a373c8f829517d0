//! Repair from the other member (store-RR1, store-RR2): two stores with equal content stand for the members.

use super::*;
use crate::state::finding::Planted;

/// Two members with one object of these bytes, all in pages of their own.
fn members(bytes: &[u8]) -> (Rig, Rig) {
    let member = || {
        let rig = Rig::placing();
        rig.write(id(1), 0, bytes).unwrap();
        rig.seal();
        rig
    };
    (member(), member())
}

/// As a daemon does it. The number of pages that were repaired.
fn repair(store: &Engine, other: &Engine) -> usize {
    let lost = store.lost_pages(id(1), 0, 256).unwrap();
    let wanted: Vec<(u32, u32)> = lost.iter().map(|lost| (lost.page, lost.crc())).collect();
    let mut bytes = Vec::new();
    let given = other.give_pages(id(1), &wanted, &mut bytes).unwrap();
    let mut pages = bytes.chunks_exact(PAGE_SIZE);
    let sound = lost.iter().zip(given).filter(|(_, given)| *given == Given::Sound);
    sound
        .filter(|(lost, _)| store.repair(lost, pages.next().unwrap().try_into().unwrap(), 50).unwrap())
        .count()
}

fn finding(page: u64, kind: DamageKind, found_sec: u64, is_repaired: bool) -> Damage {
    Damage { object: id(1), offset: page * 4096, kind, found_sec, is_repaired }
}

#[test]
fn a_damaged_page_gets_the_other_members_bytes_and_is_listed_as_repaired() {
    let bytes = pattern(1, 40_000);
    let (rig, other) = members(&bytes);
    let before = [2, 5, 9].map(|page| rig.place(id(1), page));
    before.iter().for_each(|at| rig.flip(at + 100));
    // One of them is known as damage; the offset is that of its page.
    rig.store.record_damage(finding(5, DamageKind::Checksum, 7, false)).unwrap();
    let error = rig.read(id(1), 0, 40_000).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { offset: 8192, .. }), "{error}");
    assert_eq!(repair(&rig.store, &other.store), 3);
    assert_eq!(rig.content(id(1)), Some(bytes.clone()));
    let want =
        [2, 5, 9].map(|page| finding(page, DamageKind::Checksum, if page == 5 { 7 } else { 50 }, true));
    assert_eq!(rig.store.damage(), want);
    assert!([2, 5, 9].iter().zip(before).all(|(page, at)| rig.place(id(1), *page) != at), "they have moved");
    assert_eq!(repair(&rig.store, &other.store), 0);
    let used = |rig: &Rig| rig.store.usage().bytes_free;
    rig.seal();
    assert_eq!(used(&rig), used(&other), "the old places are free again");
    for with_checkpoint in [false, true] {
        if with_checkpoint {
            rig.store.checkpoint().unwrap();
        }
        let again = rig.crashed(Crash::KeepAll);
        assert_eq!(again.content(id(1)), Some(bytes.clone()));
        assert_eq!(again.store.damage(), want);
        assert_eq!(used(&again), used(&other));
    }
    // It rots again, at its new place: that is a new finding.
    rig.flip(rig.place(id(1), 5));
    assert_eq!(rig.store.record_damage(finding(5, DamageKind::Checksum, 60, false)).unwrap(), Recorded::New);
    assert_eq!(rig.store.damage()[1], finding(5, DamageKind::Checksum, 60, false));
}

#[test]
fn small_writes_over_a_repaired_page_stay_whenever_they_were_folded() {
    for (own_folds, other_folds) in [(false, false), (true, false), (true, true)] {
        let bytes = pattern(2, 200_000);
        let member = || {
            let rig = Rig::new();
            rig.write(id(1), 0, &bytes).unwrap();
            rig.store.destage_all().unwrap();
            rig
        };
        let (rig, other) = (member(), member());
        let mut want = bytes.clone();
        want[8192 + 10..8192 + 20].copy_from_slice(b"a patch...");
        for (rig, folds) in [(&rig, own_folds), (&other, other_folds)] {
            rig.write(id(1), 8192 + 10, b"a patch...").unwrap();
            if folds {
                rig.store.destage_all().unwrap();
            }
            rig.store.flush().unwrap();
        }
        let site = rig.store.index.get(&id(1)).unwrap().read().extents.site(2).unwrap();
        rig.flip(rig.store.at(site.page) + 4000);
        assert!(rig.read(id(1), 0, 200_000).is_err());
        assert_eq!(repair(&rig.store, &other.store), 1, "{own_folds} {other_folds}");
        assert_eq!(rig.content(id(1)), Some(want.clone()));
        let again = rig.crashed(Crash::KeepAll);
        assert_eq!(again.content(id(1)), Some(want.clone()));
        // Folded after the repair, and from there on.
        rig.store.destage_all().unwrap();
        assert_eq!(rig.content(id(1)), Some(want.clone()));
        assert_eq!(rig.crashed(Crash::KeepAll).content(id(1)), Some(want.clone()));
        rig.store.checkpoint().unwrap();
        assert_eq!(rig.crashed(Crash::KeepAll).content(id(1)), Some(want));
    }
}

#[test]
fn a_loss_of_power_at_each_event_leaves_the_page_damaged_or_repaired() {
    let bytes = pattern(3, 30_000);
    let (rig, other) = members(&bytes);
    rig.flip(rig.place(id(1), 3) + 7);
    rig.disk.flush().unwrap();
    rig.disk.record();
    assert_eq!(repair(&rig.store, &other.store), 1);
    rig.write(id(2), 0, &pattern(4, 9000)).unwrap();
    rig.store.flush().unwrap();
    rig.seal();
    // The old place is free, and other bytes come there.
    rig.write(id(3), 0, &pattern(5, 50_000)).unwrap();
    rig.store.checkpoint().unwrap();
    let (recording, mut found) = (rig.disk.take_recording().unwrap(), [0, 0]);
    for at in 0..=recording.events.len() {
        for crash in [Crash::KeepAll, Crash::DropAll, Crash::Torn(at as u64), Crash::Sectors(at as u64)] {
            let rig = Rig::open_with(Arc::new(recording.crash_at(at, crash)), PLACING);
            let is_listed = rig.store.damage().iter().any(|damage| damage.is_repaired);
            match rig.read(id(1), 0, 30_000) {
                Ok(read) => {
                    assert!(read.as_ref() == Some(&bytes), "event {at}, {crash:?}");
                    assert!(is_listed, "event {at}, {crash:?}");
                    found[1] += 1;
                }
                Err(StoreError::Damaged { offset: 12_288, .. }) => {
                    assert!(!is_listed, "event {at}, {crash:?}");
                    found[0] += 1;
                    // The page is repaired then.
                    assert_eq!(repair(&rig.store, &other.store), 1);
                    assert!(rig.content(id(1)).as_ref() == Some(&bytes));
                }
                Err(error) => panic!("event {at}, {crash:?}: {error}"),
            }
        }
    }
    assert!(found[0] > 3 && found[1] > 3, "{found:?}");
}

/// A write that comes between the look and the repair. Returns whether its bytes are there.
fn race(gone: Option<Planted>) -> bool {
    let bytes = pattern(6, 30_000);
    let (rig, _) = members(&bytes);
    *rig.store.repair_gone.lock() = gone;
    rig.flip(rig.place(id(1), 3));
    let lost = rig.store.lost_pages(id(1), 0, 256).unwrap();
    rig.write(id(1), 0, &pattern(7, 30_000)).unwrap();
    let page: &[u8; PAGE_SIZE] = bytes[12_288..16_384].try_into().unwrap();
    let is_repaired = rig.store.repair(&lost[0], page, 50).unwrap();
    let is_there = rig.content(id(1)) == Some(pattern(7, 30_000));
    assert!(is_there || is_repaired);
    is_there && !is_repaired && rig.store.damage().is_empty()
}

#[test]
fn a_page_that_was_written_meanwhile_keeps_its_bytes() {
    assert!(race(None));
    assert!(!race(Some(Planted::PlaceCompared)), "the planted fault is found");
}

/// Bytes of another page. Returns whether they are refused.
fn other_bytes(gone: Option<Planted>) -> bool {
    let bytes = pattern(8, 30_000);
    let (rig, _) = members(&bytes);
    *rig.store.repair_gone.lock() = gone;
    rig.flip(rig.place(id(1), 3));
    let lost = rig.store.lost_pages(id(1), 0, 256).unwrap();
    let is_repaired = rig.store.repair(&lost[0], bytes[..PAGE_SIZE].try_into().unwrap(), 50).unwrap();
    !is_repaired && rig.store.damage().is_empty()
}

#[test]
fn bytes_with_another_crc_are_not_taken() {
    assert!(other_bytes(None));
    assert!(!other_bytes(Some(Planted::CrcCompared)), "the planted fault is found");
}

#[test]
fn a_place_that_the_medium_refuses_is_not_used_again() {
    let bytes = pattern(9, 30_000);
    let (rig, other) = members(&bytes);
    let (bad, want) =
        (rig.place(id(1), 3), rig.store.index.get(&id(1)).unwrap().read().extents.site(3).unwrap());
    let medium = rig.disk.copy();
    let disk = Arc::new(disk::FaultyDisk::new(Arc::new(medium)));
    let store = Engine::open_with(disk.clone(), PLACING).unwrap();
    disk.make_unreadable(bad..bad + 1);
    assert_eq!(repair(&store, &other.store), 1);
    assert_eq!(store.damage(), [finding(3, DamageKind::Medium, 50, true)]);
    let whole = || read(&store, id(1), 0, 30_000).unwrap().unwrap();
    assert!(whole() == bytes);
    store.seal().unwrap();
    // All that is free is written.
    let mut n = 10;
    for len in [64 << 10, 4096] {
        while write(&store, id(n), 0, &pattern(n, len), None).is_ok() {
            n += 1;
        }
    }
    assert!(n > 50, "{n}");
    let is_there = |state: &crate::records::index::State| {
        state.extents.iter().any(|(_, e)| (e.run.start..e.run.end()).contains(&want.page))
    };
    assert!(!store.index.snapshot().iter().any(|(_, state)| is_there(state)), "it is withheld");
    assert!(whole() == bytes);
}

#[test]
fn a_place_that_takes_its_bytes_again_is_free() {
    let (rig, other) = members(&pattern(10, 30_000));
    rig.flip(rig.place(id(1), 3));
    let lost = rig.store.lost_pages(id(1), 0, 256).unwrap();
    // The medium says that it cannot read it, and then can.
    let lost = Lost { kind: DamageKind::Medium, ..lost[0] };
    let mut bytes = Vec::new();
    other.store.give_pages(id(1), &[(3, lost.crc())], &mut bytes).unwrap();
    assert!(rig.store.repair(&lost, bytes[..].try_into().unwrap(), 50).unwrap());
    rig.seal();
    assert_eq!(rig.store.usage().bytes_free, other.store.usage().bytes_free);
}

#[test]
fn a_page_is_given_only_if_it_is_sound_and_the_one_that_was_asked_for() {
    let bytes = pattern(11, 30_000);
    let (rig, _) = members(&bytes);
    rig.flip(rig.place(id(1), 3));
    let crc = |page: usize| types::crc::crc32c(&bytes[page * PAGE_SIZE..(page + 1) * PAGE_SIZE]);
    let mut out = Vec::new();
    let wanted = [(1, crc(1)), (2, crc(1)), (3, crc(3)), (4, crc(4)), (50, crc(0))];
    let given = rig.store.give_pages(id(1), &wanted, &mut out).unwrap();
    assert_eq!(given, [Given::Sound, Given::Other, Given::Damaged, Given::Sound, Given::Hole]);
    assert!(out == [&bytes[4096..8192], &bytes[16_384..20_480]].concat());
    assert_eq!(rig.store.give_pages(id(9), &[(0, 0)], &mut out).unwrap(), [Given::Hole]);
}
