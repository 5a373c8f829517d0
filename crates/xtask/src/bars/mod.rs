//! `cargo xtask bars road`: Stria against a pass-through FUSE file system, pair by pair, on one loop device. `bars mds` has rows of its own
//! against the null file system.
//!
//! Sides alternate A B B A; every side runs the same rows of `stria bench quick` (`rows`) on fresh files; the ratio of a pair is one
//! sample. The yardsticks must themselves reach 0.8 of their known ratios to ext4, else the run is void. The results are
//! kept in `records`, a result of `stria bench` per sample.

pub mod mds;
pub mod ost;
pub mod pair;
pub mod rows;
pub mod share;
pub mod stage;
pub mod stats;
pub mod tls;
pub mod verdicts;
pub mod warm;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::crew::{Inside, Root};
use bench::record::Results;
use bench::report::RECORDS;
use bench::run::{self, Settings as RunSettings};
use bench::stats::{Estimate, estimate};

use rows::{Row, Set, YARDSTICKS};
use stage::{Side, Stage};
use stats::{Verdict, verdict};
use verdicts::Bar;
use warm::Warm;

/// A set ends in ten minutes; the pairs get what making the disk and the last checks leave.
const PAIRS_TIME: Duration = Duration::from_secs(460);
const PAIRS_MAX: usize = 15;
const PAIRS_MIN: usize = 6;

const YARDSTICK_SHARE: f64 = 0.8;

pub struct Settings {
    pub bin: PathBuf,
    pub yardsticks: PathBuf,
    pub base: PathBuf,
    pub gib: u64,
    pub pairs_max: usize,
    /// Rows whose title contains one of these, separated by commas, are measured.
    pub rows: String,
}

/// Values per side and row, newest last.
type Values = BTreeMap<(&'static str, usize), Vec<f64>>;

pub fn road(settings: &Settings) -> Result<()> {
    through_fuse(settings, Set::Road, PAIRS_TIME).map(drop)
}

/// The rows of a set on all sides, in pairs of Stria and the set's yardstick; gives the table and a bar per row.
pub fn through_fuse(settings: &Settings, set: Set, pairs_time: Duration) -> Result<(String, Vec<Bar>)> {
    if !rustix::process::geteuid().is_root() {
        bail!("bars need root: loop device, mounts, dropping caches");
    }
    let rows = rows::rows(set, &settings.rows)?;
    let records = settings.base.join("records");
    if records.exists() {
        std::fs::remove_dir_all(&records).with_context(|| format!("removing {}", records.display()))?;
    }
    let mut stage = Stage::set(&settings.base, settings.gib)?;
    let mut sides = stage.sides(&settings.bin, &settings.yardsticks)?;
    // Stria, then the sides that it is compared with.
    if sides[2].name == set.yardstick() {
        sides.swap(1, 2);
    }
    let warm = Warm::start()?;
    let mut values = Values::new();
    let mut ratios: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let began = Instant::now();
    let pairs_max = settings.pairs_max.min(PAIRS_MAX);
    for pair in 0..pairs_max {
        // A B, then B A: drift of the machine hits both sides alike.
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            measure(settings, &rows, &sides[at], pair, &warm, &mut values)?;
        }
        // The yardsticks' own ratios need fewer samples.
        if pair % 4 == 0 {
            measure(settings, &rows, &sides[2], pair, &warm, &mut values)?;
            measure(settings, &rows, &sides[3], pair, &warm, &mut values)?;
        }
        for row in 0..rows.len() {
            if let (Some(a), Some(b)) = (last(&values, &sides[0], row), last(&values, &sides[1], row)) {
                ratios.entry(row).or_default().push(a / b);
            }
        }
        println!("pair {} of at most {pairs_max}, {:.0} s", pair + 1, began.elapsed().as_secs_f64());
        // Part of the rows is work on them: all pairs that were asked for.
        let settled = settings.rows.is_empty() && pair + 1 >= PAIRS_MIN && decided(&rows, &ratios);
        if settled || (pair + 1 >= PAIRS_MIN.min(pairs_max) && began.elapsed() > pairs_time) {
            break;
        }
    }
    drop(warm);
    let (table, sound) = report(&rows, &values, &ratios, &sides);
    println!("\n{table}");
    if settings.rows.is_empty() {
        std::fs::write(settings.base.join(format!("bars-{}.md", set.name())), &table)?;
    }
    if !sound {
        bail!(
            "void: a yardstick is below {YARDSTICK_SHARE} of its known ratio to ext4; the machine is too noisy or the yardstick is not honest"
        );
    }
    Ok((table, bars(set, &rows, &values, &ratios)))
}

/// Each row against the yardstick, and ahead of the best peer where one was measured.
fn bars(set: Set, rows: &[Row], values: &Values, ratios: &BTreeMap<usize, Vec<f64>>) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let ratio = ratios.get(&number).map(|r| estimate(r));
        if let Some(bar) = row.bar.bar {
            let what = format!("{} ÷ {}", row.bar.title, set.yardstick());
            bars.push(Bar::of_ratio(what, ratio, bar));
        }
        if let Some(peer) = row.bar.peer {
            let of_ext4 = median(values, "stria", number) / median(values, "ext4", number);
            let verdict = if of_ext4 > peer { Verdict::Met } else { Verdict::Missed };
            let what = format!("{} ÷ ext4, ahead of the best peer", row.bar.title);
            bars.push(Bar { what, got: format!("{of_ext4:.2}"), bar: format!("> {peer:.2}"), verdict });
        }
    }
    bars
}

fn decided(rows: &[Row], ratios: &BTreeMap<usize, Vec<f64>>) -> bool {
    let is_decided =
        |row: &Row, r: &[f64]| row.bar.bar.is_none_or(|bar| verdict(estimate(r), bar) != Verdict::Unsure);
    ratios.iter().all(|(row, r)| is_decided(&rows[*row], r))
}

fn last(values: &Values, side: &Side, row: usize) -> Option<f64> {
    values.get(&(side.name, row))?.last().copied()
}

/// Rows on one side, once.
fn measure(
    settings: &Settings,
    rows: &[Row],
    side: &Side,
    pair: usize,
    warm: &Warm,
    values: &mut Values,
) -> Result<()> {
    // The null file system keeps no data, so nothing of it can be verified.
    let plan = rows::plan_of(rows, side.name != "null")?;
    let out = settings.base.join("records").join(format!("{}.{}", pair + 1, side.name));
    let how = RunSettings {
        dirs: vec![Root::plain(side.dir.clone())],
        out: out.clone(),
        scale: rows::SCALE.into(),
        environment: rows::environment(),
        program: settings.bin.clone(),
        command: "cargo xtask bars".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        progress: false,
        repeats: Some([1, 1]),
        budget_seconds: None,
        hosts: None,
        launch: String::new(),
        samplers: Vec::new(),
        limits: None,
        stop: Arc::default(),
    };
    run::run_with(&plan, &how, Inside, || warm.settle()).with_context(|| side.name)?;
    let results = Results::read(&out.join(RECORDS))?;
    if let Some(failed) = results.skipped.first() {
        bail!("{} on {}: {}", failed.step, side.name, failed.why);
    }
    for (number, row) in rows.iter().enumerate() {
        let mut records = results.records.iter();
        let record = records.find(|record| record.step == row.step && record.phase == row.phase);
        let value = record.and_then(|record| record.outcome.value(row.unit));
        let value = value.with_context(|| format!("{} on {}: no value", row.bar.title, side.name))?;
        let value = if row.unit.is_lower_better() { 1.0 / value } else { value };
        values.entry((side.name, number)).or_default().push(value);
    }
    Ok(())
}

fn median(values: &Values, side: &str, row: usize) -> f64 {
    let found = values.iter().find(|((name, r), _)| *name == side && *r == row);
    found.map(|(_, v)| estimate(v).median).unwrap_or(f64::NAN)
}

/// The table of `docs/performance.md`, and whether the yardsticks held.
fn report(
    rows: &[Row],
    values: &Values,
    ratios: &BTreeMap<usize, Vec<f64>>,
    sides: &[Side],
) -> (String, bool) {
    let mut out = String::new();
    let pairs = ratios.values().map(Vec::len).max().unwrap_or(0);
    let _ =
        writeln!(out, "{pairs} pairs; ratios of Stria to {}; medians with 95 % interval\n", sides[1].name);
    let _ = writeln!(
        out,
        "| row | Stria | {} | ratio | 95 % interval | bar | verdict | ÷ null | ÷ ext4 | best peer ÷ ext4 |",
        sides[1].name
    );
    let _ = writeln!(out, "|---|---:|---:|---:|---|---:|---|---:|---:|---:|");
    for (row, r) in rows.iter().enumerate().filter(|(row, _)| ratios.contains_key(row)) {
        let Estimate { median: ratio, low, high } =
            estimate(ratios.get(&row).map(Vec::as_slice).unwrap_or(&[]));
        let said = |bar| {
            let word = verdict(Estimate { median: ratio, low, high }, bar).word();
            (format!("{bar:.2}"), word)
        };
        let (bar, word) = r.bar.bar.map_or(("–".into(), "–"), said);
        let stria = median(values, "stria", row);
        let pass = median(values, sides[1].name, row);
        let shown = |v: f64| if r.unit.is_lower_better() { 1.0 / v } else { v };
        let peer = r.bar.peer.map(|p| format!("{p:.2}")).unwrap_or_else(|| "–".into());
        let _ = writeln!(
            out,
            "| {} | {:.0} {u} | {:.0} {u} | {ratio:.2} | {low:.2}–{high:.2} | {bar} | {word} | {:.2} | {:.2} | {peer} |",
            r.bar.title,
            shown(stria),
            shown(pass),
            stria / median(values, "null", row),
            stria / median(values, "ext4", row),
            u = r.unit.title()
        );
    }
    let mut sound = true;
    let _ = writeln!(out, "\nYardsticks ÷ ext4 (must reach {YARDSTICK_SHARE} of the known ratio):\n");
    for (title, pass_known, null_known) in YARDSTICKS {
        let row = rows.iter().position(|row| row.bar.title == *title);
        let Some(row) = row.filter(|row| ratios.contains_key(row)) else { continue };
        let ext4 = median(values, "ext4", row);
        for (name, known) in [("pass-through", pass_known), ("null", null_known)] {
            let got = median(values, name, row) / ext4;
            let holds = got >= YARDSTICK_SHARE * known;
            sound &= holds;
            let word = if holds { "holds" } else { "VOID" };
            let _ = writeln!(out, "- {title} {name}: {got:.2}, known {known:.2}: {word}");
        }
    }
    (out, sound)
}

/// Where the yardsticks' release binaries are.
pub fn yardstick_dir(stria: &Path) -> Result<PathBuf> {
    Ok(stria.parent().context("the binary has no directory")?.to_owned())
}
