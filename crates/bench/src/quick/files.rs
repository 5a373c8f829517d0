//! Large files: sequential and random phases over files of one's own or one shared file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Advice, OFlags};

use super::workers::{self, Clock, Done};
use super::workspace::{Measured, Params};
use crate::aligned::Aligned;
use crate::cache::{self, CacheState};
use crate::pattern::{Mark, PAGE_BYTES, Pattern, next};

/// Random writes are read back afterwards, at most so many per worker: enough to find what does not keep writes.
const READ_BACK_MAX: u64 = 256;
/// One-at-a-time reads: enough for a median, and a fair share of the phase on a slow medium.
const LATENCY_OPS_MAX: u64 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A file per worker.
    Own,
    /// One file; worker `w` of `n` has every n-th transfer, from the w-th on.
    Shared,
}

/// Files that were written, and how far.
pub struct Stream {
    layout: Layout,
    paths: Vec<PathBuf>,
    /// Transfers that each worker got done before its time was up.
    transfers: Vec<u64>,
    version: u64,
}

impl Stream {
    fn path(&self, worker: usize) -> &Path {
        &self.paths[if self.layout == Layout::Own { worker } else { 0 }]
    }
    fn mark(&self, worker: usize) -> Mark {
        mark(self.layout, worker, self.version)
    }

    pub fn remove(self) -> Result<()> {
        self.paths
            .iter()
            .try_for_each(|p| std::fs::remove_file(p).with_context(|| format!("removing {}", p.display())))
    }

    fn cool(&self) -> CacheState {
        cache::cool(self.paths.iter().map(PathBuf::as_path))
    }
}

fn mark(layout: Layout, worker: usize, version: u64) -> Mark {
    Mark { file: if layout == Layout::Own { worker as u64 + 1 } else { 0 }, version }
}

fn offset_of(layout: Layout, worker: usize, transfer: u64, params: &Params) -> u64 {
    let index = match layout {
        Layout::Own => transfer,
        Layout::Shared => transfer * params.workers as u64 + worker as u64,
    };
    index * params.transfer_bytes as u64
}

fn open(path: &Path, write: bool, params: &Params) -> Result<File> {
    let flags = if params.direct { OFlags::DIRECT.bits() as i32 } else { 0 };
    let opened = OpenOptions::new()
        .read(true)
        .write(write)
        .create(write)
        .truncate(false)
        .custom_flags(flags)
        .open(path);
    opened.with_context(|| format!("opening {}", path.display()))
}

/// Writes fresh files, front to back. The flush counts.
pub fn write(
    root: &Path,
    layout: Layout,
    params: &Params,
    pattern: &Pattern,
    version: u64,
) -> Result<(Stream, Done, f64)> {
    let count = if layout == Layout::Own { params.workers } else { 1 };
    let stem = if layout == Layout::Own { "own" } else { "shared" };
    let paths: Vec<PathBuf> = (0..count).map(|i| root.join(format!("{stem}.{version}.{i}"))).collect();
    let mut stream = Stream { layout, paths, transfers: Vec::new(), version };
    cache::settle();
    let progress: Vec<_> = (0..params.workers).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let (done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let done = write_worker(&stream, worker, clock, params, pattern)?;
        progress[worker].store(done.ops, std::sync::atomic::Ordering::Relaxed);
        Ok(done)
    })?;
    stream.transfers = progress.into_iter().map(std::sync::atomic::AtomicU64::into_inner).collect();
    Ok((stream, done, seconds))
}

fn write_worker(
    stream: &Stream,
    worker: usize,
    clock: Clock<'_>,
    params: &Params,
    pattern: &Pattern,
) -> Result<Done> {
    let file = open(stream.path(worker), true, params)?;
    let mut buffer = Aligned::new(params.transfer_bytes);
    // Only stamps differ from transfer to transfer: making content must not be what is measured.
    buffer.get().copy_from_slice(pattern.base_at(0, params.transfer_bytes));
    let mut done = Done::default();
    for transfer in 0..params.transfers_per_worker() {
        if transfer > 0 && clock.is_over() {
            break;
        }
        let offset = offset_of(stream.layout, worker, transfer, params);
        Pattern::stamp(stream.mark(worker), offset, buffer.get());
        file.write_all_at(buffer.get(), offset)?;
        done.count(params.transfer_bytes);
    }
    file.sync_all()?;
    Ok(done)
}

/// Reads front to back what another worker wrote, cold.
pub fn read(stream: &Stream, params: &Params, pattern: &Pattern) -> Result<Measured> {
    let cache = stream.cool();
    let (done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let whose = (worker + 1) % params.workers;
        let file = open(stream.path(whose), false, params)?;
        let mut buffer = Aligned::new(params.transfer_bytes);
        let mut done = Done::default();
        for transfer in 0..stream.transfers[whose] {
            if clock.is_over() {
                break;
            }
            let offset = offset_of(stream.layout, whose, transfer, params);
            file.read_exact_at(buffer.get(), offset)?;
            done.checked += pattern.check(stream.mark(whose), offset, buffer.get(), transfer)?;
            done.count(params.transfer_bytes);
        }
        Ok(done)
    })?;
    Ok((done, seconds, cache))
}

/// Pages of a file in an order that looks random; each occurs once before any occurs again.
struct Shuffle {
    pages: u64,
    at: u64,
    mask: u64,
    multiplier: u64,
    addend: u64,
}

impl Shuffle {
    fn new(pages: u64, seed: u64) -> Shuffle {
        let mut state = seed;
        let mask = pages.next_power_of_two() - 1;
        // A full-period congruential generator modulo a power of two: multiplier 1 mod 4, odd addend.
        Shuffle { pages, at: 0, mask, multiplier: next(&mut state) << 2 | 1, addend: next(&mut state) | 1 }
    }

    fn step(&mut self) -> u64 {
        self.at = self.at.wrapping_mul(self.multiplier).wrapping_add(self.addend) & self.mask;
        // The low bits of such a generator hardly vary: turned around, they are the high ones.
        self.at.reverse_bits().checked_shr(self.mask.leading_zeros()).unwrap_or(0)
    }
}

impl Iterator for Shuffle {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        if self.pages == 0 {
            return None;
        }
        // At least half of the period is below `pages`, so this ends.
        loop {
            let page = self.step();
            if page < self.pages {
                return Some(page);
            }
        }
    }
}

fn pages_of(stream: &Stream, worker: usize, params: &Params) -> u64 {
    stream.transfers[worker] * (params.transfer_bytes / PAGE_BYTES) as u64
}

/// Reads single pages at random places, cold; without read-ahead, which would read what nobody asked for.
pub fn read_random(stream: &Stream, params: &Params, pattern: &Pattern) -> Result<Measured> {
    random_reads(stream, params, pattern, params.workers, params.random_ops)
}

/// The same by one worker: nothing else is under way, so each read's time is the latency.
pub fn read_one_at_a_time(stream: &Stream, params: &Params, pattern: &Pattern) -> Result<Measured> {
    random_reads(stream, params, pattern, 1, params.random_ops.min(LATENCY_OPS_MAX))
}

fn random_reads(
    stream: &Stream,
    params: &Params,
    pattern: &Pattern,
    workers: usize,
    ops: u64,
) -> Result<Measured> {
    let cache = stream.cool();
    let (done, seconds) = workers::run(workers, &params.limit(), |worker, clock| {
        let file = open(stream.path(worker), false, params)?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
        let pages = pages_of(stream, worker, params);
        let mut buffer = Aligned::new(PAGE_BYTES);
        let mut done = Done::default();
        // Not more than there are pages: a second visit would be answered from the cache.
        for page in Shuffle::new(pages, params.seed + worker as u64).take(ops.min(pages) as usize) {
            if done.ops > 0 && clock.is_over() {
                break;
            }
            let offset = page * PAGE_BYTES as u64;
            done.timed(PAGE_BYTES, || Ok(file.read_exact_at(buffer.get(), offset)?))?;
            done.checked += pattern.check(stream.mark(worker), offset, buffer.get(), 0)?;
        }
        Ok(done)
    })?;
    Ok((done, seconds, cache))
}

/// Overwrites single pages at random places with a new version; the flush counts. A sample is read back, cold, afterwards.
pub fn write_random(stream: &Stream, params: &Params, pattern: &Pattern) -> Result<Measured> {
    cache::settle();
    let shuffle = |worker| Shuffle::new(pages_of(stream, worker, params), params.seed ^ (worker as u64 + 77));
    // Not a version that any set of files has.
    let mark = |worker| Mark { version: u64::MAX - stream.version, ..stream.mark(worker) };
    let counts: Vec<_> = (0..params.workers).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let (mut done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let file = open(stream.path(worker), true, params)?;
        let mut buffer = Aligned::new(PAGE_BYTES);
        let mut done = Done::default();
        for page in shuffle(worker).take(params.random_ops.min(pages_of(stream, worker, params)) as usize) {
            if done.ops > 0 && clock.is_over() {
                break;
            }
            let offset = page * PAGE_BYTES as u64;
            pattern.fill(mark(worker), offset, buffer.get());
            done.timed(PAGE_BYTES, || Ok(file.write_all_at(buffer.get(), offset)?))?;
        }
        file.sync_all()?;
        counts[worker].store(done.ops, std::sync::atomic::Ordering::Relaxed);
        Ok(done)
    })?;
    stream.cool();
    for (worker, count) in counts.into_iter().enumerate() {
        let file = open(stream.path(worker), false, params)?;
        let mut buffer = Aligned::new(PAGE_BYTES);
        for page in shuffle(worker).take(count.into_inner().min(READ_BACK_MAX) as usize) {
            let offset = page * PAGE_BYTES as u64;
            file.read_exact_at(buffer.get(), offset)?;
            done.checked += pattern.check(mark(worker), offset, buffer.get(), 0)?;
        }
    }
    Ok((done, seconds, CacheState::Fresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_visits_each_page_once() {
        for pages in [1u64, 2, 3, 64, 1000, 4097] {
            let mut seen: Vec<u64> = Shuffle::new(pages, 5).take(pages as usize).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..pages).collect::<Vec<_>>(), "{pages} pages");
        }
        let order: Vec<u64> = Shuffle::new(1 << 16, 9).take(1000).collect();
        let steps = order.windows(2).filter(|w| w[0].abs_diff(w[1]) < 64).count();
        assert!(steps < 50, "{steps} of 1000 reads follow their neighbour: that is no random order");
        assert_eq!(Shuffle::new(0, 1).next(), None);
    }
}
