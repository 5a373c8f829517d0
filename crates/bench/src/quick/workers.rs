//! Workers: threads that begin together, and one measured time from the first begin to the last end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;

use crate::pattern::Checked;

/// Latencies up to a minute, to 1 %.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// What one worker, or all of them, got done.
pub struct Done {
    pub ops: u64,
    pub bytes: u64,
    pub checked: Checked,
    /// Nanoseconds per operation, where each was timed.
    pub latency: Histogram<u64>,
}

impl Default for Done {
    fn default() -> Done {
        let latency =
            Histogram::new_with_max(LATENCY_MAX_NS, 2).expect("two digits up to a minute are allowed");
        Done { ops: 0, bytes: 0, checked: Checked::default(), latency }
    }
}

impl Done {
    /// Counts one operation of `bytes`.
    pub fn count(&mut self, bytes: usize) {
        self.ops += 1;
        self.bytes += bytes as u64;
    }

    /// Counts and times one operation.
    pub fn timed<T>(&mut self, bytes: usize, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let result = operation()?;
        self.latency.saturating_record(begin.elapsed().as_nanos() as u64);
        self.count(bytes);
        Ok(result)
    }

    fn add(&mut self, other: Done) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.checked += other.checked;
        self.latency.add(other.latency).expect("both have the same bounds");
    }
}

/// How long a phase may take.
#[derive(Clone, Debug)]
pub struct Limit {
    pub time: Duration,
    /// Set from outside: stop now, what was measured is not wanted any more.
    pub stop: Arc<AtomicBool>,
}

/// When a worker shall stop, however much is left: a slow file system moves less instead of taking longer.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    end: Instant,
    stop: &'a AtomicBool,
}

impl Clock<'_> {
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.stop.load(Ordering::Relaxed)
    }
}

/// Runs `work` on `count` threads at once; returns what they did and the time they took in seconds.
pub fn run(
    count: usize,
    limit: &Limit,
    work: impl Fn(usize, Clock<'_>) -> Result<Done> + Sync,
) -> Result<(Done, f64)> {
    let barrier = Barrier::new(count);
    let worker = |index: usize| {
        barrier.wait();
        let begin = Instant::now();
        work(index, Clock { end: begin + limit.time, stop: &limit.stop })
            .map(|done| (begin, Instant::now(), done))
    };
    let results: Vec<Result<(Instant, Instant, Done)>> = std::thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || worker(index))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked")))).collect()
    });
    let mut total = Done::default();
    let mut span: Option<(Instant, Instant)> = None;
    for result in results {
        let (begin, end, done) = result?;
        total.add(done);
        span = Some(span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
    }
    let (first, last) = span.ok_or_else(|| anyhow!("no workers: at least 1 is needed"))?;
    // A phase shorter than a clock tick cannot be divided by.
    Ok((total, (last - first).as_secs_f64().max(1e-9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(time: Duration) -> Limit {
        Limit { time, stop: Arc::default() }
    }

    #[test]
    fn all_work_is_counted_and_a_failure_is_told() {
        let work = |index: usize, _: Clock<'_>| {
            let mut done = Done::default();
            for _ in 0..=index {
                done.timed(10, || Ok(()))?;
            }
            Ok(done)
        };
        let (done, seconds) = run(3, &limit(Duration::from_secs(1)), work).unwrap();
        assert_eq!((done.ops, done.bytes, done.latency.len()), (6, 60, 6));
        assert!(seconds > 0.0);
        assert!(
            run(2, &limit(Duration::from_secs(1)), |i, _| if i == 1 {
                Err(anyhow!("no"))
            } else {
                Ok(Done::default())
            })
            .is_err()
        );
        assert!(run(0, &limit(Duration::from_secs(1)), |_, _| Ok(Done::default())).is_err());
    }

    #[test]
    fn the_clock_stops_work() {
        let work = |_: usize, clock: Clock<'_>| {
            let mut done = Done::default();
            while !clock.is_over() {
                done.count(1);
            }
            Ok(done)
        };
        let (_, seconds) = run(1, &limit(Duration::from_millis(5)), work).unwrap();
        assert!(seconds >= 0.005);
    }
}
