//! Mutated streams of frames at both ends of a connection, over real sockets. `src/incoming/hammered.rs` has more of them, without sockets.

mod streams;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hammer::Dice;
use net::conformance::{Echo, QUICK};
use net::{Call, Fabric, HELLO_LEN, Hello, HelloStatus, Hub, NetError, Peer, Server, Ticket};
use streams::{Frames, Parsed, Telltale, bytes, frame, mutated, parse, pieces};
use types::{Buf, NodeId, TargetId};
use wire::frame::PING;
use wire::{Flags, HEADER_LEN, Header};

const T: TargetId = TargetId(11);
/// The target of the honest peer.
const HONEST: TargetId = TargetId(12);
const PATIENCE: Duration = Duration::from_secs(20);

fn inputs() -> u64 {
    hammer::inputs() / 50
}

fn hello(status: HelloStatus) -> Vec<u8> {
    let mut hello = Hello::new(status, NodeId(0), "raw".into());
    hello.frames = 64;
    hello.encode().to_vec()
}

fn request<'a>(body: &[u8], bulk: &'a [u8], into: &'a mut Buf) -> Call<'a> {
    let head = Header { call: QUICK, ..Header::default() };
    Call { head, body: body.to_vec(), bulk, into, back: bulk.len(), deadline: Instant::now() + PATIENCE }
}

fn is_request(parsed: &&Parsed<'_>) -> bool {
    parsed.head.call != PING && parsed.head.flags & Flags::REPLY == 0
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Frames that a server gets: requests, pings, and now and then an answer to no request.
fn frames_for_a_server(dice: &mut Dice) -> Vec<Vec<u8>> {
    let count = 1 + dice.below(5);
    let some = |n| {
        let head = Header { call: QUICK, target: T, request: 1 + n as u64, ..Header::default() };
        match dice.below(12) {
            0 => frame(Header { flags: Flags::REPLY, ..head }, b"an answer", &[]),
            1 | 2 => frame(Header { call: PING, ..head }, &[], &[]),
            3..6 => frame(head, &bytes(dice), &[]),
            _ => frame(head, &bytes(dice), &bytes(dice)),
        }
    };
    (0..count).map(some).collect()
}

/// Sends bytes, and reads answers until the server closes. Between the two it waits for `is_served`.
fn converse(server: &Server, pieces: &[&[u8]], is_served: impl Fn() -> bool) {
    let stream = TcpStream::connect(server.nid().replace("@tcp0", "")).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_nodelay(true).expect("set");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = vec![];
            // A reset is an end too: the server closed before it had read all.
            let end = (&stream).read_to_end(&mut rest).map_err(|e| e.kind());
            assert!(
                matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset)),
                "the server did not close: {end:?}"
            );
        });
        for piece in pieces {
            if (&stream).write_all(piece).is_err() {
                break;
            }
        }
        wait_until("whole requests are served", is_served);
        // An error means that the server has closed already.
        let _ = stream.shutdown(Shutdown::Write);
    });
}

#[test]
fn a_server_serves_exactly_the_whole_requests_of_a_mutated_stream_and_goes_on() {
    let (hub, echo, honest) = (Hub::new(), Arc::new(Echo::default()), Arc::new(Echo::default()));
    hub.add(T, echo.clone());
    hub.add(HONEST, honest.clone());
    let server = Server::listen("127.0.0.1:0", hub).expect("it listens");
    let peer = Fabric::new(None).peer_at(&server.nid(), HONEST);
    let ask = || {
        let mut into = Buf::new();
        let mut call = request(b"honest", b"bulk", &mut into);
        assert_eq!(peer.call(&mut call).expect("an honest peer is served").1, b"tsenoh");
    };
    ask();
    let before = server.load().1;
    let mut total = 0;
    for n in 0..inputs() {
        let _telltale = Telltale(n);
        let mut dice = Dice::new(n);
        let frames = frames_for_a_server(&mut dice);
        let mut stream = hello(HelloStatus::Welcome);
        stream.extend(mutated(&mut dice, frames));
        if dice.below(10) == 0 {
            let at = dice.below(HELLO_LEN);
            stream[at] ^= 1 << dice.below(8);
        }
        let (greeting, rest) = stream.split_first_chunk().expect("a greeting");
        let frames = match Hello::decode(greeting) {
            Ok(_) => parse(rest),
            Err(_) => parse(&[]),
        };
        // A server may refuse an answer to no request, or pass over it.
        let all = frames.whole.iter().filter(is_request).count() as u64;
        let sure = frames.whole.iter().take_while(|f| f.head.flags & Flags::REPLY == 0);
        let sure = sure.filter(is_request).count() as u64;
        let served = || echo.served.load(Ordering::SeqCst) - total;
        converse(&server, &pieces(&mut dice, &stream), || served() >= sure);
        ask();
        wait_until("the connection has ended", || server.load().1 == before);
        assert!((sure..=all).contains(&served()), "{} are served, not {sure} to {all}", served());
        total += served();
    }
    assert!(total > inputs() / 2, "{total} requests came through");
}

/// Requests that are under way together on the client's only connection.
const TOGETHER: usize = 6;

fn read_frame(stream: &mut TcpStream) -> Header {
    let mut raw = [0; HEADER_LEN];
    stream.read_exact(&mut raw).expect("a request");
    let head = Header::decode(&raw).expect("a header");
    let mut rest = vec![0; head.body_len as usize + head.bulk_len as usize];
    stream.read_exact(&mut rest).expect("the rest of it");
    head
}

/// Frames that a client gets for its requests: an answer to each, in any order, answers to none, to pings, and now and then a request.
fn frames_for_a_client(dice: &mut Dice, requests: &[Header]) -> Vec<Vec<u8>> {
    let reply =
        |request| Header { call: QUICK, flags: Flags::REPLY, target: T, request, ..Header::default() };
    let mut frames: Vec<_> =
        requests.iter().map(|r| frame(reply(r.request), &bytes(dice), &bytes(dice))).collect();
    for _ in 0..dice.below(3) {
        let head = reply(requests[dice.below(requests.len())].request);
        frames.push(match dice.below(8) {
            0 => frame(Header { flags: 0, ..head }, b"a request", &[]),
            1..4 => frame(Header { call: PING, ..head }, &[], &[]),
            4 | 5 => frame(reply(u64::MAX), &bytes(dice), &bytes(dice)),
            _ => frame(head, b"a second answer", &bytes(dice)),
        });
    }
    for n in (1..frames.len()).rev() {
        frames.swap(n, dice.below(n + 1));
    }
    frames
}

/// Plays a server that has one place for a connection. Returns the bytes that it sent as answers.
fn play(door: &TcpListener, dice: &mut Dice) -> Vec<u8> {
    let accept = |status| {
        let (mut stream, _) = door.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_nodelay(true).expect("set");
        stream.read_exact(&mut [0; HELLO_LEN]).expect("a greeting");
        stream.write_all(&hello(status)).expect("written");
        stream
    };
    let mut stream = accept(HelloStatus::Welcome);
    drop(accept(HelloStatus::Full));
    let requests: Vec<_> = (0..TOGETHER).map(|_| read_frame(&mut stream)).collect();
    let frames = frames_for_a_client(dice, &requests);
    let answers = mutated(dice, frames);
    for piece in pieces(dice, &answers) {
        // The client closes as soon as it finds a frame that is none.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    answers
}

/// The outcome of a request: its id, and the answer with its bulk bytes.
type Outcome = (u64, Result<(Header, Vec<u8>), NetError>, Vec<u8>);

/// Sends some requests on one connection, and waits for the answers on three threads.
fn ask_together(peer: &dyn Peer) -> Vec<Outcome> {
    let mut into: Vec<_> = (0..TOGETHER).map(|_| Buf::new()).collect();
    let begin = Instant::now();
    let send = |into| {
        let mut call = request(b"question", b"bulk", into);
        loop {
            match peer.send_more(&mut call) {
                Ok(ticket) => return (ticket, call),
                // Two connections are begun under load, and the one that is refused is heard of first.
                Err(NetError::NotSent { .. }) if begin.elapsed() < PATIENCE / 4 => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => panic!("not sent: {e}"),
            }
        }
    };
    let mut asked: Vec<(Ticket, Call<'_>)> = into.iter_mut().map(send).collect();
    let receive = |(ticket, mut call): (Ticket, Call<'_>)| {
        let got = peer.receive(ticket, &mut call);
        (call.head.request, got, call.into.to_vec())
    };
    std::thread::scope(|scope| {
        let mut threads = vec![];
        while !asked.is_empty() {
            let some = asked.split_off(asked.len() - asked.len().min(2));
            threads.push(scope.spawn(move || some.into_iter().map(receive).collect::<Vec<_>>()));
        }
        threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
    })
}

/// The first answer to each request counts, and none behind a bad frame.
fn check(outcome: &Outcome, frames: &Frames<'_>) -> bool {
    let (request, got, bulk) = outcome;
    let answers = |f: &&Parsed<'_>| !is_request(f) && f.head.call != PING && f.head.request == *request;
    let want = frames.whole.iter().find(answers);
    // A client may refuse a request from the server, or pass over it.
    let is_sure = !frames.whole.iter().take_while(|f| !answers(f)).any(|f| is_request(&f));
    match (got, want) {
        (Ok((head, body)), Some(want)) => {
            assert_eq!(*head, want.head);
            assert!(body == want.body && bulk == want.bulk, "the first answer to it");
        }
        (Err(NetError::NoAnswer { .. }), Some(_)) => {
            assert!(!is_sure, "its answer is in the stream: {got:?}")
        }
        (Err(NetError::NoAnswer { .. }), None) => assert!(bulk.is_empty(), "no bulk bytes of others"),
        _ => panic!("an answer that was not sent to it, or a request that was: {got:?}"),
    }
    got.is_ok()
}

#[test]
fn a_client_gives_each_request_the_answer_in_a_mutated_stream_or_none() {
    let door = TcpListener::bind("127.0.0.1:0").expect("bound");
    // For `accept`: a client that does not come fails the test.
    socket2::SockRef::from(&door).set_read_timeout(Some(PATIENCE)).expect("set");
    let nid = format!("{}@tcp0", door.local_addr().expect("bound"));
    let mut answered = 0;
    for n in 0..inputs() {
        let _telltale = Telltale(n);
        std::thread::scope(|scope| {
            let door = &door;
            let served = scope.spawn(move || play(door, &mut Dice::new(n)));
            let begin = Instant::now();
            let outcomes = ask_together(&*Fabric::new(None).peer_at(&nid, T));
            assert!(begin.elapsed() < PATIENCE / 2, "at once, not at the deadline: {:?}", begin.elapsed());
            let bytes = served.join().expect("no panic");
            let frames = parse(&bytes);
            answered += outcomes.iter().filter(|outcome| check(outcome, &frames)).count() as u64;
        });
    }
    let asked = inputs() * TOGETHER as u64;
    assert!(answered > asked / 4 && answered < asked, "{answered} of {asked}");
}
