//! The peer on another node, over a connection of the node's pool.

use std::sync::Arc;
use std::time::Instant;

use types::TargetId;
use wire::{Flags, Header};

use crate::local::{TOO_LARGE, is_too_large, stamp};
use crate::pool::{Lease, Pool, Wait};
use crate::{Call, NetError, Peer, Ticket};

pub(crate) struct RemotePeer {
    pub pool: Arc<Pool>,
    pub target: TargetId,
}

/// A request that left whole, and the connection on which its reply will come.
struct Outstanding {
    lease: Lease,
    request: u64,
}

impl RemotePeer {
    fn name(&self) -> String {
        format!("target {} on {}", self.target, self.pool.name)
    }
    fn not_sent(&self, why: impl Into<String>) -> NetError {
        NetError::NotSent { peer: self.name(), why: why.into() }
    }
    fn no_answer(&self, why: impl Into<String>) -> NetError {
        NetError::NoAnswer { peer: self.name(), why: why.into() }
    }

    fn start(&self, call: &mut Call<'_>, wait: Wait) -> Result<Outstanding, NetError> {
        if is_too_large(call) {
            return Err(self.not_sent(TOO_LARGE));
        }
        loop {
            let mut lease = self.pool.lend(call.deadline, wait).map_err(|why| self.not_sent(why))?;
            stamp(call, Instant::now());
            call.head.target = self.target;
            call.head.source = self.pool.own_node();
            call.head.destination = lease.connection().node;
            let is_new = lease.is_new;
            match lease.connection().stream.send(&call.head, &call.body, call.bulk, call.deadline) {
                Ok(()) => return Ok(Outstanding { lease, request: call.head.request }),
                Err(why) if is_new || self.pool.is_aborted() => return Err(self.not_sent(why.to_string())),
                // A kept connection was stale. The frame did not leave whole, so it may be sent again. The idle connections are dropped, so
                // the next lease is new and the loop ends, unless other threads put stale ones back meanwhile; their number is bounded.
                Err(_) => self.pool.drop_idle(),
            }
        }
    }

    fn finish(&self, out: Outstanding, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        let Outstanding { mut lease, request } = out;
        if !std::ptr::eq(lease.pool(), &*self.pool) || request != call.head.request {
            return Err(self.no_answer("the ticket is another call's"));
        }
        let mut body = Vec::new();
        call.into.clear();
        let read = lease.connection().stream.read_frame(&mut body, call.into, call.deadline);
        let head = read.map_err(|why| {
            call.into.clear();
            match self.pool.is_aborted() {
                true => self.no_answer("aborted"),
                false => self.no_answer(why.to_string()),
            }
        })?;
        if head.request != request || head.flags & Flags::REPLY == 0 {
            call.into.clear();
            return Err(self.no_answer("what came is not the answer to this request"));
        }
        lease.put_back();
        if head.flags & Flags::REFUSED != 0 {
            return Err(self.not_sent(String::from_utf8_lossy(&body)));
        }
        Ok((head, body))
    }
}

impl Peer for RemotePeer {
    fn send(&self, call: &mut Call<'_>) -> Result<Ticket, NetError> {
        Ok(Ticket(Box::new(self.start(call, Wait::ForOthers)?)))
    }

    fn send_more(&self, call: &mut Call<'_>) -> Result<Ticket, NetError> {
        Ok(Ticket(Box::new(self.start(call, Wait::Never)?)))
    }

    fn receive(&self, ticket: Ticket, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        match ticket.0.downcast::<Outstanding>() {
            Ok(out) => self.finish(*out, call),
            Err(_) => Err(self.no_answer("the ticket is another transport's")),
        }
    }

    fn call(&self, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        let out = self.start(call, Wait::ForOthers)?;
        self.finish(out, call)
    }

    fn is_fate_shared(&self) -> bool {
        false
    }
}
