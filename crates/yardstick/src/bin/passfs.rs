//! `passfs SRC MNT`: shows the directory SRC at MNT through FUSE, until it is unmounted or gets SIGTERM.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use fuse::MountOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use yardstick::pass::Pass;

/// Shows a directory through FUSE, request by request: the yardstick for what FUSE costs over a local file system.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Directory to show
    source: PathBuf,
    /// Where to mount it
    mountpoint: PathBuf,
    /// Serving threads
    #[arg(long, default_value_t = fuse::THREADS)]
    threads: usize,
    /// Say that there are no extended attributes: the kernel then asks for none before a file's first write
    #[arg(long)]
    no_xattr: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // A descriptor is held per inode that the kernel knows.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })
        .context("cannot raise the limit of open files")?;
    let mut options = MountOptions::new(args.source.display().to_string());
    options.subtype = "passfs".into();
    options.threads = args.threads;
    let pass = Pass::new(&args.source, options.clone(), !args.no_xattr)
        .with_context(|| format!("{} cannot be shown", args.source.display()))?;
    yardstick::run(pass, &args.mountpoint, &options)
}
