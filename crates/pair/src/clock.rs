//! The clock of a seat. Tests have their own.

/// Milliseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps: promises run out then, too.
pub trait Clock: Send + Sync {
    fn boot_ms(&self) -> u64;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn boot_ms(&self) -> u64 {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
    }
}
