//! fio's side: the same requests on the bare device, by io_uring with direct I/O.
//!
//! fio reports JSON; this file holds all its options and all fields that are read.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::load::Figure;
use super::rows::{Order, Row, Work};
use crate::cmd::measure::ext4::Ext4;

/// The row with flushes has a file per writer: each has this size and is fully written before.
const FLUSH_FILE_BYTES: u64 = 16 << 20;

/// fio on a device.
pub struct Fio {
    device: PathBuf,
    /// Requests go to this many bytes from the begin of the device.
    span: u64,
}

/// The output of `fio --version`; `None` without fio.
pub fn version() -> Option<String> {
    let out = Command::new("fio").arg("--version").stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

impl Fio {
    pub fn new(device: &Path, span: u64) -> Fio {
        Fio { device: device.to_owned(), span }
    }

    /// Writes the span, so that no read meets a hole of a sparse file.
    pub fn fill(&self) -> anyhow::Result<()> {
        let fill = ["--rw=write", "--bs=1M", "--iodepth=8"];
        run(&self.on_device(), &fill.map(String::from)).map(|_| ())
    }

    pub fn measure(&self, row: &Row, time: Duration, seed: u64) -> anyhow::Result<Figure> {
        let mut args = words(row);
        args.push(format!("--runtime={}ms", time.as_millis()));
        args.push("--time_based".into());
        args.push(format!("--randseed={seed}"));
        let answer = match row.work {
            Work::WriteFlush => {
                let fs = Ext4::make(&self.device, None)?;
                let files = [
                    format!("--directory={}", fs.dir.display()),
                    format!("--size={FLUSH_FILE_BYTES}"),
                    "--ioengine=psync".into(),
                ];
                run(&files, &args)?
            }
            _ => run(&self.on_device(), &args)?,
        };
        figure(&answer, row)
    }

    fn on_device(&self) -> [String; 5] {
        [
            format!("--filename={}", self.device.display()),
            format!("--size={}", self.span),
            "--ioengine=io_uring".into(),
            "--direct=1".into(),
            "--allow_file_create=0".into(),
        ]
    }
}

/// The options of a row, without place and duration.
fn words(row: &Row) -> Vec<String> {
    let mut words = vec![format!("--bs={}", row.block)];
    let is_sequential = row.order == Order::Sequential;
    let rw = match (row.writes(), is_sequential) {
        (false, true) => "read",
        (false, false) => "randread",
        (true, true) => "write",
        (true, false) => "randwrite",
    };
    words.push(format!("--rw={rw}"));
    if let Order::Zipf(tenths) = row.order {
        words.push(format!("--random_distribution=zipf:{}.{}", tenths / 10, tenths % 10));
    }
    if !is_sequential {
        // All blocks are equally likely each time, as on the engine's side.
        words.push("--norandommap=1".into());
    }
    match row.work {
        Work::WriteFlush => {
            words.extend([format!("--numjobs={}", row.depth), "--fsync=1".into(), "--overwrite=1".into()]);
        }
        _ => words.push(format!("--iodepth={}", row.depth)),
    }
    if row.writes() && row.work != Work::WriteFlush {
        words.push("--end_fsync=1".into());
    }
    words
}

fn run(place: &[String], args: &[String]) -> anyhow::Result<Value> {
    let always = [
        "--name=row",
        "--group_reporting",
        "--output-format=json",
        "--lat_percentiles=1",
        "--percentile_list=50:99.9",
    ];
    let out = Command::new("fio")
        .args(always)
        .args(place)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("starting fio")?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!("fio: {} {}", text.trim(), String::from_utf8_lossy(&out.stderr).trim());
    }
    // fio prints remarks about the machine before its JSON.
    let json = text.find('{').map_or("", |at| &text[at..]);
    serde_json::from_str(json).with_context(|| format!("fio's answer: {text}"))
}

fn figure(answer: &Value, row: &Row) -> anyhow::Result<Figure> {
    let job = &answer["jobs"][0];
    let side = &job[if row.writes() { "write" } else { "read" }];
    let number =
        |value: &Value, what: &str| value.as_f64().with_context(|| format!("fio's answer has no {what}"));
    ensure!(job["error"].as_i64() == Some(0), "fio's job failed: error {}", job["error"]);
    let busy = number(&job["usr_cpu"], "usr_cpu")? + number(&job["sys_cpu"], "sys_cpu")?;
    let latency = &side["lat_ns"];
    let percentiles = &latency["percentile"];
    Ok(Figure {
        ops: number(&side["total_ios"], "total_ios")? as u64,
        bytes: number(&side["io_bytes"], "io_bytes")? as u64,
        seconds: number(&side["runtime"], "runtime")? / 1e3,
        // Both are sums over the jobs.
        cpu_seconds: busy / 100.0 * number(&job["job_runtime"], "job_runtime")? / 1e3,
        p50_us: number(&percentiles["50.000000"], "median")? / 1e3,
        p999_us: number(&percentiles["99.900000"], "percentile 99.9")? / 1e3,
        max_us: number(&latency["max"], "maximum")? / 1e3,
        ..Figure::default()
    })
}
