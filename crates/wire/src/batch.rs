//! Batches: several requests of one session to an MDT in one frame, and their answers in another.
//!
//! Each operation is handled as if it came alone. A change has its own slot and sequence, is logged and answered as usual, and is sent
//! again alone if its answer is lost. The order is that of requests that arrive at once over as many connections, with two exceptions. A
//! read follows all operations in front of it; a change follows all reads in front of it.

use crate::codec::{Bytes, bodies, calls};
use crate::frame::BODY_MAX;

/// Most operations of a batch. At a few microseconds each a batch takes no longer than a page of a listing.
pub const OPS_MAX: usize = 256;
/// Longest body of a batch in bytes. The frame bounds its bulk.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a batch's answers, not counting those that only report `TooMuch`.
pub const ANSWER_BYTES_MAX: usize = BODY_MAX - (64 << 10);

const _: () = assert!(BATCH_BYTES_MAX <= BODY_MAX, "a batch fits a frame");
const _: () =
    assert!(OPS_MAX * 64 < BODY_MAX - ANSWER_BYTES_MAX, "answers without space still fit the frame");

bodies! {
    /// Carries several requests. It has no slot itself. It is refused as a whole, with no effect, if it is malformed, if two operations
    /// have the same slot, or if it has a call that may not be in a batch. Allowed are reads and changes of records, but not `Enter`.
    Batch { ops: Vec<Op> }
    /// One request: the fields of its header, its share of the batch's bulk in bytes (the shares follow one another), and its body.
    Op { call: u16, slot: u32, sequence: u32, bulk_len: u32, body: Bytes }
    /// One answer per operation, in their order.
    BatchReply { answers: Vec<OpReply> }
    /// One whole reply body. `TooMuch`: the frame had no space for it. The client asks again alone, under the same slot and sequence; the
    /// request may have been carried out.
    OpReply { bulk_len: u32, body: Bytes }
}

calls! {
    0x0290 Batch => BatchReply, read;
}
