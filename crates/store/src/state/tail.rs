//! The log's tail as a role: who adds to the log, writes it, and applies what was written. See decisions/0023.
//!
//! A change is admitted under the tail's short lock and joins a batch; whoever finds nobody writing takes the role: he writes the
//! batch by one write, applies its entries in their order, and tells the others. What comes meanwhile is the next batch.
//!
//! store-T1 (log, then apply): of an entry nothing is seen, and nobody is told, before the log has it. If the write fails nothing of the batch
//!     is applied.
//! store-T2 (admitted as if alone): changes share a batch, or are admitted while one is written, only if they are overwrites
//!     (`Engine::is_overwrite`): what one is admitted for, and its answer, are the same before another of them and after it.
//!     Every other change waits until nothing is under way, and nothing is admitted until it is applied.
//! store-T3: who has the tail still (`still`) finds all entries of the log applied, and nothing changes under him.
//! store-T4: the lock is not held while a shared batch is written and applied; so who comes is admitted meanwhile.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use disk::volume::{Entries, VolumeError};
use disk::{LogPoint, Waiting};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::Origin;
use crate::records::record::Record;
use disk::alloc::Run;

/// A batch that is this long takes no more: it is written in well below a millisecond.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Batches that one writes for others after his own, before he hands the role on.
pub(crate) const ROUNDS_MAX: usize = 8;

#[derive(Debug, Default)]
pub struct Tail {
    flight: Mutex<Flight>,
    /// Ring bytes of the batch that is being written, until the log has it.
    writing_bytes: AtomicU64,
    /// Told when nothing is under way.
    landed: Condvar,
    /// Told when changes may join again.
    opened: Condvar,
}

/// What is under way: admitted and not yet applied.
#[derive(Debug, Default)]
pub struct Flight {
    /// What the next write takes.
    pub next: Batch,
    /// A batch that is done, for its memory.
    spare: Batch,
    /// Someone has the role. Never while the lock is held over a change of one's own.
    pub is_led: bool,
    /// How many wait for the tail to be still: until then nobody joins.
    wanting_still: usize,
    /// How many wait to join.
    wanting_in: usize,
    /// Working memory of whoever applies alone.
    pub freed: Vec<Run>,
}

/// Entries that one write brings to the log.
#[derive(Debug, Default)]
pub struct Batch {
    pub entries: Entries,
    pub members: Vec<Member>,
    pub fate: Arc<Fate>,
}

#[derive(Debug)]
pub struct Member {
    pub origin: Option<Origin>,
    pub answer: u64,
    pub record: Arc<Record>,
}

/// What became of a batch, for its members.
#[derive(Debug, Default)]
pub struct Fate {
    stage: AtomicU32,
    outcome: OnceLock<Result<LogPoint, VolumeError>>,
    waiting: Waiting,
}

/// Stages of a fate.
const UNKNOWN: u32 = 0;
/// The batch's first member has the role.
const HANDED: u32 = 1;
const KNOWN: u32 = 2;

/// What a member waited for.
pub enum Turn {
    /// To write the batch himself.
    Lead,
    Done(Result<LogPoint, VolumeError>),
}

impl Fate {
    /// Waits for the batch, as its member number `place`.
    pub fn wait(&self, place: usize) -> Turn {
        self.waiting.until(place, || self.look(place))
    }

    fn look(&self, place: usize) -> Option<Turn> {
        match self.stage.load(Ordering::Acquire) {
            UNKNOWN => None,
            HANDED => (place == 0).then_some(Turn::Lead),
            _ => {
                let outcome = self.outcome.get().expect("it is set before the stage says so");
                Some(Turn::Done(outcome.as_ref().map(|point| *point).map_err(VolumeError::for_another)))
            }
        }
    }

    /// Tells all.
    fn tell(&self, outcome: Result<LogPoint, VolumeError>) {
        self.outcome.set(outcome).expect("a batch is written once");
        self.stage.store(KNOWN, Ordering::Release);
        self.waiting.wake_all();
    }

    fn hand_role(&self) {
        self.stage.store(HANDED, Ordering::Release);
        self.waiting.wake(0);
    }
}

impl Batch {
    fn clear(&mut self) {
        self.entries.clear();
        self.members.clear();
        match Arc::get_mut(&mut self.fate) {
            Some(fate) => *fate = Fate::default(),
            // A member has yet to look at it.
            None => self.fate = Arc::default(),
        }
    }
}

impl Flight {
    #[cfg(test)]
    pub fn wanting_still(&self) -> usize {
        self.wanting_still
    }
    #[cfg(test)]
    pub fn wanting_in(&self) -> usize {
        self.wanting_in
    }
    pub fn is_empty(&self) -> bool {
        !self.is_led && self.next.members.is_empty()
    }
}

/// The tail's lock; who must know of its end is told.
pub struct Held<'a> {
    tail: &'a Tail,
    flight: Option<MutexGuard<'a, Flight>>,
}

impl Deref for Held<'_> {
    type Target = Flight;
    fn deref(&self) -> &Flight {
        self.flight.as_ref().expect("it is held until it is dropped")
    }
}
impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Flight {
        self.flight.as_mut().expect("it is held until it is dropped")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        let (is_empty, still, join) = (flight.is_empty(), flight.wanting_still, flight.wanting_in);
        drop(flight);
        if still > 0 && is_empty {
            self.tail.landed.notify_one();
        }
        if still == 0 && join > 0 {
            self.tail.opened.notify_all();
        }
    }
}

impl Held<'_> {
    /// store-T3. Nobody joins while it waits.
    pub fn wait_still(mut self) -> Self {
        let tail = self.tail;
        let flight = self.flight.as_mut().expect("it is held until it is dropped");
        flight.wanting_still += 1;
        while !flight.is_empty() {
            tail.landed.wait(flight);
        }
        flight.wanting_still -= 1;
        self
    }
}

impl Held<'_> {
    /// Writes `next`, of one change, under the lock: store-T2, for who has the tail still.
    pub fn write_alone(
        &mut self,
        write: impl FnOnce(&mut Batch, &mut Vec<Run>) -> Result<LogPoint, VolumeError>,
    ) -> Result<LogPoint, VolumeError> {
        assert!(!self.is_led && self.next.members.len() == 1, "the tail is still but for this one");
        let flight = &mut **self;
        let outcome = write(&mut flight.next, &mut flight.freed);
        flight.next.clear();
        outcome
    }
}

impl Tail {
    /// store-T3: until the answer is dropped.
    pub fn still(&self) -> Held<'_> {
        self.hold().wait_still()
    }

    /// The lock, for who has or is given the role.
    pub fn hold(&self) -> Held<'_> {
        Held { tail: self, flight: Some(self.flight.lock()) }
    }

    /// Of the batch that is not in the log yet and takes no more.
    pub fn writing_bytes(&self) -> u64 {
        self.writing_bytes.load(Ordering::Acquire)
    }

    /// By who has the role: the log has the batch, and counts it from here on; or it never will.
    pub fn note_written(&self) {
        self.writing_bytes.store(0, Ordering::Release);
    }

    /// For one who may join what is under way.
    pub fn join(&self) -> Held<'_> {
        let mut flight = self.flight.lock();
        while flight.wanting_still > 0 || flight.next.entries.ring_bytes() >= BATCH_BYTES_MAX {
            flight.wanting_in += 1;
            self.opened.wait(&mut flight);
            flight.wanting_in -= 1;
        }
        Held { tail: self, flight: Some(flight) }
    }

    /// For who takes the role: writes `next`, and what comes meanwhile, by `write`, which applies it too.
    pub fn lead<'a>(
        &'a self,
        mut held: Held<'a>,
        mut write: impl FnMut(&mut Batch) -> Result<LogPoint, VolumeError>,
    ) {
        held.is_led = true;
        for _ in 0..ROUNDS_MAX {
            // 1. The batch is closed; what comes from here on is the next one.
            let mut batch = std::mem::take(&mut held.spare);
            std::mem::swap(&mut batch, &mut held.next);
            self.writing_bytes.store(batch.entries.ring_bytes(), Ordering::Release);
            drop(held);
            // 2. Written, applied, told.
            let outcome = write(&mut batch);
            batch.fate.tell(outcome);
            batch.clear();
            // 3. Is there more?
            held = self.hold();
            held.spare = batch;
            self.note_written();
            if held.next.members.is_empty() {
                held.is_led = false;
                return;
            }
        }
        // Whose own change is long done should not write for others for ever.
        held.next.fate.hand_role();
    }
}
