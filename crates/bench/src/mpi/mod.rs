//! The command lines of IOR and mdtest, done by our own workers: their options become jobs, the outcomes their tables.
//!
//! `words` reads an option list as those programs do, `ior` and `mdtest` say which options there are and what they mean,
//! `table` prints. `docs/bench-tools.md` lists what is understood and what differs.
//! bench-M1. An option is understood with its program's meaning, or refused by its name with what to do: none is read over silently.

pub mod ior;
mod ior_json;
pub mod mdtest;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::io::Write;

use anyhow::{Context, Result};

pub use words::Refused;

use crate::runner::Runner;

/// Processes at most; more workers are threads of them. A process per worker is what MPI has, but on one host more than this only
/// cost memory.
const PROCESSES_MAX: u32 = 64;

/// Where the table goes: flushed after each line, so that a reader sees what is measured.
pub struct Page<'a> {
    pub to: &'a mut dyn Write,
}

impl Page<'_> {
    fn line(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
        self.to.write_fmt(text).and_then(|()| self.to.write_all(b"\n")).context("writing the table")?;
        self.to.flush().context("writing the table")
    }
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The program's own.
    Table,
    Json,
}

/// Shared context of IOR and mdtest runs.
pub struct Bench<'a> {
    pub runner: &'a mut dyn Runner,
    pub page: Page<'a>,
    /// As it was typed, for the header.
    pub command: String,
}

impl Bench<'_> {
    /// One job of all workers.
    fn one(&mut self, name: &str, job: crate::job::Job) -> Result<crate::record::Outcome> {
        let processes = job.workers.min(PROCESSES_MAX);
        if let Some(why) = crate::memory::refusal([&job].into_iter(), processes, crate::system::ram_bytes()) {
            anyhow::bail!("{why}");
        }
        let outcomes = self.runner.run(&[(name.to_owned(), job)], processes)?;
        outcomes.into_iter().next().context("no outcome of a job")
    }
}
