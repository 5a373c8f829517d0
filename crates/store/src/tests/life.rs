//! A store that lives: operations are carried out on it and on the oracle, and every answer is compared. It remembers each state that
//! was, by the log entry after which it was, so that what a crash leaves can be found among them.

use disk::volume::{Format, Media, NewLog, Volume};
use disk::{FaultyDisk, Outage, Side, SplitMix};

use super::ops::{Op, Reach, draw, draw_origin};
use super::world::{World, compare, compare_from, mtime_of};
use super::*;
use disk::freed::ROUNDS_YOUNG;

/// How a medium is divided, and how far operations reach on it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The log has a medium of its own.
    pub has_log_medium: bool,
    pub log_bytes: u64,
    pub data_bytes: u64,
    pub reach: Reach,
}

/// Enough for what the index keeps for sessions, damage and writes under way.
pub const SLOT_BYTES: u64 = 1 << 20;
/// Where the volume's log begins; see docs/formats/volume.md.
pub const LOG_BEGIN: u64 = 128 << 10;

impl Shape {
    /// From a log that a few dozen entries fill to one that never wraps; from a medium that is full all the time to one that never is.
    pub fn draw(rng: &mut SplitMix) -> Shape {
        let log_bytes = [16, 32, 64, 256, 1024][rng.below(5) as usize] << 10;
        let data_bytes = (1 + rng.below(4)) << 20;
        let offset_max = [60_000, 150_000, 400_000][rng.below(3) as usize];
        let write_max = [5_000, 40_000, 100_000][rng.below(3) as usize];
        Shape { has_log_medium: false, log_bytes, data_bytes, reach: Reach { offset_max, write_max } }
    }

    pub fn format(&self) -> Arc<SimDisk> {
        let format = Format { label: label(), log_bytes: self.log_bytes, checkpoint_bytes: SLOT_BYTES };
        let head = |log_bytes: u64| (LOG_BEGIN + log_bytes + 2 * SLOT_BYTES).next_multiple_of(1 << 20);
        let (medium, log) = match self.has_log_medium {
            false => (SimDisk::new(head(self.log_bytes) + self.data_bytes), None),
            true => {
                (SimDisk::pair(head(0) + self.data_bytes, LOG_BEGIN + self.log_bytes), Some(Uuid([8; 16])))
            }
        };
        let medium = Arc::new(medium);
        let of_log = medium.side(Side::Second);
        let log = log.map(|uuid| NewLog { disk: &*of_log, uuid });
        Volume::format_on(&*medium.side(Side::First), log, &format, false).unwrap();
        medium
    }
}

/// A state that was, from entry `seq` on.
pub struct Moment {
    pub seq: Seq,
    /// Mirror seq of the last public entry then.
    pub mirror_seq: Seq,
    pub world: World,
    /// How many events the medium had seen when the operation was acknowledged; the greatest number if it never was.
    pub acknowledged: usize,
}

/// From one opening to the next.
#[derive(Clone, Copy, Debug)]
struct Run {
    incarnation: Incarnation,
    /// Events of the medium when the store was open, and when its clean stop began.
    opened: usize,
    closing: usize,
}

/// The outcome of an operation.
#[derive(Debug)]
pub enum Outcome {
    Done,
    /// The change was not made.
    Refused(StoreError),
    /// It may have been made; the store has failed.
    Failed(StoreError),
}

/// The part of the history that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Everything, for crashes at any point of a recording, which begins with the life.
    All,
    /// The states that a crash now may leave.
    SinceFlush,
}

pub struct Life {
    pub medium: Arc<SimDisk>,
    /// Wraps the medium, or that of the data or of the log; the store uses this one.
    pub faulty: Arc<FaultyDisk>,
    /// `faulty`, and the other medium unwrapped.
    pub media: Media,
    pub store: Arc<Engine>,
    pub rng: SplitMix,
    pub reach: Reach,
    pub history: Vec<Moment>,
    /// Events of the medium when a flush had returned, and the last entry that it covered.
    floors: Vec<(usize, Seq)>,
    runs: Vec<Run>,
    /// Events when a label was begun and when it was durable, and its epoch.
    labels: Vec<(usize, usize, Epoch)>,
    memory: Memory,
    sequence: u32,
    /// How many operations changed something.
    pub changes: u64,
}

impl Life {
    /// Every second one has its log on a medium of its own.
    pub fn new(seed: u64, memory: Memory) -> Life {
        let mut rng = SplitMix::new(seed);
        let shape = Shape { has_log_medium: seed % 2 == 1, ..Shape::draw(&mut rng) };
        let medium = shape.format();
        if memory == Memory::All {
            medium.record();
        }
        Life::begin(medium, rng, shape.reach, memory, World::default())
    }

    /// Opens a medium that holds this world, and nothing else.
    pub fn begin(
        medium: Arc<SimDisk>,
        mut rng: SplitMix,
        reach: Reach,
        memory: Memory,
        world: World,
    ) -> Life {
        let (faulty, media) = faulty_of(&medium, &mut rng);
        let settings = draw_settings(&mut rng);
        let store = Arc::new(Engine::open_with(media.clone(), settings).unwrap());
        let sequence =
            world.sessions.values().flat_map(|s| s.values()).map(|s| s.sequence).max().unwrap_or(0);
        let (labels, history) = (vec![(0, 0, store.label().epoch)], vec![]);
        let (floors, runs) = (vec![], vec![]);
        let mut life = Life {
            medium,
            faulty,
            media,
            store,
            rng,
            reach,
            history,
            floors,
            runs,
            labels,
            memory,
            sequence,
            changes: 0,
        };
        let (seq, mirror_seq) = (life.store.vol.last_seq(), life.store.last_seq());
        life.history.push(Moment { seq, mirror_seq, world, acknowledged: 0 });
        life.opened();
        life
    }

    pub fn now(&self) -> &World {
        &self.history.last().unwrap().world
    }

    pub fn step(&mut self) -> (Op, Outcome) {
        let op = draw(&mut self.rng, self.reach);
        let outcome = self.carry_out(&op);
        (op, outcome)
    }

    /// Steps of a life on a healthy medium, where nothing fails.
    pub fn live(&mut self, steps: u64) {
        for _ in 0..steps {
            let (op, outcome) = self.step();
            match outcome {
                Outcome::Done | Outcome::Refused(StoreError::NoSpace(_)) => {}
                other => panic!("{op:?}: {other:?}"),
            }
        }
    }

    pub fn carry_out(&mut self, op: &Op) -> Outcome {
        self.sequence += 1;
        let origin = draw_origin(&mut self.rng, self.sequence);
        let (before, began) = (self.store.vol.last_seq(), self.medium.events());
        let mut next = self.now().clone();
        let answer = next.apply(op);
        let done = self.ask(op, origin, began);
        match done {
            Ok(Some(done)) => {
                assert_eq!(done.answer, answer, "the answer of {op:?}");
                next.record(origin, done);
                // Moments are told apart by log seqs: changes of damage and scrub have no other.
                if self.store.vol.last_seq() > before {
                    self.remember(self.store.vol.last_seq(), next);
                }
                Outcome::Done
            }
            Ok(None) => {
                if op.is_change() && self.store.vol.last_seq() > before {
                    self.remember(self.store.vol.last_seq(), next);
                }
                Outcome::Done
            }
            Err(e @ StoreError::Volume(disk::VolumeError::Failed(_))) => {
                // Were the entry there after all, it would be the next one.
                let seq = Seq(self.store.vol.last_seq().0 + 1);
                let mirror_seq = Seq(self.store.last_seq().0 + 1);
                next.record(origin.filter(|_| op.is_request()), Done { seq: mirror_seq, answer });
                self.remember(seq, next);
                self.history.last_mut().unwrap().acknowledged = usize::MAX;
                Outcome::Failed(e)
            }
            Err(e) => Outcome::Refused(e),
        }
    }

    /// The operation on the store. `None`: it has no answer.
    fn ask(&mut self, op: &Op, origin: Option<Origin>, began: usize) -> Result<Option<Done>, StoreError> {
        let (store, mtime, gate) = (&self.store, mtime_of(op), &anyone);
        match op {
            Op::Write { object, offset, len, salt, lease } => {
                let data = pattern(*salt, *len);
                let crcs = fragment_crcs(*offset, &data);
                let (object, offset, lease) = (*object, *offset, *lease);
                store
                    .write(&Write {
                        object,
                        offset,
                        data: &data,
                        crcs: &crcs,
                        mtime,
                        lease,
                        gate,
                        origin,
                        holder: None,
                    })
                    .map(Some)
            }
            Op::Reserve { object, offset, len, end } => {
                let (object, offset, len, end) = (*object, *offset, *len, *end);
                let reserve = Reserve { object, offset, len, end, mtime, lease: 0, gate, origin };
                store.reserve(&reserve).map(Some)
            }
            Op::Release { object, offset, len } => {
                let (object, offset, len) = (*object, *offset, *len);
                store.release(&Release { object, offset, len, lease: 0, gate, origin }).map(Some)
            }
            Op::Punch { object, offset, len, leave } => {
                let (object, offset, len, leave) = (*object, *offset, *len, *leave);
                let punch = Punch { object, offset, len, leave, mtime, lease: 0, gate, origin };
                store.punch(&punch).map(Some)
            }
            Op::Truncate { object, len } => {
                let (object, len) = (*object, *len);
                store.truncate(&Truncate { object, len, lease: 0, gate, origin }).map(Some)
            }
            Op::Destroy { objects } => store.destroy(objects, origin).map(Some),
            Op::Fence { object, lease } => store.fence(*object, *lease).map(|()| None),
            Op::Begin(session) => store.begin_session(*session).map(|()| None),
            Op::End(session) => store.end_session(*session).map(|()| None),
            Op::Damage(damage) => store.record_damage(*damage).map(|_| None),
            Op::Forget(fid) => store.clear_damage(*fid).map(|()| None),
            Op::Scrub(scrub) => store.set_scrub(*scrub).map(|()| None),
            Op::Label(epoch) => {
                self.labels.push((began, usize::MAX, *epoch));
                store.set_label(Label { epoch: *epoch, ..store.label() })?;
                self.labels.last_mut().unwrap().1 = self.medium.events();
                Ok(None)
            }
            Op::Read { object, offset, len } => {
                compare_from(store, self.now(), *object, *offset, *len)?;
                Ok(None)
            }
            Op::Verify { object } => {
                let found = store.verify(*object, 0, u32::MAX)?;
                match found.bad.first() {
                    None => {
                        assert_eq!(found.next, None, "{object}");
                        Ok(None)
                    }
                    Some((offset, kind)) => {
                        Err(StoreError::Damaged { object: *object, offset: *offset, kind: *kind })
                    }
                }
            }
            Op::Flush => {
                let (covered, wanted) = (store.vol.last_seq(), store.last_seq());
                let flushed = store.flush()?;
                assert!(flushed >= wanted && flushed == store.flushed_seq());
                self.flushed(covered);
                Ok(None)
            }
            Op::Mark => store.mark().map(|()| None),
            Op::Seal => {
                let covered = store.vol.last_seq();
                store.seal()?;
                // A mark of the volume needs no sealing itself.
                assert!(store.vol.sealed_seq() >= self.history.last().unwrap().seq);
                self.flushed(covered);
                Ok(None)
            }
            Op::Checkpoint => {
                let covered = store.vol.last_seq();
                store.checkpoint()?;
                self.flushed(covered);
                Ok(None)
            }
            Op::Destage { all } => {
                match *all {
                    true => store.destage_all()?,
                    false => drop(store.help()?),
                }
                Ok(None)
            }
            Op::Discard => {
                store.seal()?;
                store.reclaim_now();
                (0..2 * ROUNDS_YOUNG).try_for_each(|_| store.discard()).map(|()| None)
            }
            Op::Kill => self.open_again().map(|()| None),
            Op::Restart => {
                self.runs.last_mut().unwrap().closing = self.medium.events();
                self.store.close()?;
                self.open_again().map(|()| None)
            }
        }
    }

    /// The process ended; all that was acknowledged is in memory that outlives it.
    fn open_again(&mut self) -> Result<(), StoreError> {
        let (last, ran) = (self.store.vol.last_seq(), *self.runs.last().unwrap());
        self.store = Arc::new(Engine::open_with(self.media.clone(), self.store.settings)?);
        assert_eq!(self.store.vol.last_seq(), last, "a kill loses nothing");
        self.opened();
        compare(&self.store, self.now()).unwrap_or_else(|e| panic!("after a kill: {e}"));
        let incarnation = self.store.incarnation();
        match ran.closing {
            usize::MAX => assert!(incarnation > ran.incarnation, "store-O5: {incarnation:?} after a kill"),
            _ => assert_eq!(incarnation, ran.incarnation, "a clean stop is proof enough"),
        }
        Ok(())
    }

    /// After an open, all replayed entries are flushed.
    fn opened(&mut self) {
        let (incarnation, opened) = (self.store.incarnation(), self.medium.events());
        self.runs.push(Run { incarnation, opened, closing: usize::MAX });
        self.flushed(self.store.vol.last_seq());
    }

    fn flushed(&mut self, covered: Seq) {
        self.floors.push((self.medium.events(), covered));
        if self.memory == Memory::SinceFlush {
            let from = self.history.iter().rposition(|m| m.seq <= covered).unwrap_or(0);
            self.history.drain(..from);
            self.floors.drain(..self.floors.len() - 1);
            self.runs.drain(..self.runs.len().saturating_sub(1));
            self.labels.drain(..self.labels.len() - 1);
        }
    }

    fn remember(&mut self, seq: Seq, world: World) {
        self.changes += 1;
        let mirror_seq = self.store.last_seq();
        self.history.push(Moment { seq, mirror_seq, world, acknowledged: self.medium.events() });
    }

    /// The state after an entry.
    pub fn world_at(&self, seq: Seq) -> &World {
        let at = self.history.partition_point(|m| m.seq <= seq);
        &self.history[at.checked_sub(1).unwrap_or_else(|| panic!("{seq:?} is before all that is known"))]
            .world
    }

    /// The last entry that was flushed when the medium had seen so many events.
    pub fn flushed_at(&self, events: usize) -> Seq {
        let at = self.floors.partition_point(|(e, _)| *e <= events);
        self.floors[..at].iter().map(|(_, seq)| *seq).max().unwrap_or_default()
    }

    /// The last entry that was acknowledged then.
    pub fn acknowledged_at(&self, events: usize) -> Seq {
        let at = self.history.partition_point(|m| m.acknowledged <= events);
        self.history[..at].last().map_or(Seq(0), |m| m.seq)
    }

    /// store-O5, and the label: both are durable when the call that changed them has returned.
    pub fn check_numbers(&self, events: usize, store: &Engine) {
        let ran = self.runs.iter().rev().find(|r| r.opened <= events);
        if let Some(ran) = ran {
            let incarnation = store.incarnation();
            let is_serving = events < ran.closing;
            assert!(incarnation >= ran.incarnation, "store-O5: {incarnation:?} after {ran:?}");
            assert!(
                !is_serving || incarnation > ran.incarnation,
                "store-O5: {incarnation:?} again, at {events}"
            );
        }
        let durable = self.labels.iter().rposition(|(_, done, _)| *done <= events).unwrap_or(0);
        let epoch = store.label().epoch;
        let mut possible = self.labels[durable..].iter().filter(|(began, _, _)| *began <= events);
        assert!(possible.any(|(_, _, e)| *e == epoch), "the label's {epoch:?} at {events}");
    }

    /// Power fails now, or the process is killed for `KeepAll`, and the store is opened again: some state that was, no older than the
    /// last flush. Life goes on there.
    pub fn crash(&mut self, crash: impl Into<Outage>) {
        let (events, crash) = (self.medium.events(), crash.into());
        self.medium = Arc::new(self.medium.crash(crash));
        (self.faulty, self.media) = faulty_of(&self.medium, &mut self.rng);
        let store = Engine::open_with(self.media.clone(), self.store.settings).unwrap();
        let last = store.vol.last_seq();
        let floor = match crash == Crash::KeepAll.into() {
            true => self.acknowledged_at(events),
            false => self.flushed_at(events),
        };
        assert!(last >= floor, "{crash:?}: {floor:?} was promised, {last:?} is the last");
        let mut world = self.world_at(last).clone();
        let maybe = self.history.last().filter(|m| m.acknowledged == usize::MAX && m.seq <= last);
        if maybe.is_some() && compare(&store, &world).is_err() {
            // The failed write may have been a mark that the operation needed first: the mark is there, and the operation is not.
            world = self.world_at(Seq(last.0 - 1)).clone();
        }
        compare(&store, &world).unwrap_or_else(|e| panic!("{crash:?}, after {last:?}: {e}"));
        self.check_numbers(events, &store);
        self.labels = vec![(0, 0, store.label().epoch)];
        self.store = Arc::new(store);
        let mirror_seq = self.store.last_seq();
        self.history = vec![Moment { seq: last, mirror_seq, world, acknowledged: 0 }];
        (self.floors, self.runs) = (vec![], vec![]);
        self.opened();
    }

    /// Everything removed and sealed is free again: nothing leaks and nothing is free twice.
    pub fn end(self) {
        let all: Vec<ObjectId> = (0..ops::OBJECTS + 1).map(id).collect();
        self.store.destroy(&all, None).unwrap();
        self.store.seal().unwrap();
        self.store.reclaim_now();
        self.store.checkpoint().unwrap();
        assert_eq!(self.store.overlay.pages(), 0);
        let space = self.store.space.lock();
        assert_eq!((space.free_pages(), space.waiting_pages()), (space.total_pages(), 0));
        assert_eq!((self.store.index.bytes(), self.store.index.objects()), (0, 0));
    }
}

/// With and without the log of small writes; with fresh pages in it, too; with an overlay that is full at once.
pub fn draw_settings(rng: &mut SplitMix) -> Settings {
    let all = Settings { patch_new_bytes_max: 64 << 10, write_unit: 16 << 10, ..Settings::default() };
    let settings = match rng.below(6) {
        0 => PLACING,
        1 => all,
        2 => Settings { overlay_bytes_max: 16 << 10, ..all },
        3 => Settings { patch_whole: false, ..Settings::default() },
        _ => Settings::default(),
    };
    // From one leaf for all objects to one for each; from room for all to checkpoints after every few changes.
    let leaf_bytes = [64, 500, 32 << 10][rng.below(3) as usize];
    let index_bytes_max = [6 << 10, 40 << 10, 1 << 20][rng.below(3) as usize];
    Settings { leaf_bytes, index_bytes_max, ..settings }
}

/// The media for a store: one that fails on demand, which with two media is the data's or the log's.
fn faulty_of(medium: &Arc<SimDisk>, rng: &mut SplitMix) -> (Arc<FaultyDisk>, Media) {
    let Media { main, log } = medium.media();
    let over = |below: &Arc<dyn Disk>| Arc::new(FaultyDisk::new(below.clone()));
    match log.as_ref().filter(|_| rng.below(2) == 0) {
        Some(log) => {
            let faulty = over(log);
            (faulty.clone(), Media { main, log: Some(faulty) })
        }
        None => {
            let faulty = over(&main);
            (faulty.clone(), Media { main: faulty, log })
        }
    }
}

/// Opens what a crash left.
pub fn open(medium: SimDisk) -> Engine {
    Engine::open(Arc::new(medium).media()).unwrap()
}

/// Any crash. Of two media each has its own; often all of the one is lost and nothing of the other, or both are as after a kill.
pub fn draw_crash(rng: &mut SplitMix) -> Outage {
    let (first, second) = (draw_one(rng), draw_one(rng));
    match rng.below(8) {
        0 => Outage { first: Crash::DropAll, second: Crash::KeepAll },
        1 => Outage { first: Crash::KeepAll, second: Crash::DropAll },
        2 => first.into(),
        _ => Outage { first, second },
    }
}

/// Each kind as often.
fn draw_one(rng: &mut SplitMix) -> Crash {
    let seed = rng.next_u64();
    match rng.below(8) {
        0 => Crash::KeepAll,
        1 => Crash::DropAll,
        2 => Crash::Writes(seed),
        3 => Crash::Torn(seed),
        4 => Crash::OneLost(seed),
        5 => Crash::OneKept(seed),
        _ => Crash::Sectors(seed),
    }
}

/// True if full counts are wanted.
pub fn is_long() -> bool {
    std::env::var_os("STRIA_LONG").is_some()
}

/// Runs seeds from 0 on until `enough` says so; a failure prints the line that repeats it, which runs that seed only.
pub fn each_seed(test: &str, enough: impl Fn(u64) -> bool, run: impl Fn(u64)) {
    let one = std::env::var("STRIA_SEED").ok().map(|s| s.parse::<u64>().expect("STRIA_SEED is a number"));
    let mut seed = one.unwrap_or(0);
    while one.is_some() || !enough(seed) {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        assert!(done.is_ok(), "again: STRIA_SEED={seed} cargo test -p stria-store {test}");
        if one.is_some() {
            return;
        }
        seed += 1;
    }
}

/// Says where a test was when it failed.
pub struct Told(pub String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0);
        }
    }
}
