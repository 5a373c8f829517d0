//! Stories of an OST that is down: what has nothing to do with it goes on.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Fs, Handle, OpenFlags, Settings};
use common::{Cluster, Wiring, ost_target};
use disk::Crash;
use net::{Answer, Service};
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Code, Cred, Fault, Fid, Seq};
use wire::object::Glimpse;
use wire::session::Attach;
use wire::{Empty, Header, ReplyHead, Request};

fn make(fs: &Fs, name: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect(name);
    (attr.fid, h)
}

/// A target that takes requests and answers none until it is let go.
#[derive(Default)]
struct Hanging(AtomicBool);
impl Service for Hanging {
    fn serve(&self, _: &Header, _: &[u8], _: &[u8], _: &mut Answer<'_>) {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Polls until `what` holds, and says after how long.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(40), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    begin.elapsed()
}

/// Mounts in the place of a client that died.
fn mount_after(cluster: &Cluster, settings: &Settings) -> Arc<Fs> {
    let mut fs = None;
    wait_until("the dead client makes way", || {
        fs = cluster.try_mount(settings.clone()).ok();
        fs.is_some()
    });
    fs.expect("mounted")
}

/// A client died and left files unsettled on an OST that is down. A listing shows all their names at once: it does not wait for
/// each of them in turn.
#[test]
fn a_listing_does_not_wait_for_each_file_of_a_dead_ost() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 2, 0);
    let fs = cluster.mount_lazy();
    // One stripe and no further component, so that a file has all it may ever have on OST `fid mod 2`.
    fs.setxattr(Fid::ROOT, b"stria.layout", b"-c 1", 0, &Cred::root()).expect("setstripe");
    let settled = fs.mkdir(Fid::ROOT, b"dir", 0o755, &Cred::root()).expect("mkdir");
    let mut on_live = Vec::new();
    for n in 0..12 {
        let (fid, h) = make(&fs, &format!("f{n}"));
        fs.write(h, 0, &[1; 100]).expect("write");
        if fid.0 % 2 == 1 {
            on_live.push(fid);
        }
    }
    fs.abort();
    let image = cluster.stop_ost(0, Crash::KeepAll);
    let op_timeout = Duration::from_secs(4);
    let fs = mount_after(&cluster, &Settings { op_timeout, ..cluster.settings() });
    let begin = Instant::now();
    let items = fs.readdir(Fid::ROOT, 0, 64, true).expect("readdir");
    assert!(begin.elapsed() < op_timeout, "{:?}", begin.elapsed());
    assert_eq!(items.len(), 2 + 1 + 12);
    // What needs no waiting has its attributes, and who asks for one file of a healthy OST is answered.
    let dir = items.iter().find(|i| i.fid == settled.fid).expect("listed");
    assert!(dir.attr.is_some());
    for fid in on_live {
        assert_eq!(fs.getattr(fid).expect("its OST is up").size, 100);
    }
    cluster.restart_ost(0, image);
    let items = fs.readdir(Fid::ROOT, 0, 64, true).expect("readdir");
    let sizes: Vec<_> = items.iter().skip(2).filter(|i| i.fid != settled.fid).map(|i| i.attr).collect();
    assert!(sizes.iter().all(|a| a.is_some_and(|a| a.size == 100)), "{sizes:?}");
}

/// Files of healthy OSTs are settled while another OST is down, and so is what is only closed there: for its blocks the
/// estimate is told.
#[test]
fn settling_does_not_wait_for_a_dead_ost() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 2, 0);
    // Far longer than settling may take: who waits for one time-out fails the test.
    let op_timeout = Duration::from_secs(12);
    let fs = cluster.mount_with(Settings { op_timeout, ..cluster.settings() });
    fs.setxattr(Fid::ROOT, b"stria.layout", b"-c 1", 0, &Cred::root()).expect("setstripe");
    let (mut on_dead, mut on_live) = (Vec::new(), Vec::new());
    for n in 0..8 {
        let (fid, h) = make(&fs, &format!("f{n}"));
        fs.write(h, 0, &[1; 100]).expect("write");
        fs.fsync(h, false).expect("fsync");
        if fid.0 % 2 == 0 { on_dead.push((fid, h)) } else { on_live.push((fid, h)) }
    }
    let _image = cluster.stop_ost(0, Crash::KeepAll);
    let observer = cluster.mount_with(Settings { observer: true, ..cluster.settings() });
    let is_settled = |fid: Fid, size: u64| {
        let inode = common::inode(&cluster, fid);
        inode.state == wire::meta::FileState::Settled && observer.getattr(fid).expect("getattr").size == size
    };
    for ((_, dead), (_, live)) in on_dead.iter().zip(&on_live) {
        fs.release(*dead);
        fs.write(*live, 0, &[2; 9000]).expect("its OST is up");
        fs.release(*live);
    }
    let took = wait_until("files of the healthy OST are settled", || {
        on_live.iter().all(|(fid, _)| is_settled(*fid, 9000))
    });
    assert!(took < op_timeout / 2, "{took:?}");
    let took = wait_until("files without unflushed bytes on the dead OST are settled", || {
        on_dead.iter().all(|(fid, _)| is_settled(*fid, 100))
    });
    assert!(took < op_timeout / 2, "{took:?}");
    fs.abort();
}

/// The MDT hears of a mount that lives, also while OSTs hang: its session does not end. Another mount comes in meanwhile.
#[test]
fn hanging_osts_do_not_cost_a_mount_its_session() {
    // Each request holds a thread of the servers, of which there are 64.
    const OSTS: usize = 4;
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, OSTS, 0);
    cluster.sessions_live(Duration::from_millis(1500));
    let fs = cluster.mount_lazy();
    let layout = format!("-c {OSTS} -S 64k");
    fs.setxattr(Fid::ROOT, b"stria.layout", layout.as_bytes(), 0, &Cred::root()).expect("setstripe");
    let (_, h) = make(&fs, "f");
    fs.write(h, 0, &vec![1; OSTS << 16]).expect("it has a session at each OST now");
    let hanging = Arc::new(Hanging::default());
    (0..OSTS).for_each(|n| cluster.hub.add(ost_target(n), hanging.clone()));
    // One keep-alive behind the other would take four thirds of the time-out; it is watched for longer than that.
    let until = Instant::now() + cluster.session_ttl * 4;
    let rival = cluster.try_mount(cluster.settings()).expect("it comes in");
    while Instant::now() < until {
        let sessions = cluster.mdt.as_ref().expect("runs").0.sessions();
        let sessions: Vec<_> = sessions.iter().map(|s| s.0).collect();
        assert_eq!(sessions, [fs.session(), rival.session()], "both mounts live");
        std::thread::sleep(Duration::from_millis(20));
    }
    rival.abort();
    hanging.0.store(true, Ordering::SeqCst);
    fs.abort();
}

/// The behaviour of a proxy in front of an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Open,
    /// The next glimpse waits.
    HoldsGlimpse,
    Holding,
    /// As a restarted server that does not attach clients yet.
    Restarted,
    Attaching,
}

struct Door {
    ost: Arc<dyn Service>,
    mode: Mutex<Mode>,
    changed: Condvar,
}

impl Door {
    fn before(cluster: &Cluster, n: usize) -> Arc<Door> {
        let (mode, changed) = (Mutex::new(Mode::Open), Condvar::new());
        let door = Arc::new(Door { ost: cluster.process(ost_target(n)), mode, changed });
        cluster.hub.add(ost_target(n), door.clone());
        door
    }
    fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
        self.changed.notify_all();
    }
    fn stop_until_open(&self, mut mode: MutexGuard<'_, Mode>, now: Mode) {
        *mode = now;
        self.changed.notify_all();
        self.changed.wait_while(&mut mode, |mode| *mode != Mode::Open);
    }
}

impl Service for Door {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let mode = self.mode.lock();
        match *mode {
            Mode::HoldsGlimpse if head.call == Glimpse::CALL => self.stop_until_open(mode, Mode::Holding),
            Mode::Restarted | Mode::Attaching if head.call == Attach::CALL => {
                self.stop_until_open(mode, Mode::Attaching)
            }
            Mode::Restarted | Mode::Attaching => {
                let fault = Fault::new(Code::Moved, "started anew");
                answer.body = wire::encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>);
                return;
            }
            _ => drop(mode),
        }
        self.ost.serve(head, body, bulk, answer)
    }
}

/// client-T1: an OST restarts in the middle of a round, after its flush: files that lie elsewhere, and are told of in the same frame, are not
/// kept in hand while it is waited for.
#[test]
fn a_restart_in_the_middle_of_a_round_holds_up_its_own_files_only() {
    let cluster = Cluster::with_inline_max(Wiring::Tcp, 2, 0);
    let fs = cluster.mount_lazy();
    fs.setxattr(Fid::ROOT, b"stria.layout", b"-c 1", 0, &Cred::root()).expect("setstripe");
    let mut files: Vec<_> = (0..40).map(|n| make(&fs, &format!("f{n}"))).collect();
    let (live, h) = files.remove(files.iter().position(|(fid, _)| fid.0 % 2 == 1).expect("one of two"));
    let on_dead: Vec<_> = files.into_iter().filter(|(fid, _)| fid.0 % 2 == 0).collect();
    assert!(on_dead.len() >= 16);
    fs.write(h, 0, &[1; 100]).expect("write");
    fs.release(h);
    on_dead.iter().for_each(|(_, h)| assert_eq!(fs.write(*h, 0, &[1; 100]), Ok(100)));
    let [dead_door, live_door] = [0, 1].map(|n| Door::before(&cluster, n));
    live_door.set(Mode::HoldsGlimpse);
    std::thread::scope(|scope| {
        let round = scope.spawn(|| fs.du(Fid::ROOT, &Cred::root()));
        wait_until("all is flushed, and blocks are counted", || *live_door.mode.lock() == Mode::Holding);
        dead_door.set(Mode::Restarted);
        let writer = scope.spawn(|| fs.write(on_dead[0].1, 0, &[2; 100]));
        wait_until("this client knows", || *dead_door.mode.lock() == Mode::Attaching);
        live_door.set(Mode::Open);
        // Half a second for each of the others, if it is waited for.
        let is_settled = || common::inode(&cluster, live).state == wire::meta::FileState::Settled;
        let took = wait_until("it is told of", is_settled);
        assert!(took < Duration::from_secs(3), "{took:?}");
        dead_door.set(Mode::Open);
        writer.join().expect("no panic").expect("its OST is up again");
        assert_eq!(round.join().expect("no panic").expect("du").unsettled, 0);
    });
}
