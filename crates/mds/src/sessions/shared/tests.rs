//! Sections in their order, and what is noted of whom.

use LeaseKind::{Exclusive, Many, Shared};
use wire::session::Claims;

use super::sections::{ASKS_WITHIN, SECTIONS_MAX};
use super::*;
use crate::sessions::Session;

fn section(session: u64, token: u64, kind: LeaseKind) -> Section {
    Section { session: SessionId(session), token, kind }
}

const FILE: Fid = Fid(7);

/// Those of one file, and a time.
struct Table(Turns, Instant);

impl Table {
    fn new() -> Table {
        Table(Turns::default(), Instant::now())
    }
    fn admits(&mut self, who: Section) -> bool {
        self.0.enter(FILE, who, self.1).unwrap().is_some()
    }
    fn ends(&mut self, who: Section) {
        self.0.let_go(FILE, who.session, who.token)
    }
}

#[test]
fn sections_are_given_in_order_and_shared_ones_together() {
    let mut t = Table::new();
    let (a, b, c, d) =
        (section(1, 1, Shared), section(2, 1, Shared), section(1, 2, Exclusive), section(2, 2, Shared));
    assert!(t.admits(a) && t.admits(b), "shared ones go together");
    assert!(!t.admits(c), "an exclusive one waits");
    assert!(!t.admits(d), "and those after it wait behind it");
    [a, b].into_iter().for_each(|s| t.ends(s));
    assert!(!t.admits(d) && t.admits(c) && !t.admits(d));
    assert!(t.admits(c), "asked again it is inside still");
    t.ends(c);
    assert!(t.admits(d) && t.0.waiting(FILE) == 0);
    t.ends(d);
    t.ends(d);
    assert_eq!(t.0.places(), 0);
}

/// Who asks for more than it may waits for its own, and others do not wait for it.
#[test]
fn a_session_has_so_many_sections_at_a_time() {
    let mut t = Table::new();
    let own = |token| section(1, token, Shared);
    (1..SECTIONS_MAX as u64).for_each(|token| assert!(t.admits(own(token))));
    let other = Section { session: SessionId(2), ..own(1) };
    assert!(t.admits(other) && !t.admits(section(1, 0, Exclusive)), "one that waits counts, too");
    t.ends(other);
    assert_eq!(t.0.enter(FILE, own(99_999), t.1).unwrap_err().code, Code::NotReady);
    assert_eq!(t.0.claim(Fid(8), own(99_999)).unwrap_err().code, Code::NotReady);
    assert!(t.admits(own(1)), "those that it has it keeps");
    t.0.claim(FILE, own(2)).unwrap();
    t.ends(own(1));
    t.0.claim(Fid(8), own(99_999)).unwrap();
    assert_eq!(t.0.enter(FILE, own(1), t.1).unwrap_err().code, Code::NotReady);
    // Places that are not asked for any more are free.
    t.1 += ASKS_WITHIN;
    assert!(t.admits(section(2, 1, Shared)) && t.admits(own(1)));
    t.0.forget(SessionId(1));
    assert_eq!(t.0.places(), 1);
    assert!(!t.admits(section(3, 1, Exclusive)));
    t.ends(section(2, 1, Shared));
    assert!(t.admits(section(3, 1, Exclusive)));
}

/// A client says again what it was in: the one whose turn it was, and what it shares with others.
#[test]
fn what_is_claimed_keeps_others_out_as_before() {
    let mut t = Table::new();
    let (a, b, c) = (section(1, 1, Exclusive), section(2, 1, Shared), section(2, 2, Exclusive));
    t.0.claim(FILE, a).unwrap();
    t.0.claim(FILE, a).unwrap();
    assert!(!t.admits(b));
    t.ends(a);
    assert!(t.admits(b) && t.admits(c), "mds-Y5: the leases of one session do not conflict");
    t.ends(b);
    assert!(!t.admits(a));
    t.0.claim(FILE, c).unwrap();
    t.ends(c);
    assert!(t.admits(a));
    t.ends(a);
    assert_eq!(t.0.places(), 0);
}

/// mds-Y7: two writers go together from the second request on, without a turn for each write.
#[test]
fn y7_a_writer_beside_another_gets_a_many_lease_and_a_lone_one_the_exclusive() {
    let mut t = Table::new();
    let asks = |t: &mut Table, who| t.0.enter(FILE, who, t.1).unwrap();
    let (a, b) = (|token| section(1, token, Many), |token| section(2, token, Many));
    assert_eq!(asks(&mut t, a(1)), Some(Exclusive));
    assert_eq!((asks(&mut t, b(1)), asks(&mut t, a(1))), (None, Some(Exclusive)));
    assert_eq!(t.0.recall(FILE, &b(1), t.1), [(SessionId(1), 1)]);
    t.ends(a(1));
    assert_eq!(
        (asks(&mut t, b(1)), asks(&mut t, a(2))),
        (Some(Many), Some(Many)),
        "the one before writes on at once"
    );
    assert_eq!(t.0.recall(FILE, &a(2), t.1), []);
    // A reader has them all back, and waits for no later writer (mds-X3).
    let reader = section(3, 1, Shared);
    assert_eq!(asks(&mut t, reader), None);
    assert_eq!(t.0.recall(FILE, &reader, t.1), [(SessionId(1), 2), (SessionId(2), 1)]);
    t.ends(a(2));
    assert_eq!((asks(&mut t, a(3)), asks(&mut t, reader)), (None, None));
    t.ends(b(1));
    assert_eq!((asks(&mut t, a(3)), asks(&mut t, reader)), (None, Some(Shared)));
    assert_eq!((asks(&mut t, b(2)), asks(&mut t, a(3))), (None, None));
    t.ends(reader);
    assert_eq!(asks(&mut t, a(3)), Some(Many), "another writer waits");
    t.ends(b(2));
    // A call that needs the file for itself comes between.
    let alone = section(2, 3, Exclusive);
    assert_eq!((asks(&mut t, alone), asks(&mut t, section(3, 2, Many))), (None, None));
    t.ends(a(3));
    t.ends(section(3, 2, Many));
    assert_eq!(asks(&mut t, alone), Some(Exclusive));
    t.ends(alone);
    assert_eq!(asks(&mut t, a(4)), Some(Exclusive), "no other session writes any more");
    t.ends(a(4));
    assert_eq!((asks(&mut t, reader), asks(&mut t, a(5))), (Some(Shared), None));
    t.ends(reader);
    assert_eq!(asks(&mut t, a(5)), Some(Exclusive), "a reader is no writer");
    t.ends(a(5));
    assert_eq!(t.0.places(), 0);
}

/// mds-Y6, mds-X3: random requests, returns and ends of sessions, against the list of what was granted.
#[test]
fn y6_leases_held_together_are_all_shared_or_all_many() {
    let mut dice = hammer::Dice::new(7);
    for round in 0..200 {
        let (mut t, mut held, mut waiting) = (Table::new(), Vec::<Section>::new(), Vec::<Section>::new());
        for token in 1..120 {
            match dice.below(8) {
                0..4 => {
                    let kind = [Shared, Many, Exclusive][dice.below(3)];
                    waiting.push(section(1 + dice.below(4) as u64, token, kind));
                }
                4..6 if !held.is_empty() => t.ends(held.swap_remove(dice.below(held.len()))),
                6 => {
                    let session = SessionId(1 + dice.below(4) as u64);
                    t.0.forget(session);
                    [&mut held, &mut waiting]
                        .into_iter()
                        .for_each(|all| all.retain(|s| s.session != session));
                }
                _ => {}
            }
            // In the order in which they came: what is granted goes with all that is held, and with all that waits before it.
            let mut before: Vec<Section> = Vec::new();
            for who in std::mem::take(&mut waiting) {
                let goes =
                    |kind, s: &Section| s.session == who.session || (s.kind == kind && kind != Exclusive);
                let granted = t.0.enter(FILE, who, t.1).unwrap();
                let is_free =
                    held.iter().all(|s| goes(who.kind, s)) && before.iter().all(|s| goes(who.kind, s));
                assert_eq!(granted.is_some(), is_free, "round {round}, {who:?}");
                match granted {
                    Some(kind) => {
                        assert!(
                            held.iter().all(|s| goes(kind, s)),
                            "round {round}: {kind:?} beside {held:?}"
                        );
                        assert!(kind == who.kind || (who.kind, kind) == (Many, Exclusive));
                        held.push(Section { kind, ..who });
                    }
                    None => before.push(who),
                }
            }
            waiting = before;
            assert_eq!(t.0.places(), held.len() + waiting.len());
        }
    }
}

/// As a set of numbers knows it.
#[test]
fn ended_knows_what_was_left_in_whatever_order() {
    let mut dice = hammer::Dice::new(7);
    for _ in 0..300 {
        let (mut ended, mut known, mut floor) = (Ended::default(), [false; 64], 0u64);
        for _ in 0..60 {
            let token = dice.below(64) as u64;
            match dice.below(8) {
                0 => {
                    floor = floor.max(token / 2);
                    ended.raise(floor);
                }
                _ => {
                    known[token as usize] = true;
                    ended.left(token);
                }
            }
            let is_over = |t: u64| t < floor || known[t as usize];
            (0..64).for_each(|t| assert_eq!(ended.is_over(t), is_over(t), "{t}"));
            let begins = (1..64).filter(|t| is_over(*t) && !is_over(t - 1)).count();
            assert_eq!(ended.stretches(), begins, "each by itself");
        }
    }
}

/// A call may take a minute, in which others of its client come and go by the million.
#[test]
fn one_that_takes_long_is_not_over_however_many_end_meanwhile() {
    let mut ended = Ended::default();
    ended.raise(5);
    (6..3_000_000).for_each(|token| ended.left(token));
    assert!(!ended.is_over(5) && ended.is_over(6) && ended.stretches() == 1);
    ended.left(5);
    assert!(ended.is_over(5) && ended.stretches() == 0);
    // Who leaves out every other one is not remembered without end.
    (1_500_000..2_500_000).for_each(|n| ended.left(2 * n));
    assert!(ended.stretches() <= 2 * SECTIONS_MAX && ended.is_over(4_999_998));
    ended.left(u64::MAX);
    assert!(ended.is_over(u64::MAX) && !ended.is_over(u64::MAX - 1));
}

fn sessions(ids: &[u64]) -> Sessions {
    let (sessions, nobody) = (Sessions::default(), types::Uuid::default());
    let new = |id| Session::new(SessionId(id), nobody, "", Claims::All, 0);
    ids.iter().for_each(|id| sessions.add(new(*id).into()));
    sessions
}
fn request(fid: Fid, token: u64, floor: u64) -> Enter {
    let (kind, write, now, held) = (Exclusive, false, types::Time::default(), None);
    Enter { fid, token, floor, kind, write, now, held }
}

/// What comes for a session that was looked at before it ended leaves nothing: nobody would ever take it away.
#[test]
fn of_a_session_that_has_ended_nothing_is_noted() {
    let (s, all, fid, gone) =
        (Sharers::new(&[SessionId(1), SessionId(2)]), sessions(&[1, 2]), Fid(7), SessionId(2));
    assert_eq!(s.enter(SessionId(1), &request(fid, 1, 1), &all), Ok(Some(Exclusive)));
    // It ends while it waits for its turn, and all others when it is over.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| s.enter(gone, &request(fid, 1, 1), &all));
        while s.state.lock().sections.waiting(fid) == 0 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        all.remove(gone);
        s.forget(gone, None);
        assert!(waiting.join().expect("no panic").is_err());
    });
    assert!(s.end_token(gone, 9, 1, &all).is_err());
    assert!(s.leave(gone, &Leave { fid, token: 9, floor: 1 }, &all).is_err());
    assert!(s.enter(gone, &request(fid, 9, 1), &all).is_err());
    s.note_open(gone, fid, true, &all);
    let state = s.state.lock();
    assert!(!state.ended.contains_key(&gone) && !state.opens.has(gone, fid));
    assert_eq!((state.sections.waiting(fid), state.sections.places()), (0, 1));
}

/// mds-X4: its end may overtake a request for it.
#[test]
fn a_section_that_was_left_is_not_begun_again() {
    let (s, all, fid) = (Sharers::new(&[SessionId(1), SessionId(2)]), sessions(&[1, 2]), Fid(7));
    let enter = |session, token, floor| s.enter(SessionId(session), &request(fid, token, floor), &all);
    let leave = |session, token, floor| {
        s.leave(SessionId(session), &Leave { fid, token, floor }, &all).expect("it lives")
    };
    assert_eq!(enter(1, 3, 3), Ok(Some(Exclusive)));
    // One waits while its end comes by.
    std::thread::scope(|scope| {
        let late = scope.spawn(|| enter(2, 5, 4));
        while s.state.lock().sections.waiting(fid) == 0 {
            std::thread::yield_now();
        }
        leave(2, 5, 4);
        assert!(late.join().expect("no panic").is_err());
    });
    assert!(enter(2, 5, 4).is_err(), "nor by a later copy");
    assert_eq!(enter(2, 4, 4), Ok(None), "an older one may go on, and waits");
    leave(2, 4, 6);
    leave(1, 3, 4);
    assert_eq!(enter(2, 6, 6), Ok(Some(Exclusive)));
    assert!(enter(2, 4, 4).is_err(), "below the floor all are over");
    leave(2, 6, 7);
    assert_eq!(enter(1, 8, 8), Ok(Some(Exclusive)), "nothing is left behind");
    assert!(s.state.lock().ended.values().all(|e| e.stretches() == 0));
}

#[test]
fn who_does_not_ask_again_is_passed() {
    let mut t = Table::new();
    let (a, b, c) = (section(1, 1, Exclusive), section(2, 1, Exclusive), section(3, 1, Exclusive));
    assert!(t.admits(a) && !t.admits(b));
    let begin = t.1;
    t.1 = begin + Duration::from_secs(1);
    assert!(!t.admits(c));
    t.ends(a);
    t.1 = begin + Duration::from_millis(1900);
    assert!(!t.admits(c), "the second still has its place");
    t.1 = begin + ASKS_WITHIN;
    assert!(t.admits(c));
    t.ends(c);
    assert_eq!(t.0.places(), 0);
}

#[test]
fn y4_holders_are_told_once_each_second_and_only_those_in_the_way() {
    let mut t = Table::new();
    let (a, b, c) = (section(1, 1, Shared), section(2, 1, Shared), section(3, 1, Exclusive));
    assert!(t.admits(a) && t.admits(b) && t.0.recall(FILE, &a, t.1).is_empty());
    let upgrade = section(1, 2, Exclusive);
    assert!(!t.admits(upgrade));
    assert_eq!(t.0.recall(FILE, &upgrade, t.1), [(SessionId(2), 1)], "not its own");
    assert!(!t.admits(c));
    assert_eq!(t.0.recall(FILE, &c, t.1), [(SessionId(1), 1)], "the other one was told");
    t.1 += ASKS_WITHIN;
    assert_eq!(t.0.recalled().filter(|(.., r)| r.is_wanted(t.1)).count(), 0);
    assert_eq!(t.0.recall(FILE, &c, t.1).len(), 2);
    assert_eq!(t.0.recalled().filter(|(.., r)| r.is_wanted(t.1)).count(), 2);
    [a, b].into_iter().for_each(|s| t.ends(s));
    assert_eq!(t.0.recalled().count(), 0);
}

#[test]
fn a_closed_file_has_no_leases_of_its_session() {
    let mut t = Table::new();
    let (a, b) = (section(1, 1, Shared), section(2, 1, Shared));
    assert!(t.admits(a) && t.admits(section(1, 2, Shared)) && t.admits(b));
    t.0.close(FILE, a.session);
    assert!(!t.admits(section(3, 1, Exclusive)) && t.0.places() == 2);
    t.0.close(FILE, b.session);
    assert!(t.admits(section(3, 1, Exclusive)));
}
