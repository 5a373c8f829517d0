//! Several management services over one etcd.

use mapstore::etcd::testing::{Etcd, is_installed};
use wire::mgmt::{MgsStat, is_not_leading};

use super::*;

/// A management service, its store, and a connection to it.
struct One {
    mgs: Arc<Mgs>,
    store: Arc<EtcdStore>,
    peer: Arc<dyn Peer>,
}

fn one(etcd: &Etcd, name: &str) -> One {
    let store = Arc::new(EtcdStore::service(&etcd.reach("/stria/several")).expect("a store"));
    let mgs = Mgs::over_etcd(store.clone()).expect("the map is there");
    store.lead(name).expect("a thread");
    One { peer: peer_of(mgs.clone()), mgs, store }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn leads(one: &One) -> bool {
    ask(&*one.peer, &MgsStat {}).expect("answered").leads
}

/// mgs-M5, mgs-M6.
#[test]
fn one_leads_others_tell_the_map_and_a_lost_quorum_stops_changes_only() {
    if !is_installed("several management services") {
        return;
    }
    let mut etcd = Etcd::start(1);
    let tool = EtcdStore::at(&etcd.reach("/stria/several")).expect("a store");
    tool.create(&ClusterMap::empty()).expect("made");
    let first = one(&etcd, "first");
    until("the first leads", || leads(&first));
    let second = one(&etcd, "second");
    until("the second follows", || ask(&*second.peer, &MgsStat {}).expect("answered").leader == "first");
    // 1. Only the leader takes changes, and the other says which one leads.
    let mdt = ask(&*first.peer, &target(true, 1)).expect("registered");
    let refused = ask(&*second.peer, &target(false, 2)).expect_err("it follows");
    assert!(is_not_leading(&refused) && refused.detail.contains("first"), "{refused}");
    // 2. The other hears of the new map.
    until("the map is told", || get(&*second.peer, 0, false).expect("sent").version == mdt.map.version);
    assert_eq!(
        get(&*second.peer, mdt.map.version + 1, false),
        None,
        "it sends no older map than the asker has"
    );
    // 3. Silence counts from the begin of a term: the map says that the target is up.
    drop(first.store.clone());
    first.store.stop();
    until("the second leads", || leads(&second));
    let refused = ask(&*first.peer, &target(false, 2)).expect_err("it has stopped");
    assert!(is_not_leading(&refused), "{refused}");
    let early = second.mgs.now_ms() + mgmt::SILENCE_MS_MAX / 2;
    second.mgs.state.lock().review(early).expect("reviewed");
    assert_eq!(second.mgs.map().target(mdt.target).expect("there").state, mgmt::STATE_UP);
    let ost = ask(&*second.peer, &target(false, 2)).expect("registered");
    assert_eq!(ost.target, TargetId(2));
    // 4. Without etcd the map is told from memory, and changes are refused.
    etcd.kill(0);
    until("it notices", || !leads(&second));
    let version = get(&*second.peer, 0, false).expect("sent").version;
    assert_eq!(version, ost.map.version);
    let refused = ask(&*second.peer, &target(false, 3)).expect_err("no quorum");
    assert!(is_not_leading(&refused) && refused.detail.contains("no quorum"), "{refused}");
    // 5. It heals without a restart.
    etcd.restart(0);
    until("it leads again", || leads(&second));
    assert_eq!(ask(&*second.peer, &target(false, 3)).expect("registered").target, TargetId(3));
}

/// A store whose quorum can be lost, and comes back with the lease of before.
#[derive(Default)]
struct Quorum {
    map: mapstore::MemoryStore,
    is_lost: std::sync::atomic::AtomicBool,
}

impl MapStore for Quorum {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        self.map.load()
    }
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        self.map.compare_and_swap(expected, next)
    }
    fn standing(&self) -> mapstore::Standing {
        match self.is_lost.load(std::sync::atomic::Ordering::Relaxed) {
            true => mapstore::Standing::NoQuorum { why: "two of three are down".into() },
            false => mapstore::Standing::Leads { term: 5 },
        }
    }
    fn is_shared(&self) -> bool {
        true
    }
}

#[test]
fn m6_servers_that_could_not_be_heard_while_the_quorum_was_lost_count_as_up() {
    let quorum = Arc::new(Quorum::default());
    let mut state = State::load(Box::new(quorum.clone()), 0).expect("a map");
    state.lead(0).expect("it leads");
    let one = state.register(&target(true, 1), 100).expect("registered");
    let lost = |is_lost| quorum.is_lost.store(is_lost, std::sync::atomic::Ordering::Relaxed);
    let is_up = |state: &State| state.map().target(one.target).is_some_and(|t| t.state == mgmt::STATE_UP);
    lost(true);
    assert!(state.lead(1_000).is_err());
    // Heartbeats were refused for longer than a silence that counts. The term is the one of before.
    lost(false);
    let now_ms = 1_000 + 3 * mgmt::SILENCE_MS_MAX;
    state.lead(now_ms).and_then(|()| state.review(now_ms)).expect("it leads");
    assert!(is_up(&state), "no process could hear it");
    let later = now_ms + 2 * mgmt::SILENCE_MS_MAX;
    state.lead(later).and_then(|()| state.review(later)).expect("it leads");
    assert!(!is_up(&state), "silence from here on counts");
}
