//! Every series of a result, whatever the plan shows of it: a row of the page's last table and of `summary.json`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::first::Judged;
use super::grid::{Grid, columns};
use super::group::Group;
use super::number::{grouped, number, percent};
use super::tables::interval;
use super::verdict::{Limiter, Verdict};
use crate::cache::CacheState;
use crate::limits::Resource;
use crate::record::{Outcome, Record, Results, Unit};
use crate::stats::{Estimate, median};
use crate::uneven::Uneven;

/// Rows of the page's table; the CSV has all.
const ROWS_MAX: usize = 800;

/// A series of `summary.json`. Unknown values are null.
#[derive(Clone, Debug, Serialize)]
pub struct Series<'a> {
    pub step: &'a str,
    pub phase: &'a str,
    pub point: &'a BTreeMap<String, Value>,
    pub program: &'a str,
    pub engine: &'a str,
    pub unit: &'static str,
    pub lower_is_better: bool,
    pub median: Option<f64>,
    /// Of 95 %; the range with fewer than six repeats.
    pub interval: Option<[f64; 2]>,
    /// In the order of the repeats.
    pub samples: Vec<f64>,
    /// Medians over the repeats of each kind's quantiles.
    pub latency_us: BTreeMap<String, Quantiles>,
    /// Rates of single workers, medians over the repeats: slowest, middle, fastest.
    pub per_worker: Option<[f64; 3]>,
    /// Rates of each file or device that was given, medians over the repeats.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub per_target: BTreeMap<String, f64>,
    /// Rates of each host's workers, medians over the repeats.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub per_host: BTreeMap<String, f64>,
    /// Hosts and targets that are slower than their twins, with their share of the twins' rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uneven: Vec<Uneven>,
    pub first_done_seconds: Option<f64>,
    pub last_done_seconds: Option<f64>,
    /// The rate up to the moment when the first worker was done.
    pub stonewall: Option<f64>,
    pub workers: u32,
    pub processes: u32,
    pub cache: CacheState,
    pub checked_pages: u64,
    pub checked_sizes: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
}

impl<'a> Series<'a> {
    pub fn new(group: &Group<'a>) -> Series<'a> {
        let unit = group.unit;
        let samples = group.samples(unit);
        let e = crate::stats::estimate(&samples);
        let first = group.records[0];
        let finite = |v: f64| v.is_finite().then_some(v);
        let pages = |of: fn(&Record) -> u64| group.records.iter().map(|r| of(r)).sum();
        Series {
            step: group.step,
            phase: group.phase,
            point: group.point,
            program: group.program,
            engine: &first.engine,
            unit: unit.title(),
            lower_is_better: unit.is_lower_better(),
            median: finite(e.median),
            interval: finite(e.low).zip(finite(e.high)).map(|(low, high)| [low, high]),
            samples,
            latency_us: latencies(group),
            per_worker: per_worker(group),
            per_target: super::targets::rates_of(group, unit),
            per_host: super::targets::rates_of_hosts(group, unit),
            uneven: super::targets::uneven_of(group),
            first_done_seconds: finite(group.median_of(|r| Some(r.outcome.first_done))),
            last_done_seconds: finite(group.median_of(|r| Some(r.outcome.last_done))),
            stonewall: finite(group.median_of(|r| stonewall(&r.outcome, unit))),
            workers: first.workers,
            processes: first.processes,
            // The weakest measure that was taken is the one to be named.
            cache: group
                .records
                .iter()
                .map(|r| r.cache)
                .max_by_key(|c| weakness(*c))
                .unwrap_or(CacheState::Fresh),
            checked_pages: pages(|r| r.outcome.checked.pages),
            checked_sizes: pages(|r| r.outcome.checked.sizes),
        }
    }
}

fn weakness(cache: CacheState) -> u8 {
    match cache {
        CacheState::Fresh => 0,
        CacheState::Dropped => 1,
        CacheState::Direct => 2,
        CacheState::Advised => 3,
        CacheState::Warm => 4,
    }
}

/// The state of caches, in words.
pub fn cache_words(cache: CacheState) -> &'static str {
    match cache {
        CacheState::Fresh => "nothing to drop",
        CacheState::Dropped => "dropped",
        CacheState::Direct => "by-passed (O_DIRECT)",
        CacheState::Warm => "left warm",
        CacheState::Advised => "asked to go",
    }
}

fn latencies(group: &Group) -> BTreeMap<String, Quantiles> {
    let kinds: std::collections::BTreeSet<&String> =
        group.records.iter().flat_map(|r| r.outcome.latency.keys()).collect();
    let quantiles = |kind: &String| {
        let quantile = |q| group.median_of(|r| r.outcome.latency.get(kind)?.quantile_us(q));
        let both = Quantiles { p50: quantile(0.5), p99: quantile(0.99) };
        (both.p50.is_finite() && both.p99.is_finite()).then(|| (kind.clone(), both))
    };
    kinds.into_iter().filter_map(quantiles).collect()
}

/// A rate of bytes or operations in the series' unit; of latencies operations per second.
pub fn rate(unit: Unit, bytes: f64, ops: f64, seconds: f64) -> Option<f64> {
    let amount = match unit {
        Unit::GBps => bytes / 1e9,
        Unit::MBps => bytes / 1e6,
        Unit::MiBps => bytes / f64::from(1 << 20),
        Unit::Ops | Unit::Iops | Unit::P50 | Unit::P99 | Unit::Late | Unit::Seconds => ops,
    };
    (seconds > 0.0).then(|| amount / seconds).filter(|r| r.is_finite())
}

pub fn stonewall(outcome: &Outcome, unit: Unit) -> Option<f64> {
    let s = outcome.stonewall?;
    rate(unit, s.bytes, s.ops, s.seconds)
}

/// Slowest, middle and fastest worker of one record.
pub fn workers_of(outcome: &Outcome, unit: Unit) -> Option<[f64; 3]> {
    let rates = outcome.per_worker.iter().filter_map(|w| rate(unit, w.bytes as f64, w.ops as f64, w.seconds));
    let mut rates: Vec<f64> = rates.collect();
    rates.sort_by(f64::total_cmp);
    Some([*rates.first()?, median(&rates), *rates.last()?])
}

fn per_worker(group: &Group) -> Option<[f64; 3]> {
    let of = |at: usize| group.median_of(|r| workers_of(&r.outcome, group.unit).map(|w| w[at]));
    let all = [of(0), of(1), of(2)];
    all.iter().all(|v| v.is_finite()).then_some(all)
}

/// The table of all series.
pub fn grid(groups: &[Group]) -> Grid {
    let shown = groups.len().min(ROWS_MAX);
    let rest = match groups.len() - shown {
        0 => String::new(),
        n => format!(" {n} more are in the CSV."),
    };
    let names = [
        "",
        "~unit",
        "median",
        "95 % interval",
        "repeats",
        "p50 µs",
        "p99 µs",
        "workers",
        "slowest worker",
        "slowest of middle",
        "fastest worker",
        "first, last done s",
        "to first done",
        "~caches",
        "pages verified",
    ];
    Grid {
        id: "all-series".into(),
        title: "All series".into(),
        about: format!(
            "Medians over the repeats. The interval is distribution-free; with fewer than six repeats it is their range. Latencies \
             of mixes are read / write. Rates of single workers are in the row's unit (operations per second for latencies), as is \
             the rate until the first worker was done.{rest}"
        ),
        columns: columns(&names),
        rows: groups[..shown].iter().map(row).collect(),
    }
}

fn row(group: &Group) -> Vec<String> {
    let s = Series::new(group);
    let e = s.interval.zip(s.median).map(|([low, high], median)| Estimate { median, low, high });
    let or_dash = |value: Option<f64>| number(value.unwrap_or(f64::NAN));
    let latency = |of: fn(&Quantiles) -> f64| match s.latency_us.is_empty() {
        true => "–".to_owned(),
        false => s.latency_us.values().map(|q| number(of(q))).collect::<Vec<_>>().join(" / "),
    };
    let worker = |at: usize| or_dash(s.per_worker.map(|w| w[at]));
    vec![
        group.title(),
        group.unit.words().to_owned(),
        or_dash(s.median),
        e.map_or("–".into(), |e| interval(&e)),
        s.samples.len().to_string(),
        latency(|q| q.p50),
        latency(|q| q.p99),
        s.workers.to_string(),
        worker(0),
        percent(s.per_worker.map_or(f64::NAN, |w| w[0] / w[1])),
        worker(2),
        format!("{}, {}", or_dash(s.first_done_seconds), or_dash(s.last_done_seconds)),
        or_dash(s.stonewall),
        cache_words(s.cache).to_owned(),
        grouped(s.checked_pages as f64),
    ]
}

/// The verdict on the best point of a step's phase.
#[derive(Serialize)]
struct Judgement<'a> {
    step: &'a str,
    phase: &'a str,
    point: &'a BTreeMap<String, Value>,
    family: &'static str,
    limited_by: Limiter,
    /// 0 to 1, of the limit of `of`.
    share: Option<f64>,
    of: Option<Resource>,
    why: String,
}

impl<'a> Judgement<'a> {
    fn new(row: Judged<'a>) -> Judgement<'a> {
        let Judged { group, load, verdict, .. } = row;
        let Verdict { limiter, share, of, device: _, why } = verdict;
        let (step, phase, point) = (group.step, group.phase, group.point);
        Judgement { step, phase, point, family: load.family.title(), limited_by: limiter, share, of, why }
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    plan: &'a str,
    scale: &'a str,
    values: &'a BTreeMap<String, Value>,
    dir: &'a str,
    file_system: &'a str,
    begun: &'a str,
    version: &'a str,
    /// Name and value: kernel, processors, programs of others and their versions.
    system: &'a [(String, String)],
    complete: bool,
    /// Of this machine, measured in the same run; null if they were not.
    limits: Option<&'a crate::limits::Limits>,
    /// How near each row comes to a limit, and to which.
    verdicts: Vec<Judgement<'a>>,
    /// Dips and disagreements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
    series: Vec<Series<'a>>,
    skipped: &'a [crate::record::Skipped],
    /// A sampler that ended, and the like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a str>,
}

/// `summary.json`.
pub fn json(results: &Results, groups: &[Group]) -> String {
    let header = &results.header;
    let summary = Summary {
        plan: &header.plan.name,
        scale: &header.scale,
        values: &header.values,
        dir: &header.dir,
        file_system: &header.file_system,
        begun: &header.begun,
        version: &header.version,
        system: &header.system,
        complete: results.end.as_ref().is_some_and(|e| e.complete),
        limits: results.limits.as_ref(),
        verdicts: super::first::judged(results, groups).into_iter().map(Judgement::new).collect(),
        remarks: super::remarks::remarks(results, groups),
        series: groups.iter().map(Series::new).collect(),
        skipped: &results.skipped,
        warnings: results.warnings.iter().map(|warning| warning.text.as_str()).collect(),
    };
    serde_json::to_string_pretty(&summary).expect("numbers, strings and lists")
}
