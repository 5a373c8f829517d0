//! Locks of two sessions at one MDT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Crash;
use types::{Code, Fault, Fid, SessionId, Uuid};
use wire::lock::LockKind::{Read, Unlock, Write};
use wire::lock::LockOutcome::{Conflict, Deadlock, Granted, Wait};
use wire::lock::LockSpace::{Flock, Posix};
use wire::lock::*;
use wire::session::{Attach, Detach, KeepAlive};

use super::rig::{FS_UUID, Rig, holds_nothing};

static NUMBER: AtomicU64 = AtomicU64::new(1);

fn attach_second() -> Attach {
    Attach {
        fs_uuid: FS_UUID,
        client: Uuid([2; 16]),
        session: SessionId(0),
        name: "client 2".into(),
        observer: false,
        own_locks: false,
        ticket: wire::object::Mac::default(),
        claims: wire::session::Claims::All,
    }
}

/// A further session, also where the MDT would take only one.
fn second(rig: &Rig) -> SessionId {
    rig.mdt.core.begin_session(&attach_second(), None, 0).unwrap().id
}

fn turn() -> Turn {
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    Turn { number, floor: 0 }
}

fn lock(space: LockSpace, owner: u64, kind: LockKind, start: u64, end: u64) -> Lock {
    let fid = Fid(16);
    Lock { fid, space, owner, start, end, kind, pid: 7, wait: false, ticket: 0, turn: turn() }
}

fn wait(ticket: u64, lock: Lock) -> Lock {
    Lock { wait: true, ticket, ..lock }
}

fn ask(rig: &Rig, session: SessionId, lock: &Lock) -> Result<LockOutcome, Fault> {
    rig.ask(lock, session).map(|reply| reply.outcome)
}

/// Asks under ticket 1 whenever its turn has come, until it need not wait any more.
fn until_served(rig: &Rig, session: SessionId, space: LockSpace) -> Option<LockOutcome> {
    let asked = wait(1, lock(space, 1, Write, 0, 9));
    let keep = AwaitLocks { waiting: vec![WaitingLock { fid: Fid(16), space, ticket: 1 }] };
    let ask_or_wait = |_| {
        let outcome = ask(rig, session, &asked).unwrap();
        if outcome == Wait {
            rig.ask(&keep, session).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        outcome
    };
    (0..400).map(ask_or_wait).find(|outcome| *outcome != Wait)
}

fn held(space: LockSpace, owner: u64, end: u64) -> HeldLock {
    HeldLock { fid: Fid(16), space, owner, start: 0, end, kind: Write, pid: 7 }
}

#[test]
fn sessions_exclude_each_other_and_see_who_is_in_the_way() {
    let (rig, _) = Rig::fresh();
    let (one, two) = (rig.session, second(&rig));
    assert_eq!(ask(&rig, one, &lock(Posix, 1, Write, 0, 9)).unwrap(), Granted);
    // Tokens are a session's own: the other's number 1 is another owner.
    assert_eq!(ask(&rig, two, &lock(Posix, 1, Read, 9, 12)).unwrap(), Conflict);
    let test = TestLock { fid: Fid(16), space: Posix, owner: 1, start: 5, end: 12, kind: Read };
    let found = rig.ask(&test, two).unwrap().found.unwrap();
    assert_eq!(found, FoundLock { session: one, start: 0, end: 9, kind: Write, pid: 7 });
    assert_eq!(rig.ask(&test, one).unwrap().found, None);
    assert_eq!(ask(&rig, two, &lock(Flock, 1, Write, 0, 9)).unwrap(), Granted);
    assert_eq!(ask(&rig, two, &lock(Posix, 1, Write, 9, 3)).unwrap_err().code, Code::BadRequest);
    assert_eq!(ask(&rig, SessionId(0), &lock(Posix, 1, Write, 0, 0)).unwrap_err().code, Code::NoSession);
}

#[test]
fn a_wait_ends_with_the_lock_and_a_notice_says_that_it_is_free() {
    let (rig, _) = Rig::fresh();
    let (one, two) = (rig.session, second(&rig));
    for space in [Posix, Flock] {
        ask(&rig, one, &lock(space, 1, Write, 0, 9)).unwrap();
        assert_eq!(ask(&rig, two, &wait(1, lock(space, 1, Write, 0, 9))).unwrap(), Wait);
        let waiting = vec![WaitingLock { fid: Fid(16), space, ticket: 1 }];
        assert_eq!(rig.ask(&AwaitLocks { waiting }, two).unwrap().ready, [0u64; 0]);
        std::thread::scope(|scope| {
            let rig = &rig;
            let served = scope.spawn(move || until_served(rig, two, space));
            let told = || rig.mdt.core.sessions.get(two).unwrap().notices.last();
            let before = told();
            ask(rig, one, &lock(space, 1, Unlock, 0, 9)).unwrap();
            assert_eq!(told(), before + 1);
            assert_eq!(served.join().unwrap(), Some(Granted));
        });
        assert_eq!(ask(&rig, one, &lock(space, 1, Write, 0, 9)).unwrap(), Conflict);
        rig.ask(&DropOwner { fid: Fid(16), space, owner: 1, turn: turn() }, two).unwrap();
        assert_eq!(ask(&rig, one, &lock(space, 1, Write, 0, 9)).unwrap(), Granted);
        let unknown = vec![WaitingLock { fid: Fid(16), space, ticket: 77 }];
        let reply = rig.ask(&AwaitLocks { waiting: unknown }, two).unwrap();
        assert_eq!(reply.ready, [77], "who has no place is to ask for one");
    }
}

#[test]
fn a_circle_over_two_sessions_is_a_deadlock() {
    let (rig, _) = Rig::fresh();
    let (one, two) = (rig.session, second(&rig));
    ask(&rig, one, &lock(Posix, 1, Write, 0, 0)).unwrap();
    ask(&rig, two, &lock(Posix, 1, Write, 1, 1)).unwrap();
    assert_eq!(ask(&rig, one, &wait(1, lock(Posix, 1, Write, 1, 1))).unwrap(), Wait);
    assert_eq!(ask(&rig, two, &wait(1, lock(Posix, 1, Write, 0, 0))).unwrap(), Deadlock);
    rig.ask(&CancelLock { fid: Fid(16), space: Posix, ticket: 1, turn: turn() }, one).unwrap();
    assert_eq!(ask(&rig, two, &wait(2, lock(Posix, 1, Write, 0, 0))).unwrap(), Wait);
}

#[test]
fn a_late_copy_takes_nothing_and_gives_nothing_back() {
    let (rig, _) = Rig::fresh();
    let one = rig.session;
    let first = lock(Posix, 1, Write, 0, 9);
    for _ in 0..2 {
        assert_eq!(ask(&rig, one, &first).unwrap(), Granted, "a repeat before the next request is fine");
    }
    let unlock = lock(Posix, 1, Unlock, 0, 9);
    let floor = unlock.turn.number;
    ask(&rig, one, &Lock { turn: Turn { number: floor, floor }, ..unlock.clone() }).unwrap();
    assert_eq!(ask(&rig, one, &first).unwrap_err().code, Code::BadRequest);
    let again = lock(Posix, 1, Write, 0, 9);
    let floor = again.turn.number;
    ask(&rig, one, &Lock { turn: Turn { number: floor, floor }, ..again }).unwrap();
    assert_eq!(ask(&rig, one, &unlock).unwrap_err().code, Code::BadRequest);
    assert_eq!(rig.mdt.core.locks_of(Fid(16), Posix), 1);
}

#[test]
fn a_session_that_ends_frees_its_locks_and_wakes_who_waits() {
    let (rig, _) = Rig::fresh();
    let (one, two) = (rig.session, second(&rig));
    for space in [Posix, Flock] {
        ask(&rig, two, &lock(space, 1, Write, 0, 9)).unwrap();
    }
    std::thread::scope(|scope| {
        let waits = [Posix, Flock].map(|space| {
            let rig = &rig;
            scope.spawn(move || until_served(rig, one, space))
        });
        rig.ask(&Detach { session: two }, SessionId(0)).unwrap();
        waits.into_iter().for_each(|wait| assert_eq!(wait.join().unwrap(), Some(Granted)));
    });
    assert_eq!(ask(&rig, two, &lock(Posix, 1, Write, 50, 50)).unwrap_err().code, Code::NoSession);
}

#[test]
fn after_a_start_locks_are_reclaimed_before_anybody_gets_one() {
    for crash in [true, false] {
        let (rig, disk) = Rig::fresh();
        let (one, two) = (rig.session, second(&rig));
        rig.mdt.flush().unwrap();
        if !crash {
            rig.mdt.stop(true).unwrap();
        }
        let rig = Rig::open(Arc::new(disk.crash(Crash::KeepAll)));
        assert_eq!(rig.session, one);
        // 1. Who has not reclaimed is told to, also where the incarnation does not show it.
        assert_eq!(ask(&rig, one, &lock(Posix, 1, Write, 0, 9)).unwrap_err().code, Code::Moved);
        assert_eq!(
            rig.ask(&KeepAlive { session: two, mode: 1 }, SessionId(0)).unwrap_err().code,
            Code::Moved
        );
        // 2. Who has gets nothing new before the others; it may give back.
        let reclaim = |locks, more| Reclaim { locks, more };
        rig.ask(&reclaim(vec![held(Posix, 1, 9)], true), one).unwrap();
        assert_eq!(
            ask(&rig, one, &lock(Posix, 1, Unlock, 0, 0)).unwrap_err().code,
            Code::Moved,
            "more comes"
        );
        rig.ask(&reclaim(vec![held(Flock, 2, 9)], false), one).unwrap();
        let hold = holds_nothing(1);
        rig.ask(&hold, one).unwrap();
        rig.ask(&KeepAlive { session: one, mode: 1 }, SessionId(0)).unwrap();
        assert_eq!(ask(&rig, one, &lock(Posix, 1, Write, 50, 50)).unwrap_err().code, Code::NotReady);
        assert_eq!(ask(&rig, one, &wait(1, lock(Posix, 1, Write, 50, 50))).unwrap(), Wait);
        assert_eq!(ask(&rig, one, &lock(Posix, 1, Unlock, 9, 9)).unwrap(), Granted);
        // 3. The other's, but for what is not its own.
        let refused = rig.ask(&reclaim(vec![held(Flock, 1, 9), held(Posix, 1, 30)], false), two).unwrap();
        assert_eq!(refused.refused, [0, 1]);
        assert_eq!(ask(&rig, two, &lock(Posix, 1, Write, 5, 5)).unwrap(), Conflict);
        assert_eq!(ask(&rig, two, &lock(Posix, 1, Write, 9, 9)).unwrap(), Granted);
        // 4. A late copy of a reclaim brings nothing back.
        ask(&rig, one, &lock(Posix, 1, Unlock, 0, 9)).unwrap();
        rig.ask(&reclaim(vec![held(Posix, 1, 9)], false), one).unwrap();
        assert_eq!(ask(&rig, two, &lock(Posix, 1, Write, 0, 8)).unwrap(), Granted);
    }
}

#[test]
fn the_grace_ends_with_the_session_that_does_not_come_back() {
    let (rig, disk) = Rig::fresh();
    let two = second(&rig);
    rig.mdt.flush().unwrap();
    let rig = Rig::open(Arc::new(disk.crash(Crash::KeepAll)));
    let one = rig.session;
    rig.ask(&Reclaim { locks: vec![], more: false }, one).unwrap();
    assert_eq!(ask(&rig, one, &lock(Flock, 1, Read, 0, 9)).unwrap_err().code, Code::NotReady);
    let core = &rig.mdt.core;
    core.end_session(two).unwrap();
    assert_eq!(ask(&rig, one, &lock(Flock, 1, Read, 0, 9)).unwrap(), Granted);
    // A new client has nothing to reclaim.
    let three = second(&rig);
    assert_eq!(ask(&rig, three, &lock(Flock, 1, Read, 0, 9)).unwrap(), Granted);
    rig.ask(&KeepAlive { session: three, mode: 1 }, SessionId(0)).unwrap();
}

/// A `Hold` of a mode that is over, or was before a restart, does not make a client one of those who share: what it knows better would
/// be believed of it when it dies.
#[test]
fn what_a_client_says_of_another_mode_does_not_let_others_in() {
    let (rig, _) = Rig::fresh();
    let attach = attach_second();
    let hold = |mode| holds_nothing(mode);
    rig.ask(&hold(1), rig.session).unwrap();
    assert_eq!(rig.ask(&attach, SessionId(0)).unwrap_err().code, Code::NotReady);
    rig.ask(&hold(3), rig.session).unwrap();
    assert_eq!(rig.ask(&attach, SessionId(0)).unwrap_err().code, Code::NotReady);
    rig.ask(&hold(1), rig.session).unwrap();
    rig.ask(&attach, SessionId(0)).expect("now it shares");
}
