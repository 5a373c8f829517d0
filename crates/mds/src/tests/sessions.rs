//! Sessions: how one is admitted, and what its eviction ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::Crash;
use kv::Engine;
use types::{Code, Fid, MirrorId, Seq, SessionId, Uuid};
use wire::session::{Attach, Detach, Flush, KeepAlive, TargetStat};
use wire::shared::{CatchUp, CaughtUp, Hold};
use wire::{Header, Request, Wire};

use super::rig::{FS_UUID, Rig, holds_nothing, label};
use super::rules::{self, body};
use crate::records::look::{look, look_around};
use crate::serve::attach::SESSIONS_MAX;
use crate::sessions::{Load, session_key};

fn pass(rig: &Rig, ms: u64) {
    rig.clock.0.fetch_add(ms, Ordering::SeqCst);
}

#[test]
fn the_same_client_finds_its_session_also_after_power_loss() {
    let (rig, disk) = Rig::fresh();
    assert_eq!(rig.attach(1).unwrap().session, rig.session);
    let again = Rig::open(Arc::new(disk.crash(Crash::DropAll)));
    assert_eq!(again.session, rig.session, "an attach is durable before it is answered");
}

/// A session that is lost has ended; the others go on.
#[test]
fn a_session_that_is_lost_keeps_nobody_from_the_others() {
    let (rig, _) = Rig::fresh();
    let core = &rig.mdt.core;
    let record = look(&core.kv, &mut |view| {
        meta::View::get(view, &session_key(rig.session)).map(|record| kv::Value::new(&record))
    });
    let (lost, other) = (SessionId(rig.session.0 + 1), SessionId(rig.session.0 + 2));
    let mut batch = kv::Batch::new();
    batch.put(session_key(lost), kv::Value::stored(b"rot", 7));
    batch.put(session_key(other), record.unwrap().unwrap());
    core.kv.apply(core.volume.last_seq(), batch);
    let mut load = Load::new(0);
    look_around(&core.kv, &mut |view| load.go_on(view)).unwrap();
    assert_eq!(load.end().unwrap().ids(), [rig.session, other]);
}

#[test]
fn a_second_client_waits_until_the_first_shares_or_is_dead() {
    let (rig, _) = Rig::fresh();
    rig.make(0, 1, "open").unwrap();
    rig.mutate(rules::REMOVE_HELD, 0, 2, &body(Fid(0), "open")).unwrap();
    pass(&rig, 9_000);
    let fault = rig.attach(2).unwrap_err();
    assert_eq!(fault.code, Code::NotReady);
    assert!(fault.detail.contains("client 1") && fault.detail.contains("write back"), "{fault}");
    // Any sign of life counts.
    rig.ask(&KeepAlive { session: rig.session, mode: 0 }, SessionId(0)).unwrap();
    pass(&rig, 9_000);
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady);
    pass(&rig, 1_000);
    let second = rig.attach(2).unwrap();
    assert_ne!(second.session, rig.session);
    assert!(second.slots.iter().all(|s| *s == 0));
    assert_eq!(rig.make(0, 3, "late").unwrap_err().code, Code::NoSession);
    let gone = rig.ask(&KeepAlive { session: rig.session, mode: 0 }, SessionId(0));
    assert_eq!(gone.unwrap_err().code, Code::NoSession);
    let core = &rig.mdt.core;
    let orphans = look(&core.kv, &mut |view| core.rules.orphans(view, Fid(0), 9)).unwrap();
    assert!(orphans.is_empty());
    let dead = look(&core.kv, &mut |view| core.rules.dead_list(view, 9)).unwrap();
    assert_eq!(dead.len(), 1, "the orphan's objects wait for the purge");
}

/// A client that came while another was about to leave, or was dead, shares with nobody once that one's session has ended.
#[test]
fn a_client_that_finds_nobody_is_alone_from_the_first() {
    let (rig, _) = Rig::fresh();
    // 1. One that leaves cleanly.
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady, "the first is asked to share");
    rig.ask(&Detach { session: rig.session }, rig.session).unwrap();
    let second = rig.attach(2).unwrap();
    assert_eq!(second.mode % 2, 0, "nobody is there");
    let alive = |session| rig.ask(&KeepAlive { session, mode: 0 }, SessionId(0)).unwrap().mode;
    assert_eq!(alive(second.session), second.mode, "and it stays so");
    // 2. One that was killed: until its session ends.
    assert_eq!(rig.attach(3).unwrap_err().code, Code::NotReady);
    pass(&rig, 10_000);
    let third = rig.attach(3).unwrap();
    assert!(third.mode % 2 == 0 && third.mode > second.mode);
    // 3. One that shared and left: whoever stays is alone at the next look, unless another has asked to come in.
    assert_eq!(rig.attach(4).unwrap_err().code, Code::NotReady);
    let mode = alive(third.session);
    let hold = holds_nothing(mode);
    rig.ask(&hold, third.session).unwrap();
    rig.mdt.core.reap_sessions();
    assert_eq!(alive(third.session), mode, "the fourth may ask again");
    let fourth = rig.attach(4).unwrap();
    assert_eq!(fourth.mode, mode);
    rig.ask(&Detach { session: fourth.session }, fourth.session).unwrap();
    rig.mdt.core.reap_sessions();
    assert_eq!(alive(third.session), mode + 1);
    let head = Header { call: rules::MAKE, session: third.session, sequence: 1, ..Header::default() };
    rig.send(head, &body(Fid(0), "it works")).unwrap();
}

#[test]
fn a_detach_ends_the_session_for_good() {
    let (rig, disk) = Rig::fresh();
    for n in 0..150u32 {
        rig.make(0, 2 * n + 1, "o").unwrap();
        rig.mutate(rules::REMOVE_HELD, 0, 2 * n + 2, &body(Fid(0), "o")).unwrap();
    }
    let other = SessionId(rig.session.0 + 7);
    let refused = rig.ask(&Detach { session: rig.session }, other).unwrap_err();
    assert_eq!(refused.code, Code::Access, "a session ends itself, not others");
    rig.ask(&Detach { session: rig.session }, SessionId(0)).unwrap();
    rig.ask(&Detach { session: rig.session }, SessionId(0)).unwrap();
    assert_eq!(rig.mdt.core.executor.lead().slots.bytes(), 0);
    let rig2 = Rig::open(Arc::new(disk.crash(Crash::KeepAll)));
    assert!(rig2.session > rig.session, "a new one");
    let core = &rig2.mdt.core;
    let dead = look(&core.kv, &mut |view| core.rules.dead_list(view, 999)).unwrap();
    assert_eq!(dead.len(), 150, "more orphans than one entry reaps");
}

#[test]
fn a_silent_session_without_a_rival_lives_a_minute() {
    let (rig, _) = Rig::fresh();
    pass(&rig, 59_000);
    rig.mdt.core.reap_sessions();
    assert_eq!(rig.mdt.sessions().len(), 1);
    pass(&rig, 1_000);
    rig.mdt.core.reap_sessions();
    assert!(rig.mdt.sessions().is_empty());
    assert_eq!(rig.make(0, 1, "x").unwrap_err().code, Code::NoSession);
}

#[test]
fn observers_read_and_flush_and_count_for_nothing() {
    let (rig, _) = Rig::fresh();
    rig.make(0, 1, "a").unwrap();
    let attach = |fs_uuid| Attach {
        fs_uuid,
        client: Uuid([8; 16]),
        session: SessionId(0),
        name: "fsck".into(),
        observer: true,
        own_locks: false,
        ticket: wire::object::Mac::default(),
        claims: wire::session::Claims::All,
    };
    assert_eq!(rig.ask(&attach(FS_UUID), SessionId(0)).unwrap().session, SessionId(0));
    assert_eq!(rig.ask(&attach(Uuid([1; 16])), SessionId(0)).unwrap_err().code, Code::Invalid);
    assert_eq!(rig.list().len(), 1);
    rig.ask(&Flush {}, SessionId(0)).unwrap();
    let volume = &rig.mdt.core.volume;
    assert_eq!(volume.flushed_seq(), volume.last_seq());
    assert_eq!(rig.ask(&TargetStat {}, SessionId(0)).unwrap().sessions, 1);
}

/// mds-X1: what a client said to the MDT before it restarted, and comes late, is not said to this one: its client has not sent again yet what
/// was lost, and others would go before it.
#[test]
fn x1_a_late_copy_of_a_hold_is_not_taken_for_one_of_this_life() {
    let (rig, disk) = Rig::fresh();
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady, "the first is to share");
    let hold = holds_nothing(1);
    rig.ask(&hold, rig.session).unwrap();
    let second = rig.attach(2).unwrap().session;
    let say = |rig: &Rig, session, incarnation| {
        let head = Header { call: Hold::CALL, session, incarnation, ..Header::default() };
        rig.send(head, &hold.to_bytes()).map(|_| ())
    };
    let old = rig.mdt.core.incarnation;
    say(&rig, second, old).unwrap();
    // Another life.
    let rig = Rig::open(Arc::new(disk.crash(Crash::DropAll)));
    let new = rig.mdt.core.incarnation;
    say(&rig, rig.session, new).unwrap();
    assert_eq!(say(&rig, second, old).unwrap_err().code, Code::Moved);
    assert_eq!(rig.make(0, 1, "new").unwrap_err().code, Code::NotReady, "the second has not come back");
    let at = CaughtUp { mirror: MirrorId(1), incarnation: new, next: Seq(5) };
    let turn = rig.ask(&CatchUp { at }, rig.session).unwrap();
    assert_eq!(turn.until, Seq(0), "and goes first");
    // mds-L5: only its attach tells the client that it holds no lease any more.
    assert_eq!(say(&rig, second, new).unwrap_err().code, Code::Moved);
    assert_eq!(rig.attach(2).unwrap().session, second);
    say(&rig, second, new).unwrap();
    rig.make(0, 1, "new").unwrap();
}

/// As many sessions as there may be, and one more.
#[test]
fn a_client_too_many_is_told_so_and_comes_in_when_another_has_left() {
    let disk = Arc::new(disk::SimDisk::new(64 << 20));
    let spec = crate::FormatSpec { label: label(), log_bytes: 8 << 20, checkpoint_bytes: 16 << 20 };
    crate::Mdt::format(disk.clone(), &spec, false, &*rules::flat(), types::Time::new(1, 0)).unwrap();
    let rig = Rig::open(disk.clone());
    let attach = |rig: &Rig, n: u16| {
        let mut client = [9; 16];
        client[..2].copy_from_slice(&n.to_le_bytes());
        let (session, name, claims) = (SessionId(0), String::new(), wire::session::Claims::All);
        let client = Uuid(client);
        rig.ask(
            &Attach {
                fs_uuid: FS_UUID,
                client,
                session,
                name,
                observer: false,
                claims,
                own_locks: false,
                ticket: wire::object::Mac::default(),
            },
            SessionId(0),
        )
    };
    assert_eq!(attach(&rig, 0).unwrap_err().code, Code::NotReady, "the first is to share");
    let hold = holds_nothing(1);
    rig.ask(&hold, rig.session).unwrap();
    let last = (1..SESSIONS_MAX as u16).fold(SessionId(0), |_, n| attach(&rig, n).unwrap().session);
    let fault = attach(&rig, 0).unwrap_err();
    assert!(
        fault.code == Code::NotReady && fault.detail.contains(&format!("{SESSIONS_MAX} sessions")),
        "{fault}"
    );
    attach(&rig, 7).expect("one that is there finds its session");
    rig.ask(&Detach { session: last }, last).unwrap();
    let last = attach(&rig, 0).unwrap().session;
    // After a restart the refusal names some of those that have not reported.
    let rig = Rig::open(Arc::new(disk.crash(Crash::KeepAll)));
    assert_eq!(rig.mdt.core.sessions.count(), SESSIONS_MAX);
    rig.ask(&Detach { session: last }, last).unwrap();
    let fault = attach(&rig, SESSIONS_MAX as u16).unwrap_err();
    let others = format!("{} more", SESSIONS_MAX - 1 - 4);
    assert!(fault.code == Code::NotReady && fault.detail.contains(&others), "{fault}");
    assert!(fault.detail.contains("client 1") && fault.detail.len() < 1000, "{fault}");
}
