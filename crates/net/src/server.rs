//! The server end over TCP and unix sockets: a thread per connection reads a frame, serves it and writes the reply.
//!
//! It refuses connections beyond the bounds for all and for one peer (`limits.rs`), closes those that are idle or send no valid frame, and
//! never reads a second request before the first is answered.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use socket2::{SockAddr, Socket};
use types::Buf;
use wire::{Flags, Header};

use crate::Hub;
use crate::hello::{Hello, Status};
use crate::hub::reply_to;
use crate::limits::{Bodies, Origin, has_place};
use crate::nid::{Address, Nid, socket_for};
use crate::stream::{BODY_STEP, Gone, Stream};

/// A client reopens a connection in less than a millisecond, so one that was silent for this long is not worth keeping.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A client connects because it has a request. A connection without one in this time after the greeting loses its place.
const FIRST_FRAME_MAX: Duration = Duration::from_secs(10);
/// A connection that is silent for this long frees its buffers.
const BUFFERS_KEPT: Duration = Duration::from_secs(10);
/// A frame whose first byte has come must be whole in this time, and so must a reply be taken.
const FRAME_MAX: Duration = Duration::from_secs(60);
/// A greeting is 256 bytes; an end that takes longer is no client.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// How often the accepting thread checks whether it should stop, if waking it up failed.
const ACCEPT_SLICE: Duration = Duration::from_millis(500);
/// A stopping server lets requests under way be answered for this long, then cuts the connections.
const GRACE: Duration = Duration::from_millis(1500);
/// After the cut, threads still in a service are left behind after this time: they hold nothing that the stop must free.
const CUT_WAIT: Duration = Duration::from_millis(400);
/// Connects that wait in the kernel during a burst; the kernel may lower it.
const BACKLOG: i32 = 512;

/// A listening socket and its connections. Dropped, it stops.
pub struct Server {
    shared: Arc<Shared>,
    nid: String,
    socket_file: Option<SocketFile>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    hub: Arc<Hub>,
    nid: String,
    listener: Socket,
    stopping: AtomicBool,
    connections: Mutex<HashMap<u64, (Origin, Arc<Socket>)>>,
    bodies: Bodies,
    /// Notified whenever a connection's thread ends.
    ended: Condvar,
}

/// The file of a unix socket, removed only while it is the one that this server made.
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Server {
    /// Listens at `addr`: `host:port` (port 0: a free one) or `unix:/path`. Serves the targets of `hub`, also later ones.
    ///
    /// A unix path where no server answers is taken over; where one answers, the error is `AddrInUse`.
    pub fn listen(addr: &str, hub: Arc<Hub>) -> io::Result<Server> {
        let mut nid = Nid::parse(addr).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let (listener, socket_file) = match &nid.address {
            Address::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                (listener, Some(file))
            }
            Address::Tcp(text) => {
                let listener = bind_tcp(&nid.address)?;
                if let Some(bound) = listener.local_addr()?.as_socket() {
                    nid.address = Address::Tcp(with_port(text, bound));
                }
                (listener, None)
            }
        };
        listener.listen(BACKLOG)?;
        listener.set_read_timeout(Some(ACCEPT_SLICE))?;
        let nid = nid.to_string();
        let shared = Arc::new(Shared {
            hub,
            nid: nid.clone(),
            listener,
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            bodies: Bodies::default(),
            ended: Condvar::new(),
        });
        let accepting = {
            let shared = shared.clone();
            std::thread::Builder::new().name("accept".into()).spawn(move || accept(&shared))?
        };
        Ok(Server { shared, nid, socket_file, accepting: Mutex::new(Some(accepting)) })
    }

    /// The NID at which it listens, with the port that was chosen. A wildcard address is shown as such: other nodes need a
    /// reachable one in its place.
    pub fn nid(&self) -> String {
        self.nid.clone()
    }

    /// Stops: no new connections, no new requests; requests under way are answered if they end within 1.5 s. Returns
    /// within 2 s. A second call does nothing.
    pub fn stop(&self) {
        let Some(accepting) = self.accepting.lock().take() else { return };
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes up `accept`; if that fails, the accept slice ends it.
        let _ = self.shared.listener.shutdown(Shutdown::Both);
        if let Some(file) = &self.socket_file {
            file.remove();
        }
        self.shared.shut(Shutdown::Read);
        if !self.shared.wait_ended(GRACE) {
            self.shared.shut(Shutdown::Both);
            if !self.shared.wait_ended(CUT_WAIT) {
                let left = self.shared.connections.lock().len();
                tracing::warn!(nid = %self.nid, left, "stopped while requests are still being carried out");
            }
        }
        if accepting.join().is_err() {
            tracing::error!(nid = %self.nid, "the accepting thread had panicked; restart the process, and report the lines above");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SocketFile {
    fn remove(&self) {
        let same = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.inode);
        if same && let Err(e) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), "the socket file was not removed: {e}");
        }
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn shut(&self, how: Shutdown) {
        for (_, socket) in self.connections.lock().values() {
            // An error means that the client closed it first.
            let _ = socket.shutdown(how);
        }
    }

    /// True if all connections' threads have ended.
    fn wait_ended(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut connections = self.connections.lock();
        while !connections.is_empty() {
            if self.ended.wait_until(&mut connections, until).timed_out() {
                return connections.is_empty();
            }
        }
        true
    }
}

/// A connection's place in the table; freed even if its thread panics.
struct Place {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.id);
        self.shared.ended.notify_all();
    }
}

fn bind_tcp(address: &Address) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the host's name stands for no address");
    for a in address.resolve()? {
        let socket = socket_for(&a)?;
        socket.set_reuse_address(true)?;
        match socket.bind(&a) {
            Ok(()) => return Ok(socket),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// `host:port` as given, with the port that the kernel chose.
fn with_port(text: &str, bound: SocketAddr) -> String {
    match text.rsplit_once(':') {
        Some((host, _)) => format!("{host}:{}", bound.port()),
        None => bound.to_string(),
    }
}

fn bind_unix(path: &Path) -> io::Result<(Socket, SocketFile)> {
    let address = SockAddr::unix(path)?;
    let socket = socket_for(&address)?;
    if let Err(e) = socket.bind(&address) {
        if e.kind() != io::ErrorKind::AddrInUse {
            return Err(e);
        }
        remove_stale(path, &address)?;
        socket.bind(&address)?;
    }
    let meta = fs::symlink_metadata(path)?;
    Ok((socket, SocketFile { path: path.to_path_buf(), inode: (meta.dev(), meta.ino()) }))
}

/// Removes a socket file that a dead server left. Anything else at the path stays.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    let in_use = |why: &str| io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {why}", path.display()));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(in_use("something that is no socket is there; choose another path or remove it"));
    }
    match socket_for(address)?.connect(address) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(()) => Err(in_use("a server answers there already; stop it or choose another path")),
        Err(e) => Err(in_use(&format!("whether a server is there is not known ({e}); choose another path"))),
    }
}

fn accept(shared: &Arc<Shared>) {
    let mut next = 0u64;
    while !shared.is_stopping() {
        match shared.listener.accept() {
            Ok((socket, _)) => {
                next += 1;
                welcome(shared, next, socket);
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(_) if shared.is_stopping() => return,
            Err(e) => {
                // Mostly "too many open files": it passes when connections end, and retrying at once would not help.
                tracing::warn!(nid = %shared.nid, "accept failed: {e}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Gives a new connection its thread, or refuses it.
fn welcome(shared: &Arc<Shared>, id: u64, socket: Socket) {
    let (origin, socket) = (Origin::of(&socket), Arc::new(socket));
    let is_full = {
        let mut connections = shared.connections.lock();
        let is_full = !has_place(connections.values().map(|(origin, _)| *origin), origin);
        if !is_full {
            connections.insert(id, (origin, socket.clone()));
        }
        is_full
    };
    if is_full {
        // The greeting fits any socket buffer, so this does not block.
        if let Ok(mut stream) = Stream::new(socket) {
            let _ = stream.send_hello(&answer(shared, Status::Full), Instant::now() + HELLO_MAX);
        }
        return;
    }
    let place = Place { shared: shared.clone(), id };
    let run = move || {
        let shared = place.shared.clone();
        match Stream::new(socket).map_err(Gone::from).and_then(|mut s| converse(&shared, origin, &mut s)) {
            Ok(()) | Err(Gone::Closed | Gone::Deadline) => {}
            Err(Gone::Malformed(why)) => {
                tracing::warn!(nid = %shared.nid, "a connection was closed: {why}");
            }
            Err(Gone::Broken(why)) => tracing::debug!(nid = %shared.nid, "a connection broke: {why}"),
        }
        drop(place);
    };
    if let Err(e) = std::thread::Builder::new().name(format!("serve-{id}")).spawn(run) {
        tracing::warn!(nid = %shared.nid, "no thread for a connection: {e}");
    }
}

fn answer(shared: &Shared, status: Status) -> Hello {
    Hello { status, node: shared.hub.node(), wanted: types::NodeId(0), nid: shared.nid.clone() }
}

/// The whole life of a connection: greet, then read, serve and answer until it ends.
fn converse(shared: &Shared, origin: Origin, stream: &mut Stream) -> Result<(), Gone> {
    let by = Instant::now() + HELLO_MAX;
    match stream.read_hello(by) {
        Err(Gone::Malformed(why)) if why.0 == "handshake version" => {
            return stream.send_hello(&answer(shared, Status::OtherVersion), by);
        }
        other => drop(other?),
    }
    let status = if shared.is_stopping() { Status::Stopping } else { Status::Welcome };
    stream.send_hello(&answer(shared, status), by)?;

    let (mut body, mut bulk, mut reply_bulk) = (Vec::new(), Buf::new(), Buf::new());
    stream.wait(Instant::now() + FIRST_FRAME_MAX)?;
    while !shared.is_stopping() {
        // 1. wait.
        match stream.wait(Instant::now() + BUFFERS_KEPT) {
            Err(Gone::Deadline) => {
                (body, bulk, reply_bulk) = (Vec::new(), Buf::new(), Buf::new());
                stream.wait(Instant::now() + IDLE_MAX)?;
            }
            other => other?,
        }
        // 2. read.
        let by = Instant::now() + FRAME_MAX;
        let room = |len| shared.bodies.take(origin, len, by);
        let (head, share) = stream.read_frame_with(&mut body, &mut bulk, by, room)?;
        // 3. serve. A request for a target that is not here is refused in a way that proves that nothing was done.
        let (reply, reply_body) = match shared.hub.serve(&head, &body, &bulk, &mut reply_bulk) {
            Ok(done) => done,
            Err(_) => {
                reply_bulk.clear();
                refuse(&head)
            }
        };
        // net-L2: a long body's memory is freed together with its share.
        if body.capacity() > BODY_STEP {
            body = Vec::new();
        }
        drop(share);
        // 4. answer.
        if reply_body.len() > wire::frame::BODY_MAX || reply_bulk.len() > types::BULK_MAX {
            // The other end would refuse it as malformed; only a bug in a service can cause this.
            tracing::error!(call = head.call, target = head.target.0, "a reply was too large to send");
            return Ok(());
        }
        stream.send(&reply, &reply_body, &reply_bulk, Instant::now() + FRAME_MAX)?;
    }
    Ok(())
}

fn refuse(head: &Header) -> (Header, Vec<u8>) {
    let why = format!("target {} is not served there (stopped, not started yet, or moved)", head.target);
    let mut reply = reply_to(head);
    reply.flags |= Flags::REFUSED;
    (reply, why.into_bytes())
}
