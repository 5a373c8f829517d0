//! The rules of a mirror of two engines: equal content, the primary's death at each event, loss of power at both, a member that was away.

use std::sync::atomic::{AtomicU64, Ordering};

use disk::{Op as DiskOp, SplitMix, When};

use super::life::{Memory, Outcome, SLOT_BYTES, Shape, draw_crash, is_long};
use super::ops::Reach;
use super::pair::{Link, Pair, Room, catch_up, check_equal, shape};
use super::world::check_books;
use super::*;

fn seeds(short: u64) -> u64 {
    if is_long() { 20 * short } else { short }
}

#[test]
fn rp1_both_members_have_equal_content_after_a_generated_workload() {
    let (mut again, mut steps) = (0, 0);
    for seed in 0..seeds(40) {
        let mut pair = Pair::new(seed, Memory::SinceFlush);
        let link = pair.link.clone();
        link.lose_stages.store(seed % 4, Ordering::Relaxed);
        link.lose_answers.store(seed % 3, Ordering::Relaxed);
        link.no_stages.store(seed % 5 == 4, Ordering::Relaxed);
        for _ in 0..60 {
            pair.step();
            pair.other_works();
            steps += 1;
        }
        pair.check();
        again += link.again.load(Ordering::Relaxed);
        // A take-over shows the same, and goes on.
        let before = pair.other.incarnation();
        let shown = Incarnation(before.0.max(pair.life.store.incarnation().0) + 5);
        let now = pair.other.promote(shown, None).unwrap();
        assert!(now > shown && pair.other.incarnation() == now, "store-O5");
        pair.check();
        let end = pair.other.last_seq();
        pair.other.set_epoch(Epoch(9));
        assert_eq!(write(&pair.other, id(50), 0, b"alone", None).unwrap().seq, Seq(end.0 + 1));
        assert_eq!(pair.other.lines().last(), Some(&(Epoch(9), Seq(end.0 + 1))));
        check_books(&pair.other).unwrap();
    }
    assert!(again > seeds(40), "{again} entries were sent again in {steps} steps");
}

#[test]
fn rp1_nothing_is_visible_or_answered_before_the_other_member_has_it() {
    /// Looks at the primary while its entry is under way.
    struct Looks {
        link: Arc<Link>,
        seen: AtomicU64,
    }
    impl Companion for Looks {
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.link.order(count)
        }
        fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
            let primary = self.link.primary.lock().upgrade().unwrap();
            let told = primary.index.get(&id(1)).map_or(0, |object| object.attrs().len);
            assert_eq!((told, primary.last_seq()), (place.first.0 - 2, Seq(place.first.0 - 1)));
            assert_eq!(primary.flushed_seq().0.max(place.first.0 - 1), place.first.0 - 1);
            self.seen.fetch_add(1, Ordering::Relaxed);
            self.link.commit(place, content)
        }
        fn flushed(&self) -> Seq {
            self.link.flushed()
        }
        fn flush(&self, want: Seq) -> Result<(), Fault> {
            self.link.flush(want)
        }
        fn stage(&self, pages: &[u8]) -> Option<StageId> {
            self.link.stage(pages)
        }
    }
    let pair = Pair::new(1, Memory::SinceFlush);
    let store = &pair.life.store;
    store.begin_session(SESSION).unwrap();
    let looks = Arc::new(Looks { link: pair.link.clone(), seen: AtomicU64::new(0) });
    store.set_companion(Some(looks.clone()));
    for n in 0..10u64 {
        write(store, id(1), n, &[1], None).unwrap();
    }
    assert_eq!((looks.seen.load(Ordering::Relaxed), store.last_seq()), (10, Seq(11)));
}

/// One after the other, a write would wait for both media.
#[test]
fn the_pages_of_a_write_go_to_both_media_at_the_same_time() {
    /// Has the primary write while the pages are on their way: every second time, and then they get lost every fourth time.
    struct Beside {
        link: Arc<Link>,
        calls: AtomicU64,
        writes: AtomicU64,
    }
    impl Companion for Beside {
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.link.order(count)
        }
        fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
            self.link.commit(place, content)
        }
        fn flushed(&self) -> Seq {
            self.link.flushed()
        }
        fn flush(&self, want: Seq) -> Result<(), Fault> {
            self.link.flush(want)
        }
        fn stage(&self, pages: &[u8]) -> Option<StageId> {
            self.link.stage(pages)
        }
        fn stage_beside(&self, pages: &[u8], meanwhile: &mut dyn FnMut()) -> Option<StageId> {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            if call % 2 == 0 {
                let primary = self.link.primary.lock().upgrade().unwrap();
                let before = primary.vol.counts().written(disk::counted::Place::Data).bytes;
                meanwhile();
                let written = primary.vol.counts().written(disk::counted::Place::Data).bytes - before;
                self.writes.fetch_add((written == pages.len() as u64) as u64, Ordering::Relaxed);
            }
            if call % 4 == 0 { None } else { self.link.stage(pages) }
        }
    }
    let pair = Pair::new(1, Memory::SinceFlush);
    let store = &pair.life.store;
    let beside =
        Arc::new(Beside { link: pair.link.clone(), calls: AtomicU64::new(0), writes: AtomicU64::new(0) });
    store.set_companion(Some(beside.clone()));
    let bytes = |n: u64| pattern(n, 32 * PAGE_SIZE);
    for n in 0..12u64 {
        write(store, id(1), n * 20 * PAGE_SIZE as u64, &bytes(n), None).unwrap();
    }
    assert_eq!((beside.calls.load(Ordering::Relaxed), beside.writes.load(Ordering::Relaxed)), (12, 6));
    for n in 0..11u64 {
        let at = n * 20 * PAGE_SIZE as u64;
        assert!(
            read(store, id(1), at, 20 * PAGE_SIZE as u32).unwrap().unwrap() == bytes(n)[..20 * PAGE_SIZE]
        );
    }
}

/// A device that takes milliseconds for each request would delay an answer by as many as the entry has pages.
#[test]
fn the_pages_of_an_entry_under_way_are_read_at_once() {
    /// Takes the entry from the log, as the sender does for a member that is behind.
    struct FromLog {
        link: Arc<Link>,
        reads: AtomicU64,
    }
    impl Companion for FromLog {
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.link.order(count)
        }
        fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
            let primary = self.link.primary.lock().upgrade().unwrap();
            let before = primary.vol.counts().reads.sizes().count();
            let entries = primary.entries(Seq(place.first.0 - 1), 1 << 20).unwrap();
            assert!(entries[0].content.len() > 64 * PAGE_SIZE, "it has its pages");
            self.reads.store(primary.vol.counts().reads.sizes().count() - before, Ordering::Relaxed);
            self.link.commit(place, content)
        }
        fn flushed(&self) -> Seq {
            self.link.flushed()
        }
        fn flush(&self, want: Seq) -> Result<(), Fault> {
            self.link.flush(want)
        }
        fn stage(&self, pages: &[u8]) -> Option<StageId> {
            self.link.stage(pages)
        }
    }
    let pair = Pair::new(3, Memory::SinceFlush);
    let store = &pair.life.store;
    let of_log = Arc::new(FromLog { link: pair.link.clone(), reads: AtomicU64::new(0) });
    store.set_companion(Some(of_log.clone()));
    let bytes = pattern(9, 64 * PAGE_SIZE);
    write(store, id(1), 0, &bytes, None).unwrap();
    let reads = of_log.reads.load(Ordering::Relaxed);
    assert!((1..8).contains(&reads), "{reads} reads");
    let at_other = read(&pair.other, id(1), 0, bytes.len() as u32).unwrap();
    assert_eq!(at_other, Some(bytes), "the other member has them");
}

#[test]
fn rp1_the_primary_dies_at_any_event_and_the_other_has_all_that_was_answered() {
    let mut deaths = 0;
    for seed in 0..seeds(8) {
        for after in 0..200 {
            let mut pair = Pair::new(100 + seed, Memory::SinceFlush);
            pair.life.faulty.fail(DiskOp::Write, When::After(after));
            let mut failed = None;
            for _ in 0..60 {
                let op = pair.draw();
                let answered = pair.life.now().clone();
                match pair.life.carry_out(&op) {
                    Outcome::Done | Outcome::Refused(StoreError::NoSpace(_)) => {}
                    // A write to the data region that fails changes nothing.
                    _ => {
                        failed = Some((op, answered));
                        break;
                    }
                }
            }
            let Some((op, answered)) = failed else { break };
            deaths += 1;
            // The change may be there, as its answer was lost.
            let mut next = answered.clone();
            next.apply(&op);
            let found = check_equal(&pair.other, &answered);
            let is_later = pair.life.history.last().unwrap().acknowledged == usize::MAX;
            let later = pair.life.now();
            if let Err(e) = found {
                assert!(is_later, "seed {seed}, event {after}, {op:?}: {e}");
                check_equal(&pair.other, later).unwrap_or_else(|e| panic!("seed {seed}, event {after}: {e}"));
            }
        }
    }
    assert!(deaths > 40 * seeds(8), "{deaths}");
}

#[test]
fn rp3_what_was_told_as_flushed_is_at_both_after_both_lose_power() {
    let mut crashes = 0;
    for seed in 0..seeds(6) {
        let mut pair = Pair::new(200 + seed, Memory::All);
        // Of each operation: events of both media when it was answered, and what was told as flushed then.
        let mut told = vec![(0, 0, Seq(0))];
        for _ in 0..40 {
            pair.step();
            if pair.life.rng.below(3) == 0 {
                pair.other.flush_own().unwrap();
            }
            let events = (pair.life.medium.events(), pair.other_medium.events());
            let flushed = pair.life.store.flushed_seq();
            assert!(flushed >= told.last().unwrap().2, "store-RP3: it never falls");
            told.push((events.0, events.1, flushed));
        }
        let recordings =
            [pair.life.medium.take_recording().unwrap(), pair.other_medium.take_recording().unwrap()];
        for (side, recording) in recordings.iter().enumerate() {
            for events in 0..=recording.events.len() {
                let floor = told.iter().filter(|t| [t.0, t.1][side] <= events).map(|t| t.2).max().unwrap();
                let crash = draw_crash(&mut pair.life.rng);
                let store = Engine::open(Arc::new(recording.crash_at(events, crash)).media()).unwrap();
                let last = store.last_seq();
                assert!(last >= floor, "seed {seed}, side {side}, event {events}: {floor:?}, found {last:?}");
                let moment = pair.life.history.iter().rfind(|m| m.mirror_seq <= last).unwrap();
                check_equal(&store, &moment.world)
                    .unwrap_or_else(|e| panic!("seed {seed}, side {side}, event {events}: {e}"));
                crashes += 1;
            }
        }
    }
    assert!(crashes > 50 * seeds(6), "{crashes}");
}

#[test]
fn a_member_that_was_away_is_equal_after_the_entries_of_the_log() {
    let (mut rounds, mut shipped) = (0, 0);
    for seed in 0..seeds(40) {
        let mut rng = SplitMix::new(300 + seed);
        let shape = Shape { log_bytes: 1 << 20, ..shape(&mut rng) };
        let mut pair = Pair::of(shape, shape.format(), rng, Memory::SinceFlush);
        (0..20).for_each(|_| pair.step());
        for _ in 0..3 {
            // 1. The other one is away. This member orders alone, under a new line.
            pair.life.store.set_companion(None);
            pair.life.store.set_epoch(Epoch(4 + pair.link.line.load(Ordering::Relaxed) as u32));
            let away = pair.other.last_seq();
            for _ in 0..30 {
                if !pair.step_alone() {
                    continue;
                }
                // Its places are used again.
                if pair.life.rng.below(4) == 0 {
                    pair.life.store.destage_all().unwrap();
                    pair.life.store.seal().unwrap();
                }
            }
            // 2. It comes back, and takes what the log still has.
            let bytes_max = [1, 10_000, 1 << 20][pair.life.rng.below(3) as usize];
            let first = pair.life.store.first_seq();
            match catch_up(&pair.life.store, &pair.other, bytes_max) {
                Ok(()) => {
                    assert!(first.0 <= away.0 + 1);
                    rounds += 1;
                    shipped += pair.other.last_seq().0 - away.0;
                }
                Err(StoreError::Trimmed(seq)) => {
                    assert!(first.0 > away.0 + 1 && seq.0 == away.0 + 1, "{first:?} {away:?}");
                    break;
                }
                Err(e) => panic!("seed {seed}: {e}"),
            }
            assert_eq!(pair.other.last_seq(), pair.life.store.last_seq(), "seed {seed}");
            check_equal(&pair.other, pair.life.now()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            // 3. They go on together.
            pair.join();
            (0..10).for_each(|_| pair.step());
            pair.check();
        }
    }
    assert!(rounds > seeds(40) && shipped > 10 * rounds, "{rounds} {shipped}");
}

#[test]
fn rp2_a_failed_commit_ends_the_life_and_the_next_start_has_the_entry() {
    let mut pair = Pair::new(7, Memory::SinceFlush);
    (0..20).for_each(|_| pair.step());
    let store = pair.life.store.clone();
    // A large write, with pages of its own.
    let (first, second) = (pattern(1, 128 << 10), pattern(2, 128 << 10));
    write(&store, id(1), 0, &first, None).unwrap();
    store.flush().unwrap();
    let told = store.flushed_seq();
    // The order is given, and then the other member is gone.
    struct Gone(Arc<Link>);
    impl Companion for Gone {
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.0.order(count)
        }
        fn commit(&self, _: Place, _: &[u8]) -> Result<(), Fault> {
            Err(Fault::new(Code::Timeout, "the other member is gone"))
        }
        fn flushed(&self) -> Seq {
            self.0.flushed()
        }
        fn flush(&self, _: Seq) -> Result<(), Fault> {
            Ok(())
        }
        fn stage(&self, _: &[u8]) -> Option<StageId> {
            None
        }
    }
    store.set_companion(Some(Arc::new(Gone(pair.link.clone()))));
    let failed = write(&store, id(1), 0, &second, None).unwrap_err();
    assert!(matches!(failed, StoreError::Ended(_)), "{failed}");
    let log_end = store.vol.last_seq();
    // Its pages are kept for the recovery that may want it, whatever is tried now.
    write(&store, id(3), 0, &pattern(9, 128 << 10), None).unwrap_err();
    // Neither visible, nor told, nor in a checkpoint; and nothing follows.
    assert!(read(&store, id(1), 0, 128 << 10).unwrap().unwrap() == first);
    assert!(matches!(write(&store, id(2), 0, b"x", None), Err(StoreError::Ended(_))));
    assert!(
        store
            .record_damage(Damage {
                object: id(1),
                offset: 0,
                kind: DamageKind::Medium,
                found_sec: 0,
                is_repaired: false
            })
            .is_err()
    );
    assert!(store.checkpoint().is_err() && store.mark().is_err());
    store.flush_own().unwrap();
    assert_eq!((store.flushed_seq(), store.last_seq(), store.vol.last_seq()), (told, told, log_end));
    store.close().unwrap();
    let incarnation = store.incarnation();
    let again = Engine::open(pair.life.medium.crash(Crash::KeepAll).side_media()).unwrap();
    assert!(again.incarnation() > incarnation, "there is no clean mark");
    assert_eq!(again.last_seq(), Seq(told.0 + 1));
    assert!(read(&again, id(1), 0, 128 << 10).unwrap().unwrap() == second);
    // Or the entry is cut, if the mirror went on without it.
    let cut =
        Engine::open_cut(pair.life.medium.crash(Crash::KeepAll).side_media(), Settings::default(), told)
            .unwrap();
    assert_eq!(cut.last_seq(), told);
    assert!(read(&cut, id(1), 0, 128 << 10).unwrap().unwrap() == first);
}

#[test]
fn a_log_is_not_cut_before_its_checkpoint() {
    let rig = Rig::new();
    write(&rig.store, id(1), 0, b"a", None).unwrap();
    write(&rig.store, id(1), 0, b"b", None).unwrap();
    rig.store.checkpoint().unwrap();
    let refused = Engine::open_cut(rig.disk.clone(), Settings::default(), Seq(1)).err().unwrap();
    assert!(refused.to_string().contains("the checkpoint has entries up to 2"), "{refused}");
}

/// Small writes until the log of the other member was full several times.
fn many_patches(room: Room) -> u64 {
    let pair = Pair::new(5, Memory::SinceFlush);
    *pair.link.room.lock() = room;
    let bytes = [7; 3000];
    for n in 0..4000u32 {
        write(&pair.life.store, id(1), u64::from(n % 16) * 4096, &bytes, None).unwrap();
    }
    assert_eq!(pair.other.last_seq(), pair.life.store.last_seq());
    pair.link.put_off.load(Ordering::Relaxed)
}

#[test]
fn rp6_no_entry_waits_for_a_checkpoint_of_the_standby() {
    assert!(many_patches(Room::Awaited) > 3);
    assert!(std::panic::catch_unwind(|| many_patches(Room::Ignored)).is_err());
}

#[test]
fn a_clean_stop_keeps_the_log_for_the_member_that_stopped_before() {
    let kept = (0..8).filter(|seed| is_kept_at_a_clean_stop(*seed)).count();
    assert!(kept > 2, "{kept} logs were short enough");
}

fn is_kept_at_a_clean_stop(seed: u64) -> bool {
    let mut pair = Pair::new(seed, Memory::SinceFlush);
    (0..4).for_each(|_| pair.step());
    pair.other.close().unwrap();
    // The one that is left goes on alone for a moment.
    let (primary, other) = (pair.life.store.clone(), pair.other_medium.media());
    pair.life.store.set_companion(Some(Arc::new(Gone(primary.last_seq().0.into()))));
    for n in 0..5u64 {
        write(&primary, id(2), n * 4096, &[n as u8; 100], None).unwrap();
    }
    // A checkpoint before the stop may have trimmed it.
    let is_there = primary.first_seq().0 <= pair.other.last_seq().0 + 1;
    let is_short = primary.vol.log_used() * 3 < primary.vol.log_capacity();
    primary.close().unwrap();
    let settings = Settings::default();
    let own = Engine::open_with(pair.life.medium.media(), settings).unwrap();
    let other = Engine::open_with(other, settings).unwrap();
    other.stand_by();
    assert!(other.last_seq() < own.last_seq());
    if !is_short || !is_there {
        return false;
    }
    let (first, has) = (own.first_seq(), other.last_seq());
    assert!(first.0 <= has.0 + 1, "it is filled: the log begins with {first}, and it has {has}");
    catch_up(&own, &other, 1 << 20).unwrap();
    assert_eq!(other.last_seq(), own.last_seq());
    for n in 0..5 {
        assert_eq!(read(&own, id(2), n * 4096, 100).unwrap(), read(&other, id(2), n * 4096, 100).unwrap());
    }
    true
}

/// The other member was declared out.
struct Gone(AtomicU64);

impl Companion for Gone {
    fn order(&self, count: u32) -> Result<Place, Fault> {
        let end = self.0.fetch_add(u64::from(count), Ordering::Relaxed);
        Ok(Place { line: Epoch(4), first: Seq(end + 1), last: Seq(end + u64::from(count)) })
    }
    fn commit(&self, _: Place, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    fn flushed(&self) -> Seq {
        Seq(u64::MAX)
    }
    fn flush(&self, _: Seq) -> Result<(), Fault> {
        Ok(())
    }
    fn stage(&self, _: &[u8]) -> Option<StageId> {
        None
    }
}

#[test]
fn rp4_a_standby_refuses_requests_gaps_and_entries_that_come_again() {
    let mut pair = Pair::new(11, Memory::SinceFlush);
    (0..10).for_each(|_| pair.step());
    let (store, other) = (pair.life.store.clone(), pair.other.clone());
    let refused = write(&other, id(1), 0, b"x", None).unwrap_err();
    assert!(matches!(&refused, StoreError::Refused(fault) if fault.code == Code::Moved), "{refused}");
    store.set_companion(None);
    let end = store.last_seq();
    write(&store, id(40), 0, b"one", None).unwrap();
    write(&store, id(40), 0, b"two", None).unwrap();
    let first = store.entries(end, 1).unwrap().remove(0);
    let second = store.entries(Seq(end.0 + 1), 1).unwrap().remove(0);
    let books = (other.usage(), other.vol.last_seq());
    for wrong in
        [&second, &Shipped { place: Place { last: second.place.last, ..first.place }, ..first.clone() }]
    {
        let refused = other.append_shipped(wrong).unwrap_err();
        assert!(matches!(refused, StoreError::Foreign(_)), "store-RP4: {refused}");
    }
    assert_eq!((other.usage(), other.vol.last_seq()), books, "nothing was taken");
    other.append_shipped(&first).unwrap();
    assert!(other.append_shipped(&first).is_err(), "store-RP4: it is here already");
    other.append_shipped(&second).unwrap();
    assert_eq!(read(&other, id(40), 0, 3).unwrap().unwrap(), b"two");
    assert!(store.append_shipped(&second).is_err(), "a member that orders takes none");
}

#[test]
fn rp5_other_bytes_under_the_id_of_a_stage_are_not_taken() {
    let pair = Pair::new(12, Memory::SinceFlush);
    pair.link.no_stages.store(true, Ordering::Relaxed);
    let pages = pattern(5, 64 << 10);
    // Of an earlier life of the primary, which counted its stages from 1 too.
    pair.other.stage(StageId(1), &pattern(6, 64 << 10)).unwrap();
    let stale = pair.other.usage().bytes_free;
    struct Stale(Arc<Link>);
    impl Companion for Stale {
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.0.order(count)
        }
        fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
            self.0.commit(place, content)
        }
        fn flushed(&self) -> Seq {
            self.0.flushed()
        }
        fn flush(&self, want: Seq) -> Result<(), Fault> {
            self.0.flush(want)
        }
        fn stage(&self, _: &[u8]) -> Option<StageId> {
            Some(StageId(1))
        }
    }
    pair.life.store.set_companion(Some(Arc::new(Stale(pair.link.clone()))));
    write(&pair.life.store, id(1), 0, &pages, None).unwrap();
    assert_eq!(pair.link.again.load(Ordering::Relaxed), 1);
    assert!(read(&pair.other, id(1), 0, 64 << 10).unwrap().unwrap() == pages);
    assert_eq!(pair.other.usage().bytes_free, stale - (64 << 10), "the stale stage still waits");
    pair.other.shrink_stages(0);
    assert_eq!(pair.other.usage().bytes_free, stale);
}

#[test]
fn a_standby_without_space_says_so_and_takes_nothing() {
    let mut rng = SplitMix::new(5);
    let shape = Shape {
        has_log_medium: false,
        log_bytes: 1 << 20,
        data_bytes: 4 << 20,
        reach: Reach { offset_max: 1, write_max: 1 },
    };
    let small = Shape { data_bytes: 1 << 20, ..shape };
    assert!(small.format().size() + (3 << 20) == shape.format().size() && SLOT_BYTES > 0);
    let pair = Pair::of(shape, small.format(), SplitMix::new(rng.next_u64()), Memory::SinceFlush);
    let bytes = pattern(1, 512 << 10);
    let mut written = 0;
    let failed = loop {
        match write(&pair.life.store, id(written), 0, &bytes, None) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(&failed, StoreError::Ended(why) if why.contains("no space")), "{failed}");
    assert!(written >= 1, "{written}");
    assert_eq!(pair.other.last_seq().0, written);
    check_books(&pair.other).unwrap();
    // A promise of space is refused as bytes are.
    let pair = Pair::of(shape, small.format(), SplitMix::new(8), Memory::SinceFlush);
    let (object, offset, len, mtime, gate) = (id(1), 0, 2 << 20, Time::default(), &anyone);
    let reserve = Reserve { object, offset, len, end: 0, mtime, lease: 0, gate, origin: None };
    let failed = pair.life.store.reserve(&reserve).unwrap_err();
    assert!(matches!(&failed, StoreError::Ended(why) if why.contains("no space")), "{failed}");
    assert_eq!((pair.other.last_seq(), pair.other.usage().objects), (Seq(0), 0));
}

#[test]
fn a_page_that_the_primary_lost_is_damaged_at_the_other_member_too() {
    let (primary, other) = (Rig::placing(), Rig::placing());
    other.store.stand_by();
    let pages = pattern(5, 64 << 10);
    primary.write(id(1), 0, &pages).unwrap();
    primary.disk.write_at(&[0xee; 512], primary.place(id(1), 3)).unwrap();
    let entries = primary.store.entries(Seq(0), 1 << 20).unwrap();
    assert_eq!(entries.len(), 1);
    other.store.append_shipped(&entries[0]).unwrap();
    // Recovery would take such a page for a torn one if the entry were not known to be flushed.
    for rig in [&other, &other.crashed(Crash::KeepAll), &other.crashed(Crash::DropAll)] {
        assert_eq!(rig.store.last_seq(), Seq(1));
        let bad = rig.read(id(1), 3 * 4096, 4096).unwrap_err();
        assert!(matches!(bad, StoreError::Damaged { offset: 12_288, .. }), "{bad}");
        assert!(rig.read(id(1), 4 * 4096, 12 * 4096).unwrap().unwrap() == pages[4 * 4096..]);
    }
}

#[test]
fn entries_that_only_concern_one_member_take_no_mirror_seq() {
    let rig = Rig::new();
    rig.write(id(1), 0, &pattern(1, 64 << 10)).unwrap();
    rig.flip(rig.place(id(1), 0));
    rig.write(id(1), 100, b"a part").unwrap();
    rig.store.destage_all().unwrap();
    rig.store.flush().unwrap();
    let (seq, log) = (rig.store.last_seq(), rig.store.vol.last_seq());
    // The patch cannot be folded, and holds the log.
    let mut n = 0;
    while rig.store.vol.last_seq().0 - log.0 == rig.store.last_seq().0 - seq.0 {
        n += 1;
        assert!(n < 20_000, "it is logged again");
        rig.store.fence(id(2), n).unwrap();
        if n % 500 == 0 {
            rig.store.destage().unwrap();
        }
    }
    rig.store.flush().unwrap();
    assert_eq!(rig.store.flushed_seq(), rig.store.last_seq());
    let end = rig.store.last_seq();
    rig.store.fence(id(2), n + 1).unwrap();
    assert_eq!((rig.store.last_seq(), rig.store.flushed_seq()), (Seq(end.0 + 1), end));
    // Each entry since is found by its mirror seq, and none of the others travels.
    let entries = rig.store.entries(Seq(end.0 - 5), 1 << 20).unwrap();
    assert_eq!(
        (entries[0].place.first, entries.last().unwrap().place.last),
        (Seq(end.0 - 4), Seq(end.0 + 1))
    );
    let again = rig.crashed(Crash::KeepAll);
    assert_eq!(again.store.last_seq(), rig.store.last_seq());
}

#[test]
fn a_running_store_is_mirrored_and_then_alone_again() {
    let mut pair = Pair::new(14, Memory::SinceFlush);
    (0..15).for_each(|_| pair.step());
    let store = pair.life.store.clone();
    store.flush().unwrap();
    let told = store.flushed_seq();
    store.set_companion(None);
    store.set_epoch(Epoch(20));
    (0..10).for_each(|_| drop(pair.life.step()));
    assert!(store.flushed_seq() >= told);
    // A change is refused, and the life goes on, while the companion orders nothing.
    pair.link.is_away.store(true, Ordering::Relaxed);
    let (store, last) = (pair.life.store.clone(), pair.life.store.last_seq());
    store.set_companion(Some(pair.link.clone()));
    let refused = write(&store, id(1), 0, b"x", None).unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    store.set_companion(None);
    assert_eq!(write(&store, id(1), 0, b"x", None).unwrap().seq, Seq(last.0 + 1));
}

trait SideMedia {
    fn side_media(self) -> disk::Media;
}
impl SideMedia for SimDisk {
    fn side_media(self) -> disk::Media {
        Arc::new(self).media()
    }
}

#[test]
fn threads_that_write_at_once_leave_both_members_equal() {
    let mut rng = SplitMix::new(77);
    let shape = Shape {
        has_log_medium: false,
        log_bytes: 1 << 20,
        data_bytes: 8 << 20,
        reach: Reach { offset_max: 1, write_max: 1 },
    };
    let pair = Pair::of(shape, shape.format(), SplitMix::new(rng.next_u64()), Memory::SinceFlush);
    pair.link.lose_stages.store(5, Ordering::Relaxed);
    let (store, other) = (&pair.life.store, &pair.other);
    (0..3).for_each(|n| _ = write(store, id(n), 0, &[9; 64 << 10], None).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            scope.spawn(move || {
                let mut rng = SplitMix::new(thread);
                for n in 0..60 {
                    let (object, at) = (id(rng.below(3)), rng.below(60_000));
                    let len = [100, 3000, 70_000][rng.below(3) as usize];
                    write(store, object, at, &pattern(thread << 32 | n, len), None).unwrap();
                }
            });
        }
        scope.spawn(|| (0..20).for_each(|_| other.destage_all().unwrap()));
        scope.spawn(|| (0..5).for_each(|_| other.checkpoint().unwrap()));
        scope.spawn(|| (0..5).for_each(|_| _ = store.flush().unwrap()));
    });
    assert_eq!(other.last_seq(), store.last_seq());
    for n in 0..3 {
        assert_eq!(store.stat(id(n)).unwrap(), other.stat(id(n)).unwrap());
        let all = |store: &Engine| read(store, id(n), 0, 1 << 20).unwrap().unwrap();
        assert!(all(store) == all(other), "object {n}");
    }
    assert!(pair.link.again.load(Ordering::Relaxed) > 0);
    // The largest write, which begins inside a page, has one page too many for a stage.
    let stages = pair.link.stages.load(Ordering::Relaxed);
    let large = pattern(99, BULK_MAX);
    write(store, id(5), 1, &large, None).unwrap();
    assert_eq!(pair.link.stages.load(Ordering::Relaxed), stages);
    assert!(read(other, id(5), 1, BULK_MAX as u32).unwrap().unwrap() == large);
}
