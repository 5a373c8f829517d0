//! Punching a hole: whole pages are removed, and the partial pages at both ends are rewritten with zeros. The object's length stays.

use types::PAGE_SIZE;
use types::crc::crc32c;

use crate::records::error::StoreError;
use crate::records::record::{PunchRecord, Record, Zeroed};
use crate::state::engine::{Engine, Stop};
use crate::state::mirror::Carried;
use crate::state::space::Purpose;
use crate::verbs::write::{MERGE_TRIES_MAX, Merged};
use crate::{Done, Leave, Punch};

const PAGE: u64 = PAGE_SIZE as u64;

impl Engine {
    pub(crate) fn punch_object(&self, p: &Punch<'_>) -> Result<Done, StoreError> {
        let _kept = self.index.load(&p.object)?;
        let _turn = self.merge_lock(&p.object).lock();
        for _ in 0..MERGE_TRIES_MAX {
            match self.try_punch(p) {
                Err(Stop::Again) => continue,
                Err(Stop::Failed(e)) => return Err(e),
                Ok(done) => return Ok(done),
            }
        }
        Err(StoreError::TooMany { what: "writers of one page at once", max: MERGE_TRIES_MAX })
    }

    fn try_punch(&self, p: &Punch<'_>) -> Result<Done, Stop> {
        if !self.pass_gate(&p.object, p.gate)?.exists {
            // The object is absent and stays so; the entry only records the slot.
            return self.commit(p.origin, Record::Nothing, || {
                let now = self.pass_gate(&p.object, p.gate)?;
                if now.exists { Err(Stop::Again) } else { Ok(0) }
            });
        }
        // 1. Rewrite the pages that are punched in part. They may take from the reserve, as a cut may, because punching frees space.
        let end = p.offset + p.len;
        let (first, limit) = (p.offset.div_ceil(PAGE) as u32, (end / PAGE) as u32);
        let mut parts = Vec::new();
        // Places are taken before the `Reading` begins, since a `Reading` keeps superseded places from becoming free.
        let has_page = |page| self.index.get(&p.object).is_some_and(|o| o.read().has(page));
        let mut places = Vec::new();
        for (page, from, to) in partial_pages(p.offset, end) {
            let taken = has_page(page).then(|| self.take(1, 0, Purpose::Reserved)).transpose()?;
            places.push((page, from, to, taken));
        }
        let _reading = self.readers.begin();
        for (page, from, to, taken) in places {
            let mut m = self.old_page(p.object, page)?;
            if m.is_hole() {
                parts.push((m, None));
                continue;
            }
            // The page was written meanwhile.
            let Some(taken) = taken else { return Err(Stop::Again) };
            m.bytes[from..to].fill(0);
            m.crc = crc32c(&m.bytes);
            self.write_pages(p.object, taken.runs[0].start, &m.bytes)?;
            parts.push((m, Some(taken)));
        }
        // 2. Commit the entry, unless one of these pages changed meanwhile.
        let zeroed = |(m, taken): &(Merged, Option<crate::state::space::Taken<'_>>)| {
            taken.as_ref().map(|t| Zeroed { page: m.page, start: t.runs[0].start, crc: m.crc })
        };
        let record = Record::Punch(PunchRecord {
            object: p.object,
            first: first.min(limit),
            limit,
            is_kept: p.leave == Leave::Reserved,
            mtime: p.mtime,
            lease: p.lease,
            zeroed: parts.iter().filter_map(zeroed).collect(),
        });
        let rewritten = parts.iter().filter(|(_, taken)| taken.is_some());
        let pages = || rewritten.flat_map(|(m, _)| m.bytes).collect();
        let carried = self.is_mirrored().then(|| Carried::Pages(pages()));
        let done = self.commit_carrying(p.origin, record, carried, false, |_| {
            let now = self.pass_gate(&p.object, p.gate)?;
            self.check_unchanged(&p.object, parts.iter().map(|(m, _)| m))?;
            if now.exists { Ok(now.len) } else { Err(Stop::Again) }
        })?;
        parts.into_iter().filter_map(|(_, taken)| taken).for_each(|taken| taken.keep());
        Ok(done)
    }
}

/// The pages that `[offset, end)` covers in part: the page, and its bytes `[from, to)` in the range.
fn partial_pages(offset: u64, end: u64) -> impl Iterator<Item = (u32, usize, usize)> {
    let (head, tail) = (offset / PAGE, end / PAGE);
    let (from, to) = ((offset % PAGE) as usize, (end % PAGE) as usize);
    let first = match (from, head == tail) {
        (0, _) => None,
        (_, true) => Some((head as u32, from, to)),
        (_, false) => Some((head as u32, from, PAGE_SIZE)),
    };
    let is_last = to > 0 && (head != tail || from == 0);
    first.into_iter().chain(is_last.then_some((tail as u32, 0, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_lies_in_a_whole_page_or_in_one_part() {
        for offset in [0u64, 1, 4095, 4096, 4097, 8192, 9000] {
            for len in [1, 2, 4095, 4096, 4097, 8191, 8192, 12_288, 20_000] {
                let end = offset + len;
                let mut seen = vec![0u8; 40_000];
                let (first, limit) = (offset.div_ceil(PAGE), end / PAGE);
                (first..limit)
                    .for_each(|p| seen[(p * PAGE) as usize..][..PAGE_SIZE].iter_mut().for_each(|b| *b += 1));
                for (page, from, to) in partial_pages(offset, end) {
                    assert!(from < to && to - from < PAGE_SIZE, "{offset} {len}");
                    let at = page as usize * PAGE_SIZE;
                    seen[at + from..at + to].iter_mut().for_each(|b| *b += 1);
                }
                let want = |at: usize| (offset..end).contains(&(at as u64)) as u8;
                assert!((0..seen.len()).all(|at| seen[at] == want(at)), "{offset} {len}");
            }
        }
    }
}
