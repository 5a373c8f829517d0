//! `cargo xtask bars mds`: the metadata service, held against what is promised: in process and over TCP by `stria mdt bench`, beside ext4, a
//! hash table and a server that only answers; through FUSE by rows of the plan quick, beside the null file system.
//!
//! A set ends in ten minutes, its build included. So a row takes 1 s, in which a hundred thousand files are made, and what FUSE does not
//! take goes to pairs.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::rows::Set;
use super::stage::LoopDisk;
use super::verdicts::{Bar, Span, all_met, verdicts};
use super::warm::Warm;

const SET: Duration = Duration::from_secs(600);
const ROW_SECONDS: f64 = 1.0;
const ENTRIES: u64 = 1_000_000;
/// A turn of both sides with one tree made; of rows that are measured all.
const PAIR: Duration = Duration::from_secs(60);
const PAIRS_MIN: usize = 3;
/// Through FUSE: the pairs, and the stage before them.
const FUSE_PAIRS: Duration = Duration::from_secs(150);
const FUSE: Duration = Duration::from_secs(180);

pub struct Settings {
    pub bin: PathBuf,
    pub yardsticks: PathBuf,
    pub base: PathBuf,
    pub gib: u64,
    pub pairs_max: usize,
    /// Rows whose name (in process, over TCP) or title (through FUSE) contains one of these, separated by commas.
    pub rows: String,
    /// Before the build.
    pub began: Instant,
}

/// The fields of `stria mdt bench --json` that are needed here.
#[derive(Debug, Deserialize)]
struct Said {
    rows: Vec<Row>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Row {
    row: String,
    title: String,
    unit: String,
    against: String,
    mdt: Side,
    other: Option<Side>,
    ratio: Option<Span>,
}

#[derive(Debug, Deserialize)]
struct Side {
    value: Span,
    cpu_seconds_per_million: f64,
    p999_us: f64,
    memory_bytes: f64,
}

/// MDT ÷ other, by prefix of the row's name; other rows are reported without a bar.
const BARS: &[(&str, f64)] = &[
    ("create", 1.2),
    ("remove", 1.0),
    ("stat", 1.0),
    ("readdirplus", 2.0),
    ("scaling", 0.9),
    // With several in a frame, three times as much. The first that fits counts.
    ("tcp-stat-", 2.1),
    ("tcp-create-", 1.2),
    ("tcp-stat", 0.7),
    ("tcp-create", 0.4),
];

pub fn mds(settings: &Settings) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "bars need root: loop device, mounts, pinned memory");
    let mut out = String::new();
    let mut bars = Vec::new();
    if let Some(said) = in_process(settings)? {
        out += &figures(&said);
        // Print at once: the next part may be void, and this result is valid.
        println!("\n{out}");
        bars.extend(self::bars(&said.rows));
    }
    if super::rows::rows(Set::Mds, &settings.rows).is_ok() {
        let fuse = super::Settings {
            bin: settings.bin.clone(),
            yardsticks: settings.yardsticks.clone(),
            base: settings.base.clone(),
            gib: settings.gib,
            pairs_max: settings.pairs_max,
            rows: settings.rows.clone(),
        };
        let (table, of_fuse) = super::through_fuse(&fuse, Set::Mds, FUSE_PAIRS)?;
        let _ = writeln!(out, "\n{table}");
        bars.extend(of_fuse);
    }
    ensure!(!bars.is_empty(), "no row with a bar contains any of: {}", settings.rows);
    let _ = writeln!(out, "\n{}", verdicts(&bars));
    let _ = writeln!(out, "{:.0} s in all, the build included", settings.began.elapsed().as_secs_f64());
    println!("\n{out}");
    if settings.rows.is_empty() {
        std::fs::write(settings.base.join("bars-mds.md"), &out)?;
    }
    all_met(&bars)
}

/// `None`: no row of its own is wanted.
fn in_process(settings: &Settings) -> Result<Option<Said>> {
    // Titles of the rows through FUSE have words before.
    let is_wanted =
        |name: &str| settings.rows.split(',').any(|part| name.contains(part) || part.starts_with(name));
    if !BARS.iter().any(|(name, _)| is_wanted(name)) {
        return Ok(None);
    }
    let disk = LoopDisk::set(&settings.base, settings.gib)?;
    let _warm = Warm::start()?;
    let left = SET.saturating_sub(settings.began.elapsed() + FUSE);
    let pairs = ((left.as_secs_f64() / PAIR.as_secs_f64()) as usize).max(PAIRS_MIN).min(settings.pairs_max);
    println!("{:.0} s for the build and the disk; {pairs} pairs", settings.began.elapsed().as_secs_f64());
    let mut command = Command::new(&settings.bin);
    command.args(["mdt", "bench", &disk.device, "--force", "--json", "--entries", &ENTRIES.to_string()]);
    command.args(["--rows", &settings.rows, "--pairs", &pairs.to_string()]);
    command.args(["--seconds", &ROW_SECONDS.to_string()]);
    let out = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("stria mdt bench")?;
    ensure!(out.status.success(), "stria mdt bench failed");
    std::fs::write(settings.base.join("bars-mds.json"), &out.stdout)?;
    serde_json::from_slice(&out.stdout).context("what stria mdt bench said").map(Some)
}

fn bars(rows: &[Row]) -> Vec<Bar> {
    let bar_of = |row: &Row| BARS.iter().find(|(name, _)| row.row.starts_with(name)).map(|(_, bar)| *bar);
    let bar = |row: &Row| {
        let what = format!("{} ÷ {}", row.title, row.against);
        Some(Bar::of_ratio(what, row.ratio.map(Into::into), bar_of(row)?))
    };
    rows.iter().filter_map(bar).collect()
}

fn figures(said: &Said) -> String {
    let mut out = String::from("Medians; ratios with 95 % interval (range below six samples)\n\n");
    let _ = writeln!(
        out,
        "| row | MDT | other | | ratio | CPU s/10^6 (other) | p99.9 µs (other) | memory MiB (ext4) |"
    );
    let _ = writeln!(out, "|---|---:|---:|---|---|---:|---:|---:|");
    for r in &said.rows {
        let beside = |of: &dyn Fn(&Side) -> f64, digits: usize| match &r.other {
            Some(other) => format!("{:.digits$} ({:.digits$})", of(&r.mdt), of(other)),
            None => format!("{:.digits$}", of(&r.mdt)),
        };
        let value = |side: &Side| {
            let digits = if side.value.median < 100.0 { 2 } else { 0 };
            format!("{:.digits$} {}", side.value.median, r.unit)
        };
        let ratio = r.ratio.map_or("–".into(), |e| format!("{:.2} ({:.2}–{:.2})", e.median, e.low, e.high));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {ratio} | {} | {} | {} |",
            r.title,
            value(&r.mdt),
            r.other.as_ref().map_or("–".into(), value),
            r.against,
            beside(&|s| s.cpu_seconds_per_million, 2),
            beside(&|s| s.p999_us, 1),
            beside(&|s| s.memory_bytes / f64::from(1 << 20), 0),
        );
    }
    said.notes.iter().for_each(|note| {
        let _ = writeln!(out, "\n{note}");
    });
    out
}

#[cfg(test)]
mod tests {
    use super::super::stats::Verdict;
    use super::*;

    fn row(name: &str, ratio: Option<[f64; 3]>) -> Row {
        let ratio = ratio.map_or("null".into(), |[median, low, high]| {
            format!(r#"{{"median":{median},"low":{low},"high":{high}}}"#)
        });
        let side = r#"{"value":{"median":1,"low":1,"high":1},"cpu_seconds_per_million":1,"p999_us":1,"memory_bytes":1}"#;
        let text = format!(
            r#"{{"row":"{name}","title":"{name}","unit":"u","against":"ext4","mdt":{side},"other":{side},"ratio":{ratio}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn thresholds_decide() {
        let of = |name: &str, ratio| bars(&[row(name, Some(ratio))])[0].verdict;
        assert_eq!(of("create-2", [1.2, 1.1, 1.3]), Verdict::Met);
        assert_eq!(of("create-2", [1.0, 0.9, 1.1]), Verdict::Missed);
        assert_eq!(of("create-2", [1.0, 0.9, 1.3]), Verdict::Unsure);
        assert_eq!(of("remove-1", [1.0, 0.9, 1.1]), Verdict::Met);
        assert_eq!(of("readdirplus-4", [1.9, 1.8, 1.95]), Verdict::Missed);
        assert_eq!(of("scaling-writer", [0.89, 0.8, 0.95]), Verdict::Met);
        assert_eq!(of("tcp-create", [0.41, 0.4, 0.5]), Verdict::Met);
        assert_eq!(of("tcp-stat", [0.41, 0.4, 0.5]), Verdict::Missed);
        assert_eq!(of("tcp-stat-16", [2.0, 1.9, 2.05]), Verdict::Missed);
        assert_eq!(of("tcp-create-64", [1.2, 1.1, 1.3]), Verdict::Met);
    }

    #[test]
    fn a_row_without_a_bar_is_told_and_one_without_a_partner_is_not_met() {
        assert_eq!(bars(&[row("mixed-2", Some([0.1, 0.1, 0.1]))]), []);
        let bars = bars(&[row("stat-1", None)]);
        assert_eq!((bars[0].verdict, bars[0].got.as_str()), (Verdict::Unsure, "not measured"));
    }
}
