//! Tests of the scrub, step by step and by its thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use disk::Disk;
use store::{SCRUB_EVERY_SEC, SCRUB_RATE};
use wire::object::scrub_state::{IDLE, PAUSED, RUNNING};

use super::damage::rot;
use super::*;

fn control(action: u8) -> ScrubControl {
    ScrubControl { cap: admin(), action, rate: None, every_sec: None }
}

impl Rig {
    fn scrub(&self, action: u8) -> ScrubReply {
        self.ask(&control(action)).ok()
    }
    fn look(&self) -> ScrubReply {
        self.scrub(scrub_action::LOOK)
    }
    fn step(&self) -> Duration {
        self.ost.core.scrub_round().unwrap()
    }
    /// Objects 0.. of `pages` pages each.
    fn with_objects(pages: &[usize]) -> Rig {
        let rig = Rig::new();
        let mut sequence = 0;
        for (stripe, pages) in pages.iter().enumerate() {
            for first in (0..*pages).step_by(100) {
                let data = vec![stripe as u8 + 1; (pages - first).min(100) * 4096];
                let w = write_of(rw(), first as u64 * 4096, &data);
                let w = Write { object: ObjectId { stripe: stripe as u16, ..object() }, ..w };
                sequence += 1;
                rig.say(slotted(sequence), &w, &data).ok();
            }
        }
        rig
    }
}

#[test]
fn a_pass_finds_what_nobody_read() {
    let rig = Rig::new();
    rig.write(1, 0, b"found by the scrub and by nobody else").ok();
    rot(&rig, b"found by the scrub");
    rig.step();
    assert_eq!((rig.look().state, rig.look().pass.begun_sec), (IDLE, 0), "nobody asked for it");
    assert_eq!(rig.scrub(scrub_action::START).state, RUNNING);
    while rig.look().state == RUNNING {
        rig.step();
    }
    let last = rig.look().last;
    assert_eq!((last.bytes, last.objects, last.bad_pages), (4096, 1, 1));
    assert_eq!((last.begun_sec, last.ended_sec), (NOW_SEC, NOW_SEC));
    let damage = rig.ask(&DamageList { cap: admin() }).ok().damage;
    assert_eq!((damage.len(), damage[0].object, damage[0].offset, damage[0].kind), (1, object(), 0, 1));
}

#[test]
fn a_step_is_bounded_and_the_pause_after_it_keeps_the_rate() {
    let rig = Rig::with_objects(&[300, 2, 3]);
    let set = ScrubControl { rate: Some(4 << 20), ..control(scrub_action::START) };
    assert_eq!(rig.ask(&set).ok().rate, 4 << 20);
    assert_eq!(rig.step(), Duration::from_millis(250), "256 pages at 4 MiB/s");
    let pass = rig.look().pass;
    assert_eq!((pass.bytes, pass.objects), (256 * 4096, 0));
    assert_eq!(rig.step(), Duration::from_secs_f64(49.0 / 1024.0));
    let look = rig.look();
    assert_eq!((look.state, look.last.bytes, look.last.objects), (IDLE, 305 * 4096, 3));
    rig.ask(&ScrubControl { rate: Some(0), ..control(scrub_action::START) }).ok();
    assert_eq!(rig.step(), Duration::ZERO, "0 is no bound");
}

#[test]
fn a_pass_is_paused_resumed_stopped_and_begun_anew() {
    let rig = Rig::with_objects(&[300, 300]);
    for action in [scrub_action::PAUSE, scrub_action::RESUME] {
        let said = rig.ask(&control(action));
        assert_eq!(said.code(), Code::BadRequest);
        assert!(said.reply.unwrap_err().detail.contains("stria scrub start"));
    }
    rig.scrub(scrub_action::START);
    rig.step();
    assert_eq!(rig.scrub(scrub_action::PAUSE).state, PAUSED);
    let held = rig.look().pass;
    rig.step();
    assert_eq!(rig.look().pass, held, "paused, it reads nothing");
    assert_eq!(rig.ask(&control(scrub_action::START)).code(), Code::BadRequest);
    assert_eq!(rig.scrub(scrub_action::RESUME).state, RUNNING);
    rig.step();
    assert!(rig.look().pass.bytes > held.bytes);
    assert_eq!(rig.scrub(scrub_action::STOP).state, IDLE);
    assert_eq!(
        (rig.look().last.begun_sec, rig.look().pass.ended_sec),
        (0, NOW_SEC),
        "it did not come to its end"
    );
    assert_eq!(rig.scrub(scrub_action::START).pass.bytes, 0, "anew");
    assert_eq!(rig.ask(&control(99)).code(), Code::BadRequest);
    let nobody = ScrubControl { cap: rw(), ..control(scrub_action::STOP) };
    assert_ne!(rig.ask(&nobody).code(), Code::Ok, "clients have no say in it");
    assert_eq!(rig.look().state, RUNNING);
}

/// A page that was verified before a clean stop, or before the last save, is not read again.
#[test]
fn a_pass_goes_on_after_a_restart() {
    let rig = Rig::with_objects(&[300, 300, 300]);
    rig.scrub(scrub_action::START);
    for _ in 0..2 {
        rig.step();
    }
    let before = rig.look().pass;
    assert!(before.bytes >= 300 * 4096);
    rig.ost.stop(true).unwrap();
    let again = rig.crashed(Crash::KeepAll);
    assert_eq!((again.look().state, again.look().pass), (RUNNING, before));
    while again.look().state == RUNNING {
        again.step();
    }
    let last = again.look().last;
    assert_eq!((last.bytes, last.objects), (900 * 4096, 3), "each page once");
    // Without a clean stop: from the state that was saved last, here by the pause.
    again.scrub(scrub_action::START);
    again.step();
    again.scrub(scrub_action::PAUSE);
    let (paused, third) = (again.look(), again.crashed(Crash::DropAll));
    assert_eq!((third.look().state, third.look().pass), (PAUSED, paused.pass));
}

#[test]
fn a_pass_begins_by_itself_when_it_is_due() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW_SEC);
    let disk = Arc::new(SimDisk::new(12 << 20));
    Ost::format(&*disk, &FormatSpec::new("test", Uuid([8; 16]))).unwrap();
    let clock = Arc::new(|| CLOCK.load(Ordering::Relaxed));
    let rig = Rig::open(disk, Settings { clock, ..settings() });
    rig.attach();
    // Capabilities of this clock.
    let look = || {
        let cap = cap::make_admin(&SECRET, CLOCK.load(Ordering::Relaxed) + 100);
        rig.ask(&ScrubControl { cap, ..control(scrub_action::LOOK) }).ok()
    };
    rig.step();
    assert_eq!((look().state, look().since_sec), (IDLE, NOW_SEC), "a new OST is not read at once");
    assert_eq!((look().every_sec, look().rate), (SCRUB_EVERY_SEC, SCRUB_RATE));
    CLOCK.fetch_add(SCRUB_EVERY_SEC - 1, Ordering::Relaxed);
    rig.step();
    assert_eq!(look().last.begun_sec, 0);
    CLOCK.fetch_add(1, Ordering::Relaxed);
    rig.step();
    let (begun, due) = (look().last.begun_sec, NOW_SEC + SCRUB_EVERY_SEC);
    assert_eq!((begun, look().since_sec), (due, due), "an empty OST is done in one step");
    let cap = cap::make_admin(&SECRET, CLOCK.load(Ordering::Relaxed) + 100);
    rig.ask(&ScrubControl { cap, every_sec: Some(0), ..control(scrub_action::LOOK) }).ok();
    CLOCK.fetch_add(SCRUB_EVERY_SEC * 9, Ordering::Relaxed);
    rig.step();
    assert_eq!(look().last.begun_sec, due, "0: never by itself");
}

/// The thread makes a pass, at once on request.
#[test]
fn the_thread_runs_a_pass() {
    let rig = Rig::with_objects(&[3, 3]);
    rig.ost.stop(true).unwrap();
    let rig = Rig::open(rig.disk.clone(), Settings { background: true, ..settings() });
    rig.scrub(scrub_action::START);
    let begun = Instant::now();
    while rig.look().last.ended_sec == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", rig.look());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rig.look().last.bytes / 4096, 6, "and one small leaf");
}

/// A pass ends however much is written meanwhile; the next pass reads the late data.
#[test]
fn a_pass_ends_beside_writers_that_go_on() {
    let rig = Rig::with_objects(&[300, 3]);
    rig.scrub(scrub_action::START);
    rig.step();
    let late = |stripe: u16, sequence, page: u64| {
        let data = vec![7; 4096];
        let w = write_of(rw(), page * 4096, &data);
        rig.say(slotted(sequence), &Write { object: ObjectId { stripe, ..object() }, ..w }, &data).ok();
    };
    // Appended to the object that is being read, and a new object.
    late(0, 10, 300);
    late(9, 11, 0);
    rig.step();
    assert_eq!((rig.look().state, rig.look().last.bytes, rig.look().last.objects), (IDLE, 303 * 4096, 2));
    rig.scrub(scrub_action::START);
    while rig.look().state == RUNNING {
        rig.step();
    }
    assert_eq!((rig.look().last.bytes, rig.look().last.objects), (305 * 4096, 3));
}

/// The same content on a medium that fails on command.
pub(super) fn on_a_faulty_medium(rig: &Rig) -> (Arc<disk::FaultyDisk>, Rig, Vec<u8>) {
    rig.ost.stop(true).unwrap();
    let mut image = vec![0; rig.disk.size() as usize];
    rig.disk.read_at(&mut image, 0).unwrap();
    let disk = Arc::new(disk::FaultyDisk::new(Arc::new(SimDisk::from_bytes(image.clone()))));
    let ost = Ost::open(disk.clone(), settings()).unwrap();
    ost.join(&reply_of_mgs()).unwrap();
    (disk, Rig { disk: rig.disk.clone(), ost }, image)
}

/// An unreadable page ends the step: each may take a dying medium long, and a stop waits for the step.
#[test]
fn a_medium_error_is_damage_and_ends_the_step() {
    let (disk, rig, image) = on_a_faulty_medium(&Rig::with_objects(&[8, 8]));
    // The second object's third page: its eight pages of twos follow one another.
    let is_second = |p: &usize| image[p * 4096..(p + 8) * 4096].iter().all(|b| *b == 2);
    let twos = (0..image.len() / 4096 - 8).find(is_second).unwrap() as u64;
    disk.make_unreadable((twos + 2) * 4096..(twos + 2) * 4096 + 512);
    rig.scrub(scrub_action::START);
    rig.step();
    let pass = rig.look().pass;
    let (bad, pages) = (pass.bad_pages, pass.bytes / 4096);
    assert_eq!((bad, pages), (1, 11), "eight pages, two, and the bad one; and one small leaf");
    while rig.look().state == RUNNING {
        rig.step();
    }
    assert_eq!((rig.look().last.bad_pages, rig.look().last.bytes / 4096), (1, 16));
    let want = [store::Damage {
        object: ObjectId { stripe: 1, ..object() },
        offset: 2 * 4096,
        kind: store::DamageKind::Medium,
        found_sec: NOW_SEC,
        is_repaired: false,
    }];
    assert_eq!(rig.ost.core.store.damage(), want);
}

/// A failed save changes nothing, so that a repeated request is not answered as done.
#[test]
fn what_cannot_be_kept_is_refused_each_time() {
    let (disk, rig, _) = on_a_faulty_medium(&Rig::with_objects(&[3]));
    disk.fail(disk::Op::Write, disk::When::Always);
    for _ in 0..2 {
        assert_ne!(rig.ask(&control(scrub_action::START)).code(), Code::Ok);
        assert_eq!(rig.look().state, IDLE);
    }
    assert!(rig.step() > Duration::ZERO, "a failed OST is not scrubbed");
}

/// Rates below a page per step, and many small objects: the charge covers the cost of a step.
#[test]
fn low_rates_and_small_objects_are_paced() {
    let rig = Rig::with_objects(&[1; 10]);
    let set = |rate| ScrubControl { rate: Some(rate), ..control(scrub_action::START) };
    rig.ask(&set(1024)).ok();
    let pauses: Vec<_> = (0..3).map(|_| rig.step()).collect();
    assert!(pauses.iter().all(|p| *p >= Duration::from_secs(4)), "4 KiB at 1 KiB/s: {pauses:?}");
    rig.scrub(scrub_action::STOP);
    rig.ask(&set(64 << 20)).ok();
    assert_eq!(rig.step(), Duration::from_secs_f64(10.0 / 1024.0), "64 KiB are charged for each object");
}

/// An OST whose objects are in one leaf that memory does not have, and the leaf's place.
fn with_a_leaf() -> (Rig, u64) {
    let rig = Rig::with_objects(&[2, 3]);
    rig.disk.record();
    rig.ost.stop(true).unwrap();
    // Leaves are written before the head that names them.
    let writes = rig.disk.take_recording().unwrap().events;
    let at = writes.iter().find_map(|e| match e {
        disk::Event::Write { offset, data } if data.len() == 4096 && *offset > 1 << 20 => Some(*offset),
        _ => None,
    });
    (rig.crashed(Crash::DropAll), at.unwrap())
}

fn flip(rig: &Rig, at: u64) {
    let mut byte = [0];
    rig.disk.read_at(&mut byte, at).unwrap();
    rig.disk.write_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_pass_finds_a_leaf_of_the_index_that_nobody_wanted_and_comes_to_its_end() {
    let (rig, at) = with_a_leaf();
    flip(&rig, at + 3);
    rig.scrub(scrub_action::START);
    while rig.look().state == RUNNING {
        rig.step();
    }
    let last = rig.look().last;
    assert_eq!((last.objects, last.bad_pages), (0, 1));
    assert!((1..4096).contains(&last.bytes), "the leaf's {}", last.bytes);
    let damage = rig.ask(&DamageList { cap: admin() }).ok().damage;
    assert_eq!((damage.len(), damage[0].object, damage[0].offset, damage[0].kind), (1, object(), at, 4));
    assert_eq!(rig.ask(&read_of(rw(), 0, 100)).code(), Code::Io);
}

#[test]
fn a_leaf_that_memory_has_yet_is_mended_by_the_pass() {
    let (rig, at) = with_a_leaf();
    assert_eq!(rig.ask(&read_of(rw(), 0, 100)).code(), Code::Ok);
    flip(&rig, at + 3);
    rig.scrub(scrub_action::START);
    while rig.look().state == RUNNING {
        rig.step();
    }
    let last = rig.look().last;
    assert_eq!((last.objects, last.bad_pages), (2, 1));
    assert_eq!(rig.ask(&DamageList { cap: admin() }).ok().damage, []);
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.ask(&read_of(rw(), 0, 100)).code(), Code::Ok, "power fails, and it is there");
}

/// A full log or a full host: the pass still ends, and saved state is not lost.
#[test]
fn a_checkpoint_that_fails_does_not_hold_up_the_pass() {
    let (rig, at) = with_a_leaf();
    let (disk, rig, _) = on_a_faulty_medium(&rig);
    assert_eq!(rig.ask(&read_of(rw(), 0, 100)).code(), Code::Ok);
    disk.flip_bit(at + 3, 1).unwrap();
    let pass = || {
        while rig.look().state == RUNNING {
            rig.step();
        }
        (rig.look().last.objects, rig.look().last.bad_pages)
    };
    // A new OST keeps the time of its first round.
    rig.step();
    rig.scrub(scrub_action::START);
    // The first write is that of the leaf.
    disk.fail(disk::Op::Write, disk::When::Once);
    assert_eq!((pass(), disk.failed(disk::Op::Write)), ((2, 1), 1));
    rig.ost.core.store.checkpoint().unwrap();
    rig.scrub(scrub_action::START);
    assert_eq!(pass(), (2, 0));
}

#[test]
fn a_step_looks_at_one_lost_leaf_and_the_pass_at_all() {
    const OBJECTS: usize = 40;
    let rig = Rig::with_objects(&[1; OBJECTS]);
    rig.ost.stop(true).unwrap();
    // One change, and the one leaf is split into many.
    let store = store::Settings { leaf_bytes: 100, ..settings().store };
    let rig = Rig::open(rig.disk.clone(), Settings { store, ..settings() });
    rig.write(OBJECTS as u32 + 1, 0, &[9; 4096]).ok();
    let (disk, rig, _) = on_a_faulty_medium(&rig);
    let leaves = rig.ost.core.store.stats().index.leaves;
    assert!(leaves > 8, "{leaves}");
    rig.scrub(scrub_action::START);
    disk.fail(disk::Op::Read, disk::When::Always);
    let mut most = 0;
    while rig.look().state == RUNNING {
        let (reads, bad) = (disk.failed(disk::Op::Read), rig.look().pass.bad_pages);
        rig.step();
        most = most.max(disk.failed(disk::Op::Read) - reads);
        assert!(rig.look().state == IDLE || rig.look().pass.bad_pages == bad + 1, "each step comes on");
    }
    // Is the object there that it begins with, which objects follow, and the leaf: twice, and once more.
    assert!(most <= 6, "{most} reads in one step");
    assert_eq!((rig.look().last.objects, rig.look().last.bad_pages), (0, leaves));
    let damage = rig.ask(&DamageList { cap: admin() }).ok().damage;
    assert_eq!(damage.len() as u64, leaves);
    // The medium works again, and all its content is intact.
    disk.fail(disk::Op::Read, disk::When::Never);
    rig.scrub(scrub_action::START);
    while rig.look().state == RUNNING {
        rig.step();
    }
    let last = rig.look().last;
    assert_eq!((last.objects, last.bad_pages), (OBJECTS as u64, 0));
}
