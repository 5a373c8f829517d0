//! File times with nanoseconds, as values. This module reads no clock.

use std::fmt;
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

/// A calendar date and time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Civil {
    /// Converts seconds since 1970. Years begin in March here, so that a leap day comes last; 400 of them have 146,097 days.
    pub fn of(sec: i64) -> Civil {
        let (days, rest) = (sec.div_euclid(86_400) + 719_468, sec.rem_euclid(86_400));
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, is_next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        Civil { year: era * 400 + year + is_next, month, day, hour, minute, second }
    }

    /// Seconds since 1970: the way back.
    pub fn sec(&self) -> i64 {
        let (year, month) = match self.month > 2 {
            true => (self.year, self.month - 3),
            false => (self.year - 1, self.month + 9),
        };
        let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = days + (153 * month + 2) / 5 + self.day - 1 - 719_468;
        days * 86_400 + self.hour * 3600 + self.minute * 60 + self.second
    }
}

impl fmt::Display for Civil {
    /// `2026-11-28 14:30:00`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

impl Time {
    /// Reads `2026-11-28`, `2026-11-28 14:30`, `2026-11-28T14:30:00Z` (all UTC), or `@1795876200` with or without a fraction.
    pub fn parse(text: &str) -> Option<Time> {
        if let Some(seconds) = text.strip_prefix('@') {
            let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
            let nsec = format!("{fraction:0<9.9}").parse().ok()?;
            return Some(Time::new(whole.parse().ok()?, nsec));
        }
        let text = text.strip_suffix('Z').unwrap_or(text);
        let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "0:0:0"));
        let numbers = |text: &str, by: char| -> Option<Vec<i64>> {
            let digits =
                |part: &str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            text.split(by).map(|part| digits(part).then(|| part.parse().ok()).flatten()).collect()
        };
        let (date, clock) = (numbers(date, '-')?, numbers(clock, ':')?);
        let [year, month, day] = date[..] else { return None };
        let (hour, minute, second) = match clock[..] {
            [hour, minute] => (hour, minute, 0),
            [hour, minute, second] => (hour, minute, second),
            _ => return None,
        };
        let civil = Civil { year, month, day, hour, minute, second };
        // A date that does not exist would be another one on the way back.
        (Civil::of(civil.sec()) == civil).then(|| Time::new(civil.sec(), 0))
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

    #[test]
    fn days_are_the_calendars() {
        let day = |sec| {
            let Civil { year, month, day, .. } = Civil::of(sec);
            (year, month, day)
        };
        let table = [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (951_782_400, (2000, 2, 29)),
            (951_868_800, (2000, 3, 1)),
            (4_107_456_000, (2100, 2, 28)),
            (4_107_542_400, (2100, 3, 1)),
            (1_735_603_200, (2024, 12, 31)),
        ];
        for (sec, want) in table {
            assert_eq!(day(sec), want, "{sec}");
        }
        assert_eq!(
            Civil::of(86_399),
            Civil { year: 1970, month: 1, day: 1, hour: 23, minute: 59, second: 59 }
        );
    }

    #[test]
    fn dates_are_read_and_those_that_do_not_exist_are_refused() {
        for sec in (-5_000_000_000i64..5_000_000_000).step_by(86_399 * 17) {
            assert_eq!(Civil::of(sec).sec(), sec);
            assert_eq!(Time::parse(&Civil::of(sec.max(0)).to_string()), Some(Time::new(sec.max(0), 0)));
        }
        assert_eq!(Time::parse("2024-12-31"), Some(Time::new(1_735_603_200, 0)));
        assert_eq!(Time::parse("1970-01-01T00:01Z"), Some(Time::new(60, 0)));
        assert_eq!(Time::parse("@5.25"), Some(Time::new(5, 250_000_000)));
        for bad in ["", "2023-02-29", "2024-13-01", "2024-01-01 25:00", "yesterday", "2024-1", "@x", "@1.x"] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }
}
