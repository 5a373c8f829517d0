//! Small writes in the log: what keeps the log, what lets it go, and that overwrites find room.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use disk::Event;

use super::*;

/// A store whose page 0 of object 1 has a part in the log and rot below.
fn stuck() -> Rig {
    let rig = Rig::new();
    rig.write(id(1), 0, &pattern(1, 64 << 10)).unwrap();
    rig.flip(rig.place(id(1), 0));
    rig.write(id(1), 100, b"a part").unwrap();
    rig.store.destage_all().unwrap();
    assert_eq!(rig.store.overlay.pages(), 1, "it cannot be folded");
    rig
}

#[test]
fn what_cannot_be_folded_does_not_hold_the_log() {
    let rig = stuck();
    let capacity = rig.store.usage().log_bytes_total;
    // Entries of all kinds, for many times the log.
    for n in 0..40_000u64 {
        rig.store.fence(id(2), n + 1).unwrap();
        if n % 1000 == 0 {
            rig.write(id(3), 0, &pattern(n, 64 << 10)).unwrap();
            rig.store.destage().unwrap();
        }
    }
    assert!(rig.store.vol.last_seq().0 * 80 > 2 * capacity, "the log went round");
    let again = rig.crashed(Crash::KeepAll);
    assert_eq!(again.read(id(1), 8192, 100).unwrap().unwrap(), pattern(1, 64 << 10)[8192..8292]);
    assert!(matches!(again.read(id(1), 0, 4096), Err(StoreError::Damaged { .. })), "and it is damage still");
    // Written whole, it is sound.
    again.write(id(1), 0, &pattern(9, 4096)).unwrap();
    again.store.destage_all().unwrap();
    assert_eq!(again.store.overlay.pages(), 0);
    assert_eq!(again.read(id(1), 0, 4096).unwrap().unwrap(), pattern(9, 4096));
}

#[test]
fn the_log_is_kept_for_every_patch_that_is_live() {
    let rig = stuck();
    // Older and younger than what is stuck; some are changed, and folded, and stuck again, while checkpoints are made.
    for n in 0..300u64 {
        rig.write(id(2), n % 7 * 4096 + 5, &n.to_le_bytes()).unwrap();
        if n % 3 == 0 {
            rig.store.destage().unwrap();
        }
        if n % 5 == 0 {
            rig.store.checkpoint().unwrap();
        }
        let oldest = rig.store.oldest_patch().map_or(u64::MAX, |point| point.seq.0);
        for (object, state) in rig.store.index.snapshot() {
            for (page, patch) in state.patches.iter() {
                assert!(patch.since().0 > oldest, "page {page} of {object} at round {n}");
            }
        }
    }
    let again = rig.crashed(Crash::KeepAll);
    for n in 293..300u64 {
        let at = n % 7 * 4096 + 5;
        assert_eq!(again.read(id(2), at, 8).unwrap().unwrap(), n.to_le_bytes());
    }
}

#[test]
fn small_overwrites_find_room_that_folding_makes() {
    let rig = Rig::new();
    let whole = pattern(1, 1 << 20);
    rig.write(id(1), 0, &whole).unwrap();
    let mut n = 10;
    while rig.store.usage().bytes_available > 40 << 12 {
        rig.write(id(n), 0, &pattern(n, 4096)).unwrap();
        n += 1;
    }
    // Each of these pages has a place already; more of them than there are free pages.
    for page in 0..200u64 {
        rig.write(id(1), page * 4096, &pattern(page, 4096)).unwrap();
    }
    assert!((0..200).all(|p| rig.read(id(1), p * 4096, 4096).unwrap().unwrap() == pattern(p, 4096)));
}

#[test]
fn age_counts_again_after_a_long_rest() {
    let rig = Rig::new();
    rig.write(id(1), 0, &pattern(1, 64 << 10)).unwrap();
    (0..100).for_each(|_| rig.store.destage().unwrap());
    assert!(rig.store.overlay.rounds.lock().len() < 10);
    rig.write(id(1), 5, b"old after some rounds").unwrap();
    for n in 0..10u64 {
        rig.store.fence(id(9), n + 1).unwrap();
        rig.store.destage().unwrap();
    }
    assert_eq!(rig.store.overlay.pages(), 0);
}

#[test]
fn a_recovery_finds_no_more_small_writes_than_memory_may_hold() {
    let rig = Rig::new();
    let settings = Settings { overlay_bytes_max: 64 << 10, ..Settings::default() };
    let rig = Rig::open_with(rig.disk.clone(), settings);
    rig.write(id(1), 0, &pattern(1, 2 << 20)).unwrap();
    // Few bytes each, so that the log has room for very many.
    for n in 0..2000u64 {
        rig.write(id(1), n % 512 * 4096 + 7, &n.to_le_bytes()).unwrap();
        rig.store.relieve().unwrap();
        if rig.store.is_checkpoint_due() {
            rig.store.checkpoint().unwrap();
        }
    }
    let again = rig.crashed(Crash::KeepAll);
    let found = again.store.overlay.pages() * 4096;
    assert!(found <= 3 * settings.overlay_bytes_max, "{found} bytes");
}

/// A drive that writes 64 KiB at a time sees whole such blocks, though the medium's free space is in pieces of all sizes.
#[test]
fn what_is_destaged_fills_whole_units_of_the_drive() {
    let unit = 64 << 10;
    let rig = Rig::new();
    let rig = Rig::open_with(rig.disk.clone(), Settings { write_unit: unit, ..Settings::default() });
    // Holes of 1 to 40 pages between what stays.
    for n in 0..50u64 {
        rig.write(id(10 + n), 0, &pattern(n, 4096 * (1 + n as usize * 7 % 40))).unwrap();
    }
    rig.write(id(1), 0, &pattern(1, 1 << 20)).unwrap();
    rig.store.destage_all().unwrap();
    let odd: Vec<ObjectId> = (0..50).step_by(2).map(|n| id(10 + n)).collect();
    rig.store.destroy(&odd, None).unwrap();
    rig.seal();
    rig.store.checkpoint().unwrap();
    let mut rng = disk::SplitMix::new(4);
    let data = rig.store.volume().data_region();
    for round in 0..20u64 {
        for _ in 0..1 + rng.below(40) {
            let page = rng.below(256);
            rig.write(id(1), page * 4096 + 9, &round.to_le_bytes()).unwrap();
        }
        rig.disk.record();
        rig.store.destage_all().unwrap();
        for event in rig.disk.take_recording().unwrap().events {
            if let Event::Write { offset, data: bytes } = event
                && data.contains(&offset)
            {
                let len = bytes.len() as u64;
                let is_whole = offset.is_multiple_of(unit.into()) && len.is_multiple_of(unit.into());
                assert!(is_whole, "round {round}: {len} bytes at {offset}");
            }
        }
        rig.store.checkpoint().unwrap();
    }
}

/// Counts how often it is asked to write.
struct CountingDisk {
    below: disk::MemDisk,
    calls: AtomicUsize,
}

impl Disk for CountingDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.calls.fetch_add(1, Relaxed);
        self.below.write_at(buf, offset)
    }
    fn write_many(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        self.calls.fetch_add(1, Relaxed);
        self.below.write_many(parts)
    }
    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
}

/// One after the other, a medium that is nearly full would be as slow as one write at a time is.
#[test]
fn a_batch_goes_to_many_places_at_once() {
    let disk = Arc::new(CountingDisk { below: disk::MemDisk::new(MEDIUM_BYTES), calls: 0.into() });
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    write(&store, id(1), 0, &pattern(1, 64 << 12), None).unwrap();
    // Only single pages are free.
    let mut n = 2;
    while write(&store, id(n), 0, &[n as u8; 4096], None).is_ok() {
        n += 1;
    }
    let odd: Vec<ObjectId> = (2..n).step_by(2).map(id).collect();
    store.destroy(&odd, None).unwrap();
    store.seal().unwrap();
    for page in 0..64u64 {
        write(&store, id(1), page << 12, b"new", None).unwrap();
    }
    let before = disk.calls.load(Relaxed);
    store.destage_all().unwrap();
    assert_eq!((store.overlay.pages(), disk.calls.load(Relaxed) - before), (0, 1));
    let runs = store.index.get(&id(1)).unwrap().read().extents.iter().count();
    assert!(runs > 30, "{runs} places");
}
