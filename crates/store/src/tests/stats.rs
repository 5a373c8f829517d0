//! Counters agree with what was done, and none of the device's writes is missed.

use super::*;
use disk::Event;
use disk::counted::class_of;

#[test]
fn what_users_and_the_device_were_asked_is_counted_by_purpose() {
    let rig = Rig::new();
    let start = rig.store.stats();
    assert_eq!(start.user, UserStats::default());
    rig.write(id(1), 0, &pattern(1, 1 << 20)).unwrap();
    rig.write(id(2), 100, &pattern(2, 50)).unwrap();
    rig.read(id(1), 0, 8192).unwrap();
    rig.store.flush().unwrap();
    rig.store.checkpoint().unwrap();
    let s = rig.store.stats();
    let user = UserStats { writes: 2, bytes_written: (1 << 20) + 50, reads: 1, bytes_read: 8192 };
    assert_eq!(s.user, user);
    let d = s.device;
    assert_eq!(d.data.counts[class_of(1 << 20)], 1, "one write of 1 MiB");
    assert!(d.log.count() >= 2 && d.checkpoint.count() >= 1 && d.superblock.count() >= 2);
    assert!(d.flushes > start.device.flushes && d.reads.bytes >= 8192);
    assert_eq!((d.bytes, s.log_bytes_total), (MEDIUM_BYTES, (1 << 20) - 4096));
    assert!(d.bytes_written() > s.user.bytes_written);
}

#[test]
fn no_device_write_is_missed() {
    let rig = Rig::new();
    let before = rig.store.stats().device;
    rig.disk.record();
    for i in 0..40 {
        rig.write(id(i % 7), i * 5000, &pattern(i, 7000 + 100 * i as usize)).unwrap();
        if i % 5 == 0 {
            rig.truncate(id(i % 7), i * 3000 + 17).unwrap();
            rig.store.destroy(&[id(6)], None).unwrap();
        }
    }
    rig.seal();
    rig.store.checkpoint().unwrap();
    rig.store.set_label(label()).unwrap();
    rig.store.close().unwrap();
    let after = rig.store.stats().device;
    let events = rig.disk.take_recording().unwrap().events;
    let (mut bytes, mut writes, mut flushes) = (0, 0, 0);
    for e in &events {
        match e {
            Event::Write { data, .. } => (bytes, writes) = (bytes + data.len() as u64, writes + 1),
            Event::Flush | Event::FlushSide(_) => flushes += 1,
            _ => {}
        }
    }
    let count = |d: &DeviceStats| {
        [d.data, d.log, d.checkpoint, d.superblock, d.destage].iter().map(|s| s.count()).sum::<u64>()
    };
    assert_eq!(after.bytes_written() - before.bytes_written(), bytes);
    assert_eq!(count(&after) - count(&before), writes);
    assert_eq!(after.flushes - before.flushes, flushes);
}

/// The bytes written in a target's whole life survive stops, and after crashes as far as the log has them.
#[test]
fn the_count_of_a_life_goes_on_after_stops_and_crashes() {
    let rig = Rig::new();
    rig.store.begin_service(1000);
    rig.store.begin_service(2000);
    rig.write(id(1), 0, &pattern(1, 1 << 20)).unwrap();
    rig.store.close().unwrap();
    let before = rig.store.stats().service;
    let rig = Rig::open(rig.disk.clone());
    let kept = rig.store.stats().service;
    assert_eq!((kept.since_sec, kept.user_bytes_written), (1000, 1 << 20));
    // But for the checkpoint itself, the superblocks of stop and start.
    let after_it = before.bytes_written.abs_diff(kept.bytes_written);
    assert!(kept.bytes_written > 1 << 20 && after_it < 64 << 10, "{before:?} {kept:?}");
    rig.write(id(2), 0, &pattern(2, 3 << 20)).unwrap();
    rig.store.flush().unwrap();
    let rig = rig.crashed(Crash::DropAll);
    let crashed = rig.store.stats().service;
    assert_eq!(crashed.user_bytes_written, 4 << 20);
    assert!(crashed.bytes_written >= kept.bytes_written + (3 << 20), "{kept:?} {crashed:?}");
}

/// Each of two devices has a budget of its own.
#[test]
fn what_goes_to_the_logs_own_device_is_not_the_data_devices() {
    use disk::{Format, Media, NewLog, Volume};
    let (main, log) = (Arc::new(SimDisk::new(MEDIUM_BYTES)), Arc::new(SimDisk::new(3 << 20)));
    let format = Format { label: label(), log_bytes: 1 << 20, checkpoint_bytes: 2 << 20 };
    Volume::format_on(&*main, Some(NewLog { disk: &*log, uuid: Uuid([9; 16]) }), &format, false).unwrap();
    let store = Engine::open(Media { main: main.clone(), log: Some(log) }).unwrap();
    let begun = store.stats();
    main.record();
    write(&store, id(1), 0, &pattern(1, 200 << 10), None).unwrap();
    write(&store, id(1), 9, &pattern(2, 5000), None).unwrap();
    store.checkpoint().unwrap();
    let events = main.take_recording().unwrap().events;
    let sum = |e: &Event| if let Event::Write { data, .. } = e { data.len() as u64 } else { 0 };
    let s = store.stats();
    assert_eq!(s.device.bytes_written() - begun.device.bytes_written(), events.iter().map(sum).sum());
    assert!(s.device.log.bytes > begun.device.log.bytes);
    assert_eq!(s.device.log_device_bytes, 3 << 20);
    assert_eq!(s.service.bytes_written - begun.service.bytes_written, events.iter().map(sum).sum());
}
