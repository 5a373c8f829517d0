//! `cargo xtask bars road`: Stria against a pass-through FUSE file system, pair by pair, on one loop device.
//!
//! Sides alternate A B B A; every side runs the same rows of `stria bench quick` in a fresh workspace; the ratio of a pair is one
//! sample. The yardsticks must themselves reach 0.8 of their known ratios to ext4, else the run is void.

pub mod stage;
pub mod stats;
pub mod warm;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::{Better, Kind, Params, Workspace};

use bench::stats::{Estimate, estimate};
use stage::{Side, Stage};
use stats::{Verdict, verdict};
use warm::Warm;

/// A set ends in ten minutes; the pairs get what making the disk and the last checks leave.
const PAIRS_TIME: Duration = Duration::from_secs(460);
const PAIRS_MAX: usize = 15;
const PAIRS_MIN: usize = 6;

/// A row, its bar for Stria ÷ pass-through, and the best peer's ratio to ext4 where one was measured.
struct Bar {
    kind: Kind,
    bar: f64,
    peer: Option<f64>,
}

const fn bar(kind: Kind, bar: f64, peer: Option<f64>) -> Bar {
    Bar { kind, bar, peer }
}

/// The bars; a latency counts as its inverse, so that higher is better everywhere (1.5 × slower = 0.667).
/// Peers: the best of GlusterFS, SeaweedFS, JuiceFS, MooseFS and CephFS ÷ ext4 on such a machine.
const ROAD: &[Bar] = &[
    bar(Kind::NnWrite, 0.8, Some(0.736)),
    bar(Kind::NnRead, 0.8, Some(0.586)),
    bar(Kind::SharedWrite, 0.8, Some(0.458)),
    bar(Kind::SharedRead, 0.8, Some(0.337)),
    bar(Kind::RandomRead, 0.7, Some(0.271)),
    bar(Kind::ReadLatency, 1.0 / 1.5, None),
    bar(Kind::Fsync, 0.8, Some(1.52)),
    bar(Kind::EmptyCreate, 0.9, Some(0.071)),
    bar(Kind::EmptyStat, 0.9, Some(0.063)),
    bar(Kind::EmptyRemove, 0.9, Some(0.0534)),
    bar(Kind::SmallCreate, 1.0, Some(0.0247)),
];

/// Known ratios of the yardsticks to ext4: (row, pass-through, null).
const YARDSTICKS: &[(Kind, f64, f64)] = &[
    (Kind::EmptyCreate, 0.16, 0.24),
    (Kind::SmallCreate, 0.13, 0.21),
    (Kind::EmptyStat, 0.19, 0.26),
    (Kind::NnWrite, 0.81, 1.03),
];
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
    if !rustix::process::geteuid().is_root() {
        bail!("bars need root: loop device, mounts, dropping caches");
    }
    let mut stage = Stage::set(&settings.base, settings.gib)?;
    let sides = stage.sides(&settings.bin, &settings.yardsticks)?;
    let warm = Warm::start()?;
    let mut values = Values::new();
    let mut ratios: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let began = Instant::now();
    let pairs_max = settings.pairs_max.min(PAIRS_MAX);
    for pair in 0..pairs_max {
        // A B, then B A: drift of the machine hits both sides alike.
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            measure(&sides[at], &settings.rows, &warm, &mut values)?;
        }
        // The yardsticks' own ratios need fewer samples.
        if pair % 4 == 0 {
            measure(&sides[2], &settings.rows, &warm, &mut values)?;
            measure(&sides[3], &settings.rows, &warm, &mut values)?;
        }
        for row in 0..ROAD.len() {
            if let (Some(a), Some(b)) = (last(&values, &sides[0], row), last(&values, &sides[1], row)) {
                ratios.entry(row).or_default().push(a / b);
            }
        }
        println!("pair {} of at most {pairs_max}, {:.0} s", pair + 1, began.elapsed().as_secs_f64());
        // Part of the rows is work on them: all pairs that were asked for.
        let settled = settings.rows.is_empty() && pair + 1 >= PAIRS_MIN && decided(&ratios);
        if settled || (pair + 1 >= PAIRS_MIN.min(pairs_max) && began.elapsed() > PAIRS_TIME) {
            break;
        }
    }
    drop(warm);
    let (table, sound) = report(&values, &ratios, &sides);
    println!("\n{table}");
    if settings.rows.is_empty() {
        std::fs::write(settings.base.join("bars-road.md"), &table)?;
    }
    if !sound {
        bail!(
            "void: a yardstick is below {YARDSTICK_SHARE} of its known ratio to ext4; the machine is too noisy or the yardstick is not honest"
        );
    }
    Ok(())
}

fn decided(ratios: &BTreeMap<usize, Vec<f64>>) -> bool {
    ratios.iter().all(|(row, r)| verdict(estimate(r), ROAD[*row].bar) != Verdict::Unsure)
}

fn last(values: &Values, side: &Side, row: usize) -> Option<f64> {
    values.get(&(side.name, row))?.last().copied()
}

fn measure(side: &Side, rows: &str, warm: &Warm, values: &mut Values) -> Result<()> {
    let params = Params {
        workers: 4,
        total_bytes: 512 << 20,
        files_per_worker: 1500,
        random_ops: 8_000,
        phase_limit: Duration::from_secs(3),
        // The null file system keeps no data, so nothing of it can be verified.
        verify: side.name != "null",
        ..Params::default()
    };
    let mut workspace = Workspace::new(&side.dir, &params)?;
    for kind in Kind::ALL {
        let row = ROAD.iter().position(|b| b.kind == kind);
        let needed = row.is_some() || kind == Kind::SmallRemove;
        if !needed || !rows.split(',').any(|row| kind.title().contains(row)) {
            continue;
        }
        warm.settle()?;
        let sample = workspace.run(kind).with_context(|| format!("{} on {}", kind.title(), side.name))?;
        if let Some(row) = row {
            let value = if kind.better() == Better::Lower { 1.0 / sample.value } else { sample.value };
            values.entry((side.name, row)).or_default().push(value);
        }
    }
    workspace.close()
}

fn median(values: &Values, side: &str, row: usize) -> f64 {
    let found = values.iter().find(|((name, r), _)| *name == side && *r == row);
    found.map(|(_, v)| estimate(v).median).unwrap_or(f64::NAN)
}

/// The table of `docs/performance.md`, and whether the yardsticks held.
fn report(values: &Values, ratios: &BTreeMap<usize, Vec<f64>>, sides: &[Side]) -> (String, bool) {
    let mut out = String::new();
    let pairs = ratios.values().map(Vec::len).max().unwrap_or(0);
    let _ =
        writeln!(out, "{pairs} pairs; ratios of Stria to {}; medians with 95 % interval\n", sides[1].name);
    let _ = writeln!(
        out,
        "| row | Stria | pass-through | ratio | 95 % interval | bar | verdict | ÷ null | ÷ ext4 | best peer ÷ ext4 |"
    );
    let _ = writeln!(out, "|---|---:|---:|---:|---|---:|---|---:|---:|---:|");
    for (row, b) in ROAD.iter().enumerate().filter(|(row, _)| ratios.contains_key(row)) {
        let Estimate { median: ratio, low, high } =
            estimate(ratios.get(&row).map(Vec::as_slice).unwrap_or(&[]));
        let word = match verdict(Estimate { median: ratio, low, high }, b.bar) {
            Verdict::Met => "MET",
            Verdict::Missed => "MISSED",
            Verdict::Unsure => "UNSURE",
        };
        let stria = median(values, "stria", row);
        let pass = median(values, "pass-through", row);
        let shown = |v: f64| if b.kind.better() == Better::Lower { 1.0 / v } else { v };
        let peer = b.peer.map(|p| format!("{p:.2}")).unwrap_or_else(|| "–".into());
        let _ = writeln!(
            out,
            "| {} | {:.0} {u} | {:.0} {u} | {ratio:.2} | {low:.2}–{high:.2} | {:.2} | {word} | {:.2} | {:.2} | {peer} |",
            b.kind.title(),
            shown(stria),
            shown(pass),
            b.bar,
            stria / median(values, "null", row),
            stria / median(values, "ext4", row),
            u = b.kind.unit()
        );
    }
    let mut sound = true;
    let _ = writeln!(out, "\nYardsticks ÷ ext4 (must reach {YARDSTICK_SHARE} of the known ratio):\n");
    for (kind, pass_known, null_known) in YARDSTICKS {
        let row = ROAD.iter().position(|b| b.kind == *kind);
        let Some(row) = row.filter(|row| ratios.contains_key(row)) else { continue };
        let ext4 = median(values, "ext4", row);
        for (name, known) in [("pass-through", pass_known), ("null", null_known)] {
            let got = median(values, name, row) / ext4;
            let holds = got >= YARDSTICK_SHARE * known;
            sound &= holds;
            let word = if holds { "holds" } else { "VOID" };
            let _ = writeln!(out, "- {} {name}: {got:.2}, known {known:.2}: {word}", kind.title());
        }
    }
    (out, sound)
}

/// Where the yardsticks' release binaries are.
pub fn yardstick_dir(stria: &Path) -> Result<PathBuf> {
    Ok(stria.parent().context("the binary has no directory")?.to_owned())
}
