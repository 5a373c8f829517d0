//! Several sessions at one MDT: their open files, their sections of files, and the mode that each lives by.
//!
//! All of it is in memory only. After a restart each client reports what it holds (`Hold`), and no mutation runs before all sessions have
//! reported or ended (mds-X1). The mode is a generation counter. It is even while one session is alone, and odd while several share the
//! file system or a client asks to attach beside one.
//!
//! mds-X1: with several sessions a mutation runs only while each of them has reported its holds to this incarnation.
//! mds-X2: a newly attaching client is admitted only when all other sessions live by the sharing mode: they have leases of
//!     the files whose size they know better, or have told the MDT. They cache only under leases.
//! mds-X3: sections of a file are granted in FIFO order; a waiter that no longer asks is passed over.
//! mds-X4: a section that was left never begins again, even by a late request. A `Close` with a token that was left closes no file, because
//!     the client may have opened it anew since.
//! mds-X5: while some sessions have not reported, a replay that removes a file's last name leaves the file to one of those. That session's
//!     `Hold` decides whether the file stays.
//! mds-X6 and mds-X7 are in `catch_up`, mds-X9 is in `overdue`.
//! mds-X8: a session that has reported its holds has replayed everything that was lost. A later replay by it is of a request that it
//!     abandoned, and other sessions may have changed the same file since. Such a replay is answered from its slot if the request was
//!     carried out, and refused if not; the program got an error for it.
//!
//! meta-H2 also covers opens that do not enter the executor (`OpenRead`). Such an open is noted first and reads second. A transaction that
//! finds no other holder of a file marks it for unlink in the same step, until its entry is applied or abandoned. So of an open and the
//! removal of the last name, one sees the other. Either the transaction finds the note and leaves an orphan, or the open finds the mark and
//! must go through the executor.

pub mod opens;
mod sections;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use meta::sharing::Sharing;
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Code, Fault, Fid, Incarnation, MirrorId, Seq, SessionId, Uuid};
use wire::Empty;
use wire::notice::{GiveBack, Wanted};
use wire::shared::{ALL, CatchUp, CatchUpReply, Close, Enter, Hold, LeaseKind, Leave};

use crate::Core;
use crate::records::ids::no_lease;
use crate::reply::refuse_observer;
use crate::sessions::Sessions;
use crate::sessions::catch_up::CatchingUp;
use crate::sessions::overdue::{Debt, Overdue, Owes};
use opens::Opens;
use sections::{Ended, Id, Section, Turns};

/// Longest wait for a section within one request: others need the connection, and the client asks again.
const ENTER_WAIT: Duration = Duration::from_millis(40);
/// How long a session that is alone goes on sharing for a client that asked to come in, did not yet, and may ask again.
const LINGER_MS: u64 = 15_000;
/// Threads that wait for turns at a time. Further calls are answered at once, so that the attaches of other clients find threads.
const TURN_WAITERS_MAX: usize = 16;
/// Files of one `Close`: a client of this version sends far fewer.
const CLOSE_MAX: usize = 1024;

/// What the MDT keeps in mind of its sessions.
pub struct Sharers {
    mode: AtomicU32,
    /// 0: none was needed yet.
    era: AtomicU64,
    state: Mutex<State>,
    /// Sessions in `State::awaited`, to be read without the lock.
    awaited_count: AtomicUsize,
    changed: Condvar,
    /// mds-X6: it may be another's turn to send again.
    turned: Condvar,
    /// All have said what they hold, once since the start.
    was_whole: AtomicBool,
}

#[derive(Default)]
struct State {
    /// In the sharing mode: sessions that have not told this incarnation that they live by it.
    awaited: BTreeSet<SessionId>,
    opens: Opens,
    /// By how many transactions that are under way.
    doomed: HashMap<Fid, u32>,
    sections: Turns,
    /// Evicted sessions whose leases of content stand until these boot times.
    ghosts: HashMap<SessionId, u64>,
    /// mds-X4.
    ended: HashMap<SessionId, Ended>,
    /// mds-X5: what was left to whom.
    left_to: HashMap<SessionId, Vec<Fid>>,
    /// The lease that those who share have in common: counter and what goes above it.
    lease: Option<(u32, u32)>,
    catching_up: CatchingUp,
    /// Threads that wait in `catch_up`.
    waiting_for_turns: usize,
    /// The client that asked last to come in and was not let in yet, and when it did so, boot time.
    asked: Option<(Uuid, u64)>,
    /// mds-X9.
    overdue: Overdue,
}

impl State {
    fn is_asked(&self, now_ms: u64) -> bool {
        self.asked.is_some_and(|(_, at)| now_ms.saturating_sub(at) < LINGER_MS)
    }
    /// Nobody shares any more. What is doomed is so until its transaction has ended.
    fn clear(&mut self) {
        let doomed = std::mem::take(&mut self.doomed);
        let waiting_for_turns = self.waiting_for_turns;
        *self = State { asked: self.asked, doomed, waiting_for_turns, ..State::default() };
    }
}

/// What one transaction has doomed: files that nobody else has open, which it may end. To be dropped after it is applied or given up,
/// and not before.
pub struct Doom<'a> {
    sharers: &'a Sharers,
    fids: RefCell<Vec<Fid>>,
}

impl<'a> Doom<'a> {
    pub fn new(sharers: &'a Sharers) -> Doom<'a> {
        Doom { sharers, fids: RefCell::default() }
    }

    /// Another session that has the file open; `None` dooms it.
    pub fn other_holder(&self, session: SessionId, fid: Fid) -> Option<SessionId> {
        let mut state = self.sharers.state.lock();
        let holder = state.opens.elsewhere(session, fid, |_| true);
        if holder.is_none() {
            *state.doomed.entry(fid).or_default() += 1;
            self.fids.borrow_mut().push(fid);
        }
        holder
    }
}

impl Drop for Doom<'_> {
    fn drop(&mut self) {
        if self.fids.get_mut().is_empty() {
            return;
        }
        let mut state = self.sharers.state.lock();
        for fid in self.fids.get_mut().drain(..) {
            if let Some(count) = state.doomed.get_mut(&fid) {
                *count -= 1;
                if *count == 0 {
                    state.doomed.remove(&fid);
                }
            }
        }
    }
}

impl Sharers {
    /// Several sessions in the table share from the start.
    pub fn new(sessions: &[SessionId]) -> Sharers {
        let is_shared = sessions.len() > 1;
        let awaited: BTreeSet<_> = sessions.iter().copied().filter(|_| is_shared).collect();
        Sharers {
            mode: AtomicU32::new(is_shared.into()),
            era: AtomicU64::new(0),
            awaited_count: AtomicUsize::new(awaited.len()),
            state: Mutex::new(State { awaited, ..State::default() }),
            changed: Condvar::new(),
            turned: Condvar::new(),
            was_whole: AtomicBool::new(false),
        }
    }

    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::SeqCst)
    }
    pub fn is_sharing(&self) -> bool {
        self.mode() % 2 == 1
    }

    /// A session that begins now knows nothing better and lives by the present mode. Where there are no others it is alone from the first,
    /// also if it waited until a session before it had ended; and if more wait, they ask again. The lock `ending` is held.
    pub fn begin(&self, session: SessionId, client: Uuid, others: usize) {
        let mut state = self.state.lock();
        if state.asked.is_some_and(|(who, _)| who == client) {
            state.asked = None;
        }
        if others == 0 && self.is_sharing() && state.ghosts.is_empty() {
            self.mode.fetch_add(1, Ordering::SeqCst);
            state.clear();
        }
        assert!(!state.awaited.contains(&session), "a new session lives by the present mode");
        self.note_awaited(&state);
    }

    fn note_awaited(&self, state: &State) {
        self.awaited_count.store(state.awaited.len(), Ordering::SeqCst);
    }
    pub fn awaited_count(&self) -> usize {
        self.awaited_count.load(Ordering::SeqCst)
    }
    /// Some of the sessions that have not reported.
    pub fn awaited(&self, at_most: usize) -> Vec<SessionId> {
        self.state.lock().awaited.iter().take(at_most).copied().collect()
    }

    /// mds-L4, for content: leases of evicted sessions whose term is over go.
    pub fn forget_ghosts(&self, now_ms: u64) {
        let mut state = self.state.lock();
        let over: Vec<SessionId> =
            state.ghosts.iter().filter(|(_, ends)| **ends <= now_ms).map(|(session, _)| *session).collect();
        for session in over {
            state.ghosts.remove(&session);
            state.sections.forget(session);
            self.changed.notify_all();
        }
    }

    /// A session has ended. `leased_until`: its client may use its leases of content until this boot time.
    pub fn forget(&self, session: SessionId, leased_until: Option<u64>) {
        let mut state = self.state.lock();
        state.awaited.remove(&session);
        self.note_awaited(&state);
        state.ended.remove(&session);
        state.left_to.remove(&session);
        state.catching_up.forget(session);
        state.opens.forget(session);
        match leased_until {
            Some(ends) => _ = state.ghosts.insert(session, ends),
            None => state.sections.forget(session),
        }
        self.changed.notify_all();
        self.turned.notify_all();
    }

    /// mds-X2: asks all to share, for a `client` that wants to attach, and tells whether all of `sessions` do. The lock `ending` is held.
    pub fn ask_to_share(&self, sessions: &Sessions, client: Uuid, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        state.asked = Some((client, now_ms));
        if !self.is_sharing() {
            self.mode.fetch_add(1, Ordering::SeqCst);
            state.awaited = sessions.ids().into_iter().collect();
            self.note_awaited(&state);
        }
        state.awaited.is_empty()
    }

    /// mds-X1: has every session reported its holds? Takes no lock.
    pub fn are_whole(&self) -> bool {
        self.awaited_count() == 0
    }

    /// The session has not reported its holds.
    pub fn is_awaited(&self, session: SessionId) -> bool {
        self.awaited_count() > 0 && self.state.lock().awaited.contains(&session)
    }

    /// mds-X8.
    pub fn has_said(&self, session: SessionId) -> bool {
        self.is_sharing() && !self.is_awaited(session)
    }

    /// A session that is alone, and for which no client waits, needs not share. One that was asked to and does not is not asked anew by each who wants to come in (mds-X9).
    pub fn rest(&self, sessions: usize, now_ms: u64) {
        let mut state = self.state.lock();
        let is_quiet = state.awaited.is_empty() && state.ghosts.is_empty();
        if self.is_sharing() && sessions < 2 && is_quiet && !state.is_asked(now_ms) {
            self.mode.fetch_add(1, Ordering::SeqCst);
            state.clear();
        }
    }

    /// mds-X9. `is_alone`: there is one session at most. `no_locks`: sessions that have not reclaimed their locks. `here`: this MDT, and its incarnation.
    pub fn overdue(
        &self,
        is_alone: bool,
        no_locks: &[SessionId],
        here: (MirrorId, Incarnation),
        (are_osts_up, is_void): (bool, &dyn Fn(SessionId) -> bool),
        now_ms: u64,
    ) -> Vec<(SessionId, Owes)> {
        let (mut state, mode) = (self.state.lock(), self.mode());
        let mut debts = Vec::new();
        let is_asked = state.is_asked(now_ms);
        // 1. Before a newcomer is let in, what goes to OSTs is written down; after a restart that was so before it.
        if !is_alone || are_osts_up {
            let next_of = |s: &SessionId| state.catching_up.next_of(*s, here.0, here.1);
            let lowest = state.awaited.iter().map(next_of).min();
            for session in state.awaited.iter().filter(|s| Some(next_of(s)) == lowest) {
                let owes = Owes::Hold { mode, next: next_of(session) };
                debts.push(Debt {
                    session: *session,
                    owes,
                    is_wanted: !is_alone || is_asked,
                    is_void: false,
                });
            }
        }
        // 2. Locks are said after that.
        for session in no_locks.iter().filter(|s| !is_alone && !state.awaited.contains(s)) {
            debts.push(Debt { session: *session, owes: Owes::Locks, is_wanted: true, is_void: false });
        }
        // 3. A call goes on when all have said what they hold (mds-X1). A lease that was wanted once is so until it is given back.
        let (can_end, now) = (are_osts_up && state.awaited.is_empty(), Instant::now());
        for (fid, (session, token), recalled) in state.sections.recalled() {
            let (owes, is_wanted, is_void) =
                (Owes::Leave { fid, token }, recalled.is_wanted(now), is_void(session));
            if can_end || is_void {
                debts.push(Debt { session, owes, is_wanted, is_void });
            }
        }
        state.overdue.look(&debts, now_ms)
    }

    /// To note something of a session. That it lives is looked at under the lock: who ends it forgets what is noted here, and what would
    /// be noted later stayed for ever.
    fn state_for(&self, session: SessionId, sessions: &Sessions) -> Result<MutexGuard<'_, State>, Fault> {
        let state = self.state.lock();
        sessions.check(session)?;
        Ok(state)
    }

    /// Of a session that has ended meanwhile nothing is noted.
    pub fn note_open(&self, session: SessionId, fid: Fid, write: bool, sessions: &Sessions) {
        if self.is_sharing()
            && let Ok(mut state) = self.state_for(session, sessions)
        {
            state.opens.add(session, fid, write);
        }
    }

    /// May the session have one more file open, or this one?
    pub fn check_open(&self, session: SessionId, fid: Option<Fid>) -> Result<(), Fault> {
        self.state.lock().opens.check(session, fid)
    }
    pub fn has_all_opens(&self, session: SessionId) -> bool {
        self.state.lock().opens.is_full(session)
    }

    /// As `note_open`, for reading and outside of the writer's role. False: the file may be losing its last name just now.
    pub fn note_read(&self, session: SessionId, fid: Fid, sessions: &Sessions) -> Result<bool, Fault> {
        let mut state = self.state_for(session, sessions)?;
        state.opens.check(session, Some(fid))?;
        state.opens.add(session, fid, false);
        Ok(!state.doomed.contains_key(&fid))
    }

    /// False: that `token` is over (mds-X4).
    fn close(&self, session: SessionId, fid: Fid, token: Option<u64>) -> bool {
        let mut state = self.state.lock();
        if token.is_some_and(|token| state.ended.get(&session).is_some_and(|e| e.is_over(token))) {
            return false;
        }
        state.opens.remove(session, fid);
        let tokens = state.sections.close(fid, session);
        if !tokens.is_empty() {
            let ended = state.ended.entry(session).or_default();
            tokens.into_iter().for_each(|token| ended.left(token));
        }
        self.changed.notify_all();
        true
    }

    /// mds-X5: one of these who has not said what it holds.
    fn leave_to_awaited(&self, session: SessionId, fid: Fid, sessions: &Sessions) -> Option<SessionId> {
        if self.are_whole() {
            return None;
        }
        let mut state = self.state.lock();
        let is_it = |s: &&SessionId| **s != session && sessions.get(**s).is_some();
        let other = *state.awaited.iter().find(is_it)?;
        state.left_to.entry(other).or_default().push(fid);
        Some(other)
    }

    /// Another session that has the file open for writing.
    fn other_writer(&self, session: SessionId, fid: Fid) -> Option<SessionId> {
        self.state.lock().opens.elsewhere(session, fid, |write| write)
    }

    /// Waits a little for the lease, and returns its kind. The table's truth is read after this, so what those before did is seen.
    pub fn enter(
        &self,
        session: SessionId,
        req: &Enter,
        sessions: &Sessions,
    ) -> Result<Option<LeaseKind>, Fault> {
        let who = Section { session, token: req.token, kind: req.kind };
        let until = Instant::now() + ENTER_WAIT;
        let mut state = self.state_for(session, sessions)?;
        state.ended.entry(session).or_default().raise(req.floor);
        loop {
            // It may have ended while this waited.
            sessions.check(session)?;
            if state.ended.get(&session).is_some_and(|e| e.is_over(who.token)) {
                return Err(Fault::new(
                    Code::BadRequest,
                    "a late copy of a request for a section that was left",
                ));
            }
            let now = Instant::now();
            let granted = state.sections.enter(req.fid, who, now)?;
            if granted.is_some() {
                return Ok(granted);
            }
            let recalled = state.sections.recall(req.fid, &who, now);
            if !recalled.is_empty() {
                MutexGuard::unlocked(&mut state, || recall(req.fid, &recalled, sessions));
                continue;
            }
            let _wait = spent::waiting(spent::Cause::Lock);
            if self.changed.wait_until(&mut state, until).timed_out() {
                return Ok(None);
            }
        }
    }

    /// mds-X6. Waits a little for the session's turn. `here`: this MDT, where those who have said what they hold have sent all again.
    fn catch_up(
        &self,
        session: SessionId,
        req: &CatchUp,
        here: MirrorId,
        sessions: &Sessions,
    ) -> Result<Seq, Fault> {
        let at = &req.at;
        let deadline = Instant::now() + ENTER_WAIT;
        let is_here = at.mirror == here;
        let mut state = self.state_for(session, sessions)?;
        if state.catching_up.note(session, at, Instant::now())? && state.catching_up.has_all(at) {
            self.turned.notify_all();
        }
        loop {
            let state_now = &*state;
            let others = || state_now.awaited.iter().filter(|s| **s != session);
            let until = match is_here {
                true => state.catching_up.until_here(session, at, others()),
                false if others().next().is_none() => state.catching_up.until(session, at, Instant::now()),
                // The users of the mirror are not known.
                false => Seq(0),
            };
            let is_turn = until > at.next || until == ALL;
            if is_turn || state.waiting_for_turns >= TURN_WAITERS_MAX {
                return Ok(until);
            }
            state.waiting_for_turns += 1;
            let is_late = self.turned.wait_until(&mut state, deadline).timed_out();
            state.waiting_for_turns -= 1;
            if is_late {
                return Ok(until);
            }
        }
    }

    pub fn leave(&self, session: SessionId, req: &Leave, sessions: &Sessions) -> Result<(), Fault> {
        self.end_token(session, req.token, req.floor, sessions)?;
        self.let_go(session, req.fid, req.token);
        Ok(())
    }

    /// mds-X4.
    fn end_token(
        &self,
        session: SessionId,
        token: u64,
        floor: u64,
        sessions: &Sessions,
    ) -> Result<(), Fault> {
        let mut state = self.state_for(session, sessions)?;
        let ended = state.ended.entry(session).or_default();
        ended.left(token);
        ended.raise(floor);
        Ok(())
    }

    pub fn with_leases(&self, look: &mut dyn FnMut(&Turns)) {
        look(&self.state.lock().sections);
    }

    pub fn holds(&self, session: SessionId, fid: Fid, token: u64) -> bool {
        self.state.lock().sections.holds(fid, (session, token))
    }

    /// The session does not hold the lease, and may ask for it again.
    pub fn let_go(&self, session: SessionId, fid: Fid, token: u64) {
        let mut state = self.state.lock();
        state.sections.let_go(fid, session, token);
        self.changed.notify_all();
    }
}

/// Tells sessions that others want their leases.
fn recall(fid: Fid, leases: &[Id], sessions: &Sessions) {
    for (session, token) in leases {
        if let Some(session) = sessions.get(*session) {
            session.notices.push(&GiveBack { items: vec![Wanted { fid, token: *token }] });
        }
    }
}

impl Core {
    /// mds-X1.
    pub fn check_whole(&self) -> Result<(), Fault> {
        match self.sharers.are_whole() || self.sessions.count() < 2 {
            true => Ok(()),
            false => Err(Fault::new(
                Code::NotReady,
                "this MDT restarted, and not all its clients have said yet what they hold; those that died, or hang, are waited for \
                 until their session ends",
            )),
        }
    }

    /// mds-X6, for reads: what others did before the restart may be about to come back. Takes no lock once it is over.
    pub fn check_come_back(&self) -> Result<(), Fault> {
        if !self.sharers.was_whole.load(Ordering::Acquire) {
            self.check_whole()?;
            self.sharers.was_whole.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Several share, and this one has not told us what it holds.
    pub fn is_hold_awaited(&self, session: SessionId) -> bool {
        self.sharers.is_awaited(session) && self.sessions.count() > 1
    }

    pub fn on_hold(&self, session: SessionId, req: &Hold) -> Result<Empty, Fault> {
        // mds-L5.
        if self.sessions.get(session).is_some_and(|session| !session.has_attached.load(Ordering::SeqCst)) {
            return Err(Fault::new(Code::Moved, "this MDT restarted; attach again, then report your holds"));
        }
        self.ensure_era()?;
        let mut state = self.sharers.state_for(session, &self.sessions)?;
        state.ended.entry(session).or_default().raise(req.floor);
        for open in &req.opens {
            state.opens.check(session, Some(open.fid))?;
            state.opens.add(session, open.fid, open.write);
        }
        // mds-Z5: a late copy claims nothing, nor does a session that gets no such lease.
        if state.awaited.contains(&session) && self.sessions.one_user(session)?.is_none() {
            req.dirs.iter().for_each(|held| self.makers.claim(session, held.clone()));
        }
        for held in &req.sections {
            // mds-X4: left since this was said.
            if state.ended.get(&session).is_some_and(|e| e.is_over(held.token)) {
                continue;
            }
            let section = Section { session, token: held.token, kind: held.kind };
            state.sections.claim(held.fid, section)?;
        }
        // mds-X2: what was said of a mode that is over, by a client that has not heard so yet, says nothing of how it lives; modes are counted
        // anew after a restart.
        if req.more || req.mode != self.sharers.mode() {
            return Ok(Empty {});
        }
        for at in &req.mirrors {
            state.catching_up.note(session, at, Instant::now())?;
        }
        state.awaited.remove(&session);
        self.sharers.note_awaited(&state);
        // While more are awaited, a turn rarely comes by this, and those that wait ask again soon.
        if state.awaited.len() <= 1 {
            self.sharers.turned.notify_all();
        }
        let mut left = state.left_to.remove(&session).unwrap_or_default();
        left.retain(|fid| !state.opens.has(session, *fid));
        drop(state);
        self.let_go_of_all(session, &left, None)?;
        Ok(Empty {})
    }

    pub fn on_catch_up(&self, session: SessionId, req: &CatchUp) -> Result<CatchUpReply, Fault> {
        self.check_session(session)?;
        let here = self.volume.label().mirror;
        Ok(CatchUpReply { until: self.sharers.catch_up(session, req, here, &self.sessions)? })
    }

    /// One that fails keeps none of the others open, and the first that does is told. A file whose record cannot be read is not held any
    /// more, and asking again would not help.
    fn let_go_of_all(&self, session: SessionId, fids: &[Fid], token: Option<u64>) -> Result<(), Fault> {
        let mut told = Ok(());
        for fid in fids {
            match self.let_go_of(session, *fid, token) {
                Err(fault) if fault.code == Code::Damaged => {
                    tracing::warn!(fid = fid.0, %fault, "a file that was closed cannot be read; run fsck");
                }
                done => told = told.and(done),
            }
        }
        told
    }

    /// The session has the file open no more, or never had. With a `token` that is over, nothing happens.
    fn let_go_of(&self, session: SessionId, fid: Fid, token: Option<u64>) -> Result<(), Fault> {
        let (no_lease, doom) = (no_lease(), Doom::new(&self.sharers));
        let others = Others { core: self, session, lease_high: &no_lease, doom: &doom };
        // Under the writer's lock: an unlink that finds it open here is over, or finds it closed.
        let done = self.transact(&no_lease, &mut |txn| {
            if !self.sharers.close(session, fid, token) {
                return Ok(vec![]);
            }
            if self.rules.orphan_holder(txn, fid) == Some(session) {
                self.rules.leave_orphan(txn, fid, others.opened_elsewhere(fid))?;
            }
            if !others.written_elsewhere(fid) {
                self.rules.rest(txn, fid, others.era())?;
            }
            Ok(vec![])
        });
        done.map(|_| ())
    }

    /// meta-H2: the last who had an orphan open lets it go.
    pub fn on_close(&self, session: SessionId, req: &Close) -> Result<Empty, Fault> {
        if session == SessionId(0) {
            return Err(refuse_observer());
        }
        if req.fids.len() > CLOSE_MAX {
            let why = format!("{} files are closed by one request, and {CLOSE_MAX} may be", req.fids.len());
            return Err(Fault::new(Code::Invalid, why));
        }
        self.check_session(session)?;
        // Who else has it open must be known.
        self.check_whole()?;
        self.let_go_of_all(session, &req.fids, Some(req.token))?;
        self.sharers.end_token(session, req.token, req.floor, &self.sessions)?;
        Ok(Empty {})
    }

    /// Draws the first era, if there is none.
    pub fn ensure_era(&self) -> Result<(), Fault> {
        match self.sharers.era.load(Ordering::SeqCst) {
            0 => self.begin_era(),
            _ => Ok(()),
        }
    }

    /// What was said of unflushed sizes counts no more. Lease numbers are never drawn twice, so they serve as names of eras.
    pub fn begin_era(&self) -> Result<(), Fault> {
        let (high, low) = (Cell::new(0), Cell::new(0));
        self.transact(&high, &mut |txn| {
            low.set(meta::Txn::next_lease(txn));
            Ok(vec![])
        })?;
        self.sharers.era.store((high.get() as u64) << 32 | low.get() as u64, Ordering::SeqCst);
        Ok(())
    }
}

/// What the rules are told of the other sessions.
pub struct Others<'a> {
    pub core: &'a Core,
    pub session: SessionId,
    pub lease_high: &'a Cell<u32>,
    pub doom: &'a Doom<'a>,
}

impl Sharing for Others<'_> {
    /// By the mode and not by their number: who is left alone, or came when another had just died, goes on taking turns for a while,
    /// and its own calls must not fence each other by a lease version each.
    fn is_shared(&self) -> bool {
        self.core.sharers.is_sharing()
    }
    fn is_alive(&self, session: SessionId) -> bool {
        self.core.sessions.get(session).is_some()
    }
    fn is_open_here(&self, fid: Fid) -> bool {
        self.core.sharers.state.lock().opens.has(self.session, fid)
    }
    fn opened_elsewhere(&self, fid: Fid) -> Option<SessionId> {
        let awaited = || self.core.sharers.leave_to_awaited(self.session, fid, &self.core.sessions);
        self.doom.other_holder(self.session, fid).or_else(awaited)
    }
    fn written_elsewhere(&self, fid: Fid) -> bool {
        self.core.sharers.other_writer(self.session, fid).is_some()
    }
    fn leased_elsewhere(&self, fid: Fid) -> bool {
        self.core.sharers.state.lock().sections.is_held_elsewhere(fid, self.session)
    }
    fn holds_alone(&self, fid: Fid, token: u64) -> bool {
        self.core.sharers.state.lock().sections.holds_alone(fid, (self.session, token))
    }
    fn era(&self) -> u64 {
        self.core.sharers.era.load(Ordering::SeqCst)
    }
    fn lease(&self) -> Option<u32> {
        let (high, counter) = self.core.sharers.state.lock().lease?;
        self.lease_high.set(high);
        Some(counter)
    }
    fn set_lease(&self, counter: u32) {
        self.core.sharers.state.lock().lease = Some((self.lease_high.get(), counter));
    }
    fn keeps_removed(&self) -> bool {
        self.core.grace.is_open(|| self.core.clock.boot_ms())
    }
    fn newest_lease(&self) -> u32 {
        let number = self.core.newest_lease.load(Ordering::SeqCst);
        self.lease_high.set((number >> 32) as u32);
        number as u32
    }
}

#[cfg(test)]
mod tests;
