//! Members of mirrors: admission, return, and what changes nothing.

use types::{MirrorId, Seq};
use wire::map::MemberState::{Filling, InSync, Out};
use wire::map::{MemberState, Mirror};
use wire::pair::{AskMembers, AskMembersReply, AskingOf, At};

use super::*;

const MIRROR: MirrorId = MirrorId(2);
/// The members of the OST's mirror: on host one, and on host two.
const FIRST: TargetId = TargetId(2);
const SECOND: TargetId = TargetId(3);

fn second() -> Register {
    let nids = vec!["10.0.0.2:7011@tcp0".into()];
    Register { second: true, index: 0, node_name: "two".into(), nids, ..target(false, 3) }
}

/// MDT 1, and OST 0000 with two members, of which the second is new.
fn register_pair(peer: &dyn Peer) {
    for request in [target(true, 1), target(false, 2), second()] {
        ask(peer, &request).expect("registered");
    }
}

fn alone(epoch: u32, is_whole: bool, is_planned: bool) -> AskingOf {
    let end = At { line: Epoch(1), seq: Seq(7) };
    AskingOf::Alone { epoch: Epoch(epoch), is_whole, end, is_planned }
}

fn request(member: TargetId, asking: AskingOf) -> AskMembers {
    AskMembers { mirror: MIRROR, member, asking }
}

fn say(peer: &dyn Peer, member: TargetId, asking: AskingOf) -> AskMembersReply {
    ask(peer, &request(member, asking)).expect("answered")
}

/// Both in sync, under epoch 4.
fn pair() -> (Arc<Mgs>, Arc<dyn Peer>) {
    let (mgs, peer) = fresh();
    register_pair(&*peer);
    let reply = say(&*peer, FIRST, AskingOf::Resyncing { epoch: Epoch(2), is_under_way: true });
    assert_eq!((reply.members.states, reply.why.as_str()), (vec![InSync as u8, Filling as u8], ""));
    let reply = say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(3) });
    assert_eq!((reply.members.states, reply.why.as_str()), (vec![InSync as u8, InSync as u8], ""));
    (mgs, peer)
}

fn mirror(mgs: &Mgs) -> Mirror {
    mgs.map().mirror(MIRROR).expect("there").clone()
}

/// Epoch, primary, states.
fn members(mgs: &Mgs) -> (u32, TargetId, Vec<MemberState>) {
    let mirror = mirror(mgs);
    (mirror.epoch.0, mirror.primary, mirror.members.iter().map(|m| m.state).collect())
}

#[test]
fn a_second_member_registers_and_is_brought_in_sync() {
    let (mgs, peer) = fresh();
    register_pair(&*peer);
    assert_eq!(members(&mgs), (2, FIRST, vec![InSync, Out]));
    // Its first asking tells it the members, and grants it nothing.
    let reply = say(&*peer, SECOND, AskingOf::Fetch { epoch: Epoch(2) });
    assert_eq!((reply.members.epoch, reply.members.primary, reply.why.as_str()), (Epoch(2), 0, ""));
    let reply = say(&*peer, SECOND, alone(2, true, false));
    assert!(reply.why.starts_with("demo-OST0000: target 3 on two lacks changes"), "{}", reply.why);
    assert!(reply.why.ends_with("start the server of target 2 on one"), "{}", reply.why);
    assert_eq!(members(&mgs), (2, FIRST, vec![InSync, Out]));
    let (mgs, _) = pair();
    assert_eq!(members(&mgs), (4, FIRST, vec![InSync, InSync]));
}

#[test]
fn one_of_two_is_admitted_and_requests_of_its_former_epoch_are_void() {
    let (mgs, peer) = pair();
    let version = mgs.map().version;
    // The primary is not waited for, since it asks itself.
    let first = say(&*peer, FIRST, alone(4, true, false));
    assert_eq!((first.members.primary, first.why.as_str(), first.version), (0, "", version + 1));
    assert_eq!(members(&mgs), (5, FIRST, vec![InSync, Out]));
    let late = say(&*peer, SECOND, alone(4, true, false));
    assert_eq!((late.members, late.version), (first.members, version + 1));
    assert!(late.why.contains("of an earlier epoch than e5; go by these members"), "{}", late.why);
    assert_eq!(members(&mgs), (5, FIRST, vec![InSync, Out]));
    // The member that was removed is not admitted under the new epoch either.
    let removed = say(&*peer, SECOND, alone(5, true, true));
    assert!(removed.why.contains("lacks changes"), "{}", removed.why);
    // Back, and then the other way round.
    say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(5) });
    let planned = say(&*peer, SECOND, alone(6, true, true));
    assert_eq!((planned.members.primary, planned.why.as_str()), (1, ""));
    assert_eq!(members(&mgs), (7, SECOND, vec![Out, InSync]));
}

#[test]
fn a_backup_waits_for_a_primary_that_was_heard_of() {
    let (mgs, _) = pair();
    let ask_at = |now_ms| mgs.state.lock().ask_members(&request(SECOND, alone(4, true, false)), now_ms);
    let node = mgs.map().target(FIRST).expect("there").node;
    let beat = |leaving| Heartbeat { node, targets: vec![FIRST], leaving };
    let now = 100_000;
    mgs.state.lock().heartbeat(&beat(false), now).expect("answered");
    let waits = ask_at(now + 10).expect("answered");
    assert!(waits.why.contains("target 2 on one was heard of lately"), "{}", waits.why);
    assert!(waits.why.ends_with("ask again in 750 ms"), "{}", waits.why);
    assert_eq!(members(&mgs), (4, FIRST, vec![InSync, InSync]));
    // Heartbeats do not lengthen the wait.
    mgs.state.lock().heartbeat(&beat(false), now + 500).expect("answered");
    let admitted = ask_at(now + 760).expect("answered");
    assert_eq!((admitted.members.primary, admitted.why.as_str()), (1, ""));
    assert_eq!(members(&mgs), (5, SECOND, vec![Out, InSync]));
}

#[test]
fn a_member_that_lost_power_is_admitted_only_with_the_longer_log() {
    let (mgs, peer) = pair();
    let end = |seq| AskingOf::Alone {
        epoch: Epoch(4),
        is_whole: false,
        end: At { line: Epoch(4), seq: Seq(seq) },
        is_planned: false,
    };
    let waits = say(&*peer, FIRST, end(5));
    assert!(
        waits
            .why
            .contains("target 2 on one lost power, or its device failed, and target 3 on two may have more"),
        "{}",
        waits.why
    );
    assert_eq!(say(&*peer, SECOND, end(6)).why, "");
    assert_eq!(members(&mgs), (5, SECOND, vec![Out, InSync]));
}

#[test]
fn m4_servers_that_leave_fall_silent_or_register_again_change_no_members() {
    let (mgs, peer) = pair();
    let before = mirror(&mgs);
    for (member, request) in [(FIRST, target(false, 2)), (SECOND, second())] {
        let node = mgs.map().target(member).expect("there").node;
        ask(&*peer, &Heartbeat { node, targets: vec![member], leaving: true }).expect("answered");
        assert_eq!(mgs.map().target(member).expect("there").state, mgmt::STATE_DOWN);
        assert_eq!(mirror(&mgs), before);
        let again = ask(&*peer, &Register { target: member, ..request }).expect("registered");
        assert_eq!((again.target, again.epoch), (member, before.epoch));
        assert_eq!(mirror(&mgs), before);
    }
    mgs.state.lock().review(mgmt::SILENCE_MS_MAX + 60_000).expect("reviewed");
    assert!(mgs.map().targets.iter().all(|t| t.state == mgmt::STATE_DOWN));
    assert_eq!(mirror(&mgs), before);
}

#[test]
fn requests_of_others_are_refused_and_a_mirror_of_one_has_nothing_to_decide() {
    let (mgs, peer) = pair();
    let version = mgs.map().version;
    let asking = || AskingOf::Fetch { epoch: Epoch(4) };
    let table = [
        (
            AskMembers { mirror: MIRROR, member: TargetId(1), asking: asking() },
            "target 1 is no member of demo-OST0000 (mirror 2)",
        ),
        (
            AskMembers { mirror: MirrorId(9), member: FIRST, asking: asking() },
            "mirror 9 of target 2 is not in the cluster map",
        ),
    ];
    for (request, part) in table {
        let fault = ask(&*peer, &request).expect_err(part);
        assert_eq!(fault.code, Code::NotFound, "{fault}");
        assert!(fault.detail.contains(part), "{fault}");
    }
    let (mirror, member) = (MirrorId(1), TargetId(1));
    let only = ask(&*peer, &AskMembers { mirror, member, asking: alone(1, true, false) }).expect("answered");
    assert_eq!((only.members.states, only.why.as_str()), (vec![InSync as u8], ""));
    assert_eq!(mgs.map().version, version);
    // Nor may a client ask.
    assert_eq!(code_for(&mgs, "stria://c/client/n", &request(FIRST, asking())).0, Code::Access);
    assert_eq!(code_for(&mgs, "stria://c/server/n", &request(FIRST, asking())).0, Code::Ok);
}

#[test]
fn m1_a_decision_outlives_the_service_and_is_made_once() {
    let trouble = Arc::new(Trouble::default());
    let open = || Mgs::over(Box::new(Troubled(trouble.clone()))).expect("opened");
    let mgs = open();
    let peer = peer_of(mgs.clone());
    register_pair(&*peer);
    say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(2) });
    // The store has the decision, and its answer is lost with the service.
    trouble.fail_after.store(true, Ordering::SeqCst);
    let failed = ask(&*peer, &request(FIRST, alone(3, true, false))).expect_err("the store failed");
    assert_eq!(failed.code, Code::Io);
    drop((mgs, peer));
    let mgs = open();
    let peer = peer_of(mgs.clone());
    assert_eq!(members(&mgs), (4, FIRST, vec![InSync, Out]));
    let other = say(&*peer, SECOND, alone(3, true, true));
    assert!(other.why.contains("earlier epoch"), "{}", other.why);
    let again = say(&*peer, FIRST, alone(3, true, false));
    assert_eq!((again.members.epoch, again.members.primary), (Epoch(4), 0));
    assert_eq!(members(&mgs), (4, FIRST, vec![InSync, Out]));
}

#[test]
fn a_decision_is_made_anew_on_the_map_that_another_service_changed() {
    let trouble = Arc::new(Trouble::default());
    let mgs = Mgs::over(Box::new(Troubled(trouble.clone()))).expect("opened");
    let peer = peer_of(mgs.clone());
    register_pair(&*peer);
    say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(2) });
    // A change elsewhere in the map: the decision is built upon it.
    let version = mgs.map().version;
    trouble.rival.store(true, Ordering::SeqCst);
    let reply = say(&*peer, FIRST, alone(3, true, false));
    assert_eq!((reply.version, reply.why.as_str()), (version + 2, ""));
    say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(4) });
    // Another service admits the other member first: this request is void.
    let mut map = mgs.map();
    map.version += 1;
    let first = map.mirrors.iter_mut().find(|m| m.id == MIRROR).expect("there");
    (first.epoch, first.primary, first.members[0].state) = (Epoch(6), SECOND, Out);
    trouble.inner.compare_and_swap(map.version - 1, &map).expect("stored");
    let late = say(&*peer, FIRST, alone(5, true, false));
    assert_eq!((late.members.epoch, late.members.primary), (Epoch(6), 1));
    assert!(late.why.contains("earlier epoch"), "{}", late.why);
    assert_eq!(members(&mgs), (6, SECOND, vec![Out, InSync]));
}

#[test]
fn a_member_that_took_the_place_of_another_inherits_no_reports() {
    let (mgs, peer) = pair();
    // The second member dies, and is removed; a new one comes, and is in sync.
    say(&*peer, FIRST, alone(4, true, false));
    let node = mgs.map().target(SECOND).expect("there").node;
    ask(&*peer, &Heartbeat { node, targets: vec![SECOND], leaving: true }).expect("answered");
    let plan = PlanRemoval { kind: RemovalKind::Target, name: "3".into(), force: false };
    let token = ask(&*peer, &plan).expect("answered").token;
    let done = Remove { kind: plan.kind, name: plan.name, force: false, token };
    ask(&*peer, &done).expect("removed");
    assert_eq!(members(&mgs), (6, FIRST, vec![InSync]));
    let new = ask(&*peer, &Register { uuid: Uuid([9; 16]), ..second() }).expect("registered");
    assert_eq!((new.target, new.mirror, new.epoch), (TargetId(4), MIRROR, Epoch(7)));
    say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(7) });
    assert_eq!(members(&mgs), (8, FIRST, vec![InSync, InSync]));
    let gone = ask(&*peer, &request(SECOND, alone(8, true, true))).expect_err("removed");
    assert!(gone.detail.contains("target 3 is no member of demo-OST0000"), "{gone}");
    let mut state = mgs.state.lock();
    assert_eq!(state.ask_members(&request(TargetId(4), alone(8, true, true)), 0).expect("answered").why, "");
}

#[test]
fn no_member_is_alone_once_all_servers_stop() {
    let (mgs, peer) = fresh();
    register_pair(&*peer);
    say(&*peer, FIRST, alone(2, true, false));
    let (epoch, _, _) = members(&mgs);
    mgs.keep_pairs();
    say(&*peer, FIRST, AskingOf::InSync { epoch: Epoch(epoch) });
    let pair = (epoch + 1, FIRST, vec![InSync, InSync]);
    assert_eq!(members(&mgs), pair, "one that has all still joins");
    say(&*peer, SECOND, alone(epoch + 1, true, true));
    assert_eq!(members(&mgs), pair);
}

/// mirror-D5: the map was restored from a backup of epoch 2, and the second member knows epoch 6.
#[test]
fn a_restored_map_admits_no_member_that_knows_less_than_the_other() {
    let (mgs, peer) = fresh();
    register_pair(&*peer);
    let reply = say(&*peer, SECOND, alone(6, true, false));
    assert!(
        reply.why.contains("restored from a backup") && reply.why.contains("target 2 on one"),
        "{}",
        reply.why
    );
    let reply = say(&*peer, FIRST, alone(2, true, false));
    assert_ne!(reply.why, "", "the other one knows more");
    assert_eq!(members(&mgs), (2, FIRST, vec![InSync, Out]));
    assert_eq!(say(&*peer, SECOND, alone(6, true, false)).why, "");
    assert_eq!(members(&mgs), (7, SECOND, vec![Out, InSync]), "above all that a member has named");
    // From here on the map decides as ever.
    assert_ne!(say(&*peer, FIRST, alone(2, true, false)).why, "");
    assert_eq!(say(&*peer, SECOND, AskingOf::InSync { epoch: Epoch(7) }).why, "");
    assert_eq!(members(&mgs), (8, SECOND, vec![InSync, InSync]));
}
