//! Looking at many objects: listing in id order.

use types::ObjectId;

use crate::Attrs;
use crate::engine::Engine;
use crate::error::StoreError;

impl Engine {
    pub(crate) fn list_objects(
        &self,
        mut after: Option<ObjectId>,
        max: usize,
    ) -> Result<(Vec<(ObjectId, Attrs)>, bool), StoreError> {
        let mut out: Vec<(ObjectId, Attrs)> = Vec::new();
        loop {
            let wanted = max - out.len();
            let page = self.index.page(after, wanted.saturating_add(1))?;
            let more = page.len() > wanted;
            after = page.iter().take(wanted).next_back().map(|(id, _)| *id);
            // Those that only have a lease version do not exist for the caller.
            out.extend(page.iter().take(wanted).filter(|(_, s)| s.exists).map(|(id, s)| (*id, s.attrs())));
            if !more || out.len() == max {
                return Ok((out, more));
            }
        }
    }
}
