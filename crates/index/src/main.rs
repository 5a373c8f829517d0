//! `stria-index`: an index of a file system in SQLite, and searches in it. `stria index` and `stria find -db` start it.
//!
//! It is a program of its own because SQLite takes longer to build than most of Stria, and few hosts need it (decision 0080).

mod analytics;
mod change;
mod db;
mod follow;
mod live;
mod search;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An index of a file system: names, sizes, owners, times and striping, for searches without a walk.
#[derive(Debug, Parser)]
#[command(
    name = "stria index",
    version,
    after_help = "Exit codes: 0 done, 1 failed or the index is not complete, 2 it could not be tried.
Example: stria index run --db /var/lib/stria/index.db /mnt/stria
Example: stria find -db /var/lib/stria/index.db /mnt/stria/data -name '*.h5' -size +1G"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make the index with one scan, then follow the changelog for ever. It goes on where it was after a stop. While the file system is not mounted,
    /// it waits. It needs the right to read the changelog (role admin), and to read the mount as root.
    Run(Run),
    /// Show how much is indexed, and how far it has followed.
    Status {
        /// The index.
        #[arg(long)]
        db: PathBuf,
        /// JSON output.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Write a page that shows what is there: sizes, ages, owners, kinds, the largest directories, growth, waste. CSV files lie beside it.
    Analytics {
        /// The index.
        #[arg(long)]
        db: PathBuf,
        /// The directory for `index.html` and the CSV files.
        #[arg(long)]
        out: PathBuf,
    },
    /// As `stria find`, with the index in place of a walk.
    Find {
        /// The index.
        #[arg(long)]
        db: PathBuf,
        /// JSON output: an object per line.
        #[arg(short = 'j', long)]
        json: bool,
        /// As of `stria find`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The index; it is made if it is not there.
    #[arg(long)]
    db: PathBuf,
    /// Follow what has changed up to now, and end.
    #[arg(long)]
    once: bool,
    /// Forget what is indexed, and scan anew.
    #[arg(long)]
    rebuild: bool,
    /// The mount.
    mount: PathBuf,
}

/// The index could not be used as asked; nothing was tried.
#[derive(Debug)]
pub struct Unusable(pub String);

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Unusable {}

/// The path is no mount of Stria at this moment. A mount may come, or come again.
#[derive(Debug)]
pub struct NoMount(pub PathBuf);

impl std::fmt::Display for NoMount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: it is no mount of Stria; `stria df` lists the mounts", self.0.display())
    }
}
impl std::error::Error for NoMount {}

/// 2: it could not be tried.
fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Unusable>() || error.is::<NoMount>() { 2 } else { 1 }
}

/// Prints a line. A reader that is gone is an error, and no panic.
fn say(line: impl std::fmt::Display) -> std::io::Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout().lock(), "{line}")
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Run(Run { db, once, rebuild, mount }) => follow::run(&db, &mount, once, rebuild),
        Verb::Status { db, json } => follow::status(&db, json),
        Verb::Analytics { db, out } => analytics::run(&db, &out),
        Verb::Find { db, json, words } => search::run(&db, &words, json),
    };
    match done {
        Ok(is_complete) => ExitCode::from(u8::from(!is_complete)),
        Err(error) => {
            eprintln!("stria: {error:#}");
            ExitCode::from(code_of(&error))
        }
    }
}
