//! `stria server`: moves the primaries of mirrors away from a server before it stops, and back again. Nothing is stopped by it.

use clap::{Args, Subcommand};
use wire::map::{ClusterMap, Node};

use crate::cmd::manage::Place;
use crate::cmd::mirror::hand_over::{Left, Moved};
use crate::cmd::mirror::{self, Line};
use crate::exit::{Exit, Failure};

/// Move the primaries of mirrors from a server to others, before it is stopped, and back.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria server drain oss1 --mgs 10.0.0.5@tcp
Example: stria server balance --mgs 10.0.0.5@tcp")]
pub struct Server {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Hand over each mirror whose primary is on this host, without a stop. It stays in sync as a follower, and may be stopped then.
    #[command(after_help = "Example: stria server drain oss1 --mgs 10.0.0.5@tcp
Exit codes: 0 nothing there is primary, and all is in sync; 1 it failed, or a member is not in sync; 2 it could not be tried.")]
    Drain(AtHost),
    /// Hand back to this host the mirrors whose first member is there, after a drain or a restart.
    #[command(after_help = "Example: stria server rejoin oss1 --mgs 10.0.0.5@tcp
Exit codes: 0 the host's first members are primaries; 1 one could not be, or it failed; 2 it could not be tried.")]
    Rejoin(AtHost),
    /// Hand over mirrors so that the first member of each is the primary again: then primaries alternate between the servers.
    #[command(after_help = "Example: stria server balance --mgs 10.0.0.5@tcp
Exit codes: 0 all first members are primaries; 1 one could not be, or it failed; 2 it could not be tried.")]
    Balance(Place),
}

#[derive(Debug, Args)]
struct AtHost {
    /// Name of the host, with all servers there, or id of one node, such as n3: `stria node list` shows both.
    #[arg(value_name = "HOST|NODE")]
    name: String,
    #[command(flatten)]
    place: Place,
}

impl Server {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Drain(drain) => drain.drain(),
            Verb::Rejoin(back) => balance(&back.place, Some(&back.name)),
            Verb::Balance(place) => balance(&place, None),
        }
    }
}

impl AtHost {
    fn drain(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let there = on_host(&management.map, "drain", &self.name, Line::primary_member)?;
        check_spared(&self.name, &there)?;
        let moved = Moved::all(&management, &there, self.place.json)?;
        if !self.place.json {
            outln!("nothing on {} is primary now", self.name);
        }
        moved.end(&management, self.place.json)
    }
}

/// `host`: only mirrors whose first member is there.
fn balance(place: &Place, host: Option<&str>) -> anyhow::Result<Exit> {
    let management = place.manage()?;
    let lines = match host {
        Some(host) => on_host(&management.map, "rejoin", host, |line| line.members.first())?,
        None => mirror::lines(&management.map, None),
    };
    let (ready, left) = to_balance(lines);
    if ready.is_empty() && left.is_empty() && !place.json {
        let there = host.map(|host| format!(" with its first member on {host}")).unwrap_or_default();
        outln!("the first member of each mirror{there} is its primary already");
    }
    let mut moved = Moved::all(&management, &ready, place.json)?;
    moved.left = left;
    moved.end(&management, place.json)
}

/// Mirrors of which this member is on the nodes of this name or id.
fn on_host(
    map: &ClusterMap,
    verb: &str,
    name: &str,
    member: impl Fn(&Line) -> Option<&mirror::MemberLine>,
) -> Result<Vec<Line>, Failure> {
    let is_named = |node: &&Node| node.name == name || node.id.to_string() == name;
    let nodes: Vec<&Node> = map.nodes.iter().filter(is_named).collect();
    if nodes.is_empty() {
        let next = "`stria node list` shows names and ids";
        return Err(Failure::unusable(format!("{verb} {name}"), "no host or node has this name or id", next));
    }
    let is_there = |line: &Line| {
        let target = member(line).and_then(|m| map.target(types::TargetId(m.target)));
        target.is_some_and(|t| nodes.iter().any(|node| node.id == t.node))
    };
    Ok(mirror::lines(map, None).into_iter().filter(is_there).collect())
}

/// All or nothing: a server that is drained by half may not be stopped.
fn check_spared(name: &str, there: &[Line]) -> Result<(), Failure> {
    let why = |line: &Line| match line.other_member() {
        None => format!("{} has no second member", line.name),
        Some(other) => format!("{}: {} is {}", line.name, other.host, other.condition()),
    };
    let is_bound = |line: &&Line| !line.primary_member().is_some_and(|m| line.is_spared(m.target, &[]));
    let bound: Vec<String> = there.iter().filter(is_bound).map(why).collect();
    if bound.is_empty() {
        return Ok(());
    }
    let next =
        "wait until `stria mirror list` shows them in sync; `stria mirror status NAME` tells why one waits";
    Err(Failure::failed(
        format!("drain {name}"),
        format!("nothing was handed over, since no other member could serve: {}", bound.join("; ")),
        next,
    ))
}

/// Mirrors whose first member is to become primary again: those that can be handed over, and others.
fn to_balance(lines: Vec<Line>) -> (Vec<Line>, Vec<Left>) {
    let astray = lines.into_iter().filter(|line| !line.members[0].is_primary());
    let (ready, others): (Vec<Line>, Vec<Line>) =
        astray.partition(|line| line.primary_member().is_some_and(|m| line.is_spared(m.target, &[])));
    let left = |line: Line| Left {
        why: format!("its first member, on {}, is {}", line.members[0].host, line.members[0].condition()),
        mirror: line.name,
    };
    (ready, others.into_iter().map(left).collect())
}

#[cfg(test)]
mod tests {
    use wire::map::MemberState;

    use super::*;
    use crate::cmd::mirror::tests::doubled;

    fn names(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|l| l.name.as_str()).collect()
    }

    #[test]
    fn a_server_is_drained_only_if_other_members_can_serve() {
        let map = doubled(MemberState::InSync);
        let there = on_host(&map, "drain", "oss1", Line::primary_member).expect("a host");
        assert_eq!(names(&there), ["home-MDT0000", "home-OST0000"]);
        assert!(check_spared("oss1", &there).is_ok());
        assert!(on_host(&map, "drain", "oss2", Line::primary_member).expect("a host").is_empty());
        let by_id =
            on_host(&map, "drain", &map.nodes[0].id.to_string(), Line::primary_member).expect("a node");
        assert!(!by_id.is_empty() && names(&by_id).iter().all(|name| names(&there).contains(name)));
        let refused = on_host(&map, "drain", "oss9", Line::primary_member).expect_err("no host").to_string();
        assert!(refused.contains("`stria node list`"), "{refused}");

        let there =
            on_host(&doubled(MemberState::Filling), "drain", "oss1", Line::primary_member).expect("a host");
        let refused = check_spared("oss1", &there).expect_err("the OST's other member lacks changes");
        assert!(
            refused.to_string().contains("could serve: home-OST0000: oss2 is filling; wait"),
            "{refused}"
        );
    }

    #[test]
    fn mirrors_come_back_to_their_first_members() {
        let mut map = doubled(MemberState::InSync);
        assert!(to_balance(mirror::lines(&map, None)).0.is_empty());
        for mirror in &mut map.mirrors {
            mirror.primary = mirror.members[1].target;
        }
        let (ready, left) = to_balance(mirror::lines(&map, None));
        assert_eq!((names(&ready), left.len()), (vec!["home-MDT0000", "home-OST0000"], 0));
        map.mirrors[1].members[0].state = MemberState::Out;
        let (ready, left) = to_balance(mirror::lines(&map, None));
        assert_eq!(names(&ready), ["home-MDT0000"]);
        assert_eq!(left[0].why, "its first member, on oss1, is out");
        let first_on = |host: &str| on_host(&map, "rejoin", host, |line| line.members.first());
        assert_eq!(names(&first_on("oss1").expect("a host")), ["home-MDT0000", "home-OST0000"]);
        assert!(first_on("oss2").expect("a host").is_empty());
    }
}
