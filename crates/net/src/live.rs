//! The sockets of a fabric, so that an abort can shut them all down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use socket2::Socket;

#[derive(Default)]
pub(crate) struct Live {
    aborted: AtomicBool,
    next: AtomicU64,
    sockets: Mutex<HashMap<u64, Arc<Socket>>>,
}

impl Live {
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Shuts all sockets down; a thread that waits on one wakes up with an error.
    pub fn abort(&self) {
        let sockets = self.sockets.lock();
        // Under the lock: `enter` either sees the flag or is seen here.
        self.aborted.store(true, Ordering::Release);
        for socket in sockets.values() {
            // An error means that the socket is not connected any more, and needs no shutdown.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// `None`: aborted.
    pub fn enter(self: &Arc<Live>, socket: &Arc<Socket>) -> Option<Entry> {
        let mut sockets = self.sockets.lock();
        if self.is_aborted() {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        sockets.insert(id, socket.clone());
        Some(Entry { live: self.clone(), id })
    }
}

/// A socket's place among the live ones.
pub(crate) struct Entry {
    live: Arc<Live>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.live.sockets.lock().remove(&self.id);
    }
}
