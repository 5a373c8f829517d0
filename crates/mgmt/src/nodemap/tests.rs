use super::*;

fn nodemap(name: &str) -> Nodemap {
    Nodemap {
        name: name.into(),
        priority: 0,
        role: String::new(),
        node: String::new(),
        net: String::new(),
        address: String::new(),
        ban: false,
        read_only: false,
        squash: Squash::None,
        squash_uid: NOBODY,
        squash_gid: NOBODY,
        uids: vec![],
        gids: vec![],
        root: String::new(),
    }
}

fn range(from: u32, to: u32, count: u32) -> IdRange {
    IdRange { from, to, count }
}

const LAB: Peer<'static> = Peer {
    certificate: Some(("client", "lab7.example")),
    net: "tcp1",
    address: Some(IpAddr::V4(core::net::Ipv4Addr::new(10, 1, 2, 3))),
};

#[test]
fn a_node_is_matched_by_certificate_net_and_address_together() {
    // role, node, net, address → LAB, the same without a certificate, a process of the server's host
    let table = [
        (["client", "", "", ""], [true, false, false]),
        (["server", "", "", ""], [false, false, false]),
        (["", "lab*", "", ""], [true, false, false]),
        (["", "lab7", "", ""], [false, false, false]),
        (["", "*7*example", "", ""], [true, false, false]),
        (["", "*7*exampl", "", ""], [false, false, false]),
        (["", "*", "", ""], [true, false, false]),
        (["", "", "tcp1", ""], [true, true, false]),
        (["", "", "tcp0", ""], [false, false, false]),
        (["", "", "local0", ""], [false, false, true]),
        (["client", "", "local0", ""], [false, false, false]),
        (["", "", "", "10.1.0.0/16"], [true, true, false]),
        (["", "", "", "10.1.2.3"], [true, true, false]),
        (["", "", "", "10.1.2.2/32"], [false, false, false]),
        (["", "", "", "0.0.0.0/0"], [true, true, false]),
        (["", "", "", "::/0"], [false, false, false]),
        (["client", "lab*", "tcp1", "10.2.0.0/16"], [false, false, false]),
        (["client", "lab*", "tcp1", "10.0.0.0/8"], [true, false, false]),
    ];
    let plain = Peer { certificate: None, ..LAB };
    let own = Peer { certificate: None, net: "local0", address: None };
    for ([role, node, net, address], want) in table {
        let one = Nodemap {
            role: role.into(),
            node: node.into(),
            net: net.into(),
            address: address.into(),
            ..nodemap("n")
        };
        assert_eq!(check(&one), Ok(()), "{one:?}");
        assert_eq!([LAB, plain, own].map(|peer| matches(&one, &peer)), want, "{one:?}");
    }
}

#[test]
fn n1_the_first_match_by_priority_and_then_name_wins() {
    let of = |name: &str, priority, node: &str| Nodemap { priority, node: node.into(), ..nodemap(name) };
    let nodemaps = vec![of("b", 5, "*"), of("z", 1, "none"), of("a", 5, "*"), of("c", 9, "*")];
    let map = ClusterMap { nodemaps, ..ClusterMap::empty() };
    assert_eq!(find(&in_order(&map), &LAB).map(|n| n.name.as_str()), Some("a"));
    assert_eq!(find(&in_order(&ClusterMap::empty()), &LAB), None);
}

#[test]
fn addresses_of_both_families_are_compared_by_their_first_bits() {
    let has = |cidr: &str, address: &str| Cidr::parse(cidr).unwrap().has(address.parse().unwrap());
    assert!(has("10.1.2.128/25", "10.1.2.200") && !has("10.1.2.128/25", "10.1.2.100"));
    assert!(has("fd00:1::/32", "fd00:1:2::3") && !has("fd00:1::/32", "fd00:2::3"));
    assert!(has("::/0", "::1") && !has("::/0", "127.0.0.1"));
    for bad in ["", "10.1.2", "10.1.2.3/33", "10.1.2.3/", "10.1.2.3/-1", "10.1.2.3/+1", "fd00::/129", "host"]
    {
        assert_eq!(Cidr::parse(bad), None, "{bad}");
    }
}

#[test]
fn callers_get_the_ids_of_squash_and_ranges() {
    let cred = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
    let nobody = cred(NOBODY, NOBODY, &[]);
    let plain = nodemap("n");
    let root = Nodemap { squash: Squash::Root, ..nodemap("n") };
    let all = Nodemap { squash: Squash::All, squash_uid: 7, squash_gid: 8, ..nodemap("n") };
    let ranges = Nodemap {
        uids: vec![range(1000, 5000, 10), range(0, 9000, 1)],
        gids: vec![range(100, 600, 2)],
        ..nodemap("n")
    };
    let table = [
        (&plain, cred(0, 0, &[5]), cred(0, 0, &[5])),
        (&root, cred(0, 0, &[5]), nobody.clone()),
        (&root, cred(1000, 0, &[5]), cred(1000, 0, &[5])),
        (&all, cred(1000, 100, &[5]), cred(7, 8, &[])),
        (&ranges, cred(1009, 101, &[100, 5]), cred(5009, 601, &[600])),
        (&ranges, cred(1010, 100, &[100]), nobody.clone()),
        (&ranges, cred(1000, 5, &[]), cred(5000, NOBODY, &[])),
        (&ranges, cred(0, 100, &[]), cred(9000, 600, &[])),
        (&ranges, cred(5000, 600, &[]), nobody),
    ];
    for (nodemap, claimed, want) in table {
        assert_eq!(caller(nodemap, &claimed), want, "{nodemap:?} {claimed:?}");
    }
}

#[test]
fn mapped_ids_come_back_as_the_client_knows_them() {
    let ranges = [range(1000, 5000, 10), range(0, 9000, 1)];
    for id in [0, 1000, 1009] {
        assert_eq!(to_fs(&ranges, id).map(|id| to_client(&ranges, id, 77)), Some(id));
    }
    assert_eq!([4999, 5010, 1000, 0].map(|id| to_client(&ranges, id, 77)), [77; 4]);
    assert_eq!((to_fs(&[], 12), to_client(&[], 12, 77)), (Some(12), 12), "without ranges ids stay");
    assert_eq!(to_fs(&ranges, u32::MAX), None);
}

#[test]
fn a_change_of_ids_is_told_from_one_of_rights() {
    let (plain, read_only) = (nodemap("n"), Nodemap { read_only: true, ..nodemap("m") });
    let squash = Nodemap { squash: Squash::All, ..nodemap("n") };
    assert!(has_same_ids(None, Some(&plain)) && has_same_ids(Some(&plain), Some(&read_only)));
    assert!(!has_same_ids(None, Some(&squash)) && has_same_ids(Some(&squash), Some(&squash)));
    assert!(!has_same_ids(Some(&squash), Some(&Nodemap { squash_uid: 1, ..squash.clone() })));
}

#[test]
fn definitions_that_mean_nothing_are_refused() {
    let good = Nodemap { node: "*".into(), ..nodemap("lab") };
    let bad = [
        Nodemap { name: String::new(), ..good.clone() },
        Nodemap { name: "a b".into(), ..good.clone() },
        Nodemap { name: "n".repeat(64), ..good.clone() },
        nodemap("matches-nothing"),
        Nodemap { role: "user".into(), ..good.clone() },
        Nodemap { node: "Ä".into(), ..good.clone() },
        Nodemap { net: "tcp".into(), ..good.clone() },
        Nodemap { net: "o2ib0".into(), ..good.clone() },
        Nodemap { address: "10.0.0.0/40".into(), ..good.clone() },
        Nodemap { squash_uid: u32::MAX, ..good.clone() },
        Nodemap { squash_uid: 0, ..good.clone() },
        Nodemap { uids: vec![range(1, 2, 0)], ..good.clone() },
        Nodemap { uids: vec![range(u32::MAX - 1, 2, 2)], ..good.clone() },
        Nodemap { gids: vec![range(1, 10, 5), range(5, 20, 1)], ..good.clone() },
        Nodemap { gids: vec![range(1, 10, 5), range(6, 14, 1)], ..good.clone() },
        Nodemap { gids: (0..65).map(|n| range(n, n, 1)).collect(), ..good.clone() },
    ];
    for nodemap in bad {
        assert_eq!(check(&nodemap).map_err(|f| f.code), Err(Code::Invalid), "{nodemap:?}");
    }
    let side_by_side = Nodemap { gids: vec![range(1, 10, 5), range(6, 15, 1)], ..good };
    assert_eq!(check(&side_by_side), Ok(()));
}

#[test]
fn nodemaps_come_change_and_go() {
    let after = |map: &ClusterMap, remove: &[&Nodemap], add: &[&Nodemap]| {
        let copy = |some: &[&Nodemap]| some.iter().map(|n| (*n).clone()).collect();
        let change = ChangeNodemaps { remove: copy(remove), add: copy(add) };
        change_nodemaps(map, &change, &[]).map_err(|fault| fault.code)
    };
    let lab = Nodemap { node: "lab*".into(), ..nodemap("lab") };
    let banned = Nodemap { ban: true, ..lab.clone() };
    let one = after(&ClusterMap::empty(), &[], &[&lab]).expect("a new nodemap");
    assert_eq!((one.version, &one.nodemaps), (1, &vec![lab.clone()]));
    assert_eq!(after(&one, &[], &[&banned]), Err(Code::Exists));
    let two = after(&one, &[&lab], &[&banned]).expect("changed in one step");
    assert_eq!(two.nodemaps, std::slice::from_ref(&banned));
    assert_eq!(after(&two, &[&lab], &[&lab]), Err(Code::Busy), "it is another one now");
    assert_eq!(after(&two, &[&banned], &[]).expect("removed").nodemaps, []);
    assert_eq!(after(&one, &[&nodemap("none")], &[]), Err(Code::NotFound));
    let many: Vec<Nodemap> =
        (0..=NODEMAPS_MAX).map(|n| Nodemap { name: format!("n{n}"), ..lab.clone() }).collect();
    let many: Vec<&Nodemap> = many.iter().collect();
    assert_eq!(after(&one, &[], &many), Err(Code::NoSpace));
}

#[test]
fn n3_a_root_is_a_plain_path_from_the_root_of_the_file_system() {
    let with = |root: &str| Nodemap { root: root.into(), node: "*".into(), ..nodemap("lab") };
    for good in ["", "/a", "/projects/a", "/with space/ü", "/...", &format!("/{}", "n".repeat(255))] {
        assert_eq!(check(&with(good)), Ok(()), "{good}");
    }
    let long = format!("/{}", "n".repeat(256));
    let deep = "/n".repeat(513);
    for bad in ["/", "a", "a/b", "/a/", "//a", "/a//b", "/.", "/a/../b", "/a\0b", &long, &deep] {
        let fault = check(&with(bad)).unwrap_err();
        assert!(fault.code == Code::Invalid && fault.detail.contains("lab"), "{bad}: {fault}");
    }
    let plain = ["/", "//", "/a//b/", "/a", "a/b/"].map(plain_root);
    assert_eq!(plain, ["", "", "/a/b", "/a", "a/b/"].map(String::from));
    assert_eq!(root_names(&with("/a/b")).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(root_names(&with("")).count(), 0);
}

#[test]
fn k2_keys_change_with_each_change_that_takes_something_from_a_node() {
    let fs = |n: u8| wire::map::FileSystem {
        id: types::FsId(n.into()),
        name: format!("fs{n}"),
        uuid: Uuid([n; 16]),
        secret: Uuid([100 + n; 16]),
        inline_max: 0,
        commit_interval_ms: 1000,
    };
    let keys = [Uuid([8; 16]), Uuid([9; 16])];
    let new_keys = |nodemaps: &[&Nodemap], old: Option<&Nodemap>, new: Option<&Nodemap>| {
        let nodemaps = nodemaps.iter().copied().chain(old).cloned().collect();
        let map = ClusterMap { nodemaps, file_systems: vec![fs(1), fs(2)], ..ClusterMap::empty() };
        let change = ChangeNodemaps {
            remove: old.cloned().into_iter().collect(),
            add: new.cloned().into_iter().collect(),
        };
        let next = change_nodemaps(&map, &change, &keys).expect("changed");
        let secrets: Vec<Uuid> = next.file_systems.iter().map(|fs| fs.secret).collect();
        let are_new = secrets == keys;
        assert!(are_new || secrets == [101, 102].map(|n| Uuid([n; 16])), "all, or none");
        are_new
    };
    let lab = Nodemap { node: "lab*".into(), priority: 5, ..nodemap("lab") };
    let other = Nodemap { node: "*".into(), priority: 7, ..nodemap("other") };
    let with = |root: &str| Nodemap { root: root.into(), ..lab.clone() };
    let banned = Nodemap { ban: true, ..lab.clone() };
    let reader = Nodemap { read_only: true, ..lab.clone() };
    let squashed = Nodemap { squash: Squash::All, ..lab.clone() };
    let early = Nodemap { priority: 1, ..lab.clone() };
    let late = Nodemap { priority: 9, ..lab.clone() };
    let wider = Nodemap { node: "l*".into(), ..lab.clone() };
    let table = [
        (None, Some(&banned), true),
        (Some(&banned), None, true),
        (Some(&lab), Some(&banned), true),
        (Some(&banned), Some(&lab), false),
        (Some(&lab), Some(&reader), true),
        (Some(&reader), Some(&lab), false),
        (Some(&reader), Some(&banned), true),
        (Some(&lab), Some(&with("/a")), true),
        (Some(&with("/a")), Some(&with("/a/b")), true),
        (Some(&with("/a")), Some(&with("/b")), true),
        (Some(&with("/a")), Some(&lab), false),
        (Some(&lab), Some(&squashed), true),
        (Some(&squashed), Some(&lab), true),
        (Some(&lab), Some(&wider), true),
        (Some(&lab), Some(&early), false),
        (Some(&lab), Some(&late), true),
    ];
    for (old, new, want) in table {
        assert_eq!(new_keys(&[&other], old, new), want, "{old:?} {new:?}");
    }
    let map = ClusterMap { file_systems: vec![fs(1), fs(2)], ..ClusterMap::empty() };
    let add = ChangeNodemaps { remove: vec![], add: vec![banned] };
    assert_eq!(change_nodemaps(&map, &add, &keys[..1]).map_err(|fault| fault.code), Err(Code::Busy));
}
