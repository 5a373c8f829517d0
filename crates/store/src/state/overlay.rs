//! The overlay: the patches of all objects, oldest first, their count, and the destager that folds them into extents.
//!
//! store-OV1: `names` has each live patch, from its start until after it is gone. A name whose patch is gone, or has started anew, is
//! dropped when it is met. So the first live name says from which point on the log must be kept.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::LogPoint;
use parking_lot::{Condvar, Mutex};
use types::{Buf, ObjectId, Seq};

/// Working memory of the destager.
#[derive(Debug, Default)]
pub struct Work {
    pub bytes: Buf,
}

/// A patch: where in the log it starts, and its page. The least is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Log position of `point`.
    pub pos: u64,
    pub since: Seq,
    pub object: ObjectId,
    pub page: u32,
    /// The last entry before `pos`.
    pub before: Seq,
}

impl Name {
    /// The log must be kept from this point on.
    pub fn point(&self) -> LogPoint {
        LogPoint { seq: self.before, pos: self.pos }
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    pub names: BTreeSet<Name>,
    /// Those of `names` whose patches cannot be folded now.
    pub stuck: BTreeSet<Name>,
}

impl Queue {
    /// Up to `max` names that started at or before `until` and are not stuck, oldest first. They stay in the queue.
    pub fn oldest(&self, max: usize, until: Seq) -> Vec<Name> {
        let old = self.names.iter().take_while(|name| name.since <= until);
        old.filter(|name| !self.stuck.contains(name)).take(max).copied().collect()
    }

    pub fn remove(&mut self, name: &Name) {
        self.names.remove(name);
        self.stuck.remove(name);
    }
}

#[derive(Debug)]
pub struct Overlay {
    pub queue: Mutex<Queue>,
    /// Number of live patches.
    pages: AtomicU64,
    /// Patches folded since the last checkpoint: a recovery would find them as patches again.
    pub folded: AtomicU64,
    /// Held by the thread that destages.
    pub destager: Mutex<Work>,
    /// Set when the overlay or the log fills.
    bell: Mutex<bool>,
    rung: Condvar,
    /// Notified after each step of destaging.
    eased: Condvar,
    easing: Mutex<()>,
    /// Log ends of the last rounds, oldest first. They give a patch's age in rounds.
    pub rounds: Mutex<VecDeque<Seq>>,
}

impl Overlay {
    pub fn new() -> Overlay {
        Overlay {
            queue: Mutex::default(),
            pages: AtomicU64::new(0),
            folded: AtomicU64::new(0),
            destager: Mutex::default(),
            bell: Mutex::new(false),
            rung: Condvar::new(),
            eased: Condvar::new(),
            easing: Mutex::new(()),
            rounds: Mutex::default(),
        }
    }

    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }
    /// Adds to the number of live patches and returns it. Under the engine's tail lock.
    pub fn count(&self, more: i64) -> u64 {
        let now = self.pages().wrapping_add_signed(more);
        self.pages.store(now, Ordering::Relaxed);
        now
    }

    pub fn ring(&self) {
        let mut bell = self.bell.lock();
        if !*bell {
            *bell = true;
            self.rung.notify_all();
        }
    }

    /// Wakes the writers that wait for space in the overlay.
    pub fn ease(&self) {
        let _easing = self.easing.lock();
        self.eased.notify_all();
    }
    /// Waits for the next `ease`, at most so long.
    pub fn wait_eased(&self, at_most: Duration) {
        if !at_most.is_zero() {
            let _wait = spent::waiting(spent::Cause::Log);
            self.eased.wait_for(&mut self.easing.lock(), at_most);
        }
    }

    /// Waits for the bell, at most so long; true if it was rung.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut bell = self.bell.lock();
        if !*bell {
            self.rung.wait_for(&mut bell, at_most);
        }
        std::mem::take(&mut *bell)
    }
}
