//! The conformance suite over each transport, and the stories that need sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use net::conformance::{Echo, PARKED, QUICK, Rig, SLOW, check};
use net::fault::Proxy;
use net::{Call, Fabric, Hub, Limits, NetError, Peer, Server};
use types::{Buf, NodeId, TargetId};
use wire::map::{ClusterMap, Mirror, Node, Target};
use wire::pair::{FlushLog, Letters};
use wire::{Header, Request};

const T: TargetId = TargetId(11);

fn socket_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("stria-net-{}-{name}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn remote_rig(addr: &str) -> Rig {
    let hub = Hub::new();
    let server = Server::listen(addr, hub.clone()).expect("it listens");
    let nid = server.nid();
    let fabric = Fabric::new(None);
    let peer = {
        let fabric = fabric.clone();
        move |t| fabric.peer_at(&nid, t)
    };
    Rig { hub, fabric, peer: Box::new(peer), stop: Box::new(move || server.stop()) }
}

/// A server with an echo at `T`, its echo, and a fabric without that server in its process.
fn served() -> (Arc<Echo>, Server, Arc<Fabric>) {
    let (hub, echo) = (Hub::new(), Arc::new(Echo::default()));
    hub.add(T, echo.clone());
    (echo, Server::listen("127.0.0.1:0", hub).expect("it listens"), Fabric::new(None))
}

fn call(peer: &dyn Peer, call: u16, wait: Duration) -> Result<(Header, Vec<u8>), NetError> {
    let head = Header { call, ..Header::default() };
    let mut into = Buf::new();
    peer.call(&mut Call {
        head,
        body: b"abc".to_vec(),
        bulk: &[],
        into: &mut into,
        back: 0,
        deadline: Instant::now() + wait,
    })
}

fn ask(peer: &dyn Peer) -> Result<(Header, Vec<u8>), NetError> {
    call(peer, QUICK, Duration::from_secs(10))
}

#[test]
fn tcp_conforms() {
    check(&|| remote_rig("127.0.0.1:0"));
}

#[test]
fn unix_conforms() {
    let path = socket_path("conforms");
    check(&|| remote_rig(&format!("unix:{}", path.display())));
    assert!(!path.exists(), "the socket file goes with its server");
}

#[test]
fn local_conforms() {
    check(&|| {
        let hub = Hub::new();
        let fabric = Fabric::new(Some(hub.clone()));
        let peer = {
            let (fabric, hub) = (fabric.clone(), hub.clone());
            move |t| {
                // A peer of the hub must exist before its service does, to see the error of a call then.
                let absent = !hub.serves(t);
                if absent {
                    hub.add(t, Arc::new(Echo::default()));
                }
                let peer = fabric.peer(t).expect("served here");
                if absent {
                    hub.remove(t);
                }
                peer
            }
        };
        let stop = {
            let hub = hub.clone();
            move || hub.targets().into_iter().for_each(|t| hub.remove(t))
        };
        Rig { hub, fabric, peer: Box::new(peer), stop: Box::new(stop) }
    });
}

#[test]
fn local_and_remote_differ_in_fate() {
    let (_, server, fabric) = served();
    assert!(!fabric.peer_at(&server.nid(), T).is_fate_shared());
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    assert!(Fabric::new(Some(hub)).peer(T).expect("here").is_fate_shared());
}

fn map_with(nids: Vec<String>, node: u64) -> ClusterMap {
    let mut map = ClusterMap::empty();
    map.nodes.push(Node { id: NodeId(node), name: "oss1".into(), nids, rack: String::new() });
    map.mirrors.push(Mirror::alone(types::MirrorId(1), types::FsId(1), false, types::Epoch(1), T));
    map.targets.push(Target {
        id: T,
        fs: types::FsId(1),
        is_mdt: false,
        index: 0,
        uuid: types::Uuid([1; 16]),
        node: NodeId(node),
        mirror: types::MirrorId(1),
        state: 1,
        bytes_total: 0,
    });
    map
}

#[test]
fn the_map_leads_to_the_server_and_follows_its_moves() {
    let (_, first, fabric) = served();
    assert!(matches!(fabric.peer(T), Err(NetError::NotSent { .. })), "no map yet");
    // The first address is dead; the second is tried after it.
    fabric.set_map(&map_with(vec!["127.0.0.1:1@tcp0".into(), first.nid()], 5));
    let peer = fabric.peer(T).expect("in the map");
    ask(&*peer).expect("an answer");
    let (echo, second, _) = served();
    fabric.set_map(&map_with(vec![second.nid()], 5));
    first.stop();
    ask(&*peer).expect("the same peer follows its node");
    assert_eq!(echo.served.load(Ordering::SeqCst), 1);
}

/// net-R4: a thread may have taken its peer before, and send after. The node may stand still, and would keep the request as long.
#[test]
fn a_peer_from_before_sends_nothing_to_a_node_that_serves_the_target_no_more() {
    let (echo, server, fabric) = served();
    fabric.set_map(&map_with(vec![server.nid()], 5));
    let (peer, same) = (fabric.peer(T).expect("in the map"), fabric.peer(T).expect("in the map"));
    ask(&*peer).expect("an answer");
    fabric.end_requests(T);
    for peer in [&peer, &same] {
        let got = ask(&**peer);
        assert!(matches!(got, Err(NetError::NotSent { .. })), "{got:?}");
    }
    assert_eq!(echo.served.load(Ordering::SeqCst), 1);
    // The target may come back there, or be asked as the other member.
    let fresh = fabric.peer(T).expect("in the map");
    ask(&*fresh).expect("an answer");
    let mut moved = map_with(vec![server.nid()], 6);
    moved.version = 1;
    fabric.set_map(&moved);
    assert!(matches!(ask(&*fresh), Err(NetError::NotSent { .. })));
}

#[test]
fn an_address_that_swallows_everything_leaves_time_for_the_next_and_is_tried_last_from_then_on() {
    // The kernel accepts by itself; the handshake stays unanswered, as behind a link that drops packets.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let (_, server, fabric) = served();
    let nids = vec![format!("{}@tcp0", deaf.local_addr().expect("bound")), server.nid()];
    fabric.set_map(&map_with(nids, 5));
    let peer = fabric.peer(T).expect("in the map");
    call(&*peer, QUICK, Duration::from_secs(2)).expect("the second address is tried in time");
    // More connections at once than the one that is kept.
    let begin = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| call(&*peer, SLOW + 100, Duration::from_secs(5)).expect("an answer"));
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn another_node_at_the_address_is_not_taken_for_the_wanted_one() {
    let hub = Hub::new();
    hub.set_node(NodeId(6));
    let echo = Arc::new(Echo::default());
    hub.add(T, echo.clone());
    let server = Server::listen("127.0.0.1:0", hub).expect("it listens");
    let fabric = Fabric::new(None);
    fabric.set_map(&map_with(vec![server.nid()], 5));
    let why = ask(&*fabric.peer(T).expect("in the map")).expect_err("refused").to_string();
    assert!(why.contains("node n6 answers there, not node n5"), "{why}");
    assert_eq!(echo.served.load(Ordering::SeqCst), 0);
}

#[test]
fn lost_replies_are_unknown_and_the_next_request_works() {
    let (echo, server, fabric) = served();
    let proxy = Proxy::to(&server.nid()).expect("it listens");
    let peer = fabric.peer_at(&proxy.nid(), T);
    ask(&*peer).expect("an answer");
    proxy.lose_replies();
    let got = ask(&*peer);
    assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
    assert_eq!(echo.served.load(Ordering::SeqCst), 2, "it was carried out, once");
    proxy.heal();
    ask(&*peer).expect("an answer");
    assert_eq!(echo.served.load(Ordering::SeqCst), 3);
}

#[test]
fn a_cut_and_healed_network_is_used_again() {
    let (echo, server, fabric) = served();
    let proxy = Proxy::to(&server.nid()).expect("it listens");
    let peer = fabric.peer_at(&proxy.nid(), T);
    ask(&*peer).expect("an answer");
    proxy.cut();
    std::thread::sleep(Duration::from_millis(50));
    let got = ask(&*peer);
    assert!(
        matches!(got, Err(NetError::NotSent { .. })),
        "a stale connection is noticed before use: {got:?}"
    );
    // A storm of requests makes few connects.
    let before = proxy.connects();
    let until = Instant::now() + Duration::from_millis(300);
    let mut refused = 0;
    while Instant::now() < until {
        assert!(matches!(ask(&*peer), Err(NetError::NotSent { .. })));
        refused += 1;
    }
    assert!(refused > 1000, "requests in the pause fail at once: {refused}");
    assert!(proxy.connects() - before < 12, "{}", proxy.connects() - before);
    proxy.heal();
    let until = Instant::now() + Duration::from_secs(3);
    while ask(&*peer).is_err() {
        assert!(Instant::now() < until, "it comes back after the pause");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(echo.served.load(Ordering::SeqCst), 2, "nothing of the cut time was carried out");
}

#[test]
fn a_stalled_network_ends_at_the_deadline_or_by_abort() {
    let (_, server, fabric) = served();
    let proxy = Proxy::to(&server.nid()).expect("it listens");
    let peer = fabric.peer_at(&proxy.nid(), T);
    ask(&*peer).expect("an answer");
    proxy.stall();
    let begin = Instant::now();
    let got = call(&*peer, QUICK, Duration::from_millis(200));
    assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
    assert!(begin.elapsed() < Duration::from_millis(600));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&*peer));
        std::thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        fabric.abort();
        assert!(waiting.join().expect("no panic").is_err());
        assert!(begin.elapsed() < Duration::from_millis(1200));
    });
    proxy.heal();
}

/// A request under way, together with the values that it borrows.
fn calls(into: &mut [Buf], wait: Duration) -> Vec<Call<'_>> {
    let head = Header { call: QUICK, ..Header::default() };
    let deadline = Instant::now() + wait;
    into.iter_mut()
        .map(|into| Call { head, body: b"abc".to_vec(), bulk: &[], into, back: 0, deadline })
        .collect()
}

#[test]
fn a_thread_with_requests_under_way_does_not_wait_for_a_place() {
    let (hub, limits) = (Hub::new(), Limits { frames: 8, ..Limits::default() });
    hub.add(T, Arc::new(Echo::default()));
    let server = Server::listen_within("127.0.0.1:0", hub, limits, None).expect("it listens");
    let peer = Fabric::new(None).peer_at(&server.nid(), T);
    let mut bufs: Vec<_> = (0..70).map(|_| Buf::new()).collect();
    let mut calls = calls(&mut bufs, Duration::from_secs(20));
    let begin = Instant::now();
    let sent: Vec<_> = calls.iter_mut().map(|c| (peer.send_more(c), c)).collect();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(sent.iter().filter(|(ticket, _)| ticket.is_ok()).count(), 64, "eight lanes of eight");
    for (ticket, call) in sent {
        match ticket {
            Ok(ticket) => drop(peer.receive(ticket, call).expect("an answer")),
            Err(e) => assert!(matches!(e, NetError::NotSent { .. }), "{e}"),
        }
    }
    ask(&*peer).expect("all are free again");
}

#[test]
fn an_answer_that_has_come_is_taken_also_after_the_deadline() {
    let (_, server, fabric) = served();
    let peer = fabric.peer_at(&server.nid(), T);
    ask(&*peer).expect("an answer");
    let mut bufs = [Buf::new()];
    let mut calls = calls(&mut bufs, Duration::from_millis(100));
    let ticket = peer.send(&mut calls[0]).expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(peer.receive(ticket, &mut calls[0]).expect("it has long come").1, b"cba");
}

#[test]
fn a_stopping_server_answers_what_it_has_begun() {
    let (_, server, fabric) = served();
    let peer = fabric.peer_at(&server.nid(), T);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| call(&*peer, SLOW + 400, Duration::from_secs(10)));
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        server.stop();
        assert!(begin.elapsed() < Duration::from_secs(2));
        assert!(waiting.join().expect("no panic").is_ok());
    });
    let got = ask(&*peer);
    assert!(matches!(got, Err(NetError::NotSent { .. })), "{got:?}");
}

#[test]
fn a_server_with_a_hanging_service_stops_within_two_seconds() {
    let (_, server, fabric) = served();
    let peer = fabric.peer_at(&server.nid(), T);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| call(&*peer, SLOW + 3000, Duration::from_secs(10)));
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        server.stop();
        assert!(begin.elapsed() < Duration::from_millis(2500), "{:?}", begin.elapsed());
        let got = waiting.join().expect("no panic");
        assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
    });
}

#[test]
fn unix_paths_are_taken_over_from_the_dead_only() {
    let path = socket_path("takeover");
    let addr = format!("unix:{}", path.display());
    // A listener that is dropped leaves its file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    assert!(path.exists());
    let first = Server::listen(&addr, Hub::new()).expect("taken over");
    let refused = Server::listen(&addr, Hub::new()).err().expect("it is in use");
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    assert!(refused.to_string().contains("a server answers there already"), "{refused}");
    first.stop();
    std::fs::write(&path, "a file of somebody").expect("written");
    let refused = Server::listen(&addr, Hub::new()).err().expect("it is no socket");
    assert!(refused.to_string().contains("no socket"), "{refused}");
    assert_eq!(std::fs::read(&path).expect("still there"), b"a file of somebody");
    std::fs::remove_file(&path).expect("removed");
}

/// The bytes that a raw client receives until the server closes.
fn after_sending(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let address = server.nid().replace("@tcp0", "");
    let mut s = TcpStream::connect(address).expect("connected");
    s.set_read_timeout(Some(Duration::from_secs(3))).expect("set");
    s.write_all(bytes).expect("written");
    let mut got = Vec::new();
    match s.read_to_end(&mut got) {
        Ok(_) => {}
        // Closing with unread bytes resets the connection; that is an end too. A time-out is none.
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "the server did not close"),
    }
    got
}

fn greeting() -> Vec<u8> {
    net::Hello::new(net::HelloStatus::Welcome, NodeId(0), "raw".into()).encode().to_vec()
}

#[test]
fn bad_frames_close_the_connection_and_nothing_is_carried_out() {
    let (echo, server, fabric) = served();
    let head = Header { call: QUICK, target: T, ..Header::default() };
    let good = head.encode(b"body");
    let frame = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = [&good[..], b"body"].concat();
        change(&mut bytes);
        [greeting(), bytes].concat()
    };
    let table: [(&str, Vec<u8>); 6] = [
        ("no handshake", vec![b'x'; net::HELLO_LEN]),
        ("magic", frame(&|f| f[0] ^= 1)),
        ("a flipped bit in the header", frame(&|f| f[20] ^= 1)),
        ("a flipped bit in the body", frame(&|f| f[130] ^= 1)),
        ("a body length of 4 GiB", frame(&|f| f[84..88].fill(0xff))),
        ("a reserved byte", frame(&|f| f[100] = 1)),
    ];
    for (name, bytes) in table {
        let got = after_sending(&server, &bytes);
        assert!(
            got.is_empty() || got.len() == net::HELLO_LEN,
            "{name}: at most the greeting comes back, not {}",
            got.len()
        );
        assert_eq!(echo.served.load(Ordering::SeqCst), 0, "{name}");
    }
    ask(&*fabric.peer_at(&server.nid(), T)).expect("others are served");
}

#[test]
fn another_version_is_told_so() {
    let (_, server, _) = served();
    let mut hello = greeting();
    hello[4] = 99;
    let got = after_sending(&server, &hello);
    assert_eq!(got.len(), net::HELLO_LEN);
    assert_eq!(u16::from_le_bytes([got[6], got[7]]), 2, "status: other version");
}

#[test]
fn a_server_that_never_greets_costs_no_more_than_the_deadline() {
    // The kernel accepts by itself; the handshake stays unanswered.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let nid = format!("{}@tcp0", deaf.local_addr().expect("bound"));
    let fabric = Fabric::new(None);
    let peer = fabric.peer_at(&nid, T);
    let begin = Instant::now();
    let got = call(&*peer, QUICK, Duration::from_millis(200));
    assert!(matches!(got, Err(NetError::NotSent { .. })), "no request has left: {got:?}");
    assert!(begin.elapsed() < Duration::from_millis(600));
    std::thread::sleep(Duration::from_millis(30));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&*peer));
        std::thread::sleep(Duration::from_millis(50));
        let begin = Instant::now();
        fabric.abort();
        assert!(matches!(waiting.join().expect("no panic"), Err(NetError::NotSent { .. })));
        assert!(begin.elapsed() < Duration::from_millis(1200));
    });
}

#[test]
fn a_panicking_service_costs_its_connection_only() {
    struct Panics;
    impl net::Service for Panics {
        fn serve(&self, _: &Header, _: &[u8], _: &[u8], _: &mut net::Answer<'_>) {
            panic!("a bug in a service, as this test wants it");
        }
    }
    let (hub, echo) = (Hub::new(), Arc::new(Echo::default()));
    hub.add(T, echo.clone());
    hub.add(TargetId(12), Arc::new(Panics));
    let server = Server::listen("127.0.0.1:0", hub).expect("it listens");
    let fabric = Fabric::new(None);
    let got = ask(&*fabric.peer_at(&server.nid(), TargetId(12)));
    assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
    ask(&*fabric.peer_at(&server.nid(), T)).expect("others are served");
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_secs(1), "the lost thread is not waited for");
}

/// Not a benchmark: fails if a call in this process gains a contended lock, a copy or an allocation.
#[test]
fn a_local_call_is_cheap() {
    struct Nothing;
    impl net::Service for Nothing {
        fn serve(&self, _: &Header, _: &[u8], _: &[u8], _: &mut net::Answer<'_>) {}
    }
    let hub = Hub::new();
    hub.add(T, Arc::new(Nothing));
    let peer = Fabric::new(Some(hub)).peer(T).expect("here");
    let mut into = Buf::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let n = 100_000;
    let begin = Instant::now();
    for _ in 0..n {
        let mut call =
            Call { head: Header::default(), body: Vec::new(), bulk: &[], into: &mut into, back: 0, deadline };
        peer.call(&mut call).expect("an answer");
    }
    let each = begin.elapsed() / n;
    println!("a local call takes {each:?}");
    assert!(each < Duration::from_micros(5), "{each:?}");
}

#[test]
fn who_greets_and_sends_no_request_loses_its_place_soon() {
    let (_, server, _) = served();
    let mut s = TcpStream::connect(server.nid().replace("@tcp0", "")).expect("connected");
    s.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    s.write_all(&greeting()).expect("written");
    let begin = Instant::now();
    let mut got = Vec::new();
    s.read_to_end(&mut got).expect("closed, and not timed out");
    assert_eq!(got.len(), net::HELLO_LEN, "the greeting");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[test]
fn bodies_larger_than_one_step_arrive_whole() {
    let (_, server, fabric) = served();
    let peer = fabric.peer_at(&server.nid(), T);
    for len in [64 << 10, (64 << 10) + 1, 200_001, 4 << 20] {
        let body: Vec<u8> = (0..len).map(|i: usize| (i * 7) as u8 ^ (i >> 9) as u8).collect();
        let mut into = Buf::new();
        let head = Header { call: QUICK, ..Header::default() };
        let deadline = Instant::now() + Duration::from_secs(10);
        let got =
            peer.call(&mut Call { head, body: body.clone(), bulk: &[], into: &mut into, back: 0, deadline });
        let back = got.expect("an answer").1;
        assert!(back.iter().eq(body.iter().rev()), "{len}");
    }
}

#[test]
fn thousands_of_parked_requests_hold_no_worker() {
    let (hub, echo) = (Hub::new(), Arc::new(Echo::default()));
    hub.add(T, echo.clone());
    let limits = Limits { workers: 4, ..Limits::default() };
    let server = Server::listen_within("127.0.0.1:0", hub, limits, None).expect("it listens");
    let fabrics: Vec<_> = (0..4).map(|_| Fabric::new(None)).collect();
    let peers: Vec<_> = fabrics.iter().map(|fabric| fabric.peer_at(&server.nid(), T)).collect();
    let mut bufs: Vec<_> = (0..2000).map(|_| Buf::new()).collect();
    let mut calls = calls(&mut bufs, Duration::from_secs(60));
    let tickets: Vec<_> = calls
        .iter_mut()
        .enumerate()
        .map(|(n, call)| {
            call.head.call = PARKED;
            peers[n % 4].send_more(call).expect("sent")
        })
        .collect();
    echo.wait_for_parked(2000);
    ask(&*peers[0]).expect("a request beside them is served");
    let (workers, _) = server.load();
    assert!(workers <= 4, "{workers}");
    let parked = std::mem::take(&mut *echo.parked.lock());
    parked.into_iter().for_each(|later| later.answer(|answer| answer.body = b"done".to_vec()));
    for (n, (ticket, call)) in tickets.into_iter().zip(&mut calls).enumerate() {
        assert_eq!(peers[n % 4].receive(ticket, call).expect("an answer").1, b"done");
    }
}

#[test]
fn busy_workers_leave_pings_answered_and_requests_queued() {
    let (hub, echo) = (Hub::new(), Arc::new(Echo::default()));
    hub.add(T, echo);
    let limits = Limits { workers: 2, ..Limits::default() };
    let server = Server::listen_within("127.0.0.1:0", hub, limits, None).expect("it listens");
    let fabric = Fabric::new(None);
    // Silence on a lane would end its requests soon.
    fabric.set_dead_after(Duration::from_millis(200));
    let peer = fabric.peer_at(&server.nid(), T);
    std::thread::scope(|scope| {
        let slow: Vec<_> =
            (0..6).map(|_| scope.spawn(|| call(&*peer, SLOW + 600, Duration::from_secs(20)))).collect();
        for slow in slow {
            slow.join().expect("no panic").expect("an answer, although it waited for a worker");
        }
    });
}

/// Each ordinary worker serves a request that does not end before a letter of a mirror's member was answered.
#[test]
fn letters_between_members_are_answered_while_all_workers_are_blocked() {
    struct Blocked {
        waiting: std::sync::Mutex<u32>,
        changed: std::sync::Condvar,
        is_over: std::sync::atomic::AtomicBool,
    }
    impl net::Service for Blocked {
        fn serve(&self, head: &Header, _: &[u8], _: &[u8], answer: &mut net::Answer<'_>) {
            // A flush at the other member blocks as well.
            if matches!(head.call, QUICK | FlushLog::CALL) {
                let mut waiting = self.waiting.lock().expect("no panic");
                *waiting += 1;
                self.changed.notify_all();
                while !self.is_over.load(Ordering::SeqCst) {
                    waiting = self.changed.wait(waiting).expect("no panic");
                }
            }
            answer.body = b"done".to_vec();
        }
    }
    let (waiting, changed) = Default::default();
    let blocked = Arc::new(Blocked { waiting, changed, is_over: false.into() });
    let hub = Hub::new();
    hub.add(T, blocked.clone());
    let limits = Limits { workers: 4, ..Limits::default() };
    let server = Server::listen_within("127.0.0.1:0", hub, limits, None).expect("it listens");
    let peer = Fabric::new(None).peer_at(&server.nid(), T);
    let wait = Duration::from_secs(20);
    // Waits until so many requests are being served.
    let until = |n: u32| {
        let mut waiting = blocked.waiting.lock().expect("no panic");
        while *waiting < n {
            let (now, late) = blocked.changed.wait_timeout(waiting, wait).expect("no panic");
            assert!(!late.timed_out(), "{} of {n} requests are served", *now);
            waiting = now;
        }
        *waiting
    };
    std::thread::scope(|scope| {
        let ordinary: Vec<_> = (0..8).map(|_| scope.spawn(|| call(&*peer, QUICK, wait))).collect();
        assert_eq!(until(3), 3, "one worker receives");
        call(&*peer, Letters::CALL, wait).expect("a letter is answered beside them");
        // So many flushes that they take all workers of members.
        let flushes: Vec<_> = (0..40).map(|_| scope.spawn(|| call(&*peer, FlushLog::CALL, wait))).collect();
        let served = until(3 + 24);
        call(&*peer, Letters::CALL, wait).expect("a letter is answered beside flushes too");
        assert_eq!((served, *blocked.waiting.lock().expect("no panic")), (27, 27), "the others wait");
        blocked.is_over.store(true, Ordering::SeqCst);
        blocked.changed.notify_all();
        for asked in ordinary.into_iter().chain(flushes) {
            asked.join().expect("no panic").expect("an answer, although it waited for a worker");
        }
    });
}

/// A link that swallows everything: a listener that accepts one connection, answers its greeting and then nothing, and closes its door.
#[test]
fn a_host_that_vanishes_is_found_dead_soon() {
    let door = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let nid = format!("{}@tcp0", door.local_addr().expect("bound"));
    let held = std::thread::spawn(move || {
        let (mut stream, _) = door.accept().expect("a connection");
        let mut hello = [0; net::HELLO_LEN];
        stream.read_exact(&mut hello).expect("a greeting");
        let mut answer = net::Hello::new(net::HelloStatus::Welcome, NodeId(0), "vanishing".into());
        answer.frames = 4;
        stream.write_all(&answer.encode()).expect("written");
        // A backlog that is full drops the packets of a probe, as the network of a host without power does.
        let address = door.local_addr().expect("bound");
        let socket = socket2::Socket::from(door);
        socket.listen(0).expect("a short backlog");
        let waiting = TcpStream::connect(address);
        (stream, socket, waiting)
    });
    let fabric = Fabric::new(None);
    fabric.set_dead_after(Duration::from_millis(400));
    let peer = fabric.peer_at(&nid, T);
    let begin = Instant::now();
    let got = call(&*peer, QUICK, Duration::from_secs(30));
    assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
    assert!(got.expect_err("no answer").to_string().contains("its host has not answered"), "said why");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    drop(held.join());
}

/// The answers are longer than the sockets' buffers, and no thread reads them for a while.
#[test]
fn answers_that_wait_for_a_slow_reader_all_arrive() {
    struct Large;
    impl net::Service for Large {
        fn serve(&self, _: &Header, body: &[u8], _: &[u8], answer: &mut net::Answer<'_>) {
            answer.bulk.space(types::BULK_MAX).fill(body[0]);
        }
    }
    let hub = Hub::new();
    hub.add(T, Arc::new(Large));
    let server = Server::listen("127.0.0.1:0", hub).expect("it listens");
    let peer = Fabric::new(None).peer_at(&server.nid(), T);
    for _ in 0..3 {
        let mut bufs: Vec<_> = (0..96).map(|_| Buf::new()).collect();
        let mut calls = calls(&mut bufs, Duration::from_secs(30));
        let send = |(n, call): (usize, &mut Call<'_>)| {
            (call.body, call.back) = (vec![n as u8], types::BULK_MAX);
            peer.send_more(call).expect("sent")
        };
        let tickets: Vec<_> = calls.iter_mut().enumerate().map(send).collect();
        std::thread::sleep(Duration::from_millis(100));
        for (n, (ticket, call)) in tickets.into_iter().zip(&mut calls).enumerate() {
            peer.receive(ticket, call).expect("an answer");
            assert!(call.into.len() == types::BULK_MAX && call.into.iter().all(|b| *b == n as u8), "{n}");
        }
    }
}
