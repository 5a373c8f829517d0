//! The table of interruptible requests.
//!
//! The kernel sends INTERRUPT beside the request that it cancels, and any thread may read either first. Only SETLKW waits for something
//! other than its own work, so the table holds only SETLKW requests. For other requests an interrupt has no effect, as on a local disk.
//! fusedev-N1. An interrupt that is read before its request is kept until the request is read. So no interrupt has to be sent back to the
//! kernel to be requeued (the protocol's EAGAIN), which would repeat for as long as the request takes.
//! fusedev-N2. The mark is set before `Filesystem::interrupt` is called. A file system that stores a request and then checks
//! `Request::is_interrupted` misses no interrupt.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::RequestId;

/// Most interrupts that are kept without a request. They belong to requests that are just being read, or to requests that never wait.
const EARLY_MAX: usize = 1024;

#[derive(Default)]
pub struct Interrupts {
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    waiting: HashMap<RequestId, Arc<AtomicBool>>,
    early: VecDeque<RequestId>,
}

impl Interrupts {
    /// Adds a request that may wait; returns its mark.
    pub fn enter(&self, unique: RequestId) -> Arc<AtomicBool> {
        let mut lists = self.lists.lock();
        let early = lists.early.iter().position(|id| *id == unique);
        if let Some(at) = early {
            lists.early.remove(at);
        }
        let mark = Arc::new(AtomicBool::new(early.is_some()));
        lists.waiting.insert(unique, mark.clone());
        mark
    }

    /// Removes a request that is answered.
    pub fn leave(&self, unique: RequestId) {
        self.lists.lock().waiting.remove(&unique);
    }

    /// Marks a request as interrupted. True if the file system must be told.
    pub fn interrupt(&self, unique: RequestId) -> bool {
        let mut lists = self.lists.lock();
        if let Some(mark) = lists.waiting.get(&unique) {
            mark.store(true, Ordering::SeqCst);
            return true;
        }
        if lists.early.len() == EARLY_MAX {
            lists.early.pop_front();
        }
        lists.early.push_back(unique);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_meets_its_request_whichever_is_read_first() {
        let interrupts = Interrupts::default();
        let mark = interrupts.enter(RequestId(2));
        assert!(!mark.load(Ordering::SeqCst));
        assert!(interrupts.interrupt(RequestId(2)));
        assert!(mark.load(Ordering::SeqCst));
        assert!(!interrupts.interrupt(RequestId(4)));
        assert!(interrupts.enter(RequestId(4)).load(Ordering::SeqCst));
        // The early interrupt was used up; one that comes after the answer finds no request.
        interrupts.leave(RequestId(4));
        assert!(!interrupts.interrupt(RequestId(4)));
    }

    #[test]
    fn what_nobody_fetches_is_bounded() {
        let interrupts = Interrupts::default();
        for id in 0..3 * EARLY_MAX as u64 {
            interrupts.interrupt(RequestId(id));
        }
        assert_eq!(interrupts.lists.lock().early.len(), EARLY_MAX);
        assert!(interrupts.enter(RequestId(3 * EARLY_MAX as u64 - 1)).load(Ordering::SeqCst));
    }
}
