use std::collections::BTreeMap;

use disk::volume::{Format, Kind, Label, Verdict, Volume};
use disk::{Crash, MemDisk, SimDisk, SplitMix};
use types::{Epoch, MirrorId, TargetId, Uuid};

use super::*;
use crate::{Batch, Engine, Table, Value, View, conformance};

type Model = BTreeMap<Key, Vec<u8>>;

fn label() -> Label {
    Label {
        kind: Kind::Mdt,
        fs_name: "t".into(),
        fs_uuid: Uuid([8; 16]),
        uuid: Uuid([7; 16]),
        target: TargetId::default(),
        mirror: MirrorId::default(),
        index: 0,
        epoch: Epoch(1),
    }
}

/// A volume, the table on it, and what that should hold.
struct Scene {
    disk: Arc<SimDisk>,
    volume: Volume,
    table: Table,
    random: SplitMix,
    model: Model,
}

fn medium_of(volume: &Volume) -> Medium {
    Medium {
        disk: volume.disk().clone(),
        slots: volume.layout().slots,
        checkpoint: volume.checkpoint_place(),
    }
}

fn model_of(table: &Table) -> Model {
    let mut model = Model::new();
    let each = &mut |key: &Key, value: &[u8], crc| {
        model.insert(*key, Value::stored(value, crc).verified(key).unwrap().to_vec());
        Ok(())
    };
    table.snapshot().each(each).unwrap();
    model
}

/// The table that the last checkpoint has.
fn table_on(volume: &Volume) -> Result<Table, StreamError> {
    let table = Table::over(medium_of(volume)).unwrap();
    match volume.checkpoint_reader().unwrap() {
        Some(mut stream) => table.open(volume.checkpoint_seq(), &mut stream, &mut |_, _| false),
        None => Ok(table),
    }
}

impl Scene {
    fn new() -> Scene {
        let disk = Arc::new(SimDisk::new(4 << 20));
        let format = Format { label: label(), log_bytes: 64 << 10, checkpoint_bytes: 1 << 20 };
        Volume::format(&*disk, &format, false).unwrap();
        Scene::open(disk, Model::new())
    }

    fn open(disk: Arc<SimDisk>, model: Model) -> Scene {
        let volume = Volume::open(disk.clone() as Arc<dyn Disk>).unwrap();
        let table = table_on(&volume).unwrap();
        volume.replay(&mut |_| Verdict::Keep).unwrap();
        volume.start().unwrap();
        Scene { disk, volume, table, random: SplitMix::new(5), model }
    }

    fn change(&mut self, count: u64) {
        let mut batch = Batch::new();
        for _ in 0..count {
            let key = Key::new(&self.random.below(2000).to_be_bytes()).unwrap();
            if self.random.below(4) == 0 {
                batch.delete(key);
                self.model.remove(&key);
                continue;
            }
            let len = if self.random.below(20) == 0 {
                600 + self.random.below(6000)
            } else {
                self.random.below(60)
            };
            let value = vec![self.random.below(256) as u8; len as usize];
            batch.put(key, Value::new(&value));
            self.model.insert(key, value);
        }
        let seq = self.volume.append(Epoch(1), &[0; 8]).unwrap();
        self.table.apply(seq, batch);
    }

    fn checkpoint(&self) -> Result<(), disk::VolumeError> {
        let snap = self.table.snapshot();
        let write = &mut |out: &mut dyn io::Write| self.table.checkpoint(&snap, &mut std::iter::empty(), out);
        let done = self.volume.checkpoint(self.volume.position(), write);
        self.table.end_checkpoint(done.is_ok());
        done
    }

    fn pages_named(&self) -> u64 {
        let state = self.on_medium().state.lock();
        state.named.iter().flat_map(|place| &place.runs).map(|run| u64::from(run.pages)).sum()
    }

    fn on_medium(&self) -> &OnMedium {
        self.table.on_medium().unwrap()
    }
}

/// D1, D2: a leaf that is as it was once more, after a checkpoint without it, has no place.
#[test]
fn a_change_that_is_taken_back_after_a_checkpoint_names_no_page_that_is_free() {
    let mut scene = Scene::new();
    for _ in 0..20 {
        scene.change(100);
    }
    scene.checkpoint().unwrap();
    for round in 0..20u64 {
        let key = Key::new(&[&(round * 97).to_be_bytes()[..], &[1]].concat()).unwrap();
        // Few enough to stay among the latest changes.
        for value in [Some(Value::new(b"for a while")), None] {
            let mut batch = Batch::new();
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
            let seq = scene.volume.append(Epoch(1), &[0; 8]).unwrap();
            scene.table.apply(seq, batch);
            scene.checkpoint().unwrap();
        }
        assert_eq!(
            scene.pages_named(),
            scene.on_medium().area.pages_used(),
            "round {round}: what is named is not free"
        );
        assert_eq!(model_of(&table_on(&scene.volume).unwrap()), scene.model, "round {round}");
        scene.change(3);
    }
}

#[test]
fn conforms() {
    let medium = |disk: &Arc<MemDisk>, checkpoint| Medium {
        disk: disk.clone(),
        slots: [0..8 << 20, 8 << 20..16 << 20],
        checkpoint,
    };
    // Which medium a table is over, by its capacity there is no way to tell.
    let disk = std::cell::RefCell::new(Arc::new(MemDisk::new(16 << 20)));
    let make = || {
        disk.replace(Arc::new(MemDisk::new(16 << 20)));
        Table::over(medium(&disk.borrow(), None)).unwrap()
    };
    // A checkpoint that was begun and not named: its leaves are there, and nothing else counts.
    conformance::all_of(&make, &|_: &Table| Table::over(medium(&disk.borrow(), Some(0..4096))).unwrap());
}

#[test]
fn power_may_fail_at_every_write_of_checkpoints() {
    let mut scene = Scene::new();
    scene.change(1500);
    scene.checkpoint().unwrap();
    let mut states = BTreeMap::from([(scene.volume.checkpoint_seq(), scene.model.clone())]);
    scene.disk.record();
    for _ in 0..3 {
        scene.change(150);
        states.insert(scene.volume.last_seq(), scene.model.clone());
        scene.checkpoint().unwrap();
    }
    let recording = scene.disk.take_recording().unwrap();
    for at in 0..=recording.events.len() {
        let seed = at as u64;
        for crash in
            [Crash::KeepAll, Crash::DropAll, Crash::Writes(seed), Crash::Torn(seed), Crash::Sectors(seed)]
        {
            let disk = Arc::new(recording.crash_at(at, crash));
            let volume = Volume::open(disk.clone() as Arc<dyn Disk>).unwrap();
            let (seq, table) = (volume.checkpoint_seq(), table_on(&volume).unwrap());
            assert!(model_of(&table) == states[&seq], "event {at}, {crash:?}: the state of {seq}");
            drop((volume, table));
            if crash == Crash::DropAll && at % 5 == 0 {
                // It goes on from there: what is taken for free is not what counts.
                let mut again = Scene::open(disk, states[&seq].clone());
                again.change(400);
                again.checkpoint().unwrap();
                let volume = Volume::open(again.disk.clone() as Arc<dyn Disk>).unwrap();
                assert!(model_of(&table_on(&volume).unwrap()) == again.model, "after event {at}");
            }
        }
    }
}

#[test]
fn a_checkpoint_writes_what_changed() {
    let mut scene = Scene::new();
    scene.change(3000);
    scene.checkpoint().unwrap();
    let all = scene.on_medium().area.pages_used();
    let places = |scene: &Scene| -> HashSet<u64> {
        scene.on_medium().state.lock().named.iter().map(|place| place.runs[0].start).collect()
    };
    let before = places(&scene);
    scene.change(3);
    scene.checkpoint().unwrap();
    let after = places(&scene);
    let new = after.difference(&before).count();
    assert!((1..=6).contains(&new) && after.len() > 15, "{new} of {}", after.len());
    // What it replaced is free.
    assert!(scene.on_medium().area.pages_used().abs_diff(all) < 10);
    assert_eq!(scene.on_medium().area.pages_used(), scene.pages_named());
    // What the owner reckons with, before the latest changes are in leaves.
    let reckoned = scene.table.snapshot().medium_bytes() / PAGE;
    assert!((all..all + 10).contains(&reckoned), "{reckoned} for {all}");
}

#[test]
fn a_checkpoint_that_fails_takes_no_room_and_changes_nothing() {
    let mut scene = Scene::new();
    scene.change(1000);
    scene.checkpoint().unwrap();
    let used = scene.on_medium().area.pages_used();
    scene.change(500);
    let snap = scene.table.snapshot();
    for _ in 0..20 {
        let write = &mut |out: &mut dyn io::Write| {
            scene.table.checkpoint(&snap, &mut std::iter::empty(), out)?;
            Err(io::Error::other("the medium failed"))
        };
        scene.volume.checkpoint(scene.volume.position(), write).unwrap_err();
        scene.table.end_checkpoint(false);
        assert_eq!(scene.on_medium().area.pages_used(), used);
    }
    // One that nobody ended takes no room either, once there is another.
    let used = [(); 3].map(|()| {
        scene.table.checkpoint(&snap, &mut std::iter::empty(), &mut Vec::new()).unwrap();
        scene.on_medium().area.pages_used()
    });
    assert!(used[0] == used[1] && used[1] == used[2], "{used:?}");
    scene.checkpoint().unwrap();
    let again = Scene::open(Arc::new(scene.disk.crash(Crash::DropAll)), Model::new());
    assert!(model_of(&again.table) == scene.model);
}

/// A head longer than its part of the slot would lie over leaves.
#[test]
fn a_head_that_is_too_long_is_refused() {
    let mut scene = Scene::new();
    scene.change(10);
    let (snap, value) = (scene.table.snapshot(), Value::new(&[1; 5000]));
    let mut rest = (0..200u8).map(|n| (Key::new(&[9, n]).unwrap(), value.clone()));
    let mut out = Vec::new();
    let refused = scene.table.checkpoint(&snap, &mut rest, &mut out).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(out.len() as u64 <= scene.on_medium().room().head_bytes);
}

#[test]
fn a_leaf_that_rots_is_named() {
    let mut scene = Scene::new();
    scene.change(2000);
    scene.checkpoint().unwrap();
    let named = scene.on_medium().state.lock().named.clone();
    for place in &named {
        let disk = scene.disk.crash(Crash::KeepAll);
        let at = scene.on_medium().area.begin(place);
        let mut byte = [0];
        let victim = at + place.bytes / 2;
        disk.read_at(&mut byte, victim).unwrap();
        disk.write_at(&[byte[0] ^ 4], victim).unwrap();
        let volume = Volume::open(Arc::new(disk) as Arc<dyn Disk>).unwrap();
        let why = table_on(&volume).err().unwrap().to_string();
        assert!(why.contains(&format!("at medium offset {at}: wrong checksum")), "{why}");
    }
}

/// The records of an earlier release's checkpoint lie where leaves are to lie.
#[test]
fn an_earlier_checkpoint_is_taken_over() {
    let mut scene = Scene::new();
    scene.change(1800);
    // Much more than the head's part of a slot.
    let large = (0..80u8).map(|n| (Key::new(&[1, n]).unwrap(), vec![n; 5900]));
    scene.model.extend(large);
    let old = Table::new();
    let mut batch = Batch::new();
    scene.model.iter().for_each(|(key, value)| batch.put(*key, Value::new(value)));
    old.apply(scene.volume.last_seq(), batch);
    let snap = old.snapshot();
    let write = &mut |out: &mut dyn io::Write| old.checkpoint(&snap, &mut std::iter::empty(), out);
    scene.volume.checkpoint(scene.volume.position(), write).unwrap();
    let stream = scene.volume.checkpoint_place().unwrap();
    assert!(stream.end - stream.start > 600 << 10, "{stream:?}");
    let mut scene = Scene::open(scene.disk.clone(), scene.model);
    assert!(model_of(&scene.table) == scene.model);
    scene.disk.record();
    let before = (scene.volume.checkpoint_seq(), scene.model.clone());
    scene.change(100);
    scene.checkpoint().unwrap();
    let after = (scene.volume.checkpoint_seq(), scene.model.clone());
    let recording = scene.disk.take_recording().unwrap();
    for at in 0..=recording.events.len() {
        for crash in [Crash::KeepAll, Crash::DropAll, Crash::Sectors(at as u64)] {
            let volume = Volume::open(Arc::new(recording.crash_at(at, crash)) as Arc<dyn Disk>).unwrap();
            let state = (volume.checkpoint_seq(), model_of(&table_on(&volume).unwrap()));
            assert!(state == before || state == after, "event {at}, {crash:?}");
        }
    }
    // Its room is free now.
    scene.change(100);
    scene.checkpoint().unwrap();
    assert_eq!(scene.on_medium().area.pages_used(), scene.pages_named());
}
