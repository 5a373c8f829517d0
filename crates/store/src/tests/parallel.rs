//! Many threads: writers of one page lose nothing, readers under reuse see whole pages, writers of two objects overlap.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use disk::MemDisk;
use parking_lot::{Condvar, Mutex};

use super::*;

#[test]
fn writers_of_parts_of_one_page_lose_no_byte() {
    let rig = Rig::new();
    const THREADS: usize = 6;
    const PART: usize = 37;
    let parts = 3 * 4096 / PART;
    let shared = &rig;
    thread::scope(|s| {
        for t in 0..THREADS {
            s.spawn(move || {
                for part in (t..parts).step_by(THREADS) {
                    let bytes = [part as u8 | 1; PART];
                    shared.write(id(1), (part * PART) as u64, &bytes).unwrap();
                }
            });
        }
        // Whole pages of a neighbour, flushed and reclaimed, so that places change hands meanwhile.
        s.spawn(move || {
            for n in 0..60 {
                shared.write(id(2), n % 7 * 4096, &pattern(n, 8192)).unwrap();
                shared.seal();
            }
        });
    });
    let content = rig.content(id(1)).unwrap();
    for part in 0..parts {
        assert!(content[part * PART..(part + 1) * PART].iter().all(|b| *b == part as u8 | 1), "part {part}");
    }
}

#[test]
fn readers_see_whole_pages_while_space_is_reused_under_them() {
    let rig = Rig::new();
    const PAGES: usize = 64;
    let fill = |n: u8| vec![n; PAGES * 4096];
    rig.write(id(1), 0, &fill(0)).unwrap();
    let (shared, done) = (&rig, AtomicBool::new(false));
    let done = &done;
    let reads = AtomicUsize::new(0);
    let reads_seen = &reads;
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let got = shared.read(id(1), 100, 50 * 4096).expect("no damage").unwrap();
                    // Extents are taken in one look, so the whole read is of one moment.
                    assert!(got.iter().all(|b| *b == got[0]), "bytes of two writes in one look");
                    reads_seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in 1..120u8 {
            shared.write(id(1), 0, &fill(n)).unwrap();
            shared.seal();
        }
        // The readers may not have begun yet.
        while reads_seen.load(Ordering::Relaxed) == 0 {
            shared.write(id(1), 0, &fill(119)).unwrap();
            shared.seal();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(rig.content(id(1)).unwrap(), fill(119));
}

/// Holds every large write until two are there at once.
struct MeetingDisk {
    below: MemDisk,
    waiting: Mutex<usize>,
    met: Condvar,
}

impl Disk for MeetingDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if buf.len() == 300 * 4096 / 3 {
            let deadline = Instant::now() + Duration::from_secs(10);
            let mut waiting = self.waiting.lock();
            *waiting += 1;
            self.met.notify_all();
            while *waiting < 2 {
                if self.met.wait_until(&mut waiting, deadline).timed_out() {
                    return Err(io::Error::other("the other writer did not come: data I/O is serialized"));
                }
            }
        }
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
fn writers_of_two_objects_do_their_data_io_at_once() {
    let below = MemDisk::new(MEDIUM_BYTES);
    let disk = Arc::new(MeetingDisk { below, waiting: Mutex::new(0), met: Condvar::new() });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk).unwrap();
    let store = &store;
    thread::scope(|s| {
        for n in 1..=2 {
            s.spawn(move || write(store, id(n), 0, &pattern(n, 100 * 4096), None).unwrap());
        }
    });
    assert_eq!(store.usage().objects, 2);
}

#[test]
fn writers_and_checkpoints_do_not_disturb_each_other() {
    let rig = Rig::new();
    let shared = &rig;
    thread::scope(|s| {
        for t in 0..3u64 {
            s.spawn(move || {
                for n in 0..150u64 {
                    shared.write(id(t), n % 9 * 5000, &pattern(t * 1000 + n, 5000)).unwrap();
                }
            });
        }
        for _ in 0..10 {
            shared.store.checkpoint().unwrap();
        }
    });
    let want: Vec<_> = (0..3).map(|t| rig.content(id(t)).unwrap()).collect();
    let again = rig.crashed(Crash::KeepAll);
    for (t, bytes) in want.iter().enumerate() {
        assert!(again.content(id(t as u64)).as_ref() == Some(bytes));
        let last = pattern(t as u64 * 1000 + 149, 5000);
        assert_eq!(bytes[149 % 9 * 5000..][..5000], last);
    }
}

/// Runs something in the middle of the next data write of one page.
struct InterruptedDisk {
    below: MemDisk,
    data_begin: AtomicUsize,
    interruption: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Disk for InterruptedDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let is_data = offset >= self.data_begin.load(Ordering::Relaxed) as u64 && buf.len() == 4096;
        let run = if is_data { self.interruption.lock().take() } else { None };
        if let Some(run) = run {
            run();
        }
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
}

/// A store whose next page write is interrupted by what `interrupt` is given.
fn interruptible() -> (Arc<Engine>, Arc<InterruptedDisk>) {
    let below = MemDisk::new(MEDIUM_BYTES);
    let disk = Arc::new(InterruptedDisk {
        below,
        data_begin: AtomicUsize::new(usize::MAX),
        interruption: Mutex::new(None),
    });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Arc::new(Engine::open_with(disk.clone(), PLACING).unwrap());
    disk.data_begin.store(store.at(0) as usize, Ordering::Relaxed);
    (store, disk)
}

fn interrupt(disk: &InterruptedDisk, store: &Arc<Engine>, run: impl FnOnce(&Engine) + Send + 'static) {
    let store = store.clone();
    *disk.interruption.lock() = Some(Box::new(move || run(&store)));
}

#[test]
fn a_merge_whose_page_was_overwritten_meanwhile_is_made_anew() {
    let (store, disk) = interruptible();
    write(&store, id(1), 0, &[b'a'; 4096], None).unwrap();
    interrupt(&disk, &store, |store| {
        write(store, id(1), 0, &[b'b'; 4096], None).unwrap();
    });
    write(&store, id(1), 10, b"part", None).unwrap();
    let mut want = vec![b'b'; 4096];
    want[10..14].copy_from_slice(b"part");
    assert!(read(&store, id(1), 0, 4096).unwrap() == Some(want), "no byte of the whole-page write is lost");
}

#[test]
fn a_merge_whose_object_was_destroyed_meanwhile_has_nothing_of_it() {
    let (store, disk) = interruptible();
    write(&store, id(1), 0, &[b'a'; 4096], None).unwrap();
    interrupt(&disk, &store, |store| {
        store.destroy(&[id(1)], None).unwrap();
    });
    write(&store, id(1), 2, b"new", None).unwrap();
    assert_eq!(read(&store, id(1), 0, 4096).unwrap().unwrap(), b"\0\0new");
}

#[test]
fn a_truncation_whose_page_was_overwritten_meanwhile_cuts_the_new_one() {
    let (store, disk) = interruptible();
    write(&store, id(1), 0, &[b'a'; 8192], None).unwrap();
    interrupt(&disk, &store, |store| {
        write(store, id(1), 4096, &[b'b'; 4096], None).unwrap();
    });
    store.truncate(&Truncate { object: id(1), len: 4100, lease: 0, gate: &anyone, origin: None }).unwrap();
    write(&store, id(1), 6000, b"end", None).unwrap();
    let mut want = vec![0; 2000];
    want[..96].fill(b'a');
    want[96..100].fill(b'b');
    let got = read(&store, id(1), 4000, 2000).unwrap().unwrap();
    assert!(got == want, "old bytes do not come back and none behind the cut either");
}

/// Runs something in the middle of every second flush: the last one of a sealing.
struct FlushDisk {
    below: MemDisk,
    flushes: AtomicUsize,
    each: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Disk for FlushDisk {
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
        if let Some(each) = &mut *self.each.lock()
            && self.flushes.fetch_add(1, Ordering::Relaxed) % 2 == 1
        {
            each();
        }
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
}

#[test]
fn what_the_last_sealing_frees_is_taken_too() {
    let below = MemDisk::new(MEDIUM_BYTES);
    let disk = Arc::new(FlushDisk { below, flushes: AtomicUsize::new(0), each: Mutex::default() });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Arc::new(Engine::open(disk.clone()).unwrap());
    // 1. Full but for the reserve, and nothing waits to be sealed. One page is given up.
    let mut n = 0;
    while write(&store, id(n), 0, &[1; 4096], None).is_ok() {
        n += 1;
    }
    assert!(store.usage().bytes_available == 0 && n > 10);
    store.destroy(&[id(0)], None).unwrap();
    // 2. While it is sealed another is given up, and so on: three in all, each too late for the sealing under way.
    let (others, mut next) = (store.clone(), 1);
    *disk.each.lock() = Some(Box::new(move || {
        if next < 3 {
            others.destroy(&[id(next)], None).unwrap();
            next += 1;
        }
    }));
    write(&store, id(n), 0, &[2; 3 * 4096], None).expect("the third sealing frees the third page");
    // The disk and what it runs hold each other.
    *disk.each.lock() = None;
}

/// Each time that the slow writer has sealed the waiting pages, as many wait again. Once the other writer is done, it finds its space.
#[test]
fn who_is_slower_than_another_to_take_what_he_sealed_is_not_told_that_it_is_full() {
    const BYTES: usize = 128 << 10;
    const OTHER_BYTES: usize = 32 << 10;
    const OVERWRITES: u64 = 40;
    let below = MemDisk::new(MEDIUM_BYTES);
    let disk = Arc::new(FlushDisk { below, flushes: AtomicUsize::new(0), each: Mutex::default() });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Arc::new(Engine::open_with(disk.clone(), PLACING).unwrap());
    // 1. Room for the one overwrite, but not beside what waits of the other's.
    write(&store, id(0), 0, &pattern(7, OTHER_BYTES), None).unwrap();
    write(&store, id(1), 0, &pattern(8, BYTES), None).unwrap();
    let mut n = 10;
    while store.usage().bytes_available >= (BYTES + OTHER_BYTES) as u64 {
        write(&store, id(n), 0, &pattern(n, 4096), None).unwrap();
        n += 1;
    }
    assert!(store.usage().bytes_available >= BYTES as u64);
    write(&store, id(0), 0, &pattern(9, OTHER_BYTES), None).unwrap();
    let (other, left) = (store.clone(), Arc::new(AtomicU64::new(OVERWRITES)));
    let other_left = left.clone();
    *disk.each.lock() = Some(Box::new(move || {
        let left = other_left.load(Ordering::Relaxed);
        // The other writer is quick because it need not seal: its pages are free.
        let has_room = {
            let space = other.space.lock();
            let kept = crate::state::space::reserve_pages(space.total_pages());
            space.free_pages() >= kept + (OTHER_BYTES / PAGE_SIZE) as u64
        };
        if left > 0 && has_room {
            other_left.store(left - 1, Ordering::Relaxed);
            write(&other, id(0), 0, &pattern(left, OTHER_BYTES), None).unwrap();
        }
    }));
    // 2.
    write(&store, id(1), 0, &pattern(10, BYTES), None).unwrap();
    assert_eq!(left.load(Ordering::Relaxed), 0, "the other was quicker each time");
    // 3. More than there is is refused soon, while the other is at it.
    left.store(OVERWRITES, Ordering::Relaxed);
    let much = pattern(11, BYTES + 2 * OTHER_BYTES);
    assert!(matches!(write(&store, id(2), 0, &much, None), Err(StoreError::NoSpace(_))));
    assert!(left.load(Ordering::Relaxed) > OVERWRITES / 2);
    // The disk and what it runs hold each other.
    *disk.each.lock() = None;
    assert_eq!(read(&store, id(1), 0, BYTES as u32).unwrap().unwrap(), pattern(10, BYTES));
}
