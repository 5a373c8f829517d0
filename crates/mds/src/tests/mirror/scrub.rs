//! The scrub of both members, step by step.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{Crash, FaultyDisk, Op, SimDisk, When};
use pair::Replica;
use types::Code;
use wire::mdt::ScrubRecords;
use wire::object::scrub_state::{IDLE, PAUSED, RUNNING};
use wire::object::{ScrubReply, scrub_action};

use super::trouble::{NAMES, is_unreadable, list, name, rot_name, with_leaves_away};
use super::two::settings;
use crate::tests::rig::{HandClock, Rig, format, registered};
use crate::tests::rules::flat;
use crate::{Mdt, Standby};

fn wish(action: u8) -> ScrubRecords {
    ScrubRecords { action, rate: Some(0) }
}

fn told(mdt: &Mdt, action: u8) -> ScrubReply {
    mdt.core.on_scrub_records(&wish(action)).unwrap()
}

/// One whole pass.
fn pass(mdt: &Mdt) -> ScrubReply {
    assert_eq!(told(mdt, scrub_action::START).state, RUNNING);
    for _ in 0..10_000 {
        mdt.core.scrub_round();
        if told(mdt, scrub_action::LOOK).state == IDLE {
            return told(mdt, scrub_action::LOOK);
        }
    }
    panic!("mds-SC1: a pass has an end");
}

/// An MDT without a mirror, with all records in memory and on its medium, which rots as a test wants.
fn with_names() -> (Rig, Arc<SimDisk>, Arc<FaultyDisk>) {
    let clock = Arc::<HandClock>::default();
    let disk = Arc::new(SimDisk::new(1 << 20));
    format(disk.clone());
    let faulty = Arc::new(FaultyDisk::new(disk.clone()));
    let mdt = Mdt::open(faulty.clone(), settings(flat(), &clock)).unwrap();
    let rig = Rig::around(mdt, clock, registered()).unwrap();
    (0..NAMES).for_each(|n| assert!(rig.make(0, n + 1, &name(n)).is_ok()));
    rig.mdt.checkpoint().unwrap();
    (rig, disk, faulty)
}

#[test]
fn sc1_a_pass_reads_every_record_once_and_finds_nothing_wrong() {
    let (rig, _, _) = with_names();
    let last = pass(&rig.mdt).last;
    assert_eq!((last.bad_pages, last.repaired), (0, 0));
    let records = rig.mdt.figures().size.records;
    assert!(last.objects == records && records > u64::from(NAMES), "{last:?} of {records}");
    assert!(last.bytes > 4096 && last.ended_sec >= last.begun_sec && last.begun_sec > 0, "{last:?}");
}

#[test]
fn sc2_a_bad_leaf_whose_records_are_in_memory_is_written_anew() {
    let (rig, disk, faulty) = with_names();
    rot_name(&rig.mdt.core.volume, &disk, &faulty);
    let last = pass(&rig.mdt).last;
    assert!(last.bad_pages == 0 && last.repaired > 0, "{last:?}");
    assert!(!is_unreadable(rig.mdt.trouble()), "nothing is lost");
    // The medium alone has all of it now.
    let again = pass(&rig.mdt).last;
    assert_eq!((again.bad_pages, again.repaired), (0, 0));
    let image = Arc::new(disk.crash(Crash::KeepAll));
    let opened = Rig::open(image);
    assert_eq!(opened.list().len(), NAMES as usize);
}

#[test]
fn sc2_a_bad_checkpoint_is_written_anew() {
    let (rig, _, faulty) = with_names();
    let place = rig.mdt.core.volume.checkpoint_place().unwrap();
    faulty.flip_bit(place.start + 40, 1).unwrap();
    assert_eq!(rig.mdt.core.volume.check_checkpoint().unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    let last = pass(&rig.mdt).last;
    assert_eq!((last.bad_pages, last.repaired), (0, 1));
    assert_ne!(rig.mdt.core.volume.checkpoint_place().unwrap(), place);
    rig.mdt.core.volume.check_checkpoint().unwrap();
}

/// No request has met it: the seat hears of it by the scrub, and the mirror hands over.
#[test]
fn sc3_a_bad_leaf_that_memory_lacks_is_a_trouble_of_the_volume() {
    let (two, faulty) = with_leaves_away();
    rot_name(&two.rig.mdt.core.volume, &two.a, &faulty);
    assert!(!is_unreadable(two.rig.mdt.trouble()));
    let last = pass(&two.rig.mdt).last;
    assert!(last.bad_pages > 0, "{last:?}");
    assert!(is_unreadable(two.rig.mdt.trouble()), "the seat hears of it");
    assert_eq!(list(&two.rig).unwrap_err().code, Code::NotReady, "the other member takes over");
}

#[test]
fn sc3_reads_that_fail_are_damage_too() {
    let (two, faulty) = with_leaves_away();
    faulty.fail(Op::Read, When::Always);
    told(&two.rig.mdt, scrub_action::START);
    two.rig.mdt.core.scrub_round();
    assert!(told(&two.rig.mdt, scrub_action::LOOK).pass.bad_pages > 0);
    assert!(is_unreadable(two.rig.mdt.trouble()));
}

#[test]
fn sc2_a_standby_writes_a_bad_leaf_anew() {
    let (two, _) = with_leaves_away();
    let image = Arc::new(two.a.crash(Crash::KeepAll));
    let faulty = Arc::new(FaultyDisk::new(image.clone()));
    let standby = Standby::open(faulty.clone(), settings(flat(), &Arc::default())).unwrap();
    let rounds = |standby: &Standby| {
        standby.scrub(&wish(scrub_action::START)).unwrap();
        for _ in 0..10_000 {
            standby.scrub_round();
            let now = standby.scrub(&wish(scrub_action::LOOK)).unwrap();
            if now.state == IDLE {
                return now.last;
            }
        }
        panic!("mds-SC1: a pass has an end");
    };
    assert_eq!((rounds(&standby).bad_pages, rounds(&standby).repaired), (0, 0));
    let place = standby.volume().checkpoint_place().unwrap();
    faulty.flip_bit(place.start + 40, 1).unwrap();
    assert_eq!(rounds(&standby).repaired, 1);
    Replica::flush(&standby).unwrap();
    standby.volume().check_checkpoint().unwrap();
    assert_eq!((rounds(&standby).bad_pages, standby.trouble()), (0, None));
}

#[test]
fn a_pass_is_paused_resumed_stopped_and_begun_anew() {
    let (rig, _, _) = with_names();
    let mdt = &rig.mdt;
    for action in [scrub_action::PAUSE, scrub_action::RESUME] {
        let refused = mdt.core.on_scrub_records(&wish(action)).unwrap_err();
        assert!(refused.code == Code::BadRequest && refused.detail.contains("stria scrub start"));
    }
    told(mdt, scrub_action::START);
    mdt.core.scrub_round();
    let held = told(mdt, scrub_action::PAUSE);
    assert!(held.state == PAUSED && held.pass.objects > 0);
    mdt.core.scrub_round();
    assert_eq!(told(mdt, scrub_action::LOOK).pass, held.pass, "paused, it reads nothing");
    assert_eq!(mdt.core.on_scrub_records(&wish(scrub_action::START)).unwrap_err().code, Code::BadRequest);
    assert_eq!(told(mdt, scrub_action::RESUME).state, RUNNING);
    mdt.core.scrub_round();
    assert!(told(mdt, scrub_action::LOOK).pass.objects > held.pass.objects);
    let stopped = told(mdt, scrub_action::STOP);
    assert!(stopped.state == IDLE && stopped.last.begun_sec == 0, "it did not come to its end");
    assert_eq!(told(mdt, scrub_action::START).pass.objects, 0, "anew");
    assert_eq!(mdt.core.on_scrub_records(&wish(99)).unwrap_err().code, Code::BadRequest);
}

#[test]
fn the_first_pass_begins_an_hour_after_the_start_and_the_next_ones_as_the_parameter_says() {
    let (rig, _, _) = with_names();
    let (mdt, clock) = (&rig.mdt, &rig.clock);
    let runs_after = |sec: u64| {
        clock.0.fetch_add(sec * 1000, Ordering::SeqCst);
        mdt.core.scrub_round();
        told(mdt, scrub_action::LOOK).state == RUNNING
    };
    assert!(!runs_after(3599));
    assert!(runs_after(1));
    pass(mdt);
    let every_sec = crate::SCRUB_EVERY_MS / 1000;
    assert!(!runs_after(every_sec - 1));
    assert!(runs_after(1));
}

#[test]
fn the_pause_after_a_step_keeps_the_rate() {
    let (rig, _, _) = with_names();
    let slow = ScrubRecords { action: scrub_action::START, rate: Some(4096) };
    assert_eq!(rig.mdt.core.on_scrub_records(&slow).unwrap().rate, 4096);
    let pause = rig.mdt.core.scrub_round();
    let read = told(&rig.mdt, scrub_action::LOOK).pass.bytes;
    assert!(read > 0 && pause.as_secs() == read / 4096, "{pause:?} for {read}");
}
