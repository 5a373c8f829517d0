//! `stria bench quick`: a short measurement of any directory of any file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure};
use crate::size::Size;

/// Measure a directory: sequential, random, many small files, fsync, latency. Works on any file system.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench quick /mnt/stria --json result.json")]
pub struct Bench {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    Quick(Quick),
}

/// N-N and N-1 sequential, 4 KiB random, mdtest-like files, fsync and latency: each row three times, content verified.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench quick /mnt/stria --workers 4 --repeats 3 --json result.json")]
struct Quick {
    /// An existing directory; what is made in it is removed at the end.
    dir: PathBuf,
    /// Write the result as JSON to a file; - is stdout, in place of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Worker threads [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Option<u32>,
    /// Bytes of each sequential row, over all workers [default: 1G].
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Size>,
    /// Files of each small-file row, per worker [default: 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    files: Option<u32>,
    /// Sequential and random rows by-pass the kernel's page cache (O_DIRECT).
    #[arg(long)]
    direct: bool,
    /// Samples of each row; the table shows their median and spread.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=101))]
    repeats: u64,
    /// Aim for the whole run, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,
    /// No progress on stderr.
    #[arg(long)]
    quiet: bool,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.suite {
            Suite::Quick(quick) => quick.run(),
        }
    }
}

/// The first signal stops the measurement, which removes its files; a second one ends the process on the spot.
fn stop_by_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    Ok(())
}

impl Quick {
    fn run(self) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            return Err(
                Failure::unusable(self.dir.display(), "it is no directory", "give an existing one").into()
            );
        }
        let options = self.options();
        stop_by_signals(&options.params.stop)?;
        let report = bench::quick(&self.dir, &options)?;
        let is_stdout = self.json.as_ref().is_some_and(|p| p.as_os_str() == "-");
        match &self.json {
            Some(path) if !is_stdout => {
                std::fs::write(path, report.json()).with_context(|| path.display().to_string())?;
                out!("{}", report.table());
            }
            Some(_) => outln!("{}", report.json()),
            None => out!("{}", report.table()),
        }
        Ok(Exit::Done)
    }

    fn options(&self) -> bench::Options {
        let mut options = bench::Options {
            repeats: self.repeats as usize,
            budget_seconds: self.budget,
            progress: !self.quiet,
            ..bench::Options::default()
        };
        let params = &mut options.params;
        params.workers = self.workers.map_or(params.workers, |n| n as usize);
        params.total_bytes = self.bytes.map_or(params.total_bytes, |s| s.0);
        params.files_per_worker = self.files.map_or(params.files_per_worker, |n| n as usize);
        params.direct = self.direct;
        options
    }
}
