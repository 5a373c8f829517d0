//! Requests that change nothing.

use std::cell::Cell;

use types::{Buf, Fault, Seq, SessionId};
use wire::Header;

use crate::Core;
use crate::execute::Done;
use crate::look::look;

impl Core {
    /// Runs over the published snapshot; does not wait for the writer.
    pub fn on_read(&self, head: &Header, body: &[u8], out: &mut Buf) -> Result<Done, Fault> {
        let joined = self.joined()?;
        self.check_incarnation(head)?;
        if head.session != SessionId(0) {
            self.check_session(head.session)?;
            self.check_come_back()?;
        }
        let lease_high = Cell::new(0);
        let reply = self.with_ctx(head, body, &joined, &lease_high, &mut |ctx| {
            look(&self.kv, &mut |view| {
                out.clear();
                self.rules.read(ctx, view, head.call, body, out)
            })?
        });
        Ok(Done { reply: reply?.into(), seq: Seq(0) })
    }
}
