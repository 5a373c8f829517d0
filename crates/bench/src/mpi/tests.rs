//! The studies' command lines, run small by workers of this process, and their tables read as those of the real programs are.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::ior::Ior;
use super::mdtest::Mdtest;
use super::table::Moment;
use super::*;
use crate::crew::{Crew, Inside};
use crate::job::{Data, DataOp, Files, Flush, Names, NamesOp, Order, Work};
use crate::record::Outcome;
use crate::testdir::TestDir;
use crate::tools::{ior_rows, mdtest_rates};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

fn data(line: &str, op: DataOp) -> Data {
    match Ior::parse(&words(line)).unwrap().job(op, 0).work {
        Work::Data(data) => data,
        Work::Names(_) => panic!("of ior"),
    }
}

fn refused(error: anyhow::Error) -> String {
    error.downcast::<Refused>().unwrap().to_string()
}

/// The output of a run, by real workers on a real directory.
fn printed(run: impl FnOnce(&mut Bench<'_>) -> Result<()>) -> (String, Result<()>) {
    let mut crew = Crew::new(Inside, "/".into(), Arc::new(AtomicBool::new(false)));
    let mut text = Vec::new();
    let mut bench = Bench { runner: &mut crew, page: Page { to: &mut text }, command: "the command".into() };
    let result = run(&mut bench);
    (String::from_utf8(text).unwrap(), result)
}

fn files_below(dir: &Path) -> (usize, usize) {
    let (mut dirs, mut files) = (0, 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let below = files_below(&path);
            (dirs, files) = (dirs + 1 + below.0, files + below.1);
        } else {
            files += 1;
        }
    }
    (dirs, files)
}

#[test]
fn the_studies_ior_lines_are_understood() {
    let one = "-a POSIX -v -i 1 -d 3 -e -k -o /d/tst.file -w -s 1 -t 8m -b 256G -np 16";
    let write = data(one, DataOp::Write);
    assert_eq!((write.transfer_bytes, write.block_bytes, write.segments), (8 << 20, 256 << 30, 1));
    assert_eq!(write.files, Files::Shared { path: "/d/tst.file".into() });
    assert_eq!((write.flush, write.create, write.order), (Flush::End, true, Order::Sequential));
    let two = "-posix -vv -i 1 -w -r -k -F -g -C -e -b 1m -t 1m -o /d/file -N 4";
    let read = data(two, DataOp::Read);
    assert_eq!(read.files, Files::Own { stem: "/d/file".into() });
    assert_eq!((read.shift, read.create, read.flush), (1, false, Flush::Never));
    assert_eq!(data(two, DataOp::Write).shift, 0);
    let same = "-wrkFgCe -vv --posix -t=1m -b1m -o=/d/file --np=4";
    assert_eq!(data(same, DataOp::Read), read);
    let more = data("-z -B -Y -E -Q 3 -b 1g -t 4k -o /d/f -np 4", DataOp::Write);
    assert!(more.direct && !more.create && more.flush == Flush::Each && more.order == Order::Random);
    let timed = Ior::parse(&words("-D 30 -w -R")).unwrap().job(DataOp::Read, 0);
    assert!(timed.limit.seconds == Some(30.0) && timed.verify);
}

#[test]
fn what_is_not_understood_is_named_with_what_to_do() {
    let of = |line: &str| refused(Ior::parse(&words(line)).unwrap_err());
    assert_eq!(of("-w -c"), "-c is not understood here; collective I/O needs MPI-IO: leave it out");
    assert!(of("-a MPIIO").contains("-a POSIX"));
    assert!(of("-w --hdf5.collective").starts_with("--hdf5.collective is not understood here; leave it out"));
    assert!(of("-O summaryFormat=CSV").contains("stria bench run"));
    assert!(of("-b").contains("-b stands without its value"));
    assert!(of("-b 1x").contains("-b 1x: that is no size"));
    assert!(of("-b 1m -t 3k").contains("no multiple"));
    assert!(of("testfile").contains("only options"));
    assert!(of("-z -C").contains("take -F"));
    assert!(of("-z -D 5 -w -r").contains("what is read would not be what was written"));
    let of = |line: &str| refused(Mdtest::parse(&words(line)).unwrap_err());
    assert!(of("-n 10 -W 30").starts_with("-W 30 is not understood here"));
    assert!(of("-n 10 -S").contains("stria bench ior"));
    assert!(of("-n 10 -I 10").contains("one of the two"));
    assert!(of("-d x").contains("give -n or -I"));
    assert!(of("-n 10 -w 4k -e 8k").contains("-w 8192"));
    assert!(of("-n 10 -d a@b").contains("a command per directory"));
}

#[test]
fn ior_s_table_can_be_read_as_the_real_one() {
    let dir = TestDir::new("mpi-ior");
    let path = dir.path().join("file");
    let line =
        format!("-posix -vv -i 2 -w -r -R -W -k -F -g -C -e -b 1m -t 256k -s 2 -np 3 -o {}", path.display());
    let (text, result) = printed(|bench| Ior::parse(&words(&line)).unwrap().run(bench));
    result.unwrap();
    let rows = ior_rows(&text).unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row.access.as_str(), row.iteration)).collect();
    assert_eq!(told, [("write", 0), ("read", 0), ("write", 1), ("read", 1)], "{text}");
    for row in &rows {
        // 6 MiB in 24 transfers.
        assert!((row.mib_per_second * row.total_seconds / 6.0 - 1.0).abs() < 0.02, "{row:?}");
        assert!((row.iops.unwrap() * row.access_seconds.unwrap() / 24.0 - 1.0).abs() < 0.02, "{row:?}");
    }
    for row in &rows {
        // Opening, moving, closing: each there, and together the whole but for what overlaps.
        let stages = [row.open, row.access_seconds, row.close].map(|stage| stage.expect("it is told"));
        assert!(stages.iter().all(|s| *s <= row.total_seconds), "{row:?}");
        assert!(stages.iter().sum::<f64>() >= row.total_seconds * 0.98 - 2e-6, "{row:?}");
    }
    for line in [
        "Max Write: ",
        "Max Read:  ",
        "\nSummary of all tests:",
        "\naggregate filesize  : 6 MiB",
        "\ntasks               : 3",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    for name in ["write", "read"] {
        let summary = text.rsplit("Operation ").next().unwrap();
        let row = summary.lines().find(|line| line.starts_with(name)).unwrap();
        let header = summary.lines().next().unwrap();
        assert_eq!(row.split_whitespace().count(), header.split_whitespace().count() + 1, "{row}");
    }
    for worker in 0..3 {
        assert_eq!(std::fs::metadata(dir.path().join(format!("file.{worker}"))).unwrap().size(), 2 << 20);
    }
    let (text, result) = printed(|bench| {
        Ior::parse(&words(&format!("-i 1 -b 64k -t 4k -z -np 2 -o {}", dir.path().join("one").display())))
            .unwrap()
            .run(bench)
    });
    result.unwrap();
    assert_eq!(ior_rows(&text).unwrap().len(), 2, "{text}");
    // Without -k it goes; the others stayed.
    assert_eq!(files_below(dir.path()), (0, 3));
}

#[test]
fn ior_s_json_has_the_fields_of_the_real_one() {
    let dir = TestDir::new("mpi-json");
    let (path, said) = (dir.path().join("f"), dir.path().join("said.json"));
    let line = format!("-a POSIX -i 2 -w -r -F -C -e -b 1m -t 256k -np 2 -o {}", path.display());
    let run = |more: &str| {
        let (text, result) = printed(|b| Ior::parse(&words(&format!("{line} {more}"))).unwrap().run(b));
        result.unwrap();
        text
    };
    let text = run("-O summaryFormat=JSON");
    let rows = ior_rows(&text).unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row.access.as_str(), row.iteration)).collect();
    assert_eq!(told, [("write", 0), ("read", 0), ("write", 1), ("read", 1)], "{text}");
    assert!(rows.iter().all(|r| r.open.is_some() && r.close.is_some() && r.total_seconds > 0.0));
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let parameters = &read["tests"][0]["Parameters"];
    assert_eq!(
        (parameters["transferSize"].as_u64(), parameters["fsync"].as_u64()),
        (Some(256 << 10), Some(1))
    );
    let write = &read["summary"][0];
    assert_eq!((write["operation"].as_str(), write["numTasks"].as_u64()), (Some("write"), Some(2)));
    assert_eq!(write["xsizeMiB"].as_f64(), Some(2.0));
    let rates: Vec<f64> = rows.iter().filter(|r| r.access == "write").map(|r| r.mib_per_second).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    assert!((write["bwMaxMIB"].as_f64().unwrap() / most - 1.0).abs() < 1e-9);
    let text = run(&format!("-O summaryFormat=JSON,summaryFile={}", said.display()));
    assert_eq!(text, format!("Writing output to {}\n", said.display()));
    assert_eq!(ior_rows(&std::fs::read_to_string(&said).unwrap()).unwrap().len(), 4);
    run(&format!("-O summaryFile={}", said.display()));
    assert!(std::fs::read_to_string(&said).unwrap().contains("Max Write: "));
}

#[test]
fn a_check_finds_what_was_changed() {
    let dir = TestDir::new("mpi-check");
    let path = dir.path().join("f");
    let run = |options: &str| {
        let line = format!("{options} -b 1m -t 256k -k -o {}", path.display());
        printed(|bench| Ior::parse(&words(&line)).unwrap().run(bench))
    };
    run("-w").1.unwrap();
    run("-r -R").1.unwrap();
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    run("-r").1.unwrap();
    let (text, result) = run("-r -R");
    assert!(result.is_err(), "{text}");
    assert!(text.contains("Finished "), "{text}");
}

#[test]
fn the_studies_mdtest_lines_make_their_trees() {
    let dir = TestDir::new("mpi-mdtest");
    let at = dir.path().display();
    let line = format!("-v -d {at} -i 1 -b 4 -z 1 -L -I 16 -y -u -t -F -w 4K -e 4K -np 2");
    let (text, result) = printed(|bench| Mdtest::parse(&words(&line)).unwrap().run(bench, Form::Table));
    result.unwrap();
    assert!(text.contains("2 tasks, 128 files\n"), "{text}");
    let rates = mdtest_rates(&text);
    let titles: Vec<_> = rates.keys().map(String::as_str).collect();
    assert_eq!(
        titles,
        ["File creation", "File read", "File removal", "File stat", "Tree creation", "Tree removal"]
    );
    assert!(rates.values().all(|rates| rates.mean > 0.0 && rates.deviation == 0.0));
    assert_eq!(files_below(dir.path()), (0, 0));
    let line = format!("-i 2 -b 1 -z 1 -L -I 10 -u -t -d {at} -np 3");
    let (text, result) = printed(|bench| Mdtest::parse(&words(&line)).unwrap().run(bench, Form::Table));
    result.unwrap();
    let rates = mdtest_rates(&text);
    assert_eq!(rates.len(), 9, "{text}");
    assert!(rates["Directory creation"].deviation > 0.0 && text.contains("SUMMARY rate: (of 2 iterations)"));
    // As scripts of IO500 look for them.
    let creation = text.lines().find(|line| line.trim_start().starts_with("File creation")).unwrap();
    assert_eq!(creation.split_whitespace().nth(2).unwrap(), format!("{:.3}", rates["File creation"].max));
}

#[test]
fn mdtest_in_phases_finds_what_the_phase_before_left() {
    let dir = TestDir::new("mpi-phases");
    let run = |phase: &str| {
        let line = format!("{phase} -n 12 -b 2 -z 1 -N 1 -np 2 -X -w 100 -e 100 -d {}", dir.path().display());
        printed(|bench| Mdtest::parse(&words(&line)).unwrap().run(bench, Form::Table))
    };
    run("-C").1.unwrap();
    // test-dir, a shared tree of three directories, and in it 4 items of each worker in each directory, files and directories.
    assert_eq!(files_below(dir.path()), (1 + 3 + 24, 24));
    assert!(refused(run("-C").1.unwrap_err()).contains("run with -r"));
    let (text, result) = run("-T -E");
    result.unwrap();
    assert!(mdtest_rates(&text)["File creation"].max == 0.0 && mdtest_rates(&text)["File read"].max > 0.0);
    run("-r").1.unwrap();
    assert_eq!(files_below(dir.path()), (0, 0));
}

#[test]
fn mdtest_s_strides_and_jobs() {
    let mdtest = Mdtest::parse(&words("-N 2 -I 8 -b 3 -z 2 -R -u -np 5 -d /d")).unwrap();
    let names = |op| match mdtest.job(op, Path::new("/d/test-dir.0-0")).work {
        Work::Names(names) => names,
        Work::Data(_) => panic!("of mdtest"),
    };
    let shifts = [NamesOp::Create, NamesOp::Stat, NamesOp::Read, NamesOp::Remove].map(|op| names(op).shift);
    assert_eq!(shifts, [0, 2, 4, 1]);
    let Names { branch, depth, shared, order, .. } = names(NamesOp::Stat);
    assert_eq!((branch, depth, shared, order), (3, 2, false, Order::Random));
    assert_eq!(names(NamesOp::Read).order, Order::Sequential);
    assert_eq!(mdtest.phases().len(), 9);
    assert_eq!(Mdtest::parse(&words("-F -C -n 1")).unwrap().phases(), [NamesOp::MakeTree, NamesOp::Create]);
}

/// Says what it was told, and fails from a phase on.
struct Fake {
    told: Vec<String>,
    fails_at: usize,
}

impl Runner for Fake {
    fn run(&mut self, parts: &[(String, crate::job::Job)], _processes: u32) -> Result<Vec<Outcome>> {
        self.told.push(parts[0].0.clone());
        anyhow::ensure!(self.told.len() <= self.fails_at, "no space");
        Ok(vec![Outcome { seconds: 2.0, ops: 8, bytes: 8 << 20, ..Outcome::default() }])
    }
}

#[test]
fn what_was_measured_before_a_failure_is_shown() {
    let mut fake = Fake { told: Vec::new(), fails_at: 3 };
    let mut text = Vec::new();
    let mut bench = Bench { runner: &mut fake, page: Page { to: &mut text }, command: String::new() };
    let ior = Ior::parse(&words("-i 3 -b 8m -t 1m -o /nowhere/f")).unwrap();
    assert_eq!(ior.run(&mut bench).unwrap_err().to_string(), "no space");
    assert_eq!(fake.told, ["write", "read", "write", "read"]);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("Max Write: 4.00 MiB/sec (4.19 MB/sec)"), "{text}");
    let row = text.lines().find(|line| line.starts_with("write")).unwrap();
    let known = "write     4.00       4.00          -        8192       1024.00       -       2.00          -       2.00       0";
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), known.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn moments_are_days_of_the_calendar() {
    assert_eq!(Moment::at(0).long(), "Thu Jan  1 00:00:00 1970");
    assert_eq!(Moment::at(951_782_399).long(), "Mon Feb 28 23:59:59 2000");
    assert_eq!(Moment::at(951_782_400).short(), "02/29/2000 00:00:00");
    assert_eq!(Moment::at(1_795_346_197).long(), "Sun Nov 22 11:16:37 2026");
}

/// Each repetition is told from the one before, so that one that wrote nothing shows.
#[test]
fn repetitions_are_versions() {
    let of = |line: &str, op, repeat| match Ior::parse(&words(line)).unwrap().job(op, repeat).work {
        Work::Data(data) => (data.version, data.accept),
        Work::Names(_) => panic!("of ior"),
    };
    let both = "-w -R -E -i 3";
    assert_eq!(of(both, DataOp::Write, 0), (1, vec![1]));
    assert_eq!(of(both, DataOp::Write, 2), (3, vec![3]));
    assert_eq!(of(both, DataOp::Read, 2).1, [3]);
    // A read-only run does not know how many repetitions the run before had.
    let later = of("-R -E", DataOp::Read, 0).1;
    assert!(later.contains(&1) && later.contains(&3), "{later:?}");
}
