//! `stria df`: space and inodes per target, as `lfs df` prints them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgAction, Args};
use serde::Serialize;
use wire::map::Target;
use wire::session::TargetStat;

use crate::df::{Unit, What, sum, table};
use crate::exit::{Exit, Failure};
use crate::reach::{self, Reach, Service, Source};
use crate::space::{Kind, State, TargetSpace};
use crate::{mounts, xattr};

/// Show space or inodes of each MDT and OST, in the columns of `lfs df`.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Example: stria df -h /mnt/stria
Example: stria df -h --mgs 10.0.0.5@tcp     (from any host that reaches the servers)
Exit codes: 0 every target is in the sum; 1 one is down and is not; 2 it could not be looked at."
)]
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
    /// The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems.
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "paths")]
    mgs: Option<Service>,
    /// Any paths on mounts; default: every Stria mount.
    paths: Vec<PathBuf>,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Df {
    pub fn run(self) -> anyhow::Result<Exit> {
        let all = self.seen()?;
        if self.json {
            let shown: Vec<Shown> = all.iter().map(Shown::new).collect();
            outln!("{}", serde_json::to_string_pretty(&shown)?);
        } else {
            all.iter().for_each(|seen| out!("{}", self.text(seen)));
        }
        let mut is_whole = true;
        for Seen { fsname, targets, .. } in &all {
            let (down, of) = (targets.iter().filter(|t| !t.is_up()).count(), targets.len());
            if down > 0 {
                is_whole = false;
                crate::logs::tell(&format!(
                    "stria: df of {fsname}: {down} of {of} targets are down, and not in the sum; `stria status` says which servers to start"
                ));
            }
        }
        Ok(if is_whole { Exit::Done } else { Exit::Findings })
    }

    fn text(&self, seen: &Seen) -> String {
        let what = if self.inodes { What::Inodes } else { What::Space };
        let unit = if self.human { Unit::Human } else { Unit::Blocks };
        let place = seen.mount.as_ref().map_or("-".to_owned(), |m| m.display().to_string());
        table(&seen.fsname, &place, &seen.targets, what, unit)
    }

    fn seen(&self) -> anyhow::Result<Vec<Seen>> {
        if let Some(service) = &self.mgs {
            return Ok(service.all()?.iter().map(of_service).collect());
        }
        let mounts = self.mounts()?;
        if mounts.is_empty() {
            let next = "mount one with `stria up`, or give --mgs NID";
            return Err(Failure::unusable("df", "no Stria file system is mounted", next).into());
        }
        let of_mount = |(point, source): (PathBuf, Source)| {
            let targets = targets_of(&point)?;
            Ok(Seen { fsname: source.fsname, mount: Some(point), targets })
        };
        mounts.into_iter().map(of_mount).collect()
    }

    fn mounts(&self) -> anyhow::Result<Vec<(PathBuf, Source)>> {
        if !self.paths.is_empty() {
            return self.paths.iter().map(|p| reach::mount_of(p)).collect();
        }
        // Skips a mount of another version, whose source cannot be parsed; if its path is given, it is refused.
        Ok(mounts::ours()
            .into_iter()
            .filter_map(|m| Some((m.point, Source::parse(&m.source).ok()?)))
            .collect())
    }
}

/// The JSON output.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    fsname: String,
    /// Mount point; none if it is reached through its management service.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount: Option<String>,
    pub targets: Vec<Line>,
    /// The sum, as in the last line of the table.
    pub summary: Sum,
}

#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub name: String,
    kind: Kind,
    index: u32,
    /// If it is down, all numbers are 0, and it is not in the sum.
    state: State,
    /// An OST that gets no new objects.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Why it is down.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    bytes_total: u64,
    pub bytes_used: u64,
    bytes_free: u64,
    /// Available to users.
    bytes_available: u64,
    /// Inodes of an MDT, objects of an OST.
    files_total: u64,
    pub files_used: u64,
    files_free: u64,
}

/// Space is that of OSTs. Inodes are those of MDTs, as `statfs` tells them.
#[derive(Debug, Serialize)]
pub(super) struct Sum {
    pub bytes_total: u64,
    pub bytes_used: u64,
    bytes_available: u64,
    files_total: u64,
    files_used: u64,
    files_free: u64,
}

impl Line {
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }
}

impl Shown {
    fn new(seen: &Seen) -> Shown {
        let Seen { fsname, mount, targets } = seen;
        let line = |t: &TargetSpace| Line {
            name: super::status::target_name(fsname, t.is_mdt(), t.index),
            kind: t.kind,
            index: t.index,
            state: t.state,
            draining: t.draining,
            why: t.why.clone(),
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
            fsname: fsname.clone(),
            mount: mount.as_ref().map(|m| m.to_string_lossy().into_owned()),
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

/// One file system.
struct Seen {
    fsname: String,
    /// Its mount point, if it is reached there.
    mount: Option<PathBuf>,
    targets: Vec<TargetSpace>,
}

/// The space of a file system's targets, by their answers.
pub(super) fn shown(reach: &Reach) -> Shown {
    Shown::new(&of_service(reach))
}

fn of_service(reach: &Reach) -> Seen {
    let ask = |target: &Target| {
        let kind = if target.is_mdt { Kind::Mdt } else { Kind::Ost };
        let draining = reach.map.is_draining(target.mirror);
        TargetSpace { draining, ..TargetSpace::of(kind, target.index, reach.ask(target.id, &TargetStat {})) }
    };
    let targets = reach.ask_all(&reach.primaries(), ask);
    Seen { fsname: reach.file_system().name.clone(), mount: None, targets }
}

pub(super) fn targets_of(point: &Path) -> anyhow::Result<Vec<TargetSpace>> {
    let json =
        xattr::get(point, "stria.df").with_context(|| format!("ask the mount at {}", point.display()))?;
    let mut targets: Vec<TargetSpace> = serde_json::from_slice(&json).context("read the mount's answer")?;
    targets.sort_by_key(|t| (t.kind, t.index));
    Ok(targets)
}
