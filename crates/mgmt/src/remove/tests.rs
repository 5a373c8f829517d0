//! Removals as tables, and random changes of a map with the invariants after each.

use std::collections::BTreeSet;

use wire::Wire;
use wire::map::Apart;
use wire::mgmt::Register;

use super::*;
use crate::{Fresh, MAP_BYTES_MAX, SILENCE_MS_MAX, apply_register};

const LATER: u64 = SILENCE_MS_MAX + 1;

fn fresh(seed: u8) -> Fresh {
    Fresh { fs_uuid: Uuid([seed; 16]), secret: Uuid([seed ^ 0xff; 16]) }
}

fn register(fs: &str, is_mdt: bool, uuid: u8, host: &str) -> Register {
    Register {
        fs_name: fs.into(),
        is_mdt,
        index: u32::MAX,
        uuid: Uuid([uuid; 16]),
        target: TargetId(0),
        bytes_total: 1 << 30,
        node_name: host.into(),
        nids: vec![format!("{host}:7011@tcp0")],
        second: false,
        rack: String::new(),
        apart: Apart::Nothing,
    }
}

fn after(map: &ClusterMap, request: &Register) -> ClusterMap {
    apply_register(map, request, &fresh(request.uuid.0[0])).expect("accepted").0
}

/// File system a: MDT 1, OSTs 2 and 3; b: MDT 4, OST 5. Hosts one (MDTs), two and three.
fn two() -> ClusterMap {
    let all = [
        register("a", true, 1, "one"),
        register("a", false, 2, "two"),
        register("a", false, 3, "three"),
        register("b", true, 4, "one"),
        register("b", false, 5, "three"),
    ];
    all.iter().fold(ClusterMap::empty(), |map, r| after(&map, r))
}

fn wish(kind: RemovalKind, name: &str) -> PlanRemoval {
    PlanRemoval { kind, name: name.into(), force: false }
}

fn confirmed(wish: &PlanRemoval, token: &str) -> Remove {
    Remove { kind: wish.kind, name: wish.name.clone(), force: wish.force, token: token.into() }
}

/// Removes it from a map whose targets are silent.
fn remove(map: &ClusterMap, kind: RemovalKind, name: &str) -> ClusterMap {
    let (wish, silent) = (wish(kind, name), Reports::new(0));
    let plan = plan_removal(map, &silent, &wish, LATER).expect("found");
    assert_eq!(plan.refused, "", "{name}");
    apply_removal(map, &silent, &confirmed(&wish, &plan.token), LATER).expect("removed")
}

#[test]
fn removal_takes_out_the_entry_and_what_names_it() {
    use RemovalKind::*;
    let map = two();
    // Name, then what stays: file systems, nodes, targets, mirrors; and the highest ids removed: fs, node, target, mirror.
    type Row = (RemovalKind, &'static str, [usize; 4], [u64; 4]);
    let table: [Row; 5] = [
        (Target, "a-OST0000", [2, 3, 4, 4], [0, 0, 2, 2]),
        (Target, "2", [2, 3, 4, 4], [0, 0, 2, 2]),
        (Target, "b-OST0000", [2, 3, 4, 4], [0, 0, 5, 5]),
        (FileSystem, "a", [1, 3, 2, 2], [1, 0, 3, 3]),
        (FileSystem, "b", [1, 3, 3, 3], [2, 0, 5, 5]),
    ];
    for (kind, name, stay, used) in table {
        let next = remove(&map, kind, name);
        let counts = [next.file_systems.len(), next.nodes.len(), next.targets.len(), next.mirrors.len()];
        assert_eq!(counts, stay, "{name}");
        let ids = &next.ids_used;
        let last = [ids.fs.0.into(), ids.node.0, ids.target.0.into(), ids.mirror.0.into()];
        assert_eq!(last, used, "{name}");
        assert_eq!(next.version, map.version + 1, "{name}");
        assert!(next.targets.iter().all(|t| map.target(t.id) == Some(t)), "{name}: others stay as they are");
    }
    for name in ["two", "2", "n2"] {
        let next = remove(&remove(&map, Target, "a-OST0000"), Node, name);
        assert_eq!((next.nodes.len(), next.ids_used.node), (2, NodeId(2)), "{name}");
    }
}

#[test]
fn refusals_name_the_obstacle_and_the_next_step() {
    use RemovalKind::*;
    let map = two();
    let mut twins = map.clone();
    twins.nodes[1].name = "one".into();
    let (up, silent) = (Reports::new(LATER), Reports::new(0));
    /// Map, what is heard, kind, name, and a part of the refusal.
    type Row<'a> = (&'a ClusterMap, &'a Reports, RemovalKind, &'a str, &'a str);
    let table: [Row; 10] = [
        (&map, &up, Target, "a-OST0000", "a-OST0000 is up; stop its server first, or give --force"),
        (&map, &silent, Target, "a-MDT0000", "`stria fs remove a` removes both"),
        (&map, &up, FileSystem, "b", "targets that are up: b-MDT0000, b-OST0000; stop their servers"),
        (&map, &silent, Node, "three", "has targets: a-OST0001, b-OST0000; remove them first"),
        (&map, &silent, Target, "a-OST0007", "no target \"a-OST0007\" is in the cluster map"),
        (&map, &silent, Target, "77", "`stria status` lists them"),
        (&map, &silent, FileSystem, "1", "no file system \"1\""),
        (&map, &silent, Node, "four", "no node \"four\""),
        (&twins, &silent, Node, "one", "several nodes: n1 (one:7011@tcp0); n2 (two:7011@tcp0)"),
        (&ClusterMap::empty(), &silent, Target, "", "no target"),
    ];
    for (map, reports, kind, name, part) in table {
        let wish = wish(kind, name);
        let told = match plan_removal(map, reports, &wish, LATER) {
            Ok(plan) => {
                assert_eq!(plan.token, "", "{name}: a refusal has no token");
                plan.refused
            }
            Err(fault) => fault.detail,
        };
        assert!(told.contains(part), "{name}: {told}");
        let token = removal_token(kind, 2, Uuid([2; 16]), map.version);
        apply_removal(map, reports, &confirmed(&wish, &token), LATER).expect_err(name);
    }
    // Forced, a target that is up goes; an MDT does not.
    let forced = PlanRemoval { force: true, ..wish(Target, "a-OST0000") };
    let plan = plan_removal(&map, &up, &forced, LATER).expect("found");
    assert_eq!((plan.id, plan.refused.as_str(), plan.targets.as_slice()), (2, "", &[TargetId(2)][..]));
    apply_removal(&map, &up, &confirmed(&forced, &plan.token), LATER).expect("forced");
    let forced = PlanRemoval { force: true, ..wish(Target, "1") };
    assert_ne!(plan_removal(&map, &up, &forced, LATER).expect("found").refused, "");
}

#[test]
fn r1_token_holds_for_one_entry_and_one_version() {
    use RemovalKind::*;
    let (map, silent) = (two(), Reports::new(0));
    let token_of = |map: &ClusterMap, kind, name| {
        plan_removal(map, &silent, &wish(kind, name), LATER).expect("found").token
    };
    let right = token_of(&map, Target, "a-OST0000");
    assert_eq!(right, removal_token(Target, 2, Uuid([2; 16]), map.version));
    let newer = ClusterMap { version: map.version + 1, ..map.clone() };
    let mut other = map.clone();
    other.targets[1].uuid = Uuid([9; 16]);
    let wrong = [
        "".to_owned(),
        "yes".to_owned(),
        token_of(&newer, Target, "a-OST0000"),
        token_of(&other, Target, "a-OST0000"),
        token_of(&map, Target, "a-OST0001"),
        token_of(&map, FileSystem, "b"),
    ];
    for token in wrong {
        let fault = apply_removal(&map, &silent, &confirmed(&wish(Target, "2"), &token), LATER);
        let fault = fault.expect_err(&token);
        assert_eq!(fault.code, Code::Invalid, "{token}");
        assert!(fault.detail.contains("look again with --dry-run"), "{fault}");
    }
    apply_removal(&map, &silent, &confirmed(&wish(Target, "2"), &right), LATER).expect("the right one");
    assert_eq!(
        removal_token(Node, 3, Uuid::default(), 9),
        "20f4-ed4b-a77c",
        "it is the same in each release"
    );
}

#[test]
fn removed_target_is_refused_when_it_registers_again() {
    let map = remove(&two(), RemovalKind::Target, "a-OST0000");
    let again = Register { target: TargetId(2), index: 0, ..register("a", false, 2, "two") };
    let fault = apply_register(&map, &again, &fresh(0)).expect_err("removed");
    assert_eq!(fault.code, Code::NotFound);
    assert!(fault.detail.contains("it was removed") && fault.detail.contains("format it anew"), "{fault}");
    // Formatted anew it is another target, and may have the free index.
    let (map, reply) = apply_register(&map, &register("a", false, 22, "two"), &fresh(0)).expect("new");
    assert_eq!((reply.target, reply.index, reply.mirror), (TargetId(6), 0, MirrorId(6)));
    assert!(map.is_removed(MirrorId(2)) && !map.is_removed(MirrorId(6)) && !map.is_removed(MirrorId(7)));
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// All ids that were ever seen, by kind, with the identity that had them.
#[derive(Default)]
struct Given {
    fs: BTreeSet<(u64, Uuid)>,
    nodes: BTreeSet<u64>,
    targets: BTreeSet<(u64, Uuid)>,
    mirrors: BTreeSet<u64>,
}

impl Given {
    /// mgmt-I1, mgmt-I2: an id is of one identity for ever, and new ids are above all that were given.
    fn check(&mut self, map: &ClusterMap, before: &ClusterMap) {
        let fs = map.file_systems.iter().map(|f| (u64::from(f.id.0), f.uuid));
        let targets = map.targets.iter().map(|t| (u64::from(t.id.0), t.uuid));
        for (seen, now) in [(&mut self.fs, fs.collect::<Vec<_>>()), (&mut self.targets, targets.collect())] {
            let last = seen.last().map_or(0, |(id, _)| *id);
            for one in now {
                assert!(one.0 > last || seen.contains(&one), "{one:?} was given to another: {seen:?}");
                seen.insert(one);
            }
        }
        let nodes = map.nodes.iter().filter(|n| before.node(n.id).is_none()).map(|n| n.id.0);
        let mirrors = map.mirrors.iter().filter(|m| before.mirror(m.id).is_none()).map(|m| m.id.0.into());
        for (seen, new) in
            [(&mut self.nodes, nodes.collect::<Vec<u64>>()), (&mut self.mirrors, mirrors.collect())]
        {
            for id in new {
                assert!(seen.last().is_none_or(|last| id > *last), "id {id} is not new: {seen:?}");
                seen.insert(id);
            }
        }
    }
}

/// mgmt-R2, mgmt-I4: each entry that another one names is there.
fn check_whole(map: &ClusterMap) {
    assert!(map.to_bytes().len() <= MAP_BYTES_MAX);
    for t in &map.targets {
        assert!(map.fs(t.fs).is_some() && map.node(t.node).is_some(), "{t:?}");
        let mirror = map.mirror(t.mirror).expect("its mirror");
        assert!(mirror.has(t.id) && (mirror.fs, mirror.is_mdt) == (t.fs, t.is_mdt), "{t:?} {mirror:?}");
    }
    for mirror in &map.mirrors {
        let indexes: BTreeSet<_> =
            mirror.members.iter().map(|m| map.target(m.target).map(|t| t.index)).collect();
        assert_eq!(indexes.len(), 1, "{mirror:?}");
        assert!(matches!(mirror.members.len(), 1 | 2), "{mirror:?}");
        let primary = mirror.members.iter().find(|m| m.target == mirror.primary);
        assert!(primary.is_some_and(|m| m.state == MemberState::InSync), "{mirror:?}");
    }
    assert_eq!(map.targets.len(), map.mirrors.iter().map(|m| m.members.len()).sum::<usize>());
    for fs in &map.file_systems {
        let has = |is_mdt| map.targets.iter().any(|t| t.fs == fs.id && t.is_mdt == is_mdt);
        assert!(has(true) || !has(false), "{}: OSTs without their MDT", fs.name);
    }
}

/// OST 0000 of `a` has a second member, target 6 on host three, in this state; its MDT has one too, target 7.
fn doubled(state: MemberState) -> ClusterMap {
    let second = |is_mdt, uuid| Register { second: true, index: 0, ..register("a", is_mdt, uuid, "three") };
    let mut map = after(&after(&two(), &second(false, 6)), &second(true, 7));
    for mirror in map.mirrors.iter_mut().filter(|m| m.members.len() > 1) {
        mirror.members[1].state = state;
    }
    map
}

#[test]
fn i6_a_member_that_is_out_goes_and_the_last_one_in_sync_stays() {
    use MemberState::*;
    use RemovalKind::Target;
    // State of the second member, name, and a part of the refusal; empty: it is removed.
    let table = [
        (Out, "6", ""),
        (Filling, "6", ""),
        (Out, "a-OST0000 (target 6)", ""),
        (Out, "7", ""),
        (InSync, "6", "a-OST0000 (target 6) is in sync, and the other member waits for it"),
        (InSync, "2", "stop its server, and remove it once it is out"),
        (
            Out,
            "2",
            "a-OST0000 (target 2) is the last member in sync, and the other one lacks changes: target 2 on two",
        ),
        (Filling, "1", "wait until both are in sync, or remove the other one"),
        (
            Out,
            "a-OST0000",
            "has two members: target 2 on two (in sync), target 6 on three (out); name one by its id",
        ),
    ];
    for (state, name, refused) in table {
        let map = doubled(state);
        let told = match plan_removal(&map, &Reports::new(0), &wish(Target, name), LATER) {
            Ok(plan) => plan.refused,
            Err(fault) => fault.detail,
        };
        assert_eq!(told.is_empty(), refused.is_empty(), "{name}: {told}");
        assert!(told.contains(refused), "{name}: {told}");
        if !refused.is_empty() {
            // Also with --force: the data would be lost.
            let forced = PlanRemoval { force: true, ..wish(Target, name) };
            assert!(
                plan_removal(&map, &Reports::new(0), &forced, LATER)
                    .map_or(true, |plan| plan.token.is_empty())
            );
            continue;
        }
        let next = remove(&map, Target, name);
        let is_mdt = name == "7";
        let (before, mirror) = (&map.mirrors[usize::from(!is_mdt)], &next.mirrors[usize::from(!is_mdt)]);
        let want = wire::map::Mirror {
            epoch: Epoch(before.epoch.0 + 1),
            members: before.members[..1].to_vec(),
            ..before.clone()
        };
        assert_eq!(mirror, &want, "{name}");
        assert_eq!(
            (next.targets.len(), next.mirrors.len()),
            (map.targets.len() - 1, map.mirrors.len()),
            "{name}"
        );
    }
    // A drained mirror goes with both, by its name.
    let mut drained = doubled(InSync);
    drained.draining = vec![drained.mirrors[1].id];
    let next = remove(&drained, Target, "a-OST0000");
    assert_eq!(
        (next.targets.len(), next.mirrors.len()),
        (drained.targets.len() - 2, drained.mirrors.len() - 1)
    );
    assert!(next.draining.is_empty() && next.ids_used.target == TargetId(6), "{:?}", next.ids_used);
    let all = remove(&doubled(InSync), RemovalKind::FileSystem, "a");
    assert_eq!((all.targets.len(), all.mirrors.len(), all.ids_used.target), (2, 2, TargetId(7)));
}

#[test]
fn random_changes_keep_the_invariants() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let (mut map, mut given, mut removals) = (ClusterMap::empty(), Given::default(), 0);
        let silent = Reports::new(0);
        let mut epochs = std::collections::BTreeMap::new();
        for step in 0..400 {
            let before = map.clone();
            let names = ["a", "b", "c"];
            let name = names[dice.below(3) as usize];
            if dice.below(3) > 0 {
                let host = ["one", "two", "three", "four"][dice.below(4) as usize];
                let mut request = register(name, dice.below(3) == 0, dice.below(30) as u8 + 1, host);
                // A medium keeps the label that it got.
                if let Some((id, _)) = given.targets.iter().rfind(|(_, uuid)| *uuid == request.uuid) {
                    request.target = TargetId(*id as u32);
                }
                if dice.below(5) == 0 {
                    (request.second, request.index) = (true, dice.below(3) as u32);
                }
                let is_known = map.targets.iter().any(|t| t.uuid == request.uuid);
                let fs = Fresh { fs_uuid: Uuid([step as u8; 16]), secret: Uuid([1; 16]) };
                match apply_register(&map, &request, &fs) {
                    Ok((next, reply)) => {
                        assert!(is_known || request.target.0 == 0, "seed {seed}: a removed target came back");
                        let epoch = epochs.insert(reply.mirror, reply.epoch);
                        let is_again =
                            is_known && next.mirror(reply.mirror).is_some_and(|m| m.members.len() > 1);
                        assert!(
                            epoch.is_none_or(|e| if is_again { reply.epoch >= e } else { reply.epoch > e }),
                            "seed {seed}: an epoch that does not rise"
                        );
                        map = next;
                    }
                    Err(fault) => assert!(!fault.detail.is_empty()),
                }
            } else {
                let (kind, name) = match dice.below(4) {
                    0 => (RemovalKind::FileSystem, name.to_owned()),
                    1 => (RemovalKind::Node, dice.below(12).to_string()),
                    _ => (RemovalKind::Target, dice.below(40).to_string()),
                };
                let wish = wish(kind, &name);
                if let Ok(plan) = plan_removal(&map, &silent, &wish, LATER) {
                    let done = apply_removal(&map, &silent, &confirmed(&wish, &plan.token), LATER);
                    assert_eq!(
                        done.is_ok(),
                        plan.refused.is_empty(),
                        "seed {seed}: the plan says what is done"
                    );
                    removals += u32::from(done.is_ok());
                    map = done.unwrap_or(map);
                }
            }
            // mgmt-I3.
            let expected = before.version + u64::from(map != before);
            assert_eq!(map.version, expected, "seed {seed}");
            given.check(&map, &before);
            check_whole(&map);
        }
        assert!(removals > 10, "seed {seed}: {removals} removals show little");
    }
}
