//! Mirrors that restarted while several sessions use them: the sessions that have sent their lost work again, and the one whose turn is next.
//!
//! Lost work of a mirror comes back from the sessions that it had acknowledged it to. Without an order among them an older write could
//! land on a newer one, and the session that is back first would read what the others' writes have not come back to. So each session says here
//! (`CatchUp`) with which incarnation of a mirror it speaks, and up to which entry of the earlier life it has sent all again.
//!
//! mds-X6: an entry is sent again when every other living session that uses the mirror has sent again all its own below it, and anything
//!     new only when all have sent everything.
//! mds-X7: one that has said nothing of a restarted mirror for `PATIENCE` is not waited for: it may be cut off from that mirror alone. One
//!     that is dead is not waited for when its session ends.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use types::layout::STRIPES_MAX;
use types::{Code, Fault, Incarnation, MirrorId, Seq, SessionId};
use wire::shared::{ALL, CaughtUp};

/// Mirrors that one session may speak of: twice as many as one file may have stripes.
const MIRRORS_MAX: usize = 2 * STRIPES_MAX;
/// As long as a session may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last report of each session on each mirror.
#[derive(Default)]
pub struct CatchingUp {
    mirrors: HashMap<MirrorId, Users>,
    /// Of each session, of how many mirrors it has said something.
    counts: HashMap<SessionId, usize>,
}

struct Users {
    said: HashMap<SessionId, Said>,
    /// The newest incarnation that was named, and when first.
    newest: (Incarnation, Instant),
    /// Sessions that have not named it. With `replaying` they are all that a session there may have to wait for.
    lagging: BTreeSet<SessionId>,
    /// Sessions that have named it and have not sent everything again, by what is next.
    replaying: BTreeSet<(Seq, SessionId)>,
}

struct Said {
    incarnation: Incarnation,
    next: Seq,
    heard: Instant,
}

impl CatchingUp {
    /// True: the session came on. What it said before and comes late changes nothing.
    pub fn note(&mut self, session: SessionId, at: &CaughtUp, now: Instant) -> Result<bool, Fault> {
        let CaughtUp { mirror, incarnation, next } = *at;
        if !self.mirrors.get(&mirror).is_some_and(|users| users.said.contains_key(&session)) {
            let count = self.counts.entry(session).or_default();
            if *count >= MIRRORS_MAX {
                return Err(Fault::new(
                    Code::BadRequest,
                    format!("a client that uses more than {MIRRORS_MAX} mirrors; is it of another version?"),
                ));
            }
            *count += 1;
        }
        let users = self.mirrors.entry(mirror).or_insert_with(|| Users::of(incarnation, now));
        Ok(users.note(session, Said { incarnation, next, heard: now }))
    }

    /// mds-X6: the lowest entry that another session than `session` may still have to send again.
    pub fn until(&self, session: SessionId, at: &CaughtUp, now: Instant) -> Seq {
        self.mirrors.get(&at.mirror).map_or(ALL, |users| users.until(session, at, now))
    }

    /// mds-X6, of this MDT itself. `others` have not reported yet. A session that has said nothing is still to come, and ends if it does not
    /// (mds-X7).
    pub fn until_here<'a>(
        &self,
        session: SessionId,
        at: &CaughtUp,
        others: impl Iterator<Item = &'a SessionId>,
    ) -> Seq {
        let next_of = |s: &SessionId| (self.next_of(*s, at.mirror, at.incarnation), *s);
        others.map(next_of).min().map_or(ALL, |first| may_go_to(first, session, at.next))
    }

    /// All users of the mirror have named this incarnation of it or a newer one.
    pub fn has_all(&self, at: &CaughtUp) -> bool {
        self.mirrors.get(&at.mirror).is_none_or(|users| users.lagging.is_empty())
    }

    /// The entry that the session sends again to `mirror` next; 0: it has reported nothing to this incarnation of it.
    pub fn next_of(&self, session: SessionId, mirror: MirrorId, incarnation: Incarnation) -> Seq {
        let said = self.mirrors.get(&mirror).and_then(|users| users.said.get(&session));
        said.filter(|said| said.incarnation == incarnation).map_or(Seq(0), |said| said.next)
    }

    pub fn forget(&mut self, session: SessionId) {
        self.counts.remove(&session);
        self.mirrors.retain(|_, users| {
            if let Some(said) = users.said.remove(&session) {
                users.replaying.remove(&(said.next, session));
                users.lagging.remove(&session);
            }
            !users.said.is_empty()
        });
    }
}

impl Users {
    fn of(incarnation: Incarnation, now: Instant) -> Users {
        let (said, lagging, replaying) = Default::default();
        Users { said, newest: (incarnation, now), lagging, replaying }
    }

    /// True: the session has progressed.
    fn note(&mut self, session: SessionId, new: Said) -> bool {
        if self.newest.0 < new.incarnation {
            self.newest = (new.incarnation, new.heard);
            self.lagging = self.said.keys().copied().collect();
            self.replaying.clear();
        }
        let is_old = |old: &Said| (old.incarnation, old.next) >= (new.incarnation, new.next);
        match self.said.get_mut(&session) {
            Some(old) if is_old(old) => {
                old.heard = new.heard;
                return false;
            }
            Some(old) => _ = self.replaying.remove(&(old.next, session)),
            None => {}
        }
        match new.incarnation == self.newest.0 {
            true if new.next == ALL => _ = self.lagging.remove(&session),
            true => {
                self.lagging.remove(&session);
                self.replaying.insert((new.next, session));
            }
            false => _ = self.lagging.insert(session),
        }
        self.said.insert(session, new);
        true
    }

    fn until(&self, session: SessionId, at: &CaughtUp, now: Instant) -> Seq {
        let incarnation = at.incarnation;
        let is_waited_for = |s: &SessionId| {
            let said = self.said.get(s).filter(|_| *s != session);
            said.is_some_and(|said| now.duration_since(said.heard.max(self.newest.1)) < PATIENCE)
        };
        // A session that speaks of an earlier incarnation has not noticed the last restart.
        let is_behind = |s: &SessionId| is_waited_for(s) && self.said[s].incarnation != incarnation;
        let is_late = incarnation != self.newest.0 && self.said.keys().any(is_behind);
        if is_late || self.lagging.iter().any(is_waited_for) {
            return Seq(0);
        }
        let first = self.replaying.iter().find(|(_, s)| is_waited_for(s));
        first.map_or(ALL, |first| may_go_to(*first, session, at.next))
    }
}

/// How far `session` may go on, which sends `next` next. `first`: the other session with the lowest entry. Two sessions come to one entry if a mirror
/// restarts again before all was sent: it counts its entries anew. Without an order both would wait for ever.
fn may_go_to((lowest, other): (Seq, SessionId), session: SessionId, next: Seq) -> Seq {
    // 0: it has said nothing yet.
    let are_at_one = lowest == next && lowest != ALL && lowest != Seq(0);
    if are_at_one && session < other { Seq(lowest.0 + 1) } else { lowest }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);

    fn at(incarnation: u32, next: Seq) -> CaughtUp {
        CaughtUp { mirror: MirrorId(10), incarnation: Incarnation(incarnation), next }
    }

    /// What A, B and C say at a time, and what each may go on to.
    struct Table(CatchingUp, Instant);
    impl Table {
        fn says(&mut self, who: SessionId, what: CaughtUp) -> Seq {
            self.0.note(who, &what, self.1).unwrap();
            self.0.until(who, &what, self.1)
        }
        fn pass(&mut self, time: Duration) {
            self.1 += time;
        }
    }

    /// mds-X6, with the entries 5 and 9 of A and 7 of B.
    #[test]
    fn what_was_lost_is_sent_again_in_its_old_order() {
        let mut t = Table(CatchingUp::default(), Instant::now());
        assert_eq!([t.says(A, at(1, ALL)), t.says(B, at(1, ALL))], [ALL; 2]);
        // C has not used it. B has not noticed yet.
        assert_eq!(t.says(A, at(2, Seq(5))), Seq(0));
        assert_eq!(t.says(B, at(2, Seq(7))), Seq(5), "not its turn");
        assert_eq!(t.says(A, at(2, Seq(5))), Seq(7), "5 may go");
        assert_eq!(t.says(A, at(2, Seq(9))), Seq(7));
        assert_eq!(t.says(B, at(2, Seq(7))), Seq(9));
        assert_eq!(t.says(B, at(2, ALL)), Seq(9), "nothing new yet");
        // What was said before and comes late.
        t.says(B, at(2, Seq(7)));
        t.says(B, at(1, ALL));
        assert_eq!(t.says(A, at(2, ALL)), ALL);
        assert_eq!(t.says(B, at(2, ALL)), ALL);
        // Who begins to use it waits for the others, too.
        assert_eq!(t.says(A, at(3, Seq(20))), Seq(0));
        assert_eq!(t.says(C, at(3, ALL)), Seq(0));
    }

    /// A mirror that restarts again during a replay counts its entries anew, so two sessions may have entries of one number.
    #[test]
    fn of_two_sessions_at_one_entry_one_goes_first() {
        let mut t = Table(CatchingUp::default(), Instant::now());
        [A, B, C].into_iter().for_each(|who| assert_eq!(t.says(who, at(1, ALL)), ALL));
        assert_eq!([A, B, C].map(|who| t.says(who, at(2, Seq(5)))), [Seq(0), Seq(0), Seq(5)]);
        assert_eq!(t.says(B, at(2, Seq(5))), Seq(5));
        assert_eq!(t.says(A, at(2, Seq(5))), Seq(6));
        assert_eq!(t.says(A, at(2, ALL)), Seq(5));
        assert_eq!([C, B].map(|who| t.says(who, at(2, Seq(5)))), [Seq(5), Seq(6)]);
    }

    /// mds-X7.
    #[test]
    fn who_says_nothing_is_not_waited_for_and_the_others_keep_their_order() {
        let mut t = Table(CatchingUp::default(), Instant::now());
        [A, B, C].into_iter().for_each(|who| assert_eq!(t.says(who, at(1, ALL)), ALL));
        t.pass(PATIENCE * 9);
        assert_eq!(t.says(A, at(2, Seq(5))), Seq(0), "silence counts from the restart on");
        t.pass(PATIENCE / 2);
        assert_eq!(t.says(B, at(2, Seq(7))), Seq(0), "C is waited for");
        assert_eq!(t.says(A, at(2, Seq(5))), Seq(0));
        t.pass(PATIENCE / 2);
        assert_eq!(t.says(B, at(2, Seq(7))), Seq(5), "not C any more, but A, which asked for its turn");
        assert_eq!(t.says(A, at(2, Seq(5))), Seq(7));
        // A dies in its turn.
        t.pass(PATIENCE);
        assert_eq!(t.says(B, at(2, Seq(7))), ALL);
    }

    #[test]
    fn at_a_restarted_mdt_those_who_are_to_come_are_waited_for_until_their_session_ends() {
        let (mut c, now) = (CatchingUp::default(), Instant::now());
        c.note(A, &at(2, Seq(5)), now).unwrap();
        c.note(B, &at(2, Seq(3)), now).unwrap();
        assert_eq!(c.until_here(A, &at(2, Seq(5)), [B].iter()), Seq(3));
        assert_eq!(c.until_here(A, &at(2, Seq(5)), [B, C].iter()), Seq(0));
        let both = |c: &CatchingUp, at: &CaughtUp| {
            [c.until_here(A, at, [B].iter()), c.until_here(B, at, [A].iter())]
        };
        c.note(B, &at(2, Seq(5)), now).unwrap();
        assert_eq!(both(&c, &at(2, Seq(5))), [Seq(6), Seq(5)], "one of the two goes first");
        c.forget(B);
        assert_eq!(c.until_here(A, &at(2, Seq(5)), [].iter()), ALL);
    }
    /// mds-X6 and mds-X7 word for word, over all that the sessions have said.
    #[test]
    fn what_a_session_waits_for_is_what_a_look_at_all_others_gives() {
        let mut dice = hammer::Dice::new(7);
        let mut below = |limit| dice.below(limit) as u64;
        let (mut c, mut now, mut newest) = (CatchingUp::default(), Instant::now(), 1);
        for _ in 0..20_000 {
            now += PATIENCE * below(4) as u32 / 8;
            newest += u32::from(below(50) == 0);
            let session = SessionId(1 + below(6));
            if below(20) == 0 {
                c.forget(session);
                continue;
            }
            let next = if below(2) == 0 { ALL } else { Seq(1 + below(9)) };
            let at = at(newest - below(2).min(newest as u64 - 1) as u32, next);
            c.note(session, &at, now).unwrap();
            let users = &c.mirrors[&at.mirror];
            let next_of = |(_, said): (&SessionId, &Said)| match said.incarnation == at.incarnation {
                _ if now.duration_since(said.heard.max(users.newest.1)) >= PATIENCE => ALL,
                true => said.next,
                false => Seq(0),
            };
            let others = users.said.iter().filter(|(other, _)| **other != session);
            let lowest = others.map(|other| (next_of(other), *other.0)).min();
            let want = match lowest {
                Some((lowest, other)) if lowest == next && next != ALL && session < other => Seq(next.0 + 1),
                lowest => lowest.map_or(ALL, |(lowest, _)| lowest),
            };
            let got = c.until(session, &at, now);
            // A session that has not noticed the last restart may be told to wait where it need not.
            let is_late = at.incarnation != users.newest.0;
            assert!(got == want || is_late && got < want, "{got} and not {want}");
        }
    }

    #[test]
    fn a_session_speaks_of_so_many_targets_and_goes_on_speaking_of_these() {
        let (mut c, now) = (CatchingUp::default(), Instant::now());
        let of = |mirror, next| CaughtUp { mirror: MirrorId(mirror), incarnation: Incarnation(1), next };
        (1..=MIRRORS_MAX as u32).for_each(|n| assert_eq!(c.note(A, &of(n, Seq(1)), now), Ok(true)));
        assert_eq!(c.note(A, &of(0, Seq(1)), now).unwrap_err().code, Code::BadRequest);
        assert_eq!(c.note(A, &of(9, ALL), now), Ok(true));
        assert_eq!(c.note(B, &of(0, Seq(1)), now), Ok(true), "another has its own");
        c.forget(A);
        assert_eq!(c.note(A, &of(0, Seq(1)), now), Ok(true));
        assert_eq!(c.counts[&A], 1);
    }
}
