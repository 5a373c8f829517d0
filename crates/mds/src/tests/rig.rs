//! An MDT on a medium of the test's choice, with a clock that the test moves, one fake OST, and a client's half of the talk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::volume::{Kind, Label};
use disk::{Disk, SimDisk};
use net::{Answer, Fabric, Hub, Service};
use parking_lot::Mutex;
use types::*;
use wire::map::{ClusterMap, FileSystem, Mirror, Node, Target};
use wire::mgmt::RegisterReply;
use wire::object::Destroy;
use wire::session::{Attach, AttachReply};
use wire::{Empty, Flags, Header, Reader, ReplyHead, Request, Wire};

use super::rules::{self, flat};
use crate::{Clock, FormatSpec, Mdt, Settings};

pub const FS_UUID: Uuid = Uuid([7; 16]);
pub const SECRET: Uuid = Uuid([9; 16]);
const OST: TargetId = TargetId(2);

#[derive(Default)]
pub struct HandClock(pub AtomicU64);

impl Clock for HandClock {
    fn boot_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn wall(&self) -> Time {
        Time::new(1_000_000 + (self.boot_ms() / 1000) as i64, 0)
    }
}

/// Notes what it was asked to destroy; refuses while told to.
#[derive(Default)]
pub struct FakeOst {
    pub destroyed: Mutex<Vec<ObjectId>>,
    pub flushes: AtomicU64,
    pub refuse: std::sync::atomic::AtomicBool,
}

impl Service for FakeOst {
    fn serve(&self, head: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        let fault = Fault::new(Code::NotReady, "told to refuse");
        answer.body = match self.refuse.load(Ordering::SeqCst) {
            true => wire::encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None),
            false => {
                if head.call == Destroy::CALL {
                    let req = Destroy::from_bytes(body).unwrap();
                    object::cap::check_right(&SECRET, &req.cap, wire::object::RIGHT_ADMIN, 1_000_000)
                        .unwrap();
                    self.destroyed.lock().extend(req.objects);
                } else {
                    self.flushes.fetch_add(1, Ordering::SeqCst);
                }
                wire::encode_reply(&ReplyHead::done(Seq(1), Seq(1)), Some(&Empty {}))
            }
        };
    }
}

pub fn label() -> Label {
    Label {
        kind: Kind::Mdt,
        fs_name: "stria".into(),
        fs_uuid: Uuid::default(),
        uuid: Uuid([3; 16]),
        target: TargetId(0),
        index: 0,
        mirror: MirrorId(0),
        epoch: Epoch(0),
    }
}

pub fn registered() -> RegisterReply {
    let target = |id, is_mdt, mirror| Target {
        id: TargetId(id),
        fs: FsId(1),
        is_mdt,
        index: 0,
        uuid: Uuid([3; 16]),
        node: NodeId(1),
        mirror: MirrorId(mirror),
        state: 1,
        bytes_total: 0,
    };
    let mirror = |id, is_mdt| Mirror::alone(MirrorId(id), FsId(1), is_mdt, Epoch(1), TargetId(id));
    let fs = FileSystem {
        id: FsId(1),
        name: "stria".into(),
        uuid: FS_UUID,
        secret: SECRET,
        inline_max: 65536,
        commit_interval_ms: 20,
    };
    let map = ClusterMap {
        version: 1,
        file_systems: vec![fs],
        nodes: vec![Node { id: NodeId(1), name: "n".into(), nids: vec![], rack: String::new() }],
        targets: vec![target(1, true, 1), target(2, false, 2)],
        mirrors: vec![mirror(1, true), mirror(2, false)],
        ..ClusterMap::empty()
    };
    RegisterReply {
        target: TargetId(1),
        index: 0,
        mirror: MirrorId(1),
        epoch: Epoch(1),
        node: NodeId(1),
        map,
    }
}

pub struct Rig {
    pub mdt: Arc<Mdt>,
    pub clock: Arc<HandClock>,
    pub ost: Arc<FakeOst>,
    pub session: SessionId,
    /// The highest flushed seq that an answer told.
    pub told: AtomicU64,
}

/// The result of a request.
pub type Said = Result<(Seq, Vec<u8>), Fault>;

impl Rig {
    /// A new MDT on a medium small enough to be copied often.
    pub fn fresh() -> (Rig, Arc<SimDisk>) {
        let disk = Arc::new(SimDisk::new(1 << 20));
        format(disk.clone());
        (Rig::open(disk.clone()), disk)
    }

    pub fn open(disk: Arc<dyn Disk>) -> Rig {
        Rig::try_open(disk, false).unwrap()
    }

    pub fn try_open(disk: Arc<dyn Disk>, background: bool) -> Result<Rig, Fault> {
        let clock = Arc::new(HandClock::default());
        let settings = Settings { background, clock: clock.clone(), ..Settings::with_rules(flat()) };
        Rig::with(disk, settings, clock)
    }

    pub fn with(disk: Arc<dyn Disk>, settings: Settings, clock: Arc<HandClock>) -> Result<Rig, Fault> {
        Rig::around(Mdt::open(disk, settings)?, clock, registered())
    }

    /// An MDT that joins the cluster as the registered target.
    pub fn around(mdt: Arc<Mdt>, clock: Arc<HandClock>, reply: RegisterReply) -> Result<Rig, Fault> {
        let ost = Arc::new(FakeOst::default());
        let hub = Hub::new();
        hub.add(OST, ost.clone());
        let fabric = Fabric::new(Some(hub));
        fabric.set_map(&reply.map);
        mdt.join(&reply, fabric)?;
        let mut rig = Rig { mdt, clock, ost, session: SessionId(0), told: AtomicU64::new(0) };
        rig.session = rig.attach(1).unwrap().session;
        Ok(rig)
    }

    pub fn attach(&self, client: u8) -> Result<AttachReply, Fault> {
        let req = Attach {
            fs_uuid: FS_UUID,
            client: Uuid([client; 16]),
            session: SessionId(0),
            name: format!("client {client}"),
            observer: false,
            own_locks: false,
            ticket: wire::object::Mac::default(),
            claims: wire::session::Claims::All,
        };
        self.ask(&req, SessionId(0))
    }

    pub fn ask<R: Request>(&self, req: &R, session: SessionId) -> Result<R::Reply, Fault> {
        self.ask_with(req, session, &[])
    }

    pub fn ask_with<R: Request>(&self, req: &R, session: SessionId, bulk: &[u8]) -> Result<R::Reply, Fault> {
        let head = Header { call: R::CALL, session, ..Header::default() };
        let (_, body) = self.send_bulk(head, &req.to_bytes(), bulk, &mut Buf::new())?;
        Ok(R::Reply::from_bytes(&body).unwrap())
    }

    /// One request as it comes from the fabric; the reply's entry and body.
    pub fn send(&self, head: Header, body: &[u8]) -> Said {
        self.send_bulk(head, body, &[], &mut Buf::new())
    }

    pub fn send_bulk(&self, head: Header, body: &[u8], bulk: &[u8], into: &mut Buf) -> Said {
        let mut answer = Answer::new(Header { flags: Flags::REPLY, ..head }, into);
        self.mdt.serve(&head, body, bulk, &mut answer);
        let mut r = Reader::new(&answer.body);
        let said = ReplyHead::get(&mut r).unwrap();
        assert_eq!(answer.head.incarnation, self.mdt.core.incarnation);
        let told = self.told.fetch_max(said.flushed_seq.0, Ordering::SeqCst);
        assert!(said.flushed_seq.0 >= told, "what is told as flushed never falls");
        match said.code {
            0 => Ok((said.seq, r.take(r.remaining()).unwrap().to_vec())),
            code => Err(Fault::new(Code::from_u16(code), said.detail)),
        }
    }

    pub fn mutate(&self, call: u16, slot: u32, sequence: u32, body: &[u8]) -> Said {
        self.send(Header { call, session: self.session, slot, sequence, ..Header::default() }, body)
    }

    pub fn replay(&self, call: u16, slot: u32, sequence: u32, body: &[u8]) -> Said {
        let flags = Flags::REPLAY;
        self.send(Header { call, session: self.session, slot, sequence, flags, ..Header::default() }, body)
    }

    pub fn make(&self, slot: u32, sequence: u32, name: &str) -> Result<Fid, Fault> {
        let (_, reply) = self.mutate(rules::MAKE, slot, sequence, &rules::body(Fid(0), name))?;
        Ok(Fid::from_bytes(&reply).unwrap())
    }

    pub fn list(&self) -> BTreeMap<String, Fid> {
        let (_, reply) = self.send(Header { call: rules::LIST, ..Header::default() }, &[]).unwrap();
        let mut r = Reader::new(&reply);
        let mut out = BTreeMap::new();
        while r.remaining() > 0 {
            let name = wire::codec::Bytes::get(&mut r).unwrap();
            out.insert(String::from_utf8(name.0).unwrap(), Fid::get(&mut r).unwrap());
        }
        out
    }
}

pub fn format(disk: Arc<dyn Disk>) {
    let spec = FormatSpec { label: label(), log_bytes: 64 << 10, checkpoint_bytes: 256 << 10 };
    Mdt::format(disk, &spec, false, &rules::FlatRules, Time::default()).unwrap();
}

/// The report of a session that holds nothing.
pub fn holds_nothing(mode: u32) -> wire::shared::Hold {
    let (opens, sections, dirs, mirrors) = (vec![], vec![], vec![], vec![]);
    wire::shared::Hold { mode, floor: 0, opens, sections, dirs, mirrors, more: false }
}
