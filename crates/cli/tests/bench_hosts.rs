//! `stria bench` with workers on hosts, as it is called: two hosts that are commands on this machine.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory for one test, gone when it is dropped.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> TestDir {
        let path = std::env::temp_dir().join(format!("stria-bench-hosts-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("measured")).unwrap();
        TestDir(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A plan of one write. `limit` are its words of time.
fn plan(limit: &str) -> String {
    format!(
        r#"name = "short"
title = "Short"
about = "Short."
[scales.min]
repeats = [1, 1]
budget-seconds = 600
[[steps]]
id = "s"
title = "S"
sweep = {{ threads = ["2 * $hosts"] }}
ppn = 2
data = {{ transfer = "64K", block = "128K" }}
[[steps.phases]]
name = "write"
{limit}
data = {{ op = "write" }}
"#
    )
}

fn command(dir: &TestDir, plan: &str, launch: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stria"));
    command.args(["bench", "run", plan, "--scale", "min", "--quiet", "--hosts", "h1,h2", "--launch", launch]);
    command.arg("--dir").arg(dir.0.join("measured")).arg("--out").arg(dir.0.join("out"));
    command
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().count() == 0
}

#[test]
fn two_hosts_measure_together_and_are_named_in_the_record() {
    let dir = TestDir::new("two");
    let plan = dir.write("plan.toml", &plan(""));
    let output = command(&dir, &plan, "env STRIA_TEST_HOST={host}").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("workers on: h1, h2"), "{}", said(&output));
    let records = std::fs::read_to_string(dir.0.join("out/records.jsonl")).unwrap();
    let record: serde_json::Value =
        serde_json::from_str(records.lines().find(|line| line.contains("\"line\":\"record\"")).unwrap())
            .unwrap();
    let hosts = record["per_host"].as_array().unwrap();
    let of = |n: usize| (hosts[n]["host"].as_str().unwrap(), hosts[n]["workers"].as_u64().unwrap());
    assert_eq!((of(0), of(1), record["workers"].as_u64()), (("h1", 2), ("h2", 2), Some(4)));
    assert!(is_empty(&dir.0.join("measured")));
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_its_last_words() {
    let dir = TestDir::new("unreachable");
    let plan = dir.write("plan.toml", &plan(""));
    let script = "[ $0 = h1 ] && exec \"$@\"; echo no route to $0 >&2; exit 255";
    let launch = format!("sh -c '{script}' {{host}}");
    let output = command(&dir, &plan, &launch).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let want = "it ended before it was there (exit status: 255); it last said: no route to h2";
    assert!(said(&output).contains("host h2 (sh -c") && said(&output).contains(want), "{}", said(&output));
    let other = TestDir::new("no-command");
    let output = command(&other, &plan, "/no/such/command {host}").output().unwrap();
    assert!(said(&output).contains("host h1: /no/such/command h1"), "{}", said(&output));
    assert!(is_empty(&other.0.join("measured")));
}

/// The process of a host: the only one with this word in its environment that has this program's host mode as its command.
fn pid_of(host: &str) -> Option<u32> {
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let has = |text: &[u8], word: &str| text.split(|byte| *byte == 0).any(|part| part == word.as_bytes());
        (has(&environment, &format!("STRIA_TEST_HOST={host}")) && has(&command, "host")).then_some(pid)
    })
}

/// Waits until something is so, which takes as long as processes take to start.
fn wait_for<T>(child: &mut Child, mut what: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(child.try_wait().unwrap().is_none(), "the run has ended");
        assert!(begun.elapsed() < Duration::from_secs(60), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_host_that_is_killed_ends_the_run_and_the_other_hosts_workers() {
    let dir = TestDir::new("killed");
    // A write an hour: only the failure ends it.
    let plan = dir.write("plan.toml", &plan("seconds = 7200\npace = 0.0003"));
    let key = format!("k{}", std::process::id());
    let launch = format!("env STRIA_TEST_HOST={key}{{host}}");
    let mut child =
        command(&dir, &plan, &launch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let made = || {
        let run = std::fs::read_dir(dir.0.join("measured")).unwrap().flatten().next()?.path();
        let point = std::fs::read_dir(run).ok()?.flatten().next()?.path();
        (std::fs::read_dir(point).ok()?.count() == 4).then_some(())
    };
    wait_for(&mut child, made);
    let pid = pid_of(&format!("{key}h2")).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("host h2 (env STRIA_TEST_HOST="), "{}", said(&output));
    assert!(said(&output).contains("it ended (signal: 9 (SIGKILL)); it said nothing"), "{}", said(&output));
    assert_eq!(pid_of(&format!("{key}h1")), None, "the other host has ended");
    assert!(is_empty(&dir.0.join("measured")));
}
