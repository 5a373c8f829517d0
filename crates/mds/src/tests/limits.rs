//! Full logs, full tables, damage: refused cleanly, or worked around.

use disk::{FaultyDisk, SimDisk};
use kv::{Batch, Engine, Value};
use std::sync::Arc;
use types::{Code, Fid, Key, SessionId};
use wire::mdt::MdtStat;
use wire::session::TargetStat;

use super::rig::{Rig, SECRET, format, label};
use super::rules::{self, body};
use crate::upkeep::purge::Walk;

#[test]
fn a_full_log_is_checkpointed_and_the_request_goes_on() {
    let (rig, disk) = Rig::fresh();
    // 64 KiB of log, no background thread: several laps.
    for n in 0..3000u32 {
        rig.make(0, 2 * n + 1, "a").unwrap();
        rig.mutate(rules::REMOVE, 0, 2 * n + 2, &body(Fid(0), "a")).unwrap();
        if n % 100 == 0 {
            let core = &rig.mdt.core;
            core.purge_round(&mut Walk::default(), 1000).unwrap();
        }
    }
    rig.make(0, 6001, "z").unwrap();
    let names = rig.list();
    drop(rig);
    let rig = Rig::open(Arc::new(disk.crash(disk::Crash::KeepAll)));
    assert_eq!(rig.list(), names);
}

#[test]
fn a_full_table_refuses_growth_and_lets_deletes_through() {
    let (rig, disk) = Rig::fresh();
    let mut made = 0;
    let fault = loop {
        match rig.make(0, 0, &format!("file {made:012}")) {
            Ok(_) => made += 1,
            Err(fault) => break fault,
        }
        assert!(made < 20_000, "256 KiB of checkpoint cannot hold this");
    };
    assert_eq!(fault.code, Code::NoSpace);
    let stat = rig.ask(&TargetStat {}, SessionId(0)).unwrap();
    assert_eq!((stat.bytes_free, stat.files_free), (0, 0));
    assert_eq!(stat.files_total, made + 1, "and the root");
    let cap = object::cap::make_admin(&SECRET, 1 << 40);
    let near = rig.ask(&MdtStat { cap }, SessionId(0)).unwrap();
    assert!(near.room_bytes_used >= near.room_bytes_total && near.inline_limit == 512, "{near:?}");
    let forged = object::cap::make_admin(&types::Uuid([1; 16]), 1 << 40);
    assert_eq!(rig.ask(&MdtStat { cap: forged }, SessionId(0)).unwrap_err().code, Code::Fenced);
    // The state still fits a checkpoint, and deletes work to the last file.
    rig.mdt.core.checkpoint_now().unwrap();
    for n in 0..made {
        rig.mutate(rules::REMOVE, 0, 0, &body(Fid(0), &format!("file {n:012}"))).unwrap();
        if n % 200 == 0 {
            rig.mdt.core.purge_round(&mut Walk::default(), 1000).unwrap();
        }
    }
    rig.mdt.core.purge_round(&mut Walk::default(), 10_000).unwrap();
    rig.make(0, 0, "again").unwrap();
    rig.mdt.stop(true).unwrap();
    assert_eq!(Rig::open(disk).list().len(), 1);
}

#[test]
fn rules_that_do_not_care_cannot_outgrow_the_checkpoint() {
    let (rig, disk) = Rig::fresh();
    rig.make(0, 0, "a").unwrap();
    let body_bytes = vec![7; 40_000];
    let fault = loop {
        if let Err(fault) = rig.mutate(rules::FAT, 0, 0, &body_bytes) {
            break fault;
        }
    };
    assert_eq!(fault.code, Code::NoSpace);
    rig.mdt.core.checkpoint_now().unwrap();
    rig.mutate(rules::REMOVE, 0, 0, &body(Fid(0), "a")).unwrap();
    rig.mdt.stop(true).unwrap();
    assert!(Rig::open(disk).list().is_empty());
}

#[test]
fn an_entry_of_most_of_the_log_finds_room() {
    let disk = Arc::new(SimDisk::new(2 << 20));
    let spec = crate::FormatSpec { label: label(), log_bytes: 64 << 10, checkpoint_bytes: 512 << 10 };
    crate::Mdt::format(disk.clone(), &spec, false, &*rules::flat(), types::Time::new(1, 0)).unwrap();
    let rig = Rig::open(disk);
    for n in 0..20 {
        rig.mutate(rules::FAT, 0, 0, &vec![7; 400 * n]).unwrap();
    }
    // The log is not half full, and has no room for this.
    rig.mdt.core.checkpoint_now().unwrap();
    (0..30).for_each(|_| drop(rig.mutate(rules::FAT, 0, 0, &[7; 700]).unwrap()));
    assert!(!rig.mdt.core.log_is_half_full());
    rig.mutate(rules::FAT, 0, 0, &vec![7; 60_000]).unwrap();
}

#[test]
fn a_rule_that_draws_too_many_ids_is_refused_whole() {
    let (rig, _) = Rig::fresh();
    assert_eq!(rig.mutate(rules::GREEDY, 0, 1, &[]).unwrap_err().code, Code::NotReady);
    assert!(rig.list().is_empty());
    rig.make(0, 1, "a").unwrap();
}

#[test]
fn a_damaged_record_is_an_error_and_never_an_absence() {
    let (rig, _) = Rig::fresh();
    rig.make(0, 1, "a").unwrap();
    let mut b = Batch::new();
    b.put(Key::new(&[1, b'a']).unwrap(), Value::stored(&[0; 8], 1));
    rig.mdt.core.kv.apply(rig.mdt.core.volume.last_seq(), b);
    let read = rig.send(wire::Header { call: rules::LIST, ..wire::Header::default() }, &[]);
    assert_eq!(read.unwrap_err().code, Code::Damaged);
    assert_eq!(rig.make(0, 2, "a").unwrap_err().code, Code::Damaged, "not made a second time");
    let removed = rig.mutate(rules::REMOVE, 0, 2, &body(Fid(0), "a"));
    assert_eq!(
        removed.unwrap_err().code,
        Code::Damaged,
        "mds-V1: the rule saw no such name, which is not so"
    );
    assert!(rig.mdt.core.checkpoint_now().is_err(), "damage is not written out as truth");
    rig.make(0, 2, "b").unwrap();
}

/// kv-K7 of the engine: what it has on its medium only is brought outside all locks.
#[test]
fn who_finds_records_absent_starts_over_when_they_are_there() {
    let (rig, _) = Rig::fresh();
    let loads = || rig.mdt.core.kv.loads();
    let at_first = loads();
    let made = rig.make(0, 1, "a").unwrap();
    assert!(loads() > at_first, "names were away");
    assert_eq!(rig.make(0, 1, "a").unwrap(), made, "carried out once");
    assert_eq!(rig.list().len(), 1);
    let fault = rig.make(0, 2, "a").unwrap_err();
    assert_eq!(fault.code, Code::Exists);
}

#[test]
fn a_failed_write_fails_the_request_and_everything_after_it() {
    let disk = Arc::new(FaultyDisk::new(Arc::new(SimDisk::new(1 << 20))));
    format(disk.clone());
    let rig = Rig::open(disk.clone());
    let a = rig.make(0, 1, "a").unwrap();
    disk.fail(disk::Op::Write, disk::When::Always);
    assert_eq!(rig.make(0, 2, "b").unwrap_err().code, Code::Io);
    disk.fail(disk::Op::Write, disk::When::Never);
    assert_eq!(rig.make(0, 2, "b").unwrap_err().code, Code::Io, "nobody knows what the medium holds now");
    assert_eq!(rig.list().get("a"), Some(&a), "reading goes on");
}

/// A record that neither a checkpoint nor the next start would take must not get into the log.
#[test]
fn a_record_longer_than_a_value_may_be_is_refused() {
    // Room for it there is, in the table and in the log.
    let disk = Arc::new(SimDisk::new(64 << 20));
    let spec = crate::FormatSpec { label: label(), log_bytes: 8 << 20, checkpoint_bytes: 16 << 20 };
    crate::Mdt::format(disk.clone(), &spec, false, &*rules::flat(), types::Time::new(1, 0)).unwrap();
    let rig = Rig::open(disk.clone());
    rig.make(0, 0, "a").unwrap();
    let names = rig.list();
    let key = meta::keys::xattrs(Fid(99));
    let fault = rig
        .mdt
        .core
        .transact(&crate::records::ids::no_lease(), &mut |txn| {
            meta::Txn::put(txn, key, vec![7; kv::VALUE_MAX + 1]);
            Ok(vec![])
        })
        .unwrap_err();
    assert!(fault.code == Code::NoSpace && fault.detail.starts_with("record "), "{fault}");
    rig.mdt.core.checkpoint_now().unwrap();
    let again = Rig::open(Arc::new(disk.crash(disk::Crash::KeepAll)));
    assert_eq!(again.list(), names);
}

/// Seqs are counted by the entry and given to its members: where the two disagree, what was acknowledged is not known.
#[test]
fn an_entry_with_more_operations_than_members_is_refused() {
    let (rig, disk) = Rig::fresh();
    rig.make(0, 1, "a").unwrap();
    let mut changes = Batch::new();
    changes.put(Key::new(&[1, 2, 3]).unwrap(), Value::new(b"x"));
    let member = crate::records::record::Member { call: 1, origin: None, reply: [][..].into() };
    let append = |members: &[crate::records::record::Member], ops| {
        let mut payload = Vec::new();
        crate::records::record::encode(members, &changes, &mut payload);
        rig.mdt.core.volume.append_ops(types::Epoch(1), &payload, ops).unwrap();
    };
    append(&[], 1);
    append(&[member.clone(), member.clone()], 2);
    rig.mdt.core.volume.flush().unwrap();
    let open = |disk: SimDisk| Rig::try_open(Arc::new(disk), false).map(|_| ());
    open(disk.crash(disk::Crash::KeepAll)).unwrap();
    append(&[member], 2);
    let refused = open(disk.crash(disk::Crash::KeepAll)).unwrap_err();
    assert_eq!(refused.code, Code::Damaged);
    assert!(refused.detail.contains("2 operations, 1 members; open the MDT with the program"), "{refused}");
}
