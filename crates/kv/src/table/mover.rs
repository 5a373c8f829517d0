//! The mover: a background thread that applies an immutable memtable to the tree while the writer adds changes to the active one.
//!
//! kv-M1: the mover publishes its tree only if the newest version still has the same immutable memtable. A version that was settled
//!     meanwhile has none, or another one.
//! kv-M2: the writer waits for the mover only while it publishes. Work that the mover has not begun is withdrawn, and the writer does it.
//!     If the mover is late, the writer moves all changes itself.
//! kv-M3: the mover frees the tree that it replaced, together with older versions that no reader holds. If a reader holds it, the mover
//!     frees it after the next memtable, or when none came within `KEPT`. A replaced tree keeps places on the medium in use (kv-H1)
//!     for no longer than that.
//! kv-M4: a change that `admits` accepted finds its leaf in memory, whatever moves before it is applied. If a moved change empties a leaf,
//!     the neighbour that takes over its keys is loaded before the new tree is published.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Table;
use crate::home;
use crate::memtable::Memtable;
use crate::tree::{Edited, Tree};

/// An immutable memtable, and the bytes of all records as of its last change.
#[derive(Clone)]
pub struct Immutable {
    pub memtable: Memtable,
    pub settled_bytes: u64,
}

/// How long the replaced tree is kept when no further memtable comes.
const KEPT: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Mover {
    work: Mutex<Work>,
    wake: Condvar,
    moved: AtomicU64,
}

#[derive(Default)]
struct Work {
    asked: Option<(Tree, Immutable)>,
    /// The mover has taken its work and has not ended it.
    is_begun: bool,
    /// The tree and memtable of the last move (kv-M3).
    replaced: Option<(Tree, Immutable)>,
    is_woken: bool,
}

impl Mover {
    pub fn ask(&self, base: Tree, immutable: Immutable) {
        self.work.lock().asked = Some((base, immutable));
        self.wake.notify_one();
    }

    /// Cancels work that has not begun. True: the mover is idle, and nothing is left for it.
    pub fn withdraw(&self) -> bool {
        let mut work = self.work.lock();
        let asked = work.asked.take();
        let is_begun = work.is_begun;
        drop(work);
        asked.is_some() || !is_begun
    }

    pub fn wake(&self) {
        self.work.lock().is_woken = true;
        self.wake.notify_one();
    }

    /// kv-M3: frees what the last move replaced.
    pub fn forget(&self) {
        let replaced = self.work.lock().replaced.take();
        drop(replaced);
    }

    /// Memtables that the mover has moved.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn next(&self, at_most: Duration) -> Option<(Tree, Immutable)> {
        let mut work = self.work.lock();
        if work.asked.is_none() && !work.is_woken {
            let at_most = if work.replaced.is_some() { at_most.min(KEPT) } else { at_most };
            self.wake.wait_for(&mut work, at_most);
        }
        work.is_woken = false;
        let asked = work.asked.take();
        work.is_begun = asked.is_some();
        asked
    }

    fn end(&self, replaced: (Tree, Immutable)) {
        let mut work = self.work.lock();
        assert!(work.is_begun, "the mover ends only work that it has begun");
        work.is_begun = false;
        let before = work.replaced.replace(replaced);
        drop(work);
        drop(before);
    }
}

impl Table {
    pub(super) fn move_next(&self, at_most: Duration) {
        match self.mover.next(at_most) {
            Some((base, immutable)) => self.move_memtable(base, immutable),
            None => self.mover.forget(),
        }
    }

    fn move_memtable(&self, base: Tree, immutable: Immutable) {
        let mut moved = base.edited(&immutable.memtable.iter().collect::<Vec<_>>(), &self.shape);
        if self.brings_neighbours(&mut moved).is_ok() {
            self.published.publish_if(|newest| {
                newest.immutable.as_ref().filter(|now| now.memtable.is_same(&immutable.memtable))?;
                let mut next = newest.clone();
                next.end_to_move(std::mem::take(&mut moved));
                self.mover.moved.fetch_add(1, Ordering::Relaxed);
                Some((next, 0))
            });
        }
        self.mover.end((base, immutable));
        // kv-M3: each older version keeps the leaves that were replaced since, and no statistic counts that memory.
        self.published.release();
        self.see_to_memory();
    }

    /// kv-M4. On an error nothing is published: when the active memtable is full, the writer moves all changes at once.
    fn brings_neighbours(&self, moved: &mut Edited) -> io::Result<()> {
        let emptied = std::mem::take(&mut moved.emptied);
        let neighbours = emptied.iter().filter_map(|key| moved.tree.needs(key)).cloned().collect();
        home::fill(neighbours, Vec::new()).inspect_err(|e| {
            if !disk::is_passing(e) {
                tracing::error!(why = %e, "the MDT's medium does not give records back; look at it");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::RangeInclusive;
    use std::sync::Arc;

    use disk::{FaultyDisk, Op, When};
    use types::{Key, Seq};

    use super::super::MOVES_LATE;
    use super::*;
    use crate::conformance::Ends;
    use crate::tree::Shape;
    use crate::{Batch, Change, Engine, Figures, Medium, Miss, Tidied, Value, View};

    fn key(n: u64) -> Key {
        Key::new(&n.to_be_bytes()).unwrap()
    }

    /// Changes of a full memtable, fewer than there are keys.
    const ROW: usize = 256;

    /// A table and the records that it must show.
    struct Scene {
        table: Table,
        model: BTreeMap<Key, Vec<u8>>,
        seq: u64,
    }

    impl Default for Scene {
        fn default() -> Scene {
            let table = Table::shaped(Shape { changes: ROW, ..Shape::default() });
            Scene { table, model: BTreeMap::new(), seq: 0 }
        }
    }

    impl Scene {
        /// Applies `changes` changes, one at a time: of keys that were changed before, and of others.
        fn change(&mut self, changes: usize) {
            for _ in 0..changes {
                self.seq += 1;
                let (key, bytes) = (key(self.seq * 7919 % 1009), self.seq.to_le_bytes().to_vec());
                let value = (!self.seq.is_multiple_of(5)).then(|| Value::new(&bytes));
                match &value {
                    Some(_) => self.model.insert(key, bytes),
                    None => self.model.remove(&key),
                };
                self.table.apply(Seq(self.seq), Batch(vec![Change { key, value }]));
            }
        }

        fn check(&self) {
            let view = self.table.snapshot();
            let mut seen = BTreeMap::new();
            let end = Key::new(&[0xff; 9]).unwrap();
            let range = view.range(&Key::default(), &end, &mut |key, value| {
                seen.insert(*key, value.to_vec());
                true
            });
            range.unwrap();
            assert_eq!(seen, self.model);
            assert_eq!(view.size().records, self.model.len() as u64);
            // Any part of the range, and any number of its records.
            for n in 0..60 {
                let at = |n: u64| key((self.seq + n) * 31 % 1009);
                let (from, to) = (at(n), at(n * n));
                let most = if n % 2 == 0 { 1 + n as usize } else { usize::MAX };
                let mut seen = Vec::new();
                view.range(&from, &to, &mut |key, value| {
                    seen.push((*key, value.to_vec()));
                    seen.len() < most
                })
                .unwrap();
                let model = self.model.iter().filter(|(key, _)| from <= **key && **key < to);
                let wanted: Vec<_> = model.take(most).map(|(key, value)| (*key, value.clone())).collect();
                assert_eq!(seen, wanted, "{from:?} to {to:?}");
            }
            for n in 0..1009 {
                let got = view.get(&key(n)).unwrap().map(|value| value.into_owned());
                assert_eq!(got.as_ref(), self.model.get(&key(n)), "{n}");
            }
            let mut written = Vec::new();
            self.table.checkpoint(&view, &mut std::iter::empty(), &mut written).unwrap();
            let again = Table::new().open(view.seq(), &mut &written[..], &mut |_, _| false).unwrap();
            assert_eq!(again.figures().size, view.size(), "a checkpoint has both rows");
        }

        fn is_moving(&self) -> bool {
            self.table.published.snapshot().immutable.is_some()
        }

        fn begin(&self) -> (Tree, Immutable) {
            self.table.mover.next(Duration::ZERO).expect("a row was full")
        }
    }

    #[test]
    fn a_full_row_moves_beside_those_that_come() {
        let mut scene = Scene::default();
        for round in 1..=20 {
            scene.change(ROW + 1);
            assert!(scene.is_moving());
            let (base, immutable) = scene.begin();
            scene.change(ROW / 2);
            scene.check();
            scene.table.move_memtable(base, immutable);
            assert!(!scene.is_moving());
            scene.check();
            scene.table.settle();
            assert_eq!(scene.table.figures().moves, round);
        }
    }

    /// kv-M1: whatever happened to the version meanwhile.
    #[test]
    fn what_moved_too_late_changes_nothing() {
        for is_other_moving in [false, true] {
            let mut scene = Scene::default();
            scene.change(ROW + 1);
            let (base, immutable) = scene.begin();
            scene.change(10);
            scene.table.settle();
            if is_other_moving {
                scene.change(ROW + 1);
            }
            scene.table.move_memtable(base, immutable);
            assert_eq!((scene.is_moving(), scene.table.figures().moves), (is_other_moving, 0));
            scene.check();
        }
    }

    /// kv-M2: and no memtable grows without a bound.
    #[test]
    fn nobody_waits_for_who_moves() {
        let mut scene = Scene::default();
        // No mover runs.
        for _ in 0..10 * ROW {
            scene.change(1);
            assert!(scene.table.published.snapshot().active.changes() <= ROW + 1);
        }
        scene.check();
        scene.table.settle();
        // A mover has begun, and does not end.
        let late = loop {
            match scene.table.mover.next(Duration::ZERO) {
                Some(late) => break late,
                None => scene.change(1),
            }
        };
        scene.change(MOVES_LATE * ROW);
        assert!(scene.is_moving());
        scene.check();
        scene.change(2);
        assert!(!scene.is_moving());
        scene.table.move_memtable(late.0, late.1);
        scene.check();
    }

    /// A thread that read once and is idle does not keep older versions: moved changes are in memory once.
    #[test]
    fn who_looked_once_keeps_no_older_states() {
        let mut scene = Scene::default();
        scene.change(10);
        let (looked, over) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        std::thread::scope(|s| {
            let table = Arc::new(std::mem::take(&mut scene.table));
            let idle = table.clone();
            s.spawn(move || {
                drop(idle.reader());
                looked.0.send(()).unwrap();
                let _ = over.1.recv();
            });
            looked.1.recv().unwrap();
            for n in 0..4 * ROW as u64 {
                table.apply(Seq(100 + n), Batch((0..5).map(|m| put((5 * n + m) * 7919 % 5000)).collect()));
                // As a server thread does for a request.
                drop(table.reader());
                let moves = table.figures().moves;
                table.move_changes(Duration::ZERO);
                let Figures { moves: moved, states_kept, .. } = table.figures();
                assert!(moved == moves || states_kept <= 2, "{states_kept} after {moved} moves");
            }
            assert!(table.figures().moves > 15);
            drop(over.0);
        });
    }

    /// kv-M3.
    #[test]
    fn what_was_replaced_is_let_go_of_when_nothing_comes() {
        let mut scene = Scene::default();
        scene.change(ROW + 1);
        scene.table.move_changes(Duration::ZERO);
        assert!(scene.table.mover.work.lock().replaced.is_some());
        scene.table.move_changes(Duration::ZERO);
        assert!(scene.table.mover.work.lock().replaced.is_none());
        scene.check();
    }

    fn put(n: u64) -> Change {
        Change { key: key(n), value: Some(Value::new(&[7; 200])) }
    }

    fn number(key: &Key) -> u64 {
        u64::from_be_bytes(key.as_bytes()[..8].try_into().unwrap())
    }

    fn gone(n: u64) -> Change {
        Change { key: key(n), value: None }
    }

    /// 600 records on a medium, none of them in memory.
    struct Away {
        disk: Arc<FaultyDisk>,
        table: Table,
    }

    impl Away {
        fn new() -> Away {
            let disk = Arc::new(FaultyDisk::new(Arc::new(disk::MemDisk::new(16 << 20))));
            let (slots, disk_below) = ([0..8 << 20, 8 << 20..16 << 20], disk.clone());
            let medium = Medium {
                disk: disk_below,
                slots,
                checkpoint: None,
                cache_bytes: Arc::default(),
                troubles: Arc::default(),
            };
            let table =
                Table::over_shaped(medium, Shape { leaf_bytes: 512, fanout: 4, changes: ROW }).unwrap();
            table.apply(Seq(1), Batch((0..600).map(put).collect()));
            table.settle();
            table.checkpoint(&table.snapshot(), &mut std::iter::empty(), &mut Vec::new()).unwrap();
            table.end_checkpoint(true);
            while table.tidy() != Tidied::Done {}
            Away { disk, table }
        }

        fn load(&self, keys: &[Key]) {
            while let Err(what) = self.table.admits(keys.iter()) {
                self.table.load(what).unwrap();
            }
        }

        fn is_away(&self, n: u64) -> bool {
            self.table.published.snapshot().base.needs(&key(n)).is_some()
        }

        /// Damages the leaf of a key before it is loaded. Returns the keys that were in it.
        fn rot(&self, n: u64) -> RangeInclusive<u64> {
            let away = self.table.published.snapshot().base.needs(&key(n)).expect("not in memory").clone();
            self.disk.flip_bit(away.home.at() + 100, 3).unwrap();
            number(&away.home.first)..=number(&away.home.last)
        }

        /// Deletes everything from 100 to 399, and begins the mover's work.
        fn begin_without(&self) -> (Tree, Immutable) {
            let keys: Vec<Key> = (100..400).map(key).collect();
            self.load(&keys);
            assert!(self.is_away(90) && self.is_away(410));
            self.table.apply(Seq(2), Batch((100..400).map(gone).collect()));
            let begun = self.table.mover.next(Duration::ZERO).expect("a row was full");
            // Further changes are admitted while these move.
            self.table.admits(keys.iter()).unwrap();
            begun
        }

        /// `None`: the record is lost.
        fn is_there(&self, n: u64) -> Option<bool> {
            loop {
                match self.table.snapshot().get(&key(n)) {
                    Ok(value) => return Some(value.is_some()),
                    Err(Miss::Absent(what)) => self.table.load(what).unwrap(),
                    Err(Miss::Damage(_)) => return None,
                }
            }
        }

        /// The records that a listing shows, and the ranges that it reports lost.
        fn listed(&self) -> (BTreeSet<u64>, Vec<(Key, Key)>) {
            let (mut shown, mut lost) = (BTreeSet::new(), Vec::new());
            let (view, mut from) = (self.table.snapshot(), Key::default());
            loop {
                let end = Key::new(&[0xff; 9]).unwrap();
                let said = view.range(&from, &end, &mut |key, _| {
                    shown.insert(number(key));
                    true
                });
                match said {
                    Ok(()) => return (shown, lost),
                    Err(Miss::Absent(what)) => self.table.load(what).unwrap(),
                    Err(Miss::Damage(damage)) => {
                        lost.push((damage.key, damage.end));
                        from = damage.end;
                    }
                }
            }
        }
    }

    /// kv-M4: a leaf loses all its records, and the neighbour that takes over its keys is not in memory.
    #[test]
    fn what_was_admitted_finds_its_leaf_in_memory() {
        let away = Away::new();
        let (base, immutable) = away.begin_without();
        away.table.move_memtable(base, immutable);
        assert_eq!(away.table.figures().moves, 1);
        away.table.apply(Seq(3), Batch((150..170).map(put).collect()));
        away.table.settle();
        for n in 100..400 {
            assert_eq!(away.is_there(n), Some((150..170).contains(&n)), "{n}");
        }
    }

    /// kv-M4, with a medium that cannot return the neighbour now: nothing moves and nothing is lost. The writer goes on once it can.
    #[test]
    fn a_neighbour_that_cannot_be_read_now_leaves_all_as_it_is() {
        let away = Away::new();
        let (base, immutable) = away.begin_without();
        away.disk.fail(Op::Read, When::Always);
        away.table.move_memtable(base, immutable);
        assert!(away.disk.failed(Op::Read) > 0);
        assert_eq!(away.table.figures().moves, 0);
        assert!(away.table.published.snapshot().immutable.is_some());
        away.table.apply(Seq(3), Batch((150..170).map(put).collect()));
        away.disk.fail(Op::Read, When::Never);
        away.table.settle();
        assert!(away.table.published.snapshot().immutable.is_none());
        for n in 0..600 {
            let want = !(100..400).contains(&n) || (150..170).contains(&n);
            assert_eq!(away.is_there(n), Some(want), "{n}");
        }
        assert_eq!(away.table.figures().broken, 0);
    }

    /// kv-M4, with a damaged neighbour: its own records are lost and no others, whatever is added in its key range.
    #[test]
    fn a_neighbour_that_has_rotted_takes_nothing_with_it() {
        let away = Away::new();
        // The leaves left and right of the deleted range.
        away.load(&(100..400).map(key).collect::<Vec<_>>());
        let left = (0..100).rev().find(|n| away.is_away(*n)).expect("not all are in memory");
        let right = (400..600).find(|n| away.is_away(*n)).expect("not all are in memory");
        let rotten: Vec<u64> = away.rot(left).chain(away.rot(right)).collect();
        let (base, immutable) = away.begin_without();
        away.table.move_memtable(base, immutable);
        assert_eq!((away.table.figures().moves, away.table.figures().broken > 0), (1, true));
        away.table.apply(Seq(3), Batch((150..170).map(put).collect()));
        for is_settled in [false, true] {
            if is_settled {
                away.table.settle();
            }
            for n in 150..170 {
                assert_eq!(away.is_there(n), Some(true), "{n}");
            }
            let (shown, lost) = away.listed();
            assert!((150..170).all(|n| shown.contains(&n)) && !lost.is_empty(), "{lost:?}");
            let missing: Vec<u64> =
                (0..600).filter(|n| !(100..400).contains(n) && !shown.contains(n)).collect();
            assert_eq!(missing, rotten);
            for n in &missing {
                assert_eq!(away.is_there(*n), None, "{n}");
                assert!(lost.iter().any(|(from, to)| *from <= key(*n) && key(*n) < *to), "{n}: {lost:?}");
            }
        }
    }

    /// Some records of a lost range are written anew, by changes that move and by later ones: they are there, and the rest is reported
    /// lost.
    #[test]
    fn both_rows_divide_what_is_lost() {
        let away = Away::new();
        // A leaf has few records, so a longer run spans several leaves.
        away.rot(300);
        let lost = away.is_there(300);
        assert_eq!(lost, None);
        let (_, stretches) = away.listed();
        let whole: Vec<u64> = (280..320).filter(|n| away.is_there(*n).is_none()).collect();
        assert_eq!(stretches.len(), 1);
        assert!(whole.len() >= 2, "{whole:?}");
        let (first, last) = (whole[0], *whole.last().unwrap());
        // There are free keys between two numbers.
        let between = |n: u64, more: u8| Key::new(&[&n.to_be_bytes()[..], &[more]].concat()).unwrap();
        let value = Some(Value::new(b"new"));
        let new = |key: Key| Change { key, value: value.clone() };
        // One change moves, with enough others to fill the memtable.
        let mut full: Vec<Change> = vec![new(between(first, 1)), new(between(first, 5))];
        full.extend((10_000..10_000 + ROW as u64 + 1).map(put));
        away.load(&full.iter().map(|change| change.key).collect::<Vec<_>>());
        away.table.apply(Seq(2), Batch(full));
        let (base, immutable) = away.table.mover.next(Duration::ZERO).expect("a row was full");
        // One record is added, and one that moves is deleted again.
        away.table.apply(
            Seq(3),
            Batch(vec![
                new(between(first, 3)),
                Change { key: between(first, 5), value: None },
                new(key(last)),
            ]),
        );
        let check = |when: &str| {
            let view = away.table.snapshot();
            for (key, want) in
                [(between(first, 1), true), (between(first, 3), true), (between(first, 5), false)]
            {
                assert_eq!(view.get(&key).unwrap().is_some(), want, "{when}: {key:?}");
            }
            assert_eq!(away.is_there(last), Some(true), "{when}");
            assert_eq!(away.is_there(first), None, "{when}");
            let (mut seen, mut lost, mut from) = (Vec::new(), Vec::new(), key(first));
            loop {
                match view.range(&from, &key(last + 1), &mut |key, _| {
                    seen.push(*key);
                    true
                }) {
                    Ok(()) => break,
                    Err(Miss::Absent(what)) => away.table.load(what).unwrap(),
                    Err(Miss::Damage(damage)) => {
                        lost.push(damage.key);
                        from = damage.end;
                    }
                }
            }
            seen.dedup();
            let new = [between(first, 1), between(first, 3), key(last)];
            assert!(new.iter().all(|key| seen.contains(key)) && seen.len() == 3, "{when}: {seen:?}");
            assert!(lost.len() >= 2, "{when}: {lost:?}");
        };
        check("while they move");
        away.table.move_memtable(base, immutable);
        assert_eq!(away.table.figures().moves, 1);
        check("moved");
        away.table.settle();
        check("settled");
    }

    /// A mover, a writer and a reader run at once.
    #[test]
    fn moves_beside_a_writer_and_readers() {
        let mut scene = Scene::default();
        let table = Arc::new(std::mem::take(&mut scene.table));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let _end = Ends(&is_over);
                while !is_over.load(Ordering::Relaxed) {
                    table.move_changes(Duration::from_millis(1));
                }
            });
            s.spawn(|| {
                let _end = Ends(&is_over);
                let mut last = 0;
                while !is_over.load(Ordering::Relaxed) {
                    // All keys change together, so a version has the same value in all.
                    let view = table.reader();
                    let first = view.get(&key(0)).unwrap().map(|value| value.into_owned());
                    for n in 0..40 {
                        assert_eq!(view.get(&key(n)).unwrap().map(|value| value.into_owned()), first, "{n}");
                    }
                    let now = first.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
                    assert!(now >= last);
                    last = now;
                }
            });
            let _end = Ends(&is_over);
            for seq in 1..=4000u64 {
                let value = Some(Value::new(&seq.to_le_bytes()));
                // Add keys that are not read, or the memtable would never be full.
                let keys = (0..40).chain((0..20).map(|n| 1000 + seq * 17 % 9000 + n));
                let changes = keys.map(|n| Change { key: key(n), value: value.clone() }).collect();
                table.apply(Seq(seq), Batch(changes));
                // Otherwise the mover might never get to run.
                let is_moving = || table.published.snapshot().immutable.is_some();
                while seq.is_multiple_of(5) && is_moving() && !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        assert!(table.figures().moves >= 20, "{}", table.figures().moves);
    }
}
