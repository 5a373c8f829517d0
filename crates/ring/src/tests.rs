//! The ring against plain calls.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

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

/// Buffers of all sizes: page borders, zero, and none within another.
#[test]
fn buffers_do_not_overlap() {
    for (count, bytes) in [(1, 1), (3, 4096), (16, 4097), (5, 1 << 20), (1, (2 << 20) + 1)] {
        let mut buffers = Buffers::new(count, bytes).unwrap();
        assert_eq!(buffers.count(), count);
        for index in 0..count {
            let buffer = buffers.get(index);
            assert!(buffer.len() >= bytes && buffer.as_ptr().align_offset(PAGE_BYTES) == 0);
            assert!(buffer.iter().all(|byte| *byte == 0), "{count} of {bytes}");
            buffer.fill(index as u8 + 1);
        }
        for index in 0..count {
            assert!(buffers.get(index).iter().all(|byte| *byte == index as u8 + 1), "{count} of {bytes}");
        }
    }
    assert!(Buffers::new(usize::MAX / 4096, 1 << 20).is_err());
    assert!(Buffers::new(1, usize::MAX).is_err());
}

#[test]
#[should_panic(expected = "there are 2 buffers")]
fn a_buffer_beyond_the_last_is_none() {
    Buffers::new(2, 4096).unwrap().get(2);
}

/// Large buffers have huge pages where the kernel gives them (`thp` is not `never`).
#[test]
fn large_buffers_are_contiguous() {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if setting.is_empty() || setting.contains("[never]") {
        eprintln!("SKIPPED: this kernel gives no huge pages");
        return;
    }
    // The kernel may be short of huge pages for a moment: one of several is enough.
    let kib = (0..16).map(|_| kib_in_huge_pages(&mut Buffers::new(2, 1 << 20).unwrap())).max();
    assert!(kib >= Some(2048), "{kib:?} KiB in huge pages");
}

fn kib_in_huge_pages(buffers: &mut Buffers) -> u64 {
    buffers.get(0).fill(1);
    let at = buffers.get(0).as_ptr() as usize;
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut kib) = (false, 0);
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let range = range
            .and_then(|(a, b)| Some(usize::from_str_radix(a, 16).ok()?..usize::from_str_radix(b, 16).ok()?));
        if let Some(range) = range {
            inside = range.contains(&at);
        } else if let Some(value) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            kib = value.trim().trim_end_matches(" kB").parse().unwrap();
        }
    }
    kib
}

/// More operations than fly at once, with a short one and one that fails among them; each has the result that a plain call has.
#[test]
fn a_batch_gives_each_operation_its_result() {
    const PAGES: usize = 3 * BATCH_DEPTH as usize;
    let file = Arc::new(scratch());
    let mut batch = Batch::new(file.clone(), PAGES * 4096).unwrap();
    for (i, page) in batch.buffer().chunks_exact_mut(4096).enumerate() {
        page.fill(i as u8);
    }
    // Backwards, so that order and place differ.
    let all = |verb| {
        (0..PAGES)
            .map(|i| Operation {
                verb,
                offset: (PAGES - 1 - i) as u64 * 4096,
                part: i * 4096..(i + 1) * 4096,
            })
            .collect::<Vec<_>>()
    };
    let mut results = Vec::new();
    let hour = Duration::from_secs(3600);
    assert_eq!(batch.run(&all(Verb::Write), &mut results, hour).unwrap(), Ended::Done);
    assert!(results.drain(..).all(|r| r.unwrap() == 4096));
    let mut seen = vec![0; PAGES * 4096];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen.chunks_exact(4096).enumerate().all(|(i, p)| p == [(PAGES - 1 - i) as u8; 4096]));

    batch.buffer().fill(0);
    let end = PAGES as u64 * 4096;
    let mut reads = all(Verb::Read);
    reads[5].offset = end - 100;
    reads[6].offset = u64::MAX / 2 + 1;
    assert_eq!(batch.run(&reads, &mut results, hour).unwrap(), Ended::Done);
    for (i, result) in results.drain(..).enumerate() {
        match i {
            5 => assert_eq!(result.unwrap(), 100),
            6 => assert!(result.is_err()),
            _ => {
                assert_eq!(result.unwrap(), 4096);
                assert_eq!(batch.buffer()[i * 4096..(i + 1) * 4096], [i as u8; 4096]);
            }
        }
    }
}

/// An empty pipe stands for a device that hangs.
#[test]
fn an_overdue_operation_keeps_the_buffer_until_the_kernel_is_done() {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut batch = Batch::new(Arc::new(File::from(std::os::fd::OwnedFd::from(reader))), 4096).unwrap();
    let read = [Operation { verb: Verb::Read, offset: 0, part: 0..8 }];
    let mut results = Vec::new();
    assert_eq!(batch.run(&read, &mut results, Duration::ZERO).unwrap(), Ended::Overdue);
    assert!(!batch.is_settled());
    let lent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batch.buffer().len()));
    assert!(lent.is_err(), "ring-I1: the buffer is the kernel's");
    writer.write_all(b"12345678").unwrap();
    // The kernel finishes in its own time; nothing else can be waited for from here.
    while !batch.is_settled() {
        std::thread::yield_now();
    }
    assert_eq!(batch.buffer()[..8], *b"12345678");

    // One that goes while something is under way leaves the memory to the kernel.
    assert_eq!(batch.run(&read, &mut results, Duration::ZERO).unwrap(), Ended::Overdue);
    drop(batch);
    writer.write_all(b"87654321").unwrap();
}
