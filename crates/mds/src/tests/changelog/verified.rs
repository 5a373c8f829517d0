//! The independent verifier knows the changelog.

use meta::note::{ChangeRecord, ChangelogRecord, ConsumerRecord};

use super::*;
use crate::upkeep::abandoned::Abandoned;

/// Two consumers that have lost something, and changes behind both.
fn played() -> verify::Image {
    let (rig, disk) = fresh();
    let (a, b) = (rig.register("a", &ChangeOp::ALL), rig.register("b", &[ChangeOp::Create]));
    (0..40).for_each(|n| _ = rig.create(&format!("f{n}")).unwrap());
    rig.mdt.flush().unwrap();
    rig.ack(a, 10).unwrap();
    rig.ack(b, 5).unwrap();
    assert!(rig.mdt.core.abandon_changes(6).unwrap());
    rig.mdt.flush().unwrap();
    verify::assert_whole(&*disk, "as it was");
    let image = verify::read(&*disk).unwrap();
    assert!(rig.consumers().consumers.iter().all(|c| c.lost.is_some()));
    image
}

#[test]
fn records_of_the_changelog_that_contradict_each_other_are_found() {
    let whole = played();
    let numbers: Vec<Vec<u8>> = whole.records.keys().filter(|k| k[0] == keys::CHANGE).cloned().collect();
    assert!(numbers.len() > 10);
    let consumers: Vec<Vec<u8>> = whole.records.keys().filter(|k| k[0] == keys::CONSUMER).cloned().collect();
    assert_eq!(consumers.len(), 3);
    let found = |what: &str, harm: &dyn Fn(&mut verify::Image)| {
        let mut image = whole.clone();
        harm(&mut image);
        let said = image.check();
        assert_eq!(said.len(), 1, "{what}: {said:?}");
    };
    let last = numbers.len() - 1;
    found("a gap", &|i| _ = i.records.remove(&numbers[3]));
    found("what comes next for who is behind", &|i| {
        // The other one has it behind it.
        let other = ConsumerRecord::decode(&i.records[&consumers[1]]).unwrap();
        let acked = other.acked + 1;
        i.records.insert(consumers[1].clone(), ConsumerRecord { acked, ..other }.encode());
        i.records.retain(|key, _| key[0] != keys::CHANGE || **key > *keys::change(acked).as_bytes());
    });
    found("all that comes for who is behind", &|i| {
        let other = ConsumerRecord::decode(&i.records[&consumers[1]]).unwrap();
        let acked = other.acked + 1;
        i.records.insert(consumers[1].clone(), ConsumerRecord { acked, ..other }.encode());
        i.records.retain(|key, _| key[0] != keys::CHANGE);
    });
    found("a number that was acknowledged and not given", &|i| {
        let consumer = ConsumerRecord::decode(&i.records[&consumers[1]]).unwrap();
        i.records.insert(consumers[1].clone(), ConsumerRecord { acked: 1000, ..consumer }.encode());
    });
    found("bytes that are not there", &|i| {
        let change = ChangeRecord::decode(&i.records[&numbers[last]]).unwrap();
        let bytes_before = change.bytes_before + 1;
        i.records.insert(numbers[last].clone(), ChangeRecord { bytes_before, ..change }.encode());
    });
    found("more bytes than there are", &|i| {
        let change = ChangeRecord::decode(&i.records[&numbers[0]]).unwrap();
        i.records.insert(
            numbers[0].clone(),
            ChangeRecord { bytes_before: meta::note::NUMBER_MAX, ..change }.encode(),
        );
    });
    found("a name that is no text", &|i| {
        *i.records.get_mut(&consumers[1]).unwrap().last_mut().unwrap() = 0xff
    });
    found("one name twice", &|i| {
        let consumer = i.records[&consumers[1]].clone();
        i.records.insert(consumers[2].clone(), consumer);
    });
    found("a newest number that was given before the last one", &|i| {
        i.records.insert(consumers[0].clone(), ChangelogRecord { number: 1000, consumer: 2 }.encode());
    });
    found("a consumer whose number was not given", &|i| {
        i.records.insert(consumers[0].clone(), ChangelogRecord { number: 0, consumer: 1 }.encode());
    });
    found("a change that is nonsense", &|i| _ = i.records.insert(numbers[last].clone(), vec![1, 9, 0, 0]));
    found("a consumer that is nonsense", &|i| _ = i.records.insert(consumers[2].clone(), vec![1]));
}

/// The records beside an abandoned range stay as they are, whatever is abandoned later.
#[test]
fn abandoned_records_may_be_missing() {
    let mut image = played();
    image.records.retain(|key, _| *key != keys::change(30).as_bytes());
    assert_eq!(image.check().len(), 1);
    let (first, end) = (keys::kind_start(keys::ORPHAN), keys::kind_start(keys::ORPHAN + 1));
    image.records.insert(Abandoned::key().as_bytes().to_vec(), Abandoned { first, end }.encode());
    assert_eq!(image.check(), Vec::<String>::new());
}
