//! Targets that restarted while several sessions use them: who has sent again what of the lost work, and whose turn is next.
//!
//! What a target lost comes back from the sessions that it had acknowledged it to. Without an order among them an older write could
//! land on a newer one, and who is back first would read what the others' writes have not come back to. So each session says here
//! (`CatchUp`) with which incarnation of a target it speaks, and up to which entry of the earlier life it has sent all again.
//!
//! X6: an entry is sent again when every other living session that uses the target has sent again all its own below it, and anything
//!     new only when all have sent everything.
//! X7: one that does not come on for `PATIENCE` while others wait is not waited for: it may be cut off from the target alone. One
//!     that is dead is not waited for when its session ends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use types::{Incarnation, Seq, SessionId, TargetId};
use wire::shared::{ALL, CaughtUp};

/// As long as a session may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// What each session has said of each target.
#[derive(Default)]
pub struct CatchingUp {
    targets: HashMap<TargetId, Users>,
}

struct Users {
    said: HashMap<SessionId, (Incarnation, Seq)>,
    /// When one of them came on last.
    came_on: Instant,
}

impl CatchingUp {
    /// True: it came on.
    pub fn note(&mut self, session: SessionId, at: &CaughtUp, now: Instant) -> bool {
        let users =
            self.targets.entry(at.target).or_insert_with(|| Users { said: HashMap::new(), came_on: now });
        let says = (at.incarnation, at.next);
        let before = users.said.insert(session, says);
        let comes_on = before.is_none_or(|b| b.0 != says.0 || b.1 < says.1);
        if comes_on {
            users.came_on = now;
        }
        comes_on
    }

    /// X6: the lowest entry that one of `others` may still have to send again. `unheard` is for those who have said nothing.
    pub fn until(&self, at: &CaughtUp, others: &[SessionId], unheard: Seq, now: Instant) -> Seq {
        let Some(users) = self.targets.get(&at.target) else { return ALL };
        // X7.
        if now.duration_since(users.came_on) >= PATIENCE {
            return ALL;
        }
        let next_of = |s: &SessionId| match users.said.get(s) {
            None => unheard,
            Some((incarnation, next)) if *incarnation == at.incarnation => *next,
            // It has not noticed the restart.
            Some(_) => Seq(0),
        };
        others.iter().map(next_of).min().unwrap_or(ALL)
    }

    pub fn forget(&mut self, session: SessionId) {
        self.targets.retain(|_, users| {
            users.said.remove(&session);
            !users.said.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);

    fn at(incarnation: u32, next: Seq) -> CaughtUp {
        CaughtUp { target: TargetId(10), incarnation: Incarnation(incarnation), next }
    }

    /// X6, with the entries 5 and 9 of A and 7 of B.
    #[test]
    fn what_was_lost_is_sent_again_in_its_old_order() {
        let now = Instant::now();
        let mut c = CatchingUp::default();
        let mut says = |who, others: &[SessionId], what: CaughtUp| {
            c.note(who, &what, now);
            c.until(&what, others, ALL, now)
        };
        for who in [A, B] {
            assert_eq!(says(who, &[A, B][(who == A) as usize..][..1], at(1, ALL)), ALL);
        }
        // C has not used it. B has not noticed yet.
        assert_eq!(says(A, &[B, C], at(2, Seq(5))), Seq(0));
        assert_eq!(says(B, &[A, C], at(2, Seq(7))), Seq(5), "not its turn");
        assert_eq!(says(A, &[B, C], at(2, Seq(5))), Seq(7), "5 may go");
        assert_eq!(says(A, &[B, C], at(2, Seq(9))), Seq(7));
        assert_eq!(says(B, &[A, C], at(2, Seq(7))), Seq(9));
        assert_eq!(says(B, &[A, C], at(2, ALL)), Seq(9), "nothing new yet");
        assert_eq!(says(A, &[B, C], at(2, ALL)), ALL);
        assert_eq!(says(B, &[A, C], at(2, ALL)), ALL);
        // Who begins to use it waits for the others, too.
        assert_eq!(says(A, &[B, C], at(3, Seq(20))), Seq(0));
        assert_eq!(says(C, &[A, B], at(3, ALL)), Seq(0));
    }

    /// X7.
    #[test]
    fn who_does_not_come_on_is_not_waited_for_for_ever() {
        let now = Instant::now();
        let mut c = CatchingUp::default();
        assert!(c.note(A, &at(1, ALL), now) && c.note(B, &at(1, ALL), now));
        assert!(c.note(A, &at(2, Seq(5)), now));
        let almost = now + PATIENCE - Duration::from_millis(1);
        assert!(!c.note(A, &at(2, Seq(5)), almost), "it only asks again");
        assert_eq!(c.until(&at(2, Seq(5)), &[B], ALL, almost), Seq(0));
        assert_eq!(c.until(&at(2, Seq(5)), &[B], ALL, now + PATIENCE), ALL);
        // Who comes on is.
        assert!(c.note(B, &at(2, Seq(3)), almost));
        assert_eq!(c.until(&at(2, Seq(5)), &[B], ALL, now + PATIENCE), Seq(3));
        // And who is dead is not.
        c.forget(B);
        assert_eq!(c.until(&at(2, Seq(5)), &[], ALL, now), ALL);
        assert_eq!(c.until(&at(2, Seq(5)), &[C], Seq(0), now), Seq(0), "unless the MDT itself restarted");
    }
}
