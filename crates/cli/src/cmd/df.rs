//! `stria df`: space and inodes per target, as `lfs df` prints them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgAction, Args};

use crate::df::{Unit, What, table};
use crate::exit::{Exit, Failure};
use crate::reach::{self, Source};
use crate::space::TargetSpace;
use crate::{mounts, xattr};

/// Show space or inodes of each MDT and OST, in the columns of `lfs df`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = "Example: stria df -h /mnt/stria")]
pub struct Df {
    /// Sizes with a letter instead of 1024-byte blocks.
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Inodes (MDT) and objects (OST) instead of space.
    #[arg(short = 'i', long)]
    inodes: bool,
    /// Any paths on mounts; default: every Stria mount.
    paths: Vec<PathBuf>,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Df {
    pub fn run(self) -> anyhow::Result<Exit> {
        let mounts = self.mounts()?;
        if mounts.is_empty() {
            return Err(Failure::unusable(
                "df",
                "no Stria file system is mounted",
                "mount one with `stria up`",
            )
            .into());
        }
        let what = if self.inodes { What::Inodes } else { What::Space };
        let unit = if self.human { Unit::Human } else { Unit::Blocks };
        for (point, source) in mounts {
            let targets = targets_of(&point)?;
            out!("{}", table(&source.fsname, &point.display().to_string(), &targets, what, unit));
        }
        Ok(Exit::Done)
    }

    fn mounts(&self) -> anyhow::Result<Vec<(PathBuf, Source)>> {
        if !self.paths.is_empty() {
            return self.paths.iter().map(|p| reach::mount_of(p)).collect();
        }
        // A mount of another version, whose source reads otherwise, is left out; asked for by path it is refused.
        Ok(mounts::ours()
            .into_iter()
            .filter_map(|m| Some((m.point, Source::parse(&m.source).ok()?)))
            .collect())
    }
}

fn targets_of(point: &Path) -> anyhow::Result<Vec<TargetSpace>> {
    let json =
        xattr::get(point, "stria.df").with_context(|| format!("ask the mount at {}", point.display()))?;
    let mut targets: Vec<TargetSpace> = serde_json::from_slice(&json).context("read the mount's answer")?;
    targets.sort_by_key(|t| (t.kind, t.index));
    Ok(targets)
}
