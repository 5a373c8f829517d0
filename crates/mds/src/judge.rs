//! Whose rights a request has: the one place that turns what a session may claim, and what its request claims, into the `Cred`
//! that rules go by.

use types::{Cred, SessionId};
use wire::session::Claims;

use crate::Core;

impl Core {
    /// Who a request of `session` is judged as; `None`: it is taken at its word.
    pub fn judged(&self, session: SessionId) -> Option<Cred> {
        match &self.sessions.get(session)?.claims {
            Claims::All => None,
            Claims::User(cred) => Some(cred.clone()),
        }
    }
}
