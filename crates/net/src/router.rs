//! A router: joins nets by circuits. It stores no frames and reads none.
//!
//! A dialler greets the router and names the NID that it wants to reach (`dial.rs`). The router judges its certificate and the NID, and
//! connects there. Then it answers, and from then on moves bytes both ways (`pump.rs`). TLS between the two ends goes through it untouched.
//!
//! net-G1: a circuit leads only to a NID that the policy allows to the cluster of the dialler's certificate, on a net of this router.
//! net-G2: no byte of a circuit is passed on before its greeting is over, and none is lost or added after.
//! net-G3: a circuit whose one end takes nothing is not read from the other, so it holds at most one pipe, and keeps no other circuit waiting.

mod count;
mod pump;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pki::{Identity, Trust};
use rustix::event::PollFlags;
use rustix::net::RecvFlags;
use socket2::Socket;
use types::{FsId, NodeId};
use wire::router::RouterStatReply;

use crate::channel::Channel;
use crate::dial::addresses_of;
use crate::hello::{Hello, Kind, Status};
use crate::nid::{Address, Nid, socket_for};
use crate::routes::net_of;
use crate::server::{accept_each, bind_tcp, with_port};
use crate::socket::{Gone, SLICE, read_hello, send_hello, tune, wait_for};
use count::{Counted, Counts, Key};
use pump::Pump;

/// A greeting takes no longer than this.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// How long the next host may take to accept a connection: less than a dialler waits.
const CONNECT_MAX: Duration = Duration::from_millis(1300);
/// Greetings under way, each on a thread of its own: of all hosts, and of one.
const GREETINGS_MAX: usize = 256;
const GREETINGS_OF_HOST_MAX: usize = 32;
/// How often the accepting threads look whether they should stop.
const ACCEPT_SLICE: Duration = Duration::from_millis(500);
const BACKLOG: i32 = 4096;

/// Which circuits are allowed.
pub trait Policy: Send + Sync {
    /// May a dialler of this cluster (`None`: without certificate) reach `nid`? Gives the name of the file system to count by, or the reason
    /// why not.
    fn judge(&self, cluster: Option<&str>, nid: &str, fs: FsId) -> Result<String, String>;
}

pub struct RouterSettings {
    /// One address per net: `10.0.0.9:7020@tcp0`.
    pub listen: Vec<String>,
    /// A certificate for each cluster.
    pub trusts: Vec<Arc<Trust>>,
    /// Diallers without TLS are served.
    pub allows_plain: bool,
    pub circuits_max: usize,
    pub policy: Arc<dyn Policy>,
}

/// A running router. Dropped, it stops, and its circuits end.
pub struct Router {
    inner: Arc<Inner>,
    accepting: Mutex<Vec<JoinHandle<()>>>,
}

struct Inner {
    settings: RouterSettings,
    nids: Vec<String>,
    listeners: Vec<Arc<Socket>>,
    nets: HashSet<String>,
    pump: Pump,
    counts: Arc<Counts>,
    greetings: Mutex<Greetings>,
    is_draining: AtomicBool,
    is_stopping: AtomicBool,
}

#[derive(Default)]
struct Greetings {
    count: usize,
    of_hosts: HashMap<Option<IpAddr>, usize>,
}

/// A greeting under way, until it is dropped.
struct Greeting {
    inner: Arc<Inner>,
    host: Option<IpAddr>,
}

impl Drop for Greeting {
    fn drop(&mut self) {
        let mut greetings = self.inner.greetings.lock();
        greetings.count -= 1;
        if let Some(count) = greetings.of_hosts.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                greetings.of_hosts.remove(&self.host);
            }
        }
    }
}

/// A refusal, and what the dialler is told.
struct Refusal(Status, String);

impl Router {
    /// Listens on all addresses. Refused if one is not an address of this host, or if two are on one net.
    pub fn start(settings: RouterSettings) -> io::Result<Router> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let (mut nids, mut listeners, mut nets) = (Vec::new(), Vec::new(), HashSet::new());
        for text in &settings.listen {
            let mut nid = Nid::parse(text).map_err(|e| invalid(e.to_string()))?;
            let Address::Tcp(address) = nid.address.clone() else {
                return Err(invalid(format!("{text}: a router listens on TCP")));
            };
            let listener = bind_tcp(&nid.address)
                .map_err(|e| io::Error::new(e.kind(), format!("listen on {text}: {e}")))?;
            if let Some(bound) = listener.local_addr()?.as_socket() {
                nid.address = Address::Tcp(with_port(&address, bound));
            }
            listener.listen(BACKLOG)?;
            listener.set_read_timeout(Some(ACCEPT_SLICE))?;
            let nid = nid.to_string();
            if !nets.insert(net_of(&nid).to_string()) {
                return Err(invalid(format!("{text}: another address is on that net already")));
            }
            nids.push(nid);
            listeners.push(Arc::new(listener));
        }
        if nids.is_empty() {
            return Err(invalid("no address to listen on".into()));
        }
        let counts = Arc::new(Counts::new());
        let pump = Pump::start(counts.clone())?;
        let inner = Arc::new(Inner {
            settings,
            nids,
            listeners,
            nets,
            pump,
            counts,
            greetings: Mutex::default(),
            is_draining: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        });
        let router = Router { inner, accepting: Mutex::default() };
        for n in 0..router.inner.listeners.len() {
            let inner = router.inner.clone();
            let thread = std::thread::Builder::new().name("accept".into()).spawn(move || inner.accept(n))?;
            router.accepting.lock().push(thread);
        }
        Ok(router)
    }

    /// The NIDs at which it listens, with the ports that were chosen.
    pub fn nids(&self) -> &[String] {
        &self.inner.nids
    }

    /// Refuses new circuits, and ends those that are idle; diallers take another router. After `within` it ends the others. `None` takes new
    /// ones again.
    pub fn drain(&self, within: Option<Duration>) {
        self.inner.is_draining.store(within.is_some(), Ordering::SeqCst);
        self.inner.pump.drain(within.map(|within| Instant::now() + within));
    }

    /// Ends circuits whose dialler's certificate is not good any more.
    pub fn recheck(&self) {
        self.inner.pump.end_if(|identity| !self.inner.is_good(identity));
    }

    pub fn stat(&self) -> RouterStatReply {
        let inner = &self.inner;
        let mut reply = inner.counts.stat();
        reply.nids = inner.nids.clone();
        reply.is_draining = inner.is_draining.load(Ordering::SeqCst);
        reply.circuits_max = inner.settings.circuits_max as u32;
        reply
    }

    /// One sample of the history; call it each second.
    pub fn sample(&self) {
        self.inner.counts.sample();
    }

    /// Ends all circuits. A second call does nothing.
    pub fn stop(&self) {
        self.inner.is_stopping.store(true, Ordering::SeqCst);
        for listener in &self.inner.listeners {
            // Wakes up the accepting thread; if that fails, its slice does.
            let _ = listener.shutdown(Shutdown::Both);
        }
        for thread in self.accepting.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("an accepting thread of the router had panicked; report the lines above");
            }
        }
        self.inner.pump.stop();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    fn is_good(&self, identity: &Identity) -> bool {
        self.settings.trusts.iter().any(|trust| trust.check(identity).is_ok())
    }

    fn accept(self: &Arc<Inner>, n: usize) {
        let is_stopping = || self.is_stopping.load(Ordering::SeqCst);
        accept_each(&self.listeners[n], &self.nids[n], is_stopping, |socket| self.begin(socket, n), || {});
    }

    /// Greets on a thread of its own: a dialler that sends nothing keeps no other one waiting.
    fn begin(self: &Arc<Inner>, socket: Socket, n: usize) {
        let host = socket.peer_addr().ok().and_then(|a| a.as_socket()).map(|a| a.ip());
        let Some(greeting) = self.enter(host) else {
            self.counts.refused();
            return;
        };
        let greet = move || {
            let (inner, by) = (&greeting.inner, Instant::now() + GREETING_MAX);
            let peer = host.map_or_else(|| "?".into(), |ip| ip.to_string());
            if let Err(why) = inner.greet(Arc::new(socket), n, &peer, by) {
                inner.note_refused(&peer, n, &why);
            }
        };
        if std::thread::Builder::new().name("greet".into()).spawn(greet).is_err() {
            self.counts.refused();
        }
    }

    fn enter(self: &Arc<Inner>, host: Option<IpAddr>) -> Option<Greeting> {
        let mut greetings = self.greetings.lock();
        let count = greetings.of_hosts.get(&host).copied().unwrap_or(0);
        if greetings.count >= GREETINGS_MAX || count >= GREETINGS_OF_HOST_MAX {
            return None;
        }
        greetings.count += 1;
        greetings.of_hosts.insert(host, count + 1);
        Some(Greeting { inner: self.clone(), host })
    }

    fn greet(&self, socket: Arc<Socket>, n: usize, peer: &str, by: Instant) -> Result<(), Gone> {
        tune(&socket, SLICE)?;
        let channel = self.open(socket, by)?;
        let hello = read_hello(&channel, by)?;
        let identity = channel.known().map(|known| known.identity().clone());
        let answer = |status, nid: String| {
            let mut answer = Hello::new(status, NodeId(0), nid);
            answer.lane = Kind::Circuit;
            send_hello(&channel, &answer)
        };
        match self.connect(&hello, identity.as_ref()) {
            Ok((next, fs)) => {
                answer(Status::Welcome, self.nids[n].clone())?;
                let Some(socket) = channel.into_socket() else {
                    return Err(Gone::Refused("it sent bytes of the circuit too early".into()));
                };
                let key = Key {
                    from: net_of(&self.nids[n]).to_string(),
                    to: net_of(&hello.nid).to_string(),
                    fs,
                    peer: identity.as_ref().map_or(peer.to_string(), |i| i.node.to_string()),
                };
                let counted = Counted::new(&self.counts, key);
                self.pump.add(socket, next, counted, identity.clone())?;
                // It may have been revoked since its handshake.
                if let Some(identity) = identity.filter(|identity| !self.is_good(identity)) {
                    self.pump.end_if(|other| *other == identity);
                }
                Ok(())
            }
            Err(Refusal(status, why)) => {
                let who = identity.map_or(String::new(), |i| format!("{}: ", i.uri()));
                // Before the answer: the dialler may look at the counters as soon as it has it.
                self.note_refused(peer, n, &Gone::Refused(format!("{who}{}: {why}", hello.nid)));
                // A dialler that is gone needs no answer.
                let _ = answer(status, why);
                Ok(())
            }
        }
    }

    fn note_refused(&self, peer: &str, n: usize, why: &Gone) {
        self.counts.refused();
        tracing::warn!(peer, nid = self.nids[n], "a circuit was refused: {why}");
    }

    /// The channel of a new connection, after its handshake.
    fn open(&self, socket: Arc<Socket>, by: Instant) -> Result<Channel, Gone> {
        /// The first byte of a TLS handshake.
        const HANDSHAKE: u8 = 0x16;
        let left = by.saturating_duration_since(Instant::now());
        wait_for(&socket, PollFlags::IN, left)?;
        let mut byte = [0u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&socket, &mut byte[..], flags) {
            Ok((0, _)) => return Err(Gone::Closed),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Err(Gone::Deadline),
            Err(e) => return Err(Gone::Broken(e.into())),
        }
        let settings = &self.settings;
        match (byte[0] == HANDSHAKE, settings.trusts.is_empty()) {
            (true, false) => Channel::accepted_circuit(socket, &settings.trusts, by),
            (true, true) => Err(Gone::Refused("it speaks TLS, and this router has no certificate".into())),
            (false, _) if settings.allows_plain => Ok(Channel::plain(socket)),
            (false, _) => Err(Gone::Refused("it speaks without TLS; give its host a certificate".into())),
        }
    }

    /// net-G1: connects to the next host of a circuit, if the dialler may.
    fn connect(&self, hello: &Hello, identity: Option<&Identity>) -> Result<(Arc<Socket>, String), Refusal> {
        let refused = |why: String| Refusal(Status::Refused, why);
        if hello.lane != Kind::Circuit {
            return Err(refused("a router answers; it serves no target".into()));
        }
        if self.is_draining.load(Ordering::SeqCst) || self.is_stopping.load(Ordering::SeqCst) {
            return Err(Refusal(Status::Stopping, "it is being drained".into()));
        }
        if self.counts.circuits() >= self.settings.circuits_max {
            return Err(Refusal(Status::Full, "it has all the circuits that it may have".into()));
        }
        let net = net_of(&hello.nid);
        if !self.nets.contains(net) {
            return Err(refused(format!("it is not on net {net}")));
        }
        let cluster = identity.map(|identity| identity.cluster.as_str());
        let fs = self.settings.policy.judge(cluster, &hello.nid, hello.wanted_fs).map_err(refused)?;
        let unreachable = |why: String| Refusal(Status::Unreachable, why);
        let addresses = addresses_of(&hello.nid).map_err(unreachable)?;
        let by = Instant::now() + CONNECT_MAX;
        let mut last = String::new();
        for (n, address) in addresses.iter().enumerate() {
            let left = by.saturating_duration_since(Instant::now()) / (addresses.len() - n) as u32;
            let connected = socket_for(address).and_then(|socket| {
                socket.connect_timeout(address, left.max(Duration::from_millis(1)))?;
                tune(&socket, SLICE)?;
                Ok(socket)
            });
            match connected {
                Ok(socket) => return Ok((Arc::new(socket), fs)),
                Err(e) => last = e.to_string(),
            }
        }
        self.counts.failed();
        Err(unreachable(last))
    }
}
