//! Several NIDs of a node: all are used at once, a dead one is left out and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use net::conformance::{Echo, SLOW, wait_until};
use net::fault::Proxy;
use net::router::{Policy, Router, RouterSettings};
use net::routes::parse_route;
use net::{Call, Fabric, Hub, Limits, NetError, Server};
use types::{Buf, FsId, NodeId, TargetId};
use wire::Header;
use wire::map::{ClusterMap, Node, Target};

const T: TargetId = TargetId(11);

struct Site {
    _server: Server,
    rails: [Proxy; 2],
    fabric: Arc<Fabric>,
}

fn map_with(version: u64, nids: Vec<String>) -> ClusterMap {
    let target = Target {
        id: T,
        fs: types::FsId(1),
        is_mdt: false,
        index: 0,
        uuid: types::Uuid([1; 16]),
        node: NodeId(7),
        mirror: types::MirrorId(1),
        state: 1,
        bytes_total: 0,
    };
    let node = Node { id: NodeId(7), name: "oss1".into(), nids, rack: String::new() };
    ClusterMap { version, nodes: vec![node], targets: vec![target], ..ClusterMap::empty() }
}

fn site() -> Site {
    let hub = Hub::new();
    hub.add(T, Arc::new(Echo::default()));
    let addresses = ["127.0.0.1:0@tcp0".to_string(), "127.0.0.1:0@tcp1".to_string()];
    let server = Server::listen_at(&addresses, hub, Limits::default(), None).expect("it listens");
    let rails = [0, 1].map(|n: usize| Proxy::to(&server.nids()[n]).expect("it listens"));
    let fabric = Fabric::new(None);
    fabric.set_map(&map_with(1, rails.iter().map(Proxy::nid).collect()));
    Site { _server: server, rails, fabric }
}

/// A request that is answered after a millisecond, so that those of several threads are under way together.
fn ask(fabric: &Fabric) -> Result<(), NetError> {
    let head = Header { call: SLOW + 1, ..Header::default() };
    let (mut into, deadline) = (Buf::new(), Instant::now() + Duration::from_secs(10));
    let mut call = Call { head, body: b"x".to_vec(), bulk: &[], into: &mut into, back: 0, deadline };
    fabric.peer(T)?.call(&mut call).map(drop)
}

/// Eight callers ask until `is_done`; gives how many requests ended as unknown. None may fail for good.
fn load(site: &Site, is_done: impl Fn() -> bool) -> u64 {
    let (stop, unknown) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    match ask(&site.fabric) {
                        Ok(()) => {}
                        // The caller sends it again, as a client does.
                        Err(NetError::NoAnswer { .. }) => {
                            unknown.fetch_add(1, Ordering::SeqCst);
                            ask(&site.fabric).expect("the other rail works");
                        }
                        Err(e) => panic!("a rail works, and yet: {e}"),
                    }
                }
            });
        }
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait_until("the load did it", is_done)));
        stop.store(true, Ordering::SeqCst);
        done.expect("in time");
    });
    unknown.load(Ordering::SeqCst)
}

#[test]
fn all_rails_are_used_at_once() {
    let site = site();
    load(&site, || site.rails.iter().all(|rail| rail.connects() >= 2));
    let connects = site.rails.each_ref().map(Proxy::connects);
    assert!(connects.iter().all(|n| *n <= 4), "eight lanes are shared evenly: {connects:?}");
}

#[test]
fn a_dead_rail_is_left_out_and_comes_back() {
    let site = site();
    load(&site, || site.rails.iter().all(|rail| rail.connects() >= 2));
    site.rails[0].cut();
    let connects = site.rails[0].connects();
    // The dead rail is tried beside the load, and less and less often.
    load(&site, || site.rails[0].connects() >= connects + 3);
    let connects = site.rails[0].connects();
    site.rails[0].heal();
    load(&site, || site.rails[0].connects() >= connects + 3);
    site.rails[1].cut();
    ask(&site.fabric).or_else(|_| ask(&site.fabric)).expect("the rail that came back");
}

#[test]
fn a_rail_that_leaves_the_map_is_closed_and_the_other_goes_on() {
    let site = site();
    load(&site, || site.rails.iter().all(|rail| rail.connects() >= 2));
    site.fabric.set_map(&map_with(2, vec![site.rails[1].nid()]));
    let connects = site.rails[0].connects();
    let unknown = load(&site, || site.rails[1].connects() >= 5);
    assert_eq!((site.rails[0].connects(), unknown), (connects, 0));
}

#[test]
fn n6_a_request_that_waits_for_a_connect_ends_when_its_target_moves() {
    target_moves_while_it_is_dialled(&site(), "tcp0");
}

#[test]
fn n6_a_connect_through_a_router_ends_when_its_target_moves() {
    let nets = ["127.0.0.1:0@tcp0".to_string(), "127.0.0.1:0@tcp9".to_string()];
    let settings = RouterSettings {
        listen: nets.to_vec(),
        trusts: vec![],
        allows_plain: true,
        circuits_max: 100,
        policy: Arc::new(Anyone),
    };
    let router = Router::start(settings).expect("it listens");
    let site = site();
    let route = parse_route(&format!("tcp9 via {}", router.nids()[0])).expect("a route");
    site.fabric.set_nets(vec!["tcp0".into(), "tcp1".into()], vec![route]);
    target_moves_while_it_is_dialled(&site, "tcp9");
    router.stop();
}

struct Anyone;

impl Policy for Anyone {
    fn judge(&self, _cluster: Option<&str>, _nid: &str, _fs: FsId) -> Result<String, String> {
        Ok("work".into())
    }
}

/// The host has taken connections, and does not greet: it stands still, or was cut off.
fn target_moves_while_it_is_dialled(site: &Site, net: &str) {
    let still = std::net::TcpListener::bind("127.0.0.1:0").expect("it listens");
    let nid = format!("{}@{net}", still.local_addr().expect("its address"));
    site.fabric.set_map(&map_with(2, vec![nid.clone()]));
    std::thread::scope(|scope| {
        // One dials, and the other waits for that.
        let asked: Vec<_> = (0..2).map(|_| scope.spawn(|| ask(&site.fabric))).collect();
        let _greeted = still.accept().expect("a connection");
        let mut moved = map_with(3, vec![nid]);
        let nids = site.rails.iter().map(Proxy::nid).collect();
        moved.nodes.push(Node { id: NodeId(8), name: "oss2".into(), nids, rack: String::new() });
        moved.targets[0].node = NodeId(8);
        site.fabric.set_map(&moved);
        for asked in asked {
            match asked.join().expect("no panic") {
                // It came late, and went to the other node.
                Ok(()) => {}
                Err(NetError::NotSent { why, .. }) => assert_eq!(why, "another node serves the target now"),
                Err(e) => panic!("nothing was sent, and yet: {e}"),
            }
        }
    });
    ask(&site.fabric).expect("the other node");
}
