//! Random operations against byte arrays, with crashes: what is found after one is exactly the state after some operation, no
//! earlier than the last flush, and after a mere kill the last one.

use std::collections::BTreeMap;

use disk::SplitMix;

use super::*;
use crate::discard::ROUNDS_YOUNG;

const OBJECTS: u64 = 6;
const OFFSET_MAX: u64 = 300_000;
const WRITE_MAX: u64 = 90_000;

/// Bytes, and what each page is.
type Content = BTreeMap<ObjectId, Arc<Modelled>>;

#[derive(Clone, Default)]
struct Modelled {
    bytes: Vec<u8>,
    pages: Vec<Page>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Page {
    #[default]
    Hole,
    Reserved,
    Data,
}

const PAGE: usize = PAGE_SIZE;

impl Modelled {
    fn pages(&mut self, first: usize, limit: usize) -> &mut [Page] {
        let len = self.pages.len().max(limit);
        self.pages.resize(len, Page::Hole);
        &mut self.pages[first.min(limit)..limit]
    }
    fn used(&self) -> u64 {
        self.pages.iter().filter(|p| **p != Page::Hole).count() as u64 * PAGE as u64
    }
}

struct Model {
    rig: Rig,
    rng: SplitMix,
    /// State after each operation since the last flush, by the operation's sequence.
    after: Vec<(u32, Content)>,
    sequence: u32,
}

impl Model {
    fn new(seed: u64) -> Model {
        let rig = Rig::new();
        rig.store.begin_session(SESSION).unwrap();
        rig.store.flush().unwrap();
        Model { rig, rng: SplitMix::new(seed), after: vec![(0, Content::new())], sequence: 0 }
    }

    fn now(&self) -> &Content {
        &self.after.last().unwrap().1
    }

    fn next_origin(&mut self) -> Option<Origin> {
        self.sequence += 1;
        Some(Origin { session: SESSION, slot: 0, sequence: self.sequence })
    }

    fn step(&mut self) {
        let object = id(self.rng.below(OBJECTS));
        match self.rng.below(100) {
            0..40 => self.write(object),
            40..46 => self.reserve(object),
            46..55 => self.punch(object),
            55..58 => self.release(object),
            58..67 => self.truncate(object),
            67..71 => self.destroy(object),
            71..88 => self.read(object),
            88..92 => self.flush(),
            92..95 => self.rig.store.mark().unwrap(),
            95..96 => self.rig.seal(),
            96..97 => {
                self.rig.seal();
                self.rig.store.reclaim_now();
                (0..2 * ROUNDS_YOUNG).for_each(|_| self.rig.store.discard().unwrap());
            }
            _ => self.rig.store.checkpoint().unwrap(),
        }
    }

    fn write(&mut self, object: ObjectId) {
        // Half of the writes are aligned, so that whole and partial pages both come often.
        let mask = if self.rng.below(2) == 0 { !4095 } else { !0 };
        let offset = self.rng.below(OFFSET_MAX) & mask;
        let most = if self.rng.below(3) == 0 { WRITE_MAX } else { 9000 };
        let len = (1 + self.rng.below(most)) as usize;
        let origin = self.next_origin();
        let data = pattern(self.rng.next_u64(), len);
        match self.rig.write_as(object, offset, &data, origin) {
            Err(StoreError::NoSpace(_)) => {}
            done => {
                let mut now = self.now().clone();
                let modelled = Arc::make_mut(now.entry(object).or_default());
                let end = offset as usize + len;
                let pages = modelled.pages(offset as usize / PAGE, end.div_ceil(PAGE));
                let new = pages.iter().filter(|p| **p == Page::Hole).count() as u32;
                pages.fill(Page::Data);
                let bytes = &mut modelled.bytes;
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(&data);
                let want = Written { len: bytes.len() as u64, pages: new };
                assert_eq!(Written::from_answer(done.unwrap().answer), want);
                self.after.push((self.sequence, now));
            }
        }
    }

    fn truncate(&mut self, object: ObjectId) {
        let len = self.rng.below(OFFSET_MAX);
        let origin = self.next_origin();
        self.rig.store.truncate(&Truncate { object, len, lease: 0, gate: &anyone, origin }).unwrap();
        let mut now = self.now().clone();
        if let Some(modelled) = now.get_mut(&object) {
            let modelled = Arc::make_mut(modelled);
            modelled.bytes.resize(len as usize, 0);
            modelled.pages.truncate((len as usize).div_ceil(PAGE));
        }
        self.after.push((self.sequence, now));
    }

    fn range(&mut self) -> (u64, u64) {
        let mask = if self.rng.below(2) == 0 { !4095 } else { !0 };
        (self.rng.below(OFFSET_MAX) & mask, 1 + (self.rng.below(WRITE_MAX) & mask))
    }

    fn reserve(&mut self, object: ObjectId) {
        let (offset, len) = self.range();
        let end = if self.rng.below(2) == 0 { offset + len } else { 0 };
        let (origin, mtime) = (self.next_origin(), Time::default());
        let reserve = Reserve { object, offset, len, end, mtime, lease: 0, gate: &anyone, origin };
        let done = match self.rig.store.reserve(&reserve) {
            Err(StoreError::NoSpace(_)) => return,
            done => Reservation::from_answer(done.unwrap().answer),
        };
        let mut now = self.now().clone();
        let modelled = Arc::make_mut(now.entry(object).or_default());
        let pages = modelled.pages(offset as usize / PAGE, ((offset + len) as usize).div_ceil(PAGE));
        let count = |what| pages.iter().filter(|p| **p == what).count() as u64;
        assert_eq!(
            done,
            Reservation { pages: count(Page::Hole), is_mixed: count(Page::Reserved) > 0 },
            "{offset} {len}"
        );
        pages.iter_mut().filter(|p| **p == Page::Hole).for_each(|p| *p = Page::Reserved);
        let len = modelled.bytes.len().max(end as usize);
        modelled.bytes.resize(len, 0);
        self.after.push((self.sequence, now));
    }

    fn release(&mut self, object: ObjectId) {
        let ((offset, len), origin) = (self.range(), self.next_origin());
        self.rig.store.release(&Release { object, offset, len, lease: 0, gate: &anyone, origin }).unwrap();
        let mut now = self.now().clone();
        if let Some(modelled) = now.get_mut(&object) {
            let pages = Arc::make_mut(modelled)
                .pages(offset as usize / PAGE, ((offset + len) as usize).div_ceil(PAGE));
            pages.iter_mut().filter(|p| **p == Page::Reserved).for_each(|p| *p = Page::Hole);
        }
        self.after.push((self.sequence, now));
    }

    fn punch(&mut self, object: ObjectId) {
        let ((offset, len), origin) = (self.range(), self.next_origin());
        let leave = if self.rng.below(2) == 0 { Leave::Hole } else { Leave::Reserved };
        let mtime = Time::default();
        let punch = Punch { object, offset, len, leave, mtime, lease: 0, gate: &anyone, origin };
        match self.rig.store.punch(&punch) {
            Err(StoreError::NoSpace(_)) => return,
            done => done.unwrap(),
        };
        let mut now = self.now().clone();
        if let Some(modelled) = now.get_mut(&object) {
            let modelled = Arc::make_mut(modelled);
            let (begin, end) = (offset as usize, (offset + len) as usize);
            let size = modelled.bytes.len();
            modelled.bytes[begin.min(size)..end.min(size)].fill(0);
            for page in modelled.pages(begin.div_ceil(PAGE), end / PAGE) {
                *page = match (leave, *page) {
                    (Leave::Hole, _) | (_, Page::Hole) => Page::Hole,
                    (Leave::Reserved, _) => Page::Reserved,
                };
            }
        }
        self.after.push((self.sequence, now));
    }

    fn destroy(&mut self, object: ObjectId) {
        let origin = self.next_origin();
        self.rig.store.destroy(&[object], origin).unwrap();
        let mut now = self.now().clone();
        now.remove(&object);
        self.after.push((self.sequence, now));
    }

    fn read(&mut self, object: ObjectId) {
        let (offset, len) = (self.rng.below(OFFSET_MAX), self.rng.below(200_000));
        let got = self.rig.read(object, offset, len as u32).unwrap();
        let want = self.now().get(&object).map(|b| {
            let from = (offset as usize).min(b.bytes.len());
            b.bytes[from..(from + len as usize).min(b.bytes.len())].to_vec()
        });
        assert!(got == want, "read {object} at {offset}, {len} bytes");
        self.seek(object, offset);
    }

    fn seek(&self, object: ObjectId, offset: u64) {
        let found = self.rig.store.seek(object, offset, &anyone).unwrap();
        let pages = self.now().get(&object).map_or(&[][..], |m| &m.pages);
        let first = offset as usize / PAGE;
        let at = |page: usize| (page * PAGE).max(offset as usize) as u64;
        let is_data = |p: &usize| pages[*p] == Page::Data;
        let data = (first..pages.len()).find(is_data).map(at);
        let hole = at((first..pages.len()).find(|p| !is_data(p)).unwrap_or(pages.len().max(first)));
        assert_eq!((found.data, found.hole), (data, hole), "{object} from {offset}");
    }

    fn flush(&mut self) {
        self.rig.store.flush().unwrap();
        self.after.drain(..self.after.len() - 1);
    }

    fn crash(&mut self) {
        let seed = self.rng.next_u64();
        let crash = match self.rng.below(6) {
            0 => Crash::KeepAll,
            1 => Crash::DropAll,
            2 => Crash::Writes(seed),
            3 => Crash::Torn(seed),
            _ => Crash::Sectors(seed),
        };
        self.rig = self.rig.crashed(crash);
        let slot = self.rig.store.slot(SESSION, 0).expect("the session was flushed");
        let found = self.after.iter().rposition(|(sequence, _)| *sequence <= slot.sequence);
        let found =
            found.unwrap_or_else(|| panic!("{crash:?}: flushed operations are gone, at {}", slot.sequence));
        if crash == Crash::KeepAll {
            assert_eq!(found, self.after.len() - 1, "a kill loses nothing acknowledged");
        }
        let (_, want) = &self.after[found];
        let (list, more) = self.rig.store.list(None, 100);
        assert!(!more);
        assert_eq!(
            list.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            want.keys().copied().collect::<Vec<_>>()
        );
        for (object, bytes) in want {
            assert!(
                self.rig.content(*object).as_ref() == Some(&bytes.bytes),
                "{crash:?}: {object} is another"
            );
            let attrs = self.rig.store.stat(*object).unwrap();
            let reserved = bytes.pages.iter().rposition(|p| *p == Page::Reserved).map_or(0, |p| p + 1) * PAGE;
            assert_eq!(
                (attrs.used, attrs.reserved_end),
                (bytes.used(), reserved as u64),
                "{crash:?}: {object}"
            );
        }
        // What is reserved is kept from all others, and nothing else is.
        let used: u64 = want.values().map(|m| m.used()).sum();
        let usage = self.rig.store.usage();
        assert_eq!(usage.bytes_total - usage.bytes_free, used, "{crash:?}");
        // Opening flushed what it kept.
        self.after = vec![(slot.sequence, want.clone())];
    }

    /// Everything removed and sealed is free again: nothing leaks and nothing is free twice.
    fn end(self) {
        let all: Vec<ObjectId> = (0..OBJECTS).map(id).collect();
        self.rig.store.destroy(&all, None).unwrap();
        self.rig.seal();
        self.rig.store.reclaim_now();
        let space = self.rig.store.space.lock();
        assert_eq!((space.free_pages(), space.waiting_pages()), (space.total_pages(), 0));
        assert_eq!((self.rig.store.index.bytes(), self.rig.store.index.objects()), (0, 0));
    }
}

#[test]
fn random_operations_and_crashes_agree_with_byte_arrays() {
    for seed in 0..16 {
        // The seed is in the panic's line when a run fails.
        let run = std::panic::catch_unwind(|| {
            let mut m = Model::new(seed);
            for _ in 0..4 {
                (0..30 + seed * 2).for_each(|_| m.step());
                m.crash();
            }
            m.end();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
