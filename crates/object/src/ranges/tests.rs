//! Range locks against a naive list, and whole calls over several objects in every order.

use types::{Fid, Generation};

use super::*;

fn object(stripe: u16) -> ObjectId {
    ObjectId { fid: Fid(9), generation: Generation(1), component: 0, stripe, snapshot: 0 }
}
fn asked(stripe: u16, range: Range<u64>, access: Access) -> Asked {
    Asked { object: object(stripe), range, access }
}
fn owner(session: u64, number: u64) -> Owner {
    (SessionId(session), number)
}
fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

use Access::{Read, Write};

#[test]
fn r2_r3_requests_wait_for_locks_in_their_way_and_those_of_the_lock_go_on() {
    let mut ranges = Ranges::default();
    let me = owner(1, 7);
    assert_eq!(ranges.lock(at(0), me, asked(0, 10..20, Write)), Answer::Go);
    let wait = Answer::Wait { until: TERM };
    let table = [
        (asked(0, 0..10, Write), Answer::Go),
        (asked(0, 0..11, Write), wait),
        (asked(0, 19..30, Read), wait),
        (asked(0, 20..30, Read), Answer::Go),
        (asked(1, 10..20, Write), Answer::Go),
    ];
    for (request, want) in table {
        assert_eq!(ranges.admit(at(1), &request), want, "{request:?}");
    }
    assert_eq!(ranges.admit_locked(at(1), me, &asked(0, 10..20, Write)), Answer::Go);
    assert_eq!(ranges.admit_locked(at(1), me, &asked(0, 10..21, Write)), Answer::NotHeld);
    assert_eq!(ranges.admit_locked(at(1), owner(2, 7), &asked(0, 10..20, Read)), Answer::NotHeld);
    ranges.unlock(me, &object(0));
    assert_eq!(ranges.admit_locked(at(1), me, &asked(0, 10..20, Write)), Answer::NotHeld);
    // Readers go together, and their lock is not enough for a write.
    for n in 1..3 {
        assert_eq!(ranges.lock(at(2), owner(n, 1), asked(0, 0..9, Read)), Answer::Go);
    }
    assert_eq!(ranges.admit(at(2), &asked(0, 5..6, Read)), Answer::Go);
    assert_eq!(ranges.admit(at(2), &asked(0, 5..6, Write)), Answer::Wait { until: at(2) + TERM });
    assert_eq!(ranges.admit_locked(at(2), owner(1, 1), &asked(0, 5..6, Write)), Answer::NotHeld);
    ranges.forget(SessionId(1));
    ranges.forget(SessionId(2));
    assert!(ranges.is_empty());
}

#[test]
fn r4_a_lock_ends_by_itself_and_its_call_begins_anew() {
    let mut ranges = Ranges::default();
    assert_eq!(ranges.lock(at(0), owner(1, 1), asked(0, 0..9, Write)), Answer::Go);
    assert_eq!(ranges.lock(at(9), owner(2, 1), asked(0, 0..9, Write)), Answer::Wait { until: TERM });
    assert_eq!(ranges.lock(TERM, owner(2, 1), asked(0, 0..9, Write)), Answer::Go);
    assert_eq!(ranges.admit_locked(TERM, owner(1, 1), &asked(0, 0..9, Write)), Answer::NotHeld);
}

/// object-R1 to object-R4, against a list that is searched from end to end.
#[test]
fn random_locks_equal_a_list() {
    let mut dice = hammer::Dice::new(3);
    for round in 0..200 {
        let (mut ranges, mut list, mut now) =
            (Ranges::default(), Vec::<(Owner, Asked, Duration)>::new(), at(0));
        for _ in 0..80 {
            let who = owner(dice.below(3) as u64, dice.below(3) as u64);
            let start = dice.below(20) as u64;
            let access = if dice.below(2) == 0 { Read } else { Write };
            let request = asked(dice.below(2) as u16, start..start + 1 + dice.below(6) as u64, access);
            now += at(dice.below(900) as u64);
            list.retain(|(.., ends)| *ends > now);
            let meets = |held: &Asked| {
                held.object == request.object
                    && (held.access == Write || request.access == Write)
                    && held.range.clone().any(|byte| request.range.contains(&byte))
            };
            match dice.below(6) {
                0..2 => {
                    list.retain(|(o, held, _)| (*o, held.object) != (who, request.object));
                    let is_free = !list.iter().any(|(_, held, _)| meets(held));
                    let answer = ranges.lock(now, who, request.clone());
                    assert_eq!(answer == Answer::Go, is_free, "round {round}");
                    if is_free {
                        list.push((who, request, now + TERM));
                    }
                }
                2 => {
                    let last = list.iter().filter(|(_, held, _)| meets(held)).map(|(.., ends)| *ends).max();
                    let want = last.map_or(Answer::Go, |until| Answer::Wait { until });
                    assert_eq!(ranges.admit(now, &request), want, "round {round}");
                }
                3 => {
                    let covers = |(o, held, _): &(Owner, Asked, Duration)| {
                        (*o, held.object) == (who, request.object)
                            && (held.access == Write || access == Read)
                            && request.range.clone().all(|byte| held.range.contains(&byte))
                    };
                    let want = if list.iter().any(covers) { Answer::Go } else { Answer::NotHeld };
                    assert_eq!(ranges.admit_locked(now, who, &request), want, "round {round}");
                }
                4 => {
                    list.retain(|(o, held, _)| (*o, held.object) != (who, request.object));
                    ranges.unlock(who, &request.object);
                }
                _ if dice.below(4) == 0 => {
                    list.retain(|(o, ..)| o.0 != who.0);
                    ranges.forget(who.0);
                }
                _ => {}
            }
        }
    }
}

/// A call of one client over two objects, step by step.
struct Call {
    who: Owner,
    /// `None`: a read.
    stamp: Option<u64>,
    /// Objects in order; one: no locks.
    objects: Vec<usize>,
    locked: usize,
    done: usize,
    seen: Vec<u64>,
    /// Steps at which it began and ended.
    times: (usize, usize),
}

/// Every call takes its locks in order, works object by object, and then unlocks. Whatever their steps, no read over both objects sees
/// half a write, and none sees less than a call that ended before it began.
#[test]
fn calls_over_two_objects_are_seen_whole_in_every_order_of_steps() {
    let mut dice = hammer::Dice::new(11);
    for round in 0..3000 {
        let mut ranges = Ranges::default();
        let mut bytes = [0u64; 2];
        let mut calls: Vec<Call> = (0..4)
            .map(|n| Call {
                who: owner(n, 1),
                stamp: (dice.below(2) == 0).then_some(n + 1),
                objects: if dice.below(3) == 0 { vec![dice.below(2)] } else { vec![0, 1] },
                locked: 0,
                done: 0,
                seen: vec![],
                times: (usize::MAX, usize::MAX),
            })
            .collect();
        let (mut step, mut over) = (0, Vec::<usize>::new());
        let mut whole: Vec<u64> = vec![0];
        while over.len() < calls.len() {
            step += 1;
            assert!(step < 10_000, "round {round}: no call goes on");
            let n = dice.below(calls.len());
            if over.contains(&n) {
                continue;
            }
            let call = &mut calls[n];
            call.times.0 = call.times.0.min(step);
            let access = if call.stamp.is_some() { Write } else { Read };
            let crosses = call.objects.len() > 1;
            if crosses && call.locked < call.objects.len() {
                let answer =
                    ranges.lock(at(0), call.who, asked(call.objects[call.locked] as u16, 0..8, access));
                call.locked += usize::from(answer == Answer::Go);
                continue;
            }
            if call.done < call.objects.len() {
                let at_object = call.objects[call.done];
                let request = asked(at_object as u16, 0..8, access);
                let answer = match crosses {
                    true => ranges.admit_locked(at(0), call.who, &request),
                    false => ranges.admit(at(0), &request),
                };
                if answer == Answer::Go {
                    match call.stamp {
                        Some(stamp) => bytes[at_object] = stamp,
                        None => call.seen.push(bytes[at_object]),
                    }
                    call.done += 1;
                }
                continue;
            }
            call.objects.iter().for_each(|o| ranges.unlock(call.who, &object(*o as u16)));
            call.times.1 = step;
            over.push(n);
            whole.extend(call.stamp.filter(|_| crosses));
        }
        // Without writes of one object, both objects have the same bytes at each reading.
        let is_simple = calls.iter().all(|c| c.stamp.is_none() || c.objects.len() == 2);
        for read in calls.iter().filter(|c| c.stamp.is_none() && c.objects.len() == 2 && is_simple) {
            assert_eq!(read.seen[0], read.seen[1], "round {round}: half a write is seen");
            let before: Vec<_> =
                calls.iter().filter(|c| c.stamp.is_some() && c.times.1 < read.times.0).collect();
            assert!(before.is_empty() || read.seen[0] != 0, "round {round}: an ended write is not seen");
        }
        assert!(ranges.is_empty() && (!is_simple || whole.contains(&bytes[0])));
    }
}
