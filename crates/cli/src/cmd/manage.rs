//! `stria target`, `stria node`: entries of the cluster map. The management service is asked; targets need not run.

pub mod remove;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use wire::mgmt::RemovalKind;

use crate::exit::{Exit, Failure, unless_said};
use crate::reach::{self, Management, Service};
use crate::rundir::RunDir;
use crate::shell;
use remove::Remove;

/// Take a target out of a cluster for good.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria target remove stria-OST0003 --dry-run --mgs 10.0.0.5@tcp")]
pub struct Target {
    #[command(subcommand)]
    verb: TargetVerb,
}

#[derive(Debug, Subcommand)]
enum TargetVerb {
    /// Remove an OST from the cluster map, with the bytes of files there. Its device is not touched. Without --confirm it only shows what would be
    /// lost, and ends with exit code 1. An MDT goes with its file system (`stria fs remove`).
    #[command(after_help = "\
Example: stria target remove stria-OST0003 --dry-run /mnt/stria
Example: stria target remove 7 --mgs 10.0.0.5@tcp --confirm 20f4-ed4b-a77c")]
    Remove(RemoveTarget),
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
    fn options(&self, management: &Management) -> String {
        match &self.dir {
            Some(dir) => format!("--dir {}", shell::path(dir)),
            None => format!("--mgs {}", shell::word(&management.nid)),
        }
    }
}

impl Target {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let TargetVerb::Remove(RemoveTarget { name, force, how }) = self.verb;
        how.run(RemovalKind::Target, name, force)
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
    /// Names of its targets.
    targets: Vec<String>,
}

fn list_nodes(place: &Place) -> anyhow::Result<Exit> {
    let map = place.manage()?.map;
    let line = |node: &wire::map::Node| NodeLine {
        id: node.id.to_string(),
        name: node.name.clone(),
        nids: node.nids.clone(),
        targets: map.targets.iter().filter(|t| t.node == node.id).map(|t| remove::name_of(&map, t)).collect(),
    };
    let lines: Vec<NodeLine> = map.nodes.iter().map(line).collect();
    match place.json {
        true => outln!("{}", serde_json::to_string_pretty(&lines)?),
        false => {
            outln!("{:<6}{:<20}{:<34}TARGETS", "ID", "NAME", "NIDS");
            for l in &lines {
                let targets = if l.targets.is_empty() { "-".into() } else { l.targets.join(", ") };
                outln!("{:<6}{:<20}{:<34}{targets}", l.id, l.name, l.nids.join(", "));
            }
        }
    }
    Ok(Exit::Done)
}
