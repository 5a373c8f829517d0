//! The certificate that a session belongs to (decision 0061).
//!
//! mds-S3: a request of a peer with a certificate that names a session is refused, and changes nothing, unless that certificate's node began
//!     the session in the same role. The owner is in the session's record, so it holds after a restart too.
//! mds-S6: a request that names a session which has not begun, or has ended, is refused before it is looked at.
//! A peer without a certificate is in this process, at its Unix socket, or in a cluster without TLS: it may name any session, as before.

use net::{Answer, Sender};
use object::slots::unknown;
use pki::{Identity, Owner, Role, Serial};
use types::{Fault, SessionId};
use wire::session::{Attach, Detach};
use wire::{Header, Malformed, Request};

use crate::Core;
use crate::sessions::Session;

/// The owner as requests compare it, and as people and the record know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub owner: Owner,
    /// `stria://CLUSTER/ROLE/NODE`
    pub uri: String,
}

impl Holder {
    pub fn of(peer: &Identity) -> Holder {
        Holder { owner: peer.owner(), uri: peer.uri() }
    }
    pub fn from_uri(uri: &str) -> Result<Holder, Malformed> {
        let peer = Identity::parse(uri, Serial(0)).map_err(|_| Malformed("owner of a session"))?;
        Ok(Holder::of(&peer))
    }
}

impl Session {
    fn belongs_to(&self, sender: Sender) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.owner == sender.owner)
    }
}

impl Core {
    /// mds-S6: a session that a request names has begun. One that begins meanwhile would be used without its owner and nodemap.
    pub fn check_begun(&self, head: &Header) -> Result<(), Fault> {
        // An attach names the session before, and a detach of an ended one is no error.
        let is_free = head.session == SessionId(0) || matches!(head.call, Attach::CALL | Detach::CALL);
        match is_free || self.sessions.now().get(head.session).is_some() {
            true => Ok(()),
            false => Err(unknown(head.session)),
        }
    }

    /// mds-S3, for a session that a request names. One that is not there is refused by the request itself.
    pub fn check_owner(&self, id: SessionId, answer: &Answer<'_>) -> Result<(), Fault> {
        let Some(sender) = answer.sender().filter(|_| id != SessionId(0)) else { return Ok(()) };
        match self.sessions.now().get(id) {
            Some(session) => self.check_owner_of(session, sender, answer),
            None => Ok(()),
        }
    }

    fn check_owner_of(&self, session: &Session, sender: Sender, answer: &Answer<'_>) -> Result<(), Fault> {
        if session.belongs_to(sender) {
            if session.serials.note(sender.serial) {
                let (session, client) = (session.id.0, &session.name);
                tracing::info!(session, client, serial = %sender.serial, "a session is used with another certificate of its node");
            }
            return Ok(());
        }
        let holder = session.holder.as_ref().map_or("a client without a certificate", |h| &h.uri);
        tracing::debug!(session = session.id.0, holder, "a request for another's session");
        let mut fault = answer.refuse(|who| {
            format!(
                "{} may not use session {}, which is {holder}'s ({}); a client attaches for a session of its own",
                who.uri(),
                session.id,
                session.name
            )
        });
        // The log has both names. A stranger learns no other.
        fault.detail =
            format!("session {} belongs to another certificate; attach for one of your own", session.id);
        Err(fault)
    }

    /// mds-S3, for the session that an attach finds by its client.
    pub fn check_attach(&self, session: &Session, answer: &Answer<'_>) -> Result<(), Fault> {
        answer.sender().map_or(Ok(()), |sender| self.check_owner_of(session, sender, answer))
    }

    /// mds-S3, for a detach: servers and administrators may end what is left of a dead client.
    pub fn check_detach(&self, id: SessionId, answer: &Answer<'_>) -> Result<(), Fault> {
        match answer.sender().map(|sender| sender.role) {
            Some(Role::Server | Role::Admin) => Ok(()),
            _ => self.check_owner(id, answer),
        }
    }
}
