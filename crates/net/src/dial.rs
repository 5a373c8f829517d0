//! Dialling along a path: routers first, if any, then the node.
//!
//! Each router is asked for a circuit over TLS of its own, and answers after it has reached the next one. From then on it passes bytes on, so
//! the next handshake on the same socket is with the next router, and the last one with the node (decision 0062).
//!
//! net-D1: a router whose certificate is no router's gets no byte behind the handshake.
//! net-D2: a way that failed is tried after the others until its pause is over. A path is never left out for good.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use pki::{Serial, Trust};
use socket2::{SockAddr, Socket};
use types::{FsId, NodeId};

use crate::channel::Channel;
use crate::hello::{Hello, Kind, Status};
use crate::lane::Lane;
use crate::live::{Entry, Live};
use crate::nid::{Nid, socket_for};
use crate::routes::{Routing, Way, net_of};
use crate::socket::{Gone, SLICE, read_hello, send_hello, tune};

/// How long a way that failed is tried last, after the first failure and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(16);
/// Ways whose failures are remembered.
const TROUBLES_MAX: usize = 1024;

/// The way of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    /// NID of the node.
    pub nid: Arc<str>,
    /// NIDs of the routers before it.
    pub hops: Vec<String>,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.nid)?;
        self.hops
            .iter()
            .enumerate()
            .try_for_each(|(i, hop)| write!(f, "{}{hop}", if i == 0 { " through " } else { " and " }))
    }
}

/// The dialling end of a connection before it is known which node it leads to.
pub(crate) struct Wish {
    pub kind: Kind,
    pub own: NodeId,
    pub wanted: NodeId,
}

/// A dial that may be given up (net-N6): its socket, once there is one.
#[derive(Default)]
pub(crate) struct Dialling {
    socket: Mutex<Weak<Socket>>,
    is_given_up: AtomicBool,
}

impl Dialling {
    /// False: the dial has been given up.
    fn note(&self, socket: &Arc<Socket>) -> bool {
        let mut noted = self.socket.lock();
        *noted = Arc::downgrade(socket);
        !self.is_given_up()
    }
    /// The thread that waits on it wakes up with an error, and tries no other address or way.
    pub fn give_up(&self) {
        let socket = self.socket.lock();
        self.is_given_up.store(true, Ordering::Release);
        if let Some(socket) = socket.upgrade() {
            // An error means that the socket is not connected any more.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }
}

/// The part of a fabric that dials.
#[derive(Default)]
pub(crate) struct Dialler {
    pub live: Arc<Live>,
    /// Certificates: connections over TCP use TLS.
    pub trust: Option<Arc<Trust>>,
    /// The file system that connections are for; 0 if it is not one. Routers count by it.
    pub fs: AtomicU32,
    pub routing: RwLock<Routing>,
    /// Moves on with each dial, so that ways of an equal rank share the load.
    turn: AtomicUsize,
    troubles: Mutex<HashMap<Vec<String>, Trouble>>,
    /// Lanes that go by routers, to whichever node.
    routed: Mutex<Vec<Weak<Lane>>>,
}

struct Trouble {
    failures: u32,
    until: Instant,
    /// The router did not answer. Otherwise it takes no circuit now, and its circuits of before go on.
    is_dead: bool,
}

/// A socket that leads to a node, by routers or not.
pub(crate) struct Reached {
    pub socket: Arc<Socket>,
    pub entry: Entry,
    /// Of the first host on the path.
    pub address: SockAddr,
}

/// Why a path was not reached.
struct Lost {
    why: String,
    /// So many routers from the first one are in doubt.
    doubtful: usize,
    /// The last of these answered: it takes no circuit now.
    has_answered: bool,
}

/// The refusal of one router.
struct Refusal {
    why: String,
    kind: RefusalKind,
}

enum RefusalKind {
    /// It does not answer, or is no router.
    Dead,
    /// It is full, is drained, or its map does not have the NID yet.
    Unwilling,
    /// It does not reach the next host, or waits for it still.
    Beyond,
}

impl Dialler {
    pub fn new(trust: Option<Arc<Trust>>) -> Dialler {
        Dialler { trust, ..Dialler::default() }
    }

    /// The serial of this process's own certificate now. `None`: it has none.
    pub fn own_serial(&self) -> Option<Serial> {
        self.trust.as_ref().map(|trust| trust.identity().serial)
    }

    /// net-N5: was this one in the place of this process's own certificate before?
    pub fn is_former(&self, certificate: Option<Serial>) -> bool {
        certificate.is_some() && certificate != self.own_serial()
    }

    /// The paths to a NID, in the order in which they are to be tried.
    pub fn paths(&self, nid: &Arc<str>, now: Instant) -> Result<Vec<Path>, String> {
        let (mut ways, own) = {
            let routing = self.routing.read();
            (routing.ways(nid), routing.own_nets())
        };
        if ways.is_empty() {
            let (net, own) = (net_of(nid), own.join(", "));
            return Err(format!(
                "no route leads to net {net} from {own}; `stria route list` shows those that are known"
            ));
        }
        self.spread(&mut ways);
        let troubles = self.troubles.lock();
        let has_trouble = |way: &Way| {
            (1..=way.hops.len()).any(|n| troubles.get(&way.hops[..n]).is_some_and(|t| now < t.until))
        };
        // net-D2. The sort is stable.
        ways.sort_by_cached_key(has_trouble);
        drop(troubles);
        Ok(ways.into_iter().map(|way| Path { nid: nid.clone(), hops: way.hops }).collect())
    }

    /// Takes note of a lane that goes by routers.
    pub fn enter(&self, lane: &Arc<Lane>) {
        if !lane.path.hops.is_empty() {
            let mut routed = self.routed.lock();
            routed.retain(|lane| lane.strong_count() > 0);
            routed.push(Arc::downgrade(lane));
        }
    }

    /// Ends the lanes of all nodes by a router that was found dead on this way. Otherwise each would wait for its own silence.
    pub fn fail_routed(&self, hops: &[String], why: &str) {
        let dead = {
            let (troubles, now) = (self.troubles.lock(), Instant::now());
            let is_dead = |n: &usize| troubles.get(&hops[..*n]).is_some_and(|t| t.is_dead && now < t.until);
            (1..=hops.len()).find(is_dead)
        };
        let Some(n) = dead else { return };
        let lanes: Vec<Arc<Lane>> = self.routed.lock().iter().filter_map(Weak::upgrade).collect();
        let behind = lanes.iter().filter(|lane| lane.path.hops.starts_with(&hops[..n]));
        behind.for_each(|lane| lane.fail(why, false));
    }

    /// Turns each group of ways of an equal rank, by one more with each dial.
    fn spread(&self, ways: &mut [Way]) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for group in ways.chunk_by_mut(|a, b| a.rank == b.rank) {
            group.rotate_left(turn % group.len());
        }
    }

    /// Connects along a path up to the node, without a byte to the node itself.
    pub fn reach(
        &self,
        path: &Path,
        known: Option<&SockAddr>,
        by: Instant,
        dialling: Option<&Dialling>,
    ) -> Result<Reached, String> {
        let reached = self.try_reach(path, known, by, dialling);
        if path.hops.is_empty() {
            return reached.map_err(|lost| lost.why);
        }
        match &reached {
            Ok(_) => self.troubles.lock().retain(|hops, _| !path.hops.starts_with(hops)),
            // A router is not doubted because a target has moved.
            Err(_) if dialling.is_some_and(Dialling::is_given_up) => {}
            Err(lost) if lost.doubtful > 0 => self.doubt(&path.hops[..lost.doubtful], !lost.has_answered),
            Err(_) => {}
        }
        reached.map_err(|lost| lost.why)
    }

    /// Does the node at the end of a path with routers still accept connections? A router that takes no new circuit proves nothing.
    pub fn is_alive(&self, path: &Path, by: Instant) -> bool {
        match self.try_reach(path, None, by, None) {
            Ok(_) => true,
            Err(lost) if lost.has_answered => true,
            Err(lost) => {
                if lost.doubtful > 0 {
                    self.doubt(&path.hops[..lost.doubtful], true);
                }
                false
            }
        }
    }

    /// net-D2: a way has failed, so others are tried before it for a time.
    fn doubt(&self, hops: &[String], is_dead: bool) {
        if hops.is_empty() {
            return;
        }
        let mut troubles = self.troubles.lock();
        if troubles.len() >= TROUBLES_MAX {
            troubles.clear();
        }
        let trouble =
            troubles.entry(hops.to_vec()).or_insert(Trouble { failures: 0, until: Instant::now(), is_dead });
        trouble.is_dead = is_dead;
        trouble.failures = trouble.failures.saturating_add(1);
        let pause = PAUSE_MIN.saturating_mul(1 << (trouble.failures - 1).min(10)).min(PAUSE_MAX);
        trouble.until = Instant::now() + pause;
    }

    fn try_reach(
        &self,
        path: &Path,
        known: Option<&SockAddr>,
        by: Instant,
        dialling: Option<&Dialling>,
    ) -> Result<Reached, Lost> {
        let first: &str = path.hops.first().map_or(&path.nid, |hop| hop);
        let doubtful = path.hops.len().min(1);
        let lost = |why: String| Lost { why, doubtful, has_answered: false };
        let addresses = match known {
            Some(address) => vec![address.clone()],
            None => addresses_of(first).map_err(lost)?,
        };
        let mut last = "no time was left to connect".to_string();
        let mut connected = None;
        for (n, address) in addresses.iter().enumerate() {
            let left = by.saturating_duration_since(Instant::now()) / (addresses.len() - n) as u32;
            match self.connect(address, left, dialling) {
                Ok((socket, entry)) => {
                    connected = Some(Reached { socket, entry, address: address.clone() });
                    break;
                }
                Err(why) => last = why,
            }
        }
        let mut reached = connected.ok_or_else(|| match path.hops.first() {
            Some(hop) => lost(format!("router {hop}: {last}")),
            None => lost(last),
        })?;
        for (n, hop) in path.hops.iter().enumerate() {
            let next: &str = path.hops.get(n + 1).map_or(&path.nid, |hop| hop);
            reached.socket = self.pass(reached.socket, next, by).map_err(|refusal| Lost {
                why: format!("router {hop}: {}", refusal.why),
                doubtful: match refusal.kind {
                    RefusalKind::Dead | RefusalKind::Unwilling => n + 1,
                    // A router that answers is well; the next one on the path may not be.
                    RefusalKind::Beyond if n + 1 < path.hops.len() => n + 2,
                    RefusalKind::Beyond => 0,
                },
                has_answered: matches!(refusal.kind, RefusalKind::Unwilling),
            })?;
        }
        Ok(reached)
    }

    fn connect(
        &self,
        address: &SockAddr,
        left: Duration,
        dialling: Option<&Dialling>,
    ) -> Result<(Arc<Socket>, Entry), String> {
        if left.is_zero() {
            return Err("no time was left to connect".into());
        }
        let as_text = |e: io::Error| e.to_string();
        let socket = Arc::new(socket_for(address).map_err(as_text)?);
        let entry = self.live.enter(&socket).ok_or("aborted")?;
        if dialling.is_some_and(|one| !one.note(&socket)) {
            return Err("given up".into());
        }
        socket.connect_timeout(address, left).map_err(as_text)?;
        tune(&socket, SLICE).map_err(as_text)?;
        Ok((socket, entry))
    }

    /// Asks a router for a circuit to the next NID.
    fn pass(&self, socket: Arc<Socket>, next: &str, by: Instant) -> Result<Arc<Socket>, Refusal> {
        let refusal = |kind, why: String| Refusal { why, kind };
        let dead = |why: String| refusal(RefusalKind::Dead, why);
        let channel = match &self.trust {
            // net-D1.
            Some(trust) => Channel::dialled_circuit(socket, trust, by).map_err(|e| dead(e.to_string()))?,
            None => Channel::plain(socket),
        };
        let mut hello = Hello::new(Status::Welcome, NodeId(0), next.to_string());
        hello.lane = Kind::Circuit;
        hello.wanted_fs = FsId(self.fs.load(Ordering::Relaxed));
        send_hello(&channel, &hello).map_err(|e| dead(format!("greeting: {e}")))?;
        let answer = match read_hello(&channel, by) {
            Ok(answer) => answer,
            // With TLS it has just shaken hands, so it waits for the next host.
            Err(Gone::Deadline) if channel.is_tls() => {
                let why = format!("it has not reached {next} yet, and the time is over");
                return Err(refusal(RefusalKind::Beyond, why));
            }
            Err(e) => return Err(dead(told(e))),
        };
        let unwilling = |why: String| refusal(RefusalKind::Unwilling, why);
        match answer.status {
            Status::Welcome => channel.into_socket().ok_or_else(|| dead("it sent bytes too early".into())),
            Status::Full => Err(unwilling("it has all the circuits that it may have".into())),
            Status::OtherVersion => Err(dead("it speaks another version: use the same release".into())),
            Status::Stopping => Err(unwilling("it is stopping or being drained".into())),
            Status::Refused => Err(unwilling(format!("it refuses a circuit to {next}: {}", answer.nid))),
            Status::Unreachable => {
                Err(refusal(RefusalKind::Beyond, format!("it does not reach {next}: {}", answer.nid)))
            }
        }
    }

    /// The greeting with the node at the end of a path.
    pub fn greet(
        &self,
        reached: &Reached,
        path: &Path,
        wish: &Wish,
        by: Instant,
    ) -> Result<(Channel, Hello), String> {
        let mut hello = Hello::new(Status::Welcome, wish.own, path.nid.to_string());
        (hello.wanted, hello.lane) = (wish.wanted, wish.kind);
        let socket = reached.socket.clone();
        let channel = match &self.trust {
            Some(trust) if !reached.address.is_unix() => {
                Channel::dialled(socket, trust, &path.nid, by).map_err(|e| e.to_string())?
            }
            _ => Channel::plain(socket),
        };
        send_hello(&channel, &hello).map_err(|e| format!("greeting: {e}"))?;
        let answer = read_hello(&channel, by).map_err(told)?;
        match answer.status {
            Status::Welcome => Ok((channel, answer)),
            Status::Full => Err("the server has all the connections that it may have".into()),
            Status::OtherVersion => Err("the server speaks another version: use the same release".into()),
            Status::Stopping => Err("the server is stopping".into()),
            Status::Refused | Status::Unreachable => Err(format!("the server refuses: {}", answer.nid)),
        }
    }
}

fn told(gone: Gone) -> String {
    match gone {
        Gone::Malformed(why) if why.0 == "handshake version" => {
            "the server speaks another version: use the same release".to_string()
        }
        e => format!("greeting: {e}"),
    }
}

pub(crate) fn addresses_of(nid: &str) -> Result<Vec<SockAddr>, String> {
    let parsed = Nid::parse(nid).map_err(|e| e.to_string())?;
    let addresses = parsed.address.resolve().map_err(|e| format!("its name was not resolved: {e}"))?;
    if addresses.is_empty() { Err("its name stands for no address".into()) } else { Ok(addresses) }
}
