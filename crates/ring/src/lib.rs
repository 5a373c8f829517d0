//! Reads and writes of files through io_uring, with buffers that the ring owns.
//!
//! A ring has `depth` slots, each with a buffer at a page boundary. The caller takes a slot, fills its buffer, and submits a read or write
//! of a file. After its completion was fetched, the caller may read the buffer, and the slot is free again.
//! Refused: slots in flight, offsets and lengths beyond a buffer. The kernel writes into no other memory:
//! ring-I1. A buffer is lent out only while its slot is not in flight, and is freed only after the kernel is done with it.
//! ring-I2. The ring owns its files, so that a descriptor that was submitted names the same file until its completion.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

mod batch;
mod buffers;
pub use batch::{BATCH_DEPTH, Batch, Ended, Operation, Verb};
pub use buffers::{Buffers, HUGE_PAGE_BYTES};

/// Alignment of buffers: no device of direct I/O needs more.
pub const PAGE_BYTES: usize = 4096;
/// The kernel's bound on entries of a queue.
pub const DEPTH_MAX: u32 = 32_768;

/// Most bytes that one read or write moves on Linux, in whole pages.
pub const BUFFER_BYTES_MAX: usize = (2 << 30) - PAGE_BYTES;

/// A buffer and its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Below the ring's depth.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The result of one operation.
#[derive(Debug)]
pub struct Completion {
    pub slot: Slot,
    /// Bytes that were moved; fewer than requested at a file's end, or after a signal.
    pub result: io::Result<usize>,
}

pub struct Ring {
    uring: IoUring,
    files: Vec<File>,
    /// One per slot. Buffers that the kernel writes into are never part of a lent slice.
    buffers: Buffers,
    in_flight: Vec<bool>,
    flying: usize,
    free: Vec<Slot>,
}

impl Ring {
    /// `depth` operations at once, each of at most `buffer_bytes`. Fails where io_uring is forbidden (`EPERM`, `ENOSYS`) or locked
    /// memory is short (`ENOMEM`).
    pub fn new(depth: u32, buffer_bytes: usize) -> io::Result<Ring> {
        if buffer_bytes > BUFFER_BYTES_MAX {
            let why = format!("a buffer of at most {BUFFER_BYTES_MAX} bytes is possible");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if depth == 0 || depth > DEPTH_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a depth of 1 to {DEPTH_MAX} is possible"),
            ));
        }
        let buffers = Buffers::new(depth as usize, buffer_bytes)?;
        let uring = IoUring::new(depth.next_power_of_two())?;
        let free = (0..depth).rev().map(Slot).collect();
        let in_flight = vec![false; depth as usize];
        Ok(Ring { uring, files: Vec::new(), buffers, in_flight, flying: 0, free })
    }

    /// Takes over a file; operations refer to it by the returned number.
    pub fn add_file(&mut self, file: File) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    pub fn file(&self, number: usize) -> &File {
        &self.files[number]
    }

    /// Closes all files. Panics while operations are in flight (ring-I2).
    pub fn close_files(&mut self) {
        assert_eq!(self.flying, 0, "a file in flight is the kernel's");
        self.files.clear();
    }

    /// Takes a slot that is neither in flight nor taken, if there is one.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Returns a slot that was taken or whose completion was fetched.
    pub fn give_back(&mut self, slot: Slot) {
        assert!(!self.in_flight[slot.index()], "a slot in flight is the kernel's");
        self.free.push(slot);
    }

    /// Operations that were submitted and whose completions were not fetched.
    pub fn flying(&self) -> usize {
        self.flying
    }

    /// The slot's buffer. Panics while it is in flight (ring-I1).
    pub fn buffer(&mut self, slot: Slot) -> &mut [u8] {
        assert!(!self.in_flight[slot.index()], "a buffer in flight is the kernel's");
        self.buffers.get(slot.index())
    }

    /// Queues a read of `len` bytes at `offset` of a file into the slot's buffer. The next `wait` submits it.
    pub fn read(&mut self, slot: Slot, file: usize, offset: u64, len: usize) -> io::Result<()> {
        let fd = types::Fd(self.files[file].as_raw_fd());
        let buffer = self.buffer(slot)[..len].as_mut_ptr();
        self.push(slot, opcode::Read::new(fd, buffer, len as u32).offset(offset).build())
    }

    /// Queues a write of the first `len` bytes of the slot's buffer.
    pub fn write(&mut self, slot: Slot, file: usize, offset: u64, len: usize) -> io::Result<()> {
        let fd = types::Fd(self.files[file].as_raw_fd());
        let buffer = self.buffer(slot)[..len].as_ptr();
        self.push(slot, opcode::Write::new(fd, buffer, len as u32).offset(offset).build())
    }

    /// Queues a flush of a file; it covers writes that have completed.
    pub fn fsync(&mut self, slot: Slot, file: usize) -> io::Result<()> {
        let fd = types::Fd(self.files[file].as_raw_fd());
        self.push(slot, opcode::Fsync::new(fd).build())
    }

    fn push(&mut self, slot: Slot, entry: io_uring::squeue::Entry) -> io::Result<()> {
        assert!(!self.in_flight[slot.index()], "one operation per slot");
        let entry = entry.user_data(u64::from(slot.0));
        // JUSTIFICATION: the only way to hand an operation to io_uring; with 16 in flight one thread does the work of 16 threads with
        // pread(2). SAFETY: `push` demands that the operation's memory and file stay valid until its completion. The buffer is part of
        // memory that is never moved or resized. It is lent out only while its slot is not in flight (`buffer`, ring-I1), and freed by
        // `drop` only after all completions were fetched; the lengths were checked by the slices above. The file is in `files`, and is not
        // removed before that (ring-I2).
        #[expect(unsafe_code, reason = "see above")]
        unsafe { self.uring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the submission queue is full: it has as many places as slots"))?;
        self.in_flight[slot.index()] = true;
        self.flying += 1;
        Ok(())
    }

    /// Submits queued operations and waits for one completion. `None` if nothing is in flight.
    pub fn wait(&mut self) -> io::Result<Option<Completion>> {
        if self.flying == 0 {
            return Ok(None);
        }
        loop {
            // A quarter of the depth is submitted at once, so that the device does not idle while completions are handled. Fewer wait for
            // others, or for the call below, which waits anyway once nothing else is in flight.
            let queued = self.uring.submission().len();
            if queued * 4 >= self.buffers.count() && queued < self.flying {
                self.enter(0)?;
            }
            if let Some(done) = self.uring.completion().next() {
                let slot = Slot(done.user_data() as u32);
                self.in_flight[slot.index()] = false;
                self.flying -= 1;
                let result = match done.result() {
                    code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
                    moved => Ok(moved as usize),
                };
                return Ok(Some(Completion { slot, result }));
            }
            self.enter(1)?;
        }
    }

    fn enter(&mut self, wait_for: usize) -> io::Result<()> {
        match self.uring.submit_and_wait(wait_for) {
            Ok(_) => Ok(()),
            // A signal, or the kernel is short of memory for a moment: nothing is lost, and the caller tries again.
            Err(error)
                if matches!(
                    error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
                    Some(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.flying > 0 {
            if self.wait().is_err() {
                // The kernel may still write into the buffers: they are kept for ever (ring-I1).
                self.buffers.keep_for_ever();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
