//! The peer on another node, over the node's lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use types::TargetId;
use wire::{Flags, Header};

use crate::hello::Kind;
use crate::lane::Unsent;
use crate::line::{First, Listening};
use crate::local::{TOO_LARGE, is_too_large, stamp};
use crate::node::{Node, Place, Wait};
use crate::{Call, NetError, Peer, Service, Ticket};

/// A frame with more bulk bytes than this, in either direction, takes a bulk lane.
const SHORT_MAX: usize = 16 * 1024;

pub(crate) struct RemotePeer {
    node: Arc<Node>,
    target: TargetId,
    is_ended: AtomicBool,
}

/// A request that left whole, and the lane on which its reply will come. Dropped, the reply is dropped, too.
struct Outstanding {
    place: Place,
    request: u64,
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        drop(self.place.lane().forget(self.request));
    }
}

impl RemotePeer {
    pub fn new(node: Arc<Node>, target: TargetId) -> RemotePeer {
        RemotePeer { node, target, is_ended: AtomicBool::new(false) }
    }

    /// net-R4: another node serves the target now. Requests that wait end as unknown, and later ones are not sent.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.node.end_target(self.target);
    }

    fn name(&self) -> String {
        format!("target {} on {}", self.target, self.node.name)
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
        let kind = if call.bulk.len() + call.back > SHORT_MAX { Kind::Bulk } else { Kind::Short };
        loop {
            let is_over = || self.is_ended.load(Ordering::SeqCst);
            let place =
                self.node.place(kind, call.deadline, wait, &is_over).map_err(|why| self.not_sent(why))?;
            stamp(call, Instant::now());
            call.head.target = self.target;
            call.head.source = self.node.own_node();
            call.head.destination = place.lane().node;
            let (lane, is_new, request) = (place.lane(), place.is_new, call.head.request);
            lane.expect(request, self.target, std::mem::take(call.into));
            // `end` sees what was announced before it. Without this look the request would wait as long as that node stands still.
            if self.is_ended.load(Ordering::SeqCst) {
                *call.into = lane.forget(request).unwrap_or_default();
                return Err(self.not_sent("another node serves the target now"));
            }
            let why = match lane.send(&call.head, &call.body, call.bulk, call.deadline) {
                Ok(()) => return Ok(Outstanding { place, request }),
                Err(why) => why,
            };
            *call.into = lane.forget(request).unwrap_or_default();
            match why {
                Unsent::Deadline => return Err(self.not_sent("the deadline has passed")),
                Unsent::Gone(why) if is_new || self.node.is_aborted() => return Err(self.not_sent(why)),
                // The lane was stale. The frame did not leave whole, so it may be sent again. Unused lanes are dropped, so the next place is
                // on a new one and the loop ends, unless other lanes break meanwhile; their number is bounded.
                Unsent::Gone(_) => self.node.drop_unused(),
            }
        }
    }

    fn finish(&self, out: Outstanding, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        if !std::ptr::eq(out.place.node(), &*self.node) || out.request != call.head.request {
            return Err(self.no_answer("the ticket is another call's"));
        }
        let lane = out.place.lane();
        let (received, into) = lane.receive(out.request, call.deadline);
        *call.into = into;
        let (head, body) = received.map_err(|why| {
            call.into.clear();
            if lane.take_dead_host() {
                // The other lanes of this path lead to the same host.
                self.node.close_path(&lane.path, &why);
            }
            match self.node.is_aborted() {
                true => self.no_answer("aborted"),
                false => self.no_answer(why),
            }
        })?;
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

    fn listen(
        &self,
        call: &mut Call<'_>,
        heard: Arc<dyn Service>,
    ) -> Result<(Header, Vec<u8>, Listening), NetError> {
        if is_too_large(call) {
            return Err(self.not_sent(TOO_LARGE));
        }
        let dialled = self.node.dial(Kind::Short, call.deadline).map_err(|why| self.not_sent(why))?;
        let certificate = dialled.certificate;
        stamp(call, Instant::now());
        call.head.target = self.target;
        call.head.source = self.node.own_node();
        call.head.destination = dialled.hello.node;
        let first = Arc::new(First::default());
        let answered = {
            let first = first.clone();
            Arc::new(move |head: &Header, body: &[u8]| first.set(head, body))
        };
        let ear = self.node.ear().map_err(|e| self.not_sent(e.to_string()))?;
        let line = ear.adopt(dialled, heard, answered).map_err(|e| self.not_sent(e.to_string()))?;
        let listening = Listening(line.0.clone());
        // The engine has it now, so a renewal that is not seen here closes it.
        if self.node.is_former(certificate) {
            return Err(self.not_sent("this host has another certificate since it dialled"));
        }
        if !line.send(&call.head, &call.body) {
            return Err(self.not_sent("the connection was closed"));
        }
        let got = first.wait(&*line.0, call.head.request, call.deadline);
        let (head, body) = got.map_err(|why| self.no_answer(why))?;
        if head.flags & Flags::REFUSED != 0 {
            return Err(self.not_sent(String::from_utf8_lossy(&body)));
        }
        Ok((head, body, listening))
    }

    fn is_fate_shared(&self) -> bool {
        false
    }
}
