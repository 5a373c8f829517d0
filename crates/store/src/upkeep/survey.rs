//! A survey of a target's space: the free space and its fragmentation, the space that objects take, and the waste in it.
//!
//! It holds no lock longer than for a window of the medium or a page of objects, so that other requests do not wait for it. Changes
//! during the survey may or may not be counted.

use types::{ObjectId, PAGE_SIZE};

use crate::records::error::StoreError;
use crate::records::index::State;
use crate::state::engine::Engine;
use crate::state::space::reserve_pages;
use disk::alloc::{ORDER_MAX, Run};

const PAGE: u64 = PAGE_SIZE as u64;
/// Classes of free runs: 2^i pages to less than twice that.
pub const RUN_CLASSES: usize = 32;
/// Sub-block classes: extents of up to 2^i pages and more than half that; the last class also has longer ones.
pub const SUB_BLOCK_CLASSES: usize = ORDER_MAX + 1;
/// Free pieces are counted in windows of 64 MiB: at most 8192 pieces under one lock.
const WINDOW_PAGES: u64 = 16 << 10;
/// Objects that are counted under one lock of a shard.
const OBJECTS_AT_ONCE: usize = 256;

/// The allocator's view of space. A page is used, waiting, being discarded, or free; `reserved`, `granted` and `reserve` are parts of
/// the free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SpaceReport {
    pub bytes_total: u64,
    /// Can be allocated at once.
    pub bytes_free: u64,
    /// Superseded; free as soon as the superseding entry is sealed.
    pub bytes_waiting: u64,
    pub bytes_discarding: u64,
    /// Promised to objects and not taken yet.
    pub bytes_reserved: u64,
    /// Granted to clients.
    pub bytes_granted: u64,
    /// Kept for truncation.
    pub bytes_reserve: u64,
    /// The unit of allocation; `PAGE_SIZE`: as large as each write needs.
    pub sub_block_bytes: u64,
    /// Runs of contiguous free pages, by class.
    pub free_runs: [Amount; RUN_CLASSES],
    pub largest_run_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Amount {
    pub count: u64,
    pub bytes: u64,
}

/// Space of a part of the objects. The parts add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Survey {
    pub objects: u64,
    /// Objects with bytes on the medium.
    pub objects_with_bytes: u64,
    /// Pieces that are not contiguous on the medium.
    pub fragments: u64,
    /// Fragments of the object that has the most.
    pub fragments_max: u64,
    pub bytes_reserved: u64,
    pub classes: [ClassUse; SUB_BLOCK_CLASSES],
}

/// Extents of one sub-block class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassUse {
    pub extents: u64,
    pub bytes_allocated: u64,
    /// Without bytes past the object's end, and without the sub-block's rest beyond the extent.
    pub bytes_stored: u64,
}

impl Survey {
    pub fn add(&mut self, part: &Survey) {
        self.objects += part.objects;
        self.objects_with_bytes += part.objects_with_bytes;
        self.fragments += part.fragments;
        self.fragments_max = self.fragments_max.max(part.fragments_max);
        self.bytes_reserved += part.bytes_reserved;
        for (sum, c) in self.classes.iter_mut().zip(&part.classes) {
            sum.extents += c.extents;
            sum.bytes_allocated += c.bytes_allocated;
            sum.bytes_stored += c.bytes_stored;
        }
    }
    pub fn bytes_allocated(&self) -> u64 {
        self.classes.iter().map(|c| c.bytes_allocated).sum()
    }
    pub fn bytes_stored(&self) -> u64 {
        self.classes.iter().map(|c| c.bytes_stored).sum()
    }

    /// Counts one object whose space is allocated in units of `unit` pages.
    fn add_object(&mut self, state: &State, unit: u64) {
        self.objects += u64::from(state.exists);
        self.bytes_reserved += state.reserved.pages() * PAGE;
        let (mut fragments, mut after) = (0, None);
        let mut seen = SubBlocks::default();
        for (page, e) in state.extents.iter() {
            let (begin, end) = (u64::from(page) * PAGE, (u64::from(page) + u64::from(e.run.pages)) * PAGE);
            let class = &mut self.classes[class_of(e.run.pages)];
            class.extents += 1;
            class.bytes_allocated += seen.add(e.run, unit) * PAGE;
            class.bytes_stored += end.min(state.len).saturating_sub(begin);
            fragments += u64::from(after != Some((page, e.run.start)));
            after = Some((page + e.run.pages, e.run.end()));
        }
        self.fragments += fragments;
        self.fragments_max = self.fragments_max.max(fragments);
        self.objects_with_bytes += u64::from(fragments > 0);
    }
}

/// Sub-blocks of one object that were counted already.
#[derive(Default)]
struct SubBlocks(std::collections::BTreeSet<u64>);

impl SubBlocks {
    /// Pages that a run takes beyond the sub-blocks counted already.
    fn add(&mut self, run: Run, unit: u64) -> u64 {
        if unit == 1 {
            return run.pages.into();
        }
        let (first, last) = (run.start / unit, (run.end() - 1) / unit);
        // The inner sub-blocks belong to this extent alone; the first and last may be shared with other extents.
        let ends = [Some(first), (last > first).then_some(last)];
        let new = ends.into_iter().flatten().filter(|block| self.0.insert(*block)).count() as u64;
        (new + (last - first).saturating_sub(1)) * unit
    }
}

fn class_of(pages: u32) -> usize {
    (pages.next_power_of_two().ilog2() as usize).min(ORDER_MAX)
}

/// The position where a survey continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cursor {
    pub(crate) after: Option<ObjectId>,
}

impl Cursor {
    /// After an object; at the begin if that is `None`.
    pub fn behind(after: Option<ObjectId>) -> Cursor {
        Cursor { after }
    }
    pub fn after(&self) -> Option<ObjectId> {
        self.after
    }
}

impl Engine {
    /// Surveys about `objects_max` objects from `at` on; returns the position to continue at, or `None` at the end.
    pub(crate) fn survey_from(
        &self,
        mut at: Cursor,
        objects_max: u64,
    ) -> Result<(Survey, Option<Cursor>), StoreError> {
        let unit = self.space.lock().unit_pages();
        let (mut sum, mut looked) = (Survey::default(), 0);
        loop {
            let some = self.index.page(at.after, OBJECTS_AT_ONCE)?;
            some.iter().for_each(|(_, state)| sum.add_object(state, unit));
            looked += some.len() as u64;
            match some.last() {
                Some((id, _)) if some.len() == OBJECTS_AT_ONCE => at = Cursor { after: Some(*id) },
                _ => return Ok((sum, None)),
            }
            if looked >= objects_max {
                return Ok((sum, Some(at)));
            }
        }
    }

    pub(crate) fn space_now(&self) -> SpaceReport {
        let mut report = {
            let space = self.space.lock();
            SpaceReport {
                bytes_total: space.total_pages() * PAGE,
                bytes_free: space.free_pages() * PAGE,
                bytes_waiting: space.waiting_pages() * PAGE,
                bytes_discarding: space.freed.out_pages * PAGE,
                bytes_reserved: space.promised_pages().saturating_sub(space.grants.pages()) * PAGE,
                bytes_granted: space.grants.pages() * PAGE,
                bytes_reserve: reserve_pages(space.total_pages()) * PAGE,
                sub_block_bytes: space.unit_pages() * PAGE,
                free_runs: Default::default(),
                largest_run_bytes: 0,
            }
        };
        let total = report.bytes_total / PAGE;
        let (mut begin, mut run) = (0, 0..0);
        while begin < total {
            let limit = begin + WINDOW_PAGES;
            let pieces = self.space.lock().buddy.free_within(begin, limit);
            for piece in pieces {
                match piece.start == run.end {
                    true => run.end = piece.end(),
                    false => report.add_run(std::mem::replace(&mut run, piece.start..piece.end())),
                }
            }
            begin = limit;
        }
        report.add_run(run);
        report
    }
}

impl SpaceReport {
    fn add_run(&mut self, pages: std::ops::Range<u64>) {
        let len = pages.end - pages.start;
        if len == 0 {
            return;
        }
        let class = &mut self.free_runs[(len.ilog2() as usize).min(RUN_CLASSES - 1)];
        class.count += 1;
        class.bytes += len * PAGE;
        self.largest_run_bytes = self.largest_run_bytes.max(len * PAGE);
    }
}
