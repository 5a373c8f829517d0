//! Tests of joining, background work and stopping.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn nothing_is_served_before_joining_or_after_stopping() {
    let disk = Arc::new(SimDisk::new(12 << 20));
    Ost::format(&*disk, &FormatSpec::new("test", Uuid([8; 16]))).unwrap();
    assert!(Ost::format(&*disk, &FormatSpec::new("test", Uuid([8; 16]))).is_err(), "a medium in use");
    let ost = Ost::open(disk.clone(), settings()).unwrap();
    let rig = Rig { disk, ost };
    assert_eq!(rig.ask(&TargetStat {}).code(), Code::NotReady);
    rig.ost.join(&reply_of_mgs()).unwrap();
    let stat = rig.ask(&TargetStat {}).ok();
    assert_eq!((stat.target, stat.index, stat.is_mdt, stat.uuid), (TARGET, 3, false, Uuid([8; 16])));
    rig.ost.stop(true).unwrap();
    rig.ost.stop(true).unwrap();
    assert_eq!(rig.ask(&TargetStat {}).code(), Code::NotReady);
}

#[test]
fn the_first_join_names_the_target_and_later_ones_must_agree() {
    let rig = Rig::new();
    let label = rig.crashed(Crash::DropAll).ost.label();
    assert_eq!((label.target, label.index, label.mirror, label.fs_uuid), (TARGET, 3, MirrorId(6), FS_UUID));
    let mut other = reply_of_mgs();
    other.target = TargetId(8);
    other.map.targets[0].id = TargetId(8);
    assert_eq!(rig.ost.join(&other).unwrap_err().code, Code::Invalid);
    let mut other = reply_of_mgs();
    other.map.file_systems[0].uuid = Uuid([1; 16]);
    assert_eq!(rig.ost.join(&other).unwrap_err().code, Code::Invalid);
    let moved = wire::mgmt::RegisterReply { mirror: MirrorId(9), ..reply_of_mgs() };
    pair::Replica::keep_note(&*rig.ost, b"of mirror 6").unwrap();
    let refused = rig.ost.join(&moved).unwrap_err();
    assert!(refused.detail.contains("was a member of mirror 6, by its note"), "{refused}");
    other.map.targets.clear();
    assert_eq!(rig.ost.join(&other).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_clean_stop_keeps_the_incarnation_and_a_kill_does_not() {
    let rig = Rig::new();
    rig.write(1, 0, b"x").ok();
    let first = rig.ask(&Flush {}).frame.incarnation;
    let killed = rig.crashed(Crash::KeepAll).ask(&Flush {}).frame.incarnation;
    assert!(killed > first);
    rig.ost.stop(true).unwrap();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.ask(&Flush {}).frame.incarnation, first);
    assert_eq!(again.read(0, 9), b"x");
}

#[test]
fn the_flusher_makes_things_durable_and_then_rests() {
    let rig = Rig::new();
    let done = rig.write(1, 0, b"x");
    assert!(done.head.flushed_seq < done.head.seq);
    let core = &rig.ost.core;
    core.flush_round().unwrap();
    assert!(rig.ask(&TargetStat {}).head.flushed_seq >= done.head.seq);
    core.flush_round().unwrap();
    let resting = (core.store.last_seq(), core.store.is_dirty());
    core.flush_round().unwrap();
    assert_eq!((core.store.last_seq(), false), resting, "at rest the flusher writes nothing");
    rig.ask(&Destroy { cap: admin(), objects: vec![object()] }).ok();
    assert!(core.store.is_dirty());
    (0..3).for_each(|_| core.flush_round().unwrap());
    assert!(!core.store.is_dirty(), "what was removed is sealed, so its space can be used again");
}

#[test]
fn the_threads_flush_checkpoint_and_end() {
    let disk = Arc::new(SimDisk::new(12 << 20));
    Ost::format(&*disk, &FormatSpec::new("test", Uuid([8; 16]))).unwrap();
    let settings = Settings { commit_interval: Duration::from_millis(5), background: true, ..settings() };
    let rig = Rig::open(disk, settings);
    rig.attach();
    let deadline = Instant::now() + Duration::from_secs(20);
    let wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < deadline, "{what} did not come");
            std::thread::yield_now();
        }
    };
    let seq = rig.write(1, 0, b"x").head.seq;
    wait_until("the flush", &|| rig.ask(&TargetStat {}).head.flushed_seq >= seq);
    let mut sequence = 1;
    let trimmed = || {
        let stat = rig.ask(&TargetStat {}).ok();
        stat.log_bytes_used < stat.log_bytes_total / 4
    };
    // Past a half a checkpoint is due; the thread may make it before this thread sees that.
    let mut fill = |limit: u64| {
        let mut used = 0;
        loop {
            let stat = rig.ask(&TargetStat {}).ok();
            if stat.log_bytes_used < used || stat.log_bytes_used > limit * stat.log_bytes_total / 100 {
                return;
            }
            used = stat.log_bytes_used;
            sequence += 1;
            rig.write(sequence, (1 + sequence as u64 % 50) * 4096, &[1; 4096]).ok();
        }
    };
    fill(55);
    wait_until("the checkpoint", &trimmed);
    rig.ost.stop(true).unwrap();
    assert_eq!(rig.crashed(Crash::DropAll).read(0, 1), b"x");
}

#[test]
fn a_failed_volume_and_a_rotten_superblock_are_told() {
    use disk::Disk;
    let rig = Rig::new();
    let stat = rig.ask(&TargetStat {}).ok();
    assert_eq!((stat.failure.as_str(), stat.superblock_copies), ("", 2));
    // A bad copy does not prevent a start, and the start repairs it.
    let image = Arc::new(rig.disk.crash(Crash::KeepAll));
    image.write_at(&[0xff; 8], 64 << 10).unwrap();
    let faulty = Arc::new(disk::FaultyDisk::new(image));
    let ost = Ost::open(faulty.clone(), settings()).unwrap();
    ost.join(&reply_of_mgs()).unwrap();
    let rig = Rig { ost, ..rig };
    assert_eq!(rig.ask(&TargetStat {}).ok().superblock_copies, 1);
    // After a failed flush the target promises nothing; it still reports numbers.
    rig.write(1, 0, b"x").ok();
    faulty.fail(disk::Op::Flush, disk::When::Once);
    assert_eq!(rig.ask(&Flush {}).code(), Code::Io);
    let failure = rig.ask(&TargetStat {}).ok().failure;
    assert!(failure.contains("flush") && failure.contains("injected"), "{failure}");
}
