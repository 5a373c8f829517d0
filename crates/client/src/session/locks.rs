//! Locks of files at the MDT: what this client holds, what it waits for, and what it owes (decision 0015).
//!
//! client-LK1: what is noted as held is at most what the MDT holds for us: what shrinks a lock is noted before it is sent, what makes or
//!     widens one after it was granted. So nothing is reclaimed that another may have got meanwhile. What was refused is noted as before.
//! client-LK2: an answer counts only if nothing was reclaimed or lost since its request began (`reclaims`); else the request is sent again.
//! client-LK3: what may have been granted without our knowing is owed: the MDT is told what is noted until it has heard it.
//! client-LK4: the end of an open file description gives back what was taken through its own descriptor, and nothing that another with the
//!     same name has taken since.

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

/// A lock that a program asks for, asks about, or gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    pub space: LockSpace,
    /// As the kernel numbers processes and open file descriptions.
    pub owner: u64,
    /// First and last byte.
    pub start: u64,
    pub end: u64,
    pub kind: LockKind,
    pub pid: u32,
}

/// How a request for a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    Granted,
    /// Another holds it.
    Conflict,
    /// To wait would be to wait for ever.
    Deadlock,
    /// This client has as many locks as one may have.
    Full,
    /// It waited, and was interrupted.
    Interrupted,
}

/// Is told how a wait ended; on whatever thread finds out.
pub type LockDone = Box<dyn FnOnce(Result<LockAnswer, Fault>) + Send>;

#[derive(Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    /// The thread that waits has something to do.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Numbers requests and tickets.
    last: u64,
    /// Requests that are not answered yet, by number.
    under_way: BTreeSet<u64>,
    /// client-LK2: raised when what is held was told to an MDT that was started anew, or was lost.
    reclaims: u64,
    /// client-LK1. All owners are of session 0 here: ours, whatever its number is.
    held: LockTable,
    /// Per file, through which descriptor which owner took fcntl locks since it last closed one: who is left when the descriptor is
    /// released is an open file description.
    takers: HashMap<Fid, BTreeSet<(Handle, u64)>>,
    /// Through which descriptor an owner took its flock lock last. The kernel names open file descriptions by their addresses, which it
    /// uses again at once; of the end of one it tells late. So a name may be another's by then (client-LK4).
    flockers: HashMap<(Fid, u64), Handle>,
    waiting: HashMap<u64, Waiting>,
    owed: Vec<Debt>,
}

struct Waiting {
    fid: Fid,
    lock: FileLock,
    /// The door's name of the request.
    unique: u64,
    handle: Handle,
    /// Being asked for right now.
    is_asked: bool,
    is_interrupted: bool,
    done: LockDone,
}

/// client-LK3.
#[derive(Clone, Copy)]
enum Debt {
    /// The owner's locks in the range are to be what is noted.
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
    /// The client ends.
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

    /// What of `lock` is noted before it is sent.
    fn shrink(&mut self, fid: Fid, lock: &FileLock) {
        let ask = ask(fid, lock);
        let is_flock = lock.space == LockSpace::Flock;
        for held in self.held_of(fid, lock.space, lock.owner) {
            let range = Range { start: held.start.max(lock.start), end: held.end.min(lock.end) };
            let overlaps = range.start <= range.end;
            match lock.kind {
                // A flock is given up for another kind, whatever comes then.
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

    /// Strikes out takers of a file, and says who they were.
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
