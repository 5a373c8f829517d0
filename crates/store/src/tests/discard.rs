//! Freed space goes back to the medium, and nothing else does.

use std::io;

use disk::{FaultyDisk, Op, When};
use parking_lot::Mutex;

use super::*;
use disk::freed::ROUNDS_YOUNG;

/// Runs something at the begin of each discard.
struct DiscardDisk {
    below: SimDisk,
    /// Of the host, if it is a sparse file.
    room_bytes: Mutex<Option<u64>>,
    discarded: Mutex<Vec<(u64, u64)>>,
    interruption: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Disk for DiscardDisk {
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
    fn room_below(&self) -> Option<u64> {
        *self.room_bytes.lock()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if let Some(run) = &mut *self.interruption.lock() {
            run();
        }
        self.discarded.lock().push((offset, len));
        self.below.discard(offset, len)
    }
}

/// A store with 40 MiB of data space.
fn discarding() -> (Arc<Engine>, Arc<DiscardDisk>) {
    let below = SimDisk::new(48 << 20);
    let (room_bytes, discarded, interruption) = Default::default();
    let disk = Arc::new(DiscardDisk { below, room_bytes, discarded, interruption });
    Engine::format(&*disk, label(), false).unwrap();
    (Arc::new(Engine::open(disk.clone()).unwrap()), disk)
}

/// A process that ends remembers nothing: the next one finds all that is free.
#[test]
fn what_was_freed_before_a_restart_goes_back_to_a_sparse_files_host() {
    for is_clean in [true, false] {
        let (store, disk) = discarding();
        *disk.room_bytes.lock() = Some(1 << 40);
        for n in 0..4 {
            write(&store, id(1), n << 20, &pattern(n, 1 << 20), None).unwrap();
        }
        write(&store, id(2), 0, &pattern(9, 1 << 20), None).unwrap();
        let begin = store.at(0);
        store.destroy(&[id(1)], None).unwrap();
        store.flush().unwrap();
        if is_clean {
            store.close().unwrap();
        }
        drop(store);
        disk.discarded.lock().clear();
        let store = Engine::open(disk.clone()).unwrap();
        store.discard().unwrap();
        let discarded = std::mem::take(&mut *disk.discarded.lock());
        assert!(
            (0..4).all(|n| discarded.iter().any(|(at, len)| (*at..at + len).contains(&(begin + (n << 20)))))
        );
        assert!(read(&store, id(2), 0, 1 << 20).unwrap().unwrap() == pattern(9, 1 << 20));
        // Once.
        store.discard().unwrap();
        assert_eq!(*disk.discarded.lock(), []);
    }
}

#[test]
fn a_full_host_gets_what_is_freed_at_once_and_is_all_that_can_be_promised() {
    let (store, disk) = discarding();
    *disk.room_bytes.lock() = Some(0);
    write(&store, id(1), 0, &pattern(1, 1 << 20), None).unwrap();
    assert_eq!(store.usage().bytes_available, 0);
    store.destroy(&[id(1)], None).unwrap();
    seal_and_age(&store, 1);
    assert_eq!(disk.discarded.lock().len(), 1);
    *disk.room_bytes.lock() = Some(5 << 20);
    assert_eq!(store.usage().bytes_available, 5 << 20);
}

/// Seals, and lets the store make `rounds` rounds.
fn seal_and_age(store: &Engine, rounds: u32) {
    store.seal().unwrap();
    store.reclaim_now();
    (0..rounds).for_each(|_| store.discard().unwrap());
}

#[test]
fn freed_space_goes_back_to_the_medium_after_a_while() {
    let (store, disk) = discarding();
    let whole = store.usage();
    for n in 0..4 {
        write(&store, id(1), n << 20, &pattern(n, 1 << 20), None).unwrap();
    }
    write(&store, id(2), 0, &pattern(9, 4096), None).unwrap();
    let discarded = || std::mem::take(&mut *disk.discarded.lock());
    store.destroy(&[id(1)], None).unwrap();
    // Not sealed: recovery may want it (store-D2).
    (0..3 * ROUNDS_YOUNG).for_each(|_| store.discard().unwrap());
    assert_eq!(discarded(), []);
    // Just freed (store-D3); then it goes, and once.
    seal_and_age(&store, ROUNDS_YOUNG);
    assert_eq!(discarded(), []);
    seal_and_age(&store, ROUNDS_YOUNG);
    assert_eq!(discarded(), [(store.at(0), 4 << 20)]);
    seal_and_age(&store, 3 * ROUNDS_YOUNG);
    assert_eq!(discarded(), []);
    assert_eq!(store.usage().bytes_free, whole.bytes_total - 4096);
    // Ranges that were allocated again meanwhile are not discarded.
    write(&store, id(3), 0, &pattern(3, 1 << 20), None).unwrap();
    store.destroy(&[id(3)], None).unwrap();
    seal_and_age(&store, ROUNDS_YOUNG);
    write(&store, id(4), 0, &pattern(4, 4096), None).unwrap();
    seal_and_age(&store, ROUNDS_YOUNG);
    for (at, len) in discarded() {
        let place = store.at(store.index.get(&id(4)).unwrap().read().extents.site(0).unwrap().page);
        assert!(!(at..at + len).contains(&place));
    }
    for (n, salt) in [(2, 9), (4, 4)] {
        assert_eq!(read(&store, id(n), 0, 4096).unwrap().unwrap(), pattern(salt, 4096));
    }
}

#[test]
fn nothing_is_written_where_a_discard_is_under_way() {
    let (store, disk) = discarding();
    let free = store.usage().bytes_free;
    for n in 0..6 {
        write(&store, id(1), n << 20, &pattern(n, 1 << 20), None).unwrap();
    }
    store.destroy(&[id(1)], None).unwrap();
    seal_and_age(&store, ROUNDS_YOUNG);
    // The lowest addresses are taken first: those that are being discarded, were they free.
    let (writer, mut n) = (store.clone(), 10);
    *disk.interruption.lock() = Some(Box::new(move || {
        let before = writer.usage().bytes_free;
        write(&writer, id(n), 0, &pattern(n, 300_000), None).unwrap();
        assert_eq!(before - writer.usage().bytes_free, 74 * 4096, "what is out is free nonetheless");
        n += 1;
    }));
    seal_and_age(&store, ROUNDS_YOUNG);
    *disk.interruption.lock() = None;
    let discards = disk.discarded.lock().len() as u64;
    assert!(discards > 0);
    for n in 10..10 + discards {
        assert!(read(&store, id(n), 0, 300_000).unwrap().unwrap() == pattern(n, 300_000), "object {n}");
    }
    assert_eq!(free - store.usage().bytes_free, discards * 74 * 4096);
}

#[test]
fn a_discard_that_fails_loses_no_space() {
    let disk = Arc::new(FaultyDisk::new(Arc::new(SimDisk::new(48 << 20))));
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    let free = store.usage().bytes_free;
    write(&store, id(1), 0, &pattern(1, 1 << 20), None).unwrap();
    store.destroy(&[id(1)], None).unwrap();
    seal_and_age(&store, 2 * ROUNDS_YOUNG - 1);
    disk.fail(Op::Discard, When::Always);
    assert!(matches!(store.discard(), Err(StoreError::Discard { .. })));
    let space = store.space.lock();
    assert_eq!((space.free_pages() * 4096, space.freed.out_pages), (free, 0));
}

/// The device may yet carry it out, whatever is written there until then.
#[test]
fn d5_a_discard_that_was_given_up_keeps_its_space_from_writers() {
    for is_lost in [false, true] {
        let disk = Arc::new(FaultyDisk::new(Arc::new(SimDisk::new(48 << 20))));
        Engine::format(&*disk, label(), false).unwrap();
        let store = Engine::open(disk.clone()).unwrap();
        let (told, free) = (store.usage().bytes_free, store.space.lock().free_pages());
        write(&store, id(1), 0, &pattern(1, 1 << 20), None).unwrap();
        store.destroy(&[id(1)], None).unwrap();
        seal_and_age(&store, 2 * ROUNDS_YOUNG - 1);
        disk.hang(true);
        disk.give_up(is_lost);
        match (store.discard(), is_lost) {
            (Err(StoreError::Discard { .. }), false) | (Err(StoreError::Volume(_)), true) => {}
            (other, _) => panic!("{other:?}"),
        }
        disk.hang(false);
        let space = store.space.lock();
        let out = space.freed.out_pages;
        assert!(out >= 256);
        assert_eq!((space.free_pages(), store.volume().failure().is_some()), (free - out, is_lost));
        drop(space);
        assert_eq!(store.usage().bytes_free, told, "as before the discard");
    }
}

#[test]
fn a_medium_that_is_nearly_full_keeps_what_was_freed() {
    let (store, disk) = discarding();
    let mut n = 0;
    while write(&store, id(n), 0, &pattern(n, 1 << 20), None).is_ok() {
        n += 1;
    }
    store.destroy(&[id(3), id(4)], None).unwrap();
    seal_and_age(&store, 3 * ROUNDS_YOUNG);
    assert_eq!(*disk.discarded.lock(), [], "store-D4: a writer may want it at once");
    write(&store, id(n), 0, &pattern(n, 1 << 20), None).unwrap();
}
