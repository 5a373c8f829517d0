//! Media: `trait Disk` and its implementations, and the volume (superblocks, log ring, checkpoints) that MDTs and OSTs
//! both stand on. This crate touches the machine and knows no rule.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails may panic"))]

use std::io;

pub mod alloc;
pub mod conformance;
pub mod content;
pub mod counted;
mod faulty;
mod file;
pub mod freed;
pub mod leaves;
mod mem;
mod sim;
pub mod volume;
mod waiting;

pub use faulty::{FaultyDisk, Op, When};
pub use file::{FileDisk, Io, PATIENCE};
pub use mem::MemDisk;
pub use sim::{Crash, Event, Outage, Playback, Recording, SECTOR_BYTES, Side, SimDisk, SplitMix};
pub use volume::{
    CheckpointReader, CutOff, Format, Kind, Label, Layout, LogEntry, LogLabel, LogMedium, LogPoint, Lost,
    Media, NewLog, ReplaySummary, Verdict, Volume, VolumeError,
};
pub use waiting::Waiting;

/// A random-access medium of fixed size. All methods may be called from any thread at once.
///
/// A write is *acknowledged* when `write_at` returns: it is in memory that outlives the process. It is *flushed* when a
/// `flush` that began after it has returned `Ok`. Unflushed writes may be lost, torn at 512-byte sectors, or reach the medium
/// in any order when power fails.
///
/// A new method goes into `Counted` too, which every volume stands on: with a default alone the medium's own would not be called.
pub trait Disk: Send + Sync {
    /// Bytes.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`; reading past the end is an error. Never-written bytes read as zero.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes every write that was acknowledged before the call durable. An error means that nothing is known of them; it is
    /// never retried into success.
    fn flush(&self) -> io::Result<()>;
    /// Says that the bytes will not be read again before they are written; they may read as anything.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Takes real space for a range whose bytes stay as they are, so that writing it cannot fail for want of room. Does nothing
    /// where all space is real, or where the system below cannot do it; `is_full` holds of the error if there is no room.
    fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Is it a device, so that no file system below has to find room when bytes are written first? (A thin device has to; that
    /// cannot be known.)
    fn is_device(&self) -> bool {
        false
    }
    /// Bytes that the file system below has for this medium, at most: a sparse file promises more. Those that this process has open on one file
    /// system share its room. `None`: all space is the medium's own, or it is not known.
    fn room_below(&self) -> Option<u64> {
        None
    }
    /// Does data written lie in this machine's page cache first, wherever it goes?
    fn is_cached(&self) -> bool {
        false
    }
    /// As `read_at`, from the medium itself and past every cache where the implementation can: what a cache holds says nothing of the
    /// medium below it. Acknowledged writes are seen.
    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buf, offset)
    }
    /// Reads data pages: each part `(offset, bytes)` whole, at once where the implementation can, and past its caches if it is set so. An
    /// error says that some part could not be read; what the parts hold then means nothing. Data pages are read and written by
    /// this and `write_many` only; the two and the other calls must not meet in one page.
    fn read_many(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        read_each(parts, |offset, len| self.will_read(offset, len), |bytes, at| self.read_at(bytes, at))
    }
    /// Writes data pages: each part `(offset, bytes)`, in no order. After an error nothing is known of any part.
    fn write_many(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        parts.iter().try_for_each(|(offset, bytes)| self.write_at(bytes, *offset))
    }
    /// Has an operation been overdue for so long that the medium is to be given up? Says what and for how long.
    fn lost(&self) -> Option<String> {
        None
    }
    /// Hints that a range will be read soon.
    fn will_read(&self, _offset: u64, _len: u64) {}
}

/// Scattered reads of at least this many bytes are announced to the medium, so that their parts come in at once and not one after the
/// other; below it the announcement costs more than it saves.
const ANNOUNCE_BYTES_MIN: usize = 128 << 10;

/// Reads part by part. All but the first, which is read next anyhow, are announced first. A single part is not: the medium's own
/// read-ahead brings it in larger pieces and goes on past it (1.5 times the rate of sequential reads on ext4).
fn read_each(
    parts: &mut [(u64, &mut [u8])],
    announce: impl Fn(u64, u64),
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    if parts.len() > 1 && parts.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() >= ANNOUNCE_BYTES_MIN {
        parts[1..].iter().for_each(|(offset, bytes)| announce(*offset, bytes.len() as u64));
    }
    parts.iter_mut().try_for_each(|(offset, bytes)| read(bytes, *offset))
}

/// A host with less room than this is short of it: an eighth of the medium, 1 GiB at most.
const SHORT_BYTES_MAX: u64 = 1 << 30;

/// Has the file system below little room left for this medium?
pub fn is_host_short(disk: &dyn Disk) -> bool {
    disk.room_below().is_some_and(|room| room < (disk.size() / 8).min(SHORT_BYTES_MAX))
}

/// True if a write failed because what the medium stands on (the file system that holds a sparse file, a quota) is full:
/// nothing is broken, and the same write may succeed later.
pub fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// True if an operation failed for the moment and says nothing of the bytes: the device hangs, memory or threads are short.
pub fn is_passing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock)
}

/// The end of `len` bytes at `offset` if they lie within `size`; the one range check of all implementations.
fn end_within(size: u64, offset: u64, len: u64) -> io::Result<u64> {
    offset.checked_add(len).filter(|end| *end <= size).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{len} bytes at {offset} reach past the medium's end at {size}"),
        )
    })
}
