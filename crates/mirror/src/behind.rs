//! A map that is behind its members: it was restored from a backup, and members know a later epoch than it has.
//!
//! mirror-D5: the MGS decides under an epoch above all that a member has named, and never admits a member while the other one may know more: the
//!     other has not named its epoch yet, or has named a later one. It declares the other in sync only once that has named the same epoch.

use ::types::Epoch;

use crate::decide::{Reports, Request, Verdict, Why};
use crate::types::{MemberId, MemberState, Members};

/// True if a member knows a later epoch than the map: `next_members` does not apply. `told`: the epochs that the members have named to this MGS.
pub fn is_behind(map: &Members, told: [Option<Epoch>; 2]) -> bool {
    told.iter().flatten().any(|epoch| *epoch > map.epoch)
}

/// The map that follows from a request, where `is_behind`. `told` has the request's epoch already.
///
/// The map's states are of an earlier time. A member asks to be alone only if it is in sync by the newest map that it knows; it speaks
/// of the other one's return only if it is alone by that.
pub fn next_of_behind(
    told: [Option<Epoch>; 2],
    reports: &Reports,
    from: MemberId,
    request: Request,
) -> Verdict {
    use MemberState::{InSync, Out, Resyncing};
    let (Request::Fetch { epoch }
    | Request::Ask { epoch, .. }
    | Request::InSync { epoch }
    | Request::Resyncing { epoch, .. }) = request;
    let highest = told.iter().flatten().fold(epoch, |a, b| a.max(*b));
    if epoch < highest {
        return Verdict::Keep(Why::OldEpoch);
    }
    let with = |state: MemberState| {
        let mut states = [InSync; 2];
        states[from.other().index()] = state;
        Verdict::Change(Members { epoch: Epoch(highest.0 + 1), primary: from, states })
    };
    match (request, told[from.other().index()]) {
        (Request::Fetch { .. }, _) => Verdict::Keep(Why::Nothing),
        // It may have gone on alone under a later epoch.
        (Request::Ask { .. }, None) => Verdict::Keep(Why::Behind),
        // Both were in sync by one map, and the other may have more (mirror-D2).
        (Request::Ask { is_whole: false, end, .. }, Some(other)) if other == epoch => {
            let claim = reports.claim(from.other(), epoch);
            match claim.is_some_and(|claim| !claim.is_whole && claim.end <= end) {
                true => with(Out),
                false => Verdict::Keep(Why::NotWhole),
            }
        }
        (Request::Ask { .. }, Some(_)) => with(Out),
        // These two are in contact, in which the later map is taken over: the other knows no later one.
        (Request::InSync { .. }, Some(other)) if other == epoch => with(InSync),
        // The map's other member may have been replaced by the one that is in contact.
        (Request::InSync { .. }, _) => Verdict::Keep(Why::Behind),
        (Request::Resyncing { is_under_way, .. }, _) => with(if is_under_way { Resyncing } else { Out }),
    }
}

#[cfg(test)]
mod tests {
    use MemberId::{A, B};
    use MemberState::{InSync, Out, Resyncing};

    use super::*;
    use crate::types::Position;

    fn ask(epoch: u32, is_whole: bool) -> Request {
        Request::Ask { epoch: Epoch(epoch), is_whole, end: Position::ZERO, is_planned: false }
    }

    #[test]
    fn d5_a_member_that_knows_less_is_never_admitted_and_epochs_go_on_above_all() {
        let map = |epoch| Members { epoch: Epoch(epoch), primary: A, states: [InSync, InSync] };
        let told = |a: Option<u32>, b: Option<u32>| [a.map(Epoch), b.map(Epoch)];
        assert!(!is_behind(&map(5), told(Some(5), Some(4))) && is_behind(&map(5), told(None, Some(6))));
        let to = |epoch, primary, states| Verdict::Change(Members { epoch: Epoch(epoch), primary, states });
        let sync = Request::InSync { epoch: Epoch(9) };
        let filling = Request::Resyncing { epoch: Epoch(9), is_under_way: true };
        type Row<'a> = (&'a str, [Option<Epoch>; 2], MemberId, Request, Verdict);
        let table: [Row<'_>; 11] = [
            ("the other is unheard", told(None, Some(9)), B, ask(9, true), Verdict::Keep(Why::Behind)),
            ("the other knows more", told(Some(5), Some(9)), A, ask(5, true), Verdict::Keep(Why::OldEpoch)),
            ("the other knows less", told(Some(5), Some(9)), B, ask(9, true), to(10, B, [Out, InSync])),
            (
                "less, after a loss of power",
                told(Some(5), Some(9)),
                B,
                ask(9, false),
                to(10, B, [Out, InSync]),
            ),
            ("both know as much", told(Some(9), Some(9)), A, ask(9, true), to(10, A, [InSync, Out])),
            (
                "as much, after a loss of power",
                told(Some(9), Some(9)),
                A,
                ask(9, false),
                Verdict::Keep(Why::NotWhole),
            ),
            (
                "only the map",
                told(Some(9), None),
                A,
                Request::Fetch { epoch: Epoch(9) },
                Verdict::Keep(Why::Nothing),
            ),
            (
                "one that is alone has the other in sync",
                told(Some(9), Some(9)),
                B,
                sync,
                to(10, B, [InSync, InSync]),
            ),
            ("or another than that of the map", told(None, Some(9)), B, sync, Verdict::Keep(Why::Behind)),
            ("or one before it has fetched", told(Some(5), Some(9)), B, sync, Verdict::Keep(Why::Behind)),
            ("or fills it", told(Some(9), None), A, filling, to(10, A, [InSync, Resyncing])),
        ];
        for (name, told, from, request, want) in table {
            assert_eq!(next_of_behind(told, &Reports::default(), from, request), want, "{name}");
        }
        // Both lost power, and both have asked: the one with more is admitted.
        let mut reports = Reports::default();
        let at = |seq| Position { line: crate::types::Line(1), seq: crate::types::MirrorSeq(seq) };
        let lost = |seq| Request::Ask { epoch: Epoch(9), is_whole: false, end: at(seq), is_planned: false };
        reports.on_request(B, lost(7), 1000);
        let both = told(Some(9), Some(9));
        assert_eq!(next_of_behind(both, &reports, A, lost(7)), to(10, A, [InSync, Out]));
        assert_eq!(next_of_behind(both, &reports, A, lost(6)), Verdict::Keep(Why::NotWhole));
    }
}
