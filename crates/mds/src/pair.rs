//! The other member of this MDT's mirror, as the primary sees it (decision 0066).
//!
//! mds-RP1: an entry is logged by the primary, committed once the other member has it too, and only then applied, visible and answered.
//! mds-RP2: while an entry is logged and not committed, nothing else is logged, no request is served, and no checkpoint is written. The leader
//!     waits until the other member is back and has the entry, or until that member is declared out.
//! mds-RP3: "flushed" means flushed by both members. A member is paired only once it has flushed what was told as flushed before, so what
//!     clients are told never falls.
//!
//! An MDT without another member pays a load and a branch per entry, and the same per request and per reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use types::{Code, Epoch, Fault, Incarnation, Seq};
use wire::Request;
use wire::notice::Listen;
use wire::session::{KeepAlive, TargetStat};

use crate::Core;
use crate::executor::execute::{ExecutorState, Stop};

/// A log entry on its way to the other member.
#[derive(Clone, Copy, Debug)]
pub struct Shipped<'a> {
    pub epoch: Epoch,
    /// Of the primary.
    pub incarnation: Incarnation,
    pub first: Seq,
    pub ops: u32,
    pub payload: &'a [u8],
}

impl Shipped<'_> {
    /// The seq of its last operation.
    pub fn last(&self) -> Seq {
        Seq((self.first.0 + u64::from(self.ops)).saturating_sub(1))
    }
}

/// The other member. Its calls end, with a fault if need be.
pub trait Companion: Send + Sync {
    /// Takes the next entry. Returns its last seq, which acknowledges all entries so far. An entry that it has already is acknowledged again.
    fn append(&self, entry: &Shipped<'_>) -> Result<Seq, Fault>;
    /// Makes durable at least the entries up to `upto`. Returns its flushed seq.
    fn flush(&self, upto: Seq) -> Result<Seq, Fault>;
    /// The last seq that it has.
    fn last_seq(&self) -> Result<Seq, Fault>;
}

/// `flushed` of an MDT without another member.
const ALONE: u64 = u64::MAX;

pub struct Pair {
    other: Mutex<Other>,
    /// Signalled when `other` has changed.
    turned: Condvar,
    is_paired: AtomicBool,
    waits: AtomicBool,
    /// The other member has acknowledged all entries up to this seq.
    has: AtomicU64,
    /// The other member has flushed them up to this seq.
    flushed: AtomicU64,
    /// One flush of the other member serves all that wait for it.
    flushing: Mutex<()>,
    /// One change of membership at a time.
    changing: Mutex<()>,
    #[cfg(test)]
    late: Mutex<Option<(Seq, u32, Vec<u8>)>>,
}

#[derive(Default)]
struct Other {
    companion: Option<Arc<dyn Companion>>,
    /// Changes of `companion` so far.
    turn: u64,
    is_stopping: bool,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair {
            other: Mutex::default(),
            turned: Condvar::new(),
            is_paired: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            has: AtomicU64::new(0),
            flushed: AtomicU64::new(ALONE),
            flushing: Mutex::default(),
            changing: Mutex::default(),
            #[cfg(test)]
            late: Mutex::default(),
        }
    }
}

impl Pair {
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// The last seq that the other member is known to have; any seq while there is none.
    pub fn has(&self) -> Seq {
        Seq(self.has.load(Ordering::Acquire))
    }

    fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Acquire))
    }

    fn companion(&self) -> Option<Arc<dyn Companion>> {
        self.other.lock().companion.clone()
    }

    fn turn_to(&self, companion: Option<Arc<dyn Companion>>) {
        let mut other = self.other.lock();
        self.is_paired.store(companion.is_some(), Ordering::Release);
        other.companion = companion;
        other.turn += 1;
        self.turned.notify_all();
    }

    /// Ends a wait for the other member.
    pub fn stop(&self) {
        self.other.lock().is_stopping = true;
        self.turned.notify_all();
    }

    /// mds-RP2: returns once the other member has the entry, or there is no other member. Fails if the MDT stops before that.
    fn ship(&self, entry: &Shipped<'_>) -> Result<(), Fault> {
        let done = loop {
            let (companion, turn) = {
                let other = self.other.lock();
                let Some(companion) = &other.companion else { break Ok(()) };
                (companion.clone(), other.turn)
            };
            let fault = match companion.append(entry) {
                Ok(has) if has == entry.last() => {
                    self.has.store(has.0, Ordering::Release);
                    break Ok(());
                }
                Ok(has) => Fault::new(
                    Code::Stale,
                    format!("it has entries up to {has}, and {} is the last one", entry.last()),
                ),
                Err(fault) => fault,
            };
            tracing::warn!(seq = entry.first.0, %fault, "the MDT waits, since the other member of its mirror did not take a log entry");
            if let Err(fault) = self.wait(turn) {
                break Err(fault);
            }
        };
        self.waits.store(false, Ordering::Release);
        done
    }

    fn wait(&self, turn: u64) -> Result<(), Fault> {
        let mut other = self.other.lock();
        self.waits.store(true, Ordering::Release);
        while other.turn == turn {
            if other.is_stopping {
                return Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back"));
            }
            self.turned.wait(&mut other);
        }
        Ok(())
    }
}

impl Core {
    /// mds-RP1: called between append and apply.
    pub fn commit_at_both(&self, seat: &mut ExecutorState, first: Seq, ops: u32) -> Result<(), Stop> {
        if !self.pair.is_paired.load(Ordering::Acquire) {
            return Ok(());
        }
        let (epoch, incarnation) = (self.epoch(), self.incarnation);
        let entry = Shipped { epoch, incarnation, first, ops, payload: &seat.payload };
        #[cfg(test)]
        if planted::has(planted::Bug::AnswersEarly) {
            let late = self.pair.late.lock().replace((first, ops, seat.payload.clone()));
            if let (Some((first, ops, payload)), Some(companion)) = (late, self.pair.companion()) {
                let _ = companion.append(&Shipped { first, ops, payload: &payload, ..entry });
            }
            return Ok(());
        }
        self.pair.ship(&entry).map_err(|fault| {
            // The log has the entry, and the state must not: it may be cut. So this life ends here.
            (seat.closed, seat.is_behind) = (true, true);
            Stop::Refused(fault)
        })
    }

    /// mds-RP2: refuses all requests but those that only show that both sides live.
    pub fn check_committing(&self, call: u16) -> Result<(), Fault> {
        if !self.pair.waits() || matches!(call, KeepAlive::CALL | Listen::CALL | TargetStat::CALL) {
            return Ok(());
        }
        Err(Fault::new(Code::NotReady, "this MDT waits for the other member of its mirror; try again"))
    }

    /// mds-RP3: entries up to here are durable, at both members of a pair.
    pub fn flushed_seq(&self) -> Seq {
        let own = self.volume.flushed_seq();
        #[cfg(test)]
        if planted::has(planted::Bug::TellsTheLarger) {
            return own;
        }
        own.min(self.pair.flushed())
    }

    /// The last seq of the log; of a pair, the last one that both members have.
    pub fn committed_seq(&self) -> Seq {
        match self.pair.is_paired.load(Ordering::Acquire) {
            true => self.pair.has(),
            false => self.volume.last_seq(),
        }
    }

    /// Makes the own log durable, with an entry that waits.
    pub fn flush_own(&self) -> Result<Seq, Fault> {
        self.volume.flush().map_err(|e| self.volume_fault(e))
    }

    /// Makes durable what was committed so far, at both members.
    pub fn flush(&self) -> Result<Seq, Fault> {
        let want = self.pair.has();
        let own = self.flush_own()?;
        self.flush_other(want)?;
        Ok(own.min(self.pair.flushed()))
    }

    /// Has the other member flush at least the entries up to `want`, which it has.
    pub fn flush_other(&self, want: Seq) -> Result<(), Fault> {
        if self.pair.flushed() >= want {
            return Ok(());
        }
        let _one = self.pair.flushing.lock();
        let Some(companion) = self.pair.companion().filter(|_| self.pair.flushed() < want) else {
            return Ok(());
        };
        self.flush_at(&*companion, want)
    }

    fn flush_at(&self, companion: &dyn Companion, want: Seq) -> Result<(), Fault> {
        let flushed = companion.flush(want)?;
        if flushed < want {
            let why = format!("the other member of this MDT's mirror flushed up to {flushed}, not {want}");
            return Err(Fault::new(Code::NotReady, format!("{why}; try again")));
        }
        self.pair.flushed.fetch_max(flushed.0, Ordering::AcqRel);
        Ok(())
    }

    pub fn pair_with(&self, companion: Arc<dyn Companion>) -> Result<(), Fault> {
        let _one = self.pair.changing.lock();
        if self.pair.is_paired.load(Ordering::Acquire) {
            // The leader may wait, so leadership is not asked for. If this member lacks an entry it refuses the next one (mds-RP4).
            let _flushing = self.pair.flushing.lock();
            self.flush_at(&*companion, self.pair.flushed())?;
            self.pair.turn_to(Some(companion));
            return Ok(());
        }
        // An MDT without another member does not wait in `commit`. No entry comes between the comparison and the pairing.
        let seat = self.executor.lead();
        seat.check_open()?;
        let (own, theirs) = (self.volume.last_seq(), companion.last_seq()?);
        if own != theirs {
            let why = format!(
                "the other member of this MDT's mirror has entries up to {theirs}, this one up to {own}"
            );
            return Err(Fault::new(Code::Stale, format!("{why}; resync it")));
        }
        let flushed = companion.flush(own)?;
        if flushed < own {
            return Err(Fault::new(
                Code::NotReady,
                format!("the other member flushed up to {flushed}, not {own}; try again"),
            ));
        }
        self.pair.has.store(own.0, Ordering::Release);
        self.pair.flushed.store(flushed.0, Ordering::Release);
        self.pair.turn_to(Some(companion));
        Ok(())
    }

    pub fn go_on_alone(&self) -> Result<(), Fault> {
        let _one = self.pair.changing.lock();
        self.flush_own()?;
        self.pair.flushed.store(ALONE, Ordering::Release);
        self.pair.turn_to(None);
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
        KeepsIncarnation,
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
