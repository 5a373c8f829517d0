//! Reserving space for pages that have none, and releasing it (`fallocate`).
//!
//! store-S6 here: as long as pages are reserved, a write to them finds space: in the data region (space.rs, store-R1), and in the index,
//! which counts a reserved page at the largest size that it may have once it is written.

use std::sync::Arc;

use types::PAGE_SIZE;

use crate::records::codec::{OBJECT_BYTES_MAX, RESERVED_PAGE_BYTES};
use crate::records::error::StoreError;
use crate::records::record::{Record, ReleaseRecord, ReserveRecord};
use crate::state::engine::{Engine, Stop};
use crate::state::room::Wish;
use crate::{Done, Release, Reserve};

/// The answer of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reservation {
    /// Pages that got space with this reservation.
    pub pages: u64,
    /// Some pages of the range were reserved before. A caller that releases its range releases these too.
    pub is_mixed: bool,
}

const MIXED: u64 = 1 << 63;

impl Reservation {
    pub fn to_answer(self) -> u64 {
        self.pages | if self.is_mixed { MIXED } else { 0 }
    }
    pub fn from_answer(answer: u64) -> Reservation {
        Reservation { pages: answer & !MIXED, is_mixed: answer & MIXED != 0 }
    }
}

/// The pages that a byte range touches: the first, and the one after the last.
pub(crate) fn pages_of(offset: u64, len: u64) -> (u32, u32) {
    let page = PAGE_SIZE as u64;
    ((offset / page) as u32, (offset + len).div_ceil(page) as u32)
}

impl Engine {
    pub(crate) fn reserve_pages_of(&self, r: &Reserve<'_>) -> Result<Done, StoreError> {
        let (first, limit) = pages_of(r.offset, r.len);
        let Reserve { object, end, mtime, lease, .. } = *r;
        let _kept = self.index.load(&r.object)?;
        let record = Arc::new(Record::Reserve(ReserveRecord { object, first, limit, end, mtime, lease }));
        loop {
            self.pass_gate(&r.object, r.gate)?;
            // 1. Hold the space, so that no other writer takes it before it is promised.
            let held = self.hold(self.lacking(r, first, limit).pages, None)?;
            // 2. Commit the entry, unless more pages lack space by now than were held.
            let done = self.commit(r.origin, record.clone(), || {
                self.pass_gate(&r.object, r.gate)?;
                let found = self.lacking(r, first, limit);
                if found.pages > held.pages {
                    return Err(Stop::Again);
                }
                let new_object = if self.index.get(&r.object).is_none() { OBJECT_BYTES_MAX } else { 0 };
                self.check_index_room(new_object + found.pages * RESERVED_PAGE_BYTES, Wish::Write)?;
                Ok(found.to_answer())
            });
            match done {
                Ok(done) => return Ok(done),
                // A new round means that another request has cut or punched here.
                Err(Stop::Again) => continue,
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
    }

    /// Counts the pages of the range that have neither bytes nor reserved space.
    fn lacking(&self, r: &Reserve<'_>, first: u32, limit: u32) -> Reservation {
        let all = (limit - first) as u64;
        let Some(object) = self.index.get(&r.object) else {
            return Reservation { pages: all, is_mixed: false };
        };
        let state = object.read();
        let reserved = state.reserved.count(first, limit);
        debug_assert!(reserved + state.count(first, limit) <= all, "a reserved page has no bytes");
        Reservation { pages: all - reserved - state.count(first, limit), is_mixed: reserved > 0 }
    }

    pub(crate) fn release_pages_of(&self, r: &Release<'_>) -> Result<Done, StoreError> {
        let (first, limit) = pages_of(r.offset, r.len);
        let _kept = self.index.load(&r.object)?;
        let record = Record::Release(ReleaseRecord { object: r.object, first, limit, lease: r.lease });
        let record = if self.pass_gate(&r.object, r.gate)?.exists { record } else { Record::Nothing };
        self.commit(r.origin, record, || Ok(self.pass_gate(&r.object, r.gate)?.len))
    }
}
