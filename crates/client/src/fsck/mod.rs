//! Fsck of a running system: the MDT checks its name space, and this compares objects with the layouts that name them. A finding is reported
//! only if a second look shows it again. Only `repair` changes anything, through the MDT.

mod look;
pub(crate) mod sweep;

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plan::fsck::{About, Counts, Finding, Purges, Verdict, confirmed};
use types::{Fault, Fid, Generation, Uuid};
use wire::check::{Check, Looked, Repair};
use wire::meta::{PathOf, ScanRecord};
use wire::object::Capability;

use crate::Fs;

pub use plan::fsck::Problem;
pub use wire::check::Wrong;

/// Validity of the capability. A check of a very large system may take hours.
const CAPABILITY_SEC: u64 = 24 * 3600;
/// First and longest pause between looks at the unlink log (pauses double), and the longest watch while it shrinks.
const PURGE_LOOK_MIN: Duration = Duration::from_millis(2);
const PURGE_LOOK_MAX: Duration = Duration::from_millis(500);
const PURGE_WATCH_MAX: Duration = Duration::from_secs(600);

/// Parameters of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Records and objects per request. Bounds a reply, and the time that its target works on it.
    pub page: u32,
    /// Pause between rounds: longer than a commit interval.
    pub pause: Duration,
    /// A record of the unlink log is a finding if nothing was destroyed for this time: longer than the longest pause of the MDT's purge after a
    /// failure (30 s) and its longest calls.
    pub purge: Duration,
}

impl How {
    /// As `stria fsck` does.
    pub const TOOL: How = How { page: 4096, pause: Duration::from_secs(3), purge: Duration::from_secs(45) };
}

/// Findings and counts of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub counts: Counts,
    /// Findings that the MDT did not keep. Another check finds them after a repair.
    pub dropped: u64,
    /// Number of the MDT's check, for `repair`.
    run: u64,
}

/// Checks the file system of `fs`, which may be an observer. `secret` is the file system's key (servers have it).
pub fn check(fs: &Fs, secret: &Uuid) -> Result<Report, Fault> {
    check_with(fs, secret, How::TOOL)
}

/// As `check`, with one other pause for everything.
pub fn check_with_pause(fs: &Fs, secret: &Uuid, pause: Duration) -> Result<Report, Fault> {
    check_with(fs, secret, How { pause, purge: pause, ..How::TOOL })
}

/// As `check`, with other parameters.
pub fn check_with(fs: &Fs, secret: &Uuid, how: How) -> Result<Report, Fault> {
    let cap = admin(secret);
    // 1. The MDT checks the name space.
    let names = check_names(fs, &cap)?;
    // 2. Look at all objects once. Mostly nothing is found.
    let (first, queue) = sweep::round(fs, &cap, how.page)?;
    let (mut objects, mut object_bytes) = (first.objects, first.object_bytes);
    let purges = Purges::new(first.dead().clone(), how.purge);
    let found = first.finish();
    // 3. If something looked wrong: look at all again, then at each finding alone.
    let mut findings = Vec::new();
    if !found.is_empty() {
        sleep(how.pause);
        let (second, _) = sweep::round(fs, &cap, how.page)?;
        (objects, object_bytes) = (second.objects, second.object_bytes);
        findings = look::again(fs, &cap, confirmed(&found, second.finish()))?;
        findings.iter_mut().for_each(|finding| finding.path = path_of(fs, finding));
    }
    // 4. Watch the unlink log: it shrinks, or is stuck.
    findings.extend(watch(fs, purges, &queue, how)?);
    findings.extend(names.findings);
    findings.sort();
    let Looked { entries, inodes, inline_files, striped_files, writing, orphans, dead, .. } = names.looked;
    let counts = Counts {
        entries,
        inodes,
        inline_files,
        striped_files,
        orphans,
        dead_records: dead,
        objects,
        object_bytes,
        writing,
    };
    Ok(Report { findings, counts, dropped: names.dropped, run: names.run })
}

/// Asks the MDT to repair a finding of `report` that has a repair. False: it no longer shows.
pub fn repair(fs: &Fs, secret: &Uuid, report: &Report, finding: &Finding) -> Result<bool, Fault> {
    let About::Records(number) = finding.about else { return Ok(false) };
    let req = Repair { cap: admin(secret), run: report.run, number };
    Ok(fs.ask(Fid::ROOT, &req)?.repaired)
}

fn admin(secret: &Uuid) -> Capability {
    let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    object::cap::make_admin(secret, now_sec + CAPABILITY_SEC)
}

struct Names {
    findings: Vec<Finding>,
    looked: Looked,
    dropped: u64,
    run: u64,
}

fn check_names(fs: &Fs, cap: &Capability) -> Result<Names, Fault> {
    let (mut run, mut number, mut findings) = (0, 0, Vec::new());
    loop {
        let reply = fs.ask(Fid::ROOT, &Check { cap: cap.clone(), run, seen: number })?;
        run = reply.run;
        for found in reply.findings {
            // Without a text the finding no longer shows.
            if !found.what.is_empty() {
                let advice = match found.repair.is_empty() {
                    true => "there is no one safe repair; see docs/operations.md",
                    false => "'stria fsck --repair' repairs it",
                };
                findings.push(Finding {
                    kind: Problem::Records(found.wrong),
                    about: About::Records(number),
                    what: found.what,
                    path: String::from_utf8_lossy(&found.path).into_owned(),
                    advice: advice.to_string(),
                    repair: found.repair,
                });
            }
            number += 1;
        }
        if reply.done {
            return Ok(Names { findings, looked: reply.looked, dropped: reply.dropped, run });
        }
    }
}

/// The path of a finding's file, if there is one.
fn path_of(fs: &Fs, finding: &Finding) -> String {
    if finding.kind == Problem::OrphanObject {
        return String::new();
    }
    let fid = finding.about.fid();
    match fs.ask(fid, &PathOf { fid }) {
        Ok(reply) => String::from_utf8_lossy(&reply.path).into_owned(),
        Err(_) => format!("<{fid}>"),
    }
}

/// Watches the unlink log behind the cursor `queue`, until its records are gone or stuck.
fn watch(fs: &Fs, mut purges: Purges, queue: &sweep::Cursor, how: How) -> Result<Vec<Finding>, Fault> {
    let (began, mut pause) = (Instant::now(), PURGE_LOOK_MIN);
    let mut dead = BTreeSet::<(Fid, Generation)>::new();
    loop {
        if !purges.is_empty() {
            dead.clear();
            sweep::scan(fs, queue.clone(), how.page, &mut |record| {
                if let ScanRecord::Dead { fid, layout } = record {
                    dead.insert((fid, layout.generation));
                }
                true
            })?;
        }
        match purges.look(began.elapsed(), &dead) {
            Verdict::Done => return Ok(vec![]),
            Verdict::Stuck(findings) => return Ok(findings),
            // It shrinks, but is long.
            Verdict::Wait if began.elapsed() >= PURGE_WATCH_MAX => return Ok(vec![]),
            Verdict::Wait => sleep(pause),
        }
        pause = (pause * 2).min(PURGE_LOOK_MAX);
    }
}
