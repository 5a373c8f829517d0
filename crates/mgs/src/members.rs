//! Members of mirrors: a member's request comes in, the rules of crate `mirror` decide, and the map's mirror changes.

use std::collections::HashMap;

use mirror::behind::{is_behind, next_of_behind};
use mirror::on_map::{member_of, members_of, set_members};
use mirror::{Line, MirrorSeq, Position, Request, Verdict, Why, next_members};
use types::{Code, Epoch, Fault, MirrorId, TargetId};
use wire::map::{ClusterMap, MemberState, Mirror};
use wire::pair::{AskMembers, AskMembersReply, AskingOf, MembersOf};

/// Reports about the mirrors of two members. In memory only: members ask again. Bounded by the map: only its mirrors are kept.
#[derive(Default)]
pub struct Mirrors(HashMap<MirrorId, Heard>);

struct Heard {
    /// The members at their places. Reports about a member that was removed say nothing about the one at its place now.
    members: [TargetId; 2],
    reports: mirror::Reports,
    /// The highest epoch that each member has named (mirror-D5).
    told: [Option<Epoch>; 2],
}

impl Mirrors {
    /// Records signs of life of targets.
    pub fn on_alive(&mut self, map: &ClusterMap, targets: &[TargetId], now_ms: u64) {
        for target in targets {
            let mirror = map.target(*target).and_then(|t| map.mirror(t.mirror));
            let Some((mirror, member)) = mirror.and_then(|m| Some((m, member_of(m, *target)?))) else {
                continue;
            };
            if let Some(heard) = self.of(mirror) {
                heard.reports.on_heartbeat(member, now_ms);
            }
        }
    }

    /// Records a request, to be called once for each.
    pub fn on_request(&mut self, map: &ClusterMap, request: &AskMembers, now_ms: u64) {
        let Some(mirror) = map.mirror(request.mirror) else { return };
        if let (Some(member), Some(heard)) = (member_of(mirror, request.member), self.of(mirror)) {
            heard.reports.on_request(member, asked(&request.asking), now_ms);
            let told = &mut heard.told[member.index()];
            *told = (*told).max(Some(epoch_of(&request.asking)));
        }
    }

    /// The next map, or why this one stays.
    pub fn decide(
        &self,
        map: &ClusterMap,
        request: &AskMembers,
        now_ms: u64,
    ) -> Result<Result<ClusterMap, Why>, Fault> {
        let mirror = find(map, request)?;
        // A mirror of one member has nothing to decide.
        let (Some(members), Some(from)) = (members_of(mirror), member_of(mirror, request.member)) else {
            return Ok(Err(Why::Nothing));
        };
        let heard = self.0.get(&mirror.id).filter(|heard| Some(heard.members) == pair_of(mirror));
        let reports = heard.map_or_else(mirror::Reports::default, |heard| heard.reports.clone());
        let told = heard.map_or([None; 2], |heard| heard.told);
        let verdict = match is_behind(&members, told) {
            true => next_of_behind(told, &reports, from, asked(&request.asking)),
            false => next_members(&members, &reports, from, asked(&request.asking), now_ms),
        };
        match verdict {
            Verdict::Keep(why) => Ok(Err(why)),
            Verdict::Change(members) => {
                let mut next = map.clone();
                next.mirrors.iter_mut().filter(|m| m.id == mirror.id).for_each(|m| set_members(m, &members));
                next.version += 1;
                Ok(Ok(next))
            }
        }
    }

    /// Drops what was heard of mirrors that are not in the map any more.
    pub fn forget_removed(&mut self, map: &ClusterMap) {
        self.0.retain(|mirror, _| map.mirror(*mirror).is_some());
    }

    /// `None`: the mirror has one member.
    fn of(&mut self, mirror: &Mirror) -> Option<&mut Heard> {
        let members = pair_of(mirror)?;
        let new = || Heard { members, reports: mirror::Reports::default(), told: [None; 2] };
        let heard = self.0.entry(mirror.id).or_insert_with(new);
        if heard.members != members {
            *heard = new();
        }
        Some(heard)
    }
}

fn epoch_of(asking: &AskingOf) -> Epoch {
    let (AskingOf::Fetch { epoch }
    | AskingOf::Alone { epoch, .. }
    | AskingOf::InSync { epoch }
    | AskingOf::Resyncing { epoch, .. }) = asking;
    *epoch
}

fn pair_of(mirror: &Mirror) -> Option<[TargetId; 2]> {
    let [a, b] = mirror.members.as_slice() else { return None };
    Some([a.target, b.target])
}

/// The mirror that a request is about, if the sender is a member.
fn find<'m>(map: &'m ClusterMap, request: &AskMembers) -> Result<&'m Mirror, Fault> {
    let AskMembers { mirror: id, member, .. } = request;
    let missing = |why: String| Err(Fault::new(Code::NotFound, why));
    match map.mirror(*id) {
        Some(mirror) if mirror.has(*member) => Ok(mirror),
        Some(mirror) => missing(format!(
            "target {member} is no member of {} (mirror {id}): it was removed, or its map is of another cluster; take its \
             device out of the configuration, or format it anew",
            mgmt::mirror_name(map, mirror)
        )),
        None => missing(format!(
            "mirror {id} of target {member} is not in the cluster map: it was removed, or its map is of another cluster; take \
             its device out of the configuration, or format it anew"
        )),
    }
}

fn asked(asking: &AskingOf) -> Request {
    match asking.clone() {
        AskingOf::Fetch { epoch } => Request::Fetch { epoch },
        AskingOf::Alone { epoch, is_whole, end, is_planned } => {
            let end = Position { line: Line::of(end.line), seq: MirrorSeq(end.seq.0) };
            Request::Ask { epoch, is_whole, end, is_planned }
        }
        AskingOf::InSync { epoch } => Request::InSync { epoch },
        AskingOf::Resyncing { epoch, is_under_way } => Request::Resyncing { epoch, is_under_way },
    }
}

/// The members of now, and why a request was not granted.
pub fn reply(
    map: &ClusterMap,
    request: &AskMembers,
    kept: Option<Why>,
    now_ms: u64,
) -> Result<AskMembersReply, Fault> {
    let mirror = find(map, request)?;
    let place = mirror.members.iter().position(|m| m.target == mirror.primary);
    let members = MembersOf {
        epoch: mirror.epoch,
        primary: place.unwrap_or(0) as u8,
        states: mirror.members.iter().map(|m| m.state as u8).collect(),
    };
    let why = match (&request.asking, kept) {
        // The members are all that it asked for.
        (AskingOf::Fetch { .. }, _) | (_, None) => String::new(),
        (_, Some(why)) => sentence(map, mirror, request, why, now_ms),
    };
    Ok(AskMembersReply { version: map.version, members, why })
}

/// Why the members stay as they are, and the next step; empty if there was nothing to grant.
fn sentence(map: &ClusterMap, mirror: &Mirror, request: &AskMembers, why: Why, now_ms: u64) -> String {
    let host = |target: TargetId| {
        let node = map.target(target).and_then(|t| map.node(t.node));
        format!("target {target} on {}", node.map_or("?", |n| n.name.as_str()))
    };
    let other = mirror.members.iter().find(|m| m.target != request.member);
    let (me, other) = (host(request.member), other.map_or_else(String::new, |m| host(m.target)));
    let why = match why {
        Why::Nothing => return String::new(),
        Why::OldEpoch => {
            format!("the request is of an earlier epoch than {}; go by these members", mirror.epoch)
        }
        Why::NotInSync => {
            format!("{me} lacks changes, so it cannot serve alone; start the server of {other}")
        }
        Why::NotWhole => {
            format!(
                "{me} lost power, or its device failed, and {other} may have more; start the server of {other}, and both are compared; \
                 if {other} is lost for good, `stria mgs rebuild --without` gives up what only it has"
            )
        }
        Why::Behind => {
            format!(
                "the cluster map is older than what {me} knows, so it was restored from a backup, and {other} may know more; start \
                 the server of {other}, and both are compared"
            )
        }
        Why::Damped(until_ms) => {
            let wait_ms = until_ms.saturating_sub(now_ms);
            format!("{other} was heard of lately, so it is waited for; ask again in {wait_ms} ms")
        }
    };
    format!("{}: {why}", mgmt::mirror_name(map, mirror))
}

/// Logs the members after a change.
pub fn tell_change(map: &ClusterMap, request: &AskMembers) {
    let Some(mirror) = map.mirror(request.mirror) else { return };
    let state = |m: &wire::map::Member| format!("target {}: {}", m.target, mgmt::state_word(m.state));
    let members = mirror.members.iter().map(state).collect::<Vec<_>>().join(", ");
    let (name, epoch, primary) = (mgmt::mirror_name(map, mirror), mirror.epoch.0, mirror.primary.0);
    match mirror.members.iter().any(|m| m.state == MemberState::Out) {
        true => tracing::warn!(epoch, primary, "mirror {name} is not whole: {members}"),
        false => tracing::info!(epoch, primary, "mirror {name}: {members}"),
    }
}
