//! The executor: it carries out mutating requests, several per log entry.
//!
//! ```text
//!   1 slot: was it carried out already?      2 ids: are enough reserved?    3 the rule, over snapshot + batch + its own changes
//!   4 free space: may the table grow?        5 one log entry, committed     6 apply, publish, update the slots, report outcomes
//! ```
//! The leader of the combining lock (`combining.rs`) does steps 1 to 4 for one request after the other, and steps 5 and 6 once for the batch.
//!
//! mds-E1: no result of a batch is visible or reported before its entry is in the log. That holds for refusals too: a refusal may rest on
//!     a change of the same batch.
//! mds-E2: the log has all of a batch or none of it.
//! mds-E3: the order in which rules run is the order of the seqs.
//! mds-E4: a request that is refused or must wait leaves nothing in the batch.
//! mds-E5: the leader does no read, no flush and no request to another server but the mirror's other member; it only appends to the log. A checkpoint of a full log, a reservation of ids and records that are not in
//!     memory are waited for by the request's own thread, which then starts over.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::volume::VolumeError;
use kv::{Absent, Engine};
use meta::Note;
use meta::counts::Pending;
use pair::Place;
use spent::Spent;
use types::{Code, Epoch, Fault, Fid, Seq, SessionId};
use wire::meta::{Grow, Truncate};
use wire::{Header, Request};

use crate::Core;
use crate::executor::ask::{Ask, OwnAsk};
use crate::executor::call::{lets_objects_change, refuse_late};
use crate::executor::combining::{self, Turn};
use crate::executor::draft::{Draft, to_batch};
use crate::executor::slots::{Last, Slots, Verdict};
use crate::joined::Joined;
use crate::pair::Lines;
#[cfg(test)]
use crate::pair::planted;
use crate::records::ids::Ids;
use crate::records::ledger::Changelog;
use crate::records::look::{Trouble, until_loaded};
use crate::records::overlay::{Layer, Overlay};
use crate::records::record::{self, Member, Origin};
use crate::reply::Done;
use crate::sessions::leases::{Bars, Forgot, Recall};
use crate::sessions::shared::Doom;

/// State that only the leader touches.
pub struct ExecutorState {
    pub slots: Slots,
    /// Count changes of directories that are not in their records yet.
    pub counts: Pending,
    pub ids: Ids,
    pub changelog: Changelog,
    /// The volume is closed or closing, so nothing may be appended.
    pub closed: bool,
    /// The last entry was not committed: the log has that entry, and the state does not.
    pub is_behind: bool,
    /// The place of an entry that was ordered and not appended.
    pub place: Option<Place>,
    /// The lines of the log since the start.
    pub lines: Lines,
    /// The buffer of the last entry, reused for the next.
    pub payload: Vec<u8>,
}

pub type Executor = combining::CombiningLock<ExecutorState, OwnAsk, Result<Carried, Stop>>;
pub type Leader<'a> = combining::Leadership<'a, ExecutorState, OwnAsk, Result<Carried, Stop>>;
type Job = combining::Job<OwnAsk, Result<Carried, Stop>>;

/// The outcome, and what the request's own thread has to do before it answers.
#[derive(Debug)]
pub struct Carried {
    pub done: Done,
    /// mds-M7: the reply lets the client change objects, and the entry behind it may not be flushed.
    pub must_flush: bool,
    /// It was carried out before, so the state may have changed since.
    pub is_repeat: bool,
}

/// Changes that other sessions must be told of before this one: each may meet a state that touches more.
const RECALLS_MAX: u32 = 16;
/// Attempts of a request that finds the log full or ids short, before its client is asked to try again. Each retry follows a
/// checkpoint or a reservation, so a third attempt means that other requests took the space at once.
const ATTEMPTS_MAX: u32 = 8;
/// Most operations of an entry.
const OPS_MAX: usize = 64;
/// Batches that a leader runs for other threads before it hands leadership over.
const ROUNDS_MAX: usize = 8;
/// A batch whose rules read this many records takes no more operations. That is about 7 ms, or 64 operations of 256 records. A rename
/// reads every directory above its new place.
pub const LOOKS_MAX: u64 = 16_384;
/// An entry of this length takes no more operations. It is written in well below a millisecond.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Why a request has no outcome yet, or is refused.
#[derive(Clone, Debug)]
pub enum Stop {
    Refused(Fault),
    /// `used`: bytes of the log at that time.
    LogFull {
        used: u64,
    },
    NoIds,
    /// A record that the rule needs is not in memory.
    Absent(Absent),
    /// Other sessions may have cached what the request changes. Its bars stand.
    Leased(Arc<(Recall, Bars)>),
    /// Another session than this one makes and removes files in this directory before the MDT hears of it (mds-Z1).
    Made(Fid, SessionId),
}

impl From<Fault> for Stop {
    fn from(f: Fault) -> Stop {
        Stop::Refused(f)
    }
}

impl Stop {
    /// The fault for a caller that does not start over.
    pub fn fault(self) -> Fault {
        match self {
            Stop::Refused(fault) => fault,
            Stop::LogFull { .. } => Fault::new(Code::NotReady, "the MDT's log is full; try again"),
            Stop::NoIds => Trouble::NoIds.into(),
            Stop::Absent(what) => Trouble::Absent(what).into(),
            Stop::Leased(_) | Stop::Made(..) => Fault::new(
                Code::NotReady,
                "other clients cache what this request changes, and go on to do so; try again",
            ),
        }
    }
}

impl From<Trouble> for Stop {
    fn from(t: Trouble) -> Stop {
        match t {
            Trouble::Absent(what) => Stop::Absent(what),
            _ => Stop::Refused(t.into()),
        }
    }
}

/// State of a request before its batch is in the log.
enum Reached {
    /// It joined the batch as operation `place`.
    Member { place: usize, reply: Arc<[u8]>, must_flush: bool },
    /// An outcome that may rest on changes of the batch, so it counts only if the batch is logged.
    Found(Result<Carried, Stop>),
    /// An outcome that does not depend on the batch.
    Known(Result<Carried, Stop>),
    /// It waits for the next batch, since this one has a request of the same slot.
    SlotTaken,
    /// The batch is full. This request and all behind it wait for the next batch.
    Full,
}

/// A rule without its transaction. It may run several times, over transactions that were dropped.
pub type Rule<'r> = &'r mut dyn FnMut(&mut Overlay<'_>) -> Result<Vec<u8>, Fault>;

impl Core {
    /// Carries out a request as part of one log entry. A request that was carried out before gets the reply in its slot.
    pub fn carry_out(&self, ask: Ask<'_>, joined: &Joined) -> Result<Carried, Fault> {
        self.until_forgotten(&mut |forgot| {
            let ask = Ask { forgot, ..ask };
            match self.executor.enter(ask.head.session, || ask.to_own()) {
                Turn::Done(outcome) => outcome,
                Turn::Lead(held) => self.lead(held, ask, joined),
            }
        })
    }

    /// Repeats `attempt`, and waits between two for other sessions to forget what it changes (mds-L3).
    fn until_forgotten<T>(&self, attempt: &mut dyn FnMut(&Forgot) -> Result<T, Stop>) -> Result<T, Fault> {
        // The bars stand until the change is published.
        let (mut forgot, mut bars) = (Forgot::new(), Vec::new());
        for _ in 0..RECALLS_MAX {
            match self.until_settled(&mut || attempt(&forgot))? {
                Err(Stop::Leased(held)) => {
                    self.recall(&held.0, &mut forgot)?;
                    bars.push(held);
                }
                Err(Stop::Made(dir, session)) => self.recall_dir(dir, session)?,
                done => return done.map_err(Stop::fault),
            }
        }
        Err(Fault::new(Code::NotReady, "other clients cache what this request changes; try again"))
    }

    /// As `carry_out`, for several requests of one frame. They are queued together, so that they can share an entry.
    pub fn carry_out_all(
        &self,
        session: SessionId,
        asks: Vec<OwnAsk>,
        joined: &Joined,
    ) -> Vec<Result<Carried, Fault>> {
        let (jobs, held) = self.executor.enqueue(session, asks);
        if let Some(mut held) = held {
            self.do_for_others(&mut held, joined);
        }
        // In the order of the queue: this thread may become the leader, and must not wait for a job behind its own.
        let outcomes: Vec<_> = jobs
            .iter()
            .map(|job| match self.executor.await_turn(job) {
                Turn::Done(outcome) => outcome,
                Turn::Lead(held) => self.lead(held, job.ask.as_ask(), joined),
            })
            .collect();
        drop(self.fold_counts());
        self.make_room_for_changes();
        // A request that must start over does so by itself.
        let end = |(job, outcome): (&Arc<Job>, _)| match outcome {
            Ok(carried) => Ok(carried),
            Err(Stop::Refused(fault)) => Err(fault),
            Err(Stop::LogFull { .. } | Stop::NoIds | Stop::Absent(_) | Stop::Leased(_) | Stop::Made(..)) => {
                self.carry_out(job.ask.as_ask(), joined)
            }
        };
        assert_eq!(jobs.len(), outcomes.len(), "mds-W2: each job has one outcome");
        jobs.iter().zip(outcomes).map(end).collect()
    }

    /// Carries out an internal change as an entry of its own, without a slot. The rule sets `lease_high` when it draws a lease number.
    pub fn transact(&self, lease_high: &Cell<u32>, rule: Rule<'_>) -> Result<Done, Fault> {
        self.until_forgotten(&mut |forgot| {
            // Declared first, so that it is freed after the hand-over: it may be the last reference to the state that is replaced.
            let snap;
            let mut seat = self.executor.lead();
            seat.check_ready()?;
            snap = self.kv.snapshot();
            let (mut draft, bars) = (Draft::new(&snap), Bars::new(&self.leases));
            let Ran { reply, mut changes, notes } = run(&draft, &mut seat, lease_high, rule)?;
            self.room.check(&draft, &seat.slots, &changes)?;
            self.check_leases(SessionId(0), &draft, &changes, &bars, forgot)?;
            draft.died = self.died_of(&changes);
            let now = self.clock.wall();
            changes.extend(seat.changelog.records(&mut draft.noted, now, SessionId(0), notes));
            draft.changes = changes;
            let seq = self.commit(&mut seat, draft)?;
            Ok(Done { reply: reply.into(), seq })
        })
    }

    /// Repeats `attempt`, after removing what stopped it, until it succeeds or is refused.
    pub fn until_done<T>(&self, attempt: &mut dyn FnMut() -> Result<T, Stop>) -> Result<T, Fault> {
        self.until_settled(attempt)?.map_err(Stop::fault)
    }

    /// As `until_done`. `Ok(Err)`: other sessions must forget something first.
    fn until_settled<T>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, Stop>,
    ) -> Result<Result<T, Stop>, Fault> {
        for _ in 0..ATTEMPTS_MAX {
            match self.until_here(attempt)? {
                Ok(done) => {
                    // The request is done. A failure here is found again by the next fold.
                    drop(self.fold_counts());
                    self.make_room_for_changes();
                    return Ok(Ok(done));
                }
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(Stop::NoIds) => self.reserve_ids()?,
                Err(stop @ (Stop::Leased(_) | Stop::Made(..))) => return Ok(Err(stop)),
                Err(stop) => return Err(stop.fault()),
            }
        }
        Err(Fault::new(
            Code::NotReady,
            "the MDT's log or ids are used up faster than they are renewed; try again",
        ))
    }

    /// Repeats `attempt` until all records that it needs are in memory. These repeats do not count as attempts; they have their own bound.
    pub fn until_here<T>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, Stop>,
    ) -> Result<Result<T, Stop>, Fault> {
        until_loaded(&self.kv, &mut || match attempt() {
            Err(Stop::Absent(what)) => Err(Trouble::Absent(what)),
            outcome => Ok(outcome),
        })
    }

    /// Runs the leader's own request together with queued ones, then further queued ones.
    fn lead(&self, mut held: Leader<'_>, ask: Ask<'_>, joined: &Joined) -> Result<Carried, Stop> {
        let jobs = held.take(OPS_MAX - 1);
        let own = self.batch(&mut held, Some(ask), jobs, joined);
        self.do_for_others(&mut held, joined);
        drop(held);
        own.expect("a leader with a request has an outcome")
    }

    /// Runs queued requests for at most `ROUNDS_MAX` batches.
    fn do_for_others(&self, held: &mut Leader<'_>, joined: &Joined) {
        for _ in 0..ROUNDS_MAX {
            let jobs = held.take(OPS_MAX);
            if jobs.is_empty() {
                break;
            }
            self.batch(held, None, jobs, joined);
        }
    }

    /// Runs requests, writes their changes as one entry, reports the outcomes of `jobs`, and returns the outcome of `own`.
    fn batch(
        &self,
        held: &mut Leader<'_>,
        own: Option<Ask<'_>>,
        mut jobs: Vec<Arc<Job>>,
        joined: &Joined,
    ) -> Option<Result<Carried, Stop>> {
        let (snap, before) = (self.kv.snapshot(), Spent::now());
        let mut draft = Draft::new(&snap);
        // meta-H2: pending-unlink marks stay until the entry is applied or abandoned.
        let doom = Doom::new(&self.sharers);
        // mds-L2: and so do the bars.
        let bars = Bars::new(&self.leases);
        let around = (joined, &doom, &bars);
        // 1. The rules, one after the other.
        let own = own.map(|ask| self.step(held, &mut draft, ask, around));
        let mut reached = Vec::with_capacity(jobs.len());
        let (mut back, mut is_full): (Vec<Arc<Job>>, _) = (Vec::new(), false);
        // After `SlotTaken` only later jobs of that session are put back; after `Full`, all later jobs.
        jobs.retain(|job| {
            if !is_full && !back.iter().any(|b| b.session() == job.session()) {
                match self.step(held, &mut draft, job.ask.as_ask(), around) {
                    Reached::SlotTaken => {}
                    Reached::Full => is_full = true,
                    step => {
                        reached.push(step);
                        return true;
                    }
                }
            }
            back.push(job.clone());
            false
        });
        held.put_back(back);
        // 2. The entry.
        let written = self.commit(held, draft);
        // 3. mds-E1: outcomes are final now.
        let outcome = |step| match (step, &written) {
            (Reached::Known(outcome), _) | (Reached::Found(outcome), Ok(_)) => outcome,
            (Reached::Member { place, reply, must_flush }, Ok(first)) => {
                assert!(first.0 > 0, "mds-M2: a member's entry has a seq");
                let done = Done { reply, seq: Seq(first.0 + place as u64) };
                Ok(Carried { done, must_flush, is_repeat: false })
            }
            (_, Err(stop)) => Err(stop.clone()),
            (Reached::SlotTaken | Reached::Full, Ok(_)) => {
                unreachable!("the first request of a batch always fits, and later ones were put back")
            }
        };
        let own = own.map(outcome);
        assert_eq!(jobs.len(), reached.len(), "mds-W2: each job that was not put back has one outcome");
        let waited = Spent::since(before);
        for (job, step) in jobs.iter().zip(reached) {
            job.finish(outcome(step), &waited);
        }
        own
    }

    /// Steps 1 to 4 for one request. A request that does not become a member leaves no change in the batch; it may use up
    /// ids and count reads.
    fn step(
        &self,
        seat: &mut ExecutorState,
        draft: &mut Draft<'_>,
        ask: Ask<'_>,
        (joined, doom, bars): (&Joined, &Doom<'_>, &Bars),
    ) -> Reached {
        let Header { call, session, slot, sequence, .. } = *ask.head;
        // Sequence 0: the request is idempotent by the client's word, and uses no slot.
        let origin = (sequence != 0).then_some(Origin { session, slot, sequence });
        match self.admit(seat, draft, ask.head, origin.as_ref()) {
            Ok(None) if self.was_abandoned(ask.head) => return Reached::Known(Err(refuse_late().into())),
            Ok(None) => {}
            Ok(Some(reached)) => {
                // meta-H2: a repeated open counts as open too. The MDT may have restarted since the first answer.
                if let Reached::Known(Ok(Carried { done, .. })) = &reached
                    && !done.reply.is_empty()
                {
                    self.note_open(ask, &done.reply);
                }
                return reached;
            }
            Err(stop) => return Reached::Known(Err(stop)),
        }
        if let Err(fault) = self.check_opens(ask) {
            return Reached::Known(Err(fault.into()));
        }
        // Reads of refused requests count too. The first request of a batch always runs.
        if draft.looks.get() >= LOOKS_MAX {
            return Reached::Full;
        }
        let (lease_high, puts_inode) = (Cell::new(0), Cell::new(false));
        let space = self.room.space(draft.table_bytes());
        // Space that the batch frees counts only once it is applied, so the request waits instead of being refused.
        if space.is_full && !draft.members.is_empty() {
            return Reached::Full;
        }
        let ran = run(draft, seat, &lease_high, &mut |txn| {
            let reply = self.mutate(ask, (joined, space, doom), &lease_high, txn)?;
            puts_inode.set(txn.put_keys().any(|key| key.as_bytes()[0] == meta::keys::INODE));
            Ok(reply)
        });
        let Ran { reply, mut changes, notes } = match ran {
            Ok(ran) => ran,
            Err(stop) => return Reached::Found(Err(stop)),
        };
        let reply = Arc::<[u8]>::from(reply);
        let lets_change = lets_objects_change(call, &reply);
        if changes.is_empty() {
            self.note_open(ask, &reply);
            // No slot is needed: a repeat gives the same answer. mds-M7: the answer may rest on an unflushed entry of another request, in
            // this batch or an earlier one.
            let must_flush = lets_change && (draft.lets_change || self.is_change_unflushed());
            let done = Done { reply, seq: Seq(0) };
            return Reached::Found(Ok(Carried { done, must_flush, is_repeat: false }));
        }
        match self.room.check(draft, &seat.slots, &changes) {
            Err(_) if !draft.members.is_empty() => return Reached::Full,
            Err(stop) => return Reached::Found(Err(stop)),
            Ok(()) => {}
        }
        // After the check: change records find their space by trimming (mds-C4), so that they never block a request that deletes.
        let mut noted = draft.noted;
        if !notes.is_empty() {
            changes.extend(seat.changelog.records(&mut noted, self.clock.wall(), session, notes));
        }
        if !draft.has_room(&reply, &changes, self.entry_bytes_max()) {
            return Reached::Full;
        }
        // mds-E5: asked per request, so that only the request that misses a record starts over.
        if let Err(what) = self.kv.admits(changes.keys()) {
            return Reached::Known(Err(Stop::Absent(what)));
        }
        if let Err(stop) = self.check_leases(session, draft, &changes, bars, ask.forgot) {
            return Reached::Known(Err(stop));
        }
        draft.noted = noted;
        self.note_open(ask, &reply);
        // A migration that found no space leaves a dead layout each time. It does not count, or retries alone would hurry the purge.
        draft.died += if call == Grow::CALL { 0 } else { self.died_of(&changes) };
        // A second open may change no more than a time of the file, and then lets no object change.
        let begins_change = lets_change && (puts_inode.get() || matches!(call, Truncate::CALL | Grow::CALL));
        draft.lets_change |= begins_change;
        let must_flush = lets_change && (draft.lets_change || self.is_change_unflushed());
        let place = draft.add(Member { call, origin, reply: reply.clone() }, changes);
        Reached::Member { place, reply, must_flush }
    }

    /// mds-M7: true if an entry that let a client change objects may be unflushed.
    fn is_change_unflushed(&self) -> bool {
        self.flushed_seq().0 < self.change_let_by.load(Ordering::Relaxed)
    }

    /// Steps 1 and 2. `None`: the request is new.
    fn admit(
        &self,
        seat: &ExecutorState,
        draft: &Draft<'_>,
        head: &Header,
        origin: Option<&Origin>,
    ) -> Result<Option<Reached>, Stop> {
        if let Some(origin) = origin {
            seat.check_open()?;
            // A repeat is recognised only by logged entries, so a batch has one request per slot.
            if draft.has_slot_of(origin) {
                return Ok(Some(Reached::SlotTaken));
            }
            let (reply, seq) = match seat.slots.admit(origin)? {
                Verdict::New => return seat.check_ready().map(|()| None),
                Verdict::Repeat(Last { reply, seq, .. }) => (reply, seq),
                Verdict::Old(seq) => (Arc::from([]), seq),
            };
            // The first copy's entry may not be flushed yet, so the repeat flushes too.
            let must_flush = lets_objects_change(head.call, &reply);
            let carried = Carried { done: Done { reply, seq }, must_flush, is_repeat: true };
            return Ok(Some(Reached::Known(Ok(carried))));
        }
        seat.slots.check_session(head.session)?;
        seat.check_ready().map(|()| None)
    }

    /// Steps 5 and 6: appends one entry and applies it. Returns the seq of its first operation; 0 if the draft has no change.
    pub fn commit(&self, seat: &mut ExecutorState, draft: Draft<'_>) -> Result<Seq, Stop> {
        seat.check_open()?;
        let Draft { snap, members, changes, died, lets_change, noted, .. } = draft;
        if changes.is_empty() {
            return Ok(Seq(0));
        }
        let mut changes = to_batch(changes);
        let learned = self.learn_counts(&seat.counts, &mut changes)?;
        // mds-E5: a logged entry must be applicable, so all records that it changes are in memory. Each member asked for its own in its step;
        // counts were just read. No record leaves memory before `apply`: eviction needs leadership, and the mover keeps them (kv-M4).
        if members.is_empty() {
            self.kv.admits(changes.keys()).map_err(Stop::Absent)?;
        }
        assert!(members.len() <= OPS_MAX, "an entry has OPS_MAX operations at most");
        let is_new = |o: &Origin| matches!(seat.slots.admit(o), Ok(Verdict::New));
        debug_assert!(
            members.iter().filter_map(|m| m.origin.as_ref()).all(is_new),
            "mds-M4: sequences of a slot rise"
        );
        record::encode(&members, &changes, &mut seat.payload);
        let ops = record::ops_of(&members);
        debug_assert!(
            record::decode(&seat.payload)
                .is_ok_and(|r| r.members == members && r.changes.0.len() == changes.0.len()),
            "an entry reads back as it was written"
        );
        let place = self.order(seat, ops)?;
        let line = place.map_or_else(|| self.epoch(), |place| place.line);
        let first = match self.volume.append_ops(line, &seat.payload, ops) {
            Ok(seq) => seq,
            Err(VolumeError::LogFull { used, .. }) => return Err(Stop::LogFull { used }),
            Err(e) => return Err(self.volume_fault(e).into()),
        };
        seat.place = None;
        assert!(place.is_none_or(|place| place.first == first), "an entry is appended at its place");
        seat.lines.note(line, first);
        assert!(first > snap.seq(), "mds-M1: an entry follows the state that its rules read");
        assert!(first.0 > self.change_let_by.load(Ordering::Relaxed), "mds-M1: seqs rise");
        #[cfg(test)]
        if planted::has(planted::Bug::AppliesEarly) {
            self.kv.apply(Seq(first.0 + u64::from(ops) - 1), changes.clone());
        }
        self.commit_at_both(seat, place)?;
        seat.slots.apply(&members, first, &changes);
        self.note_orphans(&changes);
        self.room.note_slots(&seat.slots);
        seat.counts.add(learned);
        assert!(
            ops as usize == members.len().max(1),
            "an entry has an operation per member, or one of its own"
        );
        let last = Seq(first.0 + u64::from(ops) - 1);
        // The flusher may have appended a mark meanwhile.
        assert!(last <= self.volume.last_seq(), "mds-M2: the entry is in the log before it is visible");
        if lets_change {
            // Before the change is visible.
            self.change_let_by.store(last.0, Ordering::Release);
        }
        self.counts_long.store(seat.counts.is_long(), Ordering::Relaxed);
        let removed = changes.0.iter().filter(|change| change.value.is_none());
        let removed: Vec<_> = removed.filter_map(|change| meta::keys::fid_of_inode(&change.key)).collect();
        removed.iter().for_each(|fid| self.makers.gone(*fid));
        self.leases.gone(removed.into_iter());
        self.publish(snap, last, changes);
        if noted.records > 0 {
            seat.changelog.add(noted, last, self.flushed_seq());
            if self.changes_are_too_long(seat.changelog.bytes()) {
                self.changes_long.store(true, Ordering::Relaxed);
            }
        }
        self.purged.on_died(died);
        if seat.ids.are_low() {
            self.bells.flush.ring();
        }
        if self.log_is_half_full() {
            self.bells.checkpoint.ring();
        }
        Ok(first)
    }

    fn died_of(&self, changes: &Layer) -> usize {
        changes.iter().filter(|(key, value)| value.is_some() && self.rules.is_dead(key)).count()
    }

    /// Most bytes of an entry. The log of a small volume must hold several.
    fn entry_bytes_max(&self) -> usize {
        ENTRY_BYTES_MAX.min(self.volume.payload_bytes_max() / 4)
    }

    /// Reserves the next block of every counter that is low: entry, flush, then use (mds-O5).
    pub fn reserve_ids(&self) -> Result<(), Fault> {
        let _one = self.reserving.lock();
        for _ in 0..ATTEMPTS_MAX {
            let reserved = self.until_here(&mut || {
                let snap = self.kv.snapshot();
                let mut seat = self.executor.lead();
                seat.check_open()?;
                if !seat.ids.are_low() && seat.ids.are_enough() {
                    return Ok(None);
                }
                let (changes, promise) = seat.ids.promise()?;
                let mut draft = Draft::new(&snap);
                draft.changes = changes.0.into_iter().map(|c| (c.key, c.value)).collect();
                self.commit(&mut seat, draft).map(|_| Some(promise))
            })?;
            match reserved {
                Ok(None) => return Ok(()),
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(stop) => return Err(stop.fault()),
                Ok(Some(promise)) => {
                    self.flush()?;
                    self.executor.lead().ids.keep(promise);
                    return Ok(());
                }
            }
        }
        Err(Fault::new(Code::NotReady, "the MDT's log is full; try again"))
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// mds-M7: makes every entry durable that let a client change objects. Call it before such a reply leaves.
    pub fn flush_let_changes(&self) -> Result<(), Fault> {
        // Acquire: the flush below sees that entry in the log.
        let let_by = self.change_let_by.load(Ordering::Acquire);
        let flushed = self.flush()?;
        assert!(let_by <= flushed.0, "mds-M7: the entry is flushed before the reply leaves");
        Ok(())
    }

    /// The fault for a failed volume operation, logged as an error: a volume that failed stays failed, and an operator must look at it.
    pub fn volume_fault(&self, e: VolumeError) -> Fault {
        let label = self.volume.label();
        let fault = Fault::from(e);
        tracing::error!(fs = label.fs_name, index = label.index, %fault, "the MDT's volume failed; look at its medium and `stria status`");
        Fault::new(fault.code, format!("MDT {} of {}: {}", label.index, label.fs_name, fault.detail))
    }

    /// Stops serving, after the present leader. A clean close writes a checkpoint of everything and the clean mark.
    pub fn close(&self, clean: bool) -> Result<(), Fault> {
        let was_closed = std::mem::replace(&mut self.executor.lead().closed, true);
        self.stopping.store(true, Ordering::Release);
        if was_closed || !clean {
            return Ok(());
        }
        if self.pair.is_mirrored() {
            self.hold_all();
        }
        self.checkpoint_now()?;
        self.volume.close_clean().map_err(|e| self.volume_fault(e))
    }
}

/// The result of a rule: its reply, its changes on top of the draft's, and its change records.
struct Ran {
    reply: Vec<u8>,
    changes: Layer,
    notes: Vec<Note>,
}

/// Step 3.
fn run(
    draft: &Draft<'_>,
    seat: &mut ExecutorState,
    lease_high: &Cell<u32>,
    rule: Rule<'_>,
) -> Result<Ran, Stop> {
    let mask = seat.changelog.mask();
    let mut txn = Overlay::new(draft.snap, &draft.changes, &mut seat.ids, lease_high).noting(mask);
    let reply = rule(&mut txn);
    let notes = txn.take_notes();
    draft.looks.set(draft.looks.get() + txn.looks());
    // mds-V1: absent records are reported before the rule's refusal, which may rest on them.
    let changes = txn.finish()?;
    Ok(Ran { reply: reply?, changes, notes })
}

impl ExecutorState {
    pub fn check_open(&self) -> Result<(), Fault> {
        match self.closed {
            false => Ok(()),
            true => Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back")),
        }
    }

    pub fn check_ready(&self) -> Result<(), Stop> {
        self.check_open()?;
        if self.ids.are_enough() { Ok(()) } else { Err(Stop::NoIds) }
    }
}
