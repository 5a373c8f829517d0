//! oss-N1 and oss-N2: banned and read-only nodes.

use net::Known;
use pki::{Identity, Serial};
use wire::map::{Nodemap, Squash};

use super::*;

fn nodemap(node: &str) -> Nodemap {
    Nodemap {
        name: "lab".into(),
        priority: 0,
        role: String::new(),
        node: node.into(),
        net: String::new(),
        address: String::new(),
        ban: false,
        read_only: false,
        squash: Squash::None,
        squash_uid: 65_534,
        squash_gid: 65_534,
        uids: vec![],
        gids: vec![],
        root: String::new(),
    }
}

fn known(uri: &str) -> Known {
    Known::new(Identity::parse(uri, Serial(1)).unwrap())
}

fn take_map(rig: &Rig, nodemaps: Vec<Nodemap>) {
    rig.ost.set_map(&ClusterMap { nodemaps, ..reply_of_mgs().map });
}

fn ask<R: Request>(rig: &Rig, by: &Known, req: &R) -> Result<R::Reply, Fault> {
    let (head, mut bulk) = (Header { call: R::CALL, session: SESSION, ..Header::default() }, Buf::new());
    let mut answer = Answer::to(by, head, &mut bulk);
    rig.ost.serve(&head, &req.to_bytes(), b"x", &mut answer);
    decode_reply::<R::Reply>(&answer.body).unwrap().1
}

fn attach(by: &Known) -> Attach {
    Attach {
        fs_uuid: FS_UUID,
        client: Uuid([3; 16]),
        session: SESSION,
        name: "t".into(),
        observer: false,
        claims: Claims::All,
        own_locks: false,
        ticket: object::ticket::make(&SECRET, SESSION, by.sender().owner.0),
    }
}

#[test]
fn n1_a_banned_node_is_refused_and_its_session_ends_with_the_map() {
    let rig = Rig::new();
    let by = known("stria://c/client/lab7");
    ask(&rig, &by, &attach(&by)).unwrap();
    ask(&rig, &by, &write_of(rw(), 0, b"x")).unwrap();
    take_map(&rig, vec![Nodemap { ban: true, ..nodemap("lab*") }]);
    assert!(rig.ost.core.store.slot(SESSION, 0).is_none(), "it ended");
    assert!(ask(&rig, &by, &write_of(rw(), 0, b"x")).is_err());
    let fault = ask(&rig, &by, &attach(&by)).unwrap_err();
    assert!(fault.code == Code::Access && fault.detail.contains("the nodemap lab bans"), "{fault}");
    take_map(&rig, vec![Nodemap { ban: true, ..nodemap("other*") }]);
    ask(&rig, &by, &attach(&by)).unwrap();
    ask(&rig, &by, &write_of(rw(), 0, b"x")).unwrap();
}

#[test]
fn n2_a_node_that_may_only_read_changes_no_object_though_it_has_a_capability() {
    let rig = Rig::new();
    let by = known("stria://c/client/lab7");
    ask(&rig, &by, &attach(&by)).unwrap();
    ask(&rig, &by, &write_of(rw(), 0, b"x")).unwrap();
    take_map(&rig, vec![Nodemap { read_only: true, ..nodemap("lab*") }]);
    let before = rig.ost.core.store.last_seq();
    let code = |fault: Fault| fault.code;
    let object = object();
    let cut = Truncate { cap: rw(), object, len: 0 };
    assert_eq!(ask(&rig, &by, &write_of(rw(), 0, b"x")).map_err(code).unwrap_err(), Code::ReadOnly);
    assert_eq!(ask(&rig, &by, &cut).map_err(code).unwrap_err(), Code::ReadOnly);
    assert_eq!(rig.ost.core.store.last_seq(), before, "nothing was logged");
    ask(&rig, &by, &read_of(rw(), 0, 1)).unwrap();
    take_map(&rig, vec![]);
    ask(&rig, &by, &write_of(rw(), 0, b"x")).unwrap();
}

#[test]
fn n2_a_node_that_may_only_read_locks_for_reads_and_gives_back_and_keeps_no_space_and_no_reader_out() {
    let rig = Rig::new();
    let by = known("stria://c/client/lab7");
    ask(&rig, &by, &attach(&by)).unwrap();
    ask(&rig, &by, &write_of(rw(), 0, b"x")).unwrap();
    assert!(ask(&rig, &by, &Grant { bytes: 1 << 16 }).unwrap().bytes > 0);
    let lock = |write, lock| LockRange { cap: rw(), object: object(), offset: 0, len: 1, write, lock };
    ask(&rig, &by, &lock(true, 1)).unwrap();
    take_map(&rig, vec![Nodemap { read_only: true, ..nodemap("lab*") }]);
    let before = rig.ost.core.store.last_seq();
    let code = |fault: Fault| fault.code;
    let release = Release { cap: rw(), object: object(), offset: 0, len: 4096 };
    assert_eq!(ask(&rig, &by, &Grant { bytes: 1 }).map_err(code).unwrap_err(), Code::ReadOnly);
    assert_eq!(ask(&rig, &by, &lock(true, 2)).map_err(code).unwrap_err(), Code::ReadOnly);
    assert_eq!(ask(&rig, &by, &release).map_err(code).unwrap_err(), Code::ReadOnly);
    // Its space goes back, and a read of several objects has its lock.
    ask(&rig, &by, &UnlockRange { lock: 1, objects: vec![object()] }).unwrap();
    assert_eq!(ask(&rig, &by, &Grant { bytes: 0 }).unwrap().bytes, 0);
    let reader = cap_with(RIGHT_READ, 1);
    ask(&rig, &by, &LockRange { cap: reader.clone(), ..lock(false, 3) }).unwrap();
    ask(&rig, &by, &Read { lock: 3, ..read_of(reader, 0, 1) }).unwrap();
    ask(&rig, &by, &UnlockRange { lock: 3, objects: vec![object()] }).unwrap();
    assert_eq!(rig.ost.core.store.last_seq(), before, "nothing was logged");
    let malformed = Header { call: LockRange::CALL, session: SESSION, ..Header::default() };
    let mut bulk = Buf::new();
    let mut answer = Answer::to(&by, malformed, &mut bulk);
    rig.ost.serve(&malformed, b"x", &[], &mut answer);
    assert_eq!(decode_reply::<Empty>(&answer.body).unwrap().1.unwrap_err().code, Code::BadRequest);
}

#[test]
fn a_process_of_the_servers_host_is_matched_by_local0_only() {
    let rig = Rig::new();
    let any = Nodemap { ban: true, address: "0.0.0.0/0".into(), ..nodemap("") };
    take_map(&rig, vec![any, Nodemap { ban: true, ..nodemap("*") }]);
    rig.attach();
    take_map(&rig, vec![Nodemap { ban: true, net: "local0".into(), ..nodemap("") }]);
    assert_eq!(rig.ask(&Flush {}).code(), Code::Access);
}
