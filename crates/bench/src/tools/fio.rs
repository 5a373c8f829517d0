//! fio: a job section per worker, all at once, several parts too.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::place::{self, Place};
use super::{Part, Said, Tool, data, refuse_holds, text};
use crate::job::{Data, DataOp, Engine, Flush, Job, Order};
use crate::record::{Latency, Outcome, WorkerShare};

pub struct Fio;

impl Tool for Fio {
    fn program(&self) -> &'static str {
        "fio"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["--version"]
    }

    fn version(&self, printed: &str) -> Option<String> {
        Some(printed.trim().strip_prefix("fio-")?.to_owned())
    }

    fn command(&self, parts: &[Part]) -> Result<Vec<String>> {
        let mut words: Vec<String> = vec!["fio".into(), "--output-format=json+".into()];
        // One set of options that all jobs have; without it each section would repeat them.
        words.push("--name=global".into());
        // fallocate and fadvise would be calls that the job does not name; groups would hide the workers.
        for option in ["--fallocate=none", "--fadvise_hint=0", "--group_reporting=0"] {
            words.push(option.into());
        }
        words.extend(["--clat_percentiles=0".into(), "--lat_percentiles=1".into()]);
        // A process that fio forks shares its memory at first, and huge pages are split when it writes to them.
        words.push("--thread=1".into());
        for (number, (_, job)) in parts.iter().enumerate() {
            let data = data(job, "fio")?;
            check(job, data)?;
            for worker in 0..job.workers {
                words.push(format!("--name=p{number}w{worker}"));
                words.extend(section(job, data, &place::place(data, job.workers, worker))?);
            }
        }
        Ok(words)
    }

    fn parse(&self, said: &Said, parts: &[Part]) -> Result<Vec<Outcome>> {
        // Warnings stand before the report.
        let begin = said.stdout.find('{').context("fio printed no report")?;
        let report: Value =
            serde_json::from_str(&said.stdout[begin..]).context("fio's report cannot be read")?;
        let jobs = report["jobs"].as_array().context("fio's report has no jobs")?;
        let of = |number: usize, worker: u32| {
            let name = format!("p{number}w{worker}");
            jobs.iter()
                .find(|job| job["jobname"] == name)
                .with_context(|| format!("fio's report has no job {name}"))
        };
        parts
            .iter()
            .enumerate()
            .map(|(number, (_, job))| {
                let jobs: Result<Vec<&Value>> = (0..job.workers).map(|w| of(number, w)).collect();
                outcome(&jobs?, job)
            })
            .collect()
    }
}

fn check(job: &Job, data: &Data) -> Result<()> {
    refuse_holds(job, "fio")?;
    ensure!(
        data.order == Order::Sequential || data.segments == 1 || place::place(data, job.workers, 0).skip == 0,
        "fio draws random places from one block at a time; take one segment, or files of their own"
    );
    ensure!(
        data.op != (DataOp::Write) || data.flush != Flush::Each || data.engine == Engine::Sync,
        "fio's flush after each write needs plain calls; take depth 1"
    );
    place::check_length(job, data)
}

/// Options of one worker.
fn section(job: &Job, data: &Data, place: &Place) -> Result<Vec<String>> {
    let amount = data.block_bytes * data.segments;
    let word = match (data.op, data.order) {
        (DataOp::Write, Order::Sequential) => "write",
        (DataOp::Write, Order::Random) => "randwrite",
        (DataOp::Read, Order::Sequential) => "read",
        (DataOp::Read, Order::Random) => "randread",
        (DataOp::Mixed { .. }, Order::Sequential) => "rw",
        (DataOp::Mixed { .. }, Order::Random) => "randrw",
    };
    let mut words = vec![
        // fio reads a colon as the end of a name.
        format!("--filename={}", text(&place.path)?.replace(':', "\\:")),
        format!("--rw={word}"),
        format!("--bs={}", data.transfer_bytes),
        format!("--offset={}", place.offset),
        format!("--size={}", place.end - place.offset),
        format!("--direct={}", u8::from(data.direct)),
        format!("--invalidate={}", u8::from(job.forget_pages)),
        format!("--allow_file_create={}", u8::from(data.create)),
        // fio refuses a seed that does not fit into a signed number.
        format!("--randseed={}", job.seed >> 1),
    ];
    if place.skip > 0 && data.segments > 1 {
        words.extend([
            format!("--io_size={amount}"),
            "--zonemode=strided".into(),
            format!("--zonesize={}", data.block_bytes),
            format!("--zonerange={}", data.block_bytes),
            format!("--zoneskip={}", place.skip),
        ]);
    }
    if let DataOp::Mixed { read_percent } = data.op {
        words.push(format!("--rwmixread={read_percent}"));
    }
    words.extend(match data.engine {
        Engine::Sync => vec!["--ioengine=psync".into()],
        Engine::Uring { depth } => vec!["--ioengine=io_uring".into(), format!("--iodepth={depth}")],
        Engine::Null => vec!["--ioengine=null".into()],
    });
    if data.op != DataOp::Read {
        match data.flush {
            Flush::Never => {}
            Flush::End => words.push("--end_fsync=1".into()),
            Flush::Each => words.push("--fsync=1".into()),
        }
    }
    words.extend(limits(job, data));
    Ok(words)
}

fn limits(job: &Job, data: &Data) -> Vec<String> {
    let milliseconds = |seconds: f64| format!("{}ms", (seconds * 1e3).round().max(1.0));
    let mut words = Vec::new();
    let warmup = job.limit.warmup_seconds;
    if let Some(seconds) = job.limit.seconds {
        // fio counts the run time from the end of the warm-up.
        words.push(format!("--runtime={}", milliseconds(seconds - warmup)));
        if data.order == Order::Random {
            words.push("--time_based=1".into());
        }
    }
    if warmup > 0.0 {
        words.push(format!("--ramp_time={}", milliseconds(warmup)));
    }
    if let Some(ops) = data.ops_max {
        words.push(format!("--number_ios={ops}"));
    }
    if let Some(pace) = job.limit.pace {
        words.push(format!("--rate_iops={}", pace.round().max(1.0)));
    }
    words
}

fn outcome(jobs: &[&Value], job: &Job) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut latency: BTreeMap<String, Latency> = BTreeMap::new();
    for told in jobs {
        let name = told["jobname"].as_str().unwrap_or_default();
        ensure!(told["error"] == 0, "fio's job {name} failed with error {}", told["error"]);
        let whole = |way: &str, key: &str| told[way][key].as_u64().unwrap_or(0);
        let both = |key: &str| whole("read", key) + whole("write", key);
        let run_ms = whole("read", "runtime").max(whole("write", "runtime"));
        let share = WorkerShare {
            ops: both("total_ios"),
            bytes: both("io_bytes"),
            seconds: run_ms as f64 / 1e3,
            done: both("total_ios"),
        };
        outcome.ops += share.ops;
        outcome.bytes += share.bytes;
        outcome.read_bytes += whole("read", "io_bytes");
        outcome.per_worker.push(share);
        let percent = |key: &str| told[key].as_f64().unwrap_or(0.0);
        let job_seconds = told["job_runtime"].as_f64().unwrap_or(0.0) / 1e3;
        outcome.cpu_seconds += (percent("usr_cpu") + percent("sys_cpu")) / 100.0 * job_seconds;
        for way in ["read", "write"] {
            let bins = bins(&told[way]["lat_ns"]["bins"]);
            if !bins.0.is_empty() {
                latency.entry(way.into()).or_default().add(&bins);
            }
        }
    }
    let ends = || outcome.per_worker.iter().map(|share| share.seconds);
    outcome.last_done = ends().fold(0.0, f64::max);
    outcome.first_done = ends().fold(outcome.last_done, f64::min);
    outcome.seconds = outcome.last_done;
    ensure!(outcome.ops > 0, "fio did nothing");
    ensure!(
        outcome.seconds > 0.0,
        "it was over in less than a millisecond, which is all that fio tells: make it longer"
    );
    // Its latency leaves out the flush after each write, and the time that a paced operation was late.
    let data = data(job, "fio")?;
    if !(job.limit.pace.is_some() || (data.flush == Flush::Each && data.op != DataOp::Read)) {
        outcome.latency = latency;
    }
    Ok(outcome)
}

fn bins(told: &Value) -> Latency {
    let pairs = told.as_object().into_iter().flatten();
    let mut bins: Vec<(u64, u64)> =
        pairs.filter_map(|(ns, count)| Some((ns.parse().ok()?, count.as_u64()?))).collect();
    bins.sort_unstable();
    Latency(bins)
}
