//! store-S5: a full medium.

use disk::FaultyDisk;

use super::*;
use crate::state::room::SESSION_BYTES_MAX;
use crate::state::room::SESSIONS_KEPT;

#[test]
fn a_full_medium_refuses_cleanly_and_lives_on() {
    let rig = Rig::new();
    let chunk = pattern(1, 64 << 10);
    // 1. Fill.
    let mut written = 0u64;
    let refused = loop {
        match rig.write(id(written), 0, &chunk) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace(_)), "{refused}");
    assert_eq!(Fault::from(refused).code, Code::NoSpace);
    let usage = rig.store.usage();
    assert!(usage.bytes_available < 64 << 10 && usage.bytes_total >= written * (64 << 10), "{usage:?}");
    assert_eq!(rig.store.stat(id(written)).unwrap(), None, "nothing of the refused write is there");
    // 2. What is there is there; overwriting needs new space and is refused whole; cutting works from the reserve.
    rig.seal();
    while rig.write(id(500), usage.objects * 4096, &[1; 4096]).is_ok()
        && rig.store.usage().bytes_available > 0
    {}
    assert!(matches!(rig.write(id(0), 0, &chunk), Err(StoreError::NoSpace(_))));
    assert_eq!(rig.content(id(0)).unwrap(), chunk);
    rig.truncate(id(1), 50_001).unwrap();
    assert_eq!(rig.content(id(1)).unwrap(), chunk[..50_001]);
    // 3. Deleting works, and at once there is room: what waits to be sealed is sealed when it is wanted (store-O1).
    rig.store.destroy(&[id(2), id(3)], None).unwrap();
    rig.write(id(600), 0, &chunk).unwrap();
    assert_eq!(rig.content(id(600)).unwrap(), chunk);
    // 4. All of it survives.
    let again = rig.crashed(Crash::KeepAll);
    assert_eq!(again.content(id(600)).unwrap(), chunk);
    assert_eq!(again.content(id(1)).unwrap(), chunk[..50_001]);
    // 5. Everything removed is everything free.
    let all: Vec<ObjectId> = (0..700).map(id).collect();
    again.store.destroy(&all, None).unwrap();
    let empty = again.store.usage();
    assert_eq!((empty.bytes_free, empty.objects), (empty.bytes_total, 0));
    again.write(id(1), 0, &chunk).unwrap();
}

#[test]
fn a_full_host_below_a_sparse_medium_is_no_space_and_nothing_worse() {
    let disk = Arc::new(FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES))));
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open_with(disk.clone(), PLACING).unwrap();
    let old = pattern(1, 64 << 10);
    write(&store, id(1), 0, &old, None).unwrap();
    disk.fill_host();
    // 1. A write that needs a fresh block is refused whole, its pages go back, and nothing failed for good.
    let free = store.usage().bytes_free;
    for offset in [0, 5000] {
        let refused = write(&store, id(1), offset, &pattern(2, 8192), None).unwrap_err();
        assert_eq!(Fault::from(refused).code, Code::NoSpace);
    }
    assert_eq!((store.usage().bytes_free, store.volume().failure()), (free, None));
    assert_eq!(read(&store, id(1), 0, 64 << 10).unwrap().unwrap(), old);
    // 2. Whatever needs no fresh block works, for more than the log holds: lease versions, removal, flushes, checkpoints.
    for n in 0..20_000 {
        store.fence(id(1), n + 1).unwrap();
    }
    store.seal().unwrap();
    store.checkpoint().unwrap();
    store.destroy(&[id(1)], None).unwrap();
    store.seal().unwrap();
    // 3. What was freed is used again: its blocks are there.
    write(&store, id(2), 0, &old, None).unwrap();
    // 4. And with room all is as ever.
    disk.empty_host();
    write(&store, id(3), 0, &old, None).unwrap();
    store.close().unwrap();
    drop(store);
    let again = Engine::open(disk).unwrap();
    assert_eq!(read(&again, id(2), 0, 64 << 10).unwrap().unwrap(), old);
    assert_eq!(read(&again, id(3), 0, 64 << 10).unwrap().unwrap(), old);
}

#[test]
fn a_full_index_refuses_writes_and_the_log_can_still_be_trimmed() {
    let rig = Rig::new();
    let n = fill_index(&rig);
    // Fences, which recovery needs, succeed for a while, until their share is full too.
    let mut m = 1 << 20;
    let refused = loop {
        match rig.store.fence(id(m), 1) {
            Ok(()) => m += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace("the index of objects is full")), "{refused}");
    rig.store.checkpoint().unwrap();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.store.usage().objects, n);
    assert_eq!(again.store.lease(id(m - 1)).unwrap(), 1);
    assert!(again.write(id(m), 0, b"x").is_err());
    // An object that the index has needs no room to be fenced.
    again.store.fence(id(5), 9).unwrap();
    again.store.destroy(&[id(0), id(1 << 20)], None).unwrap();
    again.store.fence(id(m), 1).unwrap();
}

/// Single bytes in single pages, and no page left over for more: the index is full before the data. How many objects there are.
fn fill_index(rig: &Rig) -> u64 {
    let mut n = 0;
    loop {
        match rig.write(id(n), 0, b"x") {
            Ok(_) => n += 1,
            Err(StoreError::NoSpace("the medium is full")) => break,
            Err(e) => panic!("{e}"),
        }
    }
    // The medium was full first: lease versions of what does not exist take the rest.
    let mut m = 1 << 30;
    while rig.store.usage().objects_free > 0 {
        rig.store.fence(id(m), 1).unwrap();
        m += 1;
    }
    n
}

#[test]
fn a_full_index_takes_sessions_and_fences_what_a_dead_client_left() {
    let rig = Rig::new();
    let written = fill_index(&rig);
    // 1. Recovery of a file whose layout names objects that were never written.
    for n in 0..1000 {
        rig.store.fence(id((1 << 20) + n), 1).unwrap();
    }
    // 2. Clients attach again and again, and none detaches.
    let session = |n: usize| SessionId(1000 + n as u64);
    let room = (rig.store.sessions_bytes_max / SESSION_BYTES_MAX) as usize;
    assert!(room > SESSIONS_KEPT);
    for n in 0..2 * room {
        rig.store.begin_session(session(n)).unwrap();
        assert!(rig.store.slots(session(n)).is_some());
        rig.store.begin_session(session(0)).unwrap();
        let origin = Origin { session: session(0), slot: 0, sequence: n as u32 + 1 };
        rig.store.destroy(&[], Some(origin)).unwrap();
    }
    assert_eq!(rig.store.session_count(), room);
    assert_eq!(rig.store.slot(session(0), 0).unwrap().sequence, 2 * room as u32, "it was never idle");
    assert!(rig.store.slots(session(1)).is_none(), "the idlest went");
    // 3. Even with the last fence gone.
    let mut m = 1 << 21;
    while rig.store.fence(id(m), 1).is_ok() {
        m += 1;
    }
    rig.store.begin_session(SessionId(5)).unwrap();
    // 4. All of it fits the checkpoint, and removing works.
    rig.store.checkpoint().unwrap();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.store.session_count(), room);
    again.store.destroy(&(0..written).map(id).collect::<Vec<_>>(), None).unwrap();
    again.write(id(m), 0, b"x").unwrap();
}

/// Small writes are acknowledged in the log: each finds its place later, also when the medium is full by then, and removing works.
#[test]
fn small_writes_until_it_is_full_all_find_their_place() {
    let rig = Rig::new();
    let chunk = pattern(1, 1 << 20);
    let mut large = 0;
    while rig.write(id(large), 0, &chunk).is_ok() {
        large += 1;
    }
    let mut small = 0;
    let refused = loop {
        match rig.write(id(1000), small * 4096, &pattern(small, 3000)) {
            Ok(_) => small += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace(_)) && small > 10, "{refused} after {small}");
    assert!(rig.store.stats().small.patched_writes > 0, "they went into the log");
    let check = |rig: &Rig| {
        for page in 0..small {
            assert_eq!(rig.read(id(1000), page * 4096, 3000).unwrap().unwrap(), pattern(page, 3000));
        }
        assert_eq!(rig.content(id(1)).unwrap(), chunk);
    };
    rig.store.destage_all().unwrap();
    check(&rig);
    // One goes, and half of it is room at once for another.
    rig.store.destroy(&[id(0)], None).unwrap();
    rig.write(id(2000), 0, &chunk[..512 << 10]).unwrap();
    check(&rig);
    let again = rig.crashed(Crash::KeepAll);
    check(&again);
    assert_eq!(again.content(id(2000)).unwrap(), chunk[..512 << 10]);
}

#[test]
fn overwrites_at_once_on_an_almost_full_medium_all_find_room() {
    const BYTES: usize = 128 << 10;
    let rig = Rig::placing();
    // Objects of four writers, then everything but room for one overwrite and a half.
    for n in 0..4 {
        rig.write(id(n), 0, &pattern(n, BYTES)).unwrap();
    }
    let mut n = 10;
    while rig.store.usage().bytes_available > BYTES as u64 * 3 / 2 {
        rig.write(id(n), 0, &pattern(n, 16 << 10)).unwrap();
        n += 1;
    }
    let store = &rig.store;
    std::thread::scope(|s| {
        for writer in 0..4 {
            s.spawn(move || {
                for round in 0..40 {
                    let done = write(store, id(writer), 0, &pattern(round, BYTES), None);
                    assert!(done.is_ok(), "writer {writer}, round {round}: {done:?}");
                }
            });
        }
    });
    assert!((0..4).all(|n| rig.content(id(n)).unwrap() == pattern(39, BYTES)));
}
