//! Punch: makes bytes zeros; whole pages become holes or stay reserved.

use store::Leave;
use types::Fault;
use wire::object::{Punch, RIGHT_WRITE};
use wire::{Empty, Wire};

use crate::Core;
use crate::admit::{gate_of, lease_of};
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_punch(&self, ctx: &Ctx<'_>, p: Punch, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::range(&p.object, p.offset, p.len, 0)?;
        self.check_cap(ctx, &p.cap, &p.object, RIGHT_WRITE)?;
        let done = self.once(
            ctx.head,
            || Ok(0),
            |origin| {
                let punch = store::Punch {
                    object: p.object,
                    offset: p.offset,
                    len: p.len,
                    leave: if p.keep { Leave::Reserved } else { Leave::Hole },
                    mtime: p.mtime,
                    lease: lease_of(&p.cap),
                    gate: &gate_of(&p.cap, &p.object),
                    origin,
                };
                self.repairing(ctx, || self.store.punch(&punch))
            },
        )?;
        Empty {}.put(reply);
        Ok(Served { seq: done.seq })
    }
}
