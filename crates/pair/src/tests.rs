//! Stories of two seats, step by step: no thread but the test's own does what the seats' threads do, and time goes on when a story says so.

mod doubt;
mod fabric;
mod live;
mod pages;
mod stories;
mod target;
mod walk;
mod world;

use crate::planted::Rule;

/// A story that finds a seat without a rule.
type Story = fn(Option<Rule>) -> Result<(), String>;

#[test]
fn planted_faults_of_the_seat_are_found() {
    let rows: [(Rule, Story); 12] = [
        (Rule::NotesAreKept, stories::asked_and_started_again),
        (Rule::LinesAreNoted, stories::trimmed_line),
        (Rule::CommitWaits, stories::killed_primary),
        (Rule::TargetIsAsked, stories::pages_are_missing),
        (Rule::FlushedHolds, stories::flushed_while_joining),
        (Rule::FillingIsWhole, stories::filled_live),
        (Rule::PagesAreOfBoth, pages::away),
        (Rule::FailuresEndLives, stories::failed_medium),
        (Rule::FaultsAreTold, stories::refused_entry),
        (Rule::DoubtIsNoted, doubt::forgotten_failure),
        (Rule::LastCopyStays, stories::last_copy),
        (Rule::SenderIsMember, fabric::former_member),
    ];
    for (rule, story) in rows {
        assert_eq!(story(None), Ok(()), "the story of {rule:?}");
        // The target of the test refuses what cannot be, by an assertion: the fault is found as well.
        let found = std::panic::catch_unwind(|| story(Some(rule)));
        assert!(found.is_err() || found.is_ok_and(|result| result.is_err()), "{rule:?} is not missed");
    }
}
