//! The removal of a target, a file system or a node: shows what is lost, and does it once a token confirms it.

use bench::wrap::wrap;
use clap::Args;
use serde::Serialize;
use types::TargetId;
use types::size::human;
use wire::map::{ClusterMap, Target};
use wire::mgmt::{PlanRemoval, PlanRemovalReply, RemovalKind};
use wire::session::{TargetStat, TargetStatReply};

use super::{Consent, Place};
use crate::exit::{Exit, Failure};
use crate::reach::{self, Management};
use crate::shell;

/// How a removal is carried out.
#[derive(Debug, Args)]
pub struct Remove {
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    place: Place,
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report {
    kind: &'static str,
    name: String,
    id: u64,
    /// All zeros for a node.
    uuid: String,
    map_version: u64,
    removed: bool,
    /// Why it is not carried out now.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    targets: Vec<Line>,
    /// Nodes without targets afterwards.
    nodes_left: Vec<String>,
    /// Other members of its mirror have the content too.
    #[serde(skip)]
    is_doubled: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    id: u32,
    state: &'static str,
    /// Name and addresses of its node.
    place: String,
    /// Of its medium, as it registered.
    bytes_total: u64,
    /// Objects of an OST, inodes of an MDT; none: it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_used: Option<u64>,
}

impl Remove {
    pub fn run(self, kind: RemovalKind, name: String, force: bool) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let plan = management.ask(&PlanRemoval { kind, name: name.clone(), force })?;
        let map = &management.map;
        let mut report = Report {
            kind: kind_name(kind),
            name: found_name(map, kind, &plan, &name),
            id: plan.id,
            uuid: plan.uuid.to_string(),
            map_version: plan.version,
            removed: false,
            refused: (!plan.refused.is_empty()).then(|| plan.refused.clone()),
            token: (!plan.token.is_empty()).then(|| plan.token.clone()),
            targets: lines(&management, &plan.targets),
            nodes_left: nodes_left(map, kind, &plan),
            is_doubled: kind == RemovalKind::Target && is_doubled(map, &plan),
        };
        if let Some(token) = self.consent.confirm.clone() {
            let wish = wire::mgmt::Remove { kind, name, force, token };
            let reply = management.ask(&wish)?;
            (report.removed, report.map_version, report.token) = (true, reply.version, None);
        }
        let forced = if force { "--force " } else { "" };
        let next = report.token.as_ref().map(|token| {
            let (what, place) = (shell::word(&report.name), self.place.options(&management));
            let name = match kind {
                RemovalKind::Node => format!("n{}", plan.id),
                // Its name is that of all members.
                _ if report.is_doubled => plan.id.to_string(),
                _ => what,
            };
            format!("stria {} remove {name} {forced}--confirm {token} {place}", kind_word(kind))
        });
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&report)?),
            false => out!("{}", report.text(kind, next.as_deref())),
        }
        match report.refused {
            Some(why) if !report.removed => {
                let (why, next) = why.split_once("; ").unwrap_or((&why, "see `stria status`"));
                Err(Failure::failed(format!("remove {}", report.name), why, next).into())
            }
            _ => Ok(self.consent.exit(report.removed)),
        }
    }
}

impl Report {
    fn text(&self, kind: RemovalKind, next: Option<&str>) -> String {
        let (name, id) = (&self.name, self.id);
        let mut out = match self.removed {
            true => format!(
                "removed {} {name} (id {id}); the cluster map has version {}\n",
                self.kind, self.map_version
            ),
            false => {
                format!("{} {name} (id {id}), version {} of the cluster map\n", self.kind, self.map_version)
            }
        };
        for line in &self.targets {
            out += &format!(
                "  {:<16} id {:<5} {:<8} {:>9}  at {}\n",
                line.name,
                line.id,
                line.state,
                human(line.bytes_total),
                line.place
            );
            if kind != RemovalKind::Node && !self.removed {
                out += &format!("    {}\n", line.content());
            }
        }
        let verb = if self.removed { "lost: " } else { "would be lost: " };
        let is_emptied = kind == RemovalKind::Target
            && self.targets.iter().all(|line| !line.name.contains("-MDT") && line.files_used == Some(0));
        let (lost, stays) = match self.is_doubled {
            true => (LOST_MEMBER, STAYS_MEMBER),
            false if is_emptied => (LOST_EMPTY, stays(kind)),
            false => (lost(kind), stays(kind)),
        };
        out += &format!("{}\n", wrap(&format!("{verb}{lost}"), 2));
        out += &format!("{}\n", wrap(&format!("stays: {stays}"), 2));
        if !self.nodes_left.is_empty() && kind != RemovalKind::Node {
            let nodes = self.nodes_left.join(", ");
            let text = format!("nodes without targets then: {nodes} (`stria node remove` takes them out)");
            out += &format!("{}\n", wrap(&text, 2));
        }
        match next {
            Some(next) => out += &format!("nothing was changed; to remove it:\n  {next}\n"),
            None if !self.removed => out += "nothing was changed\n",
            None => {}
        }
        out
    }
}

impl Line {
    /// Whether files have bytes there, as far as the target tells.
    fn content(&self) -> String {
        let is_mdt = self.name.contains("-MDT");
        match (self.files_used, self.bytes_used) {
            (Some(files), Some(bytes)) if is_mdt => {
                format!("{files} files and directories, in {}", human(bytes))
            }
            (Some(0), _) => "no file has an object there".into(),
            (Some(objects), Some(bytes)) => {
                format!("files have {objects} objects there, of {}", human(bytes))
            }
            _ => "it does not answer: whether files have objects there is not known".into(),
        }
    }
}

/// Of a member that is out.
const LOST_MEMBER: &str = "the second copy; no file loses bytes";
const STAYS_MEMBER: &str = "the mirror with its other member, all files, and this member's device as it is (format it anew to use it again)";

/// Of a target that was drained.
const LOST_EMPTY: &str = "no bytes of files; the id is never used again";

/// A member of a mirror that stays.
fn is_doubled(map: &ClusterMap, plan: &PlanRemovalReply) -> bool {
    let mut mirrors = plan.targets.iter().filter_map(|id| map.mirror(map.target(*id)?.mirror));
    mirrors.any(|mirror| mirror.members.len() > plan.targets.len())
}

fn kind_name(kind: RemovalKind) -> &'static str {
    match kind {
        RemovalKind::Target => "target",
        RemovalKind::FileSystem => "file system",
        RemovalKind::Node => "node",
    }
}

/// The word of the command line.
fn kind_word(kind: RemovalKind) -> &'static str {
    match kind {
        RemovalKind::FileSystem => "fs",
        _ => kind_name(kind),
    }
}

fn lost(kind: RemovalKind) -> &'static str {
    match kind {
        RemovalKind::Target => {
            "the bytes of files there, for good; reads and writes of them fail with EIO, and the id is never used again"
        }
        RemovalKind::FileSystem => {
            "all its files, for good: the key of its capabilities and the ids of its targets are never used again"
        }
        RemovalKind::Node => "nothing of files: it has no targets",
    }
}

fn stays(kind: RemovalKind) -> &'static str {
    match kind {
        RemovalKind::Target => {
            "the target's device as it is (format it anew to use it again), and names and other bytes of all files"
        }
        RemovalKind::FileSystem => {
            "the targets' devices as they are (format them anew to use them again), and other file systems"
        }
        RemovalKind::Node => "a server that starts on that host registers as a new node",
    }
}

/// The name in the map; the user may have given an id.
fn found_name(map: &ClusterMap, kind: RemovalKind, plan: &PlanRemovalReply, given: &str) -> String {
    let name = match kind {
        // The name of a mirror.
        RemovalKind::Target if plan.targets.len() > 1 => None,
        RemovalKind::Target => {
            map.targets.iter().find(|t| u64::from(t.id.0) == plan.id).map(|t| mgmt::member_name(map, t))
        }
        RemovalKind::FileSystem => None,
        RemovalKind::Node => map.nodes.iter().find(|n| n.id.0 == plan.id).map(|n| n.name.clone()),
    };
    name.unwrap_or_else(|| given.to_owned())
}

/// The targets, each asked for its content at the same time.
fn lines(management: &Management, ids: &[TargetId]) -> Vec<Line> {
    let map = &management.map;
    let targets: Vec<&Target> = ids.iter().filter_map(|id| map.target(*id)).collect();
    let ask = |target: &Target| -> anyhow::Result<TargetStatReply> {
        reach::ask(&*management.fabric.peer(target.id)?, target.fs, target.id, &TargetStat {})
    };
    let stats: Vec<Option<TargetStatReply>> = std::thread::scope(|scope| {
        let asked: Vec<_> = targets.iter().map(|t| scope.spawn(move || ask(t).ok())).collect();
        asked.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
    });
    targets.iter().zip(stats).map(|(target, stat)| line_of(map, target, stat)).collect()
}

fn line_of(map: &ClusterMap, target: &Target, stat: Option<TargetStatReply>) -> Line {
    let place = map.node(target.node).map_or_else(
        || "no node".into(),
        |node| match node.nids.is_empty() {
            true => node.name.clone(),
            false => format!("{} ({})", node.name, node.nids.join(", ")),
        },
    );
    Line {
        name: mgmt::member_name(map, target),
        id: target.id.0,
        state: match target.state {
            mgmt::STATE_UP => "up",
            mgmt::STATE_DOWN => "down",
            _ => "unknown",
        },
        place,
        bytes_total: target.bytes_total,
        files_used: stat.as_ref().map(|s| s.files_total.saturating_sub(s.files_free)),
        bytes_used: stat.as_ref().map(|s| s.bytes_total.saturating_sub(s.bytes_free)),
    }
}

/// Nodes that have only targets of the plan.
fn nodes_left(map: &ClusterMap, kind: RemovalKind, plan: &PlanRemovalReply) -> Vec<String> {
    if kind == RemovalKind::Node {
        return vec![];
    }
    let is_its = |t: &&Target| plan.targets.contains(&t.id);
    let mut nodes: Vec<_> = map.targets.iter().filter(is_its).map(|t| t.node).collect();
    nodes.sort();
    nodes.dedup();
    nodes.retain(|node| map.targets.iter().all(|t| t.node != *node || is_its(&t)));
    nodes.iter().map(|id| format!("{} ({id})", map.node(*id).map_or("?", |n| n.name.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(removed: bool, files_used: Option<u64>) -> Report {
        let line = Line {
            name: "demo-OST0001".into(),
            id: 3,
            state: "down",
            place: "oss1 (10.0.0.1:7011@tcp0)".into(),
            bytes_total: 1 << 30,
            files_used,
            bytes_used: files_used.map(|n| n << 20),
        };
        Report {
            kind: "target",
            name: "demo-OST0001".into(),
            id: 3,
            uuid: String::new(),
            map_version: 7,
            removed,
            refused: None,
            token: None,
            targets: vec![line],
            nodes_left: vec!["oss1 (n2)".into()],
            is_doubled: false,
        }
    }

    #[test]
    fn text_tells_what_is_lost_what_stays_and_the_next_command() {
        let next = Some("stria target remove demo-OST0001 --confirm 1-2-3 --mgs a");
        let text = report(false, Some(5)).text(RemovalKind::Target, next);
        for part in [
            "target demo-OST0001 (id 3), version 7",
            "down",
            "files have 5 objects there",
            "would be lost: the bytes of files there",
            "stays: the target's device",
            "nodes without targets then: oss1 (n2)",
            "nothing was changed; to remove it:\n  stria target remove demo-OST0001 --confirm 1-2-3 --mgs a\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let silent = report(false, None).text(RemovalKind::Target, None);
        assert!(silent.contains("whether files have objects there is not known"), "{silent}");
        let empty = report(false, Some(0)).text(RemovalKind::Target, None);
        assert!(empty.contains("no file has an object there"), "{empty}");
        let member = Report { is_doubled: true, ..report(false, None) }.text(RemovalKind::Target, None);
        assert!(
            member.contains("no file loses bytes") && member.contains("the mirror with its other"),
            "{member}"
        );
        let done = report(true, None).text(RemovalKind::Target, None);
        assert!(done.starts_with("removed target demo-OST0001") && !done.contains("nothing was"), "{done}");
    }
}
