//! Opening for reading: its requests to the MDT. An open file stays usable after an unlink or rename, and after restarts.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Fs, Handle, OpenFlags, SetAttr, Settings};
use common::{Cluster, MDT, Wiring, ost_target, pattern, read};
use disk::Crash;
use net::{Answer, Service};
use parking_lot::{Condvar, Mutex};
use types::{Attr, Code, Cred, Fid, Time};
use wire::meta::{Create, GetAttr, OpenRead, Tmpfile, Truncate};
use wire::session::KeepAlive;
use wire::shared::{Close, Enter};
use wire::{Header, Request, object};

/// The MDT, and how often each of its metadata calls came.
struct Counting {
    mdt: Arc<dyn Service>,
    calls: Mutex<BTreeMap<u16, u32>>,
}

impl Service for Counting {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        // Those of sessions are the client's own affair.
        if head.call >= 0x0200 {
            *self.calls.lock().entry(head.call).or_default() += 1;
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

fn make(fs: &Fs, name: &str, data: &[u8]) -> Fid {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect("create");
    fs.write(h, 0, data).expect("write");
    fs.fsync(h, false).expect("fsync");
    fs.release(h);
    attr.fid
}

/// Open, read and close of a file are one request, which changes nothing and does not stand in line with those that do.
#[test]
fn open_read_close_asks_the_mdt_once_and_changes_nothing() {
    let cluster = Cluster::quiet(Wiring::Local, 2);
    let quiet = Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() };
    let files = {
        let fs = cluster.mount_with(quiet.clone());
        let files = [("small", 4096), ("large", 300_000)].map(|(name, len)| {
            let data = pattern(len as u64, len);
            (make(&fs, name, &data), data)
        });
        fs.shutdown().expect("all is told");
        files
    };
    let fs = cluster.mount_with(quiet);
    let counting = Arc::new(Counting { mdt: cluster.mdt_service(), calls: Mutex::default() });
    cluster.hub.add(MDT, counting.clone());
    let before = cluster.mdt_log_used();
    for (fid, data) in &files {
        let (h, attr) = fs.open(*fid, OpenFlags::read_only()).expect("open");
        assert_eq!(attr.size, data.len() as u64);
        assert!(read(&fs, h, 0, data.len() + 1).expect("read") == *data);
        fs.release(h);
        let calls = std::mem::take(&mut *counting.calls.lock());
        assert_eq!(calls, [(OpenRead::CALL, 1)].into());
    }
    assert_eq!(cluster.mdt_log_used(), before, "nothing was logged");
    const { assert!(!OpenRead::MUTATES) };
    cluster.hub.add(MDT, cluster.mdt_service());
}

/// [S-unlinked-open] [S-several-mounts] A file that is open for reading only keeps its content when the other mount takes its name,
/// also when the MDT is killed before or after; its last close ends it.
#[test]
fn what_is_open_for_reading_outlives_its_name_and_the_mdt() {
    what_is_open_outlives_its_name_and_the_mdt(OpenFlags::read_only());
}

/// [S-unlinked-open] [S-several-mounts] So does what is open for writing, too, and was not used since.
#[test]
fn what_is_open_for_writing_outlives_its_name_and_the_mdt() {
    what_is_open_outlives_its_name_and_the_mdt(OpenFlags::read_write());
}

fn what_is_open_outlives_its_name_and_the_mdt(flags: OpenFlags) {
    for (n, crashes) in [[false, false], [true, false], [false, true], [true, true]].into_iter().enumerate() {
        let mut cluster = Cluster::new(Wiring::Tcp, 2);
        cluster.sessions_live(Duration::from_millis(1500));
        let (a, b) = (cluster.mount(), cluster.mount());
        assert!(a.is_shared() && b.is_shared());
        let [small, large] = [("small", 1000), ("large", 200_000)].map(|(name, len)| {
            let data = pattern(n as u64, len);
            (make(&a, name, &data), data)
        });
        let held = [&small, &large].map(|(fid, _)| b.open(*fid, flags).expect("open").0);
        if crashes[0] {
            cluster.crash_mdt(Crash::KeepAll);
        }
        for name in ["small", "large"] {
            a.unlink(Fid::ROOT, name.as_bytes(), &Cred::root()).expect("unlink");
            assert_eq!(b.lookup(Fid::ROOT, name.as_bytes()).expect_err("it is gone").code, Code::NotFound);
        }
        if crashes[1] {
            cluster.crash_mdt(Crash::KeepAll);
        }
        for ((_, data), h) in [&small, &large].into_iter().zip(held) {
            assert!(read(&b, h, 0, data.len() + 1).expect("read") == *data, "{crashes:?}");
            b.release(h);
        }
        for (fid, _) in [small, large] {
            wait_until("its last close ends it", || is_gone(&cluster, fid));
        }
    }
}

/// [S-dead-mount] A lone mount goes on with what it has open for reading when the MDT is killed, and a file that it unlinked meanwhile
/// is there until it is closed.
#[test]
fn a_lone_mount_reads_on_when_the_mdt_is_killed() {
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    let fs = cluster.mount();
    let data = pattern(1, 300_000);
    let (kept, lost) = (make(&fs, "kept", &data), make(&fs, "lost", &data[..500]));
    let held = [kept, lost].map(|fid| fs.open(fid, OpenFlags::read_only()).expect("open").0);
    cluster.crash_mdt(Crash::KeepAll);
    assert!(read(&fs, held[0], 0, data.len()).expect("read") == data);
    fs.unlink(Fid::ROOT, b"lost", &Cred::root()).expect("unlink");
    cluster.crash_mdt(Crash::KeepAll);
    assert!(read(&fs, held[1], 0, 1000).expect("read") == data[..500]);
    let again = fs.open(kept, OpenFlags::read_only()).expect("open").0;
    assert!(read(&fs, again, 0, data.len()).expect("read") == data);
    held.into_iter().chain([again]).for_each(|h| fs.release(h));
    wait_until("its last close ends it", || is_gone(&cluster, lost));
    assert!(!is_gone(&cluster, kept));
}

/// The MDT, but for what it is told to withhold: such a request gets no answer, and is not carried out.
struct Withholding {
    mdt: Arc<dyn Service>,
    call: Mutex<Option<u16>>,
    changed: Condvar,
    has_met: AtomicBool,
}

impl Service for Withholding {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let mut call = self.call.lock();
        if *call == Some(head.call) {
            self.has_met.store(true, Ordering::SeqCst);
            self.changed.wait_while(&mut call, |call| *call == Some(head.call));
            return;
        }
        drop(call);
        self.mdt.serve(head, body, bulk, answer)
    }
}

/// client-C3: a truncate was given up and may happen yet. An open for reading goes after it: what it was told before would be wrong a moment
/// later.
#[test]
fn c3_an_open_for_reading_does_not_pass_what_was_given_up() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount_with(Settings { op_timeout: Duration::from_millis(700), ..cluster.settings() });
    let fid = make(&fs, "f", &pattern(1, 1000));
    let mdt = Arc::new(Withholding {
        mdt: cluster.mdt_service(),
        call: Mutex::new(Some(Truncate::CALL)),
        changed: Condvar::new(),
        has_met: AtomicBool::new(false),
    });
    cluster.hub.add(MDT, mdt.clone());
    let cut = SetAttr { size: Some(10), ..SetAttr::default() };
    fs.setattr(fid, &cut, &Cred::root()).expect_err("no answer comes");
    *mdt.call.lock() = None;
    mdt.changed.notify_all();
    let (h, attr) = fs.open(fid, OpenFlags::read_only()).expect("open");
    assert_eq!(attr.size, 10);
    assert!(read(&fs, h, 0, 1000).expect("read") == pattern(1, 1000)[..10]);
    cluster.hub.add(MDT, cluster.mdt_service());
}

/// [S-unlinked-open] A mount opens and closes a file while another one is about to come in, and has not heard of that yet: the MDT took note of
/// it, and hears that it is over.
#[test]
fn what_was_closed_before_this_mount_knew_of_others_is_not_open_for_them() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.has_lines = false;
    cluster.sessions_live(Duration::from_secs(5));
    let a = cluster.mount();
    let fids = ["closed", "kept"].map(|name| make(&a, name, b"some"));
    let mdt = Arc::new(Withholding {
        mdt: cluster.mdt_service(),
        call: Mutex::new(Some(KeepAlive::CALL)),
        changed: Condvar::new(),
        has_met: AtomicBool::new(false),
    });
    cluster.hub.add(MDT, mdt.clone());
    let b = std::thread::scope(|scope| {
        let coming = scope.spawn(|| cluster.mount());
        wait_until("somebody asks to come in", || cluster.mdt.as_ref().expect("runs").0.is_sharing());
        assert!(!a.is_shared(), "it has not heard");
        let [closed, kept] = fids.map(|fid| a.open(fid, OpenFlags::read_only()).expect("open").0);
        a.release(closed);
        *mdt.call.lock() = None;
        mdt.changed.notify_all();
        let b = coming.join().expect("it came in");
        assert!(a.is_shared());
        for name in [&b"closed"[..], b"kept"] {
            b.unlink(Fid::ROOT, name, &Cred::root()).expect("unlink");
        }
        wait_until("nobody has it open", || is_gone(&cluster, fids[0]));
        assert_eq!(read(&a, kept, 0, 10).expect("it is open"), b"some");
        a.release(kept);
        wait_until("its last close ends it", || is_gone(&cluster, fids[1]));
        b
    });
    drop(b);
    cluster.hub.add(MDT, cluster.mdt_service());
}

/// The MDT, which carries the first request of a call out at once, and answers when it is let go.
struct Slow {
    mdt: Arc<dyn Service>,
    call: u16,
    is_done: AtomicBool,
    is_let_go: Mutex<bool>,
    changed: Condvar,
}

impl Slow {
    fn new(cluster: &Cluster, call: u16) -> Slow {
        let mdt = cluster.mdt_service();
        Slow { mdt, call, is_done: false.into(), is_let_go: false.into(), changed: Condvar::new() }
    }
    fn before(cluster: &Cluster, call: u16) -> Arc<Slow> {
        let slow = Arc::new(Slow::new(cluster, call));
        cluster.hub.add(MDT, slow.clone());
        slow
    }
    fn await_it(&self) {
        wait_until("it is carried out", || self.is_done.load(Ordering::SeqCst));
    }
    fn let_go(&self) {
        *self.is_let_go.lock() = true;
        self.changed.notify_all();
    }
}

impl Service for Slow {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.mdt.serve(head, body, bulk, answer);
        if head.call == self.call && !self.is_done.swap(true, Ordering::SeqCst) {
            self.changed.wait_while(&mut self.is_let_go.lock(), |is_let_go| !*is_let_go);
        }
    }
}

/// client-H4: the MDT stops and starts in order, which keeps its incarnation, between its word that it is somebody's turn and when he hears that. What
/// he said he holds did not have it, so he asks again: nobody else is let in while he writes.
#[test]
fn h4_a_turn_that_was_given_before_a_clean_restart_is_asked_for_again() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
    cluster.sessions_live(Duration::from_secs(5));
    let (a, b) = (cluster.mount(), cluster.mount());
    let fid = make(&a, "f", b"some");
    let h = a.open(fid, OpenFlags::read_write()).expect("open").0;
    // The lease goes to the other client, so that the write asks for it.
    let read_only = b.open(fid, OpenFlags::read_only()).expect("open").0;
    assert_eq!(read(&b, read_only, 0, 9).expect("read"), b"some");
    let ost =
        Arc::new(Slow { mdt: cluster.process(ost_target(0)), ..Slow::new(&cluster, object::Write::CALL) });
    cluster.hub.add(ost_target(0), ost.clone());
    let slow = Slow::before(&cluster, Enter::CALL);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| a.write(h, 0, b"more"));
        slow.await_it();
        cluster.restart_mdt_cleanly();
        // Both have said what they hold.
        b.mkdir(Fid::ROOT, b"d", 0o755, &Cred::root()).expect("mkdir");
        slow.let_go();
        ost.await_it();
        let (token, floor, kind, write, now, held) =
            (1 << 40, 0, wire::shared::LeaseKind::Exclusive, true, Time::new(9, 0), None);
        let enter = Enter { fid, token, floor, kind, write, now, held };
        let head = Header { fs: types::FsId(1), target: MDT, session: b.session(), ..Header::default() };
        let soon = std::time::Instant::now() + Duration::from_secs(10);
        let said = net::rpc::call(&*cluster.peer(MDT), head, &enter, &[], &mut types::Buf::new(), soon);
        assert!(said.expect("answered").2.expect("it is asked").granted.is_none(), "the first writes");
        ost.let_go();
        writing.join().expect("no panic").expect("written");
    });
}

/// The MDT, to which the first request of a call comes late: when it is let go.
struct Late(Slow);

impl Service for Late {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let Slow { mdt, call, is_done: has_come, is_let_go, changed } = &self.0;
        let is_late = head.call == *call && !has_come.swap(true, Ordering::SeqCst);
        if is_late {
            changed.wait_while(&mut is_let_go.lock(), |is_let_go| !*is_let_go);
        }
        mdt.serve(head, body, bulk, answer);
        if is_late {
            // It has been carried out, or not: that is what they wait for.
            *is_let_go.lock() = false;
            changed.notify_all();
        }
    }
}

/// client-H8 [S-unlinked-open]: what tells that a file was closed is given up, the file is opened anew, and then it comes: the file is open.
#[test]
fn h8_a_close_that_comes_late_does_not_end_a_later_open() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.sessions_live(Duration::from_secs(5));
    let (a, b) = (cluster.mount(), cluster.mount());
    let late = Arc::new(Late(Slow::new(&cluster, Close::CALL)));
    cluster.hub.add(MDT, late.clone());
    let fid = make(&a, "f", b"some");
    late.0.await_it();
    // As soon as it is given up.
    let h = a.open(fid, OpenFlags::read_only()).expect("open").0;
    late.0.let_go();
    wait_until("it was carried out, or not", || !*late.0.is_let_go.lock());
    b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
    assert_eq!(read(&a, h, 0, 10).expect("it is open"), b"some");
    a.release(h);
    wait_until("its last close ends it", || is_gone(&cluster, fid));
    cluster.hub.add(MDT, cluster.mdt_service());
}

/// client-H7 [S-unlinked-open]: the MDT carries it out while this mount is alone, another one comes in, and then comes the answer.
fn what_is_made_while_another_comes_in_outlives_its_name(
    call: u16,
    make: impl Fn(&Fs) -> (Attr, Handle) + Sync,
) {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.sessions_live(Duration::from_secs(5));
    let a = cluster.mount();
    let slow = Slow::before(&cluster, call);
    std::thread::scope(|scope| {
        let making = scope.spawn(|| make(&a));
        slow.await_it();
        let b = cluster.mount();
        assert!(a.is_shared());
        slow.let_go();
        let (attr, h) = making.join().expect("it is made");
        if call == Tmpfile::CALL {
            a.link(attr.fid, Fid::ROOT, b"f", &Cred::root()).expect("a name");
        }
        b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
        a.write(h, 0, b"some").expect("it is open");
        assert_eq!(read(&a, h, 0, 10).expect("read"), b"some");
        a.release(h);
        wait_until("its last close ends it", || is_gone(&cluster, attr.fid));
    });
    cluster.hub.add(MDT, cluster.mdt_service());
}

#[test]
fn h7_a_file_that_is_made_while_another_mount_comes_in_outlives_its_name() {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let make = |fs: &Fs| fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).expect("create");
    what_is_made_while_another_comes_in_outlives_its_name(Create::CALL, make);
}

#[test]
fn h7_a_file_without_a_name_that_is_made_while_another_mount_comes_in_outlives_the_one_it_is_given() {
    let make =
        |fs: &Fs| fs.tmpfile(Fid::ROOT, 0o644, OpenFlags::read_write(), &Cred::root()).expect("tmpfile");
    what_is_made_while_another_comes_in_outlives_its_name(Tmpfile::CALL, make);
}

/// client-H7: the MDT is killed before it answers, and another mount takes the file away before this one asks again: it was made, and then removed.
/// (Its maker cannot have said that it holds what it had not heard of.)
#[test]
fn h7_who_makes_a_file_that_is_gone_before_the_answer_has_made_it() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.sessions_live(Duration::from_secs(5));
    let (a, b) = (cluster.mount(), cluster.mount());
    let slow = Slow::before(&cluster, Create::CALL);
    let create = || a.create(Fid::ROOT, b"f", 0o644, OpenFlags::read_write(), &Cred::root());
    std::thread::scope(|scope| {
        let making = scope.spawn(create);
        slow.await_it();
        cluster.crash_mdt(Crash::KeepAll);
        // Both say what they hold before anything is changed.
        b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
        slow.let_go();
        let (made, h) = making.join().expect("no panic").expect("it was made");
        // The kernel asks for its attributes before its `open` returns. With `ESTALE` it would make the file once more.
        assert_eq!(a.getattr(made.fid).expect("it is open").nlink, 0);
        assert_eq!(a.write(h, 0, b"some").expect_err("it is gone").code, Code::Stale);
        assert_eq!(a.lookup(Fid::ROOT, b"f").expect_err("it is made once").code, Code::NotFound);
    });
    let (_, h) = create().expect("once more");
    a.write(h, 0, b"some").expect("it is there");
}

/// [S-unlinked-open] A mount has a file open since others were here, is alone again, opens it once more when another one is about to come
/// in, and closes it: the MDT took note of the second open, and hears that it is over.
#[test]
fn what_was_open_since_others_were_here_and_is_closed_is_not_open_for_those_that_come() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.has_lines = false;
    cluster.sessions_live(Duration::from_secs(5));
    let (a, b) = (cluster.mount(), cluster.mount());
    let fid = make(&a, "f", b"some");
    let held = a.open(fid, OpenFlags::read_only()).expect("open").0;
    b.shutdown().expect("shutdown");
    drop(b);
    // An MDT that finds one client at its start knows that it is alone.
    cluster.crash_mdt(Crash::KeepAll);
    wait_until("it is alone again", || !a.is_shared());
    let mdt = Arc::new(Withholding {
        mdt: cluster.mdt_service(),
        call: Mutex::new(Some(KeepAlive::CALL)),
        changed: Condvar::new(),
        has_met: AtomicBool::new(false),
    });
    cluster.hub.add(MDT, mdt.clone());
    // An answer that is under way would tell it.
    wait_until("a keep-alive is held", || mdt.has_met.load(Ordering::SeqCst));
    std::thread::scope(|scope| {
        let coming = scope.spawn(|| cluster.mount());
        wait_until("somebody asks to come in", || cluster.mdt.as_ref().expect("runs").0.is_sharing());
        assert!(!a.is_shared(), "it has not heard");
        let again = a.open(fid, OpenFlags::read_only()).expect("open").0;
        [again, held].into_iter().for_each(|h| a.release(h));
        // Some rounds of who tells what is closed.
        std::thread::sleep(Duration::from_millis(400));
        *mdt.call.lock() = None;
        mdt.changed.notify_all();
        let b = coming.join().expect("it came in");
        b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
        wait_until("nobody has it open", || is_gone(&cluster, fid));
    });
    cluster.hub.add(MDT, cluster.mdt_service());
}

/// A file that a dead mount was writing is recovered by the next open for reading, and the late writes are fenced.
#[test]
fn who_opens_for_reading_finishes_what_a_dead_mount_left() {
    let cluster = Cluster::with_inline_max(Wiring::Tcp, 2, 0);
    let data = pattern(7, 400_000);
    let dead = cluster.mount_lazy();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = dead.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).expect("create");
    dead.write(h, 0, &data).expect("write");
    let session = dead.session();
    dead.abort();
    cluster.end_session(session);
    let fs = cluster.mount();
    let (h, attr) = fs.open(attr.fid, OpenFlags::read_only()).expect("open");
    assert_eq!(attr.size, data.len() as u64, "the objects were asked");
    assert!(read(&fs, h, 0, data.len()).expect("read") == data);
}

fn is_gone(cluster: &Cluster, fid: Fid) -> bool {
    let head = Header { fs: types::FsId(1), target: MDT, ..Header::default() };
    let soon = std::time::Instant::now() + Duration::from_secs(10);
    let said = net::rpc::call(&*cluster.peer(MDT), head, &GetAttr { fid }, &[], &mut types::Buf::new(), soon);
    said.expect("answered").2.is_err_and(|fault| fault.code == Code::Stale)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
