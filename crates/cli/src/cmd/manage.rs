//! `stria target`, `stria node`: entries of the cluster map. The management service is asked; targets need not run.

mod add;
mod drain;
pub mod facts;
pub mod remove;
mod replace;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use wire::mgmt::RemovalKind;

use crate::cluster::Cluster;
use crate::exit::{Exit, Failure, unless_said};
use crate::reach::{self, Management, Service};
use crate::rundir::RunDir;
use crate::shell;
use remove::Remove;

/// Retire an OST, take a target out of a cluster for good, give a mirror another device for a lost one, or look at a superblock.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria target drain stria-OST0003 --mgs 10.0.0.5@tcp
Example: stria target remove stria-OST0003 --dry-run --mgs 10.0.0.5@tcp
Example: stria target replace stria-OST0003 --device /dev/nvme4n1 --dry-run --mgs 10.0.0.5@tcp")]
pub struct Target {
    #[command(subcommand)]
    verb: TargetVerb,
}

#[derive(Debug, Subcommand)]
enum TargetVerb {
    /// Make a new OST on this host, or a second member for one that has none. It makes the device, and tells which line of the server's
    /// configuration takes it.
    #[command(after_help = "\
Example: stria target add --device /dev/nvme4n1 --mgs 10.0.0.5@tcp
Example: stria target add --device /dev/nvme4n1 --to-mirror stria-OST0003 --mgs 10.0.0.5@tcp")]
    Add(add::Add),
    /// Retire an OST: it gets no new objects, and the content of all files there moves to other OSTs while programs use them. It may be stopped
    /// (Ctrl-C) and run again at any time.
    #[command(after_help = "\
Example: stria target drain stria-OST0003 --mgs 10.0.0.5@tcp
Example: stria target drain stria-OST0003 --rate 200M --mgs 10.0.0.5@tcp
Example: stria target drain stria-OST0003 --no-move --mgs 10.0.0.5@tcp     (only no new objects)
Exit codes: 0 it is empty, or marked with --no-move; 1 files are left, or it failed; 2 it could not be tried.")]
    Drain(drain::Drain),
    /// Take the mark of a drain back: the OST takes new objects again. Content that has moved stays there.
    #[command(after_help = "Example: stria target undrain stria-OST0003 --mgs 10.0.0.5@tcp")]
    Undrain(drain::Undrain),
    /// Remove an OST from the cluster map, with the bytes of files there. Its device is not touched. Without --confirm it only shows what would be
    /// lost, and ends with exit code 1. An MDT goes with its file system (`stria fs remove`). A member of a mirror of two goes alone, by its id,
    /// if it is out: no file loses bytes.
    #[command(after_help = "\
Example: stria target remove stria-OST0003 --dry-run /mnt/stria
Example: stria target remove 9 --dry-run --mgs 10.0.0.5@tcp     (a member that is out; `stria mirror list` shows its id)
Example: stria target remove 7 --mgs 10.0.0.5@tcp --confirm 20f4-ed4b-a77c")]
    Remove(RemoveTarget),
    /// Replace the device of a member that is out. On the host with the new device: makes the target there, and takes the lost member out of the
    /// cluster map. The server that gets the device then has it filled by the other member, beside the work of clients.
    #[command(after_help = "\
Example: stria target replace stria-OST0003 --device /dev/nvme4n1 --dry-run --mgs 10.0.0.5@tcp
Example: stria target replace 9 --device /dev/nvme4n1 --mgs 10.0.0.5@tcp --confirm 20f4-ed4b-a77c
Exit codes: 0 it is done, or the dry run found no obstacle; 1 nothing was changed; 2 it could not be tried.")]
    Replace(replace::Replace),
    Show(facts::Show),
}

#[derive(Debug, Args)]
struct RemoveTarget {
    /// The target's name, such as stria-OST0003, or its id.
    #[arg(value_name = "NAME|ID")]
    name: String,
    /// Also if it is up. It is better to stop its server first: its clients lose what it has not flushed.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    how: Remove,
}

/// Look at the hosts of a cluster's servers, and take one out.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria node list --mgs 10.0.0.5@tcp\nExample: stria node remove oss3 --dry-run --mgs 10.0.0.5@tcp"
)]
pub struct Node {
    #[command(subcommand)]
    verb: NodeVerb,
}

#[derive(Debug, Subcommand)]
enum NodeVerb {
    /// Show the nodes of the cluster map: id, name, addresses and targets. Several servers on one host are several nodes.
    #[command(after_help = "Example: stria node list --mgs 10.0.0.5@tcp")]
    List(Place),
    /// Remove a node without targets from the cluster map. Without --confirm it only shows the node, and ends with exit code 1.
    #[command(after_help = "Example: stria node remove oss3 --dry-run --mgs 10.0.0.5@tcp")]
    Remove(RemoveNode),
}

#[derive(Debug, Args)]
struct RemoveNode {
    /// The node's name, or its id, such as n3.
    #[arg(value_name = "NAME|ID")]
    name: String,
    #[command(flatten)]
    how: Remove,
}

/// A look at what a command would do, and the consent to that.
#[derive(Debug, Args)]
pub struct Consent {
    /// Show what would be done and lost, and the token that confirms it. Nothing is changed.
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// Do it. The token is that of --dry-run with the same options, for the present state of the cluster.
    #[arg(long, value_name = "TOKEN")]
    pub confirm: Option<String>,
}

impl Consent {
    /// Of a command that was not asked for a dry run, and changed nothing: 1.
    pub fn exit(&self, is_done: bool) -> Exit {
        if is_done || self.dry_run { Exit::Done } else { Exit::Findings }
    }
}

/// Which cluster, and how it is reached.
#[derive(Debug, Args)]
pub struct Place {
    /// The directory of a running `stria up`.
    #[arg(long, conflicts_with_all = ["path", "mgs"], required_unless_present_any = ["path", "mgs"])]
    dir: Option<PathBuf>,
    /// The management service: NID[,NID...].
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "path")]
    mgs: Option<Service>,
    /// A path on a mount.
    path: Option<PathBuf>,
    /// JSON output.
    #[arg(short = 'j', long)]
    pub json: bool,
}

impl Place {
    /// As if these had been given; one of them is.
    pub fn of(dir: Option<PathBuf>, mgs: Option<Service>, path: Option<PathBuf>) -> Place {
        Place { dir, mgs, path, json: false }
    }

    /// The directory of a pair of `stria up`, if that was given.
    pub fn pair(&self) -> Option<(&Path, Cluster)> {
        let dir = self.dir.as_deref()?;
        Cluster::existing(dir).ok().filter(|cluster| cluster.pair).map(|cluster| (dir, cluster))
    }

    pub fn manage(&self) -> anyhow::Result<Management> {
        match (&self.dir, &self.mgs, &self.path) {
            (Some(dir), ..) => {
                let dir = super::absolute(dir)?;
                Management::by_nids(&[RunDir::of(&dir).nid()?]).map_err(|e| {
                    let next = format!("start it with `stria up --dir {}`", shell::path(&dir));
                    let why = format!("the cluster does not answer ({e:#})");
                    unless_said(e, || Failure::unusable(dir.display(), why, next))
                })
            }
            (_, Some(service), _) => service.manage(),
            (.., Some(path)) => Management::by_nids(&reach::mount_of(path)?.1.nids),
            (None, None, None) => {
                Err(Failure::unusable("manage", "no place was given", "give --dir, --mgs or a path").into())
            }
        }
    }

    /// The same place as options of a next command.
    pub(super) fn options(&self, management: &Management) -> String {
        match &self.dir {
            Some(dir) => format!("--dir {}", shell::path(dir)),
            None => format!("--mgs {}", shell::word(&management.nid)),
        }
    }
}

impl Target {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            TargetVerb::Remove(RemoveTarget { name, force, how }) => {
                how.run(RemovalKind::Target, name, force)
            }
            TargetVerb::Add(add) => add.run(),
            TargetVerb::Drain(drain) => drain.run(),
            TargetVerb::Undrain(undrain) => undrain.run(),
            TargetVerb::Replace(replace) => replace.run(),
            TargetVerb::Show(verb) => verb.run(),
        }
    }
}

impl Node {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            NodeVerb::List(place) => list_nodes(&place),
            NodeVerb::Remove(RemoveNode { name, how }) => how.run(RemovalKind::Node, name, false),
        }
    }
}

#[derive(Debug, Serialize)]
struct NodeLine {
    id: String,
    name: String,
    nids: Vec<String>,
    /// Empty: not told.
    rack: String,
    /// Names of its targets.
    targets: Vec<String>,
}

fn list_nodes(place: &Place) -> anyhow::Result<Exit> {
    let map = place.manage()?.map;
    let line = |node: &wire::map::Node| NodeLine {
        id: node.id.to_string(),
        name: node.name.clone(),
        nids: node.nids.clone(),
        rack: node.rack.clone(),
        targets: map
            .targets
            .iter()
            .filter(|t| t.node == node.id)
            .map(|t| mgmt::member_name(&map, t))
            .collect(),
    };
    let lines: Vec<NodeLine> = map.nodes.iter().map(line).collect();
    match place.json {
        true => outln!("{}", serde_json::to_string_pretty(&lines)?),
        false => {
            outln!("{:<6}{:<20}{:<34}{:<10}TARGETS", "ID", "NAME", "NIDS", "RACK");
            for l in &lines {
                let targets = if l.targets.is_empty() { "-".into() } else { l.targets.join(", ") };
                let rack = if l.rack.is_empty() { "-" } else { &l.rack };
                outln!("{:<6}{:<20}{:<34}{rack:<10}{targets}", l.id, l.name, l.nids.join(", "));
            }
        }
    }
    Ok(Exit::Done)
}
