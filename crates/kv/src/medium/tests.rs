use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::volume::{Format, Kind, Label, Verdict, Volume};
use disk::{Crash, FaultyDisk, MemDisk, Op, SimDisk, SplitMix, When};
use types::{Epoch, MirrorId, TargetId, Uuid};

use super::*;
use crate::conformance::Ends;
use crate::{Batch, Change, Damage, Engine, Miss, Table, Tidied, Value, View, conformance};

mod damage;
mod walk;

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

/// A volume, the table on it, and the records that it should hold.
struct Scene {
    disk: Arc<SimDisk>,
    volume: Volume,
    table: Table,
    random: SplitMix,
    model: Model,
}

/// Without a bound of memory; and with one so tight that every evictable leaf is evicted.
const WIDE: u64 = u64::MAX;
const TIGHT: u64 = 0;

fn medium_of(volume: &Volume, cache_bytes: u64) -> Medium {
    Medium {
        disk: volume.disk().clone(),
        slots: volume.layout().slots,
        checkpoint: volume.checkpoint_place(),
        cache_bytes: Arc::new(cache_bytes.into()),
        troubles: volume.troubles().clone(),
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

/// The table of the last checkpoint.
fn table_on(volume: &Volume, cache_bytes: u64) -> Result<Table, StreamError> {
    // Changes move to the tree now and then.
    let shape = Shape { changes: 256, ..Shape::default() };
    let table = Table::over_shaped(medium_of(volume, cache_bytes), shape).unwrap();
    match volume.checkpoint_reader().unwrap() {
        Some(mut stream) => table.open(volume.checkpoint_seq(), &mut stream, &mut |_, _| false),
        None => Ok(table),
    }
}

impl Scene {
    fn new(cache_bytes: u64) -> Scene {
        Scene::of(1 << 20, cache_bytes)
    }

    fn of(checkpoint_bytes: u64, cache_bytes: u64) -> Scene {
        let disk = Arc::new(SimDisk::new(2 * checkpoint_bytes + (2 << 20)));
        let format = Format { label: label(), log_bytes: 64 << 10, checkpoint_bytes };
        Volume::format(&*disk, &format, false).unwrap();
        Scene::open(disk, Model::new(), cache_bytes)
    }

    fn open(disk: Arc<SimDisk>, model: Model, cache_bytes: u64) -> Scene {
        let volume = Volume::open(disk.clone() as Arc<dyn Disk>).unwrap();
        let table = table_on(&volume, cache_bytes).unwrap();
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
        self.load_for(&batch);
        self.table.apply(seq, batch);
    }

    fn change_one(&self, key: Key, value: Option<Value>) {
        let batch = Batch(vec![Change { key, value }]);
        let seq = self.volume.append(Epoch(1), &[0; 8]).unwrap();
        self.load_for(&batch);
        self.table.apply(seq, batch);
    }

    /// Adds a key that was not there; `go` deletes it again.
    fn come(&mut self) -> Key {
        let new = Key::new(&[&self.random.below(2000).to_be_bytes()[..], &[1]].concat()).unwrap();
        self.change_one(new, Some(Value::new(b"soon gone")));
        self.model.insert(new, b"soon gone".to_vec());
        new
    }

    fn go(&mut self, new: Key) {
        self.change_one(new, None);
        self.model.remove(&new);
    }

    fn load_for(&self, batch: &Batch) {
        while let Err(what) = self.table.admits(batch.keys()) {
            self.table.load(what).unwrap();
        }
    }

    /// Evicts as much as possible.
    fn shrink(&self) {
        while self.table.tidy() != Tidied::Done {}
    }

    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Damage> {
        let view = self.table.snapshot();
        loop {
            match view.get(key) {
                Ok(value) => return Ok(value.map(|value| value.into_owned())),
                Err(Miss::Damage(damage)) => return Err(damage),
                Err(Miss::Absent(what)) => self.table.load(what).unwrap(),
            }
        }
    }

    /// All keys from `from` on and below `to`. If `lost` counts lost ranges, those are left out; otherwise there must be none.
    fn list(&self, from: &Key, to: &Key, mut lost: Option<&mut usize>) -> Vec<Key> {
        let (view, mut from, mut seen) = (self.table.snapshot(), *from, Vec::new());
        loop {
            let mut page = Vec::new();
            let end = view.range(&from, to, &mut |key, _| {
                page.push(*key);
                true
            });
            match (end, &mut lost) {
                (Err(Miss::Absent(what)), _) => {
                    self.table.load(what).unwrap();
                    continue;
                }
                (Err(Miss::Damage(Damage { key, end })), Some(lost)) if key < end => {
                    seen.append(&mut page);
                    (**lost, from) = (**lost + 1, end);
                }
                (Err(miss), _) => panic!("{miss}"),
                (Ok(()), _) => {
                    seen.append(&mut page);
                    return seen;
                }
            }
        }
    }

    fn checkpoint(&self) -> Result<(), disk::VolumeError> {
        self.table.settle();
        self.checkpoint_unsettled()
    }

    fn checkpoint_unsettled(&self) -> Result<(), disk::VolumeError> {
        let snap = self.table.snapshot();
        let write = &mut |out: &mut dyn io::Write| self.table.checkpoint(&snap, &mut std::iter::empty(), out);
        let done = self.volume.checkpoint(self.volume.position(), write);
        self.table.end_checkpoint(done.is_ok());
        done
    }

    fn pages_named(&self) -> u64 {
        let state = self.on_medium().state.lock();
        state.named.iter().flat_map(|home| &home.place.runs).map(|run| u64::from(run.pages)).sum()
    }

    fn on_medium(&self) -> &OnMedium {
        self.table.on_medium().unwrap()
    }
}

/// The latest changes moved to the tree before the checkpoint, so the next one finds their leaves on the medium.
#[test]
fn what_a_checkpoint_wrote_the_next_one_does_not_write_again() {
    let mut scene = Scene::new(WIDE);
    scene.change(300);
    scene.checkpoint().unwrap();
    scene.change(5);
    let writes = |scene: &Scene| {
        let places = |scene: &Scene| -> Vec<_> {
            let state = scene.on_medium().state.lock();
            state.named.iter().map(|home| home.place.runs.clone()).collect()
        };
        let before = places(scene);
        scene.checkpoint().unwrap();
        places(scene) != before
    };
    assert!(writes(&scene) && !writes(&scene));
}

/// kv-D1, kv-D2: a leaf that gets its old content again, after a checkpoint without it, has no home.
#[test]
fn a_change_that_is_taken_back_after_a_checkpoint_names_no_page_that_is_free() {
    let mut scene = Scene::new(WIDE);
    for _ in 0..20 {
        scene.change(100);
    }
    scene.checkpoint().unwrap();
    for round in 0..20u64 {
        let key = Key::new(&[&(round * 97).to_be_bytes()[..], &[1]].concat()).unwrap();
        // Few enough to stay in the memtable.
        for value in [Some(Value::new(b"for a while")), None] {
            let mut batch = Batch::new();
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
            let seq = scene.volume.append(Epoch(1), &[0; 8]).unwrap();
            scene.table.apply(seq, batch);
            scene.checkpoint_unsettled().unwrap();
        }
        assert_eq!(
            scene.pages_named(),
            scene.on_medium().ground.area.pages_used(),
            "round {round}: what is named is not free"
        );
        assert_eq!(model_of(&table_on(&scene.volume, WIDE).unwrap()), scene.model, "round {round}");
        scene.change(3);
    }
}

#[test]
fn conforms() {
    // Of small leaves a few hundred records make a tree of several levels.
    for (cache_bytes, leaf_bytes) in [(WIDE, 4000), (TIGHT, 4000), (TIGHT, 256), (4 << 10, 256)] {
        let over = |disk: &Arc<MemDisk>, checkpoint| {
            let slots = [0..8 << 20, 8 << 20..16 << 20];
            let troubles = Arc::default();
            let medium = Medium {
                disk: disk.clone(),
                slots,
                checkpoint,
                cache_bytes: Arc::new(cache_bytes.into()),
                troubles,
            };
            let shape = Shape { leaf_bytes, fanout: if leaf_bytes < 4000 { 4 } else { 32 }, changes: 256 };
            Table::over_shaped(medium, shape).unwrap()
        };
        // `again` needs the medium of a table, and cannot find it from the table.
        let disk = std::cell::RefCell::new(Arc::new(MemDisk::new(16 << 20)));
        let (loads, evictions) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let make = || {
            disk.replace(Arc::new(MemDisk::new(16 << 20)));
            over(&disk.borrow(), None)
        };
        // The old checkpoint was begun and not named: its leaves are on the medium, and do not count.
        let again = |of: &Table| {
            let figures = of.figures();
            loads.set(loads.get() + figures.loads);
            evictions.set(evictions.get() + figures.evictions);
            over(&disk.borrow(), Some(0..4096))
        };
        conformance::all_of(&make, &again);
        let is_tight = cache_bytes != WIDE;
        assert_eq!((loads.get() > 20, evictions.get() > 20), (is_tight, is_tight), "{loads:?} {evictions:?}");
    }
}

#[test]
fn power_may_fail_at_every_write_of_checkpoints() {
    for cache_bytes in [WIDE, TIGHT] {
        let mut scene = Scene::new(cache_bytes);
        scene.change(1500);
        scene.checkpoint().unwrap();
        scene.shrink();
        let mut states = BTreeMap::from([(scene.volume.checkpoint_seq(), scene.model.clone())]);
        scene.disk.record();
        for _ in 0..3 {
            scene.change(150);
            states.insert(scene.volume.last_seq(), scene.model.clone());
            scene.checkpoint().unwrap();
            let new = scene.come();
            states.insert(scene.volume.last_seq(), scene.model.clone());
            scene.checkpoint_unsettled().unwrap();
            scene.go(new);
            states.insert(scene.volume.last_seq(), scene.model.clone());
            scene.checkpoint().unwrap();
            scene.shrink();
        }
        assert_eq!(scene.table.figures().evictions > 0, cache_bytes == TIGHT);
        let recording = scene.disk.take_recording().unwrap();
        for at in 0..=recording.events.len() {
            let seed = at as u64;
            for crash in
                [Crash::KeepAll, Crash::DropAll, Crash::Writes(seed), Crash::Torn(seed), Crash::Sectors(seed)]
            {
                let disk = Arc::new(recording.crash_at(at, crash));
                let volume = Volume::open(disk.clone() as Arc<dyn Disk>).unwrap();
                let (seq, table) = (volume.checkpoint_seq(), table_on(&volume, cache_bytes).unwrap());
                assert!(model_of(&table) == states[&seq], "event {at}, {crash:?}: the state of {seq}");
                drop((volume, table));
                if crash == Crash::DropAll && at % 5 == 0 {
                    // Work continues from there: allocating free pages does not overwrite valid ones.
                    let mut again = Scene::open(disk, states[&seq].clone(), cache_bytes);
                    again.change(400);
                    again.checkpoint().unwrap();
                    let volume = Volume::open(again.disk.clone() as Arc<dyn Disk>).unwrap();
                    let table = table_on(&volume, cache_bytes).unwrap();
                    assert!(model_of(&table) == again.model, "after event {at}");
                }
            }
        }
    }
}

/// Changes, durable and failed checkpoints, starts, and views that are kept: each view shows the same whatever is evicted meanwhile.
#[test]
fn what_goes_out_of_memory_is_what_comes_back() {
    // Space for the pages that the views hold.
    let mut scene = Scene::of(4 << 20, 64 << 10);
    let mut kept: std::collections::VecDeque<(<Table as Engine>::Snap, Model)> = Default::default();
    let (mut evictions, mut loads) = (0, 0);
    for step in 0..400 {
        if scene.random.below(3) == 0 {
            scene.table.move_changes(Duration::ZERO);
        }
        match scene.random.below(10) {
            0..4 => {
                let count = 1 + scene.random.below(120);
                scene.change(count);
            }
            4 => {
                // The views below hold places that no head names any more.
                match scene.random.below(2) {
                    0 => scene.checkpoint().unwrap(),
                    _ => scene.checkpoint_unsettled().unwrap(),
                }
            }
            5 => {
                // A key is added, and deleted before it reaches a leaf.
                let new = scene.come();
                scene.checkpoint().unwrap();
                scene.go(new);
            }
            6 | 7 => scene.shrink(),
            8 => {
                let all: Vec<Key> = scene.model.keys().copied().collect();
                for _ in 0..20.min(all.len()) {
                    let key = all[scene.random.below(all.len() as u64) as usize];
                    assert_eq!(scene.get(&key), Ok(scene.model.get(&key).cloned()), "step {step}");
                }
            }
            _ => {
                kept.push_back((scene.table.snapshot(), scene.model.clone()));
                if kept.len() > 3 {
                    kept.pop_front();
                }
            }
        }
        if step % 40 == 39 {
            for (view, model) in &kept {
                let mut seen = Model::new();
                let each = &mut |key: &Key, value: &[u8], _| {
                    seen.insert(*key, value.to_vec());
                    Ok(())
                };
                view.each(each).unwrap();
                assert!(seen == *model, "step {step}: a view that was kept");
                let size = view.size();
                assert_eq!(size.records, model.len() as u64);
            }
        }
        if step % 100 == 99 {
            kept.clear();
            let figures = scene.table.figures();
            (evictions, loads) = (evictions + figures.evictions, loads + figures.loads);
            // No reader holds older versions any more: their memory is free. The second call moves nothing, and frees what was replaced.
            scene.table.move_changes(Duration::ZERO);
            scene.table.move_changes(Duration::ZERO);
            scene.table.settle();
            for _ in 0..600 {
                scene.table.apply(scene.volume.last_seq(), Batch::new());
                drop(scene.table.reader());
            }
            scene.checkpoint().unwrap();
            assert_eq!(scene.on_medium().ground.area.pages_used(), scene.pages_named(), "step {step}");
            scene = Scene { random: scene.random, ..Scene::open(scene.disk, scene.model, 64 << 10) };
        }
    }
    assert!(evictions > 100 && loads > 100, "{evictions} {loads}");
}

#[test]
fn a_checkpoint_writes_what_changed() {
    let mut scene = Scene::new(WIDE);
    scene.change(3000);
    scene.checkpoint().unwrap();
    let all = scene.on_medium().ground.area.pages_used();
    let places = |scene: &Scene| -> HashSet<u64> {
        scene.on_medium().state.lock().named.iter().map(|home| home.place.runs[0].start).collect()
    };
    let before = places(&scene);
    scene.change(3);
    scene.checkpoint().unwrap();
    let after = places(&scene);
    let new = after.difference(&before).count();
    assert!((1..=6).contains(&new) && after.len() > 15, "{new} of {}", after.len());
    // The space of what it replaced is free.
    assert!(scene.on_medium().ground.area.pages_used().abs_diff(all) < 10);
    assert_eq!(scene.on_medium().ground.area.pages_used(), scene.pages_named());
    // The size that the owner plans with, before the latest changes are in leaves.
    let reckoned = scene.table.snapshot().medium_bytes() / PAGE;
    assert!((all..all + 10).contains(&reckoned), "{reckoned} for {all}");
}

/// A head drops a leaf that the newest changes hide, and those changes are undone before they reach it.
#[test]
fn a_leaf_that_is_itself_again_has_a_home_again() {
    let mut scene = Scene::new(TIGHT);
    scene.change(1500);
    scene.checkpoint().unwrap();
    let new = scene.come();
    scene.checkpoint().unwrap();
    scene.go(new);
    scene.checkpoint().unwrap();
    // The leaf is on the medium: nothing is written.
    let homes = |scene: &Scene| scene.on_medium().state.lock().named.clone();
    let before = homes(&scene);
    scene.checkpoint().unwrap();
    assert!(homes(&scene).iter().zip(&before).all(|(a, b)| Arc::ptr_eq(a, b)));
    drop(before);
    assert_eq!(scene.on_medium().ground.area.pages_used(), scene.pages_named());
    // And all leaves can be evicted.
    scene.shrink();
    assert_eq!(scene.table.figures().evictions, scene.table.figures().leaves);
    let again = Scene::open(Arc::new(scene.disk.crash(Crash::DropAll)), Model::new(), TIGHT);
    assert!(model_of(&again.table) == scene.model);
}

#[test]
fn a_checkpoint_that_fails_takes_no_room_and_changes_nothing() {
    let mut scene = Scene::new(WIDE);
    scene.change(1000);
    scene.checkpoint().unwrap();
    let used = scene.on_medium().ground.area.pages_used();
    scene.change(500);
    let snap = scene.table.snapshot();
    for _ in 0..20 {
        let write = &mut |out: &mut dyn io::Write| {
            scene.table.checkpoint(&snap, &mut std::iter::empty(), out)?;
            Err(io::Error::other("the medium failed"))
        };
        scene.volume.checkpoint(scene.volume.position(), write).unwrap_err();
        scene.table.end_checkpoint(false);
        assert_eq!(scene.on_medium().ground.area.pages_used(), used);
    }
    // A checkpoint that was never ended takes no space either, once there is another one.
    let used = [(); 3].map(|()| {
        scene.table.checkpoint(&snap, &mut std::iter::empty(), &mut Vec::new()).unwrap();
        scene.on_medium().ground.area.pages_used()
    });
    assert!(used[0] == used[1] && used[1] == used[2], "{used:?}");
    scene.checkpoint().unwrap();
    let again = Scene::open(Arc::new(scene.disk.crash(Crash::DropAll)), Model::new(), WIDE);
    assert!(model_of(&again.table) == scene.model);
}

/// A head longer than its part of the slot would lie over leaves.
#[test]
fn a_head_that_is_too_long_is_refused() {
    let mut scene = Scene::new(WIDE);
    scene.change(10);
    let (snap, value) = (scene.table.snapshot(), Value::new(&[1; 5000]));
    let mut rest = (0..200u8).map(|n| (Key::new(&[9, n]).unwrap(), value.clone()));
    let mut out = Vec::new();
    let refused = scene.table.checkpoint(&snap, &mut rest, &mut out).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    assert!(out.len() as u64 <= scene.on_medium().room().head_bytes);
}

/// `tidy` comes to an end, whatever older versions hold in memory.
#[test]
fn what_only_older_states_have_is_not_tidied_for_ever() {
    let mut scene = Scene::of(8 << 20, WIDE);
    let mut batch = Batch::new();
    for n in 0..600u32 {
        let (key, value) = (Key::new(&n.to_be_bytes()).unwrap(), vec![n as u8; 6000]);
        batch.put(key, Value::new(&value));
        scene.model.insert(key, value);
    }
    scene.table.apply(scene.volume.append(Epoch(1), &[0; 8]).unwrap(), batch);
    scene.checkpoint().unwrap();
    let scene = Scene::open(scene.disk, scene.model, WIDE);
    for key in scene.model.keys() {
        assert_eq!(scene.get(key), Ok(scene.model.get(key).cloned()));
    }
    let filled = || scene.on_medium().ground.filled_bytes();
    assert!(filled() > 3 << 20, "{}", filled());
    let old = scene.table.snapshot();
    // Each leaf of the newest version is another one now; the older version still holds the old ones.
    let mut batch = Batch::new();
    scene.model.keys().for_each(|key| batch.put(*key, Value::new(b"short")));
    scene.table.apply(scene.volume.append(Epoch(1), &[0; 8]).unwrap(), batch);
    scene.table.settle();
    assert!(scene.model.keys().all(|key| old.get(key).unwrap().unwrap().len() == 6000));
    assert_eq!(filled(), 0);
    // As if one of them had just been loaded.
    scene.on_medium().ground.count_filled(9 << 20);
    let steps = (0..9).take_while(|_| scene.table.tidy() != Tidied::Done).count();
    assert!(steps < 9);
}

const GROUPS: u64 = 40;
const KEYS: u64 = 50;

fn key_in(group: u64, n: u64) -> Key {
    Key::new(&[group.to_be_bytes(), n.to_be_bytes()].concat()).unwrap()
}

/// Readers, a writer, loads, `tidy` and checkpoints, all at once: each version is whole, and so is the last checkpoint.
#[test]
fn all_at_once() {
    let disk = Arc::new(MemDisk::new(16 << 20));
    let medium = |checkpoint| Medium {
        disk: disk.clone(),
        slots: [0..8 << 20, 8 << 20..16 << 20],
        checkpoint,
        cache_bytes: Arc::new((16 << 10).into()),
        troubles: Arc::default(),
    };
    let shape = Shape { leaf_bytes: 512, fanout: 4, changes: 256 };
    let table = &Table::over_shaped(medium(None), shape).unwrap();
    // A batch changes one group: it gives all its keys the same value, or deletes them.
    let batch_of = |round: u64| {
        let (group, mut batch) = (round % GROUPS, Batch::new());
        (0..KEYS - 1)
            .for_each(|n| batch.put(key_in(group, n), Value::new(&[round.to_be_bytes(); 8].concat())));
        match round / GROUPS % 2 {
            0 => batch.put(key_in(group, KEYS - 1), Value::new(b"soon gone")),
            _ => batch.delete(key_in(group, KEYS - 1)),
        }
        batch
    };
    let get = |view: &<Table as Engine>::Snap, key: &Key| loop {
        match view.get(key) {
            Err(Miss::Absent(what)) => table.load(what).unwrap(),
            value => return value.unwrap().map(|value| value.into_owned()),
        }
    };
    let (role, is_over) = (&parking_lot::Mutex::new(()), &AtomicBool::new(false));
    let goes_on = || !is_over.load(Ordering::Relaxed);
    const ROUNDS: u64 = 1200;
    let checkpoint = || {
        let snap = {
            let _role = role.lock();
            table.snapshot()
        };
        let mut head = Vec::new();
        table.checkpoint(&snap, &mut std::iter::empty(), &mut head).unwrap();
        table.end_checkpoint(true);
        (snap.seq(), head)
    };
    (0..GROUPS).for_each(|round| table.apply(types::Seq(round), batch_of(round)));
    let mut rounds = GROUPS;
    let has_moved = || {
        let figures = table.figures();
        figures.loads > 100 && figures.evictions > 100 && figures.moves > 5
    };
    std::thread::scope(|s| {
        for seed in 0..2 {
            s.spawn(move || {
                let mut random = SplitMix::new(seed);
                while goes_on() {
                    let (view, group) = (table.snapshot(), random.below(GROUPS));
                    let first = get(&view, &key_in(group, 0));
                    assert!((1..KEYS - 1).all(|n| get(&view, &key_in(group, n)) == first), "it is whole");
                    let is_there = get(&view, &key_in(group, KEYS - 1)).is_some();
                    let round = u64::from_be_bytes(first.unwrap()[..8].try_into().unwrap());
                    assert_eq!((round % GROUPS, is_there), (group, (round / GROUPS).is_multiple_of(2)));
                }
            });
        }
        s.spawn(|| {
            while goes_on() {
                let _role = role.lock();
                table.tidy();
            }
        });
        s.spawn(|| {
            while goes_on() {
                checkpoint();
            }
        });
        s.spawn(|| {
            while goes_on() {
                table.move_changes(Duration::from_millis(1));
            }
        });
        let _end = Ends(is_over);
        // Until all threads have met, however the machine schedules them.
        while rounds < ROUNDS || !has_moved() {
            assert!(rounds < 1000 * ROUNDS, "{:?}", table.figures());
            let (round, batch) = (rounds, batch_of(rounds));
            rounds += 1;
            loop {
                let absent = {
                    let _role = role.lock();
                    match table.admits(batch.keys()) {
                        Ok(()) => {
                            table.apply(types::Seq(round), batch);
                            break;
                        }
                        Err(absent) => absent,
                    }
                };
                table.load(absent).unwrap();
            }
        }
    });
    let mut model = Model::new();
    for Change { key, value } in (0..rounds).flat_map(|round| batch_of(round).0) {
        match value {
            Some(value) => model.insert(key, value.raw().to_vec()),
            None => model.remove(&key),
        };
    }
    assert!(model_of(table) == model);
    let (seq, head) = checkpoint();
    let figures = table.figures();
    assert_eq!(figures.broken, 0);
    let again = Table::over_shaped(medium(Some(0..4096)), shape).unwrap();
    let again = again.open(seq, &mut &head[..], &mut |_, _| false).unwrap();
    assert!(model_of(&again) == model);
}

/// The records of an earlier release's checkpoint lie in the area of leaves.
#[test]
fn an_earlier_checkpoint_is_taken_over() {
    let mut scene = Scene::new(WIDE);
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
    let mut scene = Scene::open(scene.disk.clone(), scene.model, WIDE);
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
            let state = (volume.checkpoint_seq(), model_of(&table_on(&volume, WIDE).unwrap()));
            assert!(state == before || state == after, "event {at}, {crash:?}");
        }
    }
    // Its space is free now.
    scene.change(100);
    scene.checkpoint().unwrap();
    assert_eq!(scene.on_medium().ground.area.pages_used(), scene.pages_named());
}
