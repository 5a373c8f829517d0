//! Two engines as a mirror in one process: a primary, which a life drives, a standby, and the way between them.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::SplitMix;
use parking_lot::Mutex;

use super::life::{Life, Memory, Outcome, Shape, draw_settings};
use super::ops::{Op, draw};
use super::world::{World, compare};
use super::*;

/// The other member, as the primary sees it, and the faults on the way.
#[derive(Default)]
pub struct Link {
    pub other: Mutex<Option<Arc<Engine>>>,
    /// Gives entries again.
    pub primary: Mutex<Weak<Engine>>,
    pub line: AtomicU64,
    pub end: AtomicU64,
    pub flushed: AtomicU64,
    pub stages: AtomicU64,
    /// One of so many stages is lost on the way; 0: none.
    pub lose_stages: AtomicU64,
    /// One of so many answers of the other member is lost.
    pub lose_answers: AtomicU64,
    pub no_stages: AtomicBool,
    pub is_away: AtomicBool,
    /// Entries that were sent again with their pages.
    pub again: AtomicU64,
    pub room: Mutex<Room>,
    /// Entries that were put off.
    pub put_off: AtomicU64,
}

/// The fate of an entry for which the other member has no room (store-RP6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// It comes all the same, and may wait.
    #[default]
    NotAsked,
    /// It comes once the other member's threads have made room. No entry waits.
    Awaited,
    /// Planted: it comes all the same, and must not wait.
    Ignored,
}

fn one_of(n: &AtomicU64, count: u64) -> bool {
    let n = n.load(Ordering::Relaxed);
    n > 0 && count.is_multiple_of(n)
}

impl Link {
    pub fn other(&self) -> Arc<Engine> {
        self.other.lock().clone().expect("there is another member")
    }

    fn check_here(&self) -> Result<(), Fault> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(Fault::new(Code::Timeout, "the other member does not answer")),
            false => Ok(()),
        }
    }

    pub fn deliver(&self, entry: &Shipped) -> Result<(), Fault> {
        let other = self.other();
        // An answer that was lost: the other member has it.
        if other.last_seq() >= entry.place.last {
            return Ok(());
        }
        if other.can_append(&entry.content) {
            let room = *self.room.lock();
            if room == Room::Awaited && !other.has_room_to_follow(&entry.content) {
                self.put_off.fetch_add(1, Ordering::Relaxed);
                other.make_log_room()?;
            }
            let before = other.checkpoints.load(Ordering::Relaxed);
            other.append_shipped(entry)?;
            let is_same = other.checkpoints.load(Ordering::Relaxed) == before;
            assert!(room == Room::NotAsked || is_same, "store-RP6: an entry waits for a checkpoint");
            return Ok(());
        }
        self.again.fetch_add(1, Ordering::Relaxed);
        let primary = self.primary.lock().upgrade().expect("the primary commits");
        catch_up(&primary, &other, 1)?;
        assert_eq!(other.last_seq(), entry.place.last, "the log has the entry already");
        Ok(())
    }
}

/// Sends what the other member lacks from the log.
pub fn catch_up(primary: &Engine, other: &Engine, bytes_max: usize) -> Result<(), StoreError> {
    loop {
        let entries = primary.entries(other.last_seq(), bytes_max)?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            assert!(other.can_append(&entry.content), "entries from the log have their pages");
            other.append_shipped(&entry)?;
        }
    }
}

impl Companion for Link {
    fn order(&self, count: u32) -> Result<Place, Fault> {
        self.check_here()?;
        let end = self.end.fetch_add(u64::from(count), Ordering::Relaxed);
        let line = Epoch(self.line.load(Ordering::Relaxed) as u32);
        Ok(Place { line, first: Seq(end + 1), last: Seq(end + u64::from(count)) })
    }
    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
        self.check_here()?;
        let entry = Shipped { place, content: content.to_vec() };
        self.deliver(&entry)?;
        if one_of(&self.lose_answers, place.last.0) {
            self.deliver(&entry)?;
        }
        Ok(())
    }
    fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Relaxed))
    }
    fn flush(&self, want: Seq) -> Result<(), Fault> {
        self.check_here()?;
        let flushed = self.other().flush_own()?;
        assert!(flushed >= want, "the other member has each committed entry");
        self.flushed.fetch_max(flushed.0, Ordering::Relaxed);
        Ok(())
    }
    fn stage(&self, pages: &[u8]) -> Option<StageId> {
        if self.no_stages.load(Ordering::Relaxed) || self.check_here().is_err() {
            return None;
        }
        let id = StageId(self.stages.fetch_add(1, Ordering::Relaxed) + 1);
        if !one_of(&self.lose_stages, id.0) {
            self.other().stage(id, pages).expect("a sound medium");
        }
        Some(id)
    }
}

/// A primary, which the life drives, and a standby.
pub struct Pair {
    pub life: Life,
    pub other: Arc<Engine>,
    pub other_medium: Arc<SimDisk>,
    pub link: Arc<Link>,
}

pub fn shape(rng: &mut SplitMix) -> Shape {
    Shape { has_log_medium: rng.below(2) == 0, ..Shape::draw(rng) }
}

impl Pair {
    pub fn new(seed: u64, memory: Memory) -> Pair {
        let mut rng = SplitMix::new(seed);
        let shape = shape(&mut rng);
        Pair::of(shape, shape.format(), rng, memory)
    }

    pub fn of(shape: Shape, other_medium: Arc<SimDisk>, mut rng: SplitMix, memory: Memory) -> Pair {
        let medium = shape.format();
        if memory == Memory::All {
            medium.record();
            other_medium.record();
        }
        let settings = draw_settings(&mut rng);
        let other = Arc::new(Engine::open_with(other_medium.media(), settings).unwrap());
        other.stand_by();
        let life = Life::begin(medium, rng, shape.reach, memory, World::default());
        let link = Arc::new(Link::default());
        link.line.store(3, Ordering::Relaxed);
        let mut pair = Pair { life, other, other_medium, link };
        pair.join();
        pair
    }

    pub fn join(&mut self) {
        *self.link.other.lock() = Some(self.other.clone());
        *self.link.primary.lock() = Arc::downgrade(&self.life.store);
        self.link.end.store(self.life.store.last_seq().0, Ordering::Relaxed);
        self.link.flushed.store(self.other.flush_own().unwrap().0, Ordering::Relaxed);
        self.life.store.set_companion(Some(self.link.clone()));
    }

    /// The next operation that concerns a mirror.
    pub fn draw(&mut self) -> Op {
        loop {
            let op = draw(&mut self.life.rng, self.life.reach);
            if !matches!(op, Op::Kill | Op::Restart | Op::Label(_)) {
                return op;
            }
        }
    }

    pub fn step(&mut self) {
        let op = self.draw();
        match self.life.carry_out(&op) {
            Outcome::Done | Outcome::Refused(StoreError::NoSpace(_)) => {}
            other => panic!("{op:?}: {other:?}"),
        }
        assert_eq!(self.other.last_seq(), self.life.store.last_seq(), "store-RP1, after {op:?}");
    }

    /// As `step`, while the other member is away. False: it was a checkpoint, which would trim the log, and is left out.
    pub fn step_alone(&mut self) -> bool {
        let op = self.draw();
        if matches!(op, Op::Checkpoint) {
            return false;
        }
        match self.life.carry_out(&op) {
            Outcome::Done | Outcome::Refused(StoreError::NoSpace(_)) => true,
            other => panic!("{op:?}: {other:?}"),
        }
    }

    /// Work that the standby does by itself; sometimes it is killed.
    pub fn other_works(&mut self) {
        let other = &self.other;
        match self.life.rng.below(8) {
            0 => other.checkpoint().unwrap(),
            1 => other.destage_all().unwrap(),
            2 => other.seal().unwrap(),
            3 => other.mark().unwrap(),
            4 => {
                let damage = Damage {
                    object: id(3),
                    offset: 0,
                    kind: DamageKind::Medium,
                    found_sec: 1,
                    is_repaired: false,
                };
                other.record_damage(damage).unwrap();
                other.clear_damage(Fid(0)).unwrap();
            }
            5 => {
                let last = other.last_seq();
                let settings = other.settings;
                let again = Engine::open_with(self.other_medium.media(), settings).unwrap();
                again.stand_by();
                assert_eq!(again.last_seq(), last, "a kill loses nothing");
                self.other = Arc::new(again);
                *self.link.other.lock() = Some(self.other.clone());
            }
            _ => {}
        }
    }

    pub fn check(&self) {
        check_equal(&self.other, self.life.now()).unwrap();
    }
}

/// The store has the content of the world, but for damage and scrub, which are private to a member.
pub fn check_equal(store: &Engine, want: &World) -> Result<(), String> {
    store.shrink_stages(0);
    let damage = store.damage().into_iter().map(|d| ((d.object, d.offset, d.kind), d.found_sec)).collect();
    compare(store, &World { damage, scrub: store.scrub(), ..want.clone() })
}
