//! Range locks: requests of one object wait while a call that crosses objects has its range locked (decision 0055).
//!
//! oss-RL1: a request waits here for a moment only, and few do at a time. Past that it is refused as `NotReady`, and its client repeats it. So
//! requests of the call that has the lock find a thread.
//! oss-RL2: a replay waits for no lock and needs none: it was carried out before this start.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use object::ranges::{Access, Answer, Asked, Owner, Ranges};
use parking_lot::{Condvar, Mutex};
use types::{Code, Fault, ObjectId, SessionId};
use wire::object::{LockRange, RIGHT_READ, RIGHT_WRITE, UnlockRange};
use wire::{Empty, Flags, Header, Wire};

use crate::Core;
use crate::admit::gate_of;
use crate::serve::{Ctx, Served};

/// oss-RL1: a call under a lock takes a few round trips.
const WAIT_MAX: Duration = Duration::from_millis(40);
const WAITERS_MAX: usize = 8;
/// Objects of one `UnlockRange`.
const OBJECTS_MAX: usize = 4096;

/// The range locks of this target.
pub struct RangeLocks {
    table: Mutex<Ranges>,
    freed: Condvar,
    /// There may be some. Read without the lock: a request that misses the newest one began before it (object-R2).
    is_any: AtomicBool,
    waiters: AtomicUsize,
    started: Instant,
}

impl Default for RangeLocks {
    fn default() -> RangeLocks {
        RangeLocks {
            table: Mutex::default(),
            freed: Condvar::new(),
            is_any: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }
}

impl RangeLocks {
    /// Asks until the answer is no wait.
    fn ask(&self, ask: impl Fn(&mut Ranges, Duration) -> Answer) -> Result<(), Fault> {
        let busy = || Err(Fault::new(Code::NotReady, "another call has locked this range of the object"));
        let deadline = Instant::now() + WAIT_MAX;
        let mut table = self.table.lock();
        let mut waiter = None;
        loop {
            let answer = ask(&mut table, self.started.elapsed());
            self.is_any.store(!table.is_empty(), Ordering::SeqCst);
            let until = match answer {
                Answer::Go => return Ok(()),
                Answer::NotHeld => {
                    let why = "the lock of this range has ended; lock it again, and repeat the whole call";
                    return Err(Fault::new(Code::Fenced, why));
                }
                Answer::Wait { until } => self.started + until,
            };
            if Instant::now() >= deadline {
                return busy();
            }
            if waiter.is_none() {
                let Some(counted) = Waiter::count(&self.waiters) else { return busy() };
                waiter = Some(counted);
            }
            let _wait = spent::waiting(spent::Cause::Lock);
            self.freed.wait_until(&mut table, deadline.min(until));
        }
    }

    pub fn forget(&self, session: SessionId) {
        self.change(|table| table.forget(session));
    }

    fn change(&self, change: impl FnOnce(&mut Ranges)) {
        let mut table = self.table.lock();
        change(&mut table);
        self.is_any.store(!table.is_empty(), Ordering::SeqCst);
        self.freed.notify_all();
    }
}

/// oss-RL1.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn count(waiters: &'a AtomicUsize) -> Option<Waiter<'a>> {
        let waiter = Waiter(waiters);
        (waiters.fetch_add(1, Ordering::SeqCst) < WAITERS_MAX).then_some(waiter)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Core {
    pub fn on_lock_range(&self, ctx: &Ctx<'_>, l: LockRange, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        let right = if l.write { RIGHT_WRITE } else { RIGHT_READ };
        self.check_cap(ctx, &l.cap, &l.object, right)?;
        let end = l.offset.checked_add(l.len).filter(|_| l.len > 0 && l.lock != 0);
        let Some(end) = end else {
            return Err(Fault::new(Code::BadRequest, "a lock of no range, or number 0"));
        };
        // A dead session that was fenced gets none.
        let fence = gate_of(&l.cap, &l.object);
        self.store.stat(l.object)?.map_or(Ok(()), |attrs| fence(&attrs))?;
        let access = if l.write { Access::Write } else { Access::Read };
        let (owner, range) = ((ctx.head.session, l.lock), l.offset..end);
        self.ranges.ask(|table, now| {
            let asked = Asked { object: l.object, range: range.clone(), access };
            table.lock(now, owner, asked)
        })?;
        Empty {}.put(reply);
        Ok(Served::READ)
    }

    pub fn on_unlock_range(
        &self,
        ctx: &Ctx<'_>,
        u: UnlockRange,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        if u.objects.len() > OBJECTS_MAX {
            return Err(Fault::new(Code::TooMuch, "more objects than one request may have"));
        }
        let owner: Owner = (ctx.head.session, u.lock);
        self.ranges.change(|table| u.objects.iter().for_each(|object| table.unlock(owner, object)));
        Empty {}.put(reply);
        Ok(Served::READ)
    }

    /// object-R2, object-R3. Called before the request is carried out.
    pub fn await_range(
        &self,
        head: &Header,
        lock: u64,
        object: ObjectId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(), Fault> {
        let is_replay = head.flags & Flags::REPLAY != 0;
        // oss-RL2.
        if is_replay || (lock == 0 && !self.ranges.is_any.load(Ordering::SeqCst)) {
            return Ok(());
        }
        let asked = Asked { object, range, access };
        self.ranges.ask(|table, now| match lock {
            0 => table.admit(now, &asked),
            _ => table.admit_locked(now, (head.session, lock), &asked),
        })
    }
}
