//! Real files in a directory of their own, removed at the end.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

mod direct;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("stria-disk-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("disk")
    }
}
impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn keeps_the_contract_of_a_disk() {
    let dir = Dir::new();
    crate::conformance::check(&FileDisk::create(dir.file(), 1 << 20).unwrap());
}

#[test]
fn content_is_there_after_reopening_and_size_stays() {
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 1 << 20).unwrap();
    disk.write_at(b"kept", (1 << 20) - 4).unwrap();
    disk.flush().unwrap();
    drop(disk);
    let disk = FileDisk::open(dir.file()).unwrap();
    let mut buf = [0; 4];
    disk.read_at(&mut buf, (1 << 20) - 4).unwrap();
    assert_eq!((&buf, disk.size()), (b"kept", 1 << 20));
    assert!(disk.write_at(b"x", 1 << 20).is_err());
    assert_eq!(std::fs::metadata(dir.file()).unwrap().len(), 1 << 20);
}

#[test]
fn a_new_file_is_sparse_and_a_discard_gives_space_back() {
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 64 << 20).unwrap();
    let blocks = || std::fs::metadata(dir.file()).unwrap().blocks();
    assert!(blocks() < 64);
    disk.write_at(&vec![7; 1 << 20], 0).unwrap();
    disk.flush().unwrap();
    let full = blocks();
    assert!(full >= 2048);
    disk.discard(0, 1 << 20).unwrap();
    assert!(blocks() <= full);
}

#[test]
fn sparse_files_share_the_room_of_their_file_system() {
    let (one, two) = (Dir::new(), Dir::new());
    let room = || {
        let stat = rustix::fs::statvfs(&one.0).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    let first = FileDisk::create(one.file(), 64 << 20).unwrap();
    let second = FileDisk::create(two.file(), 64 << 20).unwrap();
    let before = room();
    // Other tests may have some open there, too.
    let shares = [first.room_below().unwrap(), second.room_below().unwrap()];
    assert!(shares.iter().sum::<u64>() <= before.max(room()), "{shares:?} of {before}");
    assert_eq!(crate::is_host_short(&first), shares[0] < 8 << 20);
    drop(first);
    assert_eq!(FileDisk::open_read_only(one.file()).unwrap().room_below(), None, "it takes none");
}

#[test]
fn a_reservation_takes_space_at_once() {
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 64 << 20).unwrap();
    disk.reserve(1 << 20, 8 << 20).unwrap();
    let taken = std::fs::metadata(dir.file()).unwrap().blocks() * 512;
    // A file system that cannot reserve takes nothing; none takes more.
    assert!(taken == 0 || (8 << 20..10 << 20).contains(&taken), "{taken}");
    assert_eq!(std::fs::metadata(dir.file()).unwrap().len(), 64 << 20);
    assert!(disk.reserve(64 << 20, 1).is_err());
}

/// Needs root; says so and passes without.
#[test]
fn a_full_file_system_below_refuses_what_was_not_reserved() {
    let dir = Dir::new();
    let point = dir.0.join("small");
    std::fs::create_dir(&point).unwrap();
    // By system calls: a child process, until it has become `mount`, would hold the locks of tests that run beside this one.
    let flags = rustix::mount::MountFlags::empty();
    if let Err(e) = rustix::mount::mount("stria-test", &point, "tmpfs", flags, c"size=4M") {
        eprintln!("skipped: a tmpfs cannot be mounted here: {e}");
        return;
    }
    struct Unmount(PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
    let _unmount = Unmount(point.clone());
    let full = |r: io::Result<()>| r.is_err_and(|e| crate::is_full(&e));

    let disk = FileDisk::create(point.join("disk"), 64 << 20).unwrap();
    disk.reserve(0, 1 << 20).unwrap();
    // 1. A reservation that does not fit fails, and names the path.
    let refused = disk.reserve(1 << 20, 32 << 20).unwrap_err();
    assert!(crate::is_full(&refused) && refused.to_string().contains("small/disk"), "{refused}");
    // 2. Fill the rest; reserved and written ranges can still be written.
    let mut at = 2 << 20;
    while disk.write_at(&[1; 64 << 10], at).is_ok() {
        at += 64 << 10;
    }
    assert!(full(disk.write_at(&[1; 64 << 10], 60 << 20)));
    disk.write_at(&[2; 1 << 20], 0).unwrap();
    disk.write_at(&[2; 64 << 10], 2 << 20).unwrap();
    disk.flush().unwrap();
    // 3. Space that is freed can be allocated elsewhere.
    disk.discard(2 << 20, 64 << 10).unwrap();
    disk.write_at(&[3; 64 << 10], 60 << 20).unwrap();
}

#[test]
fn a_second_opener_is_refused_and_readers_share() {
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 4096).unwrap();
    let refused = FileDisk::open(dir.file()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("in use"), "{refused}");
    assert!(FileDisk::open_read_only(dir.file()).is_err());
    // Without a claim it is read, and neither written nor kept from others.
    let looks = FileDisk::open_unclaimed(dir.file()).unwrap();
    disk.write_at(&[7], 9).unwrap();
    let mut byte = [0];
    looks.read_at(&mut byte, 9).unwrap();
    assert_eq!((byte, looks.size()), ([7], 4096));
    assert_eq!(looks.write_at(&[1], 0).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    drop(disk);
    drop(FileDisk::open(dir.file()).unwrap());
    drop(looks);
    let reader = FileDisk::open_read_only(dir.file()).unwrap();
    let second = FileDisk::open_read_only(dir.file()).unwrap();
    assert!(FileDisk::open(dir.file()).is_err());
    assert_eq!(reader.write_at(&[1], 0).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert!(second.discard(0, 1).is_err());
}

#[test]
fn what_is_no_medium_is_refused_with_its_path() {
    let dir = Dir::new();
    assert!(FileDisk::open_read_only(&dir.0).is_err());
    let missing = FileDisk::open(dir.file()).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(missing.to_string().contains("disk"));
    FileDisk::create(dir.file(), 4096).unwrap();
    assert_eq!(FileDisk::create(dir.file(), 4096).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

/// A read of the medium leaves nothing in the page cache and takes nothing from there: `RWF_NOWAIT` shows what is cached.
#[test]
fn reads_of_the_medium_pass_the_page_cache() {
    use rustix::io::{Errno, ReadWriteFlags};
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 1 << 20).unwrap();
    disk.write_at(&vec![7; 1 << 20], 0).unwrap();
    disk.flush().unwrap();
    if disk.direct().unwrap().is_none() {
        eprintln!("SKIPPED: this file system has no direct I/O");
        return;
    }
    // Asking starts a read-ahead, so it is asked once.
    let is_cached = || {
        let mut byte = [0];
        let mut to = [io::IoSliceMut::new(&mut byte)];
        match rustix::io::preadv2(&disk.file, &mut to, 64 << 10, ReadWriteFlags::NOWAIT) {
            Ok(_) => true,
            Err(Errno::AGAIN) => false,
            Err(e) => panic!("{e}"),
        }
    };
    const TMPFS: i64 = 0x0102_1994;
    if rustix::fs::fstatfs(&disk.file).unwrap().f_type == TMPFS {
        eprintln!("SKIPPED: all of a tmpfs is in memory");
        return;
    }
    rustix::fs::fadvise(&disk.file, 0, None, Advice::DontNeed).unwrap();
    let mut buf = vec![0; 1 << 20];
    disk.read_medium_at(&mut buf, 0).unwrap();
    assert!(buf.iter().all(|b| *b == 7));
    assert!(!is_cached(), "it was read past the cache");
    disk.read_at(&mut buf[..4096], 64 << 10).unwrap();
    assert!(is_cached(), "the check can tell");
}

/// The thread that flushed has released the medium before the disk is closed.
#[test]
fn who_closes_and_opens_again_at_once_is_not_in_his_own_way() {
    let dir = Dir::new();
    drop(FileDisk::create(dir.file(), 1 << 20).unwrap());
    for round in 0..200 {
        let disk = FileDisk::open(dir.file()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        disk.write_at(b"x", round).unwrap();
        disk.flush().unwrap();
    }
}

/// A flush that hangs fails the volume, and with it all calls that would have to wait for the device; their threads are free.
#[test]
fn a_flush_that_hangs_fails_the_volume_at_the_deadline() {
    use crate::volume::{Volume, VolumeError};
    let dir = Dir::new();
    let mut disk = FileDisk::create(dir.file(), 1 << 20).unwrap();
    Volume::format(&disk, &crate::volume::tests::small(), false).unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let (file, flushes) = (disk.file.clone(), Arc::new(AtomicU32::new(0)));
    let begun = flushes.clone();
    let over =
        |word: Result<(), _>| word.map(|()| Vec::new()).map_err(|_| io::Error::other("the test is over"));
    let carry = move |call: &Call| match call {
        // The flushes of the start return.
        Call::Flush if begun.fetch_add(1, Ordering::Relaxed) < 3 => Ok(Vec::new()),
        Call::Flush => over(gate.lock().recv()),
        Call::Write { offset, bytes } => file.write_all_at(bytes, *offset).map(|()| Vec::new()),
        Call::Read { offset, len } => {
            let mut bytes = vec![0; *len];
            file.read_exact_at(&mut bytes, *offset).map(|()| bytes)
        }
        Call::Discard { .. } | Call::Reserve { .. } => Ok(Vec::new()),
    };
    // Until then the device makes progress, however often it is checked.
    let asked = AtomicU32::new(0);
    let progress = move || {
        let done = asked.fetch_add(1, Ordering::Relaxed);
        (flushes.load(Ordering::Relaxed) < 4).then_some(done.into())
    };
    disk.aside = Aside::new(Arc::new(carry), Box::new(progress), Duration::ZERO);
    let disk = Arc::new(disk);
    let volume = Volume::open(disk.clone()).unwrap();
    volume.replay(&mut |_| crate::volume::Verdict::Keep).unwrap();
    volume.start().unwrap();
    volume.append(types::Epoch(1), b"entry").unwrap();
    volume.check_media().unwrap();
    let failed = |e: VolumeError| {
        let said = e.to_string();
        let tells = said.contains("the device hangs") && said.contains("restart the target once");
        matches!(e, VolumeError::Failed(_)) && tells
    };
    assert!(volume.flush().is_err_and(failed));
    assert!(volume.append(types::Epoch(1), b"entry").is_err_and(failed));
    assert!(volume.failure().is_some());
    let refused = disk.write_at(b"who does not ask the volume", 0).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}");
    assert!(disk.lost().is_some());
    drop(go);
}

/// A reader of a data page through the page cache cannot be interrupted; other callers get an error, and the volume fails.
#[test]
fn a_cached_read_that_hangs_fails_the_volume_and_every_other_read_at_once() {
    use crate::volume::{Volume, VolumeError};
    let dir = Dir::new();
    let mut disk = FileDisk::create(dir.file(), 1 << 20).unwrap();
    Volume::format(&disk, &crate::volume::tests::small(), false).unwrap();
    let (cached, began, go) = cached::tests::hanging(Duration::ZERO);
    disk.cached = cached;
    let disk = Arc::new(disk);
    let volume = Volume::open(disk.clone()).unwrap();
    volume.replay(&mut |_| crate::volume::Verdict::Keep).unwrap();
    volume.start().unwrap();
    volume.check_media().unwrap();
    std::thread::scope(|s| {
        // If the test fails, dropping this releases the reader; otherwise the scope would wait for it.
        let go = go;
        let late = s.spawn(|| disk.read_many(&mut [(4096, &mut [0; 4096])]));
        while began.recv().unwrap() != 4096 {}
        let refused = disk.read_many(&mut [(0, &mut [0; 4096])]).unwrap_err();
        assert!(crate::is_passing(&refused), "{refused}");
        assert!(refused.to_string().contains("4096 bytes at 0 failed: the device hangs"), "{refused}");
        // Once is not enough (disk-W4 of `cached`).
        let looks = std::iter::repeat_with(|| disk.lost()).position(|look| look.is_some());
        assert_eq!(looks, Some(PATIENCES as usize));
        let failed = volume.check_media().unwrap_err();
        assert!(matches!(failed, VolumeError::Failed(_)), "{failed}");
        assert!(failed.to_string().contains("restart the target once the device answers"), "{failed}");
        go.send(()).unwrap();
        late.join().unwrap().unwrap();
    });
    assert_eq!(disk.lost(), None);
    assert!(volume.append(types::Epoch(1), b"entry").is_err(), "once failed it stays so");
}

/// Superblocks, log, checkpoints and leaves. A pipe has nothing in the page cache, so that the read goes to the device.
#[test]
fn a_read_of_what_is_no_data_page_has_a_deadline() {
    let dir = Dir::new();
    let mut disk = FileDisk::create(dir.file(), 1 << 20).unwrap();
    let (reader, _writer) = io::pipe().unwrap();
    disk.file = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let carry = move |call: &Call| match call {
        Call::Read { offset: 4096, len } => Ok(vec![7; *len]),
        _ => gate.lock().recv().map(|()| Vec::new()).map_err(|_| io::Error::other("the test is over")),
    };
    disk.aside = Aside::new(Arc::new(carry), Box::new(|| None), PATIENCE);
    let mut bytes = [1; 512];
    disk.read_at(&mut bytes, 4096).unwrap();
    assert_eq!(bytes, [7; 512]);
    disk.aside.set_patience(Duration::ZERO);
    let late = disk.read_at(&mut bytes, 8192).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    assert!(late.to_string().contains("read of 512 bytes at 8192 failed: the device hangs"), "{late}");
    assert!(disk.lost().is_some());
    drop(go);
}

/// A scrub retries again and again: it leaves one thread behind, and takes nothing from the page cache for the medium's content.
#[test]
fn while_the_way_past_the_cache_hangs_nobody_else_tries_it_or_reads_the_cache_instead() {
    let dir = Dir::new();
    let disk = FileDisk::create(dir.file(), 1 << 20).unwrap().with_patience(Duration::ZERO);
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let first = disk.direct_by(move || {
        let _ = gate.recv();
        Err(Unfit::NoDirect)
    });
    assert_eq!(first.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let begun = Arc::new(AtomicU32::new(0));
    let count = begun.clone();
    let next = disk.direct_by(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Err(Unfit::NoDirect)
    });
    assert!(next.unwrap_err().to_string().contains("left behind"));
    assert_eq!((begun.load(Ordering::Relaxed), Arc::strong_count(&begun)), (0, 1), "it was not begun");
    let refused = disk.read_medium_at(&mut [0; 4096], 0).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}");
    drop(go);
    while Arc::strong_count(&disk.turn.lock()) > 1 {
        std::thread::yield_now();
    }
    let disk = disk.with_patience(PATIENCE);
    disk.read_medium_at(&mut [0; 4096], 0).unwrap();
}

#[test]
fn a_file_that_was_made_too_late_is_removed() {
    let dir = Dir::new();
    let ((made, was_made), (go, gate)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let path = dir.file();
    let late = FileDisk::make(Duration::ZERO, &dir.file(), move || {
        let disk = FileDisk::create_here(&path, 1 << 20);
        let _ = (made.send(()), gate.recv());
        disk
    });
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    was_made.recv().unwrap();
    assert!(dir.file().exists());
    drop(go);
    while dir.file().exists() {
        std::thread::yield_now();
    }
    FileDisk::create(dir.file(), 1 << 20).unwrap();
}

/// A reservation that hangs fails after a deadline.
#[test]
fn a_reservation_that_hangs_has_a_deadline() {
    let dir = Dir::new();
    let mut disk = FileDisk::create(dir.file(), 1 << 20).unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let carry = move |_: &Call| gate.lock().recv().map(|()| Vec::new()).map_err(|_| io::Error::other("over"));
    disk.aside = Aside::new(Arc::new(carry), Box::new(|| None), Duration::ZERO);
    assert_eq!(disk.reserve(0, 4096).unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(go);
}

#[test]
fn what_the_device_completes_is_read_from_the_kernels_line() {
    let old = " 1 2 3 4 5 6 7 8 9 10 11\n";
    assert_eq!(completed(old), Some(1 + 5));
    let new = " 100 0 0 0 20 0 0 0 0 0 0 3 0 0 0 4 0\n";
    assert_eq!((completed(new), completed(""), completed("x y")), (Some(127), None, None));
}
