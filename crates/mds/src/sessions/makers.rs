//! Directories in which a client makes and removes files before the MDT hears of it (`client::session::unshipped`).
//!
//! mds-Z1: a client gets such a directory only if no other client is attached and the MDT judges no request of its session.
//! mds-Z2: fids that were given away are given to no other session (mds-O5), and need no record: a restart skips them.
//! mds-Z3: none are given while space is low, so that what a client has promised finds its space.

use kv::{Engine, View};
use types::{Fault, Fid};
use wire::Header;
use wire::meta::{LEASED_FIDS_MAX, LeaseDir, LeaseDirReply};

use crate::Core;
use crate::records::look::look;
use crate::reply::refuse_observer;

const NONE: LeaseDirReply = LeaseDirReply { first: Fid(0), count: 0, inline_max: 0 };

impl Core {
    pub fn on_lease_dir(&self, head: &Header, req: &LeaseDir) -> Result<LeaseDirReply, Fault> {
        let joined = self.joined()?;
        self.check_incarnation(head)?;
        if head.session.0 == 0 {
            return Err(refuse_observer());
        }
        self.check_session(head.session)?;
        self.check_whole()?;
        // mds-Z1.
        if self.sharers.is_sharing() || self.sessions.one_user(head.session)?.is_some() {
            return Ok(NONE);
        }
        // mds-Z3: the first sign of low space is a lower inline limit.
        let space = self.room.space(self.kv.reader().medium_bytes());
        if space.is_full || space.inline_max != u32::MAX {
            return Ok(NONE);
        }
        let Some(own) = look(&self.kv, &mut |view| self.rules.plain_dir(view, req.dir))? else {
            return Ok(NONE);
        };
        let inline_max = own.unwrap_or(joined.inline_max);
        let mut seat = self.executor.lead();
        seat.check_open()?;
        let drawn = seat.ids.draw_fids(u64::from(req.count.min(LEASED_FIDS_MAX)));
        if seat.ids.are_low() {
            self.bells.flush.ring();
        }
        Ok(drawn.map_or(NONE, |(first, count)| LeaseDirReply { first, count: count as u32, inline_max }))
    }
}
