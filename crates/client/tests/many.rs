//! Several clients write one file at once, under many leases (client-CL8, mds-Y7, decision 0055).

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Fs, Handle, OpenFlags, SetAttr, Settings};
use common::{Cluster, MDT, Wiring, pattern, read};
use disk::{Crash, SplitMix};
use net::{Answer, Service};
use types::{Code, Cred, Fid};
use wire::meta::CALLS;
use wire::shared::{Enter, EnterReply, LeaseKind};
use wire::{Header, Request};

const MIB: usize = 1 << 20;
/// The transfer of IO500's hard pattern.
const HARD: usize = 47_008;

/// The MDT, with the names of what it was asked.
struct Heard {
    mdt: Arc<dyn Service>,
    calls: Mutex<Vec<&'static str>>,
    /// Many leases that it granted.
    many: Arc<AtomicU64>,
}

impl Heard {
    fn over(cluster: &Cluster) -> Arc<Heard> {
        Heard::with(cluster, Arc::default())
    }

    fn with(cluster: &Cluster, many: Arc<AtomicU64>) -> Arc<Heard> {
        let heard = Arc::new(Heard { mdt: cluster.process(MDT), calls: Mutex::default(), many });
        cluster.hub.add(MDT, heard.clone());
        heard
    }

    /// Requests since the last call, but for those that come once for each target or on their own.
    fn take(&self) -> Vec<&'static str> {
        let mut calls = std::mem::take(&mut *self.calls.lock().unwrap());
        calls.retain(|call| !["CatchUp", "Hold"].contains(call));
        calls.sort_unstable();
        calls
    }
}

impl Service for Heard {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let mut lists = [CALLS, wire::shared::CALLS].into_iter().flatten();
        if let Some((_, name)) = lists.find(|(call, _)| *call == head.call) {
            self.calls.lock().unwrap().push(name);
        }
        self.mdt.serve(head, body, bulk, answer);
        if head.call == Enter::CALL
            && let Ok((_, Ok(reply))) = wire::decode_reply::<EnterReply>(&answer.body)
            && reply.granted == Some(LeaseKind::Many)
        {
            self.many.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Two clients that settle nothing by themselves; files have objects from the first byte.
fn two(wiring: Wiring, osts: usize) -> (Cluster, Arc<Fs>, Arc<Fs>) {
    let mut cluster = Cluster::with_inline_max(wiring, osts, 0);
    cluster.sessions_live(Duration::from_millis(1500));
    let settings = || Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() };
    let (a, b) = (cluster.mount_with(settings()), cluster.mount_with(settings()));
    assert!(a.is_shared() && b.is_shared());
    (cluster, a, b)
}

/// A file that both have open.
fn shared_file(a: &Fs, b: &Fs) -> (Fid, Handle, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, ha) = a.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
    let hb = b.open(attr.fid, OpenFlags::read_write()).unwrap().0;
    (attr.fid, ha, hb)
}

fn write_at(model: &mut Vec<u8>, at: usize, data: &[u8]) {
    if model.len() < at + data.len() {
        model.resize(at + data.len(), 0);
    }
    model[at..at + data.len()].copy_from_slice(data);
}

/// From the second write of each on, neither asks the MDT, though both write and read back.
#[test]
fn two_writers_of_one_file_ask_the_mdt_nothing() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let (cluster, a, b) = two(wiring, 2);
        let heard = Heard::over(&cluster);
        let (fid, ha, hb) = shared_file(&a, &b);
        let mut model = Vec::new();
        for (n, len) in [(0, MIB), (1, HARD)] {
            let base = model.len();
            for round in 0..4usize {
                for (who, (fs, h)) in [(&a, ha), (&b, hb)].into_iter().enumerate() {
                    let at = base + (2 * round + who) * len;
                    let data = pattern((n * 100 + 2 * round + who) as u64, len);
                    assert_eq!(fs.write(h, at as u64, &data).unwrap(), len);
                    write_at(&mut model, at, &data);
                    assert!(read(fs, h, at as u64, len).unwrap() == data, "its own bytes");
                }
                if (n, round) == (0, 1) {
                    heard.take();
                }
            }
            assert_eq!(heard.take(), [""; 0], "{wiring:?}");
        }
        // The size is told when it is asked for.
        assert_eq!(a.getattr(fid).unwrap().size, model.len() as u64);
        assert_eq!(heard.take(), ["Enter", "GetAttr", "Leave", "Leave", "Settle", "Settle"], "{wiring:?}");
        for (fs, h) in [(&a, ha), (&b, hb)] {
            assert!(read(fs, h, 0, model.len() + 1).unwrap() == model);
            assert_eq!(fs.getattr(fid).unwrap().size, model.len() as u64);
        }
    }
}

/// mds-Y7: a client that writes alone again has the exclusive lease, under which it appends and grows the file by itself.
#[test]
fn a_writer_that_is_left_alone_is_exclusive_again() {
    let (cluster, a, b) = two(Wiring::Tcp, 1);
    let heard = Heard::over(&cluster);
    let (fid, ha, hb) = shared_file(&a, &b);
    for round in 0..3u64 {
        a.write(ha, round * 8192, &[1; 4096]).unwrap();
        b.write(hb, round * 8192 + 4096, &[2; 4096]).unwrap();
    }
    let many = heard.many.load(Ordering::SeqCst);
    assert!(many >= 2, "{many} many leases");
    b.release(hb);
    a.append(ha, b"end").unwrap();
    heard.take();
    for round in 0..20 {
        a.append(ha, b"more").unwrap();
        a.write(ha, round * 100, b"x").unwrap();
        assert_eq!(a.getattr(fid).unwrap().size, 6 * 4096 + 3 + 4 * (round + 1));
    }
    assert!(heard.take().iter().all(|call| ["GetAttr", "Close"].contains(call)));
    assert_eq!(heard.many.load(Ordering::SeqCst), many);
}

/// Each tells what its own writes added to the file's size and blocks.
#[test]
fn size_times_and_blocks_are_those_of_all_writers() {
    let (_cluster, a, b) = two(Wiring::Tcp, 2);
    let (fid, ha, hb) = shared_file(&a, &b);
    let mut before = a.getattr(fid).unwrap();
    for round in 0..4u64 {
        for n in 0..4 {
            let at = (round * 8 + n * 2) * 65_536;
            a.write(ha, at, &[1; 65_536]).unwrap();
            b.write(hb, at + 65_536, &[2; 65_536]).unwrap();
        }
        let bytes = (round + 1) * 8 * 65_536;
        for fs in [&a, &b] {
            let attr = fs.getattr(fid).unwrap();
            assert_eq!((attr.size, attr.blocks * 512), (bytes, bytes), "round {round}");
            assert!(attr.mtime >= before.mtime && attr.ctime >= before.ctime);
            before = attr;
        }
    }
    a.fsync(ha, false).unwrap();
    assert_eq!(b.getattr(fid).unwrap().blocks * 512, 32 * 65_536);
}

/// [S-dead-mount] One of two writers dies. What it had acknowledged is in the file, and the other goes on.
#[test]
fn what_a_killed_writer_had_acknowledged_is_in_the_file() {
    let (cluster, a, b) = two(Wiring::Tcp, 2);
    let heard = Heard::over(&cluster);
    let (fid, ha, hb) = shared_file(&a, &b);
    let mut model = Vec::new();
    for n in 0..6u64 {
        let (fs, h) = if n.is_multiple_of(2) { (&a, ha) } else { (&b, hb) };
        // The last byte is the dead one's, which told nobody of it.
        let at = if n == 4 { 3 * MIB } else { n as usize * HARD };
        let data = pattern(n, HARD);
        fs.write(h, at as u64, &data).unwrap();
        write_at(&mut model, at, &data);
    }
    assert!(heard.many.load(Ordering::SeqCst) >= 2);
    a.abort();
    b.write(hb, 20_000, b"goes on").unwrap();
    write_at(&mut model, 20_000, b"goes on");
    let c = cluster.mount();
    assert_eq!(c.getattr(fid).unwrap().size, model.len() as u64);
    assert!(read(&b, hb, 0, 4 * MIB).unwrap() == model);
    let hc = c.open(fid, OpenFlags::read_only()).unwrap().0;
    assert!(read(&c, hc, 0, 4 * MIB).unwrap() == model);
}

/// The writer that lives goes on under its lease after the other was evicted, settles what it knows, and that hides nothing of the dead one.
#[test]
fn what_one_writer_settles_does_not_hide_what_a_dead_one_wrote() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 2, 0);
    cluster.sessions_live(Duration::from_millis(1500));
    let a = cluster.mount_lazy();
    let b = cluster.mount_with(Settings { commit_interval: Duration::from_millis(20), ..cluster.settings() });
    let (fid, ha, hb) = shared_file(&a, &b);
    for n in 0..4u64 {
        b.write(hb, n * 8192, &[2; 4096]).unwrap();
        a.write(ha, 2 * MIB as u64 + n * 8192, &[1; 4096]).unwrap();
    }
    a.abort();
    let sessions = || cluster.mdt.as_ref().unwrap().0.sessions().len();
    let until = Instant::now() + Duration::from_secs(20);
    while sessions() > 1 {
        b.write(hb, 4096, &[3; 4096]).unwrap();
        assert!(Instant::now() < until, "the dead client's session ends");
    }
    b.write(hb, 4096, &[4; 4096]).unwrap();
    b.release(hb);
    let c = cluster.mount();
    let size = 2 * MIB as u64 + 3 * 8192 + 4096;
    assert_eq!(c.getattr(fid).unwrap().size, size);
    let hc = c.open(fid, OpenFlags::read_only()).unwrap().0;
    assert!(read(&c, hc, 4096, 4096).unwrap() == [4; 4096]);
    assert!(read(&c, hc, size - 4096, 5000).unwrap() == [1; 4096]);
}

/// A client that writes beside another and is left alone has what both wrote.
#[test]
fn a_writer_whose_neighbour_unmounts_sees_what_that_one_wrote() {
    let (_cluster, a, b) = two(Wiring::Tcp, 2);
    let (fid, ha, hb) = shared_file(&a, &b);
    for n in 0..3u64 {
        a.write(ha, n * 8192, &[1; 4096]).unwrap();
        b.write(hb, n * 8192 + 4096, &[2; 4096]).unwrap();
    }
    a.write(ha, 0, &[3; 4096]).unwrap();
    b.write(hb, 100_000, &[4; 4096]).unwrap();
    b.release(hb);
    b.shutdown().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while a.is_shared() {
        a.write(ha, 4 * 4096, &[5; 4096]).unwrap();
        assert!(Instant::now() < until, "it is alone again");
    }
    assert_eq!(a.getattr(fid).unwrap().size, 104_096);
    a.append(ha, b"end").unwrap();
    let all = read(&a, ha, 0, MIB).unwrap();
    assert_eq!((all.len(), all[0], all[4096], all[4 * 4096], all[104_095]), (104_099, 3, 2, 5, 4));
}

/// Calls of two clients at once: strided writes under many leases, with cuts, appends, looks, and restarts of servers between.
#[test]
fn random_writes_of_two_clients_at_once_equal_one_array() {
    let seed = std::env::var("STRIA_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let (mut cluster, a, b) = two(Wiring::Tcp, 3);
    let heard = Heard::over(&cluster);
    let (fid, ha, hb) = shared_file(&a, &b);
    let mut rng = SplitMix::new(seed);
    let mut model: Vec<u8> = Vec::new();
    for round in 0..40u64 {
        let len = [4096, HARD, 100_000, MIB][(rng.next_u64() % 4) as usize];
        let base = (rng.next_u64() % MIB as u64) as usize;
        // 1. Both write blocks that are theirs, at the same time.
        std::thread::scope(|scope| {
            for (who, (fs, h)) in [(&a, ha), (&b, hb)].into_iter().enumerate() {
                scope.spawn(move || {
                    for n in 0..4 {
                        let at = base + (2 * n + who) * len;
                        let data = pattern(round * 100 + (2 * n + who) as u64, len);
                        fs.write(h, at as u64, &data).unwrap();
                        assert!(read(fs, h, at as u64, len).unwrap() == data, "seed {seed} round {round}");
                    }
                });
            }
        });
        for n in 0..8 {
            write_at(&mut model, base + n * len, &pattern(round * 100 + n as u64, len));
        }
        // 2. One of them does something else.
        let (fs, h, other, ho) =
            if rng.next_u64().is_multiple_of(2) { (&a, ha, &b, hb) } else { (&b, hb, &a, ha) };
        match rng.next_u64() % 8 {
            0 => {
                let size = (rng.next_u64() % model.len() as u64) as usize;
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                fs.setattr(fid, &set, &Cred::root()).unwrap();
                model.truncate(size);
            }
            1 => {
                fs.append(h, b"appended").unwrap();
                model.extend_from_slice(b"appended");
            }
            2 => fs.fsync(h, false).unwrap(),
            3 => assert_eq!(fs.getattr(fid).unwrap().size, model.len() as u64, "seed {seed} round {round}"),
            4 => {
                let at = (rng.next_u64() % model.len() as u64) as usize;
                assert!(read(fs, h, at as u64, 2 * MIB).unwrap() == model[at..model.len().min(at + 2 * MIB)]);
            }
            5 => {
                cluster.crash_mdt(Crash::KeepAll);
                Heard::with(&cluster, heard.many.clone());
            }
            6 => cluster.crash_ost((rng.next_u64() % 3) as usize, Crash::DropAll),
            _ => {}
        }
        if rng.next_u64().is_multiple_of(4) {
            assert_eq!(other.getattr(fid).unwrap().size, model.len() as u64, "seed {seed} round {round}");
            assert!(read(other, ho, 0, 10 * MIB).unwrap() == model, "seed {seed} round {round}");
        }
    }
    assert!(heard.many.load(Ordering::SeqCst) > 0);
    b.shutdown().unwrap();
    a.shutdown().unwrap();
    let c = cluster.mount();
    let hc = c.open(fid, OpenFlags::read_only()).unwrap().0;
    assert!(read(&c, hc, 0, 16 * MIB).unwrap() == model);
    let report = client::fsck::check(&c, &common::SECRET).unwrap().findings;
    assert!(report.is_empty(), "{report:?}");
}

#[test]
fn a_write_past_the_largest_size_is_refused_beside_another_writer() {
    let (_cluster, a, b) = two(Wiring::Tcp, 1);
    let (_, ha, hb) = shared_file(&a, &b);
    a.write(ha, 0, &[1; 4096]).unwrap();
    b.write(hb, 4096, &[1; 4096]).unwrap();
    assert_eq!(a.write(ha, u64::MAX - 10, b"x").unwrap_err().code, Code::FileTooBig);
    assert_eq!(a.write(ha, types::FILE_SIZE_MAX, b"x").unwrap_err().code, Code::FileTooBig);
}

/// client-W1: two overlapping writes of one client, each over two objects, come one after the other in both.
#[test]
fn w1_writes_over_two_objects_by_one_client_do_not_mix() {
    for count in [1, 2] {
        let cluster = Cluster::with_inline_max(Wiring::Tcp, 2, 0);
        let clients: Vec<_> = (0..count).map(|_| cluster.mount_lazy()).collect();
        let fs = &clients[0];
        fs.setxattr(Fid::ROOT, b"stria.layout", b"-c 2 -S 64k", 0, &Cred::root()).unwrap();
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let (_, h) = fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
        let at = 65_536 - 20_000;
        for round in 0..30u8 {
            std::thread::scope(|scope| {
                (0..3).for_each(|who| {
                    _ = scope.spawn(move || fs.write(h, at, &[3 * round + who; 40_000]).unwrap())
                });
            });
            let got = read(fs, h, at, 40_000).unwrap();
            assert!(got.iter().all(|byte| *byte == got[0]), "round {round}");
        }
    }
}

/// Blocks that cross objects, each written by one client with rising stamps, and read by all. client-RL1, object-R1: no read sees parts of two
/// writes, nor less than the last write that had ended before it began.
struct Stamps {
    /// Of each block: the last stamp whose write has begun, and has ended.
    begun: Vec<AtomicU64>,
    ended: Vec<AtomicU64>,
}

const STAMPED: usize = 50_000;
/// Each block lies over the border of two stripes.
fn place_of(block: usize) -> u64 {
    (block as u64 + 1) * 131_072 - 20_000
}

impl Stamps {
    fn new(blocks: usize) -> Stamps {
        let zeros = || (0..blocks).map(|_| AtomicU64::new(0)).collect();
        Stamps { begun: zeros(), ended: zeros() }
    }

    fn write(&self, fs: &Fs, h: Handle, block: usize) {
        let stamp = self.begun[block].load(Ordering::SeqCst) + 1;
        self.begun[block].store(stamp, Ordering::SeqCst);
        let bytes: Vec<u8> = stamp.to_le_bytes().into_iter().cycle().take(STAMPED).collect();
        assert_eq!(fs.write(h, place_of(block), &bytes).unwrap(), STAMPED);
        self.ended[block].store(stamp, Ordering::SeqCst);
    }

    fn read(&self, fs: &Fs, h: Handle, block: usize) {
        let ended = self.ended[block].load(Ordering::SeqCst);
        let bytes = read(fs, h, place_of(block), STAMPED).unwrap();
        let begun = self.begun[block].load(Ordering::SeqCst);
        let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let whole: Vec<u8> = stamp.to_le_bytes().into_iter().cycle().take(STAMPED).collect();
        assert!(bytes == whole, "block {block}: parts of two writes, {stamp} among them");
        assert!((ended..=begun).contains(&stamp), "block {block}: {stamp}, of {ended} to {begun}");
    }
}

fn striped(fs: &Fs) -> (Fid, Handle) {
    fs.setxattr(Fid::ROOT, b"stria.layout", b"-c 2 -S 64k", 0, &Cred::root()).unwrap();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
    (attr.fid, h)
}

#[test]
fn rl1_calls_that_cross_objects_are_seen_whole_and_in_order() {
    const BLOCKS: usize = 6;
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let cluster = Cluster::with_inline_max(wiring, 2, 0);
        let heard = Heard::over(&cluster);
        let clients: Vec<_> = (0..3).map(|_| cluster.mount_lazy()).collect();
        let (fid, h) = striped(&clients[0]);
        let handles: Vec<_> =
            clients.iter().map(|fs| fs.open(fid, OpenFlags::read_write()).unwrap().0).collect();
        let stamps = Stamps::new(BLOCKS);
        // Every client knows the whole size.
        for (n, (fs, h)) in clients.iter().zip(&handles).enumerate() {
            (0..BLOCKS).filter(|block| block % 3 == n).for_each(|block| stamps.write(fs, *h, block));
        }
        clients[0].write(h, place_of(BLOCKS), b"end").unwrap();
        (0..BLOCKS).for_each(|block| stamps.read(&clients[0], h, block));
        let (stamps, many) = (&stamps, heard.many.load(Ordering::SeqCst));
        std::thread::scope(|scope| {
            for (n, (fs, h)) in clients.iter().zip(&handles).enumerate() {
                scope.spawn(move || {
                    let mut rng = SplitMix::new(n as u64);
                    for _ in 0..150 {
                        stamps.write(fs, *h, n + 3 * (rng.next_u64() % 2) as usize);
                        stamps.read(fs, *h, (rng.next_u64() % BLOCKS as u64) as usize);
                    }
                });
            }
        });
        assert!(heard.many.load(Ordering::SeqCst) > many, "many leases are used");
        (0..BLOCKS).for_each(|block| stamps.read(&clients[1], handles[1], block));
    }
}

/// Two writers of the same blocks: they do not mix, and cost the MDT nothing once both write.
#[test]
fn rl1_writes_of_two_clients_over_two_objects_do_not_mix() {
    let (cluster, a, b) = two(Wiring::Tcp, 2);
    let heard = Heard::over(&cluster);
    let (fid, ha) = striped(&a);
    let hb = b.open(fid, OpenFlags::read_write()).unwrap().0;
    for (fs, h) in [(&a, ha), (&b, hb), (&a, ha), (&b, hb)] {
        fs.write(h, place_of(0), &[1; STAMPED]).unwrap();
    }
    heard.take();
    for round in 0..30u8 {
        std::thread::scope(|scope| {
            for (who, (fs, h)) in [(&a, ha), (&b, hb)].into_iter().enumerate() {
                scope.spawn(move || fs.write(h, place_of(0), &[2 * round + who as u8; STAMPED]).unwrap());
            }
        });
        for (fs, h) in [(&a, ha), (&b, hb)] {
            let got = read(fs, h, place_of(0), STAMPED).unwrap();
            assert!(got.iter().all(|byte| *byte == got[0]) && got[0] / 2 == round, "round {round}");
        }
    }
    assert_eq!(heard.take(), [""; 0]);
}

/// client-RL2: an OST forgets its locks with a restart, and the calls under them are repeated whole.
#[test]
fn rl2_writes_that_cross_objects_go_on_over_restarts_of_an_ost() {
    let (mut cluster, a, b) = two(Wiring::Tcp, 2);
    let (fid, ha) = striped(&a);
    let hb = b.open(fid, OpenFlags::read_write()).unwrap().0;
    let stamps = Stamps::new(4);
    for (block, (fs, h)) in [(&a, ha), (&b, hb), (&a, ha), (&b, hb)].into_iter().enumerate() {
        stamps.write(fs, h, block);
    }
    let (stop, stamps) = (&std::sync::atomic::AtomicBool::new(false), &stamps);
    std::thread::scope(|scope| {
        for (n, (fs, h)) in [(&a, ha), (&b, hb)].into_iter().enumerate() {
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::SeqCst) {
                    stamps.write(fs, h, n + 2 * (round % 2));
                    round += 1;
                }
            });
        }
        for n in 0..4 {
            std::thread::sleep(Duration::from_millis(100));
            cluster.crash_ost(n % 2, Crash::DropAll);
        }
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::SeqCst);
    });
    let c = cluster.mount();
    let hc = c.open(fid, OpenFlags::read_only()).unwrap().0;
    (0..4).for_each(|block| stamps.read(&c, hc, block));
}
