//! The guard processes of mounts: what programs see of a mount whose process is stopped or dead (decision 0056).

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{UnmountFlags, unmount};
use testkit::{Role, Wiring};

use super::programs::script;
use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Two), ("guard::a_stopped_mount_shows_no_old_page", stopped)),
    (Needs::Only(Wiring::Two), ("guard::a_stopped_mount_without_pages_goes_on", stopped_without_pages)),
    (Needs::Only(Wiring::Tcp), ("guard::a_stopped_lone_mount_goes_on", stopped_alone)),
    (Needs::Only(Wiring::Two), ("guard::a_killed_mount_shows_no_old_page", killed)),
    (
        Needs::Only(Wiring::Two),
        ("guard::a_mount_killed_while_a_notice_waits_releases_its_programs", killed_in_notice),
    ),
    (Needs::Only(Wiring::Two), ("guard::servers_that_are_away_end_no_mount", servers_away)),
];

/// Longer than the term and what a session is given, with a margin.
const LONG: Duration = Duration::from_secs(12);
/// How long programs of a dead mount may wait.
const RELEASED_WITHIN: Duration = Duration::from_secs(10);

/// A program that has a file open and mapped.
struct Holder {
    child: Child,
    stdin: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(file: &Path, more: &[&str]) -> Result<Holder> {
        let mut command = Command::new("python3");
        let command = command.arg(script("holds.py")?).arg(file).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("python3")?;
        let stdin = child.stdin.take().context("stdin")?;
        let lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let mut holder = Holder { child, stdin, lines };
        ensure_eq(holder.line()?, "ready".to_owned(), "the holder")?;
        Ok(holder)
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("the holder has ended")??)
    }

    /// What the descriptor and the mapping give now.
    fn looks(mut self) -> Result<(String, String)> {
        writeln!(self.stdin)?;
        let seen = (self.line()?, self.line()?);
        self.child.wait()?;
        Ok(seen)
    }
}

/// A file of `A`s, and a program at the other mount that has it cached.
fn cached(b: &mut Bench) -> Result<(std::path::PathBuf, Holder)> {
    let here = b.dir("guarded")?.join("f");
    fs::write(&here, vec![b'A'; 300_000])?;
    let holder = Holder::start(&b.look(&here), &[])?;
    Ok((here, holder))
}

fn overwrite(file: &Path) -> Result<()> {
    Ok(File::options().write(true).open(file)?.write_all_at(&[b'B'; 4096], 0)?)
}

const ENDED: (&str, &str) = ("read ENOTCONN", "mapping signal 7");

/// [S-leases] What the kernel of a stopped mount has cached is gone when another mount's write returns. The process then ends.
fn stopped(b: &mut Bench) -> Result<()> {
    let (here, holder) = cached(b)?;
    b.cluster.freeze(Role::SecondMount)?;
    let began = Instant::now();
    let written = overwrite(&here);
    let waited = began.elapsed();
    let seen = holder.looks();
    b.cluster.thaw(Role::SecondMount)?;
    written?;
    ensure!(waited < LONG, "a write waited {waited:?} for a stopped mount");
    let (read, mapping) = seen?;
    ensure_eq((read.as_str(), mapping.as_str()), ENDED, "after another mount's write")?;
    // It leaves its mount point, says why, and can be started again.
    let log = b.cluster.dir.join("mount2.log");
    wait_until("the stopped process has ended", || Ok(b.cluster.has_ended(Role::SecondMount)?.is_some()))?;
    let said = fs::read_to_string(log)?;
    ensure!(said.contains("silent past its lease, so its guard ended it"), "it says not why: {said}");
    b.cluster.start_role(Role::SecondMount)?;
    b.cluster.wait_mounted()?;
    ensure_eq(fs::read(b.look(&here))?[0], b'B', "after a new mount")
}

/// [S-leases] A mount that is stopped, and has nothing cached which another may change, goes on.
fn stopped_without_pages(b: &mut Bench) -> Result<()> {
    let dir = b.dir("names")?;
    let here = dir.join("f");
    File::create(&here)?;
    fs::metadata(b.look(&here))?;
    b.cluster.freeze(Role::SecondMount)?;
    let changed = fs::set_permissions(&here, Permissions::from_mode(0o640));
    std::thread::sleep(LONG);
    b.cluster.thaw(Role::SecondMount)?;
    changed?;
    ensure_eq(fs::metadata(b.look(&here))?.permissions().mode() & 0o777, 0o640, "the mode")
}

/// A lone mount may be stopped as long as one likes: no other can change what it has.
fn stopped_alone(b: &mut Bench) -> Result<()> {
    let (_, holder) = cached(b)?;
    b.cluster.freeze(Role::Mount)?;
    std::thread::sleep(LONG);
    b.cluster.thaw(Role::Mount)?;
    let (read, mapping) = holder.looks()?;
    ensure_eq((read.as_str(), mapping.as_str()), ("read A", "mapping 65"), "after the stop")
}

/// [S-leases] The same for a mount whose process is killed: its programs get errors.
fn killed(b: &mut Bench) -> Result<()> {
    let (here, holder) = cached(b)?;
    b.cluster.kill(Role::SecondMount)?;
    overwrite(&here)?;
    let (read, mapping) = holder.looks()?;
    ensure_eq((read.as_str(), mapping.as_str()), ENDED, "after the kill")?;
    b.cluster.start_role(Role::SecondMount)?;
    b.cluster.wait_mounted()?;
    ensure_eq(fs::read(b.look(&here))?[0], b'B', "after a new mount")
}

/// Reads a byte far into a file through a mapping.
const READ_MAPPED: &str = "import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
mmap.mmap(fd, 8_000_000, prot=mmap.PROT_READ)[1500 * 4096]";

/// A thread of the mount process waits in the kernel for a page, which waits for that process. It is killed then.
fn killed_in_notice(b: &mut Bench) -> Result<()> {
    let here = b.dir("noticed")?.join("f");
    fs::write(&here, vec![b'A'; 8_000_000])?;
    let there = b.look(&here);
    let _holder = Holder::start(&there, &["rw"])?;
    let osts = [Role::Oss(0), Role::Oss(1)];
    osts.iter().try_for_each(|role| b.cluster.freeze(*role))?;
    let done = (|| {
        // By a mapping: reads of a file that the mount may write bypass pages.
        let mut reads = Command::new("python3");
        reads.args(["-c", READ_MAPPED]).arg(&there);
        let mut reads = reads.stderr(Stdio::null()).spawn()?;
        // The reader's page is asked for, and another call needs it dropped.
        std::thread::sleep(Duration::from_millis(500));
        let mut sets =
            Command::new("touch").args(["-c", "-d", "@1"]).arg(&there).stderr(Stdio::null()).spawn()?;
        let pid = b.cluster.pid(Role::SecondMount).context("the mount runs")?;
        let released = wait_until("a thread of the mount waits for a page", || waits(pid)).and_then(|()| {
            b.cluster.kill_without_wait(Role::SecondMount)?;
            let until = Instant::now() + RELEASED_WITHIN;
            while reads.try_wait()?.is_none() || sets.try_wait()?.is_none() {
                ensure!(Instant::now() < until, "programs of a killed mount hang");
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        });
        if released.is_err() {
            // So that nothing hangs for ever.
            let _ = unmount(b.look(&b.cluster.mount), UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
        reads.wait()?;
        sets.wait()?;
        released
    })();
    osts.iter().try_for_each(|role| b.cluster.thaw(*role))?;
    done
}

/// A thread of this process cannot be interrupted: it waits in the kernel.
fn waits(pid: u32) -> Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("stat")).unwrap_or_default();
        if stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" D")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// [S-dead-mount] A mount that lives and reaches no server is no silent one: its programs wait, and go on.
fn servers_away(b: &mut Bench) -> Result<()> {
    let (here, holder) = cached(b)?;
    let away = [Role::Mds, Role::Oss(0), Role::Oss(1)];
    away.iter().try_for_each(|role| b.cluster.freeze(*role))?;
    // A read waits for an OST meanwhile, so pages of that file stay as long.
    let there = b.look(&here);
    let reads = std::thread::spawn(move || {
        let mut byte = [0];
        File::open(there)?.read_exact_at(&mut byte, 290_000)?;
        Ok::<u8, std::io::Error>(byte[0])
    });
    // Past the term of 5 s, and within the 10 s after which a thawed MDT takes a silent session for dead.
    std::thread::sleep(Duration::from_secs(8));
    away.iter().try_for_each(|role| b.cluster.thaw(*role))?;
    match reads.join() {
        Ok(read) => ensure_eq(read?, b'A', "a read while servers were away")?,
        Err(_) => bail!("the reader panicked"),
    }
    let (read, mapping) = holder.looks()?;
    ensure_eq((read.as_str(), mapping.as_str()), ("read A", "mapping 65"), "after servers were away")?;
    overwrite(&here)?;
    ensure_eq(fs::read(b.look(&here))?[0], b'B', "the other mount's write")
}
