//! Leaves of changes that rot.

use super::*;

impl Rig {
    /// The leaves of changes that have this name rot, and it starts again.
    fn again_without(self, disk: &SimDisk, name: &str) -> (Rig, Arc<SimDisk>) {
        self.mdt.stop(true).unwrap();
        let mut page = [0; PAGE_SIZE];
        let mut rotten = 0;
        for at in (0..disk.size()).step_by(PAGE_SIZE) {
            disk.read_at(&mut page, at).unwrap();
            // Of the first key: what all begin with, or its head.
            let kind = if page[6] > 0 { page[16] } else { page[19] };
            let is_of_changes = page.starts_with(b"SKL1") && kind == keys::CHANGE;
            let found = page.windows(name.len()).position(|bytes| bytes == name.as_bytes());
            if let Some(found) = found.filter(|_| is_of_changes) {
                disk.write_at(&[page[found] ^ 1], at + found as u64).unwrap();
                rotten += 1;
            }
        }
        assert!(rotten > 0);
        again(disk, Crash::KeepAll)
    }

    /// How many ranges of the changes' keys are lost.
    fn lost_stretches(&self) -> usize {
        let (mut from, end) = (keys::kind_start(keys::CHANGE), keys::kind_start(keys::CHANGE + 1));
        let view = self.mdt.core.kv.snapshot();
        let mut lost = 0;
        loop {
            match view.range(&from, &end, &mut |_, _| true) {
                Ok(()) => return lost,
                Err(kv::Miss::Absent(what)) => self.mdt.core.kv.load(what).unwrap(),
                Err(kv::Miss::Damage(damage)) => (lost, from) = (lost + 1, damage.end),
            }
        }
    }
}

/// A leaf of changes rots: what it had is named, no more and no less, and is passed over in one step once all have acknowledged it.
#[test]
fn a_leaf_of_changes_that_rots_is_passed_over_at_once() {
    let (rig, disk) = fresh();
    let id = rig.register("c", &ChangeOp::ALL);
    (0..300).for_each(|n| _ = rig.create(&format!("name {n:03}")).unwrap());
    let (rig, disk) = rig.again_without(&disk, "name 150");
    let said = |rig: &Rig, after| rig.ask(&ReadChanges { id, after, max: 1000, cap: cap() }, SessionId(0));
    let before = said(&rig, 0).unwrap().upto;
    let fault = said(&rig, before).unwrap_err();
    let behind = rig.mdt.core.executor.lead().changelog.numbers().1;
    let last = (before + 2..behind).find(|n| fault.detail.contains(&format!("acknowledge {n} to"))).unwrap();
    assert!(before < 151 && last >= 151 && last < before + 100, "{fault}");
    let told = said(&rig, last).unwrap().changes;
    assert_eq!(told[0].number, last + 1);
    assert_eq!(told[0].name.0, format!("name {:03}", last).into_bytes(), "the first one behind it");
    let entry = rig.mdt.core.volume.last_seq();
    rig.ack(id, last).unwrap();
    assert_eq!(rig.mdt.core.executor.lead().changelog.numbers().0, last + 1);
    assert_eq!(rig.lost_stretches(), 1);
    assert!(rig.mdt.core.volume.last_seq().0 - entry.0 < 9);
    // The last of them, with some consumers: numbers are passed over at the start (mds-C2), and have no records to forget.
    let others: Vec<u32> = (0..45).map(|n| rig.register(&format!("{n:060}"), &ChangeOp::ALL)).collect();
    let newest = rig.register("newest", &ChangeOp::ALL);
    (0..50).for_each(|n| _ = rig.create(&format!("late {n:03}")).unwrap());
    let (rig, _disk) = rig.again_without(&disk, "late 049");
    for id in others.into_iter().chain([id]) {
        drop(rig.ask(&DeregisterConsumer { id, cap: cap() }, SessionId(0)));
    }
    let id = newest;
    rig.create("new").unwrap();
    rig.mdt.flush().unwrap();
    let last = rig.mdt.core.executor.lead().changelog.numbers().1;
    assert!(last > 1 << 20, "{last}");
    let entry = rig.mdt.core.volume.last_seq();
    rig.ack(id, last).unwrap();
    assert_eq!(rig.consumers().records, 0);
    assert!(rig.mdt.core.volume.last_seq().0 - entry.0 < 9);
    assert_eq!(rig.lost_stretches(), 2);
}
