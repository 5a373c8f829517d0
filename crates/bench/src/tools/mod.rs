//! Outside programs that do a job in our workers' place: fio, ior, mdtest, iozone. Each has a module that says its command for a job
//! and reads what it prints. `docs/bench-tools.md` has the options and what differs.
//!
//! bench-T1. A program executes the whole job, or the job is refused with an alternative. Only three settings are dropped silently:
//!     `verify` (the programs write their own content; `Outcome::checked` stays empty), the split into processes, of which each
//!     program has its own kind, and ior's `shift`, which counts whole hosts.
//! bench-T2. The files of a program stay: the next phase needs them. Files of ior and mdtest have names of their own (`STEM.00000000`,
//!     `test-dir.0-0`), so each program reads what it has written itself.

mod child;
mod fio;
mod found;
mod ior;
mod iozone;
mod mdtest;
mod place;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};

pub use self::child::{Said, quoted};
pub use self::found::Found;
pub use self::ior::{Row as IorRow, rows as ior_rows};
pub use self::mdtest::{rates as mdtest_rates, title as mdtest_title, tree_dirs as mdtest_tree_dirs};
pub use self::place::own_path;
use crate::job::{Data, Job, Names, Work};
use crate::plan::Program;
use crate::record::Outcome;

/// A job of a phase with the name of its part; empty if there is one only.
pub type Part = (String, Job);

/// Translates a job to an outside program's command line, and its output to outcomes.
pub trait Tool {
    fn program(&self) -> &'static str;

    /// Arguments by which it tells its version and does nothing else.
    fn version_args(&self) -> &'static [&'static str];

    /// Parses the version from the program's output.
    fn version(&self, printed: &str) -> Option<String>;

    /// The whole command, or the reason why the program cannot do the job, with an alternative.
    fn command(&self, parts: &[Part]) -> Result<Vec<String>>;

    /// One outcome per part.
    fn parse(&self, said: &Said, parts: &[Part]) -> Result<Vec<Outcome>>;
}

/// Has glibc take a program's buffers from huge pages, as our workers' lie in some (`ring::Buffers`). Without it the figures of large direct
/// transfers differ by which pages a program happened to get, and not by program: IOR read 800 MiB/s so, and 2,200 with it.
pub const LARGE_PAGES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.top_pad=67108864",
);

/// The results of an outside program.
#[derive(Debug)]
pub struct Done {
    /// One per part.
    pub outcomes: Vec<Outcome>,
    /// The command, quoted for a shell.
    pub command: String,
}

pub fn tool(program: Program) -> Option<&'static dyn Tool> {
    match program {
        Program::Stria => None,
        Program::Fio => Some(&fio::Fio),
        Program::Ior => Some(&ior::Ior),
        Program::Mdtest => Some(&mdtest::Mdtest),
        Program::Iozone => Some(&iozone::Iozone),
    }
}

/// Program and version as they are here, `fio 3.33`; `None` if it is not in the path.
pub fn found(program: Program) -> Option<String> {
    let tool = tool(program)?;
    let said = child::ask(tool.program(), tool.version_args())?;
    let version = tool.version(&said.stdout).or_else(|| tool.version(&said.stderr));
    Some(format!("{} {}", tool.program(), version.unwrap_or_else(|| "of unknown version".into())))
}

/// Does the jobs with an outside program that runs in `dir`, and ends it when `stop` is set. Paths in the jobs are absolute.
pub fn run(program: Program, parts: &[Part], dir: &Path, stop: &AtomicBool) -> Result<Done> {
    let tool = tool(program).context("our own workers are no outside program")?;
    let command = tool.command(parts)?;
    for (_, job) in parts {
        place::prepare(job)?;
    }
    let shown = format!("{}={} {}", LARGE_PAGES.0, LARGE_PAGES.1, quoted(&command));
    if mdtest::has_no_tree(program, parts) {
        return Ok(Done { outcomes: vec![Outcome::default()], command: shown });
    }
    let said = child::run(&command, &[LARGE_PAGES], dir, stop)?;
    let outcomes = tool.parse(&said, parts).with_context(|| format!("{shown}\n{}", said.tail()))?;
    ensure!(
        outcomes.len() == parts.len(),
        "{}: it told of {} jobs of {}",
        shown,
        outcomes.len(),
        parts.len()
    );
    Ok(Done { outcomes, command: shown })
}

/// The only job, of those that do one at a time.
fn only<'a>(parts: &'a [Part], program: &str) -> Result<&'a Job> {
    match parts {
        [(_, job)] => Ok(job),
        _ => anyhow::bail!("{program} does one work at a time; fio, or our own workers, do several at once"),
    }
}

fn data<'a>(job: &'a Job, program: &str) -> Result<&'a Data> {
    match &job.work {
        Work::Data(data) => Ok(data),
        Work::Names(_) => anyhow::bail!("{program} does not measure operations on names; mdtest does"),
    }
}

fn names<'a>(job: &'a Job, program: &str) -> Result<&'a Names> {
    match &job.work {
        Work::Names(names) => Ok(names),
        Work::Data(_) => {
            anyhow::bail!("{program} measures operations on names; fio, ior and iozone move data")
        }
    }
}

/// Refuses a job after a phase that was stopped early: only our own workers know how far it came.
fn refuse_holds(job: &Job, program: &str) -> Result<()> {
    let whole = match &job.work {
        Work::Data(data) => data.segments.saturating_mul(data.block_bytes) / data.transfer_bytes.max(1),
        Work::Names(names) => names.items_per_worker(),
    };
    ensure!(
        job.holds.iter().all(|held| *held >= whole),
        "{program} works on whole files, and a phase before was stopped by its time; leave `seconds` out of that one"
    );
    Ok(())
}

/// Refuses limits that only our own workers and fio support.
fn refuse_limits(job: &Job, program: &str) -> Result<()> {
    refuse_holds(job, program)?;
    ensure!(
        job.limit.warmup_seconds == 0.0,
        "{program} cannot leave a warm-up out; fio can, or leave `warmup-seconds` out"
    );
    ensure!(job.limit.pace.is_none(), "{program} cannot be paced; fio can, or leave `pace` out");
    if let Work::Data(data) = &job.work {
        ensure!(data.ops_max.is_none(), "{program} cannot stop after a count; fio can, or leave `ops` out");
    }
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{}: outside programs need a path in UTF-8", path.display()))
}

/// `mpirun` in front, where more than one task is wanted. Without it both programs run as one task.
fn under_mpi(tasks: u32, command: Vec<String>) -> Vec<String> {
    if tasks <= 1 {
        return command;
    }
    let mut all: Vec<String> =
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]
            .map(String::from)
            .into();
    all.push(tasks.to_string());
    all.extend(command);
    all
}
