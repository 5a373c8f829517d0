//! A request that comes twice is carried out once, whatever happens between.

use std::sync::Arc;

use disk::Crash;
use types::{Code, Fid, Incarnation, SessionId};
use wire::meta::Truncate;
use wire::{Header, Request, Wire};

use super::rig::Rig;
use super::rules::{self, body};

#[test]
fn a_repeated_request_is_answered_from_its_entry_also_after_a_restart() {
    let (rig, disk) = Rig::fresh();
    let fid = rig.make(3, 1, "a").unwrap();
    assert_eq!(rig.make(3, 1, "a"), Ok(fid), "again: the same answer, not Exists");
    // In the log.
    let disk = Arc::new(disk.crash(Crash::KeepAll));
    let rig = Rig::open(disk.clone());
    assert_eq!(rig.make(3, 1, "a"), Ok(fid), "after a kill");
    assert_eq!(rig.attach(1).unwrap().slots[3], 1);
    // In a checkpoint.
    rig.mdt.core.checkpoint_now().unwrap();
    let rig = Rig::open(Arc::new(disk.crash(Crash::DropAll)));
    assert_eq!(rig.make(3, 1, "a"), Ok(fid), "after a checkpoint and power loss");
    // Older than the slot's last: done, without an answer.
    rig.make(3, 5, "b").unwrap();
    let (_, reply) = rig.mutate(rules::MAKE, 3, 1, &body(Fid(0), "a")).unwrap();
    assert!(reply.is_empty());
}

#[test]
fn a_refused_request_changes_nothing_and_is_judged_again() {
    let (rig, _) = Rig::fresh();
    rig.make(0, 1, "a").unwrap();
    let before = rig.mdt.core.volume.last_seq();
    assert_eq!(rig.make(0, 2, "a").unwrap_err().code, Code::Exists);
    assert_eq!(rig.mdt.core.volume.last_seq(), before, "no entry");
    rig.mutate(rules::REMOVE, 1, 1, &body(Fid(0), "a")).unwrap();
    rig.make(0, 2, "a").unwrap();
}

#[test]
fn what_changes_nothing_leaves_no_entry() {
    let (rig, _) = Rig::fresh();
    let before = rig.mdt.core.volume.last_seq();
    let (seq, reply) = rig.mutate(rules::NOTHING, 0, 1, &[]).unwrap();
    assert_eq!((seq.0, &reply[..]), (0, &b"nothing"[..]));
    assert_eq!(rig.mdt.core.volume.last_seq(), before);
}

#[test]
fn many_threads_on_one_slot_carry_it_out_once() {
    let (rig, _) = Rig::fresh();
    let before = rig.mdt.core.volume.last_seq();
    let fids: Vec<Fid> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|_| s.spawn(|| rig.make(0, 1, "a").unwrap())).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(fids.iter().all(|f| *f == fids[0]));
    assert_eq!(rig.mdt.core.volume.last_seq().0, before.0 + 1);
}

#[test]
fn requests_without_a_right_to_be_are_refused() {
    let (rig, _) = Rig::fresh();
    let code = |head: Header| rig.send(head, &body(Fid(0), "x")).unwrap_err().code;
    let head = Header { call: rules::MAKE, session: rig.session, slot: 0, sequence: 1, ..Header::default() };
    assert_eq!(code(Header { session: SessionId(0), ..head }), Code::BadRequest, "an observer");
    assert_eq!(code(Header { session: SessionId(999), ..head }), Code::NoSession);
    assert_eq!(code(Header { call: rules::LIST, session: SessionId(999), ..head }), Code::NoSession);
    assert_eq!(code(Header { slot: 64, ..head }), Code::BadRequest);
    assert_eq!(code(Header { call: 0x6666, ..head }), Code::Unsupported);
    let other = Incarnation(rig.mdt.core.incarnation.0 + 5);
    assert_eq!(code(Header { incarnation: other, ..head }), Code::Moved);
    assert_eq!(code(Header { incarnation: other, call: rules::LIST, ..head }), Code::Moved);
    let flush = Header { incarnation: other, call: wire::session::Flush::CALL, ..head };
    assert_eq!(
        rig.send(flush, &[]).unwrap_err().code,
        Code::Moved,
        "a flush cannot vouch for another incarnation"
    );
    assert!(rig.list().is_empty());
}

#[test]
fn a_replay_may_not_take_a_fid_that_was_never_given() {
    let (rig, _) = Rig::fresh();
    let fid = rig.make(0, 1, "a").unwrap();
    let next = Fid(fid.0 + 1);
    assert_eq!(rig.replay(rules::MAKE, 0, 2, &body(next, "b")).unwrap_err().code, Code::BadRequest);
    assert_eq!(rig.make(0, 2, "b"), Ok(next));
}

/// ARCHITECTURE: "Shrink: `Truncating`, MDT flushed, objects cut and flushed, `Settle`."
#[test]
fn o3_a_pending_truncate_is_flushed_before_it_is_answered() {
    let (rig, _) = Rig::fresh();
    rig.make(0, 1, "a").unwrap();
    let volume = &rig.mdt.core.volume;
    assert!(volume.flushed_seq() < volume.last_seq());
    let req = Truncate {
        fid: Fid(16),
        size: 5,
        now: types::Time::default(),
        cred: types::Cred::root(),
        held: None,
    };
    let (seq, _) = rig.mutate(Truncate::CALL, 0, 2, &req.to_bytes()).unwrap();
    assert!(volume.flushed_seq() >= seq);
}

#[test]
fn lease_versions_rise_over_the_low_half() {
    use wire::object::Capability;
    let (rig, _) = Rig::fresh();
    let cap = || Capability::from_bytes(&rig.mutate(rules::LEASE, 0, 0, &[]).unwrap().1).unwrap();
    let first = cap();
    assert_eq!(first.lease_epoch, 1);
    object::cap::check_right(&super::rig::SECRET, &first, 1, 1_000_000).unwrap();
    rig.mdt.core.executor.lead().ids.skip_leases_to((1 << 32) + 7);
    let second = cap();
    assert!((second.lease_epoch, second.lease_counter) > (first.lease_epoch, first.lease_counter));
    assert_eq!((second.lease_epoch, second.lease_counter), (2, 7));
}

#[test]
fn m4_a_slot_that_was_first_used_after_a_checkpoint_survives_a_replay() {
    let (rig, disk) = Rig::fresh();
    rig.mdt.checkpoint().unwrap();
    let fid = rig.make(1, 1, "a").unwrap();
    drop(rig);
    let rig = Rig::open(disk);
    assert_eq!(rig.make(1, 1, "a"), Ok(fid), "it is answered from its slot");
}
