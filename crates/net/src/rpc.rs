//! Typed requests over any peer: a body goes in, a reply or the target's refusal comes out.

use std::time::Instant;

use types::{Buf, Fault};
use wire::{Flags, Header, Malformed, ReplyHead, Request, decode_reply};

use crate::{Call, NetError, Peer};

/// Why there is no readable reply.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    #[error(transparent)]
    Net(#[from] NetError),
    /// Unknown: an answer came and is malformed, so peer and caller speak different versions. Do not retry blindly.
    #[error("the answer to call {call:#06x} cannot be read: {why}")]
    Malformed { call: u16, why: Malformed },
}

impl RpcError {
    /// True if the request was certainly not carried out: it may be sent again.
    pub fn is_definite(&self) -> bool {
        matches!(self, RpcError::Net(NetError::NotSent { .. }))
    }

    /// See `NetError::is_revoked`.
    pub fn is_revoked(&self) -> bool {
        matches!(self, RpcError::Net(e) if e.is_revoked())
    }
}

/// A target's answer: the frame's header, the reply's head, and the reply body or the fault in its place.
pub type Said<R> = (Header, ReplyHead, Result<<R as Request>::Reply, Fault>);

/// Makes the untyped call for `req`, for `Peer::send`. Sets the call number in `head`.
pub fn prepare<'a, R: Request>(
    head: Header,
    req: &R,
    bulk: &'a [u8],
    into: &'a mut Buf,
    deadline: Instant,
) -> Call<'a> {
    let head = Header { call: R::CALL, flags: head.flags & !Flags::REPLY, ..head };
    Call { head, body: req.to_bytes(), bulk, into, back: req.bulk_back() as usize, deadline }
}

/// Decodes the answer to an `R`, as `Peer::receive` returned it.
pub fn read<R: Request>(answer: (Header, Vec<u8>)) -> Result<Said<R>, RpcError> {
    let (head, body) = answer;
    let (reply_head, reply) =
        decode_reply::<R::Reply>(&body).map_err(|why| RpcError::Malformed { call: R::CALL, why })?;
    Ok((head, reply_head, reply))
}

/// Sends `req` with `bulk` and waits for the answer; its bulk bytes go to `into`.
pub fn call<R: Request>(
    peer: &dyn Peer,
    head: Header,
    req: &R,
    bulk: &[u8],
    into: &mut Buf,
    deadline: Instant,
) -> Result<Said<R>, RpcError> {
    read::<R>(peer.call(&mut prepare(head, req, bulk, into, deadline))?)
}
