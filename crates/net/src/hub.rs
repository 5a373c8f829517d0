//! The services of this process, by target id. The MGS is `TargetId(0)`.
//!
//! A request for a target that is not here is refused before anything is done, so the caller may try elsewhere.
//!
//! Each target that was ever served has a seat, which outlives its services: a request finds its service through two pointers that
//! are guarded and not counted, so it writes nothing that other threads' requests write. net-H1: who is served holds that service and
//! no other, so one that is removed is let go of by nobody else's request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use types::{Buf, NodeId, TargetId, Word};
use wire::{Flags, Header};

use crate::{Answer, Service, local};

/// What nearly every reply fits, so that none grows (decision 0037).
const REPLY_BYTES: usize = 512;

/// Who serves what in this process. A process has a handful of targets, so the list is searched in order.
#[derive(Default)]
pub struct Hub {
    seats: ArcSwap<Vec<Arc<Seat>>>,
    node: AtomicU64,
}

/// Where a target is served, or was.
pub(crate) struct Seat {
    target: TargetId,
    service: ArcSwapOption<Arc<dyn Service>>,
}

/// There is no such target in this process: nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotHere;

impl Hub {
    pub fn new() -> Arc<Hub> {
        Arc::new(Hub::default())
    }

    /// Serves `target` from now on; a service that had this id before is replaced.
    pub fn add(&self, target: TargetId, service: Arc<dyn Service>) {
        self.seat(target).service.store(Some(Arc::new(service)));
    }

    /// Ends serving `target`. Requests that are being carried out are finished.
    pub fn remove(&self, target: TargetId) {
        if let Some(seat) = self.seats.load().iter().find(|seat| seat.target == target) {
            seat.service.store(None);
        }
    }

    pub fn serves(&self, target: TargetId) -> bool {
        self.targets().contains(&target)
    }

    /// The targets served, in the order of their first coming.
    pub fn targets(&self) -> Vec<TargetId> {
        let seats = self.seats.load();
        seats.iter().filter(|seat| seat.service.load().is_some()).map(|seat| seat.target).collect()
    }

    /// What requests to `target` in this process look at and do not write, for who counts that with breakpoints.
    pub fn words(&self, target: TargetId) -> Vec<Word> {
        let seat = self.seat(target);
        let service = seat.service.load();
        let counts = service.iter().flat_map(|held| {
            [Word::count("count of the seat's service", held), Word::count("count of the service", &**held)]
        });
        let block = Word::of("blocks of request ids", &local::NEXT_BLOCK);
        [Word::count("count of the seat", &seat), block].into_iter().chain(counts).collect()
    }

    /// The seat of `target`, which stays the same as long as this hub.
    pub(crate) fn seat(&self, target: TargetId) -> Arc<Seat> {
        let mine = Arc::new(Seat { target, service: ArcSwapOption::empty() });
        loop {
            let seats = self.seats.load();
            if let Some(seat) = seats.iter().find(|seat| seat.target == target) {
                return seat.clone();
            }
            let more = seats.iter().chain([&mine]).cloned().collect::<Vec<_>>();
            self.seats.compare_and_swap(&seats, Arc::new(more));
        }
    }

    /// This process' node id as the map has it; told in handshakes and replies. 0 until known.
    pub fn set_node(&self, node: NodeId) {
        self.node.store(node.0, Ordering::Relaxed);
    }
    pub fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Relaxed))
    }

    /// Carries out one request on this thread. The reply's bulk bytes land in `into`; lengths are set in the header.
    pub(crate) fn serve(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        into: &mut Buf,
    ) -> Result<(Header, Vec<u8>), NotHere> {
        let seats = self.seats.load();
        seats.iter().find(|seat| seat.target == head.target).ok_or(NotHere)?.serve(head, body, bulk, into)
    }
}

impl Seat {
    /// As `Hub::serve`, of a request for this target.
    pub fn serve(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        into: &mut Buf,
    ) -> Result<(Header, Vec<u8>), NotHere> {
        let service = self.service.load();
        let service = service.as_ref().ok_or(NotHere)?;
        into.clear();
        let reply = Vec::with_capacity(REPLY_BYTES);
        let mut answer = Answer { head: reply_to(head), body: reply, bulk: into };
        service.serve(head, body, bulk, &mut answer);
        let Answer { head: mut reply, body, bulk } = answer;
        reply.flags |= Flags::REPLY;
        reply.body_len = body.len() as u32;
        reply.bulk_len = bulk.len() as u32;
        Ok((reply, body))
    }
}

/// The header of a reply to `head`: the same conversation, the way back, no lengths yet.
pub(crate) fn reply_to(head: &Header) -> Header {
    Header {
        flags: Flags::REPLY,
        source: head.destination,
        destination: head.source,
        body_len: 0,
        bulk_len: 0,
        ..*head
    }
}
