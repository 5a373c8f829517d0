//! The whole measurement at a tiny size, and what it must find.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::*;
use crate::pattern::Checked;
use crate::testdir::TestDir;

fn tiny() -> Params {
    Params {
        workers: 2,
        total_bytes: 1 << 20,
        transfer_bytes: 64 << 10,
        files_per_worker: 20,
        random_ops: 50,
        phase_limit: Duration::from_secs(2),
        ..Params::default()
    }
}

#[test]
fn every_row_is_measured_and_nothing_is_left() {
    let dir = TestDir::new("all");
    let mut workspace = Workspace::new(dir.path(), &tiny()).unwrap();
    let samples = Kind::ALL.map(|kind| workspace.run(kind).unwrap());
    workspace.close().unwrap();
    for sample in &samples {
        assert!(sample.value > 0.0 && sample.value.is_finite() && sample.ops > 0, "{sample:?}");
    }
    let checked = |kind: Kind| samples.iter().find(|s| s.kind == kind).unwrap().checked;
    // Every page's stamps; one of 16 pages whole, and all that are read alone; sizes of files that are looked at by name.
    let table = [
        (Kind::NnRead, 256, 16, 0),
        (Kind::SharedRead, 256, 16, 0),
        (Kind::RandomRead, 100, 100, 0),
        (Kind::RandomWrite, 100, 100, 0),
        (Kind::Fsync, 50, 50, 0),
        (Kind::SmallStat, 0, 0, 40),
        (Kind::SmallRead, 40, 40, 40),
        (Kind::EmptyRead, 0, 0, 40),
    ];
    for (kind, pages, whole_pages, sizes) in table {
        assert_eq!(checked(kind), Checked { pages, whole_pages, sizes }, "{kind:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Ctrl-C in the middle of a phase that would take a minute.
#[test]
fn what_was_made_is_removed_when_it_is_stopped() {
    let dir = TestDir::new("stopped");
    let params = Params { random_ops: u64::MAX, phase_limit: Duration::from_secs(60), ..tiny() };
    let stop = params.stop.clone();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| row(Kind::Fsync, dir.path(), &params));
        while std::fs::read_dir(dir.path()).unwrap().count() == 0 {
            std::thread::yield_now();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = run.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("stopped by a signal"), "{error}");
    });
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_row_runs_alone() {
    let dir = TestDir::new("alone");
    let sample = row(Kind::SmallStat, dir.path(), &tiny()).unwrap();
    assert_eq!((sample.ops, sample.checked.sizes), (40, 40));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Overwrites a byte of each page of each file below `root`.
fn spoil(root: &Path, at: u64) {
    for entry in std::fs::read_dir(root).unwrap().flatten() {
        if entry.path().is_dir() {
            spoil(&entry.path(), at);
        } else {
            let file = std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
            for page in (0..entry.metadata().unwrap().len()).step_by(4096) {
                file.write_all_at(b"?", page + at).unwrap();
            }
        }
    }
}

#[test]
fn a_spoiled_file_is_found_by_every_reader() {
    let pairs = [
        (Kind::NnWrite, Kind::NnRead),
        (Kind::NnWrite, Kind::RandomRead),
        (Kind::NnWrite, Kind::ReadLatency),
        (Kind::SharedWrite, Kind::SharedRead),
        (Kind::SmallCreate, Kind::SmallRead),
    ];
    for (writer, reader) in pairs {
        // In a page's stamp, in a later sector's, and where only whole pages are compared.
        for at in [3, 2048, 2000] {
            let dir = TestDir::new("spoiled");
            let mut workspace = Workspace::new(dir.path(), &tiny()).unwrap();
            workspace.run(writer).unwrap();
            workspace.run(reader).unwrap();
            spoil(workspace.root(), at);
            let error = format!("{:#}", workspace.run(reader).unwrap_err());
            assert!(error.contains("content is wrong"), "{reader:?}: {error}");
        }
    }
}

#[test]
fn a_file_that_grew_or_vanished_is_found() {
    let dir = TestDir::new("grown");
    let mut workspace = Workspace::new(dir.path(), &tiny()).unwrap();
    workspace.run(Kind::EmptyCreate).unwrap();
    let names = std::fs::read_dir(workspace.root()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(names.join("file.3"), "x").unwrap();
    assert!(workspace.run(Kind::EmptyStat).is_err());
    assert!(workspace.run(Kind::EmptyRead).is_err());
    std::fs::remove_file(names.join("file.3")).unwrap();
    assert!(workspace.run(Kind::EmptyRemove).is_err());
}

#[test]
fn what_cannot_work_is_refused_before_it_begins() {
    let dir = TestDir::new("refused");
    for params in [
        Params { workers: 0, ..tiny() },
        Params { transfer_bytes: 1000, ..tiny() },
        Params { total_bytes: 1000, ..tiny() },
        Params { files_per_worker: 0, ..tiny() },
        Params { total_bytes: u64::MAX / 8, ..tiny() },
    ] {
        assert!(row(Kind::NnWrite, dir.path(), &params).is_err(), "{params:?}");
    }
    assert!(row(Kind::NnWrite, &dir.path().join("missing"), &tiny()).is_err());
}
