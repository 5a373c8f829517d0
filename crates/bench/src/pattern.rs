//! Content of files: a seeded random block, repeated, with a stamp at the start of each sector that identifies its place.
//!
//! A page begins with file, offset and version in the clear. Each other sector of 512 bytes begins with a number made of the
//! three and their own place, so that a page of sectors of two versions, files or places shows too.
//! bench-P1. A sector's content follows from `(seed, file, offset, version)`: one that is lost, old, misplaced or damaged differs.
//! The bytes after a stamp depend on the offset alone; writes cover whole sectors.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub const PAGE_BYTES: usize = 4096;
/// The least that a medium writes as a whole.
const SECTOR_BYTES: usize = 512;
const STAMP_BYTES: usize = 24;
const TAG_BYTES: usize = 8;

/// Names one file's one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub file: u64,
    pub version: u64,
}

/// Counts of checked data that was correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checked {
    /// Pages whose stamps were right, that of each sector.
    pub pages: u64,
    /// Those of them that were compared to the last byte.
    pub whole_pages: u64,
    /// Files whose size was right.
    pub sizes: u64,
}

impl std::ops::AddAssign for Checked {
    fn add_assign(&mut self, other: Checked) {
        self.pages += other.pages;
        self.whole_pages += other.whole_pages;
        self.sizes += other.sizes;
    }
}

pub struct Pattern {
    base: Vec<u8>,
    verify: bool,
}

impl Pattern {
    /// `block_bytes`, a multiple of the page: the length after which content other than stamps repeats. Without `verify` every
    /// content passes.
    pub fn new(seed: u64, block_bytes: usize, verify: bool) -> Pattern {
        assert_eq!(block_bytes % PAGE_BYTES, 0);
        let mut state = seed;
        let words = (0..block_bytes / 8).flat_map(|_| next(&mut state).to_le_bytes());
        Pattern { base: words.collect(), verify }
    }

    /// The content at `offset`, before its sectors are stamped. `offset` and `len` are multiples of the page, in one block.
    pub fn base_at(&self, offset: u64, len: usize) -> &[u8] {
        let begin = (offset % self.base.len() as u64) as usize;
        &self.base[begin..begin + len]
    }

    /// Makes `buffer`, which holds base content of its place, the content at `offset`.
    pub fn stamp(mark: Mark, offset: u64, buffer: &mut [u8]) {
        for (i, page) in buffer.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let (stamp, tags) = stamps_of(mark, offset + (i * PAGE_BYTES) as u64);
            page[..STAMP_BYTES].copy_from_slice(&stamp);
            for (sector, tag) in page.chunks_exact_mut(SECTOR_BYTES).zip(tags).skip(1) {
                sector[..TAG_BYTES].copy_from_slice(&tag.to_le_bytes());
            }
        }
    }

    /// Fills `buffer` with the content at `offset`.
    pub fn fill(&self, mark: Mark, offset: u64, buffer: &mut [u8]) {
        buffer.copy_from_slice(self.base_at(offset, buffer.len()));
        Self::stamp(mark, offset, buffer);
    }

    /// Checks every byte of the whole pages that were read at `offset`.
    pub fn check(&self, mark: Mark, offset: u64, buffer: &[u8]) -> Result<Checked> {
        let mut checked = Checked::default();
        if !self.verify {
            return Ok(checked);
        }
        for (i, page) in buffer.chunks_exact(PAGE_BYTES).enumerate() {
            let at = offset + (i * PAGE_BYTES) as u64;
            let is_good =
                are_stamps_good(mark, at, page) && are_bodies_equal(page, self.base_at(at, PAGE_BYTES));
            if !is_good {
                bail!("content is wrong: file {} at byte {at} holds {}", mark.file, describe(page, mark, at));
            }
            checked.pages += 1;
            checked.whole_pages += 1;
        }
        Ok(checked)
    }
}

/// The page's stamp, and the tag of each of its sectors; that of the first is not used.
fn stamps_of(mark: Mark, offset: u64) -> ([u8; STAMP_BYTES], impl Iterator<Item = u64>) {
    let mut stamp = [0; STAMP_BYTES];
    stamp[..8].copy_from_slice(&mark.file.to_le_bytes());
    stamp[8..16].copy_from_slice(&offset.to_le_bytes());
    stamp[16..].copy_from_slice(&mark.version.to_le_bytes());
    // Three rounds mix the three numbers; the same generator then gives a tag per sector.
    let mut state = mark.file;
    state = next(&mut state) ^ mark.version;
    state = next(&mut state) ^ offset;
    (stamp, std::iter::repeat_with(move || next(&mut state)))
}

fn are_stamps_good(mark: Mark, offset: u64, page: &[u8]) -> bool {
    let (stamp, tags) = stamps_of(mark, offset);
    page[..STAMP_BYTES] == stamp && first_wrong_sector(page, tags).is_none()
}

fn first_wrong_sector(page: &[u8], tags: impl Iterator<Item = u64>) -> Option<usize> {
    let mut sectors = page.chunks_exact(SECTOR_BYTES).zip(tags).enumerate().skip(1);
    sectors.find(|(_, (sector, tag))| sector[..TAG_BYTES] != tag.to_le_bytes()).map(|(n, _)| n)
}

/// All between the stamps.
fn are_bodies_equal(page: &[u8], base: &[u8]) -> bool {
    let mut sectors = page.chunks_exact(SECTOR_BYTES).zip(base.chunks_exact(SECTOR_BYTES)).enumerate();
    sectors.all(|(n, (sector, base))| {
        let begin = if n == 0 { STAMP_BYTES } else { TAG_BYTES };
        sector[begin..] == base[begin..]
    })
}

/// Describes a wrong page for the report: its content hints at the cause.
fn describe(page: &[u8], mark: Mark, at: u64) -> String {
    let word = |i: usize| u64::from_le_bytes(page[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
    match (word(0), word(1), word(2)) {
        _ if page.iter().all(|b| *b == 0) => "zeros".into(),
        (file, offset, version) if (file, offset, version) == (mark.file, at, mark.version) => {
            match first_wrong_sector(page, stamps_of(mark, at).1) {
                Some(n) => {
                    format!("a page whose bytes from {} on are of another page or version", n * SECTOR_BYTES)
                }
                None => "a damaged page".into(),
            }
        }
        (file, offset, version) if file == mark.file && offset == at => {
            format!("version {version} of the page")
        }
        (file, offset, _) => format!("a page that says file {file}, byte {offset}"),
    }
}

/// splitmix64: seeded, quick, and the same everywhere.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_recognised_and_anything_else_is_not() {
        let pattern = Pattern::new(1, 4 * PAGE_BYTES, true);
        let mark = Mark { file: 3, version: 1 };
        let offset = 8 * PAGE_BYTES as u64;
        let mut buffer = vec![0; 4 * PAGE_BYTES];
        pattern.fill(mark, offset, &mut buffer);
        assert_eq!(
            pattern.check(mark, offset, &buffer).unwrap(),
            Checked { pages: 4, whole_pages: 4, sizes: 0 }
        );
        assert!(pattern.check(mark, 0, &buffer).unwrap_err().to_string().contains("says file 3, byte 32768"));
        assert!(pattern.check(Mark { version: 2, ..mark }, offset, &buffer).is_err());
        assert!(pattern.check(Mark { file: 4, ..mark }, offset, &buffer).is_err());
        assert!(pattern.check(mark, offset, &[0; PAGE_BYTES]).unwrap_err().to_string().contains("zeros"));
        // A flipped bit where there is no stamp.
        buffer[PAGE_BYTES + 100] ^= 1;
        assert!(pattern.check(mark, offset, &buffer).unwrap_err().to_string().contains("damaged"));
        let unverified = Pattern::new(1, PAGE_BYTES, false);
        assert_eq!(unverified.check(mark, 0, &buffer).unwrap(), Checked::default());
    }

    /// A page that was written in part, or put together of two, shows in every page and not in the sample alone.
    #[test]
    fn a_page_of_two_versions_files_or_places_is_found() {
        let pattern = Pattern::new(1, 4 * PAGE_BYTES, true);
        let mark = Mark { file: 3, version: 1 };
        let content = |mark, offset| {
            let mut buffer = vec![0; 4 * PAGE_BYTES];
            pattern.fill(mark, offset, &mut buffer);
            buffer
        };
        // The others' base is the same there: the block's length lies between the places.
        let others = [
            content(Mark { version: 2, ..mark }, 0),
            content(Mark { file: 4, ..mark }, 0),
            content(mark, 4 * PAGE_BYTES as u64),
        ];
        for (n, other) in others.iter().enumerate() {
            for sector in 1..8 {
                for range in [sector..8, sector..sector + 1] {
                    let mut mixed = content(mark, 0);
                    let bytes = PAGE_BYTES + range.start * 512..PAGE_BYTES + range.end * 512;
                    mixed[bytes.clone()].copy_from_slice(&other[bytes]);
                    let said = pattern.check(mark, 0, &mixed).expect_err("page 1 is of two");
                    let want = format!("from {} on are of another page or version", sector * 512);
                    assert!(said.to_string().contains(&want), "{n}: {said}");
                }
            }
        }
    }
}
