//! A member's report on itself: its part in the mirror, the event that it waits for, and the next step. And the planned hand-over.

use std::sync::Arc;
use std::time::Duration;

use mirror::{MemberState, Role};
use pair::{End, Report};
use types::{Code, Epoch, Fault, Incarnation, MirrorId, Seq, TargetId};
use wire::map::ClusterMap;
use wire::pair::{At, Difference, HandOverReply, ListLostReply, MemberStatReply, ResyncReply};

use super::Place;

/// Between two lives of a member.
pub enum Between {
    /// It opens its target.
    Opening,
    /// It takes the whole content of the other member. `parts`: those that it has.
    Copying { parts: u64 },
    /// It could not go on, for the `tries`-th time in a row, and tries again after a pause.
    Failed { fault: Fault, tries: u32, pause: Duration },
}

/// The event that a member waits for, and an operator's next step; both empty: none.
type Waits = (String, String);

/// In `stria mirror status` and its JSON.
pub fn role_word(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Backup => "follower",
        Role::Alone => "alone",
        Role::Resyncing => "resyncing",
        Role::Stopped => "stopped",
    }
}

impl Place {
    pub fn check_mirror(&self, mirror: MirrorId) -> Result<(), Fault> {
        if mirror == self.reply.mirror {
            return Ok(());
        }
        let has = self.reply.mirror;
        Err(Fault::new(
            Code::Moved,
            format!("this target is a member of mirror {has}, not of {mirror}; fetch the map"),
        ))
    }

    fn other(&self) -> TargetId {
        let map = self.state.lock().map.clone();
        let members = map.mirror(self.reply.mirror).map_or(&[][..], |mirror| &mirror.members);
        members.iter().map(|member| member.target).find(|id| *id != self.id()).unwrap_or_default()
    }

    /// The newest map that it knows.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.state.lock().map.clone()
    }

    /// `None`: it is alone in its mirror, or between two lives.
    pub fn report(&self) -> Option<Report> {
        let seat = self.state.lock().seat.clone()?;
        Some(seat.report())
    }

    pub fn member_stat(&self) -> MemberStatReply {
        let other = self.other();
        let state = self.state.lock();
        let Some(seat) = state.seat.clone() else {
            let epoch = state.map.mirror(self.reply.mirror).map_or(Epoch(0), |mirror| mirror.epoch);
            return of_none(epoch, waits_between(&state.between, other));
        };
        // The seat has locks of its own.
        drop(state);
        let (report, me) = (seat.report(), self.me().ok());
        let is_in_sync = me.is_none_or(|me| report.states[me.index()] == MemberState::InSync);
        let waits = waits_of(&report, is_in_sync, other);
        of_report(report, waits)
    }

    /// Has the supervisor hand the mirror over. Refused if the other member could not take it.
    pub fn hand_over(&self) -> Result<HandOverReply, Fault> {
        let other = self.other();
        let seat = self.state.lock().seat.clone();
        let Some(seat) = seat else {
            let why =
                format!("{} is not in contact with its mirror now; ask again in a moment", self.id_text());
            return Err(Fault::new(Code::NotReady, why));
        };
        let report = seat.report();
        let me = self.me()?;
        if report.primary != me {
            let why = format!(
                "{} is not the primary of mirror {}; fetch the map",
                self.id_text(),
                self.reply.mirror
            );
            return Err(Fault::new(Code::Moved, why));
        }
        let is_taken = report.role == Role::Primary && report.acked.is_some();
        if !is_taken || report.states[me.other().index()] != MemberState::InSync {
            let why = format!(
                "target {other}, the other member of mirror {}, is not in sync, so it cannot take over; wait until it is: `stria mirror \
                 status` tells why it waits",
                self.reply.mirror
            );
            return Err(Fault::new(Code::NotReady, why));
        }
        let mut state = self.state.lock();
        if state.is_stopping {
            let why = format!("{} is stopping, which hands its mirror over too", self.id_text());
            return Err(Fault::new(Code::NotReady, why));
        }
        state.must_hand_over = true;
        drop(state);
        seat.nudge();
        Ok(HandOverReply { epoch: report.epoch })
    }

    /// Has the supervisor give this member's content up, if the token is that of an answer before. Refused if the other member could not fill it.
    /// And refused while the primary has damage that it cannot repair, unless that is given up: this member's content may be the last good one.
    pub fn resync(&self, token: &str, loses_damaged: bool) -> Result<ResyncReply, Fault> {
        let seat = self.state.lock().seat.clone();
        let report = seat.as_ref().map(|seat| seat.report());
        let is_sound =
            |report: &&Report| report.role == Role::Backup && report.states == [MemberState::InSync; 2];
        let (Some(seat), Some(report)) = (seat, report.as_ref().filter(is_sound)) else {
            let why = format!(
                "{} does not follow a primary that is in sync with it, so its content may be the only one; `stria mirror status` tells why",
                self.id_text()
            );
            return Err(Fault::new(Code::NotReady, why));
        };
        let ListLostReply { lost, places } = seat.lost_at_other()?;
        check_lost(self.is_mdt(), self.other(), (lost, &places), loses_damaged)?;
        // Another life, or another epoch, is another state than the one that was looked at. So is more damage.
        let (mirror, id) = (self.reply.mirror, self.id());
        let state = format!("resync {mirror} {id} {} {} {lost} {loses_damaged}", report.epoch, report.life);
        let wanted = format!("{:08x}", types::h64(state.as_bytes()) >> 32);
        if token.is_empty() {
            return Ok(ResyncReply { token: wanted, begun: false, lost, places });
        }
        if token != wanted {
            let why = format!(
                "the token {token:?} is not for the present state of {}; ask for a new one with --dry-run",
                self.id_text()
            );
            return Err(Fault::new(Code::Invalid, why));
        }
        self.state.lock().must_resync = true;
        seat.nudge();
        Ok(ResyncReply { token: wanted, begun: true, lost, places })
    }

    fn id_text(&self) -> String {
        format!("target {}", self.id())
    }
}

/// oss-P11: a filling takes what the primary has. A page that it lost is lost at both members then.
fn check_lost(
    is_mdt: bool,
    primary: TargetId,
    (lost, places): (u64, &[Difference]),
    loses_damaged: bool,
) -> Result<(), Fault> {
    let next = "`stria mirror switch` first: the other member's content, which may have them, counts then";
    match is_mdt {
        _ if lost == 0 => Ok(()),
        // A copy of all records needs all of them.
        true => Err(Fault::new(
            Code::Damaged,
            format!("target {primary}, the primary, cannot read {lost} ranges of its records; {next}"),
        )),
        false if loses_damaged => Ok(()),
        false => {
            let places = places.iter().take(3).map(|d| format!("object {} at offset {}", d.object, d.offset));
            let places = places.collect::<Vec<_>>().join(", ");
            Err(Fault::new(
                Code::Damaged,
                format!(
                    "target {primary}, the primary, has {lost} damaged places that it could not repair from this member ({places};                      `stria damage list` shows all); {next}; or give them up by --lose-damaged"
                ),
            ))
        }
    }
}

fn of_none(epoch: Epoch, (waits, next): Waits) -> MemberStatReply {
    MemberStatReply {
        role: role_word(Role::Stopped).into(),
        life: Incarnation(0),
        epoch,
        end: At { line: Epoch(0), seq: Seq(0) },
        flushed: Seq(0),
        acked: None,
        peer_flushed: Seq(0),
        is_whole: false,
        is_filling: false,
        is_asking: false,
        mgs_said: String::new(),
        waits,
        next,
        done: 0,
        of: 0,
        left_sec: 0,
    }
}

fn of_report(report: Report, (waits, next): Waits) -> MemberStatReply {
    let (line, seq) = report.end;
    MemberStatReply {
        role: role_word(report.role).into(),
        life: report.life,
        epoch: report.epoch,
        end: At { line, seq },
        flushed: report.flushed,
        acked: report.acked,
        peer_flushed: report.peer_flushed,
        is_whole: report.is_whole,
        is_filling: report.is_filling,
        is_asking: report.is_asking,
        mgs_said: report.mgs_said,
        waits,
        next,
        done: report.filling.as_ref().map_or(0, |filled| filled.objects),
        of: report.filling.as_ref().map_or(0, |filled| filled.objects_total),
        left_sec: report.filling_left_sec.unwrap_or(0),
    }
}

fn waits_between(between: &Between, other: TargetId) -> Waits {
    match between {
        Between::Opening => ("it opens its target and reads its log".into(), String::new()),
        Between::Copying { parts: 0 } => (
            format!("it takes the whole content of target {other}, and waits for the first part"),
            format!("if this lasts, look whether target {other} serves as the primary, and at the network"),
        ),
        Between::Copying { parts } => {
            (format!("it takes the whole content of target {other}: {parts} parts so far"), String::new())
        }
        Between::Failed { fault, tries, pause } => {
            let next = match fault.code {
                Code::NoSpace => {
                    "give its medium more space; until then only the other member has what is written"
                }
                _ => "put right what this says; its server's log has more",
            };
            let secs = pause.as_secs().max(1);
            (
                format!("it could not go on, in try {tries}, and tries again after {secs} s ({fault})"),
                next.into(),
            )
        }
    }
}

/// A member in its seat. `is_in_sync`: by its map.
fn waits_of(report: &Report, is_in_sync: bool, other: TargetId) -> Waits {
    let start =
        format!("start the server of target {other}, and look at the network between the two servers");
    match (&report.ended, report.role) {
        (Some(End::Failed(fault) | End::Medium(fault) | End::Unreadable(fault)), _) => (
            format!("it could not go on, and tries again in a moment ({fault})"),
            "put right what this says; its server's log has more".into(),
        ),
        (Some(_), _) => waits_between(&Between::Opening, other),
        (None, Role::Primary | Role::Alone) if !report.filling_said.is_empty() => (
            format!("its filling of target {other} does not go on ({})", report.filling_said),
            "put right what this says; the filling then begins anew".into(),
        ),
        (None, Role::Primary | Role::Alone) if report.filling.is_some_and(|filled| filled.end.is_none()) => {
            let lost = report.filling.map_or(0, |filled| filled.lost);
            match lost {
                0 => (format!("it gives its content to target {other}"), String::new()),
                _ => (
                    format!(
                        "it gives its content to target {other}, but {lost} pages that it cannot read, which are lost at both"
                    ),
                    "`stria damage list` shows them; restore these files from a backup".into(),
                ),
            }
        }
        (None, Role::Primary | Role::Backup | Role::Alone) => Waits::default(),
        (None, Role::Resyncing) => {
            (format!("it takes the entries that it lacks from target {other}"), String::new())
        }
        (None, Role::Stopped) if report.is_asking => {
            let said = match report.mgs_said.as_str() {
                "" => "there is no answer yet",
                said => said,
            };
            let waits =
                format!("it has asked the management service to go on without target {other}: {said}");
            let next = format!("look at the management service (`stria status`); or {start}");
            (waits, next)
        }
        (None, Role::Stopped) if !is_in_sync => {
            (format!("it lacks changes, and waits for target {other} to answer its greeting"), start)
        }
        (None, Role::Stopped) if !report.is_whole => {
            let waits = format!(
                "its host lost power or was reset, so it may have less than it acknowledged; it waits for target {other}"
            );
            (waits, start)
        }
        (None, Role::Stopped) => (
            format!("it waits for target {other} to promise not to act alone"),
            format!("if this lasts, {start}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use mirror::MemberId;

    use super::*;

    fn report(role: Role) -> Report {
        Report {
            role,
            life: Incarnation(3),
            epoch: Epoch(7),
            primary: MemberId::A,
            states: [MemberState::InSync, MemberState::InSync],
            is_whole: true,
            is_filling: false,
            end: (Epoch(6), Seq(40)),
            flushed: Seq(39),
            acked: None,
            peer_flushed: Seq(38),
            filling: None,
            filling_left_sec: None,
            filling_said: String::new(),
            is_asking: false,
            mgs_said: String::new(),
            ended: None,
        }
    }

    #[test]
    fn a_member_that_does_not_serve_tells_what_it_waits_for() {
        let stopped = || report(Role::Stopped);
        let failed = Fault::new(Code::Io, "the medium is gone");
        let lost = Fault::new(Code::Damaged, "a leaf is lost");
        let table = [
            ("serves", report(Role::Primary), true, ""),
            ("follows", report(Role::Backup), true, ""),
            (
                "fills",
                Report { filling: Some(pair::Filled::default()), ..report(Role::Alone) },
                true,
                "gives its content to target 9",
            ),
            (
                "has lost pages",
                Report {
                    filling: Some(pair::Filled { lost: 3, ..Default::default() }),
                    ..report(Role::Alone)
                },
                true,
                "to target 9, but 3 pages that it cannot read",
            ),
            (
                "cannot fill",
                Report { filling_said: "a leaf cannot be read".into(), ..report(Role::Alone) },
                true,
                "does not go on (a leaf cannot be read)",
            ),
            ("catches up", report(Role::Resyncing), false, "takes the entries that it lacks from target 9"),
            ("has no promise", stopped(), true, "waits for target 9 to promise"),
            (
                "lost power",
                Report { is_whole: false, ..stopped() },
                true,
                "may have less than it acknowledged",
            ),
            ("is out", stopped(), false, "waits for target 9 to answer its greeting"),
            ("asks", Report { is_asking: true, ..stopped() }, true, "there is no answer yet"),
            (
                "was refused",
                Report { is_asking: true, mgs_said: "the primary is waited for".into(), ..stopped() },
                true,
                "without target 9: the primary is waited for",
            ),
            ("failed", Report { ended: Some(End::Failed(failed)), ..stopped() }, true, "the medium is gone"),
            (
                "cannot be read",
                Report { ended: Some(End::Unreadable(lost)), ..stopped() },
                true,
                "a leaf is lost",
            ),
            ("begins anew", Report { ended: Some(End::Deposed), ..stopped() }, true, "it opens its target"),
        ];
        for (name, report, is_in_sync, want) in table {
            let (waits, next) = waits_of(&report, is_in_sync, TargetId(9));
            assert_eq!(waits.is_empty(), want.is_empty(), "{name}: {waits}");
            assert!(waits.contains(want), "{name}: {waits}");
            assert!(!waits.is_empty() || next.is_empty(), "{name}: a step for nothing: {next}");
        }
    }

    #[test]
    fn a_member_is_not_filled_by_a_primary_that_lost_something_unless_that_is_given_up() {
        let (primary, places) =
            (TargetId(2), [Difference { object: types::ObjectId::default(), offset: 4096 }]);
        let check = |is_mdt, lost, loses| check_lost(is_mdt, primary, (lost, &places), loses);
        assert_eq!((check(false, 0, false), check(true, 0, false)), (Ok(()), Ok(())));
        let refused = check(false, 5, false).expect_err("it is damaged").detail;
        for part in [
            "target 2, the primary, has 5 damaged places",
            "at offset 4096;",
            "mirror switch",
            "--lose-damaged",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(check(false, 5, true), Ok(()));
        // No copy of an MDT could end.
        assert!(check(true, 5, true).expect_err("it is damaged").detail.contains("5 ranges of its records"));
    }

    #[test]
    fn a_member_that_fails_again_and_again_tells_how_long_it_waits() {
        let fault = Fault::new(Code::NoSpace, "no space for 3 pages");
        let failed = Between::Failed { fault, tries: 4, pause: Duration::from_secs(40) };
        let (waits, next) = waits_between(&failed, TargetId(9));
        assert!(waits.starts_with("it could not go on, in try 4, and tries again after 40 s"), "{waits}");
        assert!(waits.contains("no space for 3 pages") && next.contains("more space"), "{waits}; {next}");
    }

    #[test]
    fn a_member_between_two_lives_tells_how_far_its_copy_is() {
        let copying = |parts| waits_between(&Between::Copying { parts }, TargetId(9)).0;
        assert!(copying(0).ends_with("waits for the first part"), "{}", copying(0));
        assert!(copying(12).ends_with("target 9: 12 parts so far"), "{}", copying(12));
        let told = of_none(Epoch(7), waits_between(&Between::Opening, TargetId(9)));
        assert_eq!((told.role.as_str(), told.life), ("stopped", Incarnation(0)));
    }
}
