//! Sections in their order, and what is noted of whom.

use wire::session::Claims;

use super::sections::{ASKS_WITHIN, SECTIONS_MAX};
use super::*;
use crate::sessions::Session;

fn section(session: u64, token: u64, exclusive: bool) -> Section {
    Section { session: SessionId(session), token, exclusive }
}

const FILE: Fid = Fid(7);

/// Those of one file, and a time.
struct Table(Turns, Instant);

impl Table {
    fn new() -> Table {
        Table(Turns::default(), Instant::now())
    }
    fn admits(&mut self, who: Section) -> bool {
        self.0.enter(FILE, who, self.1).unwrap()
    }
    fn ends(&mut self, who: Section) {
        self.0.let_go(FILE, who.session, who.token)
    }
}

#[test]
fn sections_are_given_in_order_and_shared_ones_together() {
    let mut t = Table::new();
    let (a, b, c, d) =
        (section(1, 1, false), section(2, 1, false), section(1, 2, true), section(2, 2, false));
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
    let own = |token| section(1, token, false);
    (1..SECTIONS_MAX as u64).for_each(|token| assert!(t.admits(own(token))));
    let other = Section { session: SessionId(2), ..own(1) };
    assert!(t.admits(other) && !t.admits(section(1, 0, true)), "one that waits counts, too");
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
    assert!(t.admits(section(2, 1, false)) && t.admits(own(1)));
    t.0.forget(SessionId(1));
    assert_eq!(t.0.places(), 1);
    assert!(!t.admits(section(3, 1, true)));
    t.ends(section(2, 1, false));
    assert!(t.admits(section(3, 1, true)));
}

/// A client says again what it was in: the one whose turn it was, and what it shares with others.
#[test]
fn what_is_claimed_keeps_others_out_as_before() {
    let mut t = Table::new();
    let (a, b, c) = (section(1, 1, true), section(2, 1, false), section(2, 2, true));
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
    let (exclusive, write, now, held) = (true, false, types::Time::default(), None);
    Enter { fid, token, floor, exclusive, write, now, held }
}

/// What comes for a session that was looked at before it ended leaves nothing: nobody would ever take it away.
#[test]
fn of_a_session_that_has_ended_nothing_is_noted() {
    let (s, all, fid, gone) =
        (Sharers::new(&[SessionId(1), SessionId(2)]), sessions(&[1, 2]), Fid(7), SessionId(2));
    assert_eq!(s.enter(SessionId(1), &request(fid, 1, 1), &all), Ok(true));
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
    assert_eq!(enter(1, 3, 3), Ok(true));
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
    assert_eq!(enter(2, 4, 4), Ok(false), "an older one may go on, and waits");
    leave(2, 4, 6);
    leave(1, 3, 4);
    assert_eq!(enter(2, 6, 6), Ok(true));
    assert!(enter(2, 4, 4).is_err(), "below the floor all are over");
    leave(2, 6, 7);
    assert_eq!(enter(1, 8, 8), Ok(true), "nothing is left behind");
    assert!(s.state.lock().ended.values().all(|e| e.stretches() == 0));
}

#[test]
fn who_does_not_ask_again_is_passed() {
    let mut t = Table::new();
    let (a, b, c) = (section(1, 1, true), section(2, 1, true), section(3, 1, true));
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
    let (a, b, c) = (section(1, 1, false), section(2, 1, false), section(3, 1, true));
    assert!(t.admits(a) && t.admits(b) && t.0.recall(FILE, &a, t.1).is_empty());
    let upgrade = section(1, 2, true);
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
    let (a, b) = (section(1, 1, false), section(2, 1, false));
    assert!(t.admits(a) && t.admits(section(1, 2, false)) && t.admits(b));
    t.0.close(FILE, a.session);
    assert!(!t.admits(section(3, 1, true)) && t.0.places() == 2);
    t.0.close(FILE, b.session);
    assert!(t.admits(section(3, 1, true)));
}
