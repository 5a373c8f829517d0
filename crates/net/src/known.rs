//! The other end of a connection, as its certificate names it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use pki::{Identity, Owner, Role, Serial};
use socket2::Socket;

use crate::socket::Gone;

/// The sender of a request, as far as each request needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub role: Role,
    pub owner: Owner,
    /// Of its certificate, by which revocation names it.
    pub serial: Serial,
}

/// The place that a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The net on which it reached this process; `local0`: from this host without a net.
    pub net: Arc<str>,
    /// Over TCP: the address of the other end, which is the router's if one carries the connection.
    pub address: Option<IpAddr>,
}

impl Endpoint {
    /// In this process, or at its Unix socket.
    pub fn local() -> Endpoint {
        static NET: LazyLock<Arc<str>> = LazyLock::new(|| "local0".into());
        Endpoint { net: NET.clone(), address: None }
    }
    pub(crate) fn of(socket: &Socket, net: &Arc<str>) -> Endpoint {
        match socket.peer_addr().ok().and_then(|address| address.as_socket()) {
            Some(address) => Endpoint { net: net.clone(), address: Some(address.ip().to_canonical()) },
            None => Endpoint::local(),
        }
    }
}

/// Made once per connection, when the handshake ends.
pub struct Known {
    identity: Identity,
    sender: Sender,
    /// The log has told of a refused request on this connection.
    is_refusal_told: AtomicBool,
}

impl Known {
    pub fn new(identity: Identity) -> Known {
        let sender = Sender { role: identity.role, owner: identity.owner(), serial: identity.serial };
        Known { identity, sender, is_refusal_told: AtomicBool::new(false) }
    }
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
    pub fn sender(&self) -> Sender {
        self.sender
    }

    /// True once, for the first refused request of this connection.
    pub(crate) fn is_first_refusal(&self) -> bool {
        !self.is_refusal_told.swap(true, Ordering::Relaxed)
    }

    /// pki-R1, for a connection that this process dialled: its requests would tell names and capabilities to any other node.
    pub(crate) fn check_serves(&self, role: Role) -> Result<(), Gone> {
        match self.sender.role == role {
            true => Ok(()),
            false => Err(Gone::Refused(format!(
                "{} answers there, and only a {role}'s certificate may: is the address right?",
                self.identity
            ))),
        }
    }
}
