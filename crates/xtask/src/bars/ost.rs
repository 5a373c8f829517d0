//! `cargo xtask bars ost`: the OST engine against fio on one loop device, by `stria ost bench`, held against what is promised.
//!
//! A set ends in ten minutes, its build included. So a row takes 1.5 s, at whose rates a figure is of thousands of requests; soaks, which
//! must show what lasts, take their minute once; and what time is left goes to pairs. An image of 8 GiB has room for an object of 2 GiB
//! with a log of 512 MiB, for 80 % beside it, and for what the fastest second of overwriting supersedes.

mod profile;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::stats::Estimate;
use serde::Deserialize;

use super::stage::LoopDisk;
use super::stats::Verdict;
use super::verdicts::{Bar, Span, all_met, verdicts};
use super::warm::Warm;

const SET: Duration = Duration::from_secs(600);
const ROW_SECONDS: f64 = 1.5;
const SOAK_SECONDS: f64 = 60.0;
/// Two soaks of both sides, two turns of a full and two of an aged OST, profiles; with room for a machine that is busy.
const FIXED: Duration = Duration::from_secs(400);
const PAIR: Duration = Duration::from_secs(36);
const PAIRS_MIN: usize = 3;

pub struct Settings {
    pub bin: PathBuf,
    pub base: PathBuf,
    pub gib: u64,
    pub pairs_max: usize,
    /// Rows whose name contains one of these, separated by commas.
    pub rows: String,
    /// Before the build.
    pub began: Instant,
}

/// The fields of `stria ost bench --json` that are needed here.
#[derive(Debug, Deserialize)]
struct Said {
    fio: Option<String>,
    rows: Vec<Row>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Row {
    row: String,
    title: String,
    state: String,
    unit: String,
    lower_is_better: bool,
    engine: Side,
    fio: Option<Side>,
    ratio: Option<Span>,
}

#[derive(Debug, Deserialize)]
struct Side {
    value: Span,
    cpu_us_per_op: f64,
    cpu_seconds_per_gib: f64,
    p999_us: f64,
    write_amplification: Option<f64>,
    #[serde(default)]
    small: Vec<Small>,
}

#[derive(Debug, Deserialize)]
struct Small {
    patched_bytes: u64,
    /// At the row's begin, at its end, and at most.
    pending_bytes: [u64; 3],
}

/// Engine ÷ fio of a fresh OST; a latency counts as its inverse, so that higher is better everywhere.
const FRESH: &[(&str, f64)] = &[
    ("seq-write", 0.9),
    ("seq-read", 0.9),
    ("read-64k", 0.9),
    ("write-64k", 0.8),
    ("read-4k", 0.8),
    ("latency-4k", 1.0 / 1.2),
    ("sync-4k", 4.0),
    ("burst-4k", 1.5),
    ("soak-uniform", 0.5),
    ("soak-zipf", 1.0),
];
/// A full or aged OST ÷ a fresh one, each row.
const OF_FRESH: f64 = 0.9;
/// Of the bytes of a soak so many do not wait any more at its end.
const SETTLED: f64 = 0.8;
const OVERLAY_BYTES_MAX: u64 = 256 << 20;
const STALL_US_MAX: f64 = 100_000.0;

pub fn ost(settings: &Settings) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "bars need root: loop device, mounts, pinned memory");
    let disk = LoopDisk::set(&settings.base, settings.gib)?;
    let warm = Warm::start()?;
    let left = SET.saturating_sub(settings.began.elapsed() + FIXED);
    let pairs = ((left.as_secs_f64() / PAIR.as_secs_f64()) as usize).max(PAIRS_MIN).min(settings.pairs_max);
    println!("{:.0} s for the build and the disk; {pairs} pairs", settings.began.elapsed().as_secs_f64());
    let said = measure(settings, &disk, pairs)?;
    let profiles = match settings.rows.is_empty() {
        true => profile::profiles(&settings.bin, &disk.device, &settings.base),
        false => String::new(),
    };
    drop((warm, disk));
    let bars = bars(&said.rows);
    let mut out = figures(&said, pairs);
    let _ = writeln!(out, "\n{}\n{profiles}", verdicts(&bars));
    let _ = writeln!(out, "{:.0} s in all, the build included", settings.began.elapsed().as_secs_f64());
    println!("\n{out}");
    if settings.rows.is_empty() {
        std::fs::write(settings.base.join("bars-ost.md"), &out)?;
    }
    all_met(&bars)
}

fn measure(settings: &Settings, disk: &LoopDisk, pairs: usize) -> Result<Said> {
    let mut command = Command::new(&settings.bin);
    command.args(["ost", "bench", &disk.device, "--force", "--json", "--states", "fresh,full,aged"]);
    command.args(["--rows", &settings.rows, "--pairs", &pairs.to_string()]);
    command.args(["--seconds", &ROW_SECONDS.to_string(), "--soak-seconds", &SOAK_SECONDS.to_string()]);
    let out = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("stria ost bench")?;
    ensure!(out.status.success(), "stria ost bench failed");
    std::fs::write(settings.base.join("bars-ost.json"), &out.stdout)?;
    let said: Said = serde_json::from_slice(&out.stdout).context("what stria ost bench said")?;
    ensure!(said.fio.is_some(), "bars need fio");
    Ok(said)
}

fn bars(rows: &[Row]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for row in rows {
        let is_fresh = row.state == "fresh";
        let known = FRESH.iter().find(|(name, _)| *name == row.row);
        let Some((_, of_fio)) = known else { continue };
        let bar = if is_fresh { *of_fio } else { OF_FRESH };
        let versus = if is_fresh { "÷ fio" } else { "÷ fresh" };
        let what = match is_fresh {
            true => format!("{} {versus}", row.title),
            false => format!("{}, {} {versus}", row.title, row.state),
        };
        bars.push(Bar::of_ratio(what, row.ratio.map(|r| better(r, row.lower_is_better)), bar));
        if is_fresh && row.row.starts_with("soak") {
            bars.extend(of_soak(row));
        }
    }
    bars
}

/// Higher is better.
fn better(r: Span, lower_is_better: bool) -> Estimate {
    match lower_is_better {
        true => Estimate { median: 1.0 / r.median, low: 1.0 / r.high, high: 1.0 / r.low },
        false => r.into(),
    }
}

fn of_soak(row: &Row) -> [Bar; 3] {
    let bar = |what: &str, got: String, bar: String, is_met: bool| Bar {
        what: format!("{}: {what}", row.title),
        got,
        bar,
        verdict: if is_met { Verdict::Met } else { Verdict::Missed },
    };
    let patched: u64 = row.engine.small.iter().map(|s| s.patched_bytes).sum();
    let left: u64 =
        row.engine.small.iter().map(|s| s.pending_bytes[1].saturating_sub(s.pending_bytes[0])).sum();
    // Without patched bytes, all data is at its place at once.
    let settled = if patched == 0 { 1.0 } else { 1.0 - left as f64 / patched as f64 };
    let most = row.engine.small.iter().map(|s| s.pending_bytes[2]).max().unwrap_or(0);
    let stall = row.engine.p999_us;
    [
        bar(
            "bytes destaged in the window",
            format!("{settled:.2}"),
            format!("≥ {SETTLED:.2}"),
            settled >= SETTLED,
        ),
        bar("overlay", format!("{} MiB", most >> 20), "≤ 256 MiB".into(), most <= OVERLAY_BYTES_MAX),
        bar("stall p99.9", format!("{:.1} ms", stall / 1e3), "≤ 100 ms".into(), stall <= STALL_US_MAX),
    ]
}

fn figures(said: &Said, pairs: usize) -> String {
    let mut out = String::new();
    let fio = said.fio.as_deref().unwrap_or("no fio");
    let _ =
        writeln!(out, "{pairs} pairs beside {fio}; medians with 95 % interval (range below six samples)\n");
    let _ = writeln!(
        out,
        "| row | state | engine | fio | ratio | CPU µs/op (fio) | CPU s/GiB (fio) | p99.9 ms | write amplification |"
    );
    let _ = writeln!(out, "|---|---|---:|---:|---|---:|---:|---:|---:|");
    let dash = || "–".to_owned();
    for r in &said.rows {
        let beside = |of: &dyn Fn(&Side) -> f64, digits: usize| match &r.fio {
            Some(fio) => format!("{:.digits$} ({:.digits$})", of(&r.engine), of(fio)),
            None => format!("{:.digits$}", of(&r.engine)),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {:.0} {} | {} | {} | {} | {} | {:.2} | {} |",
            r.title,
            r.state,
            r.engine.value.median,
            r.unit,
            r.fio.as_ref().map_or_else(dash, |f| format!("{:.0} {}", f.value.median, r.unit)),
            r.ratio.map_or_else(dash, |e| format!("{:.2} ({:.2}–{:.2})", e.median, e.low, e.high)),
            beside(&|s| s.cpu_us_per_op, 1),
            beside(&|s| s.cpu_seconds_per_gib, 2),
            r.engine.p999_us / 1e3,
            r.engine.write_amplification.map_or_else(dash, |a| format!("{a:.2}")),
        );
    }
    said.notes.iter().for_each(|note| {
        let _ = writeln!(out, "\n{note}");
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: &str, ratio: [f64; 3], small: &str) -> Row {
        let lower = name.starts_with("latency");
        let [median, low, high] = ratio;
        let side = r#"{"value":{"median":1,"low":1,"high":1},"cpu_us_per_op":1,"cpu_seconds_per_gib":1,"p999_us":2000"#;
        let text = format!(
            r#"{{"row":"{name}","title":"{name}","state":"{state}","unit":"u","lower_is_better":{lower},
               "engine":{side},"small":[{small}]}},"ratio":{{"median":{median},"low":{low},"high":{high}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn words(rows: &[Row]) -> Vec<(String, Verdict)> {
        bars(rows).into_iter().map(|b| (b.what, b.verdict)).collect()
    }

    #[test]
    fn thresholds_decide() {
        let of = |name: &str, ratio| bars(&[row(name, "fresh", ratio, "")])[0].verdict;
        assert_eq!(of("seq-write", [0.95, 0.9, 1.0]), Verdict::Met);
        assert_eq!(of("seq-write", [0.8, 0.7, 0.85]), Verdict::Missed);
        assert_eq!(of("sync-4k", [3.0, 2.0, 5.0]), Verdict::Unsure);
        // Latency: 1.1 times is within 1.2, 1.5 times is not, and a tenth is better than all.
        assert_eq!(of("latency-4k", [1.1, 1.0, 1.2]), Verdict::Met);
        assert_eq!(of("latency-4k", [1.5, 1.4, 1.6]), Verdict::Missed);
        assert_eq!(of("latency-4k", [0.1, 0.1, 0.1]), Verdict::Met);
    }

    #[test]
    fn full_and_aged_are_held_against_fresh_in_every_row() {
        assert_eq!(
            words(&[row("sync-4k", "full", [0.95, 0.9, 1.0], "")]),
            [("sync-4k, full ÷ fresh".into(), Verdict::Met)]
        );
        assert_eq!(words(&[row("latency-4k", "aged", [1.3, 1.3, 1.3], "")])[0].1, Verdict::Missed);
    }

    #[test]
    fn a_soak_is_held_against_what_waits_and_stalls_too() {
        let soak = |small: &str| bars(&[row("soak-zipf", "fresh", [1.2, 1.1, 1.3], small)]);
        let verdicts = |small: &str| soak(small).iter().map(|b| b.verdict).collect::<Vec<_>>();
        use Verdict::{Met, Missed};
        assert_eq!(verdicts(r#"{"patched_bytes":1000,"pending_bytes":[0,200,300]}"#), [Met, Met, Met, Met]);
        assert_eq!(
            verdicts(r#"{"patched_bytes":1000,"pending_bytes":[0,201,300000000]}"#),
            [Met, Missed, Missed, Met]
        );
        assert_eq!(verdicts(""), [Met, Met, Met, Met]);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let mut row = row("sync-4k", "fresh", [5.0, 5.0, 5.0], "");
        row.ratio = None;
        assert_eq!(bars(&[row])[0].verdict, Verdict::Unsure);
    }
}
