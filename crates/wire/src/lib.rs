//! The conversations of Stria: the frame, the codec, and one module per pair of speakers with both halves side by side.
//!
//! Bodies are written by hand to the byte, little-endian, in field order, by the `bodies!` macro (decision 0003). Decoding
//! never panics and never allocates more than a small multiple of the bytes at hand.

pub mod accessed;
pub mod batch;
pub mod changelog;
pub mod check;
pub mod codec;
pub mod fabric;
pub mod frame;
pub mod jobs;
pub mod lock;
pub mod map;
pub mod mdt;
pub mod meta;
pub mod mgmt;
pub mod notice;
pub mod object;
pub mod ost;
pub mod pair;
pub mod params;
pub mod purge;
pub mod router;
pub mod session;
pub mod shared;
mod varint;

pub use codec::{Malformed, Reader, Wire};
pub use frame::{Flags, HEADER_LEN, Header};
pub use varint::{put_varint, put_wide, unzigzag, unzigzag_wide, zigzag, zigzag_wide};

use types::{Code, Fault, Seq};

/// A request body: its call number and the body that answers it.
pub trait Request: Wire {
    const CALL: u16;
    /// True if the call changes state: it takes a slot, is logged with its reply, and is replayed after a restart of the target.
    const MUTATES: bool;
    type Reply: Wire;
    /// Bulk bytes that the reply may have.
    fn bulk_back(&self) -> u32 {
        0
    }
}

/// Every call, by conversation.
pub const ALL_CALLS: &[&[(u16, &str)]] = &[
    fabric::CALLS,
    session::CALLS,
    jobs::CALLS,
    notice::CALLS,
    shared::CALLS,
    meta::CALLS,
    object::CALLS,
    ost::CALLS,
    mdt::CALLS,
    mgmt::CALLS,
    lock::CALLS,
    accessed::CALLS,
    purge::CALLS,
    router::CALLS,
    batch::CALLS,
    check::CALLS,
    pair::CALLS,
    params::CALLS,
    changelog::CALLS,
];

/// The name of a call, for people.
pub fn call_name(call: u16) -> Option<&'static str> {
    ALL_CALLS.iter().copied().flatten().find(|(number, _)| *number == call).map(|(_, name)| *name)
}

codec::bodies! {
    /// The head of every reply body. The call's own reply body follows if `code` is 0.
    ReplyHead {
        /// `Code` as a number; 0 = done.
        code: u16,
        /// Reason and next step, as text; empty if `code` is 0.
        detail: String,
        /// The log entry of the change; 0 for reads. With the header's epoch it identifies the entry.
        seq: Seq,
        /// All entries up to this one are flushed.
        flushed_seq: Seq,
    }
    /// A body without fields.
    Empty {}
}

impl ReplyHead {
    pub fn done(seq: Seq, flushed_seq: Seq) -> ReplyHead {
        ReplyHead { code: 0, detail: String::new(), seq, flushed_seq }
    }
    pub fn refused(fault: &Fault, flushed_seq: Seq) -> ReplyHead {
        assert!(fault.code != Code::Ok, "a refusal is never read as done");
        ReplyHead { code: fault.code as u16, detail: fault.detail.clone(), seq: Seq(0), flushed_seq }
    }
}

/// Encodes a reply body: the head, then `reply` if there is one.
pub fn encode_reply<R: Wire>(head: &ReplyHead, reply: Option<&R>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    head.put(&mut out);
    if let Some(r) = reply {
        r.put(&mut out);
    }
    out
}

/// The body of a reply that no log entry has. `outcome`: the bytes of the call's own body, or the fault.
pub fn unlogged_reply(outcome: Result<Vec<u8>, Fault>) -> Vec<u8> {
    match outcome {
        Ok(reply) => {
            let mut body = encode_reply::<Empty>(&ReplyHead::done(Seq(0), Seq(0)), None);
            body.extend_from_slice(&reply);
            body
        }
        Err(fault) => encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None),
    }
}

/// Decodes a reply body: the head, and then the call's own body or the fault of a refusal. Errors: malformed bytes.
pub fn decode_reply<R: Wire>(body: &[u8]) -> Result<(ReplyHead, Result<R, Fault>), Malformed> {
    let mut r = Reader::new(body);
    let head = ReplyHead::get(&mut r)?;
    if head.code != 0 {
        let fault = Fault::new(Code::from_u16(head.code), head.detail.clone());
        return Ok((head, Err(fault)));
    }
    let reply = R::get(&mut r)?;
    r.end()?;
    Ok((head, Ok(reply)))
}
