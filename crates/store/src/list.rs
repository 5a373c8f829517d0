//! Looking at many objects: listing in id order, and verifying every page of one.

use types::{ObjectId, PAGE_SIZE};

use crate::Attrs;
use crate::engine::Engine;
use crate::error::{DamageKind, StoreError};
use crate::extent::Site;

impl Engine {
    pub(crate) fn list_objects(
        &self,
        mut after: Option<ObjectId>,
        max: usize,
    ) -> (Vec<(ObjectId, Attrs)>, bool) {
        let mut out: Vec<(ObjectId, Attrs)> = Vec::new();
        loop {
            let wanted = max - out.len();
            let page = self.index.page(after, wanted.saturating_add(1));
            let more = page.len() > wanted;
            after = page.iter().take(wanted).next_back().map(|(id, _)| *id);
            // Those that only have a lease version do not exist for the caller.
            out.extend(page.iter().take(wanted).filter(|(_, s)| s.exists).map(|(id, s)| (*id, s.attrs())));
            if !more || out.len() == max {
                return (out, more);
            }
        }
    }

    pub(crate) fn verify_object(&self, id: ObjectId) -> Result<Vec<(u64, DamageKind)>, StoreError> {
        let Some(object) = self.index.get(&id) else { return Ok(vec![]) };
        let pieces: Vec<_> = object.read().extents.iter().map(|(page, e)| (page, e.clone())).collect();
        let mut bad = Vec::new();
        let mut bytes = [0; PAGE_SIZE];
        for (page, e) in pieces {
            self.vol.disk().will_read(self.at(e.run.start), e.run.pages as u64 * PAGE_SIZE as u64);
            for (i, crc) in e.crcs().iter().enumerate() {
                let site = Site { page: e.run.start + i as u64, crc: *crc };
                if self.read_site(site, &mut bytes).is_ok() {
                    continue;
                }
                // It may have been superseded meanwhile: ask as a reader would, who can tell.
                match self.read_page(id, page + i as u32, &mut bytes) {
                    Ok(_) => {}
                    Err(StoreError::Damaged { offset, kind, .. }) => bad.push((offset, kind)),
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(bad)
    }
}
