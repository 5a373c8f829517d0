//! The kind of work that a row did, as far as the machine's limits are concerned.

use std::collections::BTreeMap;

use serde_json::Value;

use super::group::{Group, phase_of, quantity};
use crate::job::{Data, DataOp, Engine, Flush, Job, Names, NamesOp, Order, Work};
use crate::record::Results;

/// Rows of a family have one limit and one kind of card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Large transfers in sequence.
    Stream,
    /// Places at random, several in flight.
    Random,
    /// One small transfer at a time.
    Latency,
    /// A flush after each write.
    Sync,
    /// Files and directories.
    Names,
}

impl Family {
    pub const ALL: [Family; 5] =
        [Family::Stream, Family::Random, Family::Latency, Family::Sync, Family::Names];

    /// Within a sentence.
    pub fn noun(self) -> &'static str {
        match self {
            Family::Stream => "streams",
            Family::Random => "random I/O",
            Family::Latency => "latency",
            Family::Sync => "fsync",
            Family::Names => "files and names",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Family::Stream => "Streams",
            Family::Random => "Random I/O",
            Family::Latency => "Latency",
            Family::Sync => "fsync",
            Family::Names => "Files and names",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub family: Family,
    pub reads: bool,
    pub writes: bool,
    /// 0: of names.
    pub transfer_bytes: f64,
    /// Workers times depth.
    pub in_flight: f64,
}

/// Larger transfers at random places are limited by bandwidth, not by the wait for one.
const SMALL_BYTES: f64 = 65_536.0;

/// The load of a group; `None` where neither its job nor its plan tells, and where nothing is moved.
pub fn load_of(results: &Results, group: &Group) -> Option<Load> {
    let record = group.records.first()?;
    match serde_json::from_str::<Job>(&record.command) {
        Ok(job) => of_job(&job),
        Err(_) => of_plan(results, group),
    }
}

fn of_job(job: &Job) -> Option<Load> {
    let workers = f64::from(job.workers);
    match &job.work {
        Work::Data(Data { engine: Engine::Null, .. }) | Work::Names(Names { null: true, .. }) => None,
        Work::Data(data) => {
            let depth = if let Engine::Uring { depth } = data.engine { f64::from(depth) } else { 1.0 };
            let (reads, writes) = match data.op {
                DataOp::Read => (true, false),
                DataOp::Write => (false, true),
                DataOp::Mixed { .. } => (true, true),
            };
            let is_random = data.order == Order::Random;
            let shape = Shape { reads, writes, is_random, is_synced: data.flush == Flush::Each };
            Some(shape.load(data.transfer_bytes as f64, workers * depth))
        }
        Work::Names(names) => Some(of_names(reads_names(names.op), workers)),
    }
}

fn reads_names(op: NamesOp) -> bool {
    matches!(op, NamesOp::Stat | NamesOp::Read | NamesOp::StatDir | NamesOp::Ask)
}

fn of_names(reads: bool, in_flight: f64) -> Load {
    Load { family: Family::Names, reads, writes: !reads, transfer_bytes: 0.0, in_flight }
}

struct Shape {
    reads: bool,
    writes: bool,
    is_random: bool,
    is_synced: bool,
}

impl Shape {
    fn load(self, transfer_bytes: f64, in_flight: f64) -> Load {
        let family = match () {
            _ if self.is_synced && self.writes => Family::Sync,
            _ if !self.is_random => Family::Stream,
            _ if in_flight <= 1.0 && transfer_bytes <= SMALL_BYTES => Family::Latency,
            _ => Family::Random,
        };
        Load { family, reads: self.reads, writes: self.writes, transfer_bytes, in_flight }
    }
}

/// From the words of the plan: programs of others have a command in place of a job, and sums of parts have neither.
fn of_plan(results: &Results, group: &Group) -> Option<Load> {
    let step = results.header.plan.steps.iter().find(|step| step.id == group.step)?;
    let phase = phase_of(results, group.step, group.phase)?;
    let part =
        group.phase.split_once('.').and_then(|(_, name)| phase.together.iter().find(|p| p.name == name));
    let part = part.or_else(|| phase.together.first());
    let workers = group.records.first().map_or(1.0, |record| f64::from(record.workers));
    let names = [part.and_then(|p| p.names.as_ref()), phase.names.as_ref(), Some(&step.names)];
    let data = [part.and_then(|p| p.data.as_ref()), phase.data.as_ref(), Some(&step.data)];
    let word = |of: &[Option<&toml::Table>; 3], name: &str| {
        of.iter().flatten().find_map(|table| table.get(name).cloned())
    };
    if let Some(op) = word(&names, "op") {
        let reads = matches!(op.as_str(), Some("stat" | "read" | "stat-dir" | "ask"));
        return Some(of_names(reads, workers));
    }
    let op = word(&data, "op")?;
    let is_mix = op.as_str() == Some("mixed") || phase.together.len() > 1;
    let text = |name: &str| word(&data, name).and_then(|value| value.as_str().map(str::to_owned));
    let known = |name: &str| resolve(word(&data, name)?, group.point, &results.header.values);
    if text("engine").as_deref() == Some("null") {
        return None;
    }
    let shape = Shape {
        reads: is_mix || op.as_str() == Some("read"),
        writes: is_mix || op.as_str() == Some("write"),
        is_random: text("order").as_deref() == Some("random"),
        is_synced: text("flush").as_deref() == Some("each"),
    };
    Some(shape.load(known("transfer")?, workers * known("depth").unwrap_or(1.0).max(1.0)))
}

/// A number, a size, or one variable; products are not needed for transfers and depths.
fn resolve(
    word: toml::Value,
    point: &BTreeMap<String, Value>,
    values: &BTreeMap<String, Value>,
) -> Option<f64> {
    match word {
        toml::Value::Integer(n) => Some(n as f64),
        toml::Value::Float(x) => Some(x),
        toml::Value::String(text) => match text.strip_prefix('$') {
            Some(name) => point.get(name).or_else(|| values.get(name)).and_then(quantity),
            None => quantity(&Value::String(text)),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{group::groups, sample};
    use super::*;

    fn family(results: &Results, step: &str, phase: &str) -> Option<Load> {
        let groups = groups(results);
        let group = groups.iter().find(|g| (g.step, g.phase) == (step, phase)).unwrap();
        load_of(results, group)
    }

    #[test]
    fn rows_are_told_apart_by_their_jobs() {
        let results = sample::of_plan(crate::plan::load("quick").unwrap(), "min", 1);
        let table = [
            ("own", "write", Family::Stream, false),
            ("own", "read", Family::Stream, true),
            ("own", "random-read", Family::Random, true),
            ("own", "latency", Family::Latency, true),
            ("own", "random-write", Family::Random, false),
            ("fsync", "fsync", Family::Sync, false),
            ("small", "create", Family::Names, false),
            ("small", "stat", Family::Names, true),
        ];
        for (step, phase, wanted, reads) in table {
            let load = family(&results, step, phase).unwrap();
            assert_eq!((load.family, load.reads, load.writes), (wanted, reads, !reads), "{step} {phase}");
        }
    }

    /// Their records have a command of fio in place of a job.
    #[test]
    fn rows_of_other_programs_are_told_apart_by_the_plan() {
        let mut results = sample::of_plan(crate::plan::load("vss2249p").unwrap(), "small", 1);
        let of_jobs = family(&results, "drives", "random-read-4k").unwrap();
        results.records.iter_mut().for_each(|record| record.command = "fio --bs=4096".into());
        assert_eq!(family(&results, "drives", "random-read-4k").unwrap(), of_jobs);
        let mix = family(&results, "drives", "mix-70").unwrap();
        assert_eq!((mix.family, mix.reads, mix.writes, mix.in_flight), (Family::Random, true, true, 64.0));
    }
}
