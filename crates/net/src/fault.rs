//! A proxy that breaks connections on demand, for tests: between a client and a server, TCP on both sides.
//!
//! It copies bytes and knows no frames. A mode applies to all connections at once and takes effect within `TICK`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::nid::{Address, Nid};

/// How soon threads that wait for bytes see a new mode.
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
    server: String,
    sockets: Mutex<Vec<TcpStream>>,
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
    pub fn heal(&self) {
        self.set(Mode::Pass);
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

    fn close_all(&self) {
        for socket in self.sockets.lock().drain(..) {
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
    let server = TcpStream::connect(&shared.server)?;
    for socket in [&client, &server] {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK))?;
        shared.sockets.lock().push(socket.try_clone()?);
    }
    let ways = [(client.try_clone()?, server.try_clone()?, false), (server, client, true)];
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

fn copy(shared: &Shared, mut from: &TcpStream, mut to: &TcpStream, is_reply: bool) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let n = match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if matches!(shared.mode(), Mode::Cut | Mode::End) {
                    return Ok(());
                }
                continue;
            }
            Err(e) => return Err(e),
        };
        while shared.mode() == Mode::Stall {
            std::thread::sleep(TICK);
        }
        match shared.mode() {
            Mode::Cut | Mode::End => return Ok(()),
            Mode::LoseReplies if is_reply => return Ok(()),
            _ => to.write_all(&bytes[..n])?,
        }
    }
}
