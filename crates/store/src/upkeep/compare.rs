//! Comparison of the two members' content, in ranges, while it is in use (decision 0071).
//!
//! A range is told as it is by the index: its object's existence, length and lease, its reserved pages, and each page that has bytes with the
//! CRC of these bytes. Members fold small writes at times of their own, so a page below small writes is read for that.
//!
//! store-CM1: a difference is certain if the primary's object is the same at both sides of the other member's look, and no entry is under
//!     way then. The other member has no entry that the primary has not applied (store-RP1), so nothing but a difference is left.
//! store-CM2: what one member cannot read is no difference of content.

use std::sync::Arc;

use types::crc::crc32c;
use types::{ObjectId, PAGE_SIZE};
use wire::Wire;

use crate::records::error::StoreError;
use crate::records::fill::FILL_PAGES_MAX;
use crate::records::index::{Object, State};
use crate::state::engine::Engine;
use crate::upkeep::fill::{range_of, reserved_in};

/// Objects of one look.
const OBJECTS_AT_ONCE: usize = 64;
/// Pages of one look, about.
const PAGES_AT_ONCE: u32 = 16 * FILL_PAGES_MAX;
/// Pages that a range of the other member may have. One with more differs.
const PAGES_MAX: u64 = 2 * FILL_PAGES_MAX as u64;

/// The place of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Behind this object.
    Behind(Option<ObjectId>),
    /// Inside this object, from this page on.
    Inside(ObjectId, u32),
    End,
}

/// A range of an object, as this member has it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub object: ObjectId,
    pub first: u32,
    pub limit: u32,
    /// For the other member, which compares it with its own.
    pub content: Vec<u8>,
    /// Pages that have bytes.
    pub pages: u32,
    kept: Arc<Object>,
    state: Arc<State>,
}

/// Ranges that are compared together.
#[derive(Clone, Debug)]
pub struct Look {
    pub ranges: Vec<Seen>,
    /// The ranges have all objects behind the first one up to the second one: `None` the begin, and the end.
    pub between: Option<(Option<ObjectId>, Option<ObjectId>)>,
    pub next: Walk,
}

impl Engine {
    /// The ranges at `at`.
    pub fn look(&self, at: Walk) -> Result<Look, StoreError> {
        let after = match at {
            Walk::Inside(object, first) => {
                let seen = self.see(object, first, None)?;
                let next = next_of(&seen);
                return Ok(Look { ranges: vec![seen], between: None, next });
            }
            Walk::Behind(after) => after,
            Walk::End => return Ok(Look { ranges: vec![], between: None, next: Walk::End }),
        };
        let found = self.index.page(after, OBJECTS_AT_ONCE)?;
        if found.is_empty() {
            return Ok(Look { ranges: vec![], between: Some((after, None)), next: Walk::End });
        }
        let (mut ranges, mut pages, mut next) = (Vec::new(), 0, Walk::Behind(after));
        for (object, _) in found {
            let seen = self.see(object, 0, None)?;
            pages += seen.pages;
            next = next_of(&seen);
            ranges.push(seen);
            if matches!(next, Walk::Inside(..)) || pages > PAGES_AT_ONCE {
                break;
            }
        }
        let until = ranges.last().map(|seen| seen.object);
        Ok(Look { ranges, between: Some((after, until)), next })
    }

    /// A range from page `first` on: up to `limit`, or with as many pages as one fill has.
    pub fn see(&self, object: ObjectId, first: u32, limit: Option<u32>) -> Result<Seen, StoreError> {
        let kept = self.index.load(&object)?;
        let state = kept.read().clone();
        let limit = limit.unwrap_or_else(|| range_of(object, &state, first, FILL_PAGES_MAX).limit);
        let content = self.content_as_seen(object, &state, first, limit)?;
        let pages = state.count(first, limit) as u32;
        Ok(Seen { object, first, limit, content, pages, kept, state })
    }

    /// store-CM1. To be asked when the other member has answered.
    pub fn is_still(&self, seen: &Seen) -> bool {
        // An entry that the other member had when it looked is applied once no batch is under way.
        drop(self.tail.still());
        Arc::ptr_eq(&seen.kept.read(), &seen.state)
    }

    /// True if this member has the range as the other one saw it, or if one of them cannot read it.
    pub fn has_seen(
        &self,
        object: ObjectId,
        (first, limit): (u32, u32),
        content: &[u8],
    ) -> Result<bool, StoreError> {
        let Some(known) = self.index.find(&object)? else {
            let none = self.content_as_seen(object, &State::default(), first, limit)?;
            return Ok(is_equal(&none, content));
        };
        let state = known.read().clone();
        if state.count(first, limit) > PAGES_MAX {
            return Ok(false);
        }
        Ok(is_equal(&self.content_as_seen(object, &state, first, limit)?, content))
    }

    /// Objects behind `after`, up to `until`, that are not in `but`.
    pub fn others(
        &self,
        mut after: Option<ObjectId>,
        until: Option<ObjectId>,
        but: &[ObjectId],
    ) -> Result<Vec<ObjectId>, StoreError> {
        let mut found = Vec::new();
        loop {
            let page = self.index.page(after, OBJECTS_AT_ONCE)?;
            for (object, state) in &page {
                if until.is_some_and(|until| *object > until) {
                    return Ok(found);
                }
                if !but.contains(object) && !state.is_absent() {
                    found.push(*object);
                }
            }
            match page.last() {
                Some((last, _)) if found.len() < OBJECTS_AT_ONCE => after = Some(*last),
                _ => return Ok(found),
            }
        }
    }

    fn content_as_seen(
        &self,
        object: ObjectId,
        state: &State,
        first: u32,
        limit: u32,
    ) -> Result<Vec<u8>, StoreError> {
        let mut out = Vec::new();
        state.exists.put(&mut out);
        state.len.put(&mut out);
        state.lease.put(&mut out);
        let reserved: Vec<(u32, u32)> = reserved_in(state, first, limit).collect();
        (reserved.len() as u32).put(&mut out);
        for (begin, end) in reserved {
            begin.put(&mut out);
            end.put(&mut out);
        }
        let mut at = first;
        while let Some(page) = state.first_from(at).filter(|page| *page < limit) {
            let site = state.extents.site(page);
            let crc = match (state.patches.get(page), site) {
                (None, site) => site.map(|site| site.crc),
                (Some(_), _) => self.crc_of(object, page)?,
            };
            page.put(&mut out);
            // As with the other integers, but that none counts: see `is_equal`.
            out.push(u8::from(crc.is_some()));
            crc.unwrap_or(0).put(&mut out);
            at = page + 1;
        }
        Ok(out)
    }

    /// Of a page with small writes over it. `None`: it cannot be read.
    fn crc_of(&self, object: ObjectId, page: u32) -> Result<Option<u32>, StoreError> {
        let _reading = self.readers.begin();
        let mut bytes = [0; PAGE_SIZE];
        match self.read_page(object, page, &mut bytes) {
            Ok(_) => Ok(Some(crc32c(&bytes))),
            Err(StoreError::Damaged { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn next_of(seen: &Seen) -> Walk {
    match seen.limit {
        u32::MAX => Walk::Behind(Some(seen.object)),
        limit => Walk::Inside(seen.object, limit),
    }
}

/// Bytes of a page: its number, whether its CRC is known, and the CRC.
const PAGE_BYTES: usize = 9;

/// store-CM2.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    if one == other {
        return true;
    }
    // The pages stand at the end. Before them is the same, or the ranges differ.
    let head = |bytes: &[u8]| -> Option<usize> {
        let runs = u32::from_le_bytes(bytes.get(17..21)?.try_into().ok()?) as usize;
        let head = 21 + runs.checked_mul(8)?;
        (head <= bytes.len() && (bytes.len() - head).is_multiple_of(PAGE_BYTES)).then_some(head)
    };
    let (Some(begin), true) = (head(one), one.len() == other.len()) else { return false };
    let pages = |bytes: &[u8]| -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let page = |page: &[u8]| (page[..4].to_vec(), (page[4] == 1).then(|| page[5..].to_vec()));
        bytes[begin..].chunks_exact(PAGE_BYTES).map(page).collect()
    };
    one[..begin] == other[..begin]
        && pages(one).iter().zip(pages(other)).all(|((page, crc), (other_page, other_crc))| {
            *page == other_page && (crc.is_none() || other_crc.is_none() || *crc == other_crc)
        })
}
