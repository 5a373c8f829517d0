//! The OST's place in the cluster: its file system, the capability key, its mirror's epoch.
//!
//! oss-P8: from the map on that has another key, no capability and no ticket by the key of before counts. Nothing delays that: the flush
//!     for requests of before follows in the background.

use std::sync::Arc;
use std::time::Duration;

use types::{Code, Epoch, Fault, FsId, TargetId, Uuid};
use wire::map::ClusterMap;
use wire::mgmt::RegisterReply;

use crate::Core;

/// The registration's result.
#[derive(Clone)]
pub struct Joined {
    /// Of the map that had the key.
    pub version: u64,
    pub fs: FsId,
    pub fs_uuid: Uuid,
    /// Key of the MACs of capabilities.
    pub secret: Uuid,
    pub target: TargetId,
    pub index: u32,
    pub epoch: Epoch,
    pub commit_interval: Duration,
}

impl Core {
    pub fn join(&self, reply: &RegisterReply) -> Result<(), Fault> {
        let missing =
            |what: String| Fault::new(Code::NotFound, format!("{what} is not in the map that registered us"));
        let me = reply.map.target(reply.target).ok_or_else(|| missing(format!("target {}", reply.target)))?;
        let fs = reply.map.fs(me.fs).ok_or_else(|| missing(format!("file system {}", me.fs)))?;
        let joined = Joined {
            version: reply.map.version,
            fs: fs.id,
            fs_uuid: fs.uuid,
            secret: fs.secret,
            target: reply.target,
            index: reply.index,
            epoch: reply.epoch,
            commit_interval: Duration::from_millis(fs.commit_interval_ms.max(1) as u64),
        };
        self.take_identity(reply, fs.uuid)?;
        assert!(self.store.label().target == reply.target, "the superblock names the target that is served");
        self.store.set_epoch(reply.epoch);
        self.set_nodemaps(&reply.map);
        *self.joined.write() = Some(Arc::new(joined));
        Ok(())
    }

    /// Takes a newer map: the key (oss-P8), and then the nodemaps, which may end sessions.
    pub fn set_map(&self, map: &ClusterMap) {
        self.set_key(map);
        self.set_nodemaps(map);
    }

    fn set_key(&self, map: &ClusterMap) {
        let mut joined = self.joined.write();
        let Some(before) = joined.clone().filter(|before| map.version > before.version) else { return };
        let Some(secret) = map.fs(before.fs).map(|fs| fs.secret) else { return };
        let epoch = map.mirror(self.store.label().mirror).map_or(before.epoch, |m| m.epoch.max(before.epoch));
        self.store.set_epoch(epoch);
        // Clients get maps without keys.
        let is_new = secret != before.secret && secret != Uuid::default();
        *joined = Some(Arc::new(Joined {
            version: map.version,
            epoch,
            secret: if is_new { secret } else { before.secret },
            ..(*before).clone()
        }));
        drop(joined);
        if is_new {
            tracing::warn!(
                version = map.version,
                "the key of capabilities has changed; clients fetch new ones"
            );
            // A request by an earlier capability could not be replayed after a crash, so the flusher does not wait for its next round.
            self.bell.ring();
        }
    }

    /// The first registration names the target. Every later one must give the same name.
    fn take_identity(&self, reply: &RegisterReply, fs_uuid: Uuid) -> Result<(), Fault> {
        let mut label = self.store.label();
        let is_new = label.target == TargetId(0);
        let is_other_fs = label.fs_uuid != Uuid::default() && label.fs_uuid != fs_uuid;
        if is_other_fs || (!is_new && label.target != reply.target) {
            let detail = format!(
                "this device is target {} of file system {}, but was registered as target {} of {fs_uuid}; \
                 give the device that belongs here, or format it anew",
                label.target, label.fs_uuid, reply.target
            );
            return Err(Fault::new(Code::Invalid, detail));
        }
        if let Some(engine) = &self.engine {
            pair::check_note_is_of(&engine.volume().note(), label.mirror, reply.mirror)?;
        }
        let old = label.clone();
        label.target = reply.target;
        label.index = reply.index;
        label.mirror = reply.mirror;
        label.epoch = label.epoch.max(reply.epoch);
        label.fs_uuid = fs_uuid;
        if label != old {
            self.store.set_label(label)?;
        }
        Ok(())
    }

    pub fn joined(&self) -> Result<Arc<Joined>, Fault> {
        let joined = self.joined.read().clone();
        joined.ok_or_else(|| {
            Fault::new(Code::NotReady, "this OST has not registered with the MGS yet; try again")
        })
    }
}
