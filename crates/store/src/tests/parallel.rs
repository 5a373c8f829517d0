//! Many threads: writers of one page lose nothing, readers under reuse see whole pages, writers of two objects overlap.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
