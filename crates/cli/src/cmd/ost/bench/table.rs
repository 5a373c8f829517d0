//! The samples as a table and as JSON.
//!
//! A sample of a ratio is one turn of the engine divided by its partner's turn; for a full or aged OST, by the fresh results. Medians come
//! with their 95 % interval, or with their range if there are fewer than six samples.

use std::fmt::Write;

use bench::stats::{Estimate, change, estimate};
use bench::wrap::wrap;
use serde::Serialize;

use super::load::{Figure, Small};
use super::rows::Row;
use super::state::State;
use crate::cmd::measure::{middle, ratio_of_pairs, shown_ratio};

/// A row in one state of the OST, with the results of each turn.
#[derive(Debug)]
pub struct Line {
    pub row: &'static Row,
    pub state: State,
    pub engine: Vec<Figure>,
    /// Paired with the engine's, as far as both exist.
    pub fio: Vec<Figure>,
}

/// The result of one side.
#[derive(Debug, Serialize)]
pub struct Side {
    /// In the row's unit.
    pub value: Estimate,
    /// A median, as are all that follow.
    pub cpu_us_per_op: f64,
    pub cpu_seconds_per_gib: f64,
    pub p50_us: f64,
    pub p999_us: f64,
    /// The maximum of all turns.
    pub max_us: f64,
    /// Bytes written to the device for each byte of the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_amplification: Option<f64>,
    /// Counters of the small-write log, in each turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub small: Vec<Small>,
    pub samples: Vec<f64>,
}

/// A line of the result.
#[derive(Debug, Serialize)]
pub struct Result {
    pub row: &'static str,
    pub title: &'static str,
    pub state: State,
    pub unit: &'static str,
    pub lower_is_better: bool,
    pub engine: Side,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio: Option<Side>,
    /// Engine ÷ fio, or another state ÷ the fresh engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Estimate>,
}

fn values(row: &Row, figures: &[Figure]) -> Vec<f64> {
    figures.iter().map(|f| f.value(row.unit)).collect()
}

fn side(row: &Row, figures: &[Figure]) -> Option<Side> {
    let samples = values(row, figures);
    let known: Option<Vec<f64>> = figures.iter().map(Figure::amplification).collect();
    (!figures.is_empty()).then(|| Side {
        value: estimate(&samples),
        cpu_us_per_op: middle(figures, Figure::cpu_us_per_op),
        cpu_seconds_per_gib: middle(figures, Figure::cpu_seconds_per_gib),
        p50_us: middle(figures, |f| f.p50_us),
        p999_us: middle(figures, |f| f.p999_us),
        max_us: figures.iter().map(|f| f.max_us).fold(0.0, f64::max),
        write_amplification: known.map(|known| estimate(&known).median).filter(|_| row.writes()),
        small: figures.iter().map(|f| f.small).filter(|s| s.patched_bytes > 0).collect(),
        samples,
    })
}

/// The lines that have results, in the given order.
pub fn results(lines: &[Line]) -> Vec<Result> {
    let result = |line: &Line| {
        let Line { row, state, engine, fio } = line;
        let ratio = match state {
            State::Fresh => ratio_of_pairs(&values(row, engine), &values(row, fio)),
            _ => {
                let fresh = lines.iter().find(|l| l.row == *row && l.state == State::Fresh)?;
                change(&values(row, &fresh.engine), &values(row, engine)).map(|c| c.ratio)
            }
        };
        Some(Result {
            row: row.name,
            title: row.title,
            state: *state,
            unit: row.unit.name(),
            lower_is_better: row.unit.is_lower_better(),
            engine: side(row, engine)?,
            fio: side(row, fio),
            ratio,
        })
    };
    lines.iter().filter_map(result).collect()
}

pub fn table(results: &[Result]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:<38} {:>15} {:>15}  ratio (interval)", "row", "engine", "fio");
    let mut state = State::Fresh;
    for r in results {
        if r.state != state {
            state = r.state;
            let _ = writeln!(out, "\n{}, ratio to fresh:", state.title());
        }
        let two = |of: &dyn Fn(&Side) -> f64, digits: usize| match &r.fio {
            Some(fio) => format!("{:.digits$} / {:.digits$}", of(&r.engine), of(fio)),
            None => format!("{:.digits$}", of(&r.engine)),
        };
        let value = |side: &Side| {
            let digits = if side.value.median < 100.0 { 1 } else { 0 };
            format!("{:.digits$} {:<5}", side.value.median, r.unit)
        };
        let ratio = shown_ratio(r.ratio);
        let amplification =
            r.engine.write_amplification.map_or(String::new(), |a| format!(", write amplification {a:.2}"));
        let _ = writeln!(
            out,
            "{:<38} {:>15} {:>15}  {ratio}",
            r.title,
            value(&r.engine),
            r.fio.as_ref().map_or("–".into(), value),
        );
        let _ = writeln!(
            out,
            "    CPU {} µs/op, {} s/GiB, p99.9 {:.2} ms{amplification}",
            two(&|s| s.cpu_us_per_op, 1),
            two(&|s| s.cpu_seconds_per_gib, 2),
            r.engine.p999_us / 1e3,
        );
        for small in r.engine.small.iter().filter(|_| r.row.starts_with("soak")) {
            let mib = |bytes: u64| bytes >> 20;
            let [_, end, most] = small.pending_bytes;
            let text = format!(
                "    {} MiB by the log, {} MiB destaged; {:.2} of the bytes settled, {} MiB wait, {} at most; slowest request {:.1} ms",
                mib(small.patched_bytes),
                mib(small.destaged_bytes),
                small.settled_share().unwrap_or(1.0),
                mib(end),
                mib(most),
                r.engine.max_us / 1e3,
            );
            let _ = writeln!(out, "{}", wrap(&text, 4));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::ost::bench::rows::ROWS;

    /// The result of this many operations of the row's block in two seconds.
    fn figure(row: &Row, ops: u64, p50_us: f64) -> Figure {
        let bytes = ops * row.block as u64;
        let device_bytes = Some(bytes * 3);
        Figure {
            ops,
            bytes,
            seconds: 2.0,
            cpu_seconds: 1.0,
            p50_us,
            p999_us: 9.0,
            max_us: 10.0,
            device_bytes,
            ..Figure::default()
        }
    }

    fn line(name: &str, state: State, engine: &[u64], fio: &[u64]) -> Line {
        let row = ROWS.iter().find(|r| r.name == name).unwrap();
        let figures = |ops: &[u64]| ops.iter().map(|n| figure(row, *n, *n as f64)).collect();
        Line { row, state, engine: figures(engine), fio: figures(fio) }
    }

    #[test]
    fn a_ratio_is_the_median_of_pairs_and_not_of_sides() {
        let all = results(&[line("read-4k", State::Fresh, &[100, 400, 900], &[100, 200, 300])]);
        assert_eq!(all[0].ratio.unwrap(), Estimate { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(all[0].engine.value.median, 200.0);
        let (side, fio) = (&all[0].engine, all[0].fio.as_ref().unwrap());
        assert_eq!((side.cpu_us_per_op, fio.cpu_us_per_op), (1e6 / 400.0, 1e6 / 200.0));
        assert_eq!(side.cpu_seconds_per_gib, (1u64 << 30) as f64 / (400.0 * 4096.0));
        assert_eq!(side.write_amplification, None);
    }

    #[test]
    fn units_are_what_they_say() {
        let all = results(&[
            line("seq-write", State::Fresh, &[3000], &[]),
            line("latency-4k", State::Fresh, &[70], &[50]),
        ]);
        assert_eq!((all[0].engine.value.median, all[0].unit), (1500.0, "MiB/s"));
        assert_eq!(all[0].engine.write_amplification, Some(3.0));
        assert!(all[0].ratio.is_none() && all[0].fio.is_none());
        assert_eq!((all[1].engine.value.median, all[1].lower_is_better), (70.0, true));
        assert_eq!(all[1].ratio.unwrap().median, 1.4);
    }

    #[test]
    fn full_and_aged_are_held_against_fresh() {
        let all = results(&[
            line("read-4k", State::Fresh, &[200, 200], &[100, 100]),
            line("read-4k", State::Full, &[180, 180], &[]),
            line("read-64k", State::Full, &[180], &[]),
            line("seq-read", State::Aged, &[], &[]),
        ]);
        assert_eq!(all.iter().map(|r| r.state).collect::<Vec<_>>(), [State::Fresh, State::Full]);
        assert!((all[1].ratio.unwrap().median - 0.9).abs() < 1e-9);
        let shown = table(&all);
        assert!(
            shown.contains("2.00 (2.00–2.00)") && shown.contains("80 % full, ratio to fresh:"),
            "{shown}"
        );
    }
}
