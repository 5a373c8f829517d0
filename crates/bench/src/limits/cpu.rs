//! Limits of the processors: all of them copy memory, then all of them call the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Larger than a processor's caches, so that the memory is measured.
const COPY_BYTES: usize = 32 << 20;
/// The clock is read once in so many calls.
const CALLS_PER_LOOK: u32 = 256;

/// Bytes per second that all processors copy together.
pub fn copy_bytes_per_second(time: Duration) -> f64 {
    let rates = on_all(|| {
        let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
        // The first pass maps the pages.
        to.copy_from_slice(&from);
        let (begun, mut copied) = (Instant::now(), 0_u64);
        while begun.elapsed() < time {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            copied += COPY_BYTES as u64;
        }
        Ok(copied as f64 / begun.elapsed().as_secs_f64())
    });
    rates.unwrap_or(0.0)
}

/// System calls per second of all processors: reads of one byte that no device serves.
pub fn calls_per_second(time: Duration) -> io::Result<f64> {
    on_all(|| {
        let file = File::open("/proc/self/exe")?;
        let (begun, mut calls, mut byte) = (Instant::now(), 0_u64, [0_u8; 1]);
        while begun.elapsed() < time {
            for _ in 0..CALLS_PER_LOOK {
                file.read_at(&mut byte, 0)?;
            }
            calls += u64::from(CALLS_PER_LOOK);
        }
        Ok(calls as f64 / begun.elapsed().as_secs_f64())
    })
}

/// The sum of a rate over one thread per processor.
fn on_all(rate: impl Fn() -> io::Result<f64> + Sync) -> io::Result<f64> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..crate::system::cpus()).map(|_| scope.spawn(&rate)).collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread ended early")))
        });
        ended.sum()
    })
}
