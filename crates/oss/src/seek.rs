//! Seek: finds data and holes in objects.

use types::Fault;
use wire::Wire;
use wire::object::{RIGHT_READ, Seek, SeekFrom, SeekReply, SeekReserved, SeekReservedReply, Sought};

use crate::Core;
use crate::admit::gate_of;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_seek(&self, ctx: &Ctx<'_>, s: Seek, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::seeks(&s.objects)?;
        self.check_cap_right(ctx, &s.cap, RIGHT_READ)?;
        let mut objects = Vec::with_capacity(s.objects.len());
        for from in &s.objects {
            self.check_cap(ctx, &s.cap, &from.object, RIGHT_READ)?;
            self.await_entries(&from.object)?;
            let found = self.store.seek(from.object, from.offset, &gate_of(&s.cap, &from.object))?;
            let store::Found { exists, data, hole } = found;
            assert!(data.is_none_or(|data| data >= from.offset), "a search for data never goes back");
            assert!(hole >= from.offset, "a search for a hole never goes back");
            assert!(data != Some(hole), "a page has data or is a hole");
            objects.push(Sought { object: from.object, exists, data, hole });
        }
        SeekReply { objects }.put(reply);
        Ok(Served::READ)
    }

    pub fn on_seek_reserved(
        &self,
        ctx: &Ctx<'_>,
        s: SeekReserved,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        object::check::seeks(&[SeekFrom { object: s.object, offset: s.offset }])?;
        self.check_cap(ctx, &s.cap, &s.object, RIGHT_READ)?;
        self.await_entries(&s.object)?;
        let found = self.store.seek_reserved(s.object, s.offset, &gate_of(&s.cap, &s.object))?;
        let (begin, end) = found.unwrap_or((s.offset, s.offset));
        SeekReservedReply { begin, end }.put(reply);
        Ok(Served::READ)
    }
}
