//! The store's rules by name, on generated lives; those that one story shows are in `rules.rs`.

use std::collections::{BTreeMap, HashSet};

use disk::{Event, SplitMix};

use super::life::{Life, Memory, draw_crash, open};
use super::map::Map;
use super::ops::{Op, Reach};
use super::world::{PAGE, Page, World, compare};
use super::*;

const SEEDS: u64 = 20;

/// Pages of the data region that a store names now.
fn named(store: &Engine) -> HashSet<u64> {
    let mut pages = HashSet::new();
    for (_, state) in store.index.snapshot() {
        state.extents.iter().for_each(|(_, e)| pages.extend(e.run.start..e.run.end()));
    }
    pages
}

/// Pages that the store names now, and those that it would name after a reopen. The latter include, until a checkpoint, the pages below
/// patches that were destaged meanwhile.
fn named_by_any(life: &Life) -> HashSet<u64> {
    let again = open(life.medium.crash(Crash::KeepAll));
    named(&life.store).union(&named(&again)).copied().collect()
}

#[test]
fn o1_no_page_is_written_or_discarded_that_a_state_names_which_recovery_may_want() {
    let mut touched = 0;
    for seed in 0..SEEDS {
        let mut life = Life::new(seed, Memory::SinceFlush);
        let region = life.store.vol.data_region();
        // The pages that each state names, from the last sealed one on.
        let mut wanted = vec![(life.store.vol.last_seq(), named_by_any(&life))];
        for _ in 0..150 {
            life.medium.record_with_unflushed();
            let checkpoints = life.store.checkpoints.load(std::sync::atomic::Ordering::Relaxed);
            let (op, _) = life.step();
            let events = life.medium.take_recording().unwrap().events;
            // One that makes a checkpoint on its way may use what that has freed, and so may later ones; a kill counts anew.
            let mut reached = life.store.vol.last_seq();
            if life.store.checkpoints.load(std::sync::atomic::Ordering::Relaxed) == checkpoints {
                // One that seals may use what it has sealed.
                let sealed = life.store.vol.sealed_seq();
                let from = wanted.iter().rposition(|(seq, _)| *seq <= sealed).unwrap();
                for page in pages_touched(&events, &region) {
                    touched += 1;
                    if let Some((seq, _)) = wanted[from..].iter().find(|(_, pages)| pages.contains(&page)) {
                        panic!("seed {seed}: {op:?} touched page {page} of the state after {seq:?}");
                    }
                }
                wanted.drain(..from);
            } else {
                wanted.clear();
                reached = reached.min(life.store.vol.sealed_seq());
            }
            wanted.push((reached, named_by_any(&life)));
        }
    }
    assert!(touched > 50 * SEEDS, "{touched}");
}

/// Pages of the data region that events wrote or discarded.
fn pages_touched(events: &[Event], region: &std::ops::Range<u64>) -> Vec<u64> {
    let mut pages = vec![];
    for event in events {
        let (at, len) = match event {
            Event::Write { offset, data } => (*offset, data.len() as u64),
            Event::Discard { offset, len } => (*offset, *len),
            Event::Flush | Event::FlushSide(_) => continue,
        };
        if region.contains(&at) {
            pages.extend((at - region.start) / PAGE as u64..(at + len - region.start).div_ceil(PAGE as u64));
        }
    }
    pages
}

#[test]
fn o2_the_log_is_cut_at_the_first_entry_whose_data_fails_and_not_before() {
    let mut cuts = 0;
    // Small writes have no data but in the log, so several lives are needed for some that have.
    for seed in 0..4 * SEEDS {
        let mut life = Life::new(seed, Memory::All);
        life.live(30);
        life.carry_out(&Op::Seal);
        life.live(25);
        let medium = life.medium.crash(Crash::KeepAll);
        let map = Map::of(&medium, &life.store);
        for (seq, place) in &map.data_of_tail {
            let spoilt = medium.copy();
            let sector = place.start + life.rng.below(8) * 512;
            spoilt.write_at(&pattern(*seq, 512), sector).unwrap();
            let store = open(spoilt);
            // The same page may be named by an earlier entry of the tail, but no other.
            let first = map.data_of_tail.iter().find(|(_, p)| p.start <= sector && sector < p.end).unwrap().0;
            assert_eq!(store.vol.last_seq(), Seq(first - 1), "seed {seed}: the data of entry {seq}");
            compare(&store, life.world_at(Seq(first - 1))).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            cuts += 1;
        }
    }
    assert!(cuts > 2 * SEEDS, "{cuts}");
}

/// The OST's part of the inline-to-object migration (meta-O4): the MDT drops the inline bytes after this flush. The rest of the rule is the
/// client's: `o4_growth_survives_power_loss_at_every_step` in testkit.
#[test]
fn o4_what_all_wrote_before_a_flush_is_there_whatever_fails_after_it() {
    for seed in 0..SEEDS {
        let mut life = Life::new(seed, Memory::SinceFlush);
        life.live(20);
        let content = pattern(seed, 100_000 + seed as usize * 777);
        let grown = id(70);
        let pieces: Vec<(usize, &[u8])> = content.chunks(9_000).enumerate().collect();
        let is_written = std::thread::scope(|scope| {
            let store = &life.store;
            let run =
                |(n, piece): &(usize, &[u8])| write(store, grown, *n as u64 * 9_000, piece, None).is_ok();
            let halves = pieces.split_at(pieces.len() / 2);
            let other = scope.spawn(move || halves.1.iter().all(run));
            halves.0.iter().all(run) && other.join().unwrap()
        });
        if !is_written {
            continue;
        }
        life.store.flush().unwrap();
        life.medium.record_with_unflushed();
        for n in 0..30 {
            let _ = write(&life.store, id(n % 5), n * 3000, &pattern(n, 5000), None);
            if n % 7 == 0 {
                life.store.checkpoint().unwrap();
            }
        }
        let recording = life.medium.take_recording().unwrap();
        for events in 0..=recording.events.len() {
            let after = recording.crash_at(events, draw_crash(&mut life.rng));
            let store = open(after);
            let found = read(&store, grown, 0, 1 << 20).unwrap();
            assert!(found.as_ref() == Some(&content), "seed {seed}, event {events}");
        }
    }
}

#[test]
fn o5_no_incarnation_is_served_twice_over_any_chain_of_crashes() {
    for seed in 0..SEEDS {
        let mut life = Life::new(seed, Memory::SinceFlush);
        let mut served = HashSet::new();
        for _ in 0..12 {
            assert!(served.insert(life.store.incarnation()), "seed {seed}");
            life.live(2);
            // Power fails while it starts, once or more often.
            let mut medium = Arc::new(life.medium.crash(draw_crash(&mut life.rng)));
            for _ in 0..life.rng.below(3) {
                medium.record_with_unflushed();
                drop(Engine::open(medium.media()).unwrap());
                let recording = medium.take_recording().unwrap();
                let events = life.rng.below(recording.events.len() as u64) as usize;
                medium = Arc::new(recording.crash_at(events, draw_crash(&mut life.rng)));
            }
            let store = Engine::open(medium.media()).unwrap();
            let world = life.world_at(store.vol.last_seq()).clone();
            assert!(served.insert(store.incarnation()), "seed {seed}");
            let medium = Arc::new(medium.crash(Crash::DropAll));
            life = Life::begin(medium, life.rng, life.reach, Memory::SinceFlush, world);
        }
    }
}

#[test]
fn s1_after_a_crash_each_page_is_old_or_new_and_never_mixed() {
    for seed in 0..SEEDS {
        let mut rng = SplitMix::new(seed);
        let rig = Rig::new();
        let (old, new) = (pattern(seed, 60_000), pattern(seed + 1000, 60_000));
        rig.write(id(1), 0, &old).unwrap();
        rig.seal();
        rig.disk.record();
        // Whole pages and parts of pages, in any order.
        let mut wanted: Vec<HashSet<Vec<u8>>> = old.chunks(PAGE).map(|page| [page.to_vec()].into()).collect();
        let mut now = old.clone();
        for _ in 0..12 {
            let at = rng.below(59_000) as usize;
            let len = (1 + rng.below(9_000) as usize).min(60_000 - at);
            rig.write(id(1), at as u64, &new[at..at + len]).unwrap();
            now[at..at + len].copy_from_slice(&new[at..at + len]);
            for (states, page) in wanted.iter_mut().zip(now.chunks(PAGE)) {
                states.insert(page.to_vec());
            }
        }
        let recording = rig.disk.take_recording().unwrap();
        for events in 0..=recording.events.len() {
            let after = recording.crash_at(events, draw_crash(&mut rng));
            let store = open(after);
            let found = read(&store, id(1), 0, 60_000).unwrap().unwrap();
            let is_whole = found.chunks(PAGE).zip(&wanted).all(|(page, states)| states.contains(page));
            assert!(is_whole, "seed {seed}, event {events}");
        }
    }
}

#[test]
fn s2_fragments_are_verified_before_anything_is_written() {
    let mut rng = SplitMix::new(2);
    let rig = Rig::new();
    for _ in 0..300 {
        let (offset, len) = (rng.below(50_000), 1 + rng.below(20_000) as usize);
        let mut data = pattern(rng.next_u64(), len);
        let crcs = fragment_crcs(offset, &data);
        let bad = rng.below(len as u64);
        data[bad as usize] ^= 1 << rng.below(8);
        rig.disk.record();
        let (mtime, gate) = (Time::default(), &anyone);
        let w = Write {
            object: id(1),
            offset,
            data: &data,
            crcs: &crcs,
            mtime,
            lease: 0,
            gate,
            origin: None,
            holder: None,
        };
        // The fragment is named by where it begins: a page, or where the write begins in one.
        let begin = ((offset + bad) / PAGE as u64 * PAGE as u64).max(offset);
        match rig.store.write(&w) {
            Err(StoreError::BadChecksum { object, offset }) => assert_eq!((object, offset), (id(1), begin)),
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.disk.take_recording().unwrap().events, []);
    }
}

#[test]
fn s3_the_answer_the_slot_and_the_change_are_one_entry() {
    let mut slots_seen = 0;
    for seed in 0..SEEDS {
        let mut life = Life::new(seed, Memory::All);
        life.live(80);
        let recording = life.medium.take_recording().unwrap();
        // Of each slot, the entries that filled it; with each of them comes the world after it, and no other.
        let mut filled = BTreeMap::<Seq, (SessionId, u32, Slot)>::new();
        for moment in &life.history {
            for (session, slots) in &moment.world.sessions {
                for (n, slot) in slots.iter().filter(|(_, s)| s.seq == moment.mirror_seq) {
                    filled.insert(moment.seq, (*session, *n, *slot));
                }
            }
        }
        for events in (0..=recording.events.len()).step_by(5) {
            let after = recording.crash_at(events, Crash::Sectors(seed + events as u64));
            let store = open(after);
            let last = store.vol.last_seq();
            compare(&store, life.world_at(last))
                .unwrap_or_else(|e| panic!("seed {seed}, event {events}: {e}"));
            // The answer of the very last change is in its slot, if the session still exists.
            if let Some((session, n, slot)) = filled.get(&last) {
                assert_eq!(store.slot(*session, *n), Some(*slot), "seed {seed}, event {events}");
            }
        }
        slots_seen += filled.len() as u64;
    }
    assert!(slots_seen > 5 * SEEDS, "{slots_seen}");
}

#[test]
fn s4_bytes_of_the_last_page_past_the_length_are_zero() {
    for seed in 0..SEEDS {
        let mut life = Life::new(seed, Memory::SinceFlush);
        for _ in 0..40 {
            life.live(5);
            if life.rng.below(10) == 0 {
                let crash = draw_crash(&mut life.rng);
                life.crash(crash);
            }
            let world: World = life.now().clone();
            for (object, m) in world.existing() {
                let (len, at) = (m.bytes.len(), m.bytes.len() / PAGE);
                if len % PAGE == 0 || m.pages.get(at) != Some(&Page::Data) {
                    continue;
                }
                let mut page = [9; PAGE];
                life.store.read_page(*object, at as u32, &mut page).unwrap();
                assert!(page[len % PAGE..].iter().all(|b| *b == 0), "seed {seed}: {object} of {len} bytes");
            }
        }
    }
}

/// A medium so small that nearly every operation meets its end.
fn crowded(seed: u64) -> Life {
    let shape = super::life::Shape {
        has_log_medium: seed % 2 == 1,
        log_bytes: 64 << 10,
        data_bytes: 1 << 20,
        reach: Reach { offset_max: 500_000, write_max: 120_000 },
    };
    Life::begin(shape.format(), SplitMix::new(seed), shape.reach, Memory::SinceFlush, World::default())
}

#[test]
fn s5_a_full_medium_refuses_before_anything_is_written_and_removing_always_works() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        let mut life = crowded(seed);
        for _ in 0..120 {
            let large = Op::Write {
                object: id(life.rng.below(6)),
                offset: life.rng.below(500_000),
                len: 100_000,
                salt: life.rng.next_u64(),
                lease: 0,
            };
            let (op, outcome) = match life.rng.below(2) {
                0 => life.step(),
                _ => (large.clone(), life.carry_out(&large)),
            };
            match (&op, outcome) {
                (_, super::life::Outcome::Done) => {}
                (
                    Op::Write { .. } | Op::Reserve { .. },
                    super::life::Outcome::Refused(StoreError::NoSpace(_)),
                ) => {
                    refused += 1;
                    // It left no trace: all else is as before.
                    compare(&life.store, life.now()).unwrap_or_else(|e| panic!("seed {seed}: {op:?}: {e}"));
                }
                // Operations that free space or need no data space are never refused.
                (op, other) => panic!("seed {seed}: {op:?}: {other:?}"),
            }
        }
        life.end();
    }
    assert!(refused > SEEDS * 3, "the medium was full often enough: {refused}");
}

#[test]
fn s6_a_write_to_reserved_pages_finds_space_whatever_else_was_written() {
    let mut kept = 0;
    for seed in 0..SEEDS {
        let mut life = crowded(seed);
        let promised = id(80);
        let pages = 1 + life.rng.below(60);
        let (offset, len, mtime, gate) = (0, pages * PAGE as u64, Time::default(), &anyone);
        let reserve = Reserve { object: promised, offset, len, end: 0, mtime, lease: 0, gate, origin: None };
        life.store.reserve(&reserve).unwrap();
        // The world does not know of it, so it is looked at here only.
        for n in 0..60 {
            let (at, len) = (life.rng.below(400_000), 1 + life.rng.below(90_000) as usize);
            let _ = write(&life.store, id(n % 6), at, &pattern(n, len), None);
        }
        if life.rng.below(2) == 0 {
            life.store = Arc::new(open(life.medium.crash(Crash::KeepAll)));
        }
        while write(&life.store, id(90 + kept), 0, &[1; PAGE], None).is_ok() {
            kept += 1;
        }
        let bytes = pattern(seed, len as usize);
        write(&life.store, promised, 0, &bytes, None).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(read(&life.store, promised, 0, len as u32).unwrap().unwrap() == bytes);
    }
}
