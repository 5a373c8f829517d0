//! What the kernel is told to forget among other clients: pages of files, and places of directories.
//!
//! A notice waits for locks of the kernel's which a request may hold that waits for us. So each is sent by a thread that serves no
//! requests, and who needs to know that it was sent waits for that a short time only (I2 of the crate).
//!
//! A process that is killed while such a thread waits for a page or a directory does not end before that lock is free, and who holds the
//! lock may wait for it: `umount -f` parts them. So notices that wait are sent only while several clients share, and only for files
//! that were open before and directories that moved; attributes are forgotten without waiting.
//!
//! Places: the kernel has a directory under one name. Where another client moved it and a cross-directory rename of ours is the
//! first to look at its new name, the kernel cannot move it there itself (it holds the lock that this needs) and would answer
//! `ESTALE`. So a directory that is found elsewhere than before is forgotten at its old place before the lookup is answered.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fusedev::{INodeNo, Notifier};
use parking_lot::Mutex;
use types::Fid;

/// Longest that a lookup waits for the old place to be forgotten. The kernel tries once more what fails then.
const PLACE_WAIT: Duration = Duration::from_millis(50);
/// Directories whose place is known; past it all are forgotten, and the first lookups of moved ones may be `ESTALE`.
const PLACES_MAX: usize = 65_536;

type Place = (Fid, Vec<u8>);

enum Notice {
    Pages(Fid),
    /// Takes no lock of the kernel's, so it never waits.
    Attributes(Fid),
    Entry(Place, Sender<()>),
}

/// Where notices are asked for.
#[derive(Clone)]
pub struct Forget {
    pages: Sender<Notice>,
    entries: Sender<Notice>,
    places: Arc<Mutex<HashMap<Fid, Place>>>,
}

/// What the sending threads work through.
pub struct Asked([Receiver<Notice>; 2]);

impl Forget {
    pub fn new() -> (Forget, Asked) {
        let ((pages, asked_pages), (entries, asked_entries)) = (channel(), channel());
        (Forget { pages, entries, places: Arc::default() }, Asked([asked_pages, asked_entries]))
    }

    pub fn pages(&self, fid: Fid) {
        // After the mount has ended nobody listens, and nothing is cached.
        self.pages.send(Notice::Pages(fid)).unwrap_or_default();
    }

    pub fn attributes(&self, fid: Fid) {
        self.pages.send(Notice::Attributes(fid)).unwrap_or_default();
    }

    /// The kernel is about to hear that directory `dir` is `name` in `parent`.
    pub fn found(&self, dir: Fid, parent: Fid, name: &[u8], is_shared: bool) {
        let old = {
            let mut places = self.places.lock();
            if places.get(&dir).is_some_and(|(p, n)| *p == parent && n == name) {
                return;
            }
            if places.len() >= PLACES_MAX {
                places.clear();
            }
            places.insert(dir, (parent, name.to_vec()))
        };
        if let Some(old) = old.filter(|_| is_shared) {
            let (done, sent) = channel();
            self.entries.send(Notice::Entry(old, done)).unwrap_or_default();
            // A time-out is fine: see `PLACE_WAIT`.
            sent.recv_timeout(PLACE_WAIT).unwrap_or_default();
        }
    }
}

impl Asked {
    /// Starts the threads; they end when nobody can ask any more.
    pub fn serve(self, notifier: &Notifier) {
        for asked in self.0 {
            let notifier = notifier.clone();
            let run = move || asked.iter().for_each(|notice| send(&notifier, notice));
            if let Err(error) = std::thread::Builder::new().name("fuse-forget".into()).spawn(run) {
                tracing::error!(%error, "no thread to make the kernel forget: files that are open may read old bytes");
            }
        }
    }
}

/// What the kernel does not know it cannot forget: errors tell nothing.
fn send(notifier: &Notifier, notice: Notice) {
    let sent = match &notice {
        Notice::Pages(fid) => notifier.inval_inode(INodeNo(fid.0), 0, 0),
        Notice::Attributes(fid) => notifier.inval_inode(INodeNo(fid.0), -1, 0),
        Notice::Entry((parent, name), _) => notifier.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "a notice to the kernel");
    }
    if let Notice::Entry(_, done) = notice {
        done.send(()).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_that_moved_is_forgotten_at_its_old_place() {
        let (forget, Asked([_, entries])) = Forget::new();
        let asked = || {
            entries
                .try_iter()
                .map(|n| match n {
                    Notice::Entry((p, n), _) => (p.0, String::from_utf8(n).unwrap()),
                    Notice::Pages(_) | Notice::Attributes(_) => panic!("not an entry"),
                })
                .collect::<Vec<_>>()
        };
        forget.found(Fid(9), Fid(1), b"a", true);
        forget.found(Fid(9), Fid(1), b"a", true);
        assert_eq!(asked(), []);
        forget.found(Fid(9), Fid(2), b"b", true);
        assert_eq!(asked(), [(1, "a".to_string())]);
        // Alone, the kernel moved it itself.
        forget.found(Fid(9), Fid(3), b"c", false);
        forget.found(Fid(9), Fid(1), b"a", true);
        assert_eq!(asked(), [(3, "c".to_string())]);
    }
}
