//! The device's limits: direct I/O in one file, by the workers that measure the plan's rows too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};

use super::Measure;
use crate::crew::{Crew, Inside};
use crate::job::{Data, DataOp, Engine, Files, Flush, Job, Limit, Order, Work};
use crate::record::{Outcome, Unit};
use crate::runner::Runner;

/// Large enough that a device's own buffer does not hold all of it, small enough to be written in a second.
const FILE_BYTES: u64 = 256 << 20;
/// Of measurements that take less than `SHORT_SECONDS`.
const FILE_BYTES_SHORT: u64 = 64 << 20;
const SHORT_SECONDS: f64 = 0.4;
/// In flight: enough for the queue of one device.
const STREAM_DEPTH: u32 = 8;
const RANDOM_DEPTH: u32 = 32;
/// A file system with less than so many times the file free is left alone.
const FREE_TIMES: u64 = 4;

pub struct Measured {
    pub how: String,
    pub values: Vec<(Measure, f64)>,
}

/// Measures in a file of `dir`, which is removed at the end (bench-L2).
pub fn measure(dir: &Path, seconds: f64, stop: &Arc<AtomicBool>) -> Result<Measured> {
    let bytes = if seconds < SHORT_SECONDS { FILE_BYTES_SHORT } else { FILE_BYTES };
    let free = rustix::fs::statvfs(dir).with_context(|| dir.display().to_string())?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    ensure!(
        free / FREE_TIMES >= bytes,
        "{} MiB are free in {}: too few to measure",
        free >> 20,
        dir.display()
    );
    let file = Scratch(dir.join(format!("stria-bench.{}.limits", std::process::id())));
    let measured = in_file(&file, bytes, seconds, stop);
    measured.with_context(|| format!("direct I/O in {}", dir.display()))
}

/// Removes the file, however the measurement ends.
struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn in_file(file: &Scratch, bytes: u64, seconds: f64, stop: &Arc<AtomicBool>) -> Result<Measured> {
    let has_ring = ring::Ring::new(1, 4096).is_ok();
    let depth = |depth: u32| if has_ring { Engine::Uring { depth } } else { Engine::Sync };
    let dir = file.0.parent().context("a file is in a directory")?.to_owned();
    let mut crew = Crew::new(Inside, dir, stop.clone());
    let mut run = |op: DataOp, order: Order, engine: Engine, flush: Flush, create: bool| -> Result<Outcome> {
        let transfer_bytes = if order == Order::Random { 4 << 10 } else { 1 << 20 };
        let data = Data {
            op,
            order,
            files: Files::Shared { path: file.0.clone() },
            transfer_bytes,
            block_bytes: bytes,
            segments: 1,
            shift: 0,
            ops_max: None,
            engine,
            direct: true,
            flush,
            create,
            version: 0,
            accept: Vec::new(),
            read_back: 0,
        };
        // The first write is whole: reads would meet the end of the file.
        let limit = if create { None } else { Some(seconds) };
        let job = Job {
            work: Work::Data(data),
            workers: 1,
            limit: Limit { seconds: limit, ..Limit::default() },
            verify: false,
            seed: 1,
            forget_pages: false,
            holds: Vec::new(),
        };
        let outcomes = crew.run(&[(String::new(), job)], 1)?;
        outcomes.into_iter().next().context("a job has an outcome")
    };
    let (read, write) = (DataOp::Read, DataOp::Write);
    let (sequential, random) = (Order::Sequential, Order::Random);
    run(write, sequential, depth(STREAM_DEPTH), Flush::End, true)?;
    let wrote = run(write, sequential, depth(STREAM_DEPTH), Flush::End, false)?;
    let streamed = run(read, sequential, depth(STREAM_DEPTH), Flush::Never, false)?;
    let random_read = run(read, random, depth(RANDOM_DEPTH), Flush::Never, false)?;
    let alone = run(read, random, Engine::Sync, Flush::Never, false)?;
    let random_write = run(write, random, depth(RANDOM_DEPTH), Flush::Never, false)?;
    let synced = run(write, random, Engine::Sync, Flush::Each, false)?;
    let bytes_of = |outcome: &Outcome| outcome.bytes as f64 / outcome.seconds.max(1e-9);
    let ops_of = |outcome: &Outcome| outcome.ops as f64 / outcome.seconds.max(1e-9);
    let values = vec![
        (Measure::DeviceWrite, bytes_of(&wrote)),
        (Measure::DeviceRead, bytes_of(&streamed)),
        (Measure::DeviceRandomRead, ops_of(&random_read)),
        (Measure::DeviceRandomWrite, ops_of(&random_write)),
        (Measure::DeviceLatency, alone.value(Unit::P50).unwrap_or(f64::NAN)),
        (Measure::DeviceSync, ops_of(&synced)),
    ];
    if let Some((measure, _)) = values.iter().find(|(_, value)| !value.is_finite() || *value <= 0.0) {
        bail!("{measure:?} has no value");
    }
    let in_flight = if has_ring { (STREAM_DEPTH, RANDOM_DEPTH) } else { (1, 1) };
    let how = format!(
        "direct I/O in a file of {} MiB in {}: 1 MiB in sequence with {} in flight, 4 KiB at random places with {} in flight, \
         and one at a time",
        bytes >> 20,
        file.0.parent().unwrap_or(Path::new("/")).display(),
        in_flight.0,
        in_flight.1
    );
    Ok(Measured { how, values })
}
