//! `stria down`: stops what `stria up` started, and with `--purge` deletes what it made.
//!
//! The process is asked, by the pid that holds the lock; it is never guessed from a file alone. A mount in use stays, and so
//! does everything behind it, unless `--force`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::cluster::{Cluster, Found};
use crate::exit::{Exit, Failure};
use crate::mounts;
use crate::rundir::{Holder, RunDir, State, Use};
use crate::stop::FORCED_STOP_MAX;

/// Longest wait for a polite stop: unmount, settle, checkpoint of every target on a slow disk.
const POLITE_STOP_MAX: Duration = Duration::from_secs(60);
/// A forced stop bounds itself; after this much more the process is killed.
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
}

impl Down {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let dir = super::absolute(&self.dir)?;
        // Who stands in the mount and says `down` is not in its own way.
        std::env::set_current_dir("/")?;
        let cluster = match (Cluster::find(&dir)?, dir.exists()) {
            (Found::Cluster(cluster), _) => Some(cluster),
            (Found::Empty, true) if self.purge => None,
            (Found::Empty, _) => Some(Cluster::existing(&dir)?),
        };
        let run = RunDir::of(&dir);
        match run.state()? {
            State::Held(holder) if holder.what == Use::Up => self.stop(&run, &holder, &dir)?,
            State::Held(holder) => {
                let why = format!("pid {} looks at it now", holder.pid);
                return Err(Failure::failed(dir.display(), why, "wait until it is done").into());
            }
            State::Free { leftover } => clear(&run, leftover, &dir)?,
        }
        if self.purge {
            purge(&dir, &run, cluster.as_ref())?;
        }
        Ok(Exit::Done)
    }

    fn stop(&self, run: &RunDir, holder: &Holder, dir: &Path) -> anyhow::Result<()> {
        let pid =
            Pid::from_raw(holder.pid as i32).ok_or_else(|| anyhow::anyhow!("holder.json names pid 0"))?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        // Looked at again with the process pinned: from here on the pid cannot have become another's.
        if !matches!(run.state()?, State::Held(h) if h == *holder) {
            outln!("{}: stopped by itself", dir.display());
            return Ok(());
        }
        if let (Some(mount), false) = (&holder.mount, self.force) {
            refuse_if_used(mount, holder.pid)?;
        }
        let _ = fs::remove_file(run.busy());
        let signal = if self.force { Signal::INT } else { Signal::HUP };
        rustix::process::pidfd_send_signal(&process, signal)?;
        self.wait(run, holder, &process)?;
        outln!("{}: stopped (pid {})", dir.display(), holder.pid);
        Ok(())
    }

    fn wait(&self, run: &RunDir, holder: &Holder, process: &impl std::os::fd::AsFd) -> anyhow::Result<()> {
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
                outln!("pid {} did not end within {limit:?}: killed", holder.pid);
                while !has_ended(process)? {
                    std::thread::sleep(LOOK_EACH);
                }
                return clear(run, Some(holder.clone()), run.root());
            }
            if begin.elapsed() > limit {
                let why = format!("pid {} still runs after {limit:?}", holder.pid);
                let next = format!("see {}, or use --force", run.log().display());
                return Err(Failure::failed("down", why, next).into());
            }
            std::thread::sleep(LOOK_EACH);
        }
        Ok(())
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

/// Nobody runs: takes away what a killed run left.
fn clear(run: &RunDir, leftover: Option<Holder>, dir: &Path) -> anyhow::Result<()> {
    match leftover {
        None => outln!("{}: not running", dir.display()),
        Some(holder) => {
            // Taking the lock clears the stale mount and files.
            drop(run.take(Use::Purge, None)?);
            outln!("{}: not running; cleared what pid {} left when it was killed", dir.display(), holder.pid);
        }
    }
    Ok(())
}

/// Deletes our files. The lock is held meanwhile, and the file that says that the directory is ours goes last.
fn purge(dir: &Path, run: &RunDir, cluster: Option<&Cluster>) -> anyhow::Result<()> {
    let lock = run.take(Use::Purge, None)?;
    mgs::Mgs::delete(&Cluster::mgs_dir(dir))?;
    for file in cluster.map(|c| c.files(dir)).unwrap_or_default() {
        remove(&file)?;
    }
    lock.purge()?;
    // Directories go only if nothing foreign is in them.
    let left: Vec<PathBuf> = [run.root(), dir]
        .iter()
        .filter(|d| fs::remove_dir(d).is_err() && d.exists())
        .map(|d| d.into())
        .collect();
    match left.as_slice() {
        [] => outln!("{}: purged", dir.display()),
        _ => outln!(
            "{}: purged; the directory stays, since it holds files that are not Stria's",
            dir.display()
        ),
    }
    Ok(())
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
