//! `stria bench`: runs measurement plans on any mounted file system, makes reports, and compares two results.

mod hosts;
mod limits;
mod list;
mod mpi;
mod quick;
mod report;
mod run;
mod show;
mod validate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use bench::compare::{Comparison, Finding, Measured};
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure};

/// Measure a directory: sequential, random, many small files, fsync, latency. Works on any file system.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench quick /mnt/stria
         stria bench run pixstor-nvme --dir /mnt/stria --out result --scale small")]
pub struct Bench {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    List(list::List),
    Show(show::Show),
    Validate(validate::Validate),
    Quick(quick::Quick),
    Run(run::Run),
    /// Do what is read from standard input: what `stria bench run` starts.
    #[command(hide = true)]
    Worker,
    /// Start workers on this host for the coordinator that standard input comes from: what `--launch` starts.
    #[command(hide = true)]
    Host,
    Compare(Compare),
    Report(report::Report),
    Ior(mpi::IorArgs),
    Mdtest(mpi::MdtestArgs),
}

/// Two results side by side: ratio with its 95 % interval, and a test whether it is more than chance. Exit code 1: a row is worse.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench compare out-before out-after
         stria bench quick /mnt/a --repeats 5 --out a
         stria bench quick /mnt/b --repeats 5 --out b
         stria bench compare a b")]
struct Compare {
    /// The output of `stria bench run` or `quick --out` (the directory or its records.jsonl) before the change, or of one side.
    before: PathBuf,
    /// The same after the change, or of the other side.
    after: PathBuf,
    /// Differences up to so many percent do not matter, however sure they are.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    tolerance: u32,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    /// Write the comparison as JSON to a file, too.
    #[arg(long, value_name = "FILE")]
    json_to: Option<PathBuf>,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.suite {
            Suite::List(list) => list.run(),
            Suite::Show(show) => show.run(),
            Suite::Validate(validate) => validate.run(),
            Suite::Quick(quick) => quick.run(),
            Suite::Run(run) => run.run(),
            Suite::Worker => {
                bench::worker::serve(std::io::BufReader::new(std::io::stdin()), std::io::stdout())?;
                Ok(Exit::Done)
            }
            Suite::Host => {
                let (input, output) = (std::io::BufReader::new(std::io::stdin()), std::io::stdout());
                let program = std::env::current_exe().context("finding this program")?;
                bench::hosts::serve(input, output, &run::workers(&program), env!("CARGO_PKG_VERSION"))?;
                Ok(Exit::Done)
            }
            Suite::Compare(compare) => compare.run(),
            Suite::Report(report) => report.run(),
            Suite::Ior(ior) => ior.run(),
            Suite::Mdtest(mdtest) => mdtest.run(),
        }
    }
}

/// The first signal stops the measurement, which removes its files; a second one ends the process at once.
pub fn stop_by_signals(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    Ok(())
}

impl Compare {
    fn run(self) -> anyhow::Result<Exit> {
        let read = |path: &Path| {
            Measured::read(path).map_err(|e| {
                Failure::unusable(
                    "bench compare",
                    format!("{e:#}"),
                    "give two results: what `stria bench run` or `stria bench quick` wrote with `--out`",
                )
            })
        };
        let compared =
            Comparison::new(&read(&self.before)?, &read(&self.after)?, self.tolerance as f64 / 100.0);
        if compared.lines.is_empty() {
            let next = "compare two results of the same plan";
            return Err(Failure::unusable("bench compare", "the two have no row in common", next).into());
        }
        if let Some(path) = &self.json_to {
            std::fs::write(path, compared.json()).with_context(|| path.display().to_string())?;
        }
        match self.json {
            true => outln!("{}", compared.json()),
            false => out!("{}", compared.table()),
        }
        Ok(if compared.count(Finding::Worse) > 0 { Exit::Findings } else { Exit::Done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    const HEADER: &str = r#"{"line":"header","format":1,"version":"0","plan":{"name":"none","title":"","about":"","scales":{},"steps":[]},"scale":"min","values":{},"dir":"/d","file_system":"x on y","command":"stria","begun":"","system":[]}"#;

    fn result(dir: &TestDir, name: &str, samples: &[u32]) -> PathBuf {
        let record = |(repeat, ops): (usize, &u32)| {
            format!(
                r#"{{"line":"record","step":"s","point":{{}},"phase":"p","repeat":{repeat},"workers":1,"processes":1,"engine":"sync","command":"","cache":"fresh","seconds":1.0,"first_done":1.0,"last_done":1.0,"ops":{ops},"bytes":0,"read_bytes":0,"stonewall":null,"per_worker":[],"latency":{{}},"timeline":null,"checked":{{"pages":0,"whole_pages":0,"sizes":0}},"cpu_seconds":0.0,"extra":{{}}}}"#
            )
        };
        let records = samples.iter().enumerate().map(record).collect::<Vec<_>>().join("\n");
        let path = dir.path().join(name);
        std::fs::write(&path, format!("{HEADER}\n{records}\n")).unwrap();
        path
    }

    #[test]
    fn the_exit_code_says_whether_a_row_is_worse() {
        let dir = TestDir::new("bench-compare");
        let quick = result(&dir, "quick.jsonl", &[200, 210, 220, 230]);
        let slow = result(&dir, "slow.jsonl", &[100, 110, 120, 130]);
        let run = |before: &Path, after: &Path, tolerance| {
            let (before, after) = (before.to_owned(), after.to_owned());
            Compare { before, after, tolerance, json: false, json_to: Some(dir.path().join("out.json")) }
                .run()
        };
        assert_eq!(run(&quick, &slow, 5).unwrap(), Exit::Findings);
        assert!(
            std::fs::read_to_string(dir.path().join("out.json")).unwrap().contains(r#""finding": "worse""#)
        );
        assert_eq!(run(&quick, &slow, 200).unwrap(), Exit::Done);
        assert_eq!(run(&slow, &quick, 5).unwrap(), Exit::Done);
        let bad = dir.path().join("bad.json");
        std::fs::write(&bad, "{}").unwrap();
        for bad in [bad, dir.path().join("none.json")] {
            let said = run(&quick, &bad, 5).unwrap_err();
            assert_eq!(crate::exit::code_of(&said), Exit::Unusable);
            let said = said.to_string();
            assert!(said.contains(bad.to_str().unwrap()) && said.contains("--out"), "{said}");
        }
    }
}
