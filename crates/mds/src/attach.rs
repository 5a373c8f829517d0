//! Sessions begin and end here.
//!
//! One client at a time until leases exist: a second is refused while the first is alive, and takes its place once that was
//! silent for the session's time. A session without a rival is kept much longer: its client may only sleep.

use std::sync::Arc;

use types::{Code, Fault, SessionId};
use wire::Empty;
use wire::session::{Attach, AttachReply, Detach, KeepAlive};

use crate::Core;
use crate::recover::no_lease;
use crate::sessions::{Session, session_key};

/// Without a rival a silent session is ended after this many times its time-out: a minute, by when its orphans are due.
const UNRIVALLED_FACTOR: u64 = 6;
/// Orphans that one entry reaps. An orphan of 64 KiB inline has 17 records to delete, so the entry stays below 64 KiB.
const REAP_MAX: usize = 64;

impl Core {
    pub fn on_attach(&self, req: &Attach) -> Result<AttachReply, Fault> {
        let joined = self.joined()?;
        if req.fs_uuid != joined.fs_uuid {
            return Err(Fault::new(
                Code::Invalid,
                format!(
                    "this MDT serves file system {}, not {}; is the mount's MGS address right?",
                    joined.fs_uuid, req.fs_uuid
                ),
            ));
        }
        if req.observer {
            return Ok(self.attach_reply(SessionId(0), vec![]));
        }
        let _one = self.ending.lock();
        let now = self.clock.boot_ms();
        // 1. the same client again: after a reconnect, or a restart of this server
        if let Some(session) = self.sessions.find(|s| s.client == req.client) {
            session.touch(now);
            return Ok(self.attach_reply(session.id, self.writer.lock().slots.sequences(session.id)));
        }
        // 2. others: wait for the living, end the dead
        for id in self.sessions.ids() {
            self.make_way(id, now)?;
        }
        // 3. a session of its own, durable before it is used: its requests may be replayed after a power loss
        let session = self.begin_session(req, now)?;
        self.flush()?;
        let slots = self.writer.lock().slots.sequences(session.id);
        Ok(self.attach_reply(session.id, slots))
    }

    /// Ends session `id` if it is dead; else refuses the newcomer.
    fn make_way(&self, id: SessionId, now: u64) -> Result<(), Fault> {
        let Some(holder) = self.sessions.get(id) else { return Ok(()) };
        let (silent, ttl) = (holder.silent_ms(now), self.session_ttl_ms());
        if silent >= ttl {
            tracing::info!(
                session = id.0,
                client = holder.name,
                silent_ms = silent,
                "dead session makes way for a new client"
            );
            return self.end_session(id);
        }
        Err(Fault::new(
            Code::Busy,
            format!(
                "the file system is mounted by {} (heard of {} s ago), and several clients at once are not supported yet; \
                 unmount it there, or try again {} s after that client stopped",
                holder.name,
                silent / 1000,
                ttl.div_ceil(1000)
            ),
        ))
    }

    pub fn begin_session(&self, req: &Attach, now: u64) -> Result<Arc<Session>, Fault> {
        let mut made = None;
        self.transact(0, None, &no_lease(), &mut |txn| {
            let session = Session::new(txn.next_session(), req.client, &req.name, now);
            let (key, value) = session.to_record();
            meta::Txn::put(txn, key, value);
            made = Some(session);
            Ok(vec![])
        })?;
        let session =
            Arc::new(made.ok_or_else(|| Fault::new(Code::NotReady, "no session was made; try again"))?);
        self.sessions.add(session.clone());
        Ok(session)
    }

    fn attach_reply(&self, session: SessionId, slots: Vec<u32>) -> AttachReply {
        AttachReply {
            session,
            slots,
            flushed_seq: self.volume.flushed_seq(),
            last_seq: self.volume.last_seq(),
            session_ttl_ms: self.session_ttl_ms() as u32,
        }
    }

    pub fn session_ttl_ms(&self) -> u64 {
        self.settings.session_ttl.as_millis() as u64
    }

    pub fn on_keep_alive(&self, req: &KeepAlive) -> Result<Empty, Fault> {
        match self.sessions.touch(req.session, self.clock.boot_ms()) {
            // After a clean stop the incarnation is the old one: this is how a client hears that its locks are asked for.
            true if self.locks.is_awaited(req.session) => {
                Err(Fault::new(Code::Moved, "this MDT was started anew; attach, and reclaim your locks"))
            }
            true => Ok(Empty {}),
            false => Err(object::slots::unknown(req.session)),
        }
    }

    /// A session that is gone already is fine: the request may come twice.
    pub fn on_detach(&self, asking: SessionId, req: &Detach) -> Result<Empty, Fault> {
        // Who has no session may end a dead one's: `up` after a kill.
        if asking != SessionId(0) && asking != req.session {
            return Err(Fault::new(
                Code::Access,
                format!("session {asking} cannot end session {}", req.session),
            ));
        }
        let _one = self.ending.lock();
        if self.sessions.get(req.session).is_some() {
            self.end_session(req.session)?;
        }
        Ok(Empty {})
    }

    /// Ends sessions that were silent so long that nobody can count on them coming back.
    pub fn reap_sessions(&self) {
        let now = self.clock.boot_ms();
        let limit = self.session_ttl_ms().saturating_mul(UNRIVALLED_FACTOR);
        for (id, name, silent_ms) in self.sessions.list(now) {
            if silent_ms < limit {
                continue;
            }
            let _one = self.ending.lock();
            // It may have spoken while we waited for the lock.
            let is_dead = self.sessions.get(id).is_some_and(|s| s.silent_ms(self.clock.boot_ms()) >= limit);
            if is_dead {
                tracing::info!(session = id.0, client = name, silent_ms, "session ended: its client is gone");
                if let Err(fault) = self.end_session(id) {
                    tracing::warn!(session = id.0, %fault, "a dead session could not be ended; it will be tried again");
                }
            }
        }
    }

    /// Reaps the session's orphans and removes it; the last of them and the session go in one entry, so that no request of
    /// it can slip between. The lock `ending` is held.
    pub fn end_session(&self, id: SessionId) -> Result<(), Fault> {
        let mut is_last = false;
        while !is_last {
            self.transact(0, None, &no_lease(), &mut |txn| {
                let orphans = self.rules.orphans_of(txn, id);
                is_last = orphans.len() <= REAP_MAX;
                for fid in orphans.iter().take(REAP_MAX) {
                    // The orphan record is gone in any case, so that a broken inode cannot keep the session for ever.
                    if let Err(fault) = self.rules.reap(txn, *fid) {
                        tracing::warn!(fid = fid.0, %fault, "an orphan's inode cannot be read; run fsck");
                    }
                }
                if is_last {
                    meta::Txn::delete(txn, &session_key(id));
                }
                Ok(vec![])
            })?;
        }
        self.sessions.remove(id);
        self.drop_locks(id);
        Ok(())
    }
}
