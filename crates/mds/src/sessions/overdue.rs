//! Sessions whose clients live, and do not give the others what only they can give: they are ended as dead ones are.
//!
//! A sign of life comes from a thread of its own, so it says nothing of those that do the work. Without this rule a client of which one
//! thread hangs would keep everybody from everything after a restart of the MDT, a newcomer out, and others from a file, for ever.
//!
//! mds-X9: a session that owes the others the same thing (`Owes`) for `OVERDUE_MS` while it could give it is ended when somebody wants it. What
//!     it cannot give yet does not count: behind another's turn (mds-X6), and, of what may have to be written to OSTs before it, while
//!     one of these is down. Who comes on owes something else, and has its whole time for that.

use std::collections::HashMap;

use types::{Fault, Fid, Seq, SessionId};

use crate::Core;

/// Three operation time-outs of a client, 60 s each: one for the calls that began before it was asked, one to flush and tell what they
/// left, and one to spare. A section lasts as long as a call, and 256 MiB are sent again in seconds, each second of which it comes on.
pub const OVERDUE_MS: u64 = 180_000;

/// What one session owes the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owes {
    /// To share and to say what it holds; it has sent again what was lost below this entry.
    Hold { mode: u32, next: Seq },
    /// To say which locks it holds.
    Locks,
    /// To leave a section.
    Leave { fid: Fid, token: u64 },
}

impl Owes {
    fn why(&self) -> String {
        match self {
            Owes::Hold { .. } => "to write down what it has in hand and to say what it holds".into(),
            Owes::Locks => "to say which locks it holds".into(),
            Owes::Leave { fid, .. } => format!("to end a call on file {fid}"),
        }
    }
}

pub struct Debt {
    pub session: SessionId,
    pub owes: Owes,
    /// Somebody waits for it just now.
    pub is_wanted: bool,
}

/// Since when who owes what. One look follows the other at short intervals.
#[derive(Default)]
pub struct Overdue {
    since: HashMap<(SessionId, Owes), u64>,
}

impl Overdue {
    pub fn is_noted(&self, session: SessionId, owes: Owes) -> bool {
        self.since.contains_key(&(session, owes))
    }

    /// mds-X9: those of `debts` that are overdue. What is not among these is forgotten.
    pub fn look(&mut self, debts: &[Debt], now_ms: u64) -> Vec<(SessionId, Owes)> {
        let old = std::mem::take(&mut self.since);
        let mut overdue = Vec::new();
        for Debt { session, owes, is_wanted } in debts {
            let key = (*session, *owes);
            let since = old.get(&key).copied().or(is_wanted.then_some(now_ms));
            let Some(since) = since else { continue };
            self.since.insert(key, since);
            if *is_wanted && now_ms.saturating_sub(since) >= OVERDUE_MS {
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
        let here = (self.volume.label().target, self.incarnation);
        let is_alone = self.sessions.count() < 2;
        self.sharers.overdue(is_alone, &self.locks.awaited(), here, are_osts_up, self.clock.boot_ms())
    }

    /// mds-X9. The lock `ending` is held.
    pub fn end_overdue(&self) -> Result<(), Fault> {
        for (id, owes) in self.overdue() {
            let Some(session) = self.sessions.get(id) else { continue };
            tracing::warn!(
                session = id.0,
                client = session.name,
                owes = owes.why(),
                seconds = OVERDUE_MS / 1000,
                "a session ends though its client lives: others wait for it in vain; look at that mount's log, whether it reaches \
                 all OSTs, and whether its process hangs"
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
