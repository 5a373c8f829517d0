//! Mounts, unmounts, and removes mounts that a killed process left.
//!
//! Root mounts by the system call, with the device descriptor that the session then serves; no helper is needed. Other users mount through
//! `fusermount3`.
//! fuse-M1. Only the mount that was made here is unmounted. The mount table must show its device number, and, since a later mount may reuse
//! that number, its unique mount id.
//! fuse-M2. Nothing here sends a request to the mounted file system, so a mount with dead servers can still be unmounted.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fusedev::{Filesystem, Session};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::door::Door;
use crate::gate::{Class, Gate};
use crate::mountinfo;
use crate::options::{MAX_REQUEST_BYTES, MountOptions, pages_of_vectors};
use crate::remount::{Follower, InForce};
use crate::served::Served;

/// How often `watch` checks whether the serving threads hang (see `gate`), with and without requests. The latter also bounds how long
/// parked threads take to notice that the mount is gone.
const TICK_BUSY: Duration = Duration::from_millis(5);
const TICK_IDLE: Duration = Duration::from_millis(50);
/// The kernel releases a mount before the unmount call returns, and `watch` sees that after TICK_IDLE. A mount that still exists after this
/// time is in use elsewhere.
const LETS_GO_WITHIN: Duration = Duration::from_secs(3);
const LETS_GO_LOOK_EACH: Duration = Duration::from_millis(5);

/// Why a mount or unmount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is missing, is no directory, or cannot be examined.
    #[error("mount point {}: {source}; it must be an existing directory", path.display())]
    Point { path: PathBuf, source: io::Error },
    #[error("mounting at {}: {source}", path.display())]
    Refused { path: PathBuf, source: fusedev::mount::Error },
    /// The kernel made the mount, but it could not be served; it was removed again.
    #[error("starting to serve {}: {source}", path.display())]
    Start { path: PathBuf, source: io::Error },
    /// Open files or working directories keep the mount in use.
    #[error("{} is in use; close what uses it (`fuser -m`), or unmount lazily", path.display())]
    Busy { path: PathBuf },
    /// The mount is gone from its mount point, but the kernel still has it.
    #[error("it is unmounted at {}, but in use elsewhere{}; unmount it there", path.display(), Elsewhere(points))]
    Elsewhere { path: PathBuf, points: Vec<PathBuf> },
    #[error("unmounting {}: {source}", path.display())]
    Unmount { path: PathBuf, source: io::Error },
    /// The serving threads ended with an error; the mount is gone.
    #[error("serving {}: {source}", path.display())]
    Served { path: PathBuf, source: io::Error },
}

/// The other mount points in this process's mount table.
struct Elsewhere<'a>(&'a [PathBuf]);

impl fmt::Display for Elsewhere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.first() {
            Some(first) => write!(f, ", at {}", first.display()),
            None => f.write_str(
                ", in another mount namespace or by a process that had it open when it was unmounted lazily",
            ),
        }
    }
}

/// How a mount is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only if the mount is not in use. `MountError::Elsewhere`: it is gone from its mount point, but other mount points still use it.
    Clean,
    /// Removed from the namespace now; the session ends with the last open file.
    Lazy,
    /// Removed from the namespace now; waiting and later calls get an error. For servers that are gone.
    Force,
}

/// A mounted file system. Dropping it unmounts lazily.
pub struct Mounted {
    point: PathBuf,
    device: String,
    id: Option<u64>,
    ended: Arc<AtomicBool>,
    server: Mutex<Option<JoinHandle<io::Result<()>>>>,
    /// For the guard process.
    channel: Arc<Mutex<Option<OwnedFd>>>,
}

/// Serves a mount until it is gone.
pub type Serve = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Mounts `fs` at `mountpoint`; returns when the mount can be used.
pub fn mount(fs: Arc<client::Fs>, mountpoint: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let door = Door::new(fs, options.clone());
    let flags = door.flags.clone();
    attach_following(mountpoint, options, flags, start(Served::new(door), options))
}

/// Mounts any file system the way Stria's own is mounted.
pub fn attach<F: Filesystem>(
    door: F,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    attach_with(mountpoint, options, start(door, options))
}

/// Starts a session of `fusedev` on the device.
fn start<F: Filesystem>(
    door: F,
    options: &MountOptions,
) -> impl FnOnce(OwnedFd, Arc<Gate>) -> io::Result<Serve> + use<F> {
    let (threads, calls) = (options.threads.max(1), options.calls.clone());
    move |device, gate| {
        let session = Session::start(door, device)?.counting(calls);
        let serve = move || session.run(threads, move |opcode, work| gate.serve(Class::of(opcode), work));
        Ok(Box::new(serve) as Serve)
    }
}

/// Mounts with the session that `start` makes of the device: of another library, for comparisons in which only that differs.
pub fn attach_with(
    mountpoint: &Path,
    options: &MountOptions,
    start: impl FnOnce(OwnedFd, Arc<Gate>) -> io::Result<Serve>,
) -> Result<Mounted, MountError> {
    attach_following(mountpoint, options, InForce::new(options.flags), start)
}

/// `flags` follow the mount table.
fn attach_following(
    mountpoint: &Path,
    options: &MountOptions,
    flags: InForce,
    start: impl FnOnce(OwnedFd, Arc<Gate>) -> io::Result<Serve>,
) -> Result<Mounted, MountError> {
    let point = real_point(mountpoint)?;
    let how = fusedev::mount::Options {
        source: options.source.clone(),
        subtype: options.subtype.clone(),
        flags: options.flags,
        allow_other: options.allow_other,
        // With more pages per request than the largest write has, reads would have as many.
        max_read: options.max_read.or(pages_of_vectors().map(|_| MAX_REQUEST_BYTES)),
    };
    let device = fusedev::mount::mount(&point, &how)
        .map_err(|source| MountError::Refused { path: point.clone(), source })?;
    let started = serve_at(&point, device, options, flags, start);
    started.map_err(|source| {
        // The kernel has the mount, but no thread serves it: remove it.
        match rustix::process::geteuid().is_root() {
            true => rustix::mount::unmount(&point, UnmountFlags::DETACH).map_err(io::Error::from),
            false => unmount_by_helper(&point, Unmount::Lazy),
        }
        .unwrap_or_else(
            |error| tracing::warn!(%error, "the mount could not be removed, and no process serves it"),
        );
        MountError::Start { path: point, source }
    })
}

fn serve_at(
    point: &Path,
    device: OwnedFd,
    options: &MountOptions,
    flags: InForce,
    start: impl FnOnce(OwnedFd, Arc<Gate>) -> io::Result<Serve>,
) -> io::Result<Mounted> {
    let channel = device.as_fd().try_clone_to_owned()?;
    let for_guard = Arc::new(Mutex::new(Some(device.as_fd().try_clone_to_owned()?)));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let gate = Arc::new(Gate::new(options.threads.max(1), processors));
    let serve = start(device, gate.clone())?;
    let entry =
        mountinfo::at(point)?.ok_or_else(|| io::Error::other("it vanished from the mount table at once"))?;
    let id = mountinfo::unique_id(point);
    set_read_ahead(&entry.device, options.read_ahead_kib);
    let ended = Arc::new(AtomicBool::new(false));
    let mark = ended.clone();
    let follower = Follower::new(point, &entry.device, flags)?;
    let watch = move || watch(&channel, &gate, &follower, &mark);
    std::thread::Builder::new().name("fuse-watch".into()).spawn(watch)?;
    let (mark, not_taken) = (ended.clone(), for_guard.clone());
    let run = move || {
        let result = serve();
        mark.store(true, Ordering::SeqCst);
        drop(not_taken.lock().take());
        result
    };
    let server = std::thread::Builder::new().name("fuse".into()).spawn(run)?;
    let server = Mutex::new(Some(server));
    Ok(Mounted { point: point.to_path_buf(), device: entry.device, id, ended, server, channel: for_guard })
}

/// Watches the serving threads. It releases a parked thread if the others hang, and all of them when the kernel has closed the connection.
/// It does not use `poll`, because every request would wake it. It also notices changed mount flags.
fn watch(channel: &OwnedFd, gate: &Gate, follower: &Follower, ended: &AtomicBool) {
    let mut served = 0;
    let mut pause = TICK_IDLE;
    while !ended.load(Ordering::SeqCst) && !is_closed(channel) {
        std::thread::sleep(pause);
        let before = served;
        served = gate.tick(before);
        follower.look();
        pause = if served == before { TICK_IDLE.min(pause * 2) } else { TICK_BUSY };
    }
    // The kernel has released the mount; serving threads may still hang in requests to servers that are gone.
    ended.store(true, Ordering::SeqCst);
    gate.close();
}

fn is_closed(channel: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(n) if n > 0)
}

/// The kernel limits the negotiated read-ahead to its default of 128 KiB; root may set the device's own limit. Without that, streaming
/// reads are slower but correct.
fn set_read_ahead(device: &str, kib: u32) {
    let knob = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, kib.to_string()) {
        tracing::debug!(knob, %error, "read-ahead stays as it was");
    }
}

impl Mounted {
    pub fn mountpoint(&self) -> &Path {
        &self.point
    }

    /// The number of the connection at `fusedev::Switch`.
    pub fn connection(&self) -> Option<u32> {
        self.device.split_once(':')?.1.parse().ok()
    }

    /// Sets the bytes that the kernel reads ahead for each open file. An unprivileged process may not, and then they stay as they are.
    pub fn set_read_ahead(&self, bytes: u64) {
        set_read_ahead(&self.device, (bytes / 1024).try_into().unwrap_or(u32::MAX));
    }

    /// A descriptor of the connection's device, once. While one is open, the kernel does not end the connection by itself.
    pub fn take_device(&self) -> Option<OwnedFd> {
        self.channel.lock().take()
    }

    /// True once the kernel has released the mount, whatever unmounted it.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Waits until the mount has ended, whatever unmounts it. A second caller returns at once.
    pub fn join(&self) -> Result<(), MountError> {
        // In a statement of its own, so that the lock is not held during the wait.
        let server = self.server.lock().take();
        let Some(server) = server else { return Ok(()) };
        let result = server.join().unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
        result.map_err(|source| MountError::Served { path: self.point.clone(), source })
    }

    /// Unmounts. Succeeds if the mount is gone already.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        if self.is_there().map_err(|e| self.unmount_error(e))? {
            self.take_away(how)?;
        }
        match how {
            Unmount::Clean => self.expect_end(),
            Unmount::Lazy | Unmount::Force => Ok(()),
        }
    }

    /// Waits for the end of the file system. Bind mounts and other mount namespaces keep it after its mount here is gone.
    fn expect_end(&self) -> Result<(), MountError> {
        let until = Instant::now() + LETS_GO_WITHIN;
        while !self.has_ended() {
            if Instant::now() > until {
                let points = mountinfo::points_of(&self.device).map_err(|e| self.unmount_error(e))?;
                return Err(MountError::Elsewhere { path: self.point.clone(), points });
            }
            std::thread::sleep(LETS_GO_LOOK_EACH);
        }
        Ok(())
    }

    fn take_away(&self, how: Unmount) -> Result<(), MountError> {
        match rustix::process::geteuid().is_root() {
            true => self.unmount_by_system_call(how),
            false => match unmount_by_helper(&self.point, how) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    Err(MountError::Busy { path: self.point.clone() })
                }
                other => other.map_err(|e| self.unmount_error(e)),
            },
        }
    }

    /// fuse-M1: another mount at this point must stay. This mount may still be there after its end: `umount -f` ends it, and leaves it in
    /// place while it is in use.
    fn is_there(&self) -> io::Result<bool> {
        if mountinfo::at(&self.point)?.is_none_or(|entry| entry.device != self.device) {
            return Ok(false);
        }
        Ok(match self.id {
            Some(id) => mountinfo::unique_id(&self.point) == Some(id),
            None => !self.has_ended(),
        })
    }

    fn unmount_by_system_call(&self, how: Unmount) -> Result<(), MountError> {
        let flags = match how {
            Unmount::Clean => UnmountFlags::empty(),
            Unmount::Lazy => UnmountFlags::DETACH,
            Unmount::Force => UnmountFlags::DETACH | UnmountFlags::FORCE,
        };
        match rustix::mount::unmount(&self.point, flags) {
            // EINVAL: no longer a mount point; another process has unmounted it.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy { path: self.point.clone() }),
            Err(e) => Err(self.unmount_error(e.into())),
        }
    }

    fn unmount_error(&self, source: io::Error) -> MountError {
        MountError::Unmount { path: self.point.clone(), source }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(Unmount::Lazy) {
            tracing::warn!(%error, "the mount could not be removed");
        }
    }
}

/// The mount point as the mount table writes it. Only the parent is resolved through the file system: on a stale mount, a look at the point
/// itself returns ENOTCONN.
fn real_point(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let wrong = |source| MountError::Point { path: mountpoint.to_path_buf(), source };
    let absolute = std::path::absolute(mountpoint).map_err(wrong)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let candidate = parent.canonicalize().map_err(wrong)?.join(name);
            match candidate.symlink_metadata() {
                Ok(meta) if meta.is_symlink() => candidate.canonicalize().map_err(wrong),
                Ok(meta) if !meta.is_dir() => Err(wrong(Errno::NOTDIR.into())),
                Err(e) if e.raw_os_error() != Some(Errno::NOTCONN.raw_os_error()) => Err(wrong(e)),
                _ => Ok(candidate),
            }
        }
        _ => absolute.canonicalize().map_err(wrong),
    }
}

fn unmount_by_helper(point: &Path, how: Unmount) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if how != Unmount::Clean {
        command.arg("-z");
    }
    // The output is parsed, so it must not be in the user's language.
    let output = command.arg("--").arg(point).env("LC_ALL", "C").output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match said.contains("busy") {
        true => Err(Errno::BUSY.into()),
        false => Err(io::Error::other(said)),
    }
}
