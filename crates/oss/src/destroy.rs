//! Destroy: removes objects.

use store::{Done, Origin, StoreError};
use types::{Fault, ObjectId};
use wire::object::{Destroy, RIGHT_ADMIN};
use wire::{Empty, Wire};

use crate::Core;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_destroy(&self, ctx: &Ctx<'_>, d: Destroy, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::objects(&d.objects)?;
        self.check_cap_right(ctx, &d.cap, RIGHT_ADMIN)?;
        let done = self.once(ctx.head, || Ok(0), |origin| self.destroy_all(&d.objects, origin))?;
        Empty {}.put(reply);
        Ok(Served { seq: done.seq })
    }

    /// If the index cannot be read for some objects, the others are removed all the same. Otherwise one bad index leaf would keep the
    /// space of all the others. A repeat is harmless.
    fn destroy_all(&self, objects: &[ObjectId], origin: Option<Origin>) -> Result<Done, Fault> {
        let done = self.store.destroy(objects, origin);
        if matches!(done, Err(StoreError::Index { .. })) {
            for object in objects {
                match self.store.destroy(&[*object], None) {
                    Ok(_) | Err(StoreError::Index { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Ok(done?)
    }
}
