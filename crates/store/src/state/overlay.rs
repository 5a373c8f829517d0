//! The overlay as a whole: all patches of all objects, oldest first, how full it is, and who folds them into extents.
//!
//! store-OV1: `names` has each live patch, from when it begins until after it is gone; a name whose patch is gone, or began anew, is dropped
//! when it is met. So the first live one says from where on the log must be kept.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::LogPoint;
use parking_lot::{Condvar, Mutex};
use types::{Buf, ObjectId, Seq};

/// A destager's working memory.
#[derive(Debug, Default)]
pub struct Work {
    pub bytes: Buf,
}

/// A patch by where it began, and its place; the oldest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Of `point`.
    pub pos: u64,
    pub since: Seq,
    pub object: ObjectId,
    pub page: u32,
    /// The last entry before `pos`.
    pub before: Seq,
}

impl Name {
    /// The log must be kept from here on.
    pub fn point(&self) -> LogPoint {
        LogPoint { seq: self.before, pos: self.pos }
    }
}

#[derive(Debug, Default)]
pub struct Queue {
    pub names: BTreeSet<Name>,
    /// Of these, patches that cannot be folded now.
    pub stuck: BTreeSet<Name>,
}

impl Queue {
    /// Up to `max` names that began at or before `until` and are not stuck, oldest first. They stay.
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
    /// Live patches.
    pages: AtomicU64,
    /// Folded since the last checkpoint: a recovery would find them as patches again.
    pub folded: AtomicU64,
    /// Held by whoever destages.
    pub role: Mutex<Work>,
    /// Rung when the overlay or the log fills.
    bell: Mutex<bool>,
    rung: Condvar,
    /// Told after each step of destaging.
    eased: Condvar,
    easing: Mutex<()>,
    /// Log ends of the last rounds, oldest first: what began before them is that old.
    pub rounds: Mutex<VecDeque<Seq>>,
}

impl Overlay {
    pub fn new() -> Overlay {
        Overlay {
            queue: Mutex::default(),
            pages: AtomicU64::new(0),
            folded: AtomicU64::new(0),
            role: Mutex::default(),
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
    /// Under the engine's tail lock. Answers with `pages`.
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

    /// There is more room than before.
    pub fn ease(&self) {
        let _easing = self.easing.lock();
        self.eased.notify_all();
    }
    /// Waits for more room, or the time.
    pub fn wait_eased(&self, at_most: Duration) {
        if !at_most.is_zero() {
            self.eased.wait_for(&mut self.easing.lock(), at_most);
        }
    }

    /// Waits until it is rung; true if it was.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut bell = self.bell.lock();
        if !*bell {
            self.rung.wait_for(&mut bell, at_most);
        }
        std::mem::take(&mut *bell)
    }
}
