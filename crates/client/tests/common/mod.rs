//! A cluster of real targets on simulated media, in this process, with clients over direct calls or over TCP.

#![allow(dead_code, reason = "each test file uses its own part")]

mod mortal;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Fs, Settings};
use disk::volume::{Kind, Label};
use disk::{Crash, SimDisk};
use net::{Fabric, Hub, Server, Service};
use types::{Buf, Epoch, Fault, FsId, MirrorId, NodeId, TargetId, Time, Uuid};
use wire::map::{ClusterMap, FileSystem, Member, MemberState, Mirror, Node, Target};
use wire::mgmt::RegisterReply;

use mortal::Mortal;

pub const SECRET: Uuid = Uuid([0x5a; 16]);
const FS_UUID: Uuid = Uuid([0xf5; 16]);
pub const MDT: TargetId = TargetId(1);
const MDT_BYTES: u64 = 16 << 20;
const OST_BYTES: u64 = 32 << 20;
const COMMIT_MS: u32 = 100;
/// The servers' own flushes are far off, so that a test decides what is durable.
const QUIET_COMMIT_MS: u32 = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    Local,
    Tcp,
}

pub struct Cluster {
    pub hub: Arc<Hub>,
    pub server: Server,
    wiring: Wiring,
    pub map: ClusterMap,
    pub mdt: Option<(Arc<mds::Mdt>, Arc<SimDisk>)>,
    pub osts: Vec<Option<(Arc<oss::Ost>, Arc<SimDisk>)>>,
    /// Their processes.
    lives: HashMap<TargetId, Arc<Mortal>>,
    pub session_ttl: Duration,
    /// False: the MDT refuses lines for notices, from its next start on.
    pub has_lines: bool,
    /// The MDT's settings for client claims (groups, squash), from its next start on.
    pub believes: (mds::Groups, Option<mds::Squash>),
}

pub fn ost_target(n: usize) -> TargetId {
    TargetId(10 + n as u32)
}

impl Cluster {
    pub fn new(wiring: Wiring, osts: usize) -> Cluster {
        Cluster::build(wiring, osts, 65536, COMMIT_MS)
    }

    /// Nothing is flushed unless a client asks.
    pub fn quiet(wiring: Wiring, osts: usize) -> Cluster {
        Cluster::build(wiring, osts, 65536, QUIET_COMMIT_MS)
    }

    pub fn with_inline_max(wiring: Wiring, osts: usize, inline_max: u32) -> Cluster {
        Cluster::build(wiring, osts, inline_max, COMMIT_MS)
    }

    /// Sessions live so long without a word, from here on: the MDT starts anew.
    pub fn sessions_live(&mut self, ttl: Duration) {
        self.session_ttl = ttl;
        self.crash_mdt(Crash::KeepAll);
    }

    fn build(wiring: Wiring, osts: usize, inline_max: u32, commit_ms: u32) -> Cluster {
        let hub = Hub::new();
        let server = Server::listen("127.0.0.1:0", hub.clone()).expect("a port of our own");
        let map = map(osts, &server.nid(), inline_max, commit_ms);
        let mut cluster = Cluster {
            hub,
            server,
            wiring,
            map,
            mdt: None,
            osts: Vec::new(),
            lives: HashMap::new(),
            session_ttl: Duration::from_millis(300),
            has_lines: true,
            believes: Default::default(),
        };
        let disk = Arc::new(SimDisk::new(MDT_BYTES));
        let label = Label {
            kind: Kind::Mdt,
            fs_name: "t".into(),
            fs_uuid: Uuid::default(),
            uuid: Uuid([1; 16]),
            target: TargetId(0),
            index: 0,
            mirror: MirrorId(0),
            epoch: Epoch(0),
        };
        let spec = mds::FormatSpec { label, log_bytes: 4 << 20, checkpoint_bytes: 4 << 20 };
        mds::Mdt::format(disk.clone(), &spec, false, &mds::MetaRules, Time::new(1, 0)).expect("format");
        cluster.start_mdt(disk);
        for n in 0..osts {
            let disk = Arc::new(SimDisk::new(OST_BYTES));
            oss::Ost::format(&*disk, &oss::FormatSpec::new("t", Uuid([10 + n as u8; 16]))).expect("format");
            cluster.osts.push(None);
            cluster.start_ost(n, disk);
        }
        cluster
    }

    fn start_mdt(&mut self, disk: Arc<SimDisk>) {
        let (session_ttl, (groups, squash)) = (self.session_ttl, self.believes.clone());
        let settings = mds::Settings { session_ttl, groups, squash, ..mds::Settings::default() };
        let mdt = mds::Mdt::open(disk.clone(), settings).expect("open");
        let fabric = Fabric::new(Some(self.hub.clone()));
        fabric.set_map(&self.map);
        mdt.join(&self.register(MDT), fabric).expect("join");
        self.begin(MDT, mdt.clone());
        self.mdt = Some((mdt, disk));
    }

    fn start_ost(&mut self, n: usize, disk: Arc<SimDisk>) {
        let ost = oss::Ost::open(disk.clone(), oss::Settings::default()).expect("open");
        ost.join(&self.register(ost_target(n))).expect("join");
        self.begin(ost_target(n), ost.clone());
        self.osts[n] = Some((ost, disk));
    }

    fn begin(&mut self, target: TargetId, service: Arc<dyn Service>) {
        let life = Mortal::new(service, self.has_lines);
        self.hub.add(target, life.clone());
        self.lives.insert(target, life);
    }

    fn kill(&mut self, target: TargetId) {
        self.hub.remove(target);
        self.lives.remove(&target).expect("it runs").die();
    }

    pub fn register(&self, target: TargetId) -> RegisterReply {
        let t = self.map.target(target).expect("in the map");
        let (index, mirror) = (t.index, t.mirror);
        RegisterReply { target, index, mirror, epoch: Epoch(1), node: NodeId(1), map: self.map.clone() }
    }

    /// The MDT's server dies; its medium keeps what `crash` says.
    pub fn crash_mdt(&mut self, crash: Crash) {
        let image = self.stop_mdt(crash);
        self.start_mdt(image);
    }

    pub fn stop_mdt(&mut self, crash: Crash) -> Arc<SimDisk> {
        self.kill(MDT);
        let (mdt, disk) = self.mdt.take().expect("runs");
        // Its own threads would go on as well: the purge destroys objects of what was removed.
        mdt.stop(false).expect("nothing is written");
        let image = disk.crash(crash);
        drop(mdt);
        Arc::new(image)
    }

    pub fn restart_mdt(&mut self, image: Arc<SimDisk>) {
        self.start_mdt(image);
    }

    /// The MDT stops in order and is started again: its incarnation stays.
    pub fn restart_mdt_cleanly(&mut self) {
        self.hub.remove(MDT);
        let (mdt, disk) = self.mdt.take().expect("runs");
        mdt.stop(true).expect("a clean stop");
        drop(mdt);
        self.start_mdt(Arc::new(disk.crash(Crash::KeepAll)));
    }

    /// As the MDT does with a client that it has not heard of for long.
    pub fn end_session(&self, session: types::SessionId) {
        let head = wire::Header { fs: FsId(1), target: MDT, ..wire::Header::default() };
        let soon = std::time::Instant::now() + Duration::from_secs(10);
        let req = wire::session::Detach { session };
        let said = net::rpc::call(&*self.peer(MDT), head, &req, &[], &mut Buf::new(), soon);
        said.expect("answered").2.expect("ended");
    }

    pub fn crash_ost(&mut self, n: usize, crash: Crash) {
        let image = self.stop_ost(n, crash);
        self.start_ost(n, image);
    }

    pub fn stop_ost(&mut self, n: usize, crash: Crash) -> Arc<SimDisk> {
        let mirror = self.map.target(ost_target(n)).expect("in the map").mirror;
        self.kill(self.map.mirror(mirror).expect("in the map").primary);
        let (ost, disk) = self.osts[n].take().expect("runs");
        let image = disk.crash(crash);
        drop(ost);
        Arc::new(image)
    }

    /// OST `n` is down for good. Another member of its mirror, with this image, is its primary in the next map.
    pub fn promote(&mut self, n: usize, image: Arc<SimDisk>, member: TargetId) {
        let volume = disk::Volume::open(image.clone() as Arc<dyn disk::Disk>).expect("open");
        volume.set_label(Label { target: member, ..volume.label() }).expect("its own name");
        drop(volume);
        self.map.version += 1;
        let out = self.map.target(ost_target(n)).expect("in the map").clone();
        let mirror = self.map.mirrors.iter_mut().find(|m| m.id == out.mirror).expect("in the map");
        mirror.members.iter_mut().for_each(|m| m.state = MemberState::Out);
        mirror.members.push(Member { target: member, state: MemberState::InSync });
        (mirror.primary, mirror.epoch) = (member, Epoch(mirror.epoch.0 + 1));
        self.map.targets.push(Target { id: member, ..out });
        let ost = oss::Ost::open(image.clone(), oss::Settings::default()).expect("open");
        ost.join(&self.register(member)).expect("join");
        self.begin(member, ost.clone());
        self.osts[n] = Some((ost, image));
        self.mdt.as_ref().expect("runs").0.set_map(&self.map).expect("a newer map");
    }

    pub fn restart_ost(&mut self, n: usize, image: Arc<SimDisk>) {
        self.start_ost(n, image);
    }

    /// All power is lost: nothing unflushed is left anywhere.
    pub fn lose_power(&mut self) {
        self.crash_mdt(Crash::DropAll);
        for n in 0..self.osts.len() {
            self.crash_ost(n, Crash::DropAll);
        }
    }

    pub fn settings(&self) -> Settings {
        Settings {
            op_timeout: Duration::from_secs(10),
            commit_interval: Duration::from_millis(50),
            name: "test".into(),
            ..Settings::default()
        }
    }

    pub fn mount(&self) -> Arc<Fs> {
        self.mount_with(self.settings())
    }

    /// A client that settles nothing by itself.
    pub fn mount_lazy(&self) -> Arc<Fs> {
        self.mount_with(Settings { commit_interval: Duration::from_secs(600), ..self.settings() })
    }

    pub fn mount_with(&self, settings: Settings) -> Arc<Fs> {
        self.try_mount(settings).expect("mount")
    }

    pub fn try_mount(&self, settings: Settings) -> Result<Arc<Fs>, Fault> {
        let fabric = Fabric::new((self.wiring == Wiring::Local).then(|| self.hub.clone()));
        // As the MGS does: clients are not given the secret.
        let mut map = self.map.clone();
        map.file_systems[0].secret = Uuid::default();
        Fs::connect(fabric, map, FsId(1), settings)
    }

    /// The MDT itself, to be put behind a service that a test makes.
    pub fn mdt_service(&self) -> Arc<dyn net::Service> {
        self.mdt.as_ref().expect("runs").0.clone()
    }

    /// A server's process, to be put behind a service that a test makes.
    pub fn process(&self, target: TargetId) -> Arc<dyn net::Service> {
        self.lives[&target].clone()
    }

    /// Bytes of the MDT's log.
    pub fn mdt_log_used(&self) -> u64 {
        let head = wire::Header { fs: FsId(1), target: MDT, ..wire::Header::default() };
        let soon = std::time::Instant::now() + Duration::from_secs(10);
        let req = wire::session::TargetStat {};
        let said = net::rpc::call(&*self.peer(MDT), head, &req, &[], &mut Buf::new(), soon);
        said.expect("answered").2.expect("it serves").log_bytes_used
    }

    pub fn ost_disk(&self, n: usize) -> &SimDisk {
        &self.osts[n].as_ref().expect("runs").1
    }

    pub fn peer(&self, target: TargetId) -> Arc<dyn net::Peer> {
        let fabric = Fabric::new(Some(self.hub.clone()));
        fabric.peer(target).expect("served here")
    }
}

fn map(osts: usize, nid: &str, inline_max: u32, commit_ms: u32) -> ClusterMap {
    let target = |id: TargetId, is_mdt: bool, index: u32| Target {
        id,
        fs: FsId(1),
        is_mdt,
        index,
        uuid: Uuid::default(),
        node: NodeId(1),
        mirror: MirrorId(id.0),
        state: 1,
        bytes_total: 0,
    };
    let mirror = |id: TargetId, is_mdt: bool| Mirror::alone(MirrorId(id.0), FsId(1), is_mdt, Epoch(1), id);
    let mut targets = vec![target(MDT, true, 0)];
    let mut mirrors = vec![mirror(MDT, true)];
    for n in 0..osts {
        targets.push(target(ost_target(n), false, n as u32));
        mirrors.push(mirror(ost_target(n), false));
    }
    let fs = FileSystem {
        id: FsId(1),
        name: "t".into(),
        uuid: FS_UUID,
        secret: SECRET,
        inline_max,
        commit_interval_ms: commit_ms,
    };
    let node = Node { id: NodeId(1), name: "n".into(), nids: vec![nid.to_string()], rack: String::new() };
    ClusterMap {
        version: 1,
        file_systems: vec![fs],
        nodes: vec![node],
        targets,
        mirrors,
        ..ClusterMap::empty()
    }
}

/// The inode of a file as the MDT holds it.
pub fn inode(cluster: &Cluster, fid: types::Fid) -> wire::meta::Inode {
    let head = wire::Header { fs: FsId(1), target: MDT, ..wire::Header::default() };
    let soon = std::time::Instant::now() + Duration::from_secs(10);
    let req = wire::meta::GetAttr { fid };
    let said = net::rpc::call(&*cluster.peer(MDT), head, &req, &[], &mut Buf::new(), soon);
    said.expect("answered").2.expect("it exists")
}

/// The bytes at `offset`, as a read gives them.
pub fn read(fs: &Fs, h: client::Handle, offset: u64, len: usize) -> Result<Vec<u8>, Fault> {
    let mut buf = Buf::new();
    fs.read(h, offset, len, &mut buf)?;
    Ok(buf.to_vec())
}

/// Bytes that differ from page to page and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = disk::SplitMix::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// The MDT reaches the OSTs through the hub that holds all of them: without this none would ever end.
impl Drop for Cluster {
    fn drop(&mut self) {
        self.hub.remove(MDT);
        (0..self.osts.len()).for_each(|n| self.hub.remove(ost_target(n)));
    }
}
