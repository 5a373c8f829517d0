//! `cargo xtask bars tls`: the time until a connection over TLS has passed a byte each way on loopback, with a full handshake and with a
//! resumed session. Both sides judge the peer's certificate each time, as `net` does. Full and resumed take turns.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use bench::stats::{Estimate, estimate};
use pki::{Authority, NODE_DAYS, Name, Role, Trust};
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection, Stream};

use super::stats::verdict;
use super::verdicts::{Bar, all_met, verdicts};

/// Of each kind: a handshake takes about a millisecond.
const ROUNDS: usize = 400;
const RESUMED_MS: f64 = 1.0;

/// A directory that goes with its owner.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // A directory that is left is overwritten by no later run: its name has the process's number.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn tls(base: &Path) -> Result<()> {
    let place = Place(base.join(format!("tls-{}", std::process::id())));
    std::fs::create_dir_all(&place.0).with_context(|| format!("making {}", place.0.display()))?;
    let [cluster, server, client] = ["bars", "server", "client"].map(str::parse::<Name>);
    let (cluster, server, client, now) = (cluster?, server?, client?, SystemTime::now());
    let mut authority = Authority::init(&place.0.join("ca"), &cluster, &server, now)?;
    authority.issue(Role::Client, &client, NODE_DAYS, now)?;
    let server = Trust::load(&authority.node_dir(Role::Server, &server))?;
    let client = Trust::load(&authority.node_dir(Role::Client, &client))?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    // It ends with this process, at its next connection's error at the latest.
    std::thread::Builder::new().name("tls-server".into()).spawn(move || {
        for socket in listener.incoming() {
            if let Err(error) = socket.context("accept").and_then(|socket| answer(socket, &server)) {
                eprintln!("the server's end: {error:#}");
                return;
            }
        }
    })?;

    let mut fresh = (*client.client_config()).clone();
    fresh.resumption = Resumption::disabled();
    let (fresh, remembers) = (Arc::new(fresh), client.client_config());
    // The first connection brings the tickets.
    connect(address, &client, &remembers, HandshakeKind::Full)?;
    let (mut full, mut resumed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        full.push(connect(address, &client, &fresh, HandshakeKind::Full)?);
        resumed.push(connect(address, &client, &remembers, HandshakeKind::Resumed)?);
    }
    let (full, resumed) = (estimate(&full), estimate(&resumed));
    let shown = |e: Estimate| format!("{:.2} ms ({:.2}–{:.2})", e.median, e.low, e.high);
    println!("{ROUNDS} connections of each kind; medians with 95 % interval\n");
    println!("full handshake: {}", shown(full));
    // Higher is better for `verdict`.
    let turned = Estimate { median: 1.0 / resumed.median, low: 1.0 / resumed.high, high: 1.0 / resumed.low };
    let bars = [Bar {
        what: "a connection with a resumed session".into(),
        got: shown(resumed),
        bar: format!("< {RESUMED_MS:.2} ms"),
        verdict: verdict(turned, 1.0 / RESUMED_MS),
    }];
    println!("{}", verdicts(&bars));
    all_met(&bars)
}

/// Milliseconds from the begin of the connection to the byte that came back.
fn connect(
    address: SocketAddr,
    trust: &Trust,
    config: &Arc<ClientConfig>,
    kind: HandshakeKind,
) -> Result<f64> {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let mut tls = ClientConnection::new(config.clone(), pki::server_name("server"))?;
    let mut stream = Stream::new(&mut tls, &mut socket);
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    trust.identity_of(tls.peer_certificates().context("the server showed no certificate")?)?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(tls.handshake_kind() == Some(kind), "the handshake was {:?}, not {kind:?}", tls.handshake_kind());
    Ok(took)
}

fn answer(mut socket: TcpStream, trust: &Trust) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut tls = ServerConnection::new(trust.server_config())?;
    let mut byte = [0];
    Stream::new(&mut tls, &mut socket).read_exact(&mut byte)?;
    trust.identity_of(tls.peer_certificates().context("the client showed no certificate")?)?;
    Stream::new(&mut tls, &mut socket).write_all(&byte)?;
    Ok(())
}
