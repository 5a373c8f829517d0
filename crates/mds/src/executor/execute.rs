//! The executor turns mutating requests into log entries. One thread at a time, the leader, runs it (`role.rs`).
//!
//! The leader takes its own request and the jobs that other threads queued, up to `OPS_MAX`, as one batch. A `Draft` collects the batch.
//!
//! ```text
//! for each request   1  slot   `admit`: was it carried out already? Then the slot has its reply
//! (`step`)           2  ids    `admit`: are enough ids reserved?
//!                    3  rule   `run`: the rule of `meta`, over snapshot + draft + its own changes
//!                    4  space  may the table and the entry grow? The request then joins the draft
//! once per batch     5  log    `commit`: append one log entry
//! (`commit`)         6  apply  `commit`: update slots and counts, publish the new state. Then `batch` reports the outcomes
//! ```
//!
//! mds-E1: no outcome of a batch is visible or reported before its entry is in the log. This includes refusals, which may rest on
//!     another member's change.
//! mds-E2: the log has all of a batch or none of it.
//! mds-E3: the order of the rules is the order of the seqs.
//! mds-E4: a request that is refused, or must wait, leaves nothing in the batch.
//! mds-E5: the leader never waits for a medium or another server. A request may lack log space, reserved ids or records in memory. It then
//!     leaves the batch, its own thread provides them (`until_done`), and the request starts over.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::volume::VolumeError;
use kv::{Absent, Engine};
use meta::Note;
use meta::counts::Pending;
use types::{Code, Epoch, Fault, Seq, SessionId};
use wire::meta::{Grow, Truncate};
use wire::{Header, Request};

use crate::Core;
use crate::executor::call::{lets_objects_change, refuse_late};
use crate::executor::draft::{Draft, to_batch};
use crate::executor::role::{self, Turn};
use crate::executor::slots::{Last, Slots, Verdict};
use crate::joined::Joined;
use crate::judge::Judged;
use crate::records::ids::Ids;
use crate::records::ledger::Changelog;
use crate::records::look::{Trouble, until_loaded};
use crate::records::overlay::{Layer, Overlay};
use crate::records::record::{self, Member, Origin};
use crate::reply::Done;
use crate::sessions::shared::Doom;

/// The state that only the leader touches.
pub struct Seat {
    pub slots: Slots,
    /// Changes of directories' counts that are not in their records yet.
    pub counts: Pending,
    pub ids: Ids,
    pub changelog: Changelog,
    /// The volume is closed or closing, so nothing may be appended.
    pub closed: bool,
    /// The last entry's bytes; kept so that the next entry reuses their memory.
    pub payload: Vec<u8>,
}

pub type Role = role::Role<Seat, OwnAsk, Result<Carried, Stop>>;
pub type Held<'a> = role::Held<'a, Seat, OwnAsk, Result<Carried, Stop>>;
type Job = role::Job<OwnAsk, Result<Carried, Stop>>;

/// A mutating request.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub head: &'a Header,
    pub body: &'a [u8],
    pub bulk: &'a [u8],
    pub judged: Option<&'a Judged>,
}

/// A mutating request in a job: a copy, because another thread may run it.
pub struct OwnAsk {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: Vec<u8>,
    pub judged: Option<Judged>,
}

/// The outcome of a request, and what its own thread must do before it answers.
#[derive(Debug)]
pub struct Carried {
    pub done: Done,
    /// mds-M7: flush before the reply leaves. The reply lets the client change objects, and its entry may be unflushed.
    pub must_flush: bool,
}

/// Attempts of a request that found the log full or too few ids, before its client is asked to try again. A checkpoint or a
/// reservation precedes each further attempt; more than two mean that other requests use it up at once.
const ATTEMPTS_MAX: u32 = 8;
/// Operations of one entry; batches that a leader runs for other threads before it hands over leadership.
const OPS_MAX: usize = 64;
const ROUNDS_MAX: usize = 8;
/// Records that the rules of a batch may look at before the batch takes no more operations: some 7 ms, or 64 operations of 256 each.
/// A rename looks at every directory above its new place.
pub const LOOKS_MAX: u64 = 16_384;
/// Longest entry that still takes another operation. It is written in well below a millisecond.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Why a request is refused or must start over.
#[derive(Clone, Debug)]
pub enum Stop {
    Refused(Fault),
    /// `used`: bytes in the log at that moment.
    LogFull {
        used: u64,
    },
    NoIds,
    /// The rule asked for a record that is not in memory.
    Absent(Absent),
}

impl From<Fault> for Stop {
    fn from(f: Fault) -> Stop {
        Stop::Refused(f)
    }
}

impl Stop {
    /// The fault for a client, where the server does not remove the cause itself.
    pub fn fault(self) -> Fault {
        match self {
            Stop::Refused(fault) => fault,
            Stop::LogFull { .. } => Fault::new(Code::NotReady, "the MDT's log is full; try again"),
            Stop::NoIds => Trouble::NoIds.into(),
            Stop::Absent(what) => Trouble::Absent(what).into(),
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

/// The state of a request before its batch is in the log.
enum Reached {
    /// It is a member of the batch, at this place.
    Member { place: usize, reply: Arc<[u8]>, must_flush: bool },
    /// It changed nothing, but its outcome may rest on changes of the batch: it counts only if the entry is written.
    Found(Result<Carried, Stop>),
    /// Its outcome does not depend on the batch.
    Known(Result<Carried, Stop>),
    /// It waits for the next batch, because this one has a request of the same slot.
    SlotTaken,
    /// It and all behind it wait for the next batch, because this one is full.
    Full,
}

/// A rule that lacks only its transaction. It may run several times; only the last transaction counts.
pub type Rule<'r> = &'r mut dyn FnMut(&mut Overlay<'_>) -> Result<Vec<u8>, Fault>;

impl Core {
    /// Carries out a request as part of one log entry. A request that was carried out before gets the reply in its slot.
    pub fn carry_out(&self, ask: Ask<'_>, joined: &Joined) -> Result<Carried, Fault> {
        self.until_done(&mut || match self.role.enter(ask.head.session, || ask.to_own()) {
            Turn::Done(outcome) => outcome,
            Turn::Lead(held) => self.lead(held, ask, joined),
        })
    }

    /// As `carry_out`, for several requests of one session that came at once. They are queued together, so that they share an entry.
    pub fn carry_out_all(
        &self,
        session: SessionId,
        asks: Vec<OwnAsk>,
        joined: &Joined,
    ) -> Vec<Result<Carried, Fault>> {
        let (jobs, held) = self.role.line_up(session, asks);
        if let Some(mut held) = held {
            self.do_for_others(&mut held, joined);
        }
        // In queue order, so that a job which becomes the leader never waits for a job behind it.
        let outcomes: Vec<_> = jobs
            .iter()
            .map(|job| match self.role.await_turn(job) {
                Turn::Done(outcome) => outcome,
                Turn::Lead(held) => self.lead(held, job.ask.as_ask(), joined),
            })
            .collect();
        drop(self.fold_counts());
        self.make_room_for_changes();
        // A request that must start over goes on alone.
        let end = |(job, outcome): (&Arc<Job>, _)| match outcome {
            Ok(carried) => Ok(carried),
            Err(Stop::Refused(fault)) => Err(fault),
            Err(Stop::LogFull { .. } | Stop::NoIds | Stop::Absent(_)) => {
                self.carry_out(job.ask.as_ask(), joined)
            }
        };
        assert_eq!(jobs.len(), outcomes.len(), "mds-W2: each job has one outcome");
        jobs.iter().zip(outcomes).map(end).collect()
    }

    /// Carries out an internal change, which has no slot, as an entry of its own.
    /// `lease_high` is set whenever the rule draws a lease number.
    pub fn transact(&self, lease_high: &Cell<u32>, rule: Rule<'_>) -> Result<Done, Fault> {
        self.until_done(&mut || {
            // Declared before `seat`, so dropped after it: freeing the replaced state does not hold up the next leader.
            let snap;
            let mut seat = self.role.hold();
            seat.check_ready()?;
            snap = self.kv.snapshot();
            let mut draft = Draft::new(&snap);
            let Ran { reply, mut changes, notes } = run(&draft, &mut seat, lease_high, rule)?;
            self.room.check(&draft, &seat.slots, &changes)?;
            draft.died = self.died_of(&changes);
            let now = self.clock.wall();
            changes.extend(seat.changelog.records(&mut draft.noted, now, SessionId(0), notes));
            draft.changes = changes;
            let seq = self.commit(&mut seat, draft)?;
            Ok(Done { reply: reply.into(), seq })
        })
    }

    /// Repeats `attempt` until it is done or refused. Between attempts it checkpoints a full log or reserves ids.
    pub fn until_done<T>(&self, attempt: &mut dyn FnMut() -> Result<T, Stop>) -> Result<T, Fault> {
        for _ in 0..ATTEMPTS_MAX {
            match self.until_here(attempt)? {
                Ok(done) => {
                    // The request is done, even if these fail.
                    drop(self.fold_counts());
                    self.make_room_for_changes();
                    return Ok(done);
                }
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(Stop::NoIds) => self.reserve_ids()?,
                Err(stop) => return Err(stop.fault()),
            }
        }
        Err(Fault::new(Code::NotReady, "the MDT's log fills faster than it can be checkpointed; try again"))
    }

    /// Repeats `attempt` until all records that it needs are in memory. These repeats have a bound of their own (`until_loaded`).
    pub fn until_here<T>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, Stop>,
    ) -> Result<Result<T, Stop>, Fault> {
        until_loaded(&self.kv, &mut || match attempt() {
            Err(Stop::Absent(what)) => Err(Trouble::Absent(what)),
            outcome => Ok(outcome),
        })
    }

    /// As the leader: runs its own request and queued jobs as one batch, then further batches of queued jobs.
    fn lead(&self, mut held: Held<'_>, ask: Ask<'_>, joined: &Joined) -> Result<Carried, Stop> {
        let jobs = held.take(OPS_MAX - 1);
        let own = self.batch(&mut held, Some(ask), jobs, joined);
        self.do_for_others(&mut held, joined);
        drop(held);
        own.expect("a batch with an own request returns its outcome")
    }

    /// Runs queued jobs, `ROUNDS_MAX` batches at most.
    fn do_for_others(&self, held: &mut Held<'_>, joined: &Joined) {
        for _ in 0..ROUNDS_MAX {
            let jobs = held.take(OPS_MAX);
            if jobs.is_empty() {
                break;
            }
            self.batch(held, None, jobs, joined);
        }
    }

    /// Runs one batch: writes all its changes as one entry and reports the outcomes of `jobs`. Returns the outcome of `own`.
    fn batch(
        &self,
        held: &mut Held<'_>,
        own: Option<Ask<'_>>,
        mut jobs: Vec<Arc<Job>>,
        joined: &Joined,
    ) -> Option<Result<Carried, Stop>> {
        let snap = self.kv.snapshot();
        let mut draft = Draft::new(&snap);
        // meta-H2: pending-unlink marks stay until the entry is applied or abandoned.
        let doom = Doom::new(&self.sharers);
        let around = (joined, &doom);
        // 1. The rules, one after the other.
        let own = own.map(|ask| self.step(held, &mut draft, ask, around));
        let mut reached = Vec::with_capacity(jobs.len());
        let (mut back, mut is_full): (Vec<Arc<Job>>, _) = (Vec::new(), false);
        // A job that is put back also puts back the later jobs of its session, to keep their order, and of no other session.
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
        // 3. The outcomes (mds-E1).
        let outcome = |step| match (step, &written) {
            (Reached::Known(outcome), _) | (Reached::Found(outcome), Ok(_)) => outcome,
            (Reached::Member { place, reply, must_flush }, Ok(first)) => {
                assert!(first.0 > 0, "mds-M2: a member's entry has a seq");
                let done = Done { reply, seq: Seq(first.0 + place as u64) };
                Ok(Carried { done, must_flush })
            }
            (_, Err(stop)) => Err(stop.clone()),
            (Reached::SlotTaken | Reached::Full, Ok(_)) => {
                unreachable!("the first request of a batch always fits, and later ones were put back")
            }
        };
        let own = own.map(outcome);
        assert_eq!(jobs.len(), reached.len(), "mds-W2: each job that was not put back has one outcome");
        for (job, step) in jobs.iter().zip(reached) {
            job.tell(outcome(step));
        }
        own
    }

    /// Steps 1 to 4 for one request. `seat` and `draft` change only if it becomes a member.
    fn step(
        &self,
        seat: &mut Seat,
        draft: &mut Draft<'_>,
        ask: Ask<'_>,
        (joined, doom): (&Joined, &Doom<'_>),
    ) -> Reached {
        let Header { call, session, slot, sequence, .. } = *ask.head;
        // Sequence 0: the request is idempotent by the client's word, and uses no slot.
        let origin = (sequence != 0).then_some(Origin { session, slot, sequence });
        match self.admit(seat, draft, ask.head, origin.as_ref()) {
            Ok(None) if self.was_abandoned(ask.head) => return Reached::Known(Err(refuse_late().into())),
            Ok(None) => {}
            Ok(Some(reached)) => {
                // meta-H2: a repeated open whose reply was lost in a restart still has the file open, so it is noted again.
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
        // Refused requests count too. The first request of a batch always passes, since nothing was looked at before it.
        if draft.looks.get() >= LOOKS_MAX {
            return Reached::Full;
        }
        let (lease_high, puts_inode) = (Cell::new(0), Cell::new(false));
        let space = self.room.space(draft.table_bytes());
        // Space that the batch replaces counts as used until it is applied. So retry as the first of a batch before refusing.
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
            // No entry: a repeat of the request gets the same answer. mds-M7: the reply may rest on an unflushed change of another
            // request, in this batch or an earlier one.
            let must_flush = lets_change && (draft.lets_change || self.is_change_unflushed());
            return Reached::Found(Ok(Carried { done: Done { reply, seq: Seq(0) }, must_flush }));
        }
        match self.room.check(draft, &seat.slots, &changes) {
            Err(_) if !draft.members.is_empty() => return Reached::Full,
            Err(stop) => return Reached::Found(Err(stop)),
            Ok(()) => {}
        }
        // Added after the space check: the changelog has its own bound (mds-C4), and must not cause a refusal of deletions.
        let mut noted = draft.noted;
        if !notes.is_empty() {
            changes.extend(seat.changelog.records(&mut noted, self.clock.wall(), session, notes));
        }
        if !draft.has_room(&reply, &changes, self.entry_bytes_max()) {
            return Reached::Full;
        }
        // mds-E5. Checked per request, so that a request which lacks records starts over alone.
        if let Err(what) = self.kv.admits(changes.keys()) {
            return Reached::Known(Err(Stop::Absent(what)));
        }
        draft.noted = noted;
        self.note_open(ask, &reply);
        // `Grow` is left out: a client that retries on a full OST would otherwise hurry the purge with each retry.
        draft.died += if call == Grow::CALL { 0 } else { self.died_of(&changes) };
        // A second open may change only a time of the file; that begins no change of objects.
        let begins_change = lets_change && (puts_inode.get() || matches!(call, Truncate::CALL | Grow::CALL));
        draft.lets_change |= begins_change;
        let must_flush = lets_change && (draft.lets_change || self.is_change_unflushed());
        let place = draft.add(Member { call, origin, reply: reply.clone() }, changes);
        Reached::Member { place, reply, must_flush }
    }

    /// mds-M7: is there an unflushed entry that let a client change objects?
    fn is_change_unflushed(&self) -> bool {
        self.volume.flushed_seq().0 < self.change_let_by.load(Ordering::Relaxed)
    }

    /// Steps 1 and 2. `None`: the request is new and may run.
    fn admit(
        &self,
        seat: &Seat,
        draft: &Draft<'_>,
        head: &Header,
        origin: Option<&Origin>,
    ) -> Result<Option<Reached>, Stop> {
        if let Some(origin) = origin {
            seat.check_open()?;
            // mds-I2 (`Draft`).
            if draft.has_slot_of(origin) {
                return Ok(Some(Reached::SlotTaken));
            }
            let (reply, seq) = match seat.slots.admit(origin)? {
                Verdict::New => return seat.check_ready().map(|()| None),
                Verdict::Repeat(Last { reply, seq, .. }) => (reply, seq),
                Verdict::Old(seq) => (Arc::from([]), seq),
            };
            // A repeat runs no rule, and the first request may not have flushed yet.
            let must_flush = lets_objects_change(head.call, &reply);
            let carried = Carried { done: Done { reply, seq }, must_flush };
            return Ok(Some(Reached::Known(Ok(carried))));
        }
        seat.slots.check_session(head.session)?;
        seat.check_ready().map(|()| None)
    }

    /// Steps 5 and 6: appends one entry and applies it, if anything changed. Returns the seq of its first operation, or 0.
    pub fn commit(&self, seat: &mut Seat, draft: Draft<'_>) -> Result<Seq, Stop> {
        let Draft { snap, members, changes, died, lets_change, noted, .. } = draft;
        if changes.is_empty() {
            return Ok(Seq(0));
        }
        let mut changes = to_batch(changes);
        let learned = self.learn_counts(&seat.counts, &mut changes)?;
        // mds-E5: every record that an entry changes must be in memory before it is logged. `step` checked this for members, and
        // `learn_counts` has just read the others. Eviction needs the leader too, and the mover keeps such records (kv-M4).
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
        let first = match self.volume.append_ops(self.epoch(), &seat.payload, ops) {
            Ok(seq) => seq,
            Err(VolumeError::LogFull { used, .. }) => return Err(Stop::LogFull { used }),
            Err(e) => return Err(self.volume_fault(e).into()),
        };
        assert!(first > snap.seq(), "mds-M1: an entry follows the state that its rules read");
        assert!(first.0 > self.change_let_by.load(Ordering::Relaxed), "mds-M1: seqs rise");
        seat.slots.apply(&members, first, &changes);
        self.note_orphans(&changes);
        self.room.note_slots(&seat.slots);
        seat.counts.add(learned);
        let last = Seq(first.0 + u64::from(ops) - 1);
        // The flusher may have appended a mark meanwhile.
        assert!(last <= self.volume.last_seq(), "mds-M2: the entry is in the log before it is visible");
        if lets_change {
            // Before the change becomes visible.
            self.change_let_by.store(last.0, Ordering::Release);
        }
        self.counts_long.store(seat.counts.is_long(), Ordering::Relaxed);
        self.kv.apply(last, changes);
        if noted.records > 0 {
            seat.changelog.add(noted, last, self.volume.flushed_seq());
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

    /// A small volume's log must have room for several entries.
    fn entry_bytes_max(&self) -> usize {
        ENTRY_BYTES_MAX.min(self.volume.payload_bytes_max() / 4)
    }

    /// Reserves the next block of every counter that is low: entry, flush, then use (mds-O5).
    pub fn reserve_ids(&self) -> Result<(), Fault> {
        let _one = self.reserving.lock();
        for _ in 0..ATTEMPTS_MAX {
            let reserved = self.until_here(&mut || {
                let snap = self.kv.snapshot();
                let mut seat = self.role.hold();
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
                    let mut seat = self.role.hold();
                    seat.ids.keep(promise);
                    assert!(seat.ids.are_enough(), "mds-M5: a flushed reservation makes ids available");
                    return Ok(());
                }
            }
        }
        Err(Fault::new(Code::NotReady, "the MDT's log is full; try again"))
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    pub fn flush(&self) -> Result<Seq, Fault> {
        self.volume.flush().map_err(|e| self.volume_fault(e))
    }

    /// mds-M7: makes every entry durable that let a client change objects. Call it before such a reply leaves.
    pub fn flush_let_changes(&self) -> Result<(), Fault> {
        // Acquire: the flush below sees that entry in the log.
        let let_by = self.change_let_by.load(Ordering::Acquire);
        let flushed = self.flush()?;
        assert!(let_by <= flushed.0, "mds-M7: the entry is flushed before the reply leaves");
        Ok(())
    }

    /// The fault for a failed request to the volume. The volume has mostly failed for good, so this also logs an error.
    pub fn volume_fault(&self, e: VolumeError) -> Fault {
        let label = self.volume.label();
        let fault = Fault::from(e);
        tracing::error!(fs = label.fs_name, index = label.index, %fault, "the MDT's volume refused; look at its medium and `stria status`");
        Fault::new(fault.code, format!("MDT {} of {}: {}", label.index, label.fs_name, fault.detail))
    }

    /// Ends serving, after the present leader. A clean close leaves a checkpoint of everything, and the clean mark.
    pub fn close(&self, clean: bool) -> Result<(), Fault> {
        let was_closed = std::mem::replace(&mut self.role.hold().closed, true);
        self.stopping.store(true, Ordering::Release);
        if was_closed || !clean {
            return Ok(());
        }
        self.checkpoint_now()?;
        self.volume.close_clean().map_err(|e| self.volume_fault(e))
    }
}

/// The outcome of a rule: its reply, its changes on top of the draft's, and its notes for the changelog.
struct Ran {
    reply: Vec<u8>,
    changes: Layer,
    notes: Vec<Note>,
}

/// Step 3.
fn run(draft: &Draft<'_>, seat: &mut Seat, lease_high: &Cell<u32>, rule: Rule<'_>) -> Result<Ran, Stop> {
    let mask = seat.changelog.mask();
    let mut txn = Overlay::new(draft.snap, &draft.changes, &mut seat.ids, lease_high).noting(mask);
    let reply = rule(&mut txn);
    let notes = txn.take_notes();
    draft.looks.set(draft.looks.get() + txn.looks());
    // mds-V1: trouble comes before the rule's result, because a rule may have refused only for lack of a record.
    let changes = txn.finish()?;
    Ok(Ran { reply: reply?, changes, notes })
}

impl Ask<'_> {
    fn to_own(self) -> OwnAsk {
        let Ask { head, body, bulk, judged } = self;
        OwnAsk { head: *head, body: body.to_vec(), bulk: bulk.to_vec(), judged: judged.cloned() }
    }
}

impl OwnAsk {
    fn as_ask(&self) -> Ask<'_> {
        let OwnAsk { head, body, bulk, judged } = self;
        Ask { head, body, bulk, judged: judged.as_ref() }
    }
}

impl Seat {
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
