//! Bounds of one peer's use of a server: places among its connections, and memory for long bodies.
//!
//! net-L1: of the last quarter of the places a peer gets only its first few, so that others can connect however many one peer opens.
//! net-L2: incoming bodies take `BODIES_MAX` bytes at most, all together, beside the first step of each. One peer has half of it at
//!     most, so that a peer that sends half a frame delays only requests of its own origin.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use socket2::Socket;

use crate::stream::BODY_STEP;

/// Each connection has a thread; a server can bear this many threads with their buffers (2 MiB of bulk each while busy).
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// From here on a peer with `FEW` connections gets no more.
const CONNECTIONS_EASY: usize = CONNECTIONS_MAX - CONNECTIONS_MAX / 4;
/// Twice what a mount opens without waiting (`pool.rs`): enough for a mount and a server on one host.
const FEW: usize = 64;
/// Nearly all bodies are shorter than a step; this is enough for 64 of the longest.
const BODIES_MAX: usize = 256 << 20;

/// The other end of a connection: all of a host count as one, and all of a local user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Host(IpAddr),
    User(u32),
    Unknown,
}

impl Origin {
    pub fn of(socket: &Socket) -> Origin {
        if let Some(address) = socket.peer_addr().ok().and_then(|a| a.as_socket()) {
            return Origin::Host(address.ip().to_canonical());
        }
        match rustix::net::sockopt::socket_peercred(socket) {
            Ok(peer) => Origin::User(peer.uid.as_raw()),
            Err(_) => Origin::Unknown,
        }
    }
}

/// net-L1: is there a place for another connection of this origin, beside the open ones?
pub(crate) fn has_place(here: impl ExactSizeIterator<Item = Origin>, who: Origin) -> bool {
    match here.len() {
        n if n >= CONNECTIONS_MAX => false,
        n if n >= CONNECTIONS_EASY => here.filter(|other| *other == who).count() < FEW,
        _ => true,
    }
}

/// Memory for the bodies of all connections.
#[derive(Default)]
pub(crate) struct Bodies {
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of: HashMap<Origin, usize>,
}

/// One body's share of the memory, until it is dropped.
pub(crate) struct Share<'a> {
    bodies: &'a Bodies,
    of: Origin,
    bytes: usize,
}

impl Bodies {
    /// net-L2: reserves memory for a body of `len` bytes, waiting until `deadline`. A short body needs none.
    pub fn take(&self, of: Origin, len: usize, deadline: Instant) -> Option<Share<'_>> {
        let bytes = len.saturating_sub(BODY_STEP);
        if bytes > 0 {
            let mut taken = self.taken.lock();
            while !taken.has_room(of, bytes) {
                if self.freed.wait_until(&mut taken, deadline).timed_out() && !taken.has_room(of, bytes) {
                    return None;
                }
            }
            taken.all += bytes;
            let own = taken.of.entry(of).or_default();
            *own += bytes;
            assert!(*own <= BODIES_MAX / 2, "net-L2: one peer has half of the memory at most");
            assert!(taken.all <= BODIES_MAX, "net-L2: all bodies together have a bound");
        }
        Some(Share { bodies: self, of, bytes })
    }
}

impl Taken {
    fn has_room(&self, of: Origin, bytes: usize) -> bool {
        let own = self.of.get(&of).copied().unwrap_or_default();
        self.all + bytes <= BODIES_MAX && own + bytes <= BODIES_MAX / 2
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.bodies.taken.lock();
        assert!(taken.all >= self.bytes, "net-L2: memory that is given back was taken");
        taken.all -= self.bytes;
        if let Some(own) = taken.of.get_mut(&self.of) {
            assert!(*own >= self.bytes, "net-L2: a peer gives back what it has");
            *own -= self.bytes;
            if *own == 0 {
                taken.of.remove(&self.of);
            }
        }
        self.bodies.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> Origin {
        Origin::Host(IpAddr::from([10, 0, 0, n]))
    }

    #[test]
    fn one_peer_leaves_places_for_others() {
        let place = |own: usize, others: usize, of: Origin| {
            let here = (0..own + others).map(|n| if n < own { host(1) } else { host(2) });
            has_place(here, of)
        };
        // own connections, others, accepted
        let table = [
            (0, 0, true),
            (767, 0, true),
            (768, 0, false),
            (63, 705, true),
            (64, 704, false),
            (0, 1024, false),
        ];
        for (own, others, want) in table {
            assert_eq!(place(own, others, host(1)), want, "{own} of its own and {others} of others");
        }
        assert!(place(768, 0, host(3)), "another one comes in");
    }

    #[test]
    fn one_peer_leaves_memory_for_others_and_all_have_a_bound() {
        let bodies = Bodies::default();
        let now = Instant::now();
        let take = |of: Origin| bodies.take(of, (4 << 20) + BODY_STEP, now);
        let mut held: Vec<_> = (0..32).map(|_| take(host(1)).expect("within its half")).collect();
        assert!(take(host(1)).is_none(), "more than half");
        assert!(bodies.take(host(1), BODY_STEP, now).is_some(), "a short one needs none");
        held.extend((0..32).map(|_| take(host(2)).expect("the other half")));
        assert!(take(host(3)).is_none(), "all is taken");
        held.truncate(63);
        held.push(take(host(3)).expect("one was given back"));
        drop(held);
        assert!(bodies.taken.lock().of.is_empty() && bodies.taken.lock().all == 0);
    }
}
