//! Attach, KeepAlive, Detach: the session of a client at this target.
//!
//! An OST never ends a session by time. The MDT decides which sessions live; capabilities and lease versions keep evicted clients out.

use object::slots::unknown;
use types::{Code, Fault, Fid, SessionId};
use wire::object::Mac;
use wire::session::{Attach, AttachReply, Detach, KeepAlive, KeepAliveReply, SLOTS};
use wire::{Empty, Wire};

use crate::Core;
use crate::serve::{Ctx, Served};

/// No session expires at an OST.
const SESSION_TTL_MS: u32 = u32::MAX;

impl Core {
    pub fn on_attach(&self, ctx: &Ctx<'_>, a: Attach, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        if a.fs_uuid != ctx.joined.fs_uuid {
            let detail = format!(
                "this OST serves file system {}, not {}; is the mount's MGS address right?",
                ctx.joined.fs_uuid, a.fs_uuid
            );
            return Err(Fault::new(Code::Invalid, detail));
        }
        let slots = match (a.observer, a.session) {
            (true, _) => vec![],
            (false, SessionId(0)) => {
                return Err(Fault::new(Code::BadRequest, "sessions begin at the MDT: attach there first"));
            }
            // It attaches for reads: this member learns which certificate the session belongs to, and has the session from the primary.
            (false, _) if self.is_standby() => vec![],
            (false, session) => {
                self.store.begin_session(session)?;
                let slots = self.store.slots(session).ok_or_else(|| unknown(session))?;
                assert!(slots.len() == SLOTS as usize, "a client learns the sequence of each slot");
                slots.iter().map(|s| s.sequence).collect()
            }
        };
        AttachReply {
            session: if a.observer { SessionId(0) } else { a.session },
            slots,
            flushed_seq: self.store.flushed_seq(),
            last_seq: self.store.last_seq(),
            session_ttl_ms: SESSION_TTL_MS,
            mode: 0,
            judges: false,
            knows_groups: false,
            own_locks: false,
            ticket: Mac::default(),
            root: Fid::ROOT,
        }
        .put(reply);
        Ok(Served::READ)
    }

    pub fn on_keep_alive(&self, k: KeepAlive, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        // An observer has no session, and is alive as long as it sends requests.
        if k.session != SessionId(0) {
            self.store.slot(k.session, 0).ok_or_else(|| unknown(k.session))?;
        }
        KeepAliveReply { mode: 0, outbox: 0, notices: 0, ticket: Mac::default() }.put(reply);
        Ok(Served::READ)
    }

    /// Ends a session, and gives back what it holds.
    pub fn end_session(&self, session: SessionId) -> Result<(), store::StoreError> {
        self.store.end_session(session)?;
        self.ranges.forget(session);
        self.owners.forget(session);
        self.guests.forget(session);
        Ok(())
    }

    /// A client may end its own session; a server (session 0) may end any. A session that is already gone is fine: the request may come
    /// twice.
    pub fn on_detach(&self, ctx: &Ctx<'_>, d: Detach, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        if ctx.head.session != SessionId(0) && ctx.head.session != d.session {
            let detail = format!("session {} cannot end session {}", ctx.head.session, d.session);
            return Err(Fault::new(Code::Access, detail));
        }
        self.end_session(d.session)?;
        Empty {}.put(reply);
        Ok(Served::READ)
    }
}
