//! Media: `trait Disk` and its implementations; and the volume (superblocks, log ring, checkpoints) below MDTs and OSTs.
//! This crate does the I/O and knows no rule.

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
mod troubles;
pub mod volume;
mod waiting;

pub use faulty::{FaultyDisk, Op, When};
pub use file::{FileDisk, Io, PATIENCE};
pub use mem::MemDisk;
pub use sim::{Crash, Event, Outage, Playback, Recording, SECTOR_BYTES, Side, SimDisk, SplitMix};
pub use troubles::{Trouble, Troubles};
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
/// A new method must also go into `Counted`, which lies below every volume: otherwise the trait's default hides the medium's own method.
pub trait Disk: Send + Sync {
    /// Bytes.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`; reading past the end is an error. Never-written bytes read as zero.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes every write that was acknowledged before the call durable. After an error it is unknown which of them are; a retry
    /// must not turn that into success.
    fn flush(&self) -> io::Result<()>;
    /// Says that the bytes will not be read before they are written again; until then reads may return anything.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Allocates real space for a range without changing its bytes, so that writing it cannot fail for lack of space. Does nothing
    /// where all space is real, or where the system below cannot do it; `is_full` is true of the error if there is no space.
    fn reserve(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Is it a block device, where no file system below allocates space at the first write? (A thin device does; that
    /// cannot be known.)
    fn is_device(&self) -> bool {
        false
    }
    /// Free bytes of the file system below for this medium, at most: a sparse file promises more. Media that this process has open on one
    /// file system share its free space. `None`: all space is the medium's own, or it is not known.
    fn room_below(&self) -> Option<u64> {
        None
    }
    /// Does written data lie in this machine's page cache first?
    fn is_cached(&self) -> bool {
        false
    }
    /// As `read_at`, from the medium itself and past every cache where the implementation can: cached bytes prove nothing about the
    /// medium. Acknowledged writes are seen.
    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buf, offset)
    }
    /// Reads data pages: each part `(offset, bytes)` whole, all at once where the implementation can, and past its caches if it is so
    /// configured. An error says that some part could not be read; then the content of all parts means nothing. Data pages are read and
    /// written only by this and `write_many`: these two and the other calls must not use the same page.
    fn read_many(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        read_each(parts, |offset, len| self.will_read(offset, len), |bytes, at| self.read_at(bytes, at))
    }
    /// Writes data pages: each part `(offset, bytes)`, in no order. After an error it is unknown which parts were written.
    fn write_many(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        parts.iter().try_for_each(|(offset, bytes)| self.write_at(bytes, *offset))
    }
    /// Has an operation been overdue for so long that the medium must be abandoned? Returns the operation and the time.
    fn lost(&self) -> Option<String> {
        None
    }
    /// Hints that a range will be read soon.
    fn will_read(&self, _offset: u64, _len: u64) {}
}

/// Scattered reads of at least this many bytes are announced to the medium, so that their parts are read at once and not one after the
/// other; below it the announcement costs more than it saves.
const ANNOUNCE_BYTES_MIN: usize = 128 << 10;

/// Reads part by part. Announces all but the first, which is read next anyway. A single part is not announced: the medium's own
/// read-ahead reads larger pieces and continues past it (1.5 times the rate of sequential reads on ext4).
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

/// A host with less free space than this is short of it: an eighth of the medium, 1 GiB at most.
const SHORT_BYTES_MAX: u64 = 1 << 30;

/// Has the file system below little free space left for this medium?
pub fn is_host_short(disk: &dyn Disk) -> bool {
    disk.room_below().is_some_and(|room| room < (disk.size() / 8).min(SHORT_BYTES_MAX))
}

/// True if a write failed because the system below the medium (the file system that holds a sparse file, a quota) is full:
/// nothing is damaged, and the same write may succeed later.
pub fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// True for a temporary failure that says nothing about the bytes: the device hangs, memory or threads are short.
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
