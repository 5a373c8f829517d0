//! A client with its mount: made, watched, taken away.
//!
//! cli-M1: a stop ends in bounded time whatever the servers do: what cannot be settled in time is given up, which loses
//! nothing that an fsync or a server acknowledged.

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
use crate::shell;
use crate::stop::{Event, Manner};

/// Longest wait for a client to flush and settle at its end, and to leave its servers. These may be dead, and whoever unmounts
/// waits: what is not settled by then is found by whoever opens it next.
pub const SETTLE_MAX: Duration = Duration::from_secs(5);
/// As above when the servers are in this process: only the disk can be slow, and stopping them flushes all the same.
pub const SETTLE_LOCAL_MAX: Duration = Duration::from_secs(15);
/// As above in a forced stop.
pub const SETTLE_FORCED_MAX: Duration = Duration::from_secs(3);
/// Time between two looks whether the mount has ended.
const ENDED_LOOK_EACH: Duration = Duration::from_millis(100);
/// After giving up, what was waiting is given this long to notice.
const ABORT_MAX: Duration = Duration::from_secs(1);

pub struct Client {
    fs: Arc<Fs>,
    fabric: Arc<Fabric>,
    mounted: Arc<Mounted>,
}

/// What to mount where.
pub struct Wish<'a> {
    pub fabric: Arc<Fabric>,
    pub map: &'a ClusterMap,
    pub fs: FsId,
    /// Absolute.
    pub point: &'a Path,
    /// As `mount` and `df` show it.
    pub source: String,
    pub options: &'a Options,
    /// Shown to people in the servers' lists of clients.
    pub client_name: String,
    /// Whom the mount acts for.
    pub claims: client::Claims,
}

impl Client {
    /// Connects, then mounts. `events` is told when the mount ends, whoever ends it.
    pub fn start(wish: Wish<'_>, events: Sender<Event>) -> anyhow::Result<Client> {
        let settings = client::Settings {
            op_timeout: wish.options.op_timeout,
            commit_interval: commit_interval(wish.map, wish.fs),
            name: wish.client_name,
            claims: wish.claims,
            // A reply that is on its way when the time begins counts, too.
            kernel_remembers: fuse::ENTRY_TIMEOUT + Duration::from_millis(100),
            ..client::Settings::default()
        };
        let fs = Fs::connect(wish.fabric.clone(), wish.map.clone(), wish.fs, settings)?;
        let mut how = MountOptions::new(wish.source);
        how.flags = wish.options.flags;
        how.max_read = wish.options.max_read;
        how.idmap = wish.options.idmap;
        how.allow_other = wish.options.allow_other.unwrap_or(how.allow_other);
        let mounted = match mount_alone(&fs, wish.point, &how) {
            Ok(mounted) => Arc::new(mounted),
            Err(failure) => {
                // The session must not linger: the next mount would be refused until it is dead.
                settle(&fs, &wish.fabric, SETTLE_MAX);
                return Err(failure.into());
            }
        };
        watch(&mounted, events)?;
        Ok(Client { fs, fabric: wish.fabric, mounted })
    }

    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }
    pub fn point(&self) -> PathBuf {
        self.mounted.mountpoint().to_owned()
    }

    /// Takes the mount away. `Err` if it is in use and that was to be respected; everything then goes on.
    pub fn unmount(&self, manner: Manner) -> Result<(), MountError> {
        match manner {
            Manner::Polite => self.mounted.unmount(Unmount::Clean),
            Manner::Forced => self.mounted.unmount(Unmount::Force),
        }
    }

    /// After the mount is gone: settles what was written and leaves the servers, in at most `limit`.
    pub fn finish(self, limit: Duration) {
        // Somebody may have ended it without taking it away (`umount -f` of a mount in use).
        if let Err(error) = self.mounted.unmount(Unmount::Lazy) {
            tracing::warn!(%error, "the mount point stays covered");
        }
        settle(&self.fs, &self.fabric, limit)
    }
}

/// Tells when the kernel has let go of the mount. Its serving threads may go on for as long as dead servers keep them waiting, so
/// they are joined elsewhere, for what they have to say.
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
        // Nobody may wait any more.
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

/// Mounts unless another mount of ours came to the point while this one connected. One at a time of those that mount there: each holds
/// the lock of the directory from its look at the mount table until it has mounted.
fn mount_alone(fs: &Arc<Fs>, point: &Path, how: &MountOptions) -> Result<Mounted, Failure> {
    // Before it is opened: what lies over it may hang.
    mounts::check_free(point)?;
    let directory = File::open(point).ok();
    // Where the directory may not be opened or locked, the look alone must do.
    let _turn = directory.as_ref().map(|d| rustix::fs::flock(d, FlockOperation::LockExclusive));
    mounts::check_free(point)?;
    fuse::mount(fs.clone(), point, how).map_err(|e| Failure::failed("mount", e, "fix that and try again"))
}

/// A mount point that is there and free. What a killed run left mounted there is taken away first.
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

/// As `check_point`; a directory that is not there is made.
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

/// Root's mount acts for whoever its kernel says; a plain user's for that user.
pub fn claims_of_this_process() -> client::Claims {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        return client::Claims::All;
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.iter().map(|g| g.as_raw()).take(types::Cred::GROUPS_MAX).collect();
    client::Claims::User(types::Cred { uid: uid.as_raw(), gid: gid.as_raw(), groups })
}
