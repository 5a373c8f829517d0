//! Sections in their order, and what is noted of whom.

use wire::session::Claims;

use super::sections::ASKS_WITHIN;
use super::*;
use crate::sessions::Session;

fn section(session: u64, token: u64, exclusive: bool) -> Section {
    Section { session: SessionId(session), token, exclusive }
}

#[test]
fn sections_are_given_in_order_and_shared_ones_together() {
    let (mut s, now) = (Sections::default(), Instant::now());
    let (a, b, c, d) =
        (section(1, 1, false), section(2, 1, false), section(1, 2, true), section(2, 2, false));
    assert!(s.admit(a, now) && s.admit(b, now), "shared ones go together");
    assert!(!s.admit(c, now), "an exclusive one waits");
    assert!(!s.admit(d, now), "and those after it wait behind it");
    s.inside.clear();
    assert!(!s.admit(d, now) && s.admit(c, now) && !s.admit(d, now));
    assert!(s.admit(c, now), "asked again it is inside still");
    s.inside.clear();
    assert!(s.admit(d, now) && s.queue.is_empty());
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
    let (s, all, fid, gone) = (Sharers::new(2), sessions(&[1, 2]), Fid(7), SessionId(2));
    assert_eq!(s.enter(SessionId(1), &request(fid, 1, 1), &all), Ok(true));
    // It ends while it waits for its turn, and all others when it is over.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| s.enter(gone, &request(fid, 1, 1), &all));
        while s.state.lock().sections[&fid].queue.is_empty() && !waiting.is_finished() {
            std::thread::yield_now();
        }
        all.remove(gone);
        s.forget(gone);
        assert!(waiting.join().expect("no panic").is_err());
    });
    assert!(s.end_token(gone, 9, 1, &all).is_err());
    assert!(s.leave(gone, &Leave { fid, token: 9, floor: 1 }, &all).is_err());
    assert!(s.enter(gone, &request(fid, 9, 1), &all).is_err());
    s.note_open(gone, fid, true, &all);
    let state = s.state.lock();
    assert!(!state.ended.contains_key(&gone) && state.opens.is_empty());
    assert!(state.sections[&fid].queue.is_empty());
}

/// X4: its end may overtake a request for it.
#[test]
fn a_section_that_was_left_is_not_begun_again() {
    let (s, all, fid) = (Sharers::new(2), sessions(&[1, 2]), Fid(7));
    let enter = |session, token, floor| s.enter(SessionId(session), &request(fid, token, floor), &all);
    let leave = |session, token, floor| {
        s.leave(SessionId(session), &Leave { fid, token, floor }, &all).expect("it lives")
    };
    assert_eq!(enter(1, 3, 3), Ok(true));
    // One waits while its end comes by.
    std::thread::scope(|scope| {
        let late = scope.spawn(|| enter(2, 5, 4));
        while s.state.lock().sections[&fid].queue.is_empty() {
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
    assert!(s.state.lock().ended.values().all(|e| e.others.is_empty()));
}

#[test]
fn who_does_not_ask_again_is_passed() {
    let (mut s, now) = (Sections::default(), Instant::now());
    assert!(s.admit(section(1, 1, true), now));
    assert!(!s.admit(section(2, 1, true), now));
    assert!(!s.admit(section(3, 1, true), now + Duration::from_secs(1)));
    s.inside.clear();
    assert!(
        !s.admit(section(3, 1, true), now + Duration::from_millis(1900)),
        "the second still has its place"
    );
    assert!(s.admit(section(3, 1, true), now + ASKS_WITHIN));
}
