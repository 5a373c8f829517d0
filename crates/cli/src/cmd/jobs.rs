//! Requests by job, user, client, target or kind of call: `stria jobstats` since the servers' start, `stria top` at this moment, `stria why` what
//! they wait for.

mod locks;
pub(super) mod sample;
mod screen;
mod stats;
mod top;
mod verdict;
mod why;

use std::fmt::Write;

use clap::ValueEnum;
use serde::Serialize;
use types::size::human;
use wire::jobs::{CAUSES, CLASSES, JobCounts, READ, WRITE};

pub use stats::JobStats;
pub use top::Top;
pub use why::Why;

/// Width of a table, and the least of it that a name has.
const COLUMNS: usize = 100;
const NAME_MIN: usize = 12;

/// The kind of rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// A batch job, or a program and its user.
    Job,
    /// The user, by uid.
    User,
    /// The mount: host, process and mount point.
    Client,
    /// The MDT or OST.
    Target,
    /// The kind of call: read, write, open, create and so on.
    Call,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// Time that targets worked on requests.
    Time,
    /// Bytes read and written.
    Bytes,
    /// Requests.
    Requests,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub name: String,
    pub counts: JobCounts,
}

impl By {
    fn title(self) -> &'static str {
        match self {
            By::Job => "JOB",
            By::User => "USER",
            By::Client => "CLIENT",
            By::Target => "TARGET",
            By::Call => "CALL",
        }
    }
}

impl Order {
    fn word(self) -> &'static str {
        match self {
            Order::Time => "time",
            Order::Bytes => "bytes",
            Order::Requests => "requests",
        }
    }
}

impl Row {
    fn bytes(&self) -> u64 {
        self.counts.bytes_read + self.counts.bytes_written
    }

    /// Requests that are no reads and writes of content.
    fn metadata(&self) -> u64 {
        self.counts.total() - self.counts.requests.iter().take(2).sum::<u64>()
    }
}

pub(super) fn sort(rows: &mut [Row], by: Order) {
    let key = |row: &Row| match by {
        Order::Time => row.counts.busy_us,
        Order::Bytes => row.bytes(),
        Order::Requests => row.counts.total(),
    };
    rows.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
}

/// The table. With `seconds` numbers are rates.
fn table(by: By, rows: &[Row], seconds: Option<f64>) -> String {
    let unit = if seconds.is_some() { "/s" } else { "" };
    let rate = |n: u64| n as f64 / seconds.unwrap_or(1.0);
    let count = |n: u64| match seconds {
        Some(_) if rate(n) >= 100.0 => format!("{:.0}", rate(n)),
        Some(_) => format!("{:.1}", rate(n)),
        None => n.to_string(),
    };
    let bytes = |n: u64| human(rate(n) as u64);
    let head = [
        by.title().to_owned(),
        format!("REQS{unit}"),
        format!("READS{unit}"),
        format!("READ{unit}"),
        format!("WRITES{unit}"),
        format!("WRITTEN{unit}"),
        format!("META{unit}"),
        format!("ERRS{unit}"),
        if seconds.is_some() { "BUSY".to_owned() } else { "TIME".to_owned() },
        "MEAN".to_owned(),
    ];
    let line = |row: &Row| {
        let counts = &row.counts;
        let at = |n: usize| counts.requests.get(n).copied().unwrap_or(0);
        // More than one request at a time makes more than 100 %.
        let busy = match seconds {
            Some(seconds) => format!("{:.0} %", counts.busy_us as f64 / 1e4 / seconds),
            None => format!("{:.1} s", counts.busy_us as f64 / 1e6),
        };
        let mean = counts.busy_us.checked_div(counts.total()).map_or("-".to_owned(), |us| format!("{us} us"));
        [
            row.name.clone(),
            count(counts.total()),
            count(at(READ)),
            bytes(counts.bytes_read),
            count(at(WRITE)),
            bytes(counts.bytes_written),
            count(row.metadata()),
            count(counts.errors),
            busy,
            mean,
        ]
    };
    let lines: Vec<[String; 10]> = std::iter::once(head).chain(rows.iter().map(line)).collect();
    let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: [usize; 10] = std::array::from_fn(width);
    let rest: usize = widths.iter().skip(1).map(|w| w + 2).sum();
    let name_max = widths[0].min(COLUMNS.saturating_sub(rest).max(NAME_MIN));
    let mut out = String::new();
    for line in &lines {
        let name: String = match line[0].chars().count() > name_max {
            // The end tells clients apart by their mount points, and programs by their users.
            true => {
                let skip = line[0].chars().count() - name_max + 2;
                format!("..{}", line[0].chars().skip(skip).collect::<String>())
            }
            false => line[0].clone(),
        };
        let _ = write!(out, "{name:<name_max$}");
        line.iter().zip(widths).skip(1).for_each(|(cell, w)| {
            let _ = write!(out, "  {cell:>w$}");
        });
        out.push('\n');
    }
    out
}

/// The counts as JSON: requests by class, and the sums.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    requests: u64,
    calls: std::collections::BTreeMap<&'static str, u64>,
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    busy_us: u64,
    /// Microseconds by cause, without causes that did not come.
    waited_us: std::collections::BTreeMap<&'static str, u64>,
}

impl From<&Row> for Line {
    fn from(row: &Row) -> Line {
        let counts = &row.counts;
        let calls = CLASSES.iter().copied().zip(counts.requests.iter().copied()).filter(|(_, n)| *n > 0);
        Line {
            name: row.name.clone(),
            requests: counts.total(),
            calls: calls.collect(),
            errors: counts.errors,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
            busy_us: counts.busy_us,
            waited_us: CAUSES
                .iter()
                .copied()
                .zip(counts.waited_us.iter().copied())
                .filter(|(_, us)| *us > 0)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, reads: u64, creates: u64, busy_us: u64) -> Row {
        let mut counts = JobCounts { bytes_read: reads << 20, busy_us, ..JobCounts::default() };
        counts.requests[READ] = reads;
        counts.requests[wire::jobs::CREATE] = creates;
        Row { name: name.into(), counts }
    }

    #[test]
    fn rows_are_ordered_by_what_is_asked_for() {
        let names = |by| {
            let mut rows = [row("slow", 1, 0, 900), row("many", 2, 50, 100), row("wide", 30, 0, 500)];
            sort(&mut rows, by);
            rows.map(|row| row.name).join(" ")
        };
        assert_eq!(names(Order::Time), "slow wide many");
        assert_eq!(names(Order::Bytes), "wide many slow");
        assert_eq!(names(Order::Requests), "many wide slow");
    }

    #[test]
    fn a_long_name_is_cut_so_that_the_table_fits() {
        let rows = [row(&format!("{}/mnt/home", "x".repeat(120)), 1 << 16, 1 << 16, 90_000_000)];
        for text in [table(By::Client, &rows, None), table(By::Client, &rows, Some(0.1))] {
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
            assert!(text.contains("/mnt/home "), "{text}");
        }
    }

    #[test]
    fn a_table_has_sums_and_with_seconds_rates() {
        let rows = [row("4711", 20, 10, 3_000_000)];
        let sums = table(By::Job, &rows, None);
        assert_eq!(
            sums.lines().nth(1).expect("a row").split_whitespace().collect::<Vec<_>>().join(" "),
            "4711 30 20 20.0M 0 0B 10 0 3.0 s 100000 us"
        );
        let rates = table(By::Job, &rows, Some(2.0));
        assert!(rates.starts_with("JOB ") && rates.contains("REQS/s"), "{rates}");
        assert_eq!(
            rates.lines().nth(1).expect("a row").split_whitespace().collect::<Vec<_>>().join(" "),
            "4711 15.0 10.0 10.0M 0.0 0B 5.0 0.0 150 % 100000 us"
        );
    }
}
