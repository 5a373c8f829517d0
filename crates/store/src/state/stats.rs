//! Counters since the engine was opened: user reads and writes, and the device requests for them.
//!
//! Device requests are counted below the volume (`disk::counted`), so none is missed. Counting costs relaxed additions only. The numbers of
//! a snapshot are each exact, but not of one moment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use disk::CutOff;
use disk::counted::{Place, SizeCounter, Sizes};

use crate::Service;
use crate::records::index_report::IndexStats;
use crate::state::engine::Engine;

/// Counters since the store was opened; `service` counts over the target's whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stats {
    pub user: UserStats,
    pub device: DeviceStats,
    pub small: SmallStats,
    pub index: IndexStats,
    pub service: Service,
    pub log_bytes_used: u64,
    pub log_bytes_total: u64,
    /// Sound entries that the start left out of the log (`disk::CutOff`).
    pub cut_off: CutOff,
}

/// Requests that were acknowledged to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UserStats {
    pub writes: u64,
    pub bytes_written: u64,
    pub reads: u64,
    pub bytes_read: u64,
}

/// Device requests, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeviceStats {
    /// User data written directly to the data region.
    pub data: Sizes,
    pub log: Sizes,
    pub checkpoint: Sizes,
    pub superblock: Sizes,
    /// Writes of the destager.
    pub destage: Sizes,
    pub reads: Sizes,
    pub flushes: u64,
    pub bytes_discarded: u64,
    /// The device's size.
    pub bytes: u64,
    /// Size of the log's own device; 0: it has none.
    pub log_device_bytes: u64,
}

impl DeviceStats {
    /// Bytes written to the device that has the data.
    pub fn bytes_written(&self) -> u64 {
        let log = if self.log_device_bytes > 0 { 0 } else { self.log.bytes };
        [self.data, self.checkpoint, self.superblock, self.destage].iter().map(|s| s.bytes).sum::<u64>() + log
    }
}

/// Counters of small writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SmallStats {
    /// User writes that went into the log with their bytes.
    pub patched_writes: u64,
    pub patched_bytes: u64,
    pub destaged_pages: u64,
    pub destaged_bytes: u64,
    /// Memory that patches take now, and the most they ever took.
    pub overlay_bytes: u64,
    pub overlay_bytes_max: u64,
}

/// The engine's counters.
#[derive(Debug, Default)]
pub struct Recorder {
    writes: AtomicU64,
    bytes_written: AtomicU64,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    destage: SizeCounter,
    patched_writes: AtomicU64,
    patched_bytes: AtomicU64,
    destaged_pages: AtomicU64,
    overlay_bytes: AtomicU64,
    overlay_bytes_max: AtomicU64,
}

impl Recorder {
    pub fn wrote(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(bytes as u64, Relaxed);
    }
    pub fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.bytes_read.fetch_add(bytes as u64, Relaxed);
    }
}

/// Counters of small writes.
impl Recorder {
    /// A user's write went into the log with its bytes. (It is counted by `wrote` as well.)
    pub fn patched(&self, bytes: usize) {
        self.patched_writes.fetch_add(1, Relaxed);
        self.patched_bytes.fetch_add(bytes as u64, Relaxed);
    }
    /// One device write of the destager. The device counts it as data; this counter separates the two.
    pub fn destaged(&self, bytes: usize) {
        self.destage.add(bytes as u64);
        self.destaged_pages.fetch_add(bytes as u64 / types::PAGE_SIZE as u64, Relaxed);
    }
    /// Sets the memory that the overlay takes.
    pub fn set_overlay(&self, bytes: u64) {
        self.overlay_bytes.store(bytes, Relaxed);
        self.overlay_bytes_max.fetch_max(bytes, Relaxed);
    }
}

impl Engine {
    pub(crate) fn stats_now(&self) -> Stats {
        let (r, counts) = (&self.recorder, self.vol.counts());
        // Read first, so that it does not exceed the device's count of data, which includes it.
        let destage = r.destage.sizes();
        let user = UserStats {
            writes: r.writes.load(Relaxed),
            bytes_written: r.bytes_written.load(Relaxed),
            reads: r.reads.load(Relaxed),
            bytes_read: r.bytes_read.load(Relaxed),
        };
        let device = DeviceStats {
            data: counts.written(Place::Data).without(&destage),
            log: counts.written(Place::Log),
            checkpoint: counts.written(Place::Checkpoint),
            superblock: counts.written(Place::Superblock),
            destage,
            reads: counts.reads.sizes(),
            flushes: counts.flushes(),
            bytes_discarded: counts.bytes_discarded(),
            bytes: self.vol.disk().size(),
            log_device_bytes: self.vol.log_medium_bytes(),
        };
        let kept = *self.service.lock();
        Stats {
            user,
            device,
            service: kept.and(device.bytes_written(), user.bytes_written),
            small: SmallStats {
                patched_writes: r.patched_writes.load(Relaxed),
                patched_bytes: r.patched_bytes.load(Relaxed),
                destaged_pages: r.destaged_pages.load(Relaxed),
                destaged_bytes: destage.bytes,
                overlay_bytes: r.overlay_bytes.load(Relaxed),
                overlay_bytes_max: r.overlay_bytes_max.load(Relaxed),
            },
            index: self.index.stats(),
            log_bytes_used: self.vol.log_used(),
            log_bytes_total: self.vol.log_capacity(),
            cut_off: self.vol.cut_off(),
        }
    }
}
