//! File times with nanoseconds, as values. This module reads no clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds and nanoseconds since 1970 (UTC, as `struct timespec`); `nsec` is below 10^9 also before 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

impl Time {
    pub fn new(sec: i64, nsec: u32) -> Time {
        Time { sec, nsec: nsec.min(999_999_999) }
    }
}

impl From<SystemTime> for Time {
    fn from(t: SystemTime) -> Time {
        match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Time { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
            Err(e) => {
                let d = e.duration();
                match d.subsec_nanos() {
                    0 => Time { sec: -(d.as_secs() as i64), nsec: 0 },
                    n => Time { sec: -(d.as_secs() as i64) - 1, nsec: 1_000_000_000 - n },
                }
            }
        }
    }
}

impl From<Time> for SystemTime {
    fn from(t: Time) -> SystemTime {
        let nsec = Duration::from_nanos(t.nsec as u64);
        let whole = Duration::from_secs(t.sec.unsigned_abs());
        match t.sec >= 0 {
            true => UNIX_EPOCH.checked_add(whole).unwrap_or(UNIX_EPOCH) + nsec,
            false => UNIX_EPOCH.checked_sub(whole).unwrap_or(UNIX_EPOCH) + nsec,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_survive_the_way_there_and_back() {
        for (sec, nsec) in [(0, 0), (1, 5), (-1, 999_999_999), (-5, 0), (1 << 34, 1)] {
            let t = Time::new(sec, nsec);
            assert_eq!(Time::from(SystemTime::from(t)), t);
        }
    }
}
