//! A client with its mount: made, watched, removed.
//!
//! cli-M1: a stop ends in bounded time, whatever the servers do. State that cannot be settled in time is abandoned; nothing is lost that an
//! fsync or a server acknowledged.

use std::fmt::Display;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use client::Fs;
use fuse::{MountError, MountOptions, Mounted, Unmount};
use net::Fabric;
use rustix::fs::FlockOperation;
use types::FsId;
use wire::map::ClusterMap;

use crate::exit::Failure;
use crate::mounts;
use crate::options::Options;
use crate::serve::bounded;
use crate::serve::guard::Guard;
use crate::serve::mount_params::{self, AtDoor};
use crate::shell;
use crate::stop::{Event, Manner};

/// Longest wait for a client at its end to flush, settle and leave its servers. The servers may be dead while the unmounting process waits.
/// A later open finds what is not settled by then.
pub const SETTLE_MAX: Duration = Duration::from_secs(5);
/// As above with the servers in this process: only the disk can be slow, and stopping the servers flushes in any case.
pub const SETTLE_LOCAL_MAX: Duration = Duration::from_secs(15);
/// As above in a forced stop.
pub const SETTLE_FORCED_MAX: Duration = Duration::from_secs(3);
/// Time between two checks whether the mount has ended.
const ENDED_LOOK_EACH: Duration = Duration::from_millis(100);
/// Time for waiting calls to notice the abort.
const ABORT_MAX: Duration = Duration::from_secs(1);

pub struct Client {
    fs: Arc<Fs>,
    fabric: Arc<Fabric>,
    mounted: Arc<Mounted>,
    guard: Option<Guard>,
}

/// A mount to make.
pub struct Wish<'a> {
    pub fabric: Arc<Fabric>,
    pub map: &'a ClusterMap,
    pub fs: FsId,
    /// Absolute path.
    pub point: &'a Path,
    /// The source in `mount` and `df`.
    pub source: String,
    pub options: &'a Options,
    /// The client's name in the servers' lists.
    pub client_name: String,
    /// The users that the mount may act for.
    pub claims: client::Claims,
    /// Where the kernel's requests are counted.
    pub calls: Arc<fuse::Calls>,
}

impl Client {
    /// Connects, then mounts. `events` gets an event when the mount ends, whatever ends it.
    pub fn start(wish: Wish<'_>, events: Sender<Event>) -> anyhow::Result<Client> {
        let others = client::Settings::default();
        let tuned = mount_params::of(wish.options);
        let settings = client::Settings {
            params: Some(tuned.clone()),
            commit_interval: commit_interval(wish.map, wish.fs),
            name: wish.client_name,
            claims: wish.claims,
            own_locks: wish.options.flock != Some(true),
            ..others
        };
        let fs = Fs::connect(wish.fabric.clone(), wish.map.clone(), wish.fs, settings)?;
        let mut how = MountOptions::new(wish.source);
        how.flags = wish.options.flags;
        how.max_read = wish.options.max_read;
        how.calls = wish.calls;
        how.idmap = wish.options.idmap;
        let at_door = AtDoor::begin(&tuned, wish.options, &mut how);
        how.allow_other = wish.options.allow_other.unwrap_or(how.allow_other);
        let mounted = match mount_alone(&fs, wish.point, &how) {
            Ok(mounted) => Arc::new(mounted),
            Err(failure) => {
                // The session must not linger: until it is dead, the next mount would be refused.
                settle(&fs, &wish.fabric, SETTLE_MAX);
                return Err(failure.into());
            }
        };
        let guard = Guard::start(&mounted, &fs)
            .inspect_err(|e| {
                tracing::warn!(
                    "this mount has no guard process: {e:#}; while its process is stopped, programs may see old content"
                )
            })
            .ok();
        at_door.follow(&mounted);
        watch(&mounted, events)?;
        Ok(Client { fs, fabric: wish.fabric, mounted, guard })
    }

    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }
    pub fn point(&self) -> PathBuf {
        self.mounted.mountpoint().to_owned()
    }

    /// Unmounts. `Err` if a polite unmount meets a mount in use; everything then goes on.
    pub fn unmount(&self, manner: Manner) -> Result<(), MountError> {
        match manner {
            Manner::Polite => self.mounted.unmount(Unmount::Clean),
            Manner::Forced => self.mounted.unmount(Unmount::Force),
        }
    }

    /// Called after the mount is gone: settles written state and leaves the servers, within `limit`. False: the guard has ended the mount.
    pub fn finish(self, limit: Duration) -> bool {
        let was_silenced = self.guard.as_ref().is_some_and(Guard::leave);
        // The file system may have ended with its mount still in place (`umount -f` of a mount in use).
        if let Err(error) = self.mounted.unmount(Unmount::Lazy) {
            tracing::warn!(%error, "the mount could not be removed");
        }
        settle(&self.fs, &self.fabric, limit);
        !was_silenced
    }
}

/// Sends an event once the kernel has released the mount. Serving threads may wait longer for dead servers, so another thread joins them
/// and logs their errors.
fn watch(mounted: &Arc<Mounted>, events: Sender<Event>) -> std::io::Result<()> {
    let joined = mounted.clone();
    std::thread::Builder::new().name("mount-join".into()).spawn(move || {
        if let Err(e) = joined.join() {
            tracing::error!("the mount ended with an error: {e}; mount again, and report the lines above");
        }
    })?;
    let watched = mounted.clone();
    std::thread::Builder::new().name("mount-watch".into()).spawn(move || {
        while !watched.has_ended() {
            std::thread::sleep(ENDED_LOOK_EACH);
        }
        // The receiver may be gone.
        let _ = events.send(Event::Unmounted);
    })?;
    Ok(())
}

/// cli-M1.
fn settle(fs: &Arc<Fs>, fabric: &Arc<Fabric>, limit: Duration) {
    let ending = fs.clone();
    match bounded("settle", limit, move || ending.shutdown()) {
        Some(Ok(())) => return,
        Some(Err(fault)) => tracing::error!(
            "not everything could be settled at unmount: {fault}; the next mount finds the rest"
        ),
        None => tracing::error!(
            "servers did not answer within {limit:?} at unmount; leaving without them, the next mount finds the rest"
        ),
    }
    let (fs, fabric) = (fs.clone(), fabric.clone());
    bounded("abort", ABORT_MAX, move || {
        fs.abort();
        fabric.abort();
    });
}

fn commit_interval(map: &ClusterMap, fs: FsId) -> Duration {
    let default = client::Settings::default().commit_interval;
    map.fs(fs).map_or(default, |f| Duration::from_millis(f.commit_interval_ms.max(1) as u64))
}

/// Mounts unless another Stria mount has come to the point while this client connected. Processes that mount there take turns: each holds
/// the lock of the directory from its look at the mount table until it has mounted.
fn mount_alone(fs: &Arc<Fs>, point: &Path, how: &MountOptions) -> Result<Mounted, Failure> {
    // Checked before the open: a mount on top may hang.
    mounts::check_free(point)?;
    let directory = File::open(point).ok();
    // If the directory cannot be opened or locked, the check alone must suffice.
    let _turn = directory.as_ref().map(|d| rustix::fs::flock(d, FlockOperation::LockExclusive));
    mounts::check_free(point)?;
    fuse::mount(fs.clone(), point, how).map_err(|e| Failure::failed("mount", e, "fix that and try again"))
}

/// Checks that a mount point exists and is free. First removes a mount that a killed process left there.
pub fn check_point(point: &Path) -> Result<(), Failure> {
    clear_point(point)?;
    let refuse = |why: &dyn Display, next: String| {
        Err(Failure::unusable(format!("mount point {}", point.display()), why, next))
    };
    match std::fs::metadata(point) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => refuse(&"it is no directory", "give a directory".to_owned()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let next = format!("make it with `mkdir -p {}`, or correct the path", shell::path(point));
            refuse(&"it does not exist", next)
        }
        Err(e) => refuse(&e, "check the path and its permissions".to_owned()),
    }
}

/// As `check_point`, but makes a missing directory.
pub fn prepare_point(point: &Path) -> anyhow::Result<()> {
    clear_point(point)?;
    std::fs::create_dir_all(point).map_err(|e| {
        let next = "give a directory, or a path where one may be made";
        Failure::failed(format!("mount point {}", point.display()), e, next)
    })?;
    Ok(())
}

fn clear_point(point: &Path) -> Result<(), Failure> {
    let cleared = mounts::clear_stale(point);
    if cleared > 0 {
        tracing::info!(mount = %point.display(), cleared, "removed the stale mount of a process that was killed");
    }
    mounts::check_free(point)
}

/// A mount of root acts for all users that its kernel names, a plain user's only for that user.
pub fn claims_of_this_process() -> client::Claims {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        return client::Claims::All;
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.iter().map(|g| g.as_raw()).take(types::Cred::GROUPS_MAX).collect();
    client::Claims::User(types::Cred { uid: uid.as_raw(), gid: gid.as_raw(), groups })
}
