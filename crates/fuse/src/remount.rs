//! Follows changes of a mount's flags: `mount -o remount`.
//!
//! The kernel applies `ro`, `nosuid`, `nodev` and `noexec` itself and reports no change to a FUSE server. The door handles access times and
//! `sync`, so it follows the mount table.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::MountFlags;

use crate::mountinfo;

/// The current flags of a mount.
#[derive(Clone, Debug)]
pub(crate) struct InForce(Arc<AtomicU32>);

impl InForce {
    pub fn new(flags: MountFlags) -> InForce {
        InForce(Arc::new(AtomicU32::new(flags.bits())))
    }
    pub fn get(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.0.load(Ordering::Relaxed))
    }
    fn set(&self, flags: MountFlags) {
        self.0.store(flags.bits(), Ordering::Relaxed);
    }
}

/// Keeps flags equal to those in the mount table.
pub(crate) struct Follower {
    table: File,
    point: PathBuf,
    device: String,
    flags: InForce,
}

impl Follower {
    pub fn new(point: &Path, device: &str, flags: InForce) -> io::Result<Follower> {
        let table = File::open(mountinfo::TABLE)?;
        Ok(Follower { table, point: point.to_owned(), device: device.to_owned(), flags })
    }

    /// To be called periodically; it reads the table only after a change.
    pub fn look(&self) {
        if !self.has_changed() {
            return;
        }
        // A mount that was moved or covered keeps its last flags.
        if let Ok(Some(entry)) = mountinfo::at(&self.point)
            && entry.device == self.device
        {
            self.flags.set(entry.flags);
        }
    }

    /// The kernel reports each change of the table once, as an urgent event.
    fn has_changed(&self) -> bool {
        let mut fds = [PollFd::new(&self.table, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(n) if n > 0)
    }
}

/// A mount, as the mount table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub fs_type: String,
    pub flags: MountFlags,
    /// Options of the file system itself, such as `allow_other`.
    pub words: Vec<String>,
}

/// The visible mount at `point`.
pub fn present(point: &Path) -> io::Result<Option<Present>> {
    Ok(mountinfo::at(point)?.map(|entry| Present {
        fs_type: entry.fs_type,
        flags: entry.flags,
        words: entry.words,
    }))
}

/// Sets these flags on the mount at `point` and clears all others. Only root may.
pub fn remount(point: &Path, flags: MountFlags) -> io::Result<()> {
    // Without an option for access times the kernel would keep the present one.
    let atime = if flags.contains(MountFlags::NOATIME) { MountFlags::empty() } else { MountFlags::RELATIME };
    Ok(rustix::mount::mount_remount(point, flags | atime, c"")?)
}
