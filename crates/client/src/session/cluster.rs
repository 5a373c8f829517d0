//! The client's view of the cluster map: the link to the MDT of a fid, and to the target of a mirror.

use std::collections::HashMap;
use std::sync::Arc;

use net::Fabric;
use parking_lot::RwLock;
use types::{Code, Fault, Fid, MirrorId, TargetId};
use wire::map::{ClusterMap, Target};

use crate::session::identity::Identity;
use crate::session::link::Link;

pub(crate) struct Cluster {
    fabric: Arc<Fabric>,
    id: Arc<Identity>,
    table: RwLock<Table>,
}

/// A target of the file system.
pub(crate) struct About {
    pub target: TargetId,
    pub is_mdt: bool,
    pub index: u32,
    pub link: Arc<Link>,
}

struct Table {
    map: ClusterMap,
    links: HashMap<TargetId, Arc<Link>>,
    /// The primary of each OST mirror.
    by_mirror: HashMap<MirrorId, Arc<Link>>,
    mdt: Option<Arc<Link>>,
    /// Every target lives and dies with this process.
    is_fate_shared: bool,
}

impl Cluster {
    pub fn new(fabric: Arc<Fabric>, id: Arc<Identity>, map: ClusterMap) -> Cluster {
        let none = Table {
            map: ClusterMap::empty(),
            links: HashMap::new(),
            by_mirror: HashMap::new(),
            mdt: None,
            is_fate_shared: false,
        };
        let cluster = Cluster { fabric, id, table: RwLock::new(none) };
        cluster.set_map(map);
        cluster
    }

    /// Takes a newer map. Keeps sessions at targets that stay.
    pub fn set_map(&self, map: ClusterMap) {
        let mut table = self.table.write();
        if map.version < table.map.version {
            return;
        }
        self.fabric.set_map(&map);
        let fs = self.id.fs;
        let link_to = |links: &mut HashMap<TargetId, Arc<Link>>, target: TargetId, is_mdt: bool| {
            let make = || Arc::new(Link::new(target, is_mdt, self.fabric.clone(), self.id.clone()));
            links.entry(target).or_insert_with(make).clone()
        };
        let mut by_mirror = HashMap::new();
        for mirror in map.ost_mirrors(fs) {
            by_mirror.insert(mirror.id, link_to(&mut table.links, mirror.primary, false));
        }
        // A map of another management service does not know them either, and then nothing may be given up.
        let is_removed = |target: &TargetId| map.target(*target).is_none() && *target <= map.ids_used.target;
        for (target, link) in table.links.iter().filter(|(target, _)| is_removed(target)) {
            if link.leave() {
                tracing::error!(
                    "{} was removed from the cluster: reads and writes of bytes there fail with EIO; restore such files from a \
                     backup, or remove them",
                    table.map.target(*target).map_or_else(|| link.describe(), |t| name_of(&map, t))
                );
            }
        }
        let mdt = map.mdt_of(fs, Fid::ROOT).map(|m| m.primary);
        if let Some(target) = mdt {
            self.id.mdt.store(target.0, std::sync::atomic::Ordering::Release);
        }
        table.mdt = mdt.map(|target| link_to(&mut table.links, target, true));
        table.by_mirror = by_mirror;
        let is_here = |target: TargetId| self.fabric.peer(target).is_ok_and(|p| p.is_fate_shared());
        table.is_fate_shared = table.links.values().all(|link| link.has_left() || is_here(link.target));
        table.map = map;
    }

    /// True if all targets live in this process, so that no acknowledged change is lost while it lives.
    pub fn is_fate_shared(&self) -> bool {
        self.table.read().is_fate_shared
    }

    /// The MDT of `fid`. There is one MDT for all files now.
    pub fn mdt_of(&self, fid: Fid) -> Result<Arc<Link>, Fault> {
        let missing = || {
            Fault::new(
                Code::NotReady,
                format!("no MDT for file {fid} in the cluster map; start it and mount again"),
            )
        };
        self.table.read().mdt.clone().ok_or_else(missing)
    }

    pub fn ost(&self, mirror: MirrorId) -> Result<Arc<Link>, Fault> {
        let table = self.table.read();
        if let Some(link) = table.by_mirror.get(&mirror) {
            return Ok(link.clone());
        }
        if table.map.is_removed(mirror) {
            let detail = format!(
                "the OST of mirror {mirror} was removed from the cluster, with the bytes there; restore the file from a backup, \
                 or remove it"
            );
            return Err(Fault::new(Code::Io, detail));
        }
        let detail =
            format!("mirror {mirror} is not in the cluster map that this client has; see 'stria status'");
        Err(Fault::new(Code::NotReady, detail))
    }

    /// OST mirrors with their links, in id order.
    pub fn osts(&self) -> Vec<(MirrorId, Arc<Link>)> {
        let table = self.table.read();
        let mut all: Vec<_> = table.by_mirror.iter().map(|(m, l)| (*m, l.clone())).collect();
        all.sort_by_key(|(mirror, _)| *mirror);
        all
    }

    /// Every target of the file system: the MDT, then OSTs in the order of their mirrors.
    pub fn targets(&self) -> Vec<About> {
        let table = self.table.read();
        let about = |link: Arc<Link>| {
            let index = table.map.target(link.target).map_or(0, |t| t.index);
            About { target: link.target, is_mdt: link.is_mdt, index, link }
        };
        let mut osts: Vec<_> = table.by_mirror.iter().map(|(mirror, link)| (*mirror, link.clone())).collect();
        osts.sort_by_key(|(mirror, _)| *mirror);
        let osts = osts.into_iter().map(|(_, link)| link);
        table.mdt.clone().into_iter().chain(osts).map(about).collect()
    }

    /// The link to a target that this client has spoken to.
    pub fn target(&self, target: TargetId) -> Option<Arc<Link>> {
        self.table.read().links.get(&target).cloned()
    }

    /// Links that are attached now.
    pub fn attached(&self) -> Vec<Arc<Link>> {
        self.table.read().links.values().filter(|l| l.is_attached() && !l.has_left()).cloned().collect()
    }

    /// Links that were attached once, and are attached again if they are lost.
    pub fn in_use(&self) -> Vec<Arc<Link>> {
        self.table.read().links.values().filter(|l| l.was_attached() && !l.has_left()).cloned().collect()
    }

    /// True if a newer map cannot bring the mirror.
    pub fn is_removed(&self, mirror: MirrorId) -> bool {
        self.table.read().map.is_removed(mirror)
    }
    pub fn has_mirror(&self, mirror: MirrorId) -> bool {
        self.table.read().by_mirror.contains_key(&mirror)
    }
    pub fn map_version(&self) -> u64 {
        self.table.read().map.version
    }

    /// Index of the OST that serves a mirror.
    pub fn ost_index(&self, mirror: MirrorId) -> Option<u32> {
        let table = self.table.read();
        let primary = table.map.mirror(mirror)?.primary;
        table.map.target(primary).map(|t| t.index)
    }

    /// True if the MGS is in this process.
    pub fn has_mgs(&self) -> bool {
        self.fabric.peer(TargetId(0)).is_ok()
    }

    /// The map of an MGS in this process, if there is one. A layout may name a mirror that is newer than this client's map.
    pub fn newer_map(&self, deadline: std::time::Instant) -> Option<ClusterMap> {
        use wire::mgmt::GetMap;
        let mgs = self.fabric.peer(TargetId(0)).ok()?;
        let req = GetMap { known_version: self.map_version(), server: false };
        let said =
            net::rpc::call(&*mgs, wire::Header::default(), &req, &[], &mut types::Buf::new(), deadline);
        said.ok()?.2.ok()?.map
    }
}

/// The name of a target for people.
fn name_of(map: &ClusterMap, target: &Target) -> String {
    let fs = map.fs(target.fs).map_or("?", |f| f.name.as_str());
    format!("{fs}-{}{:04x}", if target.is_mdt { "MDT" } else { "OST" }, target.index)
}
