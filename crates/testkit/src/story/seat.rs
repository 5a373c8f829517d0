//! A server's place in a story: its medium, its link, and the server while it runs.

use std::sync::Arc;
use std::time::Instant;

use disk::{Crash, Disk, Kind, Label, SimDisk};
use net::fault::Proxy;
use net::{Fabric, Hub, Server, rpc};
use types::{Buf, Epoch, MirrorId, TargetId, Time, Uuid};
use wire::Header;
use wire::map::{Apart, ClusterMap};
use wire::mgmt::{Register, RegisterReply};

use super::clock::StoryClock;
use super::tape::{Tape, TapedDisk};
use super::{FS_NAME, PATIENCE, SESSION_TTL, StoryShape, wait_until};
use crate::cluster::Wiring;

/// Enough for some thousand records, and little to copy at each power cut.
const MDT_BYTES: u64 = 4 << 20;
const MDT_LOG_BYTES: u64 = 1 << 20;
const MDT_CHECKPOINT_BYTES: u64 = 1 << 20;

pub(crate) struct Seat {
    number: usize,
    pub disk: Arc<SimDisk>,
    hub: Arc<Hub>,
    /// `Tcp` only. Listener and proxy outlive the server, as a host outlives its process.
    wire: Option<(Server, Proxy)>,
    running: Option<(TargetId, Running)>,
    /// The MDT's connections to the OSTs.
    fabric: Option<Arc<Fabric>>,
    /// A test damaged the medium on purpose, so it is not checked.
    pub spoiled: bool,
}

pub(crate) enum Running {
    Mdt(Arc<mds::Mdt>),
    Ost(Arc<oss::Ost>),
}

pub(crate) fn blank_media(shape: &StoryShape) -> Vec<Arc<SimDisk>> {
    let mdt = std::iter::once(MDT_BYTES);
    mdt.chain((0..shape.osts).map(|_| shape.ost_bytes)).map(|n| Arc::new(SimDisk::new(n))).collect()
}

impl Seat {
    pub fn new(number: usize, disk: Arc<SimDisk>, shape: &StoryShape, shared: &Arc<Hub>) -> Seat {
        let (hub, wire) = match shape.wiring {
            Wiring::Local => (shared.clone(), None),
            Wiring::Tcp | Wiring::Two | Wiring::Servers | Wiring::Pair => {
                let hub = Hub::new();
                let server = Server::listen("127.0.0.1:0", hub.clone()).expect("loopback has a free port");
                let proxy = Proxy::to(&server.nid()).expect("loopback has a free port");
                (hub, Some((server, proxy)))
            }
        };
        if is_blank(&disk) {
            format(number, disk.clone());
        }
        Seat { number, disk, hub, wire, running: None, fabric: None, spoiled: false }
    }

    pub fn proxy(&self) -> &Proxy {
        &self.wire.as_ref().expect("only the Tcp wiring has links").1
    }
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }
    pub fn target(&self) -> Option<TargetId> {
        self.running.as_ref().map(|(id, _)| *id)
    }
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
    pub fn running(&self) -> Option<&Running> {
        self.running.as_ref().map(|(_, r)| r)
    }

    pub fn start(
        &mut self,
        shape: &StoryShape,
        mgs: &Arc<mgs::Mgs>,
        clock: Arc<StoryClock>,
        tape: Arc<Tape>,
    ) {
        assert!(self.running.is_none(), "server {} runs already", self.number);
        self.check_medium("before the MDT starts");
        let disk: Arc<dyn Disk> = Arc::new(TapedDisk { below: self.disk.clone(), medium: self.number, tape });
        // 1. Open and recover.
        let (running, label) = match self.number {
            0 => {
                let settings = mds::Settings {
                    background: shape.background,
                    clock,
                    session_ttl: SESSION_TTL,
                    ..mds::Settings::default()
                };
                let mdt = mds::Mdt::open(disk, settings).expect("an MDT recovers from any crash");
                let label = mdt.label();
                (Running::Mdt(mdt), label)
            }
            _ => {
                let settings = oss::Settings { background: shape.background, ..oss::Settings::default() };
                let ost = oss::Ost::open(disk, settings).expect("an OST recovers from any crash");
                let label = ost.label();
                (Running::Ost(ost), label)
            }
        };
        // 2. Register and join.
        let mut reply = register(mgs, &label, self.number, self.disk.size(), self.nids());
        shape.set_interval(&mut reply.map);
        self.hub.set_node(reply.node);
        match &running {
            Running::Mdt(mdt) => {
                let fabric = Fabric::new(Some(self.hub.clone()));
                fabric.set_map(&reply.map);
                mdt.join(&reply, fabric.clone()).expect("it was registered");
                self.fabric = Some(fabric);
                self.hub.add(reply.target, mdt.clone());
            }
            Running::Ost(ost) => {
                ost.join(&reply).expect("it was registered");
                self.hub.add(reply.target, ost.clone());
            }
        }
        // 3. Reachable.
        self.running = Some((reply.target, running));
        if let Some((_, proxy)) = &self.wire {
            proxy.heal();
        }
    }

    fn nids(&self) -> Vec<String> {
        self.wire.iter().map(|(_, proxy)| proxy.nid()).collect()
    }

    pub fn set_map(&self, map: &ClusterMap) {
        if let Some((_, Running::Mdt(mdt))) = &self.running {
            mdt.set_map(map).expect("the MDT has joined");
            self.fabric.iter().for_each(|fabric| fabric.set_map(map));
        }
    }

    /// Ends the server without a clean stop. Requests in progress are completed first; their replies may be lost.
    pub fn end(&mut self) {
        let Some((target, running)) = self.running.take() else { return };
        if let Some((_, proxy)) = &self.wire {
            proxy.cut();
        }
        self.hub.remove(target);
        match running {
            Running::Mdt(mdt) => wait_until("the MDT's requests end", || Arc::strong_count(&mdt) == 1),
            Running::Ost(ost) => wait_until("the OST's requests end", || Arc::strong_count(&ost) == 1),
        }
    }

    /// Applies a crash to the medium.
    pub fn crash(&mut self, crash: Crash) {
        assert!(self.running.is_none(), "end it first");
        self.disk = Arc::new(self.disk.crash(crash));
    }

    /// Asserts that an MDT's medium conforms to docs/formats.
    pub fn check_medium(&self, when: &str) {
        if self.number == 0 && !self.spoiled {
            verify::assert_whole(&*self.disk, when);
        }
    }

    pub fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.disk.size() as usize];
        self.disk.read_at(&mut bytes, 0).expect("within the medium");
        bytes
    }
}

fn is_blank(disk: &SimDisk) -> bool {
    let mut head = [0; 4096];
    disk.read_at(&mut head, 0).expect("within the medium");
    head.iter().all(|b| *b == 0)
}

fn format(number: usize, disk: Arc<SimDisk>) {
    let uuid = Uuid([number as u8 + 1; 16]);
    if number > 0 {
        let spec = oss::FormatSpec { index: number as u32 - 1, ..oss::FormatSpec::new(FS_NAME, uuid) };
        return oss::Ost::format(&*disk, &spec).expect("a blank medium is formatted");
    }
    let label = Label {
        kind: Kind::Mdt,
        fs_name: FS_NAME.into(),
        fs_uuid: Uuid::default(),
        uuid,
        target: TargetId(0),
        index: 0,
        mirror: MirrorId(0),
        epoch: Epoch(0),
    };
    let spec = mds::FormatSpec { label, log_bytes: MDT_LOG_BYTES, checkpoint_bytes: MDT_CHECKPOINT_BYTES };
    let now = Time::from(std::time::SystemTime::now());
    mds::Mdt::format(disk, &spec, false, &mds::MetaRules, now).expect("a blank medium is formatted");
}

fn register(
    mgs: &Arc<mgs::Mgs>,
    label: &Label,
    number: usize,
    bytes_total: u64,
    nids: Vec<String>,
) -> RegisterReply {
    let hub = Hub::new();
    hub.add(mgs::MGS, mgs.clone());
    let peer = Fabric::new(Some(hub)).peer(mgs::MGS).expect("it was just added");
    let req = Register {
        fs_name: label.fs_name.clone(),
        is_mdt: label.kind == Kind::Mdt,
        index: label.index,
        uuid: label.uuid,
        target: label.target,
        bytes_total,
        node_name: format!("host{number}"),
        nids,
        second: false,
        rack: String::new(),
        apart: Apart::Nothing,
    };
    let head = Header { target: mgs::MGS, ..Header::default() };
    let said = rpc::call(&*peer, head, &req, &[], &mut Buf::new(), Instant::now() + PATIENCE);
    said.expect("a call in this process arrives").2.expect("its place is free or its own")
}
