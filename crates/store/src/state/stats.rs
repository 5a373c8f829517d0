//! What the engine did since it was opened, in plain numbers: what users wrote, and what the device was asked for it.
//!
//! Device requests are counted below the volume (`disk::counted`), so none is missed. Counting costs relaxed additions only; a
//! snapshot is not one moment, each of its numbers is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use disk::CutOff;
use disk::counted::{Place, SizeCounter, Sizes};

use crate::Service;
use crate::records::index::IndexStats;
use crate::state::engine::Engine;

/// Since the store was opened, but for `service`.
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

/// What was acknowledged to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UserStats {
    pub writes: u64,
    pub bytes_written: u64,
    pub reads: u64,
    pub bytes_read: u64,
}

/// What the device was asked for, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeviceStats {
    /// User data, straight to its place.
    pub data: Sizes,
    pub log: Sizes,
    pub checkpoint: Sizes,
    pub superblock: Sizes,
    /// Small writes on their way from the log to their place.
    pub destage: Sizes,
    pub reads: Sizes,
    pub flushes: u64,
    pub bytes_discarded: u64,
    /// The device's size.
    pub bytes: u64,
    /// Of the device that the log has of its own; 0: it has none.
    pub log_device_bytes: u64,
}

impl DeviceStats {
    /// To the device that has the data.
    pub fn bytes_written(&self) -> u64 {
        let log = if self.log_device_bytes > 0 { 0 } else { self.log.bytes };
        [self.data, self.checkpoint, self.superblock, self.destage].iter().map(|s| s.bytes).sum::<u64>() + log
    }
}

/// Of the small-write log.
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

/// Where the engine counts.
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

/// Of the small-write log.
impl Recorder {
    /// A user's write went into the log with its bytes. (It is counted by `wrote` as well.)
    pub fn patched(&self, bytes: usize) {
        self.patched_writes.fetch_add(1, Relaxed);
        self.patched_bytes.fetch_add(bytes as u64, Relaxed);
    }
    /// One device write of the destager. The device's own count has it as data; here it is told apart.
    pub fn destaged(&self, bytes: usize) {
        self.destage.add(bytes as u64);
        self.destaged_pages.fetch_add(bytes as u64 / types::PAGE_SIZE as u64, Relaxed);
    }
    /// The overlay takes this much memory from now on.
    pub fn set_overlay(&self, bytes: u64) {
        self.overlay_bytes.store(bytes, Relaxed);
        self.overlay_bytes_max.fetch_max(bytes, Relaxed);
    }
}

impl Engine {
    pub(crate) fn stats_now(&self) -> Stats {
        let (r, counts) = (&self.recorder, self.vol.counts());
        // First, so that it is not greater than the data it is part of.
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
