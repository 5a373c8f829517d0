//! Calls that the kernel may not come back from: flushes, discards, reservations, reads of what is no data page, and writes through the page
//! cache while one of these takes long.
//!
//! A1: a call is made by a thread that can be left behind. Its caller gets an error when the device has got nothing done for the deadline.
//! A2: while a call is left behind every other fails at once: it takes no more threads, and a late write cannot meet a new one to the same
//!     place.
//! A3: what is left behind holds nothing of its caller's, but the descriptors, and with them the claim on the medium.
//! A4: where no thread can be started the caller makes the call himself, without a deadline: an error would fail the volume.
//!
//! A write into the page cache waits for the device only when the cache is full of what the device does not take, and to give each to
//! another thread costs more than the write. So writes go straight as long as no flush or discard takes long: a volume flushes
//! every few seconds. What is read here is rare (superblocks, the log at the start, checkpoints, leaves of an index), and comes straight if the
//! cache has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many times the patience for a read or write passes without progress before the device is given up: what a flush has to
/// write is much more than one request, and who gives the device up stops for good.
pub const PATIENCES: u32 = 4;
/// So many times longer is waited where nobody counts what the device completes (btrfs, ZFS, overlayfs): a flush of much may take minutes.
const BLIND_FACTOR: u32 = 10;
/// A flush or discard that takes longer is no sign of good health.
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

/// Gives back what was read; of other calls nothing.
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
    /// Begins of the calls under way, by `born`, and the first of them.
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
    /// Nothing was done for so long.
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

    /// Is some call under way for so long that others should be made here too? Costs two loads if none is under way.
    pub fn is_slow(&self) -> bool {
        let begun = self.first_begun.load(Ordering::Acquire);
        let is_long = || self.now().saturating_sub(begun) >= self.long.as_nanos() as u64;
        self.left_count.load(Ordering::Acquire) > 0 || (begun != NONE && is_long())
    }

    /// A2.
    pub fn check_not_hung(&self) -> io::Result<()> {
        if self.left_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut behind = self.left_behind.lock();
        for helper in std::mem::take(&mut *behind) {
            match helper.from.try_recv() {
                Err(TryRecvError::Empty) => behind.push(helper),
                Ok(_) => self.idle.lock().push(helper),
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
        let begun = self.begin();
        let result = match helper {
            Ok(helper) => self.run_by(helper, call),
            // A4
            Err(_) => (self.carry)(&call),
        };
        self.end(begun);
        result
    }

    fn run_by(&self, helper: Helper, call: Call) -> io::Result<Vec<u8>> {
        let is_read = matches!(call, Call::Read { .. });
        helper.to.send(call).map_err(|_| gone())?;
        match self.wait(&helper, is_read)? {
            Waited::Done(result) => {
                self.idle.lock().push(helper);
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

    fn wait(&self, helper: &Helper, is_read: bool) -> io::Result<Waited> {
        // Asking reads a file of the kernel's, so who is not kept waiting does not.
        let (mut quiet, mut seen) = (0, None);
        loop {
            match helper.from.recv_timeout(self.patience) {
                Ok(result) => return Ok(Waited::Done(result)),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = (self.progress)();
            // What gets on does not hang.
            quiet = if now.is_some() && seen.is_some() && now != seen { 0 } else { quiet + 1 };
            seen = now;
            // A read is of a few MiB at most, wherever it comes from.
            let is_blind = now.is_none() && !is_read;
            let quiet_max = if is_blind { PATIENCES * BLIND_FACTOR } else { PATIENCES };
            if quiet >= quiet_max {
                return Ok(Waited::Overdue(self.patience * quiet));
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
        if let Some(i) = begun.iter().position(|b| *b == at) {
            begun.swap_remove(i);
        }
        self.first_begun.store(begun.iter().copied().min().unwrap_or(NONE), Ordering::Release);
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

    /// For one whose call is done: when this returns its thread has let go of the medium.
    fn end(self) {
        drop(self.to);
        // A panic in a call was told to its caller.
        let _ = self.thread.join();
    }
}

/// A3: when the disk is closed its threads have let go of it, or the next who opens it would be refused; but for those left behind.
impl Drop for Aside {
    fn drop(&mut self) {
        // Who came back meanwhile is idle.
        let _ = self.check_not_hung();
        self.idle.get_mut().drain(..).for_each(Helper::end);
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread of a disk is gone")
}

#[cfg(test)]
mod tests;
