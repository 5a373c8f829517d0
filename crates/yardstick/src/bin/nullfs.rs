//! `nullfs MNT`: a file system in memory that keeps names and sizes and no data, until it is unmounted or gets SIGTERM.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use fuse::MountOptions;
use yardstick::null::Null;

/// Answers every FUSE request from memory: the yardstick for the most that FUSE allows.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where to mount it
    mountpoint: PathBuf,
    /// Serving threads
    #[arg(long, default_value_t = fuse::THREADS)]
    threads: usize,
    /// The mount's type is shown as `fuse.<SUBTYPE>`
    #[arg(long, default_value = "nullfs")]
    subtype: String,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut options = MountOptions::new("null");
    options.subtype = args.subtype;
    options.threads = args.threads;
    yardstick::run(Null::new(options.clone()), &args.mountpoint, &options)
}
