//! The fabric: frames between nodes. Transports implement `Peer`; servers implement `Service`.
//!
//! `local` is a function call. Over TCP and unix sockets any number of requests are under way on one connection: threads that wait for
//! answers read them (`lane.rs`), and a pool of workers serves (`engine.rs`). This crate never retries a request that may have been carried
//! out, and never waits past its deadline.
//!
//! net-I1: `NotSent` is returned only if the last byte of the request was never handed to the transport, or if the peer says
//! that it did not take it. A server acts on whole frames only, so a frame that was cut short was not carried out.
//! net-I2: an answer is paired with its request by the request's id, which is new for each try; after any error a connection is closed.
//! net-I3: no length above `BODY_MAX` or `BULK_MAX` leads to an allocation.

use std::sync::Arc;
use std::time::Instant;

use types::Buf;
use wire::Header;

mod bell;
mod bufs;
mod calls;
mod channel;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod connection;
mod counts;
mod dial;
mod engine;
mod fabric;
#[cfg(any(test, feature = "testing"))]
pub mod fault;
mod hello;
mod hub;
mod incoming;
mod jobs;
mod known;
mod lane;
mod later;
mod limits;
mod line;
mod link;
mod live;
mod local;
mod mismatch;
pub mod nid;
mod node;
pub mod notices;
mod outgoing;
mod remote;
pub mod router;
pub mod routes;
pub mod rpc;
mod server;
mod socket;
mod timing;

pub use calls::{BUCKETS, Served, bounds_sec};
pub use fabric::Fabric;
pub use hello::{HELLO_LEN, Hello, Kind, Status as HelloStatus, VERSION as HELLO_VERSION};
pub use hub::Hub;
#[cfg(any(test, feature = "testing"))]
pub use known::Known;
pub use known::{Endpoint, Sender};
pub use limits::Limits;
pub use server::Server;

/// A server end: a target (MDT, OST) or the MGS. Runs on the thread that received the request.
pub trait Service: Send + Sync {
    /// Carries out one request. `answer.head` is prefilled as a reply to `head`; the service sets epoch, incarnation and flags. The body
    /// is a whole reply body (`wire::encode_reply`); the bulk is the data of a read. A request that must wait for long is parked
    /// (`Answer::later`), since its thread may be one of few.
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>);
}

pub use bell::Bell;
pub use later::{Answer, Later, Line};
pub use line::{Answered, Listening};

/// One outgoing request. The transport sets `head.target`, `source`, `destination`, `request` (if 0), `ms_left`, `body_len` and
/// `bulk_len`.
pub struct Call<'a> {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: &'a [u8],
    /// Receives the reply's bulk bytes. It is empty between `send` and `receive`.
    pub into: &'a mut Buf,
    /// Bulk bytes that the reply may have, so that it does not keep short ones waiting. More may come.
    pub back: usize,
    pub deadline: Instant,
}

/// Why there is no reply. Only `NotSent` may be retried blindly.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Definite: the request did not leave, or the peer said that it did not take it.
    #[error("not sent to {peer}: {why}")]
    NotSent { peer: String, why: String },
    /// Unknown: the request left, and no answer came (connection lost or deadline passed). It may have been carried out.
    #[error("no answer from {peer}: {why}")]
    NoAnswer { peer: String, why: String },
}

/// The reason of a peer that has this node's certificate on its revocation list.
pub(crate) const REVOKED_HERE: &str = "it refuses this node's certificate, which is revoked";

impl NetError {
    /// The peer's revocation list has this node's certificate. Another try by the same certificate has no better end.
    pub fn is_revoked(&self) -> bool {
        let (NetError::NotSent { why, .. } | NetError::NoAnswer { why, .. }) = self;
        why.contains(REVOKED_HERE)
    }
}

/// A client end: one target on one node.
///
/// Call `send`, then `receive` with the same call; between them other requests may be sent, so that one thread keeps many targets busy.
/// A thread that holds tickets must use `send_more`, which does not wait for places that other threads hold: those may in turn wait for the
/// ones that this thread holds. It must receive all its answers before it uses `send` or `call` again.
pub trait Peer: Send + Sync {
    fn send(&self, call: &mut Call<'_>) -> Result<Ticket, NetError>;
    /// As `send`, but returns `NotSent` within milliseconds if no more requests may be under way.
    fn send_more(&self, call: &mut Call<'_>) -> Result<Ticket, NetError> {
        self.send(call)
    }
    /// An answer that has arrived is accepted even if the deadline has passed meanwhile.
    fn receive(&self, ticket: Ticket, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError>;
    fn call(&self, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        let ticket = self.send(call)?;
        self.receive(ticket, call)
    }
    /// As `call`, over a connection of its own. Requests that the target's service sends back over it arrive at `heard`, in order, on a thread
    /// of its own, until the returned end is dropped or not open any more. `heard` must not wait.
    fn listen(
        &self,
        _call: &mut Call<'_>,
        _heard: Arc<dyn Service>,
    ) -> Result<(Header, Vec<u8>, Listening), NetError> {
        Err(line::unsupported())
    }
    /// True if the target ends with this process: then no request needs to be retained for replay.
    fn is_fate_shared(&self) -> bool;
}

/// The state between `send` and `receive`, private to the transport. If it is dropped without `receive`, the reply is lost.
pub struct Ticket(pub Box<dyn std::any::Any + Send>);
