//! The peer in this process: a function call, without a frame.
//!
//! It makes the promises of the other transports, except the deadline: a service that hangs blocks its caller, since it
//! runs on the caller's thread.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use types::{Buf, TargetId};
use wire::Header;

use crate::hub::Seat;
use crate::later::{Deliver, Parking};
use crate::line::{Answered, AtLine, Listening, LocalLine};
use crate::live::Live;
use crate::{Call, Hub, Line, NetError, Peer, Service, Ticket};

pub(crate) struct LocalPeer {
    pub hub: Arc<Hub>,
    /// The seat of `target` in `hub`.
    pub seat: Arc<Seat>,
    pub target: TargetId,
    pub live: Arc<Live>,
}

/// Request ids that a thread takes at once: it writes the shared counter only once per block.
const REQUEST_BLOCK: u64 = 4096;

pub(crate) static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The last id that this thread used; a block begins after a multiple of its size.
    static LAST_REQUEST: Cell<u64> = const { Cell::new(0) };
}

/// Request ids: unique in this process, for matching replies and for traces. 0 is none.
fn next_request() -> u64 {
    let last = LAST_REQUEST.get();
    let next = match last % REQUEST_BLOCK {
        0 => NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) * REQUEST_BLOCK + 1,
        _ => last + 1,
    };
    LAST_REQUEST.set(next);
    assert!(next > last, "a thread's request ids rise, and none is 0");
    next
}

pub(crate) const TOO_LARGE: &str = "the request is larger than a frame may be";

pub(crate) fn is_too_large(call: &Call<'_>) -> bool {
    call.body.len() > wire::frame::BODY_MAX || call.bulk.len() > types::BULK_MAX
}

/// Sets the header fields that the transport is responsible for.
pub(crate) fn stamp(call: &mut Call<'_>, now: Instant) {
    let head = &mut call.head;
    // A new one for each try, so that a late answer to an earlier try is not taken for this one's.
    head.request = next_request();
    let left = call.deadline.saturating_duration_since(now);
    head.ms_left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
    head.body_len = call.body.len() as u32;
    head.bulk_len = call.bulk.len() as u32;
}

impl LocalPeer {
    fn name(&self) -> String {
        format!("target {} in this process", self.target)
    }
    fn not_sent(&self, why: &str) -> NetError {
        NetError::NotSent { peer: self.name(), why: why.into() }
    }
    fn no_answer(&self, why: &str) -> NetError {
        NetError::NoAnswer { peer: self.name(), why: why.into() }
    }

    /// Carries the request out on this thread. `None`: the answer comes later, through `parking`.
    fn serve(
        &self,
        call: &mut Call<'_>,
        parking: &dyn Parking,
    ) -> Result<Option<(Header, Vec<u8>)>, NetError> {
        if self.live.is_aborted() {
            return Err(self.not_sent("aborted"));
        }
        let now = Instant::now();
        if now >= call.deadline {
            return Err(self.not_sent("the deadline has passed"));
        }
        // The other transports cannot carry more; a request that works here must work there.
        if is_too_large(call) {
            return Err(self.not_sent(TOO_LARGE));
        }
        stamp(call, now);
        call.head.target = self.target;
        call.head.source = self.hub.node();
        call.head.destination = call.head.source;
        let served = self.seat.serve(&call.head, &call.body, call.bulk, call.into, parking);
        served.map_err(|_| self.not_sent("it is not served here (stopped, or not started yet)"))
    }
}

/// The place where a caller waits for an answer that comes later. Made when a service parks.
#[derive(Default)]
struct Parked {
    slot: OnceCell<Arc<Slot>>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Waiting,
    Answered(Header, Vec<u8>, Buf),
    Dropped,
}

/// A service's end of a slot.
struct Filler {
    slot: Arc<Slot>,
}

impl Filler {
    fn set(&self, state: SlotState) {
        let mut now = self.slot.state.lock();
        if matches!(*now, SlotState::Waiting) {
            *now = state;
            self.slot.changed.notify_one();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.set(SlotState::Dropped);
    }
}

impl Parking for Parked {
    fn is_local(&self) -> bool {
        true
    }
    fn park(&self) -> Option<Deliver> {
        let filler = Filler { slot: self.slot.get_or_init(Arc::default).clone() };
        Some(Box::new(move |head, body, bulk| filler.set(SlotState::Answered(head, body, bulk))))
    }
    fn line(&self, _: Answered) -> Option<Line> {
        None
    }
}

impl Parked {
    fn wait(&self, deadline: Instant) -> Result<(Header, Vec<u8>, Buf), &'static str> {
        let slot = self.slot.get().ok_or("no answer was promised")?;
        let mut state = slot.state.lock();
        loop {
            match std::mem::take(&mut *state) {
                SlotState::Answered(head, body, bulk) => return Ok((head, body, bulk)),
                SlotState::Dropped => return Err("the service ended without an answer"),
                SlotState::Waiting => {}
            }
            if slot.changed.wait_until(&mut state, deadline).timed_out()
                && matches!(*state, SlotState::Waiting)
            {
                return Err("the deadline has passed");
            }
        }
    }
}

impl Peer for LocalPeer {
    fn call(&self, call: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        let parked = Parked::default();
        match self.serve(call, &parked)? {
            Some(answer) => Ok(answer),
            None => {
                let (head, body, bulk) = parked.wait(call.deadline).map_err(|why| self.no_answer(why))?;
                *call.into = bulk;
                Ok((head, body))
            }
        }
    }

    fn send(&self, call: &mut Call<'_>) -> Result<Ticket, NetError> {
        Ok(Ticket(Box::new(self.call(call)?)))
    }

    fn receive(&self, ticket: Ticket, _: &mut Call<'_>) -> Result<(Header, Vec<u8>), NetError> {
        match ticket.0.downcast::<(Header, Vec<u8>)>() {
            Ok(answer) => Ok(*answer),
            Err(_) => Err(self.no_answer("the ticket is another transport's")),
        }
    }

    fn listen(
        &self,
        call: &mut Call<'_>,
        heard: Arc<dyn Service>,
    ) -> Result<(Header, Vec<u8>, Listening), NetError> {
        let line = LocalLine::start(heard).map_err(|e| self.not_sent(&e.to_string()))?;
        let (at_line, listening) = (AtLine { line: line.clone() }, Listening(line));
        let (head, body) =
            self.serve(call, &at_line)?.ok_or_else(|| self.no_answer("no answer was promised"))?;
        Ok((head, body, listening))
    }

    fn is_fate_shared(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_id_is_given_twice() {
        let take = || (0..3 * REQUEST_BLOCK + 7).map(|_| next_request()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(take)).collect();
        let mut ids: Vec<_> = threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), ids.first() > Some(&0)), (count, true));
    }
}
