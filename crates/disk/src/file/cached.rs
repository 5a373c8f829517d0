//! Reads of data pages through the page cache, on the caller's thread: handing a cached read to another thread costs more than the read.
//! The kernel may therefore block such a caller for ever; but other callers notice it.
//!
//! disk-W1: a read takes a seat with its begin time, and leaves it when it is done: two atomic writes, no lock.
//! disk-W2: while a read has been under way for longer than the limit, every other read fails at once, with a temporary error. A device
//!     that hangs thus blocks the threads that had asked it before, and no more.
//! disk-W3: if all seats are taken, a read is made without one. The reads with seats show whether the device hangs.
//! disk-W4: abandoning the medium is final, so elapsed time alone is not enough. A process that was frozen (SIGSTOP, a paused machine)
//!     finds all its reads old, and a disk under many requests may take long for one. The same read must be under way at several checks,
//!     each one patience after the one before, and the device must have completed nothing between them, by the counters of `aside.rs`.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::aside::{PATIENCES, Progress, Watch};

/// More than the threads that read from one disk at once on large machines; scanning them takes less than a microsecond.
const SEATS: usize = 64;
/// The seat is free.
const FREE: u64 = 0;
/// Within the limit, new readers check so often whether others hang.
const LOOKS: u32 = 16;

pub type ReadCall = dyn Fn(&mut [u8], u64) -> io::Result<()> + Send + Sync;

pub struct Cached {
    read: Box<ReadCall>,
    progress: Box<Progress>,
    patience: Duration,
    born: Instant,
    seats: [Seat; SEATS],
    /// Time of the last check, and the number of overdue reads then.
    looked: AtomicU64,
    overdue: AtomicUsize,
    /// disk-W4.
    sight: Mutex<Option<Sight>>,
}

/// The longest read under way, and whether the device makes progress meanwhile.
struct Sight {
    /// Its begin time, and its seat.
    of: (u64, usize),
    looked: u64,
    watch: Watch,
    is_lost: bool,
}

/// Begin time of its read, in nanoseconds since `born`. On a cache line of its own, so that reads do not contend for it.
#[derive(Default)]
#[repr(align(64))]
struct Seat(AtomicU64);

/// disk-W1.
struct Taken<'a>(&'a AtomicU64);
impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cached").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Cached {
    pub fn new(read: Box<ReadCall>, progress: Box<Progress>, patience: Duration) -> Cached {
        let (looked, overdue, sight) = Default::default();
        let seats = std::array::from_fn(|_| Seat::default());
        Cached { read, progress, patience, born: Instant::now(), seats, looked, overdue, sight }
    }

    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    pub fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let _seat = self.enter()?;
        (self.read)(buf, offset)
    }

    /// Runs any other call that waits for the device as a read does.
    pub fn watched<T>(&self, call: impl FnOnce() -> T) -> io::Result<T> {
        let _seat = self.enter()?;
        Ok(call())
    }

    /// Must the medium be abandoned? The owner must call this regularly, because no other call detects it.
    pub fn is_lost(&self) -> bool {
        self.is_lost_at(self.now())
    }

    /// disk-W4.
    fn is_lost_at(&self, now: u64) -> bool {
        let patience = self.patience.as_nanos() as u64;
        let mut sight = self.sight.lock();
        let begun = self.seats.iter().enumerate().map(|(i, seat)| (seat.0.load(Ordering::Acquire), i));
        let is_late = |at: u64| at != FREE && now.saturating_sub(at) >= patience;
        let Some(first) = begun.filter(|(at, _)| is_late(*at)).min() else {
            *sight = None;
            return false;
        };
        match &mut *sight {
            Some(seen) if seen.of == first => {
                if now.saturating_sub(seen.looked) >= patience {
                    seen.looked = now;
                    seen.is_lost = seen.watch.look((self.progress)());
                }
                seen.is_lost
            }
            _ => {
                let watch = Watch::from((self.progress)());
                *sight = Some(Sight { of: first, looked: now, watch, is_lost: false });
                false
            }
        }
    }

    fn limit(&self) -> Duration {
        self.patience * PATIENCES
    }

    /// disk-W2, disk-W3.
    fn enter(&self) -> io::Result<Option<Taken<'_>>> {
        let now = self.now();
        let pause = (self.limit() / LOOKS).as_nanos() as u64;
        let is_due = now.saturating_sub(self.looked.load(Ordering::Relaxed)) >= pause;
        if is_due || self.overdue.load(Ordering::Relaxed) > 0 {
            let (count, longest) = self.look(now);
            if let Some(time) = longest {
                let why = format!("the device hangs, reads out for up to {time:.0?}: {count}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        let home = home();
        let mut seats = (0..SEATS).map(|i| &self.seats[(home + i) % SEATS].0);
        let is_ours =
            |seat: &&AtomicU64| seat.compare_exchange(FREE, now, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        Ok(seats.find(is_ours).map(Taken))
    }

    fn look(&self, now: u64) -> (usize, Option<Duration>) {
        let limit = self.limit();
        let begun = self.seats.iter().map(|seat| seat.0.load(Ordering::Acquire)).filter(|at| *at != FREE);
        let out = begun.map(|at| Duration::from_nanos(now.saturating_sub(at)));
        let (count, longest) = out
            .filter(|time| *time >= limit)
            .fold((0, None), |(n, longest), time| (n + 1, longest.max(Some(time))));
        self.overdue.store(count, Ordering::Relaxed);
        self.looked.store(now, Ordering::Relaxed);
        (count, longest)
    }

    /// Never returns `FREE`.
    fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64 + 1
    }
}

/// The seat that a thread tries first: its own, as long as there are no more threads than seats.
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    HOME.with(|home| *home)
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Reports which reads began. Those from offset 1000 on return after a signal of the test, or with an error at its end.
    pub fn hanging(patience: Duration) -> (Cached, Receiver<u64>, Sender<()>) {
        let ((began, seen), (go, gate)) = (channel(), channel::<()>());
        let (began, gate) = (Mutex::new(began), Mutex::new(gate));
        let read = move |_: &mut [u8], offset: u64| {
            let over = || io::Error::other("the test is over");
            began.lock().send(offset).map_err(|_| over())?;
            if offset >= 1000 { gate.lock().recv().map_err(|_| over()) } else { Ok(()) }
        };
        (Cached::new(Box::new(read), Box::new(|| Some(7)), patience), seen, go)
    }

    /// disk-W2. With a limit of zero every read under way is overdue.
    #[test]
    fn while_one_is_out_for_too_long_others_fail_at_once_and_go_on_after_it() {
        let (cached, began, go) = hanging(Duration::ZERO);
        cached.read(&mut [], 1).unwrap();
        assert_eq!(began.recv().unwrap(), 1);
        std::thread::scope(|s| {
            // If the test fails, dropping this releases the late reader; otherwise the scope would wait for it.
            let go = go;
            let late = s.spawn(|| cached.read(&mut [], 1000));
            assert_eq!(began.recv().unwrap(), 1000);
            let refused = cached.read(&mut [], 2).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
            assert!(refused.to_string().contains("the device hangs, reads out"), "{refused}");
            assert!(cached.watched(|| ()).is_err());
            assert!(began.try_recv().is_err(), "it was not begun");
            go.send(()).unwrap();
            late.join().unwrap().unwrap();
        });
        cached.read(&mut [], 3).unwrap();
    }

    #[test]
    fn within_the_limit_nobody_is_refused() {
        let (cached, began, go) = hanging(LONG);
        std::thread::scope(|s| {
            // If the test fails, dropping this releases the reader; otherwise the scope would wait for it.
            let go = go;
            s.spawn(|| cached.read(&mut [], 1000).unwrap());
            assert_eq!(began.recv().unwrap(), 1000);
            cached.read(&mut [], 1).unwrap();
            go.send(()).unwrap();
        });
    }

    /// The test sets the number of requests that the device has completed. Times are in patiences.
    fn watched(done: Option<u64>) -> (Cached, Arc<Mutex<Option<u64>>>) {
        let count = Arc::new(Mutex::new(done));
        let told = count.clone();
        let read = |_: &mut [u8], _: u64| Ok(());
        (Cached::new(Box::new(read), Box::new(move || *told.lock()), LONG), count)
    }
    fn is_lost_at(cached: &Cached, patiences: f64) -> bool {
        // A read that began at the test's start has been under way for that long.
        cached.is_lost_at(cached.now() + LONG.mul_f64(patiences).as_nanos() as u64)
    }

    /// disk-W4: a process that was frozen for long does not abandon the medium.
    #[test]
    fn one_look_at_the_clock_gives_no_medium_up() {
        let (cached, _) = watched(Some(7));
        let seat = cached.enter().unwrap().unwrap();
        assert!(!is_lost_at(&cached, 0.5));
        // 1. However much time has passed, and however many checks follow then.
        (0..1000).for_each(|n| assert!(!is_lost_at(&cached, 1000.0 + f64::from(n) / 1001.0)));
        // 2. A read that began meanwhile is another one.
        drop(seat);
        let seat = cached.enter().unwrap().unwrap();
        (0..PATIENCES).for_each(|n| assert!(!is_lost_at(&cached, 1002.0 + 1.1 * f64::from(n)), "{n}"));
        // 3. The same read at all checks, and no progress.
        assert!(is_lost_at(&cached, 1100.0) && is_lost_at(&cached, 1100.1));
        drop(seat);
        assert!(!is_lost_at(&cached, 1101.0));
    }

    /// disk-W4. A slow disk under many requests; and a device without counters.
    #[test]
    fn a_device_that_gets_on_is_not_given_up_and_an_unseen_one_later() {
        let (cached, count) = watched(Some(0));
        let _seat = cached.enter().unwrap().unwrap();
        for n in 1..100 {
            *count.lock() = Some(n);
            assert!(!is_lost_at(&cached, 1.1 * n as f64));
        }
        let quiet = (0..).find(|n| is_lost_at(&cached, 200.0 + 1.1 * f64::from(*n)));
        assert_eq!(quiet, Some(PATIENCES as i32 - 1));
        let (cached, _) = watched(None);
        let _seat = cached.enter().unwrap().unwrap();
        let quiet = (0..).find(|n| is_lost_at(&cached, 2.0 + 1.1 * f64::from(*n)));
        assert_eq!(quiet, Some(40));
    }

    /// disk-W3.
    #[test]
    fn who_finds_no_seat_reads_all_the_same() {
        let (cached, _began, _go) = hanging(LONG);
        let taken: Vec<_> = (0..SEATS).map(|_| cached.enter().unwrap()).collect();
        assert!(taken.iter().all(Option::is_some) && cached.enter().unwrap().is_none());
        cached.read(&mut [], 1).unwrap();
        drop(taken);
        assert!(cached.enter().unwrap().is_some());
    }
}
