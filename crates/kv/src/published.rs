//! Versions that one writer publishes and any number of threads read, without a write to memory that readers share.
//!
//! Each thread has a slot with the version that it read last. A reader locks its slot, which no other reader uses, and compares two
//! numbers.
//! If nothing was published since, that is all: the slot's cache line is the only one written. Otherwise the slot is filled from `newest`,
//! once per publication and thread.
//!
//! kv-R1: a version is not freed while a reader uses it: the locked slot holds a reference.
//! kv-R2: memory that idle slots hold is bounded. After `SWEEP_STATES` publications, or once only older versions hold `SWEEP_BYTES`, the
//!     writer empties the slots that no reader uses.
//! kv-R3: the writer frees versions, never a reader: a version that was given to a slot stays in `retired` until `retired` has the last
//!     reference. (The last holder of a snapshot frees it.)
//! kv-R4: version numbers only rise. A reader that begins after `publish` returned uses that version or a later one.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use types::Word;

/// Threads that have a slot at one time: the connections of a server (1024) and a mount's threads. Further threads share `newest`, which is
/// slower and equally correct.
const SLOTS: usize = 1088;
/// Each publication leaves a few KiB of nodes in the version before it.
const SWEEP_STATES: usize = 256;
/// Bytes of replaced or deleted values that idle slots may keep.
const SWEEP_BYTES: u64 = 4 << 20;
/// Retired versions that one publication frees: more than it adds.
const FREED_EACH: usize = 2;

/// A cache line, and the one that the processor fetches with it, for one writer.
#[repr(align(128))]
#[derive(Default)]
struct Lone<T>(T);

pub struct Published<S> {
    /// Number of the newest version. Written once per publication, read by all.
    number: Lone<AtomicU64>,
    newest: Lone<Mutex<Newest<S>>>,
    slots: Box<[Lone<Mutex<Held<S>>>]>,
    /// The writer's: held while it makes and publishes a version.
    retired: Lone<Mutex<Retired<S>>>,
}

struct Newest<S> {
    state: Arc<S>,
    /// A reader took this version, now or before.
    is_taken: bool,
}

/// The version that a thread read last.
struct Held<S> {
    number: u64,
    state: Option<Arc<S>>,
}

struct Retired<S> {
    /// Oldest first.
    states: VecDeque<Arc<S>>,
    /// Publications since the last sweep.
    published: usize,
    bytes: u64,
}

/// A version for one request on this thread.
pub enum Reader<'a, S> {
    Seated(MappedMutexGuard<'a, Arc<S>>),
    /// This thread has a reader already, or has no slot.
    Standing(Arc<S>),
}

impl<S> Deref for Reader<'_, S> {
    type Target = S;
    fn deref(&self) -> &S {
        match self {
            Reader::Seated(state) => state,
            Reader::Standing(state) => state,
        }
    }
}

impl<S> Published<S> {
    pub fn new(state: S) -> Published<S> {
        let empty = || Lone(Mutex::new(Held { number: 0, state: None }));
        Published {
            number: Lone(AtomicU64::new(1)),
            newest: Lone(Mutex::new(Newest { state: Arc::new(state), is_taken: false })),
            slots: (0..SLOTS).map(|_| empty()).collect(),
            retired: Lone(Mutex::new(Retired { states: VecDeque::new(), published: 0, bytes: 0 })),
        }
    }

    pub fn reader(&self) -> Reader<'_, S> {
        // A reader within a reader finds its slot locked; so does a reader whose slot is being swept.
        let slot = seat().and_then(|seat| self.slots.get(seat)).and_then(|slot| slot.0.try_lock());
        let Some(mut held) = slot else { return Reader::Standing(self.take().1) };
        if held.number != self.number.0.load(Ordering::Acquire) || held.state.is_none() {
            let (number, state) = self.take();
            assert!(number >= held.number, "kv-R4: a reader never goes back");
            // kv-R3: `retired` has the version before, so this lowers its count and frees nothing.
            *held = Held { number, state: Some(state) };
        }
        Reader::Seated(MutexGuard::map(held, |held| held.state.as_mut().expect("it was filled")))
    }

    pub fn snapshot(&self) -> Arc<S> {
        self.newest.0.lock().state.clone()
    }

    /// Older versions that are in memory because a reader uses them, or used them last.
    pub fn kept(&self) -> usize {
        self.retired.0.lock().states.len()
    }

    /// Words that only the writer writes, unless a reader meets a version that is new to it.
    pub fn words(&self) -> Vec<Word> {
        let count = Word::count("count of the newest state", &self.newest.0.lock().state);
        vec![
            Word::of("number of the newest state", &self.number.0),
            Word::of("newest state", &self.newest.0),
            count,
        ]
    }

    /// Publishes the version that `make` makes of the newest one. `make` also returns the bytes of the old version that the new one does
    /// not have. One writer at a time: others wait here.
    pub fn publish(&self, make: impl FnOnce(&S) -> (S, u64)) {
        self.publish_if(|newest| Some(make(newest)));
    }

    /// As `publish`, unless `make` returns `None`.
    pub fn publish_if(&self, make: impl FnOnce(&S) -> Option<(S, u64)>) {
        let retired = &mut *self.retired.0.lock();
        let old = self.snapshot();
        let Some((next, bytes)) = make(&old) else { return };
        let next = Arc::new(next);
        let (number, was_taken) = {
            let mut newest = self.newest.0.lock();
            assert!(Arc::ptr_eq(&newest.state, &old), "one writer publishes at a time");
            newest.state = next;
            // kv-R4: number and version change together, under the lock, so that a reader takes a matching pair.
            let number = self.number.0.load(Ordering::Relaxed) + 1;
            self.number.0.store(number, Ordering::Release);
            (number, std::mem::take(&mut newest.is_taken))
        };
        if was_taken {
            retired.states.push_back(old);
        }
        retired.published += 1;
        retired.bytes += bytes;
        if retired.published >= SWEEP_STATES || retired.bytes >= SWEEP_BYTES {
            self.sweep(retired, number);
        }
        for _ in 0..FREED_EACH {
            // No reader takes an old version, so a count of one stays one.
            if retired.states.front().is_some_and(|state| Arc::strong_count(state) == 1) {
                retired.states.pop_front();
            }
        }
    }

    /// Frees at once all older versions that no reader holds.
    pub fn release(&self) {
        let freed: VecDeque<_> = {
            let retired = &mut *self.retired.0.lock();
            let number = self.number.0.load(Ordering::Relaxed);
            self.empty_slots(number);
            let states = std::mem::take(&mut retired.states);
            let (kept, freed) = states.into_iter().partition(|state| Arc::strong_count(state) > 1);
            retired.states = kept;
            freed
        };
        drop(freed);
    }

    /// kv-R2.
    fn sweep(&self, retired: &mut Retired<S>, number: u64) {
        self.empty_slots(number);
        retired.states.retain(|state| Arc::strong_count(state) > 1);
        (retired.published, retired.bytes) = (0, 0);
    }

    /// Empties the slots that no reader uses and that have an older version.
    fn empty_slots(&self, number: u64) {
        for slot in self.slots.iter().take(seats()) {
            // A locked slot is in use, or was filled a moment ago.
            if let Some(mut held) = slot.0.try_lock()
                && held.number != number
            {
                held.state = None;
            }
        }
    }

    fn take(&self) -> (u64, Arc<S>) {
        let mut newest = self.newest.0.lock();
        newest.is_taken = true;
        (self.number.0.load(Ordering::Relaxed), newest.state.clone())
    }
}

/// A thread's slot number for its lifetime, the lowest free one.
struct Seat(usize);

struct Seats {
    /// Numbers from here on were never given.
    given: usize,
    free: BTreeSet<usize>,
}

static SEATS: Mutex<Seats> = Mutex::new(Seats { given: 0, free: BTreeSet::new() });

thread_local! {
    static SEAT: Seat = {
        let mut seats = SEATS.lock();
        Seat(seats.free.pop_first().unwrap_or_else(|| {
            seats.given += 1;
            seats.given - 1
        }))
    };
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.lock().free.insert(self.0);
    }
}

/// This thread's number; `None` while the thread ends.
fn seat() -> Option<usize> {
    SEAT.try_with(|seat| seat.0).ok()
}

/// All numbers that were ever given are below this.
fn seats() -> usize {
    SEATS.lock().given
}

#[cfg(test)]
mod tests;
