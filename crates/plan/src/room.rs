//! Whoever finds an OST full while what was removed is still being destroyed: is it tried again, and when?
//!
//! W1: it ends, after one whole walk of the purge that began after the first question, or after `WAIT_MAX`. What others remove
//! meanwhile prolongs nothing, so writers and removers cannot keep each other busy.
//! W2: a full OST is not asked in a spin: a try follows a round of the purge, or is the last one.

use std::time::{Duration, Instant};

use wire::purge::DyingReply;

/// A purge that takes longer is held up: an OST or its device is down. Programs of local file systems wait for less.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// First and longest pause between two questions. A round of the purge is three device flushes, a few milliseconds.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make the request anew.
    Try,
    /// Wait, then ask the MDT again.
    Pause(Duration),
}

/// The wait of one operation.
#[derive(Clone, Debug)]
pub struct Room {
    since: Instant,
    /// What the first answer said: the walk after which everything that was dead then has had its turn, and the rounds.
    covered: Option<(u64, u64)>,
    pauses: u32,
    is_last: bool,
}

impl Room {
    /// An OST said `NoSpace` for the first time.
    pub fn new(now: Instant) -> Room {
        Room { since: now, covered: None, pauses: 0, is_last: false }
    }

    /// Since when it waits.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// May the MDT be asked (again)? If not, the file system is full.
    pub fn goes_on(&self, now: Instant) -> bool {
        !self.is_last && now < self.since + WAIT_MAX
    }

    /// The MDT answered.
    pub fn heard(&mut self, said: &DyingReply) -> Next {
        let is_first = self.covered.is_none();
        let (covered, rounds) = self.covered.get_or_insert((said.walks_begun + 1, said.rounds));
        // Also if nothing was dying from the first: it may have been destroyed between the refusal and the question.
        self.is_last = !said.dying || said.walks_ended >= *covered;
        let is_news = std::mem::replace(rounds, said.rounds) != said.rounds;
        if self.is_last || (is_news && !is_first) {
            return Next::Try;
        }
        self.pauses += 1;
        Next::Pause(PAUSE_MIN.saturating_mul(1 << (self.pauses - 1).min(16)).min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(dying: bool, walks_begun: u64, walks_ended: u64, rounds: u64) -> DyingReply {
        DyingReply { dying, walks_begun, walks_ended, rounds }
    }

    /// An answer, what follows, and whether the MDT may be asked again then.
    type Step = (DyingReply, Next, bool);

    #[test]
    fn the_table() {
        let pause = |ms| Next::Pause(Duration::from_millis(ms));
        let table: &[(&str, &[Step])] = &[
            ("nothing is dying: one more try", &[(said(false, 7, 7, 9), Next::Try, false)]),
            (
                "tries follow rounds; the last one the end",
                &[
                    (said(true, 7, 6, 9), pause(5), true),
                    (said(true, 7, 6, 9), pause(10), true),
                    (said(true, 7, 6, 10), Next::Try, true),
                    (said(true, 7, 6, 10), pause(20), true),
                    (said(false, 8, 7, 11), Next::Try, false),
                ],
            ),
            (
                "others remove on and on, or an OST is down: one walk that began later is enough",
                &[
                    (said(true, 7, 6, 9), pause(5), true),
                    (said(true, 7, 7, 10), Next::Try, true),
                    (said(true, 8, 7, 11), Next::Try, true),
                    (said(true, 8, 8, 12), Next::Try, false),
                ],
            ),
            (
                "a restarted MDT counts anew",
                &[
                    (said(true, 7, 6, 9), pause(5), true),
                    (said(true, 0, 0, 0), Next::Try, true),
                    (said(true, 1, 0, 0), pause(10), true),
                ],
            ),
        ];
        for (name, steps) in table {
            let now = Instant::now();
            let mut room = Room::new(now);
            for (n, (said, next, goes_on)) in steps.iter().enumerate() {
                assert_eq!((room.heard(said), room.goes_on(now)), (*next, *goes_on), "{name}, answer {n}");
            }
        }
    }

    #[test]
    fn it_ends_whatever_is_heard() {
        let begin = Instant::now();
        let (mut now, mut room, mut longest) = (begin, Room::new(begin), Duration::ZERO);
        while room.goes_on(now) {
            if let Next::Pause(pause) = room.heard(&said(true, 7, 6, 9)) {
                now += pause;
                longest = longest.max(pause);
            }
        }
        assert!(now - begin <= WAIT_MAX + PAUSE_MAX && longest == PAUSE_MAX, "{:?}", now - begin);
    }
}
