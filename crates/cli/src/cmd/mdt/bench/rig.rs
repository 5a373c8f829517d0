//! An MDT in this process, on the whole device, with the threads and the log of a daemon.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Instant, SystemTime};

use anyhow::Context;
use disk::volume::{Kind, Label};
use disk::{Disk, FileDisk};
use mds::{FormatSpec, Mdt, MetaRules, Settings};
use net::{Fabric, Hub};
use types::{Epoch, FsId, MirrorId, NodeId, SessionId, TargetId, Uuid, Word};
use wire::map::{ClusterMap, FileSystem, Mirror, Node, Target};
use wire::mgmt::RegisterReply;
use wire::session::{Attach, AttachReply, Claims};

use super::asked::{Asked, Lanes};
use super::load::World;
use super::tree::{self, Tree};
use crate::cmd::measure::device::blank;
use crate::serve::register::new_uuid;

pub const MDT: TargetId = TargetId(1);
/// As the MGS sets it.
const COMMIT_INTERVAL_MS: u32 = 1000;
/// A log that is less than a quarter full needs no checkpoint before a measurement.
const LOG_SHARE_MAX: u64 = 4;

pub struct Rig {
    pub world: World<Asked>,
    pub served: Served,
    /// Duration of a start with the tree, after a clean stop.
    pub start_seconds: f64,
    /// Client processes so far.
    pub clients: u32,
}

/// An MDT in a hub. Dropping it ends it like a kill: the content of the device is not needed any more.
pub struct Served {
    pub mdt: Arc<Mdt>,
    pub hub: Arc<Hub>,
}

impl Served {
    /// Memory words that requests of all threads share.
    pub fn words(&self) -> Vec<Word> {
        [self.mdt.words(), self.hub.words(MDT)].concat()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.mdt.stop(false);
        // The MDT holds its fabric, which holds the hub.
        self.hub.remove(MDT);
    }
}

impl Rig {
    pub fn make(
        device: &Path,
        tree: Tree,
        files_max: u64,
        cache_bytes: u64,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Rig> {
        let disk: Arc<FileDisk> = Arc::new(blank(device)?);
        let fs_uuid = new_uuid()?;
        let label = Label {
            kind: Kind::Mdt,
            fs_name: "bench".into(),
            fs_uuid: Uuid::default(),
            uuid: new_uuid()?,
            target: TargetId(0),
            index: 0,
            mirror: MirrorId(0),
            epoch: Epoch(0),
        };
        let reply = registered(&label, fs_uuid);
        let spec = FormatSpec::for_size(label, disk.size());
        Mdt::format(disk.clone(), &spec, true, &MetaRules, SystemTime::now().into())?;
        let client = new_uuid()?;
        let (first, asked) = start(disk.clone(), cache_bytes, &reply, client)?;
        let dirs = tree::fill(&asked, tree, &stop)?;
        first.mdt.stop(true).context("stopping")?;
        drop((asked, first));
        // From here on it is like a daemon that was started with such a tree.
        let began = Instant::now();
        let (served, mut asked) = start(disk, cache_bytes, &reply, client)?;
        let start_seconds = began.elapsed().as_secs_f64();
        asked.dirs = dirs;
        Ok(Rig { world: World::new(asked, tree, files_max, true, stop), served, start_seconds, clients: 0 })
    }

    /// Called before a row: waits until no write is pending and the log has space for the row.
    pub fn settle(&self) -> anyhow::Result<()> {
        let stat = self.world.side.target_stat()?;
        if stat.log_bytes_used * LOG_SHARE_MAX > stat.log_bytes_total {
            self.served.mdt.checkpoint()?;
        }
        Ok(self.served.mdt.flush()?)
    }
}

fn start(
    disk: Arc<dyn Disk>,
    cache_bytes: u64,
    reply: &RegisterReply,
    client: Uuid,
) -> anyhow::Result<(Served, Asked)> {
    let settings = Settings { cache_bytes, ..Settings::default() };
    let (mdt, hub) = (Mdt::open(disk, settings)?, Hub::new());
    let served = Served { mdt: mdt.clone(), hub: hub.clone() };
    let fabric = Fabric::new(Some(hub.clone()));
    fabric.set_map(&reply.map);
    mdt.join(reply, fabric.clone())?;
    hub.add(MDT, mdt.clone());
    let peer = fabric.peer(MDT)?;
    let fs_uuid = reply.map.file_systems[0].uuid;
    let lanes: Lanes = Arc::new(std::array::from_fn(|_| AtomicU32::new(0)));
    let asked = Asked { peer, session: SessionId(0), lanes, dirs: vec![] };
    let AttachReply { session, slots, .. } = super::asked::first(&asked, |hand| {
        hand.ask(&Attach {
            fs_uuid,
            client,
            session: SessionId(0),
            name: "bench".into(),
            observer: false,
            own_locks: false,
            ticket: wire::object::Mac::default(),
            claims: Claims::All,
        })
    })?;
    let lanes: Lanes = Arc::new(std::array::from_fn(|n| AtomicU32::new(slots.get(n).copied().unwrap_or(0))));
    Ok((served, Asked { session, lanes, ..asked }))
}

/// The reply of an MGS that knows this MDT alone; empty files need no OST.
fn registered(label: &Label, fs_uuid: Uuid) -> RegisterReply {
    let (fs, mirror, node, epoch) = (FsId(1), MirrorId(1), NodeId(1), Epoch(1));
    let target = Target {
        id: MDT,
        fs,
        is_mdt: true,
        index: 0,
        uuid: label.uuid,
        node,
        mirror,
        state: 1,
        bytes_total: 0,
    };
    let map = ClusterMap {
        version: 1,
        file_systems: vec![FileSystem {
            id: fs,
            name: label.fs_name.clone(),
            uuid: fs_uuid,
            secret: fs_uuid,
            inline_max: 65536,
            commit_interval_ms: COMMIT_INTERVAL_MS,
        }],
        nodes: vec![Node { id: node, name: "bench".into(), nids: vec![], rack: String::new() }],
        targets: vec![target],
        mirrors: vec![Mirror::alone(mirror, fs, true, epoch, MDT)],
        ..ClusterMap::empty()
    };
    RegisterReply { target: MDT, index: 0, mirror, epoch, node, map }
}
