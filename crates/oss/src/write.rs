//! Write: bulk bytes to an object.

use std::time::Instant;

use object::ranges::Access;
use store::Written;
use types::Fault;
use wire::Wire;
use wire::object::{RIGHT_WRITE, Write, WriteReply};

use crate::Core;
use crate::admit::{gate_of, lease_of};
use crate::pace;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_write(
        &self,
        ctx: &Ctx<'_>,
        w: Write,
        bulk: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        // 1. admit: the request's form and the capability.
        object::check::write(&w.object, w.offset, bulk.len(), w.crcs.len())?;
        self.check_cap(ctx, &w.cap, &w.object, RIGHT_WRITE)?;
        // 2. once, and after locks of its range; 3. store: the lease version is checked again at the moment of the change.
        let len = || Ok(self.store.stat(w.object)?.map_or(0, |a| a.len));
        let done = self.once(ctx.head, len, |origin| {
            let end = w.offset.saturating_add(bulk.len() as u64);
            self.await_range(ctx.head, w.lock, w.object, w.offset..end, Access::Write)?;
            let write = store::Write {
                object: w.object,
                offset: w.offset,
                data: bulk,
                crcs: &w.crcs,
                mtime: w.mtime,
                lease: lease_of(&w.cap),
                gate: &gate_of(&w.cap, &w.object),
                origin,
                holder: w.granted.then_some(ctx.head.session),
            };
            let begin = Instant::now();
            let done = self.repairing(ctx, || self.store.write(&write))?;
            if bulk.len() >= pace::BYTES_MIN {
                self.pace.wrote(bulk.len(), begin.elapsed(), begin);
            }
            let written = Written::from_answer(done.answer);
            assert!(
                written.len >= w.offset + bulk.len() as u64,
                "a written object reaches to the write's end"
            );
            assert!(written.pages as usize <= w.crcs.len(), "a write takes space for its own pages only");
            assert!(!written.granted || w.granted, "a grant is used only on request");
            Ok(done)
        })?;
        // 4. reply.
        let Written { len, pages, granted } = Written::from_answer(done.answer);
        WriteReply { len, pages, granted }.put(reply);
        Ok(Served { seq: done.seq })
    }
}
