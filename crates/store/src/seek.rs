//! Where an object has bytes and where it has none, page by page (`SEEK_DATA`, `SEEK_HOLE`).

use types::{ObjectId, PAGE_SIZE};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::{Found, Gate};

impl Engine {
    pub(crate) fn seek_object(
        &self,
        object: ObjectId,
        offset: u64,
        gate: Gate<'_>,
    ) -> Result<Found, StoreError> {
        let exists = self.pass_gate(&object, gate)?.exists;
        let Some(object) = self.index.get(&object) else {
            return Ok(Found { exists, data: None, hole: offset });
        };
        let state = object.read();
        let page = PAGE_SIZE as u64;
        let from = (offset / page) as u32;
        let data = state.first_from(from).map(|p| (p as u64 * page).max(offset));
        let hole = (state.end_of_run(from) as u64 * page).max(offset);
        Ok(Found { exists, data, hole })
    }
}
