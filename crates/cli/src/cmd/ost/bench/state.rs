//! The state of an OST before its rows: fresh, full or aged.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use anyhow::anyhow;
use clap::ValueEnum;
use disk::SplitMix;
use serde::Serialize;
use store::{ObjectStore, StoreError};
use types::ObjectId;

use super::engine::object;
use super::load::Hand;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Just made.
    Fresh,
    /// 80 % of its space taken, the object's included.
    Full,
    /// After many creates, overwrites and deletes of small objects.
    Aged,
}

impl State {
    pub fn title(self) -> &'static str {
        match self {
            State::Fresh => "fresh",
            State::Full => "80 % full",
            State::Aged => "after ageing",
        }
    }
}

const FULL_SHARE: f64 = 0.8;
/// Share of the space for the small objects of an ageing OST: the row's object and its superseded extents need space, too.
const AGED_SHARE: f64 = 0.4;
const THREADS: u64 = 16;
/// Objects of an ageing OST have 1 to this many pages; short ones are the most common.
const PAGES_MAX: u64 = 32;
/// Apart from OBJECT, which has fid 16.
const FIRST_FID: u64 = 1 << 20;

/// Fills the OST with objects of 1 MiB, and leaves only the space that the object of `size` takes.
pub fn fill(store: &dyn ObjectStore, size: u64, stop: &AtomicBool) -> anyhow::Result<()> {
    let total = store.usage().bytes_total;
    let objects = ((total as f64 * FULL_SHARE) as u64).saturating_sub(size) >> 20;
    let next = AtomicU64::new(0);
    in_threads(|seed| {
        let mut hand = Hand::new(1 << 20, &mut SplitMix::new(seed));
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= objects || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            hand.write(store, object(FIRST_FID + number), 0)?;
        }
    })?;
    store.flush()?;
    Ok(())
}

/// Does this many random creates, overwrites and deletes. Each thread has its own objects.
pub fn age(store: &dyn ObjectStore, operations: u64, stop: &AtomicBool) -> anyhow::Result<()> {
    let room = (store.usage().bytes_total as f64 * AGED_SHARE) as i64 / 4096;
    let taken = AtomicI64::new(0);
    in_threads(|number| {
        let rng = SplitMix::new(number);
        Ager { store, taken: &taken, room, rng, live: Vec::new(), next: FIRST_FID + (number << 32) }
            .live(operations / THREADS, stop)
    })?;
    store.flush()?;
    Ok(())
}

fn in_threads(work: impl Fn(u64) -> Result<(), StoreError> + Sync) -> anyhow::Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => Ok(done?),
            Err(_) => Err(anyhow!("a thread panicked")),
        })
    })
}

/// One thread that creates, overwrites and deletes objects.
struct Ager<'a> {
    store: &'a dyn ObjectStore,
    /// Pages of all threads' objects, and their limit.
    taken: &'a AtomicI64,
    room: i64,
    rng: SplitMix,
    /// Objects with their page counts.
    live: Vec<(ObjectId, u64)>,
    next: u64,
}

impl Ager<'_> {
    fn live(mut self, operations: u64, stop: &AtomicBool) -> Result<(), StoreError> {
        let mut hands: Vec<Hand> =
            (1..=PAGES_MAX).map(|n| Hand::new(n as usize * 4096, &mut self.rng)).collect();
        for _ in 0..operations {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let is_full = self.taken.load(Ordering::Relaxed) >= self.room;
            match self.rng.below(3) {
                _ if self.live.is_empty() => self.create(&mut hands)?,
                0 if !is_full => self.create(&mut hands)?,
                1 => self.overwrite(&mut hands)?,
                _ => self.delete()?,
            }
        }
        Ok(())
    }

    /// From 1 to `most`; a number is half as likely as half of it.
    fn pages(&mut self, most: u64) -> u64 {
        let limit = 1 + self.rng.below(most);
        1 + self.rng.below(limit)
    }

    fn create(&mut self, hands: &mut [Hand]) -> Result<(), StoreError> {
        let (id, pages) = (object(self.next), self.pages(PAGES_MAX));
        self.next += 1;
        hands[pages as usize - 1].write(self.store, id, 0)?;
        self.taken.fetch_add(pages as i64, Ordering::Relaxed);
        self.live.push((id, pages));
        Ok(())
    }

    fn overwrite(&mut self, hands: &mut [Hand]) -> Result<(), StoreError> {
        let (id, all) = self.live[self.rng.below(self.live.len() as u64) as usize];
        let pages = self.pages(all);
        let first = self.rng.below(all - pages + 1);
        hands[pages as usize - 1].write(self.store, id, first * 4096)
    }

    fn delete(&mut self) -> Result<(), StoreError> {
        let at = self.rng.below(self.live.len() as u64) as usize;
        let (id, pages) = self.live.swap_remove(at);
        self.taken.fetch_sub(pages as i64, Ordering::Relaxed);
        self.store.destroy(&[id], None)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use disk::MemDisk;
    use oss::{FormatSpec, Ost};
    use store::Engine;
    use types::Uuid;

    use super::*;

    fn engine() -> Engine {
        let disk = Arc::new(MemDisk::new(64 << 20));
        Ost::format(&*disk, &FormatSpec::new("bench", Uuid([1; 16]))).unwrap();
        Engine::open(disk).unwrap()
    }

    #[test]
    fn full_is_full_to_four_fifths_with_the_object() {
        let store = engine();
        fill(&store, 8 << 20, &AtomicBool::new(false)).unwrap();
        let usage = store.usage();
        let used = (usage.bytes_total - usage.bytes_free) as f64 + (8 << 20) as f64;
        assert!((0.77..=0.81).contains(&(used / usage.bytes_total as f64)), "{usage:?}");
    }

    #[test]
    fn ageing_creates_and_deletes_and_stays_within_its_share() {
        let store = engine();
        age(&store, 16_000, &AtomicBool::new(false)).unwrap();
        let usage = store.usage();
        let log_entries = store.last_seq().0;
        assert!(usage.objects > 100 && usage.objects < 8_000, "{usage:?}");
        assert!(log_entries >= 16_000, "{log_entries}");
        let used = store.list(None, 100_000).unwrap().0.iter().map(|(_, attrs)| attrs.used).sum::<u64>();
        assert!(used as f64 <= usage.bytes_total as f64 * AGED_SHARE + (THREADS * PAGES_MAX * 4096) as f64);
    }
}
