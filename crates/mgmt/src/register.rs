//! Registration of targets: a new one gets its place in the map, a known one keeps it.

use types::*;
use wire::Wire;
use wire::map::{Apart, ClusterMap, FileSystem, Member, MemberState, Mirror, Node, Target};
use wire::mgmt::{Register, RegisterReply};

use crate::name::{check_fs_name, member_name, members_text, target_name};
use crate::{Reports, STATE_DOWN, STATE_UP};

/// Default of a new file system: milliseconds between background flushes of acknowledged changes.
pub const COMMIT_INTERVAL_MS: u32 = 1000;
/// Largest map in bytes: a reply's body is at most 4 MiB, and it has a head and other fields too.
pub const MAP_BYTES_MAX: usize = 3 << 20;
/// The value for any index in a registration.
const INDEX_ANY: u32 = u32::MAX;
/// Highest index: in a stripe specification 65,535 lets the MDT choose.
const INDEX_MAX: u32 = 65_534;
/// Longest node name in bytes, as for POSIX host names.
const NODE_NAME_MAX: usize = 255;
/// Most NIDs of a node: some rails with two address families each.
const NIDS_MAX: usize = 16;
/// Most members of a mirror: the rules of crate `mirror` are about two.
const MEMBERS_MAX: usize = 2;
/// Longest NID in bytes, the limit of the fabric's handshake.
const NID_BYTES_MAX: usize = 192;

/// Randomness for a new file system: its identity and the key of its capabilities.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    pub fs_uuid: Uuid,
    pub secret: Uuid,
}

/// Registers a target: gives the next map, to be stored before the reply is sent, and the reply (with secrets: it goes to a server).
///
/// - The first MDT with a new name makes the file system, unless `CreateFs` has. An OST of an unknown one is `NotReady`: its MDT must register
///   first.
/// - A known uuid keeps id, index and mirror. A different name, kind or id is `Invalid`, a different wanted index `Exists`.
/// - An index that another target has is `Exists`; so is a second MDT, since the first serves the whole name space.
/// - With `second`, a new target joins the mirror of the wanted index, which has one member, and is out until it is resynced (mgmt-I6).
/// - A member of a mirror of two that registers again leaves the mirror's epoch as it is (mgmt-I3).
pub fn apply_register(
    map: &ClusterMap,
    request: &Register,
    fresh: &Fresh,
) -> Result<(ClusterMap, RegisterReply), Fault> {
    check(request)?;
    let mut next = map.clone();
    let (target, is_new) = match map.targets.iter().find(|t| t.uuid == request.uuid) {
        Some(known) => {
            agree(map, known, request)?;
            (known.id, false)
        }
        None => (admit(&mut next, request, fresh)?, true),
    };
    let node = place(&mut next, target, request)?;

    let slot = next.targets.iter_mut().find(|t| t.id == target).expect("it was found or added above");
    slot.node = node;
    slot.state = STATE_UP;
    slot.bytes_total = request.bytes_total;
    let (index, mirror_id) = (slot.index, slot.mirror);
    let mirror = next
        .mirrors
        .iter_mut()
        .find(|m| m.id == mirror_id)
        .ok_or_else(|| no_mirror(&target.to_string(), mirror_id))?;
    // mgmt-I3: the members of a mirror of two promise under its epoch, and a restart of one must not void that.
    if is_new || mirror.members.len() < MEMBERS_MAX {
        mirror.epoch = next_epoch(mirror.epoch)?;
    }
    let epoch = mirror.epoch;
    next.version += 1;

    check_size(&next)?;
    let reply = RegisterReply { target, index, mirror: mirror_id, epoch, node, map: next.clone() };
    Ok((next, reply))
}

/// Refuses, as `Busy`, to move a target away from a node that serves it now. Otherwise two servers of copies of one medium would each
/// acknowledge writes that the other does not have.
///
/// A node is identified by its host's name. Its NIDs change with each start if the kernel chooses the port, and a server that restarts
/// after a crash must be admitted at once. So this rule does not see a copy on the same host; there the lock of the medium prevents a
/// second server. A target that runs only in the MGS' own process, without a NID, was not served by another host.
pub fn refuse_second_copy(
    map: &ClusterMap,
    reports: &Reports,
    request: &Register,
    now_ms: u64,
) -> Result<(), Fault> {
    let Some(target) = map.targets.iter().find(|t| t.uuid == request.uuid) else { return Ok(()) };
    let Some(node) = map.node(target.node) else { return Ok(()) };
    let is_in_this_process = node.nids.is_empty() && request.nids.is_empty();
    if node.name == request.node_name || is_in_this_process || !reports.is_up(target, now_ms) {
        return Ok(());
    }
    let why = format!(
        "{} is served by host {} ({}), so it is not given to host {}; stop it there, or if that host is dead wait {} s",
        member_name(map, target),
        node.name,
        node.nids.join(", "),
        request.node_name,
        crate::SILENCE_MS_MAX / 1000,
    );
    Err(Fault::new(Code::Busy, why))
}

/// Checks the parts of a request that need no map.
fn check(request: &Register) -> Result<(), Fault> {
    check_fs_name(&request.fs_name)?;
    let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
    let name = &request.node_name;
    if name.is_empty() || name.len() > NODE_NAME_MAX || name.chars().any(char::is_control) {
        return invalid(format!("the node's name must be 1 to {NODE_NAME_MAX} printable bytes"));
    }
    if request.nids.len() > NIDS_MAX {
        return invalid(format!("the node has {} NIDs; at most {NIDS_MAX} are kept", request.nids.len()));
    }
    if request.rack.len() > NODE_NAME_MAX || request.rack.chars().any(char::is_control) {
        return invalid(format!("the rack's name must be at most {NODE_NAME_MAX} printable bytes"));
    }
    if let Some(nid) = request.nids.iter().find(|n| n.is_empty() || n.len() > NID_BYTES_MAX) {
        return invalid(format!("a NID of {} bytes; it must be 1 to {NID_BYTES_MAX}", nid.len()));
    }
    if request.uuid == Uuid::default() {
        return invalid("the target's uuid is zero: format the target first".into());
    }
    if request.index > INDEX_MAX && request.index != INDEX_ANY {
        return invalid(format!("index {}: the highest is {INDEX_MAX}", request.index));
    }
    Ok(())
}

/// mgmt-I2: checks that a known target registers with its old identity.
fn agree(map: &ClusterMap, known: &Target, request: &Register) -> Result<(), Fault> {
    let fs = map.fs(known.fs).map_or("?", |f| f.name.as_str());
    let name = member_name(map, known);
    let says =
        |code, what: String| Err(Fault::new(code, format!("target {} is {name}; {what}", request.uuid)));
    if fs != request.fs_name {
        return says(
            Code::Invalid,
            format!("it cannot join file system {:?}; format it anew for that", request.fs_name),
        );
    }
    if known.is_mdt != request.is_mdt {
        return says(Code::Invalid, "it cannot change its kind; format it anew for that".into());
    }
    if request.target.0 != 0 && request.target != known.id {
        let why = format!(
            "the map has it as number {}, its label says {}; check the device",
            known.id, request.target
        );
        return says(Code::Invalid, why);
    }
    if request.index != INDEX_ANY && request.index != known.index {
        return says(Code::Exists, format!("its index cannot become {}; leave the index out", request.index));
    }
    Ok(())
}

/// Adds a target that was never registered, its mirror, and its file system if it is the first MDT of one.
fn admit(next: &mut ClusterMap, request: &Register, fresh: &Fresh) -> Result<TargetId, Fault> {
    if request.target.0 != 0 {
        return Err(not_in_map(next, request));
    }
    if request.second {
        return admit_second(next, request);
    }
    let fs = match next.fs_named(&request.fs_name) {
        Some(fs) => fs.id,
        None if request.is_mdt => {
            let settings = FsSettings { inline_max: INLINE_MAX, commit_interval_ms: COMMIT_INTERVAL_MS };
            make_fs(next, &request.fs_name, settings, fresh)?
        }
        None => {
            let why = format!("file system {:?} is not known: start its MDT first", request.fs_name);
            return Err(Fault::new(Code::NotReady, why));
        }
    };
    let index = choose_index(next, fs, request)?;
    let id = next_target_id(next)?;
    let last = highest(next.mirrors.iter().map(|m| m.id.0), next.ids_used.mirror.0);
    let mirror = MirrorId(one_above(last, "mirror id")?);
    next.mirrors.push(Mirror::alone(mirror, fs, request.is_mdt, Epoch(0), id));
    push_target(next, request, (id, fs, index, mirror));
    Ok(id)
}

/// mgmt-I6: adds the second member of a mirror.
fn admit_second(next: &mut ClusterMap, request: &Register) -> Result<TargetId, Fault> {
    let not_ready = |why: String| Err(Fault::new(Code::NotReady, why));
    if request.index == INDEX_ANY {
        let why = "a second member needs the index of the target that it doubles; make it anew with `stria mkfs ... --index`";
        return Err(Fault::new(Code::Invalid, why));
    }
    let Some(fs) = next.fs_named(&request.fs_name).map(|fs| fs.id) else {
        return not_ready(format!("file system {:?} is not known: start its MDT first", request.fs_name));
    };
    let is_first = |t: &&Target| (t.fs, t.is_mdt, t.index) == (fs, request.is_mdt, request.index);
    let name = target_name(&request.fs_name, request.is_mdt, request.index);
    let Some(first) = next.targets.iter().find(is_first) else {
        return not_ready(format!(
            "{name} is not there yet, so it gets no second member: start the server of its first member, or correct the index"
        ));
    };
    let (id, bytes) = (first.mirror, first.bytes_total);
    let mirror = next.mirror(id).ok_or_else(|| no_mirror(&name, id))?;
    if mirror.members.len() >= MEMBERS_MAX {
        let why = format!(
            "{name} has two members already: {}; choose another index, or take the one that is out away with `stria target remove`",
            members_text(next, mirror)
        );
        return Err(Fault::new(Code::Exists, why));
    }
    let host = next.node(first.node);
    if host.is_none() && request.apart != Apart::Nothing {
        return not_ready(format!(
            "the server of the first member of {name} has not registered yet; start it"
        ));
    }
    if let Some(shared) = host.and_then(|node| shared_domain(node, request)) {
        let why = format!("{name} has its first member there: {shared}");
        return Err(Fault::new(Code::Invalid, why));
    }
    if request.bytes_total < bytes {
        let why = format!(
            "the device has {} bytes, and the first member of {name} has {bytes}; give a device of at least that size",
            request.bytes_total
        );
        return Err(Fault::new(Code::Invalid, why));
    }
    let target = next_target_id(next)?;
    push_target(next, request, (target, fs, request.index, id));
    let mirror = next.mirrors.iter_mut().find(|m| m.id == id).ok_or_else(|| no_mirror(&name, id))?;
    mirror.members.push(Member { target, state: MemberState::Out });
    Ok(target)
}

/// mgmt-I7: what the new second member would share with the first one, on `node`, although its server asks for members that are apart.
fn shared_domain(node: &Node, request: &Register) -> Option<String> {
    let next_step = "start the second member's server elsewhere, or set `failure_domain` of that server";
    if request.apart == Apart::Nothing {
        None
    } else if node.name == request.node_name {
        Some(format!("both would be on host {}, and be lost with it; {next_step} to \"none\"", node.name))
    } else if request.apart == Apart::Server {
        None
    } else if node.rack.is_empty() || request.rack.is_empty() {
        let host = if node.rack.is_empty() { &node.name } else { &request.node_name };
        let next_step = "set `rack` in its configuration and restart it";
        Some(format!("host {host} names no rack, so members cannot be kept apart by racks; {next_step}"))
    } else if node.rack == request.rack {
        let (one, other, rack) = (&node.name, &request.node_name, &node.rack);
        Some(format!("hosts {one} and {other} are both in rack {rack}; {next_step} to \"server\""))
    } else {
        None
    }
}

fn no_mirror(name: &str, mirror: MirrorId) -> Fault {
    let why = format!("target {name} names mirror {mirror}, which is not in the cluster map");
    Fault::new(Code::Damaged, why)
}

fn next_target_id(map: &ClusterMap) -> Result<TargetId, Fault> {
    let last = highest(map.targets.iter().map(|t| t.id.0), map.ids_used.target.0);
    Ok(TargetId(one_above(last, "target id")?))
}

fn push_target(
    next: &mut ClusterMap,
    request: &Register,
    (id, fs, index, mirror): (TargetId, FsId, u32, MirrorId),
) {
    next.targets.push(Target {
        id,
        fs,
        is_mdt: request.is_mdt,
        index,
        uuid: request.uuid,
        node: NodeId(0),
        mirror,
        state: STATE_DOWN,
        bytes_total: 0,
    });
}

/// A target whose label has an id that the map does not know.
fn not_in_map(map: &ClusterMap, request: &Register) -> Fault {
    let (target, uuid) = (request.target, request.uuid);
    let why = match target <= map.ids_used.target {
        true => format!(
            "target {target} ({uuid}) is not in this cluster map: it was removed, or registered with another management \
             service; format it anew to use it here, or start the service that has it"
        ),
        false => format!(
            "target {target} ({uuid}) registered elsewhere and is not in this cluster map: start the management service \
             that has its map, or format it anew"
        ),
    };
    Fault::new(Code::NotFound, why)
}

/// Properties of a file system for its whole life.
pub(crate) struct FsSettings {
    pub inline_max: u32,
    pub commit_interval_ms: u32,
}

pub(crate) fn make_fs(
    next: &mut ClusterMap,
    name: &str,
    settings: FsSettings,
    fresh: &Fresh,
) -> Result<FsId, Fault> {
    let used = next.ids_used.fs.0;
    let id = FsId(one_above(highest(next.file_systems.iter().map(|f| f.id.0), used), "file system id")?);
    next.file_systems.push(FileSystem {
        id,
        name: name.to_string(),
        uuid: fresh.fs_uuid,
        secret: fresh.secret,
        inline_max: settings.inline_max,
        commit_interval_ms: settings.commit_interval_ms,
    });
    Ok(id)
}

/// The wanted index, or the lowest free one.
fn choose_index(map: &ClusterMap, fs: FsId, request: &Register) -> Result<u32, Fault> {
    let kin: Vec<&Target> = map.targets.iter().filter(|t| t.fs == fs && t.is_mdt == request.is_mdt).collect();
    let holder = |index| kin.iter().find(|t| t.index == index);
    let exists = |t: &Target, next_step: &str| {
        let name = target_name(&request.fs_name, t.is_mdt, t.index);
        Err(Fault::new(Code::Exists, format!("{name} is already there, with uuid {}; {next_step}", t.uuid)))
    };
    if request.is_mdt {
        // A second MDT would get no shard, so it would be a part of the file system in name only.
        if let Some(first) = kin.first() {
            return exists(
                first,
                "a file system has one MDT for now; choose another file system name, or `second = true` for that MDT's second member",
            );
        }
    }
    match request.index {
        INDEX_ANY => (0..=INDEX_MAX).find(|i| holder(*i).is_none()).ok_or_else(|| {
            Fault::new(
                Code::NoSpace,
                format!("file system {:?} has all the targets that it may have", request.fs_name),
            )
        }),
        wanted => match holder(wanted) {
            Some(t) => exists(
                t,
                "choose another index or leave it out, or name the device under `second_devices` as its second member",
            ),
            None => Ok(wanted),
        },
    }
}

/// The present node of the target, added or changed as needed.
///
/// Several servers may run on one host, each with its own NIDs, so a name alone does not identify a node. A server that registers with
/// other NIDs keeps its node if no other target is on it.
fn place(next: &mut ClusterMap, target: TargetId, request: &Register) -> Result<NodeId, Fault> {
    // 1. The node with this name and these NIDs.
    let is_this = |n: &&mut Node| n.name == request.node_name && n.nids == request.nids;
    if let Some(n) = next.nodes.iter_mut().find(is_this) {
        n.rack = request.rack.clone();
        return Ok(n.id);
    }
    // 2. Its own node, or one of this name that has no target any more.
    let is_only_its = |id: NodeId| next.targets.iter().all(|t| t.node != id || t.id == target);
    let own = next.target(target).map(|t| t.node);
    let free = next
        .nodes
        .iter()
        .filter(|n| is_only_its(n.id) && (own == Some(n.id) || n.name == request.node_name))
        .map(|n| n.id)
        .min_by_key(|id| own != Some(*id));
    if let Some(node) = next.nodes.iter_mut().find(|n| Some(n.id) == free) {
        node.name = request.node_name.clone();
        node.nids = request.nids.clone();
        node.rack = request.rack.clone();
        return Ok(node.id);
    }
    // 3. A new one.
    let last = highest(next.nodes.iter().map(|n| n.id.0), next.ids_used.node.0);
    let id = NodeId(last.checked_add(1).ok_or_else(|| used_up("node id"))?);
    let (name, nids, rack) = (request.node_name.clone(), request.nids.clone(), request.rack.clone());
    next.nodes.push(Node { id, name, nids, rack });
    Ok(id)
}

/// mgmt-I4.
pub(crate) fn check_size(map: &ClusterMap) -> Result<(), Fault> {
    let bytes = map.to_bytes().len();
    match bytes <= MAP_BYTES_MAX {
        true => Ok(()),
        false => {
            let why = format!("the cluster map would be {bytes} bytes; at most {MAP_BYTES_MAX} can be sent");
            Err(Fault::new(Code::NoSpace, why))
        }
    }
}

/// The highest id that was ever given: of the entries, or of one that was removed.
fn highest<T: Ord>(present: impl Iterator<Item = T>, used: T) -> T {
    present.fold(used, Ord::max)
}

/// mgmt-I1.
fn one_above(highest: u32, what: &str) -> Result<u32, Fault> {
    highest.checked_add(1).ok_or_else(|| used_up(what))
}

fn used_up(what: &str) -> Fault {
    Fault::new(Code::NoSpace, format!("every {what} has been used"))
}

pub(crate) fn next_epoch(epoch: Epoch) -> Result<Epoch, Fault> {
    Ok(Epoch(one_above(epoch.0, "epoch")?))
}

#[cfg(test)]
mod tests;
