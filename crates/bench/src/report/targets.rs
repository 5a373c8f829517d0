//! A row for each phase over its targets: slowest, median and fastest file or device, and all together.

use std::collections::BTreeMap;

use super::group::{Group, select};
use super::number::{number, percent};
use super::series::rate;
use super::tables::{NONE, name_of, published, share, stated_or_none, strings};
use crate::plan::schema::Table;
use crate::record::{Record, Unit};
use crate::stats::median;
use crate::uneven::{self, Uneven};

/// Below this share of the median a drive is named: one that is slower than its twins is looked for first.
const SLOW: f64 = 0.9;

/// The rate of each target, the median over the repeats; by name.
pub fn rates_of(group: &Group, unit: Unit) -> BTreeMap<String, f64> {
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for target in group.records.iter().flat_map(|r| &r.outcome.per_target) {
        if let Some(rate) = rate(unit, target.bytes as f64, target.ops as f64, target.seconds) {
            samples.entry(target.target.clone()).or_default().push(rate);
        }
    }
    samples.into_iter().map(|(name, rates)| (name, middle_of(rates))).collect()
}

/// The slowest, by name, and the slowest, middle and fastest rate.
pub fn ends(rates: &BTreeMap<String, f64>) -> Option<(&str, [f64; 3])> {
    let slowest = rates.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
    let fastest = rates.values().copied().max_by(f64::total_cmp)?;
    Some((slowest.0, [*slowest.1, middle_of(rates.values().copied().collect()), fastest]))
}

fn middle_of(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    median(&rates)
}

/// The rate of each host, the median over the repeats; by name.
pub fn rates_of_hosts(group: &Group, unit: Unit) -> BTreeMap<String, f64> {
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for host in group.records.iter().flat_map(|r| &r.outcome.per_host) {
        if let Some(rate) = rate(unit, host.bytes as f64, host.ops as f64, host.seconds) {
            samples.entry(host.host.clone()).or_default().push(rate);
        }
    }
    samples.into_iter().map(|(name, rates)| (name, middle_of(rates))).collect()
}

/// Hosts, file systems or devices that are slower than their twins, by the medians over the repeats: one slow repeat is none.
pub fn uneven_of(group: &Group) -> Vec<Uneven> {
    let kind = |of: &dyn Fn(&Record) -> Vec<(String, f64)>| {
        let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (name, rate) in group.records.iter().flat_map(|record| of(record)) {
            samples.entry(name).or_default().push(rate);
        }
        let rates: Vec<_> = samples.into_iter().map(|(name, rates)| (name, middle_of(rates))).collect();
        uneven::uneven(&rates, uneven::UNEVEN)
    };
    let hosts = kind(&|record| uneven::of_hosts(&record.outcome));
    let targets = kind(&|record| uneven::of_targets(&record.outcome));
    [hosts, targets].concat()
}

/// `few · write · fs 2: host h2 at 41 % of its twins`.
pub fn uneven_lines(groups: &[Group]) -> Vec<String> {
    let lines = |group: &Group| {
        uneven_of(group).into_iter().map(|one| format!("{}: {one}", group.title())).collect::<Vec<_>>()
    };
    groups.iter().flat_map(lines).collect()
}

/// A row for each phase and point: the file systems, their sum, and the whole.
pub fn file_systems(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut picked = Vec::new();
    for row in &table.rows {
        let of_row = select(groups, &row.step, &row.phase, &row.at);
        let many = of_row.len() > 1;
        picked.extend(of_row.into_iter().map(|group| (row, group, many, rates_of(group, row.unit))));
    }
    let all: std::collections::BTreeSet<String> =
        picked.iter().flat_map(|(_, _, _, rates)| rates.keys().cloned()).collect();
    let mut rows = Vec::new();
    for (row, group, many, rates) in picked.iter().filter(|(_, _, _, rates)| !rates.is_empty()) {
        let mut cells = vec![name_of(row, group, *many), row.unit.words().to_owned()];
        cells.extend(all.iter().map(|name| rates.get(name).map_or(NONE.into(), |rate| number(*rate))));
        let mut sums = group.samples_of(row.unit, true);
        sums.sort_by(f64::total_cmp);
        let known = published(row, "total");
        cells.extend([number(median(&sums)), number(group.estimate(row.unit).median)]);
        let slow: Vec<String> = uneven_of(group).iter().map(Uneven::to_string).collect();
        cells.push(if slow.is_empty() { NONE.into() } else { slow.join(", ") });
        cells.extend([stated_or_none(known), share(median(&sums), known, group.compares)]);
        rows.push(cells);
    }
    let mut names = strings(["", "~unit"]);
    names.extend(all);
    names.extend(strings(["sum", "all over the slowest's time", "~uneven", "published sum", "of published"]));
    if table.rows.iter().all(|row| row.published.is_empty()) {
        names.truncate(names.len() - 2);
        rows.iter_mut().for_each(|row| row.truncate(names.len()));
    }
    (names, rows)
}

pub fn table(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    let has_known = table.rows.iter().any(|r| !r.published.is_empty());
    for row in &table.rows {
        let picked = select(groups, &row.step, &row.phase, &row.at);
        for group in &picked {
            let rates = rates_of(group, row.unit);
            let Some((name, [slowest, middle, fastest])) = ends(&rates) else { continue };
            let is_slow = rates.len() > 1 && slowest < SLOW * middle;
            let mut cells = vec![
                name_of(row, group, picked.len() > 1),
                row.unit.words().to_owned(),
                rates.len().to_string(),
                number(slowest),
                number(middle),
                number(fastest),
                percent(slowest / middle),
                if is_slow { name.to_owned() } else { NONE.to_owned() },
                number(group.estimate(row.unit).median),
            ];
            if has_known {
                let each = published(row, "value");
                cells.extend([
                    stated_or_none(each),
                    share(middle, each, group.compares),
                    stated_or_none(published(row, "total")),
                ]);
            }
            rows.push(cells);
        }
    }
    let mut names = strings([
        "",
        "~unit",
        "targets",
        "slowest",
        "median",
        "fastest",
        "slowest of median",
        "~slow one",
        "total",
    ]);
    if has_known {
        names.extend(strings(["published each", "of published", "published total"]));
    }
    (names, rows)
}
