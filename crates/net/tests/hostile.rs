//! Hostile or slow peers: they delay only themselves.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::conformance::{Echo, QUICK};
use net::{Call, Fabric, Hub, Limits, Server};
use types::{Buf, TargetId};
use wire::Header;

const T: TargetId = TargetId(11);
/// An honest peer's request is answered at once; otherwise it would not be answered within this time.
const PATIENCE: Duration = Duration::from_secs(10);

fn served() -> Server {
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    let limits = Limits { connections: 1024, ..Limits::default() };
    Server::listen_within("0.0.0.0:0", hub, limits, None).expect("it listens")
}

fn port(server: &Server) -> u16 {
    let nid = server.nid();
    let port = nid.rsplit(':').next().and_then(|rest| rest.split('@').next());
    port.and_then(|p| p.parse().ok()).expect("a NID has a port")
}

/// A connection from a host of its own: all of 127/8 is this machine, and hosts are told apart by their addresses.
fn connect(server: &Server, host: u8) -> TcpStream {
    let of = |host, port| SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), port));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&of(host, 0).into()).expect("an address of this machine");
    socket.connect(&of(1, port(server)).into()).expect("connected");
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// As `connect`, greeted; false: there was no place.
fn greet(server: &Server, host: u8) -> (TcpStream, bool) {
    let mut stream = connect(server, host);
    let hello = net::Hello::new(net::HelloStatus::Welcome, types::NodeId(0), "raw".into());
    // A refused peer is told so before it speaks, and may be cut off then.
    let _ = stream.write_all(&hello.encode());
    let mut answer = [0; net::HELLO_LEN];
    let is_there = stream.read_exact(&mut answer).is_ok();
    let is_welcome =
        is_there && net::Hello::decode(&answer).expect("a greeting").status == net::HelloStatus::Welcome;
    (stream, is_welcome)
}

fn frame(body: &[u8]) -> Vec<u8> {
    let head = Header { call: QUICK, target: T, body_len: body.len() as u32, ..Header::default() };
    [&head.encode(body)[..], body].concat()
}

/// Sends a request over an existing connection.
fn ask(stream: &mut TcpStream, body: &[u8]) {
    stream.write_all(&frame(body)).expect("written");
    let mut answer = vec![0; frame(body).len()];
    stream.read_exact(&mut answer).expect("answered in time");
    assert!(answer[answer.len() - body.len()..].iter().eq(body.iter().rev()), "the echo");
}

/// An honest peer of another host is served.
fn check_others_are_served(server: &Server) {
    let (mut honest, is_welcome) = greet(server, 9);
    assert!(is_welcome, "there is a place for others");
    ask(&mut honest, b"short");
    ask(&mut honest, &vec![7; 3 << 20]);
}

#[test]
fn one_that_opens_all_connections_leaves_places_for_others() {
    let server = served();
    let mut held = vec![];
    let mut refused = 0;
    while refused < 3 {
        let (stream, is_welcome) = greet(&server, 2);
        if is_welcome {
            held.push(stream);
        } else {
            refused += 1;
        }
        assert!(held.len() < 1024, "one host has taken all");
    }
    assert_eq!(held.len(), 768);
    check_others_are_served(&server);
    let few: Vec<_> = (0..64).map(|_| greet(&server, 3)).collect();
    assert!(few.iter().all(|(_, is_welcome)| *is_welcome), "a mount has what it needs");
    // A client of the usual kind, too.
    let peer = Fabric::new(None).peer_at(&format!("127.0.0.1:{}@tcp0", port(&server)), T);
    let (mut into, deadline) = (Buf::new(), Instant::now() + PATIENCE);
    let head = Header { call: QUICK, ..Header::default() };
    peer.call(&mut Call { head, body: b"abc".to_vec(), bulk: &[], into: &mut into, back: 0, deadline })
        .expect("an answer");
}

#[test]
fn ones_that_send_half_frames_keep_only_their_own_host_waiting() {
    let server = served();
    let whole = frame(&vec![5; 4 << 20]);
    let half: Vec<_> = (0..80)
        .map(|_| {
            let (mut stream, _) = greet(&server, 2);
            stream.write_all(&whole[..100 << 10]).expect("written");
            stream
        })
        .collect();
    check_others_are_served(&server);
    // A short body needs no memory from the pool. Connections that end free theirs.
    let (mut own, _) = greet(&server, 2);
    ask(&mut own, b"short");
    drop(half);
    ask(&mut own, &vec![6; 4 << 20]);
}

#[test]
fn one_that_reads_no_answers_keeps_nobody_else_waiting_and_does_not_hold_up_a_stop() {
    let server = served();
    let mut deaf: Vec<_> = (0..8).map(|_| greet(&server, 2).0).collect();
    let whole = frame(&vec![5; 4 << 20]);
    for stream in &mut deaf {
        stream.set_write_timeout(Some(Duration::from_millis(100))).expect("set");
        // Until the server stops reading, since it cannot answer.
        while stream.write_all(&whole).is_ok() {}
    }
    check_others_are_served(&server);
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_millis(2500), "{:?}", begin.elapsed());
}
