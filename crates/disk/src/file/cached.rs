//! Data pages through the page cache, straight: a read that another thread makes would cost a cached one more than it takes. So the kernel may
//! keep who reads here for ever; but others see it.
//!
//! W1: a read takes a seat with the time it began, and leaves it when it is done: two atomic writes, no lock.
//! W2: while a read has been out for longer than the limit, every other fails at once, and `hung_for` says so to who asks whether the medium
//!     is lost. So a device that hangs takes the threads that had asked it before, and no more.
//! W3: where all seats are taken a read is made without one. Of a device that hangs those that sit tell.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// More than the threads that read from one disk at once on large machines; looking through them takes less than a microsecond.
const SEATS: usize = 64;
/// Nobody sits here.
const FREE: u64 = 0;
/// So often within the limit those who come look whether others hang.
const LOOKS: u32 = 16;

pub type ReadCall = dyn Fn(&mut [u8], u64) -> io::Result<()> + Send + Sync;

pub struct Cached {
    read: Box<ReadCall>,
    limit: Duration,
    born: Instant,
    seats: [Seat; SEATS],
    /// When somebody looked last, and whether one was overdue then.
    looked: AtomicU64,
    overdue: AtomicUsize,
}

/// When its read began, in nanoseconds since `born`. Apart from its neighbours, or each read would take their line of the cache away.
#[derive(Default)]
#[repr(align(64))]
struct Seat(AtomicU64);

/// W1.
struct Taken<'a>(&'a AtomicU64);
impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cached").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Cached {
    pub fn new(read: Box<ReadCall>, limit: Duration) -> Cached {
        let (looked, overdue) = Default::default();
        let seats = std::array::from_fn(|_| Seat::default());
        Cached { read, limit, born: Instant::now(), seats, looked, overdue }
    }

    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    pub fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let _seat = self.enter()?;
        (self.read)(buf, offset)
    }

    /// Any other call that waits for the device as a read does.
    pub fn watched<T>(&self, call: impl FnOnce() -> T) -> io::Result<T> {
        let _seat = self.enter()?;
        Ok(call())
    }

    /// How long the read that has been out for the longest time has been so, if that is over the limit.
    pub fn hung_for(&self) -> Option<Duration> {
        self.look(self.now()).1
    }

    /// W2, W3.
    fn enter(&self) -> io::Result<Option<Taken<'_>>> {
        let now = self.now();
        let pause = (self.limit / LOOKS).as_nanos() as u64;
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
        let begun = self.seats.iter().map(|seat| seat.0.load(Ordering::Acquire)).filter(|at| *at != FREE);
        let out = begun.map(|at| Duration::from_nanos(now.saturating_sub(at)));
        let (count, longest) = out
            .filter(|time| *time >= self.limit)
            .fold((0, None), |(n, longest), time| (n + 1, longest.max(Some(time))));
        self.overdue.store(count, Ordering::Relaxed);
        self.looked.store(now, Ordering::Relaxed);
        (count, longest)
    }

    /// Never `FREE`.
    fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64 + 1
    }
}

/// Where a thread looks for a seat first: its own place as long as there are no more threads than seats.
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    HOME.with(|home| *home)
}

#[cfg(test)]
pub mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use parking_lot::Mutex;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Says which reads began. Those from offset 1000 on come back after a word of the test, or with an error at its end.
    pub fn hanging(limit: Duration) -> (Cached, Receiver<u64>, Sender<()>) {
        let ((began, seen), (go, gate)) = (channel(), channel::<()>());
        let (began, gate) = (Mutex::new(began), Mutex::new(gate));
        let read = move |_: &mut [u8], offset: u64| {
            let over = || io::Error::other("the test is over");
            began.lock().send(offset).map_err(|_| over())?;
            if offset >= 1000 { gate.lock().recv().map_err(|_| over()) } else { Ok(()) }
        };
        (Cached::new(Box::new(read), limit), seen, go)
    }

    /// W2. No limit: what is under way is overdue.
    #[test]
    fn while_one_is_out_for_too_long_others_fail_at_once_and_go_on_after_it() {
        let (cached, began, go) = hanging(Duration::ZERO);
        cached.read(&mut [], 1).unwrap();
        assert_eq!((began.recv().unwrap(), cached.hung_for()), (1, None));
        std::thread::scope(|s| {
            // If this fails it lets him go, who would be waited for.
            let go = go;
            let late = s.spawn(|| cached.read(&mut [], 1000));
            assert_eq!(began.recv().unwrap(), 1000);
            assert!(cached.hung_for().is_some());
            let refused = cached.read(&mut [], 2).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
            assert!(refused.to_string().contains("the device hangs, reads out"), "{refused}");
            assert!(cached.watched(|| ()).is_err());
            assert!(began.try_recv().is_err(), "it was not begun");
            go.send(()).unwrap();
            late.join().unwrap().unwrap();
        });
        assert_eq!(cached.hung_for(), None);
        cached.read(&mut [], 3).unwrap();
    }

    #[test]
    fn within_the_limit_nobody_is_refused() {
        let (cached, began, go) = hanging(LONG);
        std::thread::scope(|s| {
            // If this fails it lets him go, who would be waited for.
            let go = go;
            s.spawn(|| cached.read(&mut [], 1000).unwrap());
            assert_eq!(began.recv().unwrap(), 1000);
            assert_eq!(cached.hung_for(), None);
            cached.read(&mut [], 1).unwrap();
            go.send(()).unwrap();
        });
    }

    /// W3.
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
