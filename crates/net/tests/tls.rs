//! The conformance suite over TLS, and which ends are refused.

mod site;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use net::conformance::{Echo, QUICK, Rig, SLOW, check};
use net::{Answer, Call, Fabric, Hub, Limits, NetError, Server, Service, rpc};
use parking_lot::Mutex;
use pki::{Reason, Role, Trust};
use types::{Buf, Code};
use wire::Header;
use wire::fabric::{NetStat, NetTrace};

use site::{Site, T, ask, refusal};

fn listen(hub: Arc<Hub>, trust: Option<Arc<Trust>>) -> Server {
    Server::listen_within("127.0.0.1:0", hub, Limits::default(), trust).expect("it listens")
}

fn echo_server(trust: Option<Arc<Trust>>) -> Server {
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    listen(hub, trust)
}

#[test]
fn tls_conforms() {
    let mut site = Site::new();
    let (server_trust, client_trust) = (site.trust(Role::Server, "oss1"), site.trust(Role::Client, "c1"));
    check(&|| {
        let hub = Hub::new();
        let server = listen(hub.clone(), Some(server_trust.clone()));
        let (nid, fabric) = (server.nid(), Fabric::with_trust(None, Some(client_trust.clone())));
        let peer = {
            let fabric = fabric.clone();
            move |t| fabric.peer_at(&nid, t)
        };
        Rig { hub, fabric, peer: Box::new(peer), stop: Box::new(move || server.stop()) }
    });
}

#[test]
fn an_end_without_tls_or_of_another_cluster_is_refused_with_the_reason() {
    let (mut site, mut other) = (Site::new(), Site::new());
    let server = echo_server(Some(site.trust(Role::Server, "oss1")));
    let good = Fabric::with_trust(None, Some(site.trust(Role::Client, "c1")));
    ask(&good, &server.nid()).expect("an answer");
    // Without TLS on one of the two ends: both are told what to set.
    let why = refusal(&Fabric::new(None), &server.nid());
    assert!(why.contains("with TLS only") && why.contains("STRIA_TLS"), "{why}");
    let plain = echo_server(None);
    let why = refusal(&good, &plain.nid());
    assert!(why.contains("the server takes no TLS") && why.contains("set `tls`"), "{why}");
    ask(&Fabric::new(None), &plain.nid()).expect("a plain server goes on");
    // A certificate by another CA, though it names the same cluster.
    let foreign = Fabric::with_trust(None, Some(other.trust(Role::Client, "c1")));
    let why = refusal(&foreign, &server.nid());
    assert!(why.contains("certificate"), "{why}");
    ask(&good, &server.nid()).expect("others are not disturbed");
}

/// Tells the sender's role.
struct Tells(Mutex<Vec<Option<String>>>);

impl Service for Tells {
    fn serve(&self, _: &Header, _: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        self.0.lock().push(answer.peer().map(|peer| format!("{}/{}", peer.role, peer.node)));
        answer.body = b"told".to_vec();
    }
}

#[test]
fn a_service_knows_its_caller_by_the_certificate_also_when_the_session_is_resumed() {
    let mut site = Site::new();
    let (hub, tells) = (Hub::new(), Arc::new(Tells(Mutex::default())));
    hub.add(T, tells.clone());
    let server = listen(hub, Some(site.trust(Role::Server, "oss1")));
    let trust = site.trust(Role::Admin, "head");
    for _ in 0..3 {
        ask(&Fabric::with_trust(None, Some(trust.clone())), &server.nid()).expect("an answer");
    }
    assert_eq!(*tells.0.lock(), vec![Some("admin/head".to_string()); 3]);
}

#[test]
fn revocation_closes_open_connections_and_refuses_new_ones_and_spares_others() {
    let mut site = Site::new();
    let server_trust = site.trust(Role::Server, "oss1");
    let server = echo_server(Some(server_trust.clone()));
    let of = |site: &mut Site, node| Fabric::with_trust(None, Some(site.trust(Role::Client, node)));
    let (bad, good) = (of(&mut site, "c1"), of(&mut site, "c2"));
    for fabric in [&bad, &good] {
        ask(fabric, &server.nid()).expect("an answer");
    }
    assert_eq!(server.load().1, 2);
    site.authority.revoke("c1", None, Reason::Unspecified, SystemTime::now()).expect("revoked");
    let reload = server_trust.reload_if_changed();
    assert!(reload.fault.is_none(), "{:?}", reload.fault);
    assert_eq!(reload.change.expect("a change").revoked.len(), 1);
    server.recheck();
    assert_eq!(server.load().1, 1, "its connection was closed");
    let why = refusal(&bad, &server.nid());
    assert!(why.contains("certificate"), "{why}");
    ask(&good, &server.nid()).expect("others are not disturbed");
}

/// pki-R1: a client's or an administrator's host does not pass for a server, so no capability or name is sent to it.
#[test]
fn a_dialled_end_without_a_servers_certificate_gets_no_request() {
    let mut site = Site::new();
    let client = Fabric::with_trust(None, Some(site.trust(Role::Client, "c1")));
    for role in [Role::Client, Role::Admin, Role::Router] {
        let (hub, tells) = (Hub::new(), Arc::new(Tells(Mutex::default())));
        hub.add(T, tells.clone());
        let server = listen(hub, Some(site.trust(role, "c2")));
        let why = refusal(&client, &server.nid());
        assert!(why.contains(&format!("{role} c2 of alpha answers there")), "{why}");
        assert!(tells.0.lock().is_empty());
    }
}

/// A router asks for counters only.
#[test]
fn the_trace_of_frames_is_not_for_clients_and_routers() {
    let mut site = Site::new();
    let server = echo_server(Some(site.trust(Role::Server, "oss1")));
    let deadline = Instant::now() + Duration::from_secs(10);
    for (role, may) in
        [(Role::Server, true), (Role::Admin, true), (Role::Client, false), (Role::Router, false)]
    {
        let fabric = Fabric::with_trust(None, Some(site.trust(role, "n")));
        let peer = fabric.peer_at(&server.nid(), T);
        let mut into = Buf::new();
        let stat = rpc::call(&*peer, Header::default(), &NetStat {}, &[], &mut into, deadline);
        assert_eq!(stat.expect("answered").2.expect("the counters").connections, 1, "{role}");
        let trace = NetTrace { after: 0, max: 1 };
        let trace = rpc::call(&*peer, Header::default(), &trace, &[], &mut into, deadline);
        let trace = trace.expect("answered").2;
        assert_eq!(trace.is_ok(), may, "{role}");
        assert!(trace.err().is_none_or(|fault| fault.code == Code::Access));
        drop(peer);
        fabric.abort();
        while server.load().1 > 0 {
            std::thread::yield_now();
        }
    }
}

/// Forwards one connection to `to`, and keeps what its dialling end sends.
fn recorder(to: String) -> (String, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nid = format!("{}@tcp0", listener.local_addr().expect("bound"));
    let run = move || {
        let (mut from, _) = listener.accept().expect("a connection");
        let address = to.split('@').next().expect("an address").to_string();
        let mut to = TcpStream::connect(address).expect("the server answers");
        let (mut back_from, mut back_to) =
            (to.try_clone().expect("a copy"), from.try_clone().expect("a copy"));
        let back = std::thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(Shutdown::Both);
        });
        let (mut kept, mut some) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = from.read(&mut some) {
            kept.extend_from_slice(&some[..n]);
            if to.write_all(&some[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        back.join().expect("it does not panic");
        kept
    };
    (nid, std::thread::spawn(run))
}

/// All bytes of a connection, sent again by an end that has recorded them, carry nothing out: neither those of a whole handshake nor those
/// of a resumed session.
#[test]
fn recorded_bytes_of_a_client_are_refused_when_they_are_sent_again() {
    let mut site = Site::new();
    let (hub, tells) = (Hub::new(), Arc::new(Tells(Mutex::default())));
    hub.add(T, tells.clone());
    let server = listen(hub, Some(site.trust(Role::Server, "oss1")));
    let trust = site.trust(Role::Client, "c1");
    for time in 1..=2 {
        let (nid, recording) = recorder(server.nid());
        let fabric = Fabric::with_trust(None, Some(trust.clone()));
        ask(&fabric, &nid).expect("an answer");
        fabric.abort();
        drop(fabric);
        let bytes = recording.join().expect("it does not panic");
        assert!(bytes.len() > 1000, "a handshake, a greeting and a request");
        assert_eq!(tells.0.lock().len(), time);
        let mut again =
            TcpStream::connect(server.nid().split('@').next().expect("an address")).expect("connects");
        // The server may have closed before all was sent.
        let _ = again.write_all(&bytes);
        let mut answer = Vec::new();
        let _ = again.read_to_end(&mut answer);
        assert_eq!(tells.0.lock().len(), time, "no request was carried out");
        // The end of the handshake by these keys: an alert, and no greeting, which would be 512 bytes and more.
        while server.load().1 > 0 {
            std::thread::yield_now();
        }
    }
}

/// Large frames both ways from many threads: records and frames are cut at other places, and the socket is full at times.
#[test]
fn large_frames_of_many_threads_arrive_whole() {
    let mut site = Site::new();
    let server = echo_server(Some(site.trust(Role::Server, "oss1")));
    let fabric = Fabric::with_trust(None, Some(site.trust(Role::Client, "c1")));
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let (fabric, nid) = (&fabric, server.nid());
            scope.spawn(move || {
                for n in 0..12usize {
                    let bulk = (0..(n * 91_573) % types::BULK_MAX)
                        .map(|i| (i * 31 + n) as u8 ^ thread)
                        .collect::<Vec<_>>();
                    let head = Header { call: QUICK, ..Header::default() };
                    let (mut into, deadline) = (Buf::new(), Instant::now() + Duration::from_secs(60));
                    let body = vec![thread; n * 1000];
                    let back = bulk.len();
                    let mut call =
                        Call { head, body: body.clone(), bulk: &bulk, into: &mut into, back, deadline };
                    fabric.peer_at(&nid, T).call(&mut call).expect("an answer");
                    assert!(into.iter().rev().eq(&bulk), "the echo of {} bytes", bulk.len());
                }
            });
        }
    });
}

/// The client gives a large answer up, and it arrives later: the connection goes on. It once kept a thread busy for ever, and the node's lock.
#[test]
fn a_large_answer_that_comes_too_late_is_dropped() {
    const LATE_MS: u16 = 300;
    let mut site = Site::new();
    let server = echo_server(Some(site.trust(Role::Server, "oss1")));
    let fabric = Fabric::with_trust(None, Some(site.trust(Role::Client, "c1")));
    let peer = fabric.peer_at(&server.nid(), T);
    let bulk = vec![7u8; types::BULK_MAX];
    let call = |call: u16, wait: Duration| {
        let head = Header { call, bulk_len: bulk.len() as u32, ..Header::default() };
        let (mut into, deadline) = (Buf::new(), Instant::now() + wait);
        let (body, back) = (b"x".to_vec(), bulk.len());
        let mut call = Call { head, body, bulk: &bulk, into: &mut into, back, deadline };
        peer.call(&mut call).map(drop)
    };
    call(QUICK, Duration::from_secs(10)).expect("an answer");
    let late = call(SLOW + LATE_MS, Duration::from_millis(100));
    assert!(matches!(late, Err(NetError::NoAnswer { .. })), "{late:?}");
    let (told, done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40 {
                call(QUICK, Duration::from_secs(10)).expect("an answer");
                std::thread::sleep(Duration::from_millis(10));
            }
            told.send(()).expect("the test waits");
        });
        if done.recv_timeout(Duration::from_secs(60)).is_err() {
            eprintln!("a request after the late answer does not end");
            std::process::exit(1);
        }
    });
}
