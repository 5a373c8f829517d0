//! Read: verified bytes of an object, with their CRCs.

use types::{Buf, Fault};
use wire::Wire;
use wire::object::{RIGHT_READ, Read, ReadReply};

use crate::Core;
use crate::admit::gate_of;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_read(
        &self,
        ctx: &Ctx<'_>,
        r: Read,
        out: &mut Buf,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        object::check::read(&r.object, r.offset, r.len)?;
        self.check_cap(ctx, &r.cap, &r.object, RIGHT_READ)?;
        let read =
            store::Read { object: r.object, offset: r.offset, len: r.len, gate: &gate_of(&r.cap, &r.object) };
        let mut crcs = Vec::new();
        let exists = self.store.read(&read, out, &mut crcs).map_err(|e| self.note_damage(ctx, e))?;
        ReadReply { exists, crcs }.put(reply);
        Ok(Served::READ)
    }
}
