//! The fabric: frames between nodes. Transports stand behind `Peer`; servers stand behind `Service`.
//!
//! `local` is a function call; `tcp` and unix sockets run to completion: the thread that reads a request serves it and
//! writes the reply. Nothing here retries a request that may have been carried out, and nothing waits past its deadline.
//!
//! net-I1: `NotSent` is returned only if the last byte of the request was never handed to the transport, or if the peer says
//! that it did not take it. A server acts on whole frames only, so a frame cut short was not carried out.
//! net-I2: a connection carries one request at a time; after any error, or with a reply still owed, it is closed.
//! net-I3: no allocation follows a length that is above `BODY_MAX` or `BULK_MAX`.

use std::time::Instant;

use types::Buf;
use wire::Header;

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod fabric;
#[cfg(any(test, feature = "testing"))]
pub mod fault;
mod hello;
mod hub;
mod limits;
mod local;
pub mod nid;
mod pool;
mod remote;
pub mod rpc;
mod server;
mod stream;

pub use fabric::Fabric;
pub use hello::{Hello, Status as HelloStatus, VERSION as HELLO_VERSION};
pub use hub::Hub;
pub use server::Server;

/// A server end: a target (MDT, OST) or the MGS. Runs on the thread that received the request.
pub trait Service: Send + Sync {
    /// Carries out one request. `answer.head` comes filled as a reply to `head`; set epoch, incarnation, flags. The body
    /// is a whole reply body (`wire::encode_reply`); bulk is what a read sends back.
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>);
}

/// What a service answers.
pub struct Answer<'a> {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: &'a mut Buf,
}

/// One request on its way out. `head.target`, `source`, `destination`, `request` (if 0), `ms_left`, `body_len` and
/// `bulk_len` are set by the transport.
pub struct Call<'a> {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: &'a [u8],
    /// Where a reply's bulk bytes land.
    pub into: &'a mut Buf,
    pub deadline: Instant,
}

/// Why there is no reply. Only `NotSent` may be retried blindly.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Definite: the request did not leave, or the peer said that it did not take it.
    #[error("not sent to {peer}: {why}")]
    NotSent { peer: String, why: String },
    /// Unknown: it left, and no answer came (connection lost or deadline passed). It may have happened.
    #[error("no answer from {peer}: {why}")]
    NoAnswer { peer: String, why: String },
}

/// A client end: one target on one node.
///
/// `send` then `receive` with the same call; between them others may be sent, so that one thread keeps many targets busy.
/// Who holds tickets sends with `send_more`: it does not wait for what others hold, who may in turn wait for what the caller
/// holds. Let everything be received before anything is sent with `send` or `call` again.
pub trait Peer: Send + Sync {
    fn send(&self, call: &mut Call<'_>) -> Result<Ticket, NetError>;
    /// As `send`, but `NotSent` within milliseconds where all connections are lent.
    fn send_more(&self, call: &mut Call<'_>) -> Result<Ticket, NetError> {
        self.send(call)
    }
    /// An answer that has come is taken also if the deadline has passed meanwhile.
    fn receive(&self, ticket: Ticket, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError>;
    fn call(&self, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        let ticket = self.send(call)?;
        self.receive(ticket, call)
    }
    /// True if the target lives and dies with this process: nothing then needs to be kept for replay.
    fn is_fate_shared(&self) -> bool;
}

/// What `send` leaves for `receive`; its meaning is the transport's own. Dropped without `receive`, the reply is lost.
pub struct Ticket(pub Box<dyn std::any::Any + Send>);
