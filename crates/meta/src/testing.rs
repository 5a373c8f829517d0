//! A small world for this crate's tests: records in memory, three users, and short constructors of requests.

use types::*;
use wire::codec::Bytes;
use wire::meta::*;
use wire::object::{Capability, Mac};
use wire::{Request, Wire};

use crate::inode::load_inode;
use crate::mem::MemTxn;
use crate::names::{self, Slot};
use crate::records::{InodeRecord, Parent};
use crate::{Ctx, Judge, Space, View, keys};

pub const ROOT: Fid = Fid::ROOT;
pub const ALICE: u32 = 1000;
pub const BOB: u32 = 1001;
/// A group of Alice beside her own; Bob is not in it.
pub const CREW: u32 = 2000;

pub const FULL: Space = Space { is_full: true, ..Space::AMPLE };

/// Root, or a user whose group has the same number; Alice is in CREW too.
pub fn cred(uid: u32) -> Cred {
    let groups = if uid == ALICE { vec![CREW] } else { vec![] };
    Cred { uid, gid: uid, groups }
}

pub fn bytes(s: &str) -> Bytes {
    Bytes(s.as_bytes().to_vec())
}

pub struct World {
    pub txn: MemTxn,
    /// The time of the next request; rises by one second with each.
    pub now: Time,
    pub replay: bool,
    pub space: Space,
    /// The user of the helpers below.
    pub who: u32,
    /// The user as which the session is judged.
    pub judged: Option<u32>,
}

impl World {
    pub fn new() -> World {
        let mut txn = MemTxn::default();
        crate::format(&mut txn, Time::new(1, 0));
        World { txn, now: Time::new(100, 0), replay: false, space: Space::AMPLE, who: 0, judged: None }
    }

    pub fn with_ctx<T>(replay: bool, space: Space, f: impl FnOnce(&Ctx<'_>) -> T) -> T {
        World::with_judge(replay, space, None, f)
    }

    /// As `with_ctx`; if a user is given, the session is judged as that user. A capability is the session's own if it has the MAC that
    /// is made here.
    pub fn with_judge<T>(replay: bool, space: Space, who: Option<u32>, f: impl FnOnce(&Ctx<'_>) -> T) -> T {
        let is_ours = |cap: &Capability| cap.mac == Mac([1; 16]);
        let make_cap = |fid, generation, rights, lease| Capability {
            fid,
            generation,
            rights,
            lease_epoch: 1,
            lease_counter: lease,
            session: SessionId(7),
            expiry_sec: 0,
            mac: Mac([1; 16]),
        };
        f(&Ctx {
            session: SessionId(7),
            replay,
            inline_max: INLINE_MAX,
            ost_mirrors: &[MirrorId(1), MirrorId(2)],
            ost_indexes: &[],
            draining: &[],
            shard: Shard(0),
            epoch: Epoch(1),
            make_cap: &make_cap,
            sharing: None,
            space,
            root: None,
            judge: who.map(|uid| Judge { cred: cred(uid), is_anybody: false, is_ours: &is_ours }),
        })
    }

    /// A request through the dispatch. A refused one changes nothing, as in the executor (meta-I1).
    pub fn call<R: Request>(&mut self, req: R) -> Result<R::Reply, Code> {
        self.call_with(req, &[])
    }
    /// As `call`, with bulk bytes.
    pub fn call_with<R: Request>(&mut self, req: R, bulk: &[u8]) -> Result<R::Reply, Code> {
        let body = req.to_bytes();
        self.now.sec += 1;
        let answer = World::with_judge(self.replay, self.space, self.judged, |ctx| {
            if !R::MUTATES {
                let mut reply = vec![];
                return crate::read(ctx, &self.txn, R::CALL, &body, &mut reply, &mut Buf::new())
                    .map(|()| reply);
            }
            let mut overlay = self.txn.clone();
            let answer = crate::mutate(ctx, &mut overlay, R::CALL, &body, bulk);
            if answer.is_ok() {
                self.txn = overlay;
            }
            answer
        });
        answer.map(|b| R::Reply::from_bytes(&b).expect("the reply decodes")).map_err(|f| f.code)
    }

    pub fn create_req(&self, parent: Fid, name: &str) -> Create {
        Create {
            parent,
            name: bytes(name),
            kind: Kind::File,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            exclusive: true,
            read: false,
            write: false,
            append: false,
            now: self.now,
            cred: cred(self.who),
            want: Fid(0),
        }
    }
    pub fn create_with_req(&self, parent: Fid, name: &str, content: &[u8]) -> CreateWith {
        CreateWith {
            parent,
            name: bytes(name),
            mode: 0o644,
            umask: 0,
            crcs: crc::fragment_crcs(0, content),
            now: self.now,
            written: self.now,
            cred: cred(self.who),
            want: Fid(0),
        }
    }
    pub fn create(&mut self, parent: Fid, name: &str) -> Result<Attr, Code> {
        let req = self.create_req(parent, name);
        self.call(req).map(|r| r.open.inode.attr)
    }
    pub fn file(&mut self, parent: Fid, name: &str) -> Fid {
        self.create(parent, name).expect("create").fid
    }
    pub fn mkdir(&mut self, parent: Fid, name: &str, mode: u32) -> Result<Attr, Code> {
        let req = MakeDir {
            parent,
            name: bytes(name),
            mode,
            umask: 0,
            now: self.now,
            cred: cred(self.who),
            want: Fid(0),
        };
        self.call(req).map(|i| i.attr)
    }
    pub fn dir(&mut self, parent: Fid, name: &str) -> Fid {
        self.mkdir(parent, name, 0o755).expect("mkdir").fid
    }
    pub fn link(&mut self, fid: Fid, parent: Fid, name: &str) -> Result<u32, Code> {
        let req = Link { fid, parent, name: bytes(name), now: self.now, cred: cred(self.who) };
        self.call(req).map(|i| i.attr.nlink)
    }
    pub fn unlink(&mut self, parent: Fid, name: &str, held: bool) -> Result<(Fid, u32), Code> {
        let req = Unlink { parent, name: bytes(name), held, now: self.now, cred: cred(self.who) };
        self.call(req).map(|gone| (gone.attr.fid, gone.attr.nlink))
    }
    pub fn rmdir(&mut self, parent: Fid, name: &str) -> Result<(Fid, u32), Code> {
        let req = RemoveDir { parent, name: bytes(name), held: false, now: self.now, cred: cred(self.who) };
        self.call(req).map(|gone| (gone.attr.fid, gone.attr.nlink))
    }
    pub fn rename(
        &mut self,
        from: (Fid, &str),
        to: (Fid, &str),
        flags: u32,
        hold: bool,
    ) -> Result<RenameReply, Code> {
        let req = Rename {
            parent: from.0,
            name: bytes(from.1),
            new_parent: to.0,
            new_name: bytes(to.1),
            flags,
            hold,
            now: self.now,
            cred: cred(self.who),
            want: Fid(0),
        };
        self.call(req)
    }
    pub fn lookup(&mut self, parent: Fid, name: &str) -> Result<Fid, Code> {
        self.call(Lookup { parent, name: bytes(name), cred: cred(self.who) }).map(|i| i.attr.fid)
    }
    pub fn inode(&self, fid: Fid) -> InodeRecord {
        load_inode(&self.txn, fid).expect("the inode exists")
    }
    pub fn attr(&self, fid: Fid) -> Attr {
        self.inode(fid).attr
    }
    pub fn set_mode(&mut self, fid: Fid, mode: u32) {
        self.edit(fid, |i| i.attr.mode = mode)
    }
    pub fn set_owner(&mut self, fid: Fid, uid: u32, gid: u32) {
        self.edit(fid, |i| (i.attr.uid, i.attr.gid) = (uid, gid))
    }
    /// Changes an inode record without the rules.
    pub fn edit(&mut self, fid: Fid, change: impl FnOnce(&mut InodeRecord)) {
        let mut inode = self.inode(fid);
        change(&mut inode);
        crate::inode::store_inode(&mut self.txn, &inode);
    }
    /// Puts another name into the run of `name`'s hash, as a collision would.
    pub fn collide(&mut self, parent: Fid, name: &str, collision: u8, other: &str, fid: Fid) {
        names::put_entry(
            &mut self.txn,
            Parent { fid: parent, h64: h64(name.as_bytes()), collision },
            fid,
            Kind::File,
            other.as_bytes(),
        );
    }
    /// The collision number of a name.
    pub fn collision_of(&self, parent: Fid, name: &str) -> u8 {
        match names::find_slot(&self.txn, parent, name.as_bytes()).expect("sound entries") {
            Slot::Taken(found) => found.at.collision,
            Slot::Free(at) => panic!("{name} is not in {:?}", at.fid),
        }
    }
    pub fn has(&self, key: Key) -> bool {
        self.txn.get(&key).is_some()
    }
    pub fn is_gone(&self, fid: Fid) -> bool {
        !self.has(keys::inode(fid))
    }
}
