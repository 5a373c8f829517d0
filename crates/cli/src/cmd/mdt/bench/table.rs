//! The samples as a table and as JSON. A sample of a ratio is one turn of the MDT divided by its partner's turn. Medians come with their 95
//! % interval, or with their range if there are fewer than six samples.

use std::fmt::Write;

use bench::stats::{Estimate, estimate};
use serde::Serialize;

use super::load::Figure;
use super::rows::{Against, Row};
use crate::cmd::measure::{middle, ratio_of_pairs, shown_ratio};

/// A row with the results of each turn.
#[derive(Debug)]
pub struct Line {
    pub row: &'static Row,
    pub ours: Vec<Figure>,
    /// Paired with ours, as far as both exist.
    pub other: Vec<Figure>,
}

/// The result of one side.
#[derive(Debug, Serialize)]
pub struct Side {
    /// In the row's unit.
    pub value: Estimate,
    /// A median, as are all that follow.
    pub cpu_seconds_per_million: f64,
    /// The part of the row's time that the flush at its end took.
    pub flush_share: f64,
    pub p50_us: f64,
    pub p999_us: f64,
    /// The maximum of all turns.
    pub max_us: f64,
    /// For the MDT, resident memory of its process; for ext4, kernel memory for dentries and inodes; else 0.
    pub memory_bytes: f64,
    /// Files that a writer beside it created.
    pub made_per_second: f64,
    pub samples: Vec<f64>,
}

/// A line of the result.
#[derive(Debug, Serialize)]
pub struct Result {
    pub row: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub against: Against,
    pub mdt: Side,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Side>,
    /// MDT ÷ other; higher is better everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Estimate>,
}

fn values(figures: &[Figure]) -> Vec<f64> {
    figures.iter().map(|f| f.value).collect()
}

fn side(figures: &[Figure]) -> Option<Side> {
    let samples = values(figures);
    (!figures.is_empty()).then(|| Side {
        value: estimate(&samples),
        cpu_seconds_per_million: middle(figures, Figure::cpu_seconds_per_million),
        flush_share: middle(figures, |f| f.flush_seconds / f.seconds),
        p50_us: middle(figures, |f| f.p50_us),
        p999_us: middle(figures, |f| f.p999_us),
        max_us: figures.iter().map(|f| f.max_us).fold(0.0, f64::max),
        memory_bytes: middle(figures, |f| f.memory_bytes as f64),
        made_per_second: middle(figures, |f| f.made_per_second),
        samples,
    })
}

/// The lines that have results, in the given order.
pub fn results(lines: &[Line]) -> Vec<Result> {
    let result = |line: &Line| {
        let Line { row, ours, other } = line;
        Some(Result {
            row: row.name,
            title: row.title,
            unit: row.unit(),
            against: row.against,
            mdt: side(ours)?,
            other: side(other),
            ratio: ratio_of_pairs(&values(ours), &values(other)),
        })
    };
    lines.iter().filter_map(result).collect()
}

pub fn table(results: &[Result]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:<37} {:>15} {:>15} {:<5}  ratio (interval)", "row", "MDT", "other", "");
    for r in results {
        let two = |of: &dyn Fn(&Side) -> f64, digits: usize| match &r.other {
            Some(other) => format!("{:.digits$} / {:.digits$}", of(&r.mdt), of(other)),
            None => format!("{:.digits$}", of(&r.mdt)),
        };
        let value = |side: &Side| {
            let digits = if side.value.median < 100.0 { 2 } else { 0 };
            format!("{:.digits$} {}", side.value.median, r.unit)
        };
        let _ = writeln!(
            out,
            "{:<37} {:>15} {:>15} {:<5}  {}",
            r.title,
            value(&r.mdt),
            r.other.as_ref().map_or("–".into(), value),
            r.against.title(),
            shown_ratio(r.ratio),
        );
        let _ = writeln!(
            out,
            "    CPU {} s/10^6, p99.9 {} µs, memory {} MiB",
            two(&|s| s.cpu_seconds_per_million, 2),
            two(&|s| s.p999_us, 1),
            two(&|s| s.memory_bytes / f64::from(1 << 20), 0),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::mdt::bench::rows::ROWS;

    fn figure(value: f64) -> Figure {
        let ops = (value * 2.0) as u64;
        Figure { value, ops, seconds: 2.0, flush_seconds: 0.5, cpu_seconds: 1.0, ..Figure::default() }
    }

    fn line(name: &str, ours: &[f64], other: &[f64]) -> Line {
        let figures = |values: &[f64]| values.iter().copied().map(figure).collect();
        let row = ROWS.iter().find(|r| r.name == name).unwrap();
        Line { row, ours: figures(ours), other: figures(other) }
    }

    #[test]
    fn a_ratio_is_the_median_of_pairs_and_not_of_sides() {
        let all = results(&[line("stat-1", &[100.0, 400.0, 900.0], &[100.0, 200.0, 300.0])]);
        assert_eq!(all[0].ratio.unwrap(), Estimate { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!((all[0].mdt.value.median, all[0].unit), (400.0, "op/s"));
        assert_eq!(all[0].mdt.cpu_seconds_per_million, 1e6 / 800.0);
        assert_eq!(all[0].mdt.flush_share, 0.25);
        assert!(table(&all).contains("2.00 (1.00–3.00)"));
    }

    #[test]
    fn what_has_no_partner_has_no_ratio_and_what_has_no_figure_no_line() {
        let all = results(&[line("create-1", &[7.0], &[]), line("scaling", &[], &[])]);
        assert_eq!(all.len(), 1);
        assert!(all[0].ratio.is_none() && all[0].other.is_none());
    }
}
