//! Executes jobs: the crew of workers, or a stand-in for it in tests.

use anyhow::Result;

use crate::job::Job;
use crate::record::Outcome;

/// Executes parts and returns their outcomes.
pub trait Runner {
    /// All parts at once, each with its own workers, spread round-robin over so many processes in all. One outcome per part, in
    /// their order. A part's name is for progress and errors; paths in the jobs are absolute.
    fn run(&mut self, parts: &[(String, Job)], processes: u32) -> Result<Vec<Outcome>>;
}
