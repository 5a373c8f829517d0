//! What the kernel is told to forget: attributes that changed without its doing.
//!
//! A serving thread sends only notices that take no lock of the kernel's. One that does (for pages, for names) may wait for a lock whose
//! holder waits for an answer. If this process is killed just then, that thread never ends, the kernel never hears that the mount is not
//! served any more, and programs that use it hang until it is unmounted by force. So notices for pages are sent `aside`, and only where a
//! direct write meets pages, or a time meets mappings (`coherence`). Pages of descriptors from before another client came stay
//! (SEMANTICS, exceptions), and a directory that another client moved is found by a look at its new name.

use fusedev::{INodeNo, Notifier};
use types::Fid;

/// Sends the notices. Before the mount is served nothing is cached, so nobody needs to hear of anything.
#[derive(Default)]
pub struct Forget(pub Option<Notifier>);

impl Forget {
    /// To be called by who serves a request about the open file `fid`, before it answers: then its caller sees the new attributes as
    /// soon as its call is over. The request keeps the file in use, so the kernel does not wait for its end here (fuse-I2).
    pub fn attributes(&self, fid: Fid) {
        let Some(notifier) = &self.0 else { return };
        // What the kernel does not know it cannot forget: an error tells nothing.
        if let Err(error) = notifier.inval_inode(INodeNo(fid.0), -1, 0) {
            tracing::debug!(%error, "a notice to the kernel");
        }
    }
}
