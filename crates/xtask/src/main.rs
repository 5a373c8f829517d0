//! `cargo xtask`: what a developer does with this repository beside building it.

mod bars;
mod hosts;
mod load;
mod locker;
mod long;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use testkit::{Cluster, Shape, Wiring};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, clusters, suites and bars of this repository")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, clippy, tidy and `cargo test`: what must hold before a change is sent.
    Ci,
    /// Layer edges, purity, unsafe, sizes, SEMANTICS ids.
    Tidy {
        /// Only print what reads like a riddle in one crate, or in `docs`.
        #[arg(long, value_name = "CRATE")]
        riddles: Option<String>,
    },
    /// Suites on mounted file systems of real processes (release build).
    Suite {
        #[arg(long, value_enum, default_value = "short")]
        scale: ScaleName,
        /// Default: all four: in one process, over TCP, over TCP with two mounts, and mirrored.
        #[arg(long, value_enum)]
        wiring: Option<WiringName>,
        /// Only tests whose name contains this.
        #[arg(long)]
        only: Option<String>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where clusters live while tested; default: a directory below the system's temporary one.
        #[arg(long)]
        dir: Option<PathBuf>,
        #[arg(long)]
        list: bool,
    },
    /// A cluster of separate processes over TCP on loopback, until Enter is pressed.
    Cluster {
        #[arg(long, default_value_t = 4)]
        osts: usize,
        #[arg(long, default_value = "2G")]
        ost_size: String,
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Hosts as network namespaces with clusters, mounts and limited links (release build): prints a table, runs a command or waits for Enter,
    /// and takes everything down. Needs root, and the packages iproute2 and util-linux.
    Hosts(hosts::Settings),
    /// Measures the bars of speed on one loop device; prints a line per bar. `road`: Stria against a pass-through file system.
    /// `ost`: the OST engine against fio. `mds`: the metadata service against ext4, an echo server and the null file system. These two fail if a
    /// bar is not met. `share`: one mount against two mounts over TCP. `pair`: two members of each target against one. Needs root and about
    /// 14 GB of disk, or 8 for ost. `tls`: the time of a connection with a full handshake and with a resumed session; needs neither.
    Bars {
        #[arg(value_enum)]
        set: BarSet,
        /// Where the disk image lives; kept for the next run.
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Size of the disk image [default: 12, 8 for ost].
        #[arg(long)]
        gib: Option<u64>,
        /// At most so many pairs [default: as many as ten minutes allow].
        #[arg(long, default_value_t = 15)]
        pairs: usize,
        /// Only rows whose title contains one of these, separated by commas; for work on one of them, not for a verdict.
        #[arg(long, default_value = "")]
        rows: String,
    },
    /// Thousands of sessions at one MDT and one OST over TCP on loopback (release build), which are killed and started again. Prints what
    /// the sessions cost the servers, latencies, and how long they take to attach and to come back; fails if a bar is not met.
    Load {
        #[arg(long, default_value_t = 10_000)]
        sessions: u64,
        /// How long the active sessions work before the servers are killed.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// Where the cluster lives; default: a directory below the system's temporary one.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Drills of a mirrored file system on hosts that are network namespaces (release build): a server, its link, its disk or the management
    /// service fails under probes, and comes back. Prints a table of errors, stalls and times; fails if a program sees an error.
    Drill(suite::drills::Settings),
    /// Shows files on a disk that fails as it is told; started by `drill` and `suite`.
    #[command(hide = true)]
    FaultyDisk(suite::drills::media::Settings),
    /// Drives sessions; started by `load` and `suite`.
    #[command(hide = true)]
    LoadWorker(load::WorkerArgs),
    /// Takes locks as it is told; started by `suite`.
    #[command(hide = true)]
    Locker,
    /// Works on names among others; started by `suite`.
    #[command(hide = true)]
    StormWorker(suite::storm::Orders),
    /// Holds free memory; started by `bars`.
    #[command(hide = true)]
    HoldMemory,
    /// Full counts of every test and suite, on all wirings, in hours; writes results to docs/proof. Needs a clean tree.
    Long {
        /// Only this part; may be given several times.
        #[arg(long, value_enum)]
        part: Vec<long::Part>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where clusters live while tested; default: a directory below the system's temporary one.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum ScaleName {
    Short,
    Long,
}

#[derive(Clone, Copy, ValueEnum)]
enum BarSet {
    Road,
    Ost,
    Mds,
    Share,
    Pair,
    Tls,
}

#[derive(Clone, Copy, ValueEnum)]
enum WiringName {
    Local,
    Tcp,
    /// Over TCP with two mounts: what a test does through one it looks at through the other.
    Two,
    /// Over TCP, and each target is a mirror of two members. The short form is short here.
    Pair,
}

/// A round of `bars share` or `bars pair` takes about a minute.
const ROUNDS_MAX: usize = 8;

fn main() -> Result<()> {
    match Args::parse().task {
        Task::Ci => ci(),
        Task::Tidy { riddles: Some(place) } => tidy::show_riddles(&place),
        Task::Tidy { riddles: None } => tidy::run(),
        Task::Suite { list: true, .. } => {
            suite::all().iter().for_each(|(_, (name, _))| println!("{name}"));
            Ok(())
        }
        Task::Suite { scale, wiring, only, seed, dir, .. } => {
            let scale = match scale {
                ScaleName::Short => suite::Scale::SHORT,
                ScaleName::Long => suite::Scale::LONG,
            };
            let wirings = match wiring {
                Some(WiringName::Local) => vec![Wiring::Local],
                Some(WiringName::Tcp) => vec![Wiring::Tcp],
                Some(WiringName::Two) => vec![Wiring::Two],
                Some(WiringName::Pair) => vec![Wiring::Pair],
                None => vec![Wiring::Local, Wiring::Tcp, Wiring::Two, Wiring::Pair],
            };
            suite::run(&binary()?, &work_dir(dir), scale, &wirings, only.as_deref(), seed)
        }
        Task::Cluster { osts, ost_size, dir } => {
            cluster(Shape { wiring: Wiring::Tcp, osts, ost_size, tls: false, etcd: vec![] }, &work_dir(dir))
        }
        Task::Hosts(settings) => hosts::run(&binary()?, &settings),
        Task::Load { sessions, seconds, dir } => load::load(&binary()?, &work_dir(dir), sessions, seconds),
        Task::LoadWorker(args) => load::work(args),
        Task::Drill(settings) => suite::drills::run(&binary()?, &settings),
        Task::FaultyDisk(settings) => suite::drills::media::serve(&settings),
        Task::Locker => locker::run(),
        Task::StormWorker(orders) => suite::storm::work(orders),
        Task::HoldMemory => bars::warm::hold(),
        Task::Bars { set: BarSet::Ost, dir, gib, pairs, rows } => {
            let began = Instant::now();
            cargo(&["build", "--release", "--quiet", "--package", "stria"])?;
            let (bin, base, gib) = (binary()?, bars_dir(dir), gib.unwrap_or(8));
            bars::ost::ost(&bars::ost::Settings { bin, base, gib, pairs_max: pairs, rows, began })
        }
        Task::Bars { set: BarSet::Mds, dir, gib, pairs, rows } => {
            let began = Instant::now();
            cargo(&["build", "--release", "--quiet", "--package", "stria", "--package", "stria-yardstick"])?;
            let (bin, base, gib) = (binary()?, bars_dir(dir), gib.unwrap_or(12));
            let yardsticks = bars::yardstick_dir(&bin)?;
            bars::mds::mds(&bars::mds::Settings { bin, yardsticks, base, gib, pairs_max: pairs, rows, began })
        }
        Task::Bars { set: BarSet::Road, dir, gib, pairs, rows } => {
            cargo(&["build", "--release", "--quiet", "--package", "stria", "--package", "stria-yardstick"])?;
            let (bin, base, gib) = (binary()?, bars_dir(dir), gib.unwrap_or(12));
            bars::road(&bars::Settings {
                yardsticks: bars::yardstick_dir(&bin)?,
                bin,
                base,
                gib,
                pairs_max: pairs,
                rows,
            })
        }
        Task::Bars { set: BarSet::Tls, dir, .. } => bars::tls::tls(&bars_dir(dir)),
        Task::Bars { set: BarSet::Share, dir, gib, pairs, .. } => {
            cargo(&["build", "--release", "--quiet", "--package", "stria"])?;
            let (bin, base, gib) = (binary()?, bars_dir(dir), gib.unwrap_or(12));
            bars::share::share(&bars::share::Settings { bin, base, gib, rounds: pairs.min(ROUNDS_MAX) })
        }
        Task::Bars { set: BarSet::Pair, dir, gib, pairs, rows } => {
            cargo(&["build", "--release", "--quiet", "--package", "stria"])?;
            let (bin, base, gib) = (binary()?, bars_dir(dir), gib.unwrap_or(12));
            bars::pair::pair(&bars::pair::Settings { bin, base, gib, rounds: pairs.min(ROUNDS_MAX), rows })
        }
        Task::Long { part, seed, dir } => {
            let parts = if part.is_empty() { long::Part::value_variants() } else { &part };
            long::run(parts, &work_dir(dir), seed)
        }
    }
}

fn ci() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    tidy::run()?;
    cargo(&["test", "--quiet", "--workspace"])
}

pub fn cargo(args: &[&str]) -> Result<()> {
    println!("+ cargo {}", args.join(" "));
    if !Command::new("cargo").args(args).status()?.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

/// The release binary: `STRIA_BIN`, or the one that `cargo build --release` made.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os("STRIA_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
            Path::new(&target).join("release/stria")
        }
    };
    path.canonicalize().with_context(|| format!("{}: run cargo build --release first", path.display()))
}

fn bars_dir(dir: Option<PathBuf>) -> PathBuf {
    dir.unwrap_or_else(|| std::env::temp_dir().join("stria-bars"))
}

pub fn work_dir(dir: Option<PathBuf>) -> PathBuf {
    dir.unwrap_or_else(|| std::env::temp_dir().join("stria-suites"))
}

fn cluster(shape: Shape, parent: &Path) -> Result<()> {
    let cluster = Cluster::start(&binary()?, parent, shape)?;
    println!("mounted at {}; configs and logs in {}", cluster.mount.display(), cluster.dir.display());
    for role in cluster.roles() {
        println!("  {role:?}: pid {}", cluster.pid(role).unwrap_or_default());
    }
    println!("press Enter to stop and remove it");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
