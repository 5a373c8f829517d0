//! `stria down`: stops a `stria up`, and with `--purge` deletes its files.
//!
//! The command signals the process that holds the lock; it never relies on a file alone. A mount in use stays, and its servers, too, unless
//! `--force` is given.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::Serialize;

use crate::cluster::{Cluster, Found};
use crate::exit::{Exit, Failure};
use crate::mounts;
use crate::rundir::{Holder, RunDir, State, Use};
use crate::stop::FORCED_STOP_MAX;

/// Longest wait for a polite stop: unmount, settle, checkpoint of every target on a slow disk.
const POLITE_STOP_MAX: Duration = Duration::from_secs(60);
/// A forced stop bounds itself; after this much more time the process is killed.
const KILL_AFTER: Duration = FORCED_STOP_MAX.saturating_add(Duration::from_secs(2));
/// Time between two looks.
const LOOK_EACH: Duration = Duration::from_millis(20);

/// Stop the cluster in a directory: unmount, stop its servers, wait until they are gone.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria down --dir /tmp/s\nExample: stria down --dir /tmp/s --purge   (deletes the file system)"
)]
pub struct Down {
    /// The directory that `stria up` was given.
    #[arg(long)]
    dir: PathBuf,
    /// Delete the file system: every file that `stria up` made in the directory, and nothing else.
    #[arg(long)]
    purge: bool,
    /// Unmount even if the mount is in use; kill the process if it does not end.
    #[arg(long)]
    force: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// The result.
#[derive(Debug, Serialize)]
struct Done {
    dir: String,
    /// The process that served the directory, and has ended or was killed earlier.
    pid: Option<u32>,
    stopped: Stopped,
    /// The file system was deleted.
    purged: bool,
    /// Purged, but the directory stays, since it holds files that are not Stria's.
    foreign_files: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Stopped {
    Now,
    /// It had to be killed.
    Killed,
    /// It ended by itself between two looks.
    ByItself,
    NotRunning,
    /// It was killed earlier, and its leftovers are cleared.
    WasKilled,
}

impl Down {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let dir = super::absolute(&self.dir)?;
        // If the working directory is in the mount, this process would keep it in use.
        std::env::set_current_dir("/")?;
        let cluster = match (Cluster::find(&dir)?, dir.exists()) {
            (Found::Cluster(cluster), _) => Some(cluster),
            (Found::Empty, true) if self.purge => None,
            (Found::Empty, _) => Some(Cluster::existing(&dir)?),
        };
        let run = RunDir::of(&dir);
        let mount;
        let (stopped, pid) = match run.state()? {
            State::Held(holder) if holder.what == Use::Up => {
                mount = holder.mount.clone();
                (self.stop(&run, &holder)?, Some(holder.pid))
            }
            State::Held(holder) => {
                let why = format!("pid {} looks at it now", holder.pid);
                return Err(Failure::failed(dir.display(), why, "wait until it is done").into());
            }
            State::Free { leftover } => {
                mount = leftover.as_ref().and_then(|holder| holder.mount.clone());
                clear(&run, leftover)?
            }
        };
        let mut done = Done {
            dir: dir.to_string_lossy().into_owned(),
            pid,
            stopped,
            purged: false,
            foreign_files: false,
        };
        if !self.json {
            outln!("{}", done.text());
        }
        if self.purge {
            done.foreign_files = !purge(&dir, &run, cluster.as_ref(), mount.as_deref())?;
            done.purged = true;
        }
        match (self.json, done.foreign_files) {
            (true, _) => outln!("{}", serde_json::to_string_pretty(&done)?),
            (false, _) if !done.purged => {}
            (false, false) => outln!("{}: purged", done.dir),
            (false, true) => {
                outln!("{}: purged; the directory stays, since it holds files that are not Stria's", done.dir)
            }
        }
        Ok(Exit::Done)
    }

    fn stop(&self, run: &RunDir, holder: &Holder) -> anyhow::Result<Stopped> {
        let pid =
            Pid::from_raw(holder.pid as i32).ok_or_else(|| anyhow::anyhow!("holder.json names pid 0"))?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        // Checked again with the process pinned by its pidfd: from here on the pid cannot belong to another one.
        if !matches!(run.state()?, State::Held(h) if h == *holder) {
            return Ok(Stopped::ByItself);
        }
        if let (Some(mount), false) = (&holder.mount, self.force) {
            refuse_if_used(mount, holder.pid)?;
        }
        let _ = fs::remove_file(run.busy());
        let signal = if self.force { Signal::INT } else { Signal::HUP };
        rustix::process::pidfd_send_signal(&process, signal)?;
        self.wait(run, holder, &process)
    }

    fn wait(
        &self,
        run: &RunDir,
        holder: &Holder,
        process: &impl std::os::fd::AsFd,
    ) -> anyhow::Result<Stopped> {
        let begin = Instant::now();
        let limit = if self.force { KILL_AFTER } else { POLITE_STOP_MAX };
        while !has_ended(process)? {
            if let (Ok(why), false) = (fs::read_to_string(run.busy()), self.force) {
                let mount = holder.mount.as_deref().unwrap_or(Path::new("the mount"));
                refuse_if_used(mount, holder.pid)?;
                let next = "find what uses it as root, or use --force; everything still runs";
                return Err(Failure::failed("down", why.trim(), next).into());
            }
            if begin.elapsed() > limit && self.force {
                rustix::process::pidfd_send_signal(process, Signal::KILL)?;
                while !has_ended(process)? {
                    std::thread::sleep(LOOK_EACH);
                }
                clear(run, Some(holder.clone()))?;
                return Ok(Stopped::Killed);
            }
            if begin.elapsed() > limit {
                let why = format!("pid {} still runs after {limit:?}", holder.pid);
                let next = format!("see {}, or use --force", run.log().display());
                return Err(Failure::failed("down", why, next).into());
            }
            std::thread::sleep(LOOK_EACH);
        }
        Ok(Stopped::Now)
    }
}

impl Done {
    /// The line about the stop; the purge comes later.
    fn text(&self) -> String {
        let (dir, pid) = (&self.dir, self.pid.unwrap_or_default());
        match self.stopped {
            Stopped::Now => format!("{dir}: stopped (pid {pid})"),
            Stopped::Killed => format!("{dir}: pid {pid} did not end within {KILL_AFTER:?}: killed"),
            Stopped::ByItself => format!("{dir}: stopped by itself"),
            Stopped::NotRunning => format!("{dir}: not running"),
            Stopped::WasKilled => {
                format!("{dir}: not running; cleared what pid {pid} left when it was killed")
            }
        }
    }
}

/// A pidfd is readable once its process has ended.
fn has_ended(process: &impl std::os::fd::AsFd) -> anyhow::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

fn refuse_if_used(mount: &Path, server: u32) -> Result<(), Failure> {
    let users = mounts::users(mount, server);
    if users.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = users.iter().map(|u| u.to_string()).collect();
    let why = format!("it is in use by {}", list.join(", "));
    Err(Failure::failed(mount.display(), why, "end these, or use --force; everything still runs"))
}

/// No process runs: removes the leftovers of a killed one.
fn clear(run: &RunDir, leftover: Option<Holder>) -> anyhow::Result<(Stopped, Option<u32>)> {
    // A stopped file system must not be mounted again by the next `up`, even if a check has cleared the rest since the crash.
    if leftover.is_some() || run.remembered().is_some() {
        run.take(Use::Purge, None)?.forget()?;
    }
    Ok(leftover.map_or((Stopped::NotRunning, None), |holder| (Stopped::WasKilled, Some(holder.pid))))
}

/// Deletes Stria's files under the lock; the file that marks the directory as Stria's goes last. False if the directory stays, since it
/// holds foreign files.
fn purge(dir: &Path, run: &RunDir, cluster: Option<&Cluster>, mount: Option<&Path>) -> anyhow::Result<bool> {
    let lock = run.take(Use::Purge, None)?;
    mgs::Mgs::delete(&Cluster::mgs_dir(dir))?;
    for file in cluster.map(|c| c.files(dir)).unwrap_or_default() {
        remove(&file)?;
    }
    lock.purge()?;
    // A mount point within the directory, with its parents, goes too if it is empty.
    let within =
        mount.into_iter().flat_map(Path::ancestors).take_while(|at| *at != dir && at.starts_with(dir));
    for at in within {
        // A directory that is not empty stays, and so do its parents.
        let _ = fs::remove_dir(at);
    }
    // Directories go only if they hold no foreign files.
    Ok([run.root(), dir].iter().all(|d| fs::remove_dir(d).is_ok() || !d.exists()))
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
