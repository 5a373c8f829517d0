//! `stria mirror`: the mirrors of a cluster and the states of their members, from the cluster map. Targets need not run. `status` asks the
//! members as well, and `switch` hands a mirror over.

pub(super) mod hand_over;
mod resync;
mod told;
pub mod verify;

use std::fmt::Write;

use bench::wrap::wrap;
use clap::{Args, Subcommand};
use serde::Serialize;
use types::FsId;
use wire::map::{ClusterMap, Member, MemberState};

use self::told::Told;
use crate::cmd::manage::Place;
use crate::exit::{Exit, Failure};
use crate::reach::Reach;

/// Show mirrors: groups of targets on different servers with the same content.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria mirror list --mgs 10.0.0.5@tcp\nExample: stria mirror status home-OST0003 /mnt/home"
)]
pub struct Mirror {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show each mirror: its members, their hosts and states, the primary, the epoch. A target without a second member is a mirror of one.
    #[command(after_help = "Example: stria mirror list --mgs 10.0.0.5@tcp
Exit codes: 0 all members are in sync; 1 one is not; 2 it could not be looked at.")]
    List(Place),
    /// Show one mirror: what its members tell of themselves, what one of them waits for, and the next step.
    #[command(after_help = "Example: stria mirror status home-OST0003 --mgs 10.0.0.5@tcp
Exit codes: 0 all members are in sync; 1 one is not; 2 it could not be looked at.")]
    Status(Named),
    /// Have the other member of a mirror become its primary, without a stop. Programs wait for a moment.
    #[command(after_help = "Example: stria mirror switch home-OST0003 --mgs 10.0.0.5@tcp
Exit codes: 0 it is done, and both members are in sync; 1 it failed, or they are not in sync; 2 it could not be tried.")]
    Switch(Named),
    /// Compare the content of both members while the file system is in use. A range of an OST that differs gets the primary's content at both.
    /// Records of an MDT are compared only; the command names the next step.
    #[command(after_help = "Example: stria mirror verify home-OST0003 --mgs 10.0.0.5@tcp
Exit codes: 0 the members are equal; 1 they differed, or one has damage; 2 they could not be compared.")]
    Verify(Compared),
    /// Have the follower of a mirror, whose content is in doubt, take all content of the primary anew. There is one copy until that has ended.
    #[command(after_help = "Example: stria mirror resync home-OST0003 --dry-run --mgs 10.0.0.5@tcp
Exit codes: 0 it has begun, or --dry-run; 1 nothing was changed; 2 it could not be tried.")]
    Resync(resync::Resyncing),
}

#[derive(Debug, Args)]
struct Compared {
    /// The name of its targets, such as home-OST0003, or the mirror's id.
    #[arg(value_name = "NAME|ID", required_unless_present = "all", conflicts_with = "all")]
    name: Option<String>,
    /// All mirrors with two members, one after the other.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Named {
    /// The name of its targets, such as home-OST0003, or the mirror's id.
    #[arg(value_name = "NAME|ID")]
    name: String,
    #[command(flatten)]
    place: Place,
}

/// A mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// Of all its members.
    pub name: String,
    pub id: u32,
    pub fsname: String,
    kind: &'static str,
    #[serde(skip)]
    index: u32,
    epoch: u32,
    /// The target that orders changes.
    primary: u32,
    pub members_in_sync: usize,
    pub members: Vec<MemberLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct MemberLine {
    pub target: u32,
    pub host: String,
    nids: Vec<String>,
    /// "in sync", "filling", "out".
    pub state: &'static str,
    is_primary: bool,
    /// Of its server, by its heartbeats: "up", "down", "unknown".
    server: &'static str,
    /// Its own report, in `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<Told>,
}

/// The mirrors of a file system, or of all: MDTs first, then by index.
pub(super) fn lines(map: &ClusterMap, fs: Option<FsId>) -> Vec<Line> {
    let mirrors = map.mirrors.iter().filter(|m| fs.is_none_or(|fs| m.fs == fs));
    let mut lines: Vec<Line> = mirrors.map(|mirror| line_of(map, mirror)).collect();
    lines.sort_by_cached_key(|l| (l.fsname.clone(), l.kind, l.index));
    lines
}

/// The mirrors of two members of a file system. Members of those that are not whole are asked.
pub(super) fn pairs(reach: &Reach) -> Vec<Line> {
    let mut lines = lines(&reach.map, Some(reach.fs));
    lines.retain(|line| line.members.len() > 1);
    for line in lines.iter_mut().filter(|line| !line.is_whole()) {
        told::ask_members(&reach.fabric, &reach.map, line);
    }
    lines
}

fn line_of(map: &ClusterMap, mirror: &wire::map::Mirror) -> Line {
    let member = |member: &Member| {
        let target = map.target(member.target);
        let node = target.and_then(|t| map.node(t.node));
        MemberLine {
            target: member.target.0,
            host: node.map_or_else(|| "?".into(), |n| n.name.clone()),
            nids: node.map_or_else(Vec::new, |n| n.nids.clone()),
            state: mgmt::state_word(member.state),
            is_primary: member.target == mirror.primary,
            server: match target.map_or(mgmt::STATE_UNKNOWN, |t| t.state) {
                mgmt::STATE_UP => "up",
                mgmt::STATE_DOWN => "down",
                _ => "unknown",
            },
            told: None,
        }
    };
    Line {
        name: mgmt::mirror_name(map, mirror),
        id: mirror.id.0,
        fsname: map.fs(mirror.fs).map_or_else(|| "?".into(), |fs| fs.name.clone()),
        kind: if mirror.is_mdt { "mdt" } else { "ost" },
        index: map.target(mirror.primary).map_or(0, |t| t.index),
        epoch: mirror.epoch.0,
        primary: mirror.primary.0,
        members_in_sync: mirror.members.iter().filter(|m| m.state == MemberState::InSync).count(),
        members: mirror.members.iter().map(member).collect(),
    }
}

impl Mirror {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::List(place) => list(&place),
            Verb::Status(named) => named.status(),
            Verb::Switch(named) => named.switch(),
            Verb::Resync(resyncing) => resyncing.run(),
            Verb::Verify(compared) => compared.verify(),
        }
    }
}

fn list(place: &Place) -> anyhow::Result<Exit> {
    let lines = lines(&place.manage()?.map, None);
    match place.json {
        true => outln!("{}", serde_json::to_string_pretty(&lines)?),
        false => out!("{}", table(&lines)),
    }
    Ok(exit_of(&lines))
}

fn exit_of(lines: &[Line]) -> Exit {
    if lines.iter().all(Line::is_whole) { Exit::Done } else { Exit::Findings }
}

fn table(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "there is no mirror yet; each target that registers is in one\n".into();
    }
    let mut out = format!(
        "{:<18} {:>4} {:>6} {:>8}  {:<10} {:<8} {:<8} HOST\n",
        "MIRROR", "ID", "EPOCH", "TARGET", "STATE", "ROLE", "SERVER"
    );
    for line in lines {
        for (n, member) in line.members.iter().enumerate() {
            // Once per mirror.
            let head = match n {
                0 => format!("{:<18} {:>4} {:>6}", line.name, line.id, line.epoch),
                _ => format!("{:<30}", ""),
            };
            let MemberLine { target, host, nids, state, server, .. } = member;
            let place = if nids.is_empty() { host.clone() } else { format!("{host} ({})", nids.join(", ")) };
            writeln!(out, "{head} {target:>8}  {state:<10} {:<8} {server:<8} {place}", member.role())
                .expect("writing to a string does not fail");
        }
    }
    out
}

impl Named {
    fn status(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let mut line = find(&lines(&management.map, None), &self.name)?.clone();
        told::ask_members(&management.fabric, &management.map, &mut line);
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&line)?),
            false => {
                out!("{}", table(std::slice::from_ref(&line)));
                out!("{}", told::table(&line));
                line.notes().iter().for_each(|note| outln!("{}", wrap(note, 4)));
            }
        }
        Ok(exit_of(&[line]))
    }

    fn switch(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let line = find(&lines(&management.map, None), &self.name)?.clone();
        if line.members.len() < 2 {
            let next = "a device of the same index, under `second_devices` of another server, becomes one";
            return Err(Failure::unusable(&line.name, "it has no second member", next).into());
        }
        let moved = hand_over::Moved::all(&management, &[line], self.place.json)?;
        moved.end(&management, self.place.json)
    }
}

impl Compared {
    fn verify(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let all = lines(&management.map, None);
        let chosen: Vec<Line> = match &self.name {
            Some(name) => vec![find(&all, name)?.clone()],
            None => all.into_iter().filter(|line| line.members.len() > 1).collect(),
        };
        verify::verify(&management, &chosen, self.place.json)
    }
}

/// By the name of its targets, or by its id. A name counts first.
fn find<'l>(lines: &'l [Line], name: &str) -> Result<&'l Line, Failure> {
    let by_id = || lines.iter().find(|l| name.parse() == Ok(l.id));
    lines.iter().find(|l| l.name == name).or_else(by_id).ok_or_else(|| {
        Failure::unusable(
            format!("mirror {name}"),
            "there is none of this name or id",
            "`stria mirror list` lists them",
        )
    })
}

impl Line {
    /// True if every member has all changes.
    pub fn is_whole(&self) -> bool {
        self.members_in_sync == self.members.len()
    }

    pub fn is_mdt(&self) -> bool {
        self.kind == "mdt"
    }

    pub fn has(&self, target: u32) -> bool {
        self.members.iter().any(|m| m.target == target)
    }

    /// True if the mirror can go on without this member. `silent`: targets that did not answer just now, which the map may not tell yet.
    pub fn is_spared(&self, target: u32, silent: &[u32]) -> bool {
        self.members.iter().any(|m| {
            let is_well = m.state == mgmt::state_word(MemberState::InSync) && m.server == "up";
            m.target != target && is_well && !silent.contains(&m.target)
        })
    }

    /// `OST0003: 1 of 2 members in sync; oss2 is out`, without the file system's name.
    pub fn summary(&self) -> String {
        let name =
            self.name.strip_prefix(&self.fsname).and_then(|n| n.strip_prefix('-')).unwrap_or(&self.name);
        let lacking = self.members.iter().filter(|m| m.state != mgmt::state_word(MemberState::InSync));
        let is_one_host = self.members.iter().all(|m| m.host == self.members[0].host);
        let who = |m: &MemberLine| match is_one_host {
            true => format!("target {} is {}", m.target, m.state),
            false => format!("{} is {}", m.host, m.state),
        };
        let mut text = format!("{name}: {} of {} members in sync", self.members_in_sync, self.members.len());
        lacking.for_each(|m| text += &format!("; {}", who(m)));
        text
    }

    /// Progress of a resync as a member tells it: done, of how much, and seconds that are left; these are 0 if unknown.
    pub fn progress(&self) -> Option<(u64, u64, u32)> {
        self.members.iter().find_map(|m| m.told.as_ref()?.progress())
    }

    /// The next step for each member that lacks changes.
    pub fn notes(&self) -> Vec<String> {
        let note = |m: &MemberLine| {
            let MemberLine { target, host, state, server, told, .. } = m;
            // Its own report says more.
            if let Some(told) = told.as_ref().filter(|told| told.is_waiting()) {
                return Some(format!("target {target} on {host}: {}", told.text()));
            }
            match (*state, *server) {
                ("in sync", "down") => {
                    Some(format!("target {target}: its server on {host} is down; start it"))
                }
                ("in sync", _) => None,
                ("filling", "up") => Some(format!("target {target} on {host} is being brought up to date")),
                (_, "up") => Some(format!(
                    "target {target} on {host} lacks changes; it is resynced once it reaches the primary: look at the network, and at its log if this lasts"
                )),
                _ => Some(format!(
                    "target {target} on {host} lacks changes, and its server is not up; start it, and it is resynced; if it is lost, `stria target remove {target}`"
                )),
            }
        };
        self.members.iter().filter_map(note).collect()
    }
}

impl Line {
    pub fn primary_member(&self) -> Option<&MemberLine> {
        self.members.iter().find(|m| m.is_primary)
    }
    /// Of a mirror of two: the member that is not the primary.
    pub fn other_member(&self) -> Option<&MemberLine> {
        self.members.iter().find(|m| !m.is_primary)
    }
}

impl MemberLine {
    pub fn is_primary(&self) -> bool {
        self.is_primary
    }
    /// Why it could not serve: its state, or that of its server.
    pub fn condition(&self) -> String {
        match (self.state, self.server) {
            ("in sync", server) => format!("{server}, by its heartbeats"),
            (state, _) => state.into(),
        }
    }
    fn role(&self) -> &'static str {
        if self.is_primary { "primary" } else { "-" }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use mgmt::{Fresh, apply_register};
    use types::{TargetId, Uuid};
    use wire::map::Apart;
    use wire::mgmt::Register;

    /// MDT 1 and OST 2 of `home` on host oss1, and second members of both on host oss2, targets 3 and 4; that of the OST has this state.
    pub fn doubled(state: MemberState) -> ClusterMap {
        let register = |is_mdt, uuid: u8, second| Register {
            fs_name: "home".into(),
            is_mdt,
            index: 0,
            uuid: Uuid([uuid; 16]),
            target: TargetId(0),
            bytes_total: 1 << 30,
            node_name: if second { "oss2" } else { "oss1" }.into(),
            nids: vec![format!("10.0.0.{}:7011@tcp0", 1 + u8::from(second))],
            second,
            rack: String::new(),
            apart: Apart::Server,
        };
        let all = [
            register(true, 1, false),
            register(false, 2, false),
            register(true, 3, true),
            register(false, 4, true),
        ];
        let fresh = Fresh { fs_uuid: Uuid([7; 16]), secret: Uuid([8; 16]) };
        let add = |map: ClusterMap, r: &Register| apply_register(&map, r, &fresh).expect("admitted").0;
        let mut map = all.iter().fold(ClusterMap::empty(), add);
        for mirror in &mut map.mirrors {
            mirror.members[1].state = if mirror.is_mdt { MemberState::InSync } else { state };
        }
        map
    }

    #[test]
    fn mirrors_are_listed_with_their_members() {
        let lines = lines(&doubled(MemberState::Out), None);
        assert_eq!(
            lines.iter().map(|l| (l.name.as_str(), l.id)).collect::<Vec<_>>(),
            [("home-MDT0000", 1), ("home-OST0000", 2)]
        );
        assert_eq!(lines.iter().map(Line::is_whole).collect::<Vec<_>>(), [true, false]);
        let text = table(&lines);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "MIRROR               ID  EPOCH   TARGET  STATE      ROLE     SERVER   HOST");
        assert_eq!(
            rows[3],
            "home-OST0000          2      2        2  in sync    primary  up       oss1 (10.0.0.1:7011@tcp0)"
        );
        assert_eq!(
            rows[4],
            "                                      4  out        -        up       oss2 (10.0.0.2:7011@tcp0)"
        );
        assert_eq!(rows.len(), 5);
        assert!(table(&[]).contains("no mirror yet"));
    }

    #[test]
    fn one_mirror_is_found_by_its_name_or_id() {
        let lines = lines(&doubled(MemberState::Filling), None);
        for name in ["home-OST0000", "2"] {
            assert_eq!(find(&lines, name).expect(name).id, 2);
        }
        let refused = find(&lines, "home-OST0009").expect_err("there is none").to_string();
        assert!(refused.contains("`stria mirror list` lists them"), "{refused}");
    }

    #[test]
    fn a_mirror_that_is_not_whole_is_told_with_the_next_step() {
        let table = [
            (MemberState::InSync, "OST0000: 2 of 2 members in sync", ""),
            (
                MemberState::Filling,
                "OST0000: 1 of 2 members in sync; oss2 is filling",
                "being brought up to date",
            ),
            (
                MemberState::Out,
                "OST0000: 1 of 2 members in sync; oss2 is out",
                "it is resynced once it reaches the primary",
            ),
        ];
        for (state, summary, note) in table {
            let line = lines(&doubled(state), None).pop().expect("there");
            assert_eq!(line.summary(), summary);
            assert_eq!(line.notes().is_empty(), note.is_empty(), "{:?}", line.notes());
            assert!(line.notes().concat().contains(note), "{:?}", line.notes());
        }
        let mut map = doubled(MemberState::Out);
        map.targets[3].state = mgmt::STATE_DOWN;
        let line = lines(&map, None).pop().expect("there");
        assert!(
            line.notes().concat().ends_with("if it is lost, `stria target remove 4`"),
            "{:?}",
            line.notes()
        );
        assert!(line.is_spared(4, &[]) && !line.is_spared(2, &[]));
        assert!(!line.is_spared(4, &[2, 4]), "both are silent");
        // Both members on one host are named by their targets.
        map.nodes[1].name = "oss1".into();
        assert!(lines(&map, None).pop().expect("there").summary().ends_with("; target 4 is out"));
    }
}
