//! The table of file locks: held ranges, waiting requests, and the search for deadlocks (decision 0015).
//!
//! The table is not made of records and does not survive a restart: the clients know what they hold. Times are milliseconds of the
//! caller's clock.
//!
//! meta-L1: two owners never hold overlapping ranges of one file and space, unless both read.
//! meta-L2: a lock is only granted to an owner that asks for it now. A waiter has a queue position, and loses it when it stops asking.
//! meta-L3: the ranges that one owner holds of a file do not overlap, and adjacent ranges of one kind are merged.

mod deadlock;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use types::{Fid, SessionId};
use wire::lock::{FoundLock, HeldLock, LockKind, LockOutcome, LockSpace};

pub use queue::Held;
use queue::{Queue, Waiter};

/// A waiter that has not asked for this long loses its queue position. Clients ask ten times a second.
pub const PLACE_MS: u64 = 2000;
/// Most locks that a session may hold in one table, and most queue positions. The kernel bounds neither; 65,536 ranges are some 4 MiB,
/// and a waiter is a thread of a program.
pub const HELD_MAX: u32 = 65_536;
pub const WAITING_MAX: u32 = 4096;

/// The subject of locks: a file and a space.
pub type Resource = (Fid, LockSpace);

/// The owner of a lock: a process or an open file description, as its client numbers them.
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
    /// Resources for which `Posix` owners wait, for the search for deadlocks. It may include positions that are lost by now.
    blocked: HashMap<Owner, Vec<Resource>>,
    woken: Vec<(SessionId, u64)>,
}

/// A session's held locks and waiters.
#[derive(Clone, Copy, Default)]
struct Load {
    held: u32,
    waiting: u32,
}

impl LockTable {
    /// Takes, changes or releases a lock, or queues the request.
    pub fn ask(&mut self, ask: &Ask, now_ms: u64) -> LockOutcome {
        self.edit(ask.resource, |queue| queue.expire(now_ms));
        // 1. A release is granted, unless it makes one lock more than a session may hold.
        if ask.kind == LockKind::Unlock {
            if self.load(ask.owner.session).held >= HELD_MAX && self.file(ask.resource).splits(ask) {
                return LockOutcome::Full;
            }
            self.put(ask);
            return LockOutcome::Granted;
        }
        // 2. flock changes a lock by releasing the old one first, even if the new one is then refused.
        if ask.resource.1 == LockSpace::Flock && self.file(ask.resource).has_other_kind(ask) {
            self.put(&Ask { kind: LockKind::Unlock, range: Range::ALL, ticket: None, ..*ask });
        }
        // 3. Grant it if it is free, and if no earlier waiter has precedence.
        let queue = self.file(ask.resource);
        if queue.conflict(ask).is_none() && !queue.is_others_turn(ask) {
            return match self.load(ask.owner.session).held < HELD_MAX {
                true => {
                    self.put(ask);
                    debug_assert!(
                        self.file(ask.resource).conflict(ask).is_none(),
                        "meta-L1: a granted lock has no conflict"
                    );
                    LockOutcome::Granted
                }
                false => self.leave(ask, LockOutcome::Full),
            };
        }
        // 4. Otherwise wait, unless that would be a deadlock.
        let Some(ticket) = ask.ticket else { return LockOutcome::Conflict };
        if ask.resource.1 == LockSpace::Posix && self.would_deadlock(ask, now_ms) {
            return self.leave(ask, LockOutcome::Deadlock);
        }
        if self.load(ask.owner.session).waiting >= WAITING_MAX && !queue_has(self.file(ask.resource), ask) {
            return LockOutcome::Full;
        }
        let waiter = Waiter { ticket, asked_ms: now_ms, ask: *ask, is_told: false };
        self.edit(ask.resource, |queue| queue.wait(waiter));
        if ask.resource.1 == LockSpace::Posix {
            let places = self.blocked.entry(ask.owner).or_default();
            if !places.contains(&ask.resource) {
                places.push(ask.resource);
            }
        }
        LockOutcome::Wait
    }

    /// The first lock that conflicts with `ask`.
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

    /// Keeps the queue position of a ticket. True: the owner must ask now, because the lock can be taken or because it lost its position.
    pub fn look(&mut self, resource: Resource, session: SessionId, ticket: u64, now_ms: u64) -> bool {
        self.edit(resource, |queue| {
            queue.refresh(session, ticket, now_ms);
            queue.expire(now_ms)
        });
        self.file(resource).is_due(session, ticket)
    }

    /// Gives up a queue position.
    pub fn cancel(&mut self, resource: Resource, session: SessionId, ticket: u64) {
        self.edit(resource, |queue| queue.cancel(session, ticket));
    }

    /// Releases all locks of `owner` on a file. A process keeps its queue positions: another of its threads may be waiting.
    pub fn drop_owner(&mut self, resource: Resource, owner: Owner) {
        let is_gone = resource.1 != LockSpace::Posix;
        self.edit(resource, |queue| {
            queue.retain(|held| held.owner != owner, |waiter| !(is_gone && waiter.ask.owner == owner))
        });
    }

    /// Releases all locks and queue positions of a session.
    pub fn drop_session(&mut self, session: SessionId) {
        let of = |owner: &Owner| owner.session == session;
        let files: Vec<_> = self.files.iter().filter(|(_, q)| q.concerns(session)).map(|(r, _)| *r).collect();
        for resource in files {
            self.edit(resource, |queue| queue.retain(|h| !of(&h.owner), |w| !of(&w.ask.owner)));
        }
        self.blocked.retain(|owner, _| !of(owner));
        self.sessions.remove(&session);
        debug_assert!(self.files.values().all(|q| !q.concerns(session)), "an ended session holds nothing");
    }

    /// Restores a lock that its client held before this table was made. False: another owner holds it.
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

    /// Records a grant of the MDT in a client's copy of the table, without a check for conflicts.
    pub fn set(&mut self, ask: &Ask) {
        self.put(ask);
    }

    /// All held locks.
    pub fn all(&self) -> impl Iterator<Item = (Resource, &Held)> {
        self.files.iter().flat_map(|(resource, queue)| queue.held().iter().map(|held| (*resource, held)))
    }

    /// Drops expired queue positions in files that get no requests.
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

    /// Sessions and tickets of waiters that became grantable since the last call. One may occur twice.
    pub fn take_woken(&mut self) -> Vec<(SessionId, u64)> {
        std::mem::take(&mut self.woken)
    }

    /// All locks held on a file, in the order of first bytes.
    pub fn held(&self, resource: Resource) -> &[Held] {
        self.file(resource).held()
    }

    /// True if there are no locks and no waiters.
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

    /// Drops the queue position and returns `outcome`.
    fn leave(&mut self, ask: &Ask, outcome: LockOutcome) -> LockOutcome {
        if let Some(ticket) = ask.ticket {
            self.cancel(ask.resource, ask.owner.session, ticket);
        }
        outcome
    }

    /// Changes a file's queue, updates the sessions' counts, and notes the waiters that may take a lock now.
    fn edit(&mut self, resource: Resource, change: impl FnOnce(&mut Queue) -> queue::Change) {
        let queue = self.files.entry(resource).or_default();
        let change = change(queue);
        if change.frees {
            self.woken.extend(queue.take_due());
        }
        if queue.is_empty() {
            self.files.remove(&resource);
        }
        for (session, held, waiting) in change.counts {
            let load = self.sessions.entry(session).or_default();
            assert!(load.held.checked_add_signed(held).is_some(), "a session's held locks are counted");
            assert!(load.waiting.checked_add_signed(waiting).is_some(), "a session's waiters are counted");
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
