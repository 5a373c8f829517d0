//! The lanes to one node: opened when needed, shared by all threads and targets.
//!
//! net-N1: after a failed connect there is a pause, which doubles with each failure and is drawn at random within a half of that. Requests
//! during the pause fail at once, so that a dead server costs neither a storm of connects nor its clients' time.
//! net-N2: a lane has at most as many requests under way as its other end allows; more wait for a place, or open another lane.
//! net-N3: a thread that has requests under way never waits for a place that others hold (`Wait::Never`). A thread that waits for a place
//! therefore waits only for threads that do not wait in turn.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use pki::Trust;
use socket2::SockAddr;
use types::{NodeId, TargetId};
use wire::fabric::PeerStat;

use crate::channel::Channel;
use crate::counts::{Meter, PeerCounts, Trace, add};
use crate::engine::Engine;
use crate::hello::{Hello, Kind, Status};
use crate::lane::Lane;
use crate::live::{Entry, Live};
use crate::nid::{Nid, socket_for};
use crate::socket::{SLICE, read_hello, send_hello, tune};
use crate::timing::Timing;

/// Lanes for short frames, and for bulk (decision 0051).
const SHORT_LANES: usize = 8;
const BULK_LANES: usize = 4;
/// A connect that takes longer than this is to a host that is down; a lost SYN is sent again after 1 s.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The pause after the first failed connect, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a probe of a silent host may take.
const PROBE_MAX: Duration = Duration::from_millis(800);

/// State that all nodes of a fabric share.
#[derive(Default)]
pub(crate) struct Common {
    /// This node's id; 0 if it is in no map.
    pub own: AtomicU64,
    pub live: Arc<Live>,
    pub trace: Arc<Trace>,
    pub timing: Arc<Timing>,
    /// Serves what other nodes send over lines; started by the first one that listens.
    ear: Mutex<Option<Arc<Engine>>>,
    /// Certificates: connections over TCP use TLS.
    pub trust: Option<Arc<Trust>>,
}

impl Common {
    pub fn new(trust: Option<Arc<Trust>>) -> Common {
        let mut common = Common::default();
        common.trust = trust;
        common
    }

    pub fn recheck(&self) {
        let ear = self.ear.lock().clone();
        ear.iter().for_each(|engine| engine.recheck());
    }

    /// The engine of lines that this process listens on.
    pub fn ear(&self) -> io::Result<Arc<Engine>> {
        let mut ear = self.ear.lock();
        if let Some(engine) = &*ear {
            return Ok(engine.clone());
        }
        let engine = Engine::listener()?;
        *ear = Some(engine.clone());
        Ok(engine)
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        // This may be one of its threads, so it does not wait for them.
        self.ear.lock().iter().for_each(|engine| engine.end());
    }
}

/// A connection that was dialled and greeted.
pub(crate) struct Dialled {
    pub channel: Channel,
    pub entry: Entry,
    pub meter: Arc<Meter>,
    pub hello: Hello,
    address: SockAddr,
}

/// A node that this process dials.
pub(crate) struct Node {
    pub name: String,
    wanted: NodeId,
    common: Arc<Common>,
    counts: Arc<PeerCounts>,
    nids: RwLock<Vec<String>>,
    /// The address that answered last, with its NID. It is tried first: an unresponsive address before it would delay each connect.
    worked: Mutex<Option<(String, SockAddr)>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    short: Lanes,
    bulk: Lanes,
    trouble: Option<Trouble>,
    /// Raised when the NIDs change, so that a connect to an old address is not kept.
    generation: u64,
}

#[derive(Default)]
struct Lanes {
    open: Vec<Arc<Lane>>,
    connecting: usize,
}

/// The failure of the last connect.
struct Trouble {
    failures: u32,
    why: String,
    retry_at: Instant,
    /// A thread is connecting again right now.
    trying: bool,
}

/// For what a request may wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For a place that other threads hold, until the deadline.
    ForOthers,
    /// net-N3: its thread has requests under way.
    Never,
}

/// A place among the requests under way on a lane, until it is dropped.
pub(crate) struct Place {
    node: Arc<Node>,
    lane: Arc<Lane>,
    /// Opened for this request: its failure is not that of a stale connection.
    pub is_new: bool,
}

impl Place {
    pub fn lane(&self) -> &Lane {
        &self.lane
    }
    pub fn node(&self) -> &Node {
        &self.node
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let was_full = self.lane.under_way() >= self.lane.frames_max;
        self.lane.give_place_back();
        if was_full {
            // Under the lock, so that no thread is between seeing a full lane and going to sleep.
            let _state = self.node.state.lock();
            self.node.changed.notify_all();
        }
    }
}

impl State {
    fn of(&mut self, kind: Kind) -> &mut Lanes {
        match kind {
            Kind::Short => &mut self.short,
            Kind::Bulk => &mut self.bulk,
        }
    }
}

impl Lanes {
    fn max(kind: Kind) -> usize {
        match kind {
            Kind::Short => SHORT_LANES,
            Kind::Bulk => BULK_LANES,
        }
    }
}

impl Node {
    pub fn new(name: String, wanted: NodeId, nids: Vec<String>, common: Arc<Common>) -> Arc<Node> {
        let counts = PeerCounts::new(name.clone(), common.trace.clone());
        Arc::new(Node {
            name,
            wanted,
            common,
            counts,
            nids: RwLock::new(nids),
            worked: Mutex::new(None),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub fn has_nids(&self) -> bool {
        !self.nids.read().is_empty()
    }
    pub fn own_node(&self) -> NodeId {
        NodeId(self.common.own.load(Ordering::Relaxed))
    }
    pub fn is_aborted(&self) -> bool {
        self.common.live.is_aborted()
    }
    /// Wakes threads that wait for a place, so that they see the abort.
    pub fn wake_all(&self) {
        // Under the lock, so that no thread is between checking the flag and going to sleep.
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Sets the node's NIDs. If they changed, its lanes are closed, and what is under way there ends as unknown.
    pub fn set_nids(&self, nids: &[String]) {
        let mut known = self.nids.write();
        if *known != nids {
            *known = nids.to_vec();
            drop(known);
            self.close("the node has other addresses now", false);
        }
    }

    /// Closes all lanes.
    pub fn close(&self, why: &str, is_dead_host: bool) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.trouble = None;
        let short = std::mem::take(&mut state.short.open);
        let bulk = std::mem::take(&mut state.bulk.open);
        drop(state);
        short.iter().chain(&bulk).for_each(|lane| lane.fail(why, is_dead_host));
        self.wake_all();
    }

    /// Ends the requests to a target that this node does not serve any more.
    pub fn end_target(&self, target: TargetId) {
        let state = self.state.lock();
        let lanes: Vec<_> = state.short.open.iter().chain(&state.bulk.open).cloned().collect();
        drop(state);
        lanes.iter().for_each(|lane| lane.end_target(target, "another node serves the target now"));
    }

    /// Ends lanes whose other end's certificate is not good any more.
    pub fn recheck(&self) {
        let state = self.state.lock();
        let lanes: Vec<_> = state.short.open.iter().chain(&state.bulk.open).cloned().collect();
        drop(state);
        lanes.iter().for_each(|lane| lane.recheck());
    }

    /// Closes the lanes without requests after one failed: they probably lead to the same dead server.
    pub fn drop_unused(&self) {
        let mut state = self.state.lock();
        state.short.open.retain(|lane| lane.under_way() > 0 && !lane.is_gone());
        state.bulk.open.retain(|lane| lane.under_way() > 0 && !lane.is_gone());
    }

    /// A place on a lane for frames of this kind; opens a lane if that is better. An error means that nothing was sent.
    pub fn place(self: &Arc<Node>, kind: Kind, deadline: Instant, wait: Wait) -> Result<Place, String> {
        let mut state = self.state.lock();
        loop {
            if self.is_aborted() {
                return Err("aborted".into());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err("the deadline has passed".into());
            }
            state.of(kind).open.retain(|lane| !lane.is_gone());
            let has_trouble = state.trouble.is_some();
            let lanes = state.of(kind);
            let least = lanes.open.iter().min_by_key(|lane| lane.under_way()).cloned();
            let may_open = lanes.open.len() + lanes.connecting < Lanes::max(kind);
            let is_first = lanes.open.is_empty();
            match least {
                Some(lane) if lane.under_way() == 0 => {
                    if lane.is_open() {
                        return Ok(self.take(state, lane, false));
                    }
                    state.of(kind).open.retain(|other| !Arc::ptr_eq(other, &lane));
                }
                // Another lane is worth a connect; in trouble the open ones do.
                Some(lane) if lane.under_way() < lane.frames_max && (!may_open || has_trouble) => {
                    return Ok(self.take(state, lane, false));
                }
                _ if may_open && (is_first || !has_trouble) => {
                    self.may_connect(&mut state, now)?;
                    match self.open(state, kind, deadline) {
                        Ok(place) => return Ok(place),
                        Err(why) => {
                            state = self.state.lock();
                            // The lanes that are open may still do.
                            if state.of(kind).open.iter().all(|lane| lane.is_gone()) {
                                return Err(why);
                            }
                        }
                    }
                }
                // Another thread is connecting, or all lanes are full.
                _ if wait == Wait::Never => return Err("all connections are busy".into()),
                // The loop checks above whether it was woken or timed out.
                _ => {
                    add(&self.counts.counts.waits);
                    self.changed.wait_until(&mut state, deadline);
                }
            }
        }
    }

    fn take(self: &Arc<Node>, state: MutexGuard<'_, State>, lane: Arc<Lane>, is_new: bool) -> Place {
        lane.take_place();
        drop(state);
        Place { node: self.clone(), lane, is_new }
    }

    /// net-N1: after a failure, one attempt at a time, and none before its pause is over.
    fn may_connect(&self, state: &mut State, now: Instant) -> Result<(), String> {
        let Some(trouble) = &mut state.trouble else { return Ok(()) };
        if trouble.trying {
            return Err(format!("{} (being tried again)", trouble.why));
        }
        if now < trouble.retry_at {
            let left = trouble.retry_at - now;
            return Err(format!("{} (next attempt in {} ms)", trouble.why, left.as_millis() + 1));
        }
        trouble.trying = true;
        Ok(())
    }

    /// Dials a new lane, without the lock.
    fn open(
        self: &Arc<Node>,
        mut state: MutexGuard<'_, State>,
        kind: Kind,
        deadline: Instant,
    ) -> Result<Place, String> {
        state.of(kind).connecting += 1;
        let generation = state.generation;
        drop(state);
        let made = self.dial(kind, deadline).map(|dialled| self.lane(dialled));
        let now = Instant::now();
        let mut state = self.state.lock();
        state.of(kind).connecting -= 1;
        self.changed.notify_all();
        match made {
            Ok(_) if state.generation != generation => Err("the node has other addresses now".into()),
            Ok(lane) => {
                state.trouble = None;
                let lane = Arc::new(lane);
                state.of(kind).open.push(lane.clone());
                assert!(
                    state.of(kind).open.len() <= Lanes::max(kind),
                    "a node has a bounded number of lanes"
                );
                Ok(self.take(state, lane, true))
            }
            Err(why) => {
                let failures = state.trouble.as_ref().map_or(0, |t| t.failures).saturating_add(1);
                let pause = PAUSE_MIN.saturating_mul(1 << (failures - 1).min(10)).min(PAUSE_MAX);
                let retry_at = now + pause.mul_f64(jitter());
                state.trouble = Some(Trouble { failures, why: why.clone(), retry_at, trying: false });
                Err(why)
            }
        }
    }

    /// Dials a connection, greeted.
    pub fn dial(&self, kind: Kind, deadline: Instant) -> Result<Dialled, String> {
        let made = self.dial_any(kind, deadline.min(Instant::now() + CONNECT_MAX));
        let counts = &self.counts.counts;
        add(if made.is_ok() { &counts.connects } else { &counts.failures });
        made
    }

    /// Counters of the connections to this node.
    pub fn stat(&self) -> PeerStat {
        let state = self.state.lock();
        let lanes: Vec<_> = state.short.open.iter().chain(&state.bulk.open).collect();
        let under_way = lanes.iter().map(|lane| lane.under_way()).sum();
        self.counts.stat(lanes.len(), under_way)
    }

    pub fn ear(&self) -> io::Result<Arc<Engine>> {
        self.common.ear()
    }

    /// Tries the node's addresses: first the one that worked last, before any name is resolved, then the others in the order of the NIDs.
    /// Each has an equal share of the time left, so that one that does not answer leaves time for the next. The error names each NID with
    /// its reason.
    fn dial_any(&self, kind: Kind, by: Instant) -> Result<Dialled, String> {
        let nids = self.nids.read().clone();
        let share = |n: usize| {
            let now = Instant::now();
            now + by.saturating_duration_since(now) / n as u32
        };
        let mut whys = Vec::new();
        let worked = self.worked.lock().clone().filter(|(nid, _)| nids.contains(nid) && nids.len() > 1);
        if let Some((nid, address)) = &worked {
            match self.dial_address(kind, nid, address, share(nids.len())) {
                Ok(dialled) => return Ok(dialled),
                Err(why) => whys.push(format!("{nid}: {why}")),
            }
        }
        let mut candidates = Vec::new();
        for nid in &nids {
            match addresses_of(nid) {
                Ok(addresses) => candidates.extend(addresses.into_iter().map(|a| (nid.clone(), a))),
                Err(why) => whys.push(format!("{nid}: {why}")),
            }
        }
        candidates.retain(|c| Some(c) != worked.as_ref());
        let count = candidates.len();
        for (n, (nid, address)) in candidates.into_iter().enumerate() {
            match self.dial_address(kind, &nid, &address, share(count - n)) {
                Ok(dialled) => {
                    *self.worked.lock() = Some((nid, address));
                    return Ok(dialled);
                }
                Err(why) => whys.push(format!("{nid}: {why}")),
            }
        }
        if whys.is_empty() { Err("the node has no address".into()) } else { Err(whys.join("; ")) }
    }

    fn dial_address(
        &self,
        kind: Kind,
        nid: &str,
        address: &SockAddr,
        by: Instant,
    ) -> Result<Dialled, String> {
        let left = by.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("no time was left to connect".into());
        }
        let as_text = |e: io::Error| e.to_string();
        let socket = Arc::new(socket_for(address).map_err(as_text)?);
        let entry = self.common.live.enter(&socket).ok_or("aborted")?;
        socket.connect_timeout(address, left).map_err(as_text)?;
        tune(&socket, SLICE).map_err(as_text)?;
        let mut hello = Hello::new(Status::Welcome, self.own_node(), nid.to_string());
        (hello.wanted, hello.lane) = (self.wanted, kind);
        let channel = match &self.common.trust {
            Some(trust) if !address.is_unix() => {
                Channel::dialled(socket, trust, nid, by).map_err(|e| e.to_string())?
            }
            _ => Channel::plain(socket),
        };
        send_hello(&channel, &hello).map_err(|e| format!("greeting: {e}"))?;
        let answer = read_hello(&channel, by).map_err(|e| match e {
            crate::socket::Gone::Malformed(why) if why.0 == "handshake version" => {
                "the server speaks another version: use the same release".to_string()
            }
            e => format!("greeting: {e}"),
        })?;
        self.check(&answer)?;
        Ok(Dialled { channel, entry, meter: self.counts.meter(), hello: answer, address: address.clone() })
    }

    fn lane(&self, dialled: Dialled) -> Lane {
        let Dialled { channel, entry, meter, hello, address } = dialled;
        // A socket of this host needs no probe: its other end closes with its process.
        let probe = move || {
            address.is_unix()
                || socket_for(&address).is_ok_and(|s| match s.connect_timeout(&address, PROBE_MAX) {
                    Ok(()) => true,
                    // A host that refuses is alive; its connections end by themselves.
                    Err(e) => e.kind() == io::ErrorKind::ConnectionRefused,
                })
        };
        let (timing, frames) = (self.common.timing.clone(), hello.frames.max(1) as usize);
        Lane::new(channel, hello.node, frames, (entry, meter), timing, Box::new(probe))
    }

    fn check(&self, answer: &Hello) -> Result<(), String> {
        match answer.status {
            Status::Welcome => {}
            Status::Full => return Err("the server has all the connections that it may have".into()),
            Status::OtherVersion => {
                return Err("the server speaks another version: use the same release".into());
            }
            Status::Stopping => return Err("the server is stopping".into()),
        }
        let differ = self.wanted.0 != 0 && answer.node.0 != 0 && self.wanted != answer.node;
        match differ {
            true => Err(format!("node {} answers there, not node {}", answer.node, self.wanted)),
            false => Ok(()),
        }
    }
}

fn addresses_of(nid: &str) -> Result<Vec<SockAddr>, String> {
    let parsed = Nid::parse(nid).map_err(|e| e.to_string())?;
    let addresses = parsed.address.resolve().map_err(|e| format!("its name was not resolved: {e}"))?;
    if addresses.is_empty() { Err("its name stands for no address".into()) } else { Ok(addresses) }
}

/// A factor from 0.5 to 1, drawn anew each time, so that the clients of a restarted server do not all come at once.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(Instant::now());
    0.5 + (random % 1024) as f64 / 2048.0
}
