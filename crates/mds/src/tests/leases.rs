//! Name leases at the MDT: what a change waits for, and for how long. The clients are played by hand: nobody takes a notice unless the test does.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lease::{CONFLICTS_MAX, KEPT_MS, REST_MS, TERM_MS};
use net::Answer;
use types::*;
use wire::meta::*;
use wire::session::{Detach, KeepAlive};
use wire::shared::Hold;
use wire::{Flags, Header, Reader, ReplyHead, Request, Wire};

use super::meta_rules::{self, fresh};
use super::rig::{Rig, SECRET, holds_nothing};
use crate::sessions::leases::Bars;
use crate::sessions::recalls::WAITING_MAX;

const BOTH: u16 = Flags::NAMES_LEASED | Flags::ATTRS_LEASED;

/// Two sessions that share.
struct Two {
    rig: Rig,
    a: SessionId,
    b: SessionId,
}

impl Two {
    fn new() -> Two {
        let (rig, _) = fresh();
        let a = rig.session;
        assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady);
        let mode = rig.mdt.core.sharers.mode();
        let hold = Hold { floor: 1, ..holds_nothing(mode) };
        rig.ask(&hold, a).unwrap();
        let b = rig.attach(2).unwrap().session;
        Two { rig, a, b }
    }

    /// The flags of the answer, and the code of its refusal.
    fn flags<R: Request>(&self, req: &R, session: SessionId, flags: u16) -> (u16, u16) {
        let head = Header { call: R::CALL, session, flags, ..Header::default() };
        let mut into = Buf::new();
        let mut answer = Answer::new(head, &mut into);
        net::Service::serve(&*self.rig.mdt, &head, &req.to_bytes(), &[], &mut answer);
        let said = ReplyHead::get(&mut Reader::new(&answer.body)).unwrap();
        (answer.head.flags & BOTH, said.code)
    }

    fn look(&self, name: &str, session: SessionId, flags: u16) -> (u16, u16) {
        self.flags(&lookup(name), session, flags)
    }

    fn make(&self, name: &str, session: SessionId) -> Result<(), Fault> {
        self.rig.ask(&create(name), session).map(drop)
    }

    /// How long a change of the other session takes, in steps of the hand clock of 100 ms.
    fn steps_until(&self, change: impl FnOnce(&Two) + Send) -> u64 {
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || change(self));
            let mut steps = 0;
            let until = Instant::now() + Duration::from_secs(60);
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(150));
                if !thread.is_finished() {
                    self.pass(500);
                    steps += 5;
                }
            }
            thread.join().unwrap();
            steps
        })
    }

    /// The leases, as an administrator sees them.
    fn leases(&self) -> wire::mdt::MdtLeasesReply {
        let cap = object::cap::make_admin(&SECRET, 1 << 40);
        self.rig.mdt.core.on_leases(&wire::mdt::MdtLeases { cap, fid: Fid(0) }).unwrap()
    }

    fn pass(&self, ms: u64) {
        self.rig.clock.0.fetch_add(ms, Ordering::SeqCst);
    }
    fn now(&self) -> u64 {
        self.rig.clock.0.load(Ordering::SeqCst)
    }
}

fn lookup(name: &str) -> Lookup {
    Lookup { parent: Fid::ROOT, name: name.as_bytes().into(), cred: Cred::root() }
}

/// It opens nothing.
fn create(name: &str) -> Create {
    Create { write: false, ..meta_rules::create(name) }
}

#[test]
fn only_who_asks_is_leased_and_a_grant_is_remembered() {
    let two = Two::new();
    two.make("f", two.a).unwrap();
    assert_eq!(two.look("f", two.a, 0), (0, 0));
    assert_eq!(two.rig.mdt.core.leases.held(), 0);
    assert_eq!(two.look("f", two.a, Flags::LEASE_WANTED), (BOTH, 0));
    assert_eq!(two.look("none", two.b, Flags::LEASE_WANTED), (BOTH, Code::NotFound as u16));
    assert_eq!(two.rig.mdt.core.leases.held(), 2);
    assert_eq!(two.look("..", two.a, Flags::LEASE_HELD).0, 0, "the parent lies elsewhere");
    // Attributes by fid: only of what lies in a directory whose lease is held.
    let fid = two.rig.ask(&lookup("f"), two.a).unwrap().attr.fid;
    assert_eq!(two.flags(&GetAttr { fid }, two.a, Flags::LEASE_HELD).0, Flags::ATTRS_LEASED);
    two.rig.ask(&Detach { session: two.b }, two.b).unwrap();
    assert_eq!(two.flags(&GetAttr { fid: Fid::ROOT }, two.a, Flags::LEASE_HELD).0, Flags::ATTRS_LEASED);
    assert_eq!(two.look("f", SessionId(0), Flags::LEASE_WANTED), (0, 0), "an observer");
}

/// mds-L4: a holder from which nothing comes delays a change by the rest of its term.
#[test]
fn a_change_waits_for_a_silent_holder_until_its_lease_ends() {
    let two = Two::new();
    two.look("f", two.a, Flags::LEASE_WANTED);
    two.rig.ask(&KeepAlive { session: two.a, mode: 0 }, two.a).unwrap();
    let began = two.now();
    two.steps_until(|two| two.make("f", two.b).unwrap());
    let waited = two.now() - began;
    assert!((TERM_MS..TERM_MS + 1000).contains(&waited), "{waited} ms");
    // Meanwhile nobody could cache what was about to change.
    assert_eq!(two.look("f", two.b, Flags::LEASE_WANTED), (BOTH, 0));
}

#[test]
fn a_session_changes_what_it_alone_has_cached_without_a_wait() {
    let two = Two::new();
    two.look("f", two.b, Flags::LEASE_WANTED);
    two.look("f", two.a, 0);
    let began = Instant::now();
    for n in 0..50 {
        two.make(&format!("f{n}"), two.b).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(two.rig.mdt.core.leases.counts.recalls.load(Ordering::Relaxed), 0);
}

/// lease-L3: while a change waits, its touches are leased to no one.
#[test]
fn what_a_change_waits_for_is_not_leased_meanwhile() {
    let two = Two::new();
    two.make("other", two.b).unwrap();
    two.look("f", two.a, Flags::LEASE_WANTED);
    two.rig.ask(&KeepAlive { session: two.a, mode: 0 }, two.a).unwrap();
    std::thread::scope(|scope| {
        let change = scope.spawn(|| two.make("f", two.b).unwrap());
        let until = Instant::now() + Duration::from_secs(20);
        while two.look("f", two.a, Flags::LEASE_HELD).0 & Flags::NAMES_LEASED != 0 {
            assert!(Instant::now() < until, "the bar shows");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(two.look("f", two.b, Flags::LEASE_WANTED).1, Code::NotFound as u16);
        two.pass(TERM_MS);
        change.join().unwrap();
    });
    assert_eq!(two.look("f", two.a, Flags::LEASE_WANTED), (BOTH, 0));
}

/// lease-L4.
#[test]
fn a_directory_that_is_changed_again_and_again_is_leased_to_its_changer_alone() {
    changed_again_and_again(false);
}

/// lease-L5: kernels may use names of subdirectories for a while.
#[test]
fn a_directory_with_subdirectories_is_told_for_a_while_after_it_was_given_back() {
    changed_again_and_again(true);
}

fn changed_again_and_again(has_dirs: bool) {
    let two = Two::new();
    if has_dirs {
        let (name, cred) = (b"dir"[..].into(), Cred::root());
        let (mode, now) = (0o755, Time::new(1, 0));
        let made = MakeDir { parent: Fid::ROOT, name, mode, umask: 0, now, cred, want: Fid(0) };
        two.rig.ask(&made, two.b).unwrap();
    }
    let kept = u64::from(has_dirs);
    // The holder's term is over, so that no change waits.
    two.pass(TERM_MS);
    for n in 0..CONFLICTS_MAX {
        two.look("f", two.a, Flags::LEASE_WANTED);
        two.make(&format!("f{n}"), two.b).unwrap();
    }
    let recalls = || two.rig.mdt.core.leases.counts.recalls.load(Ordering::Relaxed);
    assert_eq!(recalls(), u64::from(CONFLICTS_MAX));
    assert_eq!(two.look("f", two.a, Flags::LEASE_WANTED).0 & Flags::NAMES_LEASED, 0);
    assert_eq!(two.look("f", two.b, Flags::LEASE_WANTED), (BOTH, Code::NotFound as u16));
    two.make("more", two.b).unwrap();
    assert_eq!(recalls(), u64::from(CONFLICTS_MAX) + kept);
    two.pass(KEPT_MS);
    two.make("alone", two.b).unwrap();
    assert_eq!(recalls(), u64::from(CONFLICTS_MAX) + kept, "no other session may have it cached");
    two.pass(REST_MS);
    assert_eq!(two.look("f", two.a, Flags::LEASE_WANTED).0, BOTH);
    two.make("last", two.b).unwrap();
    assert_eq!(recalls(), u64::from(CONFLICTS_MAX) + kept + 1);
}

/// lease-L4: a client that is about to rename a file into a directory has to be told of changes there.
#[test]
fn a_session_that_watches_a_directory_is_told_of_the_next_change_by_its_sole_changer() {
    let two = Two::new();
    two.pass(TERM_MS);
    for n in 0..CONFLICTS_MAX {
        two.look("f", two.a, Flags::LEASE_WANTED);
        two.make(&format!("f{n}"), two.b).unwrap();
    }
    two.pass(KEPT_MS);
    let recalls = || two.rig.mdt.core.leases.counts.recalls.load(Ordering::Relaxed);
    let before = recalls();
    two.make("alone", two.b).unwrap();
    assert_eq!(recalls(), before);
    let watch = WatchDir { dir: Fid::ROOT };
    assert!(two.rig.ask(&watch, two.a).unwrap().is_told);
    two.make("told", two.b).unwrap();
    assert_eq!(recalls(), before + 1);
    assert!(two.rig.ask(&watch, two.b).unwrap().is_told, "it has no other to tell");
    // A change is under way.
    let bars = Bars::new(&two.rig.mdt.core.leases);
    bars.set(Fid::ROOT);
    assert!(!two.rig.ask(&watch, two.a).unwrap().is_told);
}

/// mds-L4: the client of an evicted session may not know it yet.
#[test]
fn an_evicted_session_counts_until_its_lease_ends() {
    let two = Two::new();
    two.look("f", two.a, Flags::LEASE_WANTED);
    two.rig.ask(&KeepAlive { session: two.a, mode: 0 }, two.a).unwrap();
    // By another client, as `stria up` does after a kill.
    two.rig.ask(&Detach { session: two.a }, SessionId(0)).unwrap();
    assert_eq!(two.rig.ask(&KeepAlive { session: two.a, mode: 0 }, two.a).unwrap_err().code, Code::NoSession);
    let began = two.now();
    two.steps_until(|two| two.make("f", two.b).unwrap());
    assert!((TERM_MS..TERM_MS + 1000).contains(&(two.now() - began)));
    two.rig.mdt.core.reap_sessions();
    assert!(two.rig.mdt.core.leases.held() <= 1, "its leases are gone");
}

/// A session that says good-bye caches nothing any more.
#[test]
fn a_session_that_left_delays_nobody() {
    let two = Two::new();
    two.look("f", two.a, Flags::LEASE_WANTED);
    two.rig.ask(&KeepAlive { session: two.a, mode: 0 }, two.a).unwrap();
    two.rig.ask(&Detach { session: two.a }, two.a).unwrap();
    let began = Instant::now();
    two.make("f", two.b).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// A repeat is answered from its slot, and the state may have changed since.
#[test]
fn a_repeat_of_a_creation_is_not_leased() {
    let two = Two::new();
    let send = |flags| {
        let head =
            Header { call: Create::CALL, session: two.a, slot: 1, sequence: 1, flags, ..Header::default() };
        let mut into = Buf::new();
        let mut answer = Answer::new(head, &mut into);
        net::Service::serve(&*two.rig.mdt, &head, &create("f").to_bytes(), &[], &mut answer);
        answer.head.flags & BOTH
    };
    assert_eq!(send(Flags::LEASE_WANTED), BOTH);
    assert_eq!(send(Flags::LEASE_HELD), 0);
}

#[test]
fn a_directory_that_is_removed_leaves_no_lease() {
    let two = Two::new();
    let (name, cred, now) = (wire::codec::Bytes::from(&b"d"[..]), Cred::root(), Time::new(10, 0));
    let make =
        MakeDir { parent: Fid::ROOT, name: name.clone(), mode: 0o755, umask: 0, now, cred, want: Fid(0) };
    let dir = two.rig.ask(&make, two.a).unwrap().attr.fid;
    let below = Lookup { parent: dir, name: name.clone(), cred: Cred::root() };
    assert_eq!(two.flags(&below, two.a, Flags::LEASE_WANTED), (BOTH, Code::NotFound as u16));
    assert_eq!(two.rig.mdt.core.leases.held(), 1);
    let remove = RemoveDir { parent: Fid::ROOT, name, held: false, now, cred: Cred::root() };
    two.rig.ask(&remove, two.a).unwrap();
    // An inode that path walks may meet stays for a moment, and goes with its release.
    two.rig.ask(&Release { fid: dir }, two.a).unwrap();
    assert_eq!(two.rig.mdt.core.leases.held(), 0);
}

/// A silent holder leaves threads for the requests of others.
#[test]
fn a_change_too_many_is_refused_and_not_queued() {
    let two = Two::new();
    two.look("f", two.a, Flags::LEASE_WANTED);
    two.rig.ask(&KeepAlive { session: two.a, mode: 0 }, two.a).unwrap();
    std::thread::scope(|scope| {
        let two = &two;
        let changes: Vec<_> =
            (0..WAITING_MAX).map(|n| scope.spawn(move || two.make(&format!("f{n}"), two.b))).collect();
        let until = Instant::now() + Duration::from_secs(20);
        while two.rig.mdt.core.leases.recalls.len() < WAITING_MAX {
            assert!(Instant::now() < until, "all of them wait");
            std::thread::sleep(Duration::from_millis(1));
        }
        // mds-L6: each of them is named, with its holder.
        let told = two.leases();
        assert_eq!((told.changes_waiting, told.names.len()), (WAITING_MAX as u64, WAITING_MAX));
        let is_right =
            |wait: &wire::mdt::NameWait| (wait.session, wait.holder, wait.fid) == (two.b, two.a, Fid::ROOT);
        assert!(told.names.iter().all(is_right), "{:?}", told.names[0]);
        assert_eq!(two.make("more", two.b).unwrap_err().code, Code::NotReady);
        assert_eq!(two.look("f", two.b, 0).1, Code::NotFound as u16, "reads go on");
        two.pass(TERM_MS);
        changes.into_iter().for_each(|change| change.join().unwrap().unwrap());
    });
    assert_eq!(two.leases().names, []);
    two.make("more", two.b).unwrap();
}
