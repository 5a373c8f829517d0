//! Jobs of all kinds through a crew whose workers are threads, and what must be noticed.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::job::*;
use crate::testdir::TestDir;
use crate::worker::Buckets;

fn data(op: DataOp, files: Files) -> Data {
    Data {
        op,
        order: crate::job::Order::Sequential,
        files,
        transfer_bytes: 64 << 10,
        block_bytes: 256 << 10,
        segments: 2,
        shift: 0,
        ops_max: None,
        engine: Engine::Sync,
        direct: false,
        flush: Flush::End,
        create: op == DataOp::Write,
        version: 1,
        accept: vec![1],
        read_back: 0,
    }
}

fn names(op: NamesOp) -> Names {
    Names {
        op,
        root: "tree".into(),
        shared: false,
        branch: 2,
        depth: 1,
        leaves_only: true,
        items_per_dir: 5,
        write_bytes: 5000,
        read_bytes: 5000,
        open_to_write: false,
        flush: false,
        shift: 0,
        order: crate::job::Order::Sequential,
        epochs: 1,
        version: 1,
        null: false,
    }
}

fn job(work: Work) -> Job {
    let limit = Limit::default();
    Job { work, workers: 3, limit, verify: true, seed: 7, forget_pages: false, holds: Vec::new() }
}

fn crew(dir: &Path) -> Crew {
    Crew::new(Inside, dir.to_owned(), Arc::default())
}

fn run(crew: &mut Crew, job: Job) -> Result<Outcome> {
    Ok(crew.run(&[(String::new(), job)], 2)?.remove(0))
}

fn own() -> Files {
    Files::Own { stem: "data".into() }
}

fn shared() -> Files {
    Files::Shared { path: "data".into() }
}

#[test]
fn what_is_written_is_read_in_every_way() {
    let mixed = DataOp::Mixed { read_percent: 50 };
    for files in [own(), shared()] {
        let dir = TestDir::new("crew-ways");
        let mut crew = crew(dir.path());
        let wrote = run(&mut crew, job(Work::Data(data(DataOp::Write, files.clone())))).unwrap();
        assert_eq!((wrote.ops, wrote.bytes, wrote.per_worker.len()), (24, 3 << 19, 3));
        assert_eq!(wrote.latency["write"].count(), 24);
        for engine in [Engine::Sync, Engine::Uring { depth: 4 }] {
            for order in [crate::job::Order::Sequential, crate::job::Order::Random] {
                for (op, shift) in [(DataOp::Read, 1), (DataOp::Write, 0), (mixed, 0), (DataOp::Read, 0)] {
                    let create = false;
                    let read_back = if op == DataOp::Write { 100 } else { 0 };
                    let work = Data { engine, order, shift, create, read_back, ..data(op, files.clone()) };
                    let did = run(&mut crew, job(Work::Data(work))).unwrap();
                    assert_eq!(did.ops, 24, "{op:?}");
                    // Each transfer of 64 KiB has one stamped page.
                    let pages = if op == mixed { did.read_bytes >> 16 } else { 24 };
                    assert_eq!(did.checked.pages, pages, "{op:?} {engine:?} {order:?}");
                    assert!(did.last_done >= did.first_done && did.seconds > 0.0);
                    let wall = did.stonewall.unwrap();
                    assert!(wall.ops <= 24.01 && wall.seconds <= did.seconds + 1e-6, "{wall:?}");
                    assert_eq!(did.timeline.unwrap().ops.iter().sum::<u64>(), 24);
                }
            }
        }
    }
}

/// The files have IOR's layout, to the byte: another program's reader finds the same.
#[test]
fn a_shared_file_is_cut_as_ior_cuts_it() {
    let work = Data { block_bytes: 128 << 10, ..data(DataOp::Write, shared()) };
    let offsets: Vec<u64> =
        (0..4).map(|turn| crate::work::Place::new(&work, 1, 3).offset(turn) >> 10).collect();
    // Segment 0 has blocks of workers 0, 1, 2 at 0, 128, 256 KiB; segment 1 begins at 384 KiB.
    assert_eq!(offsets, [128, 192, 512, 576]);
    let given = Files::Given { paths: vec!["a".into(), "b".into()] };
    let work = Data { block_bytes: 64 << 10, segments: 1, ..data(DataOp::Read, given) };
    let places: Vec<u64> = (0..3).map(|w| crate::work::Place::new(&work, w, 3).offset(0) >> 10).collect();
    // Workers 0 and 2 share "a", worker 1 has "b" alone.
    assert_eq!(places, [0, 0, 64]);
}

#[test]
fn wrong_content_fails_the_phase_by_name() {
    for (offset, engine) in [(3, Engine::Sync), (2000, Engine::Uring { depth: 2 })] {
        let dir = TestDir::new("crew-spoiled");
        let mut crew = crew(dir.path());
        run(&mut crew, job(Work::Data(data(DataOp::Write, own())))).unwrap();
        let path = dir.path().join("data.1");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"?!", (128 << 10) + offset).unwrap();
        let read = || job(Work::Data(Data { engine, ..data(DataOp::Read, own()) }));
        let error = format!("{:#}", run(&mut crew, read()).unwrap_err());
        assert!(error.contains("data.1") && error.contains("content is wrong"), "{error}");
        // Unverified it passes, and the crew works on after a failure.
        run(&mut crew, Job { verify: false, ..read() }).unwrap();
        file.set_len(1000).unwrap();
        let error = format!("{:#}", run(&mut crew, Job { verify: false, ..read() }).unwrap_err());
        assert!(error.contains("reading 65536 bytes at 0 of"), "{error}");
    }
}

#[test]
fn a_file_that_is_missing_is_told_before_the_begin() {
    let dir = TestDir::new("crew-missing");
    let mut crew = crew(dir.path());
    let read = Job { forget_pages: true, ..job(Work::Data(data(DataOp::Read, own()))) };
    let error = format!("{:#}", run(&mut crew, read).unwrap_err());
    assert!(error.contains("opening") && error.contains("data."), "{error}");
}

#[test]
fn names_are_made_seen_read_and_removed() {
    for (is_shared, leaves_only) in [(false, true), (true, true), (true, false)] {
        let dir = TestDir::new("crew-names");
        let mut crew = crew(dir.path());
        let per_worker = if leaves_only { 10 } else { 15 };
        let mut step = |op, shift| {
            let work = Names { shared: is_shared, leaves_only, shift, ..names(op) };
            run(&mut crew, job(Work::Names(work)))
        };
        let trees = if is_shared { 1 } else { 3 };
        assert_eq!(step(NamesOp::MakeTree, 0).unwrap().ops, trees * 3);
        assert_eq!(step(NamesOp::Create, 0).unwrap().ops, 3 * per_worker);
        assert!(step(NamesOp::Create, 0).is_err(), "a file that is there is not made again");
        assert_eq!(step(NamesOp::Stat, 1).unwrap().checked.sizes, 3 * per_worker);
        let read = step(NamesOp::Read, 1).unwrap();
        assert_eq!((read.bytes, read.checked.sizes), (3 * per_worker * 5000, 3 * per_worker));
        assert!(read.checked.pages == 3 * per_worker);
        assert_eq!(step(NamesOp::MakeDir, 0).unwrap().ops, 3 * per_worker);
        assert_eq!(step(NamesOp::StatDir, 1).unwrap().ops, 3 * per_worker);
        assert_eq!(step(NamesOp::RemoveDir, 0).unwrap().ops, 3 * per_worker);
        assert_eq!(step(NamesOp::Remove, 1).unwrap().ops, 3 * per_worker);
        assert!(step(NamesOp::Stat, 0).is_err());
        assert_eq!(step(NamesOp::Ask, 0).unwrap().ops, 15);
        assert_eq!(step(NamesOp::RemoveTree, 0).unwrap().ops, trees * 3);
    }
}

/// As the kernel tells of files that are closed: which were open for writing.
#[test]
fn reads_open_files_as_they_are_told_to() {
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    let dir = TestDir::new("crew-open");
    let mut crew = crew(dir.path());
    let mut step = |op, open_to_write| {
        let work = Names { branch: 1, shared: true, open_to_write, ..names(op) };
        run(&mut crew, job(Work::Names(work)))
    };
    step(NamesOp::MakeTree, false).unwrap();
    step(NamesOp::Create, false).unwrap();
    let leaf = std::fs::read_dir(dir.path().join("tree")).unwrap().next().unwrap().unwrap().path();
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    let closed = WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
    inotify::add_watch(&watch, &leaf, closed).unwrap();
    for open_to_write in [false, true] {
        step(NamesOp::Read, open_to_write).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut space);
        let (mut of_files, mut of_writers) = (0, 0);
        while let Ok(event) = events.next() {
            of_files += u32::from(event.file_name().is_some());
            of_writers += u32::from(event.events().contains(ReadFlags::CLOSE_WRITE));
        }
        assert_eq!((of_files, of_writers), (15, if open_to_write { 15 } else { 0 }));
    }
}

#[test]
fn a_file_of_another_size_or_content_is_found() {
    let dir = TestDir::new("crew-sizes");
    let mut crew = crew(dir.path());
    let mut step = |op| run(&mut crew, job(Work::Names(names(op))));
    step(NamesOp::MakeTree).unwrap();
    step(NamesOp::Create).unwrap();
    let path = dir.path().join("tree/w.2/d.1/file.2.3");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert!(step(NamesOp::Stat).is_err());
    assert!(step(NamesOp::Read).is_err());
    let mut other = whole.clone();
    other[9] ^= 1;
    std::fs::write(&path, &other).unwrap();
    step(NamesOp::Stat).unwrap();
    let error = format!("{:#}", step(NamesOp::Read).unwrap_err());
    assert!(error.contains("file.2.3") && error.contains("content is wrong"), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert!(step(NamesOp::Stat).is_err() && step(NamesOp::Remove).is_err(), "one has vanished");
}

/// A phase that its limit stopped leaves less data; the phase that reads it is given the amount.
#[test]
fn what_was_stopped_early_is_read_as_far_as_it_goes() {
    let dir = TestDir::new("crew-limit");
    let mut crew = crew(dir.path());
    let mut write = job(Work::Data(Data { ops_max: Some(3), ..data(DataOp::Write, shared()) }));
    write.limit.warmup_seconds = 1000.0;
    let wrote = run(&mut crew, write).unwrap();
    assert_eq!((wrote.ops, wrote.per_worker[1].done), (0, 3), "all was warm-up");
    let holds = wrote.per_worker.iter().map(|w| w.done).collect();
    let read = Job { holds, ..job(Work::Data(data(DataOp::Read, shared()))) };
    assert_eq!(run(&mut crew, read).unwrap().ops, 9);
}

#[test]
fn parts_run_at_once_with_processes_of_their_own() {
    let dir = TestDir::new("crew-parts");
    let mut crew = crew(dir.path());
    let write = |stem: &str| {
        let files = Files::Own { stem: stem.into() };
        job(Work::Data(data(DataOp::Write, files)))
    };
    let one = Job { workers: 1, ..write("b") };
    let did = crew.run(&[("a".into(), write("a")), ("b".into(), one)], 2).unwrap();
    assert_eq!(did.iter().map(|o| o.per_worker.len()).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(crew.team.members(), 3);
    let pace = Limit { pace: Some(1e6), ..Limit::default() };
    let did = run(&mut crew, Job { limit: pace, ..write("c") }).unwrap();
    assert!(did.extra.contains_key("late_share"));
}

#[test]
fn a_stop_ends_what_would_go_on_for_ever() {
    let dir = TestDir::new("crew-stop");
    let stop: Arc<AtomicBool> = Arc::default();
    let mut crew = Crew::new(Inside, dir.path().to_owned(), stop.clone());
    run(&mut crew, job(Work::Data(data(DataOp::Write, own())))).unwrap();
    crew.watch(move |_| stop.store(true, Ordering::Relaxed));
    let order = crate::job::Order::Random;
    let mut read = job(Work::Data(Data { order, direct: true, ..data(DataOp::Read, own()) }));
    read.limit.seconds = Some(3600.0);
    let error = run(&mut crew, read).unwrap_err();
    assert!(error.is::<Stopped>(), "{error:#}");
}

#[test]
fn a_null_engine_moves_nothing() {
    let dir = TestDir::new("crew-null");
    let mut crew = crew(dir.path());
    let work = Data { engine: Engine::Null, ..data(DataOp::Write, own()) };
    assert_eq!(run(&mut crew, job(Work::Data(work))).unwrap().ops, 24);
    let work = Names { null: true, ..names(NamesOp::Create) };
    assert_eq!(run(&mut crew, job(Work::Names(work))).unwrap().ops, 30);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Workers that end together were all at work until then, however short it was.
#[test]
fn the_stonewall_of_a_short_phase_counts_what_was_done() {
    let timeline = Buckets { begin_ns: 0, width_ns: 10_000_000, counts: vec![(400, 4000)] };
    let wall = sum::stonewall(&timeline, 0, 4_000_000, 4_000_000);
    assert_eq!((wall.seconds, wall.ops, wall.bytes), (0.004, 400.0, 4000.0));
    let half = sum::stonewall(&timeline, 0, 2_000_000, 4_000_000);
    assert_eq!((half.ops, half.bytes), (200.0, 2000.0));
}

/// A second write of a file begins with none: what is made has no pages or blocks from before.
#[test]
fn what_is_made_is_made_anew() {
    use std::os::unix::fs::MetadataExt;
    for files in [own(), shared()] {
        let dir = TestDir::new("crew-anew");
        let mut crew = crew(dir.path());
        let path = dir.path().join(if files == shared() { "data" } else { "data.1" });
        let mut inodes = Vec::new();
        for blocks in [2, 1] {
            let work = Data { segments: blocks, ..data(DataOp::Write, files.clone()) };
            run(&mut crew, job(Work::Data(work))).unwrap();
            let meta = std::fs::metadata(&path).unwrap();
            inodes.push((meta.ino(), meta.len()));
        }
        assert_eq!(inodes[0].1, 2 * inodes[1].1, "{inodes:?}");
    }
}

/// Processes say how far they are in any order, and each of its own workers alone.
#[test]
fn workers_are_told_by_their_numbers() {
    let parts = [(String::new(), job(Work::Names(names(NamesOp::Stat))))];
    let seat = |first: u32| Seat { part: 0, first, stride: 2, host: 0, process: first as usize };
    let seats = [seat(0), seat(1)];
    let tell = |said: &[Vec<(u64, u64)>]| -> Vec<(u32, u64)> {
        named(&parts, &seats, said).iter().map(|w| (w.number, w.ops)).collect()
    };
    assert_eq!(tell(&[vec![(10, 0), (12, 0)], vec![(11, 0)]]), [(0, 10), (2, 12), (1, 11)]);
    assert_eq!(tell(&[vec![], vec![(11, 0)]]), [(1, 11)]);
}

/// Nothing is read back before all processes have worked: others may still be measured.
#[test]
fn what_is_read_back_is_read_when_all_have_worked() {
    use crate::worker::Order as Say;
    let dir = TestDir::new("crew-read-back");
    run(&mut crew(dir.path()), job(Work::Data(data(DataOp::Write, shared())))).unwrap();
    let Link { mut input, output, .. } = Inside.launch().unwrap();
    let mut tell = |order: &Say| {
        input.write_all((serde_json::to_string(order).unwrap() + "\n").as_bytes()).unwrap();
    };
    let mut answers = output.lines().map(|line| serde_json::from_str::<Answer>(&line.unwrap()).unwrap());
    let mut hear = || answers.find(|answer| !matches!(answer, Answer::Progress { .. })).unwrap();
    let over =
        Data { create: false, version: 2, accept: vec![2], read_back: 8, ..data(DataOp::Write, shared()) };
    let share = Share { job: job(Work::Data(over)), root: dir.path().to_owned(), first: 0, stride: 1 };
    for spoil in [false, true] {
        tell(&Say::Job(Box::new(share.clone())));
        assert_eq!(hear(), Answer::Ready);
        tell(&Say::Go);
        assert_eq!(hear(), Answer::Worked);
        if spoil {
            std::fs::write(dir.path().join("data"), vec![0; 2 << 20]).unwrap();
        }
        tell(&Say::Check);
        match hear() {
            Answer::Done(report) => assert!(!spoil && report.checked.pages == 24),
            Answer::Failed { why } => assert!(spoil && why.contains("reading back"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    // A stop in place of it ends the job, and the process is there for the next.
    tell(&Say::Job(Box::new(share)));
    assert_eq!(hear(), Answer::Ready);
    tell(&Say::Go);
    assert_eq!(hear(), Answer::Worked);
    tell(&Say::Stop);
    assert!(matches!(hear(), Answer::Failed { .. }));
}
