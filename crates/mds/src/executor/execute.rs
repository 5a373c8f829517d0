//! The executor: mutating requests from the door to the log and back.
//!
//! ```text
//!   1 slot: was it done already?   2 ids: enough reserved?    3 rule over snapshot + batch + its own changes
//!   4 room: may the table grow?    5 one log entry            6 apply, publish, note the slots, tell
//! ```
//! Who has the role (`role.rs`) does steps 1 to 4 for one request after the other, and 5 and 6 for all of them at once.
//!
//! mds-E1: nothing of a batch is seen or told before its entry is in the log, not even a refusal: it may rest on what another made.
//! mds-E2: all of a batch or none.  mds-E3: the order of the rules is the order of the seqs.  mds-E4: what is refused, or must wait, leaves nothing
//! in the batch.  mds-E5: nobody waits for a medium or another server while he has the role. What must wait (a checkpoint because the
//! log is full, a reservation of ids, records that are not in memory) is waited for by the request's own thread, and the request
//! starts over.

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

/// What only the holder of the writer's role touches.
pub struct Seat {
    pub slots: Slots,
    /// Of directories: what their records do not say yet.
    pub counts: Pending,
    pub ids: Ids,
    pub changelog: Changelog,
    /// The volume is closed or closing: nothing may be appended any more.
    pub closed: bool,
    /// Of the last entry, for its memory.
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

/// The same for another thread.
pub struct OwnAsk {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: Vec<u8>,
    pub judged: Option<Judged>,
}

/// What its own thread has to know of it besides.
#[derive(Debug)]
pub struct Carried {
    pub done: Done,
    /// mds-M7: the client changes objects on the strength of the reply, and what that rests on may not be flushed.
    pub must_flush: bool,
}

/// How often a request starts over because the log was full or ids were short before its client is asked to try again. Each
/// time something was done about it; more than two would mean that others take the room at once.
const ATTEMPTS_MAX: u32 = 8;
/// Operations of an entry, and batches that one does for others before he hands the role on.
const OPS_MAX: usize = 64;
const ROUNDS_MAX: usize = 8;
/// Records that the rules of a batch have looked at, after which it takes no more operations: some 7 ms, and 64 operations of 256 each. A
/// rename looks at every directory above its new place.
pub const LOOKS_MAX: u64 = 16_384;
/// A record that is this long takes no more operations: it is written in well below a millisecond.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Why a request must start over, or not be made.
#[derive(Clone, Debug)]
pub enum Stop {
    Refused(Fault),
    /// Bytes that the log held then.
    LogFull {
        used: u64,
    },
    NoIds,
    /// A record that the rule asked for is not in memory.
    Absent(Absent),
}

impl From<Fault> for Stop {
    fn from(f: Fault) -> Stop {
        Stop::Refused(f)
    }
}

impl Stop {
    /// What is told where nothing is done about it.
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

/// How far a request got before its batch is written.
enum Reached {
    /// It joined the batch, at this place.
    Member { place: usize, reply: Arc<[u8]>, must_flush: bool },
    /// What it found rests on what the batch changes, if that changes anything.
    Found(Result<Carried, Stop>),
    /// Whatever becomes of the batch.
    Known(Result<Carried, Stop>),
    /// It must wait for the next batch: another of its slot is in this one.
    SlotTaken,
    /// And so must all behind it: there is no room for more.
    Full,
}

/// A rule with all but its transaction filled in. It may run more than once, over transactions that came to nothing.
pub type Rule<'r> = &'r mut dyn FnMut(&mut Overlay<'_>) -> Result<Vec<u8>, Fault>;

impl Core {
    /// Carries out a request as part of one log entry, or answers from its slot if that was done before.
    pub fn carry_out(&self, ask: Ask<'_>, joined: &Joined) -> Result<Carried, Fault> {
        self.until_done(&mut || match self.role.enter(ask.head.session, || ask.to_own()) {
            Turn::Done(outcome) => outcome,
            Turn::Lead(held) => self.lead(held, ask, joined),
        })
    }

    /// As `carry_out`, of several that came at once. They stand in line as their session's, so that they share an entry.
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
        // In the order of the line: who is given the role waits for no job that is behind in it.
        let outcomes: Vec<_> = jobs
            .iter()
            .map(|job| match self.role.await_turn(job) {
                Turn::Done(outcome) => outcome,
                Turn::Lead(held) => self.lead(held, job.ask.as_ask(), joined),
            })
            .collect();
        drop(self.fold_counts());
        self.make_room_for_changes();
        // Who must start over goes on alone.
        let end = |(job, outcome): (&Arc<Job>, _)| match outcome {
            Ok(carried) => Ok(carried),
            Err(Stop::Refused(fault)) => Err(fault),
            Err(Stop::LogFull { .. } | Stop::NoIds | Stop::Absent(_)) => {
                self.carry_out(job.ask.as_ask(), joined)
            }
        };
        jobs.iter().zip(outcomes).map(end).collect()
    }

    /// Carries out an internal change as an entry of its own. It has no slot.
    /// `lease_high` is set whenever the rule draws a lease number.
    pub fn transact(&self, lease_high: &Cell<u32>, rule: Rule<'_>) -> Result<Done, Fault> {
        self.until_done(&mut || {
            // Freed after the role was given on: by then it is the last to hold the state that this change replaces.
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

    /// Does `attempt`, and what stopped it, until it is done or refused.
    pub fn until_done<T>(&self, attempt: &mut dyn FnMut() -> Result<T, Stop>) -> Result<T, Fault> {
        for _ in 0..ATTEMPTS_MAX {
            match self.until_here(attempt)? {
                Ok(done) => {
                    // It is done, whatever becomes of this.
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

    /// Does `attempt` until all that it needs is in memory. That is no attempt that failed, and has a bound of its own.
    pub fn until_here<T>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, Stop>,
    ) -> Result<Result<T, Stop>, Fault> {
        until_loaded(&self.kv, &mut || match attempt() {
            Err(Stop::Absent(what)) => Err(Trouble::Absent(what)),
            outcome => Ok(outcome),
        })
    }

    /// One's own request, and with it and after it those of others who wait.
    fn lead(&self, mut held: Held<'_>, ask: Ask<'_>, joined: &Joined) -> Result<Carried, Stop> {
        let jobs = held.take(OPS_MAX - 1);
        let own = self.batch(&mut held, Some(ask), jobs, joined);
        self.do_for_others(&mut held, joined);
        drop(held);
        own.expect("who leads with a request has an outcome")
    }

    /// What stands in line, for some rounds.
    fn do_for_others(&self, held: &mut Held<'_>, joined: &Joined) {
        for _ in 0..ROUNDS_MAX {
            let jobs = held.take(OPS_MAX);
            if jobs.is_empty() {
                break;
            }
            self.batch(held, None, jobs, joined);
        }
    }

    /// Runs requests, writes what they change as one entry, and tells those of `jobs`; the outcome of `own`.
    fn batch(
        &self,
        held: &mut Held<'_>,
        own: Option<Ask<'_>>,
        mut jobs: Vec<Arc<Job>>,
        joined: &Joined,
    ) -> Option<Result<Carried, Stop>> {
        let snap = self.kv.snapshot();
        let mut draft = Draft::new(&snap);
        // meta-H2: held until the entry is applied, or given up.
        let doom = Doom::new(&self.sharers);
        let around = (joined, &doom);
        // 1. The rules, one after the other.
        let own = own.map(|ask| self.step(held, &mut draft, ask, around));
        let mut reached = Vec::with_capacity(jobs.len());
        let (mut back, mut is_full): (Vec<Arc<Job>>, _) = (Vec::new(), false);
        // Who is put back keeps his session's later ones behind him, and nobody else's.
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
        // 3. mds-E1: what is known now.
        let outcome = |step| match (step, &written) {
            (Reached::Known(outcome), _) | (Reached::Found(outcome), Ok(_)) => outcome,
            (Reached::Member { place, reply, must_flush }, Ok(first)) => {
                let done = Done { reply, seq: Seq(first.0 + place as u64) };
                Ok(Carried { done, must_flush })
            }
            (_, Err(stop)) => Err(stop.clone()),
            (Reached::SlotTaken | Reached::Full, Ok(_)) => {
                unreachable!("the first of a batch has room, and others were put back")
            }
        };
        let own = own.map(outcome);
        for (job, step) in jobs.iter().zip(reached) {
            job.tell(outcome(step));
        }
        own
    }

    /// Steps 1 to 4 for one request.
    fn step(
        &self,
        seat: &mut Seat,
        draft: &mut Draft<'_>,
        ask: Ask<'_>,
        (joined, doom): (&Joined, &Doom<'_>),
    ) -> Reached {
        let Header { call, session, slot, sequence, .. } = *ask.head;
        // Sequence 0: the caller says that doing it twice does no harm, and wants no slot.
        let origin = (sequence != 0).then_some(Origin { session, slot, sequence });
        match self.admit(seat, draft, ask.head, origin.as_ref()) {
            Ok(None) if self.was_given_up(ask.head) => return Reached::Known(Err(refuse_late().into())),
            Ok(None) => {}
            Ok(Some(reached)) => {
                // meta-H2: who hears of its open only now, for the MDT that made it has restarted since, has the file open no less.
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
        // A refusal that took long counts, too. The first of a batch has looked at nothing.
        if draft.looks.get() >= LOOKS_MAX {
            return Reached::Full;
        }
        let (lease_high, puts_inode) = (Cell::new(0), Cell::new(false));
        let space = self.room.space(draft.table_bytes());
        // What the batch replaces is not taken off before it is applied: a refusal must not rest on that.
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
            // Nothing to keep and nothing to repeat: judged again, it gives the same answer. mds-M7: what it rests on may be another's
            // entry, of this batch or of one before.
            let must_flush = lets_change && (draft.lets_change || self.is_change_unflushed());
            return Reached::Found(Ok(Carried { done: Done { reply, seq: Seq(0) }, must_flush }));
        }
        match self.room.check(draft, &seat.slots, &changes) {
            Err(_) if !draft.members.is_empty() => return Reached::Full,
            Err(stop) => return Reached::Found(Err(stop)),
            Ok(()) => {}
        }
        // After the check: room for these is made otherwise (mds-C4), and none of it at the cost of what deletes.
        let mut noted = draft.noted;
        if !notes.is_empty() {
            changes.extend(seat.changelog.records(&mut noted, self.clock.wall(), session, notes));
        }
        if !draft.has_room(&reply, &changes, self.entry_bytes_max()) {
            return Reached::Full;
        }
        // mds-E5. Here, and not of all together: who misses something starts over by himself.
        if let Err(what) = self.kv.admits(changes.keys()) {
            return Reached::Known(Err(Stop::Absent(what)));
        }
        draft.noted = noted;
        self.note_open(ask, &reply);
        // What a growth that found no room leaves is no news: who tries again and again would hurry the purge by that alone.
        draft.died += if call == Grow::CALL { 0 } else { self.died_of(&changes) };
        // A file that is opened once more may be as it was but for a time.
        let begins_change = lets_change && (puts_inode.get() || matches!(call, Truncate::CALL | Grow::CALL));
        draft.lets_change |= begins_change;
        let must_flush = lets_change && (draft.lets_change || self.is_change_unflushed());
        let place = draft.add(Member { call, origin, reply: reply.clone() }, changes);
        Reached::Member { place, reply, must_flush }
    }

    /// mds-M7: an entry that let a client change objects may not be flushed yet.
    fn is_change_unflushed(&self) -> bool {
        self.volume.flushed_seq().0 < self.change_let_by.load(Ordering::Relaxed)
    }

    /// Steps 1 and 2; `None`: it is new.
    fn admit(
        &self,
        seat: &Seat,
        draft: &Draft<'_>,
        head: &Header,
        origin: Option<&Origin>,
    ) -> Result<Option<Reached>, Stop> {
        if let Some(origin) = origin {
            seat.check_open()?;
            // mds-I2 of `Draft`.
            if draft.has_slot_of(origin) {
                return Ok(Some(Reached::SlotTaken));
            }
            let (reply, seq) = match seat.slots.admit(origin)? {
                Verdict::New => return seat.check_ready().map(|()| None),
                Verdict::Repeat(Last { reply, seq, .. }) => (reply, seq),
                Verdict::Old(seq) => (Arc::from([]), seq),
            };
            // It runs no rule, and the first may not have come to its flush.
            let must_flush = lets_objects_change(head.call, &reply);
            let carried = Carried { done: Done { reply, seq }, must_flush };
            return Ok(Some(Reached::Known(Ok(carried))));
        }
        seat.slots.check_session(head.session)?;
        seat.check_ready().map(|()| None)
    }

    /// Steps 5 and 6: appends one entry and applies it, if anything changed. The seq of its first operation.
    pub fn commit(&self, seat: &mut Seat, draft: Draft<'_>) -> Result<Seq, Stop> {
        let Draft { members, changes, died, lets_change, noted, .. } = draft;
        if changes.is_empty() {
            return Ok(Seq(0));
        }
        let mut changes = to_batch(changes);
        let learned = self.learn_counts(&seat.counts, &mut changes)?;
        // mds-E5: nothing that it changes is missing once it is in the log. Of members that was asked in their steps, and of what goes with
        // them it was just read. Nobody takes it away before: that is done with the role too, and who moves changes keeps it (mds-M4 of `kv`).
        if members.is_empty() {
            self.kv.admits(changes.keys()).map_err(Stop::Absent)?;
        }
        record::encode(&members, &changes, &mut seat.payload);
        let ops = record::ops_of(&members);
        let first = match self.volume.append_ops(self.epoch(), &seat.payload, ops) {
            Ok(seq) => seq,
            Err(VolumeError::LogFull { used, .. }) => return Err(Stop::LogFull { used }),
            Err(e) => return Err(self.volume_fault(e).into()),
        };
        seat.slots.apply(&members, first, &changes);
        self.note_orphans(&changes);
        self.room.note_slots(&seat.slots);
        seat.counts.add(learned);
        let last = Seq(first.0 + u64::from(ops) - 1);
        if lets_change {
            // Before anybody sees the change.
            self.change_let_by.store(last.0, Ordering::Relaxed);
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

    /// A small volume's log must have room for more than one.
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
                    self.role.hold().ids.keep(promise);
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

    /// The fault for a volume that did not do what it was asked. It has mostly failed for good: people must hear of it.
    pub fn volume_fault(&self, e: VolumeError) -> Fault {
        let label = self.volume.label();
        let fault = Fault::from(e);
        tracing::error!(fs = label.fs_name, index = label.index, %fault, "the MDT's volume refused; look at its medium and `stria status`");
        Fault::new(fault.code, format!("MDT {} of {}: {}", label.index, label.fs_name, fault.detail))
    }

    /// Ends the serving; who has the writer's role is waited for. A clean close leaves a checkpoint that holds everything, and the clean mark.
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

/// What a rule came to: the reply, the changes on top of the draft's, and what was noted of them.
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
    // mds-V1: trouble first. What a rule refused because of a record that was not there is not refused.
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
