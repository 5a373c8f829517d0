//! Tells a purge queue that moves from one that is stuck.
//!
//! A long queue is not a finding: removing many files fills it, and the purge takes the files in turn. plan-K3: the records queued at the
//! beginning are a finding only when none of them has gone for as long as the purge may need for one turn.

use std::collections::BTreeSet;
use std::time::Duration;

use types::{Fid, Generation};

use super::{About, Finding, Problem, finding};

/// The records that were queued at the beginning and are still there, and when one of them last went.
pub struct Purges {
    left: BTreeSet<(Fid, Generation)>,
    moved_at: Duration,
    patience: Duration,
}

/// The result of one look at the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All records of the beginning are gone.
    Done,
    /// Look again.
    Wait,
    /// No record went for too long; one finding per record that is left.
    Stuck(Vec<Finding>),
}

impl Purges {
    pub fn new(queued: BTreeSet<(Fid, Generation)>, patience: Duration) -> Purges {
        Purges { left: queued, moved_at: Duration::ZERO, patience }
    }

    /// True if no record of the beginning is left.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Compares with the queue `dead` as it is now. `now` counts from `new`.
    pub fn look(&mut self, now: Duration, dead: &BTreeSet<(Fid, Generation)>) -> Verdict {
        let before = self.left.len();
        self.left.retain(|record| dead.contains(record));
        if self.left.len() < before {
            self.moved_at = now;
        }
        match (self.left.is_empty(), now.saturating_sub(self.moved_at) >= self.patience) {
            (true, _) => Verdict::Done,
            (false, true) => Verdict::Stuck(self.left.iter().map(stuck).collect()),
            (false, false) => Verdict::Wait,
        }
    }
}

fn stuck(record: &(Fid, Generation)) -> Finding {
    let (fid, generation) = *record;
    finding(
        Problem::SlowPurge,
        About::Dead(fid, generation),
        format!("file {fid} {generation}"),
        "the MDT cannot reach an OST of it; its objects are destroyed when that is back; see 'stria status'",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(fids: &[u64]) -> BTreeSet<(Fid, Generation)> {
        fids.iter().map(|n| (Fid(*n), Generation(1))).collect()
    }

    /// plan-K3.
    #[test]
    fn a_queue_that_moves_is_waited_for_and_one_that_stands_is_a_finding() {
        //          second  queued then       verdict
        let table = [
            (0, &[16, 17, 18][..], "wait"),
            (9, &[16, 17, 18], "wait"),
            // Files queued later come and go: only the first three count.
            (10, &[17, 18, 30, 31], "wait"),
            (19, &[17, 18], "wait"),
            (20, &[17, 18, 30], "stuck"),
        ];
        let mut purges = Purges::new(dead(&[16, 17, 18]), Duration::from_secs(10));
        for (second, queued, want) in table {
            let said = match purges.look(Duration::from_secs(second), &dead(queued)) {
                Verdict::Done => "done",
                Verdict::Wait => "wait",
                Verdict::Stuck(findings) => {
                    let fids: Vec<_> = findings.iter().map(|f| f.about.fid().0).collect();
                    assert_eq!(fids, [17, 18]);
                    "stuck"
                }
            };
            assert_eq!(said, want, "second {second}");
        }
        assert_eq!(purges.look(Duration::from_secs(21), &dead(&[30])), Verdict::Done);
        let mut at_once = Purges::new(dead(&[]), Duration::ZERO);
        assert_eq!(at_once.look(Duration::ZERO, &dead(&[1])), Verdict::Done);
    }
}
