//! The cost of sub-blocks: a simulation that stores a mix of files with the allocator alone, without a medium.
//!
//! Files are written as clients send them, in writes of 1 MiB at most, and several files concurrently. The space that they take beyond
//! their bytes is waste.

use disk::SplitMix;
use types::PAGE_SIZE;

use disk::alloc::{Buddy, ORDER_MAX, Run};

const PAGE: u64 = PAGE_SIZE as u64;
/// The largest write of a client.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// Sizes of files: log-uniform, so that each doubling of the size has as many files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    pub files: u64,
    /// Bytes; at least 1.
    pub bytes_min: u64,
    pub bytes_max: u64,
    /// Files written concurrently.
    pub streams: usize,
    pub seed: u64,
}

/// The mix: 500 B to 20 MiB.
pub const MIXED_FILES: Mix = Mix { files: 100_000, bytes_min: 500, bytes_max: 20 << 20, streams: 8, seed: 1 };

/// A unit of allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubBlock {
    /// 2^this pages; 0: as large as each write needs.
    pub(crate) order: u8,
}

impl SubBlock {
    /// A power of two from a page to 8 MiB; a page means: as large as each write needs.
    pub fn of_bytes(bytes: u64) -> Option<SubBlock> {
        let is_sound = bytes.is_power_of_two() && (PAGE..=PAGE << ORDER_MAX).contains(&bytes);
        is_sound.then(|| SubBlock { order: (bytes / PAGE).ilog2() as u8 })
    }
    pub fn bytes(self) -> u64 {
        PAGE << self.order
    }
}

/// The space that a mix takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waste {
    pub bytes_stored: u64,
    pub bytes_allocated: u64,
    /// Pieces that are not contiguous.
    pub fragments: u64,
}

impl Waste {
    /// Waste, in percent of the stored bytes.
    pub fn percent(&self) -> f64 {
        (self.bytes_allocated - self.bytes_stored) as f64 / self.bytes_stored.max(1) as f64 * 100.0
    }
}

/// A file that is being written.
struct Stream {
    rest: u64,
    /// The end of its last piece on the medium.
    end: Option<u64>,
}

impl Mix {
    /// The size of the next file.
    fn draw(&self, rng: &mut SplitMix) -> u64 {
        let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let (min, max) = ((self.bytes_min.max(1) as f64).ln(), (self.bytes_max.max(1) as f64).ln());
        (min + unit * (max - min)).exp() as u64
    }

    /// Stores all files in sub-blocks of this size and measures the waste.
    pub fn store(&self, sub_block: SubBlock) -> Waste {
        // Enough space for each file at its largest size.
        let most = (self.bytes_max.max(self.bytes_min) / PAGE + 1).next_multiple_of(1 << sub_block.order);
        let total = (most * (self.files + 1)).next_multiple_of(1 << ORDER_MAX);
        let mut buddy = Buddy::in_sub_blocks(total, sub_block.order);
        buddy.give_back(0, total);
        let (mut rng, mut waste, mut left) = (SplitMix::new(self.seed), Waste::default(), self.files);
        let mut streams: Vec<Stream> = Vec::new();
        let mut runs: Vec<Run> = Vec::new();
        loop {
            while left > 0 && streams.len() < self.streams.max(1) {
                left -= 1;
                let rest = self.draw(&mut rng).max(1);
                waste.bytes_stored += rest;
                streams.push(Stream { rest, end: None });
            }
            if streams.is_empty() {
                waste.bytes_allocated = (total - buddy.free_pages()) * PAGE;
                return waste;
            }
            for s in &mut streams {
                let bytes = s.rest.min(WRITE_BYTES_MAX);
                let pages = bytes.div_ceil(PAGE) as u32;
                let near = s.end.filter(|_| bytes == WRITE_BYTES_MAX);
                runs.clear();
                assert!(buddy.take(pages, near, &mut runs), "there is room for all");
                for run in &runs {
                    waste.fragments += u64::from(s.end != Some(run.start));
                    s.end = Some(run.end());
                }
                s.rest -= bytes;
            }
            streams.retain(|s| s.rest > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files in the long form of the tests.
    fn mixed(kib: u64) -> Waste {
        let files = if std::env::var_os("STRIA_LONG").is_some() { MIXED_FILES.files } else { 5000 };
        Mix { files, ..MIXED_FILES }.store(SubBlock::of_bytes(kib << 10).unwrap())
    }

    /// The bar of the OST engine.
    #[test]
    fn waste_of_mixed_files_stays_below_8_percent() {
        let w = mixed(4);
        assert!(w.bytes_stored > 5000 << 20, "files of 1.9 MiB on the average: {w:?}");
        assert!(w.percent() < 8.0, "{} %", w.percent());
        assert!(w.percent() > 0.05, "each file ends within a page: {} %", w.percent());
    }

    /// Half a sub-block for each file, or all of it for the smallest.
    #[test]
    fn fixed_sub_blocks_waste_more_the_larger_they_are() {
        let all = [4, 8, 32, 256].map(|kib| mixed(kib).percent());
        assert!(all.is_sorted(), "{all:?}");
        assert!((0.5..2.0).contains(&all[2]) && (5.0..12.0).contains(&all[3]), "{all:?}");
    }

    #[test]
    fn sub_blocks_are_powers_of_two_from_a_page_on() {
        for bytes in [0, 1, 512, 4095, 12_288, 16 << 20] {
            assert_eq!(SubBlock::of_bytes(bytes), None, "{bytes}");
        }
        for bytes in [4096, 32 << 10, 8 << 20] {
            assert_eq!(SubBlock::of_bytes(bytes).map(SubBlock::bytes), Some(bytes));
        }
    }
}
