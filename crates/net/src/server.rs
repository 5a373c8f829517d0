//! The server end over TCP and unix sockets: it accepts connections, which an engine serves.

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pki::Trust;
use socket2::{SockAddr, Socket};

use crate::engine::Engine;
use crate::nid::{Address, Nid, socket_for};
use crate::routes::net_of;
use crate::{Hub, Limits};

/// How often the accepting thread looks after old connections, and whether it should stop.
const ACCEPT_SLICE: Duration = Duration::from_millis(500);
/// A stopping server lets requests under way be answered for this long, then cuts the connections. A request may wait for another client,
/// which waits for this server; a hand-over by command takes less than 2 s all the same.
const GRACE: Duration = Duration::from_millis(1000);
/// After the cut, threads still in a service are left behind after this time: they hold nothing that the stop must free.
const CUT_WAIT: Duration = Duration::from_millis(400);
/// Connects that wait in the kernel during a burst; the kernel may lower it.
const BACKLOG: i32 = 4096;

/// Listening sockets and their connections. Dropped, it stops.
pub struct Server {
    engine: Arc<Engine>,
    ears: Vec<Ear>,
    accepting: Mutex<Vec<JoinHandle<()>>>,
}

/// One address.
struct Ear {
    listener: Arc<Socket>,
    nid: String,
    socket_file: Option<SocketFile>,
}

/// The file of a unix socket, removed only while it is the one that this server made.
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Ear {
    fn open(addr: &str) -> io::Result<Ear> {
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
        Ok(Ear { listener: Arc::new(listener), nid: nid.to_string(), socket_file })
    }
}

impl Server {
    /// Listens at `addr`: `host:port` (port 0: a free one) or `unix:/path`. Serves the targets of `hub`, also later ones.
    ///
    /// A unix path where no server answers is taken over; where one answers, the error is `AddrInUse`.
    pub fn listen(addr: &str, hub: Arc<Hub>) -> io::Result<Server> {
        Server::listen_within(addr, hub, Limits::default(), None)
    }

    /// As `listen`, with other bounds. With certificates it takes no connection over TCP without TLS.
    pub fn listen_within(
        addr: &str,
        hub: Arc<Hub>,
        limits: Limits,
        trust: Option<Arc<Trust>>,
    ) -> io::Result<Server> {
        Server::listen_at(&[addr.to_string()], hub, limits, trust)
    }

    /// As `listen_within`, at several addresses: one per net that the node is on. The bounds hold for all of them together.
    pub fn listen_at(
        addrs: &[String],
        hub: Arc<Hub>,
        limits: Limits,
        trust: Option<Arc<Trust>>,
    ) -> io::Result<Server> {
        let mut ears = Vec::new();
        for addr in addrs {
            let ear = Ear::open(addr).map_err(|e| match addrs.len() {
                1 => e,
                _ => io::Error::new(e.kind(), format!("{addr}: {e}")),
            })?;
            ears.push(ear);
        }
        let Some(first) = ears.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
        };
        let engine = Engine::start(hub, first.nid.clone(), limits, trust)?;
        let server = Server { engine: engine.clone(), ears, accepting: Mutex::default() };
        for ear in &server.ears {
            let (engine, listener) = (engine.clone(), ear.listener.clone());
            let net: Arc<str> = net_of(&ear.nid).into();
            let thread = std::thread::Builder::new()
                .name("accept".into())
                .spawn(move || accept(&engine, &listener, &net))?;
            server.accepting.lock().push(thread);
        }
        Ok(server)
    }

    /// The NID at which it listens, with the port that was chosen. A wildcard address is shown as such: other nodes need a
    /// reachable one in its place.
    pub fn nid(&self) -> String {
        self.ears[0].nid.clone()
    }

    /// As `nid`, for each address.
    pub fn nids(&self) -> Vec<String> {
        self.ears.iter().map(|ear| ear.nid.clone()).collect()
    }

    /// Closes connections whose other end's certificate is not good any more. Call it when `Trust` tells of a change.
    pub fn recheck(&self) {
        self.engine.recheck();
    }

    /// Threads that serve now, and open connections.
    pub fn load(&self) -> (usize, usize) {
        (self.engine.workers(), self.engine.open())
    }

    /// Stops: no new connections, no new requests; requests under way are answered if they end within 1 s. Returns
    /// within 1.5 s. A second call does nothing.
    pub fn stop(&self) {
        let accepting = std::mem::take(&mut *self.accepting.lock());
        if accepting.is_empty() {
            return;
        }
        self.engine.begin_stop();
        for ear in &self.ears {
            // Wakes up `accept`; if that fails, the accept slice ends it.
            let _ = ear.listener.shutdown(Shutdown::Both);
            ear.socket_file.iter().for_each(SocketFile::remove);
        }
        let nid = self.nid();
        if !self.engine.stop(GRACE, CUT_WAIT) {
            tracing::warn!(nid, "stopped while requests are still being carried out");
        }
        for thread in accepting {
            if thread.join().is_err() {
                tracing::error!(
                    nid,
                    "the accepting thread had panicked; restart the process, and report the lines above"
                );
            }
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

pub(crate) fn bind_tcp(address: &Address) -> io::Result<Socket> {
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
pub(crate) fn with_port(text: &str, bound: SocketAddr) -> String {
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

fn accept(engine: &Arc<Engine>, listener: &Socket, net: &Arc<str>) {
    let mut swept = Instant::now();
    let after_each = || {
        if swept.elapsed() >= ACCEPT_SLICE {
            engine.sweep();
            swept = Instant::now();
        }
    };
    let take = |socket| engine.welcome(socket, net);
    accept_each(listener, engine.nid(), || engine.is_stopping(), take, after_each);
}

/// Accepts connections until `is_stopping`. `after_each` is called after each one, and each slice of the socket's time-out.
pub(crate) fn accept_each(
    listener: &Socket,
    nid: &str,
    is_stopping: impl Fn() -> bool,
    take: impl Fn(Socket),
    mut after_each: impl FnMut(),
) {
    while !is_stopping() {
        match listener.accept() {
            Ok((socket, _)) => take(socket),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(_) if is_stopping() => return,
            Err(e) => {
                // Mostly "too many open files": it passes when connections end, and retrying at once would not help.
                tracing::warn!(nid, "accept failed: {e}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        after_each();
    }
}
