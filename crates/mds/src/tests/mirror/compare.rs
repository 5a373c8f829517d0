//! The members of an MDT's mirror are compared while it is in use (mds-CM1 to mds-CM3).

use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Batch, Engine, Value, View};
use meta::keys;
use pair::RecordPeer;
use wire::pair::{
    CompareRecords, CompareRecordsReply, CompareStep, VerifyRecords, VerifyRecordsReply, record_difference,
    verify_state,
};

use super::two::Link;
use super::*;
use crate::tests::rig::SECRET;

/// The other member, as a seat would reach it.
struct Other {
    link: Arc<Link>,
    steps: AtomicU64,
}

impl RecordPeer for Other {
    fn compare_records(&self, step: CompareStep) -> Result<CompareRecordsReply, Fault> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        to_standby(&self.link.standby, step)
    }
}

fn to_standby(standby: &Standby, step: CompareStep) -> Result<CompareRecordsReply, Fault> {
    let (mirror, epoch) = (MirrorId(1), Epoch(1));
    Replica::compare_records(standby, &CompareRecords { mirror, epoch, step })
}

fn meet(two: &Two) -> Arc<Other> {
    let other = Arc::new(Other { link: two.link.clone(), steps: AtomicU64::new(0) });
    two.rig.mdt.set_peer(other.clone());
    other
}

fn ask(rig: &Rig, starts: bool) -> Result<VerifyRecordsReply, Fault> {
    rig.ask(&VerifyRecords { cap: object::cap::make_admin(&SECRET, 1 << 40), starts }, SessionId(0))
}

/// A whole run, with something between its steps.
fn verify(rig: &Rig, mut between: impl FnMut(u64)) -> VerifyRecordsReply {
    ask(rig, true).unwrap();
    for step in 0..10_000 {
        let reply = ask(rig, false).unwrap();
        if reply.state != verify_state::RUNNING {
            return reply;
        }
        rig.mdt.core.verify_round();
        between(step);
    }
    panic!("the comparison does not end");
}

fn told(reply: &VerifyRecordsReply) -> Vec<(u8, &str)> {
    reply.differences.iter().map(|d| (d.found, d.what.as_str())).collect()
}

/// A pair after some work, with a name space.
fn worked() -> (Play, Arc<Link>, Arc<Other>) {
    let a = Arc::new(SimDisk::new(2 << 20));
    let spec = FormatSpec::for_size(super::super::rig::label(), 2 << 20);
    let spec = FormatSpec { log_bytes: 128 << 10, checkpoint_bytes: 512 << 10, ..spec };
    Mdt::format(a.clone(), &spec, false, &MetaRules, Time::new(5, 0)).unwrap();
    let two = Two::over(a, Arc::new(MetaRules));
    let other = meet(&two);
    let Two { rig, link, .. } = two;
    let mut play = Play::new(rig, 3);
    (0..300).for_each(|_| play.step());
    (play, link, other)
}

#[test]
fn cm1_equal_members_are_found_equal_while_entries_go_on() {
    let (mut play, link, other) = worked();
    assert_eq!(ask(&play.rig, false).unwrap().state, verify_state::NONE);
    let all: usize = contents_of(&play.rig).iter().map(BTreeMap::len).sum();
    let seq = play.rig.mdt.core.volume.last_seq();
    let (rig, mut moved) = (play.rig.mdt.clone(), 0);
    ask(&play.rig, true).unwrap();
    for _ in 0..1000 {
        rig.core.verify_round();
        if ask(&play.rig, false).unwrap().state != verify_state::RUNNING {
            break;
        }
        // Folds, checkpoints and evictions of both go on as well.
        (0..10).for_each(|_| play.step());
        moved += 10;
    }
    let reply = ask(&play.rig, false).unwrap();
    assert_eq!((reply.state, reply.found, reply.done), (verify_state::ENDED, 0, all as u64), "{reply:?}");
    assert_eq!((reply.seq, reply.of, reply.ended_sec), (seq, all as u64, 1_000_000));
    assert!(moved > 50 && other.steps.load(Ordering::SeqCst) > 5, "it took several steps");
    assert_eq!(contents_of(&play.rig), link.standby.contents());
}

#[test]
fn cm1_each_difference_is_told_in_words() {
    let (play, link, _) = worked();
    let (file, session) = (*play.files.last().unwrap(), play.rig.session);
    let missing = keys::inode(Fid(0x77_0000));
    link.standby.with_state(|state| {
        let mut batch = Batch::new();
        batch.put(keys::inode(Fid::ROOT), Value::new(b"other"));
        batch.put(missing, Value::new(b"only there"));
        batch.delete(keys::entry(Fid::ROOT, 0, 0));
        batch.put(keys::xattrs(file), Value::new(b"only there"));
        let seq = state.kv.snapshot().seq();
        state.kv.apply(seq, batch);
        state.slots.restore(&keys::slot(session, 9), &[7; 20]).unwrap();
    });
    let reply = verify(&play.rig, |_| {});
    let xattrs = format!("extended attributes of {:#x}", file.0);
    let slot = format!("slot 9 of session {}", session.0);
    let want = [
        (record_difference::OTHER, "inode 0x1"),
        (record_difference::ONLY_FOLLOWER, "inode 0x770000"),
        (record_difference::ONLY_FOLLOWER, &xattrs),
        (record_difference::ONLY_FOLLOWER, &slot),
    ];
    assert_eq!((reply.state, reply.found, told(&reply)), (verify_state::ENDED, 4, want.to_vec()));
    assert_eq!(reply.differences[0].fid, Some(Fid::ROOT));
    // The other way round.
    play.rig.mdt.core.executor.lead();
    let mut batch = Batch::new();
    batch.put(missing, Value::new(b"only here"));
    play.rig.mdt.core.kv.apply(play.rig.mdt.core.volume.last_seq(), batch);
    link.standby.with_state(|state| {
        let mut batch = Batch::new();
        batch.delete(missing);
        state.kv.apply(state.kv.snapshot().seq(), batch);
    });
    let reply = verify(&play.rig, |_| {});
    assert!(told(&reply).contains(&(record_difference::ONLY_PRIMARY, "inode 0x770000")), "{reply:?}");
}

#[test]
fn cm3_a_record_that_a_member_cannot_read_is_its_damage() {
    for is_primary in [true, false] {
        let (play, link, _) = worked();
        let key = keys::inode(Fid::ROOT);
        let rot = |kv: &crate::Records| {
            let mut batch = Batch::new();
            batch.put(key, Value::stored(b"rot", 7));
            kv.apply(kv.snapshot().seq(), batch);
        };
        match is_primary {
            true => rot(&play.rig.mdt.core.kv),
            false => link.standby.with_state(|state| rot(&state.kv)),
        }
        let found = match is_primary {
            true => record_difference::LOST_PRIMARY,
            false => record_difference::LOST_FOLLOWER,
        };
        let reply = verify(&play.rig, |_| {});
        // The other member's record has no counterpart that could differ.
        assert_eq!((reply.state, told(&reply)), (verify_state::ENDED, vec![(found, "inode 0x1")]));
    }
}

#[test]
fn cm3_damage_at_both_members_is_told_of_each() {
    let (play, link, _) = worked();
    let rot = |kv: &crate::Records, fids: &[Fid]| {
        let mut batch = Batch::new();
        fids.iter().for_each(|fid| batch.put(keys::inode(*fid), Value::stored(b"rot", 7)));
        kv.apply(kv.snapshot().seq(), batch);
    };
    let file = *play.files.last().unwrap();
    rot(&play.rig.mdt.core.kv, &[Fid::ROOT, file]);
    link.standby.with_state(|state| rot(&state.kv, &[Fid::ROOT]));
    let reply = verify(&play.rig, |_| {});
    let of_file = format!("inode {:#x}", file.0);
    let want = [
        (record_difference::LOST_PRIMARY, "inode 0x1"),
        (record_difference::LOST_FOLLOWER, "inode 0x1"),
        (record_difference::LOST_PRIMARY, &of_file),
    ];
    assert_eq!(told(&reply), want);
}

fn a_member_that_lacks_entries() {
    let two = Two::fresh();
    meet(&two);
    two.rig.make(1, 1, "a").unwrap();
    two.link.turn(Way::Out);
    two.rig.make(1, 2, "b").unwrap();
    let reply = verify(&two.rig, |_| {});
    assert_eq!((reply.state, reply.found), (verify_state::FAILED, 0), "{reply:?}");
    assert!(reply.why.contains("does not have exactly the entries"), "{}", reply.why);
    catch_up(&two.link.standby, &*two.rig.mdt);
    let reply = verify(&two.rig, |_| {});
    assert_eq!((reply.state, reply.found), (verify_state::ENDED, 0), "{reply:?}");
}

#[test]
fn cm1_a_member_that_lacks_entries_is_not_compared() {
    a_member_that_lacks_entries();
    assert!(is_found(Bug::ComparesAnyState, a_member_that_lacks_entries));
}

#[test]
fn cm2_a_state_that_was_dropped_has_the_comparison_begin_anew() {
    let (play, link, _) = worked();
    let last = || play.rig.mdt.core.volume.last_seq();
    // Another comparison begins there, and so ends this one.
    let drop_it = || to_standby(&link.standby, CompareStep::Begin { seq: Seq(last().0 + 1) }).unwrap();
    let reply = verify(&play.rig, |step| {
        if step == 3 {
            assert_eq!(drop_it().run, 0);
        }
    });
    assert_eq!((reply.state, reply.found), (verify_state::ENDED, 0), "{reply:?}");
    // A checkpoint of the primary that needs the space.
    let core = &play.rig.mdt.core;
    let reply = verify(&play.rig, |step| {
        if step == 3 {
            assert_eq!(core.walks.end(), 1);
        }
    });
    assert_eq!((reply.state, reply.found), (verify_state::ENDED, 0), "{reply:?}");
    let reply = verify(&play.rig, |_| drop(drop_it()));
    assert_eq!((reply.state, reply.why.contains("dropped")), (verify_state::FAILED, true), "{reply:?}");
}

#[test]
fn cm2_a_member_takes_over_though_a_state_is_kept_there() {
    let two = Two::fresh();
    two.rig.make(1, 1, "a").unwrap();
    let seq = two.rig.mdt.core.volume.last_seq();
    let standby = two.kill();
    assert_ne!(to_standby(&standby, CompareStep::Begin { seq }).unwrap().run, 0);
    let rig = Rig::around(standby.promote(Incarnation(0), None).unwrap(), Arc::default(), other()).unwrap();
    assert_eq!(rig.list().len(), 1);
    let begun = to_standby(&standby, CompareStep::Begin { seq });
    assert_eq!(begun.unwrap_err().code, Code::NotReady);
}

#[test]
fn only_an_administrator_has_the_primary_of_two_compare() {
    let (rig, _) = Rig::fresh();
    assert_eq!(ask(&rig, true).unwrap_err().code, Code::Unsupported);
    let cap = object::cap::make_admin(&Uuid([1; 16]), 1 << 40);
    assert_eq!(rig.ask(&VerifyRecords { cap, starts: true }, SessionId(0)).unwrap_err().code, Code::Fenced);
}
