//! `stria mirror verify`: has the primary of a mirror compare its content with the other member's, and waits for the result.

mod records;
mod running;

use std::time::{Duration, Instant, SystemTime};

use bench::wrap::wrap;
use mgmt::params::{Param, kept};
use serde::Serialize;
use types::TargetId;
use wire::pair::{VerifyMirror, VerifyMirrorReply, VerifyRecords, VerifyRecordsReply, verify_state};

use super::Line;
use crate::exit::{Exit, Failure};
use crate::reach::{Management, Reach};

pub use running::{Running, running};

/// Pause between two looks.
const LOOK_EACH: Duration = Duration::from_millis(300);
/// Progress is told so often.
const TELL_EACH: Duration = Duration::from_secs(10);

/// The result for one mirror.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum One {
    Ost(Ranges),
    Mdt(records::Records),
}

/// Of an OST.
#[derive(Debug, Serialize)]
struct Ranges {
    mirror: String,
    id: u32,
    kind: &'static str,
    objects: u64,
    ranges: u64,
    /// Ranges that differed.
    differences: u64,
    /// Those of them that the other member was given anew.
    filled: u64,
    /// The first of them.
    places: Vec<Place>,
}

#[derive(Debug, Serialize)]
struct Place {
    path: String,
    object: String,
    offset: u64,
}

/// A primary's word on a comparison.
struct Said<R> {
    state: u8,
    done: u64,
    of: u64,
    found: u64,
    why: String,
    reply: R,
}

/// Compares these mirrors, one after the other.
pub fn verify(management: &Management, mirrors: &[Line], json: bool) -> anyhow::Result<Exit> {
    let mut all = Vec::new();
    for line in mirrors {
        let one = verify_one(management, line, json)?;
        if !json {
            one.text().iter().for_each(|text| outln!("{}", wrap(text, 4)));
        }
        all.push(one);
    }
    if json {
        outln!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(if all.iter().all(One::is_equal) { Exit::Done } else { Exit::Findings })
}

fn verify_one(management: &Management, line: &Line, json: bool) -> anyhow::Result<One> {
    let what = || format!("compare the members of {}", line.name);
    let refused = |why: &str, next: &str| Failure::unusable(what(), why, next);
    let status = format!("`stria mirror status {}` tells more", line.name);
    if line.members.len() < 2 {
        return Err(
            refused("it has no second member", "`stria mirror list` shows the members of each").into()
        );
    }
    if !line.is_whole() {
        return Err(refused("its members are not in sync", &status).into());
    }
    let primary = TargetId(line.primary);
    let reaches = management.file_systems();
    let reach = reaches.iter().find(|reach| reach.targets().iter().any(|t| t.id == primary));
    let reach = reach.ok_or_else(|| refused("its file system is not in the map", &status))?;
    if kept(&reach.map, primary, Param::VerifyPause) == Some(1) {
        let next = format!("`stria task resume verify:{}` lets it go on", line.name);
        return Err(refused("its comparison is paused", &next).into());
    }
    let failed = |why: String| -> anyhow::Error { Failure::failed(what(), why, &status).into() };
    let cap = || reach.capability(SystemTime::now());
    if line.is_mdt() {
        let ask = |starts| reach.ask(primary, &VerifyRecords { cap: cap(), starts });
        let reply = run(line, json, "records", &mut |starts| {
            let reply = ask(starts).map_err(|e| failed(format!("{e:#}")))?;
            let VerifyRecordsReply { state, done, of, found, .. } = reply;
            Ok(Said { state, done, of, found, why: reply.why.clone(), reply })
        })?;
        return Ok(One::Mdt(records::Records::of(line, reach, &reply)));
    }
    let ask = |starts| reach.ask(primary, &VerifyMirror { cap: cap(), starts });
    let reply = run(line, json, "objects", &mut |starts| {
        let reply = ask(starts).map_err(|e| failed(format!("{e:#}")))?;
        let VerifyMirrorReply { state, done, of, found, .. } = reply;
        Ok(Said { state, done, of, found, why: reply.why.clone(), reply })
    })?;
    Ok(One::Ost(Ranges::of(line, reach, &reply)))
}

/// Begins a comparison, and waits for its end.
fn run<R>(
    line: &Line,
    json: bool,
    things: &str,
    ask: &mut dyn FnMut(bool) -> anyhow::Result<Said<R>>,
) -> anyhow::Result<R> {
    let what = || format!("compare the members of {}", line.name);
    let (mut said, mut told) = (ask(true)?, Instant::now());
    while said.state == verify_state::RUNNING {
        if !json && told.elapsed() >= TELL_EACH {
            let Said { done, of, found, .. } = said;
            outln!("{}: {done} of {of} {things} compared, {found} differences", line.name);
            told = Instant::now();
        }
        std::thread::sleep(LOOK_EACH);
        said = ask(false)?;
    }
    match said.state {
        verify_state::ENDED => Ok(said.reply),
        verify_state::FAILED => {
            let status = format!("`stria mirror status {}` tells more", line.name);
            Err(Failure::failed(what(), said.why, status).into())
        }
        // Its server was started anew, or the other member orders now.
        _ => {
            let next = format!("run `stria mirror verify {}` again", line.name);
            Err(Failure::failed(what(), "the primary began anew meanwhile", next).into())
        }
    }
}

impl One {
    fn is_equal(&self) -> bool {
        match self {
            One::Ost(ranges) => ranges.differences == 0,
            One::Mdt(records) => records.is_equal(),
        }
    }

    fn text(&self) -> Vec<String> {
        match self {
            One::Ost(ranges) => ranges.text(),
            One::Mdt(records) => records.text(),
        }
    }
}

impl Ranges {
    fn of(line: &Line, reach: &Reach, reply: &VerifyMirrorReply) -> Ranges {
        let place = |d: &wire::pair::Difference| Place {
            path: reach.path_of(d.object.fid),
            object: d.object.to_string(),
            offset: d.offset,
        };
        Ranges {
            mirror: line.name.clone(),
            id: line.id,
            kind: "ost",
            objects: reply.done,
            ranges: reply.ranges,
            differences: reply.found,
            filled: reply.filled,
            places: reply.differences.iter().map(place).collect(),
        }
    }

    fn text(&self) -> Vec<String> {
        let Ranges { mirror, objects, differences, filled, .. } = self;
        if *differences == 0 {
            return vec![format!("{mirror}: the members are equal ({objects} objects)")];
        }
        let mut text = vec![format!(
            "{mirror}: {differences} RANGES DIFFERED ({objects} objects); {filled} of them have the primary's content at both members now"
        )];
        for Place { path, object, offset } in &self.places {
            text.push(format!("  {path}: object {object}, from offset {offset} on"));
        }
        if filled < differences {
            text.push("the primary cannot read the others: see `stria damage list`".into());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_with_their_places() {
        let mut one = Ranges {
            mirror: "home-OST0000".into(),
            id: 2,
            kind: "ost",
            objects: 5,
            ranges: 7,
            differences: 0,
            filled: 0,
            places: vec![],
        };
        assert_eq!(one.text(), ["home-OST0000: the members are equal (5 objects)"]);
        (one.differences, one.filled) = (2, 1);
        one.places = vec![Place { path: "/a".into(), object: "0x20".into(), offset: 1 << 20 }];
        let text = one.text();
        assert!(text[0].contains("2 RANGES DIFFERED (5 objects); 1 of them have"), "{text:?}");
        assert_eq!(text[1], "  /a: object 0x20, from offset 1048576 on");
        assert!(text[2].contains("`stria damage list`"), "{text:?}");
    }
}
