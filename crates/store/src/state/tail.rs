//! The tail of the log: admits changes into batches, writes them, and applies them (decision 0023).
//!
//! A change is admitted under the tail's short lock and joins a batch. A thread that finds no leader becomes the leader: it writes the
//! batch with one write, applies the entries in their order, and reports the outcome to the other threads. Changes that come meanwhile form
//! the next batch.
//!
//! store-T1 (log, then apply): no change is visible or answered before its entry is in the log. If the write fails, nothing of the batch is
//!     applied.
//! store-T2 (admitted as if alone): only overwrites and plain writes (`state/sharing.rs`) share a batch, or are admitted while one is written.
//!     Each of them is admitted in the same way before another one and after it. Any other change waits until nothing is under way, and
//!     nothing is admitted until it is applied.
//! store-T3: a thread that holds the tail still (`still`) sees all entries of the log applied, and no change happens meanwhile.
//! store-T4: the lock is free while a shared batch is written and applied, so that other changes are admitted.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use disk::Waiting;
use disk::volume::Entries;
use parking_lot::{Condvar, Mutex, MutexGuard};
use spent::Led;
use types::Seq;

use crate::Origin;
use crate::records::record::Record;
use crate::state::mirror::{BatchError, Carried};
use crate::state::sharing::Touched;
use disk::alloc::Run;

/// A batch of this length is closed. It is written in well below a millisecond.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Batches that a leader writes before it hands leadership over.
pub(crate) const ROUNDS_MAX: usize = 8;

#[derive(Debug, Default)]
pub struct Tail {
    flight: Mutex<Flight>,
    /// Ring bytes of the batch that is being written, until the log has it.
    writing_bytes: AtomicU64,
    /// Signalled when nothing is under way.
    landed: Condvar,
    /// Signalled when changes may join again.
    opened: Condvar,
    /// The longest wait of the last leader.
    pub led: Led,
}

/// Changes under way: admitted and not yet applied.
#[derive(Debug, Default)]
pub struct Flight {
    /// The batch of the next write.
    pub next: Batch,
    /// A finished batch, whose memory is reused.
    spare: Batch,
    /// There is a leader. False while a thread writes a single change under the lock.
    pub has_leader: bool,
    /// Threads that wait for the tail to be still. Until then no change joins.
    wanting_still: usize,
    /// Threads that wait to join.
    wanting_in: usize,
    /// Working memory for a single change.
    pub freed: Vec<Run>,
    /// The pages of each change of the batch that is being written, then of the next one.
    pub touched: VecDeque<Touched>,
}

/// Entries that one write brings to the log.
#[derive(Debug, Default)]
pub struct Batch {
    pub entries: Entries,
    pub members: Vec<Member>,
    pub fate: Arc<Fate>,
    /// Pages that the other member of the mirror gets with the batch.
    pub unstaged: usize,
}

#[derive(Debug)]
pub struct Member {
    pub origin: Option<Origin>,
    pub answer: u64,
    pub record: Arc<Record>,
    /// The record's pages, for the other member of the mirror.
    pub carried: Option<Carried>,
}

/// The outcome of a batch, for its members: the mirror seq of the first.
#[derive(Debug, Default)]
pub struct Fate {
    stage: AtomicU32,
    outcome: OnceLock<Result<Seq, BatchError>>,
    waiting: Waiting,
}

/// Stages of an outcome.
const UNKNOWN: u32 = 0;
/// The batch's first member is the leader now.
const HANDED: u32 = 1;
const KNOWN: u32 = 2;

/// The end of a member's wait.
pub enum Turn {
    /// The member's thread is the leader, and writes the batch.
    Lead,
    Done(Result<Seq, BatchError>),
}

impl Fate {
    /// Waits for the batch, as its member number `place`.
    pub fn wait(&self, place: usize, led: &Led) -> Turn {
        led.behind(|| self.waiting.until(place, || self.look(place)))
    }

    fn look(&self, place: usize) -> Option<Turn> {
        match self.stage.load(Ordering::Acquire) {
            UNKNOWN => None,
            HANDED => (place == 0).then_some(Turn::Lead),
            _ => {
                let outcome = self.outcome.get().expect("it is set before the stage says so");
                Some(Turn::Done(outcome.as_ref().map(|first| *first).map_err(BatchError::for_another)))
            }
        }
    }

    /// Reports the outcome to all members.
    fn tell(&self, outcome: Result<Seq, BatchError>) {
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
        self.unstaged = 0;
        match Arc::get_mut(&mut self.fate) {
            Some(fate) => *fate = Fate::default(),
            // A member has not read the outcome yet.
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
        !self.has_leader && self.next.members.is_empty()
    }
}

/// The tail's lock. Dropping it signals the threads that wait for its end.
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
    /// store-T3. No change joins while this waits.
    pub fn wait_still(mut self) -> Self {
        let tail = self.tail;
        let flight = self.flight.as_mut().expect("it is held until it is dropped");
        flight.wanting_still += 1;
        while !flight.is_empty() {
            tail.led.behind(|| tail.landed.wait(flight));
        }
        flight.wanting_still -= 1;
        self
    }
}

impl Held<'_> {
    /// store-T2: writes a batch of one thread's changes under the lock, while the tail is still.
    pub fn write_alone(
        &mut self,
        write: impl FnOnce(&mut Batch, &mut Vec<Run>) -> Result<Seq, BatchError>,
    ) -> Result<Seq, BatchError> {
        assert!(
            !self.has_leader && !self.next.members.is_empty(),
            "store-T2: the tail is still but for these changes"
        );
        let flight = &mut **self;
        let outcome = write(&mut flight.next, &mut flight.freed);
        flight.next.clear();
        outcome
    }
}

impl Tail {
    /// store-T3: holds the tail still until the result is dropped.
    pub fn still(&self) -> Held<'_> {
        self.hold().wait_still()
    }

    /// Changes that are not shared are written under the lock.
    fn lock(&self) -> MutexGuard<'_, Flight> {
        self.flight.try_lock().unwrap_or_else(|| self.led.behind(|| self.flight.lock()))
    }

    /// The lock, for a leader.
    pub fn hold(&self) -> Held<'_> {
        Held { tail: self, flight: Some(self.lock()) }
    }

    /// Ring bytes of the closed batch that is not in the log yet.
    pub fn writing_bytes(&self) -> u64 {
        self.writing_bytes.load(Ordering::Acquire)
    }

    /// The leader calls this once the log counts the batch itself, or after the write failed.
    pub fn note_written(&self) {
        self.writing_bytes.store(0, Ordering::Release);
    }

    /// The lock, for an overwrite that may join changes under way.
    pub fn join(&self) -> Held<'_> {
        let mut flight = self.lock();
        while flight.wanting_still > 0 || flight.next.entries.ring_bytes() >= BATCH_BYTES_MAX {
            flight.wanting_in += 1;
            self.led.behind(|| self.opened.wait(&mut flight));
            flight.wanting_in -= 1;
        }
        Held { tail: self, flight: Some(flight) }
    }

    /// Leads: writes `next`, and the batches that form meanwhile, `rounds` in all. `write` also applies the batch.
    pub fn lead<'a>(
        &'a self,
        mut held: Held<'a>,
        rounds: usize,
        mut write: impl FnMut(&mut Batch) -> Result<Seq, BatchError>,
    ) {
        held.has_leader = true;
        for _ in 0..rounds {
            // 1. Close the batch. Later changes join the next one.
            let mut batch = std::mem::take(&mut held.spare);
            assert!(batch.members.is_empty(), "a spare batch is empty");
            std::mem::swap(&mut batch, &mut held.next);
            assert!(!batch.members.is_empty(), "a leader has a batch to write");
            assert_eq!(self.writing_bytes(), 0, "one batch is written at a time");
            self.writing_bytes.store(batch.entries.ring_bytes(), Ordering::Release);
            let count = batch.members.len();
            assert_eq!(held.touched.len(), count, "store-T2: the pages of each change under way are known");
            drop(held);
            // 2. Write it, apply it, report its outcome.
            let outcome = write(&mut batch);
            batch.fate.tell(outcome);
            batch.clear();
            // 3. Go on with the next batch, if there is one.
            held = self.hold();
            held.touched.drain(..count);
            held.spare = batch;
            self.note_written();
            if held.next.members.is_empty() {
                held.has_leader = false;
                return;
            }
        }
        // This thread's own change is done, so another one leads from here on.
        held.next.fate.hand_role();
    }
}
