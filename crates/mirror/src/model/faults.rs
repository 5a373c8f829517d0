//! Planted faults: without one rule, some walk breaks a promise. With all rules the same walks break none (`walk`).
//!
//! Faults of a filling are in `fill`.

use super::explore::unheard;
use super::walk::walk_from;
use super::world::{Budget, World};
use crate::planted::{Rule, without};

/// The rarest is found within a third of this.
const WALKS_MAX: u64 = 30_000;

/// The first walk that breaks without this rule.
fn find(rule: Rule, begin: fn(Budget) -> World) -> Option<u64> {
    without(rule, || {
        (0..WALKS_MAX).find(|seed| {
            // A member refuses to go on with what cannot be, by an assertion: the fault is found as well.
            let walked = std::panic::catch_unwind(|| walk_from(begin, *seed, &mut Vec::new()));
            walked.is_err() || walked.is_ok_and(|result| result.is_err())
        })
    })
}

fn check(rules: &[Rule]) {
    for rule in rules {
        assert!(find(*rule, World::new).is_some(), "{WALKS_MAX} walks do not show that {rule:?} is gone");
    }
}

#[test]
fn rules_of_order_and_reads_are_missed_when_gone() {
    check(&[
        Rule::AnswerAfterAck,
        Rule::NoGaps,
        Rule::SmallerFlushed,
        Rule::LivesAreTold,
        Rule::LowLivesAreTold,
        Rule::ReadsWait,
        Rule::ServeUnderPromise,
    ]);
}

#[test]
fn rules_of_promises_and_askings_are_missed_when_gone() {
    check(&[
        Rule::CountFromAsking,
        Rule::OwnPromiseRunsOut,
        Rule::StartIsPromise,
        Rule::SilentAfterAsk,
        Rule::AskIsRecorded,
        Rule::FlushBeforeAsk,
        Rule::PowerLossTold,
    ]);
}

#[test]
fn rules_of_return_and_decision_are_missed_when_gone() {
    check(&[
        Rule::CutByLine,
        Rule::BoundBeforeInSync,
        Rule::FlushBeforeInSync,
        Rule::EpochCompared,
        Rule::WholeFirst,
    ]);
}

#[test]
fn a_primary_that_may_have_less_cuts_nothing_or_it_is_seen() {
    assert!(find(Rule::SettledLeads, unheard).is_some());
}
