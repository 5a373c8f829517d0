//! The scrub of an MDT: a background thread reads the records from the medium and checks them, at a bounded rate. Both members of a mirror have
//! their own.
//!
//! mds-SC1: a pass reads each leaf that the last checkpoint names for the whole of the pass, and the checkpoint itself. It goes by rising keys,
//!     so it ends however many checkpoints are written meanwhile.
//! mds-SC2: a bad leaf whose records are in memory is written anew, to another place, by a checkpoint that begins at once.
//! mds-SC3: other bad leaves are damage, as if a request had met them. It is a trouble of the volume: a mirror hands over, and fills the member
//!     anew (pair-S12). An MDT alone tells each request that needs such a record.
//! mds-SC4: no lock is held while the medium is read.
//!
//! The position is not kept: a restart begins anew, an hour after the start.

use std::time::Duration;

use disk::volume::Volume;
use kv::{Absent, Batch, CheckedLeaves, Engine, Miss, Value, View};
use mgmt::params::{Param, Params};
use net::Bell;
use parking_lot::Mutex;
use types::{Code, Fault, Key};
use wire::mdt::ScrubRecords;
use wire::object::scrub_state::{IDLE, PAUSED, RUNNING};
use wire::object::{ScrubPass, ScrubReply, scrub_action};

use crate::{Core, Records};

/// Bytes per second, and the time from one pass to the next, without other parameters.
pub const SCRUB_RATE: u64 = 50 << 20;
pub const SCRUB_EVERY_MS: u64 = 28 * 86_400_000;
/// From the start to the first pass.
const FIRST_SEC: u64 = 3600;
/// Leaves of one step: 1 MiB.
const STEP_LEAVES: usize = if cfg!(test) { 2 } else { 256 };
/// Longest pause of a low rate, which is then exceeded.
const PAUSE_SEC_MAX: f64 = 60.0;
/// Pause while there is no work, and after a medium that did not answer.
const REST: Duration = Duration::from_secs(5);

/// The position of a member's scrub, and the bell of its thread.
pub struct Scrubber {
    course: Mutex<Course>,
    pub bell: Bell,
}

struct Course {
    state: u8,
    /// The pass has read the leaves that begin up to here. `None`: none yet.
    after: Option<Key>,
    pass: ScrubPass,
    last: ScrubPass,
    /// The interval to the next pass begins here.
    since_sec: u64,
    /// Of this life.
    rate: Option<u64>,
    /// Passes so far, so that a step knows that its pass is over.
    passes: u64,
}

/// One member's records, while they are scrubbed.
pub trait Scrubbed {
    fn check_leaves(&self, after: Option<&Key>, max: usize) -> CheckedLeaves;
    fn volume(&self) -> &Volume;
    /// mds-SC2. False: its records are lost (mds-SC3).
    fn renew(&self, first: &Key) -> Result<bool, Fault>;
    /// Begins a checkpoint.
    fn write_anew(&self) -> Result<(), Fault>;
}

impl Scrubber {
    pub fn new(started_sec: u64) -> Scrubber {
        let (pass, last) = (no_pass(), no_pass());
        let course =
            Course { state: IDLE, after: None, pass, last, since_sec: started_sec, rate: None, passes: 0 };
        Scrubber { course: Mutex::new(course), bell: Bell::default() }
    }

    /// One step. Returns the pause before the next.
    pub fn round(&self, on: &dyn Scrubbed, params: &Params, now_sec: u64) -> Duration {
        // 1. The next leaves.
        let (pass, after) = {
            let mut course = self.course.lock();
            let every_sec = every_sec(params);
            let wait_sec = if course.last.ended_sec == 0 { FIRST_SEC.min(every_sec) } else { every_sec };
            if course.state == IDLE && every_sec > 0 && now_sec.saturating_sub(course.since_sec) >= wait_sec {
                course.begin(now_sec);
            }
            if course.state != RUNNING {
                return REST;
            }
            (course.passes, course.after)
        };
        let checked = on.check_leaves(after.as_ref(), STEP_LEAVES);
        if checked.is_passing {
            return REST;
        }
        // 2. The checkpoint that names them, at the end.
        let (mut bytes, mut bad, mut repaired) = (checked.bytes, 0, 0);
        let mut is_head_bad = false;
        if checked.next.is_none() {
            match on.volume().check_checkpoint() {
                Ok(head) => bytes += head,
                Err(e) if disk::is_passing(&e) => return REST,
                Err(error) => {
                    tracing::warn!(target = %on.volume().label().target, %error, "the MDT's checkpoint is bad on the medium; another one is written");
                    is_head_bad = true;
                }
            }
        }
        // 3. The bad ones.
        let mut renewed = u64::from(is_head_bad);
        for first in &checked.bad {
            match on.renew(first) {
                Ok(true) => renewed += 1,
                Ok(false) => bad += 1,
                // The volume's troubles have it.
                Err(fault) => {
                    tracing::error!(target = %on.volume().label().target, %fault, "a part of the MDT's records cannot be read");
                    bad += 1;
                }
            }
        }
        if renewed > 0 {
            match on.write_anew() {
                Ok(()) => repaired += renewed,
                Err(fault) => {
                    tracing::error!(target = %on.volume().label().target, %fault, "a bad part of the MDT's records is in memory and cannot be written anew; look at its medium");
                    bad += renewed;
                }
            }
        }
        // 4. The position, unless an operator ended this pass.
        let mut course = self.course.lock();
        if course.passes != pass || course.state == IDLE {
            return Duration::ZERO;
        }
        assert!(checked.next.is_none_or(|next| Some(next) > after), "mds-SC1: a pass never goes back");
        course.pass.bytes += bytes;
        course.pass.objects += checked.records;
        course.pass.bad_pages += bad;
        course.pass.repaired += repaired;
        course.after = checked.next;
        if checked.next.is_none() {
            course.end(now_sec);
            course.last = course.pass.clone();
            let ScrubPass { bytes, objects: records, bad_pages: bad, repaired, .. } = course.last;
            tracing::info!(target = %on.volume().label().target, bytes, records, bad, repaired, "scrub of the records ended");
        }
        match course.rate(params) {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64((bytes as f64 / rate as f64).min(PAUSE_SEC_MAX)),
        }
    }

    /// The answer to an administrator.
    pub fn on_scrub(
        &self,
        wish: &ScrubRecords,
        params: &Params,
        bytes_used: u64,
        now_sec: u64,
    ) -> Result<ScrubReply, Fault> {
        let refused = |why: &str| Err(Fault::new(Code::BadRequest, why));
        let mut course = self.course.lock();
        match (wish.action, course.state) {
            (scrub_action::LOOK, _) | (scrub_action::START, RUNNING) | (scrub_action::STOP, IDLE) => {}
            (scrub_action::START, IDLE) => course.begin(now_sec),
            (scrub_action::START, _) => {
                return refused("a scrub is paused; `stria scrub resume` lets it go on, `stop` ends it");
            }
            (scrub_action::PAUSE | scrub_action::RESUME, IDLE) => {
                return refused("no scrub is under way; `stria scrub start` begins one");
            }
            (scrub_action::PAUSE, _) => course.state = PAUSED,
            (scrub_action::RESUME, _) => course.state = RUNNING,
            (scrub_action::STOP, _) => course.end(now_sec),
            _ => return refused("an action on a scrub that this version does not know"),
        }
        course.rate = wish.rate.or(course.rate);
        self.bell.ring();
        let every_sec = every_sec(params);
        // The first pass comes sooner.
        let early_sec = if course.last.ended_sec == 0 { every_sec.saturating_sub(FIRST_SEC) } else { 0 };
        Ok(ScrubReply {
            state: course.state,
            rate: course.rate(params),
            every_sec,
            since_sec: course.since_sec.saturating_sub(early_sec),
            bytes_used,
            pass: course.pass.clone(),
            last: course.last.clone(),
        })
    }
}

impl Course {
    fn begin(&mut self, now_sec: u64) {
        (self.state, self.after, self.passes) = (RUNNING, None, self.passes + 1);
        self.pass = ScrubPass { begun_sec: now_sec.max(1), ..no_pass() };
    }
    fn end(&mut self, now_sec: u64) {
        (self.state, self.since_sec) = (IDLE, now_sec);
        self.pass.ended_sec = now_sec.max(1);
    }
    fn rate(&self, params: &Params) -> u64 {
        self.rate.unwrap_or_else(|| params.get(Param::ScrubRate).unwrap_or(SCRUB_RATE))
    }
}

fn every_sec(params: &Params) -> u64 {
    params.get(Param::ScrubEvery).unwrap_or(SCRUB_EVERY_MS).div_ceil(1000)
}

fn no_pass() -> ScrubPass {
    ScrubPass { begun_sec: 0, ended_sec: 0, bytes: 0, objects: 0, bad_pages: 0, repaired: 0 }
}

/// mds-SC2: puts the first record of a leaf once more, so that the next checkpoint writes the leaf to another place. Nothing changes for readers.
/// Called where `apply` may be called. False: the record is lost.
pub fn put_again(kv: &Records, first: &Key) -> Result<bool, Absent> {
    let value = match kv.reader().get(first) {
        Ok(Some(value)) => Value::new(&value),
        // A change has replaced that leaf, and the next checkpoint does not name it.
        Ok(None) => return Ok(true),
        Err(Miss::Damage(_)) => return Ok(false),
        Err(Miss::Absent(what)) => return Err(what),
    };
    kv.admits(std::iter::once(first))?;
    let mut batch = Batch::new();
    batch.put(*first, value);
    let now = kv.reader().seq();
    kv.apply(now, batch);
    Ok(true)
}

/// Brings a leaf into memory that `put_again` needs. Bad bytes are damage from then on (kv-K9).
pub fn load(kv: &Records, what: Absent) -> Result<(), Fault> {
    let unread = |e| Fault::new(Code::Io, format!("a part of the records cannot be read: {e}"));
    kv.load(what).map_err(unread)
}

impl Scrubbed for Core {
    fn check_leaves(&self, after: Option<&Key>, max: usize) -> CheckedLeaves {
        self.kv.check_leaves(after, max)
    }
    fn volume(&self) -> &Volume {
        &self.volume
    }
    fn renew(&self, first: &Key) -> Result<bool, Fault> {
        loop {
            let again = {
                let seat = self.executor.lead();
                seat.check_open()?;
                put_again(&self.kv, first)
            };
            match again {
                Ok(is_there) => return Ok(is_there),
                Err(what) => load(&self.kv, what)?,
            }
        }
    }
    fn write_anew(&self) -> Result<(), Fault> {
        self.checkpoint_now()
    }
}

impl Core {
    pub fn on_scrub_records(&self, wish: &ScrubRecords) -> Result<ScrubReply, Fault> {
        let used = self.kv.reader().medium_bytes();
        self.scrubber.on_scrub(wish, &self.settings.params, used, self.now_sec())
    }

    pub fn scrub_round(&self) -> Duration {
        self.scrubber.round(self, &self.settings.params, self.now_sec())
    }

    fn now_sec(&self) -> u64 {
        self.clock.wall().sec.max(0) as u64
    }
}
