//! The content that jobs write and check: pages at fixed places carry stamps (`pattern`), all others the same random bytes.
//!
//! Stamping and checking every page would count in the measured time. One page of sixteen is enough to find lost, swapped or
//! stale data in any amount that matters.

use anyhow::{Context, Result};

use crate::pattern::{Checked, Mark, PAGE_BYTES, Pattern};

/// Every so many pages of a file one is stamped, the first among them.
const STAMPED_EVERY: u64 = 16;
const PAGE: u64 = PAGE_BYTES as u64;

pub struct Content {
    /// Content of stamped pages. It is the same between the stamps, so that the transfer sizes of writer and reader may differ.
    pattern: Pattern,
    /// All other pages.
    filler: Pattern,
    /// The length after which content that is not stamped repeats.
    period: u64,
    verify: bool,
}

impl Content {
    pub fn new(seed: u64, transfer_bytes: u64, verify: bool) -> Content {
        // Transfers of whole pages repeat with themselves, so that a buffer keeps its content and only stamps change.
        let period = transfer_bytes.next_multiple_of(PAGE).max(PAGE);
        let pattern = Pattern::new(seed, PAGE_BYTES, verify);
        let filler = Pattern::new(seed.wrapping_add(1), period as usize, verify);
        Content { pattern, filler, period, verify }
    }

    /// Puts the content of `[offset, offset + buffer.len())` into a buffer that holds anything.
    pub fn fill(&self, mark: Mark, offset: u64, buffer: &mut [u8]) {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let in_page = (at % PAGE) as usize;
            let len = (PAGE_BYTES - in_page).min(buffer.len() - done);
            let page_at = at - in_page as u64;
            let piece = &mut buffer[done..done + len];
            if self.is_stamped(page_at) {
                let mut page = [0; PAGE_BYTES];
                self.pattern.fill(mark, page_at, &mut page);
                piece.copy_from_slice(&page[in_page..in_page + len]);
            } else {
                piece.copy_from_slice(&self.filler.base_at(page_at, PAGE_BYTES)[in_page..in_page + len]);
            }
            done += len;
        }
    }

    /// As `fill`, into a buffer that this function or `fill` filled for another place, mark or version of the same length.
    pub fn refill(&self, mark: Mark, offset: u64, buffer: &mut [u8]) {
        let is_repeating = offset.is_multiple_of(self.period) && buffer.len() as u64 == self.period;
        if !is_repeating {
            // Random bytes at the right place do not matter without stamps.
            if self.verify {
                self.fill(mark, offset, buffer);
            }
            return;
        }
        for_each_stamped(offset, buffer.len(), |at| {
            if self.verify {
                let begin = (at - offset) as usize;
                // The whole page: where it was another of the file, it may have been one without stamps.
                self.pattern.fill(mark, at, &mut buffer[begin..begin + PAGE_BYTES]);
            }
        });
    }

    /// Checks the stamped pages, or parts of them, in the data read at `offset`. Each may have any of `versions`.
    pub fn check(&self, file: u64, versions: &[u64], offset: u64, buffer: &[u8]) -> Result<Checked> {
        let mut checked = Checked::default();
        if !self.verify {
            return Ok(checked);
        }
        let end = offset + buffer.len() as u64;
        let mut page_at = (offset / PAGE).next_multiple_of(STAMPED_EVERY) * PAGE;
        if (offset / PAGE).is_multiple_of(STAMPED_EVERY) {
            page_at = offset / PAGE * PAGE;
        }
        while page_at < end {
            let (from, to) = (page_at.max(offset), (page_at + PAGE).min(end));
            let piece = &buffer[(from - offset) as usize..(to - offset) as usize];
            checked += self.check_page(file, versions, page_at, (from - page_at) as usize, piece)?;
            page_at += STAMPED_EVERY * PAGE;
        }
        Ok(checked)
    }

    fn check_page(
        &self,
        file: u64,
        versions: &[u64],
        page_at: u64,
        from: usize,
        piece: &[u8],
    ) -> Result<Checked> {
        let mut failure = None;
        for version in versions {
            let mark = Mark { file, version: *version };
            let result = if piece.len() == PAGE_BYTES {
                self.pattern.check(mark, page_at, piece)
            } else {
                self.check_part(mark, page_at, from, piece)
            };
            match result {
                Ok(checked) => return Ok(checked),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.context("a read says which versions it accepts")?)
    }

    fn check_part(&self, mark: Mark, page_at: u64, from: usize, piece: &[u8]) -> Result<Checked> {
        let mut page = [0; PAGE_BYTES];
        self.pattern.fill(mark, page_at, &mut page);
        anyhow::ensure!(
            piece == &page[from..from + piece.len()],
            "content is wrong: file {} differs from byte {} to {}",
            mark.file,
            page_at + from as u64,
            page_at + (from + piece.len()) as u64
        );
        Ok(Checked { pages: 1, whole_pages: 0, sizes: 0 })
    }

    /// Is the page at `page_at` one that is stamped?
    pub fn is_stamped(&self, page_at: u64) -> bool {
        self.verify && (page_at / PAGE).is_multiple_of(STAMPED_EVERY)
    }
}

/// Offsets of stamped pages in whole pages from `offset` on.
fn for_each_stamped(offset: u64, len: usize, mut each: impl FnMut(u64)) {
    let first = (offset / PAGE).next_multiple_of(STAMPED_EVERY) * PAGE;
    let mut at = first;
    while at + PAGE <= offset + len as u64 {
        each(at);
        at += STAMPED_EVERY * PAGE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark { file: 3, version: 1 };

    fn content(transfer: u64) -> Content {
        Content::new(1, transfer, true)
    }

    /// Writer and reader may use different transfer sizes.
    #[test]
    fn stamped_pages_do_not_depend_on_the_transfer() {
        let mut written = vec![0; 1 << 20];
        content(1 << 20).fill(MARK, 0, &mut written);
        for (at, page) in written.chunks(4096).enumerate() {
            content(4096).check(3, &[1], at as u64 * 4096, page).unwrap();
        }
        assert_eq!(content(64 << 10).check(3, &[1], 0, &written).unwrap().pages, 16);
    }

    /// Whatever pieces a file is written in, the same bytes come out, and whatever pieces it is read in, they are right.
    #[test]
    fn pieces_of_any_size_fit_together() {
        for transfer in [4096, 65_536, 1 << 20, 1000, 4097, 47_008] {
            let content = content(transfer);
            let mut whole = vec![0; 300_000];
            content.fill(MARK, 0, &mut whole);
            for step in [1, 100, 4096, 5000, 65_536] {
                let mut pages = 0;
                for at in (0..whole.len()).step_by(step * 64) {
                    let end = (at + step * 64).min(whole.len());
                    let mut part = vec![0; end - at];
                    content.fill(MARK, at as u64, &mut part);
                    assert!(part == whole[at..end]);
                    pages += content.check(3, &[1], at as u64, &part).unwrap().pages;
                }
                assert!(pages >= 5, "{transfer} {step}: {pages}");
            }
        }
    }

    #[test]
    fn a_buffer_that_is_used_again_says_its_new_place() {
        let content = content(128 << 10);
        let mut buffer = vec![0; 128 << 10];
        content.fill(MARK, 0, &mut buffer);
        for (offset, version) in [(128 << 10, 1), (0, 2), (128 << 10, 2)] {
            let mark = Mark { version, ..MARK };
            content.refill(mark, offset, &mut buffer);
            let mut want = vec![0; buffer.len()];
            content.fill(mark, offset, &mut want);
            assert!(buffer == want);
        }
    }

    /// Of transfers that do not divide sixteen pages each has its stamps elsewhere.
    #[test]
    fn stamps_wander_through_a_buffer() {
        for pages in [1, 3, 5, 12, 24, 250] {
            let transfer = pages * 4096;
            let content = content(transfer);
            let mut buffer = vec![0; transfer as usize];
            content.fill(MARK, 0, &mut buffer);
            let checked = (0..64).map(|turn| {
                content.refill(MARK, turn * transfer, &mut buffer);
                content.check(3, &[1], turn * transfer, &buffer).unwrap().pages
            });
            assert_eq!(checked.sum::<u64>(), (64 * pages).div_ceil(16), "{pages}");
        }
    }

    #[test]
    fn old_moved_and_lost_content_is_found() {
        let content = content(64 << 10);
        let mut buffer = vec![0; 64 << 10];
        content.fill(MARK, 0, &mut buffer);
        assert_eq!(content.check(3, &[7, 1], 0, &buffer).unwrap().pages, 1);
        assert!(content.check(3, &[2], 0, &buffer).is_err());
        assert!(content.check(4, &[1], 0, &buffer).is_err());
        assert!(content.check(3, &[1], 1 << 20, &buffer).is_err());
        assert!(content.check(3, &[1], 0, &vec![0; 64 << 10]).is_err());
        // A file shorter than a page is checked as far as it goes.
        assert_eq!(content.check(3, &[1], 0, &buffer[..10]).unwrap().pages, 1);
        buffer[5] ^= 1;
        assert!(content.check(3, &[1], 0, &buffer[..10]).is_err());
        let unverified = Content::new(1, 4096, false);
        assert_eq!(unverified.check(3, &[1], 0, &buffer).unwrap(), Checked::default());
    }
}
