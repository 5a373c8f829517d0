//! Notices of the MDT: they wake waits for locks, say that another client came, and are not lost with their line.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use client::{FileLock, Fs, Handle, LockAnswer, OpenFlags};
use common::{Cluster, MDT, Wiring};
use net::{Answer, Service};
use types::{Code, Cred, Fault, Fid, Seq};
use wire::lock::{AwaitLocks, AwaitLocksReply, LockKind, LockSpace};
use wire::notice::Listen;
use wire::session::KeepAlive;
use wire::{Empty, Header, ReplyHead, Request, encode_reply};

/// The MDT, which names no free locks in `AwaitLocks`: only its notices tell of them.
struct ByNotice {
    mdt: Arc<dyn Service>,
    /// It refuses lines.
    is_deaf: AtomicBool,
    /// It answers no keep-alive.
    is_mute: AtomicBool,
    listens: AtomicU32,
}

impl Service for ByNotice {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let no = || ReplyHead::refused(&Fault::new(Code::NotReady, "not now"), Seq(0));
        let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        match head.call {
            AwaitLocks::CALL => {
                self.mdt.serve(head, body, bulk, answer);
                let done = ReplyHead::done(Seq(0), Seq(0));
                answer.body = encode_reply(&done, Some(&AwaitLocksReply { ready: vec![] }));
            }
            Listen::CALL if is(&self.is_deaf) => answer.body = encode_reply(&no(), None::<&Empty>),
            KeepAlive::CALL if is(&self.is_mute) => answer.body = encode_reply(&no(), None::<&Empty>),
            call => {
                if call == Listen::CALL {
                    self.listens.fetch_add(1, Ordering::SeqCst);
                }
                self.mdt.serve(head, body, bulk, answer)
            }
        }
    }
}

fn by_notice(wiring: Wiring) -> (Cluster, Arc<ByNotice>) {
    let mut cluster = Cluster::new(wiring, 1);
    cluster.sessions_live(Duration::from_secs(2));
    let mdt = Arc::new(ByNotice {
        mdt: cluster.mdt_service(),
        is_deaf: AtomicBool::new(false),
        is_mute: AtomicBool::new(false),
        listens: AtomicU32::new(0),
    });
    cluster.hub.add(MDT, mdt.clone());
    (cluster, mdt)
}

fn open(fs: &Fs) -> Handle {
    let flags = OpenFlags::read_write();
    fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).expect("create or open").1
}

fn all(owner: u64, kind: LockKind) -> FileLock {
    FileLock { space: LockSpace::Flock, owner, start: 0, end: u64::MAX, kind, pid: 1 }
}

/// Hands the lock over from one client to the other, `times` times.
fn hand_over(a: &Arc<Fs>, b: &Arc<Fs>, times: u64) {
    let (ha, hb) = (open(a), open(b));
    for n in 0..times {
        assert_eq!(a.set_lock(ha, &all(1, LockKind::Write)), Ok(LockAnswer::Granted));
        let (tell, told) = channel();
        let done = Box::new(move |answer| tell.send(answer).expect("the test waits"));
        b.await_lock(hb, &all(2, LockKind::Write), n + 1, done);
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err(), "it is held");
        a.set_lock(ha, &all(1, LockKind::Unlock)).expect("released");
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).expect("told"), Ok(LockAnswer::Granted));
        b.set_lock(hb, &all(2, LockKind::Unlock)).expect("released");
    }
}

#[test]
fn a_lock_is_handed_over_by_a_notice() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let (cluster, _mdt) = by_notice(wiring);
        let (a, b) = (cluster.mount(), cluster.mount());
        hand_over(&a, &b, 20);
    }
}

#[test]
fn a_notice_that_found_no_line_comes_with_the_next_one() {
    let (cluster, mdt) = by_notice(Wiring::Tcp);
    mdt.is_deaf.store(true, Ordering::SeqCst);
    let (a, b) = (cluster.mount(), cluster.mount());
    std::thread::scope(|scope| {
        let handing = scope.spawn(|| hand_over(&a, &b, 1));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!handing.is_finished(), "without a line the second client hears nothing");
        mdt.is_deaf.store(false, Ordering::SeqCst);
        handing.join().expect("the notice came");
    });
}

#[test]
fn another_client_comes_in_though_no_keep_alive_is_answered() {
    let (cluster, mdt) = by_notice(Wiring::Tcp);
    let a = cluster.mount();
    mdt.is_mute.store(true, Ordering::SeqCst);
    let b = cluster.mount();
    assert!(a.is_shared() && b.is_shared());
    mdt.is_mute.store(false, Ordering::SeqCst);
}

#[test]
fn a_client_listens_once_while_all_is_well_and_again_after_a_restart() {
    let (mut cluster, mdt) = by_notice(Wiring::Tcp);
    let fs = cluster.mount();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(mdt.listens.load(Ordering::SeqCst), 1);
    // The MDT itself takes no line, so that the client comes to the one that counts.
    cluster.has_lines = false;
    cluster.crash_mdt(disk::Crash::KeepAll);
    let again = Arc::new(ByNotice {
        mdt: cluster.mdt_service(),
        is_deaf: AtomicBool::new(false),
        is_mute: AtomicBool::new(false),
        listens: AtomicU32::new(0),
    });
    cluster.hub.add(MDT, again.clone());
    let until = Instant::now() + Duration::from_secs(20);
    while again.listens.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "it listens to the restarted MDT");
        std::thread::sleep(Duration::from_millis(5));
    }
    open(&fs);
}
