//! Destroying and fencing objects: the two changes that need no data space.

use types::{ObjectId, Seq};

use crate::records::codec::OBJECT_BYTES_MAX;
use crate::records::error::StoreError;
use crate::records::record::Record;
use crate::state::engine::Engine;
use crate::state::room::Wish;
use crate::{Done, Origin};

impl Engine {
    pub(crate) fn destroy_objects(
        &self,
        ids: &[ObjectId],
        origin: Option<Origin>,
    ) -> Result<Done, StoreError> {
        let mut objects = Vec::with_capacity(ids.len());
        let mut kept = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(object) = self.index.find(id)? {
                objects.push(*id);
                kept.push(object);
            }
        }
        if objects.is_empty() && origin.is_none() {
            return Ok(Done { seq: Seq(0), answer: 0 });
        }
        self.commit(origin, Record::Destroy { objects }, || Ok(0))
    }

    pub(crate) fn fence_object(&self, object: ObjectId, lease: u64) -> Result<(), StoreError> {
        let kept = self.index.load(&object)?;
        if kept.attrs().lease >= lease {
            return Ok(());
        }
        // An object in the index already has its space there.
        if kept.read().is_absent() {
            self.check_index_room(OBJECT_BYTES_MAX, Wish::Fence)?;
        }
        self.commit::<StoreError>(None, Record::Fence { object, lease }, || Ok(0))?;
        Ok(())
    }
}
