//! Planned hand-overs: primaries leave in good order, one mirror after the other, and go on as followers.

use std::time::{Duration, Instant};

use bench::wrap::wrap;
use serde::Serialize;
use types::{MirrorId, TargetId};
use wire::map::ClusterMap;
use wire::mgmt::GetMap;
use wire::pair::HandOver;

use super::{Line, lines};
use crate::exit::{Exit, Failure};
use crate::reach::{self, Management};

/// Longest wait for the map's new primary. A hand-over that meets a fault ends as a fail-over does, after two promises.
const TAKEN_MAX: Duration = Duration::from_secs(20);
/// Longest wait until the members are in sync again. Their logs have what they lack.
const IN_SYNC_MAX: Duration = Duration::from_secs(60);
/// Pause between two looks at the map.
const LOOK_EACH: Duration = Duration::from_millis(10);

/// A mirror that was handed over.
#[derive(Clone, Debug, Serialize)]
struct One {
    mirror: String,
    id: u32,
    /// Hosts of the former primary and the new one.
    from: String,
    to: String,
    /// From the request until the map has the new primary.
    seconds: f64,
}

/// A mirror that was not.
#[derive(Clone, Debug, Serialize)]
pub struct Left {
    pub mirror: String,
    pub why: String,
}

/// The outcome of a command.
#[derive(Debug, Default, Serialize)]
pub struct Moved {
    handed_over: Vec<One>,
    /// Mirrors that stay as they are.
    pub left: Vec<Left>,
    /// Mirrors that are not in sync in the end.
    not_in_sync: Vec<String>,
}

impl Moved {
    /// Hands over these mirrors of two members, one after the other. Stops at the first that fails.
    pub fn all(management: &Management, mirrors: &[Line], json: bool) -> anyhow::Result<Moved> {
        let mut moved = Moved::default();
        for line in mirrors {
            let one = hand_over(management, line)?;
            if !json {
                outln!("{}: {} handed over to {} in {:.2} s", one.mirror, one.from, one.to, one.seconds);
            }
            moved.handed_over.push(one);
        }
        Ok(moved)
    }

    /// Waits until the members are in sync again, and reports.
    pub fn end(mut self, management: &Management, json: bool) -> anyhow::Result<Exit> {
        let ids: Vec<u32> = self.handed_over.iter().map(|one| one.id).collect();
        let until = Instant::now() + IN_SYNC_MAX;
        loop {
            let map = newest(management)?;
            let lacking = lines(&map, None).into_iter().filter(|l| ids.contains(&l.id) && !l.is_whole());
            self.not_in_sync = lacking.map(|l| l.name).collect();
            if self.not_in_sync.is_empty() || Instant::now() > until {
                break;
            }
            std::thread::sleep(LOOK_EACH);
        }
        match json {
            true => outln!("{}", serde_json::to_string_pretty(&self)?),
            false => self.notes().iter().for_each(|note| outln!("{}", wrap(note, 4))),
        }
        let is_well = self.not_in_sync.is_empty() && self.left.is_empty();
        Ok(if is_well { Exit::Done } else { Exit::Findings })
    }

    fn notes(&self) -> Vec<String> {
        let left = self.left.iter().map(|left| format!("{} stays as it is: {}", left.mirror, left.why));
        let mut notes: Vec<String> = left.collect();
        if !self.not_in_sync.is_empty() {
            let names = self.not_in_sync.join(", ");
            let next = "stop no server before `stria mirror list` shows all members in sync";
            notes.push(format!("not in sync yet: {names}; {next}"));
        } else if !self.handed_over.is_empty() {
            notes.push("all members of these mirrors are in sync".into());
        }
        notes
    }
}

fn hand_over(management: &Management, line: &Line) -> anyhow::Result<One> {
    let what = || format!("hand over {}", line.name);
    let (Some(from), Some(to)) = (line.primary_member(), line.other_member()) else {
        let next = "`stria mirror list` shows the members of each";
        return Err(Failure::unusable(what(), "it has no second member", next).into());
    };
    let (mirror, primary) = (MirrorId(line.id), TargetId(from.target));
    let fs = management.map.target(primary).map_or_else(Default::default, |t| t.fs);
    let begin = Instant::now();
    reach::ask(&*management.fabric.peer(primary)?, fs, primary, &HandOver { mirror }).map_err(|e| {
        let next = format!("`stria mirror status {}` tells more", line.name);
        Failure::failed(what(), format!("{e:#}"), next)
    })?;
    while newest(management)?.mirror(mirror).is_some_and(|m| m.primary == primary) {
        if begin.elapsed() > TAKEN_MAX {
            let why = format!("{} has not taken over within {TAKEN_MAX:?}", to.host);
            let next = format!("`stria mirror status {}` tells why it waits", line.name);
            return Err(Failure::failed(what(), why, next).into());
        }
        std::thread::sleep(LOOK_EACH);
    }
    Ok(One {
        mirror: line.name.clone(),
        id: line.id,
        from: from.host.clone(),
        to: to.host.clone(),
        seconds: (begin.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
    })
}

fn newest(management: &Management) -> anyhow::Result<ClusterMap> {
    let reply = management.ask(&GetMap { known_version: 0, server: false })?;
    reply.map.ok_or_else(|| anyhow::anyhow!("the management service sent no map"))
}
