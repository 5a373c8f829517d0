//! Numbers and times as IOR and mdtest print them, and what stands in both headers.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ten columns, left: six digits after the point below 1, two below an hour, none above; a dash for what is not known.
pub fn cell(value: Option<f64>) -> String {
    match value {
        None => format!("{:<10}", "   -"),
        Some(v) if v < 1.0 => format!("{v:<10.6}"),
        Some(v) if v < 3600.0 => format!("{v:<10.2}"),
        Some(v) => format!("{v:<10.0}"),
    }
}

/// `1 MiB`, `4096 bytes`: the largest unit that divides it.
pub fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    match units.iter().find(|(shift, _)| bytes >= 1 << shift) {
        None => format!("{bytes} bytes"),
        Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => format!("{} {unit}", bytes >> shift),
        Some((shift, unit)) => format!("{:.2} {unit}", bytes as f64 / (1_u64 << shift) as f64),
    }
}

pub struct Spread {
    pub max: f64,
    pub min: f64,
    pub mean: f64,
    /// Of the population, as IOR has it.
    pub deviation: f64,
    /// Of a sample, as mdtest 4 has it.
    pub sample_deviation: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Spread {
        if values.is_empty() {
            return Spread { max: 0.0, min: 0.0, mean: 0.0, deviation: 0.0, sample_deviation: 0.0 };
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Spread {
            max: values.iter().copied().fold(f64::MIN, f64::max),
            min: values.iter().copied().fold(f64::MAX, f64::min),
            mean,
            deviation: (squares / count).sqrt(),
            sample_deviation: if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
        }
    }
}

/// `252.0 GiB   Used FS: 20.6%   Inodes: 16.0 Mi   Used Inodes: 3.2%` of the file system of a path.
pub fn file_system(path: &Path) -> String {
    let dir = path.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let Ok(stat) = rustix::fs::statvfs(dir) else { return "unknown".into() };
    let bytes = stat.f_blocks.saturating_mul(stat.f_frsize) as f64;
    let used = |free: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * (1.0 - free as f64 / all as f64) };
    let (size, unit) = match bytes {
        b if b >= (1_u64 << 40) as f64 => (b / (1_u64 << 40) as f64, "TiB"),
        b => (b / (1_u64 << 30) as f64, "GiB"),
    };
    format!(
        "{size:.1} {unit}   Used FS: {:.1}%   Inodes: {:.1} Mi   Used Inodes: {:.1}%",
        used(stat.f_bfree, stat.f_blocks),
        stat.f_files as f64 / f64::from(1 << 20),
        used(stat.f_ffree, stat.f_files)
    )
}

/// A moment in UTC.
pub struct Moment {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize,
    seconds: i64,
}

impl Moment {
    pub fn now() -> Moment {
        Moment::at(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64))
    }

    /// Seconds since 1970. Years begin in March here, so that the leap day is the last one.
    pub fn at(since_1970: i64) -> Moment {
        let days = since_1970.div_euclid(86_400);
        let from_march_0 = days + 719_468;
        let era = from_march_0.div_euclid(146_097);
        let of_era = from_march_0.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = (from_march + 2) % 12;
        Moment {
            year: year_of_era + era * 400 + i64::from(month < 2),
            month: month as usize,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            weekday: (days + 4).rem_euclid(7) as usize,
            seconds: since_1970.rem_euclid(86_400),
        }
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60)
    }

    /// `Sun Nov 22 11:16:37 2026`
    pub fn long(&self) -> String {
        const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        format!("{} {} {:2} {} {}", DAYS[self.weekday], MONTHS[self.month], self.day, self.clock(), self.year)
    }

    /// `11/22/2026 11:16:43`
    pub fn short(&self) -> String {
        format!("{:02}/{:02}/{} {}", self.month + 1, self.day, self.year, self.clock())
    }
}
