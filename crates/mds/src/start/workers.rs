//! The background threads: flusher (and ids), keeper (checkpoints, dead sessions), tidier (memory), mover (memtables to the
//! tree), scrubber, verifier (the members of a mirror), purge.
//!
//! mds-T1: a stop ends each thread within one request to an OST, or to the mirror's other member.
//! mds-T2: no thread holds the `Mdt`, so dropping it ends them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::volume::VolumeError;
use kv::{Engine, Tidied};
use mgmt::params::Param;
use parking_lot::Mutex;
use types::{Fault, Key};

use crate::Core;

/// The threads of one MDT.
#[derive(Default)]
pub struct Workers(Mutex<Vec<JoinHandle<()>>>);

impl Workers {
    /// Starts all threads but the purge, which needs the cluster.
    pub fn start(core: &Arc<Core>) -> Workers {
        let workers = Workers::default();
        workers.spawn(core, "mdt-flush", flusher);
        workers.spawn(core, "mdt-keep", keeper);
        workers.spawn(core, "mdt-tidy", tidier);
        workers.spawn(core, "mdt-move", mover);
        workers.spawn(core, "mdt-scrub", scrubber);
        if core.pair.is_mirrored() {
            workers.spawn(core, "mdt-verify", verifier);
        }
        workers
    }

    /// Starts the purge, once the OSTs are known. A second call does nothing.
    pub fn start_purge(&self, core: &Arc<Core>) {
        if !self.0.lock().iter().any(|t| t.thread().name() == Some("mdt-purge")) {
            self.spawn(core, "mdt-purge", |core| core.purge());
        }
    }

    fn spawn(&self, core: &Arc<Core>, name: &str, run: fn(&Core)) {
        if !core.settings.background {
            return;
        }
        let core = core.clone();
        match std::thread::Builder::new().name(name.into()).spawn(move || run(&core)) {
            Ok(thread) => self.0.lock().push(thread),
            // Requests still work: a request that finds the log full writes a checkpoint, and one that finds no ids reserves them.
            Err(error) => {
                tracing::error!(name, %error, "cannot start a thread of the MDT, it will be slow; raise the limit of threads and restart it")
            }
        }
    }

    /// Refuses further requests and waits for the threads to end.
    pub fn stop(&self, core: &Core) {
        core.stopping.store(true, Ordering::Release);
        core.bells.flush.ring();
        core.bells.checkpoint.ring();
        core.bells.purge.ring();
        core.bells.verify.ring();
        core.scrubber.bell.ring();
        core.kv.wake();
        for thread in std::mem::take(&mut *self.0.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the MDT panicked: restart it, and report the lines above");
            }
        }
    }
}

impl Core {
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn commit_interval(&self) -> Duration {
        let base =
            || self.joined.load().as_ref().map_or(self.settings.commit_interval, |j| j.commit_interval);
        self.settings.params.get(Param::CommitInterval).map_or_else(base, Duration::from_millis)
    }

    /// One round of the flusher: makes acknowledged entries durable, with earlier flush marks.
    pub fn flush_round(&self) -> Result<(), Fault> {
        match self.volume.mark() {
            // A full log has no space for the mark. The checkpoint that frees some says the same and more.
            Err(VolumeError::LogFull { used, .. }) => self.checkpoint_below(used)?,
            other => other.map(|_| ()).map_err(|e| self.volume_fault(e))?,
        }
        if !self.volume.is_all_flushed() || self.flushed_seq() < self.volume.flushed_seq() {
            self.flush()?;
        }
        Ok(())
    }
}

fn flusher(core: &Core) {
    while !core.is_stopping() {
        core.bells.flush.wait(core.commit_interval());
        // An orderly stop flushes by itself, and a test that plays a dying server must not flush.
        if core.is_stopping() {
            return;
        }
        // Parked flushes first: a full log must not keep them waiting.
        let parked = if core.volume.has_parked() { core.flush().map(drop) } else { Ok(()) };
        let done = parked.and_then(|()| core.reserve_ids()).and_then(|()| core.flush_round());
        match done {
            _ if core.is_stopping() => return,
            Ok(()) => {}
            Err(fault) => {
                tracing::error!(%fault, "the MDT cannot make its log durable; look at its medium, then restart it");
                // A failed volume stays failed, so ask rarely.
                core.bells.flush.wait(Duration::from_secs(10));
            }
        }
    }
}

fn keeper(core: &Core) {
    while !core.is_stopping() {
        core.bells.checkpoint.wait(core.commit_interval());
        if core.is_stopping() {
            return;
        }
        let is_asked = core.bells.unwritten.swap(false, Ordering::Relaxed);
        if (core.log_is_half_full() || is_asked)
            && let Err(fault) = core.checkpoint_now()
        {
            tracing::error!(%fault, "the MDT's checkpoint failed; the log goes on until it is full");
            core.bells.unwritten.fetch_or(is_asked, Ordering::Relaxed);
            // The next try would fail too, and each try writes the whole table. So rings are ignored for a while.
            let until = Instant::now() + Duration::from_secs(10);
            while let Some(left) =
                until.checked_duration_since(Instant::now()).filter(|_| !core.is_stopping())
            {
                core.bells.checkpoint.wait(left);
            }
        }
        // Before the discard, which may take long on a slow medium: a dead session blocks other clients.
        core.reap_sessions();
        if let Err(error) = core.kv.discard() {
            tracing::warn!(%error, "space that is free on the MDT was not given back to its medium; it is free all the same, and this is tried again");
        }
        core.trim_changes_so_far();
        core.sweep_locks();
        core.sweep_check();
        core.sweep_copy();
        core.sweep_giving();
    }
}

/// Longest wait for leaves to evict.
const TIDIES_WITHIN: Duration = Duration::from_secs(10);

fn tidier(core: &Core) {
    core.warm_up();
    while !core.is_stopping() {
        core.kv.until_untidy(TIDIES_WITHIN);
        core.tidy();
    }
}

fn verifier(core: &Core) {
    let mut pause = Duration::ZERO;
    while !core.is_stopping() {
        core.bells.verify.wait(pause);
        if !core.is_stopping() {
            pause = core.verify_round();
        }
    }
}

fn scrubber(core: &Core) {
    let mut pause = Duration::ZERO;
    while !core.is_stopping() {
        core.scrubber.bell.wait(pause);
        if !core.is_stopping() {
            pause = core.scrub_round();
        }
    }
}

/// Longest wait for a full memtable.
const MOVES_WITHIN: Duration = Duration::from_secs(10);

fn mover(core: &Core) {
    while !core.is_stopping() {
        core.kv.move_changes(MOVES_WITHIN);
    }
}

impl Core {
    /// Evicts leaves until memory is within its bound.
    pub fn tidy(&self) {
        while !self.is_stopping() {
            // Leadership per step, so that requests wait for one step at most.
            let tidied = {
                let _seat = self.executor.lead();
                self.kv.tidy()
            };
            match tidied {
                Tidied::Done => return,
                Tidied::More => {}
                Tidied::Unwritten => {
                    self.bells.unwritten.store(true, Ordering::Relaxed);
                    self.bells.checkpoint.ring();
                }
            }
        }
    }

    /// After a start: loads leaves until memory is full, in order and so at the medium's best speed, before requests wait for them.
    fn warm_up(&self) {
        let mut from = Key::default();
        while !self.is_stopping() {
            match self.kv.warm(&mut from) {
                Ok(true) => self.tidy(),
                Ok(false) => return,
                // The request that needs the leaf reports the error.
                Err(_) => return,
            }
        }
    }
}
