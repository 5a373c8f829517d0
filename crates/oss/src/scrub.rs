//! The scrub: a background thread that reads every page of every object, and every leaf of the index, from the medium and checks it, at a
//! bounded rate.
//!
//! oss-B1: a pass reads every object that exists for the whole pass. It ends however much is written meanwhile: objects made, and pages
//! appended after their object was listed, wait for the next pass.
//! oss-B2: the scrub's state is kept on the medium every `SAVE_SEC`, and before an operator's change is answered; a restart repeats at
//! most the work since then.
//! oss-B3: it holds no lock while it reads, except for a page that did not match; a request or a stop changes its course within one step.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use store::{BadLeaf, DamageKind, Pass, Readable, Scrub, Scrubbing, StoreError, Verified, VerifiedLeaves};
use types::{Code, Fault, ObjectId, PAGE_SIZE};
use wire::Wire;
use wire::object::{RIGHT_ADMIN, ScrubControl, ScrubPass, ScrubReply, scrub_action};

use crate::Core;
use crate::serve::{Ctx, Served};

/// Pages of one step: 1 MiB. A pause takes effect after one step.
const STEP_PAGES: u32 = 256;
/// Objects of one step.
const STEP_OBJECTS: usize = 64;
/// Least charge for reading an object: many small objects cost seeks, not bytes.
const OBJECT_BYTES: u64 = 64 << 10;
/// Steps per second at a low rate, if they read pages. A step of many small objects is charged more, and its pause is longer.
const STEPS_PER_SEC: u64 = 4;
/// Seconds between two saves of the scrub's position.
const SAVE_SEC: u64 = 30;
/// Longest pause in seconds. It bounds the pause of very low rates, which are then exceeded.
const PAUSE_SEC_MAX: f64 = 3600.0;
/// Pause while there is no work.
const REST: Duration = Duration::from_secs(5);

/// The position of the scrub.
pub struct Scrubber(Mutex<Course>);

struct Course {
    now: Scrub,
    saved_sec: u64,
}

impl Scrubber {
    pub fn new(kept: Scrub) -> Scrubber {
        Scrubber(Mutex::new(Course { now: kept, saved_sec: 0 }))
    }
}

impl Core {
    /// Runs one step. Returns the pause before the next.
    pub fn scrub_round(&self) -> Result<Duration, Fault> {
        // A failed store cannot log damage records, so the scrub waits.
        if self.joined.read().is_none() || self.store.health().failure.is_some() {
            return Ok(REST);
        }
        let now_sec = (self.settings.clock)();
        self.begin_if_due(now_sec)?;
        let course = self.scrubber.0.lock().now;
        if course.state != Scrubbing::Running {
            return Ok(REST);
        }
        let step = self.scrub_step(course)?;
        let bytes = step.pass.bytes - course.pass.bytes;
        let charged = bytes.max((step.pass.objects - course.pass.objects) * OBJECT_BYTES);
        let mut known = self.scrubber.0.lock();
        // If an operator changed the state meanwhile, theirs counts. At most this step is read again.
        let place = |s: &Scrub| (s.state, s.object, s.page, s.pass);
        if place(&known.now) == place(&course) {
            let next = Scrub { rate: known.now.rate, every_sec: known.now.every_sec, ..step };
            let is_over = next.state == Scrubbing::Idle;
            if is_over || now_sec.abs_diff(known.saved_sec) >= SAVE_SEC {
                self.save(&mut known, next, now_sec)?;
            }
            known.now = next;
            if is_over {
                let Pass { bytes, objects, bad_pages, repaired, .. } = next.last;
                tracing::info!(target = %self.store.label().target, bytes, objects, bad_pages, repaired, "scrub ended");
                // Content that differs while both members' checksums hold shows by a comparison alone.
                if self.has_follower() {
                    self.begin_verify();
                }
            }
        }
        Ok(pause_of(charged, known.now.rate))
    }

    /// The state after the next step of a pass.
    fn scrub_step(&self, mut at: Scrub) -> Result<Scrub, Fault> {
        let begun = (at.object, at.page, at.pass);
        let mut left = pages_of_step(at.rate);
        let mut ahead: VecDeque<Place> = VecDeque::new();
        for _ in 0..STEP_OBJECTS {
            let end = at.page_end.saturating_sub(at.page);
            let (found, is_lost) = match self.store.verify(at.object, at.page, left.min(end)) {
                // The object's leaf is bad. The pass reported the leaf when it reached it. A leaf that went bad since then is reported by
                // `stria ost stat` and by the next pass.
                Err(StoreError::Index { source, .. }) if !disk::is_passing(&source) => {
                    (Verified::default(), true)
                }
                found => (found?, false),
            };
            let (target, found_sec) = (self.store.label().target, (self.settings.clock)());
            let bad = self.repair_found(target, at.object, found.bad.clone());
            for (offset, kind) in &bad {
                let damage = store::Damage {
                    object: at.object,
                    offset: *offset,
                    kind: *kind,
                    found_sec,
                    is_repaired: false,
                };
                self.keep_damage(target, damage);
            }
            let bytes = u64::from(found.pages) * PAGE_SIZE as u64;
            at.pass.bytes = at.pass.bytes.saturating_add(bytes);
            at.pass.bad_pages += bad.len() as u64;
            at.pass.repaired += (found.bad.len() - bad.len()) as u64;
            left -= found.pages.min(left);
            if let Some(next) = found.next.filter(|next| *next < at.page_end) {
                at.page = next;
                break;
            }
            let exists = !is_lost && self.store.stat(at.object).is_ok_and(|attrs| attrs.is_some());
            at.pass.objects += u64::from(exists);
            if ahead.is_empty() {
                ahead = places(self.store.list_readable(Some(at.object), STEP_OBJECTS)?);
            }
            let mut next = ahead.pop_front().filter(|place| place.object <= at.last_object);
            // Each leaf of the index is checked when the pass reaches it, so that its damage is found before a request needs it.
            let until = next.map_or(at.last_object, |place| place.object);
            let leaves = self.scrub_leaves(at.object, until, found_sec)?;
            at.pass.bytes = at.pass.bytes.saturating_add(leaves.bytes);
            at.pass.bad_pages += u64::from(leaves.bad.is_some());
            left -= u32::try_from(leaves.bytes / PAGE_SIZE as u64).map_or(left, |pages| pages.min(left));
            if let Some(end) = leaves.end {
                // The remaining leaves first; the list then continues from there.
                next = Some(Place::unknown(end));
                ahead.clear();
            }
            match next {
                Some(place) => (at.object, at.page, at.page_end) = (place.object, 0, place.page_end),
                None => {
                    at.pass.ended_sec = found_sec.max(1);
                    (at.state, at.last, at.since_sec) = (Scrubbing::Idle, at.pass, found_sec.max(1));
                    break;
                }
            }
            // A bad page may have taken long, and a stop waits for this step.
            if left == 0
                || leaves.bad.is_some()
                || !found.bad.is_empty()
                || self.stopping.load(Ordering::Acquire)
            {
                break;
            }
        }
        assert!((at.object, at.page) >= (begun.0, begun.1), "oss-B1: a pass never goes back");
        let last = at.last_object.max(begun.0);
        assert!(at.state != Scrubbing::Running || at.object <= last, "oss-B1: a pass has an end");
        assert!(at.pass.bytes >= begun.2.bytes, "oss-B1: a pass counts every byte that it read");
        Ok(at)
    }

    /// Checks the leaves that begin after `after` and up to `until`, and stops at the first bad one. A leaf that memory still has is
    /// written anew at once; otherwise it is damage.
    fn scrub_leaves(
        &self,
        after: ObjectId,
        until: ObjectId,
        found_sec: u64,
    ) -> Result<VerifiedLeaves, Fault> {
        let found = self.store.verify_leaves(after, until)?;
        let target = self.store.label().target;
        match found.bad {
            None => {}
            Some(BadLeaf { at, is_saved: true, .. }) => {
                tracing::warn!(%target, offset = at, "a part of the index is bad on the medium, and is written anew from memory");
                // An obstacle to checkpoints does not stop the pass: the next checkpoint writes the leaf.
                if let Err(error) = self.store.checkpoint() {
                    tracing::warn!(%target, %error, "it is not written anew yet; the next checkpoint tries again");
                }
            }
            Some(BadLeaf { first, at, is_saved: false }) => {
                let (object, kind) = (first, DamageKind::Index);
                self.keep_damage(
                    target,
                    store::Damage { object, offset: at, kind, found_sec, is_repaired: false },
                );
            }
        }
        Ok(found)
    }

    /// Begins a new pass, if the last one ended long enough ago.
    fn begin_if_due(&self, now_sec: u64) -> Result<(), Fault> {
        let mut known = self.scrubber.0.lock();
        let Scrub { state, every_sec, since_sec, .. } = known.now;
        if since_sec == 0 || since_sec > now_sec {
            // New, or the clock was set back: the interval counts from now.
            let next = Scrub { since_sec: now_sec.max(1), ..known.now };
            return self.save(&mut known, next, now_sec);
        }
        if state == Scrubbing::Idle && every_sec > 0 && now_sec - since_sec >= every_sec {
            let next = self.begun(known.now, now_sec);
            return self.save(&mut known, next, now_sec);
        }
        Ok(())
    }

    /// The state at the begin of a pass.
    fn begun(&self, scrub: Scrub, now_sec: u64) -> Scrub {
        Scrub {
            state: Scrubbing::Running,
            object: ObjectId::default(),
            page: 0,
            page_end: 0,
            last_object: self.store.last_object().unwrap_or_default(),
            pass: Pass { begun_sec: now_sec.max(1), ..Pass::default() },
            ..scrub
        }
    }

    /// Saves a state, then adopts it. If the save fails the state stays unchanged, and the caller repeats the change.
    fn save(&self, course: &mut Course, next: Scrub, now_sec: u64) -> Result<(), Fault> {
        self.store.set_scrub(next)?;
        debug_assert!(
            self.store.scrub() == next,
            "oss-B2: a saved state is the one that a restart begins with"
        );
        (course.now, course.saved_sec) = (next, now_sec);
        Ok(())
    }

    /// For a clean stop: saves the position, so that the next start does not read the same part again.
    pub fn save_scrub(&self) -> Result<(), Fault> {
        let known = self.scrubber.0.lock();
        if known.now != self.store.scrub() { Ok(self.store.set_scrub(known.now)?) } else { Ok(()) }
    }

    /// The state that an operator asks for, or the refusal.
    fn wished(&self, before: Scrub, s: &ScrubControl, now_sec: u64) -> Result<Scrub, Fault> {
        let refused = |why: &str| Err(Fault::new(Code::BadRequest, why));
        let mut next = before;
        match (s.action, before.state) {
            (scrub_action::LOOK, _) => {}
            (scrub_action::START, Scrubbing::Idle) => next = self.begun(before, now_sec),
            (scrub_action::START, Scrubbing::Running) => {}
            (scrub_action::START, Scrubbing::Paused) => {
                return refused("a scrub is paused; `stria scrub resume` lets it go on, `stop` ends it");
            }
            (scrub_action::PAUSE, Scrubbing::Running | Scrubbing::Paused) => next.state = Scrubbing::Paused,
            (scrub_action::RESUME, Scrubbing::Running | Scrubbing::Paused) => next.state = Scrubbing::Running,
            (scrub_action::PAUSE | scrub_action::RESUME, Scrubbing::Idle) => {
                return refused("no scrub is under way; `stria scrub start` begins one");
            }
            (scrub_action::STOP, Scrubbing::Idle) => {}
            (scrub_action::STOP, _) => {
                next.pass.ended_sec = now_sec.max(1);
                (next.state, next.since_sec) = (Scrubbing::Idle, now_sec.max(1));
            }
            _ => return refused("an action on a scrub that this version does not know"),
        }
        next.rate = s.rate.unwrap_or(next.rate);
        next.every_sec = s.every_sec.unwrap_or(next.every_sec);
        Ok(next)
    }

    pub fn on_scrub(&self, ctx: &Ctx<'_>, s: ScrubControl, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &s.cap, RIGHT_ADMIN)?;
        let now = {
            let mut known = self.scrubber.0.lock();
            let next = self.wished(known.now, &s, ctx.now_sec)?;
            if next != known.now {
                self.save(&mut known, next, ctx.now_sec)?;
            }
            next
        };
        let is_look = (s.action, s.rate, s.every_sec) == (scrub_action::LOOK, None, None);
        if !is_look {
            // oss-B2: flush even if nothing changed. An equal change may have come before and not be flushed yet.
            self.store.flush()?;
            self.bell.ring();
        }
        let usage = self.store.usage();
        ScrubReply {
            state: now.state as u8,
            rate: now.rate,
            every_sec: now.every_sec,
            since_sec: now.since_sec,
            bytes_used: usage.bytes_total - usage.bytes_free,
            pass: on_wire(&now.pass),
            last: on_wire(&now.last),
        }
        .put(reply);
        Ok(Served::READ)
    }
}

/// The next place of a pass.
#[derive(Clone, Copy)]
struct Place {
    object: ObjectId,
    /// The object's end in pages when it was listed.
    page_end: u32,
}

impl Place {
    /// The id up to which the listing is complete. An object may appear there. Its length is unknown, so all of it is read.
    fn unknown(object: ObjectId) -> Place {
        Place { object, page_end: u32::MAX }
    }
}

fn places(list: Readable) -> VecDeque<Place> {
    let page_end = |len: u64| u32::try_from(len.div_ceil(PAGE_SIZE as u64)).unwrap_or(u32::MAX);
    let known = list.objects.iter().map(|(id, attrs)| Place { object: *id, page_end: page_end(attrs.len) });
    let mut places: VecDeque<Place> = known.collect();
    let is_known = |end: &ObjectId| places.back().is_some_and(|last| last.object == *end);
    let end = list.end.filter(|end| !is_known(end));
    places.extend(end.map(Place::unknown));
    places
}

/// At a low rate: the pages of a quarter of a second, at least one.
fn pages_of_step(rate: u64) -> u32 {
    let pages = match rate {
        0 => STEP_PAGES,
        rate => (rate / STEPS_PER_SEC / PAGE_SIZE as u64).clamp(1, u64::from(STEP_PAGES)) as u32,
    };
    assert!((1..=STEP_PAGES).contains(&pages), "oss-B3: each step reads something, and ends soon");
    pages
}

fn on_wire(pass: &Pass) -> ScrubPass {
    let Pass { begun_sec, ended_sec, bytes, objects, bad_pages, repaired } = *pass;
    ScrubPass { begun_sec, ended_sec, bytes, objects, bad_pages, repaired }
}

/// The time that `bytes` take at `rate` bytes per second; none for rate 0.
fn pause_of(bytes: u64, rate: u64) -> Duration {
    match rate {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64((bytes as f64 / rate as f64).min(PAUSE_SEC_MAX)),
    }
}
