//! The guard of a mount: a small process that ends the mount's connection when the mount process cannot (decision 0056).
//!
//! The kernel serves programs from its pages without asking the mount process. If that is stopped, pages outlive their leases; if it is killed
//! while one of its threads waits for a page, its programs wait for ever. The guard then ends the connection and drops the pages, so that
//! these programs get errors.
//!
//! The two share a *sheet*, a file in memory, so neither waits for the other. The mount process writes until when the kernel may use pages,
//! and of which files. The guard reads it, and looks whether the process lives.
//!
//! cli-MG1: the guard ends the connection of a process that has died, and of one that has let its time pass. It ends no other.
//! cli-MG2: a guard that was itself held up (the host slept) gives the process a moment first.
//! cli-MG3: the guard ends with its mount process, and signals for the process group do not end it before.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use client::{Fs, boot_ms};
use fuse::{Mounted, Notifier, Switch};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::exit::Exit;

/// Longest time between two looks. A process that dies is seen at once, but for one with a thread that cannot end.
const LOOK_EACH_MS: u64 = 500;
/// A look that comes so much too late says that this process was held up.
const HELD_UP_MS: u64 = 1_000;
/// cli-MG2: as long as a mount process takes to renew its lease, or to drop its pages.
const PATIENCE_MS: u64 = 3_000;

/// Words of 64 bits: the time, the state, then the files.
struct Sheet(File);

const UNTIL: u64 = 0;
const STATE: u64 = 1;
const FILES: u64 = 2;
/// Values of `STATE`; at first it is 0.
const LEFT: u64 = 1;
const SILENCED: u64 = 2;

impl Sheet {
    fn new() -> io::Result<Sheet> {
        let sheet = Sheet(memfd_create("stria-guard", MemfdFlags::CLOEXEC)?.into());
        sheet.0.set_len(FILES * 8)?;
        Ok(sheet)
    }

    /// The file has its size from the beginning, so only a lack of memory can fail. Then the older word stays.
    fn set(&self, at: u64, word: u64) {
        if let Err(error) = self.0.write_all_at(&word.to_le_bytes(), at * 8) {
            tracing::debug!(%error, "the sheet of the guard");
        }
    }

    fn get(&self, at: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, at * 8)?;
        Ok(u64::from_le_bytes(word))
    }

    fn files(&self) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; (self.0.metadata()?.len() - FILES * 8) as usize];
        self.0.read_exact_at(&mut bytes, FILES * 8)?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        Ok(words.filter(|fid| *fid != 0).collect())
    }
}

/// The client writes on the sheet.
struct Tells(Arc<Sheet>);

impl client::Guard for Tells {
    fn until(&self, boot_ms: u64) {
        self.0.set(UNTIL, boot_ms);
    }
    fn file(&self, place: u32, fid: u64) {
        self.0.set(FILES + place as u64, fid);
    }
}

/// The mount process's side.
pub struct Guard {
    sheet: Arc<Sheet>,
}

impl Guard {
    /// Starts the guard process of a mount. An error leaves the mount without one.
    pub fn start(mounted: &Mounted, fs: &Fs) -> anyhow::Result<Guard> {
        let device = mounted.take_device().context("the mount has ended")?;
        let connection = mounted.connection().context("the mount table has no number of the device")?;
        // The guard opens it itself, and could only fail later.
        Switch::of(connection).context("ending a connection")?;
        let sheet = Arc::new(Sheet::new()?);
        // Also if the file of this program was replaced.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("stria").args(["guard", "--pid", &std::process::id().to_string()]);
        command.args(["--connection", &connection.to_string(), "--point"]).arg(mounted.mountpoint());
        command.current_dir("/").process_group(0);
        command.stdin(sheet.0.as_fd().try_clone_to_owned()?).stdout(Stdio::from(device));
        let mut child = command.spawn().context("starting it")?;
        // The command's copies of the descriptors.
        drop(command);
        let seen = sheet.clone();
        std::thread::Builder::new().name("guard-wait".into()).spawn(move || {
            let ended = child.wait();
            if seen.get(STATE).is_ok_and(|state| state == 0) {
                let how = ended.map_or_else(|e| e.to_string(), |status| status.to_string());
                tracing::warn!("the guard process of this mount has ended ({how}); mount again to have one");
            }
        })?;
        fs.guard_by(Box::new(Tells(sheet.clone())));
        Ok(Guard { sheet })
    }

    /// The mount is gone: the guard may end. True: the guard itself has ended the mount.
    pub fn leave(&self) -> bool {
        let was_silenced = self.sheet.get(STATE).is_ok_and(|state| state == SILENCED);
        if !was_silenced {
            self.sheet.set(STATE, LEFT);
        }
        was_silenced
    }
}

/// A mount that is given up has no use for its guard.
impl Drop for Guard {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The mount process as its guard sees it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now_ms: u64,
    has_left: bool,
    is_dead: bool,
    until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Wait(u64),
    Leave,
    End(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Died,
    Silent,
}

/// The rule of the guard.
struct Watch {
    last_ms: u64,
    patient_until_ms: u64,
}

impl Watch {
    fn new(now_ms: u64) -> Watch {
        Watch { last_ms: now_ms, patient_until_ms: 0 }
    }

    fn look(&mut self, seen: Seen) -> Act {
        let now = seen.now_ms;
        // cli-MG2.
        if now.saturating_sub(self.last_ms) > LOOK_EACH_MS + HELD_UP_MS {
            self.patient_until_ms = now + PATIENCE_MS;
        }
        self.last_ms = now;
        let end = seen.until_ms.max(self.patient_until_ms);
        match seen {
            Seen { has_left: true, .. } => Act::Leave,
            Seen { is_dead: true, .. } => Act::End(Why::Died),
            Seen { until_ms: 0, .. } => Act::Wait(LOOK_EACH_MS),
            _ if now >= end => Act::End(Why::Silent),
            _ => Act::Wait((end - now).min(LOOK_EACH_MS)),
        }
    }
}

/// The process of the mount, also after its number was given to another one.
struct Process {
    pidfd: OwnedFd,
    proc: OwnedFd,
    is_lost: bool,
}

impl Process {
    fn of(pid: Pid) -> io::Result<Process> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{}", pid.as_raw_nonzero());
        let proc = rustix::fs::open(path, flags, Mode::empty())?;
        // It is the parent of this process, so it lived when both were opened.
        Ok(Process { pidfd, proc, is_lost: getppid() != Some(pid) })
    }

    /// Waits for its death, `ms` at most.
    fn is_dead_within(&self, ms: u64) -> io::Result<bool> {
        let time = Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 };
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&time)) {
            Err(rustix::io::Errno::INTR) | Ok(0) => {}
            polled => return Ok(polled? > 0),
        }
        // A thread that hangs in the kernel keeps the rest of a killed process. Its main thread is a zombie.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = Vec::new();
        let stat = rustix::fs::openat(&self.proc, "stat", flags, Mode::empty());
        Ok(match stat.map(|stat| File::from(stat).read_to_end(&mut text).is_ok()) {
            Ok(true) => is_zombie(&text),
            Ok(false) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::NOENT) => true,
            // Without descriptors or memory nothing is known.
            Err(_) => false,
        })
    }
}

/// By `/proc/PID/stat`: the state stands behind the name, which may have parentheses.
fn is_zombie(stat: &[u8]) -> bool {
    let end = stat.iter().rposition(|byte| *byte == b')');
    end.and_then(|end| stat.get(end + 2)).is_some_and(|state| matches!(state, b'Z' | b'X'))
}

/// The guard process: stdin is the sheet, stdout the device of the connection.
pub fn watch(pid: u32, connection: u32, point: &Path) -> anyhow::Result<Exit> {
    // cli-MG3.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let sheet = Sheet(io::stdin().as_fd().try_clone_to_owned()?.into());
    let notifier = Notifier::of_device(io::stdout().as_fd().try_clone_to_owned()?);
    let switch = Switch::of(connection).context("ending a connection")?;
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("the number of a process")?;
    let process = match Process::of(pid) {
        Ok(process) => Some(process).filter(|process| !process.is_lost),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => None,
        Err(e) => return Err(e).context("the mount process"),
    };
    let (mut watch, mut pause) = (Watch::new(boot_ms()), 0);
    let why = loop {
        let is_dead = process.as_ref().map_or(Ok(true), |process| process.is_dead_within(pause))?;
        let (has_left, until_ms) = (sheet.get(STATE)? == LEFT, sheet.get(UNTIL)?);
        match watch.look(Seen { now_ms: boot_ms(), has_left, is_dead, until_ms }) {
            Act::Wait(ms) => pause = ms,
            Act::Leave => return Ok(Exit::Done),
            Act::End(why) => break why,
        }
    };
    if why == Why::Silent {
        sheet.set(STATE, SILENCED);
    }
    end(&switch, &notifier, &sheet.files()?)?;
    let mount = point.display();
    match why {
        Why::Died => {
            tracing::warn!(%mount, "the mount process has died: its guard ended the mount; mount again")
        }
        Why::Silent => tracing::warn!(
            %mount, "the mount process was silent past its lease: its guard ended the mount; mount again"
        ),
    }
    Ok(Exit::Done)
}

/// First the connection: then no page waits for an answer, and none comes back.
fn end(switch: &Switch, notifier: &Notifier, files: &[u64]) -> anyhow::Result<()> {
    switch.end().context("ending the connection of a mount")?;
    for fid in files {
        if let Err(error) = notifier.inval_inode(fuse::INodeNo(*fid), 0, 0) {
            tracing::warn!(fid, %error, "cached pages of a mount that has ended stay");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use client::Guard as _;

    use super::*;

    fn seen(now_ms: u64, until_ms: u64) -> Seen {
        Seen { now_ms, has_left: false, is_dead: false, until_ms }
    }

    #[test]
    fn mg1_a_process_that_lets_its_time_pass_is_ended_and_no_earlier() {
        let mut watch = Watch::new(1_000);
        assert_eq!(watch.look(seen(1_000, 0)), Act::Wait(LOOK_EACH_MS), "no time was named");
        assert_eq!(watch.look(seen(1_500, 6_000)), Act::Wait(LOOK_EACH_MS));
        for now in (2_000..6_000).step_by(500) {
            assert_eq!(watch.look(seen(now, 7_000)), Act::Wait(LOOK_EACH_MS), "it was renewed");
        }
        assert_eq!(watch.look(seen(6_800, 7_000)), Act::Wait(200));
        assert_eq!(watch.look(seen(7_000, 7_000)), Act::End(Why::Silent));
    }

    #[test]
    fn mg1_a_process_that_died_is_ended_unless_it_had_left() {
        let mut watch = Watch::new(0);
        let dead = Seen { is_dead: true, ..seen(10, 0) };
        assert_eq!(watch.look(dead), Act::End(Why::Died));
        assert_eq!(watch.look(Seen { has_left: true, ..dead }), Act::Leave);
        assert_eq!(watch.look(Seen { has_left: true, ..seen(20, 10) }), Act::Leave);
    }

    #[test]
    fn mg2_after_a_sleep_of_the_host_the_process_has_a_moment() {
        let mut watch = Watch::new(0);
        assert_eq!(watch.look(seen(100_000, 5_000)), Act::Wait(LOOK_EACH_MS));
        assert_eq!(watch.look(seen(100_500, 105_000)), Act::Wait(LOOK_EACH_MS), "it renewed its lease");
        let mut watch = Watch::new(0);
        watch.look(seen(100_000, 5_000));
        for now in (100_500..100_000 + PATIENCE_MS).step_by(500) {
            assert!(matches!(watch.look(seen(now, 5_000)), Act::Wait(_)));
        }
        assert_eq!(watch.look(seen(100_000 + PATIENCE_MS, 5_000)), Act::End(Why::Silent));
    }

    #[test]
    fn the_sheet_has_what_was_written() {
        let sheet = Arc::new(Sheet::new().unwrap());
        let tells = Tells(sheet.clone());
        assert_eq!(
            (sheet.get(UNTIL).unwrap(), sheet.get(STATE).unwrap(), sheet.files().unwrap()),
            (0, 0, vec![])
        );
        tells.until(77);
        tells.file(0, 5);
        tells.file(9, 6);
        tells.file(0, 0);
        assert_eq!((sheet.get(UNTIL).unwrap(), sheet.files().unwrap()), (77, vec![6]));
        tells.file(client::GUARDED_MAX - 1, u64::MAX);
        assert_eq!(sheet.files().unwrap(), [6, u64::MAX]);
        let guard = Guard { sheet: sheet.clone() };
        assert!(!guard.leave());
        assert_eq!(sheet.get(STATE).unwrap(), LEFT);
        sheet.set(STATE, SILENCED);
        assert!(guard.leave());
        drop(guard);
        assert_eq!(sheet.get(STATE).unwrap(), SILENCED, "the mount process reads it later");
    }

    #[test]
    fn a_main_thread_that_is_a_zombie_is_seen() {
        assert!(is_zombie(b"12 (a) b) Z 1 12"));
        assert!(is_zombie(b"12 (stria) X 1"));
        assert!(!is_zombie(b"12 (Z) S 1") && !is_zombie(b"12 (stria") && !is_zombie(b""));
    }
}
