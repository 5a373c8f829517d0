//! What the kernel is told to forget: attributes that changed without its doing.
//!
//! Only notices that take no lock of the kernel's are sent. One that does (for pages, for names) may wait for a lock whose holder waits
//! for us; were this process killed just then, that thread would never end, the kernel would never hear that nobody serves the mount,
//! and whoever uses it would hang. So pages of descriptors from before another client came stay (SEMANTICS, exceptions), and a directory
//! that another client moved is found by whoever looks at its new name.

use std::sync::mpsc::{Receiver, Sender, channel};

use fusedev::{INodeNo, Notifier};
use types::Fid;

/// Where notices are asked for.
pub struct Forget(Sender<Fid>);

/// What the sending thread works through.
pub struct Asked(Receiver<Fid>);

impl Forget {
    pub fn new() -> (Forget, Asked) {
        let (ask, asked) = channel();
        (Forget(ask), Asked(asked))
    }

    pub fn attributes(&self, fid: Fid) {
        // After the mount has ended nobody listens, and nothing is cached.
        self.0.send(fid).unwrap_or_default();
    }
}

impl Asked {
    /// Starts the thread; it ends when nobody can ask any more.
    pub fn serve(self, notifier: &Notifier) {
        let notifier = notifier.clone();
        let run = move || {
            for fid in self.0 {
                // What the kernel does not know it cannot forget: an error tells nothing.
                if let Err(error) = notifier.inval_inode(INodeNo(fid.0), -1, 0) {
                    tracing::debug!(%error, "a notice to the kernel");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("fuse-forget".into()).spawn(run) {
            tracing::error!(%error, "no thread to make the kernel forget attributes: they may be a second old");
        }
    }
}
