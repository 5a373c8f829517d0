//! Circuits through routers: the conformance suite, chains, failover, refusals and drain.

mod site;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::conformance::{Echo, QUICK, Rig, check, wait_until};
use net::router::{Policy, Router, RouterSettings};
use net::routes::parse_route;
use net::{Call, Fabric, HELLO_LEN, Hello, HelloStatus, Hub, Kind, Limits, NetError, Server};
use pki::{Reason, Role, Trust};
use types::{Buf, FsId, NodeId};
use wire::Header;
use wire::map::Route;

use site::{Site, T, ask, refusal};

/// Allows every NID but those with this text.
struct AllBut(&'static str);

impl Policy for AllBut {
    fn judge(&self, cluster: Option<&str>, nid: &str, fs: FsId) -> Result<String, String> {
        match nid.contains(self.0) {
            true => Err("it is in no map".into()),
            false => Ok(format!("{}-{fs}", cluster.unwrap_or("plain"))),
        }
    }
}

fn settings(nets: &[&str], trusts: &[Arc<Trust>]) -> RouterSettings {
    RouterSettings {
        listen: nets.iter().map(|net| format!("127.0.0.1:0@{net}")).collect(),
        trusts: trusts.to_vec(),
        allows_plain: trusts.is_empty(),
        circuits_max: 1000,
        policy: Arc::new(AllBut("forbidden")),
    }
}

fn router(nets: &[&str], trusts: &[Arc<Trust>]) -> Router {
    Router::start(settings(nets, trusts)).expect("it listens")
}

fn route(to: &str, router: &Router) -> Route {
    parse_route(&format!("{to} via {}", router.nids()[0])).expect("a route")
}

fn echo_on(net: &str, trust: Option<Arc<Trust>>) -> Server {
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    Server::listen_within(&format!("127.0.0.1:0@{net}"), hub, Limits::default(), trust).expect("it listens")
}

fn fabric(trust: Option<Arc<Trust>>, routes: Vec<Route>) -> Arc<Fabric> {
    let fabric = Fabric::with_trust(None, trust);
    fabric.set_nets(vec!["tcp0".into()], routes);
    fabric
}

/// Router and fabric live as long as the rig.
fn rig(trusts: Option<[Arc<Trust>; 3]>) -> Rig {
    let [server, client, middle] = match trusts {
        Some(trusts) => trusts.map(Some),
        None => [None, None, None],
    };
    let hub = Hub::new();
    let server = Server::listen_within("127.0.0.1:0@tcp1", hub.clone(), Limits::default(), server);
    let server = server.expect("it listens");
    let router = router(&["tcp0", "tcp1"], &Vec::from_iter(middle));
    let (nid, fabric) = (server.nid(), fabric(client, vec![route("tcp1", &router)]));
    let peer = {
        let fabric = fabric.clone();
        move |t| fabric.peer_at(&nid, t)
    };
    let stop = move || {
        server.stop();
        router.stop();
    };
    Rig { hub, fabric, peer: Box::new(peer), stop: Box::new(stop) }
}

#[test]
fn circuits_conform() {
    check(&|| rig(None));
}

#[test]
fn circuits_conform_over_tls() {
    let mut site = Site::new();
    let trusts =
        [site.trust(Role::Server, "oss1"), site.trust(Role::Client, "c1"), site.trust(Role::Router, "r1")];
    check(&|| rig(Some(trusts.clone())));
}

#[test]
fn a_chain_of_routers_is_greeted_hop_by_hop_and_each_counts() {
    let mut site = Site::new();
    let (first, second) = (site.trust(Role::Router, "r1"), site.trust(Role::Router, "r2"));
    let server = echo_on("tcp2", Some(site.trust(Role::Server, "oss1")));
    let (first, second) = (router(&["tcp0", "tcp1"], &[first]), router(&["tcp1", "tcp2"], &[second]));
    let routes = vec![route("tcp1", &first), route("tcp2", &second)];
    let fabric = fabric(Some(site.trust(Role::Client, "c1")), routes);
    fabric.set_fs(FsId(7));
    ask(&fabric, &server.nid()).expect("an answer");
    for (router, from, to) in [(&first, "tcp0", "tcp1"), (&second, "tcp1", "tcp2")] {
        let stat = router.stat();
        let [row] = &stat.rows[..] else { panic!("one row: {:?}", stat.rows) };
        assert_eq!((row.from.as_str(), row.to.as_str()), (from, to));
        assert_eq!((row.fs.as_str(), row.peer.as_str(), row.circuits), ("alpha-7", "c1", 1));
        assert!(row.bytes_out > 512 && row.bytes_back > 512, "{row:?}");
        assert_eq!((stat.circuits, stat.refused, stat.failed), (1, 0, 0));
    }
}

#[test]
fn another_router_is_taken_when_one_dies_and_load_is_spread_over_both() {
    let server = echo_on("tcp1", None);
    let (one, two) = (router(&["tcp0", "tcp1"], &[]), router(&["tcp0", "tcp1"], &[]));
    let routes = vec![route("tcp1", &one), route("tcp1", &two)];
    let ask_anew = || ask(&fabric(None, routes.clone()), &server.nid());
    let one_client = fabric(None, routes.clone());
    let opened = |router: &Router| router.stat().rows.iter().map(|row| row.opened).sum::<u64>();
    // Several callers at once open several lanes, which take turns among the routers.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| drop(ask(&one_client, &server.nid()).expect("an answer"))));
        }
    });
    wait_until("both routers have circuits", || {
        ask(&one_client, &server.nid()).expect("an answer");
        opened(&one) > 0 && (opened(&two) > 0 || opened(&one) == 1)
    });
    one.stop();
    for _ in 0..2 {
        ask_anew().expect("the other router");
    }
    // The broken lane is noticed before its next use, or its request ends as unknown once.
    let again = ask(&one_client, &server.nid()).or_else(|_| ask(&one_client, &server.nid()));
    again.expect("the other router");
    two.stop();
    let why = refusal(&fabric(None, routes.clone()), &server.nid());
    assert!(why.matches("refused").count() == 2, "each router is named with its reason: {why}");
}

#[test]
fn bytes_in_large_frames_arrive_as_they_were_sent() {
    let server = echo_on("tcp1", None);
    let router = router(&["tcp0", "tcp1"], &[]);
    let fabric = fabric(None, vec![route("tcp1", &router)]);
    let bulk: Vec<u8> =
        (0..types::BULK_MAX as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let nid = server.nid();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..16 {
                    let head = Header { call: QUICK, bulk_len: bulk.len() as u32, ..Header::default() };
                    let (mut into, deadline) = (Buf::new(), Instant::now() + Duration::from_secs(20));
                    let back = bulk.len();
                    let mut call =
                        Call { head, body: b"x".to_vec(), bulk: &bulk, into: &mut into, back, deadline };
                    fabric.peer_at(&nid, T).call(&mut call).expect("an answer");
                    assert!(into.iter().eq(bulk.iter().rev()), "the answer has the bytes, reversed");
                }
            });
        }
    });
    let moved: u64 = router.stat().rows.iter().map(|row| row.bytes_out.min(row.bytes_back)).sum();
    assert!(moved >= 64 * bulk.len() as u64);
}

#[test]
fn a_router_refuses_what_its_policy_and_its_nets_do_not_allow() {
    let router = router(&["tcp0", "tcp1"], &[]);
    let client = fabric(
        None,
        vec![
            route("tcp1", &router),
            parse_route(&format!("tcp5 via {}", router.nids()[0])).expect("a route"),
        ],
    );
    let why = refusal(&client, "forbidden:1@tcp1");
    assert!(why.contains("it is in no map"), "{why}");
    let why = refusal(&client, "127.0.0.1:1@tcp5");
    assert!(why.contains("it is not on net tcp5"), "{why}");
    let why = refusal(&client, "127.0.0.1:1@tcp9");
    assert!(why.contains("no route leads to net tcp9"), "{why}");
    // A dead host behind the router is definite: nothing was sent.
    assert!(matches!(ask(&client, "127.0.0.1:1@tcp1"), Err(NetError::NotSent { .. })));
    assert_eq!((router.stat().circuits, router.stat().refused, router.stat().failed), (0, 3, 1));
}

#[test]
fn strangers_get_no_circuit() {
    let (mut site, mut other) = (Site::new(), Site::new());
    let server = echo_on("tcp1", Some(site.trust(Role::Server, "oss1")));
    let router = router(&["tcp0", "tcp1"], &[site.trust(Role::Router, "r1")]);
    let to = |trust| fabric(trust, vec![route("tcp1", &router)]);
    assert!(ask(&to(None), &server.nid()).is_err(), "without TLS");
    let why = refusal(&to(Some(other.trust(Role::Client, "c1"))), &server.nid());
    assert!(why.contains("certificate"), "of another cluster: {why}");
    // A host that poses as a router sees no byte of a frame.
    let posing =
        Router::start(settings(&["tcp0", "tcp1"], &[site.trust(Role::Server, "oss2")])).expect("listens");
    let misled = fabric(Some(site.trust(Role::Client, "c2")), vec![route("tcp1", &posing)]);
    let why = refusal(&misled, &server.nid());
    assert!(why.contains("only a router's certificate may"), "{why}");
    ask(&to(Some(site.trust(Role::Client, "c1"))), &server.nid()).expect("others are not disturbed");
}

#[test]
fn one_router_serves_several_clusters_and_keeps_them_apart() {
    let (mut alpha, mut beta) = (Site::new(), Site::named("beta"));
    let router =
        router(&["tcp0", "tcp1"], &[alpha.trust(Role::Router, "r1"), beta.trust(Role::Router, "r1")]);
    let mut servers = Vec::new();
    for site in [&mut alpha, &mut beta] {
        let server = echo_on("tcp1", Some(site.trust(Role::Server, "oss1")));
        let client = fabric(Some(site.trust(Role::Client, "c1")), vec![route("tcp1", &router)]);
        ask(&client, &server.nid()).expect("an answer");
        servers.push((server, client));
    }
    let why = refusal(&servers[0].1, &servers[1].0.nid());
    assert!(why.contains("certificate"), "a client of alpha at a server of beta: {why}");
    let stat = router.stat();
    let names: Vec<&str> = stat.rows.iter().map(|row| row.fs.as_str()).collect();
    assert_eq!(names, ["alpha-0", "beta-0"]);
}

#[test]
fn revocation_ends_the_circuits_of_that_dialler_only() {
    let mut site = Site::new();
    let trust = site.trust(Role::Router, "r1");
    let server = echo_on("tcp1", Some(site.trust(Role::Server, "oss1")));
    let router = router(&["tcp0", "tcp1"], std::slice::from_ref(&trust));
    let of =
        |site: &mut Site, node| fabric(Some(site.trust(Role::Client, node)), vec![route("tcp1", &router)]);
    let (bad, good) = (of(&mut site, "c1"), of(&mut site, "c2"));
    for client in [&bad, &good] {
        ask(client, &server.nid()).expect("an answer");
    }
    site.authority.revoke("c1", None, Reason::Unspecified, std::time::SystemTime::now()).expect("revoked");
    assert!(trust.reload_if_changed().change.is_some());
    router.recheck();
    wait_until("one circuit is left", || router.stat().circuits == 1);
    let why = refusal(&bad, &server.nid());
    assert!(why.contains("certificate") || why.contains("revoked"), "{why}");
    ask(&good, &server.nid()).expect("others are not disturbed");
}

#[test]
fn a_drained_router_ends_idle_circuits_and_takes_no_new_ones() {
    let server = echo_on("tcp1", None);
    let router = router(&["tcp0", "tcp1"], &[]);
    let client = fabric(None, vec![route("tcp1", &router)]);
    ask(&client, &server.nid()).expect("an answer");
    router.drain(Some(Duration::from_secs(60)));
    let why = refusal(&fabric(None, vec![route("tcp1", &router)]), &server.nid());
    assert!(why.contains("drained"), "{why}");
    wait_until("no circuit is left", || router.stat().circuits == 0);
    router.drain(None);
    ask(&client, &server.nid()).expect("it takes circuits again");
}

/// net-G3: one circuit whose reader sleeps, beside others.
#[test]
fn a_reader_that_takes_nothing_holds_up_its_own_circuit_only() {
    let server = echo_on("tcp1", None);
    let router = router(&["tcp0", "tcp1"], &[]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("it listens");
    let sink = listener.local_addr().expect("an address");
    // The greetings of a circuit to a host that accepts and never reads.
    let address = router.nids()[0].split('@').next().expect("an address").to_string();
    let mut socket = TcpStream::connect(address).expect("the router");
    let mut hello = Hello::new(HelloStatus::Welcome, NodeId(0), format!("{sink}@tcp1"));
    hello.lane = Kind::Circuit;
    socket.write_all(&hello.encode()).expect("sent");
    let mut answer = [0u8; HELLO_LEN];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(Hello::decode(&answer).expect("a greeting").status, HelloStatus::Welcome);
    let (_held, _) = listener.accept().expect("a circuit");
    socket.set_nonblocking(true).expect("set");
    let (mut sent, mut begin) = (0, Instant::now());
    // Until nothing more is taken.
    while begin.elapsed() < Duration::from_millis(500) {
        if let Ok(n) = socket.write(&[7; 65536]) {
            sent += n;
            begin = Instant::now();
        }
    }
    assert!(sent < 64 << 20, "what is not read is not buffered: {sent} bytes");
    let client = fabric(None, vec![route("tcp1", &router)]);
    for _ in 0..100 {
        ask(&client, &server.nid()).expect("others are not held up");
    }
}

#[test]
fn bytes_of_no_greeting_end_the_connection() {
    let router = router(&["tcp0", "tcp1"], &[]);
    let address = router.nids()[0].split('@').next().expect("an address").to_string();
    for junk in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5], &[0; 600]] {
        let mut socket = TcpStream::connect(&address).expect("the router");
        socket.write_all(junk).expect("sent");
        let mut rest = Vec::new();
        // Reset or closed: no circuit.
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.len() < HELLO_LEN, "no greeting answers junk");
    }
    wait_until("all were refused", || router.stat().refused == 3);
}
