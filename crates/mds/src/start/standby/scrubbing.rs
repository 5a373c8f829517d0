//! A standby's scrub (`upkeep/scrub.rs`), on a thread of its own from its first flush on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use disk::volume::Volume;
use kv::{CheckedLeaves, Engine, View};
use parking_lot::Mutex;
use types::{Code, Fault, Key};
use wire::Wire;
use wire::mdt::ScrubRecords;
use wire::object::ScrubReply;

use super::{Inner, Standby, gone};
use crate::upkeep::scrub::{Scrubbed, Scrubber, load, put_again};
use crate::{Records, Settings};

pub struct Scrubbing {
    now: Arc<Now>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Now {
    scrubber: Scrubber,
    is_over: AtomicBool,
    /// Leaves are to be written anew. The next flush of the standby begins a checkpoint.
    wants_checkpoint: AtomicBool,
}

impl Scrubbing {
    pub fn new(settings: &Settings) -> Scrubbing {
        let scrubber = Scrubber::new(now_sec(settings));
        let (is_over, wants_checkpoint) = Default::default();
        Scrubbing { now: Arc::new(Now { scrubber, is_over, wants_checkpoint }), thread: Mutex::default() }
    }

    /// Ends the thread within one step. None begins afterwards.
    pub fn end(&self) {
        self.now.is_over.store(true, Ordering::Release);
        self.now.scrubber.bell.ring();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic ends the process.
            let _ = thread.join();
        }
    }
}

impl Drop for Scrubbing {
    fn drop(&mut self) {
        self.end();
    }
}

/// Parts of a standby that its thread may keep.
struct Side {
    volume: Arc<Volume>,
    inner: Arc<Mutex<Option<Inner>>>,
    now: Arc<Now>,
}

impl Standby {
    /// The checkpoint that the thread wants. The owner of a standby calls it again and again, by `flush`.
    pub(super) fn renew_leaves(&self, inner: &mut Inner) -> Result<(), Fault> {
        match self.scrubbing.now.wants_checkpoint.swap(false, Ordering::AcqRel) {
            true => self.free_log(inner),
            false => Ok(()),
        }
    }

    /// Begins the thread, if it does not run.
    pub(super) fn begin_to_scrub(&self) {
        let mut thread = self.scrubbing.thread.lock();
        if thread.is_some() || !self.settings.background || self.scrubbing.now.is_over.load(Ordering::Acquire)
        {
            return;
        }
        let (side, settings) = (self.side(), self.settings.clone());
        let run = move || {
            let mut pause = Duration::ZERO;
            while !side.now.is_over.load(Ordering::Acquire) {
                side.now.scrubber.bell.wait(pause);
                if !side.now.is_over.load(Ordering::Acquire) {
                    pause = side.now.scrubber.round(&side, &settings.params, now_sec(&settings));
                }
            }
        };
        match std::thread::Builder::new().name("mdt-scrub".into()).spawn(run) {
            Ok(begun) => *thread = Some(begun),
            // The next flush tries again.
            Err(error) => tracing::debug!(%error, "no thread for the scrub of a standby"),
        }
    }

    fn side(&self) -> Side {
        let (volume, inner, now) = (self.volume.clone(), self.inner.clone(), self.scrubbing.now.clone());
        Side { volume, inner, now }
    }

    pub(super) fn on_scrub_records(&self, body: &[u8]) -> Result<ScrubReply, Fault> {
        let wish = ScrubRecords::from_bytes(body);
        self.scrub(&wish.map_err(|why| Fault::new(Code::BadRequest, why.to_string()))?)
    }

    pub fn scrub(&self, wish: &ScrubRecords) -> Result<ScrubReply, Fault> {
        // No other reference to the table: a take-over wants the only one.
        let used = self.inner.lock().as_ref().ok_or_else(gone)?.state.kv.reader().medium_bytes();
        self.scrubbing.now.scrubber.on_scrub(wish, &self.settings.params, used, now_sec(&self.settings))
    }

    /// A step of the scrub, for tests without threads.
    #[cfg(test)]
    pub fn scrub_round(&self) -> Duration {
        self.scrubbing.now.scrubber.round(&self.side(), &self.settings.params, now_sec(&self.settings))
    }
}

impl Side {
    fn kv(&self) -> Result<Arc<Records>, Fault> {
        Ok(self.inner.lock().as_ref().ok_or_else(gone)?.state.kv.clone())
    }
}

impl Scrubbed for Side {
    fn check_leaves(&self, after: Option<&Key>, max: usize) -> CheckedLeaves {
        // Once it became an MDT, that one has a scrub.
        self.kv().map_or_else(|_| CheckedLeaves::default(), |kv| kv.check_leaves(after, max))
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn renew(&self, first: &Key) -> Result<bool, Fault> {
        loop {
            let (kv, again) = {
                // No entry comes meanwhile.
                let inner = self.inner.lock();
                let inner = inner.as_ref().ok_or_else(gone)?;
                inner.check()?;
                (inner.state.kv.clone(), put_again(&inner.state.kv, first))
            };
            match again {
                Ok(is_there) => return Ok(is_there),
                Err(what) => load(&kv, what)?,
            }
        }
    }

    fn write_anew(&self) -> Result<(), Fault> {
        self.now.wants_checkpoint.store(true, Ordering::Release);
        Ok(())
    }
}

fn now_sec(settings: &Settings) -> u64 {
    settings.clock.wall().sec.max(0) as u64
}
