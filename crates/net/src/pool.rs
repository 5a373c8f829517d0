//! The connections to one node: kept, lent to one request at a time, opened when needed.
//!
//! net-P1: a lent connection goes back only after its reply was read whole; dropped otherwise, it is closed.
//! net-P2: after a failed connect there is a pause, which doubles with each failure. Requests during the pause fail at once, so that a dead
//! server costs neither a storm of connects nor its clients' time.
//! net-P3: at most `OPEN_MAX` connections are lent, and at most `KEPT_MAX` wait idle.
//! net-P4: a thread that holds connections never waits for another one to come back (`Wait::Never`). A thread that waits for a connection
//! therefore waits only for threads that do not wait in turn.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use socket2::{SockAddr, Socket};
use types::NodeId;

use crate::hello::{Hello, Status};
use crate::nid::{Nid, socket_for};
use crate::stream::Stream;

/// Connections that are opened without waiting: FUSE's default number of threads, each with two requests under way.
const EASY_MAX: usize = 32;
/// Connections that may wait idle. A burst of wide requests lends more than `EASY_MAX`, and recurs: opening them each time costs a round
/// trip and a thread at the server per request. Eight such clients fit into one server's 1024.
const KEPT_MAX: usize = 128;
/// Connections that may be lent: a thread that sends to many targets of a node holds one for each until it receives.
const OPEN_MAX: usize = 256;
/// How long a request waits for a connection to come back before it opens one more than `EASY_MAX`.
const PATIENCE: Duration = Duration::from_millis(5);
/// A connect that takes longer than this is to a host that is down; a lost SYN is retransmitted after 1 s and 3 s.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The pause after the first failed connect, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The sockets of a fabric, so that an abort can shut them all down.
#[derive(Default)]
pub(crate) struct Live {
    aborted: AtomicBool,
    next: AtomicU64,
    sockets: Mutex<HashMap<u64, Arc<Socket>>>,
}

impl Live {
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Shuts all sockets down; a thread that waits on one wakes up with an error.
    pub fn abort(&self) {
        let sockets = self.sockets.lock();
        // Under the lock: `enter` either sees the flag or is seen here.
        self.aborted.store(true, Ordering::Release);
        for socket in sockets.values() {
            // An error means that the socket is not connected any more, and needs no shutdown.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn enter(self: &Arc<Live>, socket: &Arc<Socket>) -> Option<Entry> {
        let mut sockets = self.sockets.lock();
        if self.is_aborted() {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        sockets.insert(id, socket.clone());
        Some(Entry { live: self.clone(), id })
    }
}

/// A socket's place among the live ones.
struct Entry {
    live: Arc<Live>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.live.sockets.lock().remove(&self.id);
    }
}

pub(crate) struct Connection {
    pub stream: Stream,
    pub node: NodeId,
    _entry: Entry,
}

pub(crate) struct Pool {
    pub name: String,
    wanted: NodeId,
    own: Arc<AtomicU64>,
    nids: RwLock<Vec<String>>,
    /// The address that answered last, with its NID. It is tried first: an unresponsive address before it would delay each connect.
    worked: Mutex<Option<(String, SockAddr)>>,
    live: Arc<Live>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Connections lent or being made.
    lent: usize,
    trouble: Option<Trouble>,
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
    /// Until other threads put connections back, or the deadline.
    ForOthers,
    /// net-P4: the caller holds connections. It gets an idle connection or a new one, without waiting.
    Never,
}

/// A lent connection, until it is put back.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    /// `None` only while it goes back.
    connection: Option<Connection>,
    /// Opened for this request: its failure is not that of a stale connection.
    pub is_new: bool,
}

impl Lease {
    pub fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("only `put_back`, which consumes the lease, takes it")
    }
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the connection after its reply was read whole: the next request may use it.
    pub fn put_back(mut self) {
        if let Some(connection) = self.connection.take() {
            let mut state = self.pool.state.lock();
            if state.idle.len() < KEPT_MAX && !self.pool.live.is_aborted() {
                state.idle.push(connection);
            }
            assert!(state.idle.len() <= KEPT_MAX, "net-P3: no more connections wait idle");
            assert!(state.lent > 0, "net-P1: a connection that goes back was lent");
        }
        // Dropping the lease frees its place.
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The socket is closed before the place is free, so that net-P3 holds.
        self.connection = None;
        self.pool.give_back_place();
    }
}

impl Pool {
    pub fn new(
        name: String,
        wanted: NodeId,
        nids: Vec<String>,
        own: Arc<AtomicU64>,
        live: Arc<Live>,
    ) -> Arc<Pool> {
        Arc::new(Pool {
            name,
            wanted,
            own,
            nids: RwLock::new(nids),
            worked: Mutex::new(None),
            live,
            state: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    pub fn has_nids(&self) -> bool {
        !self.nids.read().is_empty()
    }
    pub fn own_node(&self) -> NodeId {
        NodeId(self.own.load(Ordering::Relaxed))
    }
    pub fn is_aborted(&self) -> bool {
        self.live.is_aborted()
    }
    /// Wakes threads that wait for a connection, so that they see the abort.
    pub fn wake_all(&self) {
        // Under the lock, so that no thread is between checking the flag and going to sleep.
        let _state = self.state.lock();
        self.freed.notify_all();
    }

    /// Sets the node's NIDs. If they changed, old connections are closed.
    pub fn set_nids(&self, nids: &[String]) {
        let mut known = self.nids.write();
        if *known != nids {
            *known = nids.to_vec();
            drop(known);
            let mut state = self.state.lock();
            state.idle.clear();
            state.trouble = None;
        }
    }

    /// Closes the idle connections after one failed: they probably lead to the same dead server.
    pub fn drop_idle(&self) {
        self.state.lock().idle.clear();
    }

    /// Lends a connection; opens one if none is idle. An error means that nothing was sent.
    pub fn lend(self: &Arc<Pool>, deadline: Instant, wait: Wait) -> Result<Lease, String> {
        match self.take_place(deadline, wait)? {
            Some(connection) => Ok(Lease { pool: self.clone(), connection: Some(connection), is_new: false }),
            None => {
                // From here on the lease's drop frees the place, also if the connect fails.
                let mut lease = Lease { pool: self.clone(), connection: None, is_new: true };
                lease.connection = Some(self.connect(deadline)?);
                Ok(lease)
            }
        }
    }

    /// Takes a place among the open connections: with an idle connection, or `None` if one must be opened.
    fn take_place(&self, deadline: Instant, wait: Wait) -> Result<Option<Connection>, String> {
        let begin = Instant::now();
        let mut state = self.state.lock();
        loop {
            if self.is_aborted() {
                return Err("aborted".into());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(match state.lent >= OPEN_MAX {
                    true => format!("all {OPEN_MAX} connections were busy until the deadline"),
                    false => "the deadline has passed".into(),
                });
            }
            // Take the most recently used first: the others age until the server closes them. Each is checked, since the outcome of a
            // request to a server that has gone would be needlessly unknown; the check costs half a microsecond.
            while let Some(c) = state.idle.pop() {
                if c.stream.is_quiet() {
                    state.lent += 1;
                    return Ok(Some(c));
                }
            }
            let patience = begin + PATIENCE;
            if wait == Wait::Never && state.lent >= OPEN_MAX {
                return Err(format!("all {OPEN_MAX} connections are busy"));
            }
            if state.lent < EASY_MAX || (state.lent < OPEN_MAX && now >= patience) {
                self.may_connect(&mut state, now)?;
                state.lent += 1;
                return Ok(None);
            }
            let until = if state.lent < OPEN_MAX { patience.min(deadline) } else { deadline };
            // The loop checks above whether it was woken or timed out.
            let _ = self.freed.wait_until(&mut state, until);
        }
    }

    /// net-P2: after a failure, one attempt at a time, and none before its pause is over.
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

    fn give_back_place(&self) {
        {
            let mut state = self.state.lock();
            assert!(state.lent > 0, "net-P3: a place that is given back was taken");
            state.lent -= 1;
        }
        self.freed.notify_one();
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, String> {
        let by = deadline.min(Instant::now() + CONNECT_MAX);
        let made = self.connect_any(by);
        let now = Instant::now();
        let mut state = self.state.lock();
        match made {
            Ok(connection) => {
                state.trouble = None;
                Ok(connection)
            }
            Err(why) => {
                let failures = state.trouble.as_ref().map_or(0, |t| t.failures).saturating_add(1);
                let pause = PAUSE_MIN.saturating_mul(1 << (failures - 1).min(10)).min(PAUSE_MAX);
                state.trouble =
                    Some(Trouble { failures, why: why.clone(), retry_at: now + pause, trying: false });
                Err(why)
            }
        }
    }

    /// Tries the node's addresses: first the one that worked last, before any name is resolved, then the others in the order of the NIDs.
    /// Each has an equal share of the time left, so that one that does not answer leaves time for the next. The error names each NID with
    /// its reason.
    fn connect_any(&self, by: Instant) -> Result<Connection, String> {
        let nids = self.nids.read().clone();
        let share = |n: usize| {
            let now = Instant::now();
            now + by.saturating_duration_since(now) / n as u32
        };
        let mut whys = Vec::new();
        let worked = self.worked.lock().clone().filter(|(nid, _)| nids.contains(nid) && nids.len() > 1);
        if let Some((nid, address)) = &worked {
            match self.connect_address(nid, address, share(nids.len())) {
                Ok(connection) => return Ok(connection),
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
            match self.connect_address(&nid, &address, share(count - n)) {
                Ok(connection) => {
                    *self.worked.lock() = Some((nid, address));
                    return Ok(connection);
                }
                Err(why) => whys.push(format!("{nid}: {why}")),
            }
        }
        if whys.is_empty() { Err("the node has no address".into()) } else { Err(whys.join("; ")) }
    }

    fn connect_address(&self, nid: &str, address: &SockAddr, by: Instant) -> Result<Connection, String> {
        let left = by.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("no time was left to connect".into());
        }
        let as_text = |e: io::Error| e.to_string();
        let socket = Arc::new(socket_for(address).map_err(as_text)?);
        let entry = self.live.enter(&socket).ok_or("aborted")?;
        socket.connect_timeout(address, left).map_err(as_text)?;
        let mut stream = Stream::new(socket).map_err(as_text)?;
        let hello = Hello {
            status: Status::Welcome,
            node: self.own_node(),
            wanted: self.wanted,
            nid: nid.to_string(),
        };
        stream.send_hello(&hello, by).map_err(|e| format!("greeting: {e}"))?;
        let answer = stream.read_hello(by).map_err(|e| format!("greeting: {e}"))?;
        self.check(&answer)?;
        Ok(Connection { stream, node: answer.node, _entry: entry })
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
