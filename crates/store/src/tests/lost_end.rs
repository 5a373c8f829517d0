//! A primary that is alone loses power, and with it the end of its log, while the other member takes its entries or its content.

use disk::SplitMix;

use super::fill::Refilled;
use super::life::{Memory, Shape, draw_crash, is_long};
use super::pair::{Pair, catch_up, check_equal, shape};
use super::*;

fn seeds(short: u64) -> u64 {
    if is_long() { 20 * short } else { short }
}

/// Power fails at the primary. The other member is cut to the log that the primary has then, takes the rest, and must be equal.
/// `None`: its checkpoint has more, so it would be filled. Gives how many entries the primary lost.
fn lose_end(pair: &mut Pair) -> Option<u64> {
    let end = pair.life.store.last_seq();
    let outage = draw_crash(&mut pair.life.rng);
    let primary = Engine::open(Arc::new(pair.life.medium.crash(outage)).media()).unwrap();
    let last = primary.last_seq();
    let other = match pair.other.last_seq() > last {
        false => pair.other.clone(),
        true => {
            let medium = Arc::new(pair.other_medium.crash(Crash::KeepAll));
            match Engine::open_cut(medium.media(), pair.other.settings, last) {
                Ok(other) => {
                    other.stand_by();
                    Arc::new(other)
                }
                Err(StoreError::Ahead { .. }) => return None,
                Err(e) => panic!("{e}"),
            }
        }
    };
    match catch_up(&primary, &other, 1 << 20) {
        Ok(()) => {}
        Err(StoreError::Trimmed(_)) => return None,
        Err(e) => panic!("{e}"),
    }
    assert_eq!(other.last_seq(), last);
    let moment = pair.life.history.iter().rfind(|m| m.mirror_seq <= last).unwrap();
    check_equal(&primary, &moment.world).unwrap_or_else(|e| panic!("the primary: {e}"));
    check_equal(&other, &moment.world).unwrap_or_else(|e| panic!("the other member: {e}"));
    Some(end.0 - last.0)
}

#[test]
fn rp8_a_member_that_took_entries_is_equal_after_the_primary_lost_the_end_of_its_log() {
    let (mut rounds, mut lost) = (0, 0);
    for seed in 0..seeds(120) {
        let mut rng = SplitMix::new(1300 + seed);
        let shape = Shape { log_bytes: 1 << 20, ..shape(&mut rng) };
        let mut pair = Pair::of(shape, shape.format(), rng, Memory::All);
        (0..10).for_each(|_| pair.step());
        // 1. The other one is away.
        pair.life.store.set_companion(None);
        pair.life.store.set_epoch(Epoch(9));
        for _ in 0..30 {
            if pair.step_alone() && pair.life.rng.below(8) == 0 {
                pair.life.store.destage_all().unwrap();
            }
        }
        // 2. It takes some letters, or all, and has them on its medium.
        let bytes_max = [1, 10_000, 1 << 20][pair.life.rng.below(3) as usize];
        for _ in 0..=pair.life.rng.below(3) {
            match pair.life.store.entries(pair.other.last_seq(), bytes_max) {
                Ok(entries) => entries.iter().for_each(|entry| {
                    pair.other.append_shipped(entry).unwrap();
                }),
                Err(StoreError::Trimmed(_)) => break,
                Err(e) => panic!("{e}"),
            }
        }
        pair.other.flush_own().unwrap();
        // 3.
        if let Some(gone) = lose_end(&mut pair) {
            (rounds, lost) = (rounds + 1, lost + gone);
        }
    }
    assert!(rounds > seeds(60) && lost > rounds / 2, "{rounds} {lost}");
}

#[test]
fn rf4_a_filled_member_is_equal_after_the_primary_lost_the_end_of_its_log() {
    let (mut rounds, mut lost) = (0, 0);
    for seed in 0..seeds(60) {
        let mut rig = Refilled::new(1500 + seed, Memory::All);
        while !rig.fill(None) {
            rig.begin();
        }
        let mut pair = rig.pair.borrow_mut();
        pair.other.flush_own().unwrap();
        if let Some(gone) = lose_end(&mut pair) {
            (rounds, lost) = (rounds + 1, lost + gone);
        }
    }
    assert!(rounds > seeds(20), "{rounds} {lost}");
}
