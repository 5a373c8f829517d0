//! `stria bench run`: measures a plan.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use bench::crew::Local;
use bench::plan::schema::{Quantities, Quantity};
use bench::plan::{self, Environment, Plan};
use bench::record::Results;
use bench::report;
use bench::run::{Ran, Settings};
use clap::Args;

use super::hosts::{Given, HostArgs, root};
use super::limits::LimitArgs;
use crate::cmd::completions::{Offered, plans, scales};
use crate::exit::{Exit, Failure};
use crate::shell;

/// Run a plan in a directory of any mounted file system; the result is a directory with records, tables, figures and a report page.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench run pixstor-nvme --dir /mnt/stria --out result --scale small
         stria bench run fsx-lustre --dir /mnt/stria --out result --set threads=1,2,4,8
         stria bench run lnet-routers --dir /mnt/fs1 --dir /mnt/fs2 --hosts h1,h2 --launch 'ssh {host}' --set routers=1 --out one
         stria bench list")]
pub struct Run {
    /// A plan of `stria bench list`, or a file.
    #[arg(value_parser = Offered(plans), hide_possible_values = true)]
    plan: String,
    /// The directory to measure, which must exist; several times: one on each file system, for plans that use several at once. The
    /// run removes its files at the end. With hosts, {host} in it is the host's name.
    #[arg(long, value_name = "DIR", required = true)]
    dir: Vec<PathBuf>,
    /// Where the result goes: a new directory.
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// min: under 2 minutes, to try it. small: under 15. full: as published.
    #[arg(long, value_name = "SCALE", default_value = "small", value_parser = Offered(scales))]
    scale: String,
    /// A variable of the plan, in place of what the scale says: threads=1,2,4.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Files or devices for plans that measure devices. Their content is overwritten.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    targets: Vec<PathBuf>,
    /// Yes, what the targets hold may be overwritten.
    #[arg(long)]
    yes: bool,
    /// Samples of each point: N, or from N to M until their interval is narrow.
    #[arg(long, value_name = "N[-M]")]
    repeats: Option<String>,
    /// Seconds for the whole plan: then nothing new is begun.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    #[command(flatten)]
    hosts: HostArgs,
    /// A command that prints a line of JSON with numbers now and then: they are recorded through the run. May be given several times.
    #[arg(long, value_name = "COMMAND")]
    sampler: Vec<String>,
    #[command(flatten)]
    limits: LimitArgs,
    /// No progress on stderr.
    #[arg(long)]
    quiet: bool,
    /// JSON output: what `summary.json` has.
    #[arg(short = 'j', long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> anyhow::Result<Exit> {
        let unusable = |e: anyhow::Error, next: &str| Failure::unusable("bench run", format!("{e:#}"), next);
        let plan = plan::load(&self.plan).map_err(|e| unusable(e, "see `stria bench list`"))?;
        let settings = self.settings(&plan).map_err(|e| unusable(e, "see `stria bench run --help`"))?;
        if let Some(root) = settings.dirs.iter().find(|root| !root.here.is_dir()) {
            return Err(
                Failure::unusable(root.here.display(), "it is no directory", "give an existing one").into()
            );
        }
        let exit = perform(&plan, &settings, self.json)?;
        if !self.json {
            outln!("\nreport: {}", settings.out.join(report::PAGE).display());
        }
        Ok(exit)
    }

    fn settings(&self, plan: &Plan) -> anyhow::Result<Settings> {
        let program = std::env::current_exe().context("finding this program")?;
        let Given { hosts, launch } = self.hosts.given(&plan.hosts, plan.launch.as_deref(), &program)?;
        let dirs =
            self.dir.iter().map(|dir| root(dir, hosts.as_ref())).collect::<anyhow::Result<Vec<_>>>()?;
        let samplers = match self.sampler.is_empty() {
            true => Some(plan.sampler.clone()).filter(|words| !words.is_empty()).into_iter().collect(),
            false => {
                let words = self.sampler.iter().map(|text| bench::hosts::words(text));
                words.collect::<anyhow::Result<Vec<_>>>().context("--sampler")?
            }
        };
        let repeats = self.repeats.as_deref().map(repeats).transpose()?;
        let overrides = self.settings.iter().map(|s| set(s)).collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let targets: Vec<PathBuf> =
            self.targets.iter().map(|path| target(path, self.yes)).collect::<anyhow::Result<_>>()?;
        let mut seen = std::collections::BTreeSet::new();
        for path in &targets {
            anyhow::ensure!(seen.insert(path), "--targets {}: it is given twice", path.display());
        }
        let sizes = targets.iter().map(|path| bytes_of(path)).collect::<anyhow::Result<Vec<u64>>>()?;
        let environment = Environment {
            ram: bench::system::ram_bytes(),
            cpus: bench::system::cpus() as u32,
            targets,
            target_bytes: sizes.into_iter().min().unwrap_or(0),
            hosts: hosts.as_ref().map_or(0, |hosts| hosts.names.len() as u32),
            file_systems: dirs.len() as u32,
            overrides,
        };
        Ok(Settings {
            dirs,
            out: self.out.clone(),
            scale: self.scale.clone(),
            environment,
            program,
            hosts,
            launch,
            samplers,
            limits: self.limits.wanted()?,
            command: typed(),
            version: env!("CARGO_PKG_VERSION").into(),
            progress: !self.quiet,
            repeats,
            budget_seconds: self.budget,
            stop: Arc::default(),
        })
    }
}

/// Measures, writes the report beside the records, and prints its tables.
pub fn perform(plan: &Plan, settings: &Settings, json: bool) -> anyhow::Result<Exit> {
    super::stop_by_signals(&settings.stop)?;
    let ran = bench::run::run(plan, settings, workers(&settings.program))?;
    let results = Results::read(&report::records_of(&settings.out))?;
    report::write(&results, &settings.out)?;
    match json {
        true => outln!("{}", report::json(&results)),
        false => out!("{}", report::text(&results)),
    }
    Ok(exit_of(ran))
}

/// The command line of this program.
pub fn typed() -> String {
    std::env::args().map(|word| shell::word(&word)).collect::<Vec<_>>().join(" ")
}

/// Worker processes of this program.
pub fn workers(program: &Path) -> Local {
    Local { command: vec![program.to_owned(), "bench".into(), "worker".into()] }
}

/// After Ctrl-C the partial result is kept, but the run is incomplete.
fn exit_of(ran: Ran) -> Exit {
    if ran.stopped || ran.failed > 0 { Exit::Findings } else { Exit::Done }
}

/// `N`, or `N-M`.
fn repeats(text: &str) -> anyhow::Result<[u32; 2]> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let number = |t: &str| t.parse::<u32>().ok().filter(|n| (1..=1000).contains(n));
    match (number(least), number(most)) {
        (Some(least), Some(most)) if least <= most => Ok([least, most]),
        _ => anyhow::bail!("--repeats {text}: give a number such as 5, or a range such as 3-10"),
    }
}

/// `NAME=VALUE[,VALUE...]`.
pub fn set(text: &str) -> anyhow::Result<(String, Quantities)> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .with_context(|| format!("--set {text}: give NAME=VALUE, such as threads=1,2,4"))?;
    let one = |text: &str| text.parse().map_or_else(|_| Quantity::Text(text.into()), Quantity::Whole);
    let quantities = match value.split_once(',') {
        None => Quantities::One(one(value)),
        Some(_) => Quantities::Many(value.split(',').map(one).collect()),
    };
    Ok((name.into(), quantities))
}

/// A target that may be overwritten, as an absolute path.
fn target(path: &Path, yes: bool) -> anyhow::Result<PathBuf> {
    let named = || format!("--targets {}", path.display());
    let path = path.canonicalize().with_context(named)?;
    let kind = path.metadata()?.file_type();
    anyhow::ensure!(
        kind.is_file() || kind.is_block_device(),
        "{}: it is no file and no block device",
        named()
    );
    anyhow::ensure!(bytes_of(&path)? > 0, "{}: it is empty; give it the size that may be filled", named());
    anyhow::ensure!(yes, "{}: its content would be overwritten; give --yes to allow that", named());
    if kind.is_block_device() {
        // Opened exclusively, which fails for a device that is mounted or part of another device.
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL;
        rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
            .with_context(|| format!("{}: it is in use", named()))?;
    }
    Ok(path)
}

/// Size of a file or device.
pub fn bytes_of(path: &Path) -> anyhow::Result<u64> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read() {
        let many = Quantities::Many(vec![Quantity::Whole(1), Quantity::Text("8M".into())]);
        assert_eq!(set("threads=1,8M").unwrap(), ("threads".into(), many));
        assert_eq!(set("total=1G").unwrap().1, Quantities::One(Quantity::Text("1G".into())));
        assert_eq!(repeats("3-10").unwrap(), [3, 10]);
        assert_eq!(repeats("5").unwrap(), [5, 5]);
        for bad in ["threads", "=1", "threads="] {
            assert!(set(bad).unwrap_err().to_string().contains("NAME=VALUE"), "{bad}");
        }
        for bad in ["0", "5-3", "x", "", "1-", "100000"] {
            assert!(repeats(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_target_holds_is_not_overwritten_unasked() {
        let dir = crate::testdir::TestDir::new("bench-targets");
        let path = dir.path().join("t");
        let said = |yes| target(&path, yes).map_or_else(|e| format!("{e:#}"), |_| "taken".into());
        std::fs::write(&path, "").unwrap();
        assert!(said(true).contains("empty"), "{}", said(true));
        std::fs::write(&path, "precious").unwrap();
        assert!(said(false).contains("--yes"), "{}", said(false));
        assert_eq!((said(true), bytes_of(&path).unwrap()), ("taken".into(), 8));
        assert!(target(dir.path(), true).is_err());
        let twice = Run { targets: vec![path.clone(), path.clone()], ..bare() };
        assert!(
            format!("{:#}", twice.settings(&plan::load("quick").unwrap()).unwrap_err()).contains("twice")
        );
    }

    fn bare() -> Run {
        Run {
            plan: "quick".into(),
            dir: vec![".".into()],
            hosts: HostArgs::default(),
            sampler: Vec::new(),
            limits: LimitArgs::default(),
            out: "out".into(),
            scale: "min".into(),
            settings: Vec::new(),
            targets: Vec::new(),
            yes: true,
            repeats: None,
            budget: None,
            quiet: true,
            json: false,
        }
    }
}
