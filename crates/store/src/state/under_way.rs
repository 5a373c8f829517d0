//! Entries that the other member of the mirror may have applied, and this one has not.
//!
//! store-RP7: a read at the member that orders waits for the entries of its object that were under way when it began. The other member
//!     answers reads as well and applies an entry before this one does. Without the wait a reader could see new bytes there, and then old
//!     bytes here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::ObjectId;

/// Longest wait of a reader. It holds a thread of the server, which the letters of the mirror need too.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Objects of batches between their trip to the other member and their application here.
#[derive(Default)]
pub struct UnderWay {
    count: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    begun: u64,
    /// Batches end in the order of their begin.
    ended: u64,
    /// By object: the newest batch that changes it.
    newest: HashMap<ObjectId, u64>,
}

/// A batch under way, until it is dropped: applied, or given up with the life of the engine.
pub struct Batch<'a> {
    of: &'a UnderWay,
    number: u64,
    objects: Vec<ObjectId>,
}

impl UnderWay {
    pub fn begin(&self, objects: impl Iterator<Item = ObjectId>) -> Batch<'_> {
        let objects: Vec<ObjectId> = objects.collect();
        let mut state = self.state.lock();
        state.begun += 1;
        let number = state.begun;
        state.newest.extend(objects.iter().map(|object| (*object, number)));
        self.count.store(state.newest.len(), Ordering::SeqCst);
        drop(state);
        Batch { of: self, number, objects }
    }

    /// store-RP7. Batches that begin later are not waited for: a reader would wait for ever beside writers. False: the wait takes too long.
    pub fn wait_for(&self, object: &ObjectId) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let mut state = self.state.lock();
        let Some(number) = state.newest.get(object).copied() else { return true };
        let until = Instant::now() + WAIT_MAX;
        let _wait = spent::waiting(spent::Cause::Mirror);
        while state.ended < number {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        assert!(state.ended < self.number, "store-RP7: batches end in order");
        state.ended = self.number;
        for object in &self.objects {
            if state.newest.get(object) == Some(&self.number) {
                state.newest.remove(object);
            }
        }
        self.of.count.store(state.newest.len(), Ordering::SeqCst);
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use types::Fid;

    use super::*;

    fn object(n: u64) -> ObjectId {
        ObjectId { fid: Fid(n), ..ObjectId::default() }
    }

    /// True if a wait for the object ends by itself.
    fn is_free(under_way: &Arc<UnderWay>, object: ObjectId) -> mpsc::Receiver<()> {
        let (sender, ends) = mpsc::channel();
        let of_thread = under_way.clone();
        std::thread::spawn(move || {
            assert!(of_thread.wait_for(&object), "the test ends the batch in time");
            // The test may have ended.
            let _ = sender.send(());
        });
        ends
    }

    #[test]
    fn rp7_a_read_waits_for_the_entries_that_were_under_way_when_it_began() {
        let under_way = Arc::new(UnderWay::default());
        let first = under_way.begin([object(1), object(2)].into_iter());
        is_free(&under_way, object(3)).recv().expect("another object");
        let waits = is_free(&under_way, object(1));
        assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "the batch has not ended");
        drop(first);
        waits.recv().expect("the batch has ended");
        // A writer that never pauses keeps no reader waiting: the second batch is not waited for.
        let second = under_way.begin([object(1)].into_iter());
        let waits = is_free(&under_way, object(1));
        assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "it began before the read");
        drop(second);
        let _third = under_way.begin([object(1)].into_iter());
        waits.recv().expect("the third batch began after the read");
        is_free(&under_way, object(2)).recv().expect("no batch has it now");
    }
}
