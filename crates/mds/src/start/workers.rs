//! The background threads: flusher (and ids), keeper (checkpoints, dead sessions), tidier (memory), mover (memtable to tree), purge.
//!
//! mds-T1: a stop ends each thread within one request to an OST.
//! mds-T2: no thread holds the `Mdt`, so dropping it ends them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::volume::VolumeError;
use kv::{Engine, Tidied};
use parking_lot::Mutex;
use types::{Fault, Key};

use crate::Core;

/// The threads of one MDT.
#[derive(Default)]
pub struct Workers(Mutex<Vec<JoinHandle<()>>>);

impl Workers {
    /// Starts the threads that need no cluster: all but the purge.
    pub fn start(core: &Arc<Core>) -> Workers {
        let workers = Workers::default();
        workers.spawn(core, "mdt-flush", flusher);
        workers.spawn(core, "mdt-keep", keeper);
        workers.spawn(core, "mdt-tidy", tidier);
        workers.spawn(core, "mdt-move", mover);
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
            // Requests still work: a request that finds the log full or no ids writes a checkpoint or reserves ids itself.
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
        self.joined.load().as_ref().map_or(self.settings.commit_interval, |j| j.commit_interval)
    }

    /// One round of the flusher: acknowledged requests become durable, and earlier flush marks too.
    pub fn flush_round(&self) -> Result<(), Fault> {
        match self.volume.mark() {
            // A full log has no space for the mark. The checkpoint that trims it serves as one.
            Err(VolumeError::LogFull { used, .. }) => self.checkpoint_below(used)?,
            other => other.map(|_| ()).map_err(|e| self.volume_fault(e))?,
        }
        if self.volume.flushed_seq() < self.volume.last_seq() {
            self.flush()?;
        }
        Ok(())
    }
}

fn flusher(core: &Core) {
    while !core.is_stopping() {
        core.bells.flush.wait(core.commit_interval());
        // An orderly stop flushes by itself, and a test of a dying server must not flush.
        if core.is_stopping() {
            return;
        }
        let done = core.reserve_ids().and_then(|()| core.flush_round());
        match done {
            _ if core.is_stopping() => return,
            Ok(()) => {}
            Err(fault) => {
                tracing::error!(%fault, "the MDT cannot make its log durable; look at its medium, then restart it");
                // A failed volume stays failed: ask rarely.
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
            // Each attempt writes the whole table, so wait 10 s, however often the bell rings.
            let until = Instant::now() + Duration::from_secs(10);
            while let Some(left) =
                until.checked_duration_since(Instant::now()).filter(|_| !core.is_stopping())
            {
                core.bells.checkpoint.wait(left);
            }
        }
        if let Err(error) = core.kv.discard() {
            tracing::warn!(%error, "space that is free on the MDT was not given back to its medium; it is free all the same, and this is tried again");
        }
        core.trim_changes_so_far();
        core.reap_sessions();
        core.sweep_locks();
        core.sweep_check();
        core.sweep_copy();
    }
}

/// Longest wait of the tidier.
const TIDIES_WITHIN: Duration = Duration::from_secs(10);

fn tidier(core: &Core) {
    core.warm_up();
    while !core.is_stopping() {
        core.kv.until_untidy(TIDIES_WITHIN);
        core.tidy();
    }
}

/// Longest wait of the mover.
const MOVES_WITHIN: Duration = Duration::from_secs(10);

fn mover(core: &Core) {
    while !core.is_stopping() {
        core.kv.move_changes(MOVES_WITHIN);
    }
}

impl Core {
    /// Keeps memory within its bound.
    pub fn tidy(&self) {
        while !self.is_stopping() {
            // Leads for one step only, so that a request waits for one step at most.
            let tidied = {
                let _seat = self.role.hold();
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

    /// Loads records into memory after a start, as many as fit, in order and so at the medium's best speed.
    fn warm_up(&self) {
        let mut from = Key::default();
        while !self.is_stopping() {
            match self.kv.warm(&mut from) {
                Ok(true) => self.tidy(),
                Ok(false) => return,
                // A request that needs the record gets the error.
                Err(_) => return,
            }
        }
    }
}
