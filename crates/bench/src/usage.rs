//! The use of the machine during a row: its busy processors, and the traffic of its device.
//!
//! A thread samples the kernel's counters; the values at a row's begin and end lie between two samples. Everything that ran on the
//! machine counts, so another program's work is in it too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::work::now_ns;

/// The counters of processors move in steps of 10 ms.
const INTERVAL: Duration = Duration::from_millis(50);
/// Samples that are kept: ten minutes. A longer row is judged by its last part.
const SAMPLES_MAX: usize = 12_000;
/// `/sys/dev/block/*/stat` counts in these, whatever the device's own sector is.
const SECTOR_BYTES: f64 = 512.0;

/// Means over a row's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Share of all processors' time that was not idle, 0 to 1; time that a hypervisor took away counts.
    pub cpu_busy: f64,
    /// Of the device that holds the data, per second; null if it is not known.
    pub device: Option<DeviceUsage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceUsage {
    pub read_bytes: f64,
    pub write_bytes: f64,
    pub reads: f64,
    pub writes: f64,
}

/// Counters since the machine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    seconds: f64,
    cpu_all: f64,
    cpu_idle: f64,
    /// Reads, read bytes, writes, written bytes.
    device: Option<[f64; 4]>,
}

/// Share of the processors' time that others take while this program waits.
pub fn busy_of_others() -> Option<f64> {
    let before = sample(None)?;
    std::thread::sleep(INTERVAL * 4);
    Some(usage(&before, &sample(None)?)?.cpu_busy)
}

/// The sampling thread.
pub struct Watch {
    samples: Arc<Mutex<Vec<Sample>>>,
    counters: Option<PathBuf>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `counters`: those of the device, if it is known.
    pub fn start(counters: Option<PathBuf>) -> std::io::Result<Watch> {
        let (samples, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, ended, path) = (samples.clone(), stop.clone(), counters.clone());
        let thread = std::thread::Builder::new().name("usage".into()).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                keep(&kept, path.as_ref());
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(Watch { samples, counters, stop, thread: Some(thread) })
    }

    /// Means from one moment to another, by the clock of workers. `None` if the counters cannot be read.
    pub fn between(&self, from_seconds: f64, to_seconds: f64) -> Option<Usage> {
        keep(&self.samples, self.counters.as_ref());
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, to) = (at(&samples, from_seconds)?, at(&samples, to_seconds)?);
        usage(&from, &to)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn keep(samples: &Mutex<Vec<Sample>>, counters: Option<&PathBuf>) {
    let Some(sample) = sample(counters) else { return };
    let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
    if samples.len() >= SAMPLES_MAX {
        samples.drain(..SAMPLES_MAX / 2);
    }
    samples.push(sample);
}

fn sample(counters: Option<&PathBuf>) -> Option<Sample> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let (cpu_all, cpu_idle) = cpu_of(&stat)?;
    let device = counters.and_then(|path| device_of(&std::fs::read_to_string(path).ok()?));
    Some(Sample { seconds: now_ns() as f64 / 1e9, cpu_all, cpu_idle, device })
}

/// All time and idle time of the line `cpu` of `/proc/stat`. Its last two fields are parts of the first two.
fn cpu_of(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<f64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
    Some((times.iter().sum(), times.get(3)? + times.get(4)?))
}

fn device_of(stat: &str) -> Option<[f64; 4]> {
    let words: Vec<f64> = stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some([*words.first()?, words.get(2)? * SECTOR_BYTES, *words.get(4)?, words.get(6)? * SECTOR_BYTES])
}

/// The counters at a moment: between the two samples around it. Before the first or after the last: that one.
fn at(samples: &[Sample], seconds: f64) -> Option<Sample> {
    let after = samples.iter().position(|sample| sample.seconds >= seconds);
    let (low, high) = match after {
        None => return samples.last().copied(),
        Some(0) => return samples.first().copied(),
        Some(after) => (samples[after - 1], samples[after]),
    };
    let part = (seconds - low.seconds) / (high.seconds - low.seconds).max(1e-9);
    let mid = |a: f64, b: f64| a + (b - a) * part;
    let device = low.device.zip(high.device).map(|(a, b)| std::array::from_fn(|n| mid(a[n], b[n])));
    let (cpu_all, cpu_idle) = (mid(low.cpu_all, high.cpu_all), mid(low.cpu_idle, high.cpu_idle));
    Some(Sample { seconds, cpu_all, cpu_idle, device })
}

fn usage(from: &Sample, to: &Sample) -> Option<Usage> {
    let (seconds, all) = (to.seconds - from.seconds, to.cpu_all - from.cpu_all);
    if seconds <= 0.0 || all <= 0.0 {
        return None;
    }
    let cpu_busy = (1.0 - (to.cpu_idle - from.cpu_idle) / all).clamp(0.0, 1.0);
    let device = from.device.zip(to.device).map(|(a, b)| {
        let rate = |n: usize| ((b[n] - a[n]) / seconds).max(0.0);
        DeviceUsage { reads: rate(0), read_bytes: rate(1), writes: rate(2), write_bytes: rate(3) }
    });
    Some(Usage { cpu_busy, device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_means_of_its_own_time() {
        let stat = "cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 1 1 1\n";
        assert_eq!(cpu_of(stat), Some((1000.0, 850.0)));
        let counters = device_of("  10 0 80 5 20 3 160 9 0 14 14 0 0 0 0").unwrap();
        assert_eq!(counters, [10.0, 40_960.0, 20.0, 81_920.0]);
        let at = |seconds: f64, busy: f64, read: f64| Sample {
            seconds,
            cpu_all: seconds * 200.0,
            cpu_idle: seconds * 200.0 - busy,
            device: Some([read, read * 4096.0, 0.0, 0.0]),
        };
        // Idle until 10, then both processors busy and 1000 reads a second until 11.
        let samples =
            [at(9.0, 0.0, 0.0), at(10.0, 0.0, 0.0), at(11.0, 200.0, 1000.0), at(12.0, 200.0, 1000.0)];
        let of = |from, to| usage(&super::at(&samples, from).unwrap(), &super::at(&samples, to).unwrap());
        let busy = of(10.25, 10.75).unwrap();
        assert!((busy.cpu_busy - 1.0).abs() < 1e-9 && (busy.device.unwrap().reads - 1000.0).abs() < 1e-6);
        assert!((of(9.5, 10.5).unwrap().cpu_busy - 0.5).abs() < 1e-9);
        assert_eq!(of(11.0, 11.0), None, "no time has no means");
    }

    #[test]
    fn this_machine_is_watched() {
        let watch = Watch::start(None).unwrap();
        let begun = now_ns() as f64 / 1e9;
        std::thread::sleep(Duration::from_millis(120));
        let usage = watch.between(begun, now_ns() as f64 / 1e9).unwrap();
        assert!((0.0..=1.0).contains(&usage.cpu_busy) && usage.device.is_none());
    }
}
