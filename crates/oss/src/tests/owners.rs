//! oss-P6 and pki-R1: sessions belong to certificates, and roles come from them.

use net::Known;
use pki::{Identity, Serial};

use super::*;

fn known(uri: &str) -> Known {
    Known::new(Identity::parse(uri, Serial(1)).unwrap())
}

fn attach(by: &Known, session: SessionId) -> Attach {
    Attach {
        fs_uuid: FS_UUID,
        client: Uuid([3; 16]),
        session,
        name: "t".into(),
        observer: false,
        claims: Claims::All,
        own_locks: false,
        ticket: object::ticket::make(&SECRET, session, by.sender().owner.0),
    }
}

fn say(rig: &Rig, by: &Known, head: Header, body: &[u8]) -> Vec<u8> {
    let mut bulk = Buf::new();
    let mut answer = Answer::to(by, head, &mut bulk);
    rig.ost.serve(&head, body, b"x", &mut answer);
    answer.body
}

fn ask<R: Request>(rig: &Rig, by: &Known, session: SessionId, req: &R) -> Result<R::Reply, Fault> {
    let head = Header { call: R::CALL, session, ..Header::default() };
    decode_reply::<R::Reply>(&say(rig, by, head, &req.to_bytes())).unwrap().1
}

fn code(rig: &Rig, by: &Known, call: u16, session: SessionId) -> Code {
    let body = say(rig, by, Header { call, session, ..Header::default() }, &[]);
    Code::from_u16(ReplyHead::get(&mut wire::Reader::new(&body)).unwrap().code)
}

#[test]
fn a_session_belongs_to_its_ticket_and_no_other_certificate_may_name_it() {
    let rig = Rig::new();
    let (owner, stranger) = (known("stria://c/client/n"), known("stria://c/client/m"));
    // No ticket, the owner's in a stranger's hand, and one of another session.
    let stolen = attach(&owner, SESSION);
    let none = Attach { ticket: Mac::default(), ..stolen.clone() };
    let other = Attach { session: SESSION, ..attach(&stranger, SessionId(0x52)) };
    for req in [&stolen, &none, &other] {
        assert_eq!(ask(&rig, &stranger, SESSION, req).unwrap_err().code, Code::Access);
    }
    ask(&rig, &owner, SESSION, &stolen).unwrap();
    let before = rig.ost.core.store.last_seq();
    for by in [&stranger, &known("stria://c/server/n"), &known("stria://c/router/n")] {
        for (call, name) in
            wire::ALL_CALLS.iter().copied().flatten().filter(|(call, _)| *call != Attach::CALL)
        {
            assert_eq!(code(&rig, by, *call, SESSION), Code::Access, "{name} by {}", by.identity());
        }
    }
    let alive = KeepAlive { session: SESSION, mode: 0 };
    assert_eq!(ask(&rig, &stranger, SessionId(0), &alive).unwrap_err().code, Code::Access);
    let end = Detach { session: SESSION };
    assert_eq!(ask(&rig, &stranger, SessionId(0), &end).unwrap_err().code, Code::Access);
    // With a capability of the session, too.
    assert_eq!(ask(&rig, &stranger, SESSION, &write_of(rw(), 0, b"x")).unwrap_err().code, Code::Access);
    assert_eq!(rig.ost.core.store.last_seq(), before, "nothing was logged");
    ask(&rig, &owner, SESSION, &write_of(rw(), 0, b"x")).unwrap();
    ask(&rig, &owner, SESSION, &alive).unwrap();
    ask(&rig, &owner, SESSION, &end).unwrap();
    assert_eq!(rig.ost.core.owners.count(), 0);
}

#[test]
fn a_restarted_ost_asks_for_the_ticket_again() {
    let rig = Rig::new();
    let (owner, stranger) = (known("stria://c/client/n"), known("stria://c/client/m"));
    ask(&rig, &owner, SESSION, &attach(&owner, SESSION)).unwrap();
    let rig = rig.crashed(Crash::KeepAll);
    for by in [&owner, &stranger] {
        assert_eq!(ask(&rig, by, SESSION, &Flush {}).unwrap_err().code, Code::Moved, "attach again");
        assert_eq!(ask(&rig, by, SESSION, &write_of(rw(), 0, b"x")).unwrap_err().code, Code::Moved);
    }
    assert_eq!(ask(&rig, &stranger, SESSION, &attach(&owner, SESSION)).unwrap_err().code, Code::Access);
    ask(&rig, &owner, SESSION, &attach(&owner, SESSION)).unwrap();
    ask(&rig, &owner, SESSION, &write_of(rw(), 0, b"x")).unwrap();
}

#[test]
fn owners_of_ended_sessions_are_forgotten() {
    let rig = Rig::new();
    let owner = known("stria://c/client/n");
    for n in 1..=400 {
        let session = SessionId(n);
        ask(&rig, &owner, session, &attach(&owner, session)).unwrap();
        // As an eviction does, which no client tells.
        rig.ost.core.store.end_session(session).unwrap();
    }
    assert!(rig.ost.core.owners.count() < 100, "{}", rig.ost.core.owners.count());
}

#[test]
fn calls_of_servers_and_administrators_are_refused_to_others_even_with_the_key() {
    let rig = Rig::new();
    let [client, server, head] =
        ["client/n", "server/mds", "admin/head"].map(|who| known(&format!("stria://c/{who}")));
    let destroy = Destroy { cap: admin(), objects: vec![object()] };
    let list = List { cap: admin(), after: None, max: 10 };
    let clear = DamageClear { cap: admin(), fid: Fid(0) };
    let none = SessionId(0);
    let fault = ask(&rig, &client, none, &destroy).unwrap_err();
    assert!(fault.code == Code::Access && fault.detail.contains("an administrator's certificate"), "{fault}");
    assert_eq!(ask(&rig, &client, none, &list).unwrap_err().code, Code::Access);
    ask(&rig, &server, none, &destroy).unwrap();
    ask(&rig, &head, none, &list).unwrap();
    assert_eq!(ask(&rig, &server, none, &clear).unwrap_err().code, Code::Access, "an administrator's");
    ask(&rig, &head, none, &clear).unwrap();
}

#[test]
fn p7_a_session_ends_with_its_last_good_certificate() {
    let rig = Rig::new();
    let owner = known("stria://c/client/n");
    let renewed = Known::new(Identity::parse("stria://c/client/n", Serial(2)).unwrap());
    ask(&rig, &owner, SESSION, &attach(&owner, SESSION)).unwrap();
    ask(&rig, &renewed, SESSION, &write_of(rw(), 0, b"x")).unwrap();
    let end = |revoked: &[u128]| rig.ost.end_revoked(&|serial| revoked.contains(&serial.0));
    for revoked in [&[][..], &[9], &[1], &[2]] {
        end(revoked);
        ask(&rig, &owner, SESSION, &KeepAlive { session: SESSION, mode: 0 }).unwrap();
    }
    end(&[1, 2]);
    assert_eq!(rig.ost.core.owners.count(), 0);
    assert!(
        rig.ost.core.store.slot(SESSION, 0).is_none(),
        "its slots are gone, and its reservations with them"
    );
    assert_eq!(ask(&rig, &renewed, SESSION, &Flush {}).unwrap_err().code, Code::Moved);
}

#[test]
fn p8_the_key_of_before_counts_no_longer_from_the_map_with_another_one() {
    let rig = Rig::new();
    let owner = known("stria://c/client/n");
    ask(&rig, &owner, SESSION, &attach(&owner, SESSION)).unwrap();
    ask(&rig, &owner, SESSION, &write_of(rw(), 0, b"x")).unwrap();
    let written = rig.ost.core.store.last_seq();
    let with = |version, secret| {
        let mut map = reply_of_mgs().map;
        (map.version, map.file_systems[0].secret) = (version, secret);
        rig.ost.set_map(&map);
    };
    // A map without keys, as clients get it, and an older one.
    with(2, Uuid::default());
    with(1, Uuid([99; 16]));
    ask(&rig, &owner, SESSION, &write_of(rw(), 0, b"x")).unwrap();
    let rung = rig.ost.core.bell.rung();
    with(3, Uuid([99; 16]));
    // The process's other targets wait for no flush. This test is the flusher, which was woken.
    assert!(rig.ost.core.store.flushed_seq() < written, "the key counts before the flush");
    assert!(rig.ost.core.bell.rung() > rung, "the flusher does not wait for its next round");
    let fault = ask(&rig, &owner, SESSION, &write_of(rw(), 0, b"x")).unwrap_err();
    assert_eq!(fault.code, Code::Fenced, "the client opens the file again: {fault}");
    rig.ost.core.flush_round().unwrap();
    assert!(
        rig.ost.core.store.flushed_seq() >= written,
        "nothing is left to be replayed by the key of before"
    );
    let admin = Destroy { cap: object::cap::make_admin(&SECRET, u64::MAX), objects: vec![object()] };
    let fault = ask(&rig, &known("stria://c/server/s"), SessionId(0), &admin).unwrap_err();
    assert_eq!(fault.code, Code::Fenced, "{fault}");
    assert_eq!(
        ask(&rig, &owner, SESSION, &attach(&owner, SESSION)).unwrap_err().code,
        Code::Access,
        "its ticket"
    );
    let ticket = object::ticket::make(&Uuid([99; 16]), SESSION, owner.sender().owner.0);
    ask(&rig, &owner, SESSION, &Attach { ticket, ..attach(&owner, SESSION) }).unwrap();
}
