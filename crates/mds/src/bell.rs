//! Bells: a thread waits on its own, and any other thread wakes it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes one thread. A ring while the thread works counts for its next wait.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        let mut rung = self.rung.lock();
        if !*rung {
            *rung = true;
            self.wake.notify_one();
        }
    }
    /// Waits until the bell rings, for at most `at_most`. True: it rang.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            self.wake.wait_for(&mut rung, at_most);
        }
        std::mem::take(&mut *rung)
    }
}

/// A bell for each background thread that waits on one.
#[derive(Default)]
pub struct Bells {
    pub flush: Bell,
    pub checkpoint: Bell,
    pub purge: Bell,
    /// Too many leaves in memory cannot be evicted before a checkpoint.
    pub unwritten: AtomicBool,
}
