//! The clocks that an MDT reads; tests have their own.

use std::time::SystemTime;

use types::Time;

/// The clocks that an MDT reads.
pub trait Clock: Send + Sync {
    /// Milliseconds, counted also while the machine sleeps. Session time-outs use it.
    fn boot_ms(&self) -> u64;
    /// The time of day, for capabilities' expiry and the root directory's birth.
    fn wall(&self) -> Time;
}

/// CLOCK_BOOTTIME and the system's time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn boot_ms(&self) -> u64 {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
    }
    fn wall(&self) -> Time {
        SystemTime::now().into()
    }
}
