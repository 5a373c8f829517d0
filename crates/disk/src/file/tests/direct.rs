//! Data pages past the page cache: the same contract by rings and by threads, on files (on a device: `tests/device.rs`); short moves; a device that hangs.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};

use parking_lot::Mutex;
use ring::{Batch, Ended, Operation, Verb};
use rustix::io::ReadWriteFlags;

use super::super::direct::{LANE_BYTES, MakeRing};
use super::super::lane::{Lane, ThreadLane};
use super::*;

/// A fresh disk in a file whose data pages go directly; `None` where the file system has no direct I/O.
fn direct_disk(dir: &Dir, bytes: u64) -> Option<FileDisk> {
    match FileDisk::create(dir.file(), bytes).unwrap().with_io(Io::Direct) {
        Ok(disk) => Some(disk),
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {
            eprintln!("SKIPPED: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn with_ring(mut disk: FileDisk, make: MakeRing) -> FileDisk {
    let direct = Direct::over(disk.claimed.clone(), disk.path.clone(), disk.patience, make);
    disk.direct = OnceLock::from(Some(direct));
    disk
}

static RINGS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn direct_by_rings_keeps_the_contract_of_a_disk() {
    let dir = Dir::new();
    let Some(disk) = direct_disk(&dir, 1 << 20) else { return };
    assert!(disk.is_direct());
    let counted = |file, bytes| {
        RINGS.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Batch::new(file, bytes)?) as Box<dyn Lane>)
    };
    crate::conformance::check(&with_ring(disk, counted));
    assert!(RINGS.load(Ordering::Relaxed) > 0);
}

/// As in a container whose filter refuses io_uring.
#[test]
fn direct_by_threads_keeps_the_contract_where_io_uring_is_barred() {
    for errno in [Errno::PERM, Errno::NOSYS] {
        let dir = Dir::new();
        let Some(disk) = direct_disk(&dir, 1 << 20) else { return };
        let barred: MakeRing = match errno {
            Errno::PERM => |_, _| Err(Errno::PERM.into()),
            _ => |_, _| Err(Errno::NOSYS.into()),
        };
        crate::conformance::check(&with_ring(disk, barred));
    }
}

#[test]
fn a_disk_through_the_page_cache_is_one_on_request_and_in_files() {
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 1 << 20).unwrap().with_io(Io::Cached).unwrap();
    assert!(!disk.is_direct());
    drop(disk);
    let disk = FileDisk::open(dir.file()).unwrap();
    assert!(!disk.is_direct(), "a file");
}

/// Through the page cache a written page is found there; past it, it is not.
#[test]
fn data_pages_pass_the_page_cache() {
    let dir = Dir::new();
    let Some(disk) = direct_disk(&dir, 4 << 20) else { return };
    const TMPFS: i64 = 0x0102_1994;
    if rustix::fs::fstatfs(&disk.file).unwrap().f_type == TMPFS {
        eprintln!("SKIPPED: all of a tmpfs is in memory");
        return;
    }
    let is_cached = |at: u64| {
        let mut byte = [0];
        let mut to = [io::IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(&disk.file, &mut to, at, ReadWriteFlags::NOWAIT).is_ok()
    };
    disk.write_many(&[(1 << 20, &vec![7; 1 << 20])]).unwrap();
    let mut buf = vec![0; 1 << 20];
    disk.read_many(&mut [(1 << 20, &mut buf)]).unwrap();
    assert!(buf.iter().all(|b| *b == 7));
    assert!(!is_cached(1 << 20));
    disk.write_at(&[8; 4096], 3 << 20).unwrap();
    assert!(is_cached(3 << 20), "the check can tell");
}

/// Larger than a lane, so that it goes in rounds.
#[test]
fn large_requests_go_in_rounds() {
    let dir = Dir::new();
    let Some(disk) = direct_disk(&dir, 16 << 20) else { return };
    let bytes: Vec<u8> = (0..(2 * LANE_BYTES + 8192) as u32).map(|i| (i * 7 / 11) as u8).collect();
    disk.write_many(&[(4096, &bytes[..4096]), (1 << 20, &bytes[4096..])]).unwrap();
    let mut seen = vec![0; bytes.len()];
    let (head, rest) = seen.split_at_mut(4096);
    disk.read_many(&mut [(1 << 20, rest), (4096, head)]).unwrap();
    assert!(seen == bytes);
}

#[test]
fn the_lock_goes_with_the_direct_descriptor() {
    let dir = Dir::new();
    let Some(disk) = direct_disk(&dir, 1 << 20) else { return };
    assert_eq!(FileDisk::open(dir.file()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    // A write that is under way when the process goes holds this descriptor, and no other.
    let late = disk.direct().unwrap().unwrap().file_in_use();
    drop(disk);
    assert_eq!(FileDisk::open(dir.file()).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    drop(late);
    FileDisk::open(dir.file()).unwrap();
}

/// A ring that cuts each operation short, and at last moves nothing.
struct Short {
    below: Batch,
    calls: usize,
    mute_from: usize,
}

impl Lane for Short {
    fn buffer(&mut self) -> &mut [u8] {
        self.below.buffer()
    }
    fn run(
        &mut self,
        operations: &[Operation],
        results: &mut Vec<io::Result<usize>>,
        patience: Duration,
    ) -> io::Result<Ended> {
        self.calls += 1;
        // As a device does it: what was not moved is not there.
        let part = |o: &Operation| match self.calls >= self.mute_from {
            true => o.part.start..o.part.start,
            false => o.part.start..o.part.start + (o.part.len() / 2).next_multiple_of(512),
        };
        let short: Vec<_> = operations.iter().map(|o| Operation { part: part(o), ..o.clone() }).collect();
        self.below.run(&short, results, patience)
    }
    fn is_settled(&mut self) -> bool {
        self.below.is_settled()
    }
}

#[test]
fn what_moved_in_part_is_continued_and_what_moves_nothing_fails_with_its_place() {
    let dir = Dir::new();
    let Some(disk) = direct_disk(&dir, 1 << 20) else { return };
    let disk = with_ring(disk, |file, bytes| {
        Ok(Box::new(Short { below: Batch::new(file, bytes)?, calls: 0, mute_from: usize::MAX }))
    });
    crate::conformance::check(&disk);
    let mute = with_ring(disk, |file, bytes| {
        Ok(Box::new(Short { below: Batch::new(file, bytes)?, calls: 0, mute_from: 1 }))
    });
    let refused = mute.write_many(&[(8192, &[1; 4096])]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WriteZero);
    let said = refused.to_string();
    assert!(said.contains("/disk") && said.contains("4096 bytes at 8192"), "{said}");
    let refused = mute.read_many(&mut [(12_288, &mut [1; 4096])]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof);
}

/// An I/O lane that hangs until the sender sends: its thread's operations wait for a message.
fn hanging() -> (Arc<super::super::lane::Carry>, std::sync::mpsc::Sender<()>) {
    let (go, gate) = channel();
    let gate: Mutex<Receiver<()>> = Mutex::new(gate);
    let carry = move |_: Verb, bytes: &mut [u8], _: u64| {
        gate.lock().recv().map_err(|_| io::Error::other("the test is over"))?;
        Ok(bytes.len())
    };
    (Arc::new(carry), go)
}

#[test]
fn a_thread_keeps_its_buffer_until_the_device_is_done() {
    let (carry, go) = hanging();
    let mut lane = ThreadLane::new(carry, LANE_BYTES).unwrap();
    let write = [Operation { verb: Verb::Write, offset: 0, part: 0..4096 }];
    let mut results = Vec::new();
    assert_eq!(lane.run(&write, &mut results, Duration::ZERO).unwrap(), Ended::Overdue);
    assert!(!lane.is_settled());
    go.send(()).unwrap();
    while !lane.is_settled() {
        std::thread::yield_now();
    }
    lane.buffer().fill(3);
}

/// An empty pipe stands for the device: the kernel holds our buffer for as long as the test wants.
#[test]
fn a_device_that_hangs_fails_at_the_deadline_then_at_once_and_comes_back() {
    let dir = Dir::new();
    let (reader, mut writer) = io::pipe().unwrap();
    let mut disk = FileDisk::create(dir.file(), 1 << 20).unwrap().with_patience(Duration::ZERO);
    let make: MakeRing = |file, bytes| Ok(Box::new(Batch::new(file, bytes)?));
    if let Err(e) = Batch::new(Arc::new(disk.file.try_clone().unwrap()), 4096) {
        eprintln!("SKIPPED: no io_uring: {e}");
        return;
    }
    let pipe = Arc::new(File::from(OwnedFd::from(reader)));
    disk.direct = OnceLock::from(Some(Direct::over(pipe, disk.path.clone(), Duration::ZERO, make)));
    disk.is_direct = true;
    let mut bytes = [5; 4096];
    // 1. The deadline.
    let late = disk.read_many(&mut [(8192, &mut bytes)]).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    assert!(late.to_string().contains("4096 bytes at 8192 failed: the device hangs"), "{late}");
    assert!(disk.lost().is_some_and(|why| why.contains("hangs")), "four times no patience is over at once");
    // 2. While the kernel has the buffer nothing else is begun, neither reads nor writes.
    let next = disk.write_many(&[(0, &bytes)]).unwrap_err();
    assert_eq!(next.kind(), io::ErrorKind::TimedOut);
    assert!(next.to_string().contains("operations overdue: 1"), "{next}");
    // 3. The kernel finishes: its data is dropped, and the lane is free.
    writer.write_all(&[9; 4096]).unwrap();
    let refused = loop {
        let e = disk.write_many(&[(0, &bytes)]).unwrap_err();
        if !e.to_string().contains("operations overdue") {
            break e;
        }
        std::thread::yield_now();
    };
    assert!(
        refused.kind() != io::ErrorKind::TimedOut,
        "the reading end of a pipe cannot be written: {refused}"
    );
    assert_eq!(disk.lost(), None);
    assert_eq!(bytes, [5; 4096], "the late bytes reached no memory of ours");
}

/// It could be carried out after the write, to the same place.
#[test]
fn nothing_is_written_directly_while_a_discard_is_left_behind() {
    let dir = Dir::new();
    let Some(mut disk) = direct_disk(&dir, 1 << 20) else { return };
    let (go, gate) = channel::<()>();
    let gate: Mutex<Receiver<()>> = Mutex::new(gate);
    let carry = move |_: &Call| {
        gate.lock().recv().map(|()| Vec::new()).map_err(|_| io::Error::other("the test is over"))
    };
    disk.aside = Aside::new(Arc::new(carry), Box::new(|| None), Duration::ZERO);
    assert_eq!(disk.discard(0, 8192).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let refused = disk.write_many(&[(4096, &[1; 4096])]).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(refused.to_string().contains("calls left behind: 1"), "{refused}");
    go.send(()).unwrap();
    while disk.lost().is_some() {
        std::thread::yield_now();
    }
    disk.write_many(&[(4096, &[1; 4096])]).unwrap();
}

#[test]
fn a_closed_disk_has_let_go_of_its_medium_also_by_threads() {
    for _ in 0..100 {
        let dir = Dir::new();
        let Some(disk) = direct_disk(&dir, 1 << 20) else { return };
        let disk = with_ring(disk, |_, _| Err(Errno::PERM.into()));
        disk.write_many(&[(0, &[1; 4096])]).unwrap();
        let claimed = Arc::downgrade(&disk.claimed);
        drop(disk);
        assert_eq!(claimed.strong_count(), 0, "no thread has it");
    }
}
