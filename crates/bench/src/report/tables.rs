//! The tables that a plan asks for, with the published values beside the measured ones.

use std::collections::BTreeMap;

use super::grid::{Grid, columns};
use super::group::{Group, quantity, select, word};
use super::number::{grouped, number, percent, stated};
use crate::job::{Job, Work};
use crate::plan::schema::{Table, TableKind, TableRow};
use crate::record::{Results, Unit};
use crate::stats::{Estimate, estimate};

/// Cell text where nothing was measured or published.
pub const NONE: &str = "–";

/// The plan's tables in its order; of outputs and where nothing was measured, none.
pub fn of_plan(results: &Results, groups: &[Group]) -> Vec<Grid> {
    let tables = results.header.plan.tables.iter();
    tables.filter_map(|t| grid(results, t, groups)).filter(|g| !g.rows.is_empty()).collect()
}

fn grid(results: &Results, table: &Table, groups: &[Group]) -> Option<Grid> {
    let (names, rows): (Vec<String>, Vec<Vec<String>>) = match table.kind {
        TableKind::Rates => rates(results, table, groups),
        TableKind::Peak => peaks(table, groups),
        TableKind::Spread => spreads(table, groups),
        TableKind::Operations => operations(table, groups),
        TableKind::FileSystems => super::targets::file_systems(table, groups),
        TableKind::Requirements => requirements(table, groups),
        TableKind::Directories => directories(table, groups),
        TableKind::Targets => super::targets::table(table, groups),
        TableKind::Outputs => return None,
    };
    let (names, rows) = without_shares(names, rows);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Some(Grid {
        id: format!("table-{}", table.id),
        title: table.title.clone(),
        about: table.about.clone(),
        columns: columns(&names),
        rows,
    })
}

/// Without the column of shares of published values where it has none.
fn without_shares(mut names: Vec<String>, mut rows: Vec<Vec<String>>) -> (Vec<String>, Vec<Vec<String>>) {
    let found = names.iter().position(|name| name.starts_with("of published"));
    let is_empty = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(|cell| cell == NONE));
    if let Some(at) = found.filter(|at| is_empty(*at)) {
        names.remove(at);
        rows.iter_mut().filter(|row| row.len() > at).for_each(|row| drop(row.remove(at)));
    }
    (names, rows)
}

pub fn strings<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

pub fn published(row: &TableRow, column: &str) -> Option<f64> {
    row.published.get(column).copied()
}

pub fn stated_or_none(value: Option<f64>) -> String {
    value.map_or(NONE.into(), stated)
}

/// Percentage of the published value; `NONE` if there is none, or if it is of something else.
pub fn share(measured: f64, published: Option<f64>, compares: bool) -> String {
    published.filter(|p| compares && *p > 0.0).map_or(NONE.into(), |p| percent(measured / p))
}

/// Nothing where there is one sample, or all are the same.
pub fn interval(e: &Estimate) -> String {
    if e.low == e.high || !e.low.is_finite() {
        NONE.into()
    } else {
        format!("{} – {}", number(e.low), number(e.high))
    }
}

/// A row's name; with the point behind it if there are several.
pub fn name_of(row: &TableRow, group: &Group, many: bool) -> String {
    let rest: Vec<String> = group
        .point
        .iter()
        .filter(|(name, _)| !row.at.contains_key(*name))
        .map(|(n, v)| format!("{n} {}", word(v)))
        .collect();
    if many && !rest.is_empty() { format!("{} · {}", row.name, rest.join(", ")) } else { row.name.clone() }
}

fn rates(results: &Results, table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    for row in &table.rows {
        let picked = select(groups, &row.step, &row.phase, &row.at);
        for group in &picked {
            let (divisor, unit) = per(results, group, row);
            let samples: Vec<f64> =
                group.samples_of(row.unit, row.summed).iter().map(|v| v / divisor).collect();
            let (e, known) = (estimate(&samples), published(row, "value"));
            rows.push(vec![
                name_of(row, group, picked.len() > 1),
                unit,
                number(e.median),
                interval(&e),
                samples.len().to_string(),
                stated_or_none(known),
                share(e.median, known, group.compares),
            ]);
        }
    }
    let mut names = strings(["", "~unit", "median", "95 % interval", "repeats", "published", "of published"]);
    if table.rows.iter().all(|r| r.published.is_empty()) {
        names.truncate(5);
        rows.iter_mut().for_each(|row| row.truncate(5));
    }
    (names, rows)
}

/// The divisor of a row's values, and the resulting unit. NaN if no value has that name: an empty cell is better than a total
/// under the name of a rate per unit.
fn per(results: &Results, group: &Group, row: &TableRow) -> (f64, String) {
    let unit = row.unit.words();
    let Some(name) = &row.per else { return (1.0, unit.to_owned()) };
    let said = group.point.get(name).or_else(|| results.header.values.get(name)).and_then(quantity);
    let one = name.strip_suffix('s').unwrap_or(name);
    (said.filter(|v| *v > 0.0).unwrap_or(f64::NAN), format!("{unit} per {}", one.replace('_', " ")))
}

/// The best median of a sweep, its place, and the worst from there on: the rate that is sustained under more load.
pub struct Peak {
    pub best: Estimate,
    pub at: String,
    pub sustained: f64,
}

pub fn peak(picked: &[&Group], unit: Unit) -> Option<Peak> {
    let mut points: Vec<(&&Group, Estimate)> =
        picked.iter().map(|g| (g, g.estimate(unit))).filter(|(_, e)| e.median.is_finite()).collect();
    if let Some(name) = swept(picked) {
        let place = |g: &Group| g.point.get(name).and_then(quantity).unwrap_or(f64::NAN);
        points.sort_by(|a, b| place(a.0).total_cmp(&place(b.0)));
    }
    let sign = if unit.is_lower_better() { -1.0 } else { 1.0 };
    let order = |a: &f64, b: &f64| (a * sign).total_cmp(&(b * sign));
    // The first of equals: the one with the least load.
    let (first, best) = points.iter().enumerate().rev().max_by(|a, b| order(&a.1.1.median, &b.1.1.median))?;
    let sustained = points[first..].iter().map(|(_, e)| e.median).min_by(|a, b| order(a, b))?;
    let at = swept(picked).and_then(|name| Some(format!("{name} {}", word(best.0.point.get(name)?))));
    Some(Peak { best: best.1, at: at.unwrap_or_else(|| best.0.point_text()), sustained })
}

/// The one parameter in which points differ.
fn swept<'g>(picked: &[&'g Group]) -> Option<&'g str> {
    let first = picked.first()?;
    let differs = |name: &&String| picked.iter().any(|g| g.point.get(*name) != first.point.get(*name));
    let mut names = first.point.keys().filter(differs);
    let name = names.next()?;
    names.next().is_none().then_some(name)
}

fn peaks(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    for row in &table.rows {
        let picked = select(groups, &row.step, &row.phase, &row.at);
        let Some(peak) = peak(&picked, row.unit) else { continue };
        let known = [published(row, "peak"), published(row, "sustained")];
        rows.push(vec![
            row.name.clone(),
            row.unit.words().to_owned(),
            number(peak.best.median),
            interval(&peak.best),
            if peak.at.is_empty() { NONE.into() } else { peak.at },
            number(peak.sustained),
            stated_or_none(known[0]),
            stated_or_none(known[1]),
            share(peak.best.median, known[0], picked.iter().all(|group| group.compares)),
        ]);
    }
    let names = [
        "",
        "~unit",
        "peak",
        "95 % interval",
        "~at",
        "sustained",
        "published peak",
        "published sustained",
        "of published peak",
    ];
    (strings(names), rows)
}

fn spreads(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    let has_known = table.rows.iter().any(|r| !r.published.is_empty());
    for row in &table.rows {
        let picked = select(groups, &row.step, &row.phase, &row.at);
        for group in &picked {
            let samples = group.samples_of(row.unit, row.summed);
            let Some([max, min, mean, deviation]) = spread(&samples) else { continue };
            let mut cells = vec![name_of(row, group, picked.len() > 1), row.unit.words().to_owned()];
            cells.extend([max, min, mean, deviation].map(number));
            cells.push(samples.len().to_string());
            if has_known {
                let known = ["max", "min", "mean", "stddev"].map(|c| published(row, c));
                cells.extend(known.map(stated_or_none));
                cells.push(share(mean, known[2], group.compares));
            }
            rows.push(cells);
        }
    }
    let mut names = strings(["", "~unit", "Max", "Min", "Mean", "Std Dev", "repeats"]);
    if has_known {
        names.extend(strings([
            "published Max",
            "published Min",
            "published Mean",
            "published Std Dev",
            "of published Mean",
        ]));
    }
    (names, rows)
}

/// Columns of a spread in eeyore's order: mean, max, min, deviation.
const EEYORE: [usize; 4] = [2, 0, 1, 3];

fn operations(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let (mut names, mut rows) = spreads(table, groups);
    // Columns of the measured ones begin behind name and unit, of the published ones behind those and the repeats.
    let reorder = |cells: &mut Vec<String>| {
        for first in [2, 7] {
            let Some(old) = cells.get(first..first + EEYORE.len()).map(<[String]>::to_vec) else { continue };
            EEYORE.iter().enumerate().for_each(|(to, from)| cells[first + to].clone_from(&old[*from]));
        }
    };
    reorder(&mut names);
    rows.iter_mut().for_each(reorder);
    let words = names.iter_mut().skip(1);
    words.for_each(|name| *name = name.replace("Std Dev", "Stdev"));
    names[0] = "Op".into();
    (names, rows)
}

/// Max, min, mean and the deviation of these samples themselves (divided by n), as mdtest has it.
pub fn spread(samples: &[f64]) -> Option<[f64; 4]> {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let variance = samples.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let max = samples.iter().copied().max_by(f64::total_cmp)?;
    let min = samples.iter().copied().min_by(f64::total_cmp)?;
    Some([max, min, mean, variance.sqrt()])
}

fn requirements(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    let blocks = table.rows.iter().filter_map(|r| r.blocks).max();
    for row in &table.rows {
        let picked = select(groups, &row.step, &row.phase, &row.at);
        let Some(peak) = peak(&picked, row.unit) else { continue };
        let measured = peak.best.median;
        let (needed, block, whole) =
            (published(row, "needed"), published(row, "block"), published(row, "value"));
        let count = row.blocks.filter(|_| !row.does_not_scale).map(f64::from);
        // Efficiency by the study itself: its value for all blocks, against one block's value times their number.
        let efficiency = block.zip(whole).zip(count).map(|((block, whole), n)| whole / (block * n));
        let units = needed.filter(|_| measured > 0.0 && !row.does_not_scale).map(|n| (n / measured).ceil());
        let meets = needed.map(|n| if measured >= n { "yes" } else { "no" });
        rows.push(vec![
            row.name.clone(),
            row.unit.words().to_owned(),
            stated_or_none(needed),
            stated_or_none(block),
            stated_or_none(whole),
            efficiency.map_or(NONE.into(), percent),
            number(measured),
            count.map_or("does not scale".into(), |n| number(measured * n)),
            units.map_or(meets.unwrap_or(NONE).to_owned(), grouped),
        ]);
    }
    let times = blocks.map_or("× blocks".to_owned(), |n| format!("× {n}"));
    let names = [
        "",
        "~unit",
        "needed",
        "published, one block",
        &format!("published, {times}"),
        "published efficiency",
        "measured here",
        &format!("measured {times}"),
        "of these to meet it",
    ];
    (strings(names), rows)
}

/// How names were spread, from the jobs themselves.
fn directories(table: &Table, groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut rows = Vec::new();
    for row in &table.rows {
        let picked = select(groups, &row.step, &row.phase, &row.at);
        for group in &picked {
            let job = group.records.first().and_then(|r| serde_json::from_str::<Job>(&r.command).ok());
            let Some((workers, Work::Names(names))) = job.map(|j| (u64::from(j.workers), j.work)) else {
                continue;
            };
            let dirs = if names.shared { NONE.to_owned() } else { grouped(names.item_dirs() as f64) };
            let all = names.items_per_worker().saturating_mul(workers);
            rows.push(vec![
                name_of(row, group, picked.len() > 1),
                grouped(workers as f64),
                dirs,
                grouped(names.items_per_dir as f64),
                grouped(all as f64),
                stated_or_none(published(row, "value")),
            ]);
        }
    }
    let has_known = table.rows.iter().any(|r| r.published.contains_key("value"));
    let mut names = strings(["", "workers", "directories per worker", "files per directory", "files in all"]);
    match has_known {
        true => names.push("published directories per worker".into()),
        false => rows.iter_mut().for_each(|row| row.truncate(5)),
    }
    (names, rows)
}

/// Two programs in turn: their ratio by pairs of repeats, and whether it is within a tenth of 1.
pub fn ratios(groups: &[Group]) -> Option<Grid> {
    let mut rows = Vec::new();
    for main in groups.iter().filter(|g| g.is_main) {
        let is_other =
            |g: &&Group| !g.is_main && (g.step, g.phase, g.point) == (main.step, main.phase, main.point);
        for other in groups.iter().filter(is_other) {
            let unit = main.unit;
            let pairs = pairs(main, other, unit);
            let e = estimate(&pairs);
            let within = match pairs.len() {
                0 => NONE,
                _ if e.low >= 0.9 && e.high <= 1.1 => "yes",
                _ => "no",
            };
            rows.push(vec![
                [main.step, main.phase, &main.point_text()]
                    .into_iter()
                    .filter(|t| !t.is_empty())
                    .collect::<Vec<_>>()
                    .join(" · "),
                unit.words().to_owned(),
                format!("{} / {}", main.program, other.program),
                number(main.estimate(unit).median),
                number(other.estimate(unit).median),
                number(e.median),
                interval(&e),
                pairs.len().to_string(),
                within.to_owned(),
            ]);
        }
    }
    let names =
        ["", "~unit", "~programs", "first", "second", "ratio", "95 % interval", "pairs", "~within 0.9–1.1"];
    (!rows.is_empty()).then(|| Grid {
        id: "ratios".into(),
        title: "Two programs, the same work in turn".into(),
        about: "Each repeat of one is paired with that of the other, measured right before or after it; the ratio is the median \
                over the pairs. With fewer than six pairs the interval is their range."
            .into(),
        columns: columns(&names),
        rows,
    })
}

fn pairs(main: &Group, other: &Group, unit: Unit) -> Vec<f64> {
    let by_repeat = |g: &Group| -> BTreeMap<u32, f64> {
        g.records.iter().filter_map(|r| Some((r.repeat, r.outcome.value(unit)?))).collect()
    };
    let others = by_repeat(other);
    let pair = |(repeat, value): (u32, f64)| others.get(&repeat).map(|o| value / o);
    by_repeat(main).into_iter().filter_map(pair).filter(|r| r.is_finite()).collect()
}
