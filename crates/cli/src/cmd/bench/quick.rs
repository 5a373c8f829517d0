//! `stria bench quick`: the plan of that name, with an option for each of its variables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use bench::plan::schema::{Quantities, Quantity};
use bench::plan::{self, Environment};
use bench::run::Settings;
use clap::Args;
use types::Size;

use super::hosts::{Given, HostArgs, root};
use super::limits::LimitArgs;
use super::run::{perform, typed};
use crate::exit::{Exit, Failure};

/// N-N and N-1 sequential, 4 KiB random, mdtest-like files, fsync and latency: each row four times, content verified.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench quick /mnt/stria --workers 4 --repeats 5 --out result")]
pub struct Quick {
    /// An existing directory; what is made in it is removed at the end.
    dir: PathBuf,
    /// Keep the result, with a report page, in a new directory; else it is printed only.
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Worker processes [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Option<u32>,
    /// Bytes of each sequential row, over all workers [default: 1G].
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Size>,
    /// Files of each small-file row, per worker [default: 2000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    files: Option<u32>,
    /// Samples of each row; the table shows their median and interval.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=101))]
    repeats: u32,
    /// Seconds: when they are over, nothing new is begun.
    #[arg(long, value_name = "SECONDS", default_value_t = 75, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// No progress on stderr.
    #[arg(long)]
    quiet: bool,
    /// JSON output: what `summary.json` has.
    #[arg(short = 'j', long)]
    json: bool,
}

impl Quick {
    pub fn run(self) -> anyhow::Result<Exit> {
        let program = std::env::current_exe().context("finding this program")?;
        let unusable = |e: anyhow::Error| {
            Failure::unusable("bench quick", format!("{e:#}"), "see `stria bench quick --help`")
        };
        let Given { hosts, launch } = self.hosts.given(&[], None, &program).map_err(unusable)?;
        let root = root(&self.dir, hosts.as_ref()).map_err(unusable)?;
        if !root.here.is_dir() {
            return Err(
                Failure::unusable(root.here.display(), "it is no directory", "give an existing one").into()
            );
        }
        let limits = self.limits.wanted().map_err(unusable)?;
        let kept = Kept::new(self.out.as_deref());
        let whole = |n: u64| Quantities::One(Quantity::Whole(n));
        let given = [
            ("threads", self.workers.map(u64::from)),
            ("total", self.bytes.map(|size| size.0)),
            ("files", self.files.map(u64::from)),
        ];
        let overrides: BTreeMap<String, Quantities> =
            given.into_iter().filter_map(|(name, n)| Some((name.to_owned(), whole(n?)))).collect();
        let settings = Settings {
            dirs: vec![root],
            out: kept.path.clone(),
            scale: "small".into(),
            environment: Environment {
                ram: bench::system::ram_bytes(),
                cpus: bench::system::cpus() as u32,
                hosts: hosts.as_ref().map_or(0, |hosts| hosts.names.len() as u32),
                overrides,
                ..Environment::default()
            },
            program,
            hosts,
            launch,
            samplers: Vec::new(),
            limits,
            command: typed(),
            version: env!("CARGO_PKG_VERSION").into(),
            progress: !self.quiet,
            repeats: Some([self.repeats; 2]),
            budget_seconds: Some(self.budget),
            stop: Arc::default(),
        };
        let exit = perform(&plan::load("quick")?, &settings, self.json)?;
        if !kept.is_temporary && !self.json {
            outln!("\nreport: {}", settings.out.join(bench::report::PAGE).display());
        }
        Ok(exit)
    }
}

/// The directory of the result: a given one, or a temporary one that is removed at the end.
struct Kept {
    path: PathBuf,
    is_temporary: bool,
}

impl Kept {
    fn new(out: Option<&std::path::Path>) -> Kept {
        let is_temporary = out.is_none();
        let temporary = || std::env::temp_dir().join(format!("stria-quick.{}", std::process::id()));
        Kept { path: out.map_or_else(temporary, PathBuf::from), is_temporary }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_temporary {
            std::fs::remove_dir_all(&self.path).ok();
        }
    }
}
