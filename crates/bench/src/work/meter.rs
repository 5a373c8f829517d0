//! Counting: operations, bytes, latencies and a timeline, at a few nanoseconds each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hdrhistogram::Histogram;

use crate::job::Limit;
use crate::pattern::Checked;
use crate::record::Latency;

/// Latencies up to a minute, to 1 %.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// The finest bucket of a timeline, and how many it has before it becomes coarser.
const WIDTH_NS_MIN: u64 = 10_000_000;
const BUCKETS_MAX: usize = 512;

/// Nanoseconds of a clock that all processes of this machine share.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A worker's progress, readable by other threads while it runs.
#[derive(Default)]
#[repr(align(128))]
pub struct Gauge {
    pub ops: AtomicU64,
    pub bytes: AtomicU64,
}

/// When a worker began, and when it shall end.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    pub begin_ns: u64,
    limit: Limit,
    end_ns: u64,
    stop: &'a AtomicBool,
}

impl<'a> Clock<'a> {
    pub fn start(limit: Limit, stop: &'a AtomicBool) -> Clock<'a> {
        let begin_ns = now_ns();
        let end_ns = limit.seconds.map_or(u64::MAX, |s| begin_ns.saturating_add((s * 1e9) as u64));
        Clock { begin_ns, limit, end_ns, stop }
    }

    /// Shall no operation begin at `now_ns`?
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns || self.stop.load(Ordering::Relaxed)
    }

    pub fn has_end(&self) -> bool {
        self.end_ns != u64::MAX
    }

    /// Waits until the `n`-th operation is due; gives the time from which its latency counts. Without a pace that is `now_ns`. `None`: the
    /// end came before.
    pub fn wait_turn(&self, n: u64, now_ns: u64) -> Option<u64> {
        let Some(pace) = self.limit.pace else { return Some(now_ns) };
        let due_ns = self.begin_ns.saturating_add((n as f64 / pace * 1e9) as u64);
        let mut now = now_ns;
        while now < due_ns && !self.is_over(now) {
            let until = due_ns.min(self.end_ns) - now;
            std::thread::sleep(std::time::Duration::from_nanos(until.min(100_000_000)));
            now = crate::work::now_ns();
        }
        (!self.is_over(now)).then_some(due_ns)
    }

    fn warm_ns(&self) -> u64 {
        self.begin_ns.saturating_add((self.limit.warmup_seconds * 1e9) as u64)
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Did {
    Read,
    Write,
    Other,
}

/// Counts of one worker.
pub struct Counted {
    pub begin_ns: u64,
    /// When the file was open, and when all was moved and flushed: between the two its transfers, then its close. 0: no file.
    pub opened_ns: u64,
    pub moved_ns: u64,
    pub end_ns: u64,
    pub warm_ns: u64,
    pub ops: u64,
    pub bytes: u64,
    pub read_bytes: u64,
    /// All operations, including the warm-up: the amount that later phases find.
    pub done: u64,
    /// Paced operations that began later than one period after they were due.
    pub late: u64,
    pub checked: Checked,
    pub reads: Histogram<u64>,
    pub writes: Histogram<u64>,
    pub others: Histogram<u64>,
    pub width_ns: u64,
    /// Operations and bytes by time.
    pub buckets: Vec<(u64, u64)>,
    period_ns: u64,
}

impl Counted {
    pub fn new(clock: &Clock<'_>) -> Counted {
        let histogram =
            || Histogram::new_with_max(LATENCY_MAX_NS, 2).expect("two digits up to a minute are allowed");
        Counted {
            begin_ns: clock.begin_ns,
            opened_ns: 0,
            moved_ns: 0,
            end_ns: clock.begin_ns,
            warm_ns: clock.warm_ns(),
            ops: 0,
            bytes: 0,
            read_bytes: 0,
            done: 0,
            late: 0,
            checked: Checked::default(),
            reads: histogram(),
            writes: histogram(),
            others: histogram(),
            width_ns: WIDTH_NS_MIN,
            buckets: Vec::with_capacity(BUCKETS_MAX),
            period_ns: clock.limit.pace.map_or(u64::MAX, |pace| (1e9 / pace) as u64),
        }
    }

    /// One operation that began (or was due) at `from_ns` and ended at `end_ns`. One that lies across the warm-up's end is not counted: the
    /// time before it is not either.
    pub fn count(&mut self, did: Did, bytes: u64, from_ns: u64, end_ns: u64, gauge: &Gauge) {
        self.done += 1;
        self.bucket(end_ns, bytes);
        gauge.ops.store(self.done, Ordering::Relaxed);
        gauge.bytes.store(gauge.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        if from_ns < self.warm_ns {
            return;
        }
        self.ops += 1;
        self.bytes += bytes;
        let took_ns = end_ns.saturating_sub(from_ns);
        self.late += u64::from(took_ns > self.period_ns);
        let histogram = match did {
            Did::Read => {
                self.read_bytes += bytes;
                &mut self.reads
            }
            Did::Write => &mut self.writes,
            Did::Other => &mut self.others,
        };
        histogram.saturating_record(took_ns);
    }

    fn bucket(&mut self, end_ns: u64, bytes: u64) {
        let mut index = ((end_ns - self.begin_ns) / self.width_ns) as usize;
        while index >= BUCKETS_MAX {
            self.coarsen();
            index = ((end_ns - self.begin_ns) / self.width_ns) as usize;
        }
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, (0, 0));
        }
        let bucket = &mut self.buckets[index];
        *bucket = (bucket.0 + 1, bucket.1 + bytes);
    }

    /// Makes buckets twice as wide.
    pub fn coarsen(&mut self) {
        let sum = |pair: &[(u64, u64)]| pair.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.buckets = self.buckets.chunks(2).map(sum).collect();
        self.width_ns *= 2;
    }
}

pub fn latency_of(histogram: &Histogram<u64>) -> Latency {
    Latency(histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_is_done_and_not_counted() {
        let stop = AtomicBool::new(false);
        let clock = Clock::start(Limit { warmup_seconds: 1.0, ..Limit::default() }, &stop);
        let mut counted = Counted::new(&clock);
        let gauge = Gauge::default();
        let at = |ms: u64| clock.begin_ns + ms * 1_000_000;
        counted.count(Did::Write, 10, at(0), at(500), &gauge);
        counted.count(Did::Write, 10, at(900), at(1900), &gauge);
        counted.count(Did::Read, 20, at(1000), at(1200), &gauge);
        assert_eq!((counted.done, counted.ops, counted.bytes, counted.read_bytes), (3, 1, 20, 20));
        assert_eq!((counted.reads.len(), counted.writes.len()), (1, 0));
        let took = latency_of(&counted.reads).quantile_us(0.5).unwrap();
        assert!((198_000.0..=202_000.0).contains(&took), "{took}");
        assert_eq!((gauge.ops.into_inner(), gauge.bytes.into_inner()), (3, 40));
    }

    #[test]
    fn work_is_over_when_its_time_or_who_wants_it_says_so() {
        let stop = AtomicBool::new(false);
        let clock = Clock::start(Limit { seconds: Some(2.0), ..Limit::default() }, &stop);
        let at = |ms: u64| clock.begin_ns + ms * 1_000_000;
        assert_eq!([0, 1999, 2000, 9000].map(|ms| clock.is_over(at(ms))), [false, false, true, true]);
        assert!(!Clock::start(Limit::default(), &stop).is_over(u64::MAX - 1));
        stop.store(true, Ordering::Relaxed);
        assert!(clock.is_over(at(0)));
    }

    #[test]
    fn a_long_timeline_becomes_coarser_and_loses_nothing() {
        let stop = AtomicBool::new(false);
        let clock = Clock::start(Limit::default(), &stop);
        let mut counted = Counted::new(&clock);
        for second in 0..100 {
            let end = clock.begin_ns + second * 1_000_000_000;
            counted.count(Did::Other, 3, end, end, &Gauge::default());
        }
        assert!(
            counted.buckets.len() <= BUCKETS_MAX && counted.width_ns == 320_000_000,
            "{}",
            counted.width_ns
        );
        let sum = counted.buckets.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert_eq!(sum, (100, 300));
    }

    /// An operation that is due after the end, or after a stop, does not begin; a worker that waits for one waits until the end.
    #[test]
    fn nothing_begins_after_the_end() {
        let stop = AtomicBool::new(false);
        let limit = Limit { pace: Some(10.0), seconds: Some(0.02), ..Limit::default() };
        let clock = Clock::start(limit, &stop);
        assert_eq!(clock.wait_turn(1, now_ns()), None);
        assert!(now_ns() >= clock.begin_ns + 20_000_000);
        let never = Clock::start(Limit { pace: Some(1e-300), ..Limit::default() }, &stop);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(never.wait_turn(1, now_ns()), None);
    }

    #[test]
    fn a_paced_operation_counts_from_when_it_was_due() {
        let stop = AtomicBool::new(false);
        let clock = Clock::start(Limit { pace: Some(1000.0), ..Limit::default() }, &stop);
        let mut counted = Counted::new(&clock);
        let due = clock.wait_turn(3, now_ns()).unwrap();
        assert_eq!(due, clock.begin_ns + 3_000_000);
        assert!(now_ns() >= due);
        counted.count(Did::Read, 1, due, due + 2_000_000, &Gauge::default());
        counted.count(Did::Read, 1, due, due + 500_000, &Gauge::default());
        assert_eq!(counted.late, 1);
    }
}
