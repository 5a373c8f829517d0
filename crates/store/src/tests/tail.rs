//! The log's tail as a role: what shares a write of the log, what waits, and what a failed write leaves.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use disk::MemDisk;
use parking_lot::{Condvar, Mutex};

use super::*;

const PAGE: usize = PAGE_SIZE;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    Shut,
    /// As open, and every write fails.
    Broken,
}

/// A medium whose log writes wait at a gate.
struct GateDisk {
    below: MemDisk,
    log: OnceLock<Range<u64>>,
    way: Mutex<Way>,
    changed: Condvar,
    /// Log writes that have come to the gate.
    begun: AtomicUsize,
}

impl GateDisk {
    fn set(&self, way: Way) {
        *self.way.lock() = way;
        self.changed.notify_all();
    }
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

impl Disk for GateDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.log.get().is_some_and(|log| log.contains(&offset)) {
            self.begun.fetch_add(1, Ordering::SeqCst);
            let mut way = self.way.lock();
            while *way == Way::Shut {
                self.changed.wait(&mut way);
            }
            if *way == Way::Broken {
                return Err(io::Error::other("the gate is broken"));
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

/// Object 1 has eight pages of ones. No log write comes to the gate for the ring's first lap alone.
fn gated() -> (Arc<GateDisk>, Engine) {
    let disk = Arc::new(GateDisk {
        below: MemDisk::new(MEDIUM_BYTES),
        log: OnceLock::new(),
        way: Mutex::new(Way::Open),
        changed: Condvar::new(),
        begun: AtomicUsize::new(0),
    });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    write(&store, id(1), 0, &[1; 8 * PAGE], None).unwrap();
    disk.log.set(store.volume().layout().log).unwrap();
    (disk, store)
}

/// Until it is so; other threads bring it about.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

fn waiting(store: &Engine) -> usize {
    store.tail.hold().next.members.len()
}

fn page_of(store: &Engine, page: usize) -> Vec<u8> {
    read(store, id(1), (page * PAGE) as u64, PAGE as u32).unwrap().unwrap()
}

#[test]
fn t1_overwrites_that_come_during_a_log_write_share_the_next_and_are_seen_after_it() {
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    disk.set(Way::Shut);
    let mut done: Vec<Done> = Vec::new();
    thread::scope(|s| {
        let put = |page: usize| {
            s.spawn(move || write(store, id(1), (page * PAGE) as u64, &[2; PAGE], None).unwrap())
        };
        let first = put(0);
        until(|| disk.begun() == 1);
        let others: Vec<_> = [1, 2, 3, 3, 4].into_iter().map(put).collect();
        until(|| waiting(store) == 5);
        // store-T1: admitted, and nothing of it is seen.
        let seen = read(store, id(1), 0, 8 * PAGE as u32).unwrap().unwrap();
        disk.set(Way::Open);
        done.extend([first].into_iter().chain(others).map(|t| t.join().unwrap()));
        assert!(seen == [1; 8 * PAGE]);
    });
    assert_eq!(disk.begun(), 2, "one write for the first, and one for the five that came meanwhile");
    assert!((0..5).all(|page| page_of(store, page) == [2; PAGE]) && page_of(store, 5) == [1; PAGE]);
    let mut seqs: Vec<Seq> = done.iter().map(|d| d.seq).collect();
    seqs.sort_unstable();
    assert!(seqs.windows(2).all(|w| w[0].0 + 1 == w[1].0), "one entry each: {seqs:?}");
    assert!(done.iter().all(|d| d.answer == done[0].answer));
}

#[test]
fn t1_a_failed_log_write_fails_all_of_its_batch_and_applies_none() {
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    disk.set(Way::Shut);
    let mut results = Vec::new();
    thread::scope(|s| {
        let put = |page: usize| {
            s.spawn(move || write(store, id(1), (page * PAGE) as u64, &[2; PAGE], None).is_err())
        };
        let first = put(0);
        until(|| disk.begun() == 1);
        let others: Vec<_> = (1..6).map(put).collect();
        until(|| waiting(store) == 5);
        disk.set(Way::Broken);
        results.extend([first].into_iter().chain(others).map(|t| t.join().unwrap()));
    });
    assert_eq!(results, [true; 6], "each is told");
    assert!(read(store, id(1), 0, 8 * PAGE as u32).unwrap().unwrap() == [1; 8 * PAGE], "none is applied");
    assert!(write(store, id(1), 0, &[3; PAGE], None).is_err(), "the volume has failed for good");
}

#[test]
fn t2_what_is_no_overwrite_waits_until_all_before_it_is_applied_and_nobody_passes_it() {
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    disk.set(Way::Shut);
    let (mut cut, mut later) = (None, None);
    thread::scope(|s| {
        let put = |page: usize, len: usize| {
            s.spawn(move || write(store, id(1), (page * PAGE) as u64, &vec![2; len], None))
        };
        let first = put(0, PAGE);
        until(|| disk.begun() == 1);
        let second = put(1, PAGE);
        until(|| waiting(store) == 1);
        let truncation = s.spawn(move || {
            store.truncate(&Truncate { object: id(1), len: 4096, lease: 0, gate: &anyone, origin: None })
        });
        until(|| store.tail.hold().wanting_still() == 1);
        let third = put(6, 100);
        until(|| store.tail.hold().wanting_in() == 1);
        assert_eq!(waiting(store), 1, "it does not join");
        disk.set(Way::Open);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        cut = Some(truncation.join().unwrap().unwrap());
        later = Some(third.join().unwrap().unwrap());
    });
    let (cut, later) = (cut.unwrap(), later.unwrap());
    assert_eq!(cut.answer, 4096);
    // By then page 6 was a hole, and the object ended before it.
    assert!(later.seq > cut.seq);
    let want = Written { len: 6 * 4096 + 100, pages: 1, granted: false };
    assert_eq!(Written::from_answer(later.answer), want);
    assert_eq!(store.stat(id(1)).unwrap().unwrap().used, 2 * 4096);
}

/// Pages of object 1 that are written at once, all in one piece: by a thread each, while the first one's log write waits. Returns how many of
/// the others joined it, and the log writes in all.
fn write_at_once(spans: &[Range<usize>]) -> (usize, usize, Vec<Seq>) {
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    disk.set(Way::Shut);
    let (mut joined, mut seqs) = (0, Vec::new());
    thread::scope(|s| {
        let put = |(n, span): (usize, &Range<usize>)| {
            let (at, bytes) = ((span.start * PAGE) as u64, vec![n as u8 + 2; span.len() * PAGE]);
            s.spawn(move || write(store, id(1), at, &bytes, None).unwrap().seq)
        };
        let mut all = spans.iter().enumerate();
        let mut threads: Vec<_> = all.next().map(put).into_iter().collect();
        until(|| disk.begun() == 1);
        threads.extend(all.map(put));
        // The others have joined, or wait until the tail is still. From the first of these on the rest waits to join.
        until(|| {
            let held = store.tail.hold();
            joined = held.next.members.len();
            joined + held.wanting_still() + held.wanting_in() == spans.len() - 1
        });
        disk.set(Way::Open);
        seqs.extend(threads.into_iter().map(|t| t.join().unwrap()));
    });
    assert!(store.tail.hold().touched.is_empty());
    for (n, span) in spans.iter().enumerate() {
        let is_covered =
            |page: &usize| spans.iter().zip(&seqs).any(|(other, seq)| other.contains(page) && *seq > seqs[n]);
        for page in span.clone().filter(|page| !is_covered(page)) {
            assert!(
                page_of(store, page) == vec![n as u8 + 2; PAGE],
                "page {page} has what the last entry says"
            );
        }
    }
    (joined, disk.begun(), seqs)
}

/// store-T2: they wait for one write of the log, and in a mirror for one trip.
#[test]
fn t2_writes_of_whole_pages_beside_each_other_share_a_batch() {
    let (joined, writes, seqs) = write_at_once(&[0..32, 32..64, 64..96, 96..128, 200..240]);
    assert_eq!((joined, writes), (4, 2), "one log write for the first, and one for the others");
    let mut seqs: Vec<u64> = seqs.iter().map(|seq| seq.0).collect();
    seqs.sort_unstable();
    assert!(seqs.windows(2).all(|w| w[0] + 1 == w[1]), "one entry each: {seqs:?}");
}

#[test]
fn t2_writes_that_meet_in_a_page_come_one_after_the_other() {
    // With the one that is being written, with one that waits, and a small write with a large one.
    for spans in [vec![0..32, 31..64], vec![0..32, 64..96, 95..128], vec![0..32, 31..32], vec![0..1, 0..32]] {
        let (joined, ..) = write_at_once(&spans);
        assert!(joined + 1 < spans.len(), "{spans:?}: one of them waits");
    }
}

#[test]
fn t3_a_checkpoint_waits_for_what_is_under_way_and_has_it() {
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    disk.set(Way::Shut);
    thread::scope(|s| {
        let put = |page: usize| {
            s.spawn(move || write(store, id(1), (page * PAGE) as u64, &[2; PAGE], None).unwrap())
        };
        let first = put(0);
        until(|| disk.begun() == 1);
        let second = put(1);
        until(|| waiting(store) == 1);
        let checkpoint = s.spawn(move || store.checkpoint().unwrap());
        until(|| store.tail.hold().wanting_still() == 1);
        disk.set(Way::Open);
        checkpoint.join().unwrap();
        assert!(first.join().unwrap().seq.max(second.join().unwrap().seq) == store.last_seq());
    });
    assert_eq!(store.volume().checkpoint_seq(), store.last_seq());
}

/// Until it is applied it was counted as on its way, too: a log that is nearly full was checkpointed for nothing.
#[test]
fn what_the_log_has_is_no_more_on_its_way() {
    let (_disk, store) = gated();
    let store = &store;
    thread::scope(|s| {
        let object = store.index.get(&id(1)).unwrap();
        // Nothing of the object is applied while it is read.
        let seen = object.read();
        let before = store.volume().log_used();
        s.spawn(move || write(store, id(1), 0, &[2; PAGE], None).unwrap());
        until(|| store.volume().log_used() > before);
        let is_counted_once = (0..1_000_000).any(|_| {
            thread::yield_now();
            store.tail.writing_bytes() == 0
        });
        drop(seen);
        assert!(is_counted_once);
    });
}

/// Counted as taken and as promised, space would be refused to others for as long as the writer waits.
#[test]
fn a_writer_of_reserved_pages_has_his_claim_until_it_is_his_turn() {
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    let bytes = 64 * PAGE as u64;
    let reserve = Reserve {
        object: id(2),
        offset: 0,
        len: bytes,
        end: bytes,
        mtime: Time::default(),
        lease: 0,
        gate: &anyone,
        origin: None,
    };
    store.reserve(&reserve).unwrap();
    let promised = || store.space.lock().promised_pages();
    disk.set(Way::Shut);
    let begun = disk.begun();
    let mut seen = Vec::new();
    thread::scope(|s| {
        s.spawn(move || write(store, id(1), 0, &[2; PAGE], None).unwrap());
        until(|| disk.begun() == begun + 1);
        seen.push(promised());
        let large = s.spawn(move || write(store, id(2), 0, &[3; 64 * PAGE], None).unwrap());
        until(|| store.tail.hold().wanting_still() == 1);
        seen.push(promised());
        disk.set(Way::Open);
        large.join().unwrap();
    });
    assert_eq!(seen[0], seen[1] + 64);
    assert_eq!(store.space.lock().reserved, 0);
}

/// One too many, and no start would read the checkpoint.
#[test]
fn sessions_that_begin_at_once_find_room_one_after_the_other() {
    let (disk, mut store) = gated();
    store.sessions_bytes_max = 0;
    let kept = crate::state::room::SESSIONS_KEPT as u64;
    (1..kept).for_each(|n| store.begin_session(SessionId(n)).unwrap());
    let (store, disk) = (&store, &disk);
    disk.set(Way::Shut);
    let begun = disk.begun();
    thread::scope(|s| {
        s.spawn(move || write(store, id(1), 0, &[2; PAGE], None).unwrap());
        until(|| disk.begun() == begun + 1);
        for n in [1000, 1001] {
            s.spawn(move || store.begin_session(SessionId(n)).unwrap());
        }
        until(|| store.tail.hold().wanting_still() == 2);
        disk.set(Way::Open);
    });
    assert_eq!(store.session_count() as u64, kept);
    assert!([1000, 1001].into_iter().all(|n| store.slots(SessionId(n)).is_some()), "both have theirs");
}

#[test]
fn the_role_is_handed_on_and_nobody_is_forgotten() {
    // More batches than one writes for others, each of one.
    let (disk, store) = gated();
    let (store, disk) = (&store, &disk);
    let done = AtomicUsize::new(0);
    thread::scope(|s| {
        for t in 0..3 {
            let done = &done;
            s.spawn(move || {
                for n in 0..2000u64 {
                    let page = (t * 2 + n as usize % 2) * PAGE;
                    write(store, id(1), page as u64, &pattern(n, PAGE / 8), None).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 6000);
    assert!(store.tail.hold().is_empty() && disk.begun() > crate::state::tail::ROUNDS_MAX);
}

/// Overwrites of few pages by many threads, the log gone around several times: memory has what the log says, and that is what the order of
/// the answers' seqs says.
#[test]
fn s3_many_threads_are_applied_in_the_order_of_the_log() {
    const THREADS: u64 = 6;
    const PAGES: u64 = 5;
    let rig = Rig::new();
    rig.write(id(1), 0, &[0; PAGES as usize * PAGE]).unwrap();
    let last: Mutex<BTreeMap<u64, (Seq, u64)>> = Mutex::default();
    let (shared, last_seen) = (&rig, &last);
    thread::scope(|s| {
        for t in 0..THREADS {
            s.spawn(move || {
                let mut rng = disk::SplitMix::new(t);
                for n in 0..250 {
                    let (page, salt) = (rng.below(PAGES), t << 32 | n);
                    let done = shared.write(id(1), page * 4096, &pattern(salt, PAGE)).unwrap();
                    let mut last = last_seen.lock();
                    let newest = last.entry(page).or_insert((done.seq, salt));
                    assert!(newest.0 != done.seq || newest.1 == salt, "one entry each");
                    if done.seq > newest.0 {
                        *newest = (done.seq, salt);
                    }
                }
            });
        }
        // Now and then something else.
        for n in 0..40 {
            shared.write(id(2), n * 5000, &pattern(n, 3000)).unwrap();
            shared.store.checkpoint().unwrap();
        }
    });
    assert!(rig.store.volume().position().pos > 4 << 20, "the ring was gone around");
    let check = |rig: &Rig| {
        for (page, (_, salt)) in &*last.lock() {
            let bytes = rig.read(id(1), page * 4096, PAGE as u32).unwrap().unwrap();
            assert!(bytes == pattern(*salt, PAGE), "page {page}");
        }
    };
    check(&rig);
    check(&rig.crashed(Crash::KeepAll));
}

#[test]
fn t2_what_changes_more_than_bytes_does_not_join() {
    // Past the end, behind a hole, with a newer lease.
    for (offset, lease) in [(8 * 4096 - 50, 0), (20 * 4096, 0), (4096, 7)] {
        let (disk, store) = gated();
        let (store, disk) = (&store, &disk);
        disk.set(Way::Shut);
        thread::scope(|s| {
            let first = s.spawn(move || write(store, id(1), 0, &[2; PAGE], None).unwrap());
            until(|| disk.begun() == 1);
            let other = s.spawn(move || {
                let data = [3; 100];
                let crcs = fragment_crcs(offset, &data);
                let (object, mtime, gate) = (id(1), Time::default(), &anyone);
                let write = Write {
                    object,
                    offset,
                    data: &data,
                    crcs: &crcs,
                    mtime,
                    lease,
                    gate,
                    origin: None,
                    holder: None,
                };
                store.write(&write).unwrap()
            });
            until(|| store.tail.hold().wanting_still() == 1 || waiting(store) == 1);
            let joined = waiting(store);
            disk.set(Way::Open);
            assert_eq!(first.join().unwrap().seq.0 + 1, other.join().unwrap().seq.0);
            assert_eq!(joined, 0, "offset {offset}, lease {lease}");
        });
    }
}

/// The log is full in the middle of what comes during one write of it: what fits shares the next write, and the rest waits for the checkpoint
/// that makes room. Over a crash at that moment nothing is lost that was acknowledged, and afterwards nothing at all.
#[test]
fn a_log_that_fills_in_the_middle_of_a_batch_takes_what_fits_and_the_rest_waits() {
    const WRITERS: usize = 12;
    // An overwrite goes into the log whole, and twelve of them are more than it has left.
    const BYTES: usize = 15 * PAGE - 100;
    let at = |n: usize| (n * 16 * PAGE) as u64;
    let (disk, store) = gated();
    for n in 0..=WRITERS {
        write(&store, id(1), at(n), &[1; 16 * PAGE], None).unwrap();
    }
    // Entries of which a checkpoint needs none, up to where small writes begin to help; a little less, so that the first goes in.
    let capacity = store.volume().log_capacity();
    let mut lease = 0;
    while store.volume().log_used() < capacity / 8 * 5 {
        lease += 1;
        store.fence(id(2), lease).unwrap();
    }
    let (store_seen, disk_seen) = (&store, &disk);
    let begun = disk.begun();
    disk.set(Way::Shut);
    let mut joined = 0;
    let mut crashed = Vec::new();
    let mut done: Vec<Done> = Vec::new();
    thread::scope(|s| {
        let put = |n: usize| {
            s.spawn(move || write(store_seen, id(1), at(n) + 50, &vec![n as u8 + 2; BYTES], None).unwrap())
        };
        let first = put(0);
        until(|| disk_seen.begun() == begun + 1);
        let others: Vec<_> = (1..=WRITERS).map(put).collect();
        // A writer that found no space is about to make some. The others are as large, so none of them finds space either.
        until(|| store_seen.overlay.destager.is_locked() || waiting(store_seen) == WRITERS);
        joined = waiting(store_seen);
        crashed.resize(MEDIUM_BYTES as usize, 0);
        disk_seen.below.read_at(&mut crashed, 0).unwrap();
        disk_seen.set(Way::Open);
        done.extend([first].into_iter().chain(others).map(|t| t.join().unwrap()));
    });
    assert!(joined > 0 && joined < WRITERS, "in the middle: {joined} of {WRITERS} went in");
    assert!(store.volume().checkpoint_seq() > Seq(lease), "a checkpoint made room for the rest");
    let mut seqs: Vec<Seq> = done.iter().map(|d| d.seq).collect();
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), WRITERS + 1, "an entry each");
    let check = |store: &Engine, of: &dyn Fn(usize) -> u8| {
        assert_eq!(store.lease(id(2)).unwrap(), lease);
        for n in 0..=WRITERS {
            let bytes = read(store, id(1), at(n), 16 * PAGE as u32).unwrap().unwrap();
            let want = [vec![1; 50], vec![of(n); BYTES], vec![1; 16 * PAGE - 50 - BYTES]].concat();
            assert!(bytes == want, "writer {n}");
        }
    };
    let now = |n: usize| n as u8 + 2;
    check(&store, &now);
    // The process ends, without a word to the medium.
    drop(store);
    check(&Engine::open(disk).unwrap(), &now);
    // And at the moment when the log was full, before any of these was acknowledged.
    let medium = MemDisk::new(MEDIUM_BYTES);
    medium.write_at(&crashed, 0).unwrap();
    check(&Engine::open(Arc::new(medium)).unwrap(), &|_| 1);
}
