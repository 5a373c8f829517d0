//! Decides whether and when a client retries on a full OST while the purge is still freeing space there.
//!
//! plan-W1: a wait ends after one whole walk of the purge that began after the first question, or after `WAIT_MAX`. Files that others
//! remove meanwhile do not prolong it, so writers and removers cannot keep each other busy. A mirror that refuses for the first time
//! starts a new count of walks: the bytes of one call may go to many mirrors, and the later ones may refuse when the earlier ones have
//! space. `WAIT_MAX` covers them all.
//! plan-W2: a client does not spin on a full OST. Each try follows a round of the purge and a pause, or is the last try; a client whose
//! time is over gets a last try too.
//! plan-W3: no client waits for a purge that the MDT reports as held up, or that an earlier wait found stuck: see `Vain`.
//! plan-W4: of the waiting callers that occupy a thread other callers need, only some wait that long; the rest wait for a round or two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use types::MirrorId;
use wire::purge::DyingReply;

/// Longest wait. A purge that takes longer is held up: an OST or its device is down. Programs of local file systems wait for less.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// plan-W4: long enough for a purge that nothing holds up, and short enough for a caller that needs the thread.
pub const BRIEF_MAX: Duration = Duration::from_millis(100);
/// First and longest pause between two questions. A round of the purge is three device flushes, a few milliseconds.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The next step of a waiting caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make the request anew after this pause.
    Try(Duration),
    /// Wait for this long, then ask the MDT again.
    Pause(Duration),
}

/// The wait of one operation.
#[derive(Clone, Debug)]
pub struct Room {
    since: Instant,
    /// Mirrors that refused so far.
    refused: BTreeSet<MirrorId>,
    /// From the first answer: the walk by whose end all that was in the purge queue then was visited, and the count of rounds.
    covered: Option<(u64, u64)>,
    /// The purge's state in the first answer. `stuck_at` has it while the queue is not empty and nothing was freed since.
    before: Option<State>,
    stuck_at: Option<State>,
    pauses: u32,
    /// `is_last`: the next try is the last, by the MDT's answer. `is_over`: it is the last because the time is over.
    is_last: bool,
    is_over: bool,
}

impl Room {
    /// Begins a wait: an OST answered `NoSpace` for the first time.
    pub fn new(now: Instant) -> Room {
        Room {
            since: now,
            refused: BTreeSet::new(),
            covered: None,
            before: None,
            stuck_at: None,
            pauses: 0,
            is_last: false,
            is_over: false,
        }
    }

    /// Notes the mirrors that refused the try.
    pub fn refused(&mut self, mirrors: &[MirrorId]) {
        let before = self.refused.len();
        self.refused.extend(mirrors);
        if self.refused.len() > before {
            (self.covered, self.is_last) = (None, false);
        }
    }

    /// True if the MDT may be asked again. Otherwise the file system is full.
    pub fn goes_on(&self, now: Instant) -> bool {
        !self.is_last && !self.is_over && now < self.since + WAIT_MAX
    }

    /// True once, after `goes_on` became false: space freed since the last try may be enough even though no round has ended.
    pub fn may_try_once_more(&mut self) -> bool {
        !self.is_last && !std::mem::replace(&mut self.is_over, true)
    }

    /// True if the caller may pause for this long. plan-W4: a caller without `long` stops at `BRIEF_MAX`.
    pub fn may_pause(&self, now: Instant, pause: Duration, long: bool) -> bool {
        now + pause <= self.since + if long { WAIT_MAX } else { BRIEF_MAX }
    }

    /// Takes an answer of the MDT and gives the next step.
    pub fn heard(&mut self, said: &DyingReply) -> Next {
        let is_first = self.covered.is_none();
        let (covered, rounds) = self.covered.get_or_insert((said.walks_begun + 1, said.rounds));
        // This is the last try even if the queue was empty in the first answer: the purge may have freed space between the refusal and
        // the question.
        self.is_last = !said.dying || said.held_up || said.walks_ended >= *covered;
        let before = *self.before.get_or_insert(State::of(said));
        self.stuck_at = (said.dying && before.freed == said.freed).then_some(before);
        let is_news = std::mem::replace(rounds, said.rounds) != said.rounds;
        if self.is_last {
            return Next::Try(Duration::ZERO);
        }
        if is_news && !is_first {
            return Next::Try(PAUSE_MIN);
        }
        self.pauses += 1;
        Next::Pause(PAUSE_MIN.saturating_mul(1 << (self.pauses - 1).min(16)).min(PAUSE_MAX))
    }

    /// The state of the purge, if the caller waited its whole time and nothing was freed.
    pub fn outlasted(&self, now: Instant) -> Option<State> {
        self.stuck_at.filter(|_| self.is_over && !self.may_pause(now, PAUSE_MAX, true))
    }
}

/// The purge's counters: freed so far, and queued so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    freed: u64,
    news: u64,
}

impl State {
    fn of(said: &DyingReply) -> State {
        State { freed: said.freed, news: said.news }
    }
}

/// plan-W3: mirrors for which a caller waited its whole time while nothing was freed, with the purge's state. No caller waits for them
/// again until the purge frees or is given something. (The end of a walk is no measure: a walk may take minutes and free much meanwhile.)
/// At most one entry per mirror.
#[derive(Debug, Default)]
pub struct Vain(BTreeMap<MirrorId, State>);

impl Vain {
    pub fn note(&mut self, mirrors: &[MirrorId], state: State) {
        self.0.extend(mirrors.iter().map(|m| (*m, state)));
    }

    /// True if the purge's state is the same as after a wait in vain for one of these mirrors.
    pub fn holds(&self, mirrors: &[MirrorId], said: &DyingReply) -> bool {
        said.dying && mirrors.iter().any(|m| self.0.get(m) == Some(&State::of(said)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(dying: bool, walks_begun: u64, walks_ended: u64, rounds: u64) -> DyingReply {
        DyingReply { dying, held_up: false, walks_begun, walks_ended, rounds, freed: 50, news: 70 }
    }

    /// An answer, the next step, and whether the MDT may be asked again then.
    type Step = (DyingReply, Next, bool);

    #[test]
    fn the_table() {
        let pause = |ms| Next::Pause(Duration::from_millis(ms));
        let (at_once, soon) = (Next::Try(Duration::ZERO), Next::Try(PAUSE_MIN));
        let table: &[(&str, &[Step])] = &[
            ("nothing is dying: one more try", &[(said(false, 7, 7, 9), at_once, false)]),
            (
                "tries follow rounds; the last one the end",
                &[
                    (said(true, 7, 6, 9), pause(5), true),
                    (said(true, 7, 6, 9), pause(10), true),
                    (said(true, 7, 6, 10), soon, true),
                    (said(true, 7, 6, 10), pause(20), true),
                    (said(false, 8, 7, 11), at_once, false),
                ],
            ),
            (
                "others remove on and on, or an OST is down: one walk that began later is enough",
                &[
                    (said(true, 7, 6, 9), pause(5), true),
                    (said(true, 7, 7, 10), soon, true),
                    (said(true, 8, 7, 11), soon, true),
                    (said(true, 8, 8, 12), at_once, false),
                ],
            ),
            (
                "the purge is held up: one more try",
                &[(DyingReply { held_up: true, ..said(true, 7, 7, 9) }, at_once, false)],
            ),
            (
                "a restarted MDT counts anew",
                &[
                    (said(true, 7, 6, 9), pause(5), true),
                    (said(true, 0, 0, 0), soon, true),
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
        assert!(room.may_try_once_more());
        assert_eq!(room.outlasted(now), Some(State { freed: 50, news: 70 }));
    }

    #[test]
    fn who_waits_in_vain_is_who_saw_nothing_freed_to_the_end_of_his_time() {
        let begin = Instant::now();
        let end = begin + WAIT_MAX;
        let mut room = Room::new(begin);
        room.heard(&said(true, 7, 6, 9));
        let before = Some(State { freed: 50, news: 70 });
        assert_eq!(room.outlasted(end), None, "it has a last try");
        assert!(room.may_try_once_more() && !room.may_try_once_more() && !room.goes_on(begin));
        assert_eq!((room.outlasted(begin), room.outlasted(end)), (None, before));
        room.heard(&DyingReply { news: 71, ..said(true, 7, 6, 9) });
        assert_eq!(room.outlasted(end), before, "it did not wait that long for what came later");
        room.heard(&DyingReply { freed: 51, ..said(true, 7, 6, 10) });
        assert_eq!(room.outlasted(end), None, "something was");
        room.heard(&DyingReply { freed: 51, ..said(true, 7, 6, 10) });
        assert_eq!(room.outlasted(end), None, "though not of late");
        let mut room = Room::new(begin);
        room.heard(&said(false, 7, 6, 9));
        assert_eq!(room.outlasted(end), None, "nothing was to be freed");
    }

    #[test]
    fn who_holds_a_thread_that_others_need_waits_for_a_moment_only() {
        let begin = Instant::now();
        let (mut now, mut room, mut pauses) = (begin, Room::new(begin), 0);
        while let Next::Pause(pause) = room.heard(&said(true, 7, 6, 9))
            && room.may_pause(now, pause, false)
        {
            (now, pauses) = (now + pause, pauses + 1);
        }
        assert_eq!((now - begin, pauses), (Duration::from_millis(75), 4), "5, 10, 20, 40");
        assert!(room.may_pause(now, PAUSE_MAX, true) && room.outlasted(now).is_none());
    }

    #[test]
    fn a_mirror_that_refuses_later_is_asked_after_as_the_first_was() {
        let now = Instant::now();
        let (a, b) = (MirrorId(1), MirrorId(2));
        let mut room = Room::new(now);
        room.refused(&[a]);
        assert_eq!(room.heard(&said(false, 7, 7, 9)), Next::Try(Duration::ZERO));
        room.refused(&[a]);
        assert!(!room.goes_on(now), "the same one again: it is full");
        room.refused(&[b]);
        assert!(room.goes_on(now), "that one was not asked after");
        assert!(matches!(room.heard(&said(true, 9, 8, 12)), Next::Pause(_)));
        assert_eq!(room.heard(&said(true, 9, 9, 13)), Next::Try(PAUSE_MIN));
        room.refused(&[a, b]);
        assert!(room.goes_on(now), "a walk that began before B was asked after");
        assert_eq!(room.heard(&said(true, 10, 10, 14)), Next::Try(Duration::ZERO));
        room.refused(&[b]);
        assert!(!room.goes_on(now) && !room.may_try_once_more(), "a walk that began later is enough");
        assert!(room.outlasted(now).is_none());
        let mut room = Room::new(now);
        room.refused(&[a]);
        room.heard(&said(true, 7, 6, 9));
        room.refused(&[b]);
        assert!(!room.goes_on(now + WAIT_MAX), "its time is for both");
    }

    #[test]
    fn nobody_waits_again_until_something_is_freed() {
        let (a, b) = (MirrorId(1), MirrorId(2));
        let mut vain = Vain::default();
        vain.note(&[a], State { freed: 50, news: 70 });
        assert!(vain.holds(&[a], &said(true, 7, 6, 9)) && vain.holds(&[b, a], &said(true, 8, 7, 10)));
        assert!(!vain.holds(&[b], &said(true, 7, 6, 9)), "another mirror");
        assert!(!vain.holds(&[a], &said(false, 7, 6, 9)), "nothing is dying: the answer is a last try");
        let freed = DyingReply { freed: 51, ..said(true, 7, 6, 10) };
        assert!(!vain.holds(&[a], &freed), "something was freed, though the walk has not ended");
        let news = DyingReply { news: 71, ..said(true, 7, 6, 10) };
        assert!(!vain.holds(&[a], &news), "more was removed, perhaps from an OST that works");
    }
}
