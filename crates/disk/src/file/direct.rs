//! Direct I/O past the page cache: whole pages, by a second descriptor with `O_DIRECT`, in lanes; each request takes one.
//!
//! disk-D1: bytes go through the lane's own buffer, and not directly to or from the caller's memory. That costs a copy, and has three
//!     benefits. The caller's memory needs no alignment. The buffer lies in a huge page, which made reads of 1 MiB 2 to 3 times as fast as
//!     into scattered pages. A device that hangs holds no memory of the caller's, so that each operation can have a deadline
//!     (docs/decisions/0021-direct-io.md).
//! disk-D2: after the deadline the caller gets an error that says so. The lane is set aside until the kernel returns its buffer, and until
//!     then every operation fails at once. So a device that hangs takes no more memory and threads than had asked it before, and an
//!     abandoned write that may still be carried out cannot meet another one to the same place. If the process ends first, the kernel
//!     still holds the descriptor of such a write, and with it the lock (disk-F1): no other process opens the medium before that.
//! disk-D3: a partial transfer is continued; a transfer of nothing is an error.
//!
//! Other calls have deadlines of their own: `aside.rs`, `opening.rs`; and `cached.rs`, where the kernel has no way to abandon a read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::{Batch, Buffers, Ended, HUGE_PAGE_BYTES, Operation, Verb};
use rustix::io::Errno;

use super::at_place;
use super::lane::{Lane, ThreadLane, by_calls};

/// The unit of direct I/O: no device of today has larger blocks, and Stria's pages are this large.
pub const BLOCK_BYTES: usize = 4096;
/// A lane's buffer: one huge page. Larger requests take several rounds.
pub const LANE_BYTES: usize = HUGE_PAGE_BYTES;
/// Lanes that are kept for the next request: as many as serving threads use at once on large machines, 64 MiB of buffers.
const LANES_KEPT_MAX: usize = 32;
/// A partial transfer is continued at a multiple of this, the smallest block of devices.
const SECTOR_BYTES: usize = 512;

/// Makes a lane that needs io_uring.
pub type MakeRing = fn(Arc<File>, usize) -> io::Result<Box<dyn Lane>>;

pub struct Direct {
    file: Arc<File>,
    path: PathBuf,
    patience: Duration,
    make_ring: MakeRing,
    /// io_uring is forbidden on this machine; threads do the I/O.
    is_barred: AtomicBool,
    spare: Mutex<Vec<Box<dyn Lane>>>,
    /// Lanes whose buffers the kernel still has after the deadline (disk-D2), and their number.
    overdue: Mutex<Vec<(Instant, Box<dyn Lane>)>>,
    overdue_count: AtomicUsize,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("path", &self.path).finish_non_exhaustive()
    }
}

/// One part, or a piece of a part that is larger than a lane's buffer.
struct Piece {
    part: usize,
    /// Where it begins in the part.
    skip: usize,
    operation: Operation,
}

impl Direct {
    /// `file` was opened with `O_DIRECT`.
    pub fn by_rings(file: Arc<File>, path: PathBuf, patience: Duration) -> Direct {
        Direct::over(file, path, patience, |file, bytes| Ok(Box::new(Batch::new(file, bytes)?)))
    }

    pub fn over(file: Arc<File>, path: PathBuf, patience: Duration, make_ring: MakeRing) -> Direct {
        let (spare, overdue) = Default::default();
        let (is_barred, overdue_count) = Default::default();
        Direct { file, path, patience, make_ring, is_barred, spare, overdue, overdue_count }
    }

    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    pub fn is_over(&self, file: &Arc<File>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    #[cfg(test)]
    pub fn file_in_use(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Can a part use direct I/O?
    pub fn fits(offset: u64, len: usize) -> bool {
        offset.is_multiple_of(BLOCK_BYTES as u64) && len.is_multiple_of(BLOCK_BYTES)
    }

    pub fn read(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        for round in rounds(Verb::Read, parts.iter().map(|(offset, bytes)| (*offset, bytes.len()))) {
            let mut lane = self.take()?;
            lane = self.carry_out(lane, &round)?;
            let buffer = lane.buffer();
            for piece in &round {
                let from = &buffer[piece.operation.part.clone()];
                parts[piece.part].1[piece.skip..piece.skip + from.len()].copy_from_slice(from);
            }
            self.give_back(lane);
        }
        Ok(())
    }

    pub fn write(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        for round in rounds(Verb::Write, parts.iter().map(|(offset, bytes)| (*offset, bytes.len()))) {
            let mut lane = self.take()?;
            let buffer = lane.buffer();
            for piece in &round {
                let to = &mut buffer[piece.operation.part.clone()];
                to.copy_from_slice(&parts[piece.part].1[piece.skip..piece.skip + to.len()]);
            }
            lane = self.carry_out(lane, &round)?;
            self.give_back(lane);
        }
        Ok(())
    }

    /// A lane without operations under way.
    fn take(&self) -> io::Result<Box<dyn Lane>> {
        self.check_not_hung()?;
        if let Some(lane) = self.spare.lock().pop() {
            return Ok(lane);
        }
        if !self.is_barred.load(Ordering::Relaxed) {
            match (self.make_ring)(self.file.clone(), LANE_BYTES) {
                Ok(lane) => return Ok(lane),
                Err(e) => {
                    let errno = e.raw_os_error().map(Errno::from_raw_os_error);
                    // Other errors may pass: locked memory or descriptors may be short.
                    let is_for_good = matches!(
                        errno,
                        Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL)
                    );
                    self.is_barred.store(is_for_good, Ordering::Relaxed);
                }
            }
        }
        Ok(Box::new(ThreadLane::new(by_calls(self.file.clone()), LANE_BYTES)?))
    }

    fn give_back(&self, lane: Box<dyn Lane>) {
        let mut spare = self.spare.lock();
        if spare.len() < LANES_KEPT_MAX {
            spare.push(lane);
        }
    }

    /// disk-D2: fails while a lane is overdue.
    pub fn check_not_hung(&self) -> io::Result<()> {
        if self.overdue_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut overdue = self.overdue.lock();
        overdue.retain_mut(|(_, lane)| !lane.is_settled());
        self.overdue_count.store(overdue.len(), Ordering::Release);
        if overdue.is_empty() {
            return Ok(());
        }
        let (path, count) = (self.path.display(), overdue.len());
        let why = format!("{path}: the device hangs, operations overdue: {count}");
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Time since the begin of the longest operation under way, if it is overdue.
    pub fn hung_for(&self) -> Option<Duration> {
        self.check_not_hung().err()?;
        let first = self.overdue.lock().iter().map(|(since, _)| *since).min()?;
        Some(first.elapsed() + self.patience)
    }

    /// disk-D2: keeps the lane until the kernel returns its buffer.
    fn put_aside(&self, lane: Box<dyn Lane>) {
        let mut overdue = self.overdue.lock();
        overdue.push((Instant::now(), lane));
        self.overdue_count.store(overdue.len(), Ordering::Release);
    }

    /// Carries out all operations, whole (disk-D3), and returns the lane to the caller; after an error it does not.
    fn carry_out(&self, mut lane: Box<dyn Lane>, round: &[Piece]) -> io::Result<Box<dyn Lane>> {
        assert!(!round.is_empty(), "a round has an operation");
        let mut left: Vec<Operation> = round.iter().map(|p| p.operation.clone()).collect();
        let mut results = Vec::new();
        let mut deadline = Instant::now() + self.patience;
        while let Some(first) = left.first() {
            let (verb, offset, len) = (name_of(first.verb), first.offset, first.part.len());
            match lane.run(&left, &mut results, deadline.saturating_duration_since(Instant::now())) {
                Ok(Ended::Done) => {}
                Ok(Ended::Overdue) => {
                    self.put_aside(lane);
                    let why = format!("the device hangs: not done after {:?}", self.patience);
                    let e = io::Error::new(io::ErrorKind::TimedOut, why);
                    return Err(at_place(&self.path, e, verb, offset, len));
                }
                Err(e) => {
                    // Queued operations may still be carried out.
                    if !lane.is_settled() {
                        self.put_aside(lane);
                    }
                    return Err(at_place(&self.path, e, verb, offset, len));
                }
            }
            assert_eq!(results.len(), left.len(), "each operation has its result");
            // A device that makes progress does not hang.
            if results.iter().any(|moved| moved.as_ref().is_ok_and(|bytes| *bytes > 0)) {
                deadline = Instant::now() + self.patience;
            }
            let rest = left.iter().zip(results.drain(..)).filter_map(|(operation, moved)| {
                go_on(operation, moved)
                    .map_err(|e| {
                        let Operation { offset, part, .. } = operation;
                        at_place(&self.path, e, verb, *offset, part.len())
                    })
                    .transpose()
            });
            left = rest.collect::<io::Result<_>>()?;
        }
        Ok(lane)
    }
}

/// Reads one block, to find out whether direct I/O works.
pub fn probe(file: &File) -> io::Result<usize> {
    let mut memory = Buffers::new(1, BLOCK_BYTES)?;
    file.read_at(&mut memory.get(0)[..BLOCK_BYTES], 0)
}

/// The remaining part of an operation (disk-D3).
fn go_on(operation: &Operation, moved: io::Result<usize>) -> io::Result<Option<Operation>> {
    let moved = match moved {
        Ok(moved) => moved,
        Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
            return Ok(Some(operation.clone()));
        }
        Err(e) => return Err(e),
    };
    if moved >= operation.part.len() {
        return Ok(None);
    }
    assert!(operation.part.end <= LANE_BYTES, "an operation lies within its lane's buffer");
    let moved = moved / SECTOR_BYTES * SECTOR_BYTES;
    if moved == 0 {
        let kind = match operation.verb {
            Verb::Read => io::ErrorKind::UnexpectedEof,
            Verb::Write => io::ErrorKind::WriteZero,
        };
        return Err(io::Error::new(kind, "the device moved nothing"));
    }
    let (verb, offset) = (operation.verb, operation.offset + moved as u64);
    Ok(Some(Operation { verb, offset, part: operation.part.start + moved..operation.part.end }))
}

fn name_of(verb: Verb) -> &'static str {
    match verb {
        Verb::Read => "direct read",
        Verb::Write => "direct write",
    }
}

/// Packs parts of `(offset, bytes)` into as few rounds as a lane's buffer allows.
fn rounds(verb: Verb, parts: impl Iterator<Item = (u64, usize)>) -> Vec<Vec<Piece>> {
    let mut rounds = Vec::new();
    let (mut round, mut used) = (Vec::new(), 0);
    for (part, (offset, len)) in parts.enumerate() {
        let mut skip = 0;
        while skip < len {
            if used == LANE_BYTES {
                rounds.push(std::mem::take(&mut round));
                used = 0;
            }
            assert!(used < LANE_BYTES, "a round has space for one more piece");
            let bytes = (len - skip).min(LANE_BYTES - used);
            let operation = Operation { verb, offset: offset + skip as u64, part: used..used + bytes };
            round.push(Piece { part, skip, operation });
            (skip, used) = (skip + bytes, used + bytes);
        }
    }
    if !round.is_empty() {
        rounds.push(round);
    }
    rounds
}
