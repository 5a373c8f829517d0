//! net-N5: a process gets another certificate of its own while it has connections and requests under way.

mod site;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use net::conformance::{Echo, PARKED, QUICK, wait_until};
use net::notices::{Listener, Outbox, Taken};
use net::{Answer, Call, Fabric, Hub, Limits, Listening, NetError, Server, Service, rpc};
use parking_lot::Mutex;
use pki::{Reason, Role, Serial, Trust};
use types::Buf;
use wire::notice::{Listen, ModeChanged};
use wire::{Header, ReplyHead, Wire, encode_reply};

use site::{Site, T, ask, refusal};

/// Echoes, and keeps the serial of each request's sender.
#[derive(Default)]
struct Sees {
    serials: Mutex<Vec<Serial>>,
    echo: Echo,
}

impl Service for Sees {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.serials.lock().push(answer.sender().expect("it has a certificate").serial);
        self.echo.serve(head, body, bulk, answer);
    }
}

impl Sees {
    fn last(&self) -> Serial {
        *self.serials.lock().last().expect("a request")
    }
}

/// A server, and a client of it.
struct Pair {
    site: Site,
    server_trust: Arc<Trust>,
    client_trust: Arc<Trust>,
    server: Server,
    fabric: Arc<Fabric>,
}

impl Pair {
    fn with(service: Arc<dyn Service>) -> Pair {
        let mut site = Site::new();
        let (server_trust, client_trust) = (site.trust(Role::Server, "oss1"), site.trust(Role::Client, "c1"));
        let hub = Hub::new();
        hub.add(T, service);
        let server = Server::listen_within("127.0.0.1:0", hub, Limits::default(), Some(server_trust.clone()));
        let fabric = Fabric::with_trust(None, Some(client_trust.clone()));
        Pair { site, server_trust, client_trust, server: server.expect("it listens"), fabric }
    }

    fn serial(&self) -> Serial {
        self.client_trust.identity().serial
    }

    /// The client gets another certificate.
    fn renew(&mut self) {
        let before = self.serial();
        let name = "c1".parse().expect("a name");
        self.site.authority.issue(Role::Client, &name, 30, SystemTime::now()).expect("issued");
        let reload = self.client_trust.reload_if_changed();
        assert!(reload.change.is_some_and(|change| change.has_new_certificate), "{:?}", reload.fault);
        assert_ne!(self.serial(), before);
        self.fabric.retire_former();
    }

    /// The server hears that a certificate is revoked.
    fn revoke(&mut self, serial: Serial) {
        let which = serial.to_string();
        self.site.authority.revoke(&which, None, Reason::Superseded, SystemTime::now()).expect("revoked");
        let reload = self.server_trust.reload_if_changed();
        assert_eq!(reload.change.expect("a change").revoked, [serial]);
        self.server.recheck();
    }

    fn connections(&self) -> usize {
        self.server.load().1
    }
}

fn call(fabric: &Fabric, nid: &str, call: u16, bulk: &[u8]) -> Result<Vec<u8>, NetError> {
    let head = Header { call, bulk_len: bulk.len() as u32, ..Header::default() };
    let (mut into, deadline) = (Buf::new(), Instant::now() + Duration::from_secs(60));
    let mut call = Call { head, body: b"x".to_vec(), bulk, into: &mut into, back: bulk.len(), deadline };
    fabric.peer_at(nid, T).call(&mut call).map(|(_, body)| body)
}

#[test]
fn requests_under_way_end_well_and_the_next_one_has_the_new_certificate() {
    let sees = Arc::new(Sees::default());
    let mut pair = Pair::with(sees.clone());
    let (nid, fabric, former) = (pair.server.nid(), pair.fabric.clone(), pair.serial());
    let folder = pair.site.authority.node_dir(Role::Client, &"c1".parse().expect("a name"));
    let stale = Fabric::with_trust(None, Some(Trust::load(&folder).expect("a good folder")));
    std::thread::scope(|scope| {
        // Two lanes are busy, and one is idle.
        let parked: Vec<_> =
            (0..2).map(|_| scope.spawn(|| call(&fabric, &nid, PARKED, &[]).expect("an answer"))).collect();
        sees.echo.wait_for_parked(2);
        ask(&fabric, &nid).expect("an answer");
        assert_eq!((sees.last(), pair.connections()), (former, 3));

        pair.renew();
        wait_until("the idle connection is closed", || pair.connections() == 2);
        ask(&fabric, &nid).expect("an answer");
        assert_eq!((sees.last(), pair.connections()), (pair.serial(), 3));
        assert_eq!(fabric.stat()[0].under_way, 2, "what is under way on retired lanes is counted");

        for later in std::mem::take(&mut *sees.echo.parked.lock()) {
            later.answer(|answer| answer.body = b"late".to_vec());
        }
        parked.into_iter().for_each(|one| assert_eq!(one.join().expect("no panic"), b"late"));
    });
    wait_until("the former connections are closed", || pair.connections() == 1);
    pair.revoke(former);
    assert_eq!(pair.connections(), 1, "no connection is of the former certificate");
    ask(&fabric, &nid).expect("an answer");
    assert_eq!(pair.connections(), 1);
    let why = refusal(&stale, &nid);
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn no_request_of_many_threads_fails_while_certificates_are_renewed_and_revoked() {
    let sees = Arc::new(Sees::default());
    let mut pair = Pair::with(sees.clone());
    let (nid, fabric) = (pair.server.nid(), pair.fabric.clone());
    let (ends, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let bulk = vec![7; 100_000];
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (fabric, nid, ends, done, bulk) = (&fabric, &nid, &ends, &done, &bulk);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let bulk = if thread % 2 == 0 { &bulk[..] } else { &[] };
                    if let Err(e) = call(fabric, nid, QUICK, bulk) {
                        ends.store(true, Ordering::Relaxed);
                        panic!("a request failed: {e}");
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let go_on = |what| {
            let before = done.load(Ordering::Relaxed);
            let is_so = || done.load(Ordering::Relaxed) > before + 60 || ends.load(Ordering::Relaxed);
            wait_until(what, is_so);
        };
        for _ in 0..8 {
            go_on("requests before a renewal");
            let former = pair.serial();
            pair.renew();
            // All that was under way has ended by then, as six threads have made so many requests since.
            go_on("requests after a renewal");
            let fresh = pair.serial();
            wait_until("the former certificate is out of use", || {
                let serials = sees.serials.lock();
                serials.iter().rev().take(60).all(|serial| *serial == fresh)
            });
            pair.revoke(former);
        }
        ends.store(true, Ordering::Relaxed);
    });
    let fresh = pair.serial();
    ask(&fabric, &nid).expect("an answer");
    assert_eq!(sees.last(), fresh);
    assert!(pair.connections() <= 12, "8 lanes for short frames and 4 for bulk: {}", pair.connections());
}

/// A server with one outbox.
struct Tells(Arc<Outbox>);

impl Service for Tells {
    fn serve(&self, _: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        let reply = self.0.listen(&Listen::from_bytes(body).expect("a Listen"), answer).expect("a line");
        answer.body = encode_reply(&ReplyHead::done(Default::default(), Default::default()), Some(&reply));
    }
}

#[test]
fn a_line_is_closed_and_the_next_one_misses_no_notice() {
    let outbox = Outbox::new();
    let mut pair = Pair::with(Arc::new(Tells(outbox.clone())));
    let (taken, heard) = (Arc::new(Taken::default()), Arc::new(Mutex::new(Vec::new())));
    let listen = |pair: &Pair| -> Listening {
        let heard = heard.clone();
        let hear = move |_: &Header, body: &[u8]| {
            heard.lock().push(ModeChanged::from_bytes(body).expect("a notice").mode);
        };
        let listener = Listener::new(taken.clone(), Box::new(hear));
        let (request, mut into) = (taken.request(), Buf::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut call = rpc::prepare(Header::default(), &request, &[], &mut into, deadline);
        let peer = pair.fabric.peer_at(&pair.server.nid(), T);
        let (head, body, listening) = peer.listen(&mut call, listener.clone()).expect("it listens");
        let (_, _, reply) = rpc::read::<Listen>((head, body)).expect("an answer");
        listener.begin(&reply.expect("done"));
        listening
    };
    let first = listen(&pair);
    outbox.push(&ModeChanged { mode: 1 });
    wait_until("the first notice came", || heard.lock().len() == 1);
    pair.renew();
    assert!(!first.is_open(), "its listener sees that it is to listen anew");
    wait_until("the server sees the end", || !outbox.is_heard());
    outbox.push(&ModeChanged { mode: 2 });
    let second = listen(&pair);
    outbox.push(&ModeChanged { mode: 3 });
    wait_until("all came", || heard.lock().len() == 3);
    assert_eq!(*heard.lock(), [1, 2, 3]);
    // A change of other files ends nothing.
    pair.fabric.retire_former();
    assert!(second.is_open());
}
