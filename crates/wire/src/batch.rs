//! Several requests of one session to an MDT in one frame, and their answers in another.
//!
//! Each is what it would be alone: those that change something have a slot and a sequence of their own, are logged and answered as
//! ever, and are sent again one by one if they are lost. They are carried out as if they came at once over as many connections, but
//! that what only reads follows all in front of it, and what changes something all that reads in front of it.

use crate::codec::{Bytes, bodies, calls};
use crate::frame::BODY_MAX;

/// Operations of a batch: at a microsecond or a few each, one is no longer under way than a page of a listing.
pub const OPS_MAX: usize = 256;
/// Bytes of a batch's body. Its bulk is bounded by the frame.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes of the answers of a batch, but for those that only say that they had no room.
pub const ANSWER_BYTES_MAX: usize = BODY_MAX - (64 << 10);

bodies! {
    /// Refused as a whole, and nothing of it is done, if it is not well formed, or one of its calls may not be in a batch: `Enter`, and
    /// all that is no question about records or change of them. No two operations have the same slot. It has no slot itself.
    Batch { ops: Vec<Op> }
    /// A request: what its header would say, how much of the batch's bulk is its own (one after the other), and its body.
    Op { call: u16, slot: u32, sequence: u32, bulk_len: u32, body: Bytes }
    /// One for each operation, in their order.
    BatchReply { answers: Vec<OpReply> }
    /// A whole reply body. With `TooMuch` the frame had no room for it: ask alone, under the same slot and sequence. It may be done.
    OpReply { bulk_len: u32, body: Bytes }
}

calls! {
    0x0290 Batch => BatchReply, read;
}
