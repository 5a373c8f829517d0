//! `stria mirror verify`: the primary of a mirrored OST compares its content with the other member's, while it is in use (decision 0071).
//!
//! oss-V1: a difference is reported once it is certain (store-CM1). The primary's content is then given to the other member, unless a page of it
//!     cannot be read.
//! oss-V2: no lock of the store is held while the other member compares.

use std::time::{Duration, Instant};

use mgmt::params::Param;
use parking_lot::Mutex;
use store::{Engine, Seen, Walk};
use types::{Fault, ObjectId, PAGE_SIZE};
use wire::Wire;
use wire::object::RIGHT_ADMIN;
use wire::pair::{
    CompareRanges, CompareRangesReply, Difference, RangeSeen, VerifyMirror, VerifyMirrorReply, verify_state,
};

use crate::Core;
use crate::mirror::Role;
use crate::serve::{Ctx, Served};

/// Differences that are kept for the answer.
const KEPT_MAX: usize = 256;
/// Looks at a range that changes all the time.
const LOOKS_MAX: usize = 200;
/// Pause after an answer that did not come, and how many of these end a run.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: u32 = 20;
/// Longest pause of a run. It waits as long as a step took, so that requests have half of the medium and of the network at least.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether a paused comparison goes on.
const PAUSED: Duration = Duration::from_secs(1);
/// Pause while there is no work.
const REST: Duration = Duration::from_secs(60);

/// The last comparison.
#[derive(Default)]
pub struct Verifier(Mutex<Run>);

#[derive(Clone, Default)]
struct Run {
    state: u8,
    at: Option<Walk>,
    done: u64,
    ranges: u64,
    found: u64,
    filled: u64,
    differences: Vec<Difference>,
    why: String,
    ended_sec: u64,
    /// Answers that did not come, one after the other.
    missed: u32,
}

/// The result of a second look at a range.
enum Outcome {
    Equal,
    Certain,
    /// It changed at each look.
    Busy,
}

impl Core {
    /// Begins a comparison, if none is under way.
    pub fn begin_verify(&self) {
        let mut run = self.verifier.0.lock();
        if run.state != verify_state::RUNNING {
            *run = Run { state: verify_state::RUNNING, at: Some(Walk::Behind(None)), ..Run::default() };
        }
        drop(run);
        self.bell.ring();
    }

    /// True if this member orders, and knows another one.
    pub fn has_follower(&self) -> bool {
        matches!(&*self.role.read(), Role::Ordering(_)) && self.peer.read().is_some()
    }

    /// One step of a comparison. Returns the pause before the next.
    pub fn verify_round(&self) -> Result<Duration, Fault> {
        let mut run = self.verifier.0.lock().clone();
        let Some(at) = run.at.filter(|_| run.state == verify_state::RUNNING) else { return Ok(REST) };
        if self.settings.params.is_on(Param::VerifyPause) {
            return Ok(PAUSED);
        }
        let begin = Instant::now();
        let pause = match self.verify_step(at, &mut run) {
            Ok(()) => {
                run.missed = 0;
                begin.elapsed().min(PAUSE_MAX)
            }
            Err(fault) => {
                run.missed += 1;
                if run.missed >= AGAIN_MAX || !self.has_follower() {
                    (run.state, run.why) = (verify_state::FAILED, fault.to_string());
                }
                AGAIN
            }
        };
        if run.state != verify_state::RUNNING {
            run.ended_sec = (self.settings.clock)();
            let (target, Run { done, found, filled, .. }) = (self.store.label().target, &run);
            tracing::info!(%target, objects = done, found, filled, "comparison with the other member ended");
        }
        *self.verifier.0.lock() = run;
        Ok(pause)
    }

    fn verify_step(&self, at: Walk, run: &mut Run) -> Result<(), Fault> {
        // 1. The content of this member there.
        let engine = self.engine()?.clone();
        let look = engine.look(at)?;
        if !look.ranges.is_empty() || look.between.is_some() {
            // 2. The parts of it that differ at the other member.
            let (after, until) = look.between.unwrap_or_default();
            let ranges = look.ranges.iter().map(on_wire).collect();
            let lists = look.between.is_some();
            let CompareRangesReply { differ, others } = self.ask_to_compare(lists, after, until, ranges)?;
            // 3. Each is looked at again, since entries may have come in between.
            let differing = look.ranges.iter().zip(differ).filter(|(_, differs)| *differs);
            for (seen, _) in differing {
                self.settle_difference(&engine, seen.object, seen.first, run)?;
            }
            for object in others {
                self.settle_difference(&engine, object, 0, run)?;
            }
        }
        run.ranges += look.ranges.len() as u64;
        run.done += look.ranges.iter().filter(|seen| seen.limit == u32::MAX).count() as u64;
        run.at = Some(look.next);
        if look.next == Walk::End {
            run.state = verify_state::ENDED;
        }
        Ok(())
    }

    /// oss-V1.
    fn settle_difference(
        &self,
        engine: &std::sync::Arc<Engine>,
        object: ObjectId,
        first: u32,
        run: &mut Run,
    ) -> Result<(), Fault> {
        if !matches!(self.look_again(engine, object, first)?, Outcome::Certain) {
            return Ok(());
        }
        let (target, offset) = (self.store.label().target, u64::from(first) * PAGE_SIZE as u64);
        run.found += 1;
        if run.differences.len() < KEPT_MAX {
            run.differences.push(Difference { object, offset });
        }
        let is_filled = engine.fill_range(object, first)?;
        run.filled += u64::from(is_filled);
        tracing::error!(
            %target, %object, offset, is_filled,
            "the members of the mirror have different content here; the primary's counts: `stria mirror verify` tells more"
        );
        Ok(())
    }

    /// store-CM1.
    fn look_again(&self, engine: &Engine, object: ObjectId, first: u32) -> Result<Outcome, Fault> {
        for _ in 0..LOOKS_MAX {
            let seen = engine.see(object, first, None)?;
            let reply = self.ask_to_compare(false, None, None, vec![on_wire(&seen)])?;
            if !reply.differ.contains(&true) {
                return Ok(Outcome::Equal);
            }
            if engine.is_still(&seen) {
                return Ok(Outcome::Certain);
            }
        }
        Ok(Outcome::Busy)
    }

    fn ask_to_compare(
        &self,
        lists: bool,
        after: Option<ObjectId>,
        until: Option<ObjectId>,
        ranges: Vec<RangeSeen>,
    ) -> Result<CompareRangesReply, Fault> {
        let peer = self.peer.read().clone().filter(|_| self.has_follower()).ok_or_else(|| {
            let why =
                "this OST is not the primary of a mirror of two members; `stria mirror list` shows them";
            Fault::new(types::Code::Unsupported, why)
        })?;
        // Mirror and epoch are set by the seat.
        let (mirror, epoch) = (types::MirrorId(0), types::Epoch(0));
        peer.compare(CompareRanges { mirror, epoch, lists, after, until, ranges })
    }

    /// At the other member.
    pub fn compare(&self, wanted: &CompareRanges) -> Result<CompareRangesReply, Fault> {
        let engine = self.engine()?;
        let mut differ = Vec::with_capacity(wanted.ranges.len());
        for range in &wanted.ranges {
            differ.push(!engine.has_seen(range.object, (range.first, range.limit), &range.content.0)?);
        }
        let but: Vec<ObjectId> = wanted.ranges.iter().map(|range| range.object).collect();
        let others = match wanted.lists {
            true => engine.others(wanted.after, wanted.until, &but)?,
            false => vec![],
        };
        Ok(CompareRangesReply { differ, others })
    }

    pub fn on_verify_mirror(
        &self,
        ctx: &Ctx<'_>,
        v: VerifyMirror,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &v.cap, RIGHT_ADMIN)?;
        if v.starts {
            if !self.has_follower() {
                let why =
                    "this OST is not the primary of a mirror of two members; `stria mirror list` shows them";
                return Err(Fault::new(types::Code::Unsupported, why));
            }
            self.begin_verify();
        }
        let Run { state, done, ranges, found, filled, differences, why, ended_sec, .. } =
            self.verifier.0.lock().clone();
        let of = self.store.usage().objects.max(done);
        VerifyMirrorReply { state, done, of, ranges, found, filled, differences, why, ended_sec }.put(reply);
        Ok(Served::READ)
    }
}

fn on_wire(seen: &Seen) -> RangeSeen {
    let Seen { object, first, limit, content, .. } = seen;
    let content = wire::codec::Bytes(content.clone());
    RangeSeen { object: *object, first: *first, limit: *limit, content }
}
