//! Locks of files: who holds which bytes, who waits, and who would wait for ever (decision 0015).
//!
//! A table of what several owners hold of several files. It is not made of records and survives nothing: its clients know what they
//! hold. Times are milliseconds of the caller's clock.
//!
//! meta-L1: two owners never hold overlapping ranges of one file and space, unless both read.
//! meta-L2: a lock is only given to who asks for it now. A waiter has a place in a queue, and loses it when it does not ask.
//! meta-L3: what one owner holds of a file does not overlap, and neighbours of one kind are one.

mod deadlock;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use types::{Fid, SessionId};
use wire::lock::{FoundLock, HeldLock, LockKind, LockOutcome, LockSpace};

pub use queue::Held;
use queue::{Queue, Waiter};

/// A waiter that has not asked for so long has lost its place. Clients ask ten times a second.
pub const PLACE_MS: u64 = 2000;
/// Locks that a session may hold in one table, and places that it may have. The kernel bounds neither; 65,536 ranges are some
/// 4 MiB, and a waiter is a thread of a program.
pub const HELD_MAX: u32 = 65_536;
pub const WAITING_MAX: u32 = 4096;

/// What locks are taken on.
pub type Resource = (Fid, LockSpace);

/// Who holds a lock: a process or an open file description, as its client numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    pub session: SessionId,
    pub token: u64,
}

/// First and last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    /// The whole of a file.
    pub const ALL: Range = Range { start: 0, end: u64::MAX };

    pub fn overlaps(&self, other: &Range) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// A request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub resource: Resource,
    pub owner: Owner,
    pub range: Range,
    pub kind: LockKind,
    pub pid: u32,
    /// `None`: do not wait.
    pub ticket: Option<u64>,
}

#[derive(Default)]
pub struct LockTable {
    files: HashMap<Resource, Queue>,
    sessions: HashMap<SessionId, Load>,
    /// Where `Posix` owners wait, for the search for deadlocks. It may name places that are lost by now.
    blocked: HashMap<Owner, Vec<Resource>>,
    woken: Vec<SessionId>,
}

/// What counts against the bounds.
#[derive(Clone, Copy, Default)]
struct Load {
    held: u32,
    waiting: u32,
}

impl LockTable {
    /// Takes, changes or gives back a lock, or queues the request.
    pub fn ask(&mut self, ask: &Ask, now_ms: u64) -> LockOutcome {
        self.edit(ask.resource, |queue| queue.expire(now_ms));
        // 1. What is given back is given back.
        if ask.kind == LockKind::Unlock {
            self.put(ask);
            return LockOutcome::Granted;
        }
        // 2. flock changes a lock by giving the old one up first, also if the new one is refused then.
        if ask.resource.1 == LockSpace::Flock && self.file(ask.resource).has_other_kind(ask) {
            self.put(&Ask { kind: LockKind::Unlock, range: Range::ALL, ticket: None, ..*ask });
        }
        // 3. Is it free, and nobody's turn before ours?
        let queue = self.file(ask.resource);
        if queue.conflict(ask).is_none() && !queue.is_others_turn(ask) {
            return match self.load(ask.owner.session).held < HELD_MAX {
                true => {
                    self.put(ask);
                    LockOutcome::Granted
                }
                false => self.leave(ask, LockOutcome::Full),
            };
        }
        // 4. Wait, if that has an end.
        let Some(ticket) = ask.ticket else { return LockOutcome::Conflict };
        if ask.resource.1 == LockSpace::Posix && self.would_deadlock(ask, now_ms) {
            return self.leave(ask, LockOutcome::Deadlock);
        }
        if self.load(ask.owner.session).waiting >= WAITING_MAX && !queue_has(self.file(ask.resource), ask) {
            return LockOutcome::Full;
        }
        let waiter = Waiter { ticket, asked_ms: now_ms, ask: *ask };
        self.edit(ask.resource, |queue| queue.wait(waiter));
        if ask.resource.1 == LockSpace::Posix {
            let places = self.blocked.entry(ask.owner).or_default();
            if !places.contains(&ask.resource) {
                places.push(ask.resource);
            }
        }
        LockOutcome::Wait
    }

    /// The first lock that stands in the way of one like `ask`.
    pub fn test(&self, ask: &Ask) -> Option<FoundLock> {
        let held = self.file(ask.resource).conflict(ask)?;
        Some(FoundLock {
            session: held.owner.session,
            start: held.range.start,
            end: held.range.end,
            kind: held.kind,
            pid: held.pid,
        })
    }

    /// Keeps the place of a ticket. True: its owner shall ask now, since it is its turn or it has no place any more.
    pub fn look(&mut self, resource: Resource, session: SessionId, ticket: u64, now_ms: u64) -> bool {
        self.edit(resource, |queue| {
            queue.refresh(session, ticket, now_ms);
            queue.expire(now_ms)
        });
        self.file(resource).is_due(session, ticket)
    }

    /// Gives a place up.
    pub fn cancel(&mut self, resource: Resource, session: SessionId, ticket: u64) {
        self.edit(resource, |queue| queue.cancel(session, ticket));
    }

    /// Gives back all that `owner` holds of a file. A process may go on waiting for a lock in another of its threads.
    pub fn drop_owner(&mut self, resource: Resource, owner: Owner) {
        let is_gone = resource.1 != LockSpace::Posix;
        self.edit(resource, |queue| {
            queue.retain(|held| held.owner != owner, |waiter| !(is_gone && waiter.ask.owner == owner))
        });
    }

    /// Gives back all that a session holds or waits for.
    pub fn drop_session(&mut self, session: SessionId) {
        let of = |owner: &Owner| owner.session == session;
        let files: Vec<_> = self.files.iter().filter(|(_, q)| q.concerns(session)).map(|(r, _)| *r).collect();
        for resource in files {
            self.edit(resource, |queue| queue.retain(|h| !of(&h.owner), |w| !of(&w.ask.owner)));
        }
        self.blocked.retain(|owner, _| !of(owner));
        self.sessions.remove(&session);
    }

    /// Puts a lock back that its client held before this table was made. False: another holds it.
    pub fn reclaim(&mut self, session: SessionId, lock: &HeldLock) -> bool {
        let ask = Ask {
            resource: (lock.fid, lock.space),
            owner: Owner { session, token: lock.owner },
            range: Range { start: lock.start, end: lock.end },
            kind: lock.kind,
            pid: lock.pid,
            ticket: None,
        };
        let is_free = self.file(ask.resource).conflict(&ask).is_none();
        if is_free {
            self.put(&ask);
        }
        is_free
    }

    /// Makes the owner's locks in the range what is asked, whatever others hold: for who only notes what a table elsewhere gave.
    pub fn set(&mut self, ask: &Ask) {
        self.put(ask);
    }

    /// All that is held.
    pub fn all(&self) -> impl Iterator<Item = (Resource, &Held)> {
        self.files.iter().flat_map(|(resource, queue)| queue.held().iter().map(|held| (*resource, held)))
    }

    /// Forgets places that nobody asks for, in files that nobody asks about.
    pub fn sweep(&mut self, now_ms: u64) {
        let waited: Vec<_> = self.files.iter().filter(|(_, q)| q.has_waiters()).map(|(r, _)| *r).collect();
        for resource in waited {
            self.edit(resource, |queue| queue.expire(now_ms));
        }
        let files = &self.files;
        self.blocked.retain(|owner, places| {
            places.retain(|r| files.get(r).is_some_and(|q| q.waits_of(*owner).next().is_some()));
            !places.is_empty()
        });
    }

    /// The sessions whose turn may have come since this was asked last; one may be there twice.
    pub fn take_woken(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.woken)
    }

    /// All that is held of a file, in the order of first bytes.
    pub fn held(&self, resource: Resource) -> &[Held] {
        self.file(resource).held()
    }

    /// Nobody holds anything or waits.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn file(&self, resource: Resource) -> &Queue {
        static NONE: Queue = Queue::new();
        self.files.get(&resource).unwrap_or(&NONE)
    }

    fn load(&self, session: SessionId) -> Load {
        self.sessions.get(&session).copied().unwrap_or_default()
    }

    fn put(&mut self, ask: &Ask) {
        self.edit(ask.resource, |queue| queue.put(ask));
    }

    /// Out of the queue, with this answer.
    fn leave(&mut self, ask: &Ask, outcome: LockOutcome) -> LockOutcome {
        if let Some(ticket) = ask.ticket {
            self.cancel(ask.resource, ask.owner.session, ticket);
        }
        outcome
    }

    /// Changes a file's queue, counts what came and went, and notes whose turn has come.
    fn edit(&mut self, resource: Resource, change: impl FnOnce(&mut Queue) -> queue::Change) {
        let queue = self.files.entry(resource).or_default();
        let change = change(queue);
        if change.frees {
            self.woken.extend(queue.due_sessions());
        }
        if queue.is_empty() {
            self.files.remove(&resource);
        }
        for (session, held, waiting) in change.counts {
            let load = self.sessions.entry(session).or_default();
            load.held = load.held.saturating_add_signed(held);
            load.waiting = load.waiting.saturating_add_signed(waiting);
            if load.held == 0 && load.waiting == 0 {
                self.sessions.remove(&session);
            }
        }
    }
}

fn queue_has(queue: &Queue, ask: &Ask) -> bool {
    ask.ticket.is_some_and(|ticket| queue.has_ticket(ask.owner.session, ticket))
}
