//! Fsck of the name space while clients work: runs the rules of `meta::check` over a snapshot, one slice of records per step, without
//! leadership. A finding is reported only if it still shows in the newest state. Repairs are log entries like any other.
//!
//! One check runs at a time. Its client calls again to go on, so the check uses the thread of its caller only. A check that is not continued
//! for `IDLE_MS` is dropped; until then its snapshot keeps replaced leaves, unless a checkpoint needs that space.

use std::ops::ControlFlow;
use std::sync::Arc;

use kv::{Damage, Engine, Value, View};
use meta::check::{Check, Finding, Findings, Seen, counts_too_much, path, repair, repair_of};
use meta::counts::Pending;
use types::{Code, Fault, Key};
use wire::Request;
use wire::check::{self as told, CheckReply, Looked, RepairReply, Wrong};
use wire::codec::Bytes;
use wire::meta::{CutOver, DropPending, Migrate, Repoint};
use wire::object::{Capability, RIGHT_ADMIN};

use crate::executor::execute::Stop;
use crate::records::ids::no_lease;
use crate::records::look::{Next, Page, SnapView, Trouble, Walk, look, page, until_loaded};
use crate::records::overlay::Layer;
use crate::reply::parse;
use crate::{Core, Records};

/// Most records and bytes of a slice, which is copied out of the snapshot at once.
const SLICE: usize = 4096;
const SLICE_BYTES: usize = 1 << 20;
/// Longest work of one call, so that its connection is free for other requests soon.
const CALL_MS: u64 = 200;
/// Most findings of one answer.
const TOLD_MAX: usize = 256;
/// A check that was not continued for this long is dropped.
const IDLE_MS: u64 = 60_000;

pub struct Run {
    id: u64,
    used_ms: u64,
    looked: Looked,
    stage: Stage,
}

enum Stage {
    Walk { walk: Arc<Walk<Records>>, pending: Box<Pending>, check: Box<Check>, at: Key },
    Found(Findings),
}

impl Core {
    pub fn on_check(&self, req: &told::Check) -> Result<CheckReply, Fault> {
        self.check_admin(&req.cap)?;
        let mut checking = self.checking.lock();
        let began_ms = self.clock.boot_ms();
        if req.run == 0 {
            *checking = Some(self.begin_check(began_ms)?);
        }
        let run = the_run(&mut checking, req.run)?;
        loop {
            run.used_ms = self.clock.boot_ms();
            match &mut run.stage {
                Stage::Walk { walk, pending, check, at } => {
                    let is_through = walk.slice(&self.kv, |snap| self.walk(snap, check, at))?.is_break();
                    run.looked = check.looked();
                    if is_through {
                        let found = std::mem::take(&mut **check).finish(pending);
                        run.stage = Stage::Found(found);
                    }
                }
                Stage::Found(found) => {
                    let (from, all) = (req.seen as usize, found.found.len());
                    let to = (from + TOLD_MAX).min(all);
                    // A finding keeps its number. One that no longer shows is reported with an empty text.
                    let findings = (from..to).map(|n| self.tell(found, n)).collect::<Result<_, _>>()?;
                    let (looked, dropped) = (run.looked.clone(), found.dropped);
                    return Ok(CheckReply { run: run.id, done: to >= all, looked, findings, dropped });
                }
            }
            if self.clock.boot_ms().saturating_sub(began_ms) >= CALL_MS || self.is_stopping() {
                let looked = run.looked.clone();
                return Ok(CheckReply { run: run.id, done: false, looked, findings: vec![], dropped: 0 });
            }
        }
    }

    pub fn on_repair(&self, req: &told::Repair) -> Result<RepairReply, Fault> {
        self.check_admin(&req.cap)?;
        let mut checking = self.checking.lock();
        let run = the_run(&mut checking, req.run)?;
        run.used_ms = self.clock.boot_ms();
        let Stage::Found(findings) = &run.stage else {
            return Err(Fault::new(Code::NotReady, "the check has not ended yet"));
        };
        let n = req.number as usize;
        let Some(finding) = findings.found.get(n) else {
            return Err(Fault::new(Code::Invalid, format!("there is no finding {n}")));
        };
        let repaired = match (finding.wrong, finding.lost_before()) {
            (Wrong::WrongCounts, _) => self.repair_counts(findings, n),
            (_, Some(end)) => self.abandon(&finding.key, &end),
            _ => {
                let mut repaired = false;
                let done = self.transact(&no_lease(), &mut |txn| {
                    repaired = repair(txn, findings, n, self.clock.wall())?;
                    Ok(vec![])
                });
                done.map(|_| repaired)
            }
        };
        // A repair may change a directory's parent without its name, also if it then fails.
        self.roots.moved();
        let repaired = repaired?;
        if repaired {
            let (what, repair) = (&finding.what, repair_of(finding));
            tracing::warn!(wrong = ?finding.wrong, what, repair, "fsck repaired a record");
        }
        Ok(RepairReply { repaired })
    }

    /// Repairs counts by two entries under one leadership, so that no other entry comes between.
    fn repair_counts(&self, findings: &Findings, n: usize) -> Result<bool, Fault> {
        self.until_done(&mut || {
            let mut seat = self.executor.lead();
            seat.check_ready()?;
            let too_much = {
                let reader = self.kv.reader();
                let view = SnapView::new(&reader);
                let too_much = counts_too_much(&view, findings, n);
                view.finish()?;
                too_much
            };
            let Some((key, value)) = too_much else { return Ok(false) };
            self.commit_changes(&mut seat, Layer::from([(key, Some(Value::new(&value)))]))?;
            self.commit_changes(&mut seat, Layer::from([(key, None)]))?;
            Ok(true)
        })
    }

    /// Drops a check that its client does not continue.
    pub fn sweep_check(&self) {
        let Some(mut checking) = self.checking.try_lock() else { return };
        let is_idle = |run: &Run| self.clock.boot_ms().saturating_sub(run.used_ms) >= IDLE_MS;
        if checking.as_ref().is_some_and(is_idle) {
            *checking = None;
        }
    }

    /// Migrations are an administrator's.
    pub fn check_migration(&self, call: u16, body: &[u8]) -> Result<(), Fault> {
        let cap = match call {
            Migrate::CALL => parse::<Migrate>(body)?.cap,
            CutOver::CALL => parse::<CutOver>(body)?.cap,
            DropPending::CALL => parse::<DropPending>(body)?.cap,
            Repoint::CALL => parse::<Repoint>(body)?.cap,
            _ => return Ok(()),
        };
        self.check_admin(&cap)
    }

    /// Accepts servers and administration tools only.
    pub fn check_admin(&self, cap: &Capability) -> Result<(), Fault> {
        let now_sec = self.clock.wall().sec.max(0) as u64;
        object::cap::check_right(&self.joined()?.secret, cap, RIGHT_ADMIN, now_sec)
    }

    fn begin_check(&self, now_ms: u64) -> Result<Run, Fault> {
        // One state: the pending rows have what the records do not have yet.
        let (snap, pending) = {
            let seat = self.executor.lead();
            (self.kv.snapshot(), seat.counts.clone())
        };
        let id = u64::from(snap.seq().0 as u32) << 32 | (now_ms & 0xffff_ffff).max(1);
        assert!(id != 0, "run 0 asks for a new check");
        let (walk, pending) = (self.walks.begin(snap), Box::new(pending));
        let stage = Stage::Walk { walk, pending, check: Box::default(), at: Key::default() };
        Ok(Run { id, used_ms: now_ms, looked: Looked::default(), stage })
    }

    /// Checks one slice. `Break`: it was the last.
    fn walk(
        &self,
        snap: &<Records as Engine>::Snap,
        check: &mut Check,
        at: &mut Key,
    ) -> Result<ControlFlow<()>, Fault> {
        let Page { records, next } = page(&self.kv, snap, at, SLICE, SLICE_BYTES)?;
        for (key, value) in &records {
            let seen = until_loaded(&self.kv, &mut || {
                let view = SnapView::new(snap);
                let seen = check.look(&view, key, value);
                match view.finish() {
                    Err(trouble @ Trouble::Absent(_)) => Err(trouble),
                    // mds-V1. A damaged record that the rule read has a finding of its own.
                    Err(_) => Ok(Seen::default()),
                    Ok(()) => Ok(seen),
                }
            })?;
            check.add(key, value, seen);
        }
        *at = match next {
            Next::Nothing => return Ok(ControlFlow::Break(())),
            Next::More(key) => key,
            Next::Damage(Damage { key, end }) => {
                check.add_damaged(&key, &end);
                end
            }
        };
        Ok(ControlFlow::Continue(()))
    }

    /// Finding `n` as it shows now; with an empty text if it no longer shows.
    fn tell(&self, found: &Findings, n: usize) -> Result<told::Finding, Fault> {
        let wrong = found.found[n].wrong;
        if let Some(end) = found.found[n].lost_before() {
            return self.tell_lost(&found.found[n], &end);
        }
        let outcome = look(&self.kv, &mut |view| {
            let finding = found.confirm(view, n)?;
            let path = path(view, &finding);
            Some(told::Finding {
                wrong,
                what: finding.what,
                path: Bytes(path),
                repair: repair_of(&found.found[n]).to_string(),
            })
        });
        let gone =
            told::Finding { wrong, what: String::new(), path: Bytes::default(), repair: String::new() };
        match outcome {
            Ok(finding) => Ok(finding.unwrap_or(gone)),
            // A record that it depends on is damaged, so it can be neither cleared nor repaired.
            Err(fault) if fault.code == Code::Damaged => {
                Ok(told::Finding { what: format!("{}; {}", found.found[n].what, fault.detail), ..gone })
            }
            Err(fault) => Err(fault),
        }
    }
}

impl Core {
    /// A lost range shows until it is abandoned.
    fn tell_lost(&self, finding: &Finding, end: &Key) -> Result<told::Finding, Fault> {
        let is_lost =
            self.until_here(&mut || self.lost_from(&finding.key, end))?.map_err(Stop::fault)?.is_some();
        let say = |what: &str| if is_lost { what.to_string() } else { String::new() };
        let (what, repair) = (say(&finding.what), say(repair_of(finding)));
        // Records of its path may be lost too.
        let path = look(&self.kv, &mut |view| path(view, finding)).unwrap_or_default();
        Ok(told::Finding { wrong: finding.wrong, what, path: Bytes(path), repair })
    }
}

fn the_run(checking: &mut Option<Run>, id: u64) -> Result<&mut Run, Fault> {
    match checking {
        Some(run) if id == 0 || run.id == id => Ok(run),
        _ => Err(Fault::new(
            Code::Stale,
            "this check is over: another one began, or this one was not continued in time; begin anew",
        )),
    }
}
