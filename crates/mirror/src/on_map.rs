//! A mirror in the cluster map, and the part of it that the rules are about.

use types::TargetId;
use wire::map::{self, Mirror};

use crate::types::{MemberId, MemberState, Members};

/// The members of a mirror of two; `None` for another number of members. The first member in the map is `A`.
pub fn members_of(mirror: &Mirror) -> Option<Members> {
    let [a, b] = mirror.members.as_slice() else { return None };
    let primary = if mirror.primary == b.target { MemberId::B } else { MemberId::A };
    Some(Members { epoch: mirror.epoch, primary, states: [state_of(a.state), state_of(b.state)] })
}

/// The place of a target in its mirror of two.
pub fn member_of(mirror: &Mirror, target: TargetId) -> Option<MemberId> {
    let [a, b] = mirror.members.as_slice() else { return None };
    match target {
        _ if target == a.target => Some(MemberId::A),
        _ if target == b.target => Some(MemberId::B),
        _ => None,
    }
}

/// Writes a decision into the map's mirror, which has two members.
pub fn set_members(mirror: &mut Mirror, members: &Members) {
    assert_eq!(mirror.members.len(), 2, "decisions are about mirrors of two members");
    for (member, state) in mirror.members.iter_mut().zip(members.states) {
        member.state = match state {
            MemberState::InSync => map::MemberState::InSync,
            MemberState::Resyncing => map::MemberState::Filling,
            MemberState::Out => map::MemberState::Out,
        };
    }
    mirror.epoch = members.epoch;
    mirror.primary = mirror.members[members.primary.index()].target;
}

fn state_of(state: map::MemberState) -> MemberState {
    match state {
        map::MemberState::InSync => MemberState::InSync,
        map::MemberState::Filling => MemberState::Resyncing,
        map::MemberState::Out => MemberState::Out,
    }
}

#[cfg(test)]
mod tests {
    use ::types::{Epoch, FsId, MirrorId};

    use super::*;

    #[test]
    fn a_decision_and_the_map_have_the_same_members() {
        let (a, b) = (TargetId(4), TargetId(9));
        let mut mirror = Mirror::alone(MirrorId(2), FsId(1), true, Epoch(3), a);
        assert_eq!((members_of(&mirror), member_of(&mirror, a)), (None, None));
        mirror.members.push(map::Member { target: b, state: map::MemberState::Out });
        assert_eq!((member_of(&mirror, a), member_of(&mirror, b)), (Some(MemberId::A), Some(MemberId::B)));
        for primary in MemberId::BOTH {
            for states in [
                [MemberState::InSync, MemberState::Out],
                [MemberState::Resyncing, MemberState::InSync],
                [MemberState::InSync, MemberState::InSync],
            ] {
                let want = Members { epoch: Epoch(8), primary, states };
                set_members(&mut mirror, &want);
                assert_eq!(members_of(&mirror), Some(want));
            }
        }
    }
}
