//! Comparison of two members (store-CM1, store-CM2), and what is given anew.

use disk::SplitMix;

use super::life::{Memory, Shape};
use super::ops::Reach;
use super::pair::Pair;
use super::*;
use crate::records::extent::Extent;
use crate::records::index::State;

fn pair(seed: u64) -> Pair {
    let shape = Shape {
        has_log_medium: false,
        log_bytes: 1 << 20,
        data_bytes: 8 << 20,
        reach: Reach { offset_max: 1 << 20, write_max: 200_000 },
    };
    Pair::of(shape, shape.format(), SplitMix::new(seed), Memory::SinceFlush)
}

/// Places that differ for certain, as a daemon finds them. `between` comes between the primary's look and the other member's.
fn differences(store: &Engine, other: &Engine, mut between: impl FnMut()) -> Vec<(ObjectId, u32)> {
    let (mut at, mut found) = (Walk::Behind(None), Vec::new());
    while at != Walk::End {
        let look = store.look(at).unwrap();
        between();
        let has = |seen: &Seen| other.has_seen(seen.object, (seen.first, seen.limit), &seen.content).unwrap();
        let mut doubted: Vec<(ObjectId, u32)> =
            look.ranges.iter().filter(|seen| !has(seen)).map(|seen| (seen.object, seen.first)).collect();
        if let Some((after, until)) = look.between {
            let but: Vec<ObjectId> = look.ranges.iter().map(|seen| seen.object).collect();
            doubted.extend(other.others(after, until, &but).unwrap().into_iter().map(|id| (id, 0)));
        }
        for (object, first) in doubted {
            loop {
                let seen = store.see(object, first, None).unwrap();
                if has(&seen) {
                    break;
                }
                if store.is_still(&seen) {
                    found.push((object, first));
                    break;
                }
            }
        }
        at = look.next;
    }
    found
}

#[test]
fn members_that_took_the_same_entries_are_equal_whatever_they_folded() {
    for seed in 0..12 {
        let mut pair = pair(seed);
        for _ in 0..40 {
            pair.step();
            pair.other_works();
        }
        assert_eq!(differences(&pair.life.store, &pair.other, || ()), [], "seed {seed}");
    }
}

#[test]
fn entries_that_come_during_a_comparison_are_no_differences() {
    let mut pair = pair(50);
    (0..20).for_each(|_| pair.step());
    let (store, other) = (pair.life.store.clone(), pair.other.clone());
    let mut rng = SplitMix::new(3);
    let between = || {
        for _ in 0..3 {
            let object = id(rng.below(12));
            match rng.below(4) {
                0 => drop(store.destroy(&[object], None).unwrap()),
                _ => drop(
                    write(&store, object, rng.below(300_000), &pattern(rng.next_u64(), 9000), None).unwrap(),
                ),
            }
        }
    };
    assert_eq!(differences(&store, &other, between), []);
    assert_eq!(differences(&store, &other, || ()), []);
}

#[test]
fn a_range_that_differs_is_found_and_gets_the_primarys_content() {
    type Fault = fn(&mut State);
    // As a fault of the index would leave one member. The first page of the range in which it is found.
    let rows: [(&str, u64, Fault, u32); 5] = [
        (
            "other bytes",
            30,
            |state| {
                let site = state.extents.site(3).unwrap();
                state.extents.put(3, Extent::one(site.page, site.crc ^ 1), &mut Vec::new());
            },
            0,
        ),
        ("a hole", 31, |state| state.cut(600, 601, &mut Vec::new()), 512),
        ("a length", 30, |state| state.len = 110_000, 0),
        ("an object less", 30, |state| *state = State::default(), 0),
        ("an object more", 40, |state| (state.exists, state.len) = (true, 5), 0),
    ];
    for (name, object, fault, first) in rows {
        let pair = pair(7);
        let (store, other) = (&pair.life.store, &pair.other);
        write(store, id(30), 0, &pattern(1, 100_000), None).unwrap();
        for n in 0..3 {
            write(store, id(31), n << 20, &pattern(n, 1 << 20), None).unwrap();
        }
        other.destage_all().unwrap();
        assert_eq!(differences(store, other, || ()), [], "{name}");
        {
            let _kept = other.index.load(&id(object)).unwrap();
            other.index.change(&id(object), fault);
        }
        assert_eq!(differences(store, other, || ()), [(id(object), first)], "{name}");
        assert!(store.fill_range(id(object), first).unwrap(), "{name}");
        assert_eq!(other.last_seq(), store.last_seq(), "it is an entry as any other");
        assert_eq!(differences(store, other, || ()), [], "{name}");
        let all = |store: &Engine, n| (store.stat(id(n)).unwrap(), read(store, id(n), 0, 1 << 20).unwrap());
        assert!([30, 31, 40].iter().all(|n| all(store, *n) == all(other, *n)), "{name}");
    }
}

#[test]
fn a_page_that_a_member_cannot_read_is_not_given_and_is_no_difference() {
    let rig = Rig::placing();
    rig.write(id(1), 0, &pattern(1, 30_000)).unwrap();
    rig.flip(rig.place(id(1), 3));
    let seen = rig.store.see(id(1), 0, None).unwrap();
    assert!(rig.store.has_seen(id(1), (0, u32::MAX), &seen.content).unwrap());
    let end = rig.store.last_seq();
    assert!(!rig.store.fill_range(id(1), 0).unwrap(), "a page that is lost would be lost at both members");
    assert_eq!(rig.store.last_seq(), end);
}
