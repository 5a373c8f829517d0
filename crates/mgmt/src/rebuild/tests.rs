//! Maps from facts, and facts that make none.

use MemberState::{Filling, InSync, Out};

use super::*;

fn ost(target: u32, index: u32, mirror: u32, epoch: u32) -> Facts {
    Facts {
        device: format!("/dev/{target}"),
        is_mdt: false,
        fs_name: "home".into(),
        fs_uuid: Uuid([7; 16]),
        uuid: Uuid([target as u8; 16]),
        target: TargetId(target),
        index,
        mirror: MirrorId(mirror),
        epoch: Epoch(epoch),
        bytes_total: 1 << 30,
        note: None,
    }
}

fn noted(facts: Facts, epoch: u32, primary: u8, states: [MemberState; 2]) -> Facts {
    let note = Noted { epoch: Epoch(epoch), primary, states, is_whole: true, is_filling: false };
    Facts { note: Some(note), ..facts }
}

fn mdt() -> Facts {
    Facts { is_mdt: true, ..ost(1, 0, 1, 4) }
}

fn made(facts: &[Facts], without: &[&str]) -> Result<ClusterMap, Unclear> {
    let without = without.iter().map(|name| name.to_string()).collect();
    let fresh = || Ok(Fresh { fs_uuid: Uuid([8; 16]), secret: Uuid([9; 16]) });
    rebuild(facts, &without, fresh).expect("randomness is there")
}

/// Epoch, primary, and members with their states.
type Made = (u32, u32, Vec<(u32, MemberState)>);

fn mirror(facts: &[Facts], without: &[&str]) -> Result<Made, Unclear> {
    let map = made(facts, without)?;
    let m = map.mirror(MirrorId(3)).expect("it was given");
    Ok((m.epoch.0, m.primary.0, m.members.iter().map(|m| (m.target.0, m.state)).collect()))
}

#[test]
fn b1_ids_stay_and_new_ones_begin_above() {
    let map = made(&[ost(6, 1, 5, 2), mdt(), ost(4, 0, 3, 9)], &[]).expect("made");
    assert_eq!(map.version, REBUILT_VERSION);
    let ids: Vec<_> = map.targets.iter().map(|t| (t.id.0, t.index, t.mirror.0, t.is_mdt)).collect();
    assert_eq!(ids, [(1, 0, 1, true), (4, 0, 3, false), (6, 1, 5, false)]);
    let fs = &map.file_systems[..];
    assert_eq!(
        (fs.len(), fs[0].name.as_str(), fs[0].uuid, fs[0].secret),
        (1, "home", Uuid([7; 16]), Uuid([9; 16]))
    );
    let epochs: Vec<_> = map.mirrors.iter().map(|m| m.epoch.0).collect();
    assert_eq!(epochs, [5, 10, 3], "one above what each knows");
    let used = &map.ids_used;
    assert_eq!((used.target, used.mirror), (TargetId(6 + IDS_GAP), MirrorId(5 + IDS_GAP)));
    // A server registers again and is what it was.
    let request = wire::mgmt::Register {
        fs_name: "home".into(),
        is_mdt: false,
        index: 0,
        uuid: Uuid([4; 16]),
        target: TargetId(4),
        bytes_total: 1 << 30,
        node_name: "oss".into(),
        nids: vec!["10.0.0.7:7011@tcp0".into()],
        second: false,
        rack: String::new(),
        apart: wire::map::Apart::Server,
    };
    let fresh = Fresh { fs_uuid: Uuid([1; 16]), secret: Uuid([2; 16]) };
    let (next, reply) = crate::apply_register(&map, &request, &fresh).expect("registered");
    assert_eq!((reply.target, reply.index, reply.mirror, reply.epoch.0), (TargetId(4), 0, MirrorId(3), 11));
    let new = wire::mgmt::Register { uuid: Uuid([99; 16]), target: TargetId(0), index: u32::MAX, ..request };
    let (_, reply) = crate::apply_register(&next, &new, &fresh).expect("registered");
    assert_eq!((reply.target.0, reply.index), (7 + IDS_GAP, 2), "no id of a removed target");
}

#[test]
fn b2_a_mirror_has_the_states_of_the_newest_map_that_a_member_knows() {
    let (a, b) = (ost(4, 0, 3, 2), ost(9, 0, 3, 2));
    let of = |a: Facts, b: Facts| mirror(&[mdt(), a, b], &[]);
    let both = [InSync, InSync];
    // Name, members, epoch, primary, states.
    let table = [
        ("both know one map", noted(a.clone(), 7, 1, both), noted(b.clone(), 7, 1, both), 8, 9, both),
        (
            "the second went on alone",
            noted(a.clone(), 7, 0, both),
            noted(b.clone(), 8, 1, [Out, InSync]),
            9,
            9,
            [Out, InSync],
        ),
        (
            "the first fills the second",
            noted(a.clone(), 9, 0, [InSync, Filling]),
            noted(b.clone(), 7, 0, both),
            10,
            4,
            [InSync, Filling],
        ),
        ("the second is new", noted(a.clone(), 3, 0, [InSync, Out]), b.clone(), 4, 4, [InSync, Out]),
        ("the mirror never worked", a.clone(), b.clone(), 3, 4, [InSync, Out]),
    ];
    for (name, a, b, epoch, primary, states) in table {
        let want = (epoch, primary, vec![(4, states[0]), (9, states[1])]);
        assert_eq!(of(a.clone(), b.clone()), Ok(want.clone()), "{name}");
        assert_eq!(of(b, a), Ok(want), "{name}, in the other order");
    }
}

#[test]
fn b5_a_target_that_no_facts_name_is_told_and_given_up_by_name_only() {
    let lacks = |facts: &[Facts], without: &[&str], want: &[&str]| {
        let targets = want.iter().map(|name| name.to_string()).collect();
        let missing = Missing { members: vec![], targets };
        assert_eq!(made(facts, without).expect_err("targets are missing"), Unclear::Missing(missing));
    };
    let osts = [mdt(), ost(4, 1, 3, 2), ost(9, 4, 5, 2)];
    lacks(&osts, &[], &["home-OST0000", "home-OST0002", "home-OST0003"]);
    lacks(&osts, &["home-OST0002", "home-OST0000"], &["home-OST0003"]);
    let map = made(&osts, &["home-OST0000", "home-OST0002", "home-OST0003"]).expect("all are given up");
    assert_eq!(map.targets.iter().map(|t| t.index).collect::<Vec<_>>(), [0, 1, 4]);
    lacks(&[ost(4, 0, 3, 2)], &[], &["home-MDT0000"]);
    // Of each file system.
    let mut other = [mdt(), ost(12, 1, 7, 2)];
    other[0] = Facts { target: TargetId(11), uuid: Uuid([11; 16]), mirror: MirrorId(6), ..mdt() };
    other.iter_mut().for_each(|f| (f.fs_name, f.fs_uuid) = ("work".into(), Uuid([6; 16])));
    lacks(&[&[mdt(), ost(4, 0, 3, 2)][..], &other].concat(), &[], &["work-OST0000"]);
    let wild = [mdt(), ost(4, u32::MAX, 3, 2)];
    assert!(matches!(made(&wild, &[]), Err(Unclear::Missing(all)) if all.targets.len() == 1000));
}

#[test]
fn b3_a_missing_member_and_a_place_claimed_twice_make_no_map() {
    let alone = noted(ost(9, 0, 3, 2), 8, 1, [Out, InSync]);
    let missing = mirror(&[mdt(), alone.clone()], &[]);
    let members = vec!["home-OST0000".into()];
    assert_eq!(missing, Err(Unclear::Missing(Missing { members, targets: vec![] })));
    assert_eq!(mirror(&[mdt(), alone.clone()], &["home-OST0000"]), Ok((9, 9, vec![(9, InSync)])));
    assert!(mirror(&[mdt(), alone.clone()], &["home-OST0001"]).is_err());
    // A half-filled one is no member to go on with.
    let mut half = alone.clone();
    half.note.as_mut().expect("it is noted").is_filling = true;
    let refused = mirror(&[mdt(), half.clone()], &["home-OST0000"]);
    assert!(matches!(refused, Err(Unclear::Conflict(why)) if why.contains("a part of the content only")));
    let source = noted(ost(4, 0, 3, 2), 8, 0, [InSync, Filling]);
    half.note = Some(Noted { is_filling: true, is_whole: false, ..source.note.clone().expect("noted") });
    assert!(mirror(&[mdt(), source, half], &[]).is_ok(), "beside the other one it is filled again");
    let other_fs = Facts { fs_uuid: Uuid([6; 16]), ..ost(5, 1, 5, 2) };
    let split = noted(ost(4, 0, 3, 2), 8, 0, [InSync, Out]);
    for (facts, why) in [
        (vec![], "no facts"),
        (vec![Facts { target: TargetId(0), ..mdt() }], "was never registered"),
        (
            vec![ost(4, 0, 3, 2), Facts { device: "copy".into(), target: TargetId(5), ..ost(4, 0, 3, 2) }],
            "one is a copy",
        ),
        (vec![ost(4, 0, 3, 2), Facts { uuid: Uuid([88; 16]), ..ost(4, 1, 5, 2) }], "both are target"),
        (vec![ost(4, 0, 3, 2), ost(5, 0, 6, 2)], "both are home-OST0000"),
        (vec![ost(4, 0, 3, 2), ost(5, 1, 3, 2)], "of one mirror and of two places"),
        (vec![ost(4, 0, 3, 2), ost(5, 0, 3, 2), ost(6, 0, 3, 2)], "3 targets claim"),
        (vec![mdt(), other_fs], "disagree about the name"),
        (vec![split, alone], "different states of home-OST0000 under one epoch"),
    ] {
        match made(&facts, &["home-OST0000"]) {
            Err(Unclear::Conflict(found)) => assert!(found.contains(why), "{found}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}
