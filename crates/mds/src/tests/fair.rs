//! Sessions that want more than their share of the executor, through the door.

use types::{Code, Seq, SessionId};
use wire::Header;

use super::rig::{Rig, holds_nothing};
use super::rules;

/// Two sessions that share: a greedy one and another.
fn two() -> (Rig, SessionId, SessionId) {
    let (rig, _) = Rig::fresh();
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady, "the first is to share");
    let hold = holds_nothing(1);
    rig.ask(&hold, rig.session).unwrap();
    let other = rig.attach(2).unwrap().session;
    let greedy = rig.session;
    (rig, greedy, other)
}

/// The places in the log of requests that stand in line together, in this order: session, slot, sequence. (Their rule reads nothing, so none
/// starts over because a record is away.)
fn places(rig: &Rig, asks: &[(SessionId, u32, u32)]) -> Vec<usize> {
    rig.mdt.core.kv.admit_all();
    let executor = &rig.mdt.core.executor;
    let seqs: Vec<Seq> = std::thread::scope(|s| {
        let held = executor.lead();
        let mut threads = Vec::new();
        for (session, slot, sequence) in asks.iter().copied() {
            let before = executor.waiting();
            let head = Header { call: rules::LEASE, session, slot, sequence, ..Header::default() };
            threads.push(s.spawn(move || rig.send(head, &[]).unwrap().0));
            while executor.waiting() == before {
                std::thread::yield_now();
            }
        }
        drop(held);
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    seqs.iter().map(|seq| seqs.iter().filter(|other| *other < seq).count()).collect()
}

/// mds-W4: with two batches' worth of another's requests before it in the line, a request is in the next batch.
#[test]
fn w4_who_floods_the_executor_keeps_nobody_from_the_next_batch() {
    let (rig, greedy, other) = two();
    let mut asks: Vec<_> = (1..=2).flat_map(|n| (0..64).map(move |slot| (greedy, slot, n))).collect();
    asks.push((other, 0, 1));
    let places = places(&rig, &asks);
    assert!(places[128] <= 2, "it is number {} of {}", places[128], places.len());
}

/// Of requests of one slot an entry takes one; who must wait for the next keeps only his own session's back, and their order stays.
#[test]
fn w4_who_floods_one_slot_keeps_only_himself_waiting() {
    let (rig, greedy, other) = two();
    let mut asks: Vec<_> = (1..=20).map(|n| (greedy, 7, n)).collect();
    asks.extend((0..5).map(|slot| (other, slot, 1)));
    let places = places(&rig, &asks);
    let (his, others) = places.split_at(20);
    assert!(his.is_sorted(), "in their order: {his:?}");
    assert!(others.iter().all(|place| *place <= 5), "all of the other's are in the first entry: {others:?}");
}
