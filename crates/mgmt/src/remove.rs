//! Removal of targets, file systems and nodes from the cluster map.
//!
//! A removal takes entries out of the map and touches no medium. It is asked for in two steps: a plan tells what is lost and gives a token;
//! the removal must bring that token. The map's version is part of the token, so a removal never acts on a map that the reader has not seen.

use types::*;
use wire::map::{ClusterMap, MemberState, Mirror, Node, Target};
use wire::mgmt::{PlanRemoval, PlanRemovalReply, RemovalKind, Remove};

use crate::Reports;
use crate::name::{member_name, members_text, mirror_name};
use crate::register::next_epoch;

/// Tells what a removal takes out of the map. An entry that is not there is an error; a refusal is part of the reply.
pub fn plan_removal(
    map: &ClusterMap,
    reports: &Reports,
    request: &PlanRemoval,
    now_ms: u64,
) -> Result<PlanRemovalReply, Fault> {
    let found = find(map, request.kind, &request.name)?;
    let (id, uuid) = (found.id(), found.uuid(map));
    let refused = match check(map, reports, &found, request.force, now_ms) {
        Ok(()) => String::new(),
        Err(fault) => fault.detail,
    };
    let token = match refused.is_empty() {
        true => removal_token(request.kind, id, uuid, map.version),
        false => String::new(),
    };
    let targets = found.targets(map).iter().map(|t| t.id).collect();
    let id = if let Found::Mirror(mirror) = found { mirror.0.into() } else { id };
    Ok(PlanRemovalReply { id, uuid, version: map.version, targets, refused, token })
}

/// The map without the entry. Refused if the map or the entry is not as in the plan that gave the token (mgmt-R1).
pub fn apply_removal(
    map: &ClusterMap,
    reports: &Reports,
    request: &Remove,
    now_ms: u64,
) -> Result<ClusterMap, Fault> {
    let found = find(map, request.kind, &request.name)?;
    check(map, reports, &found, request.force, now_ms)?;
    if request.token != removal_token(request.kind, found.id(), found.uuid(map), map.version) {
        let why = format!(
            "the token {:?} is not for {} and version {} of the cluster map, which changes when a server starts or stops; \
             look again with --dry-run",
            request.token,
            found.name(map),
            map.version
        );
        return Err(Fault::new(Code::Invalid, why));
    }
    let mut next = map.clone();
    let used = &mut next.ids_used;
    match found {
        Found::Target(target) => take_target(&mut next, target)?,
        Found::Mirror(_) => {
            let targets: Vec<TargetId> = found.targets(map).iter().map(|t| t.id).collect();
            targets.into_iter().try_for_each(|target| take_target(&mut next, target))?;
        }
        Found::FileSystem(fs) => {
            used.fs = used.fs.max(fs);
            let targets: Vec<TargetId> = map.targets.iter().filter(|t| t.fs == fs).map(|t| t.id).collect();
            targets.into_iter().try_for_each(|target| take_target(&mut next, target))?;
            next.file_systems.retain(|f| f.id != fs);
            next.params.retain(|entry| entry.fs != fs);
        }
        Found::Node(node) => {
            used.node = used.node.max(node);
            next.nodes.retain(|n| n.id != node);
        }
    }
    next.version += 1;
    Ok(next)
}

/// The confirmation of one removal in one version of the map (mgmt-R1). It guards against mistakes and is no secret.
pub fn removal_token(kind: RemovalKind, id: u64, uuid: Uuid, version: u64) -> String {
    let mut bytes = vec![kind as u8];
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&uuid.0);
    bytes.extend_from_slice(&version.to_le_bytes());
    // The lowest bits of the hash are zeros.
    let hash = hash::h64(&bytes) >> hash::COLLISION_BITS;
    format!("{:04x}-{:04x}-{:04x}", hash >> 32 & 0xffff, hash >> 16 & 0xffff, hash & 0xffff)
}

/// An entry of the map.
enum Found {
    Target(TargetId),
    /// Of several members, all of which go: it is draining.
    Mirror(MirrorId),
    FileSystem(FsId),
    Node(NodeId),
}

impl Found {
    fn id(&self) -> u64 {
        match self {
            Found::Target(id) => id.0.into(),
            // No target has such an id, so no token is for both.
            Found::Mirror(id) => 1 << 32 | u64::from(id.0),
            Found::FileSystem(id) => id.0.into(),
            Found::Node(id) => id.0,
        }
    }

    /// A node has none; its id and the map's version identify it.
    fn uuid(&self, map: &ClusterMap) -> Uuid {
        match self {
            Found::Target(id) => map.target(*id).map(|t| t.uuid),
            Found::Mirror(_) => self.targets(map).first().map(|t| t.uuid),
            Found::FileSystem(id) => map.fs(*id).map(|f| f.uuid),
            Found::Node(_) => None,
        }
        .unwrap_or_default()
    }

    fn name(&self, map: &ClusterMap) -> String {
        match self {
            Found::Target(id) => map.target(*id).map_or_else(|| id.to_string(), |t| member_name(map, t)),
            Found::Mirror(id) => {
                map.mirror(*id).map_or_else(|| id.to_string(), |mirror| mirror_name(map, mirror))
            }
            Found::FileSystem(id) => {
                format!("file system {}", map.fs(*id).map_or("?", |f| f.name.as_str()))
            }
            Found::Node(id) => format!("node {} ({id})", map.node(*id).map_or("?", |n| n.name.as_str())),
        }
    }

    /// Targets that leave the map with it; for a node, those that keep it there.
    fn targets<'m>(&self, map: &'m ClusterMap) -> Vec<&'m Target> {
        let is_its = |t: &&Target| match self {
            Found::Target(id) => t.id == *id,
            Found::Mirror(mirror) => t.mirror == *mirror,
            Found::FileSystem(fs) => t.fs == *fs,
            Found::Node(node) => t.node == *node,
        };
        map.targets.iter().filter(is_its).collect()
    }
}

/// Finds an entry by its name, or by its id in digits. A name counts first.
fn find(map: &ClusterMap, kind: RemovalKind, name: &str) -> Result<Found, Fault> {
    // A node is shown as n3.
    let digits = if kind == RemovalKind::Node { name.strip_prefix('n').unwrap_or(name) } else { name };
    let id: Option<u64> = digits.parse().ok();
    let missing = |what: &str, list: &str| {
        Fault::new(Code::NotFound, format!("no {what} {name:?} is in the cluster map; {list} lists them"))
    };
    match kind {
        RemovalKind::Target => {
            let by_name = map.targets.iter().find(|t| member_name(map, t) == name);
            let of_mirror = |m: &&Mirror| m.members.len() > 1 && mirror_name(map, m) == name;
            if let (None, Some(mirror)) = (by_name, map.mirrors.iter().find(of_mirror)) {
                if map.is_draining(mirror.id) {
                    return Ok(Found::Mirror(mirror.id));
                }
                let why = format!("{name:?} has two members: {}", members_text(map, mirror));
                return Err(Fault::new(Code::Invalid, format!("{why}; name one by its id")));
            }
            let by_id = || map.targets.iter().find(|t| Some(u64::from(t.id.0)) == id);
            let found = by_name.or_else(by_id).ok_or_else(|| missing("target", "`stria status`"))?;
            Ok(Found::Target(found.id))
        }
        RemovalKind::FileSystem => {
            let found = map.fs_named(name).ok_or_else(|| missing("file system", "`stria fs list`"))?;
            Ok(Found::FileSystem(found.id))
        }
        RemovalKind::Node => {
            let named: Vec<&Node> = map.nodes.iter().filter(|n| n.name == name).collect();
            match named.as_slice() {
                [] => {
                    let by_id = map.nodes.iter().find(|n| Some(n.id.0) == id);
                    Ok(Found::Node(by_id.ok_or_else(|| missing("node", "`stria node list`"))?.id))
                }
                [one] => Ok(Found::Node(one.id)),
                several => {
                    let ids: Vec<String> =
                        several.iter().map(|n| format!("{} ({})", n.id, n.nids.join(", "))).collect();
                    let why = format!("{name:?} has several nodes: {}; name one by its id", ids.join("; "));
                    Err(Fault::new(Code::Invalid, why))
                }
            }
        }
    }
}

/// Refuses what others still use, and an MDT alone (mgmt-R2), and a member in sync beside another one (mgmt-I6).
fn check(
    map: &ClusterMap,
    reports: &Reports,
    found: &Found,
    is_forced: bool,
    now_ms: u64,
) -> Result<(), Fault> {
    let targets = found.targets(map);
    let names = |some: &[&Target]| some.iter().map(|t| member_name(map, t)).collect::<Vec<_>>().join(", ");
    let up: Vec<&Target> = targets.iter().copied().filter(|t| reports.is_up(t, now_ms)).collect();
    let busy = |why: String| Err(Fault::new(Code::Busy, why));
    match found {
        Found::Target(_) | Found::Mirror(_) => {
            if matches!(found, Found::Target(_)) {
                targets.iter().try_for_each(|target| check_member(map, target))?;
            }
            match up.is_empty() || is_forced {
                true => Ok(()),
                false => busy(format!("{} is up; stop its server first, or give --force", names(&up))),
            }
        }
        Found::FileSystem(_) if !up.is_empty() => busy(format!(
            "{} has targets that are up: {}; stop their servers first",
            found.name(map),
            names(&up)
        )),
        Found::Node(_) if !targets.is_empty() => busy(format!(
            "{} has targets: {}; remove them first, or start them at another host",
            found.name(map),
            names(&targets)
        )),
        _ => Ok(()),
    }
}

/// Whether the mirror of a target can do without it.
fn check_member(map: &ClusterMap, target: &Target) -> Result<(), Fault> {
    let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
    let name = member_name(map, target);
    let mirror = map.mirror(target.mirror).filter(|m| m.members.len() > 1);
    let Some(mirror) = mirror else {
        if !target.is_mdt {
            return Ok(());
        }
        let fs = map.fs(target.fs).map_or("?", |f| f.name.as_str());
        return invalid(format!(
            "{name} holds the names of file system {fs}, which is nothing without it; `stria fs remove {fs}` removes both"
        ));
    };
    let mut in_sync = mirror.members.iter().filter(|m| m.state == MemberState::InSync);
    let has = |wanted: bool| move |m: &wire::map::Member| (m.target == target.id) == wanted;
    match (in_sync.clone().any(has(true)), in_sync.any(has(false))) {
        (false, _) => Ok(()),
        // Only the other member can declare it out, after it has stopped serving.
        (true, true) => invalid(format!(
            "{name} is in sync, and the other member waits for it: {}; stop its server, and remove it once it is out",
            members_text(map, mirror)
        )),
        (true, false) => invalid(format!(
            "{name} is the last member in sync, and the other one lacks changes: {}; wait until both are in sync, or remove the other one",
            members_text(map, mirror)
        )),
    }
}

/// Takes out a target, and its mirror with its last member.
fn take_target(next: &mut ClusterMap, target: TargetId) -> Result<(), Fault> {
    next.targets.retain(|t| t.id != target);
    for mirror in next.mirrors.iter_mut().filter(|m| m.has(target)) {
        mirror.members.retain(|member| member.target != target);
        // mgmt-I3: the members are others.
        mirror.epoch = next_epoch(mirror.epoch)?;
        if let Some(first) = mirror.members.first().filter(|_| mirror.primary == target) {
            mirror.primary = first.target;
        }
    }
    let used = &mut next.ids_used;
    used.target = used.target.max(target);
    used.mirror =
        next.mirrors.iter().filter(|m| m.members.is_empty()).map(|m| m.id).fold(used.mirror, Ord::max);
    next.mirrors.retain(|m| !m.members.is_empty());
    // mgmt-D1.
    next.draining = next.draining.iter().copied().filter(|m| next.mirror(*m).is_some()).collect();
    Ok(())
}

#[cfg(test)]
mod tests;
