//! Which changes share a write of the log (store-T2 of `tail`).
//!
//! An *overwrite* is a patch that changes existing bytes of its object, and the mtime. A *plain write* puts whole pages into an object that
//! exists, under a lease that the object has had, and uses no reservation. Of two changes under way in the same pages none is a plain write.
//! So what one is asked for (its pages, the lease, promised space) is the same before another one and after it. The object's length may
//! be more by then: the answer of a write is a lower bound of it.

use std::ops::Range;

use types::{BULK_MAX, ObjectId, PAGE_SIZE};

use crate::records::record::{PatchRecord, Record, WriteRecord};
use crate::state::engine::Engine;
use crate::state::mirror::Carried;
use crate::state::tail::{Flight, ROUNDS_MAX};

/// Most pages that a batch carries to the other member of a mirror: beside the patches of a batch they fit a frame.
const UNSTAGED_MAX: usize = BULK_MAX / PAGE_SIZE;

/// The pages of a change that may share a batch.
#[derive(Clone, Debug)]
pub struct Touched {
    object: ObjectId,
    pages: Range<u32>,
    is_write: bool,
    /// Pages that travel in the batch, if there is another member.
    unstaged: usize,
}

impl Touched {
    fn meets(&self, other: &Touched) -> bool {
        let overlaps = self.pages.start < other.pages.end && other.pages.start < self.pages.end;
        overlaps && self.object == other.object && (self.is_write || other.is_write)
    }
}

impl Flight {
    /// True if the change goes with those under way. The caller has asked `Engine::is_shareable` under the same lock.
    pub fn takes_in(&self, change: &Touched) -> bool {
        let fits = change.unstaged == 0 || self.next.unstaged + change.unstaged <= UNSTAGED_MAX;
        fits && !self.touched.iter().any(|other| other.meets(change))
    }

    pub fn touch(&mut self, change: Touched) {
        self.next.unstaged += change.unstaged;
        self.touched.push_back(change);
    }
}

impl Engine {
    /// The pages of a change that may share a batch; `None`: it has to come alone. `is_plain`: of a write, that it has whole pages only and
    /// no reservation.
    pub(crate) fn touched(record: &Record, carried: Option<&Carried>, is_plain: bool) -> Option<Touched> {
        match record {
            Record::Patch(p) => {
                let first = p.fragments[0].page;
                let pages = first..first + p.fragments.len() as u32;
                Some(Touched { object: p.object, pages, is_write: false, unstaged: 0 })
            }
            Record::Write(w) if is_plain => {
                let (first, last) = (w.placed.first()?, w.placed.last()?);
                let pages = first.page..last.page + last.run.pages;
                let is_staged = matches!(carried, Some(Carried::Staged(_)));
                let unstaged = if is_staged { 0 } else { w.crcs.len() };
                Some(Touched { object: w.object, pages, is_write: true, unstaged })
            }
            _ => None,
        }
    }

    /// Under the tail's lock.
    pub(crate) fn is_shareable(&self, record: &Record) -> bool {
        match record {
            Record::Patch(p) => self.is_overwrite(p),
            Record::Write(w) => self.is_plain_write(w),
            _ => false,
        }
    }

    fn is_overwrite(&self, p: &PatchRecord) -> bool {
        let Some(object) = self.index.get(&p.object) else { return false };
        let state = object.read();
        let (first, pages) = (p.fragments[0].page, p.fragments.len() as u32);
        state.exists
            && p.end() <= state.len
            && p.lease <= state.lease
            && state.count(first, first + pages) == pages as u64
    }

    fn is_plain_write(&self, w: &WriteRecord) -> bool {
        self.index.get(&w.object).is_some_and(|object| {
            let state = object.read();
            state.exists && w.lease <= state.lease
        })
    }

    /// Batches that a leader writes. A write in a mirror waits for the other member each time, and its own client waits for its answer.
    pub(crate) fn rounds_of(&self, record: &Record) -> usize {
        match record {
            Record::Write(_) if self.is_mirrored() => 1,
            _ => ROUNDS_MAX,
        }
    }
}
