//! Reserve and release: space promised to pages before they are written.

use store::Reservation;
use types::Fault;
use types::crc::fragment_count;
use wire::object::{RIGHT_WRITE, Release, Reserve, ReserveReply};
use wire::{Empty, Wire};

use crate::Core;
use crate::admit::{gate_of, lease_of};
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_reserve(&self, ctx: &Ctx<'_>, r: Reserve, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::range(&r.object, r.offset, r.len, r.end)?;
        self.check_cap(ctx, &r.cap, &r.object, RIGHT_WRITE)?;
        // The result of an old request is no longer known. Answer that it reserved nothing, so that the client releases nothing.
        let long_ago = || Ok(Reservation { pages: 0, is_mixed: true }.to_answer());
        let done = self.once(ctx.head, long_ago, |origin| {
            let reserve = store::Reserve {
                object: r.object,
                offset: r.offset,
                len: r.len,
                end: r.end,
                mtime: r.mtime,
                lease: lease_of(&r.cap),
                gate: &gate_of(&r.cap, &r.object),
                origin,
            };
            let done = self.store.reserve(&reserve)?;
            let pages = fragment_count(r.offset, r.len as usize) as u64;
            assert!(
                Reservation::from_answer(done.answer).pages <= pages,
                "space is reserved within the range"
            );
            Ok(done)
        })?;
        let Reservation { pages, is_mixed } = Reservation::from_answer(done.answer);
        ReserveReply { pages, mixed: is_mixed }.put(reply);
        Ok(Served { seq: done.seq })
    }

    pub fn on_release(&self, ctx: &Ctx<'_>, r: Release, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::range(&r.object, r.offset, r.len, 0)?;
        self.check_cap(ctx, &r.cap, &r.object, RIGHT_WRITE)?;
        let done = self.once(
            ctx.head,
            || Ok(0),
            |origin| {
                let release = store::Release {
                    object: r.object,
                    offset: r.offset,
                    len: r.len,
                    lease: lease_of(&r.cap),
                    gate: &gate_of(&r.cap, &r.object),
                    origin,
                };
                Ok(self.store.release(&release)?)
            },
        )?;
        Empty {}.put(reply);
        Ok(Served { seq: done.seq })
    }
}
