//! Bells: a background thread sleeps on its own, and any thread wakes it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A ring while its thread works counts for the next sleep.
#[derive(Default)]
pub(crate) struct Bell {
    is_rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.is_rung.lock() = true;
        self.wake.notify_one();
    }
    /// Sleeps until the bell rings, for at most `time`. True: it rang.
    pub fn sleep(&self, time: Duration) -> bool {
        let mut is_rung = self.is_rung.lock();
        if !*is_rung {
            self.wake.wait_for(&mut is_rung, time);
        }
        std::mem::take(&mut is_rung)
    }
}
