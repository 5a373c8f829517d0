//! Calls on locks: take, try, test, release, close.

use std::sync::atomic::Ordering;
use std::time::Instant;

use types::{Code, Fault, Fid};
use wire::lock::{DropOwner, Lock, LockKind, LockOutcome, LockSpace, TestLock, Turn};

use super::{Debt, FileLock, LockAnswer, Range, State};
use crate::Fs;
use crate::cache::api::Handle;
use crate::session::sent::Sent;

impl Fs {
    /// True if locks are taken at the MDT, and not by the kernel alone (decision 0015).
    pub fn has_locks(&self) -> bool {
        !self.settings.observer && !self.id.own_locks.load(Ordering::Relaxed)
    }

    /// A lock that conflicts with `lock`, if there is one. Its pid is 0 if another client holds it.
    pub fn get_lock(&self, handle: Handle, lock: &FileLock) -> Result<Option<FileLock>, Fault> {
        let fid = self.locked_file(handle)?;
        let FileLock { space, owner, start, end, kind, .. } = *lock;
        let found = self.ask(fid, &TestLock { fid, space, owner, start, end, kind })?.found;
        Ok(found.map(|f| FileLock {
            space,
            owner: 0,
            start: f.start,
            end: f.end,
            kind: f.kind,
            pid: if f.session == self.session() { f.pid } else { 0 },
        }))
    }

    /// Takes a lock if it is free, changes one, or releases a range.
    pub fn set_lock(&self, handle: Handle, lock: &FileLock) -> Result<LockAnswer, Fault> {
        let fid = self.locked_file(handle)?;
        self.note_taker(fid, handle, lock);
        Ok(match self.send_lock(fid, lock, None, self.deadline())? {
            LockOutcome::Granted => LockAnswer::Granted,
            LockOutcome::Conflict | LockOutcome::Wait => LockAnswer::Conflict,
            LockOutcome::Deadlock => LockAnswer::Deadlock,
            LockOutcome::Full => LockAnswer::Full,
        })
    }

    /// A process closes a descriptor, which releases all its fcntl locks of the file.
    pub fn close_locks(&self, handle: Handle, owner: u64) -> Result<(), Fault> {
        let fid = self.opened(handle)?.file.fid;
        let is_any = {
            let mut state = self.id.locks.state.lock();
            // Locks that it took through other descriptors of the file too.
            state.take_takers(fid, |_, o| o == owner);
            !state.held_of(fid, LockSpace::Posix, owner).is_empty()
        };
        if is_any { self.drop_locks(fid, LockSpace::Posix, owner, self.deadline()) } else { Ok(()) }
    }

    /// The last descriptor of an open file description is closed, which releases its own locks. `flock`: its owner of flock locks.
    pub(crate) fn release_locks(&self, handle: Handle, fid: Fid, flock: Option<u64>, deadline: Instant) {
        let (owners, flock) = {
            let mut state = self.id.locks.state.lock();
            let mut owners = state.take_takers(fid, |h, _| h == handle);
            // client-LK4
            let others = state.takers.get(&fid);
            owners.retain(|owner| !others.is_some_and(|all| all.iter().any(|(_, o)| o == owner)));
            let is_its_own = |owner: &u64| state.flockers.get(&(fid, *owner)) == Some(&handle);
            let flock = flock.filter(is_its_own);
            flock.map(|owner| state.flockers.remove(&(fid, owner)));
            (owners, flock)
        };
        // The kernel reports each process that closes a descriptor, so an owner that is left here is an open file description.
        let posix = owners.into_iter().map(|owner| (LockSpace::Posix, owner));
        for (space, owner) in posix.chain(flock.map(|owner| (LockSpace::Flock, owner))) {
            let is_any = !self.id.locks.state.lock().held_of(fid, space, owner).is_empty();
            if is_any && let Err(fault) = self.drop_locks(fid, space, owner, deadline) {
                tracing::warn!("giving back the locks of file {fid}: {fault}; it is tried again");
            }
        }
    }

    fn drop_locks(&self, fid: Fid, space: LockSpace, owner: u64, deadline: Instant) -> Result<(), Fault> {
        self.id.locks.state.lock().drop_owner(fid, space, owner);
        let make = |turn| DropOwner { fid, space, owner, turn };
        let dropped = self.exchange_lock(fid, make, deadline, |_, _| {});
        dropped.map(|_| ()).inspect_err(|_| self.owe(Debt::Restore { fid, space, owner, range: Range::ALL }))
    }

    /// Sends one request for a lock, and notes its outcome.
    pub(super) fn send_lock(
        &self,
        fid: Fid,
        lock: &FileLock,
        ticket: Option<u64>,
        deadline: Instant,
    ) -> Result<LockOutcome, Fault> {
        let FileLock { space, owner, start, end, kind, pid } = *lock;
        let (before, left) = {
            let mut state = self.id.locks.state.lock();
            let before = state.held_of(fid, space, owner);
            state.shrink(fid, lock);
            (before, state.held_of(fid, space, owner))
        };
        let (wait, ticket) = (ticket.is_some(), ticket.unwrap_or(0));
        let make = |turn| Lock { fid, space, owner, start, end, kind, pid, wait, ticket, turn };
        let note = |state: &mut State, reply: &wire::lock::LockReply| {
            match reply.outcome {
                LockOutcome::Granted => state.grant(fid, lock),
                // The MDT has changed nothing. Changes by another thread of the owner stay.
                _ if space != LockSpace::Flock && state.held_of(fid, space, owner) == left => {
                    before.iter().for_each(|held| state.grant(fid, held));
                }
                // The MDT may not have come to the release of the old lock, as while it waits for reclaims.
                _ if space == LockSpace::Flock && before != left => {
                    state.owed.push(Debt::Restore { fid, space, owner, range: Range::ALL });
                    self.id.locks.changed.notify_all();
                }
                _ => {}
            }
        };
        let reply = self.exchange_lock(fid, make, deadline, note).inspect_err(|_| {
            // It may have been granted.
            self.owe(Debt::Restore { fid, space, owner, range: Range { start, end } });
        })?;
        Ok(reply.outcome)
    }

    /// Sends a lock request until its answer counts (client-LK2), and notes it then.
    pub(super) fn exchange_lock<R: Sent>(
        &self,
        fid: Fid,
        make: impl Fn(Turn) -> R,
        deadline: Instant,
        note: impl Fn(&mut State, &R::Reply),
    ) -> Result<R::Reply, Fault> {
        let mdt = self.mdt(fid)?;
        loop {
            let (turn, reclaims) = {
                let mut state = self.id.locks.state.lock();
                (state.begin(), state.reclaims)
            };
            let number = turn.number;
            let answer = mdt.ask(fid, &make(turn), deadline);
            let mut state = self.id.locks.state.lock();
            state.under_way.remove(&number);
            let reply = answer?.reply;
            if state.reclaims == reclaims {
                note(&mut state, &reply);
                return Ok(reply);
            }
            drop(state);
            // The session may have ended meanwhile, with the file's locks. Then no lock is added.
            if let Some(fault) = self.id.losses.of(fid) {
                return Err(fault);
            }
        }
    }

    pub(super) fn owe(&self, debt: Debt) {
        self.id.locks.state.lock().owed.push(debt);
        self.id.locks.changed.notify_all();
    }

    pub(super) fn note_taker(&self, fid: Fid, handle: Handle, lock: &FileLock) {
        if lock.kind == LockKind::Unlock {
            return;
        }
        let mut state = self.id.locks.state.lock();
        match lock.space {
            LockSpace::Posix => drop(state.takers.entry(fid).or_default().insert((handle, lock.owner))),
            LockSpace::Flock => drop(state.flockers.insert((fid, lock.owner), handle)),
        }
    }

    /// The file of a descriptor, if it did not lose its locks or bytes.
    pub(super) fn locked_file(&self, handle: Handle) -> Result<Fid, Fault> {
        if self.settings.observer {
            return Err(Fault::new(Code::Unsupported, "this client is an observer: it has no locks"));
        }
        let opened = self.opened(handle)?;
        self.check_poison(&opened.file)?;
        Ok(opened.file.fid)
    }
}
