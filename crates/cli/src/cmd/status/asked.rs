//! The line of a target that is asked for its numbers.

use std::time::SystemTime;

use wire::changelog::ListConsumers;
use wire::map::{Mirror, Target};
use wire::pair::MemberStat;
use wire::session::TargetStat;

use super::{Consumers, DOWN, Line, WAITING, line_of};
use crate::reach::Reach;

/// A target of a cluster that runs.
pub fn line(reach: &Reach, target: &Target) -> Line {
    Line { draining: reach.map.is_draining(target.mirror), ..answer(reach, target) }
}

fn answer(reach: &Reach, target: &Target) -> Line {
    let name = mgmt::member_name(&reach.map, target);
    let place = reach.map.node(target.node).map_or(String::new(), |n| n.nids.join(", "));
    let pair = reach.map.mirror(target.mirror).filter(|mirror| mirror.members.len() > 1);
    let role = pair.map(|mirror| if mirror.primary == target.id { "primary" } else { "follower" });
    match reach.ask_with_head(target.id, &TargetStat {}) {
        Err(e) => match reach.ask(target.id, &MemberStat { mirror: target.mirror }) {
            // It is opened anew, or takes the other member's content.
            Ok(stat) => {
                let waits =
                    Some(if stat.waits.is_empty() { "it begins to serve".into() } else { stat.waits });
                Line { name, state: WAITING.into(), role, waits, place, ..Line::default() }
            }
            Err(_) => {
                Line { name, state: DOWN.into(), role, place: format!("{place} ({e:#})"), ..Line::default() }
            }
        },
        Ok((head, stat)) => {
            let changelog = target.is_mdt.then(|| consumers_of(reach, target)).flatten();
            let medium_bytes = Some(target.bytes_total);
            let line = Line { changelog, medium_bytes, role, ..line_of(name, place, head.incarnation, stat) };
            // A member without its promise answers for itself, and serves no program.
            let waits = pair.and_then(|mirror| waits_of(reach, target, mirror));
            Line { state: if waits.is_some() { WAITING.into() } else { line.state.clone() }, waits, ..line }
        }
    }
}

/// The event that a member waits for before it serves.
fn waits_of(reach: &Reach, target: &Target, mirror: &Mirror) -> Option<String> {
    let stat = reach.ask(target.id, &MemberStat { mirror: mirror.id }).ok()?;
    (stat.role == "stopped" && !stat.waits.is_empty()).then_some(stat.waits)
}

/// `None`: there are no consumers, or the MDT has another version.
fn consumers_of(reach: &Reach, target: &Target) -> Option<Consumers> {
    let list = reach.ask(target.id, &ListConsumers { cap: reach.capability(SystemTime::now()) }).ok()?;
    let last = list.consumers.iter().map(|c| c.acked).min()?;
    let lost = list.consumers.iter().filter(|c| c.lost.is_some()).map(|c| c.name.clone()).collect();
    Some(Consumers {
        consumers: list.consumers.len(),
        behind: list.newest.saturating_sub(last),
        bytes: list.bytes,
        bytes_max: list.bytes_max,
        lost,
    })
}
