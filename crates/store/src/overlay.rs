//! The overlay as a whole: all patches of all objects, oldest first, how full it is, and who folds them into extents.
//!
//! I1: `queue` names each patch once at least from when it begins until it is gone; a name whose patch is gone, or began anew, is
//! stale and dropped when it is met. I2: `flying` is the oldest of those that a destager took from the queue and has not applied yet.
//! So the log must be kept from the older of the two on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use disk::LogPoint;
use parking_lot::{Condvar, Mutex};
use types::{ObjectId, Seq};

use crate::destage::Work;

/// A patch by its place, and where it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub object: ObjectId,
    pub page: u32,
    pub since: Seq,
    pub point: LogPoint,
}

#[derive(Debug, Default)]
pub struct Queue {
    pub names: VecDeque<Name>,
    pub flying: Option<LogPoint>,
    /// Patches that cannot be folded now.
    pub stuck: Vec<Name>,
}

impl Queue {
    /// Takes up to `max` names that began at or before `until`, oldest first.
    pub fn take(&mut self, max: usize, until: Seq) -> Vec<Name> {
        let count = self.names.iter().take(max).take_while(|name| name.since <= until).count();
        let names: Vec<Name> = self.names.drain(..count).collect();
        self.flying = names.first().map(|name| name.point);
        names
    }

    /// The oldest that is live and not in `names`.
    pub fn kept(&self) -> Option<LogPoint> {
        self.stuck.iter().map(|name| name.point).chain(self.flying).min_by_key(|point| point.pos)
    }
}

#[derive(Debug)]
pub struct Overlay {
    pub queue: Mutex<Queue>,
    /// Live patches.
    pages: AtomicU64,
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
