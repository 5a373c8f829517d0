//! mds-X9: who lives, and gives others nothing of what only it can give them, is ended as a dead one is; who comes on is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{Crash, SimDisk};
use types::{Code, Fid, MirrorId, Seq, SessionId, TargetId, Time};
use wire::lock::{Lock, LockKind, LockSpace, Reclaim, Turn};
use wire::map::{Member, MemberState, Target};
use wire::session::KeepAlive;
use wire::shared::{CatchUp, CatchUpReply, CaughtUp, Enter, LeaseKind, Leave};
use wire::{Header, Request, Wire};

use super::rig::{Rig, holds_nothing, registered};
use crate::sessions::overdue::{OVERDUE_MS, RECALL_MAX_MS};

const STEP_MS: u64 = 1000;
const FILE: Fid = Fid(7);

impl Rig {
    /// These go on saying that they live, and nothing else.
    fn live(&self, sessions: &[SessionId], ms: u64) {
        for _ in 0..ms / STEP_MS {
            self.clock.0.fetch_add(STEP_MS, Ordering::SeqCst);
            for session in sessions {
                _ = self.ask(&KeepAlive { session: *session, mode: 0 }, SessionId(0));
            }
            self.mdt.core.reap_sessions();
        }
    }
    fn has(&self, session: SessionId) -> bool {
        self.mdt.core.sessions.get(session).is_some()
    }
    /// All but its locks.
    fn holds(&self, session: SessionId) {
        let client = self.mdt.core.sessions.get(session).unwrap().client.0[0];
        self.attach(client).unwrap();
        self.ask(&holds_nothing(1), session).unwrap();
    }
    fn comes_back(&self, session: SessionId) {
        self.holds(session);
        self.ask(&Reclaim { locks: vec![], more: false }, session).unwrap();
    }
    /// Asks for the exclusive lease of `FILE`. True: it is granted.
    fn enters(&self, session: SessionId, token: u64) -> bool {
        let (kind, write, now, held) = (LeaseKind::Exclusive, false, Time::default(), None);
        let req = Enter { fid: FILE, token, floor: 1, kind, write, now, held };
        self.mdt.core.sharers.enter(session, &req, &self.mdt.core.sessions).unwrap().is_some()
    }
    fn catches_up(&self, session: SessionId, next: Seq) -> Seq {
        let at = CaughtUp { mirror: MirrorId(1), incarnation: self.mdt.core.incarnation, next };
        let head = Header { call: CatchUp::CALL, target: TargetId(1), session, ..Header::default() };
        let (_, reply) = self.send(head, &CatchUp { at }.to_bytes()).unwrap();
        CatchUpReply::from_bytes(&reply).unwrap().until
    }
}

/// Two that share.
fn two() -> (Rig, Arc<SimDisk>, [SessionId; 2]) {
    let (rig, disk) = Rig::fresh();
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady, "the first is to share");
    rig.ask(&holds_nothing(1), rig.session).unwrap();
    let both = [rig.session, rig.attach(2).unwrap().session];
    (rig, disk, both)
}

/// Of three that share, in another life of the MDT.
fn restarted() -> (Rig, [SessionId; 3]) {
    let (rig, disk, [a, b]) = two();
    let c = rig.attach(3).unwrap().session;
    (Rig::open(Arc::new(disk.crash(Crash::DropAll))), [a, b, c])
}

#[test]
fn x9_who_does_not_say_what_it_holds_after_a_restart_is_not_waited_for_longer_than_that() {
    let (rig, all @ [a, b, c]) = restarted();
    rig.comes_back(a);
    rig.comes_back(b);
    rig.live(&all, OVERDUE_MS - STEP_MS);
    assert!(rig.has(c) && rig.make(0, 1, "x").unwrap_err().code == Code::NotReady);
    rig.live(&all, 2 * STEP_MS);
    assert!(rig.has(a) && rig.has(b) && !rig.has(c));
    rig.make(0, 1, "x").unwrap();
}

#[test]
fn x9_who_waits_for_its_turn_behind_such_a_one_has_its_whole_time_afterwards() {
    let (rig, all @ [a, b, c]) = restarted();
    // Nobody goes on before C has spoken, and then A is before B.
    assert_eq!([rig.catches_up(a, Seq(5)), rig.catches_up(b, Seq(9))], [Seq(0); 2]);
    rig.live(&all, OVERDUE_MS + STEP_MS);
    assert!(rig.has(a) && rig.has(b) && !rig.has(c));
    // A comes on now and then, and B waits for it.
    assert_eq!(rig.catches_up(b, Seq(9)), Seq(5));
    for next in 6..9 {
        rig.live(&all, OVERDUE_MS - STEP_MS);
        rig.catches_up(a, Seq(next));
    }
    assert!(rig.has(a) && rig.has(b));
    rig.live(&all, OVERDUE_MS + STEP_MS);
    assert!(!rig.has(a) && rig.has(b));
    rig.live(&all, OVERDUE_MS - 2 * STEP_MS);
    rig.comes_back(b);
    rig.live(&all, 2 * OVERDUE_MS);
    assert!(rig.has(b));
}

#[test]
fn x9_who_does_not_share_is_ended_while_a_newcomer_asks() {
    let (rig, _) = Rig::fresh();
    let a = rig.session;
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady);
    rig.live(&[a], OVERDUE_MS / 2);
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady);
    // The newcomer has given up, and nobody else wants anything.
    rig.live(&[a], OVERDUE_MS);
    assert!(rig.has(a));
    let b = rig.attach(2).unwrap().session;
    assert!(rig.has(b) && !rig.has(a));
}

#[test]
fn an_ost_is_up_while_the_primary_of_its_mirror_is() {
    let (rig, _) = Rig::fresh();
    let other = TargetId(9);
    let mut map = registered().map;
    map.targets.push(Target { id: other, state: mgmt::STATE_DOWN, ..map.targets[1].clone() });
    map.mirrors[1].members.push(Member { target: other, state: MemberState::Out });
    map.version = 2;
    rig.mdt.set_map(&map).unwrap();
    assert!(rig.mdt.core.joined().unwrap().are_osts_up);
    (map.version, map.mirrors[1].primary) = (3, other);
    rig.mdt.set_map(&map).unwrap();
    assert!(!rig.mdt.core.joined().unwrap().are_osts_up);
}

/// What it has in hand it cannot write down.
#[test]
fn x9_who_may_wait_for_an_ost_that_is_down_is_waited_for() {
    let (rig, _) = Rig::fresh();
    let a = rig.session;
    let set_ost = |version, state| {
        let mut map = registered().map;
        (map.version, map.targets[1].state) = (version, state);
        rig.mdt.set_map(&map).unwrap();
    };
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady);
    rig.live(&[a], OVERDUE_MS / 2);
    set_ost(2, mgmt::STATE_DOWN);
    rig.live(&[a], 2 * OVERDUE_MS);
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady);
    assert!(rig.has(a));
    set_ost(3, mgmt::STATE_UP);
    rig.live(&[a], OVERDUE_MS - STEP_MS);
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady, "from then on it has its whole time");
    rig.live(&[a], 2 * STEP_MS);
    rig.attach(2).unwrap();
}

#[test]
fn x9_a_section_that_another_wants_ends_with_its_session() {
    let (rig, _, both @ [a, b]) = two();
    let fid = FILE;
    let enter = |session, token| rig.enters(session, token);
    let leave = |session, token| {
        rig.mdt
            .core
            .sharers
            .leave(session, &Leave { fid, token, floor: token }, &rig.mdt.core.sessions)
            .unwrap()
    };
    // Its client asks again and again.
    let wanted = |token, ms: u64| {
        for _ in 0..ms / STEP_MS {
            assert!(!enter(b, token));
            rig.live(&both, STEP_MS);
        }
    };
    assert!(enter(a, 1));
    rig.live(&both, 2 * OVERDUE_MS);
    assert!(rig.has(a), "no other session wants it");
    wanted(1, RECALL_MAX_MS - STEP_MS);
    // A client that gives one lease back after the other comes on.
    leave(a, 1);
    assert!(enter(b, 1));
    leave(b, 1);
    assert!(enter(a, 3));
    wanted(2, RECALL_MAX_MS - STEP_MS);
    assert!(rig.has(a) && !enter(b, 2));
    rig.live(&both, 2 * STEP_MS);
    assert!(!rig.has(a) && rig.has(b) && enter(b, 2));
}

#[test]
fn x10_a_silent_holder_is_ended_once_its_lease_is_over_and_another_session_wants_its_file() {
    let (rig, _, [a, b]) = two();
    let enter = |session| rig.enters(session, 1);
    assert!(enter(a));
    rig.live(&[b], lease::TERM_MS + STEP_MS);
    assert!(rig.has(a), "no other session wants it");
    assert!(!enter(b));
    rig.live(&[b], STEP_MS);
    assert!(!rig.has(a) && enter(b));
}

#[test]
fn x9_who_does_not_say_which_locks_it_holds_is_ended() {
    let (rig, all @ [a, b, c]) = restarted();
    rig.comes_back(a);
    rig.comes_back(b);
    rig.holds(c);
    let lock = || {
        let (space, kind, turn) = (LockSpace::Posix, LockKind::Write, Turn { number: 1, floor: 0 });
        let (fid, owner, pid, wait, ticket) = (Fid(7), 1, 7, false, 0);
        rig.ask(&Lock { fid, space, owner, kind, start: 0, end: 9, pid, wait, ticket, turn }, a)
    };
    rig.live(&all, OVERDUE_MS - STEP_MS);
    assert_eq!(lock().unwrap_err().code, Code::NotReady);
    rig.live(&all, 2 * STEP_MS);
    assert!(rig.has(a) && rig.has(b) && !rig.has(c));
    lock().unwrap();
}

/// mds-L4: its client may use the lease until its term is over.
#[test]
fn leases_of_a_live_session_that_is_evicted_stand_until_its_term_is_over() {
    let (rig, _, [a, b]) = two();
    let enter = |session| rig.enters(session, 1);
    assert!(enter(a));
    rig.mdt.core.sessions.get(a).unwrap().renew_lease(rig.clock.0.load(Ordering::SeqCst));
    rig.mdt.core.evict(a).unwrap();
    rig.live(&[b], lease::TERM_MS - STEP_MS);
    assert!(!rig.has(a) && !enter(b));
    rig.live(&[b], 2 * STEP_MS);
    assert!(enter(b));
}
