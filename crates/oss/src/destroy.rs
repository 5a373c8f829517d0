//! Destroy: removes objects.

use types::Fault;
use wire::object::{Destroy, RIGHT_ADMIN};
use wire::{Empty, Wire};

use crate::Core;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_destroy(&self, ctx: &Ctx<'_>, d: Destroy, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::objects(&d.objects)?;
        self.check_cap_right(ctx, &d.cap, RIGHT_ADMIN)?;
        let done = self.once(ctx.head, || Ok(0), |origin| Ok(self.store.destroy(&d.objects, origin)?))?;
        Empty {}.put(reply);
        Ok(Served { seq: done.seq })
    }
}
