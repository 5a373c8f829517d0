//! Stories over the fabric, from the side of servers and clients.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mapstore::MemoryStore;
use net::{Fabric, Hub, Peer, rpc};
use types::{Buf, Epoch, NodeId};
use wire::codec::Bytes;
use wire::map::{Apart, Nodemap, Squash};
use wire::mgmt::{PublishCrlReply, RemovalKind};

use super::*;

fn peer_of(mgs: Arc<Mgs>) -> Arc<dyn Peer> {
    let hub = Hub::new();
    hub.add(MGS, mgs);
    Fabric::new(Some(hub)).peer(MGS).expect("served here")
}

fn fresh() -> (Arc<Mgs>, Arc<dyn Peer>) {
    let mgs = Mgs::over(Box::new(MemoryStore::default())).expect("opened");
    (mgs.clone(), peer_of(mgs))
}

fn ask<R: Request>(peer: &dyn Peer, request: &R) -> Result<R::Reply, Fault> {
    let deadline = Instant::now() + Duration::from_secs(10);
    rpc::call(peer, Header::default(), request, &[], &mut Buf::new(), deadline).expect("answered").2
}

fn target(is_mdt: bool, uuid: u8) -> Register {
    Register {
        fs_name: "demo".into(),
        is_mdt,
        index: u32::MAX,
        uuid: Uuid([uuid; 16]),
        target: TargetId(0),
        bytes_total: 1 << 30,
        node_name: "one".into(),
        nids: vec!["127.0.0.1:7011@tcp0".into()],
        second: false,
        rack: String::new(),
        apart: Apart::Server,
    }
}

fn get(peer: &dyn Peer, known_version: u64, server: bool) -> Option<ClusterMap> {
    ask(peer, &GetMap { known_version, server }).expect("answered").map
}

#[test]
fn a_cluster_comes_together() {
    let (_, peer) = fresh();
    assert_eq!(get(&*peer, 0, false), Some(ClusterMap::empty()), "an empty map is sent too");
    let refused = ask(&*peer, &target(false, 2)).expect_err("no MDT yet");
    assert_eq!(refused.code, Code::NotReady);
    let mdt = ask(&*peer, &target(true, 1)).expect("registered");
    let ost = ask(&*peer, &target(false, 2)).expect("registered");
    assert_eq!((mdt.target, ost.target), (TargetId(1), TargetId(2)));
    assert_eq!(get(&*peer, 0, true), Some(ost.map));
    let again = ask(&*peer, &target(false, 2)).expect("registered");
    assert_eq!((again.target, again.epoch), (TargetId(2), Epoch(2)));
}

#[test]
fn secrets_are_for_servers() {
    let (mgs, peer) = fresh();
    let reply = ask(&*peer, &target(true, 1)).expect("registered");
    let secret = reply.map.file_systems[0].secret;
    assert_ne!(secret, Uuid::default());
    assert_ne!(reply.map.file_systems[0].uuid, Uuid::default());
    assert_eq!(get(&*peer, 0, true).expect("sent").file_systems[0].secret, secret);
    assert_eq!(get(&*peer, 0, false).expect("sent").file_systems[0].secret, Uuid::default());
    assert_eq!(mgs.map().file_systems[0].secret, secret);
}

#[test]
fn a_known_map_is_not_sent_again() {
    let (_, peer) = fresh();
    let version = ask(&*peer, &target(true, 1)).expect("registered").map.version;
    assert_eq!(get(&*peer, version, false), None);
    assert!(get(&*peer, version - 1, false).is_some());
    assert!(get(&*peer, version + 1, false).is_some(), "a map from the future is replaced");
}

#[test]
fn who_leaves_is_down_and_who_beats_is_up() {
    let (mgs, peer) = fresh();
    let r = ask(&*peer, &target(true, 1)).expect("registered");
    let beat = |leaving| {
        let beat = Heartbeat { node: r.node, targets: vec![r.target], leaving };
        ask(&*peer, &beat).expect("answered").version
    };
    let state = || mgs.map().target(r.target).expect("there").state;
    assert_eq!(state(), mgmt::STATE_UP);
    let same = beat(false);
    assert_eq!(same, r.map.version, "what changes nothing makes no version");
    assert_eq!(beat(true), same + 1);
    assert_eq!(state(), mgmt::STATE_DOWN);
    assert_eq!(beat(false), same + 2);
    assert_eq!(state(), mgmt::STATE_UP);
}

#[test]
fn a_copy_of_a_live_target_waits_and_a_restart_does_not() {
    let (_, peer) = fresh();
    let first = ask(&*peer, &target(true, 1)).expect("registered");
    let copy =
        Register { node_name: "two".into(), nids: vec!["10.0.0.2:7011@tcp0".into()], ..target(true, 1) };
    assert_eq!(ask(&*peer, &copy).expect_err("it lives").code, Code::Busy);
    assert_eq!(ask(&*peer, &target(true, 1)).expect("a restart").node, first.node);
    let bye = Heartbeat { node: first.node, targets: vec![first.target], leaving: true };
    ask(&*peer, &bye).expect("answered");
    ask(&*peer, &copy).expect("it has left");
}

#[test]
fn the_silent_are_found_by_whoever_asks() {
    let (mgs, peer) = fresh();
    let r = ask(&*peer, &target(true, 1)).expect("registered");
    mgs.state.lock().review(mgmt::SILENCE_MS_MAX + 5_000).expect("reviewed");
    assert_eq!(mgs.map().target(r.target).expect("there").state, mgmt::STATE_DOWN);
}

#[test]
fn a_target_that_left_is_removed_and_its_file_system_stays() {
    let (mgs, peer) = fresh();
    ask(&*peer, &target(true, 1)).expect("registered");
    let ost = ask(&*peer, &target(false, 2)).expect("registered");
    let plan = PlanRemoval { kind: RemovalKind::Target, name: "demo-OST0000".into(), force: false };
    let told = ask(&*peer, &plan).expect("answered");
    assert!(told.refused.contains("is up") && told.token.is_empty(), "{told:?}");
    ask(&*peer, &Heartbeat { node: ost.node, targets: vec![ost.target], leaving: true }).expect("answered");
    let told = ask(&*peer, &plan).expect("answered");
    let version = mgs.map().version;
    assert_eq!((told.version, told.refused.as_str(), told.targets), (version, "", vec![ost.target]));
    let confirmed = |token: &str| Remove {
        kind: RemovalKind::Target,
        name: "demo-OST0000".into(),
        force: false,
        token: token.into(),
    };
    assert_eq!(ask(&*peer, &confirmed("")).expect_err("no token").code, Code::Invalid);
    assert_eq!(ask(&*peer, &confirmed(&told.token)).expect("removed").version, version + 1);
    assert!(mgs.map().target(ost.target).is_none() && mgs.map().file_systems.len() == 1);
    let again = Register { target: ost.target, ..target(false, 2) };
    assert_eq!(ask(&*peer, &again).expect_err("removed").code, Code::NotFound);
}

#[test]
fn a_file_system_is_made_before_its_targets() {
    let (mgs, peer) = fresh();
    let wish = CreateFs { name: "demo".into(), inline_max: 0, commit_interval_ms: 100 };
    let made = ask(&*peer, &wish).expect("made");
    assert_eq!(ask(&*peer, &wish).expect_err("it is there").code, Code::Exists);
    let fs = mgs.map().fs(made.fs).expect("there").clone();
    assert!(fs.uuid != Uuid::default() && fs.secret != Uuid::default() && fs.inline_max == 0);
    ask(&*peer, &target(false, 2)).expect("an OST before the MDT");
    assert_eq!(get(&*peer, 0, false).expect("sent").file_systems[0].secret, Uuid::default());
}

#[test]
fn nodemaps_are_changed_by_administrators_and_seen_by_all() {
    let (mgs, peer) = fresh();
    ask(&*peer, &target(true, 1)).expect("registered");
    let key = || mgs.map().file_systems[0].secret;
    let before = key();
    let lab = Nodemap {
        name: "lab".into(),
        priority: 1,
        role: String::new(),
        node: "lab*".into(),
        net: String::new(),
        address: String::new(),
        ban: true,
        read_only: false,
        squash: Squash::None,
        squash_uid: 65_534,
        squash_gid: 65_534,
        uids: vec![],
        gids: vec![],
        root: String::new(),
    };
    let add = ChangeNodemaps { remove: vec![], add: vec![lab.clone()] };
    for who in ["client", "server", "router"] {
        assert_eq!(code_for(&mgs, &format!("stria://c/{who}/n"), &add).0, Code::Access, "{who}");
    }
    assert_eq!(code_for(&mgs, "stria://c/admin/n", &add).0, Code::Ok);
    assert_eq!(ask(&*peer, &add).map(drop).map_err(|fault| fault.code), Err(Code::Exists));
    assert_eq!(get(&*peer, 0, false).expect("sent").nodemaps, std::slice::from_ref(&lab));
    let (version, with_ban) = (mgs.map().version, key());
    let gone = ask(&*peer, &ChangeNodemaps { remove: vec![lab], add: vec![] }).expect("removed");
    assert_eq!((gone.version, mgs.map().nodemaps), (version + 1, vec![]));
    // mgmt-K2: with new keys, which no other change has had.
    let keys = [before, with_ban, key()];
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
}

#[test]
fn other_calls_are_answered_honestly() {
    let (_, peer) = fresh();
    ask(&*peer, &target(true, 1)).expect("registered");
    assert_eq!(ask(&*peer, &Flush {}), Ok(Empty {}));
    let stat = ask(&*peer, &TargetStat {}).expect("answered");
    assert_eq!((stat.target, stat.files_total, stat.last_seq), (MGS, 1, Seq(1)));
    let refused = ask(&*peer, &wire::meta::GetAttr { fid: types::Fid::ROOT }).expect_err("no MDT");
    assert_eq!(refused.code, Code::Unsupported);
    let mut into = Buf::new();
    let mut call = rpc::prepare(
        Header::default(),
        &GetMap { known_version: 0, server: false },
        &[],
        &mut into,
        Instant::now() + Duration::from_secs(10),
    );
    call.body.push(0);
    let got = rpc::read::<GetMap>(peer.call(&mut call).expect("answered")).expect("readable");
    assert_eq!(got.2.expect_err("a byte too many").code, Code::BadRequest);
}

#[test]
fn the_map_outlives_its_service() {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let dir = std::env::temp_dir().join(format!(
        "stria-mgs-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    let _ = std::fs::remove_dir_all(&dir);
    let first = Mgs::open(&dir).expect("opened");
    let refused = Mgs::open(&dir).err().expect("one at a time");
    assert_eq!(refused.code, Code::Busy);
    ask(&*peer_of(first.clone()), &target(true, 1)).expect("registered");
    let map = first.map();
    drop(first);
    let second = Mgs::open(&dir).expect("opened");
    assert_eq!(second.map(), map);
    let again = ask(&*peer_of(second.clone()), &target(true, 1)).expect("registered");
    assert_eq!((again.target, again.epoch), (TargetId(1), Epoch(2)));
    drop(second);
    Mgs::delete(&dir).expect("deleted");
    assert!(!dir.exists());
}

/// A store that fails as instructed: it stores the change and reports an error, or another process changes the map first.
#[derive(Default)]
struct Trouble {
    inner: MemoryStore,
    fail_after: AtomicBool,
    rival: AtomicBool,
}

struct Troubled(Arc<Trouble>);

impl MapStore for Troubled {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        self.0.inner.load()
    }
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        if self.0.rival.swap(false, Ordering::SeqCst) {
            let mut map = self.0.inner.load()?;
            map.version += 1;
            self.0.inner.compare_and_swap(map.version - 1, &map)?;
        }
        self.0.inner.compare_and_swap(expected, next)?;
        match self.0.fail_after.swap(false, Ordering::SeqCst) {
            true => Err(StoreError::Io {
                doing: "flushing",
                path: "map".into(),
                source: std::io::Error::other("pulled"),
            }),
            false => Ok(()),
        }
    }
}

#[test]
fn a_change_in_doubt_is_found_again() {
    let trouble = Arc::new(Trouble::default());
    let mgs = Mgs::over(Box::new(Troubled(trouble.clone()))).expect("opened");
    let peer = peer_of(mgs);
    trouble.fail_after.store(true, Ordering::SeqCst);
    let failed = ask(&*peer, &target(true, 1)).expect_err("the store failed");
    assert_eq!(failed.code, Code::Io);
    assert_eq!(get(&*peer, 0, true).expect("sent").version, 1, "it had happened");
    let again = ask(&*peer, &target(true, 1)).expect("registered");
    assert_eq!((again.target, again.epoch), (TargetId(1), Epoch(2)), "and it is not made twice");
}

#[test]
fn a_rival_change_is_built_upon() {
    let trouble = Arc::new(Trouble::default());
    let mgs = Mgs::over(Box::new(Troubled(trouble.clone()))).expect("opened");
    let peer = peer_of(mgs);
    trouble.rival.store(true, Ordering::SeqCst);
    let reply = ask(&*peer, &target(true, 1)).expect("registered");
    assert_eq!(reply.map.version, 2);
}

/// The code of the answer to a request of a peer with this identity.
fn code_for<R: Request>(mgs: &Mgs, uri: &str, request: &R) -> (Code, Vec<u8>) {
    code_by(mgs, uri, pki::Serial(1), request)
}

/// As `code_for`, by the certificate with this serial.
fn code_by<R: Request>(mgs: &Mgs, uri: &str, serial: pki::Serial, request: &R) -> (Code, Vec<u8>) {
    let known = net::Known::new(pki::Identity::parse(uri, serial).expect("an identity"));
    let (head, mut bulk) = (Header { call: R::CALL, ..Header::default() }, Buf::new());
    let mut answer = Answer::to(&known, head, &mut bulk);
    mgs.serve(&head, &request.to_bytes(), &[], &mut answer);
    let head = ReplyHead::get(&mut wire::Reader::new(&answer.body)).expect("an answer has its head");
    (Code::from_u16(head.code), answer.body)
}

#[test]
fn only_a_servers_certificate_registers_and_the_key_goes_to_servers_and_administrators() {
    let (mgs, _) = fresh();
    for role in ["client", "admin", "router"] {
        let (code, _) = code_for(&mgs, &format!("stria://c/{role}/n"), &target(true, 1));
        assert_eq!(code, Code::Access, "{role}");
        let beat = Heartbeat { node: NodeId(1), targets: vec![TargetId(1)], leaving: true };
        assert_eq!(code_for(&mgs, &format!("stria://c/{role}/n"), &beat).0, Code::Access, "{role}");
    }
    assert_eq!(mgs.map(), ClusterMap::empty(), "nothing changed");
    assert_eq!(code_for(&mgs, "stria://c/server/n", &target(true, 1)).0, Code::Ok);
    let secret = mgs.map().file_systems[0].secret;
    for (role, knows) in [("server", true), ("admin", true), ("client", false), ("router", false)] {
        let get = GetMap { known_version: 0, server: true };
        let (code, body) = code_for(&mgs, &format!("stria://c/{role}/n"), &get);
        assert_eq!(code, Code::Ok, "{role}");
        assert_eq!(body.windows(16).any(|some| *some == secret.0), knows, "{role}");
    }
}

/// A CA directory that goes with its owner.
struct Office {
    authority: pki::Authority,
    dir: std::path::PathBuf,
}

impl Office {
    fn new() -> Office {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stria-mgs-office-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (cluster, host) = ("alpha".parse().unwrap(), "mgs".parse().unwrap());
        let authority = pki::Authority::init(&dir, &cluster, &host, std::time::SystemTime::now()).unwrap();
        Office { authority, dir }
    }
    fn trust(&self) -> Arc<Trust> {
        Trust::load(&self.authority.node_dir(Role::Server, &"mgs".parse().unwrap())).unwrap()
    }
    /// The lists after one more certificate was revoked.
    fn next_lists(&mut self) -> Vec<u8> {
        self.revoke_one().1
    }
    /// A revoked certificate, and the lists with it.
    fn revoke_one(&mut self) -> (pki::Serial, Vec<u8>) {
        let now = std::time::SystemTime::now();
        let node = "login".parse().unwrap();
        let record = self.authority.issue(Role::Client, &node, 30, now).unwrap();
        self.authority.revoke(&record.serial.to_string(), None, pki::Reason::Retired, now).unwrap();
        (record.serial, self.authority.lists().unwrap())
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn publish(peer: &dyn Peer, crls: &[u8], rotate_keys: bool) -> Result<PublishCrlReply, Fault> {
    ask(peer, &PublishCrl { crls: Bytes(crls.to_vec()), rotate_keys })
}

#[test]
fn m3_a_published_list_is_in_the_map_and_given_to_the_process() {
    let (mgs, peer) = fresh();
    ask(&*peer, &target(true, 1)).expect("registered");
    let mut office = Office::new();
    let (trust, early) = (office.trust(), office.trust());
    let first = office.authority.lists().unwrap();
    assert_eq!(publish(&*peer, &first, false).unwrap_err().code, Code::Invalid, "nothing verifies it");
    let taken: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let take = taken.clone();
    mgs.judge_by(trust);
    mgs.on_lists(move |map| take.lock().push(map.crls.to_vec()));
    // 1. A list, twice.
    let version = mgs.map().version;
    let reply = publish(&*peer, &first, false).unwrap();
    assert_eq!(reply, PublishCrlReply { version: version + 1, number: 1, is_new: true });
    assert_eq!(publish(&*peer, &first, true).unwrap(), PublishCrlReply { is_new: false, ..reply });
    // 2. A newer one. Then the older one, and no list, change nothing.
    let key = || mgs.map().file_systems[0].secret;
    let before = key();
    let second = office.next_lists();
    assert_eq!(publish(&*peer, &second, false).unwrap().number, 2);
    for bad in [&first[..], b"hello", &second[1..]] {
        let fault = publish(&*peer, bad, true).unwrap_err();
        assert_eq!(fault.code, Code::Invalid, "{fault}");
    }
    let map = get(&*peer, 0, false).expect("sent");
    assert_eq!((&*map.crls, map.version), (&second[..], version + 2), "clients get the lists");
    assert_eq!(key(), before);
    // 3. With keys.
    let (revoked, third) = office.revoke_one();
    publish(&*peer, &third, true).unwrap();
    assert_ne!(key(), before);
    assert_ne!(key(), Uuid::default());
    taken.lock().dedup();
    assert_eq!(*taken.lock(), [vec![], first, second, third.clone()]);
    // 4. A start anew gives the process the list of its map.
    let store = MemoryStore::default();
    let mut map = mgs.map();
    map.version = 1;
    store.compare_and_swap(0, &map).unwrap();
    let again = Mgs::over(Box::new(store)).unwrap();
    let taken: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let take = taken.clone();
    assert!(!early.is_revoked(revoked));
    again.judge_by(early.clone());
    assert!(early.is_revoked(revoked), "before the first connection");
    again.on_lists(move |map| take.lock().push(map.crls.to_vec()));
    assert_eq!(*taken.lock(), [third]);
}

/// A store that notes, at each change, whether the management service judges by the change's lists.
struct Witness {
    inner: MemoryStore,
    trust: Arc<Trust>,
    judged: Arc<Mutex<Vec<bool>>>,
    /// The next change fails and is not stored.
    fails: Arc<AtomicBool>,
}

impl MapStore for Witness {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        self.inner.load()
    }
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        let mut serials = pki::serials(&next.crls).into_iter();
        self.judged.lock().push(serials.all(|serial| self.trust.is_revoked(serial)));
        if self.fails.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Io {
                doing: "writing",
                path: "map".into(),
                source: std::io::Error::other("pulled"),
            });
        }
        self.inner.compare_and_swap(expected, next)
    }
}

#[test]
fn m3_a_list_counts_before_its_map_is_stored_and_the_process_is_told_also_if_that_fails() {
    let mut office = Office::new();
    let trust = office.trust();
    let (judged, fails): (Arc<Mutex<Vec<bool>>>, Arc<AtomicBool>) = Default::default();
    let store = Witness {
        inner: MemoryStore::default(),
        trust: trust.clone(),
        judged: judged.clone(),
        fails: fails.clone(),
    };
    let mgs = Mgs::over(Box::new(store)).unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let count = told.clone();
    mgs.judge_by(trust);
    mgs.on_lists(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let peer = peer_of(mgs);
    let lists = office.next_lists();
    publish(&*peer, &lists, true).unwrap();
    assert_eq!(*judged.lock(), [true]);
    assert_eq!(told.load(Ordering::SeqCst), 2, "at the start, and for the list");
    let lists = office.next_lists();
    fails.store(true, Ordering::SeqCst);
    assert_eq!(publish(&*peer, &lists, true).unwrap_err().code, Code::Io);
    assert_eq!(told.load(Ordering::SeqCst), 3, "the list counts although it is not in the map");
    assert!(publish(&*peer, &lists, true).unwrap().is_new);
    assert_eq!(*judged.lock(), [true; 3]);
}

#[test]
fn m3_every_request_by_a_revoked_certificate_is_refused_before_its_connection_is_closed() {
    let (mgs, peer) = fresh();
    let registered = ask(&*peer, &target(true, 1)).expect("registered");
    let mut office = Office::new();
    // Nothing closes connections here.
    mgs.judge_by(office.trust());
    let (revoked, lists) = office.revoke_one();
    let (server, admin, good) = ("stria://alpha/server/n", "stria://alpha/admin/n", pki::Serial(1));
    let get = GetMap { known_version: 0, server: true };
    assert_eq!(code_by(&mgs, server, revoked, &get).0, Code::Ok, "it is not revoked yet");
    publish(&*peer, &lists, true).unwrap();
    let secret = mgs.map().file_systems[0].secret;
    assert_ne!(secret, registered.map.file_systems[0].secret);
    let map = mgs.map();
    let beat = Heartbeat { node: registered.node, targets: vec![registered.target], leaving: true };
    let fetch = wire::pair::AskingOf::Fetch { epoch: Epoch(1) };
    let asking = AskMembers { mirror: registered.mirror, member: registered.target, asking: fetch };
    let plan = PlanRemoval { kind: RemovalKind::Target, name: "demo-MDT0000".into(), force: true };
    let again = PublishCrl { crls: Bytes(lists.clone()), rotate_keys: true };
    let wish = CreateFs { name: "more".into(), inline_max: 0, commit_interval_ms: 100 };
    let bodies = [
        code_by(&mgs, server, revoked, &get),
        code_by(&mgs, server, revoked, &target(true, 1)),
        code_by(&mgs, server, revoked, &beat),
        code_by(&mgs, server, revoked, &asking),
        code_by(&mgs, server, revoked, &KeepAlive { mode: 0, session: types::SessionId(1) }),
        code_by(&mgs, admin, revoked, &get),
        code_by(&mgs, admin, revoked, &plan),
        code_by(&mgs, admin, revoked, &again),
        code_by(&mgs, admin, revoked, &wish),
        code_by(&mgs, admin, revoked, &ChangeNodemaps { remove: vec![], add: vec![] }),
        code_by(&mgs, admin, revoked, &ChangeRoutes { remove: vec![], add: vec![] }),
    ];
    for (n, (code, body)) in bodies.iter().enumerate() {
        assert_eq!(*code, Code::Access, "request {n}");
        assert!(!body.windows(16).any(|some| *some == secret.0), "request {n}");
    }
    assert_eq!(mgs.map(), map, "nothing changed");
    let (code, body) = code_by(&mgs, server, good, &get);
    assert!(code == Code::Ok && body.windows(16).any(|some| *some == secret.0), "others are served");
}

mod mirrors;
mod several;
