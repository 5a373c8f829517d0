//! `D/run`: shows whether a cluster runs, and which process runs it.
//!
//! ```text
//! D/run/lock         locked (flock) by the process that uses D; the lock, not the file, shows that the process lives
//! D/run/holder.json  that process: pid, purpose, mount point
//! D/run/stria.sock   its socket for tools
//! D/run/stria.log    its log
//! D/run/0.sock, server-0.log   the same of a server of a pair, of which there are two
//! D/run/busy         why it did not stop when asked to (see `stop`)
//! D/run/mounted.json mount point and options; a killed process leaves it behind
//! D/run/spare        reserved space on the disk below, freed when the disk is full so that a start finds some
//! ```
//! cli-R1: at most one process uses D: it holds the lock from before its first read until after its last write.
//! cli-R2: files of a dead process mean nothing; the next holder of the lock removes them.
//! cli-R3: `mounted.json` is the exception: it outlives a crash, a check and a failed start. A clean stop or an unmount removes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::mounts;

/// Longest path of a unix socket in bytes (`sun_path` less its NUL).
pub const SOCKET_PATH_MAX: usize = 107;

/// Longest wait for processes that only test the lock: they release it within microseconds.
const LOOKER_WAIT_MAX: Duration = Duration::from_secs(1);

/// A start writes about 20 KiB beside the targets: its pid, the cluster map, the log.
const SPARE_BYTES: u64 = 1 << 20;
/// The spare is reserved only on a disk with this many times its free space.
const SPARE_OF: u64 = 8;

/// Mode bits of the group and of all others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Paths under `D/run`.
#[derive(Clone, Debug)]
pub struct RunDir {
    root: PathBuf,
}

/// The process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    pub what: Use,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// Seconds since 1970.
    pub since_sec: u64,
}

/// The mount of a `stria up`, so that the next one after a crash can make it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    pub point: PathBuf,
    /// Options, as after `-o`.
    pub options: Vec<String>,
}

/// The purpose for which a process holds D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// `stria up`: serves it.
    Up,
    /// `stria fsck`: examines a stopped cluster.
    Check,
    /// `stria down --purge`: deletes it.
    Purge,
}

/// Whether a process uses D.
#[derive(Debug)]
pub enum State {
    /// No process; a dead one may have left a holder file.
    Free {
        leftover: Option<Holder>,
    },
    Held(Holder),
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    run: RunDir,
    /// The path may be another process's lock from here on, whose files must stay.
    is_purged: bool,
}

impl RunDir {
    pub fn of(cluster_dir: &Path) -> RunDir {
        RunDir { root: cluster_dir.join("run") }
    }
    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn socket(&self) -> PathBuf {
        self.root.join("stria.sock")
    }
    pub fn log(&self) -> PathBuf {
        self.root.join("stria.log")
    }
    /// The socket of a server of a pair.
    pub fn server_socket(&self, number: u32) -> PathBuf {
        self.root.join(format!("{number}.sock"))
    }
    /// The log of a server of a pair.
    pub fn server_log(&self, number: u32) -> PathBuf {
        self.root.join(format!("server-{number}.log"))
    }
    pub fn busy(&self) -> PathBuf {
        self.root.join("busy")
    }
    fn spare(&self) -> PathBuf {
        self.root.join("spare")
    }
    fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
    fn holder(&self) -> PathBuf {
        self.root.join("holder.json")
    }

    fn mounted(&self) -> PathBuf {
        self.root.join("mounted.json")
    }

    /// All files that may be in here, for purging.
    pub fn files(&self) -> Vec<PathBuf> {
        let new = |path: PathBuf| path.with_extension("new");
        let (holder, mounted) = (self.holder(), self.mounted());
        let files = [
            self.socket(),
            self.log(),
            self.busy(),
            self.spare(),
            new(holder.clone()),
            new(mounted.clone()),
            holder,
            mounted,
        ];
        let of_servers =
            [self.server_socket(0), self.server_socket(1), self.server_log(0), self.server_log(1)];
        files.into_iter().chain(of_servers).chain([self.lock()]).collect()
    }

    /// The mount of a process that was killed (cli-R3). A file that another user wrote, or could write, is not used: this user would
    /// mount where that one says.
    pub fn remembered(&self) -> Option<Remembered> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(self.mounted()).ok()?;
        let meta = file.metadata().ok()?;
        let is_ours = meta.is_file()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mode() & WRITABLE_BY_OTHERS == 0;
        if !is_ours {
            let path = self.mounted();
            let why = "it is another user's, or may be written by others: it is not used";
            crate::logs::tell(&format!("stria: {}: {why}", path.display()));
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The socket's NID, or why there can be none.
    pub fn nid(&self) -> Result<String, Failure> {
        let socket = self.socket();
        let len = socket.as_os_str().len();
        if len > SOCKET_PATH_MAX {
            let why = format!("its socket's path has {len} bytes and the kernel takes {SOCKET_PATH_MAX}");
            return Err(Failure::unusable(socket.display(), why, "choose a --dir with a shorter path"));
        }
        // Lists of NIDs, as in a mount's source, are separated by commas.
        if socket.as_os_str().as_encoded_bytes().contains(&b',') {
            let why = "its path holds a comma, which separates addresses in a mount's source";
            return Err(Failure::unusable(socket.display(), why, "choose a --dir without one"));
        }
        Ok(format!("unix:{}@local0", socket.display()))
    }

    /// Takes the lock and removes what a killed process left: holder file, socket, stale mount.
    pub fn take(&self, what: Use, mount: Option<PathBuf>) -> anyhow::Result<Lock> {
        let file = self.open_locked()?;
        if self.is_disk_full() {
            // Otherwise no start could succeed, and so no user could remove files to free space: the disk may hold only the targets.
            fs::remove_file(self.spare()).or_else(unless_missing)?;
        }
        self.clear_leftovers()?;
        let lock = Lock { _file: file, run: self.clone(), is_purged: false };
        let holder = Holder { pid: std::process::id(), what, mount, since_sec: now_sec() };
        match lock.write_holder(&holder) {
            // A check or purge needs no space, and on a full disk a purge frees some. Other processes then see the lock without a name.
            Err(e) if disk::is_full(&e) && what != Use::Up => {}
            written => written?,
        }
        Ok(lock)
    }

    /// Whether the disk that holds D is full; false if that is unknown.
    pub fn is_disk_full(&self) -> bool {
        self.room().is_some_and(|room| room < SPARE_BYTES)
    }

    fn room(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.root).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Reserves space for the next start, if the disk has enough. The holder calls it periodically.
    pub fn keep_spare(&self) {
        let spare = self.spare();
        if spare.exists() || self.room().is_none_or(|room| room < SPARE_OF * SPARE_BYTES) {
            return;
        }
        let made = File::create(&spare)
            .and_then(|file| Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SPARE_BYTES)?));
        if let Err(e) = made {
            // A spare that reserves no space is useless.
            let _ = fs::remove_file(&spare);
            tracing::debug!("no space is reserved for a start on a full disk: {e}");
        }
    }

    /// Opens and locks the file at the lock's path. A process that purged D may have deleted or replaced it during the wait; a lock on the
    /// old file excludes no other process.
    fn open_locked(&self) -> anyhow::Result<File> {
        loop {
            fs::create_dir_all(&self.root)?;
            let file = match OpenOptions::new().create(true).truncate(false).write(true).open(self.lock()) {
                // The directory was removed between the two calls: begin again.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            self.lock_exclusively(&file)?;
            if self.is_at_path(&file) {
                return Ok(file);
            }
        }
    }

    fn is_at_path(&self, lock: &File) -> bool {
        let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        lock.metadata().is_ok_and(|held| fs::metadata(self.lock()).is_ok_and(|there| same(&held, &there)))
    }

    fn lock_exclusively(&self, file: &File) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                // A process that only tests the lock (see `state`) releases it soon: wait for it.
                Err(Errno::WOULDBLOCK)
                    if holder_pids(file).is_empty() && begin.elapsed() < LOOKER_WAIT_MAX =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::WOULDBLOCK) => return Err(self.refuse_taken(file).into()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn refuse_taken(&self, lock: &File) -> Failure {
        let dir = self.root.parent().unwrap_or(&self.root);
        let cluster = dir.display();
        let holder = self.read_holder();
        let pids = holder_pids(lock);
        let named = holder.as_ref().map(|h| h.pid).filter(|pid| pids.contains(pid));
        let pid = named.or(pids.first().copied()).map_or("unknown".to_owned(), |pid| pid.to_string());
        match holder.map(|h| h.what) {
            Some(Use::Check) => {
                Failure::failed(cluster, format!("pid {pid} checks it now"), "wait until it is done")
            }
            Some(Use::Purge) => {
                Failure::failed(cluster, format!("pid {pid} purges it now"), "wait until it is done")
            }
            _ => {
                let next = format!("stop it with `stria down --dir {}`", crate::shell::path(dir));
                Failure::failed(cluster, format!("it is up already, served by pid {pid}"), next)
            }
        }
    }

    /// cli-R2. Also unmounts the mount of the dead process: programs that use it only get errors.
    fn clear_leftovers(&self) -> io::Result<()> {
        if let Some(mount) = self.read_holder().and_then(|h| h.mount) {
            for _ in 0..mounts::clear_stale(&mount) {
                tracing::info!(mount = %mount.display(), "removed the stale mount of a process that was killed");
            }
        }
        for path in [self.socket(), self.holder(), self.busy()] {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a process uses D now. A holder file is ignored unless its pid agrees with the kernel's lock table.
    pub fn state(&self) -> anyhow::Result<State> {
        let leftover = self.read_holder();
        let file = match OpenOptions::new().write(true).open(self.lock()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(State::Free { leftover }),
            other => other?,
        };
        // A shared lock, released at once. It is refused only while a user holds the exclusive lock.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(State::Free { leftover }),
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e.into()),
        }
        let kernel_says = holder_pids(&file);
        match leftover {
            Some(holder) if kernel_says.contains(&holder.pid) => Ok(State::Held(holder)),
            file_says => {
                let why = format!(
                    "the lock is held by pids {kernel_says:?} and holder.json names {:?}",
                    file_says.map(|h| h.pid)
                );
                Err(Failure::unusable(
                    self.root.display(),
                    why,
                    "if it is just starting, try again in a second",
                )
                .into())
            }
        }
    }

    fn read_holder(&self) -> Option<Holder> {
        serde_json::from_slice(&fs::read(self.holder()).ok()?).ok()
    }
}

impl Lock {
    /// Sets the mount point that the next user of D unmounts if this process is killed.
    pub fn set_mount(&self, mount: Option<PathBuf>) -> io::Result<()> {
        let old = self.run.read_holder().ok_or_else(|| io::Error::other("holder.json was taken away"))?;
        self.write_holder(&Holder { mount, ..old })
    }

    /// cli-R3.
    pub fn remember(&self, mount: &Remembered) -> io::Result<()> {
        replace(&self.run.mounted(), &serde_json::to_vec(mount)?)
    }

    /// The mount was removed as intended.
    pub fn forget(&self) -> io::Result<()> {
        match fs::remove_file(self.run.mounted()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Deletes all files of Stria in D/run, the lock's last; then other processes may use D.
    pub fn purge(mut self) -> io::Result<()> {
        for file in self.run.files() {
            match fs::remove_file(file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        self.is_purged = true;
        Ok(())
    }

    fn write_holder(&self, holder: &Holder) -> io::Result<()> {
        replace(&self.run.holder(), &serde_json::to_vec(holder)?)
    }
}

impl Drop for Lock {
    /// The files go before the lock, so that no process finds them without it.
    fn drop(&mut self) {
        if self.is_purged {
            return;
        }
        for path in [self.run.socket(), self.run.holder(), self.run.busy()] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Replaces by rename, so that a reader sees either the old or the new content.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).inspect_err(|_| {
        // An incomplete file is useless.
        let _ = fs::remove_file(&new);
    })?;
    fs::rename(new, path)
}

fn unless_missing(e: io::Error) -> io::Result<()> {
    if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
}

/// The processes that hold a flock on this file, from the kernel's table: it contains no reused pid.
///
/// Files are compared by inode number only, since some file systems (btrfs) show another device number here than in `stat`. So a foreign
/// process may be among them, and callers compare with the holder file.
fn holder_pids(file: &File) -> Vec<u32> {
    let Ok(meta) = file.metadata() else { return Vec::new() };
    let inode = format!(":{}", meta.ino());
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    table.lines().filter_map(|line| pid_of_flock(line, &inode)).collect()
}

/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; waiters have `->` as the second word.
fn pid_of_flock(line: &str, inode: &str) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_it =
        words.get(1) == Some(&"FLOCK") && words.get(3) == Some(&"WRITE") && words.get(5)?.ends_with(inode);
    is_it.then(|| words[4].parse().ok()).flatten()
}

fn now_sec() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests;
