//! Small plans, run by workers that are threads of the test.

use super::*;
use crate::crew::Inside;
use crate::job::Files;
use crate::record::{Results, WorkerShare};
use crate::testdir::TestDir;

mod several;

const PLAN: &str = r#"
name = "test"
title = "A test"
about = "Small."
[scales.min]
repeats = [2, 4]
narrow = 1000.0
budget-seconds = 600
values = { total = "1M" }

[[steps]]
id = "nn"
title = "N-N"
sweep = { threads = [1, 2] }
data = { transfer = "64K", total = "$total", op = "write" }
[[steps.phases]]
name = "write"
data = {}
[[steps.phases]]
name = "read"
cold = true
data = { op = "read" }

[[steps]]
id = "routed"
title = "Over a router"
needs = ["routers"]
data = { transfer = "64K", total = "1M", op = "write" }
[[steps.phases]]
name = "write"
data = {}

[[steps]]
id = "said"
title = "What a program says"
commands = [["echo", "in", "{dir}"], ["no-such-program"]]

[[steps]]
id = "names"
title = "Names"
names = { op = "create", items-per-dir = 4, write = 100, read = 100 }
[[steps.phases]]
name = "create"
names = {}
[[steps.phases]]
name = "both"
together = [{ name = "r", names = { op = "read", items-per-dir = 4, write = 100, read = 100 } }, { name = "s", names = { op = "stat", items-per-dir = 4, write = 100, read = 100 } }]
"#;

fn settings(dir: &TestDir) -> Settings {
    std::fs::create_dir(dir.path().join("measured")).unwrap();
    Settings {
        dirs: vec![Root::plain(dir.path().join("measured"))],
        out: dir.path().join("out"),
        scale: "min".into(),
        environment: Environment { ram: 1 << 30, cpus: 2, ..Environment::default() },
        program: "/bin/false".into(),
        command: "stria bench run test".into(),
        version: "0".into(),
        progress: false,
        repeats: None,
        budget_seconds: None,
        hosts: None,
        launch: String::new(),
        samplers: Vec::new(),
        limits: None,
        stop: Arc::default(),
    }
}

fn parse(text: &str) -> Plan {
    toml::from_str(text).unwrap()
}

fn results(settings: &Settings) -> Results {
    assert_eq!(std::fs::read_dir(&settings.dirs[0].here).unwrap().count(), 0, "bench-R2");
    Results::read(&settings.out.join(RECORDS)).unwrap()
}

#[test]
fn each_phase_of_each_point_is_recorded() {
    let dir = TestDir::new("run-all");
    let settings = settings(&dir);
    let ran = run(&parse(PLAN), &settings, Inside).unwrap();
    let results = results(&settings);
    // Two points of two phases, twice each; create, both, and both's two parts, twice.
    assert_eq!((ran.records, results.records.len()), (16, 16));
    assert!(!ran.stopped && ran.failed == 0);
    let of = |step: &str, phase: &str| {
        results.records.iter().filter(|r| r.step == step && r.phase == phase).collect::<Vec<_>>()
    };
    let wrote = of("nn", "write");
    assert_eq!(
        wrote.iter().map(|r| (r.workers, r.repeat)).collect::<Vec<_>>(),
        [(1, 0), (1, 1), (2, 0), (2, 1)]
    );
    assert!(wrote.iter().all(|r| r.outcome.bytes == 1 << 20 && r.point["threads"] == r.workers));
    let read = of("nn", "read");
    assert!(read.iter().all(|r| r.outcome.checked.pages == 16 && r.cache != CacheState::Warm), "{read:?}");
    let both = of("names", "both");
    assert_eq!((both[0].workers, both[0].outcome.ops, both[0].outcome.per_worker.len()), (2, 8, 2));
    assert_eq!(of("names", "both.s")[0].outcome.ops, 4);
    assert_eq!(results.outputs[0].text, format!("in {}\n", settings.dirs[0].here.display()));
    let skipped: Vec<_> = results.skipped.iter().map(|s| (s.step.as_str(), s.failed)).collect();
    assert_eq!(skipped, [("routed", false), ("said", false)]);
    assert!(results.skipped[0].why.contains("routers") && results.skipped[1].why.contains("no-such-program"));
    assert!(results.end.unwrap().complete);
    // A result is not written over.
    assert!(run(&parse(PLAN), &settings, Inside).unwrap_err().to_string().contains("holds a result already"));
}

#[test]
fn points_are_repeated_until_they_are_narrow_or_the_budget_ends() {
    for (narrow, budget, want) in [("1000.0", None, 2), ("0.0", None, 4), ("0.0", Some(0), 0)] {
        let dir = TestDir::new("run-repeats");
        let settings = Settings { budget_seconds: budget, ..settings(&dir) };
        let plan = parse(&PLAN.replace("narrow = 1000.0", &format!("narrow = {narrow}")));
        run(&plan, &settings, Inside).unwrap();
        let results = results(&settings);
        let creates = results.records.iter().filter(|r| r.phase == "create").count();
        assert_eq!(creates, want, "{narrow} {budget:?}");
        assert_eq!(results.skipped.iter().filter(|s| s.why.contains("--budget")).count() > 0, want == 0);
    }
}

#[test]
fn a_step_that_fails_leaves_the_others() {
    let dir = TestDir::new("run-fails");
    let settings = settings(&dir);
    let long = "x".repeat(300);
    let plan = parse(&PLAN.replacen("op = \"write\" }", &format!("op = \"write\", name = \"{long}\" }}"), 1));
    let ran = run(&plan, &settings, Inside).unwrap();
    assert_eq!(ran.failed, 1);
    let results = results(&settings);
    let failed: Vec<_> = results.skipped.iter().filter(|s| s.failed).collect();
    assert!(failed[0].step == "nn" && failed[0].why.contains("too long"), "{failed:?}");
    assert!(results.records.iter().any(|r| r.step == "names"));
}

/// If the preparation of the machine between phases fails, the run fails and nothing is measured.
#[test]
fn what_must_come_before_each_phase_does() {
    let dir = TestDir::new("run-before");
    let settings = settings(&dir);
    let mut calls = 0;
    let mut before = || {
        calls += 1;
        ensure!(calls != 2, "not now");
        Ok(())
    };
    run_with(&parse(PLAN), &settings, Inside, &mut before).unwrap();
    let results = results(&settings);
    // The write of the first point was measured, its read was not, and the step ended there.
    let of_nn: Vec<_> = results.records.iter().filter(|r| r.step == "nn").map(|r| &r.phase).collect();
    assert_eq!(of_nn, ["write"]);
    assert!(results.skipped[0].failed && results.skipped[0].why.contains("not now"), "{:?}", results.skipped);
    // Then the tree, creates and both together, twice.
    assert_eq!(calls, 2 + 2 * 3);
}

#[test]
fn what_was_measured_before_a_stop_is_kept() {
    let dir = TestDir::new("run-stop");
    let settings = settings(&dir);
    let stop = settings.stop.clone();
    let out = settings.out.join(RECORDS);
    std::thread::scope(|scope| {
        let plan = parse(&PLAN.replace("narrow = 1000.0", "narrow = 0.0").replace("[2, 4]", "[2, 100000]"));
        let settings = &settings;
        let run = scope.spawn(move || run(&plan, settings, Inside).unwrap());
        while !run.is_finished() && !std::fs::read_to_string(&out).is_ok_and(|t| t.lines().count() > 3) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(run.join().unwrap().stopped);
    });
    let results = results(&settings);
    assert!(results.records.len() >= 2);
    let end = results.end.unwrap();
    assert!(!end.complete && end.why.contains("stopped by a signal"));
}

/// The programs that take part, by what they are called here; a step that needs one that is not there is skipped.
#[test]
fn a_program_s_version_is_in_header_and_records() {
    let dir = TestDir::new("run-version");
    let settings = settings(&dir);
    let step = r#"
[[steps]]
id = "fio"
title = "By fio"
needs = ["fio"]
data = { transfer = "64K", total = "64M", op = "write" }
[[steps.phases]]
name = "write"
engine = "fio"
data = {}
"#;
    let (head, _) = PLAN.split_once("[[steps]]").unwrap();
    run(&parse(&format!("{head}{step}")), &settings, Inside).unwrap();
    let results = results(&settings);
    let said = results.header.system.iter().find(|(name, _)| name == "programs of others");
    match crate::tools::found(Program::Fio) {
        Some(version) => {
            assert_eq!(said.unwrap().1, version);
            assert!(results.records.iter().all(|r| r.engine == version) && !results.records.is_empty());
        }
        None => assert!(said.is_none() && results.skipped[0].why.contains("fio is not there")),
    }
}

#[test]
fn records_tell_of_each_target() {
    let dir = TestDir::new("run-targets");
    let mut settings = settings(&dir);
    let device = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        path
    };
    settings.environment.targets = ["one", "two"].map(device).to_vec();
    settings.environment.target_bytes = 1 << 20;
    let step = r#"
[[steps]]
id = "drives"
title = "Drives"
data = { files = "given", transfer = "64K", total = "2M" }
[[steps.phases]]
name = "write"
workers = 4
data = { op = "write" }
"#;
    let (head, _) = PLAN.split_once("[[steps]]").unwrap();
    let head = head.replace("total = \"1M\"", "total = \"1M\", half = \"$total / 2\"");
    run(&parse(&format!("{head}{step}")), &settings, Inside).unwrap();
    let results = results(&settings);
    let told = &results.records[0].outcome.per_target;
    assert_eq!(told.len(), 2);
    // Variables as they were here, for tables divide by them.
    let values = &results.header.values;
    assert_eq!((values["devices"].as_u64(), values["half"].as_u64()), (Some(2), Some(512 << 10)));
    for (share, path) in told.iter().zip(&settings.environment.targets) {
        assert_eq!((share.target.as_str(), share.workers), (path.to_str().unwrap(), 2));
        assert!(share.bytes == 1 << 20 && share.ops == 16 && share.seconds > 0.0, "{share:?}");
    }
}

#[test]
fn what_has_no_room_is_skipped() {
    let dir = TestDir::new("run-room");
    let settings = settings(&dir);
    run(&parse(&PLAN.replace("total = \"1M\" }", "total = \"1000T\" }")), &settings, Inside).unwrap();
    let results = results(&settings);
    assert!(
        results.skipped[0].step == "nn" && results.skipped[0].why.contains("are free"),
        "{:?}",
        results.skipped
    );
}

#[test]
fn what_is_held_is_counted_in_the_transfers_of_who_reads() {
    let job = |op: &str, transfer_bytes: u64| -> Job {
        let text = format!(
            r#"{{"work":{{"data":{{"op":"{op}","order":"sequential","files":{{"own":{{"stem":"d"}}}},
            "transfer_bytes":{transfer_bytes},"block_bytes":1048576,"segments":1,"shift":0,"ops_max":null,"engine":"sync",
            "direct":false,"flush":"end","create":{},"version":1,"accept":[1],"read_back":0}}}},"workers":1,
            "limit":{{"seconds":null,"warmup_seconds":0.0,"pace":null}},"verify":false,"seed":1,"forget_pages":false}}"#,
            op == "write"
        );
        serde_json::from_str(&text).unwrap()
    };
    let share = WorkerShare { ops: 3, bytes: 3 << 18, seconds: 1.0, done: 3 };
    let outcome = Outcome { per_worker: vec![share], ..Outcome::default() };
    let mut holds = Holds::new();
    note_holds(&job("write", 1 << 18), (Program::Stria, 0), &outcome, &mut holds);
    assert_eq!(holds_of(&job("read", 1 << 18), (Program::Stria, 0), &holds), [3]);
    assert_eq!(holds_of(&job("read", 4096), (Program::Stria, 0), &holds), [192]);
    // Another number of workers finds files of one's own as they are.
    let fewer = Job { workers: 7, ..job("read", 1 << 18) };
    assert_eq!(holds_of(&fewer, (Program::Stria, 0), &holds), [3]);
    assert!(holds_of(&job("read", 4096), (Program::Fio, 0), &holds).is_empty());
    // Another file system has other files.
    assert!(holds_of(&job("read", 4096), (Program::Stria, 1), &holds).is_empty());
}

#[test]
fn what_would_leave_holes_or_go_elsewhere_is_refused() {
    let dir = TestDir::new("run-refused");
    let settings = settings(&dir);
    let table = [
        (
            "op = \"write\" }\n[[steps.phases]]\nname = \"write\"",
            "op = \"write\", order = \"random\" }\n[[steps.phases]]\nname = \"write\"\nseconds = 1",
            "holes",
        ),
        (
            "items-per-dir = 4, write = 100, read = 100 }\n",
            "items-per-dir = 4, write = 100, read = 100, name = \"../x\" }\n",
            "plain name",
        ),
        (
            "name = \"read\"\ncold = true\ndata = { op = \"read\" }",
            "name = \"read\"\npace = 5\ndata = { op = \"read\", depth = 4 }",
            "one operation at a time",
        ),
    ];
    for (from, to, why) in table {
        let text = PLAN.replacen(from, to, 1);
        assert!(text != PLAN, "{from}");
        let said = run(&parse(&text), &settings, Inside).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
    assert!(!settings.out.exists());
}

#[test]
fn a_phase_that_is_all_warm_up_has_no_rate() {
    let dir = TestDir::new("run-warm");
    let settings = settings(&dir);
    let text = PLAN.replacen("name = \"write\"\n", "name = \"write\"\nwarmup-seconds = 1000\n", 1);
    assert_eq!(run(&parse(&text), &settings, Inside).unwrap().failed, 1);
    let results = results(&settings);
    assert!(results.records.iter().all(|record| record.step != "nn"));
    let why = &results.skipped[0].why;
    assert!(why.contains("nn [threads=1] write") && why.contains("nothing was measured"), "{why}");
}

#[test]
fn what_has_no_memory_is_skipped_with_the_figure() {
    let dir = TestDir::new("run-memory");
    let mut settings = settings(&dir);
    settings.environment.ram = 512 << 10;
    run(&parse(PLAN), &settings, Inside).unwrap();
    let results = results(&settings);
    assert!(results.records.iter().all(|record| record.step != "nn"));
    let why = &results.skipped[0].why;
    assert!(
        why.contains("phase write: its workers would take") && why.contains("transfer (65536 bytes)"),
        "{why}"
    );
}

#[test]
fn what_is_done_against_caches_is_that_of_the_run() {
    let system = |text: &str, name: &str| {
        let dir = TestDir::new(name);
        let settings = settings(&dir);
        run(&parse(text), &settings, Inside).unwrap();
        let results = results(&settings);
        let said = results.header.system.iter().find(|(name, _)| name == "caches").unwrap().1.clone();
        (said, results.records.iter().any(|record| record.cache == CacheState::Dropped))
    };
    let (said, were_dropped) = system(PLAN, "run-cold");
    assert_eq!(said.starts_with("dropped"), were_dropped, "{said}");
    let (said, were_dropped) = system(&PLAN.replace("cold = true", ""), "run-warm-caches");
    assert!(said.starts_with("left as they were") && !were_dropped, "{said}");
}

/// The second repeat on a device does not take the first one's content for its own.
#[test]
fn repeats_on_given_files_have_versions_of_their_own() {
    let text = r#"{"op":"write","order":"sequential","files":{"given":{"paths":["/dev/a"]}},"transfer_bytes":4096,"block_bytes":4096,
        "segments":1,"shift":0,"ops_max":null,"engine":"sync","direct":false,"flush":"end","create":false,"version":2,"accept":[1,2],
        "read_back":0}"#;
    let given: Data = serde_json::from_str(text).unwrap();
    let own = Data { files: Files::Own { stem: "d".into() }, ..given.clone() };
    let inside = Data { files: Files::Given { paths: vec!["drive.0".into()] }, ..given.clone() };
    let renewed = |data: &Data, repeat| {
        let limit = crate::job::Limit::default();
        let work = Work::Data(data.clone());
        let mut job =
            Job { work, workers: 1, limit, verify: true, seed: 1, forget_pages: false, holds: Vec::new() };
        if stays(&job) {
            renew(&mut job, repeat);
        }
        let Work::Data(data) = job.work else { panic!() };
        (data.version, data.accept)
    };
    assert_eq!(renewed(&given, 0), (2, vec![1, 2]));
    assert_eq!(renewed(&given, 3), (3 << 32 | 2, vec![3 << 32 | 1, 3 << 32 | 2]));
    assert_eq!(renewed(&own, 3), (2, vec![1, 2]));
    assert_eq!(
        renewed(&inside, 3),
        (2, vec![1, 2]),
        "made anew for each repeat, by workers that know them by another name"
    );
}

/// Drives that are files of the measured directory, used in part after they were filled: what the fill wrote is met again, in each repeat.
#[test]
fn a_fill_is_known_in_every_repeat() {
    let dir = TestDir::new("run-fill");
    let mut settings = settings(&dir);
    settings.repeats = Some([2, 2]);
    let step = r#"
[[steps]]
id = "drives"
title = "Drives"
data = { files = "given", transfer = "4K", total = "2M" }
[[steps.phases]]
name = "fill"
unmeasured = true
workers = 2
data = { op = "write", transfer = "64K" }
[[steps.phases]]
name = "write"
workers = 2
data = { op = "write", overwrite = true, transfer = "64K", footprint = 0.5 }
[[steps.phases]]
name = "read"
workers = 2
data = { op = "read" }
"#;
    let (head, _) = PLAN.split_once("[[steps]]").unwrap();
    let head = head.replace("total = \"1M\"", "total = \"1M\", devices = 2, device_bytes = \"1M\"");
    run(&parse(&format!("{head}{step}")), &settings, Inside).unwrap();
    let results = results(&settings);
    assert!(results.skipped.is_empty(), "{:?}", results.skipped);
    let reads = results.records.iter().filter(|r| r.phase == "read");
    assert_eq!(reads.map(|r| r.outcome.checked.pages > 0).collect::<Vec<_>>(), [true, true]);
}
