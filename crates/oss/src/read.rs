//! Read: verified bytes of an object, with their CRCs.

use std::time::Instant;

use object::ranges::Access;
use types::crc::fragment_count;
use types::{Buf, Fault};
use wire::Wire;
use wire::object::{RIGHT_READ, Read, ReadReply};

use crate::Core;
use crate::admit::gate_of;
use crate::pace;
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
        let end = r.offset.saturating_add(r.len.into());
        self.await_entries(&r.object)?;
        self.await_range(ctx.head, r.lock, r.object, r.offset..end, Access::Read)?;
        let read =
            store::Read { object: r.object, offset: r.offset, len: r.len, gate: &gate_of(&r.cap, &r.object) };
        let mut crcs = Vec::new();
        let begin = Instant::now();
        let exists = self.repairing(ctx, || self.store.read(&read, out, &mut crcs))?;
        if out.len() >= pace::BYTES_MIN {
            self.pace.read(out.len(), begin.elapsed(), begin);
        }
        assert!(out.len() <= r.len as usize, "a read gives no more bytes than requested");
        assert!(crcs.len() == fragment_count(r.offset, out.len()), "each fragment of a read has its CRC");
        assert!(exists || out.is_empty(), "an absent object has no bytes");
        ReadReply { exists, crcs }.put(reply);
        Ok(Served::READ)
    }
}
