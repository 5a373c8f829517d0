//! Crashes at every point of a short history, and stops that are none.

use super::*;

#[test]
fn a_crash_at_every_write_leaves_a_state_that_was() {
    let rig = Rig::new();
    rig.store.begin_session(SESSION).unwrap();
    let (old, new) = (pattern(1, 10_000), pattern(2, 6_000));
    rig.write(id(1), 0, &old).unwrap();
    rig.store.flush().unwrap();
    rig.disk.record();
    // The history: overwrite inside, flush, cut, checkpoint, overwrite the whole, flush.
    let mut states = vec![old.clone()];
    let origin = |sequence| Some(Origin { session: SESSION, slot: 0, sequence });
    rig.write_as(id(1), 1000, &new, origin(1)).unwrap();
    let mut now = old;
    now[1000..7000].copy_from_slice(&new);
    states.push(now.clone());
    rig.store.flush().unwrap();
    rig.store
        .truncate(&Truncate { object: id(1), len: 5000, lease: 0, gate: &anyone, origin: origin(2) })
        .unwrap();
    now.truncate(5000);
    states.push(now.clone());
    rig.store.checkpoint().unwrap();
    rig.write_as(id(1), 0, &new, origin(3)).unwrap();
    states.push(new.clone());
    rig.store.flush().unwrap();
    let mtime = Time::default();
    let reserve = Reserve {
        object: id(1),
        offset: 0,
        len: 20_000,
        end: 20_000,
        mtime,
        lease: 0,
        gate: &anyone,
        origin: origin(4),
    };
    rig.store.reserve(&reserve).unwrap();
    now = new;
    now.resize(20_000, 0);
    states.push(now.clone());
    let punch = |leave, n| {
        let (object, offset, len) = (id(1), 1000, 4000);
        let punch = Punch { object, offset, len, leave, mtime, lease: 0, gate: &anyone, origin: origin(n) };
        rig.store.punch(&punch).unwrap()
    };
    punch(Leave::Reserved, 5);
    now[1000..5000].fill(0);
    states.push(now.clone());
    rig.write_as(id(1), 12_000, &[7; 3000], origin(6)).unwrap();
    now[12_000..15_000].fill(7);
    states.push(now.clone());
    rig.store.flush().unwrap();
    punch(Leave::Hole, 7);
    states.push(now);
    rig.store.flush().unwrap();

    let recording = rig.disk.take_recording().unwrap();
    for at in 0..=recording.events.len() {
        for crash in [Crash::KeepAll, Crash::DropAll, Crash::Torn(at as u64), Crash::Sectors(at as u64)] {
            let rig = Rig::open(Arc::new(recording.crash_at(at, crash)));
            let sequence = rig.store.slot(SESSION, 0).unwrap().sequence as usize;
            assert!(
                rig.content(id(1)).as_ref() == Some(&states[sequence]),
                "event {at}, {crash:?}, after {sequence}"
            );
        }
    }
}

#[test]
fn a_clean_stop_keeps_everything_and_replays_nothing() {
    let rig = Rig::new();
    rig.store.begin_session(SESSION).unwrap();
    rig.write(id(1), 5, b"hello").unwrap();
    rig.store.close().unwrap();
    assert!(rig.write(id(1), 5, b"later").is_err(), "closed is closed");
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.content(id(1)).unwrap(), b"\0\0\0\0\0hello");
    assert_eq!(again.store.usage().log_bytes_used, 0);
    assert_eq!(again.store.incarnation(), rig.store.incarnation());
    assert_eq!(again.store.session_count(), 1);
}

#[test]
fn slots_and_attributes_survive_log_and_checkpoint() {
    for with_checkpoint in [false, true] {
        let rig = Rig::new();
        rig.store.begin_session(SESSION).unwrap();
        let origin = Some(Origin { session: SESSION, slot: 5, sequence: 41 });
        let done = rig.write_as(id(1), 100, &[1; 50], origin).unwrap();
        rig.store.fence(id(1), 9).unwrap();
        rig.store.fence(id(2), 8).unwrap();
        if with_checkpoint {
            rig.store.checkpoint().unwrap();
        }
        let rig = rig.crashed(Crash::KeepAll);
        let slot = Slot { sequence: 41, seq: done.seq, answer: 1 << 48 | 150 };
        assert_eq!(rig.store.slot(SESSION, 5), Some(slot));
        let attrs = rig.store.stat(id(1)).unwrap().unwrap();
        assert_eq!((attrs.len, attrs.used, attrs.mtime, attrs.lease), (150, 4096, Time::new(101, 0), 9));
        assert_eq!(
            (rig.store.stat(id(2)).unwrap(), rig.store.lease(id(2)).unwrap()),
            (None, 8),
            "a fence may come before the object"
        );
        rig.store.end_session(SESSION).unwrap();
        assert_eq!(rig.crashed(Crash::KeepAll).store.slots(SESSION), None);
    }
}

#[test]
fn more_entries_than_the_log_holds_make_checkpoints_by_themselves() {
    let rig = Rig::new();
    for n in 0..9000u64 {
        rig.write(id(n % 7), n % 11 * 4096, &n.to_le_bytes()).unwrap();
    }
    let want: Vec<_> = (0..7).map(|n| rig.content(id(n)).unwrap()).collect();
    let again = rig.crashed(Crash::KeepAll);
    for (n, bytes) in want.iter().enumerate() {
        assert!(again.content(id(n as u64)).as_ref() == Some(bytes));
    }
}
