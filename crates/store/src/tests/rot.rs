//! The rot campaign: in every structure of a medium bits flip, sectors become garbage or zeros, or are what they were before. Each time
//! it is told (the store does not open and says why, or a read is refused as damage) or it is harmless: the content is the same as
//! without it. Never other bytes, never a panic or an endless loop, and nothing that is known to be flushed is missing without a word.
//!
//! One loss cannot be told, and has a name of its own here: of the log's last entries, those that no flush mark on the medium covers
//! yet, rot looks as if power had failed before they were flushed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::volume::Media;
use disk::{SECTOR_BYTES, SplitMix};

use super::life::{Life, Memory, Told, each_seed, is_long, open};
use super::map::{Map, PARTS, Part, SUPERBLOCK_PLACES, bytes_at};
use super::ops::Op;
use super::world::{PAGE, World, compare, compare_tables};
use super::*;

const ROTS: u64 = 1_500;
const ROTS_LONG: u64 = 30_000;
/// Of one medium; each begins with the same bytes.
const ROTS_PER_LIFE: u64 = 110;
/// Limit of the reads of an open and of a read of everything: many times the need.
const READS_MAX: u64 = 200_000;

#[derive(Clone, Copy, Debug)]
enum Rot {
    Bit,
    Garbage,
    Zeros,
    /// A lost write: the sector is what it was some time before.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Harmless,
    /// The store does not open.
    OpeningRefused,
    /// It opens, and pages are damage.
    ReadRefused,
    /// It opens, and what one leaf of the index has cannot be told.
    IndexRefused,
    /// The log ends earlier, as after a power loss; only what no flush mark covers.
    TailCut,
}

/// A medium at rest.
struct Grave {
    medium: SimDisk,
    /// As it was some time before.
    before: SimDisk,
    map: Map,
    life: Life,
}

#[test]
fn rot_anywhere_is_told_or_harmless() {
    let wanted = if is_long() { ROTS_LONG } else { ROTS };
    let count = Cell::new(0);
    let table = RefCell::new(BTreeMap::<Part, BTreeMap<Fate, u64>>::new());
    each_seed(
        "rot_anywhere",
        |_| count.get() >= wanted,
        |seed| {
            let grave = bury(seed);
            let mut rng = SplitMix::new(seed ^ 0xb175);
            for n in 0..ROTS_PER_LIFE {
                // Structures in turn, so that the small ones are hit as often as the large.
                let part = PARTS[n as usize % PARTS.len()];
                if let Some((part, fate)) = grave.rot(part, &mut rng) {
                    *table.borrow_mut().entry(part).or_default().entry(fate).or_default() += 1;
                    count.set(count.get() + 1);
                }
            }
        },
    );
    for part in PARTS {
        let table = table.borrow();
        let of_part = table.get(&part);
        println!("       {part:?}: {:?}", of_part.unwrap_or(&BTreeMap::new()));
        assert!(of_part.is_some() || std::env::var_os("STRIA_SEED").is_some(), "{part:?} was never hit");
    }
}

/// The allowed outcomes of rot in a structure.
fn may_be(part: Part, fate: Fate) -> bool {
    use Fate::*;
    match part {
        Part::Superblock
        | Part::LogLabel
        | Part::Gap
        | Part::LogDead
        | Part::CheckpointDead
        | Part::DataFree => fate == Harmless,
        Part::BothSuperblocks | Part::BothLogLabels | Part::CheckpointLive | Part::LogSealed => {
            fate == OpeningRefused
        }
        Part::LogTail => fate == TailCut,
        // A recovery may want it.
        Part::Leaf => matches!(fate, IndexRefused | OpeningRefused),
        Part::DataSealed => fate == ReadRefused,
        Part::DataTail => matches!(fate, ReadRefused | TailCut),
    }
}

/// A life that ends somewhere: in the midst, after a flush, sealed, or a little after that.
fn bury(seed: u64) -> Grave {
    let mut life = Life::new(seed, Memory::All);
    life.live(40);
    let before = life.medium.crash(Crash::KeepAll);
    life.live(50);
    match life.rng.below(4) {
        0 => {}
        1 => drop(life.carry_out(&Op::Flush)),
        2 => drop(life.carry_out(&Op::Seal)),
        _ => {
            life.carry_out(&Op::Seal);
            life.live(1 + seed % 8);
        }
    }
    let medium = life.medium.crash(Crash::KeepAll);
    // For a reopened store, pages folded since the last checkpoint lie in their old places.
    let opened = open(life.medium.crash(Crash::KeepAll));
    let map = Map::of(&medium, &opened);
    Grave { medium, before, map, life }
}

impl Grave {
    /// Lets something of a structure rot and looks what comes of it: the most important structure that was hit, and its fate.
    fn rot(&self, part: Part, rng: &mut SplitMix) -> Option<(Part, Fate)> {
        // 1. Where and what.
        let ranges = self.map.parts.get(&part)?;
        let range = &ranges[rng.below(ranges.len() as u64) as usize];
        let at = range.start + rng.below(range.end - range.start);
        let rot = [Rot::Bit, Rot::Bit, Rot::Bit, Rot::Garbage, Rot::Zeros, Rot::Stale][rng.below(6) as usize];
        let medium = self.medium.crash(Crash::KeepAll);
        let mut hit = self.spoil(&medium, rot, at, rng)?;
        let mut parts = self.map.touched(&hit);
        let both = [Part::BothSuperblocks, Part::BothLogLabels];
        if both.contains(&part) {
            hit = self.spoil(&medium, rot, SUPERBLOCK_PLACES[1] + at, rng)?;
            parts = vec![part];
        } else {
            parts.retain(|p| !both.contains(p));
        }
        // Bytes that belong to nothing, as the few behind an entry.
        let most = parts.iter().copied().find(|p| !may_be(*p, Fate::Harmless)).unwrap_or(part);
        // 2. What comes of it.
        let what = format!("{rot:?} at {at} in {parts:?}");
        let _told = Told(what.clone());
        let fate = self.look(Arc::new(medium), &hit, &what);
        let is_allowed = match parts.is_empty() {
            true => fate == Fate::Harmless,
            false if parts.contains(&Part::LogSealed) && self.is_proof_rotten(&hit) => fate != Fate::Harmless,
            false => parts.iter().any(|p| may_be(*p, fate)),
        };
        assert!(is_allowed, "{what}: {fate:?}");
        Some((most, fate))
    }

    /// A sector took entries that were known to be flushed, and with them all proof of it: the log ends there as after a power loss. What
    /// these entries replaced may be in use again, and then it is damage.
    fn is_proof_rotten(&self, hit: &Range<u64>) -> bool {
        let (proven, rotten) = self.map.proven_without(hit);
        rotten.is_some_and(|seq| seq > proven)
    }

    /// Changes bytes; the range that differs now.
    fn spoil(&self, medium: &SimDisk, rot: Rot, at: u64, rng: &mut SplitMix) -> Option<Range<u64>> {
        let sector = at / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let range = sector..sector + SECTOR_BYTES as u64;
        let old = bytes_at(medium, range.clone());
        let mut new = old.clone();
        match rot {
            Rot::Bit => new[(at - sector) as usize] ^= 1 << rng.below(8),
            Rot::Garbage => new = pattern(rng.next_u64(), SECTOR_BYTES),
            Rot::Zeros => new.fill(0),
            Rot::Stale => new = bytes_at(&self.before, range),
        }
        let differs = |i: &usize| new[*i] != old[*i];
        let first = (0..new.len()).find(differs)?;
        let last = (0..new.len()).rfind(differs)?;
        medium.write_at(&new, sector).unwrap();
        medium.flush().unwrap();
        Some(sector + first as u64..sector + last as u64 + 1)
    }

    fn look(&self, medium: Arc<SimDisk>, hit: &Range<u64>, what: &str) -> Fate {
        let last = self.life.store.vol.last_seq();
        // 1. It opens, or says what is wrong.
        let reads = Arc::new(AtomicU64::new(READS_MAX));
        let budget = |below| -> Arc<dyn Disk> { Arc::new(Budget { below, reads: reads.clone() }) };
        let Media { main, log } = medium.media();
        let store = match Engine::open(Media { main: budget(main), log: log.map(budget) }) {
            Ok(store) => store,
            Err(e) => {
                let told = e.to_string();
                let names = ["superblock", "log entry", "checkpoint", "index", "it holds no log"];
                assert!(names.iter().any(|n| told.contains(n)), "{what}: {told}");
                return Fate::OpeningRefused;
            }
        };
        // 2. What is known to be flushed is there.
        let found = store.vol.last_seq();
        let (proven, _) = self.map.proven_without(hit);
        assert!(
            found.0 >= proven.min(last.0),
            "{what}: {found:?} of {last:?}, {proven} is proven to be flushed"
        );
        let world = self.life.world_at(found);
        if is_index_refused(store.list(None, 1000)) {
            check_others(&store, world, what);
            return Fate::IndexRefused;
        }
        compare_tables(&store, world).unwrap_or_else(|e| panic!("{what}, after {found:?}: {e}"));
        // 3. Each page is what it was, or damage; and the scrub says the same.
        let damaged = damaged_pages(&store, world, what);
        assert!(damaged.len() <= 1 || self.is_proof_rotten(hit), "{what}: {damaged:?}");
        for (object, _) in world.existing() {
            let bad: Vec<u64> =
                store.verify(*object, 0, u32::MAX).unwrap().bad.iter().map(|(offset, _)| *offset).collect();
            let want: Vec<u64> = damaged.iter().filter(|(o, _)| o == object).map(|(_, at)| *at).collect();
            assert_eq!(bad, want, "{what}: {object}");
        }
        // 4. It works, and what it does then stays.
        if write(&store, id(60), 0, b"new", None).is_ok() {
            store.flush().unwrap();
            let again = open(medium.crash(Crash::DropAll));
            assert_eq!(read(&again, id(60), 0, 9).unwrap().unwrap(), b"new", "{what}");
            again.destroy(&[id(60)], None).unwrap();
            match damaged.is_empty() {
                true => compare(&again, world).unwrap_or_else(|e| panic!("{what}, later: {e}")),
                false => assert_eq!(damaged_pages(&again, world, what), damaged),
            }
        }
        match (damaged.is_empty(), found < last) {
            (false, _) => Fate::ReadRefused,
            (true, true) => Fate::TailCut,
            (true, false) => Fate::Harmless,
        }
    }
}

fn is_index_refused<T>(found: Result<T, StoreError>) -> bool {
    match found {
        Ok(_) => false,
        Err(StoreError::Index { .. }) => true,
        Err(e) => panic!("{e}"),
    }
}

/// Some objects cannot be told. All others are right, nothing is changed, and the store says so.
fn check_others(store: &Engine, world: &World, what: &str) {
    let mut lost = 0;
    for n in 0..super::ops::OBJECTS + 1 {
        let want = world.objects.get(&id(n));
        let Ok(found) = store.stat(id(n)) else {
            assert!(is_index_refused(store.stat(id(n))));
            assert!(is_index_refused(write(store, id(n), 0, b"new", None)), "{what}: {n}");
            assert!(is_index_refused(store.destroy(&[id(n)], None)), "{what}: {n}");
            lost += 1;
            continue;
        };
        let exists = want.filter(|m| m.exists);
        assert_eq!(found, exists.map(|m| m.attrs()), "{what}: {n}");
        let bytes = read(store, id(n), 0, u32::MAX >> 1).unwrap();
        assert!(bytes.as_ref() == exists.map(|m| &m.bytes), "{what}: {n} has other bytes");
    }
    // An unchanged lost leaf does not prevent the checkpoint of other changes: new objects, after all others and elsewhere, and removals.
    write(store, id(70), 0, b"behind all", None).unwrap();
    let all = (0..super::ops::OBJECTS + 1).map(id);
    let others: Vec<ObjectId> = all.filter(|id| store.stat(*id).is_ok()).collect();
    store.destroy(&others, None).unwrap();
    store.checkpoint().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(read(store, id(70), 0, 99).unwrap().unwrap(), b"behind all");
    assert!(lost > 0, "{what}: an object of the list cannot be told, and each can");
    let told = store.health().index_damage.expect("the target says what is wrong");
    assert!(told.contains("index"), "{told}");
}

/// Pages that are refused as damage. All others are right.
fn damaged_pages(store: &Engine, world: &World, what: &str) -> Vec<(ObjectId, u64)> {
    let mut damaged = vec![];
    for (object, m) in world.existing() {
        for (i, want) in m.bytes.chunks(PAGE).enumerate() {
            let offset = (i * PAGE) as u64;
            match read(store, *object, offset, PAGE as u32) {
                Ok(found) => {
                    assert!(found.as_deref() == Some(want), "{what}: {object} has other bytes at {offset}")
                }
                Err(StoreError::Damaged { object: o, offset: at, kind: DamageKind::Checksum }) => {
                    assert_eq!((o, at), (*object, offset), "{what}");
                    damaged.push((o, at));
                }
                Err(e) => panic!("{what}: {e}"),
            }
        }
    }
    damaged
}

/// A medium that is asked for too much stops the test: nothing may read for ever.
struct Budget {
    below: Arc<dyn Disk>,
    reads: Arc<AtomicU64>,
}

impl Disk for Budget {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(self.reads.fetch_sub(1, Ordering::Relaxed) > 0, "an endless loop of reads");
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
}
