//! The MGS's side: which map follows from a member's request.
//!
//! No clock of the MGS bears on safety, and silence alone changes nothing. A mirror whose members are in contact asks for nothing, so
//! heartbeats that are lost, or a suspicion, end no service.
//!
//! mirror-D1: a request names the epoch that it is about, and is void under any other. So of two members that ask to be alone one is
//!     admitted, and a late request changes nothing.
//! mirror-D2: a member that is not whole is admitted only if no other in-sync member may have more: the other is not in sync, or it has
//!     asked under the same epoch, is not whole either, and its log ends no later.
//! mirror-D3: a member that is not in sync is never admitted. The mirror stays down until its last in-sync member returns, or until an
//!     operator gives data up.
//! mirror-D4 (damping): a backup waits `DAMP_MS` for a primary that was heard of lately, so that a cut between the members moves no client
//!     without need. A planned stop waits for nothing.

use ::types::Epoch;

use crate::planted::{Rule, kept};
use crate::types::{MemberId, MemberState, Members, Position};

/// One asking and a half: promises of the two run out within one `ASK_MS` of each other.
pub const DAMP_MS: u64 = 750;
/// A primary that is silent for so long is not waited for.
pub const HEARD_MS: u64 = 3_000;

/// A member's request to the MGS. The answer is the map, as it is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// The map, if it is newer.
    Fetch { epoch: Epoch },
    /// To be alone. The member is silent under this epoch from here on (mirror-E1), and has flushed its log up to `end` (mirror-E2).
    Ask { epoch: Epoch, is_whole: bool, end: Position, is_planned: bool },
    /// From the one that is alone: the other has all, and both are bound (mirror-J2, J3).
    InSync { epoch: Epoch },
    /// From the one that is alone: the other is being brought up to date, or is not any more.
    Resyncing { epoch: Epoch, is_under_way: bool },
}

/// A member's last asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    epoch: Epoch,
    pub is_whole: bool,
    pub end: Position,
    first_ms: u64,
}

/// The MGS's knowledge of the two members. In memory only: members ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reports {
    pub(crate) heard_ms: [Option<u64>; 2],
    claims: [Option<Claim>; 2],
}

impl Reports {
    pub fn on_heartbeat(&mut self, member: MemberId, now_ms: u64) {
        self.heard_ms[member.index()] = Some(now_ms);
    }

    /// To be called for each request before `next_members`.
    pub fn on_request(&mut self, member: MemberId, request: Request, now_ms: u64) {
        self.on_heartbeat(member, now_ms);
        if let Request::Ask { epoch, is_whole, end, .. } = request {
            let before = self.claims[member.index()].filter(|claim| claim.epoch == epoch);
            let first_ms = before.map_or(now_ms, |claim| claim.first_ms);
            self.claims[member.index()] = Some(Claim { epoch, is_whole, end, first_ms });
        }
    }

    pub(crate) fn claim(&self, member: MemberId, epoch: Epoch) -> Option<Claim> {
        self.claims[member.index()].filter(|claim| claim.epoch == epoch)
    }

    #[cfg(test)]
    pub(crate) fn rebase(&mut self, now_ms: u64) {
        let ago = |ms: &mut u64| *ms = now_ms.saturating_sub(*ms).min(HEARD_MS + 1);
        self.heard_ms.iter_mut().flatten().for_each(ago);
        self.claims.iter_mut().flatten().for_each(|claim| ago(&mut claim.first_ms));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be stored by compare-and-swap against the map that was given.
    Change(Members),
    Keep(Why),
}

/// Why the map stays as it is; for the answer, and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The request changes nothing.
    Nothing,
    /// mirror-D1: it is about an earlier epoch.
    OldEpoch,
    /// mirror-D3: only the other member has the data.
    NotInSync,
    /// mirror-D2: the other member may have more; it must return.
    NotWhole,
    /// mirror-D5: the map was restored, and the other member may know more.
    Behind,
    /// mirror-D4: the primary is waited for, until this time.
    Damped(u64),
}

/// The map that follows from a member's request, which `reports` has heard.
pub fn next_members(
    map: &Members,
    reports: &Reports,
    from: MemberId,
    request: Request,
    now_ms: u64,
) -> Verdict {
    use MemberState::{InSync, Out, Resyncing};
    let (Request::Fetch { epoch }
    | Request::Ask { epoch, .. }
    | Request::InSync { epoch }
    | Request::Resyncing { epoch, .. }) = request;
    if epoch != map.epoch && kept(Rule::EpochCompared) {
        return Verdict::Keep(Why::OldEpoch);
    }
    let with = |state: MemberState| {
        let mut states = [InSync; 2];
        states[from.other().index()] = state;
        Verdict::Change(Members { epoch: Epoch(map.epoch.0 + 1), primary: from, states })
    };
    match request {
        Request::Fetch { .. } => Verdict::Keep(Why::Nothing),
        _ if !map.is_in_sync(from) => Verdict::Keep(Why::NotInSync),
        Request::Ask { is_whole, end, is_planned, .. } => {
            if !is_whole && !has_most(map, reports, from, end) && kept(Rule::WholeFirst) {
                return Verdict::Keep(Why::NotWhole);
            }
            match damped_until(map, reports, from) {
                Some(until_ms) if now_ms < until_ms && !is_planned => Verdict::Keep(Why::Damped(until_ms)),
                _ => with(Out),
            }
        }
        Request::InSync { .. } | Request::Resyncing { .. } if !map.is_sole(from) => {
            Verdict::Keep(Why::Nothing)
        }
        Request::InSync { .. } => with(InSync),
        Request::Resyncing { is_under_way, .. } => {
            let state = if is_under_way { Resyncing } else { Out };
            if map.states[from.other().index()] == state { Verdict::Keep(Why::Nothing) } else { with(state) }
        }
    }
}

/// mirror-D2, of a member that is not whole.
fn has_most(map: &Members, reports: &Reports, from: MemberId, end: Position) -> bool {
    let other = reports.claim(from.other(), map.epoch);
    map.is_sole(from) || other.is_some_and(|other| !other.is_whole && other.end <= end)
}

/// mirror-D4.
fn damped_until(map: &Members, reports: &Reports, from: MemberId) -> Option<u64> {
    let primary = map.primary;
    if primary == from || !map.is_in_sync(primary) || reports.claim(primary, map.epoch).is_some() {
        return None;
    }
    let asked_ms = reports.claim(from, map.epoch)?.first_ms;
    let heard_ms = reports.heard_ms[primary.index()]?;
    (asked_ms < heard_ms + HEARD_MS).then_some(asked_ms + DAMP_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Line, MirrorSeq};
    use MemberId::{A, B};
    use MemberState::{InSync, Out, Resyncing};

    const EPOCH: Epoch = Epoch(7);
    const NOW: u64 = 100_000;

    fn map(b: MemberState) -> Members {
        Members { epoch: EPOCH, primary: A, states: [InSync, b] }
    }
    fn ask(is_whole: bool, seq: u64) -> Request {
        let end = Position { line: Line(1), seq: MirrorSeq(seq) };
        Request::Ask { epoch: EPOCH, is_whole, end, is_planned: false }
    }
    fn alone(primary: MemberId) -> Verdict {
        let states = if primary == A { [InSync, Out] } else { [Out, InSync] };
        Verdict::Change(Members { epoch: Epoch(8), primary, states })
    }

    #[test]
    fn one_member_is_admitted_and_only_if_it_has_the_data() {
        type Row<'a> = (&'a str, MemberState, &'a [(MemberId, Request)], MemberId, Request, Verdict);
        let planned = Request::Ask { epoch: EPOCH, is_whole: true, end: Position::ZERO, is_planned: true };
        let late = Request::Ask { epoch: Epoch(6), is_whole: true, end: Position::ZERO, is_planned: false };
        let behind = [(A, ask(false, 5)), (B, ask(false, 6))];
        let table: [Row<'_>; 12] = [
            ("the primary", InSync, &[], A, ask(true, 5), alone(A)),
            ("the backup, and no word of the primary", InSync, &[], B, ask(true, 5), alone(B)),
            ("under an old epoch", InSync, &[], A, late, Verdict::Keep(Why::OldEpoch)),
            ("a member that is out", Out, &[], B, ask(true, 9), Verdict::Keep(Why::NotInSync)),
            ("a member that is resyncing", Resyncing, &[], B, ask(true, 9), Verdict::Keep(Why::NotInSync)),
            ("one that lost power, alone", InSync, &[], A, ask(false, 5), Verdict::Keep(Why::NotWhole)),
            (
                "both lost power, the shorter log",
                InSync,
                &behind,
                A,
                ask(false, 5),
                Verdict::Keep(Why::NotWhole),
            ),
            ("both lost power, the longer log", InSync, &behind, B, ask(false, 6), alone(B)),
            ("one lost power, the other asks", InSync, &[(A, ask(false, 5))], B, ask(true, 5), alone(B)),
            ("the last one, after a loss of power", Out, &[], A, ask(false, 5), alone(A)),
            ("a fetch", InSync, &[], A, Request::Fetch { epoch: EPOCH }, Verdict::Keep(Why::Nothing)),
            (
                "a planned stop of the primary",
                InSync,
                &[(A, Request::Fetch { epoch: EPOCH })],
                B,
                planned,
                alone(B),
            ),
        ];
        for (name, b, before, from, request, want) in table {
            let mut reports = Reports::default();
            for (member, earlier) in before {
                reports.on_request(*member, *earlier, NOW - 10);
            }
            reports.on_request(from, request, NOW);
            assert_eq!(next_members(&map(b), &reports, from, request, NOW), want, "{name}");
        }
    }

    #[test]
    fn backup_waits_a_moment_for_a_primary_that_lives() {
        let mut reports = Reports::default();
        reports.on_heartbeat(A, NOW - 100);
        reports.on_request(B, ask(true, 5), NOW);
        let verdict = |reports: &Reports, now| next_members(&map(InSync), reports, B, ask(true, 5), now);
        assert_eq!(verdict(&reports, NOW), Verdict::Keep(Why::Damped(NOW + DAMP_MS)));
        reports.on_heartbeat(A, NOW + 500);
        reports.on_request(B, ask(true, 5), NOW + 600);
        assert_eq!(verdict(&reports, NOW + DAMP_MS), alone(B), "the wait counts from the first asking");
        reports.on_request(A, ask(false, 9), NOW + 100);
        assert_eq!(verdict(&reports, NOW + 101), alone(B), "the primary has asked, and was not admitted");
    }

    #[test]
    fn silence_changes_nothing() {
        let reports = Reports::default();
        for b in [InSync, Resyncing, Out] {
            let fetch = Request::Fetch { epoch: EPOCH };
            assert_eq!(next_members(&map(b), &reports, A, fetch, u64::MAX), Verdict::Keep(Why::Nothing));
        }
    }

    #[test]
    fn resync_goes_from_out_to_in_sync() {
        let reports = Reports::default();
        let next = |b, request| next_members(&map(b), &reports, A, request, NOW);
        let to = |b| Verdict::Change(Members { epoch: Epoch(8), primary: A, states: [InSync, b] });
        let resyncing = |is_under_way| Request::Resyncing { epoch: EPOCH, is_under_way };
        assert_eq!(next(Out, resyncing(true)), to(Resyncing));
        assert_eq!(next(Resyncing, resyncing(true)), Verdict::Keep(Why::Nothing));
        assert_eq!(next(Resyncing, resyncing(false)), to(Out));
        assert_eq!(next(Resyncing, Request::InSync { epoch: EPOCH }), to(InSync));
        assert_eq!(next(InSync, resyncing(true)), Verdict::Keep(Why::Nothing));
    }
}
