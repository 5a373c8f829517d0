//! The mirror of this MDT, as the MDT sees it while it orders (decision 0066).
//!
//! mds-RP1: an entry is ordered, then logged by the primary, committed once each member that must have it has it, and only then applied,
//!     visible and answered. A refused order leaves no entry.
//! mds-RP2: while an entry is logged and not committed, nothing else is logged, and no checkpoint is written. Requests are refused while this
//!     member may not serve, or an entry is under way for too long. If the commit fails, this life of the MDT ends.
//! mds-RP10: a request that met a trouble of this member's medium is sent again, and not refused, if the other member takes over for that
//!     trouble (pair-S11, pair-S12). A leaf that cannot be read is such a trouble.
//! mds-RP3: "flushed" means flushed by each member that must have it. The number that clients are told never falls.
//!
//! An MDT without a mirror pays a load and a branch per entry, and the same per request and per reply.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pair::{Companion, Place, RecordPeer};
use parking_lot::Mutex;
use types::{Code, Epoch, Fault, Seq};
use wire::Request;
use wire::notice::Listen;
use wire::session::{KeepAlive, TargetStat};

use crate::Core;
use crate::executor::execute::{ExecutorState, Stop};

/// An entry that is under way for longer than this holds up other requests. They are refused from then on, so that they hold no threads.
pub const COMMIT_MS_MAX: u64 = 500;
/// Flush marks that may come between the order of an entry and its append.
const MARKS: u64 = 64;

/// Lines of a log with the first seq of each, both rising: the epochs under which its entries were ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<(Epoch, Seq)>);

impl Lines {
    /// More lines are more changes of the mirror than a log lasts. A history that begins later only costs a copy of the whole content.
    const MAX: usize = 128;

    /// Notes an entry. Only a higher epoch begins a line.
    pub fn note(&mut self, line: Epoch, first: Seq) {
        if self.newest().is_none_or(|newest| newest < line) {
            self.0.push((line, first));
            let surplus = self.0.len().saturating_sub(Lines::MAX);
            self.0.drain(..surplus);
        }
    }

    pub fn newest(&self) -> Option<Epoch> {
        self.0.last().map(|(line, _)| *line)
    }

    pub fn list(&self) -> Vec<(Epoch, Seq)> {
        self.0.clone()
    }
}

#[derive(Default)]
pub struct Pair {
    companion: OnceLock<Arc<dyn Companion>>,
    /// The other member, for comparisons.
    peer: OnceLock<Arc<dyn RecordPeer>>,
    /// One more than the time at which the entry under way was logged; 0: there is none.
    since_ms: AtomicU64,
    /// All entries up to this seq are committed.
    has: AtomicU64,
    /// mds-RP3: the highest flushed seq that was told, or may be.
    told: AtomicU64,
    /// One flush of the other member at a time.
    flushing: Mutex<()>,
    /// By the newest map another member is the primary.
    is_replaced: AtomicBool,
    #[cfg(test)]
    late: Mutex<Option<(Place, Vec<u8>)>>,
}

impl Pair {
    /// Of an MDT whose log ends at `last`, with all of it applied.
    pub fn of(companion: Option<Arc<dyn Companion>>, last: Seq) -> Pair {
        let pair = Pair::default();
        if let Some(companion) = companion {
            pair.begin(companion, last, Seq(0));
        }
        pair
    }

    fn begin(&self, companion: Arc<dyn Companion>, last: Seq, flushed: Seq) {
        self.has.store(last.0, Ordering::Release);
        self.told.store(flushed.0, Ordering::Release);
        assert!(self.companion.set(companion).is_ok(), "the mirror of an MDT begins once in a life");
    }

    fn companion(&self) -> Option<&dyn Companion> {
        self.companion.get().map(|companion| &**companion)
    }

    /// Once in a life.
    pub fn set_peer(&self, peer: Arc<dyn RecordPeer>) {
        let _ = self.peer.set(peer);
    }

    pub fn peer(&self) -> Option<Arc<dyn RecordPeer>> {
        self.peer.get().cloned()
    }

    pub fn is_mirrored(&self) -> bool {
        self.companion.get().is_some()
    }

    /// The last entry that is committed; 0 without a mirror.
    pub fn has(&self) -> Seq {
        Seq(self.has.load(Ordering::Acquire))
    }

    /// True while an entry is under way for too long.
    pub fn waits(&self, now_ms: u64) -> bool {
        match self.since_ms.load(Ordering::Acquire) {
            0 => false,
            since => (now_ms + 1).saturating_sub(since) >= COMMIT_MS_MAX,
        }
    }

    /// By the newest map, `is_replaced`: another member is the primary.
    pub fn note_map(&self, is_replaced: bool) {
        self.is_replaced.store(is_replaced, Ordering::Release);
    }
}

impl Core {
    /// mds-RP10: the fault that a client is told of.
    pub fn of_member(&self, fault: Fault) -> Fault {
        #[cfg(test)]
        if planted::has(planted::Bug::TellsTrouble) {
            return fault;
        }
        let is_of_medium = matches!(fault.code, Code::Io | Code::Damaged | Code::NoSpace);
        let hands_over = || self.pair.companion().is_some_and(|companion| companion.hands_over());
        match is_of_medium && self.volume.trouble().is_some() && hands_over() {
            true => Fault::new(Code::NotReady, fault.detail),
            false => fault,
        }
    }

    /// mds-RP1: the place of the entry in `seat.payload`, before it is appended; `None` without a mirror.
    pub fn order(&self, seat: &mut ExecutorState, ops: u32) -> Result<Option<Place>, Stop> {
        let Some(companion) = self.pair.companion() else { return Ok(None) };
        // An entry that is ordered must be appended, so the log has room for it before.
        let used = self.volume.log_used();
        if !self.volume.has_room(seat.payload.len(), MARKS) {
            return Err(Stop::LogFull { used });
        }
        let place = match seat.place.take() {
            None => companion.order(ops)?,
            Some(kept) if kept.last.0 - kept.first.0 + 1 == u64::from(ops) => kept,
            Some(kept) => {
                seat.closed = true;
                let why = format!(
                    "the place {kept:?} was given to an entry of another length; this MDT stops, and is to be opened anew"
                );
                return Err(Fault::new(Code::NotReady, why).into());
            }
        };
        assert_eq!(place.first.0, self.volume.last_seq().0 + 1, "the mirror's sequence is the log's");
        assert_eq!(place.last.0, place.first.0 + u64::from(ops) - 1, "a place has a seq per operation");
        // Until it is appended: a log that is full after all keeps the place for the next attempt.
        seat.place = Some(place);
        Ok(Some(place))
    }

    /// mds-RP1: called between append and apply.
    pub fn commit_at_both(&self, seat: &mut ExecutorState, place: Option<Place>) -> Result<(), Stop> {
        let (Some(place), Some(companion)) = (place, self.pair.companion()) else { return Ok(()) };
        #[cfg(test)]
        if planted::has(planted::Bug::AnswersEarly) {
            let late = self.pair.late.lock().replace((place, seat.payload.clone()));
            if let Some((place, payload)) = late {
                let _ = companion.commit(place, &payload);
            }
            return Ok(());
        }
        self.pair.since_ms.store(self.clock.boot_ms() + 1, Ordering::Release);
        let done = companion.commit(place, &seat.payload);
        self.pair.since_ms.store(0, Ordering::Release);
        if let Err(fault) = done {
            tracing::warn!(seq = place.first.0, %fault, "this MDT stops, since its mirror did not commit a log entry; it is opened anew");
            // The log has the entry, and the state must not: it may be cut. So this life ends here.
            (seat.closed, seat.is_behind) = (true, true);
            return Err(Stop::Refused(fault));
        }
        self.pair.has.store(place.last.0, Ordering::Release);
        Ok(())
    }

    /// mds-RP2: refuses all requests but those that only show that both sides live.
    pub fn check_mirror(&self, call: u16) -> Result<(), Fault> {
        if matches!(call, KeepAlive::CALL | Listen::CALL | TargetStat::CALL) || self.may_serve() {
            return Ok(());
        }
        match self.pair.is_replaced.load(Ordering::Acquire) {
            // The client fetches the map.
            true => Err(Fault::new(
                Code::Moved,
                "another member of this MDT's mirror is its primary now; fetch the map, and try again there",
            )),
            false => Err(Fault::new(Code::NotReady, "this MDT waits for its mirror; try again")),
        }
    }

    /// False while this member of a mirror must not answer from its state, or an entry is under way for too long.
    pub fn may_serve(&self) -> bool {
        let Some(companion) = self.pair.companion() else { return true };
        companion.serves() && !self.pair.waits(self.clock.boot_ms())
    }

    /// mds-RP3: entries up to here are durable, at each member of a mirror that must have them.
    pub fn flushed_seq(&self) -> Seq {
        let own = self.volume.flushed_seq();
        let Some(companion) = self.pair.companion() else { return own };
        #[cfg(test)]
        if planted::has(planted::Bug::TellsTheLarger) {
            return own;
        }
        let (now, told) = (own.min(companion.flushed()).0, self.pair.told.load(Ordering::Acquire));
        if now > told { Seq(self.pair.told.fetch_max(now, Ordering::AcqRel).max(now)) } else { Seq(told) }
    }

    /// The last seq of the log; of a mirror, the last one that is committed.
    pub fn committed_seq(&self) -> Seq {
        match self.pair.companion() {
            Some(_) => self.pair.has(),
            None => self.volume.last_seq(),
        }
    }

    /// Makes the own log durable, with an entry that is not committed yet.
    pub fn flush_own(&self) -> Result<Seq, Fault> {
        self.volume.flush().map_err(|e| self.volume_fault(e))
    }

    /// Makes durable what was committed so far, at each member that must have it.
    pub fn flush(&self) -> Result<Seq, Fault> {
        let want = self.pair.has();
        self.flush_own()?;
        self.flush_other(want)?;
        Ok(self.flushed_seq())
    }

    /// Has the other member flush at least the entries up to `want`. They are committed, and the own log has been flushed up to there.
    pub fn flush_other(&self, want: Seq) -> Result<(), Fault> {
        let Some(companion) = self.pair.companion() else { return Ok(()) };
        if companion.flushed() < want {
            // One flush of the other member serves all that wait for it.
            let _one = self.pair.flushing.lock();
            if companion.flushed() < want {
                companion.flush(want)?;
            }
        }
        assert!(want <= self.volume.flushed_seq(), "the own log is flushed first");
        self.pair.told.fetch_max(want.0, Ordering::AcqRel);
        Ok(())
    }

    /// An MDT without a mirror gets one. `begin` gets the lines of the log and its last seq; no entry comes until the companion orders.
    pub fn set_companion(
        &self,
        begin: impl FnOnce(Vec<(Epoch, Seq)>, Seq) -> Result<Arc<dyn Companion>, Fault>,
    ) -> Result<(), Fault> {
        let seat = self.executor.lead();
        seat.check_open()?;
        if self.pair.companion().is_some() {
            return Err(Fault::new(Code::Invalid, "this MDT has its place in a mirror already; restart it"));
        }
        // mds-E5, the exception: all that was told as flushed stays below what the mirror tells.
        let flushed = self.flush_own()?;
        let last = self.volume.last_seq();
        assert_eq!(flushed, last, "no entry comes while this thread leads");
        self.pair.begin(begin(seat.lines.list(), last)?, last, flushed);
        Ok(())
    }
}

/// Faults that stories must find. They hold for the thread that plants one.
#[cfg(test)]
pub mod planted {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bug {
        /// An entry is shipped after its answer, with the next one.
        AnswersEarly,
        /// An entry is visible before it is shipped.
        AppliesEarly,
        /// "Flushed" means flushed by the primary.
        TellsTheLarger,
        TakesGaps,
        /// A standby's checkpoint runs on the thread that appends.
        ChecksInline,
        /// A standby compares a state of other entries.
        ComparesAnyState,
        KeepsIncarnation,
        /// A client is told of a medium's trouble though the other member takes over.
        TellsTrouble,
    }

    thread_local! {
        static BUG: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub fn has(bug: Bug) -> bool {
        BUG.get() == Some(bug)
    }

    /// True if `story` fails with this fault.
    pub fn is_found(bug: Bug, story: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        BUG.set(Some(bug));
        let failed = std::panic::catch_unwind(story).is_err();
        BUG.set(None);
        failed
    }
}
