//! The certificates that sessions belong to (decision 0061).
//!
//! oss-P6: a request of a peer with a certificate that names a session is refused, and changes nothing, unless that peer has attached with the
//!     session and the MDT's ticket for it. A restarted OST knows no owners: each client attaches again first, and brings its ticket.
//! oss-P7: a session ends when a revocation list names every certificate by which this start saw it used.
//! A peer without a certificate is in this process, at its Unix socket, or in a cluster without TLS: it may name any session, as before.

use std::collections::HashMap;

use net::{Answer, Sender};
use parking_lot::RwLock;
use pki::{Identity, Owner, Serial};
use types::{Code, Fault, SessionId};
use wire::session::Attach;

use crate::Core;
use crate::joined::Joined;

/// Owners of sessions that have attached since this start. Those of ended sessions are dropped when there are more than twice as many.
#[derive(Default)]
pub struct Owners {
    by_session: RwLock<HashMap<SessionId, Held>>,
}

struct Held {
    owner: Owner,
    /// Of its certificates, the newest ones.
    serials: Vec<Serial>,
}

impl Held {
    fn note(&mut self, session: SessionId, serial: Serial) {
        if self.serials.contains(&serial) {
            return;
        }
        if self.serials.len() == SERIALS_KEPT {
            self.serials.remove(0);
        }
        self.serials.push(serial);
        if self.serials.len() > 1 {
            tracing::info!(session = session.0, %serial, "a session is used with another certificate of its node");
        }
    }
}

/// So many owners are kept without a look at their sessions.
const KEPT: usize = 64;
/// Certificates that are remembered of a session. A node has two during a renewal.
const SERIALS_KEPT: usize = 8;

impl Owners {
    /// The owner of a session, which `sender` uses now.
    fn used_by(&self, session: SessionId, sender: Sender) -> Option<Owner> {
        let (owner, is_known) = {
            let by_session = self.by_session.read();
            let held = by_session.get(&session)?;
            (held.owner, held.serials.contains(&sender.serial))
        };
        if owner == sender.owner && !is_known {
            self.by_session.write().get_mut(&session)?.note(session, sender.serial);
        }
        Some(owner)
    }
    pub fn forget(&self, session: SessionId) {
        self.by_session.write().remove(&session);
    }
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.by_session.read().len()
    }
}

impl Core {
    /// oss-P6, for a session that a request names. An attach brings its own proof.
    pub fn check_owner(&self, session: SessionId, answer: &Answer<'_>) -> Result<(), Fault> {
        let Some(sender) = answer.sender().filter(|_| session != SessionId(0)) else { return Ok(()) };
        match self.owners.used_by(session, sender) {
            Some(owner) if owner == sender.owner => Ok(()),
            Some(_) => Err(refuse(session, answer)),
            None => Err(Fault::new(
                Code::Moved,
                format!("session {session} has not attached to this OST since it started; attach again"),
            )),
        }
    }

    /// oss-P6, for an attach: its ticket says that the MDT gave this session to the sender.
    pub fn check_ticket(&self, joined: &Joined, req: &Attach, answer: &Answer<'_>) -> Result<(), Fault> {
        let Some(Sender { owner, serial, .. }) = answer.sender().filter(|_| !req.observer) else {
            return Ok(());
        };
        if !object::ticket::is_good(&joined.secret, req.session, owner.0, &req.ticket) {
            return Err(refuse(req.session, answer));
        }
        let mut by_session = self.owners.by_session.write();
        let held = by_session.entry(req.session).or_insert_with(|| Held { owner, serials: vec![] });
        held.note(req.session, serial);
        if by_session.len() > KEPT + 2 * self.store.session_count() {
            by_session.retain(|session, _| *session == req.session || self.store.slot(*session, 0).is_some());
        }
        Ok(())
    }

    /// oss-P7, after a new revocation list.
    pub fn end_revoked(&self, is_revoked: &dyn Fn(Serial) -> bool) {
        let by_session = self.owners.by_session.read();
        let all = |held: &Held| held.serials.iter().all(|serial| is_revoked(*serial));
        let ended: Vec<SessionId> =
            by_session.iter().filter(|(_, held)| all(held)).map(|(id, _)| *id).collect();
        drop(by_session);
        for session in ended {
            tracing::warn!(session = session.0, "a session ends: its certificate is revoked");
            if let Err(error) = self.end_session(session) {
                tracing::warn!(session = session.0, %error, "the session could not be ended; its connections are closed");
            }
        }
    }
}

fn refuse(session: SessionId, answer: &Answer<'_>) -> Fault {
    let mut fault = answer.refuse(|who: &Identity| {
        format!(
            "{} may not use session {session}, which the MDT gave to another certificate; a client attaches for a session of its own",
            who.uri()
        )
    });
    fault.detail =
        format!("session {session} belongs to another certificate; attach at the MDT for one of your own");
    fault
}
