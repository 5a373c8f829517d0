//! store-S6: a write to reserved pages finds space, and no other write takes it.

use super::*;

const PAGES: u64 = 200;
const BYTES: u64 = PAGES * 4096;

impl Rig {
    fn reserve(&self, object: ObjectId, offset: u64, len: u64, end: u64) -> Result<Reservation, StoreError> {
        let mtime = Time::new(7, 0);
        let reserve = Reserve { object, offset, len, end, mtime, lease: 0, gate: &anyone, origin: None };
        Ok(Reservation::from_answer(self.store.reserve(&reserve)?.answer))
    }
    fn punch(&self, object: ObjectId, offset: u64, len: u64, leave: Leave) -> Result<Done, StoreError> {
        let mtime = Time::new(8, 0);
        self.store.punch(&Punch { object, offset, len, leave, mtime, lease: 0, gate: &anyone, origin: None })
    }
    fn release(&self, object: ObjectId, offset: u64, len: u64) {
        self.store.release(&Release { object, offset, len, lease: 0, gate: &anyone, origin: None }).unwrap();
    }
    fn used(&self) -> u64 {
        let usage = self.store.usage();
        usage.bytes_total - usage.bytes_free
    }
    /// Objects of 64 KiB from `from` on, until one is refused; how many.
    fn fill(&self, from: u64) -> u64 {
        let mut n = 0;
        for size in [64 << 10, 4096] {
            while self.write(id(from + n), 0, &pattern(n, size)).is_ok() {
                n += 1;
            }
        }
        n
    }
}

#[test]
fn a_write_to_reserved_pages_finds_space_on_a_full_medium() {
    let rig = Rig::new();
    rig.write(id(1), 5000, &[9; 100]).unwrap();
    let done = rig.reserve(id(1), 0, BYTES, BYTES - 5).unwrap();
    assert_eq!(done, Reservation { pages: PAGES - 1, is_mixed: false }, "one page has bytes");
    let attrs = rig.store.stat(id(1)).unwrap().unwrap();
    assert_eq!((attrs.len, attrs.used, attrs.reserved_end), (BYTES - 5, BYTES, BYTES));
    assert_eq!(rig.used(), BYTES);
    let mut want = vec![0; BYTES as usize - 5];
    want[5000..5100].fill(9);
    assert!(rig.content(id(1)).unwrap() == want, "reserved pages read as zeros");
    // 1. Others fill the medium, and meet its end before they meet what is promised; also after a crash.
    assert!(rig.fill(10) > 0);
    let rig = rig.crashed(Crash::KeepAll);
    rig.fill(100_000);
    assert!(matches!(rig.write(id(5), 0, &[1; 4096]), Err(StoreError::NoSpace(_))));
    assert!(matches!(rig.reserve(id(5), 0, 40 << 12, 0), Err(StoreError::NoSpace(_))));
    assert_eq!(rig.store.stat(id(5)).unwrap(), None, "nothing is left of a refused reservation");
    // 2. Every reserved page can be written, whole or in part.
    let all = pattern(3, BYTES as usize);
    for page in (0..PAGES).filter(|p| *p != 1) {
        let (skip, len) = if page % 3 == 0 { (100, 50) } else { (0, 4096) };
        let at = (page * 4096) as usize + skip;
        rig.write(id(1), at as u64, &all[at..at + len]).unwrap();
        if at + len > want.len() {
            want.resize(at + len, 0);
        }
        want[at..at + len].copy_from_slice(&all[at..at + len]);
    }
    assert!(rig.content(id(1)).unwrap() == want);
    let attrs = rig.store.stat(id(1)).unwrap().unwrap();
    assert_eq!((attrs.used, attrs.reserved_end), (BYTES, 0));
    // 3. Nothing is promised any more once small writes are folded, and a write of a page that has bytes is one like any other.
    rig.store.destage_all().unwrap();
    assert_eq!(rig.store.space.lock().promised_pages(), 0);
    assert!(rig.crashed(Crash::KeepAll).content(id(1)).unwrap() == want);
}

#[test]
fn what_is_reserved_is_freed_by_all_that_frees() {
    type Free = (&'static str, fn(&Rig), u64);
    let frees: [Free; 5] = [
        ("truncate", |rig| _ = rig.truncate(id(1), 4096 * 3 - 1).unwrap(), 3),
        ("punch", |rig| _ = rig.punch(id(1), 4096 * 2 - 1, BYTES, Leave::Hole).unwrap(), 2),
        ("release", |rig| rig.release(id(1), 4096 * 4, BYTES), 4),
        ("destroy", |rig| _ = rig.store.destroy(&[id(1)], None).unwrap(), 0),
        ("zero", |rig| _ = rig.punch(id(1), 0, BYTES, Leave::Reserved).unwrap(), PAGES),
    ];
    for (what, free, left) in frees {
        let rig = Rig::new();
        rig.reserve(id(1), 0, BYTES, 0).unwrap();
        assert_eq!(rig.store.stat(id(1)).unwrap().unwrap().len, 0, "space past the end");
        free(&rig);
        assert_eq!(rig.used(), left * 4096, "{what}");
        rig.seal();
        let again = rig.crashed(Crash::DropAll);
        assert_eq!(again.used(), left * 4096, "{what}, after a power loss");
        again.store.checkpoint().unwrap();
        assert_eq!(again.crashed(Crash::DropAll).used(), left * 4096, "{what}, from a checkpoint");
    }
}

#[test]
fn zeroed_pages_keep_their_space() {
    let rig = Rig::new();
    let old = pattern(1, BYTES as usize);
    rig.write(id(1), 0, &old).unwrap();
    rig.punch(id(1), 100, BYTES - 200, Leave::Reserved).unwrap();
    let mut want = old;
    want[100..BYTES as usize - 100].fill(0);
    assert!(rig.content(id(1)).unwrap() == want);
    assert_eq!((rig.used(), rig.store.stat(id(1)).unwrap().unwrap().reserved_end), (BYTES, BYTES - 4096));
    rig.fill(10);
    for page in 1..PAGES - 1 {
        rig.write(id(1), page * 4096, &[3; 4096]).unwrap();
    }
}

#[test]
fn punching_works_on_a_full_medium() {
    let rig = Rig::new();
    rig.write(id(1), 0, &pattern(1, BYTES as usize)).unwrap();
    rig.fill(10);
    let before = rig.used();
    rig.punch(id(1), 100, BYTES - 200, Leave::Hole).unwrap();
    assert_eq!(rig.used(), before - BYTES + 2 * 4096);
    rig.write(id(2), 0, &pattern(2, 64 << 10)).unwrap();
}

#[test]
fn a_repeated_reservation_promises_nothing_twice() {
    let rig = Rig::new();
    rig.reserve(id(1), 0, BYTES, 0).unwrap();
    let again = rig.reserve(id(1), 4096, BYTES, 0).unwrap();
    assert_eq!(again, Reservation { pages: 1, is_mixed: true });
    assert_eq!(rig.used(), BYTES + 4096);
    assert_eq!(rig.punch(id(2), 0, BYTES, Leave::Hole).unwrap().answer, 0);
    assert_eq!(rig.store.stat(id(2)).unwrap(), None, "of an absent object nothing is made");
}

#[test]
fn many_writers_and_reservers_never_take_what_is_promised() {
    let rig = Rig::new();
    rig.reserve(id(1), 0, BYTES, 0).unwrap();
    std::thread::scope(|scope| {
        let rig = &rig;
        for t in 0..3 {
            scope.spawn(move || {
                for n in 0..60 {
                    let (object, data) = (id(100 + t), pattern(n, 100_000));
                    let _ = rig.write(object, n * 50_000, &data);
                    let _ = rig.reserve(object, n * 70_000, 300_000, 0);
                    if n % 7 == 0 {
                        rig.truncate(object, n * 1000).unwrap();
                    }
                }
            });
        }
        scope.spawn(move || {
            for page in 0..PAGES {
                rig.write(id(1), page * 4096, &[page as u8; 4096]).unwrap();
            }
        });
    });
    let promised: u64 = rig.store.index.snapshot().iter().map(|(_, s)| s.reserved.pages()).sum();
    assert_eq!(rig.store.space.lock().promised_pages(), promised);
    assert_eq!(rig.crashed(Crash::KeepAll).used(), rig.used());
}
