//! A bitmap of the data region: the pages that some object references ("names"). It is part of each checkpoint, so that a start knows
//! the free pages without reading the objects.
//!
//! store-N1: a page's bit is set from the log entry that gives it to an object to the one that takes it away, in step with the index.
//!     A page that is allocated but not yet logged, or superseded but not yet free, is not named.
//! store-N2: no page is named twice.

use std::io::{self, Read};
use std::sync::Arc;

use crate::records::codec::{get_bytes, get_limited, malformed, put_varint};
use disk::alloc::{Buddy, Run};

/// Pages of one chunk, 128 MiB: 4 KiB of bits, the unit that the first change after a clone copies.
const CHUNK_PAGES: u64 = 32_768;
const WORDS: usize = CHUNK_PAGES as usize / 64;

type Chunk = [u64; WORDS];

/// A clone shares the chunks; a later change copies the one that it touches.
#[derive(Clone, Debug, Default)]
pub struct Named {
    chunks: Vec<Arc<Chunk>>,
    pages: u64,
    /// A run that broke store-N2: a page of it was named already, or lies past the region.
    twice: Option<Run>,
}

/// How a chunk is encoded.
const NONE: u8 = 0;
const ALL: u8 = 1;
const BITS: u8 = 2;
const RUNS: u8 = 3;

impl Named {
    /// For a region of `pages` pages, none of them named.
    pub fn none_of(pages: u64) -> Named {
        let empty = Arc::new([0; WORDS]);
        Named { chunks: vec![empty; pages.div_ceil(CHUNK_PAGES) as usize], pages, twice: None }
    }

    /// Upper bound of its size in a checkpoint, bytes.
    pub fn bytes_max(pages: u64) -> u64 {
        pages.div_ceil(CHUNK_PAGES) * (CHUNK_PAGES / 8 + 1) + 10
    }

    pub fn add(&mut self, run: Run) {
        let mut is_new = run.end() <= self.pages;
        if is_new {
            self.each_word(run, |word, bits| {
                is_new &= *word & bits == 0;
                *word |= bits;
            });
        }
        if !is_new {
            self.twice.get_or_insert(run);
        }
    }

    pub fn remove(&mut self, run: Run) {
        self.each_word(run, |word, bits| *word &= !bits);
    }

    #[cfg(test)]
    pub fn has(&self, run: Run) -> bool {
        (run.start..run.end()).all(|page| {
            self.chunks[(page / CHUNK_PAGES) as usize][(page % CHUNK_PAGES / 64) as usize] >> (page % 64) & 1
                == 1
        })
    }

    /// The first run that broke store-N2, if any did.
    pub fn twice(&self) -> Option<Run> {
        self.twice
    }

    fn each_word(&mut self, run: Run, mut each: impl FnMut(&mut u64, u64)) {
        let (mut at, end) = (run.start, run.end().min(self.pages));
        while at < end {
            let chunk = Arc::make_mut(&mut self.chunks[(at / CHUNK_PAGES) as usize]);
            let chunk_end = (at / CHUNK_PAGES + 1) * CHUNK_PAGES;
            while at < end.min(chunk_end) {
                let (word, bit) = ((at % CHUNK_PAGES / 64) as usize, at % 64);
                let count = (64 - bit).min(end - at);
                let bits = if count == 64 { u64::MAX } else { ((1 << count) - 1) << bit };
                each(&mut chunk[word], bits);
                at += count;
            }
        }
    }

    /// Calls `each` with the maximal ranges of equal bits: from, to, named or not.
    fn each_stretch(&self, mut each: impl FnMut(u64, u64, bool)) {
        let (mut begin, mut is_named, mut at) = (0, false, 0);
        while at < self.pages {
            let word = self.chunks[(at / CHUNK_PAGES) as usize][(at % CHUNK_PAGES / 64) as usize];
            let left = (if is_named { !word } else { word }) >> (at % 64);
            let same = if left == 0 { 64 - at % 64 } else { u64::from(left.trailing_zeros()) };
            at = (at + same).min(self.pages);
            if left != 0 && at < self.pages {
                if at > begin {
                    each(begin, at, is_named);
                }
                (begin, is_named) = (at, !is_named);
            }
        }
        if begin < self.pages {
            each(begin, self.pages, is_named);
        }
    }

    /// An allocator whose free space is the pages that are not named.
    pub fn free(&self, unit_order: u8) -> Buddy {
        let mut buddy = Buddy::in_sub_blocks(self.pages, unit_order);
        self.each_stretch(|from, to, is_named| {
            if !is_named {
                buddy.give_back(from, to - from);
            }
        });
        buddy
    }

    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.pages);
        for (i, chunk) in self.chunks.iter().enumerate() {
            let pages = CHUNK_PAGES.min(self.pages - i as u64 * CHUNK_PAGES);
            match chunk.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() {
                0 => out.push(NONE),
                all if all == pages => out.push(ALL),
                _ => put_chunk(chunk, pages, out),
            }
        }
    }

    /// Decodes the bitmap of a region of `pages` pages.
    pub fn get(r: &mut impl Read, pages: u64) -> io::Result<Named> {
        let mut named = Named::none_of(pages);
        if get_limited(r, pages, "pages of the data region")? != pages {
            return Err(malformed("pages of the data region"));
        }
        for begin in (0..pages).step_by(CHUNK_PAGES as usize) {
            let pages = CHUNK_PAGES.min(pages - begin);
            match get_bytes(r)? {
                [NONE] => {}
                [ALL] => named.add(Run { start: begin, pages: pages as u32 }),
                [BITS] => {
                    get_bits(r, pages, Arc::make_mut(&mut named.chunks[(begin / CHUNK_PAGES) as usize]))?
                }
                [RUNS] => get_runs(r, begin, pages, &mut named)?,
                _ => return Err(malformed("form of named pages")),
            }
        }
        Ok(named)
    }
}

fn put_chunk(chunk: &Chunk, pages: u64, out: &mut Vec<u8>) {
    let bytes = pages.div_ceil(8) as usize;
    let mut runs = Vec::new();
    let one = Named { chunks: vec![Arc::new(*chunk)], pages, twice: None };
    let (mut count, mut before) = (0, 0);
    one.each_stretch(|from, to, is_named| {
        if is_named && runs.len() < bytes {
            put_varint(&mut runs, from - before);
            put_varint(&mut runs, to - from);
            (count, before) = (count + 1, to);
        }
    });
    // The count takes three bytes at most.
    if runs.len() + 3 < bytes {
        out.push(RUNS);
        put_varint(out, count);
        out.extend_from_slice(&runs);
    } else {
        out.push(BITS);
        let all: Vec<u8> = chunk.iter().flat_map(|word| word.to_le_bytes()).collect();
        out.extend_from_slice(&all[..bytes]);
    }
}

fn get_bits(r: &mut impl Read, pages: u64, chunk: &mut Chunk) -> io::Result<()> {
    let mut bytes = [0; WORDS * 8];
    r.read_exact(&mut bytes[..pages.div_ceil(8) as usize])?;
    for (word, bytes) in chunk.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    let is_past = |page: u64| chunk[page as usize / 64] >> (page % 64) & 1 == 1;
    match (pages..pages.next_multiple_of(8)).any(is_past) {
        true => Err(malformed("named page past the data region")),
        false => Ok(()),
    }
}

fn get_runs(r: &mut impl Read, begin: u64, pages: u64, named: &mut Named) -> io::Result<()> {
    let mut at = 0;
    for i in 0..get_limited(r, pages, "count of named runs")? {
        let from = at + get_limited(r, pages, "gap of named runs")?;
        let to = from + get_limited(r, pages, "pages of a named run")?;
        if to <= from || to > pages || (i > 0 && from == at) {
            return Err(malformed("named run"));
        }
        named.add(Run { start: begin + from, pages: (to - from) as u32 });
        at = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with a table of pages, and encoded and decoded, at every step.
    #[test]
    fn bits_agree_with_a_table_and_come_back_from_bytes() {
        for (seed, pages) in [(1, 70_001u64), (2, 64), (3, CHUNK_PAGES), (4, 2 * CHUNK_PAGES + 9)] {
            let mut rng = disk::SplitMix::new(seed);
            let mut named = Named::none_of(pages);
            let mut table = vec![false; pages as usize];
            for step in 0..60 {
                let start = rng.below(pages);
                let most = if rng.below(4) == 0 { pages } else { 300 };
                let run = Run { start, pages: (1 + rng.below(most)).min(pages - start) as u32 };
                let range = run.start as usize..run.end() as usize;
                if rng.below(3) > 0 && !table[range.clone()].contains(&true) {
                    named.add(run);
                    table[range].fill(true);
                } else {
                    named.remove(run);
                    table[range].fill(false);
                }
                assert_eq!(named.twice(), None);
                assert_eq!(named.count(), table.iter().filter(|n| **n).count() as u64, "step {step}");
                let mut bytes = vec![];
                named.put(&mut bytes);
                assert!(bytes.len() as u64 <= Named::bytes_max(pages));
                let again = Named::get(&mut &bytes[..], pages).unwrap();
                assert_eq!(again.chunks, named.chunks);
                let mut seen = vec![];
                again.each_stretch(|from, to, is_named| {
                    assert!(seen.len() as u64 == from && from < to);
                    seen.resize(to as usize, is_named);
                });
                assert_eq!(seen, table);
                assert_eq!(again.free(0).free_pages(), pages - named.count());
            }
        }
    }

    #[test]
    fn a_second_name_and_nonsense_are_told() {
        let run = |start, pages| Run { start, pages };
        let mut named = Named::none_of(1000);
        named.add(run(10, 5));
        named.add(run(15, 1));
        assert_eq!(named.twice(), None);
        named.add(run(12, 70));
        assert_eq!(named.twice(), Some(run(12, 70)), "store-N2");
        let mut past = Named::none_of(1000);
        past.add(run(999, 2));
        assert_eq!(past.twice(), Some(run(999, 2)));
        let head = [0xe8, 7];
        for (what, body) in [
            ("form", &[4][..]),
            ("a run past the end", &[RUNS, 1, 0xe7, 7, 2]),
            ("an empty run", &[RUNS, 1, 1, 0]),
            ("runs that touch", &[RUNS, 2, 1, 1, 0, 1]),
            ("cut", &[BITS, 0]),
        ] {
            let bytes = [&head[..], body].concat();
            assert!(Named::get(&mut &bytes[..], 1000).is_err(), "{what}");
        }
        let bytes = [&head[..], &[BITS], &[0; 125]].concat();
        assert!(Named::get(&mut &bytes[..], 1000).is_ok());
        assert!(Named::get(&mut &bytes[..], 999).is_err(), "another region");
    }
}
