//! The promises of every transport, as one function that each implementation calls with a maker of itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{BULK_MAX, Buf, Epoch, FsId, SessionId, TargetId};
use wire::{Flags, Header};

use crate::{Answer, Call, Fabric, Hub, Later, Line, Listening, NetError, Peer, Service};

/// A server and a client that reaches it, freshly made.
pub struct Rig {
    pub hub: Arc<Hub>,
    pub fabric: Arc<Fabric>,
    /// Gives the client's peer for a target.
    pub peer: Box<dyn Fn(TargetId) -> Arc<dyn Peer>>,
    /// Stops the server; for `local`, removes its services.
    pub stop: Box<dyn FnOnce()>,
}

/// A service that returns body and bulk reversed, so that an accidental echo is noticed. Calls from
/// `SLOW` on sleep for the milliseconds above it.
#[derive(Default)]
pub struct Echo {
    pub served: AtomicU64,
    /// Requests of call `PARKED`, whose answers are the test's to give.
    pub parked: Mutex<Vec<Later>>,
    /// Lines of call `LISTEN`, and the answers that came over them.
    pub lines: Mutex<Vec<Line>>,
    pub answers: Arc<Mutex<Numbered>>,
}

/// Request ids and bodies.
pub type Numbered = Vec<(u64, Vec<u8>)>;

/// Call number of a request that begins a line.
pub const LISTEN: u16 = 0x7003;

/// Call number of a request that is parked.
pub const PARKED: u16 = 0x7002;
/// Call number of a request that is answered at once.
pub const QUICK: u16 = 0x7001;
/// Call number of a request that is answered after 0 ms; add the milliseconds.
pub const SLOW: u16 = 0x8000;

impl Service for Echo {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.served.fetch_add(1, Ordering::SeqCst);
        if head.call == PARKED {
            self.parked.lock().extend(answer.later());
            return;
        }
        if head.call == LISTEN {
            let answers = self.answers.clone();
            let line = answer.line(Arc::new(move |head: &Header, body: &[u8]| {
                answers.lock().push((head.request, body.to_vec()));
            }));
            self.lines.lock().extend(line);
        }
        if let Some(ms) = head.call.checked_sub(SLOW) {
            std::thread::sleep(Duration::from_millis(ms as u64));
        }
        assert_eq!(head.body_len as usize, body.len());
        assert_eq!(head.bulk_len as usize, bulk.len());
        answer.head.epoch = Epoch(head.epoch.0 + 1);
        answer.body = body.iter().rev().copied().collect();
        answer.bulk.space(bulk.len()).copy_from_slice(bulk);
        answer.bulk.reverse();
    }
}

impl Echo {
    /// Waits until so many requests are parked.
    pub fn wait_for_parked(&self, n: usize) {
        let until = soon();
        while self.parked.lock().len() < n {
            assert!(Instant::now() < until, "{} of {n} are parked", self.parked.lock().len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

const A: TargetId = TargetId(11);
const B: TargetId = TargetId(12);

/// Runs all of it. `make` is called once per story.
pub fn check(make: &dyn Fn() -> Rig) {
    bodies_and_bulk_of_all_sizes_come_back(&served(make));
    headers_are_filled(&served(make));
    many_threads_do_not_mix_answers(&served(make));
    two_targets_answer_in_either_order(&served(make));
    answers_overtake_each_other(&served(make));
    parked_requests_are_answered_in_any_order(make());
    a_parked_request_that_is_dropped_ends(make());
    requests_go_both_ways(make());
    a_line_ends_with_either_end(make());
    one_thread_may_hold_many_requests(&served(make));
    deadlines_are_kept(&served(make));
    unknown_targets_are_definite(&served(make));
    too_large_is_definite(&served(make));
    a_gone_server_is_definite_at_once(served(make));
    an_abort_ends_everything(served(make));
}

fn served(make: &dyn Fn() -> Rig) -> Rig {
    let rig = make();
    rig.hub.add(A, Arc::new(Echo::default()));
    rig.hub.add(B, Arc::new(Echo::default()));
    rig
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 7) as u8 ^ (i >> 8) as u8 ^ seed).collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn request<'a>(call: u16, body: &[u8], bulk: &'a [u8], into: &'a mut Buf) -> Call<'a> {
    let head = Header { call, fs: FsId(3), session: SessionId(9), epoch: Epoch(4), ..Header::default() };
    Call { head, body: body.to_vec(), bulk, into, back: bulk.len(), deadline: soon() }
}

/// One echo, checked.
fn echo(peer: &dyn Peer, body: &[u8], bulk: &[u8]) {
    let mut into = Buf::new();
    into.set(b"leftovers of an earlier use");
    let (head, got) = peer.call(&mut request(QUICK, body, bulk, &mut into)).expect("an answer");
    assert!(got.iter().eq(body.iter().rev()), "body of {} bytes", body.len());
    assert!(into.iter().eq(bulk.iter().rev()), "bulk of {} bytes", bulk.len());
    assert_eq!((head.body_len as usize, head.bulk_len as usize), (body.len(), bulk.len()));
}

fn bodies_and_bulk_of_all_sizes_come_back(rig: &Rig) {
    let peer = (rig.peer)(A);
    for n in [0, 1, 127, 128, 3967, 3968, 3969, 4096, 65_536, 70_001] {
        for m in [0, 1, 4095, 4096, 65_537, BULK_MAX] {
            echo(&*peer, &pattern(n, 1), &pattern(m, 2));
        }
    }
    echo(&*peer, &pattern(wire::frame::BODY_MAX, 3), &[]);
}

fn headers_are_filled(rig: &Rig) {
    let peer = (rig.peer)(A);
    let mut into = Buf::new();
    let mut call = request(QUICK, b"b", b"bulk", &mut into);
    let (reply, _) = peer.call(&mut call).expect("an answer");
    let sent = call.head;
    assert_eq!(sent.target, A);
    assert!(sent.request != 0);
    assert!((19_000..=20_000).contains(&sent.ms_left), "{}", sent.ms_left);
    assert_eq!((sent.body_len, sent.bulk_len), (1, 4));
    assert_eq!((reply.call, reply.request, reply.target), (QUICK, sent.request, A));
    assert_eq!((reply.session, reply.fs, reply.epoch), (SessionId(9), FsId(3), Epoch(5)));
    assert_eq!(reply.flags & (Flags::REPLY | Flags::REFUSED), Flags::REPLY);
    assert_eq!((reply.source, reply.destination), (sent.destination, sent.source));
}

fn many_threads_do_not_mix_answers(rig: &Rig) {
    let peers = [(rig.peer)(A), (rig.peer)(B)];
    std::thread::scope(|scope| {
        for t in 0..8u8 {
            let peers = &peers;
            scope.spawn(move || {
                for i in 0..50u8 {
                    echo(&*peers[(t ^ i) as usize % 2], &[t, i], &pattern(1000 * t as usize + i as usize, t));
                }
            });
        }
    });
}

fn two_targets_answer_in_either_order(rig: &Rig) {
    let (a, b) = ((rig.peer)(A), (rig.peer)(B));
    let (bulk_a, bulk_b) = (pattern(BULK_MAX, 5), pattern(BULK_MAX, 6));
    for first_is_first in [true, false] {
        let (mut into_a, mut into_b) = (Buf::new(), Buf::new());
        let mut call_a = request(QUICK, b"to a", &bulk_a, &mut into_a);
        let mut call_b = request(QUICK, b"to b", &bulk_b, &mut into_b);
        let ticket_a = a.send(&mut call_a).expect("sent");
        let ticket_b = b.send(&mut call_b).expect("sent");
        let (got_a, got_b) = if first_is_first {
            let got_a = a.receive(ticket_a, &mut call_a);
            (got_a, b.receive(ticket_b, &mut call_b))
        } else {
            let got_b = b.receive(ticket_b, &mut call_b);
            (a.receive(ticket_a, &mut call_a), got_b)
        };
        assert_eq!(got_a.expect("an answer").1, b"a ot");
        assert_eq!(got_b.expect("an answer").1, b"b ot");
        assert!(into_a.iter().eq(bulk_a.iter().rev()));
        assert!(into_b.iter().eq(bulk_b.iter().rev()));
    }
}

/// A thread's later request may be answered first.
fn answers_overtake_each_other(rig: &Rig) {
    let peer = (rig.peer)(A);
    if peer.is_fate_shared() {
        return; // A call in this process ends before the next one begins.
    }
    let (mut slow_into, mut into) = (Buf::new(), Buf::new());
    let mut slow = request(SLOW + 400, b"slow", &[], &mut slow_into);
    let begin = Instant::now();
    let ticket = peer.send(&mut slow).expect("sent");
    for _ in 0..20 {
        let mut quick = request(QUICK, b"quick", &[], &mut into);
        let sent = peer.send_more(&mut quick).expect("sent");
        assert_eq!(peer.receive(sent, &mut quick).expect("an answer").1, b"kciuq");
    }
    assert!(begin.elapsed() < Duration::from_millis(350), "{:?}", begin.elapsed());
    assert_eq!(peer.receive(ticket, &mut slow).expect("an answer").1, b"wols");
}

fn parking_rig(rig: Rig) -> (Rig, Arc<Echo>) {
    let echo = Arc::new(Echo::default());
    rig.hub.add(A, echo.clone());
    (rig, echo)
}

fn parked_requests_are_answered_in_any_order(rig: Rig) {
    let (rig, echo) = parking_rig(rig);
    let peer = (rig.peer)(A);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (1..9usize)
            .map(|n| {
                let peer = &peer;
                scope.spawn(move || {
                    let mut into = Buf::new();
                    let mut call = request(PARKED, &vec![n as u8; n], &[], &mut into);
                    let got = peer.call(&mut call).expect("an answer");
                    (got.1, into.to_vec())
                })
            })
            .collect();
        echo.wait_for_parked(8);
        let mut parked = std::mem::take(&mut *echo.parked.lock());
        parked.rotate_left(3);
        for later in parked {
            later.answer(|answer| {
                answer.body = b"answered".to_vec();
                answer.bulk.set(b"late bulk");
            });
        }
        for waiting in waiting {
            let (body, bulk) = waiting.join().expect("no panic");
            assert_eq!((body.len(), &bulk[..]), (8, &b"late bulk"[..]));
        }
    });
}

fn a_parked_request_that_is_dropped_ends(rig: Rig) {
    let (rig, echo) = parking_rig(rig);
    let peer = (rig.peer)(A);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut into = Buf::new();
            peer.call(&mut request(PARKED, b"", &[], &mut into)).map(|_| ())
        });
        echo.wait_for_parked(1);
        let begin = Instant::now();
        echo.parked.lock().clear();
        let got = waiting.join().expect("no panic");
        assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
        assert!(begin.elapsed() < Duration::from_secs(2));
    });
    self::echo(&*peer, b"afterwards", b"");
}

/// A listener that keeps what it hears, and answers with the body reversed.
#[derive(Default)]
pub struct Ear {
    pub heard: Mutex<Numbered>,
}

impl Service for Ear {
    fn serve(&self, head: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        self.heard.lock().push((head.request, body.to_vec()));
        answer.body = body.iter().rev().copied().collect();
    }
}

/// Waits until `is_so`.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = soon();
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn listen(peer: &dyn Peer, ear: &Arc<Ear>) -> Listening {
    let mut into = Buf::new();
    let (head, body, listening) =
        peer.listen(&mut request(LISTEN, b"listen", &[], &mut into), ear.clone()).expect("it listens");
    assert_eq!((head.call, &body[..], listening.is_open()), (LISTEN, &b"netsil"[..], true));
    listening
}

fn back(number: u64, body: &[u8]) -> Header {
    Header { call: QUICK, request: number, target: A, body_len: body.len() as u32, ..Header::default() }
}

fn requests_go_both_ways(rig: Rig) {
    let (rig, echo) = parking_rig(rig);
    let (peer, ear) = ((rig.peer)(A), Arc::new(Ear::default()));
    let listening = listen(&*peer, &ear);
    let line = echo.lines.lock().pop().expect("the service took the line");
    for n in 1..=200u64 {
        let body = pattern(n as usize, n as u8);
        assert!(line.send(&back(n, &body), &body), "notice {n}");
        if n % 10 == 0 {
            self::echo(&*peer, b"between", b"bulk");
        }
    }
    wait_until("all are answered", || echo.answers.lock().len() == 200);
    for (n, (number, body)) in (1..).zip(ear.heard.lock().iter()) {
        assert_eq!((*number, body), (n, &pattern(n as usize, n as u8)), "in their order");
    }
    for (number, body) in echo.answers.lock().iter() {
        assert!(body.iter().rev().eq(&pattern(*number as usize, *number as u8)), "answer {number}");
    }
    // A request by `call` has no line.
    let mut into = Buf::new();
    if peer.is_fate_shared() {
        peer.call(&mut request(LISTEN, b"", &[], &mut into)).expect("an answer");
        assert!(echo.lines.lock().is_empty());
    }
    drop(listening);
}

fn a_line_ends_with_either_end(rig: Rig) {
    let (rig, echo) = parking_rig(rig);
    let (peer, ear) = ((rig.peer)(A), Arc::new(Ear::default()));
    let listening = listen(&*peer, &ear);
    let line = echo.lines.lock().pop().expect("the service took the line");
    drop(listening);
    wait_until("the server sees the end", || !line.is_open());
    assert!(!line.send(&back(1, b""), b""));
    let second = listen(&*peer, &ear);
    let line = echo.lines.lock().pop().expect("a second line");
    assert!(line.send(&back(2, b"two"), b"two"));
    wait_until("it arrives", || ear.heard.lock().len() == 1);
    if !peer.is_fate_shared() {
        (rig.stop)();
        wait_until("the listener sees the end", || !second.is_open());
        assert!(!line.send(&back(3, b""), b""));
    }
}

/// More requests than connections that are kept: a thread must not wait for itself.
fn one_thread_may_hold_many_requests(rig: &Rig) {
    let peer = (rig.peer)(A);
    let begin = Instant::now();
    let mut bufs: Vec<Buf> = (0..60).map(|_| Buf::new()).collect();
    let mut held: Vec<_> = bufs
        .iter_mut()
        .enumerate()
        .map(|(i, into)| {
            let mut call = request(QUICK, &[i as u8, 0], &[], into);
            (peer.send(&mut call).expect("sent"), call)
        })
        .collect();
    for (i, (ticket, call)) in held.drain(..).enumerate() {
        let mut call = call;
        assert_eq!(peer.receive(ticket, &mut call).expect("an answer").1, [0, i as u8]);
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
}

fn deadlines_are_kept(rig: &Rig) {
    let peer = (rig.peer)(A);
    let mut into = Buf::new();
    let mut call = request(QUICK, b"", b"", &mut into);
    call.deadline = Instant::now();
    assert!(matches!(peer.call(&mut call), Err(NetError::NotSent { .. })), "a passed deadline sends nothing");
    if peer.is_fate_shared() {
        return; // The service runs on the caller's thread: no other thread could check the clock.
    }
    let begin = Instant::now();
    let mut call = request(SLOW + 600, b"", b"", &mut into);
    call.deadline = begin + Duration::from_millis(150);
    let got = peer.call(&mut call);
    assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
    let took = begin.elapsed();
    assert!((140..500).contains(&took.as_millis()), "{took:?}");
    // The late answer must not be taken for another request's.
    echo(&*peer, b"next", b"");
}

fn unknown_targets_are_definite(rig: &Rig) {
    let peer = (rig.peer)(TargetId(99));
    let mut into = Buf::new();
    let got = peer.call(&mut request(QUICK, b"", b"", &mut into));
    assert!(matches!(got, Err(NetError::NotSent { .. })), "{got:?}");
    rig.hub.add(TargetId(99), Arc::new(Echo::default()));
    echo(&*peer, b"served now", b"");
}

fn too_large_is_definite(rig: &Rig) {
    let peer = (rig.peer)(A);
    let (mut into, bulk) = (Buf::new(), vec![0; BULK_MAX + 1]);
    let got = peer.call(&mut request(QUICK, b"", &bulk, &mut into));
    assert!(matches!(got, Err(NetError::NotSent { .. })), "{got:?}");
    echo(&*peer, b"fine", b"");
}

fn a_gone_server_is_definite_at_once(rig: Rig) {
    let peer = (rig.peer)(A);
    echo(&*peer, b"here", b"");
    (rig.stop)();
    let begin = Instant::now();
    let mut into = Buf::new();
    // A request on a connection that is being cut may be unknown; one after that may not.
    let _ = peer.call(&mut request(QUICK, b"", b"", &mut into));
    for _ in 0..20 {
        let got = peer.call(&mut request(QUICK, b"", b"", &mut into));
        assert!(matches!(got, Err(NetError::NotSent { .. })), "{got:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

fn an_abort_ends_everything(rig: Rig) {
    let peer = (rig.peer)(A);
    let is_local = peer.is_fate_shared();
    std::thread::scope(|scope| {
        let waiting = (!is_local).then(|| {
            let peer = peer.clone();
            scope.spawn(move || {
                let mut into = Buf::new();
                let got = peer.call(&mut request(SLOW + 3000, b"", b"", &mut into));
                (got, Instant::now())
            })
        });
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        rig.fabric.abort();
        if let Some(waiting) = waiting {
            let (got, at) = waiting.join().expect("no panic");
            assert!(matches!(got, Err(NetError::NoAnswer { .. })), "{got:?}");
            assert!(at - begin < Duration::from_millis(1500), "{:?}", at - begin);
        }
        let mut into = Buf::new();
        let got = peer.call(&mut request(QUICK, b"", b"", &mut into));
        assert!(matches!(got, Err(NetError::NotSent { .. })), "{got:?}");
        assert!(begin.elapsed() < Duration::from_millis(1500));
    });
}
