//! Sessions whose clients live, and do not give the others what only they can give: they are ended as dead ones are.
//!
//! A sign of life comes from a thread of its own, so it says nothing of those that do the work. Without this rule a client of which one
//! thread hangs would keep everybody from everything after a restart of the MDT, a newcomer out, and others from a file, for ever.
//!
//! mds-X9: a session that owes the others the same thing (`Owes`) for its `Owes::limit_ms` while it could give it is ended when another session
//!     wants it. A debt that it cannot pay yet does not count: behind another's turn (mds-X6), and, of what may have to be written to OSTs before it,
//!     while one of these is down. A session that comes on owes something else, and has its whole time for that.
//! mds-X10: a session whose lease has ended uses none of its content leases. So it is ended as soon as another session wants one of these.

use std::collections::HashMap;

use types::{Fault, Fid, Seq, SessionId};

use crate::Core;

/// Three operation time-outs of a client, 60 s each: one for the calls that began before it was asked, one to flush and tell what they
/// left, and one to spare. 256 MiB are sent again in seconds, each second of which it comes on.
pub const OVERDUE_MS: u64 = 180_000;
/// A client gives a lease back once the calls that use it have ended.
pub const RECALL_MAX_MS: u64 = 30_000;

/// What one session owes the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owes {
    /// To share and to say what it holds; it has sent again what was lost below this entry.
    Hold { mode: u32, next: Seq },
    /// To say which locks it holds.
    Locks,
    /// To give a content lease back.
    Leave { fid: Fid, token: u64 },
}

impl Owes {
    fn why(&self) -> String {
        match self {
            Owes::Hold { .. } => "to write down what it has in hand and to say what it holds".into(),
            Owes::Locks => "to say which locks it holds".into(),
            Owes::Leave { fid, .. } => format!("to give the content lease of file {fid} back"),
        }
    }

    fn limit_ms(&self) -> u64 {
        match self {
            Owes::Hold { .. } | Owes::Locks => OVERDUE_MS,
            Owes::Leave { .. } => RECALL_MAX_MS,
        }
    }
}

pub struct Debt {
    pub session: SessionId,
    pub owes: Owes,
    /// Another session waits for it just now.
    pub is_wanted: bool,
    /// mds-X10.
    pub is_void: bool,
}

/// Since when who owes what. One look follows the other at short intervals.
#[derive(Default)]
pub struct Overdue {
    since: HashMap<(SessionId, Owes), u64>,
}

impl Overdue {
    /// mds-X9: those of `debts` that are overdue. What is not among these is forgotten.
    pub fn look(&mut self, debts: &[Debt], now_ms: u64) -> Vec<(SessionId, Owes)> {
        let old = std::mem::take(&mut self.since);
        let mut overdue = Vec::new();
        for Debt { session, owes, is_wanted, is_void } in debts {
            let key = (*session, *owes);
            let since = old.get(&key).copied().or(is_wanted.then_some(now_ms));
            let Some(since) = since else { continue };
            self.since.insert(key, since);
            if *is_wanted && (*is_void || now_ms.saturating_sub(since) >= owes.limit_ms()) {
                overdue.push(key);
            }
        }
        overdue
    }
}

impl Core {
    fn overdue(&self) -> Vec<(SessionId, Owes)> {
        // Who has nothing to do with OSTs yet waits for none.
        let are_osts_up = self.joined.load().as_ref().is_none_or(|joined| joined.are_osts_up);
        let here = (self.volume.label().mirror, self.incarnation);
        let is_alone = self.sessions.count() < 2;
        let now_ms = self.clock.boot_ms();
        let is_void = |id: SessionId| self.sessions.get(id).is_some_and(|s| s.is_lease_over(now_ms));
        self.sharers.overdue(is_alone, &self.locks.awaited(), here, (are_osts_up, &is_void), now_ms)
    }

    /// mds-X9. The lock `ending` is held.
    pub fn end_overdue(&self) -> Result<(), Fault> {
        for (id, owes) in self.overdue() {
            let Some(session) = self.sessions.get(id) else { continue };
            tracing::warn!(
                session = id.0,
                client = session.name,
                owes = owes.why(),
                "a session ends because others wait for it in vain; look at that mount's log, whether it reaches all servers, and whether \
                 its process is stopped"
            );
            self.evict(id)?;
        }
        Ok(())
    }

    pub fn reap_overdue(&self) {
        if self.overdue().is_empty() {
            return;
        }
        let _one = self.ending.lock();
        // It may have come on while we waited for the lock.
        if let Err(fault) = self.end_overdue() {
            tracing::warn!(%fault, "a session that others wait for could not be ended; it will be tried again");
        }
    }
}
