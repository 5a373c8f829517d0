//! The services of this process, by target id. The MGS is `TargetId(0)`.
//!
//! A request for a target that is not here is refused before anything is done, so the caller may try elsewhere.
//!  Each target that was ever served has a seat, which outlives its services. A request finds its service through two guarded pointers
//! without reference counts, so it writes nothing that requests of other threads write. net-H1: a request holds the service that serves it
//! and no other, so no request of another target keeps a removed service alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use spent::Cause;
use types::{Buf, NodeId, Seq, TargetId, Word};
use wire::jobs::{self, JobStatsReply};
use wire::{Empty, Flags, Header, ReplyHead, encode_reply};

use crate::calls::{Begun, Calls, Served};
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
    calls: Arc<Calls>,
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

    /// The requests of each target that is served, or was, by job: the `max` that took most time.
    pub fn jobs(&self, max: usize) -> Vec<(TargetId, JobStatsReply)> {
        self.seats.load().iter().map(|seat| (seat.target, seat.calls.jobs.stats(max))).collect()
    }

    /// The requests of each target that is served, or was, by call.
    pub fn served(&self) -> Vec<(TargetId, Vec<Served>)> {
        self.seats.load().iter().map(|seat| (seat.target, seat.calls.served())).collect()
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
        let mine = Arc::new(Seat { target, service: ArcSwapOption::empty(), calls: Arc::default() });
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

    /// Counts a wait of a request that its thread does not see: for the network.
    pub(crate) fn count_wait(&self, target: TargetId, job: (u64, u32), time: Duration) {
        if job.1 != 0
            && let Some(seat) = self.seats.load().iter().find(|seat| seat.target == target)
        {
            seat.calls.jobs.count_wait(job, Cause::Network, time);
        }
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
        let begun = Begun::now(head);
        let mut answer = Answer::parkable(reply_to(head), into, parking);
        match self.about_jobs(head, body, &answer) {
            Some(told) => answer.body = told,
            None => {
                answer.counted = Some((&self.calls, begun));
                service.serve(head, body, bulk, &mut answer);
            }
        }
        let answered = answer.end(head);
        if let Some((reply, body)) = &answered {
            self.calls.count(begun, reply, body);
        }
        Ok(answered)
    }

    /// The answer to a call about jobs, which is the same at every target.
    fn about_jobs(&self, head: &Header, body: &[u8], answer: &Answer<'_>) -> Option<Vec<u8>> {
        if !jobs::CALLS.iter().any(|(call, _)| *call == head.call) {
            return None;
        }
        match answer.check_role(head.call) {
            Ok(()) => self.calls.jobs.answer(head, body),
            Err(fault) => Some(encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>)),
        }
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
