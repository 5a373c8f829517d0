//! What is durable before it is answered, because the mount (`sync`, `dirsync`) or the descriptor (`O_SYNC`) says so.

use client::Handle;
use fusedev::INodeNo;
use rustix::mount::MountFlags;
use types::{Fault, Fid};

use crate::door::Door;

/// Among the flags of an open or a write, if it is to be durable before it is answered; `O_SYNC` includes it.
pub const O_DSYNC: i32 = 0o10000;

impl Door {
    pub fn is_sync(&self) -> bool {
        self.flags.get().contains(MountFlags::SYNCHRONOUS)
    }

    /// After a change of names in `dir`.
    pub fn kept<T>(&self, dir: INodeNo, changed: Result<T, Fault>) -> Result<T, Fault> {
        let changed = changed?;
        if self.flags.get().intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC) {
            self.fs().fsync_dir(Fid(dir.0))?;
        }
        Ok(changed)
    }

    /// After a change of attributes, or of the size by a name.
    pub fn kept_attributes<T>(&self, ino: INodeNo, changed: Result<T, Fault>) -> Result<T, Fault> {
        let changed = changed?;
        if self.is_sync() {
            self.fs().fsync_meta(Fid(ino.0))?;
        }
        Ok(changed)
    }

    /// What was just written through a descriptor with these flags (`RWF_DSYNC` shows in them, too) is made durable, if they say so.
    /// Whatever fsync the kernel sends after such a write finds nothing left to do; not every way to write promises one.
    pub fn sync_if_asked(&self, handle: Handle, flags: i32) -> Result<(), Fault> {
        if flags & O_DSYNC == 0 { Ok(()) } else { self.fs().fsync(handle, true) }
    }
}
