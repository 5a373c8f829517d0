//! A standby's upkeep: evictions between two entries, and checkpoints on a thread of their own beside the entries (mds-RP9).
//!
//! A checkpoint begins when the log is half full, so that entries seldom find the log full. A take-over and a stop end one that is under
//! way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use disk::volume::{Volume, VolumeError};
use kv::{Engine, Tidied};
use parking_lot::Mutex;
use types::Fault;

use super::{Inner, Standby, gone};
#[cfg(test)]
use crate::pair::planted;
use crate::records::look::Walks;
use crate::upkeep::checkpoint::{self, State};
use crate::{Records, Rules, Settings};

/// Flush marks that may come between `can_append` and the append.
const MARKS: u64 = 64;

/// The thread of a checkpoint.
#[derive(Default)]
pub struct House {
    thread: Mutex<Option<JoinHandle<()>>>,
    now: Arc<Now>,
}

#[derive(Default)]
struct Now {
    is_writing: AtomicBool,
    /// The last checkpoint failed. The next append that finds the log full writes one itself, and fails with the reason.
    has_failed: AtomicBool,
    /// No checkpoint begins any more, and the one under way is given up.
    is_over: AtomicBool,
}

impl House {
    /// Ends a checkpoint under way. None begins afterwards.
    pub fn end(&self) {
        self.now.is_over.store(true, Ordering::Release);
        // The thread may wait for entries, and those for this lock.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic ends the process.
            let _ = thread.join();
        }
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.end();
    }
}

impl Standby {
    /// False: the log has no space for this entry until a checkpoint has ended.
    pub(super) fn has_room(&self, payload_len: usize) -> bool {
        let is_put_off = self.is_beside() && !self.house.now.has_failed.load(Ordering::Acquire);
        // An empty log has space for each entry that it ever will.
        if !is_put_off || self.volume.log_used() == 0 || self.volume.has_room(payload_len, MARKS) {
            return true;
        }
        match &*self.inner.lock() {
            Some(_) => self.begin_checkpoint(),
            None => return true,
        }
        false
    }

    /// Evictions and checkpoints that are due.
    pub(super) fn keep_house(&self, inner: &mut Inner) {
        let mut is_due = checkpoint::is_half_full(&self.volume);
        loop {
            match inner.state.kv.tidy() {
                Tidied::Done => break,
                Tidied::More => {}
                Tidied::Unwritten => {
                    is_due = true;
                    break;
                }
            }
        }
        if !is_due {
            return;
        }
        if self.is_beside() {
            self.begin_checkpoint();
        } else if let Err(fault) = self.checkpoint(inner) {
            // The entry is here all the same. The log goes on until it is full.
            tracing::error!(%fault, "a standby's checkpoint failed; the log goes on until it is full");
        }
    }

    /// A mark found the log full.
    pub(super) fn free_log(&self, inner: &mut Inner) -> Result<(), Fault> {
        if !self.is_beside() {
            return self.checkpoint(inner);
        }
        self.begin_checkpoint();
        Ok(())
    }

    /// Checkpoints run beside entries. Tests of power loss have no threads.
    fn is_beside(&self) -> bool {
        #[cfg(test)]
        if planted::has(planted::Bug::ChecksInline) {
            return false;
        }
        self.settings.background
    }

    fn begin_checkpoint(&self) {
        let mut thread = self.house.thread.lock();
        let now = &self.house.now;
        if now.is_over.load(Ordering::Acquire) || now.is_writing.swap(true, Ordering::AcqRel) {
            return;
        }
        // Entries are put off while it is written, also after one that failed.
        now.has_failed.store(false, Ordering::Release);
        let (volume, settings, inner) = (self.volume.clone(), self.settings.clone(), self.inner.clone());
        let (now, walks) = (now.clone(), self.comparing.walks.clone());
        let run = move || {
            let done = beside(&volume, &settings, &inner, &walks, &now.is_over);
            let is_over = now.is_over.load(Ordering::Acquire);
            if let Err(fault) = done.as_ref().map_err(|fault| fault.clone())
                && !is_over
            {
                tracing::error!(%fault, "a standby's checkpoint failed; the log goes on until it is full");
            }
            now.has_failed.store(done.is_err() && !is_over, Ordering::Release);
            now.is_writing.store(false, Ordering::Release);
        };
        // The one before is past all locks.
        if let Some(before) = thread.take() {
            let _ = before.join();
        }
        match std::thread::Builder::new().name("mdt-standby".into()).spawn(run) {
            Ok(begun) => *thread = Some(begun),
            Err(error) => {
                tracing::error!(%error, "a standby cannot start the thread of its checkpoint; raise the limit of threads");
                self.house.now.has_failed.store(true, Ordering::Release);
                self.house.now.is_writing.store(false, Ordering::Release);
            }
        }
    }

    /// Writes a checkpoint while no entry can come.
    pub(super) fn checkpoint(&self, inner: &mut Inner) -> Result<(), Fault> {
        inner.check()?;
        // Two at a time would free each other's leaves. The thread needs `inner`, so it cannot be waited for here.
        if self.house.now.is_writing.load(Ordering::Acquire) {
            return Err(Fault::new(
                types::Code::NotReady,
                "a checkpoint of this standby is being written, and the log has no space before that; it begins anew",
            ));
        }
        let State { kv, slots, counts, kept } = &mut inner.state;
        kv.settle();
        let (snap, at) = (kv.snapshot(), self.volume.position());
        let state = (&snap, &*slots, &*counts);
        let done = checkpoint::write(&self.volume, kv, &*self.settings.rules, state, (at, at), kept);
        give_space(&done, kv, &self.comparing.walks);
        Ok(done?)
    }
}

/// A checkpoint may have found no space since a comparison keeps a state. The next one finds it.
fn give_space(done: &Result<(), VolumeError>, kv: &Records, walks: &Walks<Records>) {
    if done.is_err() && walks.end() > 0 {
        // The comparison held leaves when that checkpoint ended.
        kv.end_checkpoint(false);
    }
}

/// Writes a checkpoint while entries go on.
fn beside(
    volume: &Volume,
    settings: &Settings,
    inner: &Mutex<Option<Inner>>,
    walks: &Walks<Records>,
    is_over: &AtomicBool,
) -> Result<(), Fault> {
    // 1. One state. The copies cost a reference per session and a few rows.
    let (kv, snap, slots, counts, mut kept, at) = {
        let mut inner = inner.lock();
        let inner = inner.as_mut().ok_or_else(gone)?;
        inner.check()?;
        let State { kv, slots, counts, kept } = &mut inner.state;
        kv.settle();
        let kept = std::mem::take(kept);
        (kv.clone(), kv.snapshot(), slots.clone(), counts.clone(), kept, volume.position())
    };
    // 2. The medium, without the lock of the entries.
    let rules: &dyn Rules = &*settings.rules;
    let state = (&snap, &slots, &counts);
    let done = checkpoint::write_unless(volume, &kv, rules, state, (at, at), &mut kept, is_over);
    give_space(&done, &kv, walks);
    if let Some(inner) = inner.lock().as_mut() {
        inner.state.kept = kept;
    }
    Ok(done?)
}
