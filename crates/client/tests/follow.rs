//! client-M1: clients follow the map to another member of a mirror, with sessions, slots, retained requests and marks.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use client::{Fs, Handle, OpenFlags, Settings};
use common::{Cluster, Wiring, ost_target, pattern, read};
use disk::Crash;
use types::{Cred, Fid, TargetId};

const BLOCK: usize = 64 << 10;
const MEMBER: TargetId = TargetId(99);

fn make(fs: &Fs, name: &str) -> Handle {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect(name).1
}

fn block(n: u64) -> Vec<u8> {
    pattern(n, BLOCK)
}

fn write(fs: &Fs, h: Handle, n: u64) {
    fs.write(h, n * BLOCK as u64, &block(n)).expect("written");
}

fn check(fs: &Fs, h: Handle, blocks: u64) {
    for n in 0..blocks {
        assert!(read(fs, h, n * BLOCK as u64, BLOCK).expect("read") == block(n), "block {n}");
    }
}

/// Passes on that the client asks for a newer map.
fn wanted(fs: &Fs) -> Receiver<()> {
    let (asks, asked): (Sender<()>, _) = channel();
    fs.on_map_wanted(Box::new(move || _ = asks.send(())));
    asked
}

/// The new primary lacks what was not flushed. It gets that from the clients, and then what they could not send meanwhile.
#[test]
fn the_new_primary_of_a_mirror_has_what_was_acknowledged_and_what_waited() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_lazy();
    let asked = wanted(&fs);
    let h = make(&fs, "f");
    (0..4).for_each(|n| write(&fs, h, n));
    fs.fsync(h, false).expect("flushed");
    (4..8).for_each(|n| write(&fs, h, n));
    let image = cluster.stop_ost(0, Crash::DropAll);
    let (begun, begins) = channel();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            begun.send(()).expect("the test waits");
            write(&fs, h, 8);
            fs.fsync(h, false)
        });
        begins.recv().expect("it begins");
        asked.recv().expect("a server that is gone may have moved");
        cluster.promote(0, image, MEMBER);
        fs.set_map(cluster.map.clone());
        late.join().expect("no panic").expect("flushed there");
    });
    check(&fs, h, 9);
    // Marks are of the mirror: what was flushed at one member is there at the next, and no request is sent for it again.
    let image = cluster.stop_ost(0, Crash::DropAll);
    cluster.promote(0, image, TargetId(98));
    fs.set_map(cluster.map.clone());
    check(&fs, h, 9);
    fs.fsync(h, false).expect("nothing is lost");
}

/// Each member counts its own incarnations. Here the next one is as old as the last one was before the writes.
#[test]
fn a_new_primary_with_the_incarnation_of_the_last_one_gets_what_it_lacks() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_lazy();
    let h = make(&fs, "f");
    (0..2).for_each(|n| write(&fs, h, n));
    fs.fsync(h, false).expect("flushed");
    // It keeps its incarnation, as a copy of its medium does.
    cluster.osts[0].as_ref().expect("runs").0.stop(true).expect("a clean stop");
    let image = cluster.stop_ost(0, Crash::KeepAll);
    let copy = Arc::new(image.crash(Crash::KeepAll));
    cluster.restart_ost(0, image);
    (2..5).for_each(|n| write(&fs, h, n));
    drop(cluster.stop_ost(0, Crash::KeepAll));
    cluster.promote(0, copy, MEMBER);
    fs.set_map(cluster.map.clone());
    check(&fs, h, 5);
    fs.fsync(h, false).expect("flushed there");
    // A mark of before is none there.
    let image = cluster.stop_ost(0, Crash::DropAll);
    cluster.promote(0, image, TargetId(98));
    fs.set_map(cluster.map.clone());
    check(&fs, h, 5);
    fs.shutdown().expect("nothing is lost");
}

/// A primary that lost its place refuses, and the client fetches the map.
#[test]
fn a_refusal_makes_the_client_fetch_the_map() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_lazy();
    let asked = wanted(&fs);
    let h = make(&fs, "f");
    write(&fs, h, 0);
    fs.fsync(h, false).expect("flushed");
    let image = cluster.stop_ost(0, Crash::KeepAll);
    // The old server is there, and answers that it serves the mirror no more.
    cluster.hub.add(ost_target(0), Arc::new(Moved));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            write(&fs, h, 1);
            fs.fsync(h, false)
        });
        asked.recv().expect("after a refusal");
        cluster.promote(0, image, MEMBER);
        fs.set_map(cluster.map.clone());
        late.join().expect("no panic").expect("flushed there");
    });
    check(&fs, h, 2);
}

/// A member that stands still while clients send it again what it lost, as by `SIGSTOP`, keeps none of them from the next primary.
#[test]
fn a_replay_that_stands_still_goes_on_at_the_next_primary() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let (op_timeout, commit_interval) = (Duration::from_secs(60), Duration::from_secs(600));
    let fs = cluster.mount_with(Settings { op_timeout, commit_interval, ..cluster.settings() });
    let h = make(&fs, "f");
    write(&fs, h, 0);
    fs.fsync(h, false).expect("flushed");
    (1..4).for_each(|n| write(&fs, h, n));
    let image = cluster.stop_ost(0, Crash::DropAll);
    let copy = Arc::new(image.crash(Crash::KeepAll));
    cluster.restart_ost(0, image);
    let inner = cluster.process(ost_target(0));
    let still = Arc::new(Still { inner, waiting: AtomicUsize::new(0), goes_on: AtomicBool::new(false) });
    cluster.hub.add(ost_target(0), still.clone());
    std::thread::scope(|scope| {
        let late = scope.spawn(|| fs.fsync(h, false));
        while still.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        cluster.promote(0, copy, MEMBER);
        fs.set_map(cluster.map.clone());
        let until = Instant::now() + Duration::from_secs(30);
        while !late.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_in_time = late.is_finished();
        still.goes_on.store(true, Ordering::SeqCst);
        late.join().expect("no panic").expect("flushed there");
        assert!(is_in_time, "it waits for the former primary");
    });
    check(&fs, h, 4);
}

/// It answers no replay until it may go on.
struct Still {
    inner: Arc<dyn net::Service>,
    waiting: AtomicUsize,
    goes_on: AtomicBool,
}

impl net::Service for Still {
    fn serve(&self, head: &wire::Header, body: &[u8], bulk: &[u8], answer: &mut net::Answer<'_>) {
        if head.flags & wire::Flags::REPLAY != 0 {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            while !self.goes_on.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.inner.serve(head, body, bulk, answer);
    }
}

struct Moved;
impl net::Service for Moved {
    fn serve(&self, _: &wire::Header, _: &[u8], _: &[u8], answer: &mut net::Answer<'_>) {
        let fault = types::Fault::new(types::Code::Moved, "another member is primary; fetch the map");
        let head = wire::ReplyHead::refused(&fault, types::Seq(0));
        answer.body = wire::encode_reply(&head, None::<&wire::Empty>);
    }
}
