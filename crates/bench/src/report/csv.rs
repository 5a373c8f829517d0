//! `summary.csv`: a row per record, with every number of it.

use std::collections::BTreeSet;

use super::group::{program_of, word};
use super::number::{csv_field, significant};
use super::series::{rate, stonewall, workers_of};
use crate::record::{Record, Results, Unit};

const QUANTILES: [(&str, f64); 6] =
    [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

/// A column's name, and a record's value in it.
type Column<'a> = (String, Box<dyn Fn(&Record) -> String + 'a>);

pub fn csv(results: &Results) -> String {
    let columns = columns(results);
    let line = |cells: Vec<String>| cells.iter().map(|c| csv_field(c)).collect::<Vec<_>>().join(",") + "\r\n";
    let mut out = line(columns.iter().map(|(name, _)| name.clone()).collect());
    for record in &results.records {
        out.push_str(&line(columns.iter().map(|(_, of)| of(record)).collect()));
    }
    out
}

fn columns(results: &Results) -> Vec<Column<'_>> {
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |name: &str, of: Box<dyn Fn(&Record) -> String>| columns.push((name.to_owned(), of));
    // 1. identity of the record
    add("step", Box::new(|r| r.step.clone()));
    for name in names(results, |r| r.point.keys()) {
        let title = format!("point.{name}");
        add(&title, Box::new(move |r| r.point.get(&name).map(word).unwrap_or_default()));
    }
    add("phase", Box::new(|r| r.phase.clone()));
    add("repeat", Box::new(|r| r.repeat.to_string()));
    add("program", Box::new(|r| program_of(&r.engine).to_owned()));
    add("engine", Box::new(|r| r.engine.clone()));
    add("workers", Box::new(|r| r.workers.to_string()));
    add("processes", Box::new(|r| r.processes.to_string()));
    add("cache", Box::new(|r| r.cache.title().replace('-', "fresh")));
    // 2. amounts and rates
    add("seconds", Box::new(|r| real(Some(r.outcome.seconds))));
    add("first_done_seconds", Box::new(|r| real(Some(r.outcome.first_done))));
    add("last_done_seconds", Box::new(|r| real(Some(r.outcome.last_done))));
    add("ops", Box::new(|r| r.outcome.ops.to_string()));
    add("bytes", Box::new(|r| r.outcome.bytes.to_string()));
    add("read_bytes", Box::new(|r| r.outcome.read_bytes.to_string()));
    add("ops_per_second", Box::new(|r| real(r.outcome.value(Unit::Ops))));
    add("mb_per_second", Box::new(|r| real(r.outcome.value(Unit::MBps))));
    add("mib_per_second", Box::new(|r| real(r.outcome.value(Unit::MiBps))));
    // 3. together with the others
    add("stonewall_seconds", Box::new(|r| real(r.outcome.stonewall.map(|s| s.seconds))));
    add("stonewall_ops_per_second", Box::new(|r| real(stonewall(&r.outcome, Unit::Ops))));
    add("stonewall_mb_per_second", Box::new(|r| real(stonewall(&r.outcome, Unit::MBps))));
    for (what, unit) in [("ops", Unit::Ops), ("mb", Unit::MBps)] {
        for (at, word) in ["min", "median", "max"].into_iter().enumerate() {
            let title = format!("worker_{word}_{what}_per_second");
            add(&title, Box::new(move |r| real(workers_of(&r.outcome, unit).map(|w| w[at]))));
        }
    }
    for target in targets(results) {
        let title = format!("target.{target}.mb_per_second");
        add(&title, Box::new(move |r| real(target_of(r, &target))));
    }
    for host in names(results, |r| r.outcome.per_host.iter().map(|h| &h.host)) {
        let title = format!("host.{host}.mb_per_second");
        add(&title, Box::new(move |r| real(host_of(r, &host))));
    }
    // 4. latencies
    for kind in names(results, |r| r.outcome.latency.keys()) {
        for (word, q) in QUANTILES {
            let (kind, title) = (kind.clone(), format!("{kind}_{word}_us"));
            add(&title, Box::new(move |r| real(r.outcome.latency.get(&kind).and_then(|l| l.quantile_us(q)))));
        }
    }
    // 5. the rest
    add("cpu_seconds", Box::new(|r| real(Some(r.outcome.cpu_seconds))));
    add("checked_pages", Box::new(|r| r.outcome.checked.pages.to_string()));
    add("checked_whole_pages", Box::new(|r| r.outcome.checked.whole_pages.to_string()));
    add("checked_sizes", Box::new(|r| r.outcome.checked.sizes.to_string()));
    for name in names(results, |r| r.outcome.extra.keys()) {
        let title = name.clone();
        add(&title, Box::new(move |r| real(r.outcome.extra.get(&name).copied())));
    }
    columns
}

/// All targets that any record has.
fn targets(results: &Results) -> Vec<String> {
    names(results, |r| r.outcome.per_target.iter().map(|t| &t.target))
}

fn target_of(record: &Record, name: &str) -> Option<f64> {
    let target = record.outcome.per_target.iter().find(|t| t.target == name)?;
    rate(Unit::MBps, target.bytes as f64, target.ops as f64, target.seconds)
}

fn host_of(record: &Record, name: &str) -> Option<f64> {
    let host = record.outcome.per_host.iter().find(|h| h.host == name)?;
    rate(Unit::MBps, host.bytes as f64, host.ops as f64, host.seconds)
}

/// All names that any record has, in order.
fn names<'a, I: Iterator<Item = &'a String>>(
    results: &'a Results,
    of: impl Fn(&'a Record) -> I,
) -> Vec<String> {
    let all: BTreeSet<&String> = results.records.iter().flat_map(of).collect();
    all.into_iter().cloned().collect()
}

/// Nine digits: more than any clock has. Empty where there is none.
fn real(value: Option<f64>) -> String {
    value.map(|v| significant(v, 9)).unwrap_or_default()
}
