//! Finding the next data or hole of an object, page by page (`SEEK_DATA`, `SEEK_HOLE`).

use types::{ObjectId, PAGE_SIZE};

use crate::records::error::StoreError;
use crate::state::engine::Engine;
use crate::{Attrs, Found, Gate};

impl Engine {
    pub(crate) fn seek_object(
        &self,
        object: ObjectId,
        offset: u64,
        gate: Gate<'_>,
    ) -> Result<Found, StoreError> {
        let Some(object) = self.index.find(&object)? else {
            gate(&Attrs::default()).map_err(StoreError::Refused)?;
            return Ok(Found { exists: false, data: None, hole: offset });
        };
        let state = object.read();
        gate(&state.attrs()).map_err(StoreError::Refused)?;
        let page = PAGE_SIZE as u64;
        let from = (offset / page) as u32;
        let data = state.first_from(from).map(|p| (p as u64 * page).max(offset));
        let hole = (state.end_of_run(from) as u64 * page).max(offset);
        Ok(Found { exists: state.exists, data, hole })
    }

    pub(crate) fn reserved_from(
        &self,
        object: ObjectId,
        offset: u64,
        gate: Gate<'_>,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let Some(object) = self.index.find(&object)? else {
            gate(&Attrs::default()).map_err(StoreError::Refused)?;
            return Ok(None);
        };
        let state = object.read();
        gate(&state.attrs()).map_err(StoreError::Refused)?;
        let page = PAGE_SIZE as u64;
        let from = (offset / page) as u32;
        let run = state.reserved.iter().find(|(_, limit)| *limit > from);
        Ok(run.map(|(first, limit)| (u64::from(first.max(from)) * page, u64::from(limit) * page)))
    }
}
