//! File locks of clients: shards of the lock table, waiting, and the grace period after a start (decision 0015).
//!
//! mds-K1: after a start no lock is granted before each known session has reclaimed its locks, or has ended.
//! mds-K2: a lock belongs to a live session. A session leaves the list before its locks are dropped, and a grantee is looked up under the
//!     shard's lock.
//! mds-K3: no request waits here. A session is told by a notice that a lock it waits for is free.
//! mds-K5: while a session's kernel keeps its locks to itself, no other session gets a lock: the MDT could not tell whether it is free.
//!
//! No other lock is taken under a shard's lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use meta::lock::{Ask, LockTable, Owner, Range, Resource};
use parking_lot::{Mutex, MutexGuard};
use types::{Code, Fault, SessionId};
use wire::lock::*;
use wire::notice::{LocksFree, LookAround, TICKETS_MAX};
use wire::{Empty, Header, Request};

use crate::Core;
use crate::reply::Done;
use crate::reply::{parse, plain};
use crate::sessions::Session;
use crate::sessions::nodemap::Terms;

/// Shards of flock locks, as many as a large machine has busy serving threads. fcntl locks have one shard more.
const SHARDS: usize = 64;

pub struct Locks {
    /// The first shard has all fcntl locks, since deadlock detection looks at one table.
    shards: Vec<Mutex<LockTable>>,
    /// mds-K1: sessions that have not reclaimed yet.
    awaited: Mutex<BTreeSet<SessionId>>,
    is_grace: AtomicBool,
    /// mds-K5: the session whose kernel keeps its locks to itself; 0: none.
    own: AtomicU64,
}

impl Locks {
    /// `known`: sessions from before this start.
    pub fn new(known: Vec<SessionId>) -> Locks {
        Locks {
            shards: (0..=SHARDS).map(|_| Mutex::default()).collect(),
            is_grace: AtomicBool::new(!known.is_empty()),
            awaited: Mutex::new(known.into_iter().collect()),
            own: AtomicU64::new(0),
        }
    }

    /// mds-K5: locks are left to the kernel of a session that began while there was no other. The caller holds `ending`.
    pub fn leave_to(&self, session: SessionId) {
        let before = self.own.swap(session.0, Ordering::SeqCst);
        assert_eq!(before, 0, "mds-K5: the session before has ended");
    }
    pub fn are_own_of(&self, session: SessionId) -> bool {
        session.0 != 0 && self.own.load(Ordering::SeqCst) == session.0
    }

    fn shard(&self, (fid, space): Resource) -> &Mutex<LockTable> {
        let at = if space == LockSpace::Posix { 0 } else { 1 + fid.0 as usize % SHARDS };
        &self.shards[at]
    }

    pub fn is_grace(&self) -> bool {
        self.is_grace.load(Ordering::Acquire)
    }
    /// mds-K1: sessions that have not reclaimed yet.
    pub fn awaited(&self) -> Vec<SessionId> {
        if self.is_grace() { self.awaited.lock().iter().copied().collect() } else { vec![] }
    }
    pub fn is_awaited(&self, session: SessionId) -> bool {
        self.is_grace() && self.awaited.lock().contains(&session)
    }

    /// The session has reclaimed, or is gone. True: that ends the grace period.
    fn not_awaited(&self, session: SessionId) -> bool {
        let mut awaited = self.awaited.lock();
        awaited.remove(&session);
        awaited.is_empty() && self.is_grace.swap(false, Ordering::AcqRel)
    }
}

/// mds-K5.
fn own_locks() -> Fault {
    Fault::new(
        Code::Unsupported,
        "the mount of `stria up` keeps its locks to itself, so other mounts get none; start it with `-o flock`",
    )
}

impl Core {
    pub fn on_lock_call(&self, head: &Header, body: &[u8], terms: Option<&Terms>) -> Result<Done, Fault> {
        self.joined()?;
        self.check_incarnation(head)?;
        self.check_session(head.session)?;
        let session = self.living(head.session)?;
        if head.call == Reclaim::CALL {
            return self.on_reclaim(head, &session, &parse(body)?, terms).map(plain);
        }
        if self.locks.is_awaited(session.id) {
            return Err(Fault::new(
                Code::Moved,
                "this MDT was started anew; attach, and reclaim your locks first",
            ));
        }
        match head.call {
            Lock::CALL => self.on_lock(&session, &parse(body)?).map(plain),
            TestLock::CALL => self.on_test_lock(&session, &parse(body)?).map(plain),
            CancelLock::CALL => self.on_cancel_lock(&session, &parse(body)?).map(plain),
            DropOwner::CALL => self.on_drop_owner(&session, &parse(body)?).map(plain),
            AwaitLocks::CALL => self.on_await_locks(&session, &parse(body)?).map(plain),
            call => Err(Fault::new(Code::Unsupported, format!("call {call:#06x} is not known to this MDT"))),
        }
    }

    fn on_lock(&self, session: &Session, req: &Lock) -> Result<LockReply, Fault> {
        let ask = Ask {
            resource: (req.fid, req.space),
            owner: Owner { session: session.id, token: req.owner },
            range: range(req.start, req.end)?,
            kind: req.kind,
            pid: req.pid,
            ticket: req.wait.then_some(req.ticket),
        };
        let mut table = self.take_turn(session, &req.turn, ask.resource)?;
        if self.has_foreign_locks(session.id) && req.kind != LockKind::Unlock {
            // A program may ask again without a pause.
            if !session.was_lock_refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(session = session.id.0, "a lock is refused: {}", own_locks().detail);
            }
            return Ok(LockReply { outcome: LockOutcome::Full });
        }
        if self.locks.is_grace() && req.kind != LockKind::Unlock {
            return if req.wait { Ok(LockReply { outcome: LockOutcome::Wait }) } else { Err(self.grace()) };
        }
        let outcome = table.ask(&ask, self.clock.boot_ms());
        self.wake(table);
        Ok(LockReply { outcome })
    }

    fn on_test_lock(&self, session: &Session, req: &TestLock) -> Result<TestLockReply, Fault> {
        if self.has_foreign_locks(session.id) {
            return Err(own_locks());
        }
        if self.locks.is_grace() {
            return Err(self.grace());
        }
        let ask = Ask {
            resource: (req.fid, req.space),
            owner: Owner { session: session.id, token: req.owner },
            range: range(req.start, req.end)?,
            kind: req.kind,
            pid: 0,
            ticket: None,
        };
        Ok(TestLockReply { found: self.locks.shard(ask.resource).lock().test(&ask) })
    }

    fn on_cancel_lock(&self, session: &Session, req: &CancelLock) -> Result<Empty, Fault> {
        let resource = (req.fid, req.space);
        let mut table = self.take_turn(session, &req.turn, resource)?;
        table.cancel(resource, session.id, req.ticket);
        self.wake(table);
        Ok(Empty {})
    }

    fn on_drop_owner(&self, session: &Session, req: &DropOwner) -> Result<Empty, Fault> {
        let resource = (req.fid, req.space);
        let mut table = self.take_turn(session, &req.turn, resource)?;
        table.drop_owner(resource, Owner { session: session.id, token: req.owner });
        self.wake(table);
        Ok(Empty {})
    }

    fn on_await_locks(&self, session: &Session, req: &AwaitLocks) -> Result<AwaitLocksReply, Fault> {
        if req.waiting.len() > LOCKS_PER_CALL_MAX {
            return Err(Fault::new(Code::BadRequest, "too many tickets in one call"));
        }
        if self.locks.is_grace() {
            return Ok(AwaitLocksReply { ready: vec![] });
        }
        let due = req.waiting.iter().filter(|w| self.is_due(session.id, w));
        Ok(AwaitLocksReply { ready: due.map(|w| w.ticket).collect() })
    }

    fn is_due(&self, session: SessionId, waiting: &WaitingLock) -> bool {
        let resource = (waiting.fid, waiting.space);
        let mut table = self.locks.shard(resource).lock();
        let is_due = table.look(resource, session, waiting.ticket, self.clock.boot_ms());
        self.wake(table);
        is_due
    }

    /// Reclaims the locks that a session held before this start. A session that is not awaited has reclaimed already; then this is a late
    /// copy, and the table is right.
    fn on_reclaim(
        &self,
        head: &Header,
        session: &Session,
        req: &Reclaim,
        terms: Option<&Terms>,
    ) -> Result<ReclaimReply, Fault> {
        let fids = || req.locks.iter().map(|lock| lock.fid).collect::<Vec<_>>();
        let root = terms.and_then(|terms| terms.root.as_deref());
        let usable = root.map(|root| self.usable(root, head, &fids())).transpose()?;
        let mut refused = vec![];
        if !self.locks.is_awaited(session.id) {
            return Ok(ReclaimReply { refused });
        }
        for (at, lock) in req.locks.iter().enumerate() {
            range(lock.start, lock.end)?;
            if usable.as_ref().is_some_and(|usable| !usable.contains(&lock.fid)) {
                refused.push(at as u32);
                continue;
            }
            let mut table = self.locks.shard((lock.fid, lock.space)).lock();
            self.living(session.id)?;
            if !table.reclaim(session.id, lock) {
                refused.push(at as u32);
            }
        }
        if !req.more && self.locks.not_awaited(session.id) {
            self.end_grace();
        }
        Ok(ReclaimReply { refused })
    }

    fn forget_own_locks(&self, session: SessionId) {
        let _ = self.locks.own.compare_exchange(session.0, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// mds-K5.
    fn has_foreign_locks(&self, session: SessionId) -> bool {
        let own = self.locks.own.load(Ordering::SeqCst);
        own != 0 && own != session.0
    }

    /// mds-K2: drops the locks of a session that has left the list.
    pub fn drop_locks(&self, session: SessionId) {
        self.forget_own_locks(session);
        for shard in &self.locks.shards {
            let mut table = shard.lock();
            table.drop_session(session);
            self.wake(table);
        }
        if self.locks.not_awaited(session) {
            self.end_grace();
        }
    }

    /// Removes waiters that stopped asking.
    pub fn sweep_locks(&self) {
        let now_ms = self.clock.boot_ms();
        for shard in &self.locks.shards {
            let mut table = shard.lock();
            table.sweep(now_ms);
            self.wake(table);
        }
    }

    #[cfg(test)]
    pub fn locks_of(&self, fid: types::Fid, space: LockSpace) -> usize {
        self.locks.shard((fid, space)).lock().held((fid, space)).len()
    }

    fn end_grace(&self) {
        assert!(self.locks.awaited.lock().is_empty(), "mds-K1: the grace period ends after the last session");
        assert!(!self.locks.is_grace(), "mds-K1: the grace period ends once");
        tracing::info!("every client has reclaimed its locks; new ones are granted");
        self.sessions.each(|session| _ = session.notices.push(&LookAround {}));
    }

    fn grace(&self) -> Fault {
        Fault::new(Code::NotReady, "this MDT waits for its clients to say which locks they hold; try again")
    }

    /// Tells sessions of waiters that are next in their queues, after the table's lock is released.
    fn wake(&self, mut table: MutexGuard<'_, LockTable>) {
        let mut woken = table.take_woken();
        drop(table);
        woken.sort_unstable();
        woken.dedup();
        for some in woken.chunk_by(|a, b| a.0 == b.0) {
            let Some(session) = self.sessions.get(some[0].0) else { continue };
            for some in some.chunks(TICKETS_MAX) {
                session
                    .notices
                    .push(&LocksFree { tickets: some.iter().map(|(_, ticket)| *ticket).collect() });
            }
        }
    }

    fn take_turn(
        &self,
        session: &Session,
        turn: &Turn,
        resource: Resource,
    ) -> Result<MutexGuard<'_, LockTable>, Fault> {
        // Before the table's lock, so that every later request in the table sees it.
        session.lock_floor.fetch_max(turn.floor, Ordering::SeqCst);
        let table = self.locks.shard(resource).lock();
        if turn.number < session.lock_floor.load(Ordering::SeqCst) {
            return Err(Fault::new(Code::BadRequest, "a late copy of a lock request that was answered"));
        }
        self.living(session.id)?;
        Ok(table)
    }

    fn living(&self, id: SessionId) -> Result<Arc<Session>, Fault> {
        self.sessions.get(id).ok_or_else(|| object::slots::unknown(id))
    }
}

fn range(start: u64, end: u64) -> Result<Range, Fault> {
    match start <= end {
        true => Ok(Range { start, end }),
        false => Err(Fault::new(Code::BadRequest, "a lock's range ends before it begins")),
    }
}
