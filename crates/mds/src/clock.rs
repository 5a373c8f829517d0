//! The MDT's source of time. Tests have their own.

use std::time::SystemTime;

use types::Time;

/// The clocks that an MDT reads.
pub trait Clock: Send + Sync {
    /// Milliseconds that also count while the machine sleeps. Session time-outs use it.
    fn boot_ms(&self) -> u64;
    /// The time of day, for the expiry of capabilities and the root directory's birth.
    fn wall(&self) -> Time;
}

/// CLOCK_BOOTTIME and the system's time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn boot_ms(&self) -> u64 {
        pair::Clock::boot_ms(&pair::MachineClock)
    }
    fn wall(&self) -> Time {
        SystemTime::now().into()
    }
}
