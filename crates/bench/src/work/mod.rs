//! The work of a worker: one thread's part of a job, prepared before the barrier and measured after it.
//!
//! bench-WK1. The preparation (paths, buffers, rings, random orders) is not measured; opening, moving, flushing and closing is.
//! bench-WK2. A worker counts an operation when it has ended, and only if it began after the warm-up: part of an operation across
//! the warm-up's end was done before it.
//! bench-WK3. Written data is read back when all workers of the phase have ended, so that no measured time or processor time has it.

mod data;
mod meter;
mod names;
mod order;
mod tree;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Result;

#[cfg(test)]
pub use data::Place;
pub use meter::{Clock, Counted, Gauge, latency_of, now_ns};
pub use tree::DEPTH_MAX;

use crate::content::Content;
use crate::job::{Job, Work};
use crate::pattern::Checked;

/// A worker that is ready to begin.
pub enum Prepared<'a> {
    Data(Box<data::Mover<'a>>),
    Names(names::Namer<'a>),
}

/// State that all threads of one process share.
pub struct Shared<'a> {
    pub job: &'a Job,
    pub root: &'a Path,
    pub content: &'a Content,
    pub stop: &'a AtomicBool,
}

impl<'a> Prepared<'a> {
    pub fn new(shared: &'a Shared<'a>, worker: u32) -> Result<Prepared<'a>> {
        Ok(match &shared.job.work {
            Work::Data(data) => Prepared::Data(Box::new(data::Mover::new(shared, data, worker)?)),
            Work::Names(names) => Prepared::Names(names::Namer::new(shared, names, worker)?),
        })
    }

    /// Does the work. `gauge` shows others how far it is.
    pub fn run(&mut self, clock: Clock<'a>, gauge: &Gauge) -> Result<Counted> {
        match self {
            Prepared::Data(mover) => mover.run(clock, gauge),
            Prepared::Names(namer) => namer.run(clock, gauge),
        }
    }

    /// Reads some of the written data back, after all measurements of the phase (bench-WK3).
    pub fn read_back(&mut self) -> Result<Checked> {
        match self {
            Prepared::Data(mover) => mover.read_back(),
            Prepared::Names(_) => Ok(Checked::default()),
        }
    }
}

/// Content for a job, made once per process.
pub fn content_of(job: &Job) -> Content {
    let transfer = match &job.work {
        Work::Data(data) => data.transfer_bytes,
        Work::Names(names) => names.write_bytes,
    };
    Content::new(job.seed, transfer, job.verify)
}
