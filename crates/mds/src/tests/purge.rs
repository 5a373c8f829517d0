//! Dead objects go, in the right order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use disk::Crash;
use disk::SimDisk;
use types::{Code, Fid, MirrorId, TargetId};
use wire::Request;
use wire::map::Mirror;
use wire::purge::Dying;

use super::rig::{Rig, format, registered};
use super::rules::{self, body, layout};
use crate::upkeep::purge::{Purged, Walk};

fn remove(rig: &Rig, name: &str) -> Fid {
    let fid = rig.make(0, 0, name).unwrap();
    rig.mutate(rules::REMOVE, 0, 0, &body(Fid(0), name)).unwrap();
    fid
}

#[test]
fn objects_are_destroyed_once_their_removal_is_flushed_and_the_record_goes_last() {
    let (rig, disk) = Rig::fresh();
    let fid = remove(&rig, "a");
    let core = &rig.mdt.core;
    let removed = core.volume.last_seq();
    rig.ost.refuse.store(true, Ordering::SeqCst);
    assert_eq!(core.purge_round(&mut Walk::default(), 10).unwrap(), Purged { files: 0, left: 1 });
    assert!(core.volume.flushed_seq() >= removed, "flushed before an OST was asked");
    rig.ost.refuse.store(false, Ordering::SeqCst);
    assert_eq!(core.purge_round(&mut Walk::default(), 10).unwrap(), Purged { files: 1, left: 0 });
    assert_eq!(*rig.ost.destroyed.lock(), [layout().object(fid, 0, 0)]);
    assert_eq!(rig.ost.flushes.load(Ordering::SeqCst), 1);
    assert_eq!(core.purge_round(&mut Walk::default(), 10).unwrap(), Purged::default());
    // The forgetting was not flushed: after power loss it is done once more, harmlessly.
    let rig = Rig::open(Arc::new(disk.crash(Crash::DropAll)));
    assert_eq!(rig.mdt.core.purge_round(&mut Walk::default(), 10).unwrap(), Purged { files: 1, left: 0 });
}

/// mds-P3: files that cannot be purged, however many, do not keep those behind them from being purged.
#[test]
fn dead_files_behind_those_of_a_lost_ost_have_their_turn() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    (0..9).for_each(|n| {
        remove(&rig, &format!("{}{n}", rules::LOST));
    });
    let healthy: Vec<_> = (0..3).map(|n| remove(&rig, &format!("f{n}"))).collect();
    let mut walk = Walk::default();
    let rounds: Vec<_> = (0..4).map(|_| core.purge_round(&mut walk, 4).unwrap()).collect();
    let want = [(0, 4), (0, 4), (3, 1), (0, 0)].map(|(files, left)| Purged { files, left });
    assert_eq!(rounds, want);
    assert_eq!(rig.ost.destroyed.lock().len(), healthy.len());
    // At the end it begins anew: the others are not forgotten.
    assert_eq!(core.purge_round(&mut walk, 10).unwrap(), Purged { files: 0, left: 9 });
}

/// The threads: flushes come by themselves, the purge works, and a stop is prompt.
#[test]
fn the_background_does_all_that_without_being_asked() {
    let disk = Arc::new(SimDisk::new(1 << 20));
    format(disk.clone());
    let rig = Rig::try_open(disk.clone(), true).unwrap();
    let fid = remove(&rig, "a");
    // Enough to fill the log several times: checkpoints must come by themselves too.
    let in_time = || Instant::now() + Duration::from_secs(20);
    let mut seq = 1;
    for n in 0..1500u32 {
        let deadline = in_time();
        // A client that is faster than the purge finds the MDT full.
        while let Err(fault) = rig.make(1, seq, &format!("n{n}")) {
            assert!(fault.code == Code::NoSpace && Instant::now() < deadline, "{fault}");
            seq += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        seq += 1;
        rig.mutate(rules::REMOVE, 2, n + 1, &body(Fid(0), &format!("n{n}"))).unwrap();
    }
    let core = &rig.mdt.core;
    let is_done =
        || rig.ost.destroyed.lock().len() >= 1501 && core.volume.flushed_seq() == core.volume.last_seq();
    let deadline = in_time();
    while !is_done() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_done() && rig.ost.destroyed.lock().contains(&layout().object(fid, 0, 0)));
    let started = Instant::now();
    rig.mdt.stop(true).unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    let rig = Rig::open(disk);
    assert!(rig.mdt.was_clean());
}

/// A request that lacks space is told whether orphans are about to be freed, and when all of them have had their turn.
#[test]
fn a_request_that_lacks_space_is_told_of_orphans_and_their_turn() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    let ask = |mirror| core.on_dying(&Dying { mirrors: vec![MirrorId(mirror)] }).unwrap();
    let idle = ask(2);
    assert!(!idle.dying, "{idle:?}");
    let mirror = layout().components[0].mirrors[0].0;
    for n in 0..5 {
        remove(&rig, &format!("f{n}"));
    }
    let first = ask(mirror);
    assert!(first.dying && !ask(mirror + 7).dying);
    // 1. The OST is down. The walk that was under way may have missed something; the next one has not.
    rig.ost.refuse.store(true, Ordering::SeqCst);
    let mut walk = Walk::default();
    let covered = first.walks_begun + 1;
    let mut rounds = 0;
    while ask(mirror).walks_ended < covered {
        core.purge_round(&mut walk, 2).unwrap();
        rounds += 1;
        assert_eq!(ask(mirror).rounds, first.rounds + rounds);
    }
    assert_eq!(rounds, 3, "two, two and one, which ends the walk");
    assert!(ask(mirror).dying, "and yet nothing was freed");
    // 2. A walk under way at the question does not count.
    core.purge_round(&mut walk, 2).unwrap();
    let second = ask(mirror);
    while walk_goes_on(&rig, &mut walk) {}
    assert_eq!(ask(mirror).walks_ended, second.walks_begun);
    // 3. The OST is back.
    rig.ost.refuse.store(false, Ordering::SeqCst);
    while walk_goes_on(&rig, &mut walk) {}
    assert!(!ask(mirror).dying);
}

/// A client that finds an OST full does not hurry a purge that frees nothing. The purge keeps its pace until a walk frees some space,
/// or more is removed.
#[test]
fn a_purge_that_is_held_up_is_not_hurried() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    let mirror = layout().components[0].mirrors[0].0;
    let ask = || {
        let said = core.on_dying(&Dying { mirrors: vec![MirrorId(mirror)] }).unwrap();
        (said.dying, said.held_up, core.bells.purge.wait(Duration::ZERO))
    };
    let (plain, held_up) = ((true, false, true), (true, true, false));
    remove(&rig, "a");
    remove(&rig, "b");
    assert_eq!(ask(), plain);
    rig.ost.refuse.store(true, Ordering::SeqCst);
    let mut walk = Walk::default();
    assert!(walk_goes_on(&rig, &mut walk));
    assert_eq!(ask(), plain, "the walk is not at its end");
    assert!(!walk_goes_on(&rig, &mut walk));
    assert_eq!([ask(), ask()], [held_up; 2]);
    // 1. What is removed since may be on an OST that works.
    remove(&rig, "c");
    assert_eq!(ask(), plain);
    while walk_goes_on(&rig, &mut walk) {}
    assert_eq!(ask(), held_up, "it was not");
    // 2. The OST is back, which the purge finds in its time.
    rig.ost.refuse.store(false, Ordering::SeqCst);
    while walk_goes_on(&rig, &mut walk) {}
    assert_eq!(ask(), (false, false, false));
    remove(&rig, "d");
    assert_eq!(ask(), plain);
}

/// However many are left: one more that dies, or an OST that may have come back, and the purge is hurried.
#[test]
fn news_are_told_from_what_is_left() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    for n in 0..300 {
        remove(&rig, &format!("{}{n}", rules::LOST));
    }
    let ask = || core.on_dying(&Dying { mirrors: vec![MirrorId(77)] }).unwrap();
    let mut walk = Walk::default();
    assert_eq!(core.purge_round(&mut walk, 400).unwrap(), Purged { files: 0, left: 300 });
    assert!(ask().held_up);
    // 1. Removed since.
    remove(&rig, "a");
    assert!(!ask().held_up);
    assert_eq!(core.purge_round(&mut walk, 400).unwrap(), Purged { files: 1, left: 300 });
    assert!(!ask().held_up && ask().freed == 1, "it was not in vain");
    core.purge_round(&mut walk, 400).unwrap();
    assert!(ask().held_up);
    // 2. Not what a growth that is tried again leaves.
    let news = ask().news;
    rig.make(0, 0, "b").unwrap();
    rig.mutate(wire::meta::Grow::CALL, 0, 0, &body(Fid(0), "b")).unwrap();
    assert!(ask().held_up && ask().news == news);
    // 3. A newer map.
    let mut map = registered().map;
    map.version += 1;
    core.set_map(&map).unwrap();
    assert!(!ask().held_up && core.bells.purge.wait(Duration::ZERO));
}

/// The space of others is free, and who waits for it hears so, before an OST that does not answer is asked once more.
#[test]
fn an_ost_that_failed_is_asked_last() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    // In the order of targets it comes first, and nobody serves it.
    let mut map = registered().map;
    let gone = Mirror { id: MirrorId(77), primary: TargetId(1), ..map.mirrors[1].clone() };
    map.mirrors.push(gone);
    map.version += 1;
    core.set_map(&map).unwrap();
    let rounds = || core.on_dying(&Dying { mirrors: vec![MirrorId(77)] }).unwrap().rounds;
    let mut walk = Walk::default();
    remove(&rig, rules::LOST);
    for (name, told) in [("a", 1), ("b", 1 + 2)] {
        remove(&rig, name);
        assert_eq!(core.purge_round(&mut walk, 10).unwrap(), Purged { files: 1, left: 1 });
        assert_eq!(rounds(), told, "{name}");
    }
}

#[test]
fn p4_records_of_a_removed_ost_go_with_it() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    remove(&rig, rules::LOST);
    remove(&rig, "a");
    let mut walk = Walk::default();
    assert_eq!(
        core.purge_round(&mut walk, 10).unwrap(),
        Purged { files: 1, left: 1 },
        "mirror 77 is not known"
    );
    let mut map = registered().map;
    map.version += 1;
    map.ids_used.mirror = MirrorId(77);
    core.set_map(&map).unwrap();
    assert_eq!(
        core.purge_round(&mut walk, 10).unwrap(),
        Purged { files: 1, left: 0 },
        "mirror 77 was removed"
    );
    assert_eq!(core.purge_round(&mut walk, 10).unwrap(), Purged { files: 0, left: 0 });
}

fn walk_goes_on(rig: &Rig, walk: &mut Walk) -> bool {
    rig.mdt.core.purge_round(walk, 2).unwrap();
    walk.is_under_way()
}
