//! How much a planned step moves and keeps at most, before it is run.

use super::expand::{PlannedPhase, PlannedPoint, PlannedStep};
use crate::job::{Data, DataOp, Files, Job, Names, NamesOp, Order, Work};

/// For each small file or directory: its inode, its entry, the rounding of its content.
const ITEM_BYTES: u64 = 1024;
const PAGE_BYTES: u64 = 4096;

/// The yardstick of `seconds`: a fair disk behind one machine.
const BYTES_PER_SECOND: f64 = 500e6;
const RANDOM_PER_SECOND: f64 = 20e3;
const NAMES_PER_SECOND: f64 = 10e3;
const LOOKUPS_PER_SECOND: f64 = 40e3;
/// Settling, dropping caches, starting workers, around each phase.
const PHASE_SECONDS: f64 = 0.3;

/// Upper bounds of the work of one repeat of a phase, point or step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Moved by reads and writes.
    pub bytes: u64,
    /// Operations on names.
    pub names: u64,
    /// On a medium of 500 MB/s, 20,000 random operations and 10,000 names a second.
    pub seconds: f64,
}

impl std::ops::AddAssign for Estimate {
    fn add_assign(&mut self, other: Estimate) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.names = self.names.saturating_add(other.names);
        self.seconds += other.seconds;
    }
}

/// The space that a step needs at most, where it is measured: that of its largest point. Devices given are not counted.
pub fn space_bytes(step: &PlannedStep) -> u64 {
    step.points.iter().map(point_bytes).max().unwrap_or(0)
}

fn point_bytes(point: &PlannedPoint) -> u64 {
    let jobs = || point.phases.iter().flat_map(|phase| &phase.parts).map(|part| &part.job);
    // The other program of a comparison has files of its own.
    let sides = if point.phases.iter().any(|phase| phase.against.is_some()) { 2 } else { 1 };
    let mut files = std::collections::BTreeMap::new();
    for job in jobs() {
        let (key, bytes) = match &job.work {
            Work::Data(data) if data.create => match &data.files {
                Files::Own { stem } | Files::Shared { path: stem } => {
                    (stem.clone(), data_bytes(data, job.workers))
                }
                Files::Given { .. } => continue,
            },
            Work::Names(names) if matches!(names.op, NamesOp::Create | NamesOp::MakeDir) => {
                let each = names
                    .write_bytes
                    .div_ceil(PAGE_BYTES)
                    .saturating_mul(PAGE_BYTES)
                    .saturating_add(ITEM_BYTES);
                (names.root.clone(), items(names, job.workers).saturating_mul(each))
            }
            _ => continue,
        };
        let most = files.entry(key).or_insert(0);
        *most = bytes.max(*most);
    }
    files.into_values().fold(0, u64::saturating_add).saturating_mul(sides)
}

/// Upper bound for one repeat of all points of a step.
pub fn of_step(step: &PlannedStep) -> Estimate {
    let mut all = Estimate::default();
    step.points.iter().flat_map(|point| &point.phases).for_each(|phase| all += of_phase(phase));
    all
}

pub fn of_phase(phase: &PlannedPhase) -> Estimate {
    let mut all = Estimate::default();
    let mut seconds = 0.0;
    for part in &phase.parts {
        let mut of_part = of_job(&part.job);
        if let Some(limit) = part.job.limit.seconds {
            of_part.seconds = of_part.seconds.min(limit);
        }
        // Parts run at once, on one medium.
        seconds += of_part.seconds;
        all += of_part;
    }
    if let Some(limit) = phase.parts.iter().filter_map(|part| part.job.limit.seconds).reduce(f64::max) {
        seconds = seconds.min(limit);
    }
    let sides = if phase.against.is_some() { 2.0 } else { 1.0 };
    Estimate { seconds: seconds * sides + PHASE_SECONDS, ..all }
}

fn of_job(job: &Job) -> Estimate {
    match &job.work {
        Work::Data(data) => {
            let most = data_bytes(data, job.workers);
            let ops = data.ops_max.map(|ops| ops.saturating_mul(u64::from(job.workers)));
            let bytes = ops.map_or(most, |ops| most.min(ops.saturating_mul(data.transfer_bytes)));
            let random = match data.order {
                Order::Random => (bytes / data.transfer_bytes.max(1)) as f64 / RANDOM_PER_SECOND,
                Order::Sequential => 0.0,
            };
            let paced = job.limit.pace.map_or(0.0, |pace| {
                bytes as f64 / data.transfer_bytes.max(1) as f64 / f64::from(job.workers) / pace
            });
            let mixed = if matches!(data.op, DataOp::Mixed { .. }) { 2.0 } else { 1.0 };
            let seconds = (bytes as f64 / BYTES_PER_SECOND).max(random * mixed).max(paced);
            Estimate { bytes, names: 0, seconds }
        }
        Work::Names(names) => {
            let count = match names.op {
                NamesOp::MakeTree | NamesOp::RemoveTree => {
                    trees(names, job.workers).saturating_mul(names.item_dirs())
                }
                NamesOp::Ask => u64::from(job.workers).saturating_mul(names.items_per_dir),
                _ => items(names, job.workers).saturating_mul(u64::from(names.epochs)),
            };
            let each = match names.op {
                NamesOp::Create => names.write_bytes,
                NamesOp::Read => names.read_bytes,
                _ => 0,
            };
            let bytes = count.saturating_mul(each);
            let rate = match names.op {
                NamesOp::Stat | NamesOp::StatDir | NamesOp::Read => LOOKUPS_PER_SECOND,
                _ => NAMES_PER_SECOND,
            };
            let seconds = count as f64 / rate + bytes as f64 / BYTES_PER_SECOND;
            Estimate { bytes, names: count, seconds }
        }
    }
}

fn data_bytes(data: &Data, workers: u32) -> u64 {
    data.block_bytes.saturating_mul(data.segments).saturating_mul(u64::from(workers))
}

fn trees(names: &Names, workers: u32) -> u64 {
    if names.shared { 1 } else { u64::from(workers) }
}

/// Over all workers: in a shared tree each has its own items too.
fn items(names: &Names, workers: u32) -> u64 {
    names.items_per_worker().saturating_mul(u64::from(workers))
}
