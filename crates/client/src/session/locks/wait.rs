//! Waits for locks: one thread per client waits for any number of them.
//!
//! The caller's thread asks once, and returns. If the answer is `Wait`, the thread here keeps one call at the MDT for all waits. It asks for each
//! ticket that is next in its queue, and reports the outcome.

use std::sync::Weak;
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid};
use wire::lock::{
    AwaitLocks, CancelLock, LOCKS_PER_CALL_MAX, Lock, LockKind, LockOutcome, LockSpace, WaitingLock,
};

use super::{Debt, FileLock, LockAnswer, LockDone, Waiting};
use crate::Fs;
use crate::cache::api::Handle;

/// Time for which the MDT keeps the waiting call: short enough for a client that ends, long enough to cost nothing.
const PATIENCE_MS: u32 = 100;
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
            let waiting = Waiting { fid, lock, unique, handle, is_asked: true, is_interrupted: false, done };
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
        let (fid, lock, handle) = match self.id.locks.state.lock().waiting.get(&ticket) {
            Some(w) => (w.fid, w.lock, w.handle),
            None => return,
        };
        let asked =
            self.locked_file(handle).and_then(|_| self.send_lock(fid, &lock, Some(ticket), self.deadline()));
        let mut state = self.id.locks.state.lock();
        let Some(waiting) = state.waiting.get_mut(&ticket) else { return };
        let answer = match asked {
            Ok(LockOutcome::Wait) if !waiting.is_interrupted => {
                waiting.is_asked = false;
                self.id.locks.changed.notify_all();
                return;
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
    }

    /// Removes a place in a queue before its program goes on. A place that stays could make another wait look like a deadlock.
    fn give_place_up(&self, fid: Fid, space: LockSpace, ticket: u64) {
        let make = |turn| CancelLock { fid, space, ticket, turn };
        if self.exchange_lock(fid, make, Instant::now() + CANCEL_MAX, |_, _| {}).is_err() {
            self.owe(Debt::Cancel { fid, space, ticket });
        }
    }

    /// Makes one call for all waits.
    fn keep_places(&self, waiting: Vec<WaitingLock>) -> Result<(), Fault> {
        let fid = waiting[0].fid;
        let ready = self.ask(fid, &AwaitLocks { waiting, patience_ms: PATIENCE_MS })?.ready;
        for ticket in ready {
            let is_there = {
                let mut state = self.id.locks.state.lock();
                let waiting = state.waiting.get_mut(&ticket).filter(|w| !w.is_asked);
                waiting.map(|w| w.is_asked = true).is_some()
            };
            if is_there {
                self.ask_waiting(ticket);
            }
        }
        Ok(())
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

/// Keeps waits and sends corrections until the client ends.
pub(crate) fn wait_loop(weak: &Weak<Fs>) {
    while let Some(fs) = weak.upgrade() {
        let (owed, waiting) = {
            let mut state = fs.id.locks.state.lock();
            let places = state.waiting.iter().filter(|(_, w)| !w.is_asked);
            let places = places.map(|(t, w)| WaitingLock { fid: w.fid, space: w.lock.space, ticket: *t });
            let places: Vec<_> = places.take(LOCKS_PER_CALL_MAX).collect();
            if state.owed.is_empty() && places.is_empty() && !fs.is_stopping() {
                fs.id.locks.changed.wait_for(&mut state, TICK);
                continue;
            }
            (std::mem::take(&mut state.owed), places)
        };
        if fs.is_stopping() {
            return fs.end_waiting();
        }
        let mut failed: Option<Fault> = None;
        for debt in owed {
            if let Err(fault) = fs.pay(debt) {
                failed = Some(fault);
                fs.id.locks.state.lock().owed.push(debt);
            }
        }
        if !waiting.is_empty() {
            failed = fs.keep_places(waiting).err().or(failed);
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
