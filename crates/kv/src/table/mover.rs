//! Moving changes to the tree beside who brings more of them.
//!
//! M1: what moved is published only over the state's own `moving` row: a state that was settled meanwhile has none, or another one.
//! M2: nobody waits for who moves, but while he publishes. A row that nobody has begun with is taken back, and one that is late is moved by
//! who needs room.
//! M3: what was replaced is freed by who moves, unless somebody reads it yet: with the next row, or when none came for a while. So he keeps
//! places on the medium (H1) for no longer than that, and for as long as he is about a row.
//! M4: a change that `admits` let in finds its leaf in memory, whatever is moved before it is applied: where a leaf is there no more, the
//! neighbour that has its keys now is brought first.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Table;
use crate::home;
use crate::recent::Recent;
use crate::tree::{Edited, Tree};

/// Changes that move, and the bytes of all records behind them.
#[derive(Clone)]
pub struct Moving {
    pub row: Recent,
    pub settled_bytes: u64,
}

/// So long what was replaced is kept when no row comes.
const KEPT: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Mover {
    work: Mutex<Work>,
    wake: Condvar,
    moved: AtomicU64,
}

#[derive(Default)]
struct Work {
    asked: Option<(Tree, Moving)>,
    /// Somebody is about what was asked for.
    is_begun: bool,
    /// What the last one replaced (M3).
    replaced: Option<(Tree, Moving)>,
    is_woken: bool,
}

impl Mover {
    pub fn ask(&self, base: Tree, moving: Moving) {
        self.work.lock().asked = Some((base, moving));
        self.wake.notify_one();
    }

    /// True: nobody is about what was asked for, or was, and nobody will be.
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

    /// M3.
    pub fn forget(&self) {
        let replaced = self.work.lock().replaced.take();
        drop(replaced);
    }

    /// Rows that moved beside who brings changes.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn next(&self, at_most: Duration) -> Option<(Tree, Moving)> {
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

    fn end(&self, replaced: (Tree, Moving)) {
        let mut work = self.work.lock();
        work.is_begun = false;
        let before = work.replaced.replace(replaced);
        drop(work);
        drop(before);
    }
}

impl Table {
    pub(super) fn move_next(&self, at_most: Duration) {
        match self.mover.next(at_most) {
            Some((base, moving)) => self.move_row(base, moving),
            None => self.mover.forget(),
        }
    }

    fn move_row(&self, base: Tree, moving: Moving) {
        let mut moved = base.edited(&moving.row.iter().collect::<Vec<_>>(), &self.shape);
        if self.brings_neighbours(&mut moved).is_ok() {
            self.published.publish_if(|newest| {
                newest.moving.as_ref().filter(|now| now.row.is_same_row(&moving.row))?;
                let mut next = newest.clone();
                next.end_to_move(std::mem::take(&mut moved));
                self.mover.moved.fetch_add(1, Ordering::Relaxed);
                Some((next, 0))
            });
        }
        self.mover.end((base, moving));
        self.see_to_memory();
    }

    /// M4. An error: who needs room moves the row, with all that came since and so all at once.
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
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use types::{Key, Seq};

    use super::super::{MOVES_LATE, RECENT_MAX};
    use super::*;
    use crate::conformance::Ends;
    use crate::tree::Shape;
    use crate::{Batch, Change, Engine, Medium, Tidied, Value, View};

    fn key(n: u64) -> Key {
        Key::new(&n.to_be_bytes()).unwrap()
    }

    /// A table and what it is to hold.
    #[derive(Default)]
    struct Scene {
        table: Table,
        model: BTreeMap<Key, Vec<u8>>,
        seq: u64,
    }

    impl Scene {
        /// So many changes, one at a time, of keys that were changed before and others.
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
            self.table.published.snapshot().moving.is_some()
        }

        fn begin(&self) -> (Tree, Moving) {
            self.table.mover.next(Duration::ZERO).expect("a row was full")
        }
    }

    #[test]
    fn a_full_row_moves_beside_those_that_come() {
        let mut scene = Scene::default();
        for round in 1..=20 {
            scene.change(RECENT_MAX + 1);
            assert!(scene.is_moving());
            let (base, moving) = scene.begin();
            scene.change(RECENT_MAX / 2);
            scene.check();
            scene.table.move_row(base, moving);
            assert!(!scene.is_moving());
            scene.check();
            scene.table.settle();
            assert_eq!(scene.table.figures().moves, round);
        }
    }

    /// M1: whatever happened to the state meanwhile.
    #[test]
    fn what_moved_too_late_changes_nothing() {
        for is_other_moving in [false, true] {
            let mut scene = Scene::default();
            scene.change(RECENT_MAX + 1);
            let (base, moving) = scene.begin();
            scene.change(10);
            scene.table.settle();
            if is_other_moving {
                scene.change(RECENT_MAX + 1);
            }
            scene.table.move_row(base, moving);
            assert_eq!((scene.is_moving(), scene.table.figures().moves), (is_other_moving, 0));
            scene.check();
        }
    }

    /// M2: and no row grows without end.
    #[test]
    fn nobody_waits_for_who_moves() {
        let mut scene = Scene::default();
        // Nobody moves anything.
        for _ in 0..10 * RECENT_MAX {
            scene.change(1);
            assert!(scene.table.published.snapshot().recent.changes() <= RECENT_MAX + 1);
        }
        scene.check();
        scene.table.settle();
        // Somebody has begun, and does not come to an end.
        let late = loop {
            match scene.table.mover.next(Duration::ZERO) {
                Some(late) => break late,
                None => scene.change(1),
            }
        };
        scene.change(MOVES_LATE * RECENT_MAX);
        assert!(scene.is_moving());
        scene.check();
        scene.change(2);
        assert!(!scene.is_moving());
        scene.table.move_row(late.0, late.1);
        scene.check();
    }

    /// M3.
    #[test]
    fn what_was_replaced_is_let_go_of_when_nothing_comes() {
        let mut scene = Scene::default();
        scene.change(RECENT_MAX + 1);
        scene.table.move_changes(Duration::ZERO);
        assert!(scene.table.mover.work.lock().replaced.is_some());
        scene.table.move_changes(Duration::ZERO);
        assert!(scene.table.mover.work.lock().replaced.is_none());
        scene.check();
    }

    /// M4: all that a leaf had goes, and what is left of its stretch is the neighbour's, which is not in memory.
    #[test]
    fn what_was_admitted_finds_its_leaf_in_memory() {
        let disk = Arc::new(disk::MemDisk::new(16 << 20));
        let medium =
            Medium { disk, slots: [0..8 << 20, 8 << 20..16 << 20], checkpoint: None, cache_bytes: 0 };
        let table = Table::over_shaped(medium, Shape { leaf_bytes: 512, fanout: 4 }).unwrap();
        let value = Some(Value::new(&[7; 200]));
        let put = |n| Change { key: key(n), value: value.clone() };
        table.apply(Seq(1), Batch((0..600).map(put).collect()));
        table.settle();
        table.checkpoint(&table.snapshot(), &mut std::iter::empty(), &mut Vec::new()).unwrap();
        table.end_checkpoint(true);
        while table.tidy() != Tidied::Done {}
        let load = |keys: &[Key]| {
            while let Err(what) = table.admits(keys.iter()) {
                table.load(what).unwrap();
            }
        };
        let gone: Vec<Key> = (100..400).map(key).collect();
        load(&gone);
        let is_away = |n| table.published.snapshot().base.needs(&key(n)).is_some();
        assert!(is_away(90) && is_away(410));
        table.apply(Seq(2), Batch(gone.iter().map(|key| Change { key: *key, value: None }).collect()));
        // What comes is admitted while they move.
        let (base, moving) = table.mover.next(Duration::ZERO).expect("a row was full");
        table.admits(gone.iter()).unwrap();
        table.move_row(base, moving);
        assert_eq!(table.figures().moves, 1);
        table.apply(Seq(3), Batch((150..170).map(put).collect()));
        table.settle();
        for n in 100..400 {
            let is_there = table.snapshot().get(&key(n)).unwrap().is_some();
            assert_eq!(is_there, (150..170).contains(&n), "{n}");
        }
    }

    /// One moves, one brings changes, one reads.
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
                    // All keys are changed together, so one state has the same in all.
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
                // And some that nobody reads, or a row would never be full.
                let keys = (0..40).chain((0..20).map(|n| 1000 + seq * 17 % 9000 + n));
                let changes = keys.map(|n| Change { key: key(n), value: value.clone() }).collect();
                table.apply(Seq(seq), Batch(changes));
                // Or it might never come to its turn.
                let is_moving = || table.published.snapshot().moving.is_some();
                while seq.is_multiple_of(5) && is_moving() && !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        assert!(table.figures().moves >= 20, "{}", table.figures().moves);
    }
}
