//! Notices that make the kernel forget attributes which changed without its doing.
//!
//! A serving thread sends only notices that take no lock of the kernel. Any other notice (for pages, for names) may wait for a lock whose
//! holder waits for a reply. If this process is killed at that moment, the thread never ends and the kernel never learns that the mount is
//! no longer served. Programs on the mount then hang until the guard process ends it. So notices for names are sent `aside`, when another client
//! changes a name that the kernel has. Notices for pages are, too, and only if a direct
//! write meets pages, or a change of times meets mappings (`coherence`). Pages of descriptors that were opened before another client
//! attached stay (SEMANTICS, exceptions). A directory that another client moved is found by a lookup of its new name.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Kernel, Root};
use fusedev::{INodeNo, Notifier};
use types::Fid;

use crate::aside::Aside;

/// Sends the notices. Before the mount is served the kernel caches nothing, so no notice is needed.
#[derive(Clone, Default)]
pub struct Forget {
    pub notifier: Option<Notifier>,
    pub root: Root,
}

impl Forget {
    fn ino(&self, fid: Fid) -> INodeNo {
        INodeNo(self.root.ino(fid))
    }

    /// Drops the pages of a range of bytes; the kernel first writes dirty ones. It may wait for answers to requests for pages, so no thread that serves
    /// requests calls it (fuse-I2).
    pub fn pages(&self, fid: Fid, range: &Range<u64>) {
        let Some(notifier) = &self.notifier else { return };
        // A length of 0 means all that follows.
        let len = i64::try_from(range.end).map_or(0, |end| end.saturating_sub(range.start as i64));
        if let Err(error) = notifier.inval_inode(self.ino(fid), range.start as i64, len) {
            tracing::debug!(%error, "dropping pages of the kernel");
        }
    }

    /// Drops a name. It waits for the lock of its directory.
    fn name(&self, dir: Fid, name: &[u8]) {
        let Some(notifier) = &self.notifier else { return };
        if let Err(error) = notifier.inval_entry(self.ino(dir), OsStr::from_bytes(name)) {
            tracing::debug!(%error, "dropping a name of the kernel");
        }
    }

    /// Called by a thread that serves a request about the open file `fid`, before its reply: the caller then sees the new attributes as
    /// soon as its call returns. The request keeps the file in use, so this notice does not wait for the file's end (fuse-I2). A notice
    /// of the MDT that other clients change the file calls it too, and may wait for that end.
    pub fn attributes(&self, fid: Fid) {
        let Some(notifier) = &self.notifier else { return };
        // The kernel may not know the inode, and then has nothing to forget: the error can be ignored.
        if let Err(error) = notifier.inval_inode(self.ino(fid), -1, 0) {
            tracing::debug!(%error, "a notice to the kernel");
        }
    }
}

/// The kernel that a mount serves, as its client sees it.
pub struct ServedKernel {
    notices: Forget,
    /// Apart from the door's: pages may keep its threads waiting.
    aside: Aside,
}

impl ServedKernel {
    pub fn new(notices: Forget) -> ServedKernel {
        ServedKernel { notices, aside: Aside::default() }
    }
}

impl Kernel for ServedKernel {
    fn attributes(&self, fids: &[Fid]) {
        fids.iter().for_each(|fid| self.notices.attributes(*fid));
    }
    fn names(
        &self,
        names: Vec<(Fid, Box<[u8]>)>,
        is_given_up: &Arc<AtomicBool>,
        done: Box<dyn FnOnce() + Send>,
    ) {
        let (notices, is_given_up) = (self.notices.clone(), is_given_up.clone());
        // Without a thread the names run out.
        _ = self.aside.run_apart(Box::new(move || {
            for (dir, name) in names {
                // Late, it might drop a directory that has the name by then.
                if is_given_up.load(Ordering::SeqCst) {
                    return;
                }
                notices.name(dir, &name);
            }
            done();
        }));
    }
}
