//! Who reads the medium now: what a reader may have seen the place of is not used again before he is done.
//!
//! A *stamp* counts changes of the index. A reader takes the present one before he looks anything up; a place that a change supersedes
//! gets the stamp of that change. Whoever began with a lower stamp may have seen the place.
//! store-H1: a place is given back only when nobody who reads began before it was superseded.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Readers beyond these are counted only, and while there are such nothing is given back.
const SLOTS: usize = 256;
/// In a slot: nobody.
const FREE: u64 = u64::MAX;

/// A cache line for each, so that readers do not meet.
#[derive(Debug)]
#[repr(align(64))]
struct Slot(AtomicU64);

#[derive(Debug)]
pub struct Readers {
    stamp: AtomicU64,
    slots: Vec<Slot>,
    others: AtomicU64,
}

/// One who reads, until it is dropped.
#[derive(Debug)]
pub struct Reading<'a> {
    readers: &'a Readers,
    slot: Option<usize>,
}

thread_local! {
    /// Where this thread looks for a free slot first.
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

    /// Before anything is looked up.
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
        // Either who gives places back sees this reader, or this reader sees what the change made of the index.
        fence(Ordering::SeqCst);
        Reading { readers: self, slot }
    }

    /// After a change of the index: its stamp.
    pub fn changed(&self) -> u64 {
        self.stamp.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Places with a stamp up to this one are seen by nobody.
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
