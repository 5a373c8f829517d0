//! A client with its mount: made, watched, taken away.
//!
//! I1: a stop ends in bounded time whatever the servers do: what cannot be settled in time is given up, which loses
//! nothing that an fsync or a server acknowledged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use client::Fs;
use fuse::{MountError, MountOptions, Mounted, Unmount};
use net::Fabric;
use types::FsId;
use wire::map::ClusterMap;

use crate::exit::Failure;
use crate::options::Options;
use crate::serve::bounded;
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
        let mounted = match fuse::mount(fs.clone(), wish.point, &how) {
            Ok(mounted) => Arc::new(mounted),
            Err(e) => {
                // The session must not linger: the next mount would be refused until it is dead.
                settle(&fs, &wish.fabric, SETTLE_MAX);
                return Err(Failure::failed("mount", e, "fix that and try again").into());
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

/// I1.
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

/// A directory to mount on, made if it does not exist. What a killed run left mounted there is taken away first.
pub fn prepare_point(point: &Path) -> anyhow::Result<()> {
    let cleared = crate::mounts::clear_stale(point);
    if cleared > 0 {
        tracing::info!(mount = %point.display(), cleared, "removed the stale mount of a process that was killed");
    }
    if let Some(there) = crate::mounts::at(point).filter(|m| m.fs_type == crate::mounts::FS_TYPE) {
        let why = format!("{} is mounted there already", there.source);
        return Err(Failure::failed(point.display(), why, "unmount it, or choose another directory").into());
    }
    std::fs::create_dir_all(point).map_err(|e| {
        let next = "give a directory, or a path where one may be made";
        Failure::failed(format!("mount point {}", point.display()), e, next).into()
    })
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
