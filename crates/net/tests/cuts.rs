//! Connections that end after each single byte, and peers that stop in the middle of a conversation.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use net::conformance::{Echo, PARKED, QUICK};
use net::nid::{Address, Nid};
use net::{Call, Fabric, HELLO_LEN, Hello, HelloStatus, Hub, Limits, NetError, Peer, Server};
use socket2::{Domain, SockAddr, Socket, Type};
use types::{Buf, NodeId, TargetId};
use wire::frame::PING;
use wire::{Flags, HEADER_LEN, Header};

const T: TargetId = TargetId(11);
/// The target of the honest peer.
const HONEST: TargetId = TargetId(12);
const PATIENCE: Duration = Duration::from_secs(20);
const BODY: &[u8] = b"a small body";
const BULK: &[u8] = b"bulk";

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    /// The writing half only.
    Shutdown,
    /// Over TCP the other end gets a reset.
    Reset,
}

const ENDS: [End; 3] = [End::Close, End::Shutdown, End::Reset];

/// Ends a connection. After a shutdown, waits until the other end has closed it, too.
fn end(mut socket: Socket, end: End) {
    match end {
        End::Close => {}
        End::Reset => socket.set_linger(Some(Duration::ZERO)).expect("set"),
        End::Shutdown => {
            // An error means that the other end has closed already.
            let _ = socket.shutdown(Shutdown::Write);
            let mut rest = vec![];
            let read = socket.read_to_end(&mut rest);
            assert!(!matches!(&read, Err(e) if is_timeout(e)), "the other end did not close");
        }
    }
}

fn is_timeout(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn socket(domain: Domain) -> Socket {
    Socket::new(domain, Type::STREAM, None).expect("a socket")
}

fn socket_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("stria-cuts-{}-{name}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn address_of(nid: &str) -> SockAddr {
    match Nid::parse(nid).expect("a NID").address {
        Address::Tcp(text) => text.parse::<std::net::SocketAddr>().expect("an address").into(),
        Address::Unix(path) => SockAddr::unix(path).expect("a path"),
    }
}

fn hello() -> Vec<u8> {
    let mut hello = Hello::new(HelloStatus::Welcome, NodeId(0), "raw".into());
    hello.frames = 16;
    hello.encode().to_vec()
}

fn frame(flags: u16, request: u64, body: &[u8], bulk: &[u8]) -> Vec<u8> {
    let bulk_len = bulk.len() as u32;
    let head = Header { call: QUICK, flags, target: T, request, bulk_len, ..Header::default() };
    [&head.encode(body)[..], body, bulk].concat()
}

fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}

fn ask(peer: &dyn Peer, wait: Duration) -> Result<(), NetError> {
    let mut into = Buf::new();
    let head = Header { call: QUICK, ..Header::default() };
    let deadline = Instant::now() + wait;
    let mut call =
        Call { head, body: BODY.to_vec(), bulk: BULK, into: &mut into, back: BULK.len(), deadline };
    let (_, body) = peer.call(&mut call)?;
    assert_eq!((body, into.to_vec()), (reversed(BODY), reversed(BULK)), "a wrong answer");
    Ok(())
}

fn is_unknown(got: &Result<(), NetError>) -> bool {
    matches!(got, Err(NetError::NoAnswer { .. }))
}
fn is_definite(got: &Result<(), NetError>) -> bool {
    matches!(got, Err(NetError::NotSent { .. }))
}

/// A server with little memory, so that a part of a frame that kept its share would soon be missed.
fn small_server(address: &str) -> (Arc<Echo>, Server) {
    let (hub, echo) = (Hub::new(), Arc::new(Echo::default()));
    hub.add(T, echo.clone());
    hub.add(HONEST, Arc::new(Echo::default()));
    let limits = Limits { memory: 128 << 10, ..Limits::default() };
    (echo, Server::listen_within(address, hub, limits, None).expect("it listens"))
}

fn dial(server: &Server) -> Socket {
    let address = address_of(&server.nid());
    let socket = socket(if address.is_unix() { Domain::UNIX } else { address.domain() });
    socket.connect(&address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket
}

fn requests_are_cut_after_each_byte(address: &str) {
    let (echo, server) = small_server(address);
    let honest = Fabric::new(None).peer_at(&server.nid(), HONEST);
    ask(&*honest, PATIENCE).expect("an answer");
    let before = server.load().1;
    let bytes = [hello(), frame(0, 1, BODY, BULK)].concat();
    for how in ENDS {
        for n in 0..bytes.len() {
            let mut socket = dial(&server);
            socket.write_all(&bytes[..n]).expect("written");
            end(socket, how);
            ask(&*honest, PATIENCE).expect("an honest peer is served");
        }
        let until = Instant::now() + PATIENCE;
        while server.load().1 != before {
            assert!(Instant::now() < until, "{how:?}: {} connections are left", server.load().1);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(echo.served.load(Ordering::SeqCst), 0, "{how:?}: a part of a frame was acted on");
    }
    // The same bytes are served when all of them come, also one by one.
    let mut socket = dial(&server);
    for byte in bytes {
        socket.write_all(&[byte]).expect("written");
        ask(&*honest, PATIENCE).expect("an honest peer is served");
    }
    let mut got = vec![0; HELLO_LEN + HEADER_LEN + BODY.len() + BULK.len()];
    socket.read_exact(&mut got).expect("answered");
    assert_eq!(got[HELLO_LEN + HEADER_LEN..], [reversed(BODY), reversed(BULK)].concat());
    assert_eq!(echo.served.load(Ordering::SeqCst), 1);
}

#[test]
fn a_server_does_not_act_on_a_request_that_is_cut_after_any_byte_over_tcp() {
    requests_are_cut_after_each_byte("127.0.0.1:0");
}

#[test]
fn a_server_does_not_act_on_a_request_that_is_cut_after_any_byte_over_unix_sockets() {
    requests_are_cut_after_each_byte(&format!("unix:{}", socket_path("requests").display()));
}

/// The bytes and the end may come before the server's first look, and then no event tells of the end alone.
#[test]
fn a_server_notices_a_client_that_ends_right_behind_a_whole_frame() {
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    let server = Server::listen("127.0.0.1:0", hub).expect("it listens");
    for call in [PING, QUICK, PARKED] {
        let head = Header { call, target: T, request: 1, ..Header::default() };
        let bytes = [hello(), head.encode(&[]).to_vec()].concat();
        for n in 0..300 {
            let mut socket = dial(&server);
            socket.write_all(&bytes).expect("written");
            let begin = Instant::now();
            end(socket, End::Shutdown);
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(5), "call {call:#x}, connection {n}: after {took:?}");
        }
    }
}

/// A listener of a server that the test itself plays.
struct Fake {
    listener: Socket,
    nid: String,
}

impl Fake {
    fn at(address: &str) -> Fake {
        let nid = Nid::parse(address).expect("a NID");
        let address = address_of(address);
        let listener = socket(if address.is_unix() { Domain::UNIX } else { address.domain() });
        listener.bind(&address).expect("bound");
        listener.listen(64).expect("it listens");
        // For `accept`: a client that does not come fails the test.
        listener.set_read_timeout(Some(PATIENCE)).expect("set");
        let nid = match listener.local_addr().expect("bound").as_socket() {
            Some(bound) => format!("{bound}@tcp0"),
            None => nid.to_string(),
        };
        Fake { listener, nid }
    }

    fn tcp() -> Fake {
        Fake::at("127.0.0.1:0")
    }

    fn accept(&self) -> Socket {
        let (socket, _) = self.listener.accept().expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut greeting = [0; HELLO_LEN];
        (&socket).read_exact(&mut greeting).expect("a greeting");
        socket
    }

    fn greet(&self) -> Socket {
        let mut socket = self.accept();
        socket.write_all(&hello()).expect("written");
        socket
    }

    /// Plays a server for one connection: `n` bytes of a greeting and an answer leave, then the connection ends.
    fn answer(&self, n: usize, how: End) {
        let mut socket = self.accept();
        socket.write_all(&hello()[..n.min(HELLO_LEN)]).expect("written");
        if n >= HELLO_LEN {
            let request = read_request(&mut socket);
            let answer = answer_to(&request);
            socket.write_all(&answer[..n - HELLO_LEN]).expect("written");
        }
        end(socket, how);
    }
}

/// Reads a request of `ask`.
fn read_request(socket: &mut Socket) -> Header {
    let mut bytes = vec![0; HEADER_LEN + BODY.len() + BULK.len()];
    socket.read_exact(&mut bytes).expect("a request");
    Header::decode(bytes.first_chunk().expect("a header")).expect("a header")
}

fn answer_to(request: &Header) -> Vec<u8> {
    frame(Flags::REPLY, request.request, &reversed(BODY), &reversed(BULK))
}

fn answers_are_cut_after_each_byte(address: &str, how: End) {
    let fake = Fake::at(address);
    let whole = HELLO_LEN + HEADER_LEN + BODY.len() + BULK.len();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            for n in 0..whole {
                fake.answer(n, how);
                // The healthy one closes after its client.
                fake.answer(whole, End::Shutdown);
            }
        });
        for n in 0..whole {
            let peer = Fabric::new(None).peer_at(&fake.nid, T);
            let begin = Instant::now();
            let got = ask(&*peer, PATIENCE);
            match n < HELLO_LEN {
                true => assert!(is_definite(&got), "{how:?} after {n} bytes: {got:?}"),
                false => assert!(is_unknown(&got), "{how:?} after {n} bytes: {got:?}"),
            }
            let mut next = ask(&*peer, PATIENCE);
            // A failed connect is followed by a pause.
            while n < HELLO_LEN && is_definite(&next) && begin.elapsed() < PATIENCE / 2 {
                std::thread::sleep(Duration::from_millis(1));
                next = ask(&*peer, PATIENCE);
            }
            assert!(next.is_ok(), "{how:?} after {n} bytes: the healthy server's answer is {next:?}");
            assert!(begin.elapsed() < PATIENCE / 2, "{how:?} after {n} bytes: not at the deadline");
        }
        served.join().expect("no panic");
    });
}

#[test]
fn a_client_hears_at_once_of_an_answer_that_is_cut_after_any_byte_over_tcp() {
    std::thread::scope(|scope| {
        for how in ENDS {
            scope.spawn(move || answers_are_cut_after_each_byte("127.0.0.1:0", how));
        }
    });
}

#[test]
fn a_client_hears_at_once_of_an_answer_that_is_cut_after_any_byte_over_unix_sockets() {
    std::thread::scope(|scope| {
        for how in [End::Close, End::Shutdown] {
            let path = socket_path(&format!("answers-{how:?}"));
            scope.spawn(move || {
                answers_are_cut_after_each_byte(&format!("unix:{}", path.display()), how);
                std::fs::remove_file(path).expect("removed");
            });
        }
    });
}

/// Whether the request left may be unknown. The answer may not.
#[test]
fn a_server_that_greets_and_ends_at_once_gives_no_answer() {
    for how in ENDS {
        let fake = Fake::tcp();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..50 {
                    end(fake.greet(), how);
                }
            });
            for _ in 0..50 {
                let begin = Instant::now();
                let got = ask(&*Fabric::new(None).peer_at(&fake.nid, T), PATIENCE);
                assert!(is_definite(&got) || is_unknown(&got), "{how:?}: {got:?}");
                assert!(begin.elapsed() < PATIENCE / 2, "{how:?}: not at the deadline");
            }
        });
    }
}

/// Asks a server that will not answer. Silence makes the client look at the host early and often.
fn ask_in_vain(nid: &str, body: usize, bulk: usize, wait: Duration) -> Result<(), NetError> {
    let fabric = Fabric::new(None);
    fabric.set_dead_after(Duration::from_millis(100));
    let begin = Instant::now();
    let got = ask_long(&*fabric.peer_at(nid, T), body, bulk, wait);
    let took = begin.elapsed();
    assert!(took >= wait, "the deadline decides, not the silence: {took:?}, {got:?}");
    assert!(took < wait + Duration::from_secs(4), "the deadline is kept: {took:?}");
    got
}

fn ask_long(peer: &dyn Peer, body: usize, bulk: usize, wait: Duration) -> Result<(), NetError> {
    let (bulk, mut into) = (vec![7; bulk], Buf::new());
    let head = Header { call: QUICK, ..Header::default() };
    let (body, deadline) = (vec![5; body], Instant::now() + wait);
    peer.call(&mut Call { head, body, bulk: &bulk, into: &mut into, back: 0, deadline }).map(drop)
}

const WAIT: Duration = Duration::from_millis(1500);

#[test]
fn a_server_that_accepts_and_never_greets_costs_the_deadline() {
    let fake = Fake::tcp();
    let got = ask_in_vain(&fake.nid, 1, 0, WAIT);
    assert!(is_definite(&got), "no request has left: {got:?}");
}

#[test]
fn a_server_that_greets_and_never_reads_costs_the_deadline() {
    for (body, bulk) in [(1, 0), (4 << 20, 0), (4 << 20, types::BULK_MAX)] {
        let fake = Fake::tcp();
        std::thread::scope(|scope| {
            let held = scope.spawn(|| fake.greet());
            let got = ask_in_vain(&fake.nid, body, bulk, WAIT);
            assert!(is_unknown(&got), "bytes of it have left: {got:?}");
            drop(held.join());
        });
    }
}

#[test]
fn a_server_that_reads_and_never_answers_costs_the_deadline() {
    let fake = Fake::tcp();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = vec![];
            // Until the client closes.
            fake.greet().read_to_end(&mut bytes).expect("read");
            assert!(bytes.len() > HEADER_LEN, "the request has come");
        });
        let got = ask_in_vain(&fake.nid, 4 << 20, types::BULK_MAX, WAIT);
        assert!(is_unknown(&got), "{got:?}");
    });
}

/// A refused connection comes from a host that is alive. `a_host_that_vanishes_is_found_dead_soon` has a host that is not.
#[test]
fn a_server_that_accepts_no_more_connections_and_never_answers_costs_the_deadline() {
    let fake = Fake::tcp();
    let nid = fake.nid.clone();
    std::thread::scope(|scope| {
        let held = scope.spawn(move || fake.greet());
        let got = ask_in_vain(&nid, 1, 0, WAIT);
        assert!(is_unknown(&got), "{got:?}");
        drop(held.join());
    });
}

/// At this pace a whole answer takes a quarter of a minute.
#[test]
fn a_server_that_answers_one_byte_at_a_time_costs_the_deadline() {
    for greets_slowly in [true, false] {
        let (fake, is_over) = (Fake::tcp(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut socket = if greets_slowly { fake.accept() } else { fake.greet() };
                let bytes = match greets_slowly {
                    true => hello(),
                    false => {
                        let mut head = [0; HEADER_LEN];
                        socket.read_exact(&mut head).expect("a request");
                        answer_to(&Header::decode(&head).expect("a header"))
                    }
                };
                for byte in bytes {
                    if is_over.load(Ordering::SeqCst) || socket.write_all(&[byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let got = ask_in_vain(&fake.nid, 1, 0, WAIT);
            is_over.store(true, Ordering::SeqCst);
            assert!(if greets_slowly { is_definite(&got) } else { is_unknown(&got) }, "{got:?}");
        });
    }
}

#[test]
fn a_server_that_sends_answers_to_no_request_without_a_pause_costs_the_deadline() {
    let (fake, is_over) = (Fake::tcp(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut socket = fake.greet();
            let answers = frame(Flags::REPLY, u64::MAX, &[3; 1000], &[4; 1000]).repeat(100);
            let until = Instant::now() + PATIENCE;
            while !is_over.load(Ordering::SeqCst) && Instant::now() < until {
                if socket.write_all(&answers).is_err() {
                    return;
                }
            }
        });
        let got = ask_in_vain(&fake.nid, 1, 0, WAIT);
        is_over.store(true, Ordering::SeqCst);
        assert!(is_unknown(&got), "{got:?}");
    });
}

/// Requests whose callers have given up do not gather in the client's memory.
#[test]
fn a_server_that_reads_nothing_for_long_gets_few_of_the_requests_that_have_ended() {
    const MIB: usize = 1 << 20;
    let fake = Fake::tcp();
    let may_read = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let came = scope.spawn(|| {
            let mut socket = fake.greet();
            let until = Instant::now() + PATIENCE;
            while !may_read.load(Ordering::SeqCst) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut bytes = vec![];
            socket.read_to_end(&mut bytes).expect("read");
            bytes
        });
        let fabric = Fabric::new(None);
        let peer = fabric.peer_at(&fake.nid, T);
        let mut unknown = 0;
        for _ in 0..60 {
            let got = ask_long(&*peer, 4 * MIB, 0, Duration::from_millis(30));
            assert!(is_unknown(&got) || is_definite(&got), "{got:?}");
            unknown += is_unknown(&got) as usize;
        }
        may_read.store(true, Ordering::SeqCst);
        // One more on the same connection sends what is left of the one before.
        let _ = ask_long(&*peer, 1, 0, Duration::from_secs(2));
        drop((peer, fabric));
        let bytes = came.join().expect("no panic");
        assert!(bytes.len() < 30 * MIB, "{} MiB came of requests that had ended", bytes.len() / MIB);
        let frames = bytes.len().div_ceil(4 * MIB);
        assert!(frames.abs_diff(unknown) <= 1, "{unknown} ended as unknown, and {frames} came");
    });
}
