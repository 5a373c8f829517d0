//! Leases and waits as tools show them, and the eviction that an administrator asks for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid, SessionId};
use wire::Empty;
use wire::mdt::{
    ClientLeases, EvictSession, FileLease, LEASES_MAX, LeaseWait, MdtLeases, MdtLeasesReply, NameWait,
};
use wire::shared::LeaseKind;

use crate::Core;

impl Core {
    pub fn on_leases(&self, req: &MdtLeases) -> Result<MdtLeasesReply, Fault> {
        self.check_admin(&req.cap)?;
        let (now, now_ms) = (Instant::now(), self.clock.boot_ms());
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let is_asked = |fid: Fid| req.fid == Fid(0) || req.fid == fid;
        let mut reply = MdtLeasesReply {
            clients: vec![],
            files: vec![],
            waits: vec![],
            more: false,
            changes_waiting: self.leases.recalls.len() as u64,
            names: vec![],
        };
        for change in self.leases.recalls.list() {
            let (session, waited_ms) = (change.session, ms(now.saturating_duration_since(change.began)));
            for (fid, holder) in change.of.into_iter().filter(|of| is_asked(of.0)) {
                if reply.names.len() < LEASES_MAX {
                    reply.names.push(NameWait { fid, session, holder, waited_ms });
                } else {
                    reply.more = true;
                }
            }
        }
        let mut files: HashMap<SessionId, u64> = HashMap::new();
        self.sharers.with_leases(&mut |leases| {
            for (fid, (session, _), kind, wanted) in leases.held().filter(|held| is_asked(held.0)) {
                *files.entry(session).or_default() += 1;
                if reply.files.len() < LEASES_MAX {
                    // 0 means that none wants it.
                    let wanted_ms = wanted.map_or(0, |since| ms(now.duration_since(since)).max(1));
                    reply.files.push(FileLease { fid, session, kind, wanted_ms });
                } else {
                    reply.more = true;
                }
            }
            for (fid, section, since) in leases.waits().filter(|wait| is_asked(wait.0)) {
                if reply.waits.len() < LEASES_MAX {
                    let waited_ms = ms(now.duration_since(since));
                    let (session, kind) = (section.session, section.kind);
                    reply.waits.push(LeaseWait { fid, session, kind, waited_ms });
                } else {
                    reply.more = true;
                }
            }
        });
        for (fid, session, wanted) in self.makers.held().into_iter().filter(|held| is_asked(held.0)) {
            if reply.files.len() < LEASES_MAX {
                let wanted_ms = wanted.map_or(0, |since| ms(now.duration_since(since)).max(1));
                reply.files.push(FileLease { fid, session, kind: LeaseKind::Exclusive, wanted_ms });
            } else {
                reply.more = true;
            }
        }
        let dirs = self.leases.by_session(is_asked);
        self.sessions.each(|session| {
            let count = |of: &HashMap<SessionId, u64>| of.get(&session.id).copied().unwrap_or(0);
            reply.clients.push(ClientLeases {
                session: session.id,
                name: session.name.clone(),
                silent_ms: session.silent_ms(now_ms),
                left_ms: session.lease_ends_ms().saturating_sub(now_ms),
                dirs: count(&dirs),
                files: count(&files),
            });
        });
        Ok(reply)
    }

    pub fn on_evict(&self, req: &EvictSession) -> Result<Empty, Fault> {
        self.check_admin(&req.cap)?;
        let _one = self.ending.lock();
        let Some(session) = self.sessions.get(req.session) else {
            return Err(Fault::new(Code::NotFound, format!("there is no session {}", req.session)));
        };
        tracing::warn!(session = session.id.0, client = session.name, "an administrator ends a session");
        self.evict(session.id)?;
        Ok(Empty {})
    }
}
