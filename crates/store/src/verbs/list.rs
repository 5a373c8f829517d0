//! Listing objects in id order.

use std::sync::Arc;

use types::ObjectId;

use crate::Attrs;
use crate::records::error::StoreError;
use crate::records::index::State;
use crate::state::engine::Engine;

impl Engine {
    pub(crate) fn list_objects(
        &self,
        after: Option<ObjectId>,
        max: usize,
    ) -> Result<(Vec<(ObjectId, Attrs)>, bool), StoreError> {
        listed(after, max, |after, max| self.index.page(after, max))
    }

    /// One page of the index.
    pub(crate) fn list_readable_objects(
        &self,
        after: Option<ObjectId>,
        max: usize,
    ) -> Result<Readable, StoreError> {
        let (states, end) = self.index.readable(after, max)?;
        let existing = states.into_iter().filter(|(_, state)| state.exists);
        Ok(Readable { objects: existing.map(|(id, state)| (id, state.attrs())).collect(), end })
    }
}

/// Some objects, in id order, without those in lost parts of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readable {
    pub objects: Vec<(ObjectId, Attrs)>,
    /// The listing is complete up to this id, inclusive; there need not be an object of it. `None`: to the end.
    pub end: Option<ObjectId>,
}

type Page = Result<Vec<(ObjectId, Arc<State>)>, StoreError>;

fn listed(
    mut after: Option<ObjectId>,
    max: usize,
    page_of: impl Fn(Option<ObjectId>, usize) -> Page,
) -> Result<(Vec<(ObjectId, Attrs)>, bool), StoreError> {
    let mut out: Vec<(ObjectId, Attrs)> = Vec::new();
    loop {
        let wanted = max - out.len();
        let page = page_of(after, wanted.saturating_add(1))?;
        let more = page.len() > wanted;
        after = page.iter().take(wanted).next_back().map(|(id, _)| *id);
        // Objects that only have a lease version do not exist for the caller.
        out.extend(page.iter().take(wanted).filter(|(_, s)| s.exists).map(|(id, s)| (*id, s.attrs())));
        if !more || out.len() == max {
            return Ok((out, more));
        }
    }
}
