//! `stria df`: space and inodes per target, as `lfs df` prints them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgAction, Args};
use serde::Serialize;

use crate::df::{Unit, What, sum, table};
use crate::exit::{Exit, Failure};
use crate::reach::{self, Source};
use crate::space::{Kind, TargetSpace};
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
    /// JSON output: all numbers, of targets and of their sum.
    #[arg(short = 'j', long, conflicts_with_all = ["human", "inodes"])]
    json: bool,
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
        if self.json {
            let all: Vec<Shown> = mounts
                .iter()
                .map(|(point, source)| Ok(Shown::new(&source.fsname, point, &targets_of(point)?)))
                .collect::<anyhow::Result<_>>()?;
            outln!("{}", serde_json::to_string_pretty(&all)?);
            return Ok(Exit::Done);
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

/// Of one mount.
#[derive(Debug, Serialize)]
struct Shown {
    fsname: String,
    /// Mount point.
    mount: String,
    targets: Vec<Line>,
    /// As in the last line of the table.
    summary: Sum,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    kind: Kind,
    index: u32,
    bytes_total: u64,
    bytes_used: u64,
    bytes_free: u64,
    /// To users.
    bytes_available: u64,
    /// Inodes of an MDT, objects of an OST.
    files_total: u64,
    files_used: u64,
    files_free: u64,
}

/// Space is that of OSTs, inodes are those of MDTs, or fewer where OSTs have no room for so many objects.
#[derive(Debug, Serialize)]
struct Sum {
    bytes_total: u64,
    bytes_used: u64,
    bytes_available: u64,
    files_total: u64,
    files_used: u64,
    files_free: u64,
}

impl Shown {
    fn new(fsname: &str, mount: &Path, targets: &[TargetSpace]) -> Shown {
        let line = |t: &TargetSpace| Line {
            name: super::status::target_name(fsname, t.is_mdt(), t.index),
            kind: t.kind,
            index: t.index,
            bytes_total: t.bytes_total,
            bytes_used: t.bytes_total.saturating_sub(t.bytes_free),
            bytes_free: t.bytes_free,
            bytes_available: t.bytes_available,
            files_total: t.files_total,
            files_used: t.files_total.saturating_sub(t.files_free),
            files_free: t.files_free,
        };
        let (space, files) = (sum(targets, What::Space), sum(targets, What::Inodes));
        Shown {
            fsname: fsname.to_owned(),
            mount: mount.to_string_lossy().into_owned(),
            targets: targets.iter().map(line).collect(),
            summary: Sum {
                bytes_total: space.total,
                bytes_used: space.used,
                bytes_available: space.available,
                files_total: files.total,
                files_used: files.used,
                files_free: files.available,
            },
        }
    }
}

fn targets_of(point: &Path) -> anyhow::Result<Vec<TargetSpace>> {
    let json =
        xattr::get(point, "stria.df").with_context(|| format!("ask the mount at {}", point.display()))?;
    let mut targets: Vec<TargetSpace> = serde_json::from_slice(&json).context("read the mount's answer")?;
    targets.sort_by_key(|t| (t.kind, t.index));
    Ok(targets)
}
