//! Grant: reserves free space for data that a client holds unwritten.

use object::slots::unknown;
use types::{Code, Fault, SessionId};
use wire::Wire;
use wire::object::{Grant, GrantReply};

use crate::Core;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_grant(&self, ctx: &Ctx<'_>, g: Grant, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        let session = ctx.head.session;
        if session == SessionId(0) {
            return Err(Fault::new(Code::BadRequest, "free space is granted to sessions only: attach first"));
        }
        self.store.slot(session, 0).ok_or_else(|| unknown(session))?;
        GrantReply { bytes: self.store.grant(session, g.bytes, ctx.now_sec) }.put(reply);
        Ok(Served::READ)
    }
}
