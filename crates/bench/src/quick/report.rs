//! What was measured: samples, rows with median and spread, the table for people and JSON for programs.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::kind::{Better, Kind};
use super::workers::Done;
use super::workspace::Params;
use crate::cache::CacheState;
use crate::pattern::Checked;
use crate::stats::median;

/// One measurement of one row.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub kind: Kind,
    /// In the row's unit.
    pub value: f64,
    pub seconds: f64,
    pub ops: u64,
    pub bytes: u64,
    pub checked: Checked,
    /// Microseconds per operation, where each was timed.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub cache: CacheState,
}

impl Sample {
    pub(crate) fn new(kind: Kind, done: &Done, seconds: f64, cache: CacheState) -> Sample {
        let percentile =
            |q: f64| (!done.latency.is_empty()).then(|| done.latency.value_at_quantile(q) as f64 / 1e3);
        let (p50_us, p99_us) = (percentile(0.5), percentile(0.99));
        let value = match kind.unit() {
            "MiB/s" => done.bytes as f64 / f64::from(1 << 20) / seconds,
            "us" => p50_us.unwrap_or(f64::NAN),
            _ => done.ops as f64 / seconds,
        };
        Sample {
            kind,
            value,
            seconds,
            ops: done.ops,
            bytes: done.bytes,
            checked: done.checked,
            p50_us,
            p99_us,
            cache,
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub kind: Kind,
    pub title: &'static str,
    pub unit: &'static str,
    pub better: Better,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// (max - min) / median, in percent.
    pub spread_percent: f64,
    pub samples: Vec<Sample>,
}

impl Row {
    fn new(kind: Kind, samples: Vec<Sample>) -> Row {
        let mut values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        values.sort_by(f64::total_cmp);
        let median = median(&values);
        let (min, max) =
            (values.first().copied().unwrap_or(f64::NAN), values.last().copied().unwrap_or(f64::NAN));
        let spread_percent = (max - min) / median * 100.0;
        Row {
            kind,
            title: kind.title(),
            unit: kind.unit(),
            better: kind.better(),
            median,
            min,
            max,
            spread_percent,
            samples,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub dir: String,
    /// Type and source of the file system, as the mount table has them.
    pub file_system: String,
    pub workers: usize,
    /// What a worker is.
    pub worker_kind: &'static str,
    pub total_bytes: u64,
    pub transfer_bytes: usize,
    pub files_per_worker: usize,
    pub direct: bool,
    pub verify: bool,
    /// What was done against caches before cold reads.
    pub cold_reads: CacheState,
    pub rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(
        dir: &Path,
        params: &Params,
        rows: impl Iterator<Item = (Kind, Vec<Sample>)>,
    ) -> Report {
        let rows: Vec<Row> = rows.map(|(kind, samples)| Row::new(kind, samples)).collect();
        let caches = rows.iter().flat_map(|row| &row.samples).map(|s| s.cache);
        // The weakest measure that was taken is the one to be named.
        let cold_reads = caches.filter(|c| *c != CacheState::Fresh).max_by_key(|c| *c == CacheState::Advised);
        Report {
            dir: dir.display().to_string(),
            file_system: file_system_of(dir).unwrap_or_else(|| "unknown".into()),
            workers: params.workers,
            worker_kind: "threads of one process",
            total_bytes: params.total_bytes,
            transfer_bytes: params.transfer_bytes,
            files_per_worker: params.files_per_worker,
            direct: params.direct,
            verify: params.verify,
            cold_reads: cold_reads.unwrap_or(CacheState::Fresh),
            rows,
        }
    }

    /// The table that people read.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
        line(format!("{} ({})", self.dir, self.file_system));
        let io = if self.direct { "direct" } else { "buffered" };
        line(format!(
            "{} workers ({}), {} MiB in transfers of {} KiB, {io}; {} files per worker; median of {}",
            self.workers,
            self.worker_kind,
            self.total_bytes >> 20,
            self.transfer_bytes >> 10,
            self.files_per_worker,
            self.rows.first().map_or(0, |row| row.samples.len())
        ));
        line(String::new());
        line(format!(
            "{:<36} {:>6} {:>11} {:>11} {:>11} {:>8} {:>10}  {}",
            "", "unit", "median", "min", "max", "spread", "p99 us", "cache"
        ));
        for row in &self.rows {
            let mut p99: Vec<f64> = row.samples.iter().filter_map(|s| s.p99_us).collect();
            p99.sort_by(f64::total_cmp);
            let p99 = if p99.is_empty() { "-".into() } else { number(median(&p99)) };
            let cache = row.samples.last().map_or("-", |s| s.cache.title());
            line(format!(
                "{:<36} {:>6} {:>11} {:>11} {:>11} {:>7.0}% {:>10}  {}",
                row.title,
                row.unit,
                number(row.median),
                number(row.min),
                number(row.max),
                row.spread_percent,
                p99,
                cache
            ));
        }
        line(String::new());
        line(match self.cold_reads {
            CacheState::Dropped => {
                "cold reads: this machine's caches were dropped before each; servers elsewhere keep theirs".into()
            }
            CacheState::Advised => "cold reads: not root, so pages were only asked to go and names stayed warm; read rows may be too good".into(),
            CacheState::Fresh | CacheState::Direct | CacheState::Warm => "no cold reads were measured".into(),
        });
        let mut checked = Checked::default();
        self.rows.iter().flat_map(|row| &row.samples).for_each(|s| checked += s.checked);
        let Checked { pages, whole_pages, sizes } = checked;
        let [pages, whole_pages, sizes] = [pages, whole_pages, sizes].map(|n| grouped(&n.to_string()));
        line(match self.verify {
            true => format!(
                "content: {pages} pages of 4 KiB read back, the file, place and version stamped into each of their sectors right; \
                 {whole_pages} of them compared to the last byte"
            ),
            false => "content: not checked".into(),
        });
        line(format!("sizes: {sizes} files as long as written"));
        out
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers, strings and lists")
    }
}

/// Three significant digits below 100, whole numbers with separators above.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".into(),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => grouped(&format!("{value:.0}")),
    }
}

/// Digits with a separator at each thousand.
fn grouped(digits: &str) -> String {
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(|c| String::from_utf8_lossy(c).into_owned());
    let head = (first > 0).then(|| digits[..first].to_string());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

/// By the device number, so that the directory's path need not be resolved.
fn file_system_of(dir: &Path) -> Option<String> {
    let dev = rustix::fs::stat(dir).ok()?.st_dev;
    let wanted = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let mut tail = line.split_once(" - ")?.1.split(' ');
    Some(format!("{} on {}", tail.next()?, tail.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let table = [
            (0.5, "0.50"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.0, "1,234"),
            (1234567.0, "1,234,567"),
            (f64::NAN, "-"),
        ];
        for (value, text) in table {
            assert_eq!(number(value), text);
        }
        assert_eq!(median(&[1.0, 2.0, 4.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
    }
}
