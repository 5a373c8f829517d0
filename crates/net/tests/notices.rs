//! Notices: numbered, bounded, acknowledged, and sent again to a listener that comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::conformance::wait_until;
use net::fault::Proxy;
use net::notices::{Listener, Outbox, Taken};
use net::{Answer, Fabric, Hub, Listening, Peer, Server, Service, rpc};
use parking_lot::Mutex;
use types::{Buf, TargetId};
use wire::notice::{Listen, LookAround, ModeChanged};
use wire::{Header, ReplyHead, Request, Wire, encode_reply};

const T: TargetId = TargetId(11);

/// A server with one outbox.
struct Box1 {
    outbox: Mutex<Arc<Outbox>>,
}

impl Service for Box1 {
    fn serve(&self, _: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        let request = Listen::from_bytes(body).expect("a Listen");
        let outbox = self.outbox.lock().clone();
        let reply = outbox.listen(&request, answer).expect("a line");
        answer.body = encode_reply(&ReplyHead::done(Default::default(), Default::default()), Some(&reply));
    }
}

/// A listener, and for each notice its call and first body field.
#[derive(Default)]
struct Ear {
    taken: Arc<Taken>,
    heard: Arc<Mutex<Vec<(u16, u32)>>>,
}

impl Ear {
    fn listen(&self, peer: &dyn Peer) -> (Listening, bool) {
        let heard = self.heard.clone();
        let hear = move |head: &Header, body: &[u8]| {
            let mode = ModeChanged::from_bytes(body).map_or(0, |m| m.mode);
            heard.lock().push((head.call, mode));
        };
        let listener = Listener::new(self.taken.clone(), Box::new(hear));
        let (request, mut into) = (self.taken.request(), Buf::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut call = rpc::prepare(Header::default(), &request, &[], &mut into, deadline);
        let (head, body, listening) = peer.listen(&mut call, listener.clone()).expect("it listens");
        let (_, _, reply) = rpc::read::<Listen>((head, body)).expect("an answer");
        (listening, listener.begin(&reply.expect("done")).looks_around)
    }
    fn modes(&self) -> Vec<u32> {
        self.heard.lock().iter().map(|(_, mode)| *mode).collect()
    }
}

fn served() -> (Arc<Box1>, Server) {
    let (hub, service) = (Hub::new(), Arc::new(Box1 { outbox: Mutex::new(Outbox::new()) }));
    hub.add(T, service.clone());
    (service, Server::listen("127.0.0.1:0", hub).expect("it listens"))
}

fn push(service: &Box1, modes: std::ops::Range<u32>) {
    let outbox = service.outbox.lock().clone();
    modes.for_each(|mode| _ = outbox.push(&ModeChanged { mode }));
}

#[test]
fn notices_before_the_listener_and_while_it_is_away_arrive_once_and_in_order() {
    let (service, server) = served();
    let proxy = Proxy::to(&server.nid()).expect("a proxy");
    let fabric = Fabric::new(None);
    let (peer, ear) = (fabric.peer_at(&proxy.nid(), T), Ear::default());
    push(&service, 0..10);
    let (listening, looks) = ear.listen(&*peer);
    assert!(looks, "the first outbox is new");
    push(&service, 10..20);
    wait_until("twenty came", || ear.modes().len() == 20);
    for round in 2..6u32 {
        proxy.cut();
        push(&service, round * 10..round * 10 + 5);
        proxy.heal();
        let (_listening, looks) = ear.listen(&*peer);
        assert!(!looks, "nothing was lost");
        push(&service, round * 10 + 5..round * 10 + 10);
        wait_until("all came", || ear.modes().len() as u32 == round * 10 + 10);
    }
    drop(listening);
    assert_eq!(ear.modes(), (0..60).collect::<Vec<_>>());
    let outbox = service.outbox.lock().clone();
    assert!(ear.taken.has_all(outbox.id(), 60) && outbox.last() == 60);
}

#[test]
fn an_outbox_that_is_full_says_look_around() {
    let (service, server) = served();
    let fabric = Fabric::new(None);
    let (peer, ear) = (fabric.peer_at(&server.nid(), T), Ear::default());
    push(&service, 0..1000);
    let (_listening, looks) = ear.listen(&*peer);
    assert!(looks);
    wait_until("the last came", || ear.modes().last() == Some(&999));
    let first = ear.heard.lock()[0];
    assert_eq!(first.0, LookAround::CALL, "what was dropped is told");
    assert!(ear.modes().len() <= 256);
}

#[test]
fn after_a_restart_the_listener_looks_around_and_takes_the_new_notices() {
    let (service, server) = served();
    let fabric = Fabric::new(None);
    let (peer, ear) = (fabric.peer_at(&server.nid(), T), Ear::default());
    let (_first, _) = ear.listen(&*peer);
    push(&service, 0..7);
    wait_until("seven came", || ear.modes().len() == 7);
    *service.outbox.lock() = Outbox::new();
    push(&service, 100..102);
    assert!(!ear.taken.has_all(service.outbox.lock().id(), 0), "the next keep-alive shows it");
    let (_second, looks) = ear.listen(&*peer);
    assert!(looks, "notices of the old outbox may be lost");
    push(&service, 102..104);
    wait_until("the new ones came", || ear.modes().len() == 11);
    assert_eq!(ear.modes()[7..], [100, 101, 102, 103]);
}

#[test]
fn an_acknowledged_notice_is_dropped_and_one_that_is_not_comes_again() {
    let (service, server) = served();
    let fabric = Fabric::new(None);
    let (peer, ear) = (fabric.peer_at(&server.nid(), T), Ear::default());
    let (first, _) = ear.listen(&*peer);
    push(&service, 0..300);
    // More than an outbox keeps, so they were acknowledged meanwhile.
    wait_until("all came", || {
        ear.modes().len() == 300 || ear.heard.lock().iter().any(|h| h.0 == LookAround::CALL)
    });
    drop(first);
    wait_until("the server sees the end", || !service.outbox.lock().is_heard());
    push(&service, 300..302);
    // Another client of the same session that has taken nothing gets what was not acknowledged.
    let other = Ear::default();
    let (_second, looks) = other.listen(&*peer);
    assert!(looks);
    wait_until("two came", || other.modes().ends_with(&[300, 301]));
}

/// A wait for notices ends once the listener has taken them, or what stands for them; not before.
#[test]
fn a_wait_ends_with_the_acknowledgement() {
    let (service, server) = served();
    let soon = || Instant::now() + Duration::from_millis(20);
    let late = || Instant::now() + Duration::from_secs(20);
    let outbox = service.outbox.lock().clone();
    let first = outbox.push(&ModeChanged { mode: 1 });
    assert!(!outbox.wait_taken(first, soon()), "no listener is there");
    // So many that they are dropped: what stands for them was not taken either.
    push(&service, 0..1000);
    assert!(!outbox.wait_taken(first, soon()));
    let ear = Ear::default();
    let fabric = Fabric::new(None);
    let peer = fabric.peer_at(&server.nid(), T);
    let (line, _) = ear.listen(&*peer);
    // Those that came before the answer are acknowledged by the next Listen.
    let (_line, _) = ear.listen(&*peer);
    drop(line);
    assert!(outbox.wait_taken(first, late()));
    let next = outbox.push(&ModeChanged { mode: 7 });
    assert!(outbox.wait_taken(next, late()));
    assert_eq!(ear.modes().last(), Some(&7));
}

/// Notices that come before the answer to `Listen` are acknowledged by another one.
#[test]
fn a_listener_is_told_that_early_notices_were_not_acknowledged() {
    let taken: Arc<Taken> = Arc::default();
    let listener = Listener::new(taken.clone(), Box::new(|_, _| {}));
    let mut into = Buf::new();
    let head = Header { call: ModeChanged::CALL, request: 1, ..Header::default() };
    let mut answer = Answer::new(head, &mut into);
    listener.serve(&head, &ModeChanged { mode: 3 }.to_bytes(), &[], &mut answer);
    assert_eq!(answer.body, wire::notice::Taken { taken: 0 }.to_bytes());
    let begun = listener.begin(&wire::notice::ListenReply { outbox: 9, next: 1 });
    assert!(begun.owes_taken && begun.looks_around);
    assert_eq!(taken.request(), Listen { outbox: 9, taken: 1 });
}
