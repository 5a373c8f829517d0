//! Waits for locks: one thread per client waits for any number of them.
//!
//! The caller's thread asks once, and returns. If the answer is `Wait`, the MDT tells by a notice when the lock is free. The thread here then asks
//! again and reports the outcome. It also keeps the positions in the queues.

use std::sync::Weak;
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid};
use wire::lock::{
    AwaitLocks, CancelLock, LOCKS_PER_CALL_MAX, Lock, LockKind, LockOutcome, LockSpace, WaitingLock,
};

use super::{Debt, FileLock, LockAnswer, LockDone, State, Waiting};
use crate::Fs;
use crate::cache::api::Handle;

/// Time between two calls that keep queue positions, which the MDT drops after 2 s.
const KEEP_EACH: Duration = Duration::from_millis(500);
/// Longest delay of an interrupted program, if the MDT does not answer.
const CANCEL_MAX: Duration = Duration::from_secs(1);
/// Pause of the thread without work, and after a failure.
const TICK: Duration = Duration::from_millis(250);

impl Fs {
    /// Takes a lock as soon as it is free, and calls `done`, now or later. `unique` names the request for `interrupt_lock`, which finds it once this
    /// returns, or before.
    pub fn await_lock(&self, handle: Handle, lock: &FileLock, unique: u64, done: LockDone) {
        let fid = match self.locked_file(handle) {
            Ok(fid) => fid,
            Err(fault) => return done(Err(fault)),
        };
        self.note_taker(fid, handle, lock);
        let ticket = {
            let mut state = self.id.locks.state.lock();
            let ticket = state.new_number();
            let lock = *lock;
            let waiting = Waiting {
                fid,
                lock,
                unique,
                handle,
                is_asked: true,
                is_free: false,
                is_interrupted: false,
                done,
            };
            state.waiting.insert(ticket, waiting);
            ticket
        };
        self.ask_waiting(ticket);
        if self.is_stopping() {
            self.end_waiting();
        }
    }

    /// Ends a wait after a signal, unless the lock was granted just now. False: no such request waits.
    pub fn interrupt_lock(&self, unique: u64) -> bool {
        let mut state = self.id.locks.state.lock();
        let found = state.waiting.iter_mut().find(|(_, w)| w.unique == unique);
        let Some((&ticket, waiting)) = found else {
            return false;
        };
        if waiting.is_asked {
            // The thread that asks reports the outcome.
            waiting.is_interrupted = true;
            return true;
        }
        let waiting = state.waiting.remove(&ticket).expect("it was found");
        drop(state);
        self.give_place_up(waiting.fid, waiting.lock.space, ticket);
        (waiting.done)(Ok(LockAnswer::Interrupted));
        true
    }

    /// Asks for a ticket that is marked as being asked for.
    fn ask_waiting(&self, ticket: u64) {
        while self.ask_once(ticket) {}
    }

    /// True: the lock came free while it was asked for, so ask again.
    fn ask_once(&self, ticket: u64) -> bool {
        let (fid, lock, handle) = match self.id.locks.state.lock().waiting.get_mut(&ticket) {
            Some(w) => {
                w.is_free = false;
                (w.fid, w.lock, w.handle)
            }
            None => return false,
        };
        let asked =
            self.locked_file(handle).and_then(|_| self.send_lock(fid, &lock, Some(ticket), self.deadline()));
        let mut state = self.id.locks.state.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return false };
        let answer = match asked {
            Ok(LockOutcome::Wait) if !waiting.is_interrupted => {
                waiting.is_asked = waiting.is_free;
                self.id.locks.changed.notify_all();
                return waiting.is_asked;
            }
            Ok(LockOutcome::Wait) => Ok(LockAnswer::Interrupted),
            Ok(LockOutcome::Granted) => Ok(LockAnswer::Granted),
            Ok(LockOutcome::Conflict) => Ok(LockAnswer::Conflict),
            Ok(LockOutcome::Deadlock) => Ok(LockAnswer::Deadlock),
            Ok(LockOutcome::Full) => Ok(LockAnswer::Full),
            Err(fault) => Err(fault),
        };
        let waiting = state.waiting.remove(&ticket).expect("it was there");
        drop(state);
        match &answer {
            Ok(LockAnswer::Interrupted) => self.give_place_up(fid, lock.space, ticket),
            Ok(_) => {}
            Err(_) => self.owe(Debt::Cancel { fid, space: lock.space, ticket }),
        }
        (waiting.done)(answer);
        false
    }

    /// Removes a place in a queue before its program goes on. A place that stays could make another wait look like a deadlock.
    fn give_place_up(&self, fid: Fid, space: LockSpace, ticket: u64) {
        let make = |turn| CancelLock { fid, space, ticket, turn };
        if self.exchange_lock(fid, make, Instant::now() + CANCEL_MAX, |_, _| {}).is_err() {
            self.owe(Debt::Cancel { fid, space, ticket });
        }
    }

    /// Keeps queue positions, and asks for the tickets that the MDT does not know, or whose notice is lost.
    fn keep_places(&self, waiting: Vec<WaitingLock>) -> Result<(), Fault> {
        let fid = waiting[0].fid;
        let ready = self.ask(fid, &AwaitLocks { waiting })?.ready;
        ready.into_iter().for_each(|ticket| self.ask_if_waiting(ticket));
        Ok(())
    }

    /// Asks for a ticket whose lock is free. Tickets behind it are not marked yet: a signal ends their waits at once.
    fn ask_if_waiting(&self, ticket: u64) {
        if !self.is_stopping() && self.id.locks.state.lock().take_askable(ticket) {
            self.ask_waiting(ticket);
        }
    }

    fn pay(&self, debt: Debt) -> Result<(), Fault> {
        match debt {
            Debt::Cancel { fid, space, ticket } => {
                let make = |turn| CancelLock { fid, space, ticket, turn };
                self.exchange_lock(fid, make, self.deadline(), |_, _| {}).map(|_| ())
            }
            Debt::Restore { fid, space, owner, range } => {
                // Repeat until the note did not change meanwhile.
                loop {
                    let noted = self.id.locks.state.lock().held_of(fid, space, owner);
                    let whole = FileLock {
                        space,
                        owner,
                        start: range.start,
                        end: range.end,
                        kind: LockKind::Unlock,
                        pid: 0,
                    };
                    for piece in pieces(&whole, &noted) {
                        self.restore(fid, &piece)?;
                    }
                    if self.id.locks.state.lock().held_of(fid, space, owner) == noted {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Sends a noted lock to the MDT.
    fn restore(&self, fid: Fid, piece: &FileLock) -> Result<(), Fault> {
        let FileLock { space, owner, start, end, kind, pid } = *piece;
        let make = |turn| Lock { fid, space, owner, start, end, kind, pid, wait: false, ticket: 0, turn };
        let outcome = self.exchange_lock(fid, make, self.deadline(), |_, _| {})?.outcome;
        if outcome != LockOutcome::Granted {
            self.id.losses.add(fid, "a lock of it is held by another client by now");
            self.id.locks.state.lock().shrink(fid, &FileLock { kind: LockKind::Unlock, ..*piece });
        }
        Ok(())
    }

    /// Ends all waits, since the client ends.
    pub(crate) fn end_waiting(&self) {
        let waiting: Vec<_> = self.id.locks.state.lock().waiting.drain().collect();
        for (_, waiting) in waiting {
            (waiting.done)(Err(Fault::new(Code::Io, "the client ended while a lock was waited for")));
        }
    }
}

/// Splits `whole` into its held and unheld parts.
fn pieces(whole: &FileLock, held: &[FileLock]) -> Vec<FileLock> {
    let mut out = vec![];
    let mut at = Some(whole.start);
    for lock in held.iter().filter(|h| h.start <= whole.end && h.end >= whole.start) {
        let Some(from) = at else { break };
        if lock.start > from {
            out.push(FileLock { start: from, end: lock.start - 1, ..*whole });
        }
        let end = lock.end.min(whole.end);
        out.push(FileLock { start: lock.start.max(from), end, ..*lock });
        at = end.checked_add(1).filter(|next| *next <= whole.end);
    }
    out.extend(at.map(|from| FileLock { start: from, ..*whole }));
    out
}

impl State {
    /// True if this ticket is to be asked for now; it is marked so. A ticket that is being asked for is asked for again.
    fn take_askable(&mut self, ticket: u64) -> bool {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return false };
        if waiting.is_asked {
            waiting.is_free = true;
            return false;
        }
        waiting.is_asked = true;
        true
    }

    fn places(&self) -> Vec<WaitingLock> {
        let waiting = self.waiting.iter().filter(|(_, w)| !w.is_asked);
        let places = waiting.map(|(t, w)| WaitingLock { fid: w.fid, space: w.lock.space, ticket: *t });
        places.take(LOCKS_PER_CALL_MAX).collect()
    }
}

/// Asks for free locks, keeps queue positions and sends corrections until the client ends.
pub(crate) fn wait_loop(weak: &Weak<Fs>) {
    let mut keep_at = Instant::now();
    while let Some(fs) = weak.upgrade() {
        if fs.is_stopping() {
            return fs.end_waiting();
        }
        let (owed, free, places) = {
            let mut state = fs.id.locks.state.lock();
            let free = std::mem::take(&mut state.free);
            let is_due = std::mem::take(&mut state.looks) || Instant::now() >= keep_at;
            let places = if is_due { state.places() } else { vec![] };
            if state.owed.is_empty() && free.is_empty() && places.is_empty() {
                let left = keep_at.saturating_duration_since(Instant::now());
                let time = if state.waiting.is_empty() || left.is_zero() { TICK } else { left.min(TICK) };
                fs.id.locks.changed.wait_for(&mut state, time);
                continue;
            }
            (std::mem::take(&mut state.owed), free, places)
        };
        free.into_iter().for_each(|ticket| fs.ask_if_waiting(ticket));
        let mut failed: Option<Fault> = None;
        for debt in owed {
            if let Err(fault) = fs.pay(debt) {
                failed = Some(fault);
                fs.id.locks.state.lock().owed.push(debt);
            }
        }
        if !places.is_empty() {
            failed = fs.keep_places(places).err().or(failed);
            keep_at = Instant::now() + KEEP_EACH;
        }
        if let Some(fault) = failed {
            tracing::debug!("locks: {fault}");
            if crate::wait_for_stop(weak, TICK) {
                return fs.end_waiting();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_locks_begin_and_end() {
        let lock =
            |kind, start, end| FileLock { space: LockSpace::Posix, owner: 1, start, end, kind, pid: 0 };
        let (unlock, read, write) = (LockKind::Unlock, LockKind::Read, LockKind::Write);
        let held = [lock(read, 0, 4), lock(write, 8, 9), lock(read, 10, 20)];
        let shown = |start, end| -> Vec<_> {
            let cut = pieces(&lock(unlock, start, end), &held);
            cut.into_iter().map(|p| (p.kind, p.start, p.end)).collect()
        };
        assert_eq!(shown(2, 12), [(read, 2, 4), (unlock, 5, 7), (write, 8, 9), (read, 10, 12)]);
        assert_eq!(shown(5, 7), [(unlock, 5, 7)]);
        assert_eq!(shown(15, u64::MAX), [(read, 15, 20), (unlock, 21, u64::MAX)]);
        assert_eq!(shown(8, 9), [(write, 8, 9)]);
    }
}
