//! Waiting for another thread that answers within microseconds: a log's tail, a batch of a metadata server.

use std::hint::spin_loop;
use std::thread::Thread;

use parking_lot::Mutex;

/// Checks by spinning, for about as long as a batch takes: giving up the processor costs more.
const LOOKS_MAX: usize = 100;
/// Checks with a yield between them, before the thread sleeps: the other thread may be waiting for a processor. Sleeping and being woken
/// costs as much as all of these (decision 0037).
const YIELDS_MAX: usize = 200;

/// The sleeping threads, each with its member number in the object that they wait for.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Vec<(usize, Thread)>>);

impl Waiting {
    /// Waits, as member number `place`, until `look` returns a value. A thread that changes what `look` reads must wake this member
    /// afterwards.
    pub fn until<T>(&self, place: usize, look: impl Fn() -> Option<T>) -> T {
        for n in 0..LOOKS_MAX + YIELDS_MAX {
            if let Some(found) = look() {
                return found;
            }
            match n < LOOKS_MAX {
                true => spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        let mut asleep = self.0.lock();
        if let Some(found) = look() {
            return found;
        }
        asleep.push((place, std::thread::current()));
        drop(asleep);
        loop {
            std::thread::park();
            if let Some(found) = look() {
                return found;
            }
        }
    }

    pub fn wake_all(&self) {
        let asleep = std::mem::take(&mut *self.0.lock());
        asleep.into_iter().for_each(|(_, thread)| thread.unpark());
    }

    pub fn wake(&self, place: usize) {
        let asleep = self.0.lock();
        asleep.iter().filter(|(p, _)| *p == place).for_each(|(_, thread)| thread.unpark());
    }
}
