//! Tests of the OST from its callers' side: requests in, replies out, crashes between.

mod admission;
mod damage;
mod exactly_once;
mod grants;
mod life;
mod mirror;
mod nodemap;
mod ost;
mod owners;
mod repair;
mod scrub;
mod trouble;

use std::sync::Arc;

use disk::{Crash, SimDisk};
use net::{Answer, Service};
use object::{LeaseVersion, cap};
use types::crc::fragment_crcs;
use types::*;
use wire::map::{ClusterMap, FileSystem, Mirror, Target};
use wire::mgmt::RegisterReply;
use wire::object::*;
use wire::session::*;
use wire::{Empty, Header, ReplyHead, Request, Wire, decode_reply};

use crate::{FormatSpec, Ost, Settings};

const SECRET: Uuid = Uuid([9; 16]);
const FS_UUID: Uuid = Uuid([4; 16]);
const SESSION: SessionId = SessionId(0x51);
const NOW_SEC: u64 = 5000;
const TARGET: TargetId = TargetId(7);

fn reply_of_mgs() -> RegisterReply {
    let fs = FileSystem {
        id: FsId(2),
        name: "test".into(),
        uuid: FS_UUID,
        secret: SECRET,
        inline_max: 0,
        commit_interval_ms: 5,
    };
    let target = Target {
        id: TARGET,
        fs: FsId(2),
        is_mdt: false,
        index: 3,
        uuid: Uuid([8; 16]),
        node: NodeId(1),
        mirror: MirrorId(6),
        state: 1,
        bytes_total: 0,
    };
    let mirror = Mirror::alone(MirrorId(6), FsId(2), false, Epoch(4), TARGET);
    let map = ClusterMap {
        version: 1,
        file_systems: vec![fs],
        nodes: vec![],
        targets: vec![target],
        mirrors: vec![mirror],
        ..ClusterMap::empty()
    };
    RegisterReply { target: TARGET, index: 3, mirror: MirrorId(6), epoch: Epoch(4), node: NodeId(1), map }
}

fn settings() -> Settings {
    // Tests look for bytes at their final place.
    let store = store::Settings { patch_bytes_max: 0, ..store::Settings::default() };
    Settings { background: false, store, clock: Arc::new(|| NOW_SEC), ..Settings::default() }
}

fn object() -> ObjectId {
    ObjectId { fid: Fid(0x20), generation: Generation(1), component: 0, stripe: 0, snapshot: 0 }
}

fn lease(counter: u32) -> LeaseVersion {
    LeaseVersion { epoch: 4, counter }
}

fn cap_with(rights: u8, counter: u32) -> Capability {
    cap::make(&SECRET, object().fid, object().generation, rights, lease(counter), SESSION, NOW_SEC + 100)
}
fn rw() -> Capability {
    cap_with(RIGHT_READ | RIGHT_WRITE, 1)
}
fn admin() -> Capability {
    cap::make_admin(&SECRET, NOW_SEC + 100)
}

fn write_of(cap: Capability, offset: u64, data: &[u8]) -> Write {
    Write {
        cap,
        object: object(),
        offset,
        crcs: fragment_crcs(offset, data),
        mtime: Time::new(9, 0),
        granted: false,
        lock: 0,
    }
}
fn read_of(cap: Capability, offset: u64, len: u32) -> Read {
    Read { cap, object: object(), offset, len, lock: 0 }
}

/// The parts of a reply.
struct Said<T> {
    frame: Header,
    head: ReplyHead,
    reply: Result<T, Fault>,
    bulk: Vec<u8>,
}

impl<T: std::fmt::Debug> Said<T> {
    fn ok(self) -> T {
        self.reply.expect("the call succeeds")
    }
    fn code(&self) -> Code {
        self.reply.as_ref().map_or_else(|f| f.code, |_| Code::Ok)
    }
}

/// An OST on a medium that can lose power, joined, with an attached session.
struct Rig {
    disk: Arc<SimDisk>,
    ost: Arc<Ost>,
}

impl Rig {
    fn new() -> Rig {
        let disk = Arc::new(SimDisk::new(12 << 20));
        Ost::format(&*disk, &FormatSpec::new("test", Uuid([8; 16]))).unwrap();
        let rig = Rig::open(disk, settings());
        rig.attach();
        rig
    }
    fn open(disk: Arc<SimDisk>, settings: Settings) -> Rig {
        let ost = Ost::open(disk.clone(), settings).unwrap();
        ost.join(&reply_of_mgs()).unwrap();
        Rig { disk, ost }
    }
    fn crashed(&self, crash: Crash) -> Rig {
        Rig::open(Arc::new(self.disk.crash(crash)), settings())
    }

    fn attach(&self) -> AttachReply {
        self.attach_with(Header::default())
    }
    fn attach_with(&self, head: Header) -> AttachReply {
        let attach = Attach {
            fs_uuid: FS_UUID,
            client: Uuid([3; 16]),
            session: SESSION,
            name: "t".into(),
            observer: false,
            own_locks: false,
            ticket: wire::object::Mac::default(),
            claims: wire::session::Claims::All,
        };
        self.say(head, &attach, &[]).ok()
    }

    fn say<R: Request>(&self, head: Header, req: &R, bulk: &[u8]) -> Said<R::Reply> {
        let (frame, body, bulk) = self.say_raw(Header { call: R::CALL, ..head }, &req.to_bytes(), bulk);
        let (head, reply) = decode_reply::<R::Reply>(&body).expect("a reply is well formed");
        Said { frame, head, reply, bulk }
    }
    fn say_raw(&self, head: Header, body: &[u8], bulk: &[u8]) -> (Header, Vec<u8>, Vec<u8>) {
        let mut into = Buf::new();
        let mut answer = Answer::new(head, &mut into);
        self.ost.serve(&head, body, bulk, &mut answer);
        let (head, body) = (answer.head, answer.body);
        (head, body, into.to_vec())
    }
    /// An unslotted call of the session.
    fn ask<R: Request>(&self, req: &R) -> Said<R::Reply> {
        self.say(Header { session: SESSION, ..Header::default() }, req, &[])
    }
    fn write(&self, sequence: u32, offset: u64, data: &[u8]) -> Said<WriteReply> {
        self.say(slotted(sequence), &write_of(rw(), offset, data), data)
    }
    fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let said = self.ask(&read_of(rw(), offset, len));
        let reply = said.reply.expect("the read succeeds");
        assert_eq!(reply.crcs, fragment_crcs(offset, &said.bulk));
        said.bulk
    }
}

fn slotted(sequence: u32) -> Header {
    Header { session: SESSION, slot: 2, sequence, ..Header::default() }
}
