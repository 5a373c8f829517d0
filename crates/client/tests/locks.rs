//! Locks of several owners of one client: at a living MDT, over its restart, after its session.

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use client::{FileLock, Fs, Handle, LockAnswer, OpenFlags};
use common::{Cluster, Wiring};
use disk::Crash;
use types::{Cred, Fault, Fid};
use wire::lock::LockKind::{Read, Unlock, Write};
use wire::lock::LockSpace::{Flock, Posix};
use wire::lock::{LockKind, LockSpace};

fn make(fs: &Fs, name: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect(name);
    (attr.fid, h)
}

fn lock(space: LockSpace, owner: u64, kind: LockKind, start: u64, end: u64) -> FileLock {
    FileLock { space, owner, start, end, kind, pid: owner as u32 }
}

fn posix(owner: u64, kind: LockKind, start: u64, end: u64) -> FileLock {
    lock(Posix, owner, kind, start, end)
}

type Told = Receiver<Result<LockAnswer, Fault>>;

fn wait(fs: &Arc<Fs>, h: Handle, unique: u64, lock: FileLock) -> Told {
    let (tell, told) = channel();
    fs.await_lock(h, &lock, unique, Box::new(move |answer| tell.send(answer).expect("somebody listens")));
    told
}

fn end_of(told: &Told) -> Result<LockAnswer, Fault> {
    told.recv_timeout(Duration::from_secs(30)).expect("it ends")
}

/// The first conflicting lock for another owner: its holder, kind and range.
fn holder(fs: &Fs, h: Handle, space: LockSpace) -> Option<(u32, LockKind, u64, u64)> {
    let all = lock(space, 999, Write, 0, u64::MAX);
    fs.get_lock(h, &all).expect("asked").map(|f| (f.pid, f.kind, f.start, f.end))
}

#[test]
fn locks_are_taken_changed_tested_and_given_back() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let cluster = Cluster::new(wiring, 1);
        let fs = cluster.mount();
        let (_, h) = make(&fs, "f");
        assert_eq!(fs.set_lock(h, &posix(1, Write, 0, 9)), Ok(LockAnswer::Granted));
        assert_eq!(fs.set_lock(h, &posix(2, Read, 9, 20)), Ok(LockAnswer::Conflict));
        assert_eq!(holder(&fs, h, Posix), Some((1, Write, 0, 9)));
        fs.set_lock(h, &posix(1, Read, 4, 20)).expect("a part of it is for reading");
        assert_eq!(fs.set_lock(h, &posix(2, Read, 9, 20)), Ok(LockAnswer::Granted));
        fs.set_lock(h, &posix(1, Unlock, 0, u64::MAX)).expect("given back");
        assert_eq!(holder(&fs, h, Posix), Some((2, Read, 9, 20)));
        assert_eq!(fs.set_lock(h, &lock(Flock, 1, Write, 0, 9)), Ok(LockAnswer::Granted));
    }
}

#[test]
fn who_waits_is_told_when_it_is_free_or_hopeless_or_interrupted() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (_, h) = make(&fs, "f");
    fs.set_lock(h, &posix(1, Write, 0, 9)).expect("free");
    fs.set_lock(h, &posix(2, Write, 10, 19)).expect("free");
    let many: Vec<_> = (3..40).map(|n| wait(&fs, h, n, posix(n, Read, 0, 0))).collect();
    let second = wait(&fs, h, 100, posix(2, Write, 0, 0));
    // 1 waits for 2, which waits for 1.
    assert_eq!(end_of(&wait(&fs, h, 101, posix(1, Write, 15, 15))), Ok(LockAnswer::Deadlock));
    assert!(fs.interrupt_lock(100));
    assert_eq!(end_of(&second), Ok(LockAnswer::Interrupted));
    let again = wait(&fs, h, 102, posix(1, Write, 15, 15));
    fs.set_lock(h, &posix(2, Unlock, 0, 99)).expect("given back");
    assert_eq!(end_of(&again), Ok(LockAnswer::Granted));
    fs.set_lock(h, &posix(1, Unlock, 0, 99)).expect("given back");
    many.iter().for_each(|told| assert_eq!(end_of(told), Ok(LockAnswer::Granted)));
    assert!(!fs.interrupt_lock(100), "it has ended");
    (3..40).for_each(|n| fs.set_lock(h, &posix(n, Unlock, 0, 99)).map(|_| ()).expect("given back"));
    assert_eq!(fs.set_lock(h, &posix(1, Write, 0, 0)), Ok(LockAnswer::Granted));
    let last = wait(&fs, h, 104, posix(2, Write, 0, 0));
    fs.shutdown().expect("settled");
    end_of(&last).expect_err("nobody is left waiting");
}

#[test]
fn a_close_gives_back_what_the_process_holds_and_the_last_one_the_rest() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount();
    let (fid, a) = make(&fs, "f");
    let (b, _) = fs.open(fid, OpenFlags::read_write()).expect("opened");
    let (watch, _) = fs.open(fid, OpenFlags::read_only()).expect("opened");
    // 1. A process loses its locks with any descriptor of the file, also those through others.
    fs.set_lock(a, &posix(1, Write, 0, 9)).expect("free");
    fs.set_lock(b, &posix(1, Write, 20, 29)).expect("free");
    fs.close_locks(a, 1).expect("closed");
    assert_eq!(holder(&fs, watch, Posix), None);
    // 2. Locks taken afterwards stay when the closed handle is released later.
    fs.set_lock(b, &posix(1, Write, 0, 9)).expect("free");
    fs.release(a);
    assert_eq!(holder(&fs, watch, Posix), Some((1, Write, 0, 9)));
    fs.close_locks(b, 1).expect("closed");
    // 3. An open file description closes nothing by itself: its locks go with it. So do those of flock.
    fs.set_lock(b, &posix(7, Write, 0, 9)).expect("free");
    fs.set_lock(b, &lock(Flock, 7, Write, 0, 9)).expect("free");
    fs.close_locks(b, 1).expect("closed");
    assert_eq!(holder(&fs, watch, Posix), Some((7, Write, 0, 9)));
    fs.release_owned(b, Some(7));
    assert_eq!((holder(&fs, watch, Posix), holder(&fs, watch, Flock)), (None, None));
}

#[test]
fn locks_outlive_a_restart_of_the_mdt_and_waits_go_on() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let mut cluster = Cluster::new(wiring, 1);
        let fs = cluster.mount();
        let (_, h) = make(&fs, "f");
        fs.set_lock(h, &posix(1, Write, 0, 9)).expect("free");
        fs.set_lock(h, &posix(1, Read, 5, 6)).expect("its own");
        fs.set_lock(h, &lock(Flock, 3, Read, 0, 9)).expect("free");
        let waits = wait(&fs, h, 1, posix(2, Write, 9, 9));
        for _ in 0..2 {
            cluster.crash_mdt(Crash::KeepAll);
            assert_eq!(fs.set_lock(h, &posix(2, Write, 4, 4)), Ok(LockAnswer::Conflict));
            assert_eq!(fs.set_lock(h, &posix(2, Read, 5, 6)), Ok(LockAnswer::Granted));
            assert_eq!(fs.set_lock(h, &lock(Flock, 4, Write, 0, 9)), Ok(LockAnswer::Conflict));
        }
        fs.set_lock(h, &posix(1, Unlock, 0, 99)).expect("given back");
        assert_eq!(end_of(&waits), Ok(LockAnswer::Granted));
    }
}

#[test]
fn a_lock_that_was_not_converted_is_whole_after_a_restart() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (_, h) = make(&fs, "f");
    fs.set_lock(h, &posix(1, Write, 0, 9)).expect("free");
    fs.set_lock(h, &posix(2, Write, 50, 59)).expect("free");
    // It would make the first a lock for reading, and does not.
    assert_eq!(fs.set_lock(h, &posix(1, Read, 0, 99)), Ok(LockAnswer::Conflict));
    cluster.crash_mdt(Crash::KeepAll);
    assert_eq!(fs.set_lock(h, &posix(3, Read, 0, 9)), Ok(LockAnswer::Conflict));
}

/// A clean stop keeps the incarnation: the MDT itself must ask for the locks.
#[test]
fn locks_outlive_a_clean_restart_that_no_answer_shows() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (_, h) = make(&fs, "f");
    fs.set_lock(h, &posix(1, Write, 0, 9)).expect("free");
    cluster.restart_mdt_cleanly();
    assert_eq!(fs.set_lock(h, &posix(2, Write, 4, 4)), Ok(LockAnswer::Conflict));
}

/// Also if the call itself is what finds out.
#[test]
fn no_lock_is_added_to_those_that_a_session_took_with_it() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (fid, h) = make(&fs, "f");
    fs.set_lock(h, &posix(1, Write, 0, 9)).expect("free");
    cluster.end_session(fs.session());
    assert_eq!(fs.set_lock(h, &posix(1, Write, 20, 29)).map_err(|f| client::errno_of(f.code)), Err(5));
    // It was granted meanwhile, and is given back.
    let (watch, _) = fs.open(fid, OpenFlags::read_only()).expect("opened");
    let until = std::time::Instant::now() + Duration::from_secs(20);
    fs.release(h);
    fs.release(watch);
    let (h, _) = fs.open(fid, OpenFlags::read_write()).expect("opened anew");
    while holder(&fs, h, Posix).is_some() {
        assert!(std::time::Instant::now() < until, "nobody gives it back");
    }
}

#[test]
fn who_loses_its_session_is_told_and_does_not_go_on_as_if_it_held_its_locks() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (fid, h) = make(&fs, "f");
    let (_, other) = make(&fs, "g");
    fs.write(h, 0, b"bytes").expect("written");
    fs.fsync(h, false).expect("durable");
    fs.set_lock(h, &posix(1, Write, 0, 9)).expect("free");
    let session = fs.session();
    cluster.end_session(session);
    // Any call to the MDT finds out.
    fs.set_lock(other, &posix(1, Write, 0, 9)).expect("a new session");
    assert_ne!(fs.session(), session);
    assert_eq!(fs.set_lock(h, &posix(1, Unlock, 0, 9)).map_err(|f| client::errno_of(f.code)), Err(5));
    assert_eq!(fs.write(h, 0, b"more").map_err(|f| client::errno_of(f.code)), Err(5));
    fs.release(h);
    let (h, _) = fs.open(fid, OpenFlags::read_write()).expect("opened anew");
    assert_eq!(fs.set_lock(h, &posix(1, Write, 0, 9)), Ok(LockAnswer::Granted));
}

/// The kernel gives a new open file description the name of one that was closed, and tells of the close late.
#[test]
fn a_late_release_gives_back_nothing_that_its_namesake_took() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (fid, old) = make(&fs, "f");
    for space in [Flock, Posix] {
        let new = fs.open(fid, OpenFlags::read_write()).expect("open").0;
        fs.set_lock(old, &lock(space, 7, Write, 0, u64::MAX)).expect("free");
        fs.set_lock(new, &lock(space, 7, Write, 0, u64::MAX)).expect("its own, as the MDT sees it");
        let released = fs.open(fid, OpenFlags::read_write()).expect("open").0;
        fs.set_lock(released, &lock(space, 7, Write, 0, u64::MAX)).expect("its own");
        fs.set_lock(new, &lock(space, 7, Write, 0, u64::MAX)).expect("its own");
        fs.release_owned(released, Some(7));
        assert_eq!(holder(&fs, old, space), Some((7, Write, 0, u64::MAX)), "{space:?}: taken since");
        fs.release_owned(new, Some(7));
        if space == Flock {
            assert_eq!(holder(&fs, old, space), None, "the last taker's end gives it back");
        }
    }
}

/// A wait holds no thread and no request at the MDT: others are served, however many wait.
#[test]
fn two_thousand_waits_leave_the_mdt_free() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let (a, b) = (cluster.mount(), cluster.mount());
    let (fid, held) = make(&a, "f");
    assert_eq!(a.set_lock(held, &lock(Flock, 1, Write, 0, u64::MAX)), Ok(LockAnswer::Granted));
    let h = b.open(fid, OpenFlags::read_write()).expect("open").0;
    let waits: Vec<_> = (0..2000).map(|n| wait(&b, h, n, lock(Flock, 100 + n, Read, 0, u64::MAX))).collect();
    for n in 0..100 {
        make(&b, &format!("g{n}"));
        assert_eq!(a.lookup(Fid::ROOT, format!("g{n}").as_bytes()).expect("it is there").nlink, 1);
    }
    let (workers, _) = cluster.server.load();
    assert!(workers <= 8, "{workers} threads serve");
    a.set_lock(held, &lock(Flock, 1, Unlock, 0, u64::MAX)).expect("released");
    waits.iter().for_each(|told| assert_eq!(end_of(told), Ok(LockAnswer::Granted)));
}

/// During the grace period the MDT does not come to the release of the old lock.
#[test]
fn a_conversion_that_is_interrupted_while_others_reclaim_leaves_no_lock() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.sessions_live(Duration::from_secs(4));
    let (a, b) = (cluster.mount(), cluster.mount());
    let (fid, h) = make(&a, "f");
    assert_eq!(a.set_lock(h, &lock(Flock, 1, Read, 0, u64::MAX)), Ok(LockAnswer::Granted));
    // Its session stays for its time-out, and the grace period with it.
    b.abort();
    cluster.crash_mdt(Crash::KeepAll);
    // A keep-alive finds the restart, and the lock is reclaimed.
    std::thread::sleep(Duration::from_millis(2000));
    let told = wait(&a, h, 7, lock(Flock, 1, Write, 0, u64::MAX));
    std::thread::sleep(Duration::from_millis(300));
    assert!(a.interrupt_lock(7), "it waits while others may reclaim");
    assert_eq!(end_of(&told), Ok(LockAnswer::Interrupted));
    let c = cluster.mount();
    let other = c.open(fid, OpenFlags::read_write()).expect("open").0;
    let told = wait(&c, other, 8, lock(Flock, 2, Write, 0, u64::MAX));
    assert_eq!(end_of(&told), Ok(LockAnswer::Granted), "no lock is left behind");
}
