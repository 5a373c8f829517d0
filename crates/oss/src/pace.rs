//! How quickly an OST serves large requests of late. A slow one shows among its twins (`stria status`).
//!
//! Only the store's time counts: waits for locks and clients are not the target's. Old requests count half after each minute, so that a fault
//! shows soon and a repair does too.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Smaller requests tell of the host's load rather than of its bandwidth.
pub(crate) const BYTES_MIN: usize = 64 * 1024;
const HALF_LIFE: Duration = Duration::from_secs(60);
/// A flush of less says nothing of bandwidth.
const FLUSHED_MIN: u64 = 1 << 20;

pub(crate) struct Pace(Mutex<Sums>);

struct Sums {
    bytes: u64,
    ns: u64,
    halved: Instant,
    /// Written since the last flush.
    unflushed: u64,
}

impl Pace {
    pub fn new(now: Instant) -> Pace {
        Pace(Mutex::new(Sums { bytes: 0, ns: 0, halved: now, unflushed: 0 }))
    }

    pub fn read(&self, bytes: usize, took: Duration, now: Instant) {
        self.add(bytes, 0, took, now);
    }
    pub fn wrote(&self, bytes: usize, took: Duration, now: Instant) {
        self.add(bytes, bytes as u64, took, now);
    }

    /// A flush, whose time is part of that of the writes before it.
    pub fn flushed(&self, took: Duration, now: Instant) {
        let mut sums = self.0.lock();
        sums.age(now);
        if std::mem::take(&mut sums.unflushed) >= FLUSHED_MIN {
            sums.ns += took.as_nanos() as u64;
        }
    }

    fn add(&self, bytes: usize, unflushed: u64, took: Duration, now: Instant) {
        let mut sums = self.0.lock();
        sums.age(now);
        sums.bytes += bytes as u64;
        sums.unflushed += unflushed;
        sums.ns += took.as_nanos() as u64;
    }

    /// Bytes, and the microseconds that they took.
    pub fn of_late(&self, now: Instant) -> (u64, u64) {
        let mut sums = self.0.lock();
        sums.age(now);
        (sums.bytes, sums.ns / 1000)
    }
}

impl Sums {
    fn age(&mut self, now: Instant) {
        let lives = now.saturating_duration_since(self.halved).as_nanos() / HALF_LIFE.as_nanos();
        if lives > 0 {
            let lives = lives.min(63) as u32;
            (self.bytes, self.ns) = (self.bytes >> lives, self.ns >> lives);
            self.halved = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_requests_count_less_and_the_rate_stays() {
        let begin = Instant::now();
        let pace = Pace::new(begin);
        pace.wrote(1 << 20, Duration::from_millis(10), begin);
        pace.flushed(Duration::from_millis(6), begin);
        // Nothing was written since.
        pace.flushed(Duration::from_millis(50), begin);
        assert_eq!(pace.of_late(begin), (1 << 20, 16_000));
        assert_eq!(pace.of_late(begin + HALF_LIFE), (1 << 19, 8_000));
        pace.read(1 << 20, Duration::from_millis(1), begin + 2 * HALF_LIFE);
        assert_eq!(pace.of_late(begin + 2 * HALF_LIFE), ((1 << 20) + (1 << 18), 5_000));
        assert_eq!(pace.of_late(begin + 200 * HALF_LIFE), (0, 0));
    }
}
