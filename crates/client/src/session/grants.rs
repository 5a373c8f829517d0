//! Grants: space that an OST keeps for this client's dirty pages.
//!
//! A write that waits for its OSTs needs no grant, and reports a full OST itself. A write behind needs one (client-WB4). The kernel holds dirty pages of shared mappings. It does not
//! say when they become dirty, and writes them later, when the program can hardly get an error. Only these writes use grants; the first one
//! to an OST asks for one.
//!
//! client-Q4: a client believes in no more than its OST keeps, as long as the OST does not restart. The share of a write is taken off before it
//!     is sent, and is put back only if the answer says that it was not used.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plan::settle::At;
use types::{Fault, Fid};
use wire::object::{Grant, WriteReply};

use crate::session::link::Link;
use crate::session::request::Answer;
use crate::session::request::is_definite;

/// Wanted grant per OST. The kernel lets a FUSE mount have a hundredth of all dirty pages, tens of MiB.
const WISH_BYTES: u64 = 32 << 20;
/// Least grant that is renewed as soon as half is used. A smaller one belongs to an OST that is nearly full.
const RICH_BYTES: u64 = 256 << 10;
/// A grant that was not used for this time is given back. The OST ends a grant that is not renewed in 60 s.
const IDLE: Duration = Duration::from_secs(60);
/// Least pause between two requests of writers for a grant of a full OST.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for an OST's answer about a grant.
const ANSWER_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Granted(Mutex<State>);

#[derive(Default)]
struct State {
    /// The life of the OST that gave the grant. Another one keeps nothing.
    at: At,
    bytes: u64,
    /// Sum of all bytes that were taken and not put back.
    taken: u64,
    /// Of these: those whose write has no answer yet. The OST may still keep them.
    open: u64,
    wanted_at: Option<Instant>,
    asked_at: Option<Instant>,
    is_asking: bool,
    /// What the OST kept when it was asked last.
    given: u64,
}

/// A wish for a grant, and what had been taken of the present one when it was sent.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Wanted {
    bytes: u64,
    taken: u64,
    open: u64,
}

/// The share of a grant that one write may use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Share {
    pub bytes: u64,
    at: At,
}

impl Share {
    /// Takes from it what `have` bytes of the same grant lack to be `want`.
    pub fn split(&mut self, have: u64, want: u64) -> Share {
        let more = (want - have).min(self.bytes);
        self.bytes -= more;
        Share { bytes: have + more, at: self.at }
    }
    pub fn is_of_same(&self, other: &Share) -> bool {
        self.at == other.at
    }
}

impl Granted {
    /// A share that was not used.
    pub fn put_back(&self, share: Share) {
        let mut state = self.0.lock();
        if state.at == share.at {
            state.bytes += share.bytes;
            state.taken -= share.bytes;
            state.open -= share.bytes;
        }
    }

    /// Takes the share of a write, or nothing if the grant has less.
    pub fn take(&self, bytes: u64, now: Instant) -> Share {
        let mut state = self.0.lock();
        state.wanted_at = Some(now);
        if state.bytes < bytes {
            return Share::default();
        }
        state.bytes -= bytes;
        state.taken += bytes;
        state.open += bytes;
        Share { bytes, at: state.at }
    }

    /// The write was answered or abandoned.
    pub fn answered(&self, share: Share, answer: &Result<Answer<WriteReply>, Fault>) {
        let is_unused = match answer {
            Ok(answer) => !answer.reply.granted && answer.mark.at == share.at,
            Err(fault) => is_definite(fault.code),
        };
        if is_unused {
            return self.put_back(share);
        }
        let mut state = self.0.lock();
        if state.at == share.at {
            state.open -= share.bytes;
        }
    }

    /// The grant to ask for; `None`: do not ask now.
    fn wish(&self, now: Instant, is_time: impl Fn(&State) -> bool) -> Option<Wanted> {
        let mut state = self.0.lock();
        if state.is_asking || !is_time(&state) {
            return None;
        }
        (state.asked_at, state.is_asking) = (Some(now), true);
        let is_idle = state.wanted_at.is_none_or(|at| now.duration_since(at) >= IDLE);
        if is_idle {
            // Ended here before the OST hears of it.
            (state.bytes, state.wanted_at) = (0, None);
        }
        let bytes = if is_idle { 0 } else { WISH_BYTES };
        Some(Wanted { bytes, taken: state.taken, open: state.open })
    }

    /// Notes the OST's answer. Writes without an answer at that time, and later ones, may have been carried out before or after it.
    fn set(&self, at: At, bytes: u64, asked: Wanted) {
        let mut state = self.0.lock();
        let since = match state.at == at {
            true => asked.open + state.taken.saturating_sub(asked.taken),
            false => {
                state.open = 0;
                0
            }
        };
        (state.at, state.given) = (at, bytes);
        state.bytes = bytes.saturating_sub(since);
    }
}

impl Link {
    /// Called after writes that use a grant. Asks for more if little is left.
    pub fn want_grant(&self, deadline: Instant) {
        let now = Instant::now();
        let is_time = |s: &State| {
            let is_pause_over = s.asked_at.is_none_or(|at| now.duration_since(at) >= ASK_PAUSE);
            // The OST has space: a streaming writer asks whenever half is used.
            let is_rich = s.given >= RICH_BYTES && s.bytes < s.given / 2;
            is_rich || (s.bytes < WISH_BYTES / 2 || !self.is_in(s.at)) && is_pause_over
        };
        if let Some(wish) = self.granted.wish(now, is_time) {
            self.ask_grant(wish, deadline.min(now + ANSWER_MAX));
        }
    }

    /// Renews the grant, or gives it back if it is not needed. Called from time to time.
    pub fn renew_grant(&self, deadline: Instant) {
        let wish = self.granted.wish(Instant::now(), |s| s.wanted_at.is_some());
        wish.into_iter().for_each(|wish| self.ask_grant(wish, deadline));
    }

    fn ask_grant(&self, wanted: Wanted, deadline: Instant) {
        match self.ask(Fid(0), &Grant { bytes: wanted.bytes }, deadline) {
            Ok(answer) => self.granted.set(answer.mark.at, answer.reply.bytes, wanted),
            Err(fault) => tracing::debug!("{} keeps no space for us: {fault}", self.describe()),
        }
        self.granted.0.lock().is_asking = false;
    }
}

#[cfg(test)]
mod tests {
    use plan::settle::Mark;
    use types::{Code, Incarnation, MirrorId, Seq, TargetId};

    use super::*;

    type Answered = Result<Answer<WriteReply>, Fault>;

    const NOW: At = At { target: TargetId(2), incarnation: Incarnation(3) };
    const LATER: At = At { incarnation: Incarnation(4), ..NOW };
    const OTHER: At = At { target: TargetId(9), ..NOW };

    fn answer(granted: bool, at: At) -> Answered {
        let mark = Mark { mirror: MirrorId(1), at, seq: Seq(5) };
        let (leave, told) = Default::default();
        Ok(Answer { reply: WriteReply { len: 0, pages: 1, granted }, mark, leave, told, is_aside: false })
    }

    /// client-Q4
    #[test]
    fn what_is_believed_is_never_more_than_what_is_kept() {
        let now = Instant::now();
        let left = |g: &Granted| g.0.lock().bytes;
        let table: &[(&str, Answered, u64)] = &[
            ("used", answer(true, NOW), 6),
            ("not used", answer(false, NOW), 10),
            ("carried out by another incarnation", answer(false, LATER), 6),
            ("carried out by another member", answer(false, OTHER), 6),
            ("refused", Err(Fault::new(Code::NoSpace, "")), 10),
            ("not known", Err(Fault::new(Code::Timeout, "")), 6),
        ];
        for (name, answer, want) in table {
            let g = Granted::default();
            g.set(NOW, 10, Wanted::default());
            let share = g.take(4, now);
            assert_eq!((share.bytes, left(&g), g.take(7, now).bytes), (4, 6, 0), "{name}");
            g.answered(share, answer);
            assert_eq!(left(&g), *want, "{name}");
        }
        // The answer may not count space that was taken while the request was under way; a restarted OST has not seen it.
        for (at, want) in [(NOW, 6), (LATER, 10), (OTHER, 10)] {
            let g = Granted::default();
            g.set(NOW, 10, Wanted::default());
            let wanted = g.wish(now, |_| true).unwrap();
            let share = {
                g.set(NOW, 10, Wanted::default());
                g.take(4, now)
            };
            g.set(at, 10, wanted);
            assert_eq!(left(&g), want);
            // And what an earlier incarnation did not use is not this one's.
            g.answered(share, &answer(false, NOW));
            assert_eq!(left(&g), 10);
        }
    }

    /// client-Q4: the OST still keeps what writes under way have not used, and tells it with the rest.
    #[test]
    fn what_waits_to_be_written_is_not_promised_twice() {
        let now = Instant::now();
        let g = Granted::default();
        g.set(NOW, 10, Wanted::default());
        let share = g.take(6, now);
        let wanted = g.wish(now, |_| true).unwrap();
        g.set(NOW, 12, wanted);
        assert_eq!(g.0.lock().bytes, 12 - 6);
        g.answered(share, &answer(true, NOW));
        g.0.lock().is_asking = false;
        let wanted = g.wish(now, |_| true).unwrap();
        g.set(NOW, 12, wanted);
        assert_eq!(g.0.lock().bytes, 12);
    }

    #[test]
    fn what_is_idle_is_given_back() {
        let now = Instant::now();
        let g = Granted::default();
        g.set(NOW, 10, Wanted::default());
        g.take(4, now);
        let wanted = |bytes| Some(Wanted { bytes, taken: 4, open: 4 });
        assert_eq!(g.wish(now, |_| true), wanted(WISH_BYTES));
        assert_eq!(g.wish(now, |_| true), None, "one question at a time");
        g.0.lock().is_asking = false;
        assert_eq!(g.wish(now + IDLE, |_| true), wanted(0));
        assert_eq!(g.take(1, now + IDLE).bytes, 0, "it is the OST's already");
    }
}
