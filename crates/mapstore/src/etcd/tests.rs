//! Against a real etcd, which the tests start.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use wire::codec::Bytes;

use super::testing::{Etcd, Files, is_installed};
use super::*;
use crate::conformance::sample;

/// A map of `version` that takes about `bytes`.
fn large(version: u64, bytes: usize) -> ClusterMap {
    ClusterMap {
        crls: Bytes((0..bytes).map(|n| (n as u64 * version % 251) as u8).collect()),
        ..sample(version)
    }
}

fn store(etcd: &Etcd, prefix: &str) -> EtcdStore {
    EtcdStore::at(&etcd.reach(prefix)).expect("a store")
}

fn made(etcd: &Etcd, prefix: &str) -> EtcdStore {
    let store = store(etcd, prefix);
    store.create(&ClusterMap::empty()).expect("made");
    store
}

/// Number of keys below the prefix.
fn keys_of(store: &EtcdStore) -> usize {
    let (from, to) = (store.keys.prefix.clone() + "/", store.keys.prefix.clone() + "0");
    let asked = json!({ "key": b64(from.as_bytes()), "range_end": b64(to.as_bytes()), "keys_only": true });
    let answer = store.keys.gateway.read("/v3/kv/range", &asked).expect("read");
    answer.get("kvs").and_then(|kvs| kvs.as_array()).map_or(0, Vec::len)
}

fn put_raw(store: &EtcdStore, key: &str, value: &[u8]) {
    let body = json!({ "key": b64(key.as_bytes()), "value": b64(value) });
    store.keys.gateway.change("/v3/kv/put", &body).expect("put");
}

/// Polls until `is` holds.
fn until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn conforms_and_refuses_what_is_not_the_stored_map() {
    if !is_installed("the map in etcd") {
        return;
    }
    let etcd = Etcd::start(1);
    let next = AtomicU32::new(0);
    let fresh = || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        made(&etcd, &format!("/stria/{n}"))
    };
    crate::conformance::check(&|| Box::new(fresh()));
    no_map_is_not_an_empty_map(&etcd);
    a_large_map_is_split_and_old_parts_go(&etcd);
    a_damaged_map_is_an_error(&etcd);
    a_race_of_two_stores_has_one_winner_each_time(&etcd);
}

/// A CA, and a certificate of it for 127.0.0.1, in files.
fn certificates(dir: &Path, name: &str) -> Files {
    let mut params = CertificateParams::new(vec![]).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    // etcd's gateway is a client of etcd itself, with the members' certificate.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().expect("a key");
    let cert = params.signed_by(&key, &ca).expect("a certificate");
    let write = |what: &str, text: String| {
        let path = dir.join(format!("{name}-{what}.pem"));
        std::fs::write(&path, text).expect("written");
        path
    };
    Files {
        ca: write("ca", ca.pem()),
        cert: write("cert", cert.pem()),
        key: write("key", key.serialize_pem()),
    }
}

#[test]
fn over_tls_both_sides_need_a_certificate_of_the_right_ca() {
    if !is_installed("etcd with TLS") {
        return;
    }
    let dir = std::env::temp_dir().join(format!("stria-etcd-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (ours, others) = (certificates(&dir, "ours"), certificates(&dir, "others"));
    let etcd = Etcd::start_with(1, Some(ours.clone()));
    let right = made(&etcd, "/stria/tls");
    right.compare_and_swap(0, &sample(1)).expect("changed");
    assert_eq!(right.load().expect("loaded"), sample(1));
    let reach = etcd.reach("/stria/tls");
    let refused = [
        ("without a certificate", Reach { cert: None, key: None, ..reach.clone() }),
        ("with one of another CA", Reach { cert: Some(others.cert), key: Some(others.key), ..reach.clone() }),
        ("for a server of another CA", Reach { ca: Some(others.ca), ..reach.clone() }),
        ("without a CA", Reach { ca: None, ..reach }),
    ];
    for (how, reach) in refused {
        let store = EtcdStore::at(&reach).expect("a store");
        let (loaded, swapped) = (store.load(), store.compare_and_swap(1, &sample(2)));
        assert!(loaded.is_err() && swapped.is_err(), "{how}: {loaded:?}, {swapped:?}");
    }
    assert_eq!(right.load().expect("loaded"), sample(1), "no refused client changed the map");
    drop(etcd);
    std::fs::remove_dir_all(dir).expect("removed");
}

/// mapstore-I2.
fn no_map_is_not_an_empty_map(etcd: &Etcd) {
    let none = store(etcd, "/nothing");
    assert!(matches!(none.load(), Err(StoreError::EtcdAbsent { .. })));
    assert!(matches!(none.compare_and_swap(0, &sample(1)), Err(StoreError::EtcdAbsent { .. })));
    none.create(&sample(4)).expect("made");
    let again = none.create(&ClusterMap::empty());
    assert!(matches!(again, Err(StoreError::EtcdTaken { version: 4, .. })), "{again:?}");
    assert_eq!(none.load().expect("loaded"), sample(4));
}

fn a_large_map_is_split_and_old_parts_go(etcd: &Etcd) {
    let store = made(etcd, "/large");
    // Parts of a change that was cut short.
    put_raw(&store, "/large/map/00000000000000000001-00000000000000aa/0000", b"left");
    put_raw(&store, "/large/map/00000000000000000000-00000000000000aa/0000", b"left");
    store.compare_and_swap(0, &large(1, 3 << 20)).expect("stored");
    assert_eq!(keys_of(&store), 1 + 7, "the head and the parts of this map");
    assert_eq!(store.load().expect("loaded"), large(1, 3 << 20));
    store.compare_and_swap(1, &large(2, 600_000)).expect("stored");
    assert_eq!(keys_of(&store), 1 + 2);
    // Old revisions are dropped in time.
    for version in 3..3 + u64::from(CHANGES_KEPT) {
        store.compare_and_swap(version - 1, &sample(version)).expect("stored");
    }
    let key = b64(store.keys.head_key().as_bytes());
    let old = store.keys.gateway.read("/v3/kv/range", &json!({ "key": key, "revision": "2" }));
    assert_eq!(old, Err(Failed::Compacted));
}

/// mapstore-E2.
fn a_damaged_map_is_an_error(etcd: &Etcd) {
    let store = made(etcd, "/bad");
    store.compare_and_swap(0, &large(1, 600_000)).expect("stored");
    let stamp = store.keys.head("reading").expect("there").head.stamp();
    let part = store.keys.part_key(&format!("{stamp}/0001"));
    let is_damaged = |what: &str| {
        let loaded = store.load();
        assert!(matches!(loaded, Err(StoreError::EtcdDamaged { .. })), "{what}: {loaded:?}");
    };
    put_raw(&store, &part, b"something else");
    is_damaged("another part");
    let body = json!({ "key": b64(part.as_bytes()) });
    store.keys.gateway.change("/v3/kv/deleterange", &body).expect("deleted");
    is_damaged("no part");
    put_raw(&store, &store.keys.head_key(), b"stria-map 1 1 1\n");
    is_damaged("half a head");
    let refused = store.compare_and_swap(1, &sample(2));
    assert!(matches!(refused, Err(StoreError::EtcdDamaged { .. })), "{refused:?}");
}

fn a_race_of_two_stores_has_one_winner_each_time(etcd: &Etcd) {
    let stores = [made(etcd, "/race"), store(etcd, "/race")];
    for version in 1..=10 {
        let wins: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = stores
                .iter()
                .map(|s| scope.spawn(move || s.compare_and_swap(version - 1, &large(version, 600_000))))
                .collect();
            let ends = tries.into_iter().map(|t| t.join().expect("no panic"));
            ends.map(|end| match end {
                Ok(()) => 1,
                Err(StoreError::Conflict { expected, found }) => {
                    assert_eq!((expected, found), (version - 1, version));
                    0
                }
                Err(other) => panic!("{other}"),
            })
            .sum()
        });
        assert_eq!(wins, 1);
        assert_eq!(stores[1].load().expect("loaded"), large(version, 600_000));
    }
}

/// mapstore-I1, with one member that is killed at random under two stores that change the map.
#[test]
fn acknowledged_changes_survive_kills_of_etcd_and_versions_never_go_back() {
    if !is_installed("a killed etcd") {
        return;
    }
    let mut etcd = Etcd::start(1);
    let stores = [made(&etcd, "/killed"), store(&etcd, "/killed")];
    let ends = AtomicBool::new(false);
    // Each store writes its mark into the maps that it changes; a change keeps the marks of others by the compare-and-swap.
    let acknowledged: Vec<Vec<(u64, u8)>> = std::thread::scope(|scope| {
        let writers: Vec<_> = stores
            .iter()
            .zip(1u8..)
            .map(|(store, mark)| {
                let ends = &ends;
                scope.spawn(move || {
                    let (mut mine, mut highest) = (vec![], 0);
                    while !ends.load(Ordering::Acquire) {
                        let Ok(now) = store.load() else { continue };
                        assert!(now.version >= highest, "version {} after {highest}", now.version);
                        highest = now.version;
                        let mut next = now.clone();
                        next.version += 1;
                        next.crls.0.push(mark);
                        if store.compare_and_swap(now.version, &next).is_ok() {
                            mine.push((next.version, mark));
                            highest = next.version;
                        }
                    }
                    mine
                })
            })
            .collect();
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(100 + 37 * round));
            etcd.restart(0);
            etcd.wait();
        }
        ends.store(true, Ordering::Release);
        writers.into_iter().map(|w| w.join().expect("no panic")).collect()
    });
    let last = stores[0].load().expect("loaded");
    assert_eq!(last.version, last.crls.0.len() as u64, "each version has one mark");
    assert!(acknowledged.iter().all(|mine| !mine.is_empty()), "both stores changed the map");
    for (version, mark) in acknowledged.into_iter().flatten() {
        assert_eq!(last.crls.0[version as usize - 1], mark, "version {version} was acknowledged");
    }
}

/// mapstore-E1, and the lease.
#[test]
fn one_leads_and_another_takes_over_without_clocks() {
    if !is_installed("the leader in etcd") {
        return;
    }
    let etcd = Etcd::start(1);
    made(&etcd, "/lead");
    let [first, second] = [0, 1].map(|_| EtcdStore::service(&etcd.reach("/lead")).expect("a store"));
    let refused = first.compare_and_swap(0, &sample(1));
    assert!(matches!(refused, Err(StoreError::NotLeading { .. })), "before it leads: {refused:?}");
    let leads = |store: &EtcdStore| matches!(store.standing(), Standing::Leads { .. });
    first.lead("one").expect("a thread");
    until("the first leads", || leads(&first));
    second.lead("two").expect("a thread");
    until("the second follows", || second.standing() == Standing::Follows { leader: "one".into() });
    first.compare_and_swap(0, &sample(1)).expect("stored");
    first.confirm(1).expect("it leads, and this is the map");
    assert!(matches!(first.confirm(0), Err(StoreError::Conflict { expected: 0, found: 1 })));
    let refused = second.compare_and_swap(1, &sample(2)).unwrap_err();
    assert!(matches!(&refused, StoreError::NotLeading { why } if why.contains("one")), "{refused}");
    // Another process takes the key while the first still takes itself for the leader.
    put_raw_leader(&first);
    let refused = first.compare_and_swap(1, &sample(2));
    assert!(matches!(refused, Err(StoreError::NotLeading { .. })), "{refused:?}");
    assert!(matches!(first.confirm(1), Err(StoreError::NotLeading { .. })));
    assert_eq!(second.load().expect("loaded").version, 1);
    until("the key of another is seen", || first.standing() == Standing::Follows { leader: "other".into() });
    let body = json!({ "key": b64(first.keys.leader_key().as_bytes()) });
    first.keys.gateway.change("/v3/kv/deleterange", &body).expect("deleted");
    until("one of them leads", || leads(&first) != leads(&second));
    // A planned stop gives the lease back.
    let (leader, other) = if leads(&first) { (first, second) } else { (second, first) };
    drop(leader);
    until("the other takes over", || leads(&other));
    other.compare_and_swap(1, &sample(2)).expect("stored");
}

/// The leader's key made anew by another process.
fn put_raw_leader(store: &EtcdStore) {
    let key = store.keys.leader_key();
    let body = json!({ "key": b64(key.as_bytes()) });
    store.keys.gateway.change("/v3/kv/deleterange", &body).expect("deleted");
    put_raw(store, &key, b"other");
}

#[test]
fn without_quorum_changes_are_refused_and_all_heals() {
    if !is_installed("a lost quorum") {
        return;
    }
    let mut etcd = Etcd::start(3);
    made(&etcd, "/quorum");
    let store = EtcdStore::service(&etcd.reach("/quorum")).expect("a store");
    store.lead("one").expect("a thread");
    let leads = |store: &EtcdStore| matches!(store.standing(), Standing::Leads { .. });
    until("it leads", || leads(&store));
    store.compare_and_swap(0, &sample(1)).expect("stored");
    etcd.kill(1);
    until("two of three suffice", || {
        store.compare_and_swap(1, &sample(2)).is_ok() || store.load().is_ok_and(|m| m.version == 2)
    });
    etcd.kill(2);
    let refused = store.compare_and_swap(2, &sample(3)).unwrap_err();
    assert!(matches!(refused, StoreError::EtcdAway { .. } | StoreError::NotLeading { .. }), "{refused}");
    until("it notices", || matches!(store.standing(), Standing::NoQuorum { .. }));
    let begin = Instant::now();
    let refused = store.compare_and_swap(2, &sample(3)).unwrap_err();
    assert!(
        refused.to_string().contains("no quorum") && begin.elapsed() < Duration::from_secs(1),
        "{refused}"
    );
    etcd.restart(1);
    until("it leads again", || leads(&store));
    assert_eq!(store.load().expect("loaded"), sample(2));
    store.compare_and_swap(2, &sample(3)).expect("stored");
}
