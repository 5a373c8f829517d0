//! Reclaim of locks after a restart of the MDT, and their loss with a session.

use std::time::Instant;

use net::{Peer, rpc};
use types::{Buf, Code, Fault, Fid, SessionId};
use wire::Header;
use wire::lock::{HeldLock, LOCKS_PER_CALL_MAX, LockSpace, Reclaim};

use super::{Locks, Range, ask};
use crate::session::link::Link;
use crate::session::losses::Losses;
use meta::lock::{Ask, Held};
use wire::lock::LockKind;

impl Locks {
    /// All held locks, for the MDT. Requests under way are sent again afterwards (client-LK2).
    fn begin_reclaim(&self) -> Vec<HeldLock> {
        let mut state = self.state.lock();
        state.reclaims += 1;
        let told = |(fid, space): (Fid, LockSpace), held: &Held| HeldLock {
            fid,
            space,
            owner: held.owner.token,
            start: held.range.start,
            end: held.range.end,
            kind: held.kind,
            pid: held.pid,
        };
        state.held.all().map(|(resource, held)| told(resource, held)).collect()
    }

    /// The MDT has granted the lock to another client.
    fn refused(&self, lock: &HeldLock, losses: &Losses) {
        let HeldLock { fid, space, owner, start, end, pid, .. } = *lock;
        let lock = super::FileLock { space, owner, start, end, kind: LockKind::Unlock, pid };
        self.state.lock().held.set(&Ask { range: Range { start, end }, ..ask(fid, &lock) });
        losses.add(fid, "a lock of it could not be had back from the MDT");
    }

    /// The session that held the locks has ended. Files with locks of programs fail from now on.
    pub fn lose(&self, losses: &Losses, why: &str) {
        let mut state = self.state.lock();
        state.reclaims += 1;
        state.owed.clear();
        let held = std::mem::take(&mut state.held);
        drop(state);
        let mut files: Vec<_> = held.all().map(|((fid, _), _)| fid).collect();
        files.sort_unstable();
        files.dedup();
        files.iter().for_each(|fid| losses.add(*fid, &format!("its locks are gone: {why}")));
    }
}

impl Link {
    /// Reclaims this client's locks at a restarted MDT, before any new request.
    pub(crate) fn reclaim(
        &self,
        peer: &dyn Peer,
        session: SessionId,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let held = self.locks().begin_reclaim();
        let mut parts = held.chunks(LOCKS_PER_CALL_MAX).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let req = Reclaim { locks: part.to_vec(), more: parts.peek().is_some() };
            let head = Header { session, ..self.header() };
            let (_, _, said) = rpc::call(peer, head, &req, &[], &mut Buf::new(), deadline)
                .map_err(|e| Fault::new(Code::Timeout, format!("{}: {e}", self.describe())))?;
            for at in said?.refused {
                if let Some(lock) = part.get(at as usize) {
                    self.locks().refused(lock, self.losses());
                }
            }
            if !req.more {
                return Ok(());
            }
        }
    }
}
