//! Comparisons of members that go on now, whatever began them: a command, or the end of a scrub.

use std::time::SystemTime;

use wire::map::Target;
use wire::pair::{VerifyMirror, VerifyMirrorReply, VerifyRecords, VerifyRecordsReply, verify_state};

use crate::reach::Reach;

/// A comparison that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Of the mirror.
    pub name: String,
    /// "objects" or "records".
    pub things: &'static str,
    pub done: u64,
    pub of: u64,
    /// Differences.
    pub found: u64,
}

/// Those of a file system. A primary that does not answer, or an identity that may not ask, shows none.
pub fn running(reach: &Reach) -> Vec<Running> {
    let is_doubled =
        |target: &&Target| reach.map.mirror(target.mirror).is_some_and(|mirror| mirror.members.len() > 1);
    let primaries: Vec<&Target> = reach.primaries().into_iter().filter(is_doubled).collect();
    reach.ask_all(&primaries, |primary| ask(reach, primary)).into_iter().flatten().collect()
}

fn ask(reach: &Reach, primary: &Target) -> Option<Running> {
    let mirror = reach.map.mirror(primary.mirror)?;
    let name = mgmt::mirror_name(&reach.map, mirror);
    let (cap, starts) = (reach.capability(SystemTime::now()), false);
    let (state, running) = if primary.is_mdt {
        let reply = reach.ask(primary.id, &VerifyRecords { cap, starts }).ok()?;
        let VerifyRecordsReply { state, done, of, found, .. } = reply;
        (state, Running { name, things: "records", done, of, found })
    } else {
        let reply = reach.ask(primary.id, &VerifyMirror { cap, starts }).ok()?;
        let VerifyMirrorReply { state, done, of, found, .. } = reply;
        (state, Running { name, things: "objects", done, of, found })
    };
    (state == verify_state::RUNNING).then_some(running)
}
