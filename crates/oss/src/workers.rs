//! The background threads: the flusher and the checkpointer.
//!
//! T1: a stop ends both at once. T2: neither holds the `Ost`, so dropping it ends them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use types::Fault;

use crate::Core;

/// After an error the state will not be better at once: ask rarely, and do not fill the log with lines.
const AFTER_ERROR: Duration = Duration::from_secs(10);

/// Wakes the threads when the target stops.
#[derive(Default)]
pub struct Bell {
    lock: Mutex<()>,
    wake: Condvar,
}

/// The threads of one OST.
#[derive(Default)]
pub struct Workers(Mutex<Vec<JoinHandle<()>>>);

impl Workers {
    pub fn start(core: &Arc<Core>) -> Workers {
        let workers = Workers::default();
        if core.settings.background {
            workers.spawn(core, "ost-flush", |core| run(core, "flush", Core::flush_round));
            workers.spawn(core, "ost-checkpoint", |core| run(core, "checkpoint", Core::checkpoint_round));
        }
        workers
    }

    fn spawn(&self, core: &Arc<Core>, name: &str, run: fn(&Core)) {
        let core = core.clone();
        match std::thread::Builder::new().name(name.into()).spawn(move || run(&core)) {
            Ok(thread) => self.0.lock().push(thread),
            // Requests still work: Flush flushes, and who finds the log full checkpoints it.
            Err(error) => {
                tracing::error!(name, %error, "cannot start a thread of the OST, it will be slow; raise the limit of threads and restart it")
            }
        }
    }

    /// Waits for the threads to end; `stopping` is set already.
    pub fn stop(&self, core: &Core) {
        {
            // Under the lock no thread is between its look at `stopping` and its wait.
            let _lock = core.bell.lock.lock();
            core.bell.wake.notify_all();
        }
        for thread in std::mem::take(&mut *self.0.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the OST panicked: restart it, and report the lines above");
            }
        }
    }
}

/// One thread's life: a round each commit interval until the target stops.
fn run(core: &Core, what: &str, round: fn(&Core) -> Result<(), Fault>) {
    let mut pause = core.commit_interval();
    loop {
        {
            let mut lock = core.bell.lock.lock();
            if !core.stopping.load(Ordering::Acquire) {
                core.bell.wake.wait_for(&mut lock, pause);
            }
        }
        if core.stopping.load(Ordering::Acquire) {
            return;
        }
        pause = match round(core) {
            Ok(()) => core.commit_interval(),
            Err(fault) => {
                tracing::error!(what, %fault, "background work of the OST failed and is tried again; if this goes on, look at its medium and `stria status`");
                AFTER_ERROR
            }
        };
    }
}

impl Core {
    fn commit_interval(&self) -> Duration {
        self.joined.read().as_ref().map_or(self.settings.commit_interval, |j| j.commit_interval)
    }

    /// What was acknowledged becomes durable; the mark lets the next round's flush seal it. At rest it does nothing.
    pub fn flush_round(&self) -> Result<(), Fault> {
        if self.store.is_dirty() {
            self.store.flush()?;
            self.store.mark()?;
        }
        Ok(())
    }

    /// A checkpoint if it is due, and freed space back to the medium.
    pub fn checkpoint_round(&self) -> Result<(), Fault> {
        if self.store.is_checkpoint_due() {
            self.store.checkpoint()?;
        }
        Ok(self.store.discard()?)
    }
}
