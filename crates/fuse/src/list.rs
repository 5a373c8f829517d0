//! Directory listings, in batches that fit the kernel's buffer.

use client::{DirItem, Lister};
use fusedev::{INodeNo, OpenFlags, Request};
use rustix::mount::MountFlags;
use types::{Cred, Fault, Fid};

use crate::door::{Door, O_NOATIME};

/// Entries per readdir call of the client. With attributes it is about a third of a 32 KiB listing request, so that few entries are fetched
/// in vain when the kernel's buffer is full.
const PLUS_BATCH: usize = 64;
const PLAIN_BATCH: usize = 256;

impl Door {
    /// A listing from the beginning counts as a read of the directory, unless its descriptor has O_NOATIME.
    pub(crate) fn begins_listing(&self, rq: &Request, ino: INodeNo, cookie: u64, flags: OpenFlags) {
        if cookie == 0 && flags.0 & O_NOATIME == 0 {
            self.accessed(rq, ino, None, MountFlags::NODIRATIME);
        }
    }

    /// Lists from `cookie` on until `add` returns true: the kernel's buffer is full.
    pub(crate) fn list(
        &self,
        (rq, cred): (&Request, &Cred),
        dir: Fid,
        mut cookie: u64,
        mut add: impl FnMut(&DirItem) -> bool,
    ) -> Result<(), Fault> {
        let lister = Lister { pid: rq.pid(), uid: rq.uid() };
        let mut any = false;
        loop {
            let items = match self.fs.readdir_of(lister, dir, cookie, PLAIN_BATCH, false, cred) {
                Ok(items) => items,
                // The entries in the buffer are valid; the next call meets the error again.
                Err(_) if any => return Ok(()),
                Err(fault) => return Err(fault),
            };
            let Some(last) = items.last() else { return Ok(()) };
            cookie = last.cookie;
            if items.iter().any(&mut add) {
                return Ok(());
            }
            any = true;
        }
    }

    /// The next entries behind `cookie` with attributes: one batch, as many as the kernel's buffer mostly holds.
    pub(crate) fn list_plus(
        &self,
        (rq, cred): (&Request, &Cred),
        dir: Fid,
        cookie: u64,
    ) -> Result<Vec<DirItem>, Fault> {
        let lister = Lister { pid: rq.pid(), uid: rq.uid() };
        self.fs.readdir_of(lister, dir, cookie, PLUS_BATCH, true, cred)
    }
}
