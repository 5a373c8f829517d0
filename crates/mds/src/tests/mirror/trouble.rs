//! Leaves that a member cannot read: the other one takes over, if there is one (mds-RP10).

use std::sync::Arc;

use disk::volume::Volume;
use disk::{Crash, Disk, FaultyDisk, Op, SimDisk, Trouble, When};
use pair::Replica;
use types::Code;
use wire::Header;

use super::two::{Two, Way, settings};
use crate::pair::planted::{Bug, is_found};
use crate::tests::rig::{HandClock, Rig, Said, format};
use crate::tests::rules::{self, flat};
use crate::{Mdt, Settings, Standby};

pub const NAMES: u32 = 300;

/// A pair whose primary has its records on its medium only. The medium fails as a test wants.
pub fn with_leaves_away() -> (Two, Arc<FaultyDisk>) {
    let clock = Arc::<HandClock>::default();
    let a = Arc::new(SimDisk::new(1 << 20));
    format(a.clone());
    let faulty = Arc::new(FaultyDisk::new(a.clone()));
    let small = Settings { cache_bytes: 1, ..settings(flat(), &clock) };
    let mdt = Mdt::open(faulty.clone(), small).unwrap();
    mdt.flush().unwrap();
    let b = Arc::new(a.crash(Crash::KeepAll));
    let standby = Standby::open(b.clone(), settings(flat(), &clock)).unwrap();
    let two = Two::of((mdt, clock), a, b, standby);
    for n in 0..NAMES {
        two.rig.make(0, n + 1, &name(n)).unwrap();
    }
    two.rig.mdt.checkpoint().unwrap();
    two.rig.mdt.core.tidy();
    (two, faulty)
}

pub fn name(n: u32) -> String {
    format!("looked {n:04}")
}

pub fn list(rig: &Rig) -> Said {
    rig.send(Header { call: rules::LIST, ..Header::default() }, &[])
}

/// Turns over a bit of a leaf.
fn rot(two: &Two, faulty: &FaultyDisk) {
    rot_name(&two.rig.mdt.core.volume, &two.a, faulty);
}

/// Turns over a bit of each name in the middle, wherever a leaf has it.
pub fn rot_name(volume: &Volume, medium: &SimDisk, faulty: &FaultyDisk) {
    let (mut found, needle) = (0, format!("{}", NAMES / 2));
    for slot in volume.layout().slots {
        let mut bytes = vec![0; (slot.end - slot.start) as usize];
        medium.read_at(&mut bytes, slot.start).unwrap();
        // Names of a leaf share their first bytes.
        for (at, part) in bytes.windows(needle.len()).enumerate() {
            if part == needle.as_bytes() {
                faulty.flip_bit(slot.start + at as u64, 3).unwrap();
                found += 1;
            }
        }
    }
    assert!(found > 0, "the name is on the medium");
}

pub fn is_unreadable(trouble: Option<Trouble>) -> bool {
    matches!(trouble, Some(Trouble::Unreadable(_)))
}

/// The code that a client gets while the other member is in sync, and the one that it gets of a member alone.
fn told(ill: impl Fn(&Two, &FaultyDisk), alone: Code) {
    let (two, faulty) = with_leaves_away();
    ill(&two, &faulty);
    let refused = list(&two.rig).unwrap_err();
    assert_eq!(refused.code, Code::NotReady, "{refused}");
    assert!(is_unreadable(two.rig.mdt.trouble()), "the seat hears of it");
    two.link.turn(Way::Out);
    assert_eq!(list(&two.rig).unwrap_err().code, alone, "there is none that takes over");
}

#[test]
fn rp10_a_request_that_meets_damage_is_sent_again_if_the_other_member_takes_over() {
    told(rot, Code::Damaged);
}

#[test]
fn rp10_a_request_that_meets_a_failing_read_is_sent_again_if_the_other_member_takes_over() {
    told(|_, faulty| faulty.fail(Op::Read, When::Always), Code::Io);
}

#[test]
fn rp10_a_trouble_that_is_told_to_the_client_is_found() {
    assert!(is_found(Bug::TellsTrouble, || told(rot, Code::Damaged)));
}

/// The records are at the other member, which takes over with all of them.
#[test]
fn rp10_the_other_member_has_what_cannot_be_read() {
    let (two, faulty) = with_leaves_away();
    rot(&two, &faulty);
    list(&two.rig).unwrap_err();
    let second = super::takes_over(two.kill());
    assert_eq!(second.list().len(), NAMES as usize);
}

/// A standby that needs a leaf for an entry does not take it, and its seat hears why.
#[test]
fn rp10_a_standby_with_an_unreadable_leaf_tells_its_seat() {
    let (two, _faulty) = with_leaves_away();
    let entry = two.link.sent.lock().last().unwrap().entry.clone();
    let image = two.a.crash(Crash::KeepAll);
    let faulty = Arc::new(FaultyDisk::new(Arc::new(image)));
    let standby = Standby::open(faulty.clone(), settings(flat(), &Arc::default())).unwrap();
    assert_eq!(standby.trouble(), None);
    faulty.fail(Op::Read, When::Always);
    // The same entry: the standby compares it with its records.
    Replica::append(&standby, &entry).unwrap_err();
    assert!(is_unreadable(standby.trouble()));
}
