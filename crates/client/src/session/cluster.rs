//! The client's view of the cluster map: the link to the MDT of a fid, and to a mirror.
//!
//! client-M1: a link belongs to a mirror. When another member becomes its primary, the link follows: sessions, slots, retained requests and marks
//!     stay, and the client attaches at the new primary before it sends another request.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use net::Fabric;
use parking_lot::RwLock;
use types::{Code, Fault, Fid, MirrorId, TargetId};
use wire::map::{ClusterMap, Member, MemberState, Mirror, Target};

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
    /// Every mirror that this client has had a link to.
    links: HashMap<MirrorId, Arc<Link>>,
    /// The OST mirrors of the map.
    osts: BTreeMap<MirrorId, Arc<Link>>,
    mdt: Option<Arc<Link>>,
    /// Every target lives and dies with this process.
    is_fate_shared: bool,
}

impl Cluster {
    pub fn new(fabric: Arc<Fabric>, id: Arc<Identity>, map: ClusterMap) -> Cluster {
        let none = Table {
            map: ClusterMap::empty(),
            links: HashMap::new(),
            osts: BTreeMap::new(),
            mdt: None,
            is_fate_shared: false,
        };
        let cluster = Cluster { fabric, id, table: RwLock::new(none) };
        cluster.set_map(map);
        cluster
    }

    /// Takes a newer map. Keeps sessions at mirrors that stay.
    /// True: a mirror has another primary.
    pub fn set_map(&self, map: ClusterMap) -> bool {
        let mut table = self.table.write();
        if map.version < table.map.version {
            return false;
        }
        let has_moved = Cell::new(false);
        self.fabric.set_map(&map);
        let fs = self.id.fs;
        let link_to = |links: &mut HashMap<MirrorId, Arc<Link>>, mirror: &Mirror| {
            let Mirror { id, primary, is_mdt, .. } = *mirror;
            let make = || Arc::new(Link::new(id, primary, is_mdt, self.fabric.clone(), self.id.clone()));
            let link = links.entry(id).or_insert_with(make).clone();
            has_moved.set(has_moved.get() | link.follow(primary));
            // The MDT's reads are the primary's.
            let is_other = |m: &&Member| m.target != primary && m.state == MemberState::InSync && !is_mdt;
            link.set_aside(mirror.members.iter().find(is_other).map(|m| m.target));
            link
        };
        let mdt = map.mdt_of(fs, Fid::ROOT);
        if let Some(mirror) = mdt {
            self.id.mdt.store(mirror.primary.0, std::sync::atomic::Ordering::Release);
        }
        table.mdt = mdt.map(|mirror| link_to(&mut table.links, mirror));
        table.osts = map.ost_mirrors(fs).into_iter().map(|m| (m.id, link_to(&mut table.links, m))).collect();
        // A map of another management service does not know them either, and then nothing may be given up.
        for (_, link) in table.links.iter().filter(|(mirror, _)| map.is_removed(**mirror)) {
            if link.leave() {
                tracing::error!(
                    "{} was removed from the cluster: reads and writes of bytes there fail with EIO; restore such files from a \
                     backup, or remove them",
                    table.map.target(link.target()).map_or_else(|| link.describe(), |t| name_of(&map, t))
                );
            }
        }
        let is_here = |target: TargetId| self.fabric.peer(target).is_ok_and(|p| p.is_fate_shared());
        table.is_fate_shared = table.links.values().all(|link| link.has_left() || is_here(link.target()));
        table.map = map;
        has_moved.get()
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
        if let Some(link) = table.osts.get(&mirror) {
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
        self.table.read().osts.iter().map(|(mirror, link)| (*mirror, link.clone())).collect()
    }

    /// The primary of each mirror of the file system: the MDT, then OSTs in the order of their mirrors.
    pub fn targets(&self) -> Vec<About> {
        let table = self.table.read();
        let about = |link: Arc<Link>| {
            let target = link.target();
            let index = table.map.target(target).map_or(0, |t| t.index);
            About { target, is_mdt: link.is_mdt, index, link }
        };
        table.mdt.iter().chain(table.osts.values()).cloned().map(about).collect()
    }

    /// The link to a mirror that this client has had one to.
    pub fn link(&self, mirror: MirrorId) -> Option<Arc<Link>> {
        self.table.read().links.get(&mirror).cloned()
    }

    /// Links that are attached now.
    pub fn attached(&self) -> Vec<Arc<Link>> {
        self.table.read().links.values().filter(|l| l.is_attached() && !l.has_left()).cloned().collect()
    }

    /// Links that were attached once, and are attached again if they are lost.
    pub fn in_use(&self) -> Vec<Arc<Link>> {
        self.table.read().links.values().filter(|l| l.was_attached() && !l.has_left()).cloned().collect()
    }

    pub fn is_draining(&self, mirror: MirrorId) -> bool {
        self.table.read().map.is_draining(mirror)
    }

    /// OSTs that take new objects, in id order.
    pub fn open_osts(&self) -> Vec<(MirrorId, Arc<Link>)> {
        let table = self.table.read();
        let open = table.osts.iter().filter(|(mirror, _)| !table.map.is_draining(**mirror));
        open.map(|(mirror, link)| (*mirror, link.clone())).collect()
    }

    /// True if a newer map cannot bring the mirror.
    pub fn is_removed(&self, mirror: MirrorId) -> bool {
        self.table.read().map.is_removed(mirror)
    }
    pub fn has_mirror(&self, mirror: MirrorId) -> bool {
        self.table.read().osts.contains_key(&mirror)
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
