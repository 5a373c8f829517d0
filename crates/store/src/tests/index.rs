//! The index is on the medium, and memory has a part of it: nothing of that shows, whatever is in memory when.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use disk::{FileDisk, MemDisk, SplitMix};
use parking_lot::Mutex;

use super::life::is_long;
use super::world::check_books;
use super::*;

/// Room for a few dozen objects in memory, and leaves of a few objects.
const TIGHT: Settings = Settings { index_bytes_max: 24 << 10, leaf_bytes: 600, ..PLACING };
const MEDIUM: u64 = 64 << 20;

fn fresh() -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new(MEDIUM));
    Engine::format(&*disk, label(), false).unwrap();
    disk
}

#[test]
fn memory_has_a_part_and_a_clean_start_reads_none_of_the_rest() {
    let disk = fresh();
    let store = Engine::open_with(disk.clone(), TIGHT).unwrap();
    let content = |n: u64| pattern(n, 10 + n as usize % 90);
    for n in 0..3000 {
        write(&store, id(n * 7 % 3000), 0, &content(n * 7 % 3000), None).unwrap();
        assert!(store.index.memory() < 3 * TIGHT.index_bytes_max, "{}", store.index.memory());
    }
    check_books(&store).unwrap();
    store.close().unwrap();
    drop(store);
    let store = Engine::open_with(disk.clone(), TIGHT).unwrap();
    assert_eq!((store.index.leaves.reads(), store.index.memory()), (0, 0), "the start looks at no object");
    assert_eq!((store.usage().objects, store.last_object()), (3000, Some(id(2999))));
    for n in (0..3000).map(|n| n * 11 % 3000) {
        assert!(read(&store, id(n), 0, 100).unwrap() == Some(content(n)), "{n}");
        assert!(store.index.memory() < 3 * TIGHT.index_bytes_max, "{}", store.index.memory());
    }
    assert_eq!(read(&store, id(3000), 0, 100).unwrap(), None);
    assert_eq!(store.stat(ObjectId { stripe: 1, ..id(5) }).unwrap(), None);
    // Some go, and what is left is listed in order, whatever of it is in memory.
    let gone: Vec<ObjectId> = (0..3000).filter(|n| n % 3 != 0).map(id).collect();
    gone.chunks(100).for_each(|some| assert!(store.destroy(some, None).is_ok()));
    let list = |store: &Engine| {
        let (mut all, mut after, mut more) = (vec![], None, true);
        while more {
            let page;
            (page, more) = store.list(after, 77).unwrap();
            after = page.last().map(|(id, _)| *id);
            all.extend(page.into_iter().map(|(id, _)| id));
        }
        all
    };
    let want: Vec<ObjectId> = (0..3000).filter(|n| n % 3 == 0).map(id).collect();
    assert!(list(&store) == want);
    check_books(&store).unwrap();
    // The rest goes too: nothing is left of leaves.
    want.chunks(100).for_each(|some| assert!(store.destroy(some, None).is_ok()));
    store.checkpoint().unwrap();
    assert_eq!((list(&store), store.index.leaves.pages_used(), store.last_object()), (vec![], 0, None));
    assert_eq!(store.index.bytes(), 0);
}

/// A disk where, once, two reads wait for each other before either returns.
struct Meeting {
    below: Arc<MemDisk>,
    two: Mutex<Option<Arc<Barrier>>>,
}

impl Disk for Meeting {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let two = self.two.lock().clone();
        if let Some(two) = two {
            two.wait();
        }
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
}

#[test]
fn memory_keeps_each_leaf_once_and_none_that_was_replaced() {
    let disk = Arc::new(Meeting { below: fresh(), two: Mutex::default() });
    let store = Engine::open_with(disk.clone(), Settings { leaf_bytes: 600, ..PLACING }).unwrap();
    for n in 0..100 {
        write(&store, id(n), 0, &pattern(n, 10), None).unwrap();
    }
    store.checkpoint().unwrap();
    let leaves = || store.index.leaves_now().leaves.clone();
    let kept = || {
        let (count, bytes, _) = store.index.leaves.in_memory();
        (count as usize, bytes)
    };
    // Two miss the same one at once.
    *disk.two.lock() = Some(Arc::new(Barrier::new(2)));
    let leaf = leaves()[0].clone();
    thread::scope(|s| {
        let both = [(); 2].map(|()| s.spawn(|| store.index.leaves.read(&leaf).unwrap()));
        let [one, other] = both.map(|thread| thread.join().unwrap());
        assert!(Arc::ptr_eq(&one, &other));
    });
    *disk.two.lock() = None;
    assert_eq!((kept(), store.index.leaves.reads()), ((1, leaf.place.bytes), 2));
    // One is replaced again and again.
    for salt in 0..30 {
        let old = leaves();
        write(&store, id(0), 0, &pattern(salt, 10), None).unwrap();
        store.checkpoint().unwrap();
        assert_eq!(kept().0, 0, "it went with its leaf");
        // A reader may still use the old leaf.
        assert!(!Arc::ptr_eq(&old[0], &leaves()[0]));
        store.index.leaves.read(&old[0]).unwrap();
        assert_eq!(kept(), (0, 0));
    }
    leaves().iter().for_each(|leaf| drop(store.index.leaves.read(leaf).unwrap()));
    assert_eq!(kept(), (leaves().len(), leaves().iter().map(|leaf| leaf.place.bytes).sum()));
}

/// Each thread has objects of its own, and knows what they are like; checkpoints, evictions and lists are everybody's.
#[test]
fn objects_come_and_go_beside_checkpoints_and_evictions() {
    let disk = fresh();
    let store = &Engine::open_with(disk.clone(), TIGHT).unwrap();
    const OBJECTS: u64 = 40;
    let known: Vec<Vec<Option<Vec<u8>>>> = thread::scope(|s| {
        let owner = |t: u64| {
            let mut rng = SplitMix::new(t);
            let mut known: Vec<Option<Vec<u8>>> = vec![None; OBJECTS as usize];
            for step in 0..1500 {
                let n = rng.below(OBJECTS);
                let (object, now) = (id(n * 10 + t), &mut known[n as usize]);
                match rng.below(8) {
                    0 => {
                        store.destroy(&[object], None).unwrap();
                        *now = None;
                    }
                    1 => {
                        let len = rng.below(9000);
                        store
                            .truncate(&Truncate { object, len, lease: 0, gate: &anyone, origin: None })
                            .unwrap();
                        now.iter_mut().for_each(|bytes| bytes.resize(len as usize, 0));
                    }
                    2..5 => {
                        let bytes = pattern(t << 32 | step, 1 + rng.below(5000) as usize);
                        write(store, object, 0, &bytes, None).unwrap();
                        let old = now.get_or_insert_default();
                        old.resize(old.len().max(bytes.len()), 0);
                        old[..bytes.len()].copy_from_slice(&bytes);
                    }
                    _ => assert!(read(store, object, 0, 1 << 20).unwrap() == *now, "{object} at step {step}"),
                }
            }
            known
        };
        let owners: Vec<_> = (0..3).map(|t| s.spawn(move || owner(t))).collect();
        let (mut pages, mut checkpoints) = (0, 0);
        while !owners.iter().all(|o| o.is_finished()) {
            let (list, _) = store.list(Some(id(pages % 400)), 60).unwrap();
            assert!(list.is_sorted_by(|a, b| a.0 < b.0));
            pages += 61;
            checkpoints += u64::from(store.checkpoint().is_ok());
        }
        assert!(checkpoints > 0);
        owners.into_iter().map(|o| o.join().unwrap()).collect()
    });
    check_books(store).unwrap();
    store.close().unwrap();
    let again = Engine::open_with(disk, TIGHT).unwrap();
    for (t, of_owner) in known.iter().enumerate() {
        for (n, want) in of_owner.iter().enumerate() {
            let object = id(n as u64 * 10 + t as u64);
            assert!(read(&again, object, 0, 1 << 20).unwrap() == *want, "{object}");
        }
    }
}

/// Objects that are about to change stay in memory. So do objects with patches, whose bytes are in memory only.
#[test]
fn what_must_not_go_stays() {
    let disk = fresh();
    let small = Settings { patch_bytes_max: 4096, ..TIGHT };
    let store = Engine::open_with(disk, small).unwrap();
    write(&store, id(0), 0, &pattern(0, 8192), None).unwrap();
    write(&store, id(0), 100, b"a small write", None).unwrap();
    let kept = store.index.load(&id(1)).unwrap();
    // A checkpoint has all of it, so nothing but these must stay.
    store.checkpoint().unwrap();
    for n in 2..2000 {
        write(&store, id(n), 0, &[1; 4096], None).unwrap();
    }
    assert!(store.index.get(&id(0)).unwrap().read().patches.get(0).is_some(), "store-I5");
    assert!(Arc::ptr_eq(&kept, &store.index.load(&id(1)).unwrap()), "store-I6");
    let mut want = pattern(0, 8192);
    want[100..113].copy_from_slice(b"a small write");
    assert!(read(&store, id(0), 0, 9000).unwrap() == Some(want));
}

/// Objects so large that each is a leaf by itself, between many small ones.
#[test]
fn large_objects_have_leaves_of_their_own() {
    let disk = fresh();
    let store = Engine::open_with(disk.clone(), Settings { leaf_bytes: 1024, ..TIGHT }).unwrap();
    for round in 0..3u64 {
        for n in 0..60 {
            let pages = if n % 20 == 7 { 700 } else { 1 };
            // Every second page: an extent each.
            for page in (0..pages).step_by(2) {
                write(&store, id(n), page * 4096, &pattern(round + n + page, 4096), None).unwrap();
            }
        }
        store.checkpoint().unwrap();
        check_books(&store).unwrap();
    }
    let leaves = store.index.leaves_now();
    assert!(leaves.leaves.iter().filter(|leaf| leaf.place.bytes > 2400).count() == 3);
    let (last, others) = leaves.leaves.split_last().unwrap();
    assert!(
        others.iter().all(|leaf| leaf.place.bytes >= 512),
        "store-L3, and after the last comes none: {last:?}"
    );
    store.close().unwrap();
    let again = Engine::open_with(disk, TIGHT).unwrap();
    for (n, page) in [(7, 698), (27, 0), (47, 350), (59, 0), (0, 0)] {
        assert!(read(&again, id(n), page * 4096, 4096).unwrap() == Some(pattern(2 + n + page, 4096)));
    }
}

/// A medium without its data region, whose writes are lost: all that the index needs is there.
struct Hollow {
    below: FileDisk,
    data_begin: AtomicU64,
    bytes: u64,
}

impl Disk for Hollow {
    fn size(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if offset < self.data_begin.load(Ordering::Relaxed) {
            self.below.write_at(buf, offset)
        } else {
            Ok(())
        }
    }
    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The ten million with `STRIA_LONG=1` (by itself: it prints what the process takes); a thousandth of that and of the memory
/// else.
#[test]
fn memory_does_not_grow_with_the_number_of_objects() {
    let (objects, memory) = if is_long() { (10_000_000, 512 << 20) } else { (10_000, 512 << 10) };
    let settings = Settings { index_bytes_max: memory, leaf_bytes: 32 << 10, ..PLACING };
    let dir = std::env::temp_dir().join(format!("stria-hollow-{}", std::process::id()));
    // Slots for objects of one page each.
    let division = Geometry { checkpoint_bytes: (objects * 160).max(4 << 20), ..geometry(objects << 15) };
    let bytes = (objects * 4096 / 9 * 10).max(32 << 20) + 2 * division.checkpoint_bytes + division.log_bytes;
    let below = FileDisk::create(dir.clone(), bytes).unwrap();
    std::fs::remove_file(dir).unwrap();
    let disk = Arc::new(Hollow { below, data_begin: AtomicU64::new(u64::MAX), bytes });
    Engine::format_as(&*disk, label(), division, false).unwrap();
    let open = || {
        let begin = Instant::now();
        let store = Engine::open_with(disk.clone(), settings).unwrap();
        (store, begin.elapsed())
    };
    let (store, _) = open();
    disk.data_begin.store(store.data_begin, Ordering::Relaxed);
    let empty = resident_bytes();
    let say = |store: &Engine, what: &str, begin: Instant| {
        let (memory, resident) = (store.index.memory() >> 20, (resident_bytes().saturating_sub(empty)) >> 20);
        let leaves = store.index.leaves_now().leaves.len();
        println!(
            "       {what}: {:?}; index {memory} MiB, process {resident} MiB, {leaves} leaves",
            begin.elapsed()
        );
    };
    let begin = Instant::now();
    let page = [7; 4096];
    for n in 0..objects {
        write(&store, id(n), 0, &page, None).unwrap();
    }
    say(&store, "made", begin);
    assert!(store.index.memory() < memory / 4 * 5, "{}", store.index.memory());
    // Or a recovery would look for data of what may not be flushed.
    store.seal().unwrap();
    let last = store.vol.last_seq();
    drop(store);
    let (store, took) = open();
    println!("       start after a crash: {took:?}");
    assert_eq!((store.vol.last_seq(), store.usage().objects), (last, objects));
    store.close().unwrap();
    drop(store);
    let (store, took) = open();
    println!("       start after a clean stop: {took:?}");
    assert_eq!(store.usage().objects, objects);
    let mut rng = SplitMix::new(1);
    let begin = Instant::now();
    for _ in 0..objects / 10 {
        assert_eq!(store.stat(id(rng.below(objects))).unwrap().unwrap().len, 4096);
    }
    say(&store, "a tenth looked at, anywhere", begin);
    let begin = Instant::now();
    for n in 0..objects / 100 {
        store.fence(id(rng.below(objects)), n + 1).unwrap();
    }
    say(&store, "a hundredth changed, anywhere", begin);
    let begin = Instant::now();
    store.checkpoint().unwrap();
    say(&store, "checkpoint", begin);
    assert!(store.index.memory() < memory / 4 * 5, "{}", store.index.memory());
}
