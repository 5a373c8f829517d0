//! An OST that takes the whole content of the other member as entries beside live ones.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::SplitMix;
use parking_lot::Mutex;

use super::life::{Memory, Outcome, Shape, draw_crash, is_long};
use super::pair::{Link, Pair, check_equal, shape};
use super::*;
use crate::upkeep::fill::Planted;

fn seeds(short: u64) -> u64 {
    if is_long() { 20 * short } else { short }
}

/// The link to a member that is filled.
struct FillLink {
    link: Arc<Link>,
    /// Entries stay in the primary's log.
    is_slow: AtomicBool,
    /// Where the receiver was empty, and the first entry of a filling whose end it got.
    emptied: Mutex<Seq>,
    filled: Mutex<Option<Seq>>,
}

impl FillLink {
    fn take(&self, entry: &Shipped) {
        if let Some(since) = self.link.other().filled_since(&entry.content)
            && since > *self.emptied.lock()
        {
            *self.filled.lock() = Some(since);
        }
    }
}

impl Companion for FillLink {
    fn order(&self, count: u32) -> Result<Place, Fault> {
        self.link.order(count)
    }
    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
        if self.is_slow.load(Ordering::Relaxed) {
            return Ok(());
        }
        let entry = Shipped { place, content: content.to_vec() };
        if self.link.other().last_seq().0 + 1 == place.first.0 {
            self.link.deliver(&entry)?;
            self.take(&entry);
        }
        Ok(())
    }
    fn flushed(&self) -> Seq {
        Seq(u64::MAX)
    }
    fn flush(&self, _: Seq) -> Result<(), Fault> {
        Ok(())
    }
    fn stage(&self, pages: &[u8]) -> Option<StageId> {
        self.link.stage(pages)
    }
}

/// A primary with content, and another member with content of its own.
pub struct Refilled {
    pub pair: Rc<RefCell<Pair>>,
    link: Arc<FillLink>,
    rng: SplitMix,
}

impl Refilled {
    pub fn new(seed: u64, memory: Memory) -> Refilled {
        let mut rng = SplitMix::new(seed);
        let shape = Shape { data_bytes: 4 << 20, ..shape(&mut rng) };
        let mut pair = Pair::of(shape, shape.format(), rng, memory);
        // 1. The first content of the other member, and changes that it does not know.
        (0..pair.life.rng.below(20)).for_each(|_| pair.step());
        pair.life.store.set_companion(None);
        pair.life.store.set_epoch(Epoch(5));
        for _ in 0..30 {
            live(&mut pair);
        }
        pair.link.line.store(5, Ordering::Relaxed);
        let link = Arc::new(FillLink {
            link: pair.link.clone(),
            is_slow: false.into(),
            emptied: Mutex::default(),
            filled: Mutex::default(),
        });
        let rig = Refilled { pair: Rc::new(RefCell::new(pair)), link, rng: SplitMix::new(seed ^ 0xf111) };
        rig.begin();
        rig
    }

    /// The other member becomes empty, and gets entries from here on.
    pub fn begin(&self) {
        let pair = self.pair.borrow();
        let end = pair.life.store.last_seq();
        pair.other.begin_refill(Epoch(5), end).unwrap();
        assert_eq!((pair.other.last_seq(), pair.other.session_count()), (end, 0));
        assert_eq!(pair.other.list(None, 10).unwrap().0, []);
        assert_eq!(pair.other.first_seq(), Seq(end.0 + 1));
        *pair.link.other.lock() = Some(pair.other.clone());
        pair.link.end.store(end.0, Ordering::Relaxed);
        (*self.link.emptied.lock(), *self.link.filled.lock()) = (end, None);
        pair.life.store.set_companion(Some(self.link.clone()));
    }

    fn filling(&mut self, gone: Option<Planted>) -> Filling {
        let mut filling = Filling::new(self.pair.borrow().life.store.clone());
        filling.pages_max = [1, 7, 30, 256][self.rng.below(4) as usize];
        filling.gone = gone;
        let (pair, mut rng) = (self.pair.clone(), SplitMix::new(self.rng.next_u64()));
        filling.between = Some(Box::new(move || {
            for _ in 0..rng.below(3).saturating_sub(rng.below(2)) {
                live(&mut pair.borrow_mut());
            }
        }));
        filling
    }

    /// One filling, with live changes in between. False: entries that the other member lacks are gone from the log.
    pub fn fill(&mut self, gone: Option<Planted>) -> bool {
        let mut filling = self.filling(gone);
        loop {
            let filled = filling.step().unwrap();
            if self.rng.below(4) == 0 {
                let is_slow = self.rng.below(3) == 0;
                self.link.is_slow.store(is_slow, Ordering::Relaxed);
            }
            for _ in 0..self.rng.below(3) {
                live(&mut self.pair.borrow_mut());
            }
            let is_ended = filled.end.is_some();
            if is_ended {
                self.link.is_slow.store(false, Ordering::Relaxed);
            }
            if (is_ended || self.rng.below(2) == 0) && !self.catch_up() {
                return false;
            }
            if self.rng.below(4) == 0 {
                self.pair.borrow_mut().other_works();
            }
            if is_ended {
                return true;
            }
        }
    }

    fn catch_up(&self) -> bool {
        let pair = self.pair.borrow();
        let (primary, other) = (&pair.life.store, &pair.other);
        loop {
            match primary.entries(other.last_seq(), 20_000) {
                Ok(entries) if entries.is_empty() => return true,
                Ok(entries) => {
                    for entry in entries {
                        other.append_shipped(&entry).unwrap();
                        self.link.take(&entry);
                    }
                }
                Err(StoreError::Trimmed(_)) => return false,
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let pair = self.pair.borrow();
        let filled = self.link.filled.lock().is_some();
        assert_eq!(pair.other.last_seq(), pair.life.store.last_seq());
        if !filled {
            return Err("the other member was not told of the end".into());
        }
        check_equal(&pair.other, pair.life.now())
    }
}

/// A change at the primary, which the other member may get later.
fn live(pair: &mut Pair) {
    let op = pair.draw();
    match pair.life.carry_out(&op) {
        Outcome::Done | Outcome::Refused(StoreError::NoSpace(_)) => {}
        other => panic!("{op:?}: {other:?}"),
    }
}

fn fill_all(gone: Option<Planted>) -> Result<u64, String> {
    let mut begun_anew = 0;
    for seed in 0..seeds(40) {
        let mut rig = Refilled::new(500 + seed, Memory::SinceFlush);
        // A log that is trimmed past the receiver has it begin anew.
        while !rig.fill(gone) {
            begun_anew += 1;
            rig.begin();
        }
        rig.check().map_err(|e| format!("seed {seed}: {e}"))?;
        // They go on together, and after a kill the receiver has it all.
        for _ in 0..10 {
            live(&mut rig.pair.borrow_mut());
        }
        let pair = rig.pair.borrow();
        check_equal(&pair.other, pair.life.now()).map_err(|e| format!("seed {seed}, later: {e}"))?;
        pair.other.flush_own().unwrap();
        let again = Engine::open(Arc::new(pair.other_medium.crash(Crash::DropAll)).media()).unwrap();
        check_equal(&again, pair.life.now()).map_err(|e| format!("seed {seed}, after a crash: {e}"))?;
        assert_eq!(again.lines().last().map(|(line, _)| *line), Some(Epoch(5)));
    }
    Ok(begun_anew)
}

#[test]
fn rf1_a_member_is_equal_after_a_filling_beside_a_generated_workload() {
    let begun_anew = fill_all(None).unwrap();
    assert!(begun_anew > 0, "no log was trimmed");
}

#[test]
fn rf1_planted_faults_of_a_filling_are_found() {
    for gone in [Planted::RangeChecked, Planted::EndIsLast, Planted::SessionsFilled] {
        let found = fill_all(Some(gone));
        assert!(found.is_err(), "{gone:?}");
    }
}

#[test]
fn rf3_an_end_does_not_count_at_a_member_that_was_emptied_since() {
    let mut rig = Refilled::new(600, Memory::SinceFlush);
    let mut filling = rig.filling(None);
    filling.step().unwrap();
    rig.begin();
    while filling.step().unwrap().end.is_none() {}
    assert!(rig.check().is_err_and(|e| e.contains("not told")), "it lacks what the first step gave");
    while !rig.fill(None) {
        rig.begin();
    }
    rig.check().unwrap();
}

#[test]
fn a_receiver_that_loses_power_at_any_event_opens_and_is_filled_again() {
    let mut crashes = 0;
    for seed in 0..seeds(8) {
        let mut rig = Refilled::new(700 + seed, Memory::All);
        let before = rig.pair.borrow().other_medium.events();
        rig.begin();
        rig.fill(None);
        let recording = rig.pair.borrow().other_medium.take_recording().unwrap();
        for events in before..=recording.events.len() {
            let crash = draw_crash(&mut rig.rng);
            let medium = Arc::new(recording.crash_at(events, crash));
            let other = Arc::new(Engine::open(medium.media()).unwrap());
            other.stand_by();
            {
                let mut pair = rig.pair.borrow_mut();
                (pair.other, pair.other_medium) = (other, medium);
                pair.life.store.checkpoint().unwrap();
            }
            rig.begin();
            while !rig.fill(None) {
                rig.begin();
            }
            rig.check().unwrap_or_else(|e| panic!("seed {seed}, event {events}: {e}"));
            crashes += 1;
        }
    }
    assert!(crashes > 15 * seeds(8), "{crashes}");
}

#[test]
fn a_page_that_the_primary_lost_is_filled_as_lost() {
    let rig = Refilled::new(800, Memory::SinceFlush);
    let pair = rig.pair.borrow();
    let store = &pair.life.store;
    let pages = pattern(5, 64 << 10);
    write(store, id(40), 0, &pages, None).unwrap();
    store.destage_all().unwrap();
    rig.begin();
    let site = store.index.get(&id(40)).unwrap().read().extents.site(3).unwrap();
    pair.life.medium.media().main.write_at(&[0xee; 512], store.at(site.page)).unwrap();
    let mut filling = Filling::new(store.clone());
    let filled = std::iter::repeat_with(|| filling.step().unwrap()).find(|filled| filled.end.is_some());
    assert_eq!((filled.unwrap().lost, filling.take_lost()), (1, vec![(id(40), 3)]));
    assert_eq!(filling.take_lost(), [], "each is told once");
    let other = &pair.other;
    let bad = read(other, id(40), 3 * 4096, 4096).unwrap_err();
    assert!(matches!(bad, StoreError::Damaged { offset: 12_288, .. }), "{bad}");
    assert!(read(other, id(40), 4 * 4096, 12 * 4096).unwrap().unwrap() == pages[4 * 4096..]);
}

#[test]
fn a_member_that_orders_is_not_emptied() {
    let rig = Refilled::new(801, Memory::SinceFlush);
    let pair = rig.pair.borrow();
    let refused = pair.life.store.begin_refill(Epoch(5), Seq(1)).unwrap_err();
    assert!(matches!(refused, StoreError::Foreign(_)), "{refused}");
}
