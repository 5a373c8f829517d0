//! Locks of byte ranges of objects, for reads and writes that cross objects beside other writers (decision 0055).
//!
//! Such a call locks its range in each object, in the order of object ids, and begins when it has all locks. So calls do not wait for each
//! other in a circle. Requests that name no lock touch one object only, and wait for locks in their way.
//!
//! object-R1: an exclusive lock overlaps no other lock of its object.
//! object-R2: a request without a lock begins only while no lock is in its way: a write waits for every lock, a read for exclusive ones. One
//!     that began before the lock may end after it. Its caller then ran beside the locked call, and either order explains both.
//! object-R3: a request that names a lock is carried out only while that lock is held, and covers it.
//! object-R4: a lock ends `TERM` after it was granted, so that a dead client holds up nothing for longer.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use types::{ObjectId, SessionId};

/// Several times as long as a call under it takes.
pub const TERM: Duration = Duration::from_secs(5);
/// Most locks of a target: 16 MiB of memory. A lock past it waits.
pub const LOCKS_MAX: usize = 1 << 17;

/// A session and its number for the call. All locks of one call have the same number.
pub type Owner = (SessionId, u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
}

impl Access {
    fn conflicts(self, other: Access) -> bool {
        self == Access::Write || other == Access::Write
    }
}

/// A lock, or a request that names none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    pub object: ObjectId,
    pub range: Range<u64>,
    pub access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Go,
    /// Locks are in the way. The last of them ends then by itself.
    Wait {
        until: Duration,
    },
    /// object-R3.
    NotHeld,
}

struct Lock {
    owner: Owner,
    range: Range<u64>,
    access: Access,
    ends: Duration,
}

/// The locks of one target. Times count from the target's start.
#[derive(Default)]
pub struct Ranges {
    objects: HashMap<ObjectId, Vec<Lock>>,
    count: usize,
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Grants a lock. A repeat grants it anew.
    pub fn lock(&mut self, now: Duration, owner: Owner, asked: Asked) -> Answer {
        self.unlock(owner, &asked.object);
        if let Some(until) = self.in_the_way(now, &asked) {
            return Answer::Wait { until };
        }
        if self.count >= LOCKS_MAX {
            return Answer::Wait { until: now + TERM };
        }
        let Asked { object, range, access } = asked;
        self.objects.entry(object).or_default().push(Lock { owner, range, access, ends: now + TERM });
        self.count += 1;
        Answer::Go
    }

    /// A request that names no lock.
    pub fn admit(&mut self, now: Duration, asked: &Asked) -> Answer {
        self.in_the_way(now, asked).map_or(Answer::Go, |until| Answer::Wait { until })
    }

    /// A request under the lock of `owner`.
    pub fn admit_locked(&mut self, now: Duration, owner: Owner, asked: &Asked) -> Answer {
        self.drop_ended(now, &asked.object);
        let covers = |lock: &Lock| {
            let (held, range) = (&lock.range, &asked.range);
            let is_enough = lock.access == Access::Write || asked.access == Access::Read;
            lock.owner == owner && is_enough && held.start <= range.start && range.end <= held.end
        };
        match self.objects.get(&asked.object).is_some_and(|locks| locks.iter().any(covers)) {
            true => Answer::Go,
            false => Answer::NotHeld,
        }
    }

    pub fn unlock(&mut self, owner: Owner, object: &ObjectId) {
        self.retain(object, |lock| lock.owner != owner);
    }

    /// The session has ended.
    pub fn forget(&mut self, session: SessionId) {
        let objects: Vec<ObjectId> = self.objects.keys().copied().collect();
        objects.iter().for_each(|object| self.retain(object, |lock| lock.owner.0 != session));
    }

    /// object-R1, object-R2: when the last lock in the way ends.
    fn in_the_way(&mut self, now: Duration, asked: &Asked) -> Option<Duration> {
        self.drop_ended(now, &asked.object);
        let overlaps = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let is_there =
            |lock: &&Lock| lock.access.conflicts(asked.access) && overlaps(&lock.range, &asked.range);
        let locks = self.objects.get(&asked.object)?;
        locks.iter().filter(is_there).map(|lock| lock.ends).max()
    }

    /// object-R4.
    fn drop_ended(&mut self, now: Duration, object: &ObjectId) {
        self.retain(object, |lock| lock.ends > now);
    }

    fn retain(&mut self, object: &ObjectId, stays: impl Fn(&Lock) -> bool) {
        let Some(locks) = self.objects.get_mut(object) else { return };
        let before = locks.len();
        locks.retain(stays);
        self.count -= before - locks.len();
        if locks.is_empty() {
            self.objects.remove(object);
        }
    }
}

#[cfg(test)]
mod tests;
