//! The fault campaign: reads, writes, flushes and discards of generated lives fail, once or permanently; writes also in part. The caller
//! gets an error. No acknowledged change is lost. A failed store reports that and acknowledges nothing more. On a medium that works again,
//! the store recovers a state that it had.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use disk::VolumeError;
use disk::{Op as Call, SplitMix, When};

use super::life::{Life, Memory, Outcome, draw_crash, each_seed, is_long};
use super::ops::{Op, draw};
use super::world::compare;
use super::*;

const LIVES: u64 = 250;
const LIVES_LONG: u64 = 10_000;
/// Operations while the medium is faulty.
const FAULTY_STEPS: u64 = 40;
const CALLS: [Call; 4] = [Call::Read, Call::Write, Call::Flush, Call::Discard];

#[derive(Default)]
struct Counts {
    injected: Cell<u64>,
    refused: Cell<u64>,
    failed: Cell<u64>,
    openings_refused: Cell<u64>,
}

fn add(count: &Cell<u64>, n: u64) {
    count.set(count.get() + n);
}

#[test]
fn faults_are_told_and_nothing_acknowledged_is_lost() {
    let lives = if is_long() { LIVES_LONG } else { LIVES };
    let counts = Counts::default();
    each_seed("faults_are_told", |seed| seed >= lives, |seed| live_with_faults(seed, &counts));
    let Counts { injected, refused, failed, openings_refused } = &counts;
    println!(
        "       {} faults: {} operations refused, {} stores failed, {} openings refused",
        injected.get(),
        refused.get(),
        failed.get(),
        openings_refused.get()
    );
    if std::env::var_os("STRIA_SEED").is_none() {
        let seen = [injected, refused, failed, openings_refused];
        assert!(seen.iter().all(|n| n.get() >= lives / 20), "each is met often enough");
    }
}

/// Small writes may press so much that the background never gets beyond this.
#[test]
fn who_makes_room_sees_a_medium_that_is_lost() {
    let disk = Arc::new(disk::FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES))));
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    ObjectStore::relieve(&store).unwrap();
    disk.give_up(true);
    let told = ObjectStore::relieve(&store);
    assert!(matches!(told, Err(StoreError::Volume(VolumeError::Failed(_)))), "{told:?}");
}

/// The destager's thread may be the one that hangs in the medium, so discards and health checks report the loss themselves, at once.
#[test]
fn who_discards_and_who_asks_see_a_medium_that_is_lost() {
    let lost = || {
        let (disk, store) = on_a_faulty_disk();
        store.discard().unwrap();
        assert_eq!(store.health().failure, None);
        disk.give_up(true);
        store
    };
    assert!(lost().health().failure.is_some_and(|why| why.contains("the device hangs")));
    let told = lost().discard();
    assert!(matches!(told, Err(StoreError::Volume(VolumeError::Failed(_)))), "{told:?}");
}

/// A medium whose data reads block, once `keeps` is set, until the test signals or ends.
struct Keeping {
    below: disk::FaultyDisk,
    keeps: AtomicBool,
    began: Mutex<Sender<()>>,
    gate: Mutex<Receiver<()>>,
}

impl disk::Disk for Keeping {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
    fn read_many(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        if self.keeps.load(Ordering::Acquire) {
            let _ = (self.began.lock().send(()), self.gate.lock().recv());
        }
        self.below.read_many(parts)
    }
    fn lost(&self) -> Option<String> {
        self.below.lost()
    }
}

/// The medium blocks the destager in a read through the page cache while it holds its lock.
#[test]
fn who_waits_for_a_destager_that_is_kept_gets_the_error_and_his_thread_back() {
    let ((began, was_begun), (go, gate)) = (channel(), channel());
    let below = disk::FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES)));
    let (began, gate) = (Mutex::new(began), Mutex::new(gate));
    let disk = Arc::new(Keeping { below, keeps: AtomicBool::new(false), began, gate });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    write(&store, id(1), 0, &pattern(1, 64 << 10), None).unwrap();
    store.destage_all().unwrap();
    write(&store, id(1), 100, b"a part", None).unwrap();
    disk.keeps.store(true, Ordering::Release);
    type Ask = fn(&Engine) -> Result<(), StoreError>;
    let asks: [(&str, Ask); 5] = [
        ("help", |s| s.help().map(drop)),
        ("room in the log", Engine::make_log_room),
        ("space", Engine::make_space),
        ("all", Engine::destage_all),
        ("a round", Engine::destage_old),
    ];
    std::thread::scope(|s| {
        // If this fails it lets them go, who would be waited for.
        let go = go;
        s.spawn(|| store.destage_all());
        was_begun.recv().unwrap();
        let (tell, told) = channel();
        for (name, ask) in asks {
            let (tell, store) = (tell.clone(), &store);
            s.spawn(move || tell.send((name, ask(store))).unwrap());
        }
        disk.below.give_up(true);
        for _ in asks {
            // The bound is only for the case that this fails.
            let (name, told) = told.recv_timeout(Duration::from_secs(60)).expect("they wait for ever");
            assert!(matches!(told, Err(StoreError::Volume(VolumeError::Failed(_)))), "{name}: {told:?}");
        }
        go.send(()).unwrap();
    });
}

fn live_with_faults(seed: u64, counts: &Counts) {
    let mut life = Life::new(seed, Memory::SinceFlush);
    let some = life.rng.below(40);
    life.live(some);
    // 1. Something fails.
    let call = CALLS[life.rng.below(4) as usize];
    let when = draw_when(&mut life.rng);
    life.faulty.fail(call, when);
    let share = life.rng.below(256) as u8;
    life.faulty.shorten_failed_writes(share);
    let has_failed = suffer(&mut life, call, counts);
    // 2. The medium works again.
    life.faulty.fail(call, When::Never);
    add(&counts.injected, life.faulty.failed(call));
    if has_failed {
        add(&counts.failed, 1);
    } else {
        compare(&life.store, life.now()).unwrap_or_else(|e| panic!("{call:?} fails {when:?}: {e}"));
        life.live(5);
    }
    let crash = draw_crash(&mut life.rng);
    life.crash(crash);
    life.live(10);
    // 3. Openings that fail leave everything as it was.
    fail_openings(&mut life, counts);
    life.live(10);
    let crash = draw_crash(&mut life.rng);
    life.crash(crash);
    life.end();
}

fn draw_when(rng: &mut SplitMix) -> When {
    match rng.below(3) {
        0 => When::Once,
        1 => When::Always,
        _ => When::After(rng.below(20)),
    }
}

/// Operations on the faulty medium; true if the store failed.
fn suffer(life: &mut Life, call: Call, counts: &Counts) -> bool {
    for _ in 0..FAULTY_STEPS {
        let op = draw(&mut life.rng, life.reach);
        if matches!(op, Op::Kill | Op::Restart) {
            continue;
        }
        let before = life.faulty.failed(call);
        let outcome = life.carry_out(&op);
        let is_hit = life.faulty.failed(call) > before;
        match outcome {
            // A read that failed once is read again. Folding that failed leaves what it would have folded, and nothing else waits for it.
            Outcome::Done => {
                let was_folding = call == Call::Write && life.store.overlay.pages() > 0;
                assert!(!is_hit || call == Call::Read || was_folding, "{op:?} swallowed a failed {call:?}")
            }
            Outcome::Refused(e) => {
                add(&counts.refused, is_hit as u64);
                check_refusal(&e, is_hit, &op);
                assert_eq!(life.store.health().failure, None, "{op:?} was refused with {e}");
            }
            Outcome::Failed(e) => {
                assert!(is_hit, "{op:?}: {e}");
                check_failed(life, call);
                return true;
            }
        }
    }
    false
}

fn check_refusal(e: &StoreError, is_hit: bool, op: &Op) {
    let is_right = match e {
        StoreError::NoSpace(_) => true,
        StoreError::Damaged { kind, .. } => is_hit && *kind == DamageKind::Medium,
        StoreError::Medium { .. } | StoreError::Discard { .. } | StoreError::Index { .. } => is_hit,
        StoreError::Volume(VolumeError::CheckpointWrite(_)) => is_hit,
        _ => false,
    };
    assert!(is_right, "{op:?}: {e}");
}

/// disk-V6: the failure is said, and nothing is promised any more; what is there can be read.
fn check_failed(life: &Life, call: Call) {
    let store = &life.store;
    assert!(store.health().failure.is_some_and(|why| why.contains("failed")));
    let (flushed, last) = (store.vol.flushed_seq(), store.vol.last_seq());
    let is_failed = |e: StoreError| matches!(e, StoreError::Volume(VolumeError::Failed(_)));
    // Its bytes may meet the faulty medium first, or have no room.
    assert!(write(store, id(1), 0, b"more", None).is_err());
    assert!(is_failed(
        store.destroy(&[id(1)], Some(Origin { session: SESSION, slot: 0, sequence: 1 })).unwrap_err()
    ));
    assert!(is_failed(store.flush().unwrap_err()));
    assert!(is_failed(store.fence(id(50), 1).unwrap_err()));
    assert!(is_failed(store.checkpoint().unwrap_err()));
    assert!(is_failed(store.set_label(store.label()).unwrap_err()));
    assert!(is_failed(store.close().unwrap_err()));
    assert_eq!((store.vol.flushed_seq(), store.vol.last_seq()), (flushed, last));
    if call != Call::Read {
        let applied = &life.history[life.history.len() - 2].world;
        compare(store, applied).unwrap_or_else(|e| panic!("after a failed {call:?}: {e}"));
    }
}

fn fail_openings(life: &mut Life, counts: &Counts) {
    for call in [Call::Read, Call::Write, Call::Flush] {
        let at = life.rng.below(12);
        life.faulty.fail(call, When::After(at));
        match Engine::open(life.media.clone()) {
            Ok(_) => {}
            Err(e) => {
                add(&counts.openings_refused, 1);
                assert!(e.to_string().contains("injected") || e.to_string().contains("failed"), "{e}");
            }
        }
        add(&counts.injected, life.faulty.failed(call));
        life.faulty.fail(call, When::Never);
        let drawn = draw_crash(&mut life.rng);
        let crash = if life.rng.below(2) == 0 { Crash::KeepAll.into() } else { drawn };
        life.crash(crash);
    }
}

fn on_a_faulty_disk() -> (Arc<disk::FaultyDisk>, Engine) {
    let disk = Arc::new(disk::FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES))));
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    (disk, store)
}

/// A hung bulk write is only refused, until it has hung for too long. Then the store fails, since the device may carry it out at any time.
#[test]
fn a_device_that_hangs_for_too_long_fails_the_store() {
    let (disk, store) = on_a_faulty_disk();
    let bulk = pattern(1, 256 << 10);
    write(&store, id(1), 0, &bulk, None).unwrap();
    disk.hang(true);
    let refused = write(&store, id(1), 0, &pattern(2, 256 << 10), None).unwrap_err();
    assert!(matches!(refused, StoreError::Medium { .. }), "{refused}");
    assert!(matches!(read(&store, id(1), 0, 4096), Err(StoreError::Hung { .. })));
    store.destage().unwrap();
    assert_eq!(store.health().failure, None);
    disk.hang(false);
    assert_eq!(read(&store, id(1), 0, 256 << 10).unwrap().unwrap(), bulk);
    disk.give_up(true);
    assert!(store.destage().is_err());
    let why = store.health().failure.unwrap();
    assert!(why.contains("a medium failed: injected: the device hangs; see the kernel's log"), "{why}");
    assert!(write(&store, id(1), 0, &bulk, None).is_err());
}

#[test]
fn a_log_write_or_flush_that_hangs_fails_the_store() {
    for is_flush in [false, true] {
        let (disk, store) = on_a_faulty_disk();
        write(&store, id(1), 0, &pattern(1, 8192), None).unwrap();
        disk.hang(true);
        match is_flush {
            true => assert!(store.flush().is_err()),
            false => assert!(store.fence(id(1), 7).is_err()),
        }
        disk.hang(false);
        let why = store.health().failure.unwrap();
        assert!(why.contains("restart the target once the device answers"), "{why}");
        assert!(write(&store, id(1), 0, b"more", None).is_err(), "what hung may be carried out late");
        drop(store);
        let again = Engine::open(disk).unwrap();
        assert_eq!(read(&again, id(1), 0, 8192).unwrap().unwrap(), pattern(1, 8192));
    }
}
