//! How soon a host that vanished is noticed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PING_AFTER_MS: u32 = 1000;
const DEAD_AFTER_MS: u32 = 2000;

/// Times of a fabric, which may be changed at any time.
pub(crate) struct Timing {
    ping_after_ms: AtomicU32,
    dead_after_ms: AtomicU32,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { ping_after_ms: AtomicU32::new(PING_AFTER_MS), dead_after_ms: AtomicU32::new(DEAD_AFTER_MS) }
    }
}

impl Timing {
    /// Silence on a connection with requests under way after which it is pinged.
    pub fn ping_after(&self) -> Duration {
        Duration::from_millis(self.ping_after_ms.load(Ordering::Relaxed).into())
    }
    /// Silence after which the other end's host counts as dead, unless it accepts a new connection.
    pub fn dead_after(&self) -> Duration {
        Duration::from_millis(self.dead_after_ms.load(Ordering::Relaxed).into())
    }
    /// Sets the second time, and the first one to half of it. At least 100 ms, so that a busy host is not taken for a dead one.
    pub fn set_dead_after(&self, after: Duration) {
        let ms = u32::try_from(after.as_millis()).unwrap_or(u32::MAX).max(100);
        self.dead_after_ms.store(ms, Ordering::Relaxed);
        self.ping_after_ms.store(ms / 2, Ordering::Relaxed);
    }
}
