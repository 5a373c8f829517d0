//! The promises of every store, as one function that each implementation calls with a maker of an empty store.

use types::{Epoch, FsId, MirrorId, NodeId, TargetId, Uuid};
use wire::map::{
    ClusterMap, FileSystem, IdRange, IdsUsed, KeptParam, Mirror, Node, Nodemap, Route, Squash, Target,
};

use crate::{MapStore, StoreError};

/// A small map with one of everything.
pub fn sample(version: u64) -> ClusterMap {
    ClusterMap {
        version,
        file_systems: vec![FileSystem {
            id: FsId(1),
            name: "demo".into(),
            uuid: Uuid([0xa1; 16]),
            secret: Uuid([0xb2; 16]),
            inline_max: 65_536,
            commit_interval_ms: 1000,
        }],
        nodes: vec![Node {
            id: NodeId(1),
            name: "one".into(),
            nids: vec!["10.0.0.1:7011@tcp0".into()],
            rack: "r7".into(),
        }],
        targets: vec![Target {
            id: TargetId(1),
            fs: FsId(1),
            is_mdt: true,
            index: 0,
            uuid: Uuid([0xc3; 16]),
            node: NodeId(1),
            mirror: MirrorId(1),
            state: 1,
            bytes_total: 1 << 30,
        }],
        mirrors: vec![Mirror::alone(MirrorId(1), FsId(1), true, Epoch(2), TargetId(1))],
        ids_used: IdsUsed { fs: FsId(4), node: NodeId(5), target: TargetId(6), mirror: MirrorId(7) },
        routes: vec![Route { to: "tcp1".into(), gateway: "10.0.0.9:7020@tcp0".into(), priority: 1 }],
        nodemaps: vec![Nodemap {
            name: "lab".into(),
            priority: 2,
            role: "client".into(),
            node: "lab*".into(),
            net: "tcp1".into(),
            address: "10.1.0.0/16".into(),
            ban: false,
            read_only: true,
            squash: Squash::Root,
            squash_uid: 65_534,
            squash_gid: 65_533,
            uids: vec![IdRange { from: 1000, to: 5000, count: 10 }],
            gids: vec![IdRange { from: 100, to: 600, count: 1 }],
            root: "/a".into(),
        }],
        crls: wire::codec::Bytes(vec![0x30, 0x01, 0x00]),
        draining: vec![MirrorId(1)],
        params: vec![KeptParam {
            fs: FsId(1),
            targets: "demo-OST*".into(),
            name: "resync.rate".into(),
            value: Some(1 << 20),
        }],
    }
}

/// Runs all of it.
pub fn check(make: &dyn Fn() -> Box<dyn MapStore>) {
    starts_empty_and_keeps_what_it_is_given(&*make());
    refuses_what_does_not_follow(&*make());
    lets_one_of_many_win(&*make());
}

fn load(store: &dyn MapStore) -> ClusterMap {
    store.load().expect("loaded")
}

fn starts_empty_and_keeps_what_it_is_given(store: &dyn MapStore) {
    assert_eq!(load(store), ClusterMap::empty());
    for version in 1..=5 {
        store.compare_and_swap(version - 1, &sample(version)).expect("stored");
        assert_eq!(load(store), sample(version));
    }
}

fn refuses_what_does_not_follow(store: &dyn MapStore) {
    store.compare_and_swap(0, &sample(1)).expect("stored");
    let conflict = store.compare_and_swap(0, &ClusterMap { version: 1, ..ClusterMap::empty() });
    assert!(matches!(conflict, Err(StoreError::Conflict { expected: 0, found: 1 })), "{conflict:?}");
    for next in [0, 1, 3] {
        let wrong = store.compare_and_swap(1, &sample(next));
        assert!(matches!(wrong, Err(StoreError::Sequence { expected: 1, .. })), "{wrong:?}");
    }
    assert_eq!(load(store), sample(1), "refusals change nothing");
}

fn lets_one_of_many_win(store: &dyn MapStore) {
    let wins: usize = std::thread::scope(|scope| {
        let tries: Vec<_> =
            (0..8).map(|_| scope.spawn(|| store.compare_and_swap(0, &sample(1)).is_ok())).collect();
        tries.into_iter().map(|t| t.join().expect("no panic") as usize).sum()
    });
    assert_eq!(wins, 1);
}
