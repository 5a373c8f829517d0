//! Threads that send one row's requests to the engine, one at a time each, and their counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use disk::SplitMix;
use hdrhistogram::Histogram;
use serde::Serialize;
use store::{Attrs, ObjectStore, Read, SmallStats, StoreError, Write};
use types::crc::fragment_crcs;
use types::{Buf, Fault, ObjectId, PAGE_SIZE, Time};

use super::rows::{Order, Row, Unit, Work};
use super::zipf::Zipf;
use crate::cmd::measure::threads::{self, histogram};

/// The result of a row on one side.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    pub ops: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// CPU time of the process, user and system.
    pub cpu_seconds: f64,
    pub p50_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Bytes written to the device meanwhile, if known.
    pub device_bytes: Option<u64>,
    pub small: Small,
}

/// The fate of the bytes in the engine's small-write log.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Small {
    /// Bytes that went into it during the row.
    pub patched_bytes: u64,
    /// Bytes destaged meanwhile; a page that was overwritten before counts once.
    pub destaged_bytes: u64,
    /// Bytes in memory and log only: at the row's begin, at its end, and at most.
    pub pending_bytes: [u64; 3],
}

impl Small {
    pub fn between(before: &SmallStats, after: &SmallStats) -> Small {
        Small {
            patched_bytes: after.patched_bytes - before.patched_bytes,
            destaged_bytes: after.destaged_bytes - before.destaged_bytes,
            pending_bytes: [before.overlay_bytes, after.overlay_bytes, after.overlay_bytes_max],
        }
    }

    /// The share of the incoming bytes that is destaged at the row's end; `None` if none came in.
    pub fn settled_share(&self) -> Option<f64> {
        let [begin, end, _] = self.pending_bytes;
        let left = end.saturating_sub(begin) as f64;
        (self.patched_bytes > 0).then(|| 1.0 - left / self.patched_bytes as f64)
    }
}

impl Figure {
    /// In the row's unit.
    pub fn value(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Bytes => self.bytes as f64 / self.seconds / (1 << 20) as f64,
            Unit::Ops => self.ops as f64 / self.seconds,
            Unit::Latency => self.p50_us,
        }
    }
    /// Bytes written to the device for each requested byte.
    pub fn amplification(&self) -> Option<f64> {
        self.device_bytes.map(|bytes| bytes as f64 / self.bytes as f64)
    }
    pub fn cpu_us_per_op(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.ops as f64
    }
    pub fn cpu_seconds_per_gib(&self) -> f64 {
        self.cpu_seconds * (1u64 << 30) as f64 / self.bytes as f64
    }
}

/// The target and the limit of a row's requests.
pub struct Load<'a> {
    pub store: &'a dyn ObjectStore,
    pub row: &'a Row,
    pub object: ObjectId,
    /// Size of the object in bytes; only whole blocks are used.
    pub size: u64,
    pub time: Duration,
    pub seed: u64,
    /// Set from outside: all threads end early.
    pub stop: &'a AtomicBool,
}

/// State that a row's threads share.
struct Shared {
    /// The next block in order.
    next: AtomicU64,
    zipf: Option<Zipf>,
    /// A thread failed, or the goal is reached: all end.
    stop: AtomicBool,
}

const FILL_BLOCK: u64 = 1 << 20;
const FILL_THREADS: u64 = 8;

impl Load<'_> {
    /// Runs the row; the final flush counts.
    pub fn run(&self) -> anyhow::Result<Figure> {
        let blocks = self.size / self.row.block as u64;
        ensure!(blocks > 0, "an object of {} bytes has no block of {}", self.size, self.row.block);
        let zipf = match self.row.order {
            Order::Zipf(tenths) => Some(Zipf::new(blocks, f64::from(tenths) / 10.0)),
            _ => None,
        };
        let shared = Shared { next: AtomicU64::new(0), zipf, stop: AtomicBool::new(false) };
        let before = self.store.stats().small;
        let took = threads::run(
            self.row.depth,
            &shared.stop,
            |number, began| self.work(&shared, blocks, number as u64, began),
            || if self.row.writes() { Ok(self.store.flush().map(drop)?) } else { Ok(()) },
        )
        .with_context(|| self.row.title)?;
        let mut all = histogram();
        for done in took.done {
            all.add(done)?;
        }
        let us = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Figure {
            ops: all.len(),
            bytes: all.len() * self.row.block as u64,
            seconds: took.seconds,
            cpu_seconds: took.cpu_seconds,
            p50_us: us(0.5),
            p999_us: us(0.999),
            max_us: all.max() as f64 / 1e3,
            device_bytes: None,
            small: Small::between(&before, &self.store.stats().small),
        })
    }

    /// One thread's requests.
    fn work(
        &self,
        shared: &Shared,
        blocks: u64,
        number: u64,
        began: Instant,
    ) -> anyhow::Result<Histogram<u64>> {
        let mut rng = SplitMix::new(self.seed << 8 | number);
        let mut latencies = histogram();
        let mut hand = Hand::new(self.row.block, &mut rng);
        while !shared.stop.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            let block = match (&shared.zipf, self.row.order) {
                (Some(zipf), _) => zipf.next(&mut rng),
                (None, Order::Sequential) => shared.next.fetch_add(1, Ordering::Relaxed) % blocks,
                (None, _) => rng.below(blocks),
            };
            let offset = block * self.row.block as u64;
            let asked = Instant::now();
            if asked.duration_since(began) >= self.time {
                break;
            }
            match self.row.work {
                Work::Read => hand.read(self.store, self.object, offset)?,
                Work::Write | Work::Soak => hand.write(self.store, self.object, offset)?,
                Work::WriteFlush => {
                    hand.write(self.store, self.object, offset)?;
                    self.store.flush()?;
                }
                Work::Burst => {
                    hand.write(self.store, self.object, offset)?;
                    let usage = self.store.usage();
                    if usage.log_bytes_used >= usage.log_bytes_total / 2 {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            latencies.saturating_record(asked.elapsed().as_nanos() as u64);
        }
        Ok(latencies)
    }
}

/// Writes an object of whole MiB in order, with a few threads, and flushes it.
pub fn fill(store: &dyn ObjectStore, object: ObjectId, size: u64) -> anyhow::Result<()> {
    let next = AtomicU64::new(0);
    let write = |seed: u64| {
        let mut hand = Hand::new(FILL_BLOCK as usize, &mut SplitMix::new(seed));
        loop {
            let offset = next.fetch_add(1, Ordering::Relaxed) * FILL_BLOCK;
            if offset >= size {
                return Ok::<(), StoreError>(());
            }
            hand.write(store, object, offset)?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..FILL_THREADS).map(|seed| scope.spawn(move || write(seed))).collect();
        threads.into_iter().try_for_each(|t| {
            t.join().unwrap_or_else(|_| Err(StoreError::Corrupt("a thread panicked".into())))
        })
    })?;
    store.flush()?;
    Ok(())
}

/// A thread's buffers.
pub struct Hand {
    data: Vec<u8>,
    into: Buf,
    crcs: Vec<u32>,
    /// Increases with each write, so that no two writes have the same bytes.
    writes: u64,
}

fn open_gate(_: &Attrs) -> Result<(), Fault> {
    Ok(())
}

impl Hand {
    pub fn new(block: usize, rng: &mut SplitMix) -> Hand {
        let words = (0..block / 8).flat_map(|_| rng.next_u64().to_le_bytes());
        Hand { data: words.collect(), into: Buf::new(), crcs: Vec::new(), writes: 0 }
    }

    /// cli-BO3: each page gets its place.
    pub fn write(
        &mut self,
        store: &dyn ObjectStore,
        object: ObjectId,
        offset: u64,
    ) -> Result<(), StoreError> {
        self.writes += 1;
        for (i, page) in self.data.chunks_mut(PAGE_SIZE).enumerate() {
            page[..8].copy_from_slice(&(offset + (i * PAGE_SIZE) as u64).to_le_bytes());
            page[8..16].copy_from_slice(&self.writes.to_le_bytes());
        }
        // cli-BO1: computed here, as a client would.
        let crcs = fragment_crcs(offset, &self.data);
        let mtime = Time::default();
        let gate = &open_gate;
        store.write(&Write {
            object,
            offset,
            data: &self.data,
            crcs: &crcs,
            mtime,
            lease: 0,
            gate,
            origin: None,
            holder: None,
        })?;
        Ok(())
    }

    pub fn read(&mut self, store: &dyn ObjectStore, object: ObjectId, offset: u64) -> anyhow::Result<()> {
        let len = self.data.len();
        self.crcs.clear();
        let read = Read { object, offset, len: len as u32, gate: &open_gate };
        let exists = store.read(&read, &mut self.into, &mut self.crcs)?;
        ensure!(exists && self.into.len() == len, "{} bytes at {offset} of {len} were read", self.into.len());
        for (at, page) in (offset..).step_by(PAGE_SIZE).zip(self.into.chunks(PAGE_SIZE)) {
            ensure!(page[..8] == at.to_le_bytes(), "the page at {at} is of another place");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_at_the_end_is_not_settled() {
        let small = |patched_bytes, pending_bytes| Small { patched_bytes, destaged_bytes: 0, pending_bytes };
        assert_eq!(small(1000, [100, 300, 500]).settled_share(), Some(0.8));
        assert_eq!(small(1000, [300, 100, 500]).settled_share(), Some(1.0));
        assert_eq!(small(0, [0, 0, 0]).settled_share(), None);
    }
}
