//! Runs threads that work on one row until it is over, and measures their time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::anyhow;
use hdrhistogram::Histogram;

/// Latencies have three digits; a request of more than a minute counts as one minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// The result of all threads, the closing work included.
pub struct Took<T> {
    pub done: Vec<T>,
    pub seconds: f64,
    /// CPU time of the process, user and system.
    pub cpu_seconds: f64,
    /// The part of `seconds` that the closing work took.
    pub end_seconds: f64,
}

/// Runs `work` with each thread's number and the common start time, then `end`. A thread that fails ends the others by `stop`, and so the
/// row.
pub fn run<T: Send>(
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(usize, Instant) -> anyhow::Result<T> + Sync,
    end: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Took<T>> {
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let done: Vec<anyhow::Result<T>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|number| {
                let work = &work;
                scope.spawn(move || {
                    let done = work(number, began);
                    if done.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))).collect()
    });
    let worked = Instant::now();
    end()?;
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let end_seconds = worked.elapsed().as_secs_f64();
    Ok(Took { done: done.into_iter().collect::<anyhow::Result<_>>()?, seconds, cpu_seconds, end_seconds })
}

pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("the bounds are constants")
}

/// CPU time of this process, user and system.
pub fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
