//! The fabric: frames between nodes. Transports stand behind `Peer`; servers stand behind `Service`.

use std::time::Instant;

use types::Buf;
use wire::Header;

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

/// One request on its way out. `head.body_len` and `bulk_len` are set by the transport.
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
pub trait Peer: Send + Sync {
    fn send(&self, call: &mut Call<'_>) -> Result<Ticket, NetError>;
    fn receive(&self, ticket: Ticket, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError>;
    fn call(&self, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        let ticket = self.send(call)?;
        self.receive(ticket, call)
    }
    /// True if the target lives and dies with this process: nothing then needs to be kept for replay.
    fn is_fate_shared(&self) -> bool;
}

/// What `send` leaves for `receive`; its meaning is the transport's own.
pub struct Ticket(pub Box<dyn std::any::Any + Send>);
