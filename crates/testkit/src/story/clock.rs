//! The MDT's clock in a story: the machine's clock plus the time by which the story has advanced it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mds::{Clock, MachineClock};
use types::Time;

#[derive(Default)]
pub(crate) struct StoryClock {
    ahead_ms: AtomicU64,
}

impl StoryClock {
    pub fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for StoryClock {
    fn boot_ms(&self) -> u64 {
        MachineClock.boot_ms() + self.ahead_ms.load(Ordering::SeqCst)
    }
    /// Not advanced, as on the OSTs: they must accept the capabilities that the MDT dates with it.
    fn wall(&self) -> Time {
        MachineClock.wall()
    }
}
