//! The background threads: the flusher, the checkpointer, the destager, and the scrub.
//!
//! oss-T1: a stop ends all of them at once. oss-T2: no thread holds the `Ost`, so dropping it ends them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mgmt::params::Param;
use parking_lot::{Condvar, Mutex};
use types::Fault;

use crate::Core;

/// An error will not go away at once: try rarely, and do not fill the log with lines.
const AFTER_ERROR: Duration = Duration::from_secs(10);

/// Wakes the threads when the target stops.
#[derive(Default)]
pub struct Bell {
    /// How often it was rung.
    rung: Mutex<u64>,
    wake: Condvar,
}

impl Bell {
    /// Wakes the threads: each looks at once for work.
    pub fn ring(&self) {
        *self.rung.lock() += 1;
        self.wake.notify_all();
    }

    pub fn rung(&self) -> u64 {
        *self.rung.lock()
    }

    /// Waits, unless the bell was rung since `seen`.
    fn wait(&self, seen: u64, pause: Duration) {
        let mut rung = self.rung.lock();
        if *rung == seen {
            self.wake.wait_for(&mut rung, pause);
        }
    }
}

/// The threads of one OST.
#[derive(Default)]
pub struct Workers(Mutex<Vec<JoinHandle<()>>>);

impl Workers {
    pub fn start(core: &Arc<Core>) -> Workers {
        let workers = Workers::default();
        if core.settings.background {
            let flush = |core: &Core| core.flush_round().map(|()| core.commit_interval());
            let checkpoint = |core: &Core| core.checkpoint_round().map(|()| core.commit_interval());
            workers.spawn(core, "ost-flush", move |core| run(core, "flush", flush));
            workers.spawn(core, "ost-checkpoint", move |core| run(core, "checkpoint", checkpoint));
            workers.spawn(core, "ost-destage", |core| run(core, "destage", Core::destage_round));
        }
        if core.settings.background && core.settings.scrub {
            workers.spawn(core, "ost-scrub", |core| run(core, "scrub", Core::scrub_round));
            workers.spawn(core, "ost-verify", |core| run(core, "comparison", Core::verify_round));
        }
        workers
    }

    fn spawn(&self, core: &Arc<Core>, name: &str, run: impl Fn(&Core) + Send + 'static) {
        let core = core.clone();
        match std::thread::Builder::new().name(name.into()).spawn(move || run(&core)) {
            Ok(thread) => self.0.lock().push(thread),
            // Requests still work: Flush flushes, and a request that finds the log full makes a checkpoint.
            Err(error) => {
                tracing::error!(name, %error, "cannot start a thread of the OST, it will be slow; raise the limit of threads and restart it")
            }
        }
    }

    /// Waits for the threads to end; `stopping` is set already.
    pub fn stop(&self, core: &Core) {
        core.bell.ring();
        for thread in std::mem::take(&mut *self.0.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the OST panicked: restart it, and report the lines above");
            }
        }
    }
}

/// The loop of one thread: rounds until the target stops, each after the pause that the round before returned.
fn run(core: &Core, what: &str, round: impl Fn(&Core) -> Result<Duration, Fault>) {
    let mut pause = core.commit_interval();
    let mut seen = core.bell.rung();
    loop {
        // A stop rings after it set `stopping`. A ring during a round is not missed.
        if !core.stopping.load(Ordering::Acquire) {
            core.bell.wait(seen, pause);
        }
        seen = core.bell.rung();
        if core.stopping.load(Ordering::Acquire) {
            return;
        }
        pause = match round(core) {
            Ok(pause) => pause,
            Err(fault) => {
                tracing::error!(what, %fault, "background work of the OST failed and is tried again; if this goes on, look at its medium and `stria status`");
                AFTER_ERROR
            }
        };
    }
}

impl Core {
    fn commit_interval(&self) -> Duration {
        let base =
            || self.joined.read().as_ref().map_or(self.settings.commit_interval, |j| j.commit_interval);
        self.settings.params.get(Param::CommitInterval).map_or_else(base, Duration::from_millis)
    }

    /// Makes acknowledged requests durable. The mark lets the next round's flush seal it. Does nothing if nothing was written.
    pub fn flush_round(&self) -> Result<(), Fault> {
        if self.store.has_parked() {
            self.store.flush()?;
        }
        if self.store.is_dirty() {
            let begin = Instant::now();
            self.store.flush()?;
            self.pace.flushed(begin.elapsed(), begin);
            self.store.mark()?;
        }
        Ok(())
    }

    /// Destages old records of the small-write log to their final places, and at once while that log is filling. Returns no pause, since
    /// it waits inside.
    pub fn destage_round(&self) -> Result<Duration, Fault> {
        let until = Instant::now() + self.commit_interval();
        while !self.stopping.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            // Bounds the time that a stop must wait.
            if self.store.wait_pressed(left.min(Duration::from_millis(100))) {
                self.store.relieve()?;
            }
            if left.is_zero() {
                break;
            }
        }
        self.store.destage()?;
        Ok(Duration::ZERO)
    }

    /// Makes a checkpoint if it is due, discards freed space, and takes back expired grants.
    pub fn checkpoint_round(&self) -> Result<(), Fault> {
        if self.store.is_checkpoint_due() {
            self.store.checkpoint()?;
        }
        self.store.lapse_grants((self.settings.clock)());
        Ok(self.store.discard()?)
    }
}
