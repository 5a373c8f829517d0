//! Write-behind: what programs, other mounts and servers see of bytes that `write` has taken over, and of those that are lost.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Fs, Handle, OpenFlags, SetAttr, Settings};
use common::{Cluster, Wiring, ost_target, pattern, read};
use disk::{Crash, SplitMix};
use net::{Answer, Service};
use parking_lot::Mutex;
use types::{Code, Cred, Fault, Fid, Seq, Time};
use wire::object::Write;
use wire::{Empty, Header, ReplyHead, Request, encode_reply};

const STRIPE: usize = 64 << 10;
/// Writes in different blocks are not joined.
const BLOCK: usize = 1 << 20;
const STRIPED: &str = "-c 2 -i 0 -S 64k --inline 0";

/// An OST that keeps writes waiting, or refuses them, while it is told to.
struct Gate {
    inner: Arc<dyn Service>,
    is_shut: AtomicBool,
    /// Writes that wait, and the most at once so far.
    waiting: AtomicUsize,
    most: AtomicUsize,
    writes: AtomicUsize,
    refuses: Mutex<Option<Code>>,
    head: Mutex<Header>,
}

impl Service for Gate {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if head.call == Write::CALL {
            self.writes.fetch_add(1, Ordering::SeqCst);
            let now = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            while self.is_shut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if let Some(code) = *self.refuses.lock() {
                let Header { epoch, incarnation, flags, .. } = *self.head.lock();
                answer.head = Header { epoch, incarnation, flags, ..answer.head };
                let fault = Fault::new(code, "told to refuse");
                answer.body = encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None);
                return;
            }
        }
        self.inner.serve(head, body, bulk, answer);
        *self.head.lock() = answer.head;
    }
}

struct Rig {
    cluster: Cluster,
    osts: [Arc<Gate>; 2],
}

fn rig() -> Rig {
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    cluster.sessions_live(Duration::from_millis(1500));
    let osts = [0, 1].map(|n| gate(&cluster, n));
    Rig { cluster, osts }
}

fn gate(cluster: &Cluster, n: usize) -> Arc<Gate> {
    let gate = Arc::new(Gate {
        inner: cluster.process(ost_target(n)),
        is_shut: AtomicBool::new(false),
        waiting: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        writes: AtomicUsize::new(0),
        refuses: Mutex::new(None),
        head: Mutex::default(),
    });
    cluster.hub.add(ost_target(n), gate.clone());
    gate
}

impl Rig {
    fn shut(&self, is_shut: bool) {
        self.osts.iter().for_each(|ost| ost.is_shut.store(is_shut, Ordering::SeqCst));
    }
    fn refuse(&self, code: Option<Code>) {
        self.osts.iter().for_each(|ost| *ost.refuses.lock() = code);
    }
    fn sum(&self, of: impl Fn(&Gate) -> &AtomicUsize) -> usize {
        self.osts.iter().map(|ost| of(ost).load(Ordering::SeqCst)).sum()
    }
    fn await_waiting(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.sum(|ost| &ost.waiting) < count {
            assert!(Instant::now() < until, "{count} writes should be on their way");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An open file with objects, whose OSTs keep space for the mount.
fn make(fs: &Fs, name: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let root = Cred::root();
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &root).unwrap();
    fs.setxattr(attr.fid, b"stria.layout", STRIPED.as_bytes(), 0, &root).unwrap();
    // The first write gives it a layout, and the next one asks for the grants.
    let data = vec![7; 2 * STRIPE];
    fs.write_cached(h, 0, &data).unwrap();
    fs.write_cached(h, 0, &data).unwrap();
    fs.flush(h).unwrap();
    (attr.fid, h)
}

fn seen(fs: &Fs, fid: Fid) -> Vec<u8> {
    let (h, attr) = fs.open(fid, OpenFlags::read_only()).unwrap();
    let bytes = read(fs, h, 0, attr.size as usize + 10).unwrap();
    fs.release(h);
    bytes
}

/// [S-write-behind] Programs go on while OSTs write, and the file is as they wrote it for every call that looks.
#[test]
fn a_write_returns_before_its_osts_have_it_and_calls_that_look_wait() {
    let rig = rig();
    let fs = rig.cluster.mount();
    let (fid, h) = make(&fs, "f");
    let mut data = vec![7; 2 * STRIPE];
    data.resize(4 * BLOCK + STRIPE, 0);
    rig.shut(true);
    for n in 0..5 {
        let part = pattern(n as u64, STRIPE);
        assert_eq!(fs.write_cached(h, (n * BLOCK) as u64, &part), Ok(STRIPE));
        data[n * BLOCK..][..STRIPE].copy_from_slice(&part);
    }
    rig.await_waiting(2);
    assert_eq!(fs.size_known(fid), Some(data.len() as u64));
    // client-WB1: attributes show within a moment what programs know; all else waits.
    assert_eq!(fs.getattr(fid).unwrap().size, data.len() as u64);
    let looks = AtomicUsize::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(read(&fs, h, 0, data.len()).unwrap() == data);
            looks.fetch_add(1, Ordering::SeqCst);
        });
        s.spawn(|| {
            fs.fsync(h, true).unwrap();
            looks.fetch_add(1, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(looks.load(Ordering::SeqCst), 0, "no look ends before the writes have");
        rig.shut(false);
    });
    assert!(rig.sum(|ost| &ost.most) >= 2, "several were under way");
    fs.release(h);
    fs.shutdown().unwrap();
    let again = rig.cluster.mount();
    assert!(seen(&again, fid) == data);
}

/// client-WB6: also the start of a server can close files, and it must not wait for itself.
#[test]
fn close_returns_while_no_write_ends_and_the_data_arrive_later() {
    let rig = rig();
    let fs = rig.cluster.mount();
    let (fid, h) = make(&fs, "f");
    let data = pattern(1, 2 * STRIPE);
    // While they end, it waits.
    rig.shut(true);
    fs.write_cached(h, 0, &data).unwrap();
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            fs.flush(h).unwrap();
            is_closed.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_closed.load(Ordering::SeqCst));
        rig.shut(false);
    });
    assert_eq!(fs.size_known(fid), Some(data.len() as u64));
    rig.shut(true);
    fs.write_cached(h, 0, &data).unwrap();
    fs.write_cached(h, BLOCK as u64, &data).unwrap();
    fs.flush(h).unwrap();
    fs.release(h);
    assert!(rig.sum(|ost| &ost.waiting) > 0, "the OSTs have not written");
    rig.shut(false);
    fs.shutdown().unwrap();
    let seen = seen(&rig.cluster.mount(), fid);
    assert!(seen[..data.len()] == data && seen[BLOCK..] == data);
}

/// client-WB2.
#[test]
fn the_later_of_two_overlapping_writes_stays() {
    let rig = rig();
    let fs = rig.cluster.mount();
    let (_, h) = make(&fs, "f");
    for round in 0..20 {
        let (first, second) = (vec![2 * round; STRIPE], vec![2 * round + 1; STRIPE / 2]);
        rig.shut(true);
        fs.write_cached(h, 0, &first).unwrap();
        std::thread::scope(|s| {
            let later = s.spawn(|| fs.write_cached(h, STRIPE as u64 / 4, &second));
            std::thread::sleep(Duration::from_millis(5));
            rig.shut(false);
            later.join().unwrap().unwrap();
        });
        let got = read(&fs, h, 0, STRIPE).unwrap();
        assert!(got[..STRIPE / 4] == first[..STRIPE / 4]);
        assert!(got[STRIPE / 4..3 * STRIPE / 4] == second[..], "round {round}");
    }
}

/// client-WB3: another mount never sees the file without a write that has returned.
#[test]
fn another_mount_sees_each_write_that_has_returned() {
    let rig = rig();
    let (a, b) = (rig.cluster.mount(), rig.cluster.mount());
    let (fid, h) = make(&a, "f");
    for round in 1..12u8 {
        // The lease is the writer's again.
        let data = vec![round; 4 * STRIPE];
        rig.shut(round % 2 == 0);
        a.write_cached(h, 0, &data[..2 * STRIPE]).unwrap();
        a.write_cached(h, 2 * STRIPE as u64, &data[2 * STRIPE..]).unwrap();
        std::thread::scope(|s| {
            let other = s.spawn(|| seen(&b, fid));
            std::thread::sleep(Duration::from_millis(20));
            rig.shut(false);
            assert!(other.join().unwrap() == data, "round {round}");
        });
    }
}

/// client-WB4: a full OST refuses the write itself, so nothing that `write` took over is lost.
#[test]
fn a_full_ost_refuses_the_write_and_loses_none_before() {
    let rig = rig();
    let fs =
        rig.cluster.mount_with(Settings { op_timeout: Duration::from_secs(30), ..rig.cluster.settings() });
    let (fid, h) = make(&fs, "f");
    let part = pattern(3, STRIPE);
    let mut count = 0;
    let fault = loop {
        match fs.write_cached(h, (count * STRIPE) as u64, &part) {
            Ok(n) => assert_eq!(n, STRIPE),
            Err(fault) => break fault,
        }
        count += 1;
        assert!(count < 2000, "the OSTs have 64 MiB");
    };
    assert_eq!(fault.code, Code::NoSpace, "{fault}");
    assert!(count > 300, "{count}");
    fs.flush(h).unwrap();
    fs.fsync(h, true).unwrap();
    for n in 0..count {
        assert!(read(&fs, h, (n * STRIPE) as u64, STRIPE).unwrap() == part, "{n} of {count}");
    }
    assert_eq!(fs.getattr(fid).unwrap().size, (count * STRIPE) as u64);
}

/// client-WB5.
#[test]
fn a_write_that_fails_later_is_told_by_fsync_close_and_the_next_write() {
    for code in [Code::NoSpace, Code::Io] {
        let rig = rig();
        let fs = rig.cluster.mount();
        let (fid, h) = make(&fs, "f");
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = dropped.clone();
        fs.on_recall(Box::new(move |of, _| _ = count.fetch_add((of == fid) as usize, Ordering::SeqCst)));
        rig.shut(true);
        fs.write_cached(h, 0, &vec![1; STRIPE]).unwrap();
        rig.await_waiting(1);
        rig.refuse(Some(code));
        rig.shut(false);
        assert_eq!(fs.flush(h).unwrap_err().code, code);
        rig.refuse(None);
        assert_eq!(fs.fsync(h, true).unwrap_err().code, code);
        assert_eq!(fs.write_cached(h, 0, b"x").unwrap_err().code, code);
        fs.release(h);
        // Once no program has it open, it is what the servers have, and not what the kernel's pages have.
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let (other, _) = fs.open(fid, OpenFlags::read_only()).unwrap();
            let got = read(&fs, other, 0, 3 * STRIPE);
            fs.release(other);
            match got {
                Ok(bytes) => {
                    let first = bytes.iter().position(|b| *b != 7);
                    break assert_eq!((bytes.len(), first), (2 * STRIPE, None), "{code:?}");
                }
                // It leaves the table at the end of a round of updates.
                Err(fault) => assert!(fault.code == code && Instant::now() < until, "{fault}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // A sender has them dropped after it let the calls go on that waited for it.
        while dropped.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until, "the kernel should drop its pages");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An OST dies with writes under way, and comes back: they are sent again.
#[test]
fn an_ost_that_dies_and_comes_back_gets_what_was_behind() {
    let mut rig = rig();
    let fs = rig.cluster.mount();
    let (_, h) = make(&fs, "f");
    let mut data = vec![7; 2 * STRIPE];
    data.resize(4 * BLOCK + STRIPE, 0);
    rig.shut(true);
    for n in 0..5 {
        let part = pattern(n as u64, STRIPE);
        fs.write_cached(h, (n * BLOCK) as u64, &part).unwrap();
        data[n * BLOCK..][..STRIPE].copy_from_slice(&part);
    }
    rig.await_waiting(2);
    let images = [0, 1].map(|n| rig.cluster.stop_ost(n, Crash::DropAll));
    rig.shut(false);
    for (n, image) in images.into_iter().enumerate() {
        rig.cluster.restart_ost(n, image);
    }
    fs.fsync(h, true).unwrap();
    assert!(read(&fs, h, 0, data.len()).unwrap() == data);
    // Nor is it lost by a power loss now.
    fs.release(h);
    fs.shutdown().unwrap();
    rig.cluster.lose_power();
    let again = rig.cluster.mount();
    let fid = again.lookup(Fid::ROOT, b"f").unwrap().fid;
    assert!(seen(&again, fid) == data);
}

/// A time that a user sets after a write stays, and a new capability does not lose a write.
#[test]
fn times_and_opens_come_after_the_writes_behind() {
    let rig = rig();
    let fs = rig.cluster.mount();
    let (fid, h) = make(&fs, "f");
    let mtime = Time::new(1000, 5);
    rig.shut(true);
    fs.write_cached(h, 0, &vec![1; STRIPE]).unwrap();
    rig.await_waiting(1);
    std::thread::scope(|s| {
        let set =
            s.spawn(|| fs.setattr(fid, &SetAttr { mtime: Some(mtime), ..SetAttr::default() }, &Cred::root()));
        // Another descriptor: its capability replaces the one that the write has.
        let opened = s.spawn(|| fs.open(fid, OpenFlags::read_write()));
        std::thread::sleep(Duration::from_millis(30));
        rig.shut(false);
        set.join().unwrap().unwrap();
        let (other, _) = opened.join().unwrap().unwrap();
        fs.flush(other).unwrap();
        fs.release(other);
    });
    fs.flush(h).unwrap();
    assert_eq!(fs.getattr(fid).unwrap().mtime, mtime);
    fs.release(h);
    fs.shutdown().unwrap();
    let again = rig.cluster.mount();
    let attr = again.lookup(Fid::ROOT, b"f").unwrap();
    assert_eq!((attr.mtime, attr.size), (mtime, 2 * STRIPE as u64));
}

/// Small writes that follow one another while one is under way are sent together.
#[test]
fn small_writes_are_joined() {
    let rig = rig();
    let fs = rig.cluster.mount();
    let (_, h) = make(&fs, "f");
    let before = rig.sum(|ost| &ost.writes);
    let data = pattern(4, STRIPE);
    rig.shut(true);
    for n in 0..STRIPE / 512 {
        fs.write_cached(h, (n * 512) as u64, &data[n * 512..][..512]).unwrap();
    }
    rig.shut(false);
    fs.flush(h).unwrap();
    assert!(rig.sum(|ost| &ost.writes) - before <= 3, "two requests have the 128 writes");
    assert!(read(&fs, h, 0, STRIPE).unwrap() == data);
}

/// A client that is given up loses what it had not sent, and only that. Other clients go on with the file.
#[test]
fn a_client_that_is_given_up_leaves_the_file_usable() {
    let rig = rig();
    let a = rig.cluster.mount();
    let (fid, h) = make(&a, "f");
    a.fsync(h, true).unwrap();
    rig.shut(true);
    a.write_cached(h, 0, &vec![1; STRIPE]).unwrap();
    a.write_cached(h, 4 * STRIPE as u64, &vec![2; STRIPE]).unwrap();
    a.abort();
    drop(a);
    rig.shut(false);
    let b = rig.cluster.mount();
    let bytes = seen(&b, fid);
    for (n, page) in bytes.chunks(4096).enumerate() {
        assert!([0, 1, 2, 7].contains(&page[0]) && page.iter().all(|b| *b == page[0]), "page {n}");
    }
    let (other, _) = b.open(fid, OpenFlags::read_write()).unwrap();
    b.write_cached(other, 0, &vec![9; STRIPE]).unwrap();
    b.fsync(other, true).unwrap();
    assert_eq!(read(&b, other, 0, STRIPE).unwrap(), vec![9; STRIPE]);
}

/// Calls of all kinds by two mounts: the file is always as a model says. A third of the writes go behind.
#[test]
fn random_calls_of_two_mounts_see_what_a_model_says() {
    let seeds = std::env::var("STRIA_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        let rig = rig();
        let mut rng = SplitMix::new(seed);
        let mounts = [rig.cluster.mount(), rig.cluster.mount()];
        let (fid, first) = make(&mounts[0], "f");
        let (second, _) = mounts[1].open(fid, OpenFlags::read_write()).unwrap();
        let handles = [first, second];
        let mut model = vec![7u8; 2 * STRIPE];
        for step in 0..300u32 {
            // Mostly the same mount, so that it keeps the lease for a while.
            let at = (rng.below(8) == 0) as usize;
            let (fs, h) = (&mounts[at], handles[at]);
            let (offset, len) = (rng.below(5 * STRIPE as u64), 1 + rng.below(STRIPE as u64) as usize);
            let what = rng.below(12);
            let say =
                |what: &str| format!("seed {seed}, step {step}: {what} of mount {at}, {len} at {offset}");
            match what {
                0..=4 => {
                    let data = vec![step as u8; len];
                    let end = offset as usize + len;
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&data);
                    assert_eq!(fs.write_cached(h, offset, &data), Ok(len), "{}", say("write"));
                }
                5 => {
                    let data = vec![step as u8; len];
                    let end = offset as usize + len;
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&data);
                    assert_eq!(fs.write(h, offset, &data), Ok(len), "{}", say("direct write"));
                }
                6 => {
                    let data = vec![step as u8; len.min(3000)];
                    model.extend(&data);
                    assert_eq!(fs.append(h, &data), Ok(data.len()), "{}", say("append"));
                    model.truncate(9 * STRIPE);
                    let size = SetAttr { size: Some(model.len() as u64), ..SetAttr::default() };
                    fs.setattr(fid, &size, &Cred::root()).unwrap();
                }
                7 => {
                    model.resize(offset as usize, 0);
                    let size = SetAttr { size: Some(offset), ..SetAttr::default() };
                    fs.setattr(fid, &size, &Cred::root()).unwrap();
                }
                8 => fs.fsync(h, true).unwrap(),
                9 => assert_eq!(fs.getattr(fid).unwrap().size, model.len() as u64, "{}", say("stat")),
                _ => {
                    let got = read(fs, h, offset, len).unwrap();
                    let end = model.len().min(offset as usize + len);
                    let want = &model[model.len().min(offset as usize)..end];
                    assert!(got == want, "{}: {} bytes, {} expected", say("read"), got.len(), want.len());
                }
            }
        }
        for (fs, h) in mounts.iter().zip(handles) {
            assert!(read(fs, h, 0, model.len() + 10).unwrap() == model, "seed {seed}: at the end");
            fs.release(h);
            fs.shutdown().unwrap();
        }
    }
}
