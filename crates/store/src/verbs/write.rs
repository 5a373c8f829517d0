//! Writing: copy on write, data first, then the entry.

use std::sync::Arc;

use types::crc::{crc32c, verify_fragments};
use types::{BULK_MAX, ObjectId, PAGE_SIZE};

use crate::records::codec::{EXTENT_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::records::error::StoreError;
use crate::records::record::{Placed, Record, WriteRecord};
use crate::state::engine::{Asked, Engine, Stop};
use crate::state::mirror::Carried;
use crate::state::room::Wish;
use crate::state::space::{Purpose, Taken};
use crate::verbs::read::Below;
use crate::{Done, Write};
use disk::alloc::{Run, STREAM_PAGES};

/// Tries of a partial-page write whose page changes under it. Each new try means that another write made progress. Partial writers
/// of one object take turns, so only a flood of whole-page writes to the very same page can exhaust the tries.
pub(crate) const MERGE_TRIES_MAX: usize = 1000;

/// The pages of a byte range, and those that it covers only in part.
struct Span {
    first: u32,
    pages: u32,
    is_head_partial: bool,
    /// The last page is partial and is not the first.
    is_tail_partial: bool,
    /// Offset in the first page where the range begins.
    skip: usize,
}

impl Span {
    fn of(offset: u64, len: usize) -> Span {
        let page = PAGE_SIZE as u64;
        let end = offset + len as u64;
        let first = (offset / page) as u32;
        let pages = (end.div_ceil(page) - offset / page) as u32;
        let ends_inside = !end.is_multiple_of(page);
        let is_head_partial = !offset.is_multiple_of(page) || (pages == 1 && ends_inside);
        Span {
            first,
            pages,
            is_head_partial,
            is_tail_partial: pages > 1 && ends_inside,
            skip: (offset % page) as usize,
        }
    }
    /// The buffer range of page number `i` of the span.
    fn bytes(&self, i: u32, len: usize) -> std::ops::Range<usize> {
        let at = |i: u32| (i as usize * PAGE_SIZE).saturating_sub(self.skip).min(len);
        at(i)..at(i + 1)
    }
}

/// The answer of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Written {
    /// The object's length in bytes.
    pub len: u64,
    /// Pages that had no space before.
    pub pages: u32,
    /// The space came out of the holder's grant.
    pub granted: bool,
}

/// Lengths stay below 2^44.
const PAGES_SHIFT: u32 = 48;
const GRANTED: u64 = 1 << 47;

impl Written {
    pub fn to_answer(self) -> u64 {
        self.len | (self.pages as u64) << PAGES_SHIFT | if self.granted { GRANTED } else { 0 }
    }
    pub fn from_answer(answer: u64) -> Written {
        Written {
            len: answer & (GRANTED - 1),
            pages: (answer >> PAGES_SHIFT) as u32,
            granted: answer & GRANTED != 0,
        }
    }
}

/// A partial page, completed with the old bytes of the page.
pub(crate) struct Merged {
    pub page: u32,
    /// The sources of the old bytes.
    before: Below,
    pub bytes: [u8; PAGE_SIZE],
    pub crc: u32,
}

impl Merged {
    /// The page had no old bytes.
    pub fn is_hole(&self) -> bool {
        self.before.is_hole()
    }
}

impl Engine {
    pub(crate) fn write_object(&self, w: &Write<'_>) -> Result<Done, StoreError> {
        // 1. store-S2: verify that the data arrived as it was sent.
        verify_fragments(w.offset, w.data, w.crcs)
            .map_err(|at| StoreError::BadChecksum { object: w.object, offset: w.offset + at as u64 })?;
        let _kept = self.index.load(&w.object)?;
        // 2. Refuse early; the same gate is called again under the tail's lock.
        let attrs = self.pass_gate(&w.object, w.gate)?;
        if let Some(done) = self.write_small(w)? {
            return Ok(done);
        }
        let span = Span::of(w.offset, w.data.len());
        // Only objects with a reservation past the offset need the count; most objects have none.
        let is_promised = attrs.reserved_end > w.offset;
        let unreserved = span.pages as u64 - if is_promised { self.reserved_in(&w.object, &span) } else { 0 };
        if unreserved > 0 {
            // The index space of reserved pages was counted when they were reserved.
            self.check_index_room(OBJECT_BYTES_MAX + unreserved * (EXTENT_BYTES_MAX + 4), Wish::Write)?;
        }
        // 3. Partial-page writers of one object take turns, so that they do not chase each other.
        let is_partial = span.is_head_partial || span.is_tail_partial;
        let _turn = is_partial.then(|| self.merge_lock(&w.object).lock());
        for _ in 0..MERGE_TRIES_MAX {
            match self.try_write(w, &span, is_promised) {
                Err(Stop::Again) => continue,
                Err(Stop::Failed(e)) => return Err(e),
                Ok(done) => return Ok(done),
            }
        }
        Err(StoreError::TooMany { what: "writers of one page at once", max: MERGE_TRIES_MAX })
    }

    fn try_write(&self, w: &Write<'_>, span: &Span, is_promised: bool) -> Result<Done, Stop> {
        // 1. Take a place before the `Reading` begins, since a `Reading` keeps superseded places from becoming free.
        let claim = if is_promised { self.reserved_in(&w.object, span) } else { 0 };
        let near = self.stream_end(&w.object, span);
        let taken = self.take_near(span.pages, near, claim, Purpose::Write, w.holder)?;
        // 2. Merge partial pages with the old bytes.
        let _reading = (span.is_head_partial || span.is_tail_partial).then(|| self.readers.begin());
        let merge = |i: u32, skip: usize| {
            self.merge(w.object, span.first + i, skip, &w.data[span.bytes(i, w.data.len())])
        };
        let head = span.is_head_partial.then(|| merge(0, span.skip)).transpose()?;
        let tail = span.is_tail_partial.then(|| merge(span.pages - 1, 0)).transpose()?;
        // 3. Write the data to the new places. No lock but the object's merge lock is held.
        // Both members' media work at the same time.
        let mut written = None;
        let mut write_data =
            || written = Some(self.write_data(w, span, &taken, head.as_ref(), tail.as_ref()));
        let carried = self.carry(w, span, head.as_ref(), tail.as_ref(), &mut write_data);
        match written {
            Some(written) => written?,
            None => self.write_data(w, span, &taken, head.as_ref(), tail.as_ref())?,
        }
        // 4. Commit the entry and update the index in one step, unless a merged page changed meanwhile or the gate refuses.
        let record = Record::Write(describe(w, span, &taken.runs, head.as_ref(), tail.as_ref()));
        let end = w.offset + w.data.len() as u64;
        let is_plain = head.is_none() && tail.is_none() && !is_promised;
        let done = self.commit_carrying(w.origin, record, carried, is_plain, |asked| {
            let attrs = self.pass_gate(&w.object, w.gate)?;
            self.check_unchanged(&w.object, head.iter().chain(&tail))?;
            if asked == Asked::ForGood {
                taken.give_up_claim();
            }
            let (len, granted) = (attrs.len.max(end), taken.is_granted());
            let written = Written { len, pages: self.lacking_in(&w.object, span), granted };
            Ok::<u64, Stop>(written.to_answer())
        })?;
        taken.keep();
        Ok(done)
    }

    /// Number of reserved pages of the span. If two writers claim one page, the second frees the first one's place.
    fn reserved_in(&self, object: &ObjectId, span: &Span) -> u64 {
        let Some(object) = self.index.get(object) else { return 0 };
        let state = object.read();
        state.reserved.count(span.first, span.first + span.pages)
    }

    /// The place on the medium right after the page before a large write, so that the write can continue there.
    fn stream_end(&self, object: &ObjectId, span: &Span) -> Option<u64> {
        if span.pages < STREAM_PAGES || span.first == 0 {
            return None;
        }
        let site = self.index.get(object)?.read().extents.site(span.first - 1)?;
        Some(site.page + 1)
    }

    /// Number of pages of the span that have no space.
    fn lacking_in(&self, object: &ObjectId, span: &Span) -> u32 {
        let Some(object) = self.index.get(object) else { return span.pages };
        let (state, limit) = (object.read(), span.first + span.pages);
        let has = state.count(span.first, limit) + state.reserved.count(span.first, limit);
        span.pages - has as u32
    }

    /// Gives the whole pages to the other member of the mirror, merged ones too, so that it has nothing to merge. `None`: there is none.
    /// `meanwhile` may be called once, while they are on their way.
    fn carry(
        &self,
        w: &Write<'_>,
        span: &Span,
        head: Option<&Merged>,
        tail: Option<&Merged>,
        meanwhile: &mut dyn FnMut(),
    ) -> Option<Carried> {
        let other = self.mirror.companion()?;
        // A write of the largest size that begins inside a page has a page more than a frame takes beside its body.
        let is_stageable = span.pages as usize * PAGE_SIZE <= BULK_MAX;
        let mut stage = |pages: &[u8]| if is_stageable { other.stage_beside(pages, meanwhile) } else { None };
        if head.is_none() && tail.is_none() {
            return Some(stage(w.data).map_or_else(|| Carried::Pages(w.data.to_vec()), Carried::Staged));
        }
        let mut pages = Vec::with_capacity(span.pages as usize * PAGE_SIZE);
        for i in 0..span.pages {
            match (head, tail) {
                (Some(m), _) if i == 0 => pages.extend_from_slice(&m.bytes),
                (_, Some(m)) if i + 1 == span.pages => pages.extend_from_slice(&m.bytes),
                _ => pages.extend_from_slice(&w.data[span.bytes(i, w.data.len())]),
            }
        }
        Some(stage(&pages).map_or(Carried::Pages(pages), Carried::Staged))
    }

    fn write_data(
        &self,
        w: &Write<'_>,
        span: &Span,
        taken: &Taken<'_>,
        head: Option<&Merged>,
        tail: Option<&Merged>,
    ) -> Result<(), StoreError> {
        let mut parts: Vec<(u64, &[u8])> = Vec::with_capacity(taken.runs.len() + 2);
        let mut i = 0;
        for run in &taken.runs {
            let (mut from, mut to) = (i, i + run.pages);
            if let (Some(m), 0) = (head, from) {
                parts.push((self.at(run.start), &m.bytes));
                from += 1;
            }
            if let Some(m) = tail.filter(|_| to == span.pages && to > from) {
                parts.push((self.at(run.end() - 1), &m.bytes));
                to -= 1;
            }
            if from < to {
                let begin = span.bytes(from, w.data.len()).start;
                let bytes = &w.data[begin..begin + (to - from) as usize * PAGE_SIZE];
                parts.push((self.at(run.start + (from - i) as u64), bytes));
            }
            i += run.pages;
        }
        assert_eq!(i, span.pages, "a write has a place for each page");
        let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(bytes, span.pages as usize * PAGE_SIZE, "a write has the bytes of each page");
        self.write_parts(w.object, &parts)
    }

    /// Completes a page: its old bytes, verified, with `fragment` (verified on arrival) at `skip`.
    fn merge(&self, object: ObjectId, page: u32, skip: usize, fragment: &[u8]) -> Result<Merged, StoreError> {
        let mut m = self.old_page(object, page)?;
        m.bytes[skip..skip + fragment.len()].copy_from_slice(fragment);
        m.crc = crc32c(&m.bytes);
        Ok(m)
    }

    /// The present bytes of a page, verified; zeros if it is a hole. The caller sets the CRC.
    pub(crate) fn old_page(&self, object: ObjectId, page: u32) -> Result<Merged, StoreError> {
        let mut bytes = [0; PAGE_SIZE];
        let before = self.read_page(object, page, &mut bytes)?;
        Ok(Merged { page, before, bytes, crc: types::crc::ZERO_PAGE })
    }

    /// Under the tail lock: checks that no merged page has changed since it was read. The caller has held a `Reading` since before the
    /// read, so an unchanged place means unchanged bytes.
    pub(crate) fn check_unchanged<'a>(
        &self,
        object: &ObjectId,
        merged: impl Iterator<Item = &'a Merged>,
    ) -> Result<(), Stop> {
        for m in merged {
            let now = self.index.get(object).map_or(Below::default(), |o| Below::of(&o.read(), m.page));
            let is_same = now == m.before;
            if !is_same {
                return Err(Stop::Again);
            }
        }
        Ok(())
    }
}

fn describe(
    w: &Write<'_>,
    span: &Span,
    runs: &[Run],
    head: Option<&Merged>,
    tail: Option<&Merged>,
) -> WriteRecord {
    let mut page = span.first;
    let place = |run: &Run| {
        let placed = Placed { page, run: *run };
        page += run.pages;
        placed
    };
    let placed = runs.iter().map(place).collect();
    // A fragment's CRC is its page's, except of partial pages, whose CRC was computed by the merge.
    let last = w.crcs.len() - 1;
    let crc_of = |(i, crc): (usize, &u32)| match (head, tail) {
        (Some(m), _) if i == 0 => m.crc,
        (_, Some(m)) if i == last => m.crc,
        _ => *crc,
    };
    let crcs: Arc<[u32]> = w.crcs.iter().enumerate().map(crc_of).collect();
    assert_eq!(crcs.len(), span.pages as usize, "store-S2: a write has one CRC per page");
    WriteRecord {
        object: w.object,
        end: w.offset + w.data.len() as u64,
        mtime: w.mtime,
        lease: w.lease,
        placed,
        crcs,
    }
}
