//! The cluster map from the superblocks of its targets, for a map that was lost with all its copies.
//!
//! mgmt-B1: ids, indexes and mirrors of targets stay as they were; new ids begin far above, since removed targets left no trace.
//! mgmt-B2: each mirror goes on above all epochs that its members know, with the states of the newest map that one of them knows. So a member is
//!     in sync only if it was in sync by that.
//! mgmt-B3: two targets that claim one place, one id or one uuid make no map. Neither does a mirror with a member that is missing, unless an operator
//!     gives that member up.
//! mgmt-B4: file systems get new keys. No capability from before counts.
//! mgmt-B5: an index that is missing below the highest one of its kind makes no map, unless an operator gives that target up: files would count it
//!     as removed.

use std::collections::{BTreeMap, BTreeSet};

use types::*;
use wire::map::{ClusterMap, FileSystem, IdsUsed, Member, MemberState, Mirror, Target};

use crate::name::target_name;
use crate::register::{COMMIT_INTERVAL_MS, check_size};
use crate::{Fresh, STATE_UNKNOWN};

/// Distance of new ids from the highest known one: more targets than that are not removed between two registrations.
pub const IDS_GAP: u32 = 1000;
/// Version of a rebuilt map: above all that a running process may know, at one change per second for thirty years.
pub const REBUILT_VERSION: u64 = 1 << 30;
/// Files up to this size lie in the MDT, as in a file system that its first MDT made.
const INLINE_MAX: u32 = 64 << 10;

/// Names of missing targets that are told of one file system: an index of a damaged superblock may be any number.
const GAPS_MAX: usize = 1000;

/// The content of a target's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The device, for messages.
    pub device: String,
    pub is_mdt: bool,
    pub fs_name: String,
    pub fs_uuid: Uuid,
    pub uuid: Uuid,
    pub target: TargetId,
    pub index: u32,
    pub mirror: MirrorId,
    pub epoch: Epoch,
    pub bytes_total: u64,
    /// `None`: it was never a member of a mirror of two at work.
    pub note: Option<Noted>,
}

/// The newest map of its mirror that a member knows. Members are in the order of their target ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    pub epoch: Epoch,
    /// 0 or 1.
    pub primary: u8,
    pub states: [MemberState; 2],
    /// It has all that it ever acknowledged.
    pub is_whole: bool,
    /// It has a part of the other member's content.
    pub is_filling: bool,
}

impl Facts {
    pub fn name(&self) -> String {
        target_name(&self.fs_name, self.is_mdt, self.index)
    }
}

/// The reason that no map was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// The facts contradict each other, or are none of a target of a cluster.
    Conflict(String),
    Missing(Missing),
}

/// Names of targets that were not given.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Missing {
    /// Mirrors of two of which one member was given.
    pub members: Vec<String>,
    /// Below the highest index of their kind, and MDT 0. One of the highest index is not noticed.
    pub targets: Vec<String>,
}

/// The map. `without`: names of targets that are given up, and of mirrors whose missing member is. `fresh`: new keys, one for each file system.
pub fn rebuild(
    facts: &[Facts],
    without: &BTreeSet<String>,
    fresh: impl Fn() -> Result<Fresh, Fault>,
) -> Result<Result<ClusterMap, Unclear>, Fault> {
    if let Err(why) = agree(facts) {
        return Ok(Err(Unclear::Conflict(why)));
    }
    let mut map = ClusterMap { version: REBUILT_VERSION, ..ClusterMap::empty() };
    // 1. File systems, in the order of their oldest targets.
    let mut sorted: Vec<&Facts> = facts.iter().collect();
    sorted.sort_by_key(|f| f.target);
    for f in &sorted {
        if map.file_systems.iter().any(|fs| fs.uuid == f.fs_uuid) {
            continue;
        }
        map.file_systems.push(FileSystem {
            id: FsId(map.file_systems.len() as u32 + 1),
            name: f.fs_name.clone(),
            uuid: f.fs_uuid,
            // mgmt-B4.
            secret: fresh()?.secret,
            inline_max: INLINE_MAX,
            commit_interval_ms: COMMIT_INTERVAL_MS,
        });
    }
    // 2. Targets. Their servers register again, and give nodes with new ids.
    for f in &sorted {
        let fs = map.file_systems.iter().find(|fs| fs.uuid == f.fs_uuid).expect("it was made above").id;
        map.targets.push(Target {
            id: f.target,
            fs,
            is_mdt: f.is_mdt,
            index: f.index,
            uuid: f.uuid,
            node: NodeId(0),
            mirror: f.mirror,
            state: STATE_UNKNOWN,
            bytes_total: f.bytes_total,
        });
    }
    // 3. Mirrors.
    let targets = gaps(&map).into_iter().filter(|name| !without.contains(name)).collect();
    let mut missing = Missing { members: vec![], targets };
    let mut groups: BTreeMap<MirrorId, Vec<&Facts>> = BTreeMap::new();
    sorted.iter().for_each(|f| groups.entry(f.mirror).or_default().push(f));
    // mgmt-B2: its holes would be served as content.
    let is_half = |f: &&Facts| f.note.as_ref().is_some_and(|note| note.is_filling);
    let halves = groups.values().filter_map(|members| match members[..] {
        [only] => Some(only).filter(is_half),
        _ => None,
    });
    if let Some(half) = halves.into_iter().next() {
        return Ok(Err(Unclear::Conflict(format!(
            "{} on {} was being filled and has a part of the content only: give the facts of the other member; without it the content is lost, so restore a backup",
            half.name(),
            half.device
        ))));
    }
    for (id, members) in groups {
        let fs = map.target(members[0].target).expect("it was made above").fs;
        match mirror_of(id, fs, &members, without) {
            Some(mirror) => map.mirrors.push(mirror),
            None => missing.members.push(members[0].name()),
        }
    }
    if missing != Missing::default() {
        return Ok(Err(Unclear::Missing(missing)));
    }
    // mgmt-B1.
    let above = |highest: Option<u32>| highest.unwrap_or(0).saturating_add(IDS_GAP);
    map.ids_used = IdsUsed {
        fs: FsId(above(map.file_systems.iter().map(|fs| fs.id.0).max())),
        node: NodeId(IDS_GAP.into()),
        target: TargetId(above(map.targets.iter().map(|t| t.id.0).max())),
        mirror: MirrorId(above(map.mirrors.iter().map(|m| m.id.0).max())),
    };
    check_size(&map)?;
    Ok(Ok(map))
}

/// mgmt-B5.
fn gaps(map: &ClusterMap) -> Vec<String> {
    let of = |fs: &FileSystem, is_mdt: bool| {
        let indexes = map.targets.iter().filter(|t| t.fs == fs.id && t.is_mdt == is_mdt).map(|t| t.index);
        let known: BTreeSet<u32> = indexes.collect();
        let end = known.last().map_or(u32::from(is_mdt), |last| last.saturating_add(1));
        let lacking = (0..end).filter(|index| !known.contains(index)).take(GAPS_MAX);
        lacking.map(|index| target_name(&fs.name, is_mdt, index)).collect::<Vec<_>>()
    };
    map.file_systems.iter().flat_map(|fs| [of(fs, true), of(fs, false)].concat()).collect()
}

/// mgmt-B2. `None`: a member is missing.
fn mirror_of(id: MirrorId, fs: FsId, members: &[&Facts], without: &BTreeSet<String>) -> Option<Mirror> {
    let first = members[0];
    let noted = members.iter().filter_map(|f| f.note.as_ref());
    let newest = noted.clone().max_by_key(|note| note.epoch);
    let known = members.iter().map(|f| f.epoch.0).chain(noted.map(|note| note.epoch.0)).max().unwrap_or(0);
    let mut mirror = Mirror::alone(id, fs, first.is_mdt, Epoch(known.saturating_add(1)), first.target);
    match (members.len(), newest) {
        (1, None) => Some(mirror),
        (1, Some(_)) => without.contains(&first.name()).then_some(mirror),
        (_, newest) => {
            // Without a note the second one never began.
            let [a, b] = newest.map_or([MemberState::InSync, MemberState::Out], |note| note.states);
            let of = |at: usize, state| Member { target: members[at].target, state };
            mirror.members = vec![of(0, a), of(1, b)];
            mirror.primary = members[newest.map_or(0, |note| usize::from(note.primary.min(1)))].target;
            Some(mirror)
        }
    }
}

/// mgmt-B3.
fn agree(facts: &[Facts]) -> Result<(), String> {
    if facts.is_empty() {
        return Err("no facts of targets were given".into());
    }
    if let Some(f) = facts.iter().find(|f| f.target == TargetId(0) || f.fs_uuid == Uuid::default()) {
        return Err(format!(
            "{} was never registered, so it is no part of a lost map: leave it out",
            f.device
        ));
    }
    for (n, f) in facts.iter().enumerate() {
        for other in &facts[n + 1..] {
            let both = format!("{} and {}", f.device, other.device);
            let same =
                |what: &str| Err(format!("{both} both are {what}: give the one that belongs to the cluster"));
            if f.uuid == other.uuid {
                return same(&format!("target {} (one is a copy)", f.uuid));
            }
            if f.target == other.target {
                return same(&format!("target {}", f.target));
            }
            let is_one_fs = f.fs_uuid == other.fs_uuid;
            if is_one_fs != (f.fs_name == other.fs_name) {
                return Err(format!("{both} disagree about the name of file system {}", f.fs_name));
            }
            let is_one_place = is_one_fs && (f.is_mdt, f.index) == (other.is_mdt, other.index);
            match (is_one_place, f.mirror == other.mirror) {
                (true, false) => return same(&f.name()),
                (false, true) => return Err(format!("{both} are of one mirror and of two places")),
                _ => {}
            }
            // mirror-D1: an epoch has one map.
            if let (Some(a), Some(b)) = (&f.note, &other.note)
                && is_one_place
                && a.epoch == b.epoch
                && (a.primary, a.states) != (b.primary, b.states)
            {
                return Err(format!("{both} know different states of {} under one epoch", f.name()));
            }
        }
    }
    let mut count: BTreeMap<MirrorId, usize> = BTreeMap::new();
    facts.iter().for_each(|f| *count.entry(f.mirror).or_default() += 1);
    match count.into_iter().find(|(_, n)| *n > 2) {
        Some((id, n)) => Err(format!("{n} targets claim to be members of mirror {id}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
