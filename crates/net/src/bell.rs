//! Bells: a background thread waits on its own, and a request, a notice or another thread wakes it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Wakes one thread. A ring while the thread works counts for its next wait.
#[derive(Debug, Default)]
pub struct Bell {
    is_rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        let mut is_rung = self.is_rung.lock();
        if !*is_rung {
            *is_rung = true;
            self.wake.notify_one();
        }
    }
    /// Waits until the bell rings, for at most `at_most`. True: it rang.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut is_rung = self.is_rung.lock();
        if !*is_rung {
            self.wake.wait_for(&mut is_rung, at_most);
        }
        std::mem::take(&mut is_rung)
    }
}
