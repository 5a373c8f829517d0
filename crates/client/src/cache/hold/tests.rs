//! The lease of one file in one thread, call by call.

use std::time::Duration;

use super::*;

const LIFE: u64 = 1;

fn begin(hold: &Hold, to: To, token: u64) -> Way {
    hold.begin(to, LIFE, true, Instant::now() + Duration::from_millis(1), || token)
}
fn asks(hold: &Hold, to: To, token: u64) {
    assert_eq!(begin(hold, to, token), Way::Ask { token, to, is_held: false });
}
fn granted(to: To, token: u64) -> Hold {
    let hold = Hold::default();
    asks(&hold, to, token);
    assert_eq!(hold.granted((token, to, LIFE), true, false, false), None);
    hold
}
fn back(to: To, token: u64) -> Return {
    Return { token, to, life: LIFE, has_pages: false }
}

#[test]
fn a_lease_serves_later_calls_without_a_request() {
    let hold = granted(To::Change, 1);
    assert_eq!(hold.end(), None);
    assert_eq!([begin(&hold, To::Read, 2), begin(&hold, To::Change, 3)], [Way::Use(To::Change); 2]);
    assert_eq!((hold.end(), hold.end()), (None, None));
    assert!(hold.is_current(LIFE) && !hold.is_current(LIFE + 1));
    assert_eq!(hold.begin_if_held(LIFE, true), Some(To::Change));
    assert_eq!(hold.begin_if_held(LIFE, false), None);
}

#[test]
fn cl1_cl2_a_recall_waits_for_calls_and_keeps_new_ones_out() {
    let hold = granted(To::Read, 1);
    assert_eq!(hold.recall(9), Recalled::Unknown);
    assert_eq!(hold.recall(1), Recalled::Later);
    assert_eq!((begin(&hold, To::Read, 2), hold.begin_if_held(LIFE, true)), (Way::Late, None));
    assert_eq!(hold.end(), Some(back(To::Read, 1)), "the last call gives it back");
    assert_eq!(hold.recall(1), Recalled::Later, "a thread does so already");
    assert_eq!(begin(&hold, To::Read, 2), Way::Late);
    hold.returned(1);
    asks(&hold, To::Read, 2);
}

#[test]
fn a_recall_between_calls_is_answered_at_once() {
    let hold = granted(To::Change, 1);
    hold.end();
    assert_eq!(hold.recall(1), Recalled::Now(back(To::Change, 1)));
    hold.put_off();
    assert_eq!(begin(&hold, To::Read, 2), Way::Late, "it is owed still");
    assert_eq!((hold.retry(), hold.retry()), (Some(back(To::Change, 1)), None));
}

#[test]
fn cl3_a_shared_lease_goes_back_while_the_exclusive_one_is_asked_for() {
    let hold = granted(To::Read, 1);
    hold.end();
    asks(&hold, To::Change, 2);
    assert_eq!(begin(&hold, To::Read, 3), Way::Use(To::Read), "readers go on meanwhile");
    assert_eq!(begin(&hold, To::Change, 3), Way::Late, "one thread asks");
    assert_eq!(hold.recall(1), Recalled::Later);
    assert_eq!(hold.end(), Some(back(To::Read, 1)));
    // The grant may come before the answer to the return.
    assert_eq!(hold.granted((2, To::Change, LIFE), true, false, false), None);
    hold.returned(1);
    assert!(hold.is_current(LIFE) && hold.end().is_none());
    assert_eq!(hold.recall(2), Recalled::Now(back(To::Change, 2)));
}

#[test]
fn an_upgrade_gives_the_shared_lease_back() {
    let hold = granted(To::Read, 1);
    hold.end();
    asks(&hold, To::Change, 2);
    assert_eq!(hold.granted((2, To::Change, LIFE), true, false, false), Some(1));
}

#[test]
fn a_recall_that_overtakes_the_grant_ends_the_lease_with_the_call() {
    let hold = Hold::default();
    asks(&hold, To::Change, 1);
    assert_eq!(hold.recall(1), Recalled::Later);
    hold.granted((1, To::Change, LIFE), true, false, false);
    assert_eq!(hold.end(), Some(back(To::Change, 1)));
}

#[test]
fn a_lease_that_may_have_run_out_is_confirmed_before_its_next_use() {
    let hold = granted(To::Change, 1);
    hold.end();
    let confirm = Way::Ask { token: 1, to: To::Change, is_held: true };
    assert_eq!(hold.begin(To::Read, LIFE, false, Instant::now(), || 2), confirm);
    assert_eq!(hold.recall(1), Recalled::Later, "not while it is confirmed");
    assert_eq!(hold.refused(1), Some(back(To::Change, 1)));
    hold.returned(1);
    let hold = granted(To::Change, 1);
    hold.end();
    hold.doubt();
    assert_eq!(hold.begin_if_held(LIFE, true), None);
    assert_eq!(hold.begin(To::Read, LIFE, true, Instant::now(), || 2), confirm);
    hold.granted((1, To::Change, LIFE), true, false, false);
    assert_eq!((begin(&hold, To::Read, 2), hold.end(), hold.end()), (Way::Use(To::Change), None, None));
}

fn fills(to: To, range: Range<u64>) -> Wish {
    Wish { to, pages: Pages::Filled { range, only_beside: false, is_read: true } }
}

#[test]
fn cp2_requests_outside_of_the_gap_wait_and_are_left_out() {
    let clearing = Clearing { waiting: vec![0..10, 20..30, 25..40], ..Clearing::default() };
    assert_eq!(clearing.next_gap(0, 100, 1000), Some(10..20));
    assert_eq!(clearing.next_gap(20, 100, 1000), Some(40..140));
    assert_eq!(clearing.next_gap(950, 100, 1000), Some(950..1000));
    assert_eq!(clearing.next_gap(1000, 100, 1000), Some(1000..u64::MAX));
    assert_eq!(clearing.next_gap(u64::MAX, 100, 1000), None);
}

#[test]
fn cp2_cp3_requests_that_the_kernel_waits_for_are_served() {
    let hold = granted(To::Change, 1);
    hold.end();
    let soon = || Instant::now() + Duration::from_secs(5);
    let begin = |wish: Wish| hold.begin(wish, LIFE, true, soon(), || 9);
    assert_eq!((begin(fills(To::Read, 0..10)), hold.end()), (Way::Use(To::Change), None));
    assert!(hold.keeps_pages(LIFE));
    assert_eq!(hold.recall(1), Recalled::Now(Return { has_pages: true, ..back(To::Change, 1) }));
    assert!(!hold.keeps_pages(LIFE));
    let calls = std::sync::atomic::AtomicU32::new(0);
    let drop_pages = |gap: &Range<u64>| {
        assert_eq!(*gap, if gap.start < 100 { 0..100 } else { 100..u64::MAX });
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        if first {
            // The kernel waits for a page that it writes, and for one that it reads.
            let written = Wish { to: To::Change, pages: Pages::Written };
            assert_eq!(
                (begin(written), begin(fills(To::Change, 5..6))),
                (Way::Use(To::Change), Way::Use(To::Change))
            );
            assert_eq!(hold.begin(To::Read, LIFE, true, Instant::now(), || 9), Way::Late, "other calls wait");
            assert_eq!((hold.end(), hold.end()), (None, None));
        }
    };
    std::thread::scope(|scope| {
        // One behind the end waits until the lease has gone back, and then asks for another.
        let waits = scope.spawn(|| begin(fills(To::Read, 500..600)));
        while hold.state.lock().clearing.as_ref().is_some_and(|clearing| clearing.waiting.is_empty()) {
            std::thread::yield_now();
        }
        hold.clear(500, |gap| {
            assert!(gap.end <= 500 || gap.start >= 600, "{gap:?}");
        });
        assert!(!waits.is_finished());
        hold.returned(1);
        assert_eq!(waits.join().unwrap(), Way::Ask { token: 9, to: To::Read, is_held: false });
    });
    hold.granted((9, To::Change, LIFE), true, false, true);
    hold.end();
    assert_eq!(hold.give_up_pages(), Some(Return { has_pages: true, ..back(To::Change, 9) }));
    hold.clear(100, drop_pages);
    assert_eq!(calls.into_inner(), 3, "the first gap twice");
}

/// The kernel has the page locked, so it drops none before the write is served.
#[test]
fn cp2_a_write_that_came_before_the_first_gap_is_served() {
    let hold = granted(To::Change, 1);
    hold.end();
    let begin = |wish: Wish| hold.begin(wish, LIFE, true, Instant::now() + Duration::from_secs(30), || 9);
    assert_eq!((begin(fills(To::Read, 0..10)), hold.end()), (Way::Use(To::Change), None));
    assert!(matches!(hold.recall(1), Recalled::Now(_)));
    let pages = Pages::Filled { range: 5..6, only_beside: false, is_read: false };
    let (is_served, served) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(begin(Wish { to: To::Change, pages }), Way::Use(To::Change));
            assert_eq!(hold.end(), None);
            is_served.send(()).unwrap();
        });
        // So that it waits already.
        std::thread::sleep(Duration::from_millis(20));
        let mut is_first = true;
        let drop_pages = std::sync::Mutex::new(|| {
            if std::mem::take(&mut is_first) {
                served.recv_timeout(Duration::from_secs(10)).expect("the write is served");
            }
        });
        hold.clear(100, |_| drop_pages.lock().unwrap()());
    });
}

#[test]
fn cl4_a_lease_of_another_life_is_none() {
    let hold = granted(To::Change, 1);
    hold.end();
    let way = hold.begin(To::Read, LIFE + 1, true, Instant::now(), || 2);
    assert_eq!(way, Way::Ask { token: 2, to: To::Read, is_held: false });
    assert_eq!((hold.refused(2), hold.recall(1)), (None, Recalled::Unknown));
    assert!(!hold.has_old_pages(LIFE + 1));
}

#[test]
fn cp4_dirty_pages_of_an_ended_lease_are_not_written() {
    let written = || Wish { to: To::Change, pages: Pages::Written };
    let hold = Hold::default();
    let begin = |wish: Wish, life| hold.begin(wish, life, true, Instant::now(), || 2);
    begin(fills(To::Change, 0..10), LIFE);
    hold.granted((2, To::Change, LIFE), true, false, true);
    assert_eq!((begin(written(), LIFE), hold.end(), hold.end()), (Way::Use(To::Change), None, None));
    assert_eq!(begin(written(), LIFE + 1), Way::Old);
    assert!(hold.has_old_pages(LIFE + 1));
    assert!(matches!(begin(fills(To::Read, 0..10), LIFE + 1), Way::Ask { .. }), "reads go on");
    hold.old_pages_dropped();
    assert!(!hold.has_old_pages(LIFE + 1));
}

/// client-CL8.
#[test]
fn cl8_a_many_lease_serves_writers_and_goes_back_before_any_other_call() {
    let hold = granted(To::Many, 1);
    assert_eq!((begin(&hold, To::Many, 2), hold.end()), (Way::Use(To::Many), None));
    assert_eq!(hold.begin_if_held(LIFE, true), None);
    assert_eq!(hold.begin_if_many(LIFE, true), Some(To::Many));
    assert!(hold.is_many(LIFE) && !hold.is_current(LIFE));
    assert_eq!(hold.end(), None);
    // The call of the grant uses it still.
    assert_eq!(begin(&hold, To::Read, 2), Way::Late);
    assert_eq!(begin(&hold, To::Many, 2), Way::Late, "it is to go back");
    assert_eq!(hold.end(), Some(back(To::Many, 1)));
    hold.returned(1);
    asks(&hold, To::Read, 2);
    hold.refused(2);
    for to in [To::Read, To::Change] {
        let hold = granted(To::Many, 1);
        hold.end();
        assert_eq!(begin(&hold, to, 2), Way::GiveBack(back(To::Many, 1)));
        hold.returned(1);
        asks(&hold, to, 2);
    }
}

/// client-CL8: pages that the kernel has would not show what other clients write.
#[test]
fn cl8_a_client_with_pages_asks_for_the_exclusive_lease() {
    let hold = granted(To::Read, 1);
    hold.end();
    assert_eq!(begin(&hold, To::Many, 2), Way::Ask { token: 2, to: To::Change, is_held: false });
    let hold = Hold::default();
    hold.note_pages();
    assert_eq!(begin(&hold, To::Many, 2), Way::Ask { token: 2, to: To::Change, is_held: false });
    let hold = granted(To::Change, 1);
    hold.end();
    assert_eq!(begin(&hold, To::Many, 2), Way::Use(To::Change));
    let hold = Hold::default();
    asks(&hold, To::Many, 1);
    hold.granted((1, To::Change, LIFE), true, false, false);
    assert!(hold.is_exclusive(LIFE));
}

#[test]
fn cl9_a_lease_is_kept_while_appends_follow_one_another() {
    let (hold, now) = (Hold::default(), Instant::now());
    assert!(!hold.is_kept_for_appends(1, now));
    hold.note_append(now);
    asks(&hold, To::Change, 1);
    assert!(
        hold.is_kept_for_appends(1, now) && !hold.is_kept_for_appends(2, now),
        "the recall overtook the grant"
    );
    hold.granted((1, To::Change, LIFE), true, false, false);
    let at = |ms| now + Duration::from_millis(ms);
    hold.note_append(at(5));
    assert!(hold.is_kept_for_appends(1, at(6)) && !hold.is_kept_for_appends(1, at(8)), "no append follows");
    hold.note_append(now + KEPT_FOR_APPENDS * 2);
    assert!(!hold.is_kept_for_appends(1, now + KEPT_FOR_APPENDS * 2), "not for longer");
    let hold = granted(To::Many, 1);
    hold.note_append(Instant::now());
    assert!(!hold.is_kept_for_appends(1, Instant::now()));
}
