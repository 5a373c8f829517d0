//! Measured records on disk: one JSON line each, written and flushed at once.
//!
//! The file begins with a `Header` and holds nothing that could not be measured again; tables, figures and CSV are made from it.
//! bench-RC1. Each line is complete in itself: lines from before a crash or Ctrl-C can be read.
//! bench-RC2. Amounts, rates and latencies count operations that began after the warm-up; `timeline` counts all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cache::CacheState;
use crate::limits::Limits;
use crate::pattern::Checked;
use crate::plan::Plan;
use crate::uneven::Uneven;
use crate::usage::Usage;

/// The number that a change of meaning raises.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    Header(Box<Header>),
    /// Of the machine, before the first record. Older results have none.
    Limits(Limits),
    Record(Box<Record>),
    Skipped(Skipped),
    Output(Output),
    Samples(Samples),
    Warning(Warning),
    End(End),
}

/// The plan, the measured directory, and the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    /// Of the program.
    pub version: String,
    /// The whole plan, so that a report needs nothing else.
    pub plan: Plan,
    pub scale: String,
    /// The variables of that scale, as they were used: `threads = [1, 2, 4]`.
    pub values: BTreeMap<String, serde_json::Value>,
    /// Variables that the user set in place of the scale's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// The measured directory.
    pub dir: String,
    /// Type and source of its file system, as the mount table has them: `fuse.stria on 10.0.0.1@tcp:/fs`.
    pub file_system: String,
    /// Those that had the workers; none: this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The command that was given.
    pub command: String,
    /// UTC, RFC 3339.
    pub begun: String,
    /// Name and value, in the order to be shown: kernel, processors, memory, mount options, program's settings.
    pub system: Vec<(String, String)>,
}

/// One measurement: a phase at a point, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub step: String,
    /// The swept parameters and their values: `threads` = 4.
    pub point: BTreeMap<String, serde_json::Value>,
    pub phase: String,
    /// From 0.
    pub repeat: u32,
    pub workers: u32,
    pub processes: u32,
    /// `sync`, `io_uring x16`; of programs of others with their version: `fio 3.33`, `ior 4.0.0`, `mdtest 4.0.0`, `iozone 3.489`.
    pub engine: String,
    /// The exact command of an engine outside; the job as one line of JSON of ours.
    pub command: String,
    pub cache: CacheState,
    /// The use of this machine meanwhile. None where the workers were on hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The results of one phase, from our own workers or an outside program.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// From the first begin (plus warm-up) to the last end.
    pub seconds: f64,
    /// After the first begin the first worker was done, and the last.
    pub first_done: f64,
    pub last_done: f64,
    pub ops: u64,
    pub bytes: u64,
    /// Of `bytes`, for mixes.
    pub read_bytes: u64,
    /// Sum over all workers at the moment when the first one was done.
    pub stonewall: Option<Stonewall>,
    /// By worker. Empty if the engine does not tell.
    pub per_worker: Vec<WorkerShare>,
    /// By file or device that was given. Empty if none was, or if the engine does not tell.
    #[serde(default)]
    pub per_target: Vec<TargetShare>,
    /// By host, where workers ran on hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_host: Vec<HostShare>,
    /// Hosts, file systems or devices that were slower than their twins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uneven: Vec<Uneven>,
    /// By kind of operation: `read`, `write`, `op`. Empty if the engine does not tell.
    pub latency: BTreeMap<String, Latency>,
    pub timeline: Option<Timeline>,
    pub checked: Checked,
    /// Processor time of the workers, user and system. 0 if the engine does not tell.
    pub cpu_seconds: f64,
    /// Values that only some phases have: `late_share` of paced ones; `open_seconds`, `access_seconds` and `close_seconds` of files;
    /// `coordination_seconds`, the part of `seconds` that orders to hosts and their answers took.
    pub extra: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stonewall {
    pub seconds: f64,
    pub ops: f64,
    pub bytes: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerShare {
    pub ops: u64,
    pub bytes: u64,
    /// From its begin (plus warm-up) to its end.
    pub seconds: f64,
    /// Operations including the warm-up: the amount that later phases find.
    pub done: u64,
}

/// The sum over the workers of one file or device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetShare {
    pub target: String,
    pub workers: u32,
    pub ops: u64,
    pub bytes: u64,
    /// From the begin (plus warm-up) to the end of its last worker.
    pub seconds: f64,
}

/// The sum over the workers of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostShare {
    pub host: String,
    pub workers: u32,
    pub ops: u64,
    pub bytes: u64,
    /// By the host's own clock, from the first begin (plus warm-up) to the end of its last worker.
    pub seconds: f64,
}

/// A histogram: pairs of nanoseconds (the highest of the bucket, within 1 %) and how often, ascending.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency(pub Vec<(u64, u64)>);

/// Work done over time, summed over the workers: bucket `i` covers `[i, i + 1) * width_seconds` after the first begin.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeline {
    pub width_seconds: f64,
    pub ops: Vec<u64>,
    pub bytes: Vec<u64>,
    /// Seconds since the run's begin at which the first bucket begins: phases follow one another on one axis. In an outcome, before
    /// it is recorded: by the clock of workers.
    pub begin_seconds: f64,
}

/// A step, point or phase that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub step: String,
    /// As in "skipped: no routers: this file system has none".
    pub why: String,
    /// It was begun and failed; else there was a reason not to begin.
    #[serde(default)]
    pub failed: bool,
}

/// Output of a command that a plan asked for: `df -hT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub step: String,
    pub command: String,
    pub text: String,
}

/// Output of a sampler since its last such line.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Samples {
    /// The command.
    pub sampler: String,
    /// Names of the numbers in its lines: `tcp0.in_mb`.
    pub fields: Vec<String>,
    /// Seconds since the run's begin, and a value for each field; a field that a line does not have is null.
    pub rows: Vec<(f64, Vec<Option<f64>>)>,
}

/// Something that does not end the run and that its reader should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Was all of the plan done, or was it stopped (Ctrl-C, an error)?
    pub complete: bool,
    /// Why it was stopped, or nothing.
    pub why: String,
    pub seconds: f64,
}

impl Timeline {
    /// Adds another timeline with the same start, at the coarser of the two widths.
    pub fn add(&mut self, other: &Timeline) {
        if self.ops.is_empty() {
            *self = other.clone();
            return;
        }
        let width_seconds = self.width_seconds.max(other.width_seconds);
        let begin_seconds = self.begin_seconds.min(other.begin_seconds);
        let mut sum = Timeline { width_seconds, begin_seconds, ..Timeline::default() };
        for part in [&*self, other] {
            for (i, (ops, bytes)) in part.ops.iter().zip(&part.bytes).enumerate() {
                // Widths differ by powers of two: half a bucket keeps rounding away from the border.
                let index = ((i as f64 + 0.5) * part.width_seconds / width_seconds) as usize;
                if index >= sum.ops.len() {
                    sum.ops.resize(index + 1, 0);
                    sum.bytes.resize(index + 1, 0);
                }
                sum.ops[index] += ops;
                sum.bytes[index] += bytes;
            }
        }
        *self = sum;
    }
}

impl Latency {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, n)| n).sum()
    }

    /// Microseconds below which the share `q` of all operations stays; `None` without operations.
    pub fn quantile_us(&self, q: f64) -> Option<f64> {
        let rank = ((self.count() as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        self.0
            .iter()
            .find(|(_, n)| {
                seen += n;
                seen >= rank
            })
            .map(|(ns, _)| *ns as f64 / 1e3)
    }

    pub fn add(&mut self, other: &Latency) {
        let mut all: BTreeMap<u64, u64> = self.0.iter().copied().collect();
        for (ns, n) in &other.0 {
            *all.entry(*ns).or_default() += n;
        }
        self.0 = all.into_iter().collect();
    }
}

impl Outcome {
    /// The sum of parts that ran at the same time.
    pub fn together(parts: &[Outcome]) -> Outcome {
        let mut sum = Outcome { first_done: f64::INFINITY, ..Outcome::default() };
        for part in parts {
            sum.seconds = sum.seconds.max(part.seconds);
            sum.first_done = sum.first_done.min(part.first_done);
            sum.last_done = sum.last_done.max(part.last_done);
            sum.ops += part.ops;
            sum.bytes += part.bytes;
            sum.read_bytes += part.read_bytes;
            sum.per_worker.extend(&part.per_worker);
            for (what, latency) in &part.latency {
                sum.latency.entry(what.clone()).or_default().add(latency);
            }
            sum.checked += part.checked;
            sum.cpu_seconds += part.cpu_seconds;
            if let Some(timeline) = &part.timeline {
                sum.timeline.get_or_insert_default().add(timeline);
            }
        }
        sum.per_target = crate::targets::together(parts.iter().flat_map(|part| &part.per_target));
        sum.per_host = crate::targets::hosts_together(parts.iter().flat_map(|part| &part.per_host));
        sum
    }

    /// The value in a unit that a plan may name; `None` if it has none in it: latencies of an engine that does not tell.
    pub fn value(&self, unit: Unit) -> Option<f64> {
        let seconds = self.seconds.max(1e-9);
        let latency = |q| {
            let mut all = Latency::default();
            self.latency.values().for_each(|one| all.add(one));
            all.quantile_us(q)
        };
        match unit {
            Unit::GBps => Some(self.bytes as f64 / 1e9 / seconds),
            Unit::MBps => Some(self.bytes as f64 / 1e6 / seconds),
            Unit::MiBps => Some(self.bytes as f64 / f64::from(1 << 20) / seconds),
            Unit::Ops | Unit::Iops => Some(self.ops as f64 / seconds),
            Unit::P50 => latency(0.5),
            Unit::P99 => latency(0.99),
            Unit::Late => self.extra.get("late_share").map(|share| share * 100.0),
            Unit::Seconds => Some(self.seconds),
        }
    }
}

/// Units in which a plan may request a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "GB/s")]
    GBps,
    #[serde(rename = "MB/s")]
    MBps,
    #[serde(rename = "MiB/s")]
    MiBps,
    #[serde(rename = "ops/s")]
    Ops,
    #[serde(rename = "IOPS")]
    Iops,
    /// Median latency of all operations, reads and writes of a mix together; `Outcome::latency` has them apart.
    #[serde(rename = "us")]
    P50,
    /// 99th percentile of latency, of all operations.
    #[serde(rename = "us p99")]
    P99,
    /// Paced operations that were done after the next one was due, in percent.
    #[serde(rename = "% late")]
    Late,
    #[serde(rename = "s")]
    Seconds,
}

impl Unit {
    pub fn title(self) -> &'static str {
        match self {
            Unit::GBps => "GB/s",
            Unit::MBps => "MB/s",
            Unit::MiBps => "MiB/s",
            Unit::Ops => "ops/s",
            Unit::Iops => "IOPS",
            Unit::P50 => "us",
            Unit::P99 => "us p99",
            Unit::Late => "% late",
            Unit::Seconds => "s",
        }
    }

    /// For people; `title` is for files.
    pub fn words(self) -> &'static str {
        match self {
            Unit::P50 => "µs",
            Unit::P99 => "µs, p99",
            unit => unit.title(),
        }
    }

    pub fn is_lower_better(self) -> bool {
        matches!(self, Unit::P50 | Unit::P99 | Unit::Late | Unit::Seconds)
    }
}

/// All of a result file.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    pub header: Header,
    /// `None`: they were not measured.
    pub limits: Option<Limits>,
    pub records: Vec<Record>,
    pub skipped: Vec<Skipped>,
    pub outputs: Vec<Output>,
    pub samples: Vec<Samples>,
    pub warnings: Vec<Warning>,
    /// `None`: it ended without a word, or is still under way.
    pub end: Option<End>,
}

impl Results {
    pub fn read(path: &Path) -> Result<Results> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Results::parse(BufReader::new(file))
            .with_context(|| format!("{}: no result of stria bench run", path.display()))
    }

    pub fn parse(text: impl BufRead) -> Result<Results> {
        let mut lines = text.lines();
        let first = lines.next().context("it is empty")??;
        let Line::Header(header) = serde_json::from_str(&first)? else {
            anyhow::bail!("it does not begin with a header");
        };
        ensure!(
            header.format == FORMAT,
            "its format is {}, this program reads {FORMAT}: make it again, or take the program that made it ({})",
            header.format,
            header.version
        );
        let mut results = Results {
            header: *header,
            limits: None,
            records: Vec::new(),
            skipped: Vec::new(),
            outputs: Vec::new(),
            samples: Vec::new(),
            warnings: Vec::new(),
            end: None,
        };
        let mut torn = None;
        for (number, line) in lines.enumerate() {
            // Only the last line can be torn (bench-RC1): a program that was killed wrote it.
            if let Some(error) = torn.take() {
                return Err(error);
            }
            match serde_json::from_str(&line?) {
                Ok(line) => results.take(line),
                Err(error) => torn = Some(anyhow::anyhow!("line {}: {error}", number + 2)),
            }
        }
        Ok(results)
    }

    fn take(&mut self, line: Line) {
        match line {
            // One file is one run: a second header would be of nothing that is shown.
            Line::Header(_) => {}
            Line::Limits(limits) => self.limits = Some(limits),
            Line::Record(record) => self.records.push(*record),
            Line::Skipped(skipped) => self.skipped.push(skipped),
            Line::Output(output) => self.outputs.push(output),
            Line::Samples(samples) => self.samples.push(samples),
            Line::Warning(warning) => self.warnings.push(warning),
            Line::End(end) => self.end = Some(end),
        }
    }
}

/// Writes lines as they come.
pub struct Recorder {
    file: File,
}

impl Recorder {
    pub fn create(path: &Path) -> Result<Recorder> {
        let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
        Ok(Recorder { file })
    }

    pub fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // One write, so that a concurrent reader sees whole lines only.
        self.file.write_all(text.as_bytes()).context("writing the records")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quick reads of a mix do not stand for its slow writes.
    #[test]
    fn latency_of_a_mix_is_of_reads_and_writes() {
        let latency = |us: u64, count| Latency(vec![(us * 1000, count)]);
        let kinds = [("read".to_owned(), latency(10, 30)), ("write".to_owned(), latency(900, 70))];
        let outcome = Outcome { latency: kinds.into(), ..Outcome::default() };
        assert_eq!((outcome.value(Unit::P50), outcome.value(Unit::P99)), (Some(900.0), Some(900.0)));
        assert_eq!(outcome.latency["read"].quantile_us(0.99), Some(10.0));
        assert_eq!(Outcome::default().value(Unit::P50), None);
    }
}
