//! Fsck of a running system: lists everything, compares, and reports what stays when it is looked at again. It changes nothing.

mod look;

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plan::fsck::{Counts, Finding, Purges, Round, Verdict, confirmed};
use types::{Fault, Fid, Generation, Uuid};
use wire::codec::Bytes;
use wire::meta::{Scan, ScanRecord};
use wire::object::{Capability, List};

use crate::Fs;

pub use plan::fsck::Problem;

/// A check of a very large system may take hours; its capability outlives it.
const CAPABILITY_SEC: u64 = 24 * 3600;
/// Pauses between looks at the queue of the purge begin here and double; and how long it is looked at while it moves.
const PURGE_LOOK_MIN: Duration = Duration::from_millis(2);
const PURGE_LOOK_MAX: Duration = Duration::from_millis(500);
const PURGE_WATCH_MAX: Duration = Duration::from_secs(600);

/// How a check goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Records and objects per request; bounds a reply and the time that it holds its target up.
    pub page: u32,
    /// Between the rounds: longer than a commit interval.
    pub pause: Duration,
    /// What waits to be destroyed is a finding when nothing of it has gone for so long: longer than the longest pause of the
    /// MDT's purge after a failure (30 s) and its longest calls.
    pub purge: Duration,
}

impl How {
    /// As `stria fsck` does.
    pub const TOOL: How = How { page: 4096, pause: Duration::from_secs(3), purge: Duration::from_secs(45) };
}

/// What was found, and what was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub counts: Counts,
}

/// Checks the file system of `fs`, which may be an observer. `secret` is the file system's key (servers have it).
pub fn check(fs: &Fs, secret: &Uuid) -> Result<Report, Fault> {
    check_with(fs, secret, How::TOOL)
}

/// As `check`, with one other pause for everything.
pub fn check_with_pause(fs: &Fs, secret: &Uuid, pause: Duration) -> Result<Report, Fault> {
    check_with(fs, secret, How { pause, purge: pause, ..How::TOOL })
}

/// As `check`, with other how.
pub fn check_with(fs: &Fs, secret: &Uuid, how: How) -> Result<Report, Fault> {
    let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let cap = object::cap::make_admin(secret, now_sec + CAPABILITY_SEC);
    // 1. All of it, once. Mostly that is the end.
    let (first, queue) = round(fs, &cap, how.page)?;
    let (found, mut counts) = (first.findings(), first.counts());
    let purges = Purges::new(first.dead().clone(), how.purge);
    drop(first);
    // 2. All of it again, if something looked wrong; then each finding alone.
    let mut findings = Vec::new();
    if !found.is_empty() {
        sleep(how.pause);
        let (second, _) = round(fs, &cap, how.page)?;
        counts = second.counts();
        findings = look::again(fs, &cap, &second, confirmed(&found, second.findings()))?;
    }
    // 3. What is to be destroyed goes, or is stuck.
    findings.extend(watch(fs, purges, &queue, how)?);
    findings.sort();
    Ok(Report { findings, counts })
}

/// One round, and the cursor of the scan before the first dead record.
fn round(fs: &Fs, cap: &Capability, page: u32) -> Result<(Round, Bytes), Fault> {
    let mut round = Round::new();
    // Objects first: one that is made meanwhile is missing from the list rather than without a name.
    for (mirror, link) in fs.cluster.osts() {
        let mut after = None;
        loop {
            let req = List { cap: cap.clone(), after, max: page };
            let reply = link.ask(Fid(0), &req, fs.deadline())?.reply;
            after = reply.objects.last().map(|s| s.object);
            reply.objects.into_iter().for_each(|stat| round.add_object(mirror, stat));
            if !reply.more || after.is_none() {
                break;
            }
        }
    }
    let mut queue = None;
    scan(fs, Bytes::default(), page, |after, record| {
        if matches!(record, ScanRecord::Dead { .. }) && queue.is_none() {
            queue = Some(after.clone());
        }
        round.add_record(record);
    })?;
    Ok((round, queue.unwrap_or_default()))
}

/// Every record after a cursor, each with the cursor of its page.
fn scan(fs: &Fs, mut after: Bytes, page: u32, mut each: impl FnMut(&Bytes, ScanRecord)) -> Result<(), Fault> {
    loop {
        let reply = fs.ask(Fid::ROOT, &Scan { after: after.clone(), max: page })?;
        reply.records.into_iter().for_each(|record| each(&after, record));
        if !reply.more {
            return Ok(());
        }
        after = reply.last;
    }
}

/// Looks at the queue of the purge, which begins after the cursor `queue`, until what was in it is gone or stuck.
fn watch(fs: &Fs, mut purges: Purges, queue: &Bytes, how: How) -> Result<Vec<Finding>, Fault> {
    let (began, mut pause) = (Instant::now(), PURGE_LOOK_MIN);
    let mut dead = BTreeSet::<(Fid, Generation)>::new();
    loop {
        if !purges.is_empty() {
            dead.clear();
            scan(fs, queue.clone(), how.page, |_, record| {
                if let ScanRecord::Dead { fid, layout } = record {
                    dead.insert((fid, layout.generation));
                }
            })?;
        }
        match purges.look(began.elapsed(), &dead) {
            Verdict::Done => return Ok(vec![]),
            Verdict::Stuck(findings) => return Ok(findings),
            // It moves, and there is much of it.
            Verdict::Wait if began.elapsed() >= PURGE_WATCH_MAX => return Ok(vec![]),
            Verdict::Wait => sleep(pause),
        }
        pause = (pause * 2).min(PURGE_LOOK_MAX);
    }
}
