//! Two clients of one file system: what one does, the other sees at once.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use client::{Fs, Handle, OpenFlags, SetAttr, Settings};
use common::{Cluster, Wiring, pattern, read};
use disk::Crash;
use net::{Answer, Service};
use types::{Attr, Code, Cred, Fault, Fid, Kind, Seq};
use wire::shared::{Close, Hold};
use wire::{Empty, Header, ReplyHead, Request, Wire};

const MIB: usize = 1 << 20;

/// Two clients over TCP, both with everything that a mount has.
fn two(osts: usize) -> (Cluster, Arc<Fs>, Arc<Fs>) {
    let mut cluster = Cluster::new(Wiring::Tcp, osts);
    cluster.sessions_live(Duration::from_millis(1500));
    let a = cluster.mount();
    let b = cluster.mount();
    assert!(a.is_shared() && b.is_shared());
    (cluster, a, b)
}

fn make(fs: &Fs, name: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect("create");
    (attr.fid, h)
}
fn open(fs: &Fs, fid: Fid) -> Handle {
    fs.open(fid, OpenFlags::read_write()).expect("open").0
}
fn stat(fs: &Fs, name: &str) -> Attr {
    fs.lookup(Fid::ROOT, name.as_bytes()).expect("lookup")
}
fn truncate(fs: &Fs, fid: Fid, size: u64) {
    fs.setattr(fid, &SetAttr { size: Some(size), ..SetAttr::default() }, &Cred::root()).expect("truncate");
}

/// [S-several-mounts]
#[test]
fn bytes_sizes_and_times_are_seen_at_once() {
    let (_cluster, a, b) = two(3);
    let (fid, ha) = make(&a, "f");
    let hb = open(&b, fid);
    // Inline, grown to objects, grown by the other, cut, extended.
    let mut want = Vec::new();
    for (round, len) in [(1, 100), (2, 5000), (3, 200_000), (4, 3 * MIB), (5, 10)] {
        let data = pattern(round, len);
        let (writer, reader, hw, hr) = if round % 2 == 0 { (&b, &a, hb, ha) } else { (&a, &b, ha, hb) };
        let at = want.len();
        writer.write(hw, at as u64, &data).expect("write");
        want.extend_from_slice(&data);
        assert_eq!(stat(reader, "f").size, want.len() as u64, "round {round}");
        assert_eq!(stat(reader, "f").mtime, stat(writer, "f").mtime);
        assert!(read(reader, hr, 0, want.len() + 9).expect("read") == want, "round {round}");
    }
    truncate(&b, fid, 1000);
    want.truncate(1000);
    assert!(read(&a, ha, 0, 2 * MIB).expect("read") == want);
    truncate(&a, fid, 70_000);
    want.resize(70_000, 0);
    assert!(read(&b, hb, 0, 2 * MIB).expect("read") == want);
    b.fsync(hb, false).expect("fsync");
    truncate(&b, fid, 0);
    assert_eq!(read(&a, ha, 0, 10).expect("read"), b"");
    a.write(ha, 0, b"again").expect("write");
    assert_eq!(read(&b, hb, 0, 10).expect("read"), b"again");
}

#[test]
fn what_a_lone_client_had_in_hand_is_there_for_the_one_that_comes() {
    let cluster = Cluster::new(Wiring::Tcp, 2);
    let a = cluster.mount_with(Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() });
    let (fid, ha) = make(&a, "f");
    let data = pattern(7, 2 * MIB + 77);
    a.write(ha, 0, &data).expect("write");
    assert!(!a.is_shared());
    let b = cluster.mount();
    assert_eq!(stat(&b, "f").size, data.len() as u64);
    let hb = open(&b, fid);
    assert!(read(&b, hb, 0, data.len()).expect("read") == data);
    // The handle of before goes on.
    a.write(ha, 5, b"five").expect("write");
    assert_eq!(read(&b, hb, 5, 4).expect("read"), b"five");
    // And when it is alone again.
    b.write(hb, 9, b"nine").expect("write");
    b.release(hb);
    b.shutdown().expect("shutdown");
    assert_eq!(read(&a, ha, 5, 8).expect("read"), b"fivenine");
}

/// The MDT, but for the first `Hold`, which it refuses.
struct RefusesOnce {
    mdt: Arc<dyn Service>,
    has_refused: AtomicBool,
}

impl Service for RefusesOnce {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if head.call == Hold::CALL && !self.has_refused.swap(true, Ordering::SeqCst) {
            let fault = Fault::new(Code::Io, "told to refuse");
            answer.body = wire::encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None);
            return;
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

/// The MDT, but for each `Close` of one file, which it refuses.
struct RefusesToClose {
    mdt: Arc<dyn Service>,
    bad: Fid,
    refused: AtomicU32,
}

impl Service for RefusesToClose {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let is_bad = |close: Close| close.fids.contains(&self.bad);
        if head.call == Close::CALL && Close::from_bytes(body).is_ok_and(is_bad) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let fault = Fault::new(Code::Io, "told to refuse");
            answer.body = wire::encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None);
            return;
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

/// A close that the MDT keeps refusing is retried, and does not delay other closes, whether sent with it, before it or after it.
#[test]
fn a_file_whose_close_is_refused_does_not_hold_up_the_others() {
    let (cluster, a, b) = two(1);
    // Some more than one `Close` takes twice, of which one goes with what is refused.
    let opened: Vec<_> = (0..150).map(|n| make(&a, &format!("f{n}"))).collect();
    let bad = opened[0].0;
    let mdt = Arc::new(RefusesToClose { mdt: cluster.mdt_service(), bad, refused: AtomicU32::new(0) });
    cluster.hub.add(common::MDT, mdt.clone());
    opened.iter().for_each(|(_, h)| a.release(*h));
    wait_until("it is refused", || mdt.refused.load(Ordering::SeqCst) > 0);
    for n in 0..150 {
        b.unlink(Fid::ROOT, format!("f{n}").as_bytes(), &Cred::root()).expect("unlink");
    }
    let gone = || opened.iter().filter(|(fid, _)| common_inode_is_gone(&cluster, *fid)).count();
    wait_until("those that it did not come with are gone", || gone() >= 150 - 64);
    assert!(gone() < 150, "it is held itself");
    cluster.hub.add(common::MDT, cluster.mdt_service());
    wait_until("in the end all are", || gone() == 150);
}

/// The MDT refuses the first client's report of its open files once: the client repeats it, and the new client gets in.
#[test]
fn a_client_comes_in_though_the_first_is_refused_when_it_says_what_it_holds() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let a = cluster.mount();
    let (fid, ha) = make(&a, "f");
    a.write(ha, 0, b"some").expect("write");
    let mdt = Arc::new(RefusesOnce { mdt: cluster.mdt_service(), has_refused: AtomicBool::new(false) });
    cluster.hub.add(common::MDT, mdt.clone());
    let b = cluster.mount();
    assert!(mdt.has_refused.load(Ordering::SeqCst) && a.is_shared());
    b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
    assert_eq!(read(&a, ha, 0, 9).expect("it was said to be open"), b"some");
    a.release(ha);
    wait_until("the file is gone after its last close", || common_inode_is_gone(&cluster, fid));
    cluster.hub.add(common::MDT, cluster.mdt_service());
}

/// A client that writes without a pause does not keep others out, and its own view of the file's size never goes back.
#[test]
fn a_client_comes_in_beside_one_that_writes_on_and_on() {
    let cluster = Cluster::new(Wiring::Tcp, 2);
    let a = cluster.mount_with(Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() });
    let (fid, ha) = make(&a, "f");
    a.write(ha, 0, &pattern(1, 2 * MIB)).expect("write");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers = [0, 1, 2u64].map(|n| {
            let (a, stop) = (&a, &stop);
            s.spawn(move || {
                let mut rng = disk::SplitMix::new(n);
                while !stop.load(Ordering::SeqCst) {
                    let at = rng.next_u64() % (2 * MIB as u64 - 4096);
                    a.write(ha, at, &[n as u8; 4096]).expect("write");
                }
            })
        });
        let looker = s.spawn(|| {
            let mut seen = u64::MAX;
            while !stop.load(Ordering::SeqCst) {
                seen = seen.min(a.getattr(fid).expect("stat").size).min(stat(&a, "f").size);
            }
            seen
        });
        let mounted = cluster.try_mount(cluster.settings());
        stop.store(true, Ordering::SeqCst);
        let seen = looker.join().expect("no panic");
        writers.into_iter().for_each(|w| w.join().expect("no panic"));
        let b = mounted.expect("it is let in");
        assert_eq!(seen, 2 * MIB as u64, "its size never went back");
        assert_eq!(stat(&b, "f").size, 2 * MIB as u64);
        let hb = open(&b, fid);
        assert!(read(&b, hb, 0, 2 * MIB).expect("read") == read(&a, ha, 0, 2 * MIB).expect("read"));
    });
}

/// The unlink is lost with the MDT's power, and replayed before the other client has said that it has the file open.
#[test]
fn an_unlink_that_is_replayed_leaves_the_file_to_who_has_it_open() {
    for _ in 0..4 {
        let (mut cluster, a, b) = two(2);
        let (fid, ha) = make(&a, "f");
        a.write(ha, 0, &pattern(1, MIB)).expect("write");
        a.fsync(ha, false).expect("fsync");
        a.release(ha);
        let hb = b.open(fid, OpenFlags::read_only()).expect("open").0;
        a.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
        cluster.crash_mdt(Crash::DropAll);
        a.lookup(Fid::ROOT, b"f").expect_err("it is gone");
        assert!(read(&b, hb, 0, MIB).expect("it is there still") == pattern(1, MIB));
        b.release(hb);
        wait_until("the file is gone after its last close", || common_inode_is_gone(&cluster, fid));
    }
}

/// It was given up for dead, and comes back with its descriptors.
#[test]
fn what_a_client_has_open_counts_again_when_it_comes_back() {
    let (cluster, a, b) = two(2);
    let (fid, ha) = make(&a, "f");
    a.write(ha, 0, &pattern(1, MIB)).expect("write");
    a.fsync(ha, false).expect("fsync");
    a.release(ha);
    let hb = open(&b, fid);
    cluster.end_session(b.session());
    assert!(read(&b, hb, 0, MIB).expect("read") == pattern(1, MIB));
    // A descriptor that is not used meanwhile.
    let (other, ho) = make(&a, "g");
    a.write(ho, 0, &pattern(2, MIB)).expect("write");
    a.fsync(ho, false).expect("fsync");
    let idle = b.open(other, OpenFlags::read_only()).expect("open").0;
    a.release(ho);
    cluster.end_session(b.session());
    b.lookup(Fid::ROOT, b"nothing").expect_err("no such file");
    // It says so within its next round.
    std::thread::sleep(Duration::from_secs(1));
    a.unlink(Fid::ROOT, b"g", &Cred::root()).expect("unlink");
    std::thread::sleep(Duration::from_millis(600));
    assert!(read(&b, idle, 0, MIB).expect("it is there still") == pattern(2, MIB));
}

#[test]
fn appends_of_two_clients_never_overwrite_each_other() {
    let (_cluster, a, b) = two(2);
    let (fid, ha) = make(&a, "log");
    let hb = open(&b, fid);
    let line = |who: u8, n: usize| {
        let mut line = vec![who; 3000];
        line[1..9].copy_from_slice(&(n as u64).to_le_bytes());
        line
    };
    std::thread::scope(|s| {
        for (fs, h, who) in [(&a, ha, b'a'), (&b, hb, b'b')] {
            s.spawn(move || (0..60).for_each(|n| assert_eq!(fs.append(h, &line(who, n)), Ok(3000))));
        }
    });
    let all = read(&a, ha, 0, MIB).expect("read");
    assert_eq!(all.len(), 2 * 60 * 3000);
    let mut next = [0usize; 2];
    for got in all.chunks(3000) {
        let who = (got[0] == b'b') as usize;
        assert!(got == line(got[0], next[who]), "each line whole, in its writer's order");
        next[who] += 1;
    }
    assert_eq!(next, [60, 60]);
}

/// [S-mmap] "what a cut took does not come back"
#[test]
fn a_mapped_page_does_not_bring_back_what_another_client_cut() {
    let (_cluster, a, b) = two(2);
    for (name, len) in [("in objects", 2 * MIB), ("inline", 9000)] {
        let (fid, ha) = make(&a, name);
        a.write(ha, 0, &vec![1; len]).expect("write");
        // The kernel of `a` has dirty pages of before the cut.
        let page = len as u64 / 2 / 4096 * 4096;
        truncate(&b, fid, page + 100);
        a.write_mapped(ha, page, &[2; 4096]).expect("in part past the end");
        a.write_mapped(ha, page + 4096, &[2; 4096]).expect("past the end");
        assert_eq!(stat(&b, name).size, page + 100);
        truncate(&b, fid, len as u64);
        let mut want = vec![1; page as usize];
        want.resize(page as usize + 100, 2);
        want.resize(len, 0);
        assert!(read(&b, open(&b, fid), 0, len).expect("read") == want, "{name}");
        truncate(&b, fid, 0);
        a.write_mapped(ha, 0, &[2; 4096]).expect("of an empty file");
        assert_eq!(stat(&a, name).size, 0);
    }
}

#[test]
fn what_one_unlinks_the_other_keeps_while_it_is_open() {
    let (cluster, a, b) = two(2);
    let data = pattern(3, MIB);
    let (fid, ha) = make(&a, "f");
    a.write(ha, 0, &data).expect("write");
    let hb = open(&b, fid);
    a.release(ha);
    a.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
    assert_eq!(a.lookup(Fid::ROOT, b"f").unwrap_err().code, Code::NotFound);
    // Longer than any background work of the two takes to let it go wrongly.
    std::thread::sleep(Duration::from_millis(600));
    assert!(read(&b, hb, 0, MIB).expect("read") == data);
    b.write(hb, 0, b"still here").expect("write");
    assert_eq!(b.getattr(fid).expect("stat").nlink, 0);
    b.release(hb);
    let gone = || common_inode_is_gone(&cluster, fid);
    wait_until("the file is gone after its last close", gone);
}

fn common_inode_is_gone(cluster: &Cluster, fid: Fid) -> bool {
    let head = wire::Header { fs: types::FsId(1), target: common::MDT, ..wire::Header::default() };
    let soon = std::time::Instant::now() + Duration::from_secs(10);
    let req = wire::meta::GetAttr { fid };
    let said = net::rpc::call(&*cluster.peer(common::MDT), head, &req, &[], &mut types::Buf::new(), soon);
    said.expect("answered").2.is_err()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn fsync_makes_durable_what_the_other_wrote() {
    let (mut cluster, a, b) = two(3);
    let (fid, ha) = make(&a, "f");
    let data = pattern(5, 2 * MIB);
    a.write(ha, 0, &data).expect("write");
    let hb = open(&b, fid);
    b.fsync(hb, false).expect("fsync");
    a.abort();
    b.abort();
    cluster.lose_power();
    let c = cluster.mount();
    assert_eq!(stat(&c, "f").size, data.len() as u64);
    let hc = open(&c, fid);
    assert!(read(&c, hc, 0, data.len()).expect("read") == data);
}

/// [S-dead-mount]
#[test]
fn a_client_that_dies_in_the_middle_leaves_a_file_that_the_other_uses() {
    let (_cluster, a, b) = two(3);
    let (fid, ha) = make(&a, "f");
    let hb = open(&b, fid);
    let data = pattern(9, 2 * MIB);
    a.write(ha, 0, &data).expect("write");
    a.abort();
    // b goes on, and when the session is over the file is what the objects hold.
    b.write(hb, 10, b"from b").expect("write");
    wait_until("the dead client's session ends", || {
        !b.is_shared() || _cluster.mdt.as_ref().expect("runs").0.sessions().len() == 1
    });
    let mut want = data.clone();
    want[10..16].copy_from_slice(b"from b");
    assert!(read(&b, hb, 0, 3 * MIB).expect("read") == want);
    assert_eq!(stat(&b, "f").size, data.len() as u64);
}

/// [S-dead-mount]
#[test]
fn a_restart_of_the_mdt_loses_no_open_file_and_no_turn() {
    let (mut cluster, a, b) = two(2);
    let (fid, ha) = make(&a, "f");
    let hb = open(&b, fid);
    a.write(ha, 0, &pattern(1, MIB)).expect("write");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (stop, b) = (&stop, &b);
        let appender = s.spawn(move || {
            let mut n = 0;
            // Its OST has room for no more.
            while !stop.load(Ordering::SeqCst) && n < 4000 {
                b.append(hb, &[n as u8; 5000]).expect("append");
                n += 1;
            }
            n
        });
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(200));
            cluster.crash_mdt(Crash::KeepAll);
        }
        a.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
        a.release(ha);
        cluster.crash_mdt(Crash::KeepAll);
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::SeqCst);
        let n: usize = appender.join().expect("no panic");
        let all = read(b, hb, MIB as u64, 64 * MIB).expect("read");
        assert_eq!(all.len(), n * 5000);
        assert!(all.chunks(5000).enumerate().all(|(i, c)| c.iter().all(|x| *x == i as u8)));
    });
}

/// The MDT was told a size that is not flushed, and both have it under shared leases, over a restart.
#[test]
fn a_size_known_under_a_shared_lease_stays_over_a_restart_of_the_mdt() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
    cluster.sessions_live(Duration::from_secs(10));
    let (a, b) = (cluster.mount_lazy(), cluster.mount_lazy());
    let (fid, ha) = make(&a, "f");
    let hb = open(&b, fid);
    a.write(ha, 0, &pattern(1, 100_000)).expect("write");
    assert!(read(&b, hb, 0, MIB).expect("read") == pattern(1, 100_000));
    assert!(read(&a, ha, 0, MIB).expect("read") == pattern(1, 100_000));
    cluster.crash_mdt(Crash::KeepAll);
    for fs in [&a, &b] {
        assert_eq!(fs.getattr(fid).expect("stat").size, 100_000);
        assert_eq!(fs.open(fid, OpenFlags::read_only()).expect("open").1.size, 100_000);
    }
}

#[test]
fn random_calls_of_two_clients_equal_one_array() {
    let seed = std::env::var("STRIA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    random_calls(seed, 3 * MIB, 300_000, false, 1);
    // Inline, until a write goes past that; then emptied.
    random_calls(seed, 70_000, 9000, false, 1);
    // Writes of both between two looks go on under many leases.
    random_calls(seed, 3 * MIB, 300_000, false, 12);
}

/// client-H4: leases that outlive the MDT exclude the other client as before.
#[test]
fn random_calls_of_two_clients_go_on_over_restarts_of_the_mdt() {
    random_calls(12, 3 * MIB, 300_000, true, 1);
    random_calls(13, 3 * MIB, 300_000, true, 12);
}

/// One step in `look_each` looks at the size.
fn random_calls(seed: u64, offset_max: usize, len_max: usize, has_restarts: bool, look_each: u64) {
    let (mut cluster, a, b) = two(3);
    let mut rng = disk::SplitMix::new(seed);
    let (fid, ha) = make(&a, "f");
    let hb = open(&b, fid);
    let mut model: Vec<u8> = Vec::new();
    for step in 0..300u64 {
        let (fs, h) = if rng.next_u64().is_multiple_of(2) { (&a, ha) } else { (&b, hb) };
        let at = (rng.next_u64() % offset_max as u64) as usize;
        let len = 1 + (rng.next_u64() % len_max as u64) as usize;
        match step % 100 {
            49 if has_restarts => cluster.crash_mdt(Crash::KeepAll),
            99 if has_restarts => cluster.restart_mdt_cleanly(),
            _ => {}
        }
        match rng.next_u64() % 8 {
            0..3 => {
                let data = pattern(step, len);
                fs.write(h, at as u64, &data).expect("write");
                if model.len() < at + len {
                    model.resize(at + len, 0);
                }
                model[at..at + len].copy_from_slice(&data);
            }
            3 => {
                let data = pattern(step, len % 9000 + 1);
                fs.append(h, &data).expect("append");
                model.extend_from_slice(&data);
            }
            4 => {
                let size = if rng.next_u64().is_multiple_of(4) { 0 } else { at };
                truncate(fs, fid, size as u64);
                model.resize(size, 0);
            }
            5 => fs.fsync(h, false).expect("fsync"),
            _ => {
                let end = model.len().min(at + len);
                let want = model.get(at..end).unwrap_or_default();
                assert!(
                    read(fs, h, at as u64, len).expect("read") == want,
                    "seed {seed} step {step} at {at} len {len}"
                );
            }
        }
        if step % look_each == 0 {
            assert_eq!(fs.getattr(fid).expect("stat").size, model.len() as u64, "seed {seed} step {step}");
        }
    }
    b.shutdown().expect("shutdown");
    a.shutdown().expect("shutdown");
    let c = cluster.mount();
    let hc = open(&c, fid);
    assert!(read(&c, hc, 0, 8 * MIB).expect("read") == model);
    let report = client::fsck::check(&c, &common::SECRET).expect("check").findings;
    assert!(report.is_empty(), "{report:?}");
}

/// Each knows the stripes that the other has written: the last to close counts them all.
#[test]
fn blocks_are_counted_over_what_both_have_written() {
    let (cluster, a, b) = two(3);
    let (fid, ha) = make(&a, "f");
    a.write(ha, 0, &pattern(1, 200_000)).expect("write");
    let hb = open(&b, fid);
    a.write(ha, 0, &pattern(1, 10)).expect("write");
    b.write(hb, 200_000, &pattern(2, 6 * MIB)).expect("write");
    b.fsync(hb, false).expect("fsync");
    b.release(hb);
    a.write(ha, 0, &pattern(3, 10)).expect("write");
    a.release(ha);
    wait_until("it is settled", || common::inode(&cluster, fid).state == wire::meta::FileState::Settled);
    let attr = stat(&b, "f");
    assert_eq!(attr.size, 200_000 + 6 * MIB as u64);
    assert!(attr.blocks * 512 >= attr.size, "{} blocks", attr.blocks);
}

/// The MDT learns that a file created by put is closed: after the unlink no client holds it.
#[test]
fn a_file_that_was_put_is_open_nowhere() {
    let (_cluster, a, b) = two(1);
    let attr = a.put(Fid::ROOT, b"f", 0o644, b"bytes", &Cred::root()).expect("put");
    assert_eq!(stat(&b, "f").size, 5);
    b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
    // The first tells so soon, if the MDT thought that it still had it.
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while a.getattr(attr.fid).is_ok() {
        assert!(std::time::Instant::now() < until, "it is held");
        std::thread::yield_now();
    }
}

/// One client creates and writes a file, the other writes and removes it: once both have closed it, no client holds it.
#[test]
fn what_both_wrote_and_closed_goes_with_its_name() {
    let (cluster, a, b) = two(1);
    for (name, len) in [("small", 4096), ("large", 200_000)] {
        let (fid, h) = make(&a, name);
        a.write(h, 0, &pattern(1, len)).expect("write");
        a.flush(h).expect("flush");
        a.release(h);
        let h = open(&b, fid);
        b.write(h, 0, &pattern(2, len)).expect("write");
        b.flush(h).expect("flush");
        b.release(h);
        b.unlink(Fid::ROOT, name.as_bytes(), &Cred::root()).expect("unlink");
        wait_until("nobody holds it", || common_inode_is_gone(&cluster, fid));
    }
}

/// mknod(2) makes a file and opens none.
#[test]
fn a_file_that_was_made_and_not_opened_goes_with_its_name() {
    let (cluster, a, b) = two(1);
    let attr = a.mknod(Fid::ROOT, b"f", Kind::File, 0o644, 0, &Cred::root()).expect("mknod");
    b.unlink(Fid::ROOT, b"f", &Cred::root()).expect("unlink");
    wait_until("nobody holds it", || common_inode_is_gone(&cluster, attr.fid));
}

/// [S-several-mounts] A file that another client renames within the directory while it is listed is in the listing, under one name or the
/// other: also if the old name was not reached yet and the new one lies before that place.
#[test]
fn a_listing_misses_no_file_that_is_renamed_meanwhile() {
    const NAMES: usize = 200;
    const PAGE: usize = 32;
    let (_cluster, a, b) = two(1);
    let root = Cred::root();
    let dir = a.mkdir(Fid::ROOT, b"d", 0o755, &root).expect("mkdir").fid;
    for n in 0..NAMES {
        let (_, h) = a
            .create(dir, format!("name{n}").as_bytes(), 0o644, OpenFlags::read_write(), &root)
            .expect("create");
        a.release(h);
    }
    let lister = |pid| client::Lister { pid, uid: 0 };
    let list =
        |pid: u32, from: u64| a.readdir_of(lister(pid), dir, from, PAGE, true, &root).expect("readdir");
    for round in 0..20 {
        // 1. The first names.
        let pid = 1 + round % 3;
        let mut seen = list(pid, 0);
        let reached = seen.last().expect("entries").cookie;
        // 2. The last one goes before them.
        let last = b.readdir(dir, reached, 4096, false).expect("readdir").pop().expect("entries");
        let before = |name: &String| types::hash::cookie(types::hash::h64(name.as_bytes()), 0) < reached;
        let new = (0..).map(|n| format!("new{round}-{n}")).find(before).expect("numbers do not end");
        b.rename(dir, &last.name, dir, new.as_bytes(), 0, &root).expect("rename");
        // Another thread's listing is its own, and sees that.
        let other = list(9, 0);
        assert!(other.iter().any(|item| item.name == new.as_bytes()), "round {round}");
        // 3. The others.
        loop {
            let more = list(pid, seen.last().expect("entries").cookie);
            if more.is_empty() {
                break;
            }
            seen.extend(more);
        }
        let mut names: Vec<_> = seen.iter().map(|item| item.name.clone()).collect();
        assert!(names.contains(&last.name) || names.contains(&new.clone().into_bytes()), "round {round}");
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (NAMES + 2, NAMES + 2), "each once, and the dots");
    }
}

/// A directory of more names than one answer has is listed to its end, and a listing that was given up goes on from its cookie.
#[test]
fn a_listing_goes_on_behind_what_is_kept() {
    const NAMES: usize = 4200;
    let (_cluster, a, b) = two(1);
    let root = Cred::root();
    let dir = a.mkdir(Fid::ROOT, b"d", 0o755, &root).expect("mkdir").fid;
    for n in 0..NAMES {
        a.symlink(dir, format!("name{n}").as_bytes(), b"x", &root).expect("symlink");
    }
    let list = |pid: u32, from: u64| {
        let lister = client::Lister { pid, uid: 0 };
        b.readdir_of(lister, dir, from, 1000, false, &root).expect("readdir")
    };
    let (mut all, mut pid) = (list(1, 0), 1);
    loop {
        let more = list(pid, all.last().expect("entries").cookie);
        if more.is_empty() {
            break;
        }
        all.extend(more);
        // 1. Others list more directories than are kept.
        (100..120).for_each(|other| drop(list(other, 0)));
        // 2. A thread that did not begin it.
        pid += 1;
    }
    assert!(all.windows(2).all(|w| w[0].cookie < w[1].cookie));
    assert_eq!(all.len(), NAMES + 2);
}

/// client-H9, client-CL5: an OST is down, so the first client cannot settle what it wrote. Another client comes in all the same, and sees
/// the size, also after a restart of the MDT.
#[test]
fn h9_a_newcomer_waits_for_no_ost_and_sees_what_is_not_settled() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
    cluster.sessions_live(Duration::from_secs(10));
    let a = cluster.mount_lazy();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = a.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).expect("create");
    a.write(h, 0, &[7; 100_000]).expect("acknowledged, and its size is not told");
    let ost = cluster.process(common::ost_target(0));
    cluster.hub.remove(common::ost_target(0));
    let b = cluster.mount();
    assert!(a.is_shared());
    cluster.crash_mdt(Crash::KeepAll);
    assert_eq!(b.getattr(attr.fid).expect("it is there").size, 100_000);
    cluster.hub.add(common::ost_target(0), ost);
    a.append(h, b"more").expect("append");
    assert_eq!(b.getattr(attr.fid).expect("it is there").size, 100_004);
}
