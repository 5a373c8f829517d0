//! Calls between members over the fabric.

use std::sync::Arc;
use std::time::Instant;

use net::{Answer, Fabric, Hub, Service};
use types::{Code, Fault, FsId, Incarnation, MirrorId, TargetId};
use wire::Header;
use wire::pair::{AskMembers, AskMembersReply, AskingOf, CopyAll, MembersOf};

use super::world::{A, B, MIRROR, World};
use crate::planted::Rule;
use crate::{Companion, FabricPost, Post, Seat, StageId};

struct OfSeat(Arc<Seat>);

impl Service for OfSeat {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        assert!(Seat::is_served(head.call));
        self.0.serve(head, body, bulk, answer);
    }
}

fn post(hub: Arc<Hub>, mirror: MirrorId, me: TargetId, other: TargetId) -> FabricPost {
    let mgs = |request: &AskMembers, _: Instant| match request.asking {
        AskingOf::Fetch { epoch } if request.member == TargetId(10) => {
            let members = MembersOf { epoch, primary: 0, states: vec![2, 2] };
            Ok(AskMembersReply { version: 4, members, why: String::new() })
        }
        _ => Err(Fault::from(Code::BadRequest)),
    };
    FabricPost { fabric: Fabric::new(Some(hub)), fs: FsId(1), mirror, me, other, mgs: Box::new(mgs) }
}

/// Its server does not hear the MGS, and so does not know that another target is in its place.
pub fn former_member(planted: Option<Rule>) -> Result<(), String> {
    let mut world = World::new(planted);
    world.until("served", |world| world.serves(A) && world.up(B).serves_reads())?;
    let (hub, [former, a, b]) = (Hub::new(), [TargetId(12), TargetId(10), TargetId(11)]);
    hub.add(a, Arc::new(OfSeat(world.up(A))));
    hub.add(b, Arc::new(OfSeat(world.up(B))));
    let life = world.up(B).report().life;
    let [of_b, of_a] = [b, a].map(|other| post(hub.clone(), MIRROR, former, other));
    let answers = [
        ("letters", of_b.letters(Vec::new()).map(drop)),
        ("flush_log", of_b.flush_log().map(drop)),
        ("stage", of_b.stage(life, StageId(7), b"page")),
        ("copy_all", of_a.copy_all(0, 0).map(drop)),
    ];
    for (call, answer) in answers {
        match answer {
            Err(fault) if fault.code == Code::Moved => {}
            other => return Err(format!("{call} of a former member: {other:?}")),
        }
    }
    Ok(())
}

#[test]
fn s13_a_target_that_was_taken_out_of_the_mirror_is_not_heard() {
    assert_eq!(former_member(None), Ok(()));
}

#[test]
fn each_call_reaches_the_other_members_seat() {
    let mut world = World::new(None);
    world.until("served", |world| world.serves(A) && world.up(B).serves_reads()).expect("nothing fails");
    world.write(A).expect("it serves");
    let (hub, [a, b]) = (Hub::new(), [TargetId(10), TargetId(11)]);
    hub.add(a, Arc::new(OfSeat(world.up(A))));
    hub.add(b, Arc::new(OfSeat(world.up(B))));

    let of_a = post(hub.clone(), MIRROR, a, b);
    let acknowledged = of_a.flush_log().expect("B answers");
    assert_eq!((acknowledged.len(), world.disk(B).durable), (1, 1));
    assert_eq!(of_a.letters(Vec::new()), Ok(Vec::new()));
    let life = world.up(B).report().life;
    assert_eq!(of_a.stage(life, StageId(7), b"page"), Ok(()));
    assert_eq!(world.disk(B).staged, [(StageId(7), b"page".to_vec())]);
    let former = of_a.stage(Incarnation(life.0 - 1), StageId(8), b"page");
    assert_eq!(former.unwrap_err().code, Code::NotReady, "pages for a former life");
    assert_eq!(of_a.copy_all(0, 0).unwrap_err().code, Code::NotReady, "B does not order");

    let of_b = post(hub.clone(), MIRROR, b, a);
    let copied = of_b.copy_all(0, 0).expect("A orders");
    assert!(copied.is_last && copied.lines.end == world.up(A).committed());
    let fetch = AskingOf::Fetch { epoch: types::Epoch(3) };
    assert_eq!(of_a.ask(fetch.clone()).expect("it is for this member").version, 4);
    assert_eq!(of_b.ask(fetch).unwrap_err().code, Code::BadRequest);

    let astray = post(hub.clone(), MirrorId(9), a, b);
    assert_eq!(astray.flush_log().unwrap_err().code, Code::Moved);
    let unknown = post(hub, MIRROR, a, TargetId(12));
    assert_eq!(unknown.letters(Vec::new()).unwrap_err().code, Code::NotReady);
    let head = Header { call: 1, ..Header::default() };
    assert!(!Seat::is_served(head.call) && Seat::is_served(<CopyAll as wire::Request>::CALL));
}
