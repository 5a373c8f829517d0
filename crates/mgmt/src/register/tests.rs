//! Registrations as tables: the map before, the request, and the answer.

use super::*;

const FRESH: Fresh = Fresh { fs_uuid: Uuid([0xf5; 16]), secret: Uuid([0x5e; 16]) };

fn mdt(fs: &str, uuid: u8) -> Register {
    Register {
        fs_name: fs.into(),
        is_mdt: true,
        index: INDEX_ANY,
        uuid: Uuid([uuid; 16]),
        target: TargetId(0),
        bytes_total: 1 << 30,
        node_name: "one".into(),
        nids: vec!["10.0.0.1:7011@tcp0".into()],
        second: false,
        rack: String::new(),
        apart: Apart::Nothing,
    }
}

fn ost(fs: &str, uuid: u8) -> Register {
    Register { is_mdt: false, ..mdt(fs, uuid) }
}

fn at(request: Register, name: &str, nid: &str) -> Register {
    Register { node_name: name.into(), nids: vec![nid.into()], ..request }
}

/// Applies all requests; each must succeed.
fn after(requests: &[Register]) -> ClusterMap {
    requests.iter().fold(ClusterMap::empty(), |map, r| apply_register(&map, r, &FRESH).expect("accepted").0)
}

/// MDT (target 1, mirror 1), OSTs 2 and 3 of `demo`.
fn demo() -> ClusterMap {
    after(&[mdt("demo", 1), ost("demo", 2), ost("demo", 3)])
}

#[test]
fn the_first_mdt_makes_the_file_system() {
    let (map, reply) = apply_register(&ClusterMap::empty(), &mdt("demo", 1), &FRESH).expect("accepted");
    let fs = FileSystem {
        id: FsId(1),
        name: "demo".into(),
        uuid: FRESH.fs_uuid,
        secret: FRESH.secret,
        inline_max: 65_536,
        commit_interval_ms: 1000,
    };
    let node = Node {
        id: NodeId(1),
        name: "one".into(),
        nids: vec!["10.0.0.1:7011@tcp0".into()],
        rack: String::new(),
    };
    let target = Target {
        id: TargetId(1),
        fs: FsId(1),
        is_mdt: true,
        index: 0,
        uuid: Uuid([1; 16]),
        node: NodeId(1),
        mirror: MirrorId(1),
        state: STATE_UP,
        bytes_total: 1 << 30,
    };
    let mirror = Mirror::alone(MirrorId(1), FsId(1), true, Epoch(1), TargetId(1));
    let want = ClusterMap {
        version: 1,
        file_systems: vec![fs],
        nodes: vec![node],
        targets: vec![target],
        mirrors: vec![mirror],
        ..ClusterMap::empty()
    };
    assert_eq!(map, want);
    let want_reply = RegisterReply {
        target: TargetId(1),
        index: 0,
        mirror: MirrorId(1),
        epoch: Epoch(1),
        node: NodeId(1),
        map: want,
    };
    assert_eq!(reply, want_reply);
}

#[test]
fn targets_get_the_next_ids_and_the_lowest_free_index() {
    // name, the request, then: target, index, mirror, epoch, node
    let table = [
        ("the next OST", ost("demo", 9), (4, 2, 4, 1, 1)),
        ("a wanted index", Register { index: 7, ..ost("demo", 9) }, (4, 7, 4, 1, 1)),
        ("a known MDT", mdt("demo", 1), (1, 0, 1, 2, 1)),
        ("a known OST", ost("demo", 3), (3, 1, 3, 2, 1)),
        (
            "a known OST that tells its id and index",
            Register { target: TargetId(3), index: 1, ..ost("demo", 3) },
            (3, 1, 3, 2, 1),
        ),
        ("the MDT of another file system", mdt("other", 9), (4, 0, 4, 1, 1)),
        ("another server on the same host", at(ost("demo", 9), "one", "10.0.0.1:7012@tcp0"), (4, 2, 4, 1, 2)),
        (
            "a known OST moves out of a shared node",
            at(ost("demo", 2), "two", "10.0.0.2:1@tcp0"),
            (2, 0, 2, 2, 2),
        ),
    ];
    for (name, request, want) in table {
        let before = demo();
        let (map, r) = apply_register(&before, &request, &FRESH).expect(name);
        assert_eq!((r.target.0, r.index, r.mirror.0, r.epoch.0, r.node.0), want, "{name}");
        assert_eq!(map.version, before.version + 1, "{name}");
        assert_eq!(r.map, map, "{name}");
        assert_eq!(map.target(r.target).expect("there").node, r.node, "{name}");
        // mgmt-I2: the other targets stay unchanged.
        for t in before.targets.iter().filter(|t| t.id != r.target) {
            assert_eq!(map.target(t.id), Some(t), "{name}");
            assert_eq!(map.mirror(t.mirror), before.mirror(t.mirror), "{name}");
        }
    }
}

#[test]
fn refusals_say_why_and_what_next() {
    use Code::*;
    let table = [
        ("an OST first", ost("new", 9), NotReady, "start its MDT first"),
        ("a bad name", mdt("far too long", 9), Invalid, "longer than 8"),
        ("a second MDT", mdt("demo", 9), Exists, "demo-MDT0000 is already there"),
        ("a taken index", Register { index: 1, ..ost("demo", 9) }, Exists, "demo-OST0001 is already there"),
        ("another index", Register { index: 5, ..ost("demo", 3) }, Exists, "cannot become 5"),
        ("another file system", ost("other", 3), Invalid, "cannot join file system \"other\""),
        ("another kind", mdt("demo", 3), Invalid, "cannot change its kind"),
        ("another id", Register { target: TargetId(2), ..ost("demo", 3) }, Invalid, "its label says 2"),
        (
            "a stranger with an id",
            Register { target: TargetId(2), ..ost("demo", 9) },
            NotFound,
            "registered elsewhere",
        ),
        ("no uuid", ost("demo", 0), Invalid, "uuid is zero"),
        ("no host name", Register { node_name: String::new(), ..ost("demo", 9) }, Invalid, "node's name"),
        ("a long NID", at(ost("demo", 9), "x", &"n".repeat(193)), Invalid, "NID of 193 bytes"),
        ("many NIDs", Register { nids: vec!["n".into(); 17], ..ost("demo", 9) }, Invalid, "17 NIDs"),
        ("a high index", Register { index: 65_535, ..ost("demo", 9) }, Invalid, "highest is 65534"),
    ];
    for (name, request, code, part) in table {
        let fault = apply_register(&demo(), &request, &FRESH).expect_err(name);
        assert_eq!(fault.code, code, "{name}: {fault}");
        assert!(fault.detail.contains(part), "{name}: {fault}");
    }
}

#[test]
fn a_server_that_comes_back_elsewhere_keeps_its_node() {
    let map = after(&[mdt("demo", 1), at(ost("demo", 2), "two", "10.0.0.2:7012@tcp0")]);
    let (map, r) =
        apply_register(&map, &at(ost("demo", 2), "two", "10.0.0.2:9999@tcp0"), &FRESH).expect("accepted");
    assert_eq!(r.node, NodeId(2));
    assert_eq!(map.nodes.len(), 2);
    assert_eq!(map.node(NodeId(2)).expect("there").nids, ["10.0.0.2:9999@tcp0"]);
}

#[test]
fn a_server_with_two_targets_at_a_new_port_again_and_again_makes_no_heap_of_nodes() {
    let mut map = after(&[mdt("demo", 1), ost("demo", 2)]);
    for port in 1..50 {
        let nid = format!("10.0.0.1:{port}@tcp0");
        for request in [at(mdt("demo", 1), "one", &nid), at(ost("demo", 2), "one", &nid)] {
            map = apply_register(&map, &request, &FRESH).expect("accepted").0;
        }
        let on: Vec<NodeId> = map.targets.iter().map(|t| t.node).collect();
        assert_eq!(on[0], on[1], "both are found again on one node");
        assert_eq!(map.node(on[0]).expect("there").nids, [nid]);
    }
    assert_eq!(map.nodes.len(), 2);
}

#[test]
fn ids_are_above_all_that_were_ever_given() {
    let mut map = demo();
    map.targets[1].id = TargetId(40);
    map.mirrors[1].id = MirrorId(50);
    map.targets[1].mirror = MirrorId(50);
    let (_, r) = apply_register(&map, &ost("demo", 9), &FRESH).expect("accepted");
    assert_eq!((r.target, r.mirror), (TargetId(41), MirrorId(51)));
    map.targets[1].id = TargetId(u32::MAX);
    let fault = apply_register(&map, &ost("demo", 9), &FRESH).expect_err("used up");
    assert_eq!(fault.code, Code::NoSpace);
}

#[test]
fn a_map_that_no_frame_could_carry_is_refused() {
    let mut map = demo();
    map.nodes.push(Node {
        id: NodeId(2),
        name: "x".into(),
        nids: vec!["y".repeat(MAP_BYTES_MAX)],
        rack: String::new(),
    });
    let fault = apply_register(&map, &ost("demo", 9), &FRESH).expect_err("too large");
    assert_eq!(fault.code, Code::NoSpace);
}

#[test]
fn a_damaged_map_is_not_made_worse() {
    let mut map = demo();
    map.mirrors.remove(2);
    let fault = apply_register(&map, &ost("demo", 3), &FRESH).expect_err("no mirror");
    assert_eq!(fault.code, Code::Damaged);
}

#[test]
fn a_second_copy_of_a_live_target_is_told_to_wait() {
    const NOW: u64 = 1_000_000;
    const TTL: u64 = crate::SILENCE_MS_MAX;
    let home = at(ost("demo", 2), "two", "10.0.0.2:7012@tcp0");
    let map = after(&[mdt("demo", 1), home.clone()]);
    let elsewhere = at(home.clone(), "three", "10.0.0.3:7012@tcp0");
    let inside = Register { node_name: "three".into(), nids: vec![], ..home.clone() };
    let new = at(ost("demo", 9), "three", "10.0.0.3:7012@tcp0");
    let heard = {
        let mut reports = Reports::new(0);
        reports.on_register(TargetId(2), NOW);
        reports
    };
    let left = {
        let (mut reports, node) = (heard.clone(), map.target(TargetId(2)).expect("there").node);
        let bye = wire::mgmt::Heartbeat { node, targets: vec![TargetId(2)], leaving: true };
        reports.on_heartbeat(&map, &bye, NOW + 1);
        reports
    };
    let port = at(home.clone(), "two", "10.0.0.2:9999@tcp0");
    /// Name, target that reported, request, time, and whether it is admitted.
    type Row<'a> = (&'a str, &'a Reports, &'a Register, u64, bool);
    let table: [Row; 10] = [
        ("the same server again, at once", &heard, &home, NOW, true),
        ("the same host at another port, at once", &heard, &port, NOW, true),
        ("another host", &heard, &elsewhere, NOW, false),
        ("another host, still within patience", &heard, &elsewhere, NOW + TTL, false),
        ("another host, after silence", &heard, &elsewhere, NOW + TTL + 1, true),
        ("another host, after a goodbye", &left, &elsewhere, NOW + 2, true),
        ("another host, and the MGS just started", &Reports::new(NOW), &elsewhere, NOW + TTL, false),
        ("another host, nobody heard since the start", &Reports::new(NOW), &elsewhere, NOW + TTL + 1, true),
        ("the process of the MGS, while another host serves it", &heard, &inside, NOW, false),
        ("another target", &heard, &new, NOW, true),
    ];
    for (name, reports, request, now_ms, is_let_in) in table {
        let got = refuse_second_copy(&map, reports, request, now_ms);
        match got {
            Ok(()) => assert!(is_let_in, "{name}"),
            Err(fault) => {
                assert!(!is_let_in && fault.code == Code::Busy, "{name}: {fault}");
                assert!(fault.detail.contains("demo-OST0000 is served by host two"), "{name}: {fault}");
            }
        }
    }
    // A directory of `stria up` under another host name: no other process can have served it.
    let alone = Register { nids: vec![], ..home };
    let map = after(&[mdt("demo", 1), alone.clone()]);
    assert!(refuse_second_copy(&map, &heard, &Register { node_name: "new".into(), ..alone }, NOW).is_ok());
}

/// `demo` with a second member of OST 0001: target 4 on host two.
fn doubled() -> ClusterMap {
    let request = second(ost("demo", 4), 1);
    apply_register(&demo(), &at(request, "two", "10.0.0.2:7011@tcp0"), &FRESH).expect("accepted").0
}

fn second(request: Register, index: u32) -> Register {
    Register { second: true, index, ..request }
}

#[test]
fn i6_a_second_member_joins_a_mirror_and_is_out() {
    let before = demo();
    let request = at(second(ost("demo", 4), 1), "two", "10.0.0.2:7011@tcp0");
    let (map, r) = apply_register(&before, &request, &FRESH).expect("accepted");
    assert_eq!((r.target, r.index, r.mirror, r.epoch), (TargetId(4), 1, MirrorId(3), Epoch(2)));
    let members = vec![
        Member { target: TargetId(3), state: MemberState::InSync },
        Member { target: TargetId(4), state: MemberState::Out },
    ];
    let want = Mirror { members, epoch: Epoch(2), ..before.mirrors[2].clone() };
    assert_eq!(map.mirrors[2], want);
    assert_eq!((map.version, map.mirrors.len()), (before.version + 1, 3));
    let target = map.target(TargetId(4)).expect("there");
    assert_eq!(
        (target.index, target.mirror, target.node, target.state),
        (1, MirrorId(3), NodeId(2), STATE_UP)
    );
    // The MDT too, and on the host and the node of its first member.
    let (map, r) = apply_register(&map, &second(mdt("demo", 5), 0), &FRESH).expect("accepted");
    assert_eq!((r.target, r.mirror, r.epoch, r.node), (TargetId(5), MirrorId(1), Epoch(2), NodeId(1)));
    assert_eq!(map.mdt_of(FsId(1), Fid::ROOT).expect("there").primary, TargetId(1));
    // A new OST gets the lowest index that no mirror has.
    assert_eq!(apply_register(&map, &ost("demo", 9), &FRESH).expect("accepted").1.index, 2);
}

#[test]
fn i7_a_second_member_shares_no_failure_domain_with_the_first_one() {
    let first = |rack: &str| Register { rack: rack.into(), ..mdt("demo", 1) };
    let wish = |host: &str, rack: &str, apart| {
        let nid = format!("{host}:7011@tcp0");
        Register { rack: rack.into(), apart, ..at(second(mdt("demo", 2), 0), host, &nid) }
    };
    let ask =
        |first: &Register, wish: &Register| apply_register(&after(std::slice::from_ref(first)), wish, &FRESH);
    // The first member is on host one.
    for (in_rack, wish, refusal) in [
        ("", wish("one", "", Apart::Nothing), None),
        ("", wish("one", "", Apart::Server), Some("both would be on host one")),
        ("", wish("two", "", Apart::Server), None),
        ("r1", wish("two", "r1", Apart::Server), None),
        ("r1", wish("two", "r1", Apart::Rack), Some("hosts one and two are both in rack r1")),
        ("r1", wish("one", "r2", Apart::Rack), Some("both would be on host one")),
        ("r1", wish("two", "r2", Apart::Rack), None),
        ("", wish("two", "r2", Apart::Rack), Some("host one names no rack")),
        ("r1", wish("two", "", Apart::Rack), Some("host two names no rack")),
    ] {
        match (ask(&first(in_rack), &wish), refusal) {
            (Ok((map, _)), None) => assert_eq!(map.mirrors[0].members.len(), 2, "{wish:?}"),
            (Err(fault), Some(why)) => {
                assert!(fault.code == Code::Invalid && fault.detail.contains(why), "{fault}")
            }
            (got, _) => panic!("{wish:?}: {got:?}"),
        }
    }
    // A server that gets a rack tells so when it registers again.
    let moved = Register { target: TargetId(1), index: 0, ..first("r5") };
    let (map, _) = apply_register(&after(&[first("")]), &moved, &FRESH).expect("accepted");
    assert_eq!(map.nodes[0].rack, "r5");
}

#[test]
fn i3_a_known_member_of_two_changes_its_node_and_no_epoch() {
    let map = doubled();
    let elsewhere = |request| at(request, "three", "10.0.0.3:1@tcp0");
    let known = |uuid, id| Register { target: TargetId(id), index: 1, ..ost("demo", uuid) };
    let table = [
        ("the first member", ost("demo", 3), 3),
        ("the second", elsewhere(known(4, 4)), 4),
        ("the second, as its configuration has it for ever", second(known(4, 4), 1), 4),
        ("the first, as a second: it keeps its place", second(known(3, 3), 1), 3),
    ];
    for (name, request, id) in table {
        let (next, r) = apply_register(&map, &request, &FRESH).expect(name);
        assert_eq!(
            (r.target, r.index, r.mirror, r.epoch),
            (TargetId(id), 1, MirrorId(3), Epoch(2)),
            "{name}"
        );
        assert_eq!(next.mirrors, map.mirrors, "{name}");
        let node = next.node(next.target(r.target).expect("there").node).expect("there");
        assert_eq!((&node.name, &node.nids), (&request.node_name, &request.nids), "{name}");
        assert_eq!(next.version, map.version + 1, "{name}");
    }
}

#[test]
fn refusals_of_a_second_member_say_why_and_what_next() {
    use Code::*;
    let (demo, doubled) = (demo(), doubled());
    let mut damaged = demo.clone();
    damaged.mirrors.remove(2);
    let removed = Register { target: TargetId(3), ..second(ost("demo", 9), 1) };
    let table = [
        (
            "a third member",
            &doubled,
            second(ost("demo", 9), 1),
            Exists,
            "target 3 on one (in sync), target 4 on two (out)",
        ),
        (
            "no index",
            &demo,
            second(ost("demo", 9), INDEX_ANY),
            Invalid,
            "needs the index of the target that it doubles",
        ),
        ("an unknown index", &demo, second(ost("demo", 9), 7), NotReady, "demo-OST0007 is not there yet"),
        ("an OST of the MDT", &demo, second(mdt("demo", 9), 1), NotReady, "demo-MDT0001 is not there yet"),
        ("an unknown file system", &demo, second(mdt("new", 9), 0), NotReady, "start its MDT first"),
        ("a device that was removed", &demo, removed, NotFound, "registered elsewhere"),
        (
            "a small device",
            &demo,
            Register { bytes_total: 1 << 29, ..second(ost("demo", 9), 1) },
            Invalid,
            "the first member of demo-OST0001 has 1073741824; give a device of at least",
        ),
        (
            "no mirror",
            &damaged,
            second(ost("demo", 9), 1),
            Damaged,
            "names mirror 3, which is not in the cluster map",
        ),
        ("not a second", &doubled, Register { index: 1, ..ost("demo", 9) }, Exists, "under `second_devices`"),
    ];
    for (name, map, request, code, part) in table {
        let fault = apply_register(map, &request, &FRESH).expect_err(name);
        assert_eq!(fault.code, code, "{name}: {fault}");
        assert!(fault.detail.contains(part), "{name}: {fault}");
    }
}
