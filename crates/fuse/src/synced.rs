//! Makes changes durable before their reply, if the mount (`sync`, `dirsync`) or the descriptor (`O_SYNC`) asks for it.

use client::Handle;
use fusedev::INodeNo;
use rustix::mount::MountFlags;
use types::Fault;

use crate::door::Door;

/// A flag of an open or a write that asks for durability before the reply; `O_SYNC` includes it.
pub const O_DSYNC: i32 = 0o10000;

impl Door {
    pub fn is_sync(&self) -> bool {
        self.flags.get().contains(MountFlags::SYNCHRONOUS)
    }

    /// Called after a change of names in `dir`.
    pub fn kept<T>(&self, dir: INodeNo, changed: Result<T, Fault>) -> Result<T, Fault> {
        let changed = changed?;
        if self.flags.get().intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC) {
            self.fs().fsync_dir(self.fid(dir))?;
        }
        Ok(changed)
    }

    /// Called after a change of attributes, or of the size by a path.
    pub fn kept_attributes<T>(&self, ino: INodeNo, changed: Result<T, Fault>) -> Result<T, Fault> {
        let changed = changed?;
        if self.is_sync() {
            self.fs().fsync_meta(self.fid(ino))?;
        }
        Ok(changed)
    }

    /// Makes a write through a descriptor durable if its flags ask for it (`RWF_DSYNC` shows in them, too). An fsync of the kernel after
    /// such a write then has nothing to do; not every kind of write sends one.
    pub fn sync_if_asked(&self, handle: Handle, flags: i32) -> Result<(), Fault> {
        if flags & O_DSYNC == 0 { Ok(()) } else { self.fs().fsync(handle, true) }
    }
}
