//! Several requests to the MDT in one frame (`wire::batch`).
//!
//! client-BT1: each request keeps its own slot, and ends by its own `Pending::run`, as if it had been sent alone. A request that changed
//!     something is retained for replay. A request without an answer in the frame (lost, no space, a restart) is sent alone, under the same slot.
//! client-BT2: only the first request waits for a slot (client-C6).

use std::time::Instant;

use types::{BULK_MAX, Buf, Fault, Fid};
use wire::batch::{BATCH_BYTES_MAX, OPS_MAX};

use crate::session::link::Link;
use crate::session::request::IN_FLIGHT_MAX;
use crate::session::request::{Answer, Patience, Pending};
use crate::session::sent::Sent;

/// Bytes of a frame beside its operations, and of an operation beside its body.
const FRAME_BYTES: usize = 64;
const OP_BYTES: usize = 24;

/// A request, the file that it concerns, and its bulk bytes.
pub(crate) type Asked<'a, R> = (Fid, R, &'a [u8]);

impl Link {
    /// Sends all requests and returns their answers in order. The requests must not depend on each other, since the target chooses their order.
    pub fn ask_together<R: Sent>(
        &self,
        asked: &[Asked<'_, R>],
        deadline: Instant,
    ) -> Vec<Result<Answer<R::Reply>, Fault>> {
        let mut answers = Vec::with_capacity(asked.len());
        for (fid, req, _) in asked {
            if let Err(fault) = self.wait_for_changes(*fid, req, deadline) {
                return asked.iter().map(|_| Err(fault.clone())).collect();
            }
        }
        while answers.len() < asked.len() {
            answers.extend(self.ask_some(&asked[answers.len()..], deadline));
        }
        answers
    }

    /// Sends as many of the first requests as fit one frame, and at least one.
    fn ask_some<R: Sent>(
        &self,
        asked: &[Asked<'_, R>],
        deadline: Instant,
    ) -> Vec<Result<Answer<R::Reply>, Fault>> {
        // Other threads need slots too.
        let count_max = if R::MUTATES { IN_FLIGHT_MAX } else { OPS_MAX };
        let mut bufs: Vec<Buf> = asked.iter().take(count_max).map(|_| Buf::new()).collect();
        let (mut pending, mut body_bytes, mut bulk_bytes) = (Vec::new(), FRAME_BYTES, 0);
        for ((fid, req, bulk), into) in asked.iter().zip(&mut bufs) {
            let patience = Patience::of(!pending.is_empty());
            let made = match Pending::new(self, *fid, req, bulk, into, deadline, patience) {
                Ok(Some(made)) => made,
                Err(fault) if pending.is_empty() => return vec![Err(fault)],
                Ok(None) | Err(_) => break,
            };
            body_bytes += made.body_bytes() + OP_BYTES;
            bulk_bytes += bulk.len();
            if !pending.is_empty() && (body_bytes > BATCH_BYTES_MAX || bulk_bytes > BULK_MAX) {
                break;
            }
            pending.push(made);
        }
        assert!(!pending.is_empty(), "a batch takes at least one request, so that the caller makes progress");
        assert!(pending.len() <= count_max, "a batch leaves slots to other threads");
        if pending.len() > 1 {
            Pending::send_together(&mut pending, deadline);
        }
        pending.into_iter().map(Pending::run).collect()
    }
}
