//! Truncate: cuts or extends an object.

use types::Fault;
use wire::object::{RIGHT_WRITE, Truncate};
use wire::{Empty, Wire};

use crate::Core;
use crate::admit::{gate_of, lease_of};
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_truncate(&self, ctx: &Ctx<'_>, t: Truncate, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::truncate(&t.object, t.len)?;
        self.check_cap(ctx, &t.cap, &t.object, RIGHT_WRITE)?;
        let done = self.once(
            ctx.head,
            || Ok(0),
            |origin| {
                let truncate = store::Truncate {
                    object: t.object,
                    len: t.len,
                    lease: lease_of(&t.cap),
                    gate: &gate_of(&t.cap, &t.object),
                    origin,
                };
                self.repairing(ctx, || self.store.truncate(&truncate))
            },
        )?;
        Empty {}.put(reply);
        Ok(Served { seq: done.seq })
    }
}
