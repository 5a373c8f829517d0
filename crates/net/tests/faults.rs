//! Frames that get lost, come late, come twice or come in another order: a client's answers, and a server's executions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use net::conformance::{Echo, QUICK, SLOW};
use net::fault::{Proxy, Rule, RuleId, Way, What};
use net::{Call, Fabric, Hub, NetError, Peer, Server, Ticket};
use types::{Buf, TargetId};
use wire::Header;

const T: TargetId = TargetId(11);
/// Another call that is answered at once, for rules that are not for `QUICK`.
const OTHER: u16 = SLOW;
/// Nothing here takes so long on a machine that does other work, too.
const PATIENCE: Duration = Duration::from_secs(20);
/// Lanes for frames without many bulk bytes (decision 0051).
const LANES: u64 = 8;

/// A server with an echo, a proxy to it, and a client of the proxy.
struct Rig {
    echo: Arc<Echo>,
    proxy: Proxy,
    fabric: Arc<Fabric>,
    _server: Server,
}

impl Rig {
    fn new() -> Rig {
        let (hub, echo) = (Hub::new(), Arc::new(Echo::default()));
        hub.add(T, echo.clone());
        let server = Server::listen("127.0.0.1:0", hub).expect("it listens");
        let proxy = Proxy::to(&server.nid()).expect("it listens");
        Rig { echo, proxy, fabric: Fabric::new(None), _server: server }
    }
    fn peer(&self) -> Arc<dyn Peer> {
        self.fabric.peer_at(&self.proxy.nid(), T)
    }
    fn served(&self) -> u64 {
        self.echo.served.load(Ordering::SeqCst)
    }
    fn rule(&self, way: Way, what: What, times: Option<u32>) -> RuleId {
        self.proxy.rule(Rule { call: Some(QUICK), way, what, times })
    }
    fn wait_until_served(&self, n: u64) {
        let until = Instant::now() + PATIENCE;
        while self.served() < n {
            assert!(Instant::now() < until, "{} of {n} are served", self.served());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A request under way, whose body and bulk tell it from all others.
struct Asked<'a> {
    ticket: Ticket,
    call: Call<'a>,
}

fn request<'a>(call: u16, n: usize, bulk: &'a [u8], into: &'a mut Buf, wait: Duration) -> Call<'a> {
    let head = Header { call, ..Header::default() };
    let body = format!("request {n}").into_bytes();
    Call { head, body, bulk, into, back: bulk.len(), deadline: Instant::now() + wait }
}

fn bulk(n: usize) -> Vec<u8> {
    (0..n * 37 % 3000).map(|i| (i ^ n) as u8).collect()
}

/// Checks that an answer is the one to its request.
fn check(call: &Call<'_>, answer: &(Header, Vec<u8>)) {
    assert_eq!(answer.0.request, call.head.request);
    assert!(answer.1.iter().eq(call.body.iter().rev()), "the answer to another request");
    assert!(call.into.iter().eq(call.bulk.iter().rev()), "bulk bytes of another answer");
}

/// Request number `n`. An answer is checked.
fn ask(peer: &dyn Peer, call: u16, n: usize, wait: Duration) -> Result<(), NetError> {
    let (bulk, mut into) = (bulk(n), Buf::new());
    let mut call = request(call, n, &bulk, &mut into, wait);
    let answer = peer.call(&mut call)?;
    check(&call, &answer);
    Ok(())
}

fn ask_well(peer: &dyn Peer, n: usize) {
    ask(peer, QUICK, n, PATIENCE).expect("an answer");
}

fn is_unknown(got: &Result<(), NetError>) -> bool {
    matches!(got, Err(NetError::NoAnswer { .. }))
}

/// All threads ask at the same time, `each` times. A request that was not sent is sent again, and the last try counts. Returns how many
/// had no answer.
fn storm(peer: &dyn Peer, threads: usize, each: usize, wait: Duration) -> usize {
    let unknown = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let unknown = &unknown;
            scope.spawn(move || {
                for n in 0..each {
                    let until = Instant::now() + PATIENCE;
                    let mut got = ask(peer, QUICK, thread * each + n, wait);
                    while matches!(got, Err(NetError::NotSent { .. })) && Instant::now() < until {
                        got = ask(peer, QUICK, thread * each + n, wait);
                    }
                    assert!(got.is_ok() || is_unknown(&got), "{got:?}");
                    unknown.fetch_add(got.is_err() as usize, Ordering::SeqCst);
                }
            });
        }
    });
    unknown.into_inner()
}

#[test]
fn a_dropped_frame_ends_its_request_at_the_deadline_and_the_connection_goes_on() {
    let rig = Rig::new();
    let peer = rig.peer();
    ask_well(&*peer, 0);
    for (way, served) in [(Way::Requests, 1), (Way::Replies, 2)] {
        let before = rig.served();
        let rule = rig.rule(way, What::Drop, Some(1));
        let (begin, wait) = (Instant::now(), Duration::from_millis(300));
        let got = ask(&*peer, QUICK, 1, wait);
        assert!(is_unknown(&got), "{way:?}: {got:?}");
        let took = begin.elapsed();
        assert!(took >= wait && took < wait + Duration::from_secs(3), "{way:?}: {took:?}");
        assert_eq!(rig.proxy.applied(rule), 1, "{way:?}");
        ask_well(&*peer, 2);
        assert_eq!(rig.served() - before, served, "{way:?}");
    }
    assert_eq!(rig.proxy.connects(), 1, "one connection for all of it");
}

#[test]
fn dropped_frames_of_sixteen_callers_end_only_their_own_requests() {
    let check = |way| {
        let rig = Rig::new();
        let rule = rig.rule(way, What::Drop, Some(10));
        let unknown = storm(&*rig.peer(), 16, 20, Duration::from_secs(4));
        assert_eq!((unknown, rig.proxy.applied(rule)), (10, 10), "{way:?}");
        assert_eq!(rig.served(), if way == Way::Requests { 310 } else { 320 }, "{way:?}");
        assert!(rig.proxy.connects() <= LANES, "{way:?}: no connection was lost");
    };
    std::thread::scope(|scope| {
        scope.spawn(move || check(Way::Requests));
        scope.spawn(move || check(Way::Replies));
    });
}

/// Sends requests of one thread, so that more are under way on a connection than one.
fn send_all<'a>(peer: &dyn Peer, call: u16, bulks: &'a [Vec<u8>], into: &'a mut [Buf]) -> Vec<Asked<'a>> {
    let send = |((n, bulk), into): ((usize, &'a Vec<u8>), &'a mut Buf)| {
        let mut call = request(call, n, bulk, into, PATIENCE);
        Asked { ticket: peer.send_more(&mut call).expect("sent"), call }
    };
    bulks.iter().enumerate().zip(into).map(send).collect()
}

fn receive_all(peer: &dyn Peer, asked: Vec<Asked<'_>>) {
    for Asked { ticket, mut call } in asked {
        let answer = peer.receive(ticket, &mut call).expect("an answer");
        check(&call, &answer);
    }
}

#[test]
fn a_delayed_reply_is_overtaken_by_others_on_its_connection() {
    let rig = Rig::new();
    let peer = rig.peer();
    let delay = Duration::from_secs(3);
    let rule = rig.rule(Way::Replies, What::Delay(delay), None);
    let bulks: Vec<_> = (0..LANES as usize).map(bulk).collect();
    let mut into: Vec<_> = bulks.iter().map(|_| Buf::new()).collect();
    let begin = Instant::now();
    let late = send_all(&*peer, QUICK, &bulks, &mut into);
    let (others, mut into) = ((0..32).map(bulk).collect::<Vec<_>>(), vec![Buf::new(), Buf::new()]);
    for others in others.chunks(2) {
        receive_all(&*peer, send_all(&*peer, OTHER, others, &mut into));
    }
    assert!(begin.elapsed() < delay, "the others do not wait: {:?}", begin.elapsed());
    receive_all(&*peer, late);
    assert!(begin.elapsed() >= delay, "the delayed ones came: {:?}", begin.elapsed());
    assert_eq!((rig.proxy.connects(), rig.proxy.applied(rule)), (LANES, LANES));
}

/// The client has given up, and its next request is answered on the same connection; only then the first one arrives.
#[test]
fn a_delayed_request_is_served_when_it_arrives_and_its_answer_is_dropped() {
    let rig = Rig::new();
    let peer = rig.peer();
    let delay = Duration::from_secs(1);
    let rule = rig.rule(Way::Requests, What::Delay(delay), Some(1));
    let begin = Instant::now();
    let got = ask(&*peer, QUICK, 1, Duration::from_millis(100));
    assert!(is_unknown(&got), "{got:?}");
    ask_well(&*peer, 2);
    let (served, took) = (rig.served(), begin.elapsed());
    assert!(served == 1 || took >= delay, "{served} are served after {took:?}");
    rig.wait_until_served(2);
    assert!(begin.elapsed() >= delay, "{:?}", begin.elapsed());
    for n in 3..6 {
        ask_well(&*peer, n);
    }
    assert_eq!((rig.served(), rig.proxy.connects(), rig.proxy.applied(rule)), (5, 1, 1));
}

/// A server's slots make it once (`S-exactly-once`); the fabric does not know which requests are the same.
#[test]
fn a_duplicated_request_is_served_twice_and_its_second_answer_is_dropped() {
    for (threads, each) in [(1, 60), (16, 20)] {
        let rig = Rig::new();
        let rule = rig.rule(Way::Requests, What::Duplicate, None);
        assert_eq!(storm(&*rig.peer(), threads, each, PATIENCE), 0, "{threads} callers");
        let asked = (threads * each) as u64;
        rig.wait_until_served(2 * asked);
        assert_eq!((rig.served(), rig.proxy.applied(rule)), (2 * asked, asked), "{threads} callers");
        assert!(rig.proxy.connects() <= LANES, "{threads} callers: no connection was lost");
    }
}

#[test]
fn a_duplicated_reply_is_dropped() {
    for (threads, each) in [(1, 60), (16, 20)] {
        let rig = Rig::new();
        let rule = rig.rule(Way::Replies, What::Duplicate, None);
        assert_eq!(storm(&*rig.peer(), threads, each, PATIENCE), 0, "{threads} callers");
        let asked = (threads * each) as u64;
        assert_eq!((rig.served(), rig.proxy.applied(rule)), (asked, asked), "{threads} callers");
        assert!(rig.proxy.connects() <= LANES, "{threads} callers: no connection was lost");
    }
}

#[test]
fn reordered_frames_reach_their_own_callers() {
    for way in [Way::Requests, Way::Replies] {
        let rig = Rig::new();
        let peer = rig.peer();
        let rule = rig.rule(way, What::Reorder, Some(60));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let peer = &*peer;
                scope.spawn(move || {
                    let bulks: Vec<_> = (0..8).map(|n| bulk(thread * 8 + n)).collect();
                    let mut into: Vec<_> = bulks.iter().map(|_| Buf::new()).collect();
                    for _ in 0..4 {
                        receive_all(peer, send_all(peer, QUICK, &bulks, &mut into));
                    }
                });
            }
        });
        assert_eq!((rig.served(), rig.proxy.applied(rule)), (256, 60), "{way:?}");
        assert!(rig.proxy.connects() <= LANES, "{way:?}: no connection was lost");
    }
}

/// The ping that follows after a second of silence is the next frame.
#[test]
fn a_lone_callers_reply_that_is_held_back_comes_behind_the_answer_to_a_ping() {
    let rig = Rig::new();
    let peer = rig.peer();
    let rule = rig.rule(Way::Replies, What::Reorder, Some(1));
    ask_well(&*peer, 1);
    assert_eq!((rig.served(), rig.proxy.connects(), rig.proxy.applied(rule)), (1, 1, 1));
}

/// Bytes of the frame of `ask`'s request number `n`, and of its answer.
fn frame_len(n: usize) -> usize {
    wire::HEADER_LEN + format!("request {n}").len() + bulk(n).len()
}

/// Cuts the connection within each part of a frame. `served`: executions in the end, of three requests.
fn a_frame_that_is_cut_is_unknown_and_the_next_request_works(way: Way, served: u64) {
    let n = 3;
    let len = frame_len(n);
    for what in [0, 1, 127, 128, 130, 138, len - 1].map(What::CutAfter).into_iter().chain([What::Cut]) {
        let rig = Rig::new();
        let peer = rig.peer();
        ask_well(&*peer, 1);
        let rule = rig.rule(way, what, Some(1));
        let begin = Instant::now();
        let got = ask(&*peer, QUICK, n, PATIENCE);
        assert!(is_unknown(&got), "{what:?}: {got:?}");
        assert!(begin.elapsed() < PATIENCE / 2, "{what:?}: not at the deadline");
        ask_well(&*peer, n);
        assert_eq!((rig.served(), rig.proxy.applied(rule)), (served, 1), "{what:?}");
        assert_eq!(rig.proxy.connects(), 2, "{what:?}");
    }
}

#[test]
fn a_request_that_is_cut_is_not_carried_out() {
    a_frame_that_is_cut_is_unknown_and_the_next_request_works(Way::Requests, 2);
}

#[test]
fn a_reply_that_is_cut_is_unknown_and_the_next_request_works() {
    a_frame_that_is_cut_is_unknown_and_the_next_request_works(Way::Replies, 3);
}

#[test]
fn a_frame_that_came_whole_counts_although_the_connection_is_cut_behind_it() {
    for way in [Way::Requests, Way::Replies] {
        let rig = Rig::new();
        let peer = rig.peer();
        ask_well(&*peer, 1);
        let rule = rig.rule(way, What::CutAfter(frame_len(3)), Some(1));
        let got = ask(&*peer, QUICK, 3, PATIENCE);
        // The answer to a request that came whole may pass before the cut.
        let may_be_unknown = way == Way::Requests && is_unknown(&got);
        assert!(got.is_ok() || may_be_unknown, "{way:?}: {got:?}");
        rig.wait_until_served(2);
        assert_eq!((rig.served(), rig.proxy.applied(rule)), (2, 1), "{way:?}");
        // A request may be on its way before the client hears of the cut.
        let got = ask(&*peer, QUICK, 4, PATIENCE);
        assert!(got.is_ok() || is_unknown(&got), "{way:?}: {got:?}");
        ask_well(&*peer, 5);
    }
}

#[test]
fn cuts_among_sixteen_callers_end_only_the_requests_of_their_connections() {
    for way in [Way::Requests, Way::Replies] {
        let rig = Rig::new();
        let peer = rig.peer();
        let rule = rig.rule(way, What::CutAfter(130), Some(6));
        let unknown = storm(&*peer, 16, 20, PATIENCE);
        assert_eq!(rig.proxy.applied(rule), 6, "{way:?}");
        assert!((6..=6 * 16).contains(&unknown), "{way:?}: {unknown}");
        // Each request was served once, unless its connection was cut before it came.
        assert!((320 - unknown as u64..=320).contains(&rig.served()), "{way:?}: {}", rig.served());
        let before = rig.served();
        assert_eq!(storm(&*peer, 16, 4, PATIENCE), 0, "{way:?}");
        assert_eq!(rig.served() - before, 64, "{way:?}");
    }
}

#[test]
fn all_faults_at_once_give_no_caller_another_ones_answer() {
    let rig = Rig::new();
    let peer = rig.peer();
    let mut rules = vec![];
    for way in [Way::Requests, Way::Replies] {
        // The first rule that is not used up applies, so each of them has its turn.
        for turn in 0..3 {
            let delay = Duration::from_millis(20 + turn);
            let faults =
                [What::Reorder, What::Duplicate, What::Delay(delay), What::Drop, What::CutAfter(140)];
            for (what, times) in faults.into_iter().zip([8, 8, 8, 2, 1]) {
                rules.push((rig.rule(way, what, Some(times)), u64::from(times)));
            }
        }
    }
    let unknown = storm(&*peer, 16, 20, Duration::from_millis(1500));
    assert!(unknown > 0);
    assert!(rules.iter().all(|(rule, times)| rig.proxy.applied(*rule) == *times), "all have applied");
    rig.proxy.clear();
    // Duplicates and delayed requests may still be under way.
    assert_eq!(storm(&*peer, 16, 4, PATIENCE), 0);
}

/// A story's late request: its client has closed the connection long before.
#[test]
fn a_delayed_request_arrives_although_its_client_has_gone() {
    let rig = Rig::new();
    let rule = rig.rule(Way::Requests, What::Delay(Duration::from_millis(500)), Some(1));
    let own = Fabric::new(None);
    let got = ask(&*own.peer_at(&rig.proxy.nid(), T), QUICK, 1, Duration::from_millis(50));
    assert!(is_unknown(&got), "{got:?}");
    own.abort();
    drop(own);
    rig.wait_until_served(1);
    assert_eq!(rig.proxy.applied(rule), 1);
    ask_well(&*rig.peer(), 2);
}
