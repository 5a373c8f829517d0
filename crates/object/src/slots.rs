//! Exactly once: what was done last in a slot decides what to do with the next request in it.
//!
//! A session sends mutating requests in numbered slots; within a slot one at a time, sequences rising from 1. What was done
//! last in a slot is part of the log entry that did it, so it survives a crash with the change or is lost with it.
//! object-S1: a sequence recorded in a slot is never carried out there again.  object-S2: a session has `SLOTS` slots of one small record
//! each; how many sessions there may be is the target's bound.  object-S3: a failed request is not recorded: it did not happen, so it may be tried again.

use types::{Code, Fault, Seq, SessionId};
use wire::session::{SLOTS, comes_after};

/// What was done last in a slot; sequence 0: nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Done {
    pub sequence: u32,
    /// The log entry that did it.
    pub seq: Seq,
    /// The reply's one number (for a write: the object's length after it); every OST mutation answers with at most one.
    pub answer: u64,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Never seen: carry it out, and record it.
    New,
    /// The last one of its slot: answer with this again.
    Repeat(Done),
    /// Older than the last one of its slot: the client has seen its reply long since; it was done.
    Old,
}

/// Decides on a request with `sequence` in a slot whose last record is `last`. A gap is no error: what failed was not
/// recorded (object-S3).
pub fn admit(last: Done, sequence: u32) -> Admission {
    match sequence {
        n if n == last.sequence => Admission::Repeat(last),
        n if comes_after(n, last.sequence) => Admission::New,
        _ => Admission::Old,
    }
}

/// Is there such a slot?
pub fn check_slot(session: SessionId, slot: u32) -> Result<(), Fault> {
    match slot < SLOTS {
        true => Ok(()),
        false => Err(Fault::new(
            Code::BadRequest,
            format!("slot {slot} of session {session}: there are {SLOTS} slots"),
        )),
    }
}

/// The refusal of a session that never attached here, or ended.
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
            // Sequence 2 failed and was not recorded: 3 is as new as 2 is.
            (done(1), 3, Admission::New),
            (done(3), 2, Admission::Old),
            (done(3), 3, Admission::Repeat(done(3))),
            // They go round.
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
