//! Whether a request is sent again, and when.
//!
//! plan-Y1: a request that may have been carried out (`NoAnswer`) is sent again only under its old slot and sequence, or if it changes
//! nothing.
//! plan-Y2: every wait is bounded by `BACKOFF_MAX`, every try by the caller's deadline.

use std::time::Duration;

use types::Code;

/// First and longest wait between two tries. A client finds a restarted server within half a second, and a busy one within a millisecond.
pub const BACKOFF_MIN: Duration = Duration::from_millis(1);
pub const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// Tries of a request whose bytes arrive changed. After so many the cause is broken memory or a broken card, not line noise.
pub const CHECKSUM_TRIES: u32 = 4;

/// The result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Definite: the request was not carried out.
    NotSent,
    /// Unknown: the request may have been carried out.
    NoAnswer,
    /// Definite: the target refused the request.
    Refused(Code),
}

/// The next step of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait, then send the same request again, under the same slot and sequence.
    Again { after: Duration },
    /// The target restarted or does not know the session: attach and replay, then send the same request again.
    Reattach,
    /// The capability for the objects has expired or is fenced: open the file again, then make a new request.
    Refresh,
    /// Pass the error to the caller.
    GiveUp,
}

/// Decides after `tries` tries; the first try is 1.
pub fn next(ended: Ended, tries: u32) -> Next {
    assert!(tries >= 1, "a decision follows a try");
    let wait = Next::Again { after: backoff(tries) };
    match ended {
        Ended::NotSent | Ended::NoAnswer | Ended::Refused(Code::NotReady) => wait,
        Ended::Refused(Code::Moved | Code::NoSession) => Next::Reattach,
        Ended::Refused(Code::BadChecksum) if tries < CHECKSUM_TRIES => Next::Again { after: Duration::ZERO },
        Ended::Refused(Code::Fenced) => Next::Refresh,
        Ended::Refused(_) => Next::GiveUp,
    }
}

/// 1 ms, doubled with each try, up to `BACKOFF_MAX`.
pub fn backoff(tries: u32) -> Duration {
    let wait = BACKOFF_MIN.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(BACKOFF_MAX);
    assert!((BACKOFF_MIN..=BACKOFF_MAX).contains(&wait), "plan-Y2: every wait is bounded");
    wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let ms = |n| Next::Again { after: Duration::from_millis(n) };
        let table = [
            (Ended::NotSent, 1, ms(1)),
            (Ended::NoAnswer, 3, ms(4)),
            (Ended::NotSent, 40, ms(500)),
            (Ended::Refused(Code::NotReady), 2, ms(2)),
            (Ended::Refused(Code::Moved), 9, Next::Reattach),
            (Ended::Refused(Code::NoSession), 1, Next::Reattach),
            (Ended::Refused(Code::BadChecksum), 1, ms(0)),
            (Ended::Refused(Code::BadChecksum), CHECKSUM_TRIES, Next::GiveUp),
            (Ended::Refused(Code::Fenced), 1, Next::Refresh),
            (Ended::Refused(Code::NoSpace), 1, Next::GiveUp),
            (Ended::Refused(Code::Damaged), 1, Next::GiveUp),
            (Ended::Refused(Code::NotFound), 1, Next::GiveUp),
        ];
        for (ended, tries, want) in table {
            assert_eq!(next(ended, tries), want, "{ended:?} {tries}");
        }
    }
}
