//! Readers of the medium. A place that a reader may have looked up is not reused before that read has ended.
//!
//! A *stamp* counts changes of the index. A reader takes the present stamp before its first lookup. A place that a change supersedes gets
//! the stamp of that change. A reader with a lower stamp may have looked up the place.
//!
//! store-H1: a place is freed only when no read is under way that began before the place was superseded.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Reader slots. Readers beyond these are only counted, and while there are such no place is freed.
const SLOTS: usize = 256;
/// Value of an empty slot.
const FREE: u64 = u64::MAX;

/// One cache line per slot, so that readers do not share one.
#[derive(Debug)]
#[repr(align(64))]
struct Slot(AtomicU64);

#[derive(Debug)]
pub struct Readers {
    stamp: AtomicU64,
    slots: Vec<Slot>,
    others: AtomicU64,
}

/// A read under way, until it is dropped.
#[derive(Debug)]
pub struct Reading<'a> {
    readers: &'a Readers,
    slot: Option<usize>,
}

thread_local! {
    /// The slot that this thread tries first.
    static FIRST: usize = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) as usize % SLOTS
    };
}

impl Readers {
    pub fn new() -> Readers {
        let slots = (0..SLOTS).map(|_| Slot(AtomicU64::new(FREE))).collect();
        Readers { stamp: AtomicU64::new(0), slots, others: AtomicU64::new(0) }
    }

    /// Begins a read. Call it before the first lookup.
    pub fn begin(&self) -> Reading<'_> {
        let now = self.stamp.load(Ordering::Acquire);
        let first = FIRST.with(|first| *first);
        let take = |i: &usize| {
            self.slots[*i].0.compare_exchange(FREE, now, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        let slot = (first..SLOTS).chain(0..first).find(take);
        if slot.is_none() {
            self.others.fetch_add(1, Ordering::SeqCst);
        }
        // Either a thread that frees places sees this reader, or this reader sees the changed index.
        fence(Ordering::SeqCst);
        Reading { readers: self, slot }
    }

    /// Counts a change of the index. Returns its stamp.
    pub fn changed(&self) -> u64 {
        self.stamp.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// No read under way can have looked up a place with a stamp up to this one.
    pub fn unseen(&self) -> u64 {
        fence(Ordering::SeqCst);
        if self.others.load(Ordering::SeqCst) > 0 {
            return 0;
        }
        self.slots.iter().map(|slot| slot.0.load(Ordering::SeqCst)).min().unwrap_or(FREE)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        match self.slot {
            Some(slot) => self.readers.slots[slot].0.store(FREE, Ordering::Release),
            None => drop(self.readers.others.fetch_sub(1, Ordering::Release)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_for_those_who_began_before_it_was_superseded() {
        let readers = Readers::new();
        assert_eq!(readers.unseen(), u64::MAX);
        let early = readers.begin();
        let gone = readers.changed();
        assert!(gone > readers.unseen(), "store-H1");
        let late = readers.begin();
        drop(early);
        assert!(gone <= readers.unseen(), "who came later never saw it");
        let many: Vec<_> = (0..SLOTS).map(|_| readers.begin()).collect();
        assert_eq!(readers.unseen(), 0, "one has no slot");
        drop((late, many));
        assert_eq!(readers.unseen(), u64::MAX);
    }
}
