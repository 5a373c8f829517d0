//! A row for each phase over its targets: slowest, median and fastest file or device, and all together.

use std::collections::BTreeMap;

use super::group::{Group, select};
use super::number::{number, percent};
use super::series::rate;
use super::tables::{NONE, name_of, published, share, stated_or_none, strings};
use crate::plan::schema::Table;
use crate::record::Unit;
use crate::stats::median;

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
                    share(middle, each),
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
