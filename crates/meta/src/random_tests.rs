//! Random operations through the dispatch, compared with the model: the same answers, the same tree, and the invariants of lib.rs.

use std::collections::{BTreeMap, BTreeSet};

use types::*;
use wire::codec::Bytes;
use wire::meta::*;
use wire::object::{Capability, Mac};
use wire::{Request, Wire};

use crate::mem::MemTxn;
use crate::model::{Model, Node};
use crate::records::{EntryRecord, InodeRecord};
use crate::{Ctx, Space, View, keys};

const NOW: Time = Time { sec: 1_000_000, nsec: 5 };

fn cap(fid: Fid, generation: Generation, rights: u8, lease: u32) -> Capability {
    Capability {
        fid,
        generation,
        rights,
        lease_epoch: 1,
        lease_counter: lease,
        session: SessionId(1),
        expiry_sec: 0,
        mac: Mac::default(),
    }
}

fn call<R: Request>(txn: &mut MemTxn, req: R) -> Result<R::Reply, Code> {
    let mirrors = [MirrorId(1), MirrorId(2), MirrorId(3), MirrorId(4)];
    let ctx = Ctx {
        session: SessionId(1),
        replay: false,
        inline_max: INLINE_MAX,
        ost_mirrors: &mirrors,
        ost_indexes: &[],
        draining: &[],
        shard: Shard(0),
        epoch: Epoch(1),
        make_cap: &cap,
        sharing: None,
        space: Space::AMPLE,
        judge: None,
        root: None,
    };
    let body = req.to_bytes();
    let answer = match R::MUTATES {
        // The executor drops the changes of a refused operation; a clone plays its overlay.
        true => {
            let mut overlay = txn.clone();
            let answer = crate::mutate(&ctx, &mut overlay, R::CALL, &body, &[]);
            if answer.is_ok() {
                *txn = overlay;
            }
            answer
        }
        false => {
            let mut reply = vec![];
            crate::read(&ctx, txn, R::CALL, &body, &mut reply, &mut Buf::new()).map(|()| reply)
        }
    };
    answer.map(|b| R::Reply::from_bytes(&b).expect("the reply decodes")).map_err(|f| f.code)
}

struct World {
    txn: MemTxn,
    model: Model,
    fids: BTreeMap<Node, Fid>,
    seed: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut txn = MemTxn::default();
        crate::format(&mut txn, NOW);
        World { txn, model: Model::default(), fids: BTreeMap::from([(0, Fid::ROOT)]), seed }
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % limit
    }
    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.below(6)).into_bytes()
    }
    /// An existing node, often a directory.
    fn node(&mut self) -> Node {
        let living: Vec<Node> =
            (0..self.model.nodes.len()).filter(|n| self.model.nodes[*n].is_some()).collect();
        let dirs: Vec<Node> = living
            .iter()
            .copied()
            .filter(|n| self.model.inode(*n).is_ok_and(|i| i.kind == Kind::Dir))
            .collect();
        let from = if self.below(10) < 8 { dirs } else { living };
        from[self.below(from.len() as u64) as usize]
    }

    fn step(&mut self) -> (String, Option<Code>, Option<Code>) {
        let (parent, name) = (self.node(), self.name());
        let p = self.fids[&parent];
        let wire_name = Bytes(name.clone());
        let cred = Cred::root();
        match self.below(100) {
            0..25 => {
                let want = self.model.make(parent, &name, Kind::File);
                let create = Create {
                    parent: p,
                    name: wire_name,
                    kind: Kind::File,
                    mode: 0o644,
                    rdev: 0,
                    exclusive: true,
                    write: true,
                    now: NOW,
                    cred,
                    want: Fid(0),
                    umask: 0,
                    read: false,
                    append: false,
                };
                let got = call(&mut self.txn, create).map(|r| r.open.inode.attr.fid);
                self.both("create", got, want)
            }
            25..40 => {
                let want = self.model.make(parent, &name, Kind::Dir);
                let make = MakeDir {
                    parent: p,
                    name: wire_name,
                    mode: 0o755,
                    now: NOW,
                    cred,
                    want: Fid(0),
                    umask: 0,
                };
                let got = call(&mut self.txn, make).map(|r| r.attr.fid);
                self.both("mkdir", got, want)
            }
            40..44 => {
                let want = self.model.make(parent, &name, Kind::Symlink);
                let make = Symlink {
                    parent: p,
                    name: wire_name,
                    target: Bytes(b"x".to_vec()),
                    now: NOW,
                    cred,
                    want: Fid(0),
                };
                let got = call(&mut self.txn, make).map(|r| r.attr.fid);
                self.both("symlink", got, want)
            }
            44..52 => {
                let node = self.node();
                let got = call(
                    &mut self.txn,
                    Link { fid: self.fids[&node], parent: p, name: wire_name, now: NOW, cred },
                );
                ("link".into(), got.err(), self.model.link(node, parent, &name).err())
            }
            52..66 => {
                let got =
                    call(&mut self.txn, Unlink { parent: p, name: wire_name, held: false, now: NOW, cred });
                ("unlink".into(), got.err(), self.model.unlink(parent, &name).err())
            }
            66..74 => {
                let got = call(
                    &mut self.txn,
                    RemoveDir { parent: p, name: wire_name, held: false, now: NOW, cred },
                );
                ("rmdir".into(), got.err(), self.model.rmdir(parent, &name).err())
            }
            74..94 => {
                let (to, new_name) = (self.node(), self.name());
                let (noreplace, whiteout) = (self.below(8) == 0, self.below(4) == 0);
                let flag = |is_set, flag| if is_set { flag } else { 0 };
                let rename = Rename {
                    parent: p,
                    name: wire_name,
                    new_parent: self.fids[&to],
                    new_name: Bytes(new_name.clone()),
                    flags: flag(noreplace, RENAME_NOREPLACE) | flag(whiteout, RENAME_WHITEOUT),
                    hold: false,
                    now: NOW,
                    cred,
                    want: Fid(0),
                };
                let got = call(&mut self.txn, rename);
                let want = self.model.rename(parent, &name, to, &new_name, (noreplace, whiteout));
                if let (Ok(reply), Ok(made)) = (&got, &want) {
                    assert_eq!(reply.whiteout != Fid(0), made.is_some(), "a whiteout");
                    self.fids.extend(made.map(|node| (node, reply.whiteout)));
                }
                ("rename".into(), got.err(), want.err())
            }
            _ => {
                let got = call(&mut self.txn, Lookup { parent: p, name: wire_name, cred: Cred::root() })
                    .map(|i| i.attr.fid);
                let want = self.model.lookup(parent, &name);
                if let (Ok(fid), Ok(node)) = (&got, &want) {
                    assert_eq!(self.fids[node], *fid, "lookup leads elsewhere");
                }
                ("lookup".into(), got.err(), want.err())
            }
        }
    }

    fn both(
        &mut self,
        what: &str,
        got: Result<Fid, Code>,
        want: Result<Node, Code>,
    ) -> (String, Option<Code>, Option<Code>) {
        if let (Ok(fid), Ok(node)) = (&got, &want) {
            self.fids.insert(*node, *fid);
        }
        (what.into(), got.err(), want.err())
    }

    /// Compares the whole tree and link counts, and checks meta-I2 and meta-I3.
    fn check(&mut self) {
        let mut entries: BTreeMap<(Fid, Vec<u8>), Fid> = BTreeMap::new();
        let mut links: BTreeMap<Fid, u32> = BTreeMap::new();
        let mut inodes: BTreeMap<Fid, InodeRecord> = BTreeMap::new();
        let mut hints: BTreeSet<(Fid, Fid, u64, u8)> = BTreeSet::new();
        for (key, value) in &self.txn.records {
            match key.as_bytes()[0] {
                keys::ENTRY => {
                    let (parent, h, c) = keys::parse_entry(key).expect("entry key");
                    let e = EntryRecord::decode(value).expect("entry");
                    *links.entry(e.fid).or_default() += 1;
                    hints.insert((e.fid, parent, h, c));
                    entries.insert((parent, e.name), e.fid);
                }
                keys::INODE => {
                    let fid = keys::parse_fid(key).expect("inode key");
                    inodes.insert(fid, InodeRecord::decode(fid, value).expect("inode"));
                }
                _ => {}
            }
        }
        let told: BTreeSet<_> = inodes
            .values()
            .flat_map(|i| i.parents.iter().map(|p| (i.fid(), p.fid, p.h64, p.collision)))
            .collect();
        assert_eq!(told, hints, "meta-I2: parent hints and entries agree");
        let mut count = 0;
        for (node, inode) in self.model.nodes.iter().enumerate().filter_map(|(n, i)| Some((n, i.as_ref()?))) {
            let record = &inodes[&self.fids[&node]];
            assert_eq!((record.attr.kind, record.attr.nlink), (inode.kind, inode.nlink), "node {node}");
            for (name, child) in &inode.children {
                assert_eq!(entries.remove(&(self.fids[&node], name.clone())), Some(self.fids[child]));
            }
            count += 1;
        }
        assert!(entries.is_empty(), "entries that the model has not: {entries:?}");
        assert_eq!(inodes.len(), count, "inodes without a name");
    }
}

#[test]
fn random_operations_match_the_model() {
    // The long form runs 10^6 in worlds of their own: checking one world of that size would take most of the time.
    let (seeds, count) = if std::env::var_os("STRIA_LONG").is_some() { (50, 20_000) } else { (1, 12_000) };
    for seed in 7..7 + seeds {
        let mut world = World::new(seed);
        for n in 0..count {
            let (what, got, want) = world.step();
            assert_eq!(got, want, "operation {n} of seed {seed}: {what}");
            if n % 2_000 == 0 {
                world.check();
            }
        }
        world.check();
    }
}

#[test]
fn listings_give_each_entry_once_over_pages() {
    let mut world = World::new(3);
    for n in 0..500 {
        let name = Bytes(format!("e{n}").into_bytes());
        let make = MakeDir {
            parent: Fid::ROOT,
            name,
            mode: 0o755,
            now: NOW,
            cred: Cred::root(),
            want: Fid(0),
            umask: 0,
        };
        call(&mut world.txn, make).expect("mkdir");
    }
    let (mut cookie, mut seen) = (0, BTreeSet::new());
    loop {
        let page =
            call(&mut world.txn, ReadDir { dir: Fid::ROOT, cookie, max: 7, plus: true, cred: Cred::root() })
                .expect("readdir");
        for e in &page.entries {
            assert!(e.cookie > cookie, "cookies rise");
            cookie = e.cookie;
            assert_eq!(e.inode.as_ref().map(|i| i.attr.fid), Some(e.fid));
            assert!(seen.insert(e.name.0.clone()), "listed twice");
        }
        if !page.more {
            break;
        }
    }
    assert_eq!(seen.len(), 500);
}

/// Content: bytes, sizes and states of a file from inline to objects and back.
#[test]
fn growth_truncate_and_settle_follow_the_rules() {
    let mut world = World::new(1);
    let txn = &mut world.txn;
    let create = Create {
        parent: Fid::ROOT,
        name: Bytes(b"f".to_vec()),
        kind: Kind::File,
        mode: 0o644,
        rdev: 0,
        exclusive: true,
        write: true,
        now: NOW,
        cred: Cred::root(),
        want: Fid(0),
        umask: 0,
        read: false,
        append: false,
    };
    let fid = call(txn, create).expect("create").open.inode.attr.fid;
    // 100 bytes inline (through the rule itself: it takes bulk), then growth in two steps.
    let ctx_mirrors = [MirrorId(9), MirrorId(10)];
    let ctx = Ctx {
        session: SessionId(1),
        replay: false,
        inline_max: 4096,
        ost_mirrors: &ctx_mirrors,
        ost_indexes: &[],
        draining: &[],
        shard: Shard(0),
        epoch: Epoch(1),
        make_cap: &cap,
        sharing: None,
        space: Space::AMPLE,
        judge: None,
        root: None,
    };
    let bytes = [5u8; 100];
    let write = |offset, bytes: &[u8]| WriteInline {
        fid,
        place: Place::At(offset),
        in_section: true,
        crcs: types::crc::fragment_crcs(0, bytes),
        now: NOW,
        held: None,
    };
    crate::inline::write_inline(&ctx, txn, write(10, &bytes), &bytes).expect("fits");
    assert_eq!(
        crate::inline::write_inline(&ctx, txn, write(4000, &bytes), &bytes).expect_err("too long").code,
        Code::NeedLayout
    );
    let mut bad = write(0, &bytes);
    bad.crcs[0] ^= 1;
    assert_eq!(
        crate::inline::write_inline(&ctx, txn, bad, &bytes).expect_err("a wrong sum").code,
        Code::BadChecksum
    );
    let mut out = Buf::new();
    let read =
        crate::inline::read_inline(&ctx, txn, ReadInline { fid, offset: 0, len: 1000, held: None }, &mut out)
            .expect("read");
    assert_eq!((read.size, out.len()), (110, 110));
    assert!(out[..10].iter().all(|b| *b == 0) && out[10..].iter().all(|b| *b == 5));

    // meta-O4: a layout is assigned, and the file switches only on the client's request.
    let given = call(txn, Grow { fid, now: NOW, held: None, avoid: vec![] }).expect("grow");
    assert!(!given.switched && given.inode.layout.is_none());
    let again = call(txn, Grow { fid, now: NOW, held: None, avoid: vec![] }).expect("grow again");
    assert_eq!(
        again.layout.generation.0,
        given.layout.generation.0 + 1,
        "objects of the first attempt may exist"
    );
    assert!(txn.get(&keys::dead(fid, given.layout.generation)).is_some(), "meta-I3: they are buried");
    let stale = Switch { fid, generation: given.layout.generation, written: vec![], now: NOW, held: None };
    assert_eq!(call(txn, stale).expect_err("an old generation"), Code::Stale);
    let written = vec![WrittenBits { component: 0, bits: vec![1] }];
    let now = call(txn, Switch { fid, generation: again.layout.generation, written, now: NOW, held: None })
        .expect("switch");
    assert!(now.inode.layout.as_ref().is_some_and(|l| l.components[0].is_written(0)));
    assert!(txn.get(&keys::inline(fid, 0)).is_none(), "inline bytes are gone in the same entry");
    assert_eq!(now.inode.state, FileState::Writing(SessionId(1)));

    // plan-O3: a settle only raises sizes; only a truncate lowers them.
    let settle = |size, done| Settle {
        fid,
        generation: again.layout.generation,
        size,
        blocks: 8,
        mtime: NOW,
        written: vec![],
        done,
        hint: false,
        is_part: false,
        held: None,
    };
    assert_eq!(call(txn, settle(9000, true)).expect("settle").attr.size, 9000);
    assert_eq!(call(txn, settle(50, true)).expect("settle").attr.size, 9000);
    let cut =
        call(txn, Truncate { fid, size: 70, now: NOW, cred: Cred::root(), held: None }).expect("truncate");
    assert!(cut.pending && cut.cap.is_some());
    assert_eq!(cut.inode.state, FileState::Truncating { session: SessionId(1), size: 70 });
    assert_eq!(call(txn, settle(70, true)).expect("settle").attr.size, 70);
    let longer = call(txn, Truncate { fid, size: 1 << 30, now: NOW, cred: Cred::root(), held: None })
        .expect("grow by truncate");
    assert!(!longer.pending);
    // To size 0: a new generation, the old objects in the unlink log.
    let empty =
        call(txn, Truncate { fid, size: 0, now: NOW, cred: Cred::root(), held: None }).expect("empty");
    assert!(!empty.pending && empty.inode.layout.is_none());
    assert!(txn.get(&keys::dead(fid, again.layout.generation)).is_some());
    assert_eq!(call(txn, settle(10, true)).expect_err("an old generation"), Code::Stale);
    let fresh = call(txn, Grow { fid, now: NOW, held: None, avoid: vec![] }).expect("grow of an empty file");
    assert!(fresh.switched && fresh.layout.generation > again.layout.generation);
}

#[test]
fn default_layouts_go_round_all_osts() {
    let mirrors: Vec<MirrorId> = (0..4).map(MirrorId).collect();
    let ctx = Ctx {
        session: SessionId(1),
        replay: false,
        inline_max: 0,
        ost_mirrors: &mirrors,
        ost_indexes: &[],
        draining: &[],
        shard: Shard(0),
        epoch: Epoch(1),
        make_cap: &cap,
        sharing: None,
        space: Space::AMPLE,
        judge: None,
        root: None,
    };
    let mut firsts = BTreeSet::new();
    for fid in 16..20 {
        let l = crate::stripe::make_layout(&ctx, Fid(fid), None, Generation(1), &[]).expect("layout");
        let counts: Vec<usize> = l.components.iter().map(|c| c.mirrors.len()).collect();
        assert_eq!(counts, [1, 4, 4]);
        assert_eq!(l.components.iter().map(|c| c.end).collect::<Vec<_>>(), [64 << 20, 1 << 30, u64::MAX]);
        firsts.insert(l.components[0].mirrors[0]);
    }
    assert_eq!(firsts.len(), 4);
}

#[test]
fn mutated_records_and_bodies_never_panic() {
    let mut world = World::new(11);
    (0..300).for_each(|_| drop(world.step()));
    let samples: Vec<Vec<u8>> = world.txn.records.values().map(|v| v.to_vec()).collect();
    for n in 0..100_000u64 {
        let mut bytes = samples[world.below(samples.len() as u64) as usize].clone();
        for _ in 0..=world.below(3) {
            let at = world.below(bytes.len() as u64) as usize;
            bytes[at] = world.below(256) as u8;
        }
        if n % 3 == 0 {
            bytes.truncate(world.below(bytes.len() as u64) as usize);
        }
        let _ = (
            InodeRecord::decode(Fid::ROOT, &bytes),
            EntryRecord::decode(&bytes),
            crate::records::InlinePage::decode(&bytes),
        );
        let _ = (crate::xattr::XattrsRecord::decode(&bytes), crate::Totals::decode(&bytes));
        let _ = (crate::records::decode_dead(&bytes), crate::records::decode_orphan(&bytes));
        let call_number = 0x0201 + world.below(0x1c) as u16;
        let mirrors = [MirrorId(1)];
        let ctx = Ctx {
            session: SessionId(1),
            replay: false,
            inline_max: INLINE_MAX,
            ost_mirrors: &mirrors,
            ost_indexes: &[],
            draining: &[],
            shard: Shard(0),
            epoch: Epoch(1),
            make_cap: &cap,
            sharing: None,
            space: Space::AMPLE,
            judge: None,
            root: None,
        };
        if n % 50 == 0 {
            let mut overlay = world.txn.clone();
            let _ = crate::mutate(&ctx, &mut overlay, call_number, &bytes, &bytes);
        }
        let _ = crate::read(&ctx, &world.txn, call_number, &bytes, &mut vec![], &mut Buf::new());
    }
}
