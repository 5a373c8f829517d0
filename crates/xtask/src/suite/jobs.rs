//! Jobs: what `stria jobstats` and `stria top` tell of programs at two mounts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::Wiring;

use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, set_stripe};

pub const TESTS: &[Test] = &[("jobs::a_program_is_started_beside_open_files", started_beside_open_files)];
pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Two), ("jobs::requests_count_for_the_job_that_made_them", counted))];

const PIECE: u64 = 1 << 20;

/// A program of a job of Slurm. A shell of that job changes to the directory, so that all its requests are of the job.
fn program(job: &str, words: &[&str], dir: &Path) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "cd \"$0\" && exec \"$@\""]).arg(dir).args(words);
    let out = command.env("SLURM_JOB_ID", job).output()?;
    ensure!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// [fuse-J1] `execve` closes files under a lock that a read of the new process's environment waits for.
fn started_beside_open_files(b: &mut Bench) -> Result<()> {
    use std::io::Write;
    let dir = b.dir("started")?;
    for n in 0..8 {
        let mut file = std::fs::File::create(b.turn(n, &dir.join(format!("f{n}"))))?;
        file.write_all(&[1; 200_000])?;
        let mut command = Command::new("sh");
        let program =
            command.args(["-c", "cat \"$0\" | wc -c", &dir.join(format!("f{n}")).display().to_string()]);
        let out = program.output()?;
        ensure_eq(String::from_utf8_lossy(&out.stdout).trim(), "200000", "bytes that the program read")?;
    }
    Ok(())
}

fn rows(b: &Bench, words: &[&str]) -> Result<Vec<Value>> {
    let mount = b.cluster.mount.display().to_string();
    let (code, text) = b.cluster.stria(&[words, &["-j", &mount]].concat())?;
    ensure!(code == 0, "{words:?}: exit {code}: {text}");
    let report: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    report["rows"].as_array().cloned().context("rows")
}

fn of<'a>(rows: &'a [Value], name: &str) -> Option<&'a Value> {
    rows.iter().find(|row| row["name"] == name)
}

/// Two jobs at two mounts: bytes, calls and users are those of each. A restart of the MDT loses counts, and no names.
fn counted(b: &mut Bench) -> Result<()> {
    let dir = b.dir("jobs")?;
    set_stripe(b, &["-c", "2", "--inline", "0"], &dir)?;
    let there = b.look(&dir);
    let write = ["dd", "if=/dev/zero", "of=big", "bs=1M", "count=20", "conv=fsync", "oflag=direct"];
    program("4711", &write, &dir)?;
    program("4712", &["dd", "if=big", "of=/dev/null", "bs=1M", "iflag=direct"], &there)?;
    program("4712", &["sh", "-c", "for n in $(seq 30); do echo $n > small$n; done; rm small7"], &there)?;
    // 1. Each has its own. Names that are sent later have been counted by the time that the other mount sees them.
    ensure!(!dir.join("small7").exists() && dir.join("small30").exists());
    let jobs = rows(b, &["jobstats", "-n", "0"])?;
    let (writer, reader) = (of(&jobs, "4711").context("4711")?, of(&jobs, "4712").context("4712")?);
    ensure_eq(
        (&writer["bytes_written"], &writer["bytes_read"]),
        (&(20 * PIECE).into(), &0.into()),
        "writer",
    )?;
    ensure_eq(&reader["bytes_read"], &(20 * PIECE).into(), "bytes that the other job read")?;
    ensure!(reader["calls"]["create"].as_u64() >= Some(30), "{reader}");
    ensure_eq(&reader["calls"]["remove"], &1.into(), "names that were removed")?;
    // 2. The same by other keys.
    let clients = rows(b, &["jobstats", "--by", "client"])?;
    ensure!(clients.iter().filter(|row| row["bytes_read"] == 20 * PIECE).count() == 1, "{clients:?}");
    let targets = rows(b, &["jobstats", "--by", "target", "-n", "0"])?;
    let sum = |of: &str| targets.iter().filter_map(|row| row[of].as_u64()).sum::<u64>();
    ensure!(sum("bytes_written") >= 20 * PIECE && sum("bytes_read") >= 20 * PIECE, "{targets:?}");
    // 3. Rates: what is done within the interval.
    let mount = b.cluster.mount.display().to_string();
    let top = Command::new(b.cluster.bin())
        .args(["top", "--once", "--interval", "1", "-j", &mount])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut top = Some(top);
    while top.as_mut().map(|top| top.try_wait()).transpose()?.flatten().is_none() {
        program("4713", &["dd", "if=big", "of=/dev/null", "bs=1M", "iflag=direct"], &dir)?;
    }
    let out = top.take().context("top")?.wait_with_output()?;
    let report: Value = serde_json::from_slice(&out.stdout)?;
    let now = report["rows"].as_array().context("rows")?;
    ensure!(of(now, "4713").is_some_and(|row| row["bytes_read"].as_u64() >= Some(PIECE)), "{report}");
    ensure!(of(now, "4711").is_none(), "it is idle: {report}");
    // 4. A restarted MDT hears the names again.
    b.cluster.kill(testkit::Role::Mds)?;
    b.cluster.start_role(testkit::Role::Mds)?;
    program("4712", &["stat", "big"], &there)?;
    wait_until("the MDT knows the name", || {
        program("4712", &["touch", "again"], &there)?;
        let targets = rows(b, &["jobstats", "-n", "0"])?;
        Ok(of(&targets, "4712").is_some_and(|row| row["calls"]["setattr"].as_u64() > Some(0)))
    })
}
