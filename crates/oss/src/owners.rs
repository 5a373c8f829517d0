//! The certificates that sessions belong to (decision 0061).
//!
//! oss-P6: a request of a peer with a certificate that names a session is refused, and changes nothing, unless that peer has attached with the
//!     session and the MDT's ticket for it. A restarted OST knows no owners: each client attaches again first, and brings its ticket.
//! A peer without a certificate is in this process, at its Unix socket, or in a cluster without TLS: it may name any session, as before.

use std::collections::HashMap;

use net::{Answer, Sender};
use parking_lot::RwLock;
use pki::{Identity, Owner};
use types::{Code, Fault, SessionId};
use wire::session::Attach;

use crate::Core;
use crate::joined::Joined;

/// Owners of sessions that have attached since this start. Those of ended sessions are dropped when there are more than twice as many.
#[derive(Default)]
pub struct Owners {
    by_session: RwLock<HashMap<SessionId, Owner>>,
}

/// So many owners are kept without a look at their sessions.
const KEPT: usize = 64;

impl Owners {
    fn get(&self, session: SessionId) -> Option<Owner> {
        self.by_session.read().get(&session).copied()
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
        match self.owners.get(session) {
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
        let Some(Sender { owner, .. }) = answer.sender().filter(|_| !req.observer) else { return Ok(()) };
        if !object::ticket::is_good(&joined.secret, req.session, owner.0, &req.ticket) {
            return Err(refuse(req.session, answer));
        }
        let mut by_session = self.owners.by_session.write();
        by_session.insert(req.session, owner);
        if by_session.len() > KEPT + 2 * self.store.session_count() {
            by_session.retain(|session, _| *session == req.session || self.store.slot(*session, 0).is_some());
        }
        Ok(())
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
