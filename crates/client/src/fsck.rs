//! Fsck of a running system: lists everything, compares, and reports what two rounds agree on. It changes nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plan::fsck::{Counts, Finding, Round, confirmed};
use types::{Fault, Fid, Uuid};
use wire::codec::Bytes;
use wire::meta::Scan;
use wire::object::{Capability, List};

use crate::Fs;

pub use plan::fsck::Problem;

/// Records and objects per request; bounds a reply and the time that it holds its target up.
const PAGE: u32 = 4096;
/// Between the rounds: longer than a commit interval and a turn of the purge worker, so that what is merely under way has
/// ended by the second.
const PAUSE: Duration = Duration::from_secs(3);
/// A check of a very large system may take hours; its capability outlives it.
const CAPABILITY_SEC: u64 = 24 * 3600;

/// What was found, and what was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub counts: Counts,
}

/// Checks the file system of `fs`, which may be an observer. `secret` is the file system's key (servers have it).
pub fn check(fs: &Fs, secret: &Uuid) -> Result<Report, Fault> {
    check_with_pause(fs, secret, PAUSE)
}

/// As `check`, with another pause between the rounds.
pub fn check_with_pause(fs: &Fs, secret: &Uuid, pause: Duration) -> Result<Report, Fault> {
    let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let cap = object::cap::make_admin(secret, now_sec + CAPABILITY_SEC);
    let first = round(fs, &cap)?;
    let found = first.findings();
    if found.is_empty() {
        return Ok(Report { findings: found, counts: first.counts() });
    }
    drop(first);
    std::thread::sleep(pause);
    let second = round(fs, &cap)?;
    Ok(Report { findings: confirmed(&found, second.findings()), counts: second.counts() })
}

fn round(fs: &Fs, cap: &Capability) -> Result<Round, Fault> {
    let mut round = Round::new();
    // Objects first: one that is made meanwhile is missing from the list rather than without a name.
    for (mirror, link) in fs.cluster.osts() {
        let mut after = None;
        loop {
            let req = List { cap: cap.clone(), after, max: PAGE };
            let reply = link.ask(Fid(0), &req, fs.deadline())?.reply;
            after = reply.objects.last().map(|s| s.object);
            reply.objects.into_iter().for_each(|stat| round.add_object(mirror, stat));
            if !reply.more || after.is_none() {
                break;
            }
        }
    }
    let mut after = Bytes::default();
    loop {
        let reply = fs.ask(Fid::ROOT, &Scan { after, max: PAGE })?;
        reply.records.into_iter().for_each(|record| round.add_record(record));
        if !reply.more {
            return Ok(round);
        }
        after = reply.last;
    }
}
