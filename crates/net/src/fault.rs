//! A proxy that breaks connections on demand, for tests: between a client and a server, TCP on both sides.
//!
//! A mode applies to all bytes of all connections at once and takes effect within `TICK`. A rule applies to single frames.

mod rules;
mod stream;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::nid::{Address, Nid};
use rules::Rules;
use stream::{Stream, Then};

pub use rules::{Rule, RuleId, Way, What};

/// How soon threads that wait for bytes see a new mode, and how late a delayed frame may be.
const TICK: Duration = Duration::from_millis(10);

/// The proxy's treatment of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Pass = 0,
    /// Nothing moves; connections stay.
    Stall = 1,
    /// Connections are closed, new ones too.
    Cut = 2,
    /// Requests arrive; instead of a reply the connection is closed.
    LoseReplies = 3,
    End = 4,
}

/// A proxy on a free port of this machine. Dropped, it ends.
pub struct Proxy {
    shared: Arc<Shared>,
    nid: String,
}

struct Shared {
    mode: AtomicU8,
    rules: Rules,
    server: String,
    sockets: Mutex<Vec<Weak<TcpStream>>>,
    /// Connections accepted so far.
    connects: AtomicU64,
}

impl Proxy {
    /// A proxy to the server at `nid`, which must be `host:port@net`.
    pub fn to(nid: &str) -> io::Result<Proxy> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let Address::Tcp(server) = Nid::parse(nid).map_err(|e| invalid(e.to_string()))?.address else {
            return Err(invalid(format!("{nid}: the proxy speaks TCP only")));
        };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let nid = format!("{}@tcp0", listener.local_addr()?);
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            mode: AtomicU8::new(Mode::Pass as u8),
            rules: Rules::default(),
            server,
            sockets: Mutex::default(),
            connects: AtomicU64::new(0),
        });
        let for_thread = shared.clone();
        std::thread::Builder::new().name("proxy".into()).spawn(move || accept(&for_thread, &listener))?;
        Ok(Proxy { shared, nid })
    }

    /// The address for clients to connect to.
    pub fn nid(&self) -> String {
        self.nid.clone()
    }
    /// Closes all connections, and new ones as they come.
    pub fn cut(&self) {
        self.set(Mode::Cut);
    }
    /// Holds all bytes back.
    pub fn stall(&self) {
        self.set(Mode::Stall);
    }
    /// Lets requests through and closes the connection when the reply comes.
    pub fn lose_replies(&self) {
        self.set(Mode::LoseReplies);
    }
    /// Ends the modes above. Rules stay.
    pub fn heal(&self) {
        self.set(Mode::Pass);
    }
    /// Treats frames by this rule from now on, unless an earlier rule is for them.
    pub fn rule(&self, rule: Rule) -> RuleId {
        self.shared.rules.add(rule)
    }
    /// Ends all rules. Frames that they delay or hold back still arrive in their turn.
    pub fn clear(&self) {
        self.shared.rules.clear();
    }
    /// Frames to which a rule of this proxy has applied so far, also after `clear`.
    pub fn applied(&self, id: RuleId) -> u64 {
        self.shared.rules.applied(id)
    }
    pub fn connects(&self) -> u64 {
        self.shared.connects.load(Ordering::SeqCst)
    }

    fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
        if matches!(mode, Mode::Cut | Mode::End) {
            self.shared.close_all();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::End);
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        match self.mode.load(Ordering::SeqCst) {
            0 => Mode::Pass,
            1 => Mode::Stall,
            2 => Mode::Cut,
            3 => Mode::LoseReplies,
            _ => Mode::End,
        }
    }

    /// Waits while nothing may move. False: the connection is to be closed.
    fn may_pass(&self, is_reply: bool, has_bytes: bool) -> bool {
        while has_bytes && self.mode() == Mode::Stall {
            std::thread::sleep(TICK);
        }
        match self.mode() {
            Mode::Cut | Mode::End => false,
            Mode::LoseReplies => !(is_reply && has_bytes),
            Mode::Pass | Mode::Stall => true,
        }
    }

    fn close_all(&self) {
        for socket in self.sockets.lock().drain(..).filter_map(|socket| socket.upgrade()) {
            // An error means that it is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while shared.mode() != Mode::End {
        match listener.accept() {
            Ok((client, _)) => {
                shared.connects.fetch_add(1, Ordering::SeqCst);
                if shared.mode() != Mode::Cut
                    && let Err(e) = join(shared, client)
                {
                    tracing::debug!("the proxy closed a connection: {e}");
                }
            }
            Err(_) => std::thread::sleep(TICK),
        }
    }
}

/// Connects to the server and starts copying both ways.
fn join(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    let server = Arc::new(TcpStream::connect(&shared.server)?);
    let client = Arc::new(client);
    for socket in [&client, &server] {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK))?;
    }
    let mut sockets = shared.sockets.lock();
    sockets.retain(|socket| socket.strong_count() > 0);
    sockets.extend([&client, &server].map(Arc::downgrade));
    drop(sockets);
    let ways = [(client.clone(), server.clone(), false), (server, client, true)];
    for (from, to, is_reply) in ways {
        let shared = shared.clone();
        std::thread::Builder::new().name("proxy-copy".into()).spawn(move || {
            // However the copying ends, both connections end with it.
            let _ = copy(&shared, &from, &to, is_reply);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        })?;
    }
    Ok(())
}

/// Copies one direction until its sender closes or the connection is cut. Frames that a rule delays arrive also after the sender has closed.
fn copy(shared: &Shared, mut from: &TcpStream, mut to: &TcpStream, is_reply: bool) -> io::Result<()> {
    let (mut bytes, mut out) = (vec![0; 64 * 1024], Vec::new());
    let mut stream = Stream::new();
    let mut is_open = true;
    while is_open || stream.has_delayed() {
        let n = match is_open {
            true => receive(&mut from, &mut bytes)?,
            false => {
                std::thread::sleep(TICK);
                Some(0)
            }
        };
        if n.is_none() {
            is_open = false;
            stream.sender_closed(&mut out);
        }
        let bytes = &bytes[..n.unwrap_or(0)];
        let then = stream.take(bytes, Instant::now(), &shared.rules, &mut out);
        if !shared.may_pass(is_reply, !bytes.is_empty() || !out.is_empty()) {
            return Ok(());
        }
        to.write_all(&out)?;
        out.clear();
        if then == Then::Cut {
            return Ok(());
        }
    }
    to.write_all(&stream.into_rest())
}

/// `None`: the sender has closed. 0: no byte came within `TICK`.
fn receive(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    match from.read(bytes) {
        Ok(0) => Ok(None),
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(Some(0)),
        Err(e) => Err(e),
    }
}
