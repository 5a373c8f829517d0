//! The reports of a mirror's members on themselves.

use std::fmt::Write;

use net::Fabric;
use serde::Serialize;
use types::{MirrorId, TargetId};
use wire::map::ClusterMap;
use wire::pair::{MemberStat, MemberStatReply};

use super::Line;
use crate::reach;

/// A member's own report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// "primary", "follower", "alone", "resyncing", "stopped"; "silent": it did not answer.
    role: String,
    /// The last entry of its log.
    line: u32,
    seq: u64,
    /// Durable up to here.
    flushed: u64,
    /// Entries that the primary has and it lacks; left out if the primary is silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<u64>,
    is_whole: bool,
    is_filling: bool,
    is_asking: bool,
    /// The last answer of the MGS; empty: it granted what was asked.
    mgs_said: String,
    /// The event that the member waits for; empty: none.
    waits: String,
    /// The next step; empty: none.
    next: String,
    /// Progress of a resync; `of` 0: unknown.
    done: u64,
    of: u64,
    /// Seconds that a filling takes still; 0: unknown.
    left_sec: u32,
}

impl Told {
    fn silent(why: &str) -> Told {
        Told {
            role: "silent".into(),
            line: 0,
            seq: 0,
            flushed: 0,
            behind: None,
            is_whole: false,
            is_filling: false,
            is_asking: false,
            mgs_said: String::new(),
            waits: format!("it does not answer ({why})"),
            next: "start its server, or look at the network".into(),
            done: 0,
            of: 0,
            left_sec: 0,
        }
    }

    fn is_silent(&self) -> bool {
        self.role == "silent"
    }

    pub fn is_waiting(&self) -> bool {
        !self.waits.is_empty()
    }

    pub fn progress(&self) -> Option<(u64, u64, u32)> {
        (self.of > 0).then_some((self.done, self.of, self.left_sec))
    }

    /// The event that the member waits for, and the next step.
    pub fn text(&self) -> String {
        let left = if self.left_sec > 0 { format!(", {} left", span(self.left_sec)) } else { String::new() };
        let progress =
            if self.of > 0 { format!(", {} of {}{left}", self.done, self.of) } else { String::new() };
        let next = if self.next.is_empty() { String::new() } else { format!("; {}", self.next) };
        format!("{}{progress}{next}", self.waits)
    }
}

impl From<MemberStatReply> for Told {
    fn from(stat: MemberStatReply) -> Told {
        Told {
            role: stat.role,
            line: stat.end.line.0,
            seq: stat.end.seq.0,
            flushed: stat.flushed.0,
            behind: None,
            is_whole: stat.is_whole,
            is_filling: stat.is_filling,
            is_asking: stat.is_asking,
            mgs_said: stat.mgs_said,
            waits: stat.waits,
            next: stat.next,
            done: stat.done,
            of: stat.of,
            left_sec: stat.left_sec,
        }
    }
}

/// A time that is a guess.
fn span(secs: u32) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        _ => format!("{} h", secs / 3600),
    }
}

/// Asks both members of a mirror at the same time. A mirror of one has nothing to tell.
pub fn ask_members(fabric: &Fabric, map: &ClusterMap, line: &mut Line) {
    if line.members.len() < 2 {
        return;
    }
    let mirror = MirrorId(line.id);
    let ask = |target: u32| -> anyhow::Result<MemberStatReply> {
        let target = TargetId(target);
        let fs = map.target(target).map_or_else(Default::default, |t| t.fs);
        reach::ask(&*fabric.peer(target)?, fs, target, &MemberStat { mirror })
    };
    std::thread::scope(|scope| {
        for member in &mut line.members {
            scope.spawn(|| {
                let told = ask(member.target);
                member.told = Some(told.map_or_else(|e| Told::silent(&format!("{e:#}")), |stat| stat.into()));
            });
        }
    });
    note_behind(line);
}

fn note_behind(line: &mut Line) {
    let primary = line.primary_member().and_then(|m| m.told.as_ref());
    // Of a member between two lives the log is not known.
    let Some(end) = primary.filter(|told| told.seq > 0).map(|told| told.seq) else { return };
    let told = line.members.iter_mut().filter_map(|m| m.told.as_mut());
    told.filter(|told| !told.is_silent()).for_each(|told| told.behind = Some(end.saturating_sub(told.seq)));
}

/// A row per member that has told something.
pub fn table(line: &Line) -> String {
    let mut out = String::new();
    let mut row = |member: &str, [role, line, seq, flushed, behind]: [&str; 5]| {
        writeln!(out, "{member:<18} {role:<10} {line:>6} {seq:>12} {flushed:>12} {behind:>8}")
            .expect("writing to a string does not fail");
    };
    if line.members.iter().any(|m| m.told.is_some()) {
        row("MEMBER", ["IT SAYS", "LINE", "LOG END", "FLUSHED", "BEHIND"]);
    }
    for member in &line.members {
        let Some(told) = &member.told else { continue };
        let Told { role, line, seq, flushed, behind, .. } = told;
        let [line, seq, flushed] = [u64::from(*line), *seq, *flushed].map(|n| n.to_string());
        let behind = behind.map_or("-".into(), |n| n.to_string());
        row(&format!("target {}", member.target), [role, &line, &seq, &flushed, &behind]);
    }
    out
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Incarnation, Seq};
    use wire::map::MemberState;
    use wire::pair::At;

    use super::*;
    use crate::cmd::mirror::lines;
    use crate::cmd::mirror::tests::doubled;

    fn told(role: &str, seq: u64, waits: &str) -> Told {
        let next = if waits.is_empty() { "" } else { "start the server of target 2" };
        Told::from(MemberStatReply {
            role: role.into(),
            life: Incarnation(3),
            epoch: Epoch(4),
            end: At { line: Epoch(4), seq: Seq(seq) },
            flushed: Seq(seq - 1),
            acked: None,
            peer_flushed: Seq(0),
            is_whole: true,
            is_filling: false,
            is_asking: false,
            mgs_said: String::new(),
            waits: waits.into(),
            next: next.into(),
            done: 0,
            of: 0,
            left_sec: 0,
        })
    }

    #[test]
    fn members_tell_how_far_behind_they_are_and_why_they_wait() {
        let mut line = lines(&doubled(MemberState::Out), None).pop().expect("there");
        assert_eq!(table(&line), "");
        line.members[0].told = Some(told("alone", 900, ""));
        line.members[1].told = Some(told("stopped", 850, "it waits for target 2"));
        note_behind(&mut line);
        let text = table(&line);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "MEMBER             IT SAYS      LINE      LOG END      FLUSHED   BEHIND");
        assert_eq!(rows[2], "target 4           stopped         4          850          849       50");
        let notes = line.notes();
        assert_eq!(notes, ["target 4 on oss2: it waits for target 2; start the server of target 2"]);
    }

    #[test]
    fn a_filling_tells_the_time_that_is_left() {
        let told = Told { done: 30, of: 90, left_sec: 300, ..told("alone", 900, "it fills target 4") };
        assert!(told.text().starts_with("it fills target 4, 30 of 90, 5 min left;"), "{}", told.text());
        assert_eq!([90, 119, 120, 7200].map(span), ["90 s", "119 s", "2 min", "2 h"]);
    }

    #[test]
    fn a_silent_primary_leaves_open_how_far_the_other_is_behind() {
        let mut line = lines(&doubled(MemberState::InSync), None).pop().expect("there");
        line.members[0].told = Some(Told::silent("connection refused"));
        line.members[1].told = Some(told("follower", 850, ""));
        note_behind(&mut line);
        assert!(line.members.iter().all(|m| m.told.as_ref().is_some_and(|told| told.behind.is_none())));
        assert!(line.notes().concat().contains("does not answer (connection refused)"), "{:?}", line.notes());
    }
}
