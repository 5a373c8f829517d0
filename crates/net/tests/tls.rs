//! The conformance suite over TLS, and which ends are refused.

mod site;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use net::conformance::{Echo, QUICK, Rig, check};
use net::{Answer, Call, Fabric, Hub, Limits, NetError, Server, Service};
use parking_lot::Mutex;
use pki::{Reason, Role, Trust};
use types::{Buf, TargetId};
use wire::Header;

use site::Site;

const T: TargetId = TargetId(11);

fn listen(hub: Arc<Hub>, trust: Option<Arc<Trust>>) -> Server {
    Server::listen_within("127.0.0.1:0", hub, Limits::default(), trust).expect("it listens")
}

fn echo_server(trust: Option<Arc<Trust>>) -> Server {
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    listen(hub, trust)
}

fn ask(fabric: &Fabric, nid: &str) -> Result<Vec<u8>, NetError> {
    let head = Header { call: QUICK, ..Header::default() };
    let (mut into, deadline) = (Buf::new(), Instant::now() + Duration::from_secs(10));
    let body = b"abc".to_vec();
    let mut call = Call { head, body, bulk: &[], into: &mut into, back: 0, deadline };
    fabric.peer_at(nid, T).call(&mut call).map(|(_, body)| body)
}

fn refusal(fabric: &Fabric, nid: &str) -> String {
    ask(fabric, nid).expect_err("refused").to_string()
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
    // Without TLS.
    assert!(refusal(&Fabric::new(None), &server.nid()).contains("greeting"), "plain to TLS");
    let plain = echo_server(None);
    let why = refusal(&good, &plain.nid());
    assert!(why.contains("TLS") || why.contains("closed"), "{why}");
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
