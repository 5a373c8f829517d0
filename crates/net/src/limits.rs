//! Bounds of one peer's use of a server: places among its connections, and memory for frames.
//!
//! net-L1: of the last quarter of the places a peer gets only its first few, so that others can connect however many one peer opens.
//! net-L2: frames that are received or wait to be sent take `Limits::memory` bytes at most, all together. One peer has half of it at most,
//!     so that a peer that sends half a frame, or reads no answers, delays only requests of its own origin. Short frames have a quarter of
//!     that beside it, so that long ones do not delay them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use socket2::Socket;
use wire::fabric::{LinkStat, PeerStat};

use crate::counts::{Meter, PeerCounts, Trace, add};
use crate::link::Link;

/// Connections of a peer that always get a place: twice what a mount opens to a server, for several mounts on one host.
const FEW: usize = 64;
/// The least that a frame takes: its parts and the work that it waits for.
const FRAME_MIN: usize = 1024;
/// Peers whose counters are kept without a connection.
const PEERS_KEPT: usize = 1024;
/// Up to here a frame is short.
const SHORT_MAX: usize = 64 * 1024;

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections. Each takes a file descriptor; an idle one takes less than 4 KiB beside the kernel's part.
    pub connections: usize,
    /// Most threads that serve requests, at least two. Requests between the members of a mirror have some more (net-E3).
    pub workers: usize,
    /// Most bytes of frames that are received, served or not sent yet.
    pub memory: usize,
    /// Most requests under way on one connection.
    pub frames: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        // File descriptors of a server's media and logs have their places beside the connections.
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |n| n as usize);
        Limits {
            connections: files.saturating_sub(256).clamp(256, 65_536),
            workers: 64,
            memory: 256 << 20,
            frames: 256,
        }
    }
}

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

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Host(address) => write!(f, "{address}"),
            Origin::User(uid) => write!(f, "user {uid}"),
            Origin::Unknown => write!(f, "unknown"),
        }
    }
}

/// net-L1: is there a place for another connection of a peer that has `own` of all `open` ones?
fn has_place(limits: &Limits, open: usize, own: usize) -> bool {
    let easy = limits.connections - limits.connections / 4;
    open < limits.connections && (open < easy || own < FEW)
}

/// The use of a server by all peers.
pub(crate) struct Budget {
    pub limits: Limits,
    open: AtomicUsize,
    /// Bytes of long frames and of short ones.
    bytes: [AtomicUsize; 2],
    peers: Mutex<HashMap<Origin, Arc<Use>>>,
    pub trace: Arc<Trace>,
    frees: AtomicU64,
    /// Connections wait for memory: `Share`'s drop tells.
    is_short: AtomicBool,
    freed: Box<dyn Fn() + Send + Sync>,
}

/// The use by one peer. It stays after the last connection, for its counters, while there are few.
struct Use {
    connections: AtomicUsize,
    bytes: [AtomicUsize; 2],
    counts: Arc<PeerCounts>,
    link: Arc<Link>,
}

/// A connection's place, until it is dropped.
pub(crate) struct Seat {
    budget: Arc<Budget>,
    origin: Origin,
    peer: Arc<Use>,
}

/// Memory for a frame, until it is dropped.
pub(crate) struct Share {
    budget: Arc<Budget>,
    peer: Arc<Use>,
    bytes: usize,
}

impl Budget {
    /// `freed` is called when memory is given back while connections wait for some.
    pub fn new(limits: Limits, freed: Box<dyn Fn() + Send + Sync>) -> Arc<Budget> {
        Arc::new(Budget {
            limits,
            open: AtomicUsize::new(0),
            bytes: Default::default(),
            peers: Mutex::default(),
            trace: Arc::default(),
            frees: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            freed,
        })
    }

    /// A place for a connection, or `None` if there is none for it.
    pub fn seat(self: &Arc<Budget>, origin: Origin) -> Option<Seat> {
        let mut peers = self.peers.lock();
        let make = || {
            let counts = PeerCounts::new(origin.to_string(), self.trace.clone());
            let link = Link::new(Instant::now());
            Arc::new(Use { connections: AtomicUsize::new(0), bytes: Default::default(), counts, link })
        };
        let peer = peers.get(&origin).cloned().unwrap_or_else(make);
        // Counts of places change under the lock only.
        let (open, own) = (self.open.load(Ordering::Relaxed), peer.connections.load(Ordering::Relaxed));
        if !has_place(&self.limits, open, own) {
            add(&peer.counts.counts.failures);
            return None;
        }
        add(&peer.counts.counts.connects);
        self.open.store(open + 1, Ordering::Relaxed);
        peer.connections.store(own + 1, Ordering::Relaxed);
        peers.insert(origin, peer.clone());
        Some(Seat { budget: self.clone(), origin, peer })
    }

    /// The counters of all peers. `under_way`: requests under way by peer.
    pub fn stat(&self, under_way: &HashMap<*const PeerCounts, usize>) -> Vec<PeerStat> {
        let peers = self.peers.lock();
        let stat = |peer: &Arc<Use>| {
            let under_way = under_way.get(&Arc::as_ptr(&peer.counts)).copied().unwrap_or(0);
            peer.counts.stat(peer.connections.load(Ordering::Relaxed), under_way)
        };
        peers.values().map(stat).collect()
    }

    /// How quickly hosts have sent of late, those with the most bytes first.
    pub fn links(&self, now: Instant) -> Vec<LinkStat> {
        let peers = self.peers.lock();
        let link = |(origin, peer): (&Origin, &Arc<Use>)| {
            let late = peer.link.of_late(now);
            (late.bytes > 0).then(|| LinkStat {
                address: origin.to_string(),
                net: late.net,
                name: late.name,
                bytes: late.bytes,
                each_us: late.each_ns / 1000,
                any_us: late.any_ns / 1000,
            })
        };
        let mut links: Vec<_> = peers.iter().filter_map(link).collect();
        drop(peers);
        links.sort_by_key(|link| Reverse(link.bytes));
        links
    }

    /// Bytes of frames in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Rises whenever memory is given back.
    pub fn frees(&self) -> u64 {
        self.frees.load(Ordering::SeqCst)
    }

    fn max(&self, pool: usize) -> usize {
        if pool == 0 { self.limits.memory } else { self.limits.memory / 4 }
    }

    /// Announces that a connection waits for memory. Memory given back from now on is told.
    pub fn wait_for_memory(&self) {
        self.is_short.store(true, Ordering::SeqCst);
    }
}

impl Seat {
    pub fn meter(&self) -> Arc<Meter> {
        self.peer.counts.meter()
    }

    /// The measure of this host's link.
    pub fn link(&self) -> &Arc<Link> {
        &self.peer.link
    }

    /// net-L2: memory for a frame of so many bytes, or `None` if there is none now.
    pub fn take(&self, bytes: usize) -> Option<Share> {
        let bytes = bytes.max(FRAME_MIN);
        let pool = pool_of(bytes);
        let max = self.budget.max(pool);
        let own = self.peer.bytes[pool].fetch_add(bytes, Ordering::SeqCst) + bytes;
        let all = self.budget.bytes[pool].fetch_add(bytes, Ordering::SeqCst) + bytes;
        if own > max / 2 || all > max {
            self.peer.bytes[pool].fetch_sub(bytes, Ordering::SeqCst);
            self.budget.bytes[pool].fetch_sub(bytes, Ordering::SeqCst);
            return None;
        }
        Some(Share { budget: self.budget.clone(), peer: self.peer.clone(), bytes })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut peers = self.budget.peers.lock();
        self.budget.open.fetch_sub(1, Ordering::Relaxed);
        if self.peer.connections.fetch_sub(1, Ordering::Relaxed) == 1 && peers.len() > PEERS_KEPT {
            peers.remove(&self.origin);
        }
    }
}

fn pool_of(bytes: usize) -> usize {
    usize::from(bytes <= SHORT_MAX)
}

impl Share {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let pool = pool_of(self.bytes);
        let own = self.peer.bytes[pool].fetch_sub(self.bytes, Ordering::SeqCst);
        let all = self.budget.bytes[pool].fetch_sub(self.bytes, Ordering::SeqCst);
        assert!(own >= self.bytes && all >= self.bytes, "net-L2: memory that is given back was taken");
        self.budget.frees.fetch_add(1, Ordering::SeqCst);
        if self.budget.is_short.load(Ordering::SeqCst) && self.budget.is_short.swap(false, Ordering::SeqCst) {
            (self.budget.freed)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { connections: 1024, workers: 4, memory: 256 << 20, frames: 256 };

    fn host(n: u8) -> Origin {
        Origin::Host(IpAddr::from([10, 0, 0, n]))
    }

    fn budget() -> (Arc<Budget>, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let freed = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        (Budget::new(LIMITS, Box::new(freed)), told)
    }

    #[test]
    fn one_peer_leaves_places_for_others() {
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
            let (budget, _) = budget();
            let mut held: Vec<_> = (0..others).map(|n| budget.seat(host(10 + (n % 200) as u8))).collect();
            held.extend((0..own).map(|_| budget.seat(host(1))));
            assert!(held.iter().all(Option::is_some), "{own} and {others}");
            assert_eq!(budget.seat(host(1)).is_some(), want, "{own} of its own and {others} of others");
            drop(held);
            assert!(budget.peers.lock().values().all(|peer| peer.connections.load(Ordering::SeqCst) == 0));
            assert_eq!(budget.open.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn one_peer_leaves_memory_for_others_and_all_have_a_bound() {
        let (budget, told) = budget();
        let seats: Vec<_> = (1..4).map(|n| budget.seat(host(n)).expect("a place")).collect();
        let take = |n: usize| seats[n].take(4 << 20);
        let mut held: Vec<_> = (0..32).map(|_| take(0).expect("within its half")).collect();
        assert!(take(0).is_none(), "more than half");
        assert!(seats[0].take(1).is_some(), "a short one has memory of its own");
        held.extend((0..32).map(|_| take(1).expect("the other half")));
        assert!(take(2).is_none(), "all is taken");
        held.truncate(63);
        assert_eq!(told.load(Ordering::SeqCst), 0, "no connection waits");
        held.push(take(2).expect("one was given back"));
        budget.wait_for_memory();
        drop(held);
        assert_eq!(told.load(Ordering::SeqCst), 1, "told once");
        assert!(budget.bytes.iter().all(|bytes| bytes.load(Ordering::SeqCst) == 0));
    }
}
