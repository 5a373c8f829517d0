//! The lanes to one node: opened when needed, shared by all threads and targets. Each NID of the node is a *rail*.
//!
//! net-N1: after a failed connect to a rail there is a pause, which doubles with each failure and is drawn at random within a half of that.
//! Requests for which only such rails are left fail at once. A dead server then costs neither a storm of connects nor its clients' time.
//! net-N2: a lane has at most as many requests under way as its other end allows; more wait for a place, or open another lane.
//! net-N3: a thread that has requests under way never waits for a place that others hold (`Wait::Never`). A thread that waits for a place
//! therefore waits only for threads that do not wait in turn.
//! net-N4: lanes are spread evenly over the rails that work. A rail that failed is tried again beside the requests of the others.
//! net-N6: when a target moves to another node, connects to this one that are under way are given up. The host may be dead, and requests that
//! wait for a connect go to the other node at once.
//! net-N5: once this process has another certificate of its own, no request is put on a lane that was dialled with the one before. Such a lane
//! counts for no bound, and is closed with the end of the last request on it. So other ends know the new certificate by the next request.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pki::{Serial, Trust};
use socket2::SockAddr;
use types::{NodeId, TargetId};
use wire::fabric::PeerStat;

use crate::channel::Channel;
use crate::counts::{Meter, PeerCounts, Trace, add};
use crate::dial::{Dialler, Dialling, Path, Reached, Wish};
use crate::engine::Engine;
use crate::hello::{Hello, Kind};
use crate::lane::Lane;
use crate::live::Entry;
use crate::nid::socket_for;
use crate::timing::Timing;

mod rails;

use rails::Rails;

/// Lanes for short frames, and for bulk (decision 0051).
const SHORT_LANES: usize = 8;
const BULK_LANES: usize = 4;
/// A connect that takes longer than this is to a host that is down; a lost SYN is sent again after 1 s.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long a probe of a silent host may take.
const PROBE_MAX: Duration = Duration::from_millis(800);

/// State that all nodes of a fabric share.
#[derive(Default)]
pub(crate) struct Common {
    /// This node's id; 0 if it is in no map.
    pub own: AtomicU64,
    pub dialler: Arc<Dialler>,
    pub trace: Arc<Trace>,
    pub timing: Arc<Timing>,
    /// Serves what other nodes send over lines; started by the first one that listens.
    ear: Mutex<Option<Arc<Engine>>>,
}

impl Common {
    pub fn new(trust: Option<Arc<Trust>>) -> Common {
        let mut common = Common::default();
        common.dialler = Arc::new(Dialler::new(trust));
        common
    }

    pub fn recheck(&self) {
        let ear = self.ear.lock().clone();
        ear.iter().for_each(|engine| engine.recheck());
    }

    /// net-N5, for lines.
    pub fn close_former_lines(&self) {
        let ear = self.ear.lock().clone();
        ear.iter().for_each(|engine| engine.close_former(&|one| self.dialler.is_former(one)));
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
    /// This process's own certificate before it dialled; `None` without TLS.
    pub certificate: Option<Serial>,
    path: Arc<Path>,
    address: SockAddr,
}

/// A node that this process dials.
pub(crate) struct Node {
    pub name: String,
    wanted: NodeId,
    common: Arc<Common>,
    counts: Arc<PeerCounts>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    short: Lanes,
    bulk: Lanes,
    /// net-N5: the requests under way there hold them.
    retired: Vec<Weak<Lane>>,
    rails: Rails,
}

#[derive(Default)]
struct Lanes {
    open: Vec<Arc<Lane>>,
    connecting: Vec<Connecting>,
}

/// A lane that is being dialled.
struct Connecting {
    nid: Arc<str>,
    socket: Arc<Dialling>,
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
            Kind::Bulk | Kind::Circuit => &mut self.bulk,
        }
    }
}

impl Lanes {
    /// Most lanes over all rails.
    fn max(kind: Kind) -> usize {
        match kind {
            Kind::Short => SHORT_LANES,
            Kind::Bulk => BULK_LANES,
            Kind::Circuit => unreachable!("frames need no circuit of their own"),
        }
    }

    /// A rail may come back while others have its share.
    fn bound(kind: Kind) -> usize {
        2 * Lanes::max(kind)
    }

    /// Lanes on a rail, and those that are being dialled.
    fn on(&self, nid: &str) -> usize {
        let open = self.open.iter().filter(|lane| *lane.path.nid == *nid).count();
        open + self.connecting.iter().filter(|other| *other.nid == *nid).count()
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
            state: Mutex::new(State { rails: Rails::new(&nids), ..State::default() }),
            changed: Condvar::new(),
        })
    }

    pub fn has_nids(&self) -> bool {
        !self.state.lock().rails.is_empty()
    }
    pub fn own_node(&self) -> NodeId {
        NodeId(self.common.own.load(Ordering::Relaxed))
    }
    pub fn is_aborted(&self) -> bool {
        self.common.dialler.live.is_aborted()
    }
    /// Wakes threads that wait for a place, so that they see the abort.
    pub fn wake_all(&self) {
        // Under the lock, so that no thread is between checking the flag and going to sleep.
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Sets the node's NIDs. Lanes to those that it has no more are closed, and what is under way there ends as unknown.
    pub fn set_nids(&self, nids: &[String]) {
        let mut state = self.state.lock();
        if !state.rails.set(nids) {
            return;
        }
        let left = state.take_lanes(|lane| !nids.iter().any(|nid| **nid == *lane.path.nid));
        drop(state);
        left.iter().for_each(|lane| lane.fail("the node has other addresses now", false));
        self.wake_all();
    }

    /// Closes all lanes.
    pub fn close(&self, why: &str, is_dead_host: bool) {
        let mut state = self.state.lock();
        state.rails.forget();
        let all = state.take_lanes(|_| true);
        drop(state);
        all.iter().for_each(|lane| lane.fail(why, is_dead_host));
        self.wake_all();
    }

    /// Closes the lanes of a path whose other end, or a router on it, is dead. Lanes on other paths go on.
    pub fn close_path(&self, path: &Path, why: &str) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let dead = state.take_lanes(|lane| *lane.path == *path);
        if path.hops.is_empty() && state.rails.len() > 1 {
            state.rails.fail(&path.nid, why, now);
        } else {
            // A connect that began before led to the dead host.
            state.rails.renew(&path.nid);
        }
        drop(state);
        self.common.dialler.fail_routed(&path.hops, why);
        // This node is told once of its dead host: a request of these lanes that ends later must not close the lanes of now.
        dead.iter().for_each(|lane| lane.fail(why, false));
        self.wake_all();
    }

    /// Ends the requests to a target that this node does not serve any more.
    pub fn end_target(&self, target: TargetId) {
        let state = self.state.lock();
        // net-N6. Under the lock: those that have become lanes are not among them.
        state.short.connecting.iter().chain(&state.bulk.connecting).for_each(|one| one.socket.give_up());
        let lanes = state.all();
        drop(state);
        self.changed.notify_all();
        lanes.iter().for_each(|lane| lane.end_target(target, "another node serves the target now"));
    }

    /// Ends lanes whose other end's certificate is not good any more.
    pub fn recheck(&self) {
        let lanes = self.state.lock().all();
        lanes.iter().for_each(|lane| lane.recheck());
    }

    /// net-N5: retires the lanes that were dialled with a certificate of before.
    pub fn retire_former(&self) {
        let mut state = self.state.lock();
        let former = state.take_open(|lane| self.is_former(lane.certificate));
        state.retired.retain(|lane| lane.strong_count() > 0);
        state.retired.extend(former.iter().map(Arc::downgrade));
        drop(state);
        // Those without requests are closed here.
        drop(former);
        self.wake_all();
    }

    pub fn is_former(&self, certificate: Option<Serial>) -> bool {
        self.common.dialler.is_former(certificate)
    }

    /// Closes the lanes without requests after one failed: they probably lead to the same dead server.
    pub fn drop_unused(&self) {
        let mut state = self.state.lock();
        state.short.open.retain(|lane| lane.under_way() > 0 && !lane.is_gone());
        state.bulk.open.retain(|lane| lane.under_way() > 0 && !lane.is_gone());
    }

    /// A place on a lane for frames of this kind; opens a lane if that is better. An error means that nothing was sent. `is_over`: the frame is
    /// not for this node any more; looked at again after each `end_target`.
    pub fn place(
        self: &Arc<Node>,
        kind: Kind,
        deadline: Instant,
        wait: Wait,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Place, String> {
        let mut state = self.state.lock();
        loop {
            if self.is_aborted() {
                return Err("aborted".into());
            }
            if is_over() {
                return Err("another node serves the target now".into());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err("the deadline has passed".into());
            }
            state.of(kind).open.retain(|lane| !lane.is_gone());
            let share = state.rails.share(Lanes::max(kind));
            let lanes = state.of(kind);
            let least = lanes.open.iter().min_by_key(|lane| lane.under_way()).cloned();
            let is_first = lanes.open.is_empty();
            let rail = state.rail(kind, share);
            if !is_first
                && let Some(nid) = state.rails.due(now)
                && let Err(e) = self.try_again(nid.clone(), state.rails.generation(&nid))
            {
                state.rails.fail(&nid, &format!("no thread to try it again: {e}"), now);
            }
            match (least, rail) {
                (Some(lane), _) if lane.under_way() == 0 => {
                    if lane.is_open() {
                        return Ok(self.take(state, lane, false));
                    }
                    state.of(kind).open.retain(|other| !Arc::ptr_eq(other, &lane));
                }
                // Another lane is worth a connect; a rail in trouble is not.
                (Some(lane), None) if lane.under_way() < lane.frames_max => {
                    return Ok(self.take(state, lane, false));
                }
                (_, Some(nid)) => match self.open(state, nid, kind, deadline) {
                    Ok(place) => return Ok(place),
                    // The rail is in trouble now. Another one, or the lanes that are open, may still do.
                    Err(()) => state = self.state.lock(),
                },
                // Every rail is in trouble.
                (None, None) if state.rails.working().next().is_none() => match state.rails.attempt(now) {
                    Ok(nid) => match self.open(state, nid, kind, deadline) {
                        Ok(place) => return Ok(place),
                        Err(()) => state = self.state.lock(),
                    },
                    Err(why) => return Err(why),
                },
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

    /// Dials a new lane, without the lock. After a failure the rail is in trouble.
    fn open(
        self: &Arc<Node>,
        mut state: MutexGuard<'_, State>,
        nid: Arc<str>,
        kind: Kind,
        deadline: Instant,
    ) -> Result<Place, ()> {
        let socket = Arc::<Dialling>::default();
        state.of(kind).connecting.push(Connecting { nid: nid.clone(), socket: socket.clone() });
        let generation = state.rails.generation(&nid);
        // So that a rail which does not answer leaves time for the next.
        let max = CONNECT_MAX / state.rails.working().count().max(1) as u32;
        drop(state);
        let made = self.dial_rail(kind, &nid, deadline.min(Instant::now() + max), Some(&socket));
        let made = made.map(|dialled| self.lane(dialled));
        let now = Instant::now();
        let mut state = self.state.lock();
        let connecting = &mut state.of(kind).connecting;
        let is_it = |other: &Connecting| Arc::ptr_eq(&other.socket, &socket);
        let at = connecting.iter().position(is_it).expect("it was added above");
        connecting.swap_remove(at);
        self.changed.notify_all();
        match made {
            // The NIDs changed, or the host died, while it connected.
            Ok(_) if state.rails.generation(&nid) != generation => {
                state.rails.give_back(&nid);
                Err(())
            }
            // net-N5. Under the lock: a renewal from here on finds the lane among the open ones.
            Ok(lane) if self.is_former(lane.certificate) => {
                state.rails.work(&nid);
                Err(())
            }
            Ok(lane) => {
                state.rails.work(&nid);
                let lanes = state.of(kind);
                lanes.open.push(lane.clone());
                assert!(lanes.open.len() <= Lanes::bound(kind), "a node has a bounded number of lanes");
                Ok(self.take(state, lane, true))
            }
            // net-N6. It says nothing about the rail.
            Err(_) if socket.is_given_up() => {
                state.rails.give_back(&nid);
                Err(())
            }
            Err(why) => {
                state.rails.fail(&nid, &why, now);
                Err(())
            }
        }
    }

    /// net-N4: dials a rail that failed, on a thread of its own, so that no request waits for it. The caller has marked it as tried.
    fn try_again(self: &Arc<Node>, nid: Arc<str>, generation: u64) -> io::Result<()> {
        let node = self.clone();
        let dial = move || {
            let made = node.dial_rail(Kind::Short, &nid, Instant::now() + CONNECT_MAX, None);
            let made = made.map(|dialled| node.lane(dialled));
            let mut state = node.state.lock();
            match made {
                Ok(_) if state.rails.generation(&nid) != generation => state.rails.give_back(&nid),
                Ok(lane) => {
                    tracing::info!(node = node.name, nid = &*nid, "the rail works again");
                    state.rails.work(&nid);
                    let share = state.rails.share(SHORT_LANES);
                    let lanes = &mut state.short;
                    let has_room = lanes.on(&nid) < share && lanes.open.len() < Lanes::bound(Kind::Short);
                    if has_room && !node.is_former(lane.certificate) {
                        lanes.open.push(lane);
                    }
                }
                Err(why) => state.rails.fail(&nid, &why, Instant::now()),
            }
            node.changed.notify_all();
        };
        std::thread::Builder::new().name("rail".into()).spawn(dial).map(drop)
    }

    /// Dials a connection, greeted, over any rail that works.
    pub fn dial(&self, kind: Kind, deadline: Instant) -> Result<Dialled, String> {
        let nids = self.state.lock().rails.best_first();
        let by = deadline.min(Instant::now() + CONNECT_MAX);
        let mut whys = Vec::new();
        for (n, nid) in nids.iter().enumerate() {
            match self.dial_rail(kind, nid, share_of(by, nids.len() - n), None) {
                Ok(dialled) => return Ok(dialled),
                Err(why) => whys.push(format!("{nid}: {why}")),
            }
        }
        if whys.is_empty() { Err("the node has no address".into()) } else { Err(whys.join("; ")) }
    }

    /// Counters of one more connection, or failure.
    fn dial_rail(
        &self,
        kind: Kind,
        nid: &Arc<str>,
        by: Instant,
        dialling: Option<&Dialling>,
    ) -> Result<Dialled, String> {
        let made = self.dial_paths(kind, nid, by, dialling);
        let counts = &self.counts.counts;
        add(if made.is_ok() { &counts.connects } else { &counts.failures });
        made
    }

    /// Counters of the connections to this node.
    pub fn stat(&self) -> PeerStat {
        let state = self.state.lock();
        let lanes = state.all();
        let under_way = lanes.iter().map(|lane| lane.under_way()).sum();
        self.counts.stat(lanes.len(), under_way)
    }

    pub fn ear(&self) -> io::Result<Arc<Engine>> {
        self.common.ear()
    }

    /// Tries the ways to one NID. Each has an equal share of the time left. The error names each router with its reason.
    fn dial_paths(
        &self,
        kind: Kind,
        nid: &Arc<str>,
        by: Instant,
        dialling: Option<&Dialling>,
    ) -> Result<Dialled, String> {
        // net-N5: before the first byte, so that a renewal meanwhile makes the connection a former one.
        let certificate = self.common.dialler.own_serial();
        let paths = self.common.dialler.paths(nid, Instant::now())?;
        let known = self.state.lock().rails.address(nid);
        let mut whys = Vec::new();
        for (n, path) in paths.iter().enumerate() {
            let by = share_of(by, paths.len() - n);
            let known = known.as_ref().filter(|_| path.hops.is_empty());
            let mut reached = self.common.dialler.reach(path, known, by, dialling);
            if reached.is_err() && known.is_some() {
                // The name may stand for another address now.
                self.state.lock().rails.set_address(nid, None);
                reached = self.common.dialler.reach(path, None, by, dialling);
            }
            match reached.and_then(|reached| self.greet(kind, path, reached, by)) {
                Ok(dialled) => {
                    let certificate = certificate.filter(|_| dialled.channel.is_tls());
                    return Ok(Dialled { certificate, ..dialled });
                }
                Err(why) => whys.push(why),
            }
        }
        // In one order, whichever way was tried first: a text that stays the same is told once.
        whys.sort();
        Err(whys.join("; "))
    }

    fn greet(&self, kind: Kind, path: &Path, reached: Reached, by: Instant) -> Result<Dialled, String> {
        let wish = Wish { kind, own: self.own_node(), wanted: self.wanted };
        let (channel, hello) = self.common.dialler.greet(&reached, path, &wish, by)?;
        if self.wanted.0 != 0 && hello.node.0 != 0 && self.wanted != hello.node {
            return Err(format!("node {} answers there, not node {}", hello.node, self.wanted));
        }
        let Reached { entry, address, .. } = reached;
        if path.hops.is_empty() {
            self.state.lock().rails.set_address(&path.nid, Some(address.clone()));
        }
        let path = Arc::new(path.clone());
        let meter = self.counts.meter();
        Ok(Dialled { channel, entry, meter, hello, certificate: None, path, address })
    }

    fn lane(&self, dialled: Dialled) -> Arc<Lane> {
        let Dialled { channel, entry, meter, hello, certificate, path, address } = dialled;
        let (dialler, way) = (self.common.dialler.clone(), path.clone());
        let probe = move || match way.hops.is_empty() {
            // A socket of this host needs no probe: its other end closes with its process.
            true if address.is_unix() => true,
            true => socket_for(&address).is_ok_and(|s| match s.connect_timeout(&address, PROBE_MAX) {
                Ok(()) => true,
                // A host that refuses is alive; its connections end by themselves.
                Err(e) => e.kind() == io::ErrorKind::ConnectionRefused,
            }),
            // The routers, and the node behind them.
            false => dialler.is_alive(&way, Instant::now() + PROBE_MAX),
        };
        let (timing, frames) = (self.common.timing.clone(), hello.frames.max(1) as usize);
        let of = (entry, meter, certificate);
        let lane = Lane::new(channel, hello.node, frames, path, of, timing, Box::new(probe));
        let lane = Arc::new(lane);
        self.common.dialler.enter(&lane);
        lane
    }
}

impl State {
    /// The open lanes, and those that are retired and still have requests.
    fn all(&self) -> Vec<Arc<Lane>> {
        let retired = self.retired.iter().filter_map(Weak::upgrade);
        self.short.open.iter().chain(&self.bulk.open).cloned().chain(retired).collect()
    }

    /// Lanes that are about to end, also retired ones.
    fn take_lanes(&mut self, which: impl Fn(&Lane) -> bool) -> Vec<Arc<Lane>> {
        let retired = self.retired.iter().filter_map(Weak::upgrade).filter(|lane| which(lane));
        let retired: Vec<_> = retired.collect();
        self.retired.retain(|lane| lane.strong_count() > 0);
        self.take_open(which).into_iter().chain(retired).collect()
    }

    fn take_open(&mut self, which: impl Fn(&Lane) -> bool) -> Vec<Arc<Lane>> {
        let mut taken: Vec<_> = self.short.open.extract_if(.., |lane| which(lane)).collect();
        taken.extend(self.bulk.open.extract_if(.., |lane| which(lane)));
        taken
    }

    /// net-N4: the rail without trouble that has the fewest lanes of this kind, if it may have one more.
    fn rail(&mut self, kind: Kind, share: usize) -> Option<Arc<str>> {
        let State { short, bulk, rails, .. } = self;
        let lanes = if kind == Kind::Short { &*short } else { &*bulk };
        if lanes.open.len() + lanes.connecting.len() >= Lanes::bound(kind) {
            return None;
        }
        let best = rails.working().map(|nid| (lanes.on(nid), nid)).min_by_key(|(count, _)| *count);
        best.filter(|(count, _)| *count < share).map(|(_, nid)| nid.clone())
    }
}

/// The end of one attempt, if so many share the time.
fn share_of(by: Instant, count: usize) -> Instant {
    let now = Instant::now();
    now + by.saturating_duration_since(now) / count as u32
}
