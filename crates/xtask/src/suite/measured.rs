//! `stria bench` on a mounted file system: each plan at its smallest scale, and what happens when it is stopped or a worker dies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bench::plan::BUILT_IN;
use bench::record::Results;
use rustix::process::{Pid, Signal};
use testkit::Wiring;

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("bench::every_plan_at_its_smallest", every_plan)),
    (Needs::Only(Wiring::Local), ("bench::a_stop_keeps_what_was_measured", stopped)),
    (Needs::Only(Wiring::Local), ("bench::a_worker_that_dies_fails_its_step", worker_killed)),
    (Needs::Only(Wiring::Local), ("bench::command_lines_people_know", command_lines)),
];

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn count(dir: &Path) -> Result<usize> {
    Ok(fs::read_dir(dir)?.count())
}

fn every_plan(b: &mut Bench) -> Result<()> {
    let (dir, out) = (b.dir("plans")?, b.cluster.dir.join("plans"));
    fs::create_dir(&out)?;
    for (name, _) in BUILT_IN {
        let result = out.join(name);
        let (below, to) = (text(&dir), text(&result));
        let words = ["bench", "run", name, "--dir", &below, "--out", &to, "--scale", "min", "--quiet"];
        // One plan repeats as its scale says.
        let fewer: &[&str] = if name == "quick" { &[] } else { &["--repeats", "1"] };
        let (code, said) = b.cluster.stria(&[&words, fewer].concat())?;
        ensure_eq(code, 0, &format!("{name}: {said}"))?;
        let results = Results::read(&result.join("records.jsonl"))?;
        let failed: Vec<_> = results.skipped.iter().filter(|s| s.failed).collect();
        ensure!(failed.is_empty() && !results.records.is_empty(), "{name}: {failed:?}");
        ensure!(results.end.is_some_and(|end| end.complete), "{name} is not complete");
        ensure!(results.records.iter().all(|r| r.outcome.seconds > 0.0), "{name}: a phase took no time");
        ensure_eq(count(&dir)?, 0, &format!("{name}: what is left in the directory"))?;
        let page = fs::metadata(result.join("report.html"))?.len();
        ensure!((10_000..1 << 20).contains(&page), "{name}: a page of {page} bytes");
    }
    let quick = text(&out.join("quick"));
    let (code, said) = b.cluster.stria(&["bench", "compare", &quick, &quick])?;
    ensure_eq(code, 0, &format!("a result compared with itself: {said}"))
}

/// `stria bench run` of a plan that takes a while, when it has measured something.
fn begun(b: &mut Bench, dir: &Path) -> Result<(Child, PathBuf)> {
    let out = b.cluster.dir.join("begun");
    let child = Command::new(b.cluster.bin())
        .args(["bench", "run", "pixstor-nvme", "--scale", "small", "--quiet"])
        .args(["--dir", &text(dir), "--out", &text(&out), "--set", "total=64M"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let records = out.join("records.jsonl");
    // The last line may be half written.
    wait_until(
        "two records",
        || Ok(Results::read(&records).is_ok_and(|results| results.records.len() >= 2)),
    )?;
    Ok((child, out))
}

fn stopped(b: &mut Bench) -> Result<()> {
    let dir = b.dir("stopped")?;
    let (mut child, out) = begun(b, &dir)?;
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT)?;
    ensure_eq(child.wait()?.code(), Some(1), "the exit code after Ctrl-C")?;
    let results = Results::read(&out.join("records.jsonl"))?;
    ensure!(results.records.len() >= 2, "{} records", results.records.len());
    let end = results.end.context("it says how it ended")?;
    ensure!(!end.complete && end.why.contains("stopped by a signal"), "{end:?}");
    ensure!(out.join("report.html").exists(), "no report of what was measured");
    ensure_eq(count(&dir)?, 0, "what is left in the directory")
}

fn worker_killed(b: &mut Bench) -> Result<()> {
    let dir = b.dir("killed")?;
    let (mut child, out) = begun(b, &dir)?;
    let pid = child.id();
    let workers = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let Some(worker) = workers.split_whitespace().next().and_then(|w| w.parse().ok()) else {
        bail!("no worker processes: {workers:?}");
    };
    let worker = Pid::from_raw(worker).context("a pid")?;
    rustix::process::kill_process(worker, Signal::KILL)?;
    wait_until("the failed step is told", || {
        let results = Results::read(&out.join("records.jsonl"))?;
        let why = results.skipped.iter().find(|s| s.failed).map(|s| s.why.clone());
        Ok(why.is_some_and(|why| why.contains("a worker process has ended")))
    })?;
    // The steps after it are measured by new workers; there is no need to see them all.
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT)?;
    ensure_eq(child.wait()?.code(), Some(1), "the exit code")?;
    ensure_eq(count(&dir)?, 0, "what is left in the directory")
}

fn command_lines(b: &mut Bench) -> Result<()> {
    let dir = b.dir("lines")?;
    let file = text(&dir.join("file"));
    let (code, said) = b.cluster.stria(&[
        "bench", "ior", "-np", "2", "-a", "POSIX", "-w", "-r", "-F", "-C", "-e", "-t", "64k", "-b", "1m",
        "-o", &file,
    ])?;
    ensure_eq(code, 0, &said)?;
    for words in ["Max Write:", "Max Read:", "access", "bw(MiB/s)"] {
        ensure!(said.contains(words), "no {words:?} in {said}");
    }
    let (code, said) = b.cluster.stria(&[
        "bench",
        "mdtest",
        "-np",
        "2",
        "-i",
        "2",
        "-b",
        "1",
        "-z",
        "1",
        "-L",
        "-I",
        "10",
        "-u",
        "-t",
        "-d",
        &text(&dir),
    ])?;
    ensure_eq(code, 0, &said)?;
    for words in ["SUMMARY rate", "Directory creation", "File creation", "File removal", "Tree removal"] {
        ensure!(said.contains(words), "no {words:?} in {said}");
    }
    let (code, said) = b.cluster.stria(&["bench", "ior", "--no-such-option"])?;
    ensure!(code == 2 && said.contains("no-such-option"), "exit {code}: {said}");
    ensure_eq(count(&dir)?, 0, "what is left in the directory")
}
