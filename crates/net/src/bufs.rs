//! Bulk buffers that wait for their next use. A new one costs as much as its bytes: the kernel clears its pages.

use std::sync::Arc;

use parking_lot::Mutex;
use types::Buf;

/// Most buffers that are kept: 64 MiB.
const KEPT: usize = 64;

#[derive(Default)]
pub(crate) struct Bufs {
    free: Mutex<Vec<Buf>>,
}

impl Bufs {
    pub fn take(&self) -> Buf {
        self.free.lock().pop().unwrap_or_default()
    }

    /// Keeps a buffer that had bytes.
    pub fn put(&self, mut buf: Buf) {
        if buf.is_empty() {
            return;
        }
        buf.clear();
        let mut free = self.free.lock();
        if free.len() < KEPT {
            free.push(buf);
        }
    }

    /// Frees all of them.
    pub fn clear(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        drop(free);
    }
}

/// A buffer that goes back when it is dropped.
pub(crate) struct Lent {
    pub buf: Buf,
    pub home: Option<Arc<Bufs>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.put(std::mem::take(&mut self.buf));
        }
    }
}
