//! A backup is one state, whatever comes while it is made; what is restored is that state, and nobody is in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, SimDisk};
use kv::Value;
use meta::keys;
use types::*;
use wire::changelog::{ChangeOp, ListConsumers, ReadChanges, RegisterConsumer};
use wire::check::{CopyOut, CopyReply};
use wire::codec::Bytes;
use wire::meta::Unlink;

use super::counts::Play;
use super::meta_rules::{fresh, rig};
use super::rig::{Rig, SECRET};
use crate::upkeep::abandoned::Abandoned;
use crate::upkeep::backup::{Stream, read_head};
use crate::{Mdt, Settings};

/// A whole backup; `between` its answers something else may happen.
fn backup(rig: &Rig, between: &mut dyn FnMut()) -> Vec<u8> {
    let cap = object::cap::make_admin(&SECRET, 1 << 40);
    let ask = |run, after| -> CopyReply {
        rig.ask(&CopyOut { cap: cap.clone(), run, after }, SessionId(0)).unwrap()
    };
    let mut reply = ask(0, Bytes::default());
    let (head, mut out) = (reply.head.take().unwrap(), Vec::new());
    let mut stream = Stream::begin(&head, &mut out).unwrap();
    loop {
        reply.records.iter().for_each(|record| stream.record(record).unwrap());
        if reply.done {
            break;
        }
        between();
        let last = reply.records.last().unwrap().key.clone();
        reply = ask(reply.run, last);
    }
    stream.finish().unwrap();
    out
}

fn restore(bytes: &[u8]) -> Result<Arc<SimDisk>, Fault> {
    let disk = Arc::new(SimDisk::new(16 << 20));
    let mut input = bytes;
    let head = read_head(&mut input)?;
    let settings = Settings { background: false, ..Settings::default() };
    Mdt::restore(disk.clone() as Arc<dyn Disk>, &head, Some(1 << 20), false, &mut input, settings)?;
    Ok(disk)
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// All but sessions, orphans and numbers.
fn lasting(disk: &SimDisk) -> Records {
    let mut records = verify::read(disk).unwrap().records;
    records.retain(|key, _| ![keys::SESSION, keys::ORPHAN, keys::COUNTER].contains(&key[0]));
    records
}

/// mds-BK2: as they are once restored, the same but for which layouts come next.
fn restored_of(records: Records) -> Records {
    let raised = |(key, value): (Vec<u8>, Vec<u8>)| {
        let fid = keys::fid_of_inode(&Key::new(&key).unwrap());
        let raised = fid.and_then(|fid| meta::restored::inode(fid, &value).unwrap());
        (key, raised.unwrap_or(value))
    };
    records.into_iter().map(raised).collect()
}

fn limits(disk: &SimDisk) -> Vec<u64> {
    let records = verify::read(disk).unwrap().records;
    let limit = |which| u64::from_le_bytes(records[&[keys::COUNTER, which][..]][..].try_into().unwrap());
    [1, 2, 3].map(limit).to_vec()
}

#[test]
fn what_is_restored_is_the_state_of_the_backup_and_nobody_is_in_it() {
    let (rig1, disk) = fresh();
    let mut play = Play::new(rig1, 3);
    (0..150).for_each(|_| play.step());
    let (before, numbers) = (lasting(&disk), limits(&disk));
    // Rows that no record has yet are in it, too.
    assert!(play.rig.mdt.core.executor.lead().counts.records().count() > 0);
    let bytes = backup(&play.rig, &mut || ());
    (0..50).for_each(|_| play.step());
    assert!(lasting(&disk) != before, "it went on");
    let restored = restore(&bytes).unwrap();
    verify::assert_whole(&*restored, "restored");
    assert!(lasting(&restored) == restored_of(before));
    let image = verify::read(&*restored).unwrap();
    assert!(image.slots.is_empty() && !image.records.keys().any(|key| key[0] == keys::SESSION));
    // mds-BK2: whatever it gave out after the backup.
    for (was, is) in numbers.iter().zip(limits(&restored)) {
        assert!(is >= was + (1 << 40), "{was} {is}");
    }
    let again = rig(restored.clone());
    let mut play = Play::new(again, 4);
    (0..50).for_each(|_| play.step());
    verify::assert_whole(&*restored, "and it goes on");
}

/// mds-BK1.
#[test]
fn changes_while_it_is_made_are_not_in_a_backup() {
    let (rig1, disk) = fresh();
    let mut play = Play::new(rig1, 8);
    (0..100).for_each(|_| play.step());
    let before = lasting(&disk);
    let (rig, now, mut answers) = (&play.rig, Time::new(10, 0), 0);
    let bytes = backup(rig, &mut || {
        answers += 1;
        for name in 0..6 {
            let name = format!("n{name}").as_bytes().into();
            let gone = Unlink { parent: Fid::ROOT, name, held: false, now, cred: Cred::root() };
            drop(rig.ask(&gone, rig.session));
        }
    });
    assert!(answers > 0 && lasting(&disk) != before, "{answers} answers before the last");
    let restored = restore(&bytes).unwrap();
    assert!(lasting(&restored) == restored_of(before));
    verify::assert_whole(&*restored, "restored");
}

#[test]
fn a_backup_that_was_cut_or_changed_is_refused() {
    let (rig1, _disk) = fresh();
    let mut play = Play::new(rig1, 3);
    (0..30).for_each(|_| play.step());
    let bytes = backup(&play.rig, &mut || ());
    for at in (0..bytes.len()).step_by(37) {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        assert!(restore(&changed).is_err(), "byte {at}");
    }
    for len in (0..bytes.len()).step_by(61) {
        assert!(restore(&bytes[..len]).is_err(), "{len} bytes");
    }
}

/// Changes after the backup had numbers that consumers remember. They are not given again, and a consumer registers anew.
#[test]
fn a_restored_changelog_begins_behind_all_its_numbers() {
    let (rig1, _) = fresh();
    let cap = object::cap::make_admin(&SECRET, 1 << 40);
    let register = RegisterConsumer { name: "a".into(), mask: ChangeOp::MASK_ALL, cap: cap.clone() };
    let list = ListConsumers { cap: cap.clone() };
    let first = rig1.ask(&register, SessionId(0)).unwrap();
    let mut play = Play::new(rig1, 3);
    (0..30).for_each(|_| play.step());
    let bytes = backup(&play.rig, &mut || ());
    (0..30).for_each(|_| play.step());
    play.rig.mdt.flush().unwrap();
    let last = play.rig.ask(&list, SessionId(0)).unwrap().newest;
    let restored = rig(restore(&bytes).unwrap());
    assert!(restored.ask(&list, SessionId(0)).unwrap().consumers.is_empty());
    let again = restored.ask(&register, SessionId(0)).unwrap();
    assert!(again.id > first.id, "{again:?} after {first:?}");
    let mut play = Play::new(restored, 4);
    (0..30).for_each(|_| play.step());
    play.rig.mdt.flush().unwrap();
    let read = ReadChanges { id: again.id, after: again.after, max: 1000, cap };
    let told = play.rig.ask(&read, SessionId(0)).unwrap();
    assert!(told.changes.first().is_some_and(|change| change.number > last), "{last} was the last");
}

/// Only changelog records can be abandoned, and a restored changelog begins anew.
#[test]
fn a_restored_mdt_has_abandoned_nothing() {
    let (rig, _) = fresh();
    let (first, end) = (keys::kind_start(keys::ORPHAN), keys::kind_start(keys::ORPHAN + 1));
    let given = Abandoned { first, end }.encode();
    let layer = [(Abandoned::key(), Some(Value::new(&given)))].into();
    rig.mdt.core.commit_changes(&mut rig.mdt.core.executor.lead(), layer).unwrap();
    let bytes = backup(&rig, &mut || ());
    assert!(bytes.windows(given.len()).any(|part| part == given), "the backup has it");
    let kept = lasting(&restore(&bytes).unwrap());
    assert!(!kept.is_empty() && !kept.contains_key(Abandoned::key().as_bytes()));
}
