//! mds-N1 to mds-N4: banned, read-only and squashed nodes, and mapped ids.

use net::{Answer, Known, Service};
use pki::{Identity, Serial};
use types::*;
use wire::batch::{Batch, BatchReply, Op};
use wire::codec::Bytes;
use wire::map::{IdRange, Nodemap, Squash};
use wire::meta::*;
use wire::session::{AttachReply, Detach, TargetStat};
use wire::{Header, ReplyHead, Request, Wire, decode_reply};

use super::meta_rules::{create, fresh};
use super::rig::{Rig, registered};
use crate::sessions::shared::{Doom, Others};

const TOP: Fid = Fid::ROOT;

fn nodemap(name: &str) -> Nodemap {
    Nodemap {
        name: name.into(),
        priority: 0,
        role: "client".into(),
        node: "lab*".into(),
        net: String::new(),
        address: String::new(),
        ban: false,
        read_only: false,
        squash: Squash::None,
        squash_uid: 65_534,
        squash_gid: 65_533,
        uids: vec![],
        gids: vec![],
        root: String::new(),
    }
}

fn range(from: u32, to: u32, count: u32) -> IdRange {
    IdRange { from, to, count }
}

fn client(node: &str) -> Known {
    Known::new(Identity::parse(&format!("stria://c/client/{node}"), Serial(1)).unwrap())
}

fn take_map(rig: &Rig, version: u64, nodemaps: Vec<Nodemap>) {
    let map = wire::map::ClusterMap { version, nodemaps, ..registered().map };
    rig.mdt.set_map(&map).unwrap();
}

fn ask<R: Request>(rig: &Rig, by: &Known, req: &R, session: SessionId) -> Result<R::Reply, Fault> {
    let (head, mut bulk) = (Header { call: R::CALL, session, ..Header::default() }, Buf::new());
    let mut answer = Answer::to(by, head, &mut bulk);
    rig.mdt.serve(&head, &req.to_bytes(), &[], &mut answer);
    decode_reply::<R::Reply>(&answer.body).unwrap().1
}

fn attach(rig: &Rig, by: &Known, client: u8) -> Result<AttachReply, Fault> {
    ask(rig, by, &super::owners::attach(client), SessionId(0))
}

/// A rig with this list and no session.
fn rig(nodemaps: Vec<Nodemap>) -> Rig {
    rig_on_disk(nodemaps).0
}

fn rig_on_disk(nodemaps: Vec<Nodemap>) -> (Rig, std::sync::Arc<disk::SimDisk>) {
    let (rig, disk) = fresh();
    // Everyone may make files in the root.
    let all = SetAttr { cred: Cred::root(), ..owner_of(TOP, SET_MODE, 0) };
    rig.ask(&all, rig.session).unwrap();
    rig.ask(&Detach { session: rig.session }, rig.session).unwrap();
    take_map(&rig, 2, nodemaps);
    (rig, disk)
}

fn owner_of(fid: Fid, valid: u32, uid: u32) -> SetAttr {
    let (atime, mtime, now) = (Time::default(), Time::default(), Time::new(20, 0));
    SetAttr { fid, valid, mode: 0o777, uid, gid: 0, atime, mtime, now, held: None, cred: user(0) }
}

fn user(uid: u32) -> Cred {
    Cred { uid, gid: 100, groups: vec![] }
}

fn lookup(name: &str, uid: u32) -> Lookup {
    Lookup { parent: TOP, name: name.as_bytes().into(), cred: user(uid) }
}

fn create_by(name: &str, uid: u32) -> Create {
    Create { cred: user(uid), ..create(name) }
}

#[test]
fn n2_a_banned_node_does_not_attach_and_is_told_which_nodemap_bans_it() {
    let rig = rig(vec![Nodemap { ban: true, ..nodemap("strangers") }]);
    let (by, other) = (client("lab7"), client("login1"));
    let fault = attach(&rig, &by, 1).unwrap_err();
    assert!(fault.code == Code::Access && fault.detail.contains("strangers"), "{fault}");
    for fault in [
        ask(&rig, &by, &lookup("a", 0), SessionId(0)).map(drop).unwrap_err(),
        ask(&rig, &by, &TargetStat {}, SessionId(0)).map(drop).unwrap_err(),
    ] {
        assert_eq!(fault.code, Code::Access, "without a session: {fault}");
    }
    attach(&rig, &other, 2).unwrap();
    // A server or an administrator of the same name is another one.
    let admin = Known::new(Identity::parse("stria://c/admin/lab7", Serial(1)).unwrap());
    ask(&rig, &admin, &TargetStat {}, SessionId(0)).unwrap();
}

#[test]
fn n2_the_session_of_a_newly_banned_node_ends_with_the_map() {
    let rig = rig(vec![]);
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    ask(&rig, &by, &create_by("a", 0), session).unwrap();
    take_map(&rig, 3, vec![Nodemap { ban: true, ..nodemap("lab") }]);
    assert!(rig.mdt.core.sessions.get(session).is_none(), "evicted");
    assert!(ask(&rig, &by, &create_by("b", 0), session).is_err());
    assert_eq!(attach(&rig, &by, 1).unwrap_err().code, Code::Access);
    take_map(&rig, 4, vec![]);
    let session = attach(&rig, &by, 1).unwrap().session;
    ask(&rig, &by, &create_by("b", 0), session).unwrap();
}

#[test]
fn n2_addresses_and_nets_are_matched_as_certificates_are() {
    // Tests' certificates come from 10.0.0.7 on tcp0.
    let by_address = |net: &str, address: &str| {
        let any = Nodemap { role: String::new(), node: String::new(), ban: true, ..nodemap("n") };
        let rig = rig(vec![Nodemap { net: net.into(), address: address.into(), ..any }]);
        let own = rig.attach(3);
        assert_eq!(own.is_ok(), net != "local0", "a process of the server's host");
        own.iter().for_each(|own| _ = rig.ask(&Detach { session: own.session }, own.session).unwrap());
        attach(&rig, &client("lab7"), 1).is_ok()
    };
    for (net, address, may) in [
        ("tcp0", "", false),
        ("tcp1", "", true),
        ("", "10.0.0.0/24", false),
        ("", "10.0.1.0/24", true),
        ("local0", "", true),
    ] {
        assert_eq!(by_address(net, address), may, "{net} {address}");
    }
}

#[test]
fn n4_a_node_that_may_only_read_changes_nothing() {
    let rig = rig(vec![]);
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    let fid = ask(&rig, &by, &create_by("a", 0), session).unwrap().open.inode.attr.fid;
    take_map(&rig, 3, vec![Nodemap { read_only: true, ..nodemap("lab") }]);
    assert!(rig.mdt.core.sessions.get(session).is_some(), "it goes on");
    let before = rig.mdt.core.volume.last_seq();
    let fault = ask(&rig, &by, &create_by("b", 0), session).unwrap_err();
    assert!(fault.code == Code::ReadOnly && fault.detail.contains("lab"), "{fault}");
    let open = |write| Open {
        fid,
        read: true,
        write,
        append: false,
        truncate: false,
        keep_write: false,
        held: None,
        now: Time::new(30, 0),
        cred: user(0),
    };
    assert_eq!(ask(&rig, &by, &open(true), session).unwrap_err().code, Code::ReadOnly);
    assert_eq!(ask(&rig, &by, &owner_of(fid, SET_UID, 5), session).unwrap_err().code, Code::ReadOnly);
    // Changes that it promised under a lease come in batches.
    let op = |call, body: Vec<u8>| Op { call, slot: 0, sequence: 0, bulk_len: 0, body: Bytes(body) };
    let ops = vec![
        op(Lookup::CALL, lookup("a", 0).to_bytes()),
        op(Create::CALL, create_by("b", 0).to_bytes()),
        op(MakeDir::CALL, vec![]),
        op(Lookup::CALL, lookup("b", 0).to_bytes()),
    ];
    let BatchReply { answers: ops } = ask(&rig, &by, &Batch { ops }, session).unwrap();
    let codes = ops.iter().map(|op| ReplyHead::get(&mut wire::Reader::new(&op.body.0)).unwrap().code);
    let want = [Code::Ok, Code::ReadOnly, Code::ReadOnly, Code::NotFound];
    assert_eq!(codes.collect::<Vec<_>>(), want.map(|code| code as u16));
    assert_eq!(rig.mdt.core.volume.last_seq(), before, "nothing was logged");
    // It reads, and makes nothing before the MDT hears of it.
    let cap = ask(&rig, &by, &open(false), session).unwrap().cap;
    assert!(cap.is_none_or(|cap| cap.rights & wire::object::RIGHT_WRITE == 0));
    ask(&rig, &by, &lookup("a", 0), session).unwrap();
    assert_eq!(ask(&rig, &by, &LeaseDir { dir: TOP, count: 8 }, session).unwrap().count, 0);
}

#[test]
fn squashed_callers_own_and_may_only_what_their_user_does() {
    let root = rig(vec![Nodemap { squash: Squash::Root, ..nodemap("lab") }]);
    let by = client("lab7");
    let said = attach(&root, &by, 1).unwrap();
    assert!(said.judges, "the client's kernel does not judge");
    let attr = |rig: &Rig, name: &str, uid, session| {
        let made = ask(rig, &by, &create_by(name, uid), session).unwrap().open.inode.attr;
        (made.fid, made.uid, made.gid)
    };
    let (fid, uid, gid) = attr(&root, "of-root", 0, said.session);
    assert_eq!((uid, gid), (65_534, 65_533));
    assert_eq!(attr(&root, "of-user", 1000, said.session).1, 1000);
    assert_eq!(ask(&root, &by, &owner_of(fid, SET_UID, 5), said.session).unwrap_err().code, Code::Perm);
    assert_eq!(ask(&root, &by, &LeaseDir { dir: TOP, count: 8 }, said.session).unwrap().count, 0);
    let all = rig(vec![Nodemap { squash: Squash::All, squash_uid: 7, ..nodemap("lab") }]);
    let session = attach(&all, &by, 1).unwrap().session;
    assert_eq!(attr(&all, "of-user", 1000, session).1, 7);
    // Another node's callers are not touched.
    let other = client("login1");
    ask(&all, &by, &Detach { session }, session).unwrap();
    let said = attach(&all, &other, 2).unwrap();
    assert!(!said.judges);
    let made = ask(&all, &other, &create_by("of-root", 0), said.session).unwrap();
    assert_eq!(made.open.inode.attr.uid, 0);
}

#[test]
fn n3_a_session_whose_ids_change_ends() {
    let rig = rig(vec![nodemap("lab")]);
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    take_map(&rig, 3, vec![Nodemap { priority: 3, ..nodemap("lab") }]);
    assert!(rig.mdt.core.sessions.get(session).is_some(), "the ids are the same");
    take_map(&rig, 4, vec![Nodemap { squash: Squash::All, ..nodemap("lab") }]);
    assert!(rig.mdt.core.sessions.get(session).is_none());
    assert!(attach(&rig, &by, 1).unwrap().judges);
}

#[test]
fn mapped_ids_are_the_file_systems_in_records_and_the_clients_in_replies() {
    let uids = vec![range(1000, 5000, 10), range(0, 4000, 1)];
    let gids = vec![range(100, 600, 1)];
    let rig = rig(vec![Nodemap { uids, gids, ..nodemap("lab") }]);
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    let made = ask(&rig, &by, &create_by("a", 1003), session).unwrap().open.inode.attr;
    assert_eq!((made.uid, made.gid), (1003, 100), "as the client knows them");
    let stored = |name: &str| -> Attr { rig.ask(&lookup(name, 0), SessionId(0)).unwrap().attr };
    assert_eq!((stored("a").uid, stored("a").gid), (5003, 600));
    // By every way that reads.
    let seen = ask(&rig, &by, &lookup("a", 1003), session).unwrap().attr;
    assert_eq!((seen.uid, seen.gid), (1003, 100));
    let list = ReadDir { dir: TOP, cookie: 0, max: 10, plus: true, cred: user(1003) };
    let entries = ask(&rig, &by, &list, session).unwrap().entries;
    assert_eq!(entries[0].inode.as_ref().map(|i| i.attr.uid), Some(1003));
    let op = |body: Vec<u8>| Op { call: Lookup::CALL, slot: 0, sequence: 0, bulk_len: 0, body: Bytes(body) };
    let batch = Batch { ops: vec![op(lookup("a", 1003).to_bytes())] };
    let BatchReply { answers: ops } = ask(&rig, &by, &batch, session).unwrap();
    assert_eq!(decode_reply::<Inode>(&ops[0].body.0).unwrap().1.unwrap().attr.uid, 1003);
    // The root of the client is an ordinary user, and gives files to no user outside the ranges.
    let own = ask(&rig, &by, &create_by("of-root", 0), session).unwrap().open.inode.attr;
    assert_eq!((own.uid, stored("of-root").uid), (0, 4000));
    assert_eq!(ask(&rig, &by, &owner_of(own.fid, SET_UID, 1004), session).unwrap_err().code, Code::Perm);
    assert_eq!(ask(&rig, &by, &owner_of(own.fid, SET_UID, 77), session).unwrap_err().code, Code::Invalid);
    // A file of a user that no range has.
    let other = client("login1");
    ask(&rig, &by, &Detach { session }, session).unwrap();
    let theirs = attach(&rig, &other, 2).unwrap().session;
    ask(&rig, &other, &create_by("far", 9), theirs).unwrap();
    ask(&rig, &other, &Detach { session: theirs }, theirs).unwrap();
    let session = attach(&rig, &by, 1).unwrap().session;
    assert_eq!(ask(&rig, &by, &lookup("far", 1003), session).unwrap().attr.uid, 65_534);
    // The slot keeps the ids of the file system: a repeat is mapped once.
    let twice = |sequence| {
        let (head, mut bulk) =
            (Header { call: Create::CALL, session, slot: 3, sequence, ..Header::default() }, Buf::new());
        let mut answer = Answer::to(&by, head, &mut bulk);
        rig.mdt.serve(&head, &create_by("once", 1005).to_bytes(), &[], &mut answer);
        decode_reply::<CreateReply>(&answer.body).unwrap().1.unwrap().open.inode.attr
    };
    let (first, again) = (twice(1), twice(1));
    assert_eq!((first.uid, again.uid, first.fid), (1005, 1005, again.fid));
}

/// A tree with `/in/dir` and `/out`, made by a node without a nodemap, and files in both. The ids of: in, dir, file in dir, out, file in out.
fn tree(rig: &Rig) -> [Fid; 5] {
    let by = client("login1");
    let session = attach(rig, &by, 9).unwrap().session;
    let mkdir = |parent, name: &str| {
        let req = make_dir(parent, name);
        ask(rig, &by, &req, session).unwrap().attr.fid
    };
    let inside = mkdir(TOP, "in");
    let (dir, out) = (mkdir(inside, "dir"), mkdir(TOP, "out"));
    let file = |parent| {
        let made = ask(rig, &by, &Create { parent, ..create_by("f", 0) }, session).unwrap();
        made.open.inode.attr.fid
    };
    let all = [inside, dir, file(dir), out, file(out)];
    ask(rig, &by, &Detach { session }, session).unwrap();
    all
}

fn below(root: &str) -> Vec<Nodemap> {
    vec![Nodemap { root: root.into(), ..nodemap("lab") }]
}

#[test]
fn n5_a_session_sees_the_directory_that_its_path_was_when_it_attached() {
    let rig = rig(vec![]);
    let [inside, dir, file, out, secret] = tree(&rig);
    let by = client("lab7");
    take_map(&rig, 3, below("/none"));
    let fault = attach(&rig, &by, 1).unwrap_err();
    assert!(fault.code == Code::NotFound && fault.detail.contains("/none"), "{fault}");
    take_map(&rig, 4, below("/in"));
    let said = attach(&rig, &by, 1).unwrap();
    assert_eq!((said.root, said.judges), (inside, false));
    let session = said.session;
    let get = |fid| ask(&rig, &by, &GetAttr { fid }, session).map(|i| i.attr.fid).map_err(|f| f.code);
    assert_eq!([get(inside), get(dir), get(file)], [Ok(inside), Ok(dir), Ok(file)]);
    assert_eq!([get(out), get(secret), get(TOP)], [Err(Code::Stale); 3]);
    // An observer without a session is checked too; a server acts for the file system.
    let observe = |by: &Known| ask(&rig, by, &GetAttr { fid: secret }, SessionId(0)).map_err(|f| f.code);
    assert_eq!(observe(&by).unwrap_err(), Code::Stale);
    observe(&Known::new(Identity::parse("stria://c/server/lab7", Serial(1)).unwrap())).unwrap();
    let scan = ask(&rig, &by, &Scan { after: Bytes(vec![]), max: 9 }, session).unwrap_err();
    assert!(scan.code == Code::Access && scan.detail.contains("lab"), "{scan}");
    // The path gets to be another directory.
    let other = client("login1");
    let holder = crate::sessions::owner::Holder::from_uri("stria://c/client/login1").ok();
    let theirs = rig.mdt.core.begin_session(&super::owners::attach(8), holder, 0).unwrap().id;
    ask(&rig, &other, &moved(TOP, "in", TOP, "moved"), theirs).unwrap();
    ask(&rig, &other, &moved(TOP, "out", TOP, "in"), theirs).unwrap();
    assert_eq!((get(file), get(secret)), (Ok(file), Err(Code::Stale)), "the session keeps its directory");
    take_map(&rig, 5, vec![Nodemap { priority: 4, ..below("/in").remove(0) }]);
    assert_eq!(attach(&rig, &by, 1).unwrap().root, inside);
    // A directory is moved out: what was remembered of it counts no more.
    ask(&rig, &other, &moved(inside, "dir", out, "dir"), theirs).unwrap();
    assert_eq!([get(dir), get(file)], [Err(Code::Stale); 2]);
    take_map(&rig, 6, below("/moved"));
    assert!(rig.mdt.core.sessions.get(session).is_some(), "the same directory by another path");
    take_map(&rig, 7, vec![]);
    assert!(rig.mdt.core.sessions.get(session).is_none(), "another root ends it");
    ask(&rig, &other, &Detach { session: theirs }, theirs).unwrap();
    assert_eq!(attach(&rig, &by, 1).unwrap().root, TOP);
}

#[test]
fn n6_a_session_below_a_root_gets_no_lease_lock_or_hold_outside_of_it() {
    let rig = rig(vec![]);
    let [inside, dir, file, out, secret] = tree(&rig);
    take_map(&rig, 3, below("/in"));
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    let core = &rig.mdt.core;
    let flags_of = |call, body: Vec<u8>| {
        let head = Header { call, session, flags: wire::Flags::LEASE_WANTED, ..Header::default() };
        let mut bulk = Buf::new();
        let mut answer = Answer::to(&by, head, &mut bulk);
        rig.mdt.serve(&head, &body, &[], &mut answer);
    };
    for parent in [dir, out, Fid(0x7777)] {
        flags_of(Lookup::CALL, Lookup { parent, ..lookup("f", 0) }.to_bytes());
    }
    // Attributes of the root are under the lease of its parent directory.
    flags_of(GetAttr::CALL, GetAttr { fid: inside }.to_bytes());
    let held = [dir, out, TOP, Fid(0x7777)].map(|dir| core.leases.holds(dir, session));
    assert_eq!(held, [true, false, false, false]);
    for dir in [out, TOP, Fid(0x7777)] {
        assert_eq!(ask(&rig, &by, &WatchDir { dir }, session).unwrap_err().code, Code::Stale);
    }
    assert_eq!(ask(&rig, &by, &LeaseDir { dir, count: 8 }, session).unwrap().count, 0);
    let hold = wire::shared::Hold {
        mode: 0,
        floor: 0,
        opens: [file, secret, Fid(0x7777)].map(|fid| wire::shared::OpenFile { fid, write: true }).to_vec(),
        sections: vec![],
        dirs: vec![],
        mirrors: vec![],
        more: true,
    };
    ask(&rig, &by, &hold, session).unwrap();
    let (doom, lease_high) = (Doom::new(&core.sharers), std::cell::Cell::new(0));
    let others = Others { core, session, lease_high: &lease_high, doom: &doom };
    let opens = [file, secret, Fid(0x7777)].map(|fid| meta::sharing::Sharing::is_open_here(&others, fid));
    assert_eq!(opens, [true, false, false]);
    // In a batch each operation is judged by itself.
    let op = |call, body: Vec<u8>| Op { call, slot: 0, sequence: 0, bulk_len: 0, body: Bytes(body) };
    let ops = vec![
        op(GetAttr::CALL, GetAttr { fid: secret }.to_bytes()),
        op(GetAttr::CALL, GetAttr { fid: file }.to_bytes()),
        op(Create::CALL, Create { parent: out, ..create_by("b", 0) }.to_bytes()),
        op(Scan::CALL, Scan { after: Bytes(vec![]), max: 1 }.to_bytes()),
        op(Create::CALL, Create { parent: dir, ..create_by("b", 0) }.to_bytes()),
    ];
    let BatchReply { answers: ops } = ask(&rig, &by, &Batch { ops }, session).unwrap();
    let codes = ops.iter().map(|op| ReplyHead::get(&mut wire::Reader::new(&op.body.0)).unwrap().code);
    let want = [Code::Stale, Code::Ok, Code::Stale, Code::Access, Code::Ok];
    assert_eq!(codes.collect::<Vec<_>>(), want.map(|code| code as u16));
}

/// mds-S6: a session that begins while its request is looked at would be used without its nodemap.
#[test]
fn s6_a_session_that_has_not_begun_is_refused_before_its_request_is_looked_at() {
    let rig = rig(vec![]);
    tree(&rig);
    take_map(&rig, 3, below("/in"));
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    let code = |session: SessionId| {
        let mut bulk = Buf::new();
        let head = Header { call: GetAttr::CALL, session, ..Header::default() };
        let mut answer = Answer::to(&by, head, &mut bulk);
        rig.mdt.serve(&head, b"no body of this call", &[], &mut answer);
        decode_reply::<wire::Empty>(&answer.body).unwrap().1.unwrap_err().code
    };
    assert_eq!((code(session), code(SessionId(session.0 + 1))), (Code::BadRequest, Code::NoSession));
}

/// mds-N5: the list of nodemaps changes while a session's requests are under way, or while it attaches by the list before.
#[test]
fn n5_a_session_under_an_old_list_ends_at_its_next_request() {
    let rig = rig(vec![]);
    let [inside, ..] = tree(&rig);
    take_map(&rig, 3, below("/in"));
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    ask(&rig, &by, &GetAttr { fid: inside }, session).unwrap();
    let of_old_list = rig.mdt.core.sessions.get(session).unwrap().place.load_full();
    take_map(&rig, 4, vec![nodemap("lab")]);
    let session = attach(&rig, &by, 1).unwrap().session;
    rig.mdt.core.sessions.get(session).unwrap().place.store(of_old_list);
    assert_eq!(ask(&rig, &by, &GetAttr { fid: inside }, session).unwrap_err().code, Code::NoSession);
    assert!(rig.mdt.core.sessions.get(session).is_none(), "its client attaches, and hears of its root");
}

fn bytes(name: &str) -> Bytes {
    Bytes(name.as_bytes().to_vec())
}

fn make_dir(parent: Fid, name: &str) -> MakeDir {
    let (now, cred) = (Time::new(20, 0), user(0));
    MakeDir { parent, name: bytes(name), mode: 0o755, umask: 0, now, cred, want: Fid(0) }
}

/// Renames, by a node without a nodemap.
fn moved(parent: Fid, name: &str, new_parent: Fid, new_name: &str) -> Rename {
    Rename {
        parent,
        name: bytes(name),
        new_parent,
        new_name: bytes(new_name),
        flags: 0,
        hold: false,
        now: Time::new(40, 0),
        cred: user(0),
        want: Fid(0),
    }
}

#[test]
fn n5_a_repair_by_fsck_that_changes_a_parent_lets_roots_look_again() {
    let rig = rig(vec![]);
    let [inside, _, _, out, secret] = tree(&rig);
    take_map(&rig, 3, below("/in"));
    let by = client("lab7");
    let session = attach(&rig, &by, 1).unwrap().session;
    let get = |fid| ask(&rig, &by, &GetAttr { fid }, session).map(|i| i.attr.fid).map_err(|f| f.code);
    assert_eq!([get(out), get(secret)], [Err(Code::Stale); 2]);
    // Damage: a directory outside says that it has a name inside.
    let key = meta::keys::inode(out);
    rig.mdt
        .core
        .transact(&crate::records::ids::no_lease(), &mut |txn| {
            let value = meta::View::get(txn, &key).unwrap().into_owned();
            let mut inode = meta::records::InodeRecord::decode(out, &value).unwrap();
            inode.parents.insert(0, meta::records::Parent { fid: inside, ..inode.parents[0] });
            meta::Txn::put(txn, key, inode.encode());
            Ok(vec![])
        })
        .unwrap();
    assert_eq!([get(out), get(secret)], [Ok(out), Ok(secret)], "the root has learned it");
    let repaired = super::check::mend(&rig).0;
    assert!(repaired.contains(&wire::check::Wrong::BadHint), "{repaired:?}");
    assert_eq!([get(out), get(secret)], [Err(Code::Stale); 2]);
}

#[test]
fn n5_a_root_that_is_renamed_goes_on_and_one_that_is_removed_shows_nothing() {
    let rig = rig(vec![]);
    let [inside, dir, file, out, secret] = tree(&rig);
    take_map(&rig, 3, below("/in"));
    let (by, other) = (client("lab7"), client("login1"));
    let session = attach(&rig, &by, 1).unwrap().session;
    let holder = crate::sessions::owner::Holder::from_uri("stria://c/client/login1").ok();
    let theirs = rig.mdt.core.begin_session(&super::owners::attach(8), holder, 0).unwrap().id;
    let get = |fid| ask(&rig, &by, &GetAttr { fid }, session).map(|i| i.attr.fid).map_err(|f| f.code);
    let list = |dir| {
        let list = ask(&rig, &by, &ReadDir { dir, cookie: 0, max: 10, plus: true, cred: user(0) }, session);
        list.map(|list| list.entries.len()).map_err(|f| f.code)
    };
    let make = |name: &str| {
        ask(&rig, &by, &Create { parent: inside, ..create_by(name, 0) }, session)
            .map(drop)
            .map_err(|f| f.code)
    };
    // 1. Renamed, and moved to another directory: the same one for the mount, whatever gets its name.
    ask(&rig, &other, &moved(TOP, "in", out, "site"), theirs).unwrap();
    ask(&rig, &other, &make_dir(TOP, "in"), theirs).unwrap();
    assert_eq!([get(inside), get(dir), get(file)], [Ok(inside), Ok(dir), Ok(file)]);
    assert_eq!((list(inside), make("new")), (Ok(1), Ok(())));
    assert_eq!([get(out), get(secret), get(TOP)], [Err(Code::Stale); 3]);
    assert_eq!(attach(&rig, &by, 1).unwrap().root, inside, "the session keeps it when it attaches again");
    // 2. Removed: a file that was below is moved out, and the mount has nothing.
    ask(&rig, &other, &moved(inside, "dir", out, "dir"), theirs).unwrap();
    let (now, cred) = (Time::new(50, 0), user(0));
    let unlink = Unlink { parent: inside, name: bytes("new"), held: false, now, cred: cred.clone() };
    ask(&rig, &other, &unlink, theirs).unwrap();
    let remove = RemoveDir { parent: out, name: bytes("site"), held: false, now, cred };
    ask(&rig, &other, &remove, theirs).unwrap();
    let gone = |code: Code| matches!(code, Code::Stale | Code::NotFound);
    for fid in [dir, file, out, secret, TOP] {
        assert!(get(fid).is_err_and(gone) && list(fid).is_err_and(gone), "{fid}");
    }
    // An empty directory without a name, as any that a session uses when it is removed.
    let root = ask(&rig, &by, &GetAttr { fid: inside }, session).unwrap().attr;
    assert_eq!((root.nlink, list(inside)), (0, Ok(0)));
    let look = |parent| ask(&rig, &by, &Lookup { parent, ..lookup("in", 0) }, session).map_err(|f| f.code);
    assert!(make("more").is_err_and(gone) && [inside, TOP].iter().all(|dir| look(*dir).is_err_and(gone)));
    // Its path is another directory now. The session does not change to it; a new one begins there.
    assert_eq!(attach(&rig, &by, 1).unwrap().root, inside);
    ask(&rig, &other, &Detach { session: theirs }, theirs).unwrap();
    ask(&rig, &by, &Detach { session }, session).unwrap();
    let fresh = attach(&rig, &by, 2).unwrap();
    assert!(fresh.root != inside && fresh.root != TOP);
}

/// Renamed before the MDT is killed, and another directory has the path: the session goes on in its own.
#[test]
fn n5_a_session_keeps_its_root_over_a_restart() {
    let (rig, disk) = rig_on_disk(vec![]);
    let [inside, dir, _, out, _] = tree(&rig);
    take_map(&rig, 3, below("/in"));
    let (by, other) = (client("lab7"), client("login1"));
    let session = attach(&rig, &by, 1).unwrap().session;
    let holder = crate::sessions::owner::Holder::from_uri("stria://c/client/login1").ok();
    let theirs = rig.mdt.core.begin_session(&super::owners::attach(8), holder, 0).unwrap().id;
    ask(&rig, &other, &moved(TOP, "in", out, "site"), theirs).unwrap();
    ask(&rig, &other, &make_dir(TOP, "in"), theirs).unwrap();
    ask(&rig, &other, &Detach { session: theirs }, theirs).unwrap();
    drop(rig);
    let rig = super::meta_rules::rig(std::sync::Arc::new(disk.crash(disk::Crash::KeepAll)));
    // The rig has attached by this client's id already, as a local process.
    rig.mdt.core.sessions.get(session).unwrap().place.store(None);
    take_map(&rig, 3, below("/in"));
    let get = |fid| ask(&rig, &by, &GetAttr { fid }, session).map(|i| i.attr.fid).map_err(|f| f.code);
    assert_eq!([get(dir), get(TOP), get(out)], [Ok(dir), Err(Code::Stale), Err(Code::Stale)]);
    let again = attach(&rig, &by, 1).unwrap();
    assert_eq!((again.session, again.root), (session, inside));
    assert_eq!([get(dir), get(TOP)], [Ok(dir), Err(Code::Stale)]);
}
