//! Commands as the programs want them, and outputs that the programs really printed (`fixtures`: two tasks, fio 3.33, IOR and
//! mdtest 3.3.0 and 4.0.0, IOzone 3.489). Where a program is in the path it is run too.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::job::{DataOp, Engine, Files, Flush, Limit, NamesOp, Order};
use crate::testdir::TestDir;

fn job_of(work: Work) -> Job {
    Job {
        work,
        workers: 2,
        limit: Limit::default(),
        verify: false,
        // fio once refused this seed.
        seed: u64::MAX,
        forget_pages: false,
        holds: Vec::new(),
    }
}

fn data_of(op: DataOp, files: Files) -> Data {
    Data {
        op,
        order: Order::Sequential,
        files,
        transfer_bytes: 1 << 20,
        block_bytes: 4 << 20,
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

fn names_of(op: NamesOp, root: &Path) -> Names {
    Names {
        op,
        root: root.into(),
        shared: false,
        branch: 2,
        depth: 1,
        leaves_only: true,
        items_per_dir: 8,
        write_bytes: 4096,
        read_bytes: 4096,
        open_to_write: false,
        flush: true,
        shift: 0,
        order: Order::Sequential,
        epochs: 1,
        version: 1,
        null: false,
    }
}

fn own() -> Files {
    Files::Own { stem: "/d/o".into() }
}

fn part(work: Work) -> Vec<Part> {
    vec![(String::new(), job_of(work))]
}

fn command(program: Program, parts: &[Part]) -> String {
    quoted(&tool(program).unwrap().command(parts).unwrap())
}

fn refused(program: Program, parts: &[Part]) -> String {
    format!("{:#}", tool(program).unwrap().command(parts).unwrap_err())
}

fn parse(program: Program, printed: &str, parts: &[Part]) -> Outcome {
    let said = Said { stdout: printed.into(), stderr: String::new() };
    tool(program).unwrap().parse(&said, parts).unwrap().remove(0)
}

fn is_near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-3
}

const MPI: &str = "mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2";

#[test]
fn ior_is_told_the_job() {
    let parts = part(Work::Data(data_of(DataOp::Write, own())));
    let told = format!("{MPI} ior -a POSIX -v -k -i 1 -w -t 1048576 -b 4194304 -s 2 -F -e -o /d/o");
    assert_eq!(command(Program::Ior, &parts), told);
    let shared = Files::Shared { path: "/d/one".into() };
    let mut read = data_of(DataOp::Read, shared.clone());
    (read.shift, read.direct, read.segments) = (1, true, 1);
    let mut parts = part(Work::Data(read.clone()));
    parts[0].1.workers = 1;
    parts[0].1.limit.seconds = Some(5.0);
    let told = "ior -a POSIX -v -k -i 1 -r -t 1048576 -b 4194304 -s 1 --posix.odirect -C -Q 1 -D 5 -o /d/one";
    assert_eq!(command(Program::Ior, &parts), told);
    read.order = Order::Random;
    assert!(refused(Program::Ior, &part(Work::Data(read))).contains("take files of their own"));
    let mixed = data_of(DataOp::Mixed { read_percent: 70 }, shared);
    assert!(refused(Program::Ior, &part(Work::Data(mixed))).contains("take fio"));
    let names = part(Work::Names(names_of(NamesOp::Create, Path::new("/d"))));
    assert!(refused(Program::Ior, &names).contains("mdtest does"));
    let mut warm = part(Work::Data(data_of(DataOp::Read, own())));
    warm[0].1.limit.warmup_seconds = 1.0;
    assert!(refused(Program::Ior, &warm).contains("`warmup-seconds`"));
    let mut held = part(Work::Data(data_of(DataOp::Read, own())));
    held[0].1.holds = vec![8, 8];
    assert!(command(Program::Ior, &held).contains(" -r "));
    held[0].1.holds = vec![8, 7];
    assert!(refused(Program::Ior, &held).contains("stopped by its time"));
}

#[test]
fn ior_s_tables_are_read() {
    let parts = part(Work::Data(data_of(DataOp::Write, own())));
    let text = include_str!("fixtures/ior-4.0.0-write.txt");
    let outcome = parse(Program::Ior, text, &parts);
    assert_eq!((outcome.ops, outcome.bytes), (16, 16 << 20));
    let [row] = &ior_rows(text).unwrap()[..] else { panic!("one row") };
    assert!(is_near(16.0 / outcome.seconds, row.mib_per_second));
    assert!(is_near(outcome.seconds, row.total_seconds) && outcome.extra.contains_key("close_seconds"));
    for (text, count) in [
        (include_str!("fixtures/ior-4.0.0-both.txt"), 4),
        (include_str!("fixtures/ior-3.3.0-both.txt"), 2),
        (include_str!("fixtures/ior-4.0.0.json"), 2),
    ] {
        let rows = ior_rows(text).unwrap();
        assert_eq!(rows.len(), count, "{rows:?}");
        let of = |access: &str| rows.iter().filter(|row| row.access == access).count();
        assert_eq!((of("write"), of("read")), (count / 2, count / 2));
        assert_eq!(rows[count - 1].iteration, count / 2 - 1);
        assert!(rows.iter().all(|row| row.mib_per_second > 100.0 && row.total_seconds > 0.0));
    }
    assert!(ior_rows("ERROR: no such file").is_err());
}

#[test]
fn mdtest_is_told_the_job() {
    let job = |op| part(Work::Names(names_of(op, Path::new("/d/md"))));
    let told = format!("{MPI} mdtest -a POSIX -C -F -b 2 -z 1 -I 8 -w 4096 -e 4096 -L -u -y -d /d/md");
    assert_eq!(command(Program::Mdtest, &job(NamesOp::Create)), told);
    let told = format!("{MPI} mdtest -a POSIX -r -b 2 -z 1 -n 0 -L -u -y -d /d/md");
    assert_eq!(command(Program::Mdtest, &job(NamesOp::RemoveTree)), told);
    let mut read = names_of(NamesOp::Read, Path::new("/d/md"));
    read.shift = 2;
    assert!(command(Program::Mdtest, &part(Work::Names(read.clone()))).contains("-E -F -b 2 -z 1 -I 8"));
    assert!(command(Program::Mdtest, &part(Work::Names(read.clone()))).contains(" -N 1 "));
    read.shift = 1;
    assert!(refused(Program::Mdtest, &part(Work::Names(read))).contains("2 N"));
    assert!(refused(Program::Mdtest, &job(NamesOp::Ask)).contains("our own workers do"));
}

#[test]
fn mdtest_s_tables_are_read() {
    let job = |op| part(Work::Names(names_of(op, Path::new("/d/md"))));
    let text = include_str!("fixtures/mdtest-4.0.0-create.txt");
    let outcome = parse(Program::Mdtest, text, &job(NamesOp::Create));
    assert_eq!((outcome.ops, outcome.bytes), (32, 32 * 4096));
    let rate = mdtest_rates(text)["File creation"].mean;
    assert!(rate > 0.0 && is_near(32.0 / outcome.seconds, rate));
    // Two tasks' trees of three directories; it counts those of one.
    let tree = parse(Program::Mdtest, text, &job(NamesOp::MakeTree));
    assert_eq!(tree.ops, 6);
    assert!(is_near(3.0 / tree.seconds, mdtest_rates(text)["Tree creation"].mean));
    let said = Said { stdout: text.into(), stderr: String::new() };
    let nothing = tool(Program::Mdtest).unwrap().parse(&said, &job(NamesOp::Stat)).unwrap_err();
    assert!(nothing.to_string().contains("nothing was done"), "{nothing}");
    let old = mdtest_rates(include_str!("fixtures/mdtest-3.3.0-all.txt"));
    let new = mdtest_rates(include_str!("fixtures/mdtest-4.0.0-all.txt"));
    assert_eq!((old.len(), new.len()), (9, 10));
    assert!(old.keys().all(|title| new.contains_key(title)));
    let rates = new["Directory stat"];
    assert!(rates.max >= rates.mean && rates.mean >= rates.min && rates.deviation > 0.0);
}

#[test]
fn iozone_is_told_the_job_and_read() {
    let mut data = data_of(DataOp::Write, own());
    (data.block_bytes, data.segments) = (16 << 20, 1);
    let parts = part(Work::Data(data.clone()));
    let told = "iozone -i0 -+n -x -w -c -e -r 1024k -s 16384k -t 2 -F /d/o.0 /d/o.1";
    assert_eq!(command(Program::Iozone, &parts), told);
    let outcome = parse(Program::Iozone, include_str!("fixtures/iozone-3.489-write.txt"), &parts);
    assert_eq!((outcome.ops, outcome.bytes, outcome.read_bytes), (32, 32 << 20, 0));
    assert!(outcome.seconds > 0.0 && outcome.extra["parent_mib_per_second"] > 0.0);
    let dir = TestDir::new("iozone");
    data.files = Files::Own { stem: dir.path().join("o") };
    (data.op, data.order, data.create, data.direct) = (DataOp::Read, Order::Random, false, true);
    (data.transfer_bytes, data.block_bytes) = (4096, 4 << 20);
    let parts = part(Work::Data(data.clone()));
    // It would wait for ever for files that are not there.
    assert!(refused(Program::Iozone, &parts).contains("in a phase before"));
    for worker in 0..2 {
        std::fs::write(dir.path().join(format!("o.{worker}")), vec![0; 4 << 20]).unwrap();
    }
    assert!(
        command(Program::Iozone, &parts).starts_with("iozone -i2 -+n -x -w -c -I -r 4k -s 4096k -t 2 -F ")
    );
    let text = include_str!("fixtures/iozone-3.489-random.txt");
    let outcome = parse(Program::Iozone, text, &parts);
    assert_eq!((outcome.ops, outcome.read_bytes), (2048, 8 << 20));
    data.op = DataOp::Write;
    let writers = parse(Program::Iozone, text, &part(Work::Data(data)));
    assert!(writers.seconds != outcome.seconds && writers.read_bytes == 0);
}

#[test]
fn fio_s_places_are_ours() {
    let shared = Files::Shared { path: "/d/one".into() };
    let told = command(Program::Fio, &part(Work::Data(data_of(DataOp::Write, shared))));
    let second = told.split("--name=p0w1 ").nth(1).unwrap();
    // Segments of worker 1 of 2 begin at 4 MiB and 12 MiB.
    for option in [
        "--offset=4194304",
        "--size=12582912",
        "--io_size=8388608",
        "--zoneskip=4194304",
        "--rw=write",
        "--bs=1048576",
        "--end_fsync=1",
        "--ioengine=psync",
    ] {
        assert!(second.contains(option), "{option} in {second}");
    }
    let given = Files::Given { paths: ["/d/a", "/d/b", "/d/c"].map(PathBuf::from).into() };
    let places: Vec<_> = (0..4).map(|w| place::place(&data_of(DataOp::Read, given.clone()), 4, w)).collect();
    let told: Vec<_> =
        places.iter().map(|p| (p.path.to_str().unwrap(), p.offset >> 20, p.skip >> 20)).collect();
    assert_eq!(told, [("/d/a", 0, 4), ("/d/b", 0, 0), ("/d/c", 0, 0), ("/d/a", 4, 4)]);
    let missing = part(Work::Data(data_of(DataOp::Read, given)));
    assert!(refused(Program::Fio, &missing).contains("write it in a phase before"));
}

#[test]
fn fio_s_report_is_read() {
    let mut data = data_of(DataOp::Mixed { read_percent: 70 }, own());
    data.create = true;
    let outcome = parse(Program::Fio, include_str!("fixtures/fio-3.33-mixed.json"), &part(Work::Data(data)));
    assert_eq!((outcome.ops, outcome.bytes, outcome.per_worker.len()), (32, 2 << 20, 2));
    assert!(outcome.read_bytes > 1 << 20 && outcome.read_bytes < outcome.bytes);
    assert_eq!(outcome.latency["read"].count() + outcome.latency["write"].count(), 32);
    assert!(outcome.first_done <= outcome.last_done && outcome.seconds == outcome.last_done);
}

#[test]
fn a_command_can_be_pasted() {
    let words = ["a", "b c", "d'e", "", "x=1"].map(String::from);
    assert_eq!(quoted(&words), r"a 'b c' 'd'\''e' '' x=1");
}

#[test]
fn a_child_that_fails_says_why_and_one_that_shall_end_ends_with_its_group() {
    let dir = TestDir::new("child");
    let shell = |script: &str| ["sh", "-c", script].map(String::from);
    let stop = Arc::new(AtomicBool::new(false));
    let failed =
        child::run(&shell("echo first >&2; echo why >&2; exit 3"), &[], dir.path(), &stop).unwrap_err();
    let said = format!("{failed:#}");
    assert!(said.contains("exit status: 3") && said.ends_with("first\nwhy"), "{said}");
    let none = child::run(&["no-such-program".to_owned()], &[], dir.path(), &stop).unwrap_err();
    assert!(format!("{none:#}").contains("is it installed"), "{none:#}");
    // The child's child holds the pipes open: only the end of the group ends them.
    let fifo = dir.path().join("begun");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let setter = {
        let (fifo, stop) = (fifo.clone(), stop.clone());
        thread::spawn(move || {
            std::fs::read(fifo).unwrap();
            stop.store(true, Ordering::Relaxed);
        })
    };
    let begin = Instant::now();
    let script = format!("sh -c 'echo > {}; sleep 600'; true", fifo.display());
    let stopped = child::run(&shell(&script), &[], dir.path(), &stop).unwrap_err();
    setter.join().unwrap();
    assert_eq!(stopped.to_string(), "stopped");
    assert!(begin.elapsed() < Duration::from_secs(300));
}

/// Those that are in the path; what they did is counted in their files.
#[test]
fn programs_that_are_here_do_the_job() {
    let dir = TestDir::new("tools");
    let stop = AtomicBool::new(false);
    let run = |program, work: Work| {
        let done = run(program, &part(work), dir.path(), &stop).unwrap();
        (done.outcomes[0].ops, done.outcomes[0].bytes)
    };
    for program in [Program::Fio, Program::Ior, Program::Iozone] {
        let Some(version) = found(program) else {
            eprintln!("{program:?} is not in the path: not run");
            continue;
        };
        assert!(version.ends_with(|c: char| c.is_ascii_digit()), "{version}");
        let files = Files::Own { stem: dir.path().join(format!("{program:?}")) };
        assert_eq!(run(program, Work::Data(data_of(DataOp::Write, files.clone()))), (16, 16 << 20));
        assert_eq!(run(program, Work::Data(data_of(DataOp::Read, files))), (16, 16 << 20));
        if program != Program::Iozone {
            let path = dir.path().join(format!("{program:?}.one"));
            let one = Work::Data(data_of(DataOp::Write, Files::Shared { path: path.clone() }));
            assert_eq!(run(program, one), (16, 16 << 20));
            assert_eq!(std::fs::metadata(path).unwrap().len(), 16 << 20);
        }
    }
    if found(Program::Mdtest).is_none() {
        eprintln!("mdtest is not in the path: not run");
        return;
    }
    let root = dir.path().join("md");
    for (op, ops) in [
        (NamesOp::MakeTree, 6),
        (NamesOp::Create, 32),
        (NamesOp::Stat, 32),
        (NamesOp::Read, 32),
        (NamesOp::Remove, 32),
        (NamesOp::RemoveTree, 0),
    ] {
        assert_eq!(run(Program::Mdtest, Work::Names(names_of(op, &root))).0, ops, "{op:?}");
    }
    assert!(!root.join("test-dir.0-0").exists());
}
