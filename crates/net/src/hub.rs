//! The services of this process, by target id. The MGS is `TargetId(0)`.
//!
//! A request for a target that is not here is refused before anything is done, so the caller may try elsewhere.
//!  Each target that was ever served has a seat, which outlives its services. A request finds its service through two guarded pointers
//! without reference counts, so it writes nothing that requests of other threads write. net-H1: a request holds the service that serves it
//! and no other, so no request of another target keeps a removed service alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use types::{Buf, NodeId, TargetId, Word};
use wire::{Flags, Header};

use crate::later::{Answer, Parking};
use crate::{Service, local};

/// The services of this process. A process has a handful of targets, so the list is searched in order.
#[derive(Default)]
pub struct Hub {
    seats: ArcSwap<Vec<Arc<Seat>>>,
    node: AtomicU64,
}

/// The place of a target that is served, or was.
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

    /// Serves `target` from now on; an earlier service of this id is replaced.
    pub fn add(&self, target: TargetId, service: Arc<dyn Service>) {
        self.seat(target).service.store(Some(Arc::new(service)));
    }

    /// Ends serving `target`. Requests under way are finished.
    pub fn remove(&self, target: TargetId) {
        if let Some(seat) = self.seats.load().iter().find(|seat| seat.target == target) {
            seat.service.store(None);
        }
    }

    pub fn serves(&self, target: TargetId) -> bool {
        self.targets().contains(&target)
    }

    /// The targets served, in the order in which they first came.
    pub fn targets(&self) -> Vec<TargetId> {
        let seats = self.seats.load();
        seats.iter().filter(|seat| seat.service.load().is_some()).map(|seat| seat.target).collect()
    }

    /// Words that requests to `target` in this process read and must not write, for a test that counts writes with breakpoints.
    pub fn words(&self, target: TargetId) -> Vec<Word> {
        let seat = self.seat(target);
        let service = seat.service.load();
        let counts = service.iter().flat_map(|held| {
            [Word::count("count of the seat's service", held), Word::count("count of the service", &**held)]
        });
        let block = Word::of("blocks of request ids", &local::NEXT_BLOCK);
        [Word::count("count of the seat", &seat), block].into_iter().chain(counts).collect()
    }

    /// The seat of `target`, which stays the same for the life of this hub.
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

    /// This process' node id from the cluster map, sent in handshakes and replies. 0 until known.
    pub fn set_node(&self, node: NodeId) {
        self.node.store(node.0, Ordering::Relaxed);
    }
    pub fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Relaxed))
    }

    /// Carries out one request on this thread. The reply's bulk bytes go to `into`; the reply's header has the lengths. `None`: the answer
    /// comes later, through `parking`.
    pub(crate) fn serve(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        into: &mut Buf,
        parking: &dyn Parking,
    ) -> Result<Option<(Header, Vec<u8>)>, NotHere> {
        let seats = self.seats.load();
        let seat = seats.iter().find(|seat| seat.target == head.target).ok_or(NotHere)?;
        seat.serve(head, body, bulk, into, parking)
    }
}

impl Seat {
    /// As `Hub::serve`, for a request to this target.
    pub fn serve(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        into: &mut Buf,
        parking: &dyn Parking,
    ) -> Result<Option<(Header, Vec<u8>)>, NotHere> {
        let service = self.service.load();
        let service = service.as_ref().ok_or(NotHere)?;
        let mut answer = Answer::parkable(reply_to(head), into, parking);
        service.serve(head, body, bulk, &mut answer);
        Ok(answer.end(head))
    }
}

/// The header of a reply to `head`: the same conversation, in the other direction, without lengths.
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

/// The answer to a request for a target that is not here: nothing was done.
pub(crate) fn refused(head: &Header) -> (Header, Vec<u8>) {
    let why = format!("target {} is not served there (stopped, not started yet, or moved)", head.target);
    let mut reply = reply_to(head);
    reply.flags |= Flags::REFUSED;
    (reply, why.into_bytes())
}
