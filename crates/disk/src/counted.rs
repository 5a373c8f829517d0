//! Counts the requests to a device by purpose. It is a wrapper, so that no write can be missed.
//!
//! The purpose of a request follows from its place on the medium. Requests are counted before they are made, because it is unknown how much
//! of a failed one reached the device. Counting costs two relaxed additions per request.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use spent::{Cause, waiting};

use crate::{Disk, Troubles, is_full};

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Superblock,
    Log,
    Checkpoint,
    Data,
}

pub const PLACES: [Place; 4] = [Place::Superblock, Place::Log, Place::Checkpoint, Place::Data];

/// Classes of sizes by powers of two: below 1 KiB, below 2 KiB, …, below 8 MiB, and 8 MiB or more.
pub const CLASSES: usize = 15;
/// Lower end of class 0, bytes; smaller requests are in it too.
pub const CLASS_BYTES_MIN: u64 = 512;

/// The class of a request of `bytes`.
pub fn class_of(bytes: u64) -> usize {
    let doublings = (bytes / CLASS_BYTES_MIN).max(1).ilog2() as usize;
    doublings.min(CLASSES - 1)
}

/// Requests by size, since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sizes {
    pub counts: [u64; CLASSES],
    pub bytes: u64,
}

impl Sizes {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
    /// The sizes without those that are also counted in `part`.
    pub fn without(mut self, part: &Sizes) -> Sizes {
        self.counts.iter_mut().zip(part.counts).for_each(|(all, some)| *all = all.saturating_sub(some));
        self.bytes = self.bytes.saturating_sub(part.bytes);
        self
    }
}

/// Counts requests by size.
#[derive(Debug, Default)]
pub struct SizeCounter {
    counts: [AtomicU64; CLASSES],
    bytes: AtomicU64,
}

impl SizeCounter {
    pub fn add(&self, bytes: u64) {
        self.counts[class_of(bytes)].fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
    pub fn sizes(&self) -> Sizes {
        Sizes {
            counts: std::array::from_fn(|i| self.counts[i].load(Relaxed)),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

/// Requests to a device since it was opened.
#[derive(Debug, Default)]
pub struct Counts {
    writes: [SizeCounter; PLACES.len()],
    pub reads: SizeCounter,
    flushes: AtomicU64,
    bytes_discarded: AtomicU64,
    /// Ranges of log, checkpoints and data; until they are set, all requests count as superblock.
    places: OnceLock<[Range<u64>; 3]>,
}

impl Counts {
    pub fn written(&self, place: Place) -> Sizes {
        self.writes[place as usize].sizes()
    }
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }
    pub fn bytes_discarded(&self) -> u64 {
        self.bytes_discarded.load(Relaxed)
    }

    /// Sets the ranges of the regions. Only the first call counts.
    pub fn set_places(&self, log: Range<u64>, checkpoints: Range<u64>, data: Range<u64>) {
        self.places.get_or_init(|| [log, checkpoints, data]);
    }

    fn place_of(&self, offset: u64) -> Place {
        let Some([log, checkpoints, data]) = self.places.get() else { return Place::Superblock };
        match offset {
            at if data.contains(&at) => Place::Data,
            at if log.contains(&at) => Place::Log,
            at if checkpoints.contains(&at) => Place::Checkpoint,
            _ => Place::Superblock,
        }
    }
}

/// A medium whose requests are counted. It forwards every method, also those with a default, because the medium's own is better. Writes that
/// find no space below are noted, whatever they are for.
pub struct Counted {
    below: Arc<dyn Disk>,
    counts: Arc<Counts>,
    troubles: Arc<Troubles>,
    /// If set, all writes count for this purpose, wherever they lie.
    only: Option<Place>,
}

impl Counted {
    pub fn new(below: Arc<dyn Disk>, counts: Arc<Counts>, troubles: Arc<Troubles>) -> Counted {
        Counted { below, counts, troubles, only: None }
    }

    /// A medium that holds only the log, counted with the volume's requests.
    pub fn of_log(below: Arc<dyn Disk>, counts: Arc<Counts>, troubles: Arc<Troubles>) -> Counted {
        Counted { below, counts, troubles, only: Some(Place::Log) }
    }

    fn noting(&self, written: io::Result<()>) -> io::Result<()> {
        written.inspect_err(|e| {
            if is_full(e) {
                self.troubles.note_refused("the medium has no space", e);
            }
        })
    }

    fn place_of(&self, offset: u64) -> Place {
        self.only.unwrap_or_else(|| self.counts.place_of(offset))
    }
}

impl Disk for Counted {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.counts.reads.add(buf.len() as u64);
        let _wait = waiting(Cause::Device);
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.counts.writes[self.place_of(offset) as usize].add(buf.len() as u64);
        let _wait = waiting(Cause::Device);
        self.noting(self.below.write_at(buf, offset))
    }
    fn flush(&self) -> io::Result<()> {
        self.counts.flushes.fetch_add(1, Relaxed);
        let _wait = waiting(Cause::Device);
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.counts.bytes_discarded.fetch_add(len, Relaxed);
        let _wait = waiting(Cause::Device);
        self.below.discard(offset, len)
    }
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let _wait = waiting(Cause::Device);
        self.below.reserve(offset, len)
    }
    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.counts.reads.add(buf.len() as u64);
        let _wait = waiting(Cause::Device);
        self.below.read_medium_at(buf, offset)
    }
    fn read_many(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        parts.iter().for_each(|(_, bytes)| self.counts.reads.add(bytes.len() as u64));
        let _wait = waiting(Cause::Device);
        self.below.read_many(parts)
    }
    fn write_many(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        for (offset, bytes) in parts {
            self.counts.writes[self.place_of(*offset) as usize].add(bytes.len() as u64);
        }
        let _wait = waiting(Cause::Device);
        self.noting(self.below.write_many(parts))
    }
    fn lost(&self) -> Option<String> {
        self.below.lost()
    }
    fn is_device(&self) -> bool {
        self.below.is_device()
    }
    fn room_below(&self) -> Option<u64> {
        self.below.room_below()
    }
    fn is_cached(&self) -> bool {
        self.below.is_cached()
    }
    fn will_read(&self, offset: u64, len: u64) {
        self.below.will_read(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;

    fn disk() -> (Counted, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        (Counted::new(Arc::new(MemDisk::new(32 << 20)), counts.clone(), Arc::default()), counts)
    }

    #[test]
    fn keeps_the_contract_of_a_disk() {
        crate::conformance::check(&disk().0);
    }

    #[test]
    fn sizes_fall_into_powers_of_two() {
        let table = [(1, 0), (512, 0), (1023, 0), (1024, 1), (4096, 3), (4097, 3), (8192, 4), (1 << 20, 11)];
        table.iter().for_each(|(bytes, class)| assert_eq!(class_of(*bytes), *class, "{bytes}"));
        assert_eq!((class_of((8 << 20) - 1), class_of(8 << 20), class_of(u64::MAX)), (13, 14, 14));
    }

    #[test]
    fn each_request_is_counted_where_it_lies() {
        let (d, counts) = disk();
        d.write_at(&[0; 4096], 0).unwrap();
        counts.set_places(8192..16384, 16384..32768, 32768..32 << 20);
        for (at, len) in [(4096, 512), (8192, 1000), (16384, 2048)] {
            d.write_at(&vec![0; len], at).unwrap();
        }
        d.write_many(&[(32768, &[0; 4096]), (65536, &vec![0; 8 << 20])]).unwrap();
        d.read_at(&mut [0; 600], 0).unwrap();
        d.read_many(&mut [(0, &mut [0; 300]), (600, &mut [0; 100])]).unwrap();
        d.flush().unwrap();
        d.discard(0, 4096).unwrap();
        let seen = PLACES.map(|p| (counts.written(p).count(), counts.written(p).bytes));
        assert_eq!(seen, [(2, 4608), (1, 1000), (1, 2048), (2, 4096 + (8 << 20))]);
        let data = counts.written(Place::Data);
        assert_eq!((data.counts[3], data.counts[14]), (1, 1));
        assert_eq!((counts.reads.sizes().count(), counts.reads.sizes().bytes), (3, 1000));
        assert_eq!((counts.flushes(), counts.bytes_discarded()), (1, 4096));
        assert_eq!(data.without(&data), Sizes::default());
    }
}
