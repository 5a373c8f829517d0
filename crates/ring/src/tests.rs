//! The ring against plain calls.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn scratch() -> File {
    let dir = std::env::temp_dir();
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    File::from(rustix::fs::open(dir, flags, rustix::fs::Mode::RUSR).unwrap())
}

/// Random writes and reads, many in flight over disjoint places: each read gives what plain calls say.
#[test]
fn what_is_written_is_read_by_both() {
    const PLACES: u64 = 64;
    let file = scratch();
    let plain = file.try_clone().unwrap();
    let mut model = vec![0u8; (PLACES * 8192) as usize];
    plain.write_all_at(&model, 0).unwrap();
    let mut ring = Ring::new(8, 8192).unwrap();
    let number = ring.add_file(file);
    let mut rng = SmallRng::seed_from_u64(7);
    // Slot → (place, length, is it a read).
    let mut under_way: BTreeMap<u32, (u64, usize, bool)> = BTreeMap::new();
    let (mut reads, mut most) = (0, 0);
    for _ in 0..2000 {
        let place = rng.random_range(0..PLACES);
        let is_free = under_way.values().all(|(other, ..)| *other != place);
        if let Some(slot) = is_free.then(|| ring.take()).flatten() {
            let len = rng.random_range(1..=8192);
            let at = (place * 8192) as usize;
            let is_read = rng.random();
            if is_read {
                ring.read(slot, number, place * 8192, len).unwrap();
            } else {
                rng.fill(&mut ring.buffer(slot)[..len]);
                model[at..at + len].copy_from_slice(&ring.buffer(slot)[..len]);
                ring.write(slot, number, place * 8192, len).unwrap();
            }
            under_way.insert(slot.0, (place, len, is_read));
            most = most.max(ring.flying());
            continue;
        }
        let Some(done) = ring.wait().unwrap() else { continue };
        let (place, len, is_read) = under_way.remove(&done.slot.0).unwrap();
        assert_eq!(done.result.unwrap(), len);
        if is_read {
            reads += 1;
            let at = (place * 8192) as usize;
            assert_eq!(ring.buffer(done.slot)[..len], model[at..at + len]);
        }
        ring.give_back(done.slot);
    }
    while let Some(done) = ring.wait().unwrap() {
        done.result.unwrap();
    }
    let mut read = vec![0; model.len()];
    plain.read_exact_at(&mut read, 0).unwrap();
    assert!(read == model && reads > 100 && most == 8, "{reads} {most}");
}

#[test]
fn errors_and_ends_of_files_are_told() {
    let file = scratch();
    file.write_all_at(b"abc", 0).unwrap();
    let mut ring = Ring::new(2, 4096).unwrap();
    let number = ring.add_file(file);
    let read_only = ring.add_file(File::open("/proc/self/status").unwrap());
    let slot = ring.take().unwrap();
    ring.read(slot, number, 0, 4096).unwrap();
    assert_eq!(ring.wait().unwrap().unwrap().result.unwrap(), 3);
    ring.read(slot, number, 4096, 4096).unwrap();
    assert_eq!(ring.wait().unwrap().unwrap().result.unwrap(), 0);
    ring.write(slot, read_only, 0, 1).unwrap();
    assert!(ring.wait().unwrap().unwrap().result.is_err());
    ring.fsync(slot, number).unwrap();
    assert_eq!(ring.wait().unwrap().unwrap().result.unwrap(), 0);
    assert!(ring.wait().unwrap().is_none());
    assert!(Ring::new(0, 4096).is_err() && Ring::new(1, 4 << 30).is_err());
    ring.close_files();
}

#[test]
fn a_buffer_in_flight_is_not_lent() {
    let mut ring = Ring::new(1, 4096).unwrap();
    let number = ring.add_file(scratch());
    let slot = ring.take().unwrap();
    assert!(ring.take().is_none());
    ring.write(slot, number, 0, 4096).unwrap();
    let lent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ring.buffer(slot).len()));
    assert!(lent.is_err());
    // A ring that goes with work under way waits for it.
    drop(ring);
}
