//! Calls that may hang in the kernel: flushes, discards, reservations, reads other than of data pages; and writes through the page
//! cache while one of these takes long.
//!
//! disk-A1: a helper thread makes the call, and can be left behind. Its caller gets an error when the device has completed nothing for the
//!     deadline.
//! disk-A2: while a call is left behind, every other call fails at once: it uses no more threads, and a late write cannot meet a new one to
//!     the same place.
//! disk-A3: a call that is left behind holds nothing of its caller's except the descriptors, and with them the claim on the medium.
//! disk-A4: where no thread can be started, the caller makes the call itself, without a deadline: an error would fail the volume.
//!
//! A write into the page cache waits for the device only when the cache is full of dirty pages, and handing each write to another thread
//! costs more than the write. So the caller makes writes itself as long as no flush or discard takes long: a volume flushes every few
//! seconds. Reads here are rare (superblocks, the log at the start, checkpoints, leaves of an index), and need no helper if the page cache
//! has the bytes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many times the patience of a read or write may pass without progress before the device is abandoned. A flush has
/// to write much more than one request, and an abandoned device stays so.
pub const PATIENCES: u32 = 4;
/// Waits are this many times longer where no counter shows what the device completes (btrfs, ZFS, overlayfs): a large flush may take
/// minutes, and so may a read that has to wait behind it.
const BLIND_FACTOR: u32 = 10;
/// Threads kept for the next calls: a flush, a discard and a few readers at once. Starting one more costs some 20 µs, less than the
/// device request; a burst of readers must not leave its threads for good.
const IDLE_MAX: usize = 8;
/// A flush or discard that takes longer suggests that the device has a problem.
const LONG: Duration = Duration::from_millis(100);
/// No call is under way.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
pub enum Call {
    Flush,
    Discard { offset: u64, len: u64 },
    Reserve { offset: u64, len: u64 },
    Read { offset: u64, len: usize },
    Write { offset: u64, bytes: Vec<u8> },
}

/// Makes a call. Returns the bytes of a read; nothing for other calls.
pub type Carry = dyn Fn(&Call) -> io::Result<Vec<u8>> + Send + Sync;
/// A number that changes when the device completes something, if that can be known.
pub type Progress = dyn Fn() -> Option<u64> + Send + Sync;

pub struct Aside {
    carry: Arc<Carry>,
    start: StartHelper,
    progress: Box<Progress>,
    patience: Duration,
    long: Duration,
    idle: Mutex<Vec<Helper>>,
    left_behind: Mutex<Vec<Helper>>,
    left_count: AtomicUsize,
    /// Begin times of the flushes, discards and writes under way, since `born`, and the earliest of them.
    begun: Mutex<Vec<u64>>,
    first_begun: AtomicU64,
    born: Instant,
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aside").field("patience", &self.patience).finish_non_exhaustive()
    }
}

type StartHelper = fn(Arc<Carry>) -> io::Result<Helper>;

/// A thread that makes one call at a time.
struct Helper {
    to: SyncSender<Call>,
    from: Receiver<io::Result<Vec<u8>>>,
    thread: JoinHandle<()>,
}

enum Waited {
    Done(io::Result<Vec<u8>>),
    /// The device completed nothing for this time.
    Overdue(Duration),
}

impl Aside {
    pub fn new(carry: Arc<Carry>, progress: Box<Progress>, patience: Duration) -> Aside {
        let (idle, left_behind, left_count, begun) = Default::default();
        let (long, first_begun, born) = (LONG, AtomicU64::new(NONE), Instant::now());
        let start = Helper::start;
        Aside {
            carry,
            start,
            progress,
            patience,
            long,
            idle,
            left_behind,
            left_count,
            begun,
            first_begun,
            born,
        }
    }

    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
    #[cfg(test)]
    pub fn set_long(&mut self, long: Duration) {
        self.long = long;
    }

    /// Has a flush, discard or write been under way for so long that other writes should use a helper too? Costs two loads if none is under
    /// way. Reads and reservations may take long on a busy disk, and keep no write from the page cache.
    pub fn is_slow(&self) -> bool {
        let begun = self.first_begun.load(Ordering::Acquire);
        let is_long = || self.now().saturating_sub(begun) >= self.long.as_nanos() as u64;
        self.left_count.load(Ordering::Acquire) > 0 || (begun != NONE && is_long())
    }

    /// disk-A2: fails while a call is left behind.
    pub fn check_not_hung(&self) -> io::Result<()> {
        if self.left_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut behind = self.left_behind.lock();
        for helper in std::mem::take(&mut *behind) {
            match helper.from.try_recv() {
                Err(TryRecvError::Empty) => behind.push(helper),
                Ok(_) => self.keep(helper),
                Err(TryRecvError::Disconnected) => helper.end(),
            }
        }
        self.left_count.store(behind.len(), Ordering::Release);
        match behind.len() {
            0 => Ok(()),
            count => {
                let why = format!("the device hangs, calls left behind: {count}");
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    pub fn run(&self, call: Call) -> io::Result<Vec<u8>> {
        self.check_not_hung()?;
        let idle = self.idle.lock().pop();
        let helper = idle.map_or_else(|| (self.start)(self.carry.clone()), Ok);
        let begun = (!matches!(call, Call::Read { .. } | Call::Reserve { .. })).then(|| self.begin());
        let result = match helper {
            Ok(helper) => self.run_by(helper, call),
            // disk-A4
            Err(_) => (self.carry)(&call),
        };
        begun.inspect(|at| self.end(*at));
        result
    }

    /// Keeps the helper for the next call, unless enough are kept.
    fn keep(&self, helper: Helper) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            return idle.push(helper);
        }
        drop(idle);
        helper.end();
    }

    fn run_by(&self, helper: Helper, call: Call) -> io::Result<Vec<u8>> {
        helper.to.send(call).map_err(|_| gone())?;
        match self.wait(&helper)? {
            Waited::Done(result) => {
                self.keep(helper);
                result
            }
            Waited::Overdue(time) => {
                let mut behind = self.left_behind.lock();
                behind.push(helper);
                self.left_count.store(behind.len(), Ordering::Release);
                let why = format!("the device hangs: nothing was done for {time:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    fn wait(&self, helper: &Helper) -> io::Result<Waited> {
        // The progress counter is a file of the kernel's, so it is read only after a wait.
        let mut watch = Watch::default();
        loop {
            match helper.from.recv_timeout(self.patience) {
                Ok(result) => return Ok(Waited::Done(result)),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if watch.look((self.progress)()) {
                return Ok(Waited::Overdue(self.patience * watch.quiet));
            }
        }
    }

    fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }
    fn begin(&self) -> u64 {
        let now = self.now();
        let mut begun = self.begun.lock();
        begun.push(now);
        self.first_begun.fetch_min(now, Ordering::AcqRel);
        now
    }
    fn end(&self, at: u64) {
        let mut begun = self.begun.lock();
        let i = begun.iter().position(|b| *b == at).expect("a call that ends has begun");
        begun.swap_remove(i);
        self.first_begun.store(begun.iter().copied().min().unwrap_or(NONE), Ordering::Release);
    }
}

/// Decides whether a device makes progress while a call is under way, by checks one patience apart.
#[derive(Debug, Default)]
pub struct Watch {
    /// Consecutive checks without progress.
    quiet: u32,
    seen: Option<u64>,
}

impl Watch {
    pub fn from(now: Option<u64>) -> Watch {
        Watch { quiet: 0, seen: now }
    }

    /// True if the device must be abandoned. One look at the clock is not enough, since time also passes while this process is frozen.
    pub fn look(&mut self, now: Option<u64>) -> bool {
        // A device that makes progress does not hang.
        let gets_on = now.is_some() && self.seen.is_some() && now != self.seen;
        self.quiet = if gets_on { 0 } else { self.quiet + 1 };
        self.seen = now;
        self.quiet >= if now.is_none() { PATIENCES * BLIND_FACTOR } else { PATIENCES }
    }
}

impl Helper {
    fn start(carry: Arc<Carry>) -> io::Result<Helper> {
        let (to, inbox) = sync_channel::<Call>(1);
        let (outbox, from) = sync_channel(1);
        let thread = std::thread::Builder::new().name("disk-call".into()).spawn(move || {
            while let Ok(call) = inbox.recv() {
                if outbox.send(carry(&call)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Helper { to, from, thread })
    }

    /// Ends an idle helper: when this returns, its thread has released the medium.
    fn end(self) {
        drop(self.to);
        // A panic in a call was reported to its caller.
        let _ = self.thread.join();
    }
}

/// disk-A3: after the disk is closed, its threads have released it, except those left behind. Otherwise the next opener would be refused.
impl Drop for Aside {
    fn drop(&mut self) {
        // Helpers whose call has returned meanwhile become idle.
        let _ = self.check_not_hung();
        self.idle.get_mut().drain(..).for_each(Helper::end);
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread of a disk is gone")
}

#[cfg(test)]
mod tests;
