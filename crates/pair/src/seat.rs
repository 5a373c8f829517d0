//! The seat: a member with its clock, its letters and its target.

mod companion;
mod events;
mod fill;
mod serve;
mod threads;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mirror::order::Copies;
use mirror::promise::PROMISE_MS;
use mirror::{Effect, Letter, Line, Member, MemberId, MemberState, Members, Request, Role};
use parking_lot::{Condvar, Mutex};
use types::{Code, Epoch, Fault, Incarnation, MirrorId, Seq};

use crate::letters::seq;
use crate::note::{self, Kept, LogLines};
#[cfg(test)]
use crate::planted::Rule;
use crate::{Clock, Copied, Filled, Logged, Post, Replica};

/// A planned stop waits so long for the other member's answer, and for the return of its own promise.
const LEAVE: Duration = Duration::from_secs(1);

/// Numbers of lives have gaps up to this.
const LIFE_GAP: u32 = 64;

/// How the other member is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillPace {
    /// Most bytes per second; 0: no limit.
    pub rate: u64,
    /// An administrator has it wait.
    pub is_paused: bool,
}

/// A life of a member begins from these.
pub struct Setup {
    pub mirror: MirrorId,
    pub me: MemberId,
    /// The newest map that the caller knows.
    pub map: Members,
    /// The target's note, as `Replica::keep_note` kept it; empty: the target never was a member.
    pub note: Vec<u8>,
    /// The entries of the target's log, by the target's recovery, which flushed it.
    pub log: LogLines,
    /// The target's volume was closed before.
    pub was_clean: bool,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: [u8; 16],
    /// A member that takes entries flushes them at least so often.
    pub commit_interval_ms: u64,
    /// How the other member is filled. It is looked at before each step.
    pub pace: Arc<dyn Fn() -> FillPace + Send + Sync>,
    /// At random. Lives are numbered with gaps, so that a medium that was put back seldom comes to the number of a life that followed.
    pub draw: u32,
    /// A part of the content that cannot be read does not end this life: the other member did not take over when it ended the one before.
    pub keeps_content: bool,
}

/// Why a life has ended. The target is stopped, and opened anew for another life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The log has entries after this one that the mirror does not have. The target drops them durably, with what they did.
    Cut(Seq),
    /// The target takes the other member's whole content (`Post::copy_all`, `copied_note`). Or it becomes empty, if it is filled live and has too
    /// much to drop it while promises wait.
    Refill,
    /// The target failed.
    Failed(Fault),
    /// The target's medium keeps nothing any more, and the other member is in sync. A flush that failed may have dropped pages that still read
    /// well, so the content counts for nothing: the other member fills this one.
    Medium(Fault),
    /// pair-S14: the content is doubted, by its note, and the other member has gone on without it. That one fills it.
    Doubted,
    /// A part of the target's content cannot be read, and the other member is in sync and in contact. It fills this one anew.
    Unreadable(Fault),
    /// This member ordered, and the map has another primary now.
    Deposed,
    /// The other member knows a later life of this one: its medium was put back. The next life has a number above (mirror-O6).
    Outlived,
    Stopped,
}

/// The next step of the target's supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The member orders for the first time in this life. The target begins to serve, with an incarnation above this one.
    Serve {
        above: Incarnation,
    },
    Ended(End),
    /// Nothing happened within the time, or the supervisor was nudged.
    Quiet,
}

/// For people and tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub role: Role,
    pub life: Incarnation,
    pub epoch: Epoch,
    pub primary: MemberId,
    pub states: [MemberState; 2],
    pub is_whole: bool,
    pub is_filling: bool,
    /// The last entry of the log, and its line.
    pub end: (Epoch, Seq),
    pub flushed: Seq,
    /// At a primary: what the other member has. `None`: it is not in contact.
    pub acked: Option<Seq>,
    pub peer_flushed: Seq,
    /// At a primary: the filling of the other member. `None`: none is under way.
    pub filling: Option<Filled>,
    /// Seconds that it takes still, at its recent rate.
    pub filling_left_sec: Option<u32>,
    /// Why the filling does not go on; empty: it does.
    pub filling_said: String,
    /// The member has asked to be alone, and waits for the MGS.
    pub is_asking: bool,
    /// The last answer of the MGS, or why there was none; empty: it granted what was asked.
    pub mgs_said: String,
    pub ended: Option<End>,
}

/// One member of a mirror at work, from the start of its target to the stop.
pub struct Seat {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    mirror: MirrorId,
    me: MemberId,
    boot_id: [u8; 16],
    commit_interval_ms: u64,
    pace: Arc<dyn Fn() -> FillPace + Send + Sync>,
    keeps_content: bool,
    post: Arc<dyn Post>,
    clock: Arc<dyn Clock>,
    /// The time until which this member orders, if no event comes. Written under `state`, as the next one.
    serves_until_ms: AtomicU64,
    reads_until_ms: AtomicU64,
    /// mirror-E5: the process has begun to stop.
    expects_stop: AtomicBool,
    /// The epoch that `reads_until_ms` is about. Looked at before and after that one.
    reads_epoch: AtomicU32,
    /// Number of the last stage.
    stages: AtomicU64,
    /// One thread at a time has the other member flush; those behind it find that done.
    flush_turn: Mutex<()>,
    pub(crate) state: Mutex<State>,
    /// Something that waiting callers look at has changed.
    pub(crate) changed: Condvar,
    /// There is a turn for the supervisor. A bell of its own, as each entry rings `changed`.
    turn_bell: Condvar,
    tick_bell: Condvar,
    send_bell: Condvar,
    ask_bell: Condvar,
    fill_bell: Condvar,
    #[cfg(test)]
    pub(crate) gone: Mutex<Option<Rule>>,
}

pub(crate) struct State {
    member: Member,
    replica: Arc<dyn Replica>,
    end: Option<End>,
    is_stopping: bool,
    is_stopped: bool,
    /// Entries before this one are not shipped from the log: one of them could not be read.
    log_from: Seq,
    /// A planned stop is under way: another primary is what it is for.
    is_leaving: bool,
    /// At the last tick the target's medium had a trouble for which this life ends.
    is_troubled: bool,
    /// pair-S14.
    is_doubted: bool,
    /// The other member knows a life with this number.
    outlived: Option<Incarnation>,
    is_poked: bool,
    is_nudged: bool,
    /// Set when the member first orders in this life.
    serves_above: Option<Incarnation>,
    is_serve_told: bool,
    /// pair-S3: the last line that the note has.
    noted: Option<Line>,
    /// pair-S8.
    copies: Copies,
    flushed_floor: Seq,
    /// The other member has acknowledged lately, so entries are worth a trip on a caller's thread.
    is_taking: bool,
    /// One thread at a time ships entries, so that they arrive in order.
    pub(crate) is_shipping: bool,
    pub(crate) must_ship: bool,
    /// The log did not show entries that the other member waits for.
    must_read_again: bool,
    /// Letters for the sender, the newest of each kind.
    outbox: Vec<Letter>,
    /// For the MGS, the newest of each kind.
    requests: Vec<Request>,
    /// Entries that were committed and are not acknowledged, by their first seq. The log has them as well.
    pending: VecDeque<Logged>,
    mgs_said: String,
    flushed_ms: u64,
    /// The last letter of the other member.
    heard_ms: u64,
    filling: Option<fill::Under>,
    filling_said: String,
    /// Entries that were ordered in this life.
    ordered: u64,
}

impl Seat {
    /// Begins a life. A fault: note and log do not allow one, or the note could not be kept.
    pub fn start(
        setup: Setup,
        replica: Arc<dyn Replica>,
        post: Arc<dyn Post>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Seat>, Fault> {
        let seat = Seat::begin(setup, replica, post, clock)?;
        *seat.threads.lock() = threads::start(&seat.shared)?;
        Ok(seat)
    }

    /// As `start`, without threads: their work is done by `tick_now`, `send_now` and `ask_now`.
    pub(crate) fn begin(
        setup: Setup,
        replica: Arc<dyn Replica>,
        post: Arc<dyn Post>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Seat>, Fault> {
        let Setup { mirror, me, map, note, log, was_clean, boot_id, .. } = setup;
        let Setup { commit_interval_ms, pace, draw, keeps_content, .. } = setup;
        let mut begun = note::begin(&note, (me, &map), &log, was_clean, &boot_id)?;
        begun.life = Incarnation(begun.life.0.saturating_add(draw % LIFE_GAP));
        let (now_ms, mut out) = (clock.boot_ms(), Vec::new());
        let before = (begun.standing, begun.history);
        let member = Member::start(me, begun.life, before, begun.ending, now_ms, &mut out);
        let state = State {
            copies: member.copies(),
            member,
            replica,
            end: None,
            is_stopping: false,
            is_stopped: false,
            log_from: Seq(0),
            is_leaving: false,
            is_troubled: false,
            is_doubted: begun.is_doubted,
            outlived: None,
            is_poked: false,
            is_nudged: false,
            serves_above: None,
            is_serve_told: false,
            noted: None,
            flushed_floor: Seq(0),
            is_taking: false,
            is_shipping: false,
            must_ship: false,
            must_read_again: false,
            outbox: Vec::new(),
            requests: Vec::new(),
            pending: VecDeque::new(),
            mgs_said: String::new(),
            flushed_ms: now_ms,
            heard_ms: 0,
            filling: None,
            filling_said: String::new(),
            ordered: 0,
        };
        let shared = Arc::new(Shared {
            mirror,
            me,
            boot_id,
            commit_interval_ms,
            pace,
            keeps_content,
            post,
            clock,
            serves_until_ms: AtomicU64::new(0),
            reads_until_ms: AtomicU64::new(0),
            expects_stop: AtomicBool::new(false),
            reads_epoch: AtomicU32::new(0),
            stages: AtomicU64::new(0),
            flush_turn: Mutex::new(()),
            state: Mutex::new(state),
            changed: Condvar::new(),
            turn_bell: Condvar::new(),
            tick_bell: Condvar::new(),
            send_bell: Condvar::new(),
            ask_bell: Condvar::new(),
            fill_bell: Condvar::new(),
            #[cfg(test)]
            gone: Mutex::new(None),
        });
        // pair-S1: the effects of the start begin with the record of this life.
        let mut state = shared.state.lock();
        shared.carry_out(&mut state, out, None, None);
        shared.event(&mut state, None, None, |member, now_ms, out| member.on_map(map, now_ms, out));
        let end = state.end.clone();
        drop(state);
        match end {
            Some(End::Failed(fault) | End::Medium(fault) | End::Unreadable(fault)) => Err(fault),
            _ => Ok(Arc::new(Seat { shared, threads: Mutex::new(Vec::new()) })),
        }
    }

    /// The next step for the target's supervisor. It hears of `Serve` once.
    pub fn wait(&self, timeout: Duration) -> Turn {
        let until = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        loop {
            if let Some(end) = &state.end {
                return Turn::Ended(end.clone());
            }
            if let Some(above) = state.serves_above.filter(|_| !state.is_serve_told) {
                state.is_serve_told = true;
                return Turn::Serve { above };
            }
            if std::mem::take(&mut state.is_nudged)
                || self.shared.turn_bell.wait_until(&mut state, until).timed_out()
            {
                return Turn::Quiet;
            }
        }
    }

    /// Ends the supervisor's `wait` now, with `Turn::Quiet` unless there is more to tell.
    pub fn nudge(&self) {
        self.shared.state.lock().is_nudged = true;
        self.shared.turn_bell.notify_all();
    }

    /// The target has another form from now on: a standby has become an MDT that serves.
    pub fn set_replica(&self, replica: Arc<dyn Replica>) {
        self.shared.state.lock().replica = replica;
    }

    /// The mirror, as a newer cluster map has it.
    pub fn on_map(&self, mirror: &wire::map::Mirror) {
        if let Some(members) = mirror::on_map::members_of(mirror) {
            let mut state = self.shared.state.lock();
            self.shared
                .event(&mut state, None, None, |member, now_ms, out| member.on_map(members, now_ms, out));
        }
    }

    /// Has the member look at its clock now.
    pub fn poke(&self) {
        self.shared.state.lock().is_poked = true;
        self.shared.tick_bell.notify_all();
    }

    /// True while this member may serve reads: it orders, or it has every entry that was answered.
    pub fn serves_reads(&self) -> bool {
        self.shared.clock.boot_ms() < self.shared.reads_until_ms.load(Ordering::Acquire)
    }

    /// As `serves_reads`, in this epoch. A reader that knows the epoch from the primary has nothing to replay in it.
    pub fn serves_reads_of(&self, epoch: Epoch) -> bool {
        let is_of = || self.shared.reads_epoch.load(Ordering::SeqCst) == epoch.0;
        is_of() && self.serves_reads() && is_of()
    }

    pub fn report(&self) -> Report {
        let state = self.shared.state.lock();
        let (member, now_ms) = (&state.member, self.shared.clock.boot_ms());
        let (map, standing, end) = (member.map(), member.standing(), member.history().end());
        Report {
            role: if state.end.is_none() { member.role(now_ms) } else { Role::Stopped },
            life: member.life(),
            epoch: map.epoch,
            primary: map.primary,
            states: map.states,
            is_whole: standing.is_whole,
            is_filling: standing.is_filling,
            end: (Epoch(end.line.0), seq(end.seq)),
            flushed: seq(member.own_flushed()),
            acked: member.peer_acked().filter(|_| map.primary == self.shared.me).map(seq),
            peer_flushed: seq(member.peer_flushed()),
            filling: state.filling.as_ref().map(|under| under.filled),
            filling_left_sec: state.filling.as_ref().and_then(|under| under.left_sec()),
            filling_said: state.filling_said.clone(),
            is_asking: standing.asked == Some(map.epoch),
            mgs_said: state.mgs_said.clone(),
            ended: state.end.clone(),
        }
    }

    /// The process has begun to stop: `leave` follows for each of its members.
    pub fn expect_stop(&self) {
        // Without the lock: it is held while a medium hangs, and other members of this process leave meanwhile.
        self.shared.expects_stop.store(true, Ordering::Release);
    }

    /// Ends this life for a fault that its target's owner has met.
    pub fn fail(&self, fault: Fault) {
        self.shared.end_life(&mut self.shared.state.lock(), End::Failed(fault));
    }

    /// mirror-E5: a follower gives its primary the time to leave first, as one that stops too does.
    pub fn await_primary(&self, within: Duration) {
        let (shared, until) = (&self.shared, Instant::now() + within);
        let mut state = shared.state.lock();
        let must_wait = |state: &State| {
            // A member that has just joined holds no promise yet, and counts as one of two already.
            let (map, is_near) = (state.member.map(), shared.clock.boot_ms() < state.heard_ms + PROMISE_MS);
            state.end.is_none()
                && is_near
                && map.is_pair()
                && map.primary != shared.me
                && !state.member.is_left()
        };
        while must_wait(&state) && !shared.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// A planned stop. The target takes no requests any more and has flushed its log. The other member is told, and asks the MGS at once.
    pub fn leave(&self) -> Result<(), Fault> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        // From here on nothing is ordered. An entry that only this log had would be cut from it later, and a checkpoint cannot be cut.
        state.is_leaving = true;
        let until = Instant::now() + LEAVE;
        while state.end.is_none() && state.lacks_acks() {
            if shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        shared.event(&mut state, None, None, |member, now_ms, out| member.on_leave(now_ms, out));
        let is_told = shared.send_outbox(&mut state);
        // The other member returns this one's promise when it is alone. Then the next life is bound to nothing.
        let until = Instant::now() + LEAVE;
        while is_told && state.end.is_none() && !state.member.is_free(shared.clock.boot_ms()) {
            if shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        drop(state);
        self.stop()
    }

    /// Ends this life, if it has not ended, and its threads. The target closes its volume then.
    pub fn stop(&self) -> Result<(), Fault> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        shared.end_life(&mut state, End::Stopped);
        state.is_stopping = true;
        shared.ring_all();
        if !state.outbox.is_empty() {
            shared.send_outbox(&mut state);
        }
        drop(state);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.thread().id() != std::thread::current().id() {
                thread
                    .join()
                    .map_err(|_| Fault::new(Code::Io, "a thread of the mirror's member has panicked"))?;
            }
        }
        let mut state = shared.state.lock();
        let kept = match state.end == Some(End::Stopped) && !state.is_stopped {
            true => {
                let is_free = state.member.is_free(shared.clock.boot_ms());
                state.replica.keep_note(&shared.note(&state, Some(is_free)).encode())
            }
            false => Ok(()),
        };
        state.is_stopped = true;
        // The target has this seat as its companion, and would keep its medium for ever. It is dropped without the lock, which its threads ask for.
        let target = std::mem::replace(&mut state.replica, Arc::new(Gone));
        let filling = state.filling.take();
        drop(state);
        drop((target, filling));
        kept
    }
}

/// In place of a target that has ended.
struct Gone;

impl Replica for Gone {
    fn keep_note(&self, _: &[u8]) -> Result<(), Fault> {
        Err(gone())
    }
    fn flush(&self) -> Result<Seq, Fault> {
        Err(gone())
    }
    fn first(&self) -> Seq {
        Seq(u64::MAX)
    }
    fn entries(&self, _: Seq, _: usize) -> Result<Vec<Logged>, Fault> {
        Err(gone())
    }
    fn append(&self, _: &Logged) -> Result<(), Fault> {
        Err(gone())
    }
    fn copy_out(&self, _: u64, _: u64) -> Result<Copied, Fault> {
        Err(gone())
    }
}

fn gone() -> Fault {
    Fault::new(Code::NotReady, "this life of the mirror's member has ended; ask its next one")
}

impl Drop for Seat {
    /// As a kill: the note says nothing of a clean stop.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        self.shared.end_life(&mut state, End::Stopped);
        state.is_stopping = true;
        self.shared.ring_all();
        drop(state);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A thread that panicked has told why.
            let _ = thread.join();
        }
    }
}

impl State {
    /// At the member that orders: the other one must have an entry that it has not acknowledged.
    fn lacks_acks(&self) -> bool {
        self.serves_above.is_some()
            && self.copies == Copies::Both
            && self.member.peer_acked().is_some_and(|acked| acked < self.member.history().end().seq)
    }
}

impl Shared {
    fn note(&self, state: &State, stop: Option<bool>) -> Kept {
        let member = &state.member;
        let lines = member.history().lines().to_vec();
        let life = state.outlived.map_or(member.life(), |number| number.max(member.life()));
        let (standing, is_doubted) = (*member.standing(), state.is_doubted && !member.map().is_sole(self.me));
        Kept { life, boot_id: self.boot_id, standing, stop, is_doubted, lines }
    }

    fn ring_all(&self) {
        for bell in [
            &self.changed,
            &self.turn_bell,
            &self.tick_bell,
            &self.send_bell,
            &self.ask_bell,
            &self.fill_bell,
        ] {
            bell.notify_all();
        }
    }

    /// pair-S7: refuses once this life has ended.
    fn check_life(&self, state: &State) -> Result<(), Fault> {
        let Some(end) = &state.end else { return Ok(()) };
        let why = match end {
            End::Cut(_) | End::Refill => "it lacks what the other member has",
            End::Failed(_) | End::Medium(_) | End::Unreadable(_) | End::Doubted => "it has failed",
            End::Deposed => "the other member is primary now",
            End::Outlived => "the other member knows a later life of it",
            End::Stopped => "it stops",
        };
        let next = "send the request to the mirror's primary, or again when this member is back";
        Err(Fault::new(
            Code::NotReady,
            format!("this member of mirror {} does not serve: {why}; {next}", self.mirror),
        ))
    }

    /// pair-S7.
    fn end_life(&self, state: &mut State, end: End) {
        if state.end.is_none() {
            // Whatever ended it first: the next life must not trust such a medium. One without space has a longer pause.
            state.end = Some(match (self.end_of_medium(state), end) {
                (Some(found @ (End::Medium(_) | End::Unreadable(_))), end) if end != End::Stopped => found,
                (Some(found), End::Failed(_)) => found,
                (_, end) => end,
            });
            self.serves_until_ms.store(0, Ordering::Release);
            self.reads_until_ms.store(0, Ordering::Release);
            (state.outbox, state.requests) = (self.last_words(state), Vec::new());
            state.pending.clear();
            self.ring_all();
        }
    }

    /// pair-S15: the letters of a life that ended by a fault, for `stop` to send, unless the other member was told already.
    fn last_words(&self, state: &mut State) -> Vec<Letter> {
        let is_fault = matches!(state.end, Some(End::Failed(_) | End::Medium(_) | End::Unreadable(_)))
            && kept!(self, FaultsAreTold);
        if state.member.is_leaving() || !is_fault {
            return Vec::new();
        }
        let mut out = Vec::new();
        state.member.on_leave(self.clock.boot_ms(), &mut out);
        let letter = |effect| if let Effect::Send(letter) = effect { Some(letter) } else { None };
        out.into_iter().filter_map(letter).collect()
    }
}

/// For tests that plant faults.
impl Shared {
    #[cfg(test)]
    fn kept(&self, rule: Rule) -> bool {
        *self.gone.lock() != Some(rule)
    }
}

/// True unless a test has taken the rule away.
macro_rules! kept {
    ($shared:expr, $rule:ident) => {{
        #[cfg(test)]
        let kept = $shared.kept(crate::planted::Rule::$rule);
        #[cfg(not(test))]
        let kept = true;
        kept
    }};
}
use kept;

#[cfg(test)]
impl Seat {
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}
