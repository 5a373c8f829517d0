//! Jobs of a plan as they are run: placed in their directories, with the amounts that earlier phases left.

use std::collections::BTreeMap;
use std::path::Path;

use crate::job::{Data, DataOp, Files, Job, NamesOp, Work};
use crate::plan::Program;
use crate::record::Outcome;

/// The program that wrote a file, and the file system that it is on.
pub type Side = (Program, u32);

/// How much of a file each worker's part really holds, by the file's name and the side that wrote it.
pub type Holds = BTreeMap<(String, Side), Vec<u64>>;

/// The job with its paths in the directory of its point.
pub fn placed(job: &Job, root: &Path) -> Job {
    let mut job = job.clone();
    job.map_paths(|path| root.join(path));
    job
}

/// Do its files outlive a repeat? Those that were given from outside do; others lie in the point's own directory.
pub fn stays(job: &Job) -> bool {
    let Work::Data(Data { files: Files::Given { paths }, .. }) = &job.work else { return false };
    paths.iter().any(|path| path.is_absolute())
}

/// For files that stay between repeats: the version tells the repeat, so that a lost write cannot look like a successful one.
pub fn renew(job: &mut Job, repeat: u32) {
    if let Work::Data(Data { version, accept, .. }) = &mut job.work {
        accept.iter_mut().chain([version]).for_each(|version| *version |= u64::from(repeat) << 32);
    }
}

/// Key of a job's files: reads use it to look up how far the writes came.
fn key_of(job: &Job) -> Option<String> {
    match &job.work {
        Work::Data(Data { files: Files::Own { stem }, .. }) => Some(format!("own {}", stem.display())),
        Work::Data(Data { files: Files::Shared { path }, .. }) => Some(format!("shared {}", path.display())),
        // Its parts are not those that were written.
        Work::Data(Data { files: Files::Given { .. }, .. }) => None,
        Work::Names(names) => {
            let kind = match names.op {
                NamesOp::Create | NamesOp::Stat | NamesOp::Read | NamesOp::Remove => "files",
                NamesOp::MakeDir | NamesOp::StatDir | NamesOp::RemoveDir => "directories",
                NamesOp::MakeTree | NamesOp::RemoveTree | NamesOp::Ask => return None,
            };
            Some(format!("{kind} {}", names.root.display()))
        }
    }
}

/// Is it this job that makes the files, which others then find?
fn makes(job: &Job) -> bool {
    match &job.work {
        Work::Data(data) => data.create && data.op == DataOp::Write,
        Work::Names(names) => matches!(names.op, NamesOp::Create | NamesOp::MakeDir),
    }
}

pub fn holds_of(job: &Job, side: Side, holds: &Holds) -> Vec<u64> {
    let held = key_of(job).and_then(|key| holds.get(&(key, side)));
    // Parts of a shared file have other offsets with another number of workers; a worker's own file does not change.
    let is_cut = matches!(&job.work, Work::Data(Data { files: Files::Shared { .. }, .. }));
    let held = held.filter(|held| !makes(job) && (!is_cut || held.len() == job.workers as usize));
    held.into_iter().flatten().map(|amount| amount / unit_of(job)).collect()
}

/// The unit of holds: bytes of data, as phases of one file may have transfers of different sizes; items of names.
fn unit_of(job: &Job) -> u64 {
    match &job.work {
        Work::Data(data) => data.transfer_bytes.max(1),
        Work::Names(_) => 1,
    }
}

pub fn note_holds(job: &Job, side: Side, outcome: &Outcome, holds: &mut Holds) {
    if let (true, Some(key)) = (makes(job), key_of(job)) {
        holds.insert(
            (key, side),
            outcome.per_worker.iter().map(|worker| worker.done.saturating_mul(unit_of(job))).collect(),
        );
    }
}
