//! The memory of a table: when leaves are evicted, and which step of the clock algorithm is next.
//!
//! A table has a bound for its leaves and their names together. Names always stay in memory: some two hundred bytes for each leaf. If names
//! take more than three quarters of the bound, leaves may still use a quarter of it.

use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use types::Key;

use super::{Table, Version};
use crate::tree::Sweep;
use crate::{Tidied, home};

/// Memory of a leaf's name: its home, its runs, its entry in a node and in the list of the leaves that the head names; an estimate.
const NAME_BYTES: u64 = 248;
/// Leaves of one step: a third of a millisecond, if none of them is in the processor's caches.
const STEP_LEAVES: usize = 2048;
/// Leaves that one step of warming loads at once: some 2 MiB.
const WARM_LEAVES: usize = 512;
/// Loaded leaves are put in the tree when they take a quarter of the memory of the leaves that are there, plus this.
const FILLED_BYTES: u64 = 1 << 20;

/// Bytes in memory.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Leaves that are part of the tree.
    here: u64,
    /// Leaves that were loaded into an `Away`.
    filled: u64,
    names: u64,
}

impl Memory {
    pub fn all(&self) -> u64 {
        self.leaves() + self.names
    }
    fn leaves(&self) -> u64 {
        self.here + self.filled
    }
}

#[derive(Default)]
pub struct Cache {
    clock: Mutex<Clock>,
    evictions: AtomicU64,
    /// There is work for `tidy`.
    rung: Mutex<bool>,
    wake: Condvar,
}

#[derive(Default)]
struct Clock {
    hand: Key,
    /// Sums of this round: bytes not on the medium, leaves evicted or due in the next round, leaves put in the tree.
    unwritten_bytes: u64,
    moved: u64,
    placed: u64,
    /// The round was interrupted: its sums say nothing about the table.
    is_void: bool,
    /// Eviction waits for a checkpoint, or until leaves take this much memory.
    not_before: Option<u64>,
    /// Loaded bytes that a whole round did not find in the tree: only older versions have them.
    filled_elsewhere: u64,
    /// The warming after a start has ended: one round puts all loaded leaves in the tree, however few they are.
    places_all: bool,
}

impl Clock {
    /// The sums of this round may no longer be true.
    fn interrupt(&mut self) {
        self.is_void |= self.hand != Key::default();
    }
}

impl Cache {
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    pub fn wait(&self, at_most: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.wake.wait_for(&mut rung, at_most);
        }
        *rung = false;
    }

    pub fn ring(&self) {
        let mut rung = self.rung.lock();
        if !*rung {
            *rung = true;
            self.wake.notify_one();
        }
    }

    /// Leaves that the checkpoint wrote can be evicted now.
    pub fn checkpoint_named(&self) {
        let mut clock = self.clock.lock();
        clock.not_before = None;
        clock.interrupt();
    }
}

impl Table {
    pub(super) fn memory(&self, newest: &Version) -> Memory {
        let sums = newest.base.sums();
        let filled = self.medium.as_ref().map_or(0, |medium| medium.ground.filled_bytes());
        Memory { here: sums.here_bytes, filled, names: NAME_BYTES * sums.leaves }
    }

    /// Memory that leaves may take.
    fn bound(&self, memory: &Memory) -> u64 {
        let all = self.medium.as_ref().map_or(u64::MAX, |medium| medium.cache_bytes.load(Ordering::Relaxed));
        all.saturating_sub(memory.names).max(all / 4)
    }

    /// Bytes that must be freed; 0: leaves are only put in the tree. `None`: there is nothing to do.
    fn over_bytes(&self, memory: &Memory, clock: &Clock) -> Option<u64> {
        let bound = self.bound(memory);
        // Frees a little more than necessary. Otherwise each loaded leaf would need a step of its own.
        let over = match memory.leaves() > clock.not_before.unwrap_or(bound).max(bound) {
            true => memory.leaves() - bound + bound / 32,
            false => 0,
        };
        let filled_max = match clock.places_all {
            true => clock.filled_elsewhere,
            false => clock.filled_elsewhere.max(memory.here / 4) + FILLED_BYTES,
        };
        (over > 0 || memory.filled > filled_max).then_some(over)
    }

    /// Wakes the thread that calls `tidy`, if there is work for it.
    pub(super) fn see_to_memory(&self) {
        let memory = self.memory(&self.published.reader());
        if self.over_bytes(&memory, &self.cache.clock.lock()).is_some() {
            self.cache.ring();
        }
    }

    pub(super) fn tidy_step(&self) -> Tidied {
        let clock = &mut *self.cache.clock.lock();
        let mut tidied = Tidied::Done;
        self.published.publish_if(|newest| {
            let memory = self.memory(newest);
            clock.filled_elsewhere = clock.filled_elsewhere.min(memory.filled);
            let Some(over_bytes) = self.over_bytes(&memory, clock) else {
                clock.interrupt();
                clock.places_all = false;
                return None;
            };
            let mut next = newest.clone();
            if over_bytes > 0 || next.immutable.is_some() {
                // kv-I3: otherwise a leaf could be evicted that a memtable's change needs. kv-I4.
                self.settle_all(&mut next);
            }
            assert!(next.immutable.is_none(), "kv-I4: `base` does not change while a memtable moves");
            assert!(over_bytes == 0 || next.active.changes() == 0, "kv-I3: no change needs an evicted leaf");
            let (base, swept) = next.base.swept(Sweep { from: clock.hand, leaves: STEP_LEAVES, over_bytes });
            next.base = base;
            assert!(swept.evicted == 0 || over_bytes > 0, "kv-K5: only a table over its bound evicts");
            self.cache.evictions.fetch_add(swept.evicted, Ordering::Relaxed);
            clock.unwritten_bytes += swept.unwritten_bytes;
            clock.moved += swept.evicted + swept.spared;
            clock.placed += swept.placed;
            clock.hand = swept.next.unwrap_or_default();
            tidied = Tidied::More;
            if swept.next.is_none() {
                self.end_round(clock, &memory, over_bytes.saturating_sub(swept.freed_bytes), &mut tidied);
            }
            Some((next, swept.freed_bytes))
        });
        tidied
    }

    /// Judges a whole round, so that the next one is not made in vain. `over_bytes`: bytes that must still be freed.
    fn end_round(&self, clock: &mut Clock, memory: &Memory, over_bytes: u64, tidied: &mut Tidied) {
        let (unwritten, is_void) = (take(&mut clock.unwritten_bytes), take(&mut clock.is_void));
        let (moved, placed) = (take(&mut clock.moved), take(&mut clock.placed));
        if is_void {
            return;
        }
        clock.places_all = false;
        let bound = self.bound(memory);
        if over_bytes > 0 && unwritten > bound / 4 {
            *tidied = Tidied::Unwritten;
        }
        // Unwritten leaves can be evicted only after a checkpoint. Leaves that were spared can go in the next round, which pays off only
        // when there are more of them.
        if over_bytes > 0 && (moved == 0 || *tidied == Tidied::Unwritten) {
            clock.not_before = Some(memory.leaves() + bound / 32);
        }
        if placed == 0 {
            clock.filled_elsewhere = memory.filled;
        }
    }

    pub(super) fn warm_part(&self, from: &mut Key) -> std::io::Result<bool> {
        let newest = self.published.snapshot();
        let memory = self.memory(&newest);
        let mut leaves = Vec::new();
        if memory.leaves() <= self.bound(&memory) / 8 * 7 {
            leaves = newest.base.absent(from, None, WARM_LEAVES, usize::MAX);
        }
        let next = leaves.last().map(|last| last.home.first).filter(|next| next != from);
        home::fill(Vec::new(), leaves)?;
        match next {
            Some(next) => *from = next,
            None => self.place_all(),
        }
        self.see_to_memory();
        Ok(next.is_some())
    }

    fn place_all(&self) {
        let mut clock = self.cache.clock.lock();
        clock.interrupt();
        clock.places_all = true;
    }
}
