//! mds-S3 and pki-R1: sessions belong to certificates, and roles come from them.

use std::sync::Arc;

use disk::Crash;
use net::{Answer, Known, Service};
use pki::{Identity, Serial};
use types::{Buf, Code, Fault, SessionId, Uuid};
use wire::lock::{Lock, LockKind, LockOutcome, LockSpace, Turn};
use wire::mdt::{EvictSession, MdtLeases};
use wire::session::{Attach, Claims, Detach, KeepAlive, TargetStat};
use wire::{Header, ReplyHead, Request, Wire, decode_reply};

use super::rig::{FS_UUID, Rig, SECRET};
use crate::sessions::owner::Holder;

fn known(uri: &str, serial: u128) -> Known {
    Known::new(Identity::parse(uri, Serial(serial)).unwrap())
}

fn client(node: &str) -> Known {
    known(&format!("stria://c/client/{node}"), 1)
}

fn say(rig: &Rig, by: &Known, head: Header, body: &[u8]) -> Vec<u8> {
    let mut bulk = Buf::new();
    let mut answer = Answer::to(by, head, &mut bulk);
    rig.mdt.serve(&head, body, &[], &mut answer);
    answer.body
}

fn ask<R: Request>(rig: &Rig, by: &Known, req: &R, session: SessionId) -> Result<R::Reply, Fault> {
    let head = Header { call: R::CALL, session, ..Header::default() };
    decode_reply::<R::Reply>(&say(rig, by, head, &req.to_bytes())).unwrap().1
}

/// The code of the answer to a call whose body is empty.
fn code(rig: &Rig, by: &Known, call: u16, session: SessionId) -> Code {
    let body = say(rig, by, Header { call, session, ..Header::default() }, &[]);
    Code::from_u16(ReplyHead::get(&mut wire::Reader::new(&body)).unwrap().code)
}

pub fn attach(client: u8) -> Attach {
    Attach {
        fs_uuid: FS_UUID,
        client: Uuid([client; 16]),
        session: SessionId(0),
        name: "host 7".into(),
        observer: false,
        claims: Claims::All,
        own_locks: false,
        ticket: Default::default(),
    }
}

/// A rig whose one session is of client 1, with the certificate of node `n`.
fn owned() -> (Rig, Arc<disk::SimDisk>, SessionId) {
    let (rig, disk) = Rig::fresh();
    rig.ask(&Detach { session: rig.session }, rig.session).unwrap();
    let session = ask(&rig, &client("n"), &attach(1), SessionId(0)).unwrap().session;
    (rig, disk, session)
}

/// No call of a stranger does anything to the session: each is refused before its body is read.
fn refuses_strangers(rig: &Rig, session: SessionId) {
    let before = rig.mdt.core.volume.last_seq();
    let strangers =
        ["client/m", "server/n", "admin/n", "router/n"].map(|who| known(&format!("stria://c/{who}"), 1));
    for by in strangers.iter().chain([&known("stria://d/client/n", 1)]) {
        for (call, name) in wire::ALL_CALLS.iter().copied().flatten() {
            assert_eq!(code(rig, by, *call, session), Code::Access, "{name} by {}", by.identity());
        }
        // Those that name it in their bodies.
        let alive = KeepAlive { session, mode: 0 };
        assert_eq!(ask(rig, by, &alive, SessionId(0)).unwrap_err().code, Code::Access);
        assert_eq!(ask(rig, by, &attach(1), SessionId(0)).unwrap_err().code, Code::Access);
    }
    for who in ["client/m", "router/n"] {
        let by = known(&format!("stria://c/{who}"), 1);
        assert_eq!(ask(rig, &by, &Detach { session }, SessionId(0)).unwrap_err().code, Code::Access);
    }
    assert_eq!(rig.mdt.core.volume.last_seq(), before, "nothing was logged");
    assert!(rig.mdt.core.sessions.get(session).is_some());
}

#[test]
fn a_session_is_its_certificates_and_no_other_one_may_name_it() {
    let (rig, _, session) = owned();
    refuses_strangers(&rig, session);
    // Its own certificate, also a renewed one, and peers without one, which are of this host.
    for by in [client("n"), known("stria://c/client/n", 2)] {
        ask(&rig, &by, &KeepAlive { session, mode: 0 }, session).unwrap();
        assert_eq!(ask(&rig, &by, &attach(1), SessionId(0)).unwrap().session, session);
    }
    rig.ask(&KeepAlive { session, mode: 0 }, session).unwrap();
    ask(&rig, &client("n"), &Detach { session }, session).unwrap();
    assert!(rig.mdt.core.sessions.get(session).is_none());
}

#[test]
fn a_session_keeps_its_owner_over_a_restart() {
    let (_rig, disk, session) = owned();
    let rig = Rig::open(Arc::new(disk.crash(Crash::DropAll)));
    assert_eq!(rig.session, session, "client 1 has it still");
    refuses_strangers(&rig, session);
    assert_eq!(ask(&rig, &client("n"), &attach(1), SessionId(0)).unwrap().session, session);
}

#[test]
fn a_session_without_an_owner_is_no_certificates() {
    let (rig, _) = Rig::fresh();
    let by = client("n");
    let alive = KeepAlive { session: rig.session, mode: 0 };
    assert_eq!(ask(&rig, &by, &alive, rig.session).unwrap_err().code, Code::Access);
    assert_eq!(ask(&rig, &by, &attach(1), SessionId(0)).unwrap_err().code, Code::Access);
}

#[test]
fn an_attach_brings_a_ticket_for_the_osts() {
    let (rig, _, session) = owned();
    let by = client("n");
    let ticket = ask(&rig, &by, &attach(1), SessionId(0)).unwrap().ticket;
    let owner = Holder::of(by.identity()).owner.0;
    assert!(object::ticket::is_good(&SECRET, session, owner, &ticket));
    let observer = ask(&rig, &by, &Attach { observer: true, ..attach(2) }, SessionId(0)).unwrap();
    assert_eq!(observer.ticket, Default::default(), "an observer has no session");
}

#[test]
fn an_administrator_ends_and_sees_others_sessions_and_a_client_does_not() {
    let (rig, _, session) = owned();
    let cap = object::cap::make_admin(&SECRET, 1 << 40);
    let (evict, leases) = (EvictSession { cap: cap.clone(), session }, MdtLeases { cap, fid: types::Fid(0) });
    // Even with the key.
    for by in [client("m"), client("n"), known("stria://c/router/n", 1)] {
        let fault = ask(&rig, &by, &evict, SessionId(0)).unwrap_err();
        assert!(
            fault.code == Code::Access && fault.detail.contains("an administrator's certificate"),
            "{fault}"
        );
        assert_eq!(ask(&rig, &by, &leases, SessionId(0)).unwrap_err().code, Code::Access);
    }
    ask(&rig, &client("m"), &TargetStat {}, SessionId(0)).unwrap();
    let admin = known("stria://c/admin/head", 1);
    assert_eq!(ask(&rig, &admin, &leases, SessionId(0)).unwrap().clients.len(), 1);
    ask(&rig, &admin, &evict, SessionId(0)).unwrap();
    assert!(rig.mdt.core.sessions.get(session).is_none());
}

#[test]
fn a_server_may_end_what_is_left_of_a_dead_client() {
    let (rig, _, session) = owned();
    ask(&rig, &known("stria://c/server/mds", 1), &Detach { session }, SessionId(0)).unwrap();
    assert!(rig.mdt.core.sessions.get(session).is_none());
}

#[test]
fn s5_a_session_ends_with_its_last_good_certificate_and_gives_its_locks_back() {
    let (rig, _, session) = owned();
    let lock = |session, number| {
        let (space, kind, turn) = (LockSpace::Posix, LockKind::Write, Turn { number, floor: 0 });
        let whole = (0, u64::MAX);
        let (fid, owner, pid, ticket) = (types::Fid(16), 1, 7, 0);
        let lock =
            Lock { fid, space, owner, start: whole.0, end: whole.1, kind, pid, wait: false, ticket, turn };
        rig.ask(&lock, session).unwrap().outcome
    };
    assert_eq!(lock(session, 1), LockOutcome::Granted);
    // A renewed certificate, beside the former one.
    ask(&rig, &known("stria://c/client/n", 2), &KeepAlive { session, mode: 0 }, session).unwrap();
    let end = |revoked: &[u128]| rig.mdt.end_revoked(&|serial| revoked.contains(&serial.0));
    for revoked in [&[][..], &[9], &[1, 9], &[2, 9]] {
        end(revoked);
        assert!(rig.mdt.core.sessions.get(session).is_some(), "{revoked:?}: one of its certificates is good");
    }
    end(&[1, 2]);
    assert!(rig.mdt.core.sessions.get(session).is_none());
    let other = ask(&rig, &client("m"), &attach(2), SessionId(0)).unwrap().session;
    assert_eq!(lock(other, 2), LockOutcome::Granted, "the lock is free");
    let rig = Rig::fresh().0;
    rig.mdt.end_revoked(&|_| true);
    assert!(rig.mdt.core.sessions.get(rig.session).is_some(), "a session without a certificate stays");
}
