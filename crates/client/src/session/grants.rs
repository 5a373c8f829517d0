//! Grants: space that an OST keeps for this client's dirty pages.
//!
//! `write` needs no grant: it waits for its OSTs, and reports a full OST itself. The kernel holds dirty pages of shared mappings. It does not
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
    wanted_at: Option<Instant>,
    asked_at: Option<Instant>,
}

/// The share of a grant that one write may use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Share {
    pub bytes: u64,
    at: At,
}

impl Granted {
    /// Takes the share of a write, or nothing if the grant has less.
    pub fn take(&self, bytes: u64, now: Instant) -> Share {
        let mut state = self.0.lock();
        state.wanted_at = Some(now);
        if state.bytes < bytes {
            return Share::default();
        }
        state.bytes -= bytes;
        state.taken += bytes;
        Share { bytes, at: state.at }
    }

    /// The write was answered or abandoned.
    pub fn answered(&self, share: Share, answer: &Result<Answer<WriteReply>, Fault>) {
        let is_unused = match answer {
            Ok(answer) => !answer.reply.granted && answer.mark.at == share.at,
            Err(fault) => is_definite(fault.code),
        };
        let mut state = self.0.lock();
        if is_unused && state.at == share.at {
            state.bytes += share.bytes;
            state.taken -= share.bytes;
        }
    }

    /// The grant to ask for; `None`: do not ask now.
    fn wish(&self, now: Instant, is_time: impl Fn(&State) -> bool) -> Option<(u64, u64)> {
        let mut state = self.0.lock();
        if !is_time(&state) {
            return None;
        }
        state.asked_at = Some(now);
        let is_idle = state.wanted_at.is_none_or(|at| now.duration_since(at) >= IDLE);
        if is_idle {
            // Ended here before the OST hears of it.
            (state.bytes, state.wanted_at) = (0, None);
        }
        Some((if is_idle { 0 } else { WISH_BYTES }, state.taken))
    }

    /// Notes the OST's answer. `taken`: the sum when the request was sent. Later writes may have been carried out before or after it.
    fn set(&self, at: At, bytes: u64, taken: u64) {
        let mut state = self.0.lock();
        let since = if state.at == at { state.taken.saturating_sub(taken) } else { 0 };
        state.at = at;
        state.bytes = bytes.saturating_sub(since);
    }
}

impl Link {
    /// Called after writes that use a grant. Asks for more if little is left.
    pub fn want_grant(&self, deadline: Instant) {
        let now = Instant::now();
        let is_time = |s: &State| {
            let is_pause_over = s.asked_at.is_none_or(|at| now.duration_since(at) >= ASK_PAUSE);
            (s.bytes < WISH_BYTES / 2 || !self.is_in(s.at)) && is_pause_over
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

    fn ask_grant(&self, (bytes, taken): (u64, u64), deadline: Instant) {
        match self.ask(Fid(0), &Grant { bytes }, deadline) {
            Ok(answer) => self.granted.set(answer.mark.at, answer.reply.bytes, taken),
            Err(fault) => tracing::debug!("{} keeps no space for us: {fault}", self.describe()),
        }
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
            g.set(NOW, 10, 0);
            let share = g.take(4, now);
            assert_eq!((share.bytes, left(&g), g.take(7, now).bytes), (4, 6, 0), "{name}");
            g.answered(share, answer);
            assert_eq!(left(&g), *want, "{name}");
        }
        // The answer may not count space that was taken while the request was under way; a restarted OST has not seen it.
        for (at, want) in [(NOW, 6), (LATER, 10), (OTHER, 10)] {
            let g = Granted::default();
            g.set(NOW, 10, 0);
            let (_, taken) = g.wish(now, |_| true).unwrap();
            let share = {
                g.set(NOW, 10, 0);
                g.take(4, now)
            };
            g.set(at, 10, taken);
            assert_eq!(left(&g), want);
            // And what an earlier incarnation did not use is not this one's.
            g.answered(share, &answer(false, NOW));
            assert_eq!(left(&g), 10);
        }
    }

    #[test]
    fn what_is_idle_is_given_back() {
        let now = Instant::now();
        let g = Granted::default();
        g.set(NOW, 10, 0);
        g.take(4, now);
        assert_eq!(g.wish(now, |_| true), Some((WISH_BYTES, 4)));
        assert_eq!(g.wish(now + IDLE, |_| true), Some((0, 4)));
        assert_eq!(g.take(1, now + IDLE).bytes, 0, "it is the OST's already");
    }
}
