//! The promises of every `Disk`, as one function that the tests of each implementation call, fakes too.

use crate::Disk;

/// Panics with what is wrong. `disk` is a fresh medium of at least 256 KiB; its content is gone afterwards.
pub fn check(disk: &dyn Disk) {
    let size = disk.size();
    assert!(size >= 256 * 1024, "conformance needs a medium of 256 KiB");
    fresh_bytes_are_zero(disk);
    written_bytes_come_back(disk);
    ranges_are_checked(disk);
    discard_leaves_neighbours_alone(disk);
    a_reservation_changes_no_byte(disk);
    medium_reads_see_what_was_written(disk);
    data_pages_go_whole_and_at_once(disk);
    many_threads_write_at_once(disk);
    assert_eq!(disk.size(), size, "the size never changes");
}

fn read(disk: &dyn Disk, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    disk.read_at(&mut buf, offset).expect("a read within the medium succeeds");
    buf
}

fn write(disk: &dyn Disk, offset: u64, bytes: &[u8]) {
    disk.write_at(bytes, offset).expect("a write within the medium succeeds");
}

fn fresh_bytes_are_zero(disk: &dyn Disk) {
    for offset in [0, 12_345, disk.size() - 5000] {
        assert!(read(disk, offset, 5000).iter().all(|b| *b == 0), "never-written bytes read as zero");
    }
}

fn written_bytes_come_back(disk: &dyn Disk) {
    let pattern: Vec<u8> = (0..20_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let places = [(0, 1), (1, 511), (511, 2), (4095, 4098), (30_000, 20_000), (disk.size() - 3, 3)];
    for (offset, len) in places {
        write(disk, offset, &pattern[..len]);
        assert_eq!(read(disk, offset, len), pattern[..len], "a write is seen by the next read");
    }
    disk.flush().expect("a flush succeeds");
    // The last write of a byte wins: (511, 2) covered the end of (1, 511).
    assert_eq!(read(disk, 1, 510), pattern[..510]);
    assert_eq!(read(disk, 511, 2), pattern[..2]);
    assert_eq!(read(disk, 30_000, 20_000), pattern, "a flush changes no byte");
    write(disk, 17, &[]);
    disk.will_read(0, disk.size());
}

fn ranges_are_checked(disk: &dyn Disk) {
    let size = disk.size();
    for offset in [size - 1, size, u64::MAX] {
        assert!(disk.read_at(&mut [0; 2], offset).is_err(), "reading past the end is an error");
        assert!(disk.write_at(&[1; 2], offset).is_err(), "writing past the end is an error");
        assert!(disk.discard(offset, 2).is_err(), "discarding past the end is an error");
    }
}

fn discard_leaves_neighbours_alone(disk: &dyn Disk) {
    write(disk, 64 * 1024, &[5; 64 * 1024]);
    disk.discard(80 * 1024, 16 * 1024).expect("a discard within the medium succeeds");
    disk.discard(70_001, 1).expect("a discard of any alignment succeeds");
    assert!(read(disk, 64 * 1024, 4096).iter().all(|b| *b == 5));
    assert!(read(disk, 96 * 1024, 32 * 1024).iter().all(|b| *b == 5));
    write(disk, 80 * 1024, &[6; 4096]);
    assert_eq!(read(disk, 80 * 1024, 4096), [6; 4096], "discarded bytes can be written again");
}

fn a_reservation_changes_no_byte(disk: &dyn Disk) {
    write(disk, 128 * 1024, &[9; 5000]);
    let before = read(disk, 120 * 1024, 32 * 1024);
    disk.reserve(121 * 1024, 30 * 1024).expect("there is room");
    disk.reserve(0, 0).expect("nothing is always there");
    assert_eq!(read(disk, 120 * 1024, 32 * 1024), before);
}

fn medium_reads_see_what_was_written(disk: &dyn Disk) {
    let pattern: Vec<u8> = (0..40_000u32).map(|i| (i * 11 % 241) as u8).collect();
    write(disk, 200_000, &pattern);
    for (offset, len) in [(200_704, 4096), (204_800, 28_672), (200_001, 10), (200_000, 40_000)] {
        let mut buf = vec![0xee; len];
        disk.read_medium_at(&mut buf, offset).expect("a read of the medium succeeds");
        let at = (offset - 200_000) as usize;
        assert_eq!(buf, pattern[at..at + len], "{len} bytes at {offset}: not flushed, and yet seen");
    }
    let size = disk.size();
    for offset in [size - 4095, size, u64::MAX - 4095] {
        assert!(disk.read_medium_at(&mut [0; 4096], offset).is_err(), "past the end is an error");
    }
}

fn data_pages_go_whole_and_at_once(disk: &dyn Disk) {
    let page = |i: u64| -> Vec<u8> { (0..4096u64).map(|b| (b * 13 + i * 7) as u8).collect() };
    // 1. Parts in no order, of several lengths, from memory at any address.
    let all: Vec<u8> = [0].into_iter().chain((0..32).flat_map(page)).collect();
    let pages = |first: usize, count: usize| &all[1 + first * 4096..1 + (first + count) * 4096];
    let at = |i: usize| 64 * 1024 + i as u64 * 4096;
    let parts = [(at(20), pages(20, 12)), (at(0), pages(0, 1)), (at(3), pages(3, 17)), (at(1), pages(1, 2))];
    disk.write_many(&parts).expect("data pages within the medium are written");
    disk.flush().expect("a flush succeeds");
    let mut seen = vec![0xee; 1 + 32 * 4096];
    disk.read_many(&mut [(at(0), &mut seen[1..])]).expect("one part");
    assert_eq!(seen[1..], all[1..], "one read sees what several parts wrote");
    // 2. Scattered reads, in an order of their own.
    seen.fill(0xee);
    let (low, high) = seen[1..].split_at_mut(9 * 4096);
    disk.read_many(&mut [(at(9), high), (at(0), low)]).expect("two parts");
    assert_eq!(seen[1..], all[1..]);
    // 3. The other calls see the same bytes, and these see theirs.
    assert_eq!(read(disk, at(5) + 7, 9000), all[1 + 5 * 4096 + 7..][..9000]);
    write(disk, at(6), &page(99));
    let mut one = [0xee; 4096];
    disk.read_many(&mut [(at(6), &mut one)]).expect("one page");
    assert_eq!(one[..], page(99)[..], "written through a cache, perhaps, and not flushed");
    disk.write_many(&[(at(6), &page(98))]).expect("one page");
    assert_eq!(read(disk, at(6), 4096), page(98), "written past a cache, perhaps");
    // 4. Ranges are checked before anything is written; nothing is nothing.
    let (size, before) = (disk.size(), read(disk, at(0), 4096));
    let end = size / 4096 * 4096;
    assert!(disk.read_many(&mut [(at(0), &mut one[..]), (end, &mut [0; 8192])]).is_err());
    assert!(disk.write_many(&[(end, &[1; 8192][..])]).is_err());
    assert_eq!(read(disk, at(0), 4096), before);
    disk.read_many(&mut []).expect("nothing");
    disk.write_many(&[]).expect("nothing");
}

fn many_threads_write_at_once(disk: &dyn Disk) {
    const THREADS: u64 = 4;
    const BYTES: usize = 3000;
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            scope.spawn(move || {
                for round in 0..20u8 {
                    let bytes = [round ^ (t as u8) << 5; BYTES];
                    write(disk, t * BYTES as u64, &bytes);
                    assert_eq!(
                        read(disk, t * BYTES as u64, BYTES),
                        bytes,
                        "a neighbour's write changed our bytes"
                    );
                    if round % 8 == 0 {
                        disk.flush().expect("a flush succeeds");
                    }
                }
            });
        }
    });
}
