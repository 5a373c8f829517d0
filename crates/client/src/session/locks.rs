//! Locks of files at the MDT: locks that this client holds or waits for, and corrections that it owes the MDT (decision 0015).
//!
//! client-LK1: the noted locks are at most those that the MDT has for this client. A request that shrinks a lock is noted before it is sent, and
//!     one that makes or widens a lock after it was granted. So no lock is reclaimed that another client may have got meanwhile. A refused
//!     request leaves the note as before.
//! client-LK2: an answer counts only if no lock was reclaimed or lost since its request began (`reclaims`). Otherwise the request is sent again.
//! client-LK3: if a lock may have been granted without an answer, the client owes the MDT a correction, and repeats it until it is answered.
//! client-LK4: the end of an open file description releases locks that were taken through its own descriptor, and none that a later one with the
//!     same name has taken.

mod reclaim;
mod verbs;
mod wait;

use std::collections::{BTreeSet, HashMap};

use meta::lock::{Ask, LockTable, Owner, Range};
use parking_lot::{Condvar, Mutex};
use types::{Fault, Fid, SessionId};
use wire::lock::{LockKind, LockSpace, Turn};

use crate::cache::api::Handle;

pub(crate) use wait::wait_loop;

/// A lock that a program takes, tests or releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    pub space: LockSpace,
    /// The kernel's number of the process or open file description.
    pub owner: u64,
    /// First and last byte.
    pub start: u64,
    pub end: u64,
    pub kind: LockKind,
    pub pid: u32,
}

/// Outcome of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    Granted,
    /// Another owner holds it.
    Conflict,
    /// A wait would be a deadlock.
    Deadlock,
    /// This client has as many locks as are allowed.
    Full,
    /// It waited, and was interrupted.
    Interrupted,
}

/// Called with the outcome of a wait, on any thread.
pub type LockDone = Box<dyn FnOnce(Result<LockAnswer, Fault>) + Send>;

#[derive(Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    /// Signalled when the waiting thread has work.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Numbers requests and tickets.
    last: u64,
    /// Requests that are not answered yet, by number.
    under_way: BTreeSet<u64>,
    /// client-LK2: raised when locks were reclaimed at a restarted MDT, or lost.
    reclaims: u64,
    /// client-LK1. Owners here have session 0, which stands for this client's session.
    held: LockTable,
    /// Per file: the descriptors and owners of fcntl locks, since the owner last closed a descriptor. An owner that is left when its descriptor is
    /// released is an open file description.
    takers: HashMap<Fid, BTreeSet<(Handle, u64)>>,
    /// The descriptor through which an owner took its flock lock last. The kernel names open file descriptions by their addresses, and reuses
    /// these at once, but reports the end of one late. So a name may belong to a new one by then (client-LK4).
    flockers: HashMap<(Fid, u64), Handle>,
    waiting: HashMap<u64, Waiting>,
    /// Tickets whose locks are free, as the MDT told.
    free: BTreeSet<u64>,
    /// All tickets are to be looked at: notices may be lost.
    looks: bool,
    owed: Vec<Debt>,
}

struct Waiting {
    fid: Fid,
    lock: FileLock,
    /// The caller's name of the request.
    unique: u64,
    handle: Handle,
    /// The MDT is being asked for it now.
    is_asked: bool,
    /// The MDT told that it is free while it was being asked for.
    is_free: bool,
    is_interrupted: bool,
    done: LockDone,
}

/// client-LK3.
#[derive(Clone, Copy)]
enum Debt {
    /// Sets the owner's locks in the range to the noted ones.
    Restore {
        fid: Fid,
        space: LockSpace,
        owner: u64,
        range: Range,
    },
    Cancel {
        fid: Fid,
        space: LockSpace,
        ticket: u64,
    },
}

impl Locks {
    /// The MDT tells that locks which this client waits for are free.
    pub fn free(&self, tickets: &[u64]) {
        self.state.lock().free.extend(tickets);
        self.changed.notify_all();
    }
    /// Notices of free locks may be lost.
    pub fn look(&self) {
        self.state.lock().looks = true;
        self.changed.notify_all();
    }

    /// Wakes the waiting thread, since the client ends.
    pub fn wake(&self) {
        self.changed.notify_all();
    }
}

impl State {
    fn new_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn begin(&mut self) -> Turn {
        let number = self.new_number();
        self.under_way.insert(number);
        Turn { number, floor: *self.under_way.first().expect("it has this one") }
    }

    /// Notes the part of `lock` that must be noted before it is sent.
    fn shrink(&mut self, fid: Fid, lock: &FileLock) {
        let ask = ask(fid, lock);
        let is_flock = lock.space == LockSpace::Flock;
        for held in self.held_of(fid, lock.space, lock.owner) {
            let range = Range { start: held.start.max(lock.start), end: held.end.min(lock.end) };
            let overlaps = range.start <= range.end;
            match lock.kind {
                // A flock of another kind is released first, whatever the outcome is.
                kind if is_flock && held.kind != kind => {
                    self.held.set(&Ask { kind: LockKind::Unlock, range: Range::ALL, ..ask });
                }
                LockKind::Unlock if overlaps => self.held.set(&Ask { range, ..ask }),
                LockKind::Read if overlaps => self.held.set(&Ask { range, ..ask }),
                _ => {}
            }
        }
    }

    fn grant(&mut self, fid: Fid, lock: &FileLock) {
        if lock.kind != LockKind::Unlock {
            self.held.set(&ask(fid, lock));
        }
    }

    fn held_of(&self, fid: Fid, space: LockSpace, owner: u64) -> Vec<FileLock> {
        let held = self.held.held((fid, space)).iter().filter(|h| h.owner.token == owner);
        held.map(|h| FileLock {
            space,
            owner,
            start: h.range.start,
            end: h.range.end,
            kind: h.kind,
            pid: h.pid,
        })
        .collect()
    }

    /// Removes takers of a file. Returns their owners.
    fn take_takers(&mut self, fid: Fid, is_one: impl Fn(Handle, u64) -> bool) -> Vec<u64> {
        let Some(takers) = self.takers.get_mut(&fid) else { return vec![] };
        let taken: Vec<_> = takers.extract_if(.., |(handle, owner)| is_one(*handle, *owner)).collect();
        if takers.is_empty() {
            self.takers.remove(&fid);
        }
        taken.into_iter().map(|(_, owner)| owner).collect()
    }

    fn drop_owner(&mut self, fid: Fid, space: LockSpace, owner: u64) {
        self.held.drop_owner((fid, space), mine(owner));
    }
}

fn mine(token: u64) -> Owner {
    Owner { session: SessionId(0), token }
}

fn ask(fid: Fid, lock: &FileLock) -> Ask {
    Ask {
        resource: (fid, lock.space),
        owner: mine(lock.owner),
        range: Range { start: lock.start, end: lock.end },
        kind: lock.kind,
        pid: lock.pid,
        ticket: None,
    }
}
