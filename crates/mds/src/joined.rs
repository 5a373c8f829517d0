//! The MDT's place in the cluster: its file system, its secret, the OST mirrors that files may be placed on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use disk::volume::Volume;
use mgmt::params::Param;
use net::Fabric;
use types::{Code, Fault, FsId, MirrorId, Shard, TargetId, Uuid};
use wire::map::{ClusterMap, Target};
use wire::mgmt::RegisterReply;

use crate::Core;
use crate::sessions::nodemap::Nodemaps;

/// The MDT's view of a cluster map. A newer map replaces it as a whole.
pub struct Joined {
    pub version: u64,
    pub fs: FsId,
    pub fs_uuid: Uuid,
    /// The shard of fids that are allocated here.
    pub shard: Shard,
    /// Key of the capabilities' MACs.
    pub secret: Uuid,
    /// Bytes.
    pub inline_max: u32,
    pub commit_interval: Duration,
    /// Mirrors that layouts may name, in id order.
    pub ost_mirrors: Vec<MirrorId>,
    /// The index of each.
    pub ost_indexes: Vec<u32>,
    /// Those of all file systems that get no new objects.
    pub draining: Vec<MirrorId>,
    /// False if the map says that an OST of the file system is down.
    pub are_osts_up: bool,
    /// The target that orders writes of each OST mirror.
    pub primaries: HashMap<MirrorId, TargetId>,
    /// The highest id of a removed mirror.
    last_removed: MirrorId,
    pub nodemaps: Nodemaps,
    pub fabric: Arc<Fabric>,
}

impl Joined {
    fn new(map: &ClusterMap, fs: FsId, shard: Shard, fabric: Arc<Fabric>) -> Result<Joined, Fault> {
        let system = map.fs(fs).ok_or_else(|| {
            Fault::new(Code::NotFound, format!("file system {fs} is not in the cluster map {}", map.version))
        })?;
        let mirrors = map.ost_mirrors(fs);
        // Of a mirror of two, the other member goes on.
        let is_down = |t: &Target| t.state == mgmt::STATE_DOWN;
        Ok(Joined {
            version: map.version,
            fs,
            fs_uuid: system.uuid,
            shard,
            secret: system.secret,
            inline_max: system.inline_max,
            commit_interval: Duration::from_millis(system.commit_interval_ms.max(1) as u64),
            ost_mirrors: mirrors.iter().map(|m| m.id).collect(),
            ost_indexes: mirrors
                .iter()
                .map(|m| map.target(m.primary).map_or(u32::MAX, |t| t.index))
                .collect(),
            draining: map.draining.clone(),
            are_osts_up: !mirrors.iter().any(|m| map.target(m.primary).is_some_and(is_down)),
            primaries: mirrors.iter().map(|m| (m.id, m.primary)).collect(),
            last_removed: map.ids_used.mirror,
            nodemaps: Arc::new(mgmt::nodemap::in_order(map)),
            fabric,
        })
    }

    /// True if the mirror was removed from the cluster, with its objects. False for one that is newer than this map.
    pub fn is_removed(&self, mirror: MirrorId) -> bool {
        mirror <= self.last_removed && !self.primaries.contains_key(&mirror)
    }
}

impl Core {
    pub fn join(&self, reply: &RegisterReply, fabric: Arc<Fabric>) -> Result<(), Fault> {
        let me = reply.map.target(reply.target).ok_or_else(|| {
            Fault::new(
                Code::NotFound,
                format!("target {} is not in the map that registered it", reply.target),
            )
        })?;
        let joined = Joined::new(&reply.map, me.fs, shard_of(reply.index)?, fabric)?;
        take_identity(&self.volume, reply, joined.fs_uuid)?;
        self.note_mirror(&reply.map);
        self.executor.lead().ids.set_shard(joined.shard);
        self.epoch.fetch_max(reply.epoch.0, Ordering::Relaxed);
        self.joined.store(Some(Arc::new(joined)));
        Ok(())
    }

    pub fn set_map(&self, map: &ClusterMap) -> Result<(), Fault> {
        let old = self.joined()?;
        if map.version > old.version {
            let mut joined = Joined::new(map, old.fs, old.shard, old.fabric.clone())?;
            let has_same_nodemaps = joined.nodemaps == old.nodemaps;
            if has_same_nodemaps {
                joined.nodemaps = old.nodemaps.clone();
            }
            let has_new_key = joined.secret != old.secret;
            self.joined.store(Some(Arc::new(joined)));
            if has_new_key {
                // A flushed change needs no replay. The proof of an open in a replay was made by the former key.
                self.bells.flush.ring();
            }
            self.note_mirror(map);
            let mirror = map.mirror(self.volume.label().mirror);
            self.epoch.fetch_max(mirror.map_or(0, |m| m.epoch.0), Ordering::Relaxed);
            self.purged.on_new_map();
            self.bells.purge.ring();
            if !has_same_nodemaps {
                self.review_nodemaps();
            }
        }
        Ok(())
    }

    /// Clients of a member that is not the primary any more are told to fetch the map.
    fn note_mirror(&self, map: &ClusterMap) {
        let label = self.volume.label();
        let primary = map.mirror(label.mirror).map(|mirror| mirror.primary);
        self.pair.note_map(primary.is_some_and(|primary| primary != label.target));
    }

    /// Files of up to so many bytes are inline, unless their directory says otherwise.
    pub fn inline_max(&self, joined: &Joined) -> u32 {
        self.settings.params.get(Param::InlineMax).map_or(joined.inline_max, |bytes| bytes as u32)
    }

    pub fn joined(&self) -> Result<Arc<Joined>, Fault> {
        self.joined.load_full().ok_or_else(not_joined)
    }
}

/// The first registration gives the target its identity. Later ones must agree with it.
pub fn take_identity(volume: &Volume, reply: &RegisterReply, fs_uuid: Uuid) -> Result<(), Fault> {
    let mut label = volume.label();
    let is_new = label.target == TargetId(0);
    let is_other_fs = label.fs_uuid != Uuid::default() && label.fs_uuid != fs_uuid;
    if is_other_fs || (!is_new && label.target != reply.target) {
        return Err(Fault::new(
            Code::Invalid,
            format!(
                "this device is target {} of file system {}, but was registered as target {} of {fs_uuid}; \
                 give the device that belongs here, or format it anew",
                label.target, label.fs_uuid, reply.target
            ),
        ));
    }
    pair::check_note_is_of(&volume.note(), label.mirror, reply.mirror)?;
    let old = label.clone();
    label.target = reply.target;
    label.index = reply.index;
    label.mirror = reply.mirror;
    label.epoch = reply.epoch;
    label.fs_uuid = fs_uuid;
    if label != old {
        volume.set_label(label)?;
    }
    debug_assert_eq!(volume.label().target, reply.target, "the superblock has the identity");
    Ok(())
}

/// The uuid of the file system that a registration names.
pub fn fs_uuid_of(reply: &RegisterReply) -> Result<Uuid, Fault> {
    let not_there = || Fault::new(Code::NotFound, "the map that registered this target does not have it");
    let fs = reply.map.target(reply.target).and_then(|me| reply.map.fs(me.fs));
    fs.map(|fs| fs.uuid).ok_or_else(not_there)
}

pub fn not_joined() -> Fault {
    Fault::new(Code::NotReady, "this MDT has not registered with the MGS yet; try again")
}

/// Each MDT allocates fids under its own number.
pub fn shard_of(index: u32) -> Result<Shard, Fault> {
    u16::try_from(index).map(Shard).map_err(|_| {
        Fault::new(Code::Invalid, format!("MDT index {index} is above 65,535: fids have no room for it"))
    })
}
