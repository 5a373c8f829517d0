//! Exactly once: the last record of a slot decides about the next request in it.
//!
//! A session sends mutating requests in numbered slots: one at a time in each slot, with sequences rising from 1. The slot's record is
//! part of the log entry of the change. A crash keeps both or loses both.
//! object-S1: a sequence recorded in a slot is never carried out there again.  object-S2: a session has `SLOTS` slots of one small record
//! each; the number of sessions is bounded by the target.  object-S3: a failed request is not recorded: it changed nothing, so the client
//! may try it again.

use types::{Code, Fault, Seq, SessionId};
use wire::session::{SLOTS, comes_after};

/// The last request carried out in a slot; sequence 0 if there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Done {
    pub sequence: u32,
    /// The log entry of its change.
    pub seq: Seq,
    /// The reply's one number (for a write: the object's length after it). Every OST mutation answers with at most one number.
    pub answer: u64,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not carried out yet: carry it out, and record it.
    New,
    /// The last one of its slot: repeat this answer.
    Repeat(Done),
    /// Older than the last one of its slot: it was carried out, and the client has had its reply long since.
    Old,
}

/// Decides about a request with `sequence` in a slot whose last record is `last`. A gap is no error: failed requests are not recorded
/// (object-S3).
pub fn admit(last: Done, sequence: u32) -> Admission {
    assert!(sequence != 0, "sequence 0 means no slot");
    match sequence {
        n if n == last.sequence => Admission::Repeat(last),
        n if comes_after(n, last.sequence) => Admission::New,
        _ => Admission::Old,
    }
}

/// Checks that the slot exists.
pub fn check_slot(session: SessionId, slot: u32) -> Result<(), Fault> {
    match slot < SLOTS {
        true => Ok(()),
        false => Err(Fault::new(
            Code::BadRequest,
            format!("slot {slot} of session {session}: there are {SLOTS} slots"),
        )),
    }
}

/// The refusal of a session that never attached to this target, or that has ended.
pub fn unknown(session: SessionId) -> Fault {
    Fault::new(Code::NoSession, format!("session {session} is not attached to this target; attach again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sequence_is_new_once() {
        let done = |sequence| Done { sequence, seq: Seq(sequence as u64 * 10), answer: 7 };
        // last recorded, asked, what to do
        let table = [
            (Done::default(), 1, Admission::New),
            (done(1), 1, Admission::Repeat(done(1))),
            (done(1), 2, Admission::New),
            // Sequence 2 failed and was not recorded, so 3 is new.
            (done(1), 3, Admission::New),
            (done(3), 2, Admission::Old),
            (done(3), 3, Admission::Repeat(done(3))),
            // Sequences wrap around.
            (done(u32::MAX), 1, Admission::New),
            (done(1), u32::MAX, Admission::Old),
        ];
        for (last, asked, want) in table {
            assert_eq!(admit(last, asked), want, "{last:?} {asked}");
        }
    }

    #[test]
    fn slots_are_bounded_and_strangers_refused() {
        assert!(check_slot(SessionId(1), SLOTS - 1).is_ok());
        assert_eq!(check_slot(SessionId(1), SLOTS).unwrap_err().code, Code::BadRequest);
        assert_eq!(unknown(SessionId(1)).code, Code::NoSession);
    }
}
