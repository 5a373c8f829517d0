//! The medium, read by `verify` from the documents alone, holds the MDT's state, and no damage to it goes unseen.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, SimDisk};
use kv::{Engine, View};
use types::*;
use wire::meta::{SetXattr, Symlink};

use super::counts::Play;
use super::meta_rules::fresh;
use super::rig::Rig;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// Records of the table, slots and pending counts are the medium's.
pub fn check_image(rig: &Rig, disk: &SimDisk, when: &str) {
    let image = verify::read(disk).unwrap_or_else(|why| panic!("{when}: {why}"));
    let mut records = Records::new();
    let each = rig.mdt.core.kv.snapshot().each(&mut |key, value, _| {
        records.insert(key.as_bytes().to_vec(), value.to_vec());
        Ok(())
    });
    each.unwrap();
    let differ = |a: &Records, b: &Records| a.iter().filter(|(k, v)| b.get(*k) != Some(*v)).count();
    let both = (differ(&records, &image.records), differ(&image.records, &records));
    assert_eq!(both, (0, 0), "{when}: records that differ");
    let slots = |n: usize| format!("{when}: {n} slots");
    let mut had = BTreeMap::new();
    for (key, value) in rig.mdt.core.executor.lead().slots.records() {
        had.insert(key.as_bytes().to_vec(), value.raw().to_vec());
    }
    for ((session, slot), said) in &image.slots {
        let key = meta::keys::slot(SessionId(*session), *slot);
        let value = [&said.sequence.to_le_bytes()[..], &said.seq.to_le_bytes(), &said.reply].concat();
        assert_eq!(had.remove(key.as_bytes()), Some(value), "{}", slots(image.slots.len()));
    }
    assert!(had.is_empty(), "{}", slots(image.slots.len()));
}

/// A tree with records of most kinds on a medium that was stopped in good order.
fn stopped() -> Arc<SimDisk> {
    let (rig, disk) = fresh();
    let mut play = Play::new(rig, 11);
    (0..80).for_each(|_| play.step());
    let (now, cred) = (Time::new(10, 0), Cred::root());
    let link = Symlink {
        parent: Fid::ROOT,
        name: b"link"[..].into(),
        target: b"there"[..].into(),
        now,
        cred: cred.clone(),
        want: Fid(0),
    };
    let fid = play.rig.ask(&link, play.rig.session).unwrap().attr.fid;
    let (name, value) = (b"trusted.x"[..].into(), vec![5; 900][..].into());
    play.rig.ask(&SetXattr { fid, name, value, flags: 0, now, cred }, play.rig.session).unwrap();
    play.rig.mdt.stop(true).unwrap();
    check_image(&play.rig, &disk, "stopped");
    disk
}

/// Each bit that is wrong is found, or lies where nothing is said.
#[test]
fn a_flipped_bit_is_found_or_means_nothing() {
    let disk = stopped();
    assert_eq!(verify::findings(&*disk), Vec::<String>::new());
    let was = verify::read(&*disk).unwrap();
    let mut bytes = vec![0; disk.size() as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    let (mut found, mut at) = (0, 0);
    while let Some(next) = bytes[at..].iter().position(|b| *b != 0) {
        at += next;
        disk.write_at(&[bytes[at] ^ 1 << (at % 8)], at as u64).unwrap();
        match verify::read(&*disk) {
            Err(_) => found += 1,
            Ok(now) => assert!(now.records == was.records && now.rows == was.rows, "byte {at}"),
        }
        disk.write_at(&bytes[at..=at], at as u64).unwrap();
        at += 97;
    }
    assert!(found > 20, "{found} flips were found");
}

/// States that the rules must never make are found.
#[test]
fn records_that_contradict_each_other_are_found() {
    let whole = verify::read(&*stopped()).unwrap();
    assert_eq!(whole.check(), Vec::<String>::new());
    let kinds = |kind: u8| whole.records.iter().filter(move |(key, _)| key[0] == kind);
    // Any one of these that is gone, or is nonsense. (No lease number stands elsewhere.)
    for kind in [1, 2, 9, 10] {
        for (key, _) in kinds(kind).filter(|(key, _)| **key != [9, 2]) {
            let mut image = whole.clone();
            image.records.remove(key);
            assert!(!image.check().is_empty(), "{key:02x?} is gone");
            image.records.insert(key.clone(), vec![1, 2, 3]);
            assert!(!image.check().is_empty(), "{key:02x?} is nonsense");
        }
    }
    // A page, attributes, a count of what is not there.
    for kind in [3u8, 4, 5, 11] {
        let (key, value) = kinds(kind).find(|(key, _)| key.len() > 1).map_or_else(
            || (vec![kind, 0, 0, 0, 0, 0, 0, 0, 1], vec![1, 7, 0, 0, 0, 0, 0, 0, 0]),
            |(key, value)| (key.clone(), value.clone()),
        );
        let mut image = whole.clone();
        image.records.insert([&key[..1], &[0, 0, 9, 9, 9, 9, 9, 9], &key[9..]].concat(), value);
        assert!(!image.check().is_empty(), "kind {kind}");
    }
}
