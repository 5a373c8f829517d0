//! The gate limits how many serving threads wait for requests at once: one per processor, unless requests block.
//!
//! The kernel wakes the thread that has waited longest. With many waiting threads, each request goes to a cold thread that must first be
//! scheduled, while the thread that just finished goes to sleep. On two processors that halves the rate of lookups and creates. With one
//! waiting thread per processor, a thread that finishes finds the next request already there. So surplus threads park after their reply,
//! and the gate releases one whenever a request of a blocking kind begins.
//! fuse-T1. A thread that begins a request of a blocking kind is replaced at once if a thread is parked: such requests run as deep as there
//! are threads.
//! fuse-T2. Blocking kinds are found by measurement (time off the processor), never assumed: memory, disk and network differ.
//! fuse-T3. If all waiting threads hang in requests that were thought quick, `tick` releases another each time: no request waits forever.
//! fuse-T4. After `close` no thread parks.

use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fusedev::opcode;
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

/// A request that was off the processor for longer than this has blocked. It is longer than a wait for a lock and shorter than the quickest
/// disk.
const BLOCKED: Duration = Duration::from_micros(20);
/// One request of a kind is measured out of this many: the two extra system calls would slow down lookups. For a kind that has settled as
/// quick (score 0) it is one out of `SAMPLE_QUICK_EVERY`.
const SAMPLE_EVERY: u32 = 8;
const SAMPLE_QUICK_EVERY: u32 = 64;
/// A measured request moves the score of its kind by one, between 0 and this. A kind counts as blocking from the middle on. So single
/// outliers (a preempted thread) change nothing.
const SCORE_MAX: u8 = 16;
const SCORE_BLOCKS: u8 = 8;

/// Kinds of requests with similar cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Lookups, attributes, listings: reads of the name space.
    Look,
    /// Changes of names and attributes; locks.
    Change,
    Open,
    /// Close and release.
    Close,
    Read,
    Write,
    Sync,
}

impl Class {
    const COUNT: usize = 7;

    /// The kind of a request of the kernel.
    pub fn of(opcode: u32) -> Class {
        match opcode {
            opcode::OPEN | opcode::OPENDIR => Class::Open,
            opcode::FLUSH | opcode::RELEASE | opcode::RELEASEDIR => Class::Close,
            opcode::READ => Class::Read,
            opcode::WRITE | opcode::FALLOCATE | opcode::COPY_FILE_RANGE => Class::Write,
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Class::Sync,
            opcode::SETATTR
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::SYMLINK
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::SETLK
            | opcode::SETLKW
            | opcode::INTERRUPT => Class::Change,
            _ => Class::Look,
        }
    }
}

#[derive(Default)]
struct Lot {
    parked: usize,
    /// Parked threads that were released and have not noticed it yet.
    let_out: usize,
    closed: bool,
}

pub struct Gate {
    /// How many threads shall wait for requests.
    wanted: isize,
    /// Threads that wait for requests, or are about to.
    waiting: AtomicIsize,
    served: AtomicU64,
    scores: [AtomicU8; Class::COUNT],
    lot: Mutex<Lot>,
    out: Condvar,
}

thread_local! {
    static TURN: Cell<u32> = const { Cell::new(0) };
}

impl Gate {
    /// For `threads` serving threads on `processors`.
    pub fn new(threads: usize, processors: usize) -> Gate {
        Gate {
            // A single one that hangs would stop all requests until the next tick.
            wanted: processors.max(2) as isize,
            waiting: AtomicIsize::new(threads as isize),
            served: AtomicU64::new(0),
            scores: [const { AtomicU8::new(SCORE_BLOCKS) }; Class::COUNT],
            lot: Mutex::default(),
            out: Condvar::new(),
        }
    }

    /// Runs `work`, which answers one request, on a thread that has waited for it. Returns when the thread shall wait again.
    pub fn serve(&self, class: Class, work: impl FnOnce()) {
        let waiting = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        if waiting < self.wanted && self.blocks(class) {
            self.let_one_out();
        }
        let every = match self.scores[class as usize].load(Ordering::Relaxed) {
            0 => SAMPLE_QUICK_EVERY,
            _ => SAMPLE_EVERY,
        };
        match TURN.replace(TURN.get().wrapping_add(1)).is_multiple_of(every) {
            true => self.score(class, off_processor(work)),
            false => work(),
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= self.wanted {
            self.park();
        }
    }

    fn blocks(&self, class: Class) -> bool {
        self.scores[class as usize].load(Ordering::Relaxed) >= SCORE_BLOCKS
    }

    fn score(&self, class: Class, off: Duration) {
        let score = &self.scores[class as usize];
        let old = score.load(Ordering::Relaxed);
        // Two threads may overwrite each other's step; the score is only an estimate.
        score.store(
            if off > BLOCKED { (old + 1).min(SCORE_MAX) } else { old.saturating_sub(1) },
            Ordering::Relaxed,
        );
    }

    /// Here and in `park`, the number of waiting threads is checked and changed under one lock. A thread that parks at the same moment is
    /// seen here, or itself sees that it is needed.
    fn let_one_out(&self) {
        let mut lot = self.lot.lock();
        if lot.parked > lot.let_out && self.waiting.load(Ordering::SeqCst) < self.wanted {
            lot.let_out += 1;
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.out.notify_one();
        }
    }

    fn park(&self) {
        let mut lot = self.lot.lock();
        if lot.closed || self.waiting.load(Ordering::SeqCst) <= self.wanted {
            return;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        lot.parked += 1;
        while lot.let_out == 0 && !lot.closed {
            self.out.wait(&mut lot);
        }
        lot.let_out = lot.let_out.saturating_sub(1);
        lot.parked -= 1;
    }

    /// fuse-T3: to be called periodically, with the result of the last call.
    pub fn tick(&self, served_before: u64) -> u64 {
        let served = self.served.load(Ordering::Relaxed);
        if served == served_before && self.waiting.load(Ordering::SeqCst) <= 0 {
            self.let_one_out();
        }
        served
    }

    /// fuse-T4: the mount is gone; every thread shall see that itself.
    pub fn close(&self) {
        self.lot.lock().closed = true;
        self.out.notify_all();
    }
}

/// How long `work` took beyond the processor time that it used.
fn off_processor(work: impl FnOnce()) -> Duration {
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let (begin, used_before) = (Instant::now(), used());
    work();
    begin.elapsed().saturating_sub(used().saturating_sub(used_before))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Barrier};
    use std::thread::JoinHandle;

    use super::*;

    type Job = (Class, Box<dyn FnOnce() + Send>);

    /// Threads that wait for jobs, as serving threads wait for requests.
    struct Rig {
        gate: Arc<Gate>,
        jobs: Sender<Job>,
        threads: Vec<JoinHandle<()>>,
    }

    const THREADS: usize = 6;

    fn rig() -> Rig {
        let gate = Arc::new(Gate::new(THREADS, 2));
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let serve = |gate: Arc<Gate>, queue: Arc<Mutex<Receiver<Job>>>| {
            move || {
                loop {
                    let Ok((class, work)) = queue.lock().recv() else { return };
                    gate.serve(class, work);
                }
            }
        };
        let threads = (0..THREADS).map(|_| std::thread::spawn(serve(gate.clone(), queue.clone()))).collect();
        Rig { gate, jobs, threads }
    }

    impl Rig {
        /// Sends quick requests until only the wanted number of threads waits.
        fn make_quiet(&self, class: Class) {
            while self.gate.lot.lock().parked < THREADS - 2 || self.gate.blocks(class) {
                let (done, wait) = channel();
                self.jobs.send((class, Box::new(move || done.send(()).unwrap()))).unwrap();
                wait.recv().unwrap();
            }
        }

        fn send_meeting(&self, class: Class) -> Arc<AtomicBool> {
            let (barrier, met) = (Arc::new(Barrier::new(THREADS)), Arc::new(AtomicBool::new(false)));
            for _ in 0..THREADS {
                let (barrier, met) = (barrier.clone(), met.clone());
                let meet = move || {
                    barrier.wait();
                    met.store(true, Ordering::SeqCst);
                };
                self.jobs.send((class, Box::new(meet))).unwrap();
            }
            met
        }

        fn end(self) {
            self.gate.close();
            drop(self.jobs);
            self.threads.into_iter().for_each(|t| t.join().unwrap());
        }
    }

    #[test]
    fn blocking_requests_run_as_deep_as_there_are_threads() {
        let rig = rig();
        rig.make_quiet(Class::Look);
        // Reads have not been measured yet, so they count as blocking. All six must run at once to pass the barrier.
        let met = rig.send_meeting(Class::Read);
        while !met.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        rig.end();
    }

    #[test]
    fn requests_that_hang_against_expectation_do_not_stop_the_others() {
        let rig = rig();
        rig.make_quiet(Class::Look);
        let met = rig.send_meeting(Class::Look);
        let mut served = 0;
        while !met.load(Ordering::SeqCst) {
            served = rig.gate.tick(served);
            std::thread::yield_now();
        }
        rig.end();
    }

    #[test]
    fn a_kind_that_sleeps_is_found_out_and_one_outlier_is_not_held_against_it() {
        let gate = Gate::new(2, 2);
        (0..20).for_each(|_| gate.score(Class::Look, Duration::ZERO));
        assert!(!gate.blocks(Class::Look));
        gate.score(Class::Look, Duration::from_millis(5));
        assert!(!gate.blocks(Class::Look));
        (0..20).for_each(|_| gate.score(Class::Look, Duration::from_millis(5)));
        assert!(gate.blocks(Class::Look));
        assert!(gate.blocks(Class::Sync));
    }
}
