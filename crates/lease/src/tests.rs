use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const C: SessionId = SessionId(3);
const DIR: Fid = Fid(7);

#[test]
fn who_gave_a_directory_back_is_told_for_a_while_and_a_later_grant_stays() {
    let mut table = Table::default();
    assert!(table.grant(DIR, A, 0) && table.grant(DIR, B, 0) && table.grant(DIR, C, 0));
    assert!(table.holds(DIR, A) && !table.holds(Fid(8), A));
    let others = table.others(DIR, A);
    assert_eq!(others.iter().map(|held| held.0).collect::<Vec<_>>(), [B, C]);
    let given_back = GivenBack { leases: &others, has_dirs: true };
    // C has given it back and asks again before the MDT knows.
    assert!(table.grant(DIR, C, 0));
    table.make_sole((DIR, What::Names), A, given_back, 0);
    assert!(!table.is_sole(DIR, What::Names, A, KEPT_MS - 1) && table.holds(DIR, B), "lease-L5");
    table.make_sole((DIR, What::Names), A, given_back, KEPT_MS - 1);
    assert!(table.is_sole(DIR, What::Names, A, KEPT_MS), "a contest that goes on does not begin anew");
    assert!(!table.holds(DIR, B) && table.holds(DIR, A) && table.holds(DIR, C));
    assert_eq!(table.held(), 2);
    // Otherwise the kernel has been told of all.
    table.make_sole((DIR, What::Attr), A, GivenBack::default(), 0);
    assert!(table.is_sole(DIR, What::Attr, A, 0));
}

#[test]
fn what_is_contested_only_its_changer_caches_until_it_rests() {
    let mut table = Table::default();
    table.grant(DIR, B, 0);
    let conflict = |table: &mut Table, now| table.note_conflict(DIR, What::Names, now);
    assert!(!conflict(&mut table, 0) && !conflict(&mut table, 10));
    assert!(!conflict(&mut table, REST_MS), "the first ones were long ago");
    assert!(!conflict(&mut table, REST_MS + 1) && conflict(&mut table, REST_MS + 2));
    table.make_sole((DIR, What::Names), A, GivenBack::default(), 2 * REST_MS);
    assert_eq!(table.contests(), 1);
    assert!(table.may_cache(DIR, What::Names, A, 2 * REST_MS + 1));
    assert!(!table.may_cache(DIR, What::Names, B, 2 * REST_MS + 1));
    assert!(table.may_cache(DIR, What::Attr, B, 2 * REST_MS + 1), "its attributes are another matter");
    assert!(table.is_sole(DIR, What::Names, A, 3 * REST_MS - 1), "and the rest begins anew");
    assert!(!table.may_cache(DIR, What::Names, B, 4 * REST_MS - 2));
    assert!(table.may_cache(DIR, What::Names, B, 4 * REST_MS - 1));
    assert_eq!(table.contests(), 0);
    assert!(!table.is_sole(DIR, What::Names, A, 4 * REST_MS - 1), "others may have cached since");
}

#[test]
fn another_changer_takes_the_contest_over() {
    let mut table = Table::default();
    table.make_sole((DIR, What::Attr), A, GivenBack::default(), 0);
    assert!(!table.is_sole(DIR, What::Attr, B, 1));
    table.make_sole((DIR, What::Attr), B, GivenBack::default(), 1);
    assert!(!table.is_sole(DIR, What::Attr, A, 2) && table.is_sole(DIR, What::Attr, B, 2));
    assert_eq!(table.contests(), 1);
}

#[test]
fn a_session_that_has_to_be_told_ends_the_contest_of_another() {
    let mut table = Table::default();
    table.make_sole((DIR, What::Names), A, GivenBack::default(), 0);
    table.end_sole(DIR, What::Names, A);
    assert!(table.is_sole(DIR, What::Names, A, KEPT_MS), "it tells itself");
    table.end_sole(DIR, What::Names, B);
    assert!(!table.is_sole(DIR, What::Names, A, KEPT_MS) && table.may_cache(DIR, What::Names, A, KEPT_MS));
    assert_eq!(table.contests(), 0);
}

#[test]
fn a_full_table_grants_no_more_until_some_are_dead() {
    let mut table = Table::default();
    assert!((0..ENTRIES_MAX as u64).all(|n| table.grant(Fid(n), if n % 2 == 0 { A } else { B }, 0)));
    assert!(!table.grant(Fid(u64::MAX), A, 0));
    assert!(table.grant(Fid(0), C, 0), "a directory that has an entry");
    assert!((0..2 * CONFLICTS_MAX).all(|_| !table.note_conflict(Fid(u64::MAX), What::Attr, 0)));
    table.make_sole((Fid(u64::MAX), What::Attr), A, GivenBack::default(), 0);
    assert_eq!((table.entries.len(), table.contests()), (ENTRIES_MAX, 0), "nor is there room for contests");
    table.drop_dead(|session| session != B, REST_MS);
    assert!(table.grant(Fid(u64::MAX), A, 0) && !table.holds(Fid(1), B));
    assert_eq!(table.held(), ENTRIES_MAX / 2 + 2);
}

#[test]
fn what_says_nothing_any_more_leaves_the_table() {
    let mut table = Table::default();
    table.note_conflict(DIR, What::Attr, 0);
    table.make_sole((Fid(8), What::Attr), A, GivenBack::default(), 0);
    table.grant(Fid(9), A, 0);
    table.drop_dead(|_| true, REST_MS - 1);
    assert_eq!((table.entries.len(), table.contests()), (3, 1));
    table.drop_dead(|_| true, REST_MS);
    assert_eq!((table.entries.len(), table.contests()), (1, 0));
}

#[test]
fn an_inode_that_has_gone_leaves_nothing() {
    let mut table = Table::default();
    table.grant(DIR, A, 0);
    table.make_sole((DIR, What::Names), A, GivenBack::default(), 0);
    table.make_sole((DIR, What::Attr), A, GivenBack::default(), 0);
    table.gone(DIR);
    table.gone(Fid(8));
    assert_eq!((table.entries.len(), table.contests(), table.held()), (0, 0, 0));
}

/// The sequences of the crate's documentation, all interleavings: one reader, one writer whose changes follow one another, one item (a name in a
/// directory). Time stands still, but for contests, which may end at any moment.
mod model {
    use std::collections::{HashSet, VecDeque};

    /// Deviations from the rules; the model must find each.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        None,
        /// The grant is noted after the state was read.
        LateGrant,
        /// The reader does not look at bars.
        NoBars,
        /// The reader looks at bars after the contests only.
        BarsOnce,
        /// The bars end before the change is published.
        EarlyEnd,
        /// The change does not wait for the holder.
        NoWait,
        /// The client keeps an answer though it forgot something meanwhile.
        KeepsAnyway,
        /// A contested item may be cached by anyone.
        NoContest,
        /// A watcher does not look at bars.
        BlindWatch,
        /// A watcher leaves the contest as it is.
        SoleBesideWatch,
        /// It moves the name though it forgot something since it asked to watch.
        WatchesAnyway,
    }

    #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
    struct State {
        // The MDT.
        published: u8,
        is_holder: bool,
        bars: u8,
        /// Only the writer may cache.
        is_sole: bool,
        conflicts: u8,
        // The writer's change, by the step that it has done.
        change: u8,
        is_recalled: bool,
        changes_done: u8,
        // The reader's request, by step.
        read: u8,
        may_keep: bool,
        value: u8,
        holds: bool,
        /// Forgets since the request left.
        has_forgotten: bool,
        /// The reader begins to watch, by step: its kernel moves a name.
        watch: u8,
        forgot_watched: bool,
        // The reader's cache.
        cached: Option<u8>,
        /// A notice under way to the reader.
        notice: bool,
    }

    const CHANGES: u8 = 3;

    fn next(s: &State, fault: Fault) -> Vec<State> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut State)| {
            let mut t = s.clone();
            change(&mut t);
            all.push(t);
        };
        // The reader.
        match s.read {
            0 => add(&|t| (t.read, t.has_forgotten) = (1, false)),
            1 => add(&|t| {
                t.may_keep = true;
                if fault != Fault::LateGrant {
                    t.is_holder = true;
                }
                t.read = 2;
            }),
            2 | 4 => add(&|t| {
                let is_skipped = fault == Fault::NoBars || (fault == Fault::BarsOnce && s.read == 2);
                t.may_keep &= t.bars == 0 || is_skipped;
                t.read += 1;
            }),
            3 => add(&|t| {
                t.may_keep &= !t.is_sole || fault == Fault::NoContest;
                t.read = 4;
            }),
            5 => add(&|t| (t.value, t.read) = (t.published, 6)),
            6 => add(&|t| {
                t.is_holder = true;
                if t.may_keep && (!t.has_forgotten || fault == Fault::KeepsAnyway) {
                    t.cached = Some(t.value);
                }
                t.read = 0;
            }),
            _ => unreachable!(),
        }
        match s.watch {
            0 => add(&|t| {
                t.is_holder = true;
                t.is_sole &= fault == Fault::SoleBesideWatch;
                (t.watch, t.forgot_watched) = (1, false);
            }),
            // It may be contested again by now.
            1 | 3 => {
                add(&|t| t.watch = if s.bars == 0 || fault == Fault::BlindWatch { s.watch + 1 } else { 0 })
            }
            2 => add(&|t| t.watch = if !s.is_sole || fault == Fault::SoleBesideWatch { 3 } else { 0 }),
            4 => add(&|t| t.watch = if !s.forgot_watched || fault == Fault::WatchesAnyway { 5 } else { 0 }),
            // The move is a change of its own, which the executor carries out at one moment.
            5 => add(&|t| (t.cached, t.watch) = (Some(t.published), 0)),
            _ => {}
        }
        // The kernel holds the directory's lock until it has moved the name.
        if s.notice && s.watch != 5 {
            add(&|t| {
                (t.notice, t.cached) = (false, None);
                (t.has_forgotten, t.forgot_watched) = (true, true);
            });
        }
        // A contest may be over at any moment: a change under way may have begun long ago.
        if s.is_sole {
            add(&|t| t.is_sole = false);
        }
        // The writer.
        match s.change {
            0 if s.changes_done < CHANGES => add(&|t| (t.change, t.bars) = (1, t.bars + 1)),
            1 => add(&|t| {
                let must_tell = !t.is_sole && t.is_holder && !t.is_recalled;
                (t.notice, t.is_recalled) = (t.notice || must_tell, true);
                t.conflicts += u8::from(must_tell);
                t.change = if must_tell { 2 } else { 3 };
            }),
            2 if !s.notice || fault == Fault::NoWait => add(&|t| {
                t.is_sole = t.conflicts >= 2;
                t.change = 3;
            }),
            3 => add(&|t| {
                if fault == Fault::EarlyEnd {
                    t.bars -= 1;
                }
                t.change = 4;
            }),
            4 => add(&|t| (t.published, t.change) = (t.published + 1, 5)),
            5 => add(&|t| {
                if fault != Fault::EarlyEnd {
                    t.bars -= 1;
                }
                (t.change, t.is_recalled, t.changes_done) = (0, false, t.changes_done + 1);
            }),
            _ => {}
        }
        all
    }

    /// lease-L2: between two changes nothing old is cached.
    fn is_sound(s: &State) -> bool {
        s.change != 0 || s.cached.is_none_or(|value| value == s.published)
    }

    /// The number of states, or the first that is not sound.
    fn explore(fault: Fault) -> Result<usize, State> {
        let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([State::default()]));
        while let Some(state) = queue.pop_front() {
            if !is_sound(&state) {
                return Err(state);
            }
            if seen.insert(state.clone()) {
                queue.extend(next(&state, fault));
            }
        }
        Ok(seen.len())
    }

    #[test]
    fn no_interleaving_leaves_an_old_answer_cached() {
        let states = explore(Fault::None).expect("sound");
        assert!(states > 1000, "{states} states were reached");
    }

    #[test]
    fn planted_faults_are_found() {
        for fault in [
            Fault::LateGrant,
            Fault::NoBars,
            Fault::BarsOnce,
            Fault::EarlyEnd,
            Fault::NoWait,
            Fault::KeepsAnyway,
            Fault::NoContest,
            Fault::BlindWatch,
            Fault::SoleBesideWatch,
            Fault::WatchesAnyway,
        ] {
            explore(fault).expect_err(&format!("{fault:?}"));
        }
    }
}
