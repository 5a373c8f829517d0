//! The rate of a drain: bytes per second of all its workers together.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest sleep, after which a worker looks whether it has to end.
const NAP: Duration = Duration::from_millis(20);

pub(super) struct Bucket {
    rate: Option<u64>,
    /// When the bytes so far are paid for.
    paid_at: Mutex<Instant>,
}

impl Bucket {
    pub fn new(rate: Option<u64>) -> Bucket {
        Bucket { rate: rate.filter(|rate| *rate > 0), paid_at: Mutex::new(Instant::now()) }
    }

    /// Takes `bytes`, and waits until they are paid for, or until `must_end`.
    pub fn take(&self, bytes: u64, must_end: &dyn Fn() -> bool) {
        let Some(rate) = self.rate else { return };
        let until = due(&mut self.paid_at.lock(), Instant::now(), bytes, rate);
        while !must_end() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// Time that was not used is lost.
fn due(paid_at: &mut Instant, now: Instant, bytes: u64, rate: u64) -> Instant {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    *paid_at = (*paid_at).max(now) + Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64);
    *paid_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_for_one_after_the_other_and_idle_time_is_lost() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut paid_at = now;
        assert_eq!(due(&mut paid_at, now, 1000, 10_000), at(100));
        assert_eq!(due(&mut paid_at, at(50), 1000, 10_000), at(200));
        assert_eq!(due(&mut paid_at, at(900), 1000, 10_000), at(1000));
    }
}
