//! Several reads and writes of one file carried out at once, out of and into one buffer that the batch owns, with a deadline.
//!
//! A batch has one buffer. The caller fills it, names the operations and the part of the buffer of each, and gets all results
//! together. If none of them completes for a time that the caller sets, the call returns `Overdue`; the kernel keeps the buffer.
//! ring-B1. The buffer is lent out only while no operation is under way, and is freed only after the kernel is done with it.
//! ring-B2. Until then the batch holds the file open, so that its descriptor names the same file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;

use crate::Buffers;

/// Operations of one batch that the kernel holds at once; further ones wait.
pub const BATCH_DEPTH: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Write,
}

/// One operation: `part` of the buffer and as many bytes at `offset` of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub verb: Verb,
    pub offset: u64,
    pub part: Range<usize>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every operation has its result.
    Done,
    /// The kernel still has some operations, and the buffer.
    Overdue,
}

pub struct Batch {
    uring: IoUring,
    file: Arc<File>,
    memory: Buffers,
    flying: usize,
}

impl Batch {
    /// A batch with a buffer of at least `bytes`. Fails where io_uring is forbidden (`EPERM`, `ENOSYS`) or too old (`EOPNOTSUPP`).
    pub fn new(file: Arc<File>, bytes: usize) -> io::Result<Batch> {
        let memory = Buffers::new(1, bytes)?;
        let uring = IoUring::new(BATCH_DEPTH)?;
        if !uring.params().is_feature_ext_arg() {
            // Linux 5.10 and older cannot wait with a deadline.
            return Err(Errno::OPNOTSUPP.into());
        }
        Ok(Batch { uring, file, memory, flying: 0 })
    }

    /// The buffer. Panics while operations are under way (ring-B1).
    pub fn buffer(&mut self) -> &mut [u8] {
        assert_eq!(self.flying, 0, "a buffer in flight is the kernel's");
        self.memory.get(0)
    }

    /// Carries out `operations` and writes to `results`, in their order, how many bytes each moved. Parts of reads must not overlap others.
    /// After an error or `Overdue` the results mean nothing.
    pub fn run(
        &mut self,
        operations: &[Operation],
        results: &mut Vec<io::Result<usize>>,
        patience: Duration,
    ) -> io::Result<Ended> {
        let mut deadline = Instant::now() + patience;
        let memory = self.buffer();
        let (memory, bytes) = (memory.as_mut_ptr(), memory.len());
        assert!(
            operations.iter().all(|o| o.part.start <= o.part.end && o.part.end <= bytes),
            "a part of the buffer"
        );
        results.clear();
        results.resize_with(operations.len(), || Ok(0));
        let mut waiting = operations.iter().enumerate();
        let mut done = 0;
        while done < operations.len() {
            while self.flying < BATCH_DEPTH as usize
                && let Some((number, operation)) = waiting.next()
            {
                self.push(number, operation, memory.wrapping_add(operation.part.start))?;
            }
            // Waits for all operations that are out, so that one call serves the whole batch.
            let is_overdue = self.enter(self.flying, deadline)?;
            let before = done;
            for completion in self.uring.completion() {
                self.flying -= 1;
                done += 1;
                let moved = completion.result();
                results[completion.user_data() as usize] = match moved {
                    code if code < 0 => Err(io::Error::from_raw_os_error(-code)),
                    moved => Ok(moved as usize),
                };
            }
            // A slow device that makes progress does not hang.
            if done > before {
                deadline = Instant::now() + patience;
            } else if is_overdue {
                return Ok(Ended::Overdue);
            }
        }
        Ok(Ended::Done)
    }

    /// Checks, without waiting, whether the kernel has returned all operations.
    pub fn is_settled(&mut self) -> bool {
        // The call makes the kernel post completions; its error says nothing about the operations.
        let _ = self.uring.submitter().submit_with_args(0, &SubmitArgs::new());
        self.flying -= self.uring.completion().count();
        self.flying == 0
    }

    /// `memory` is where the operation's part begins; `run` has checked that the part is within the buffer.
    fn push(&mut self, number: usize, operation: &Operation, memory: *mut u8) -> io::Result<()> {
        let len = operation.part.len() as u32;
        let file = Fd(self.file.as_raw_fd());
        let entry: squeue::Entry = match operation.verb {
            Verb::Read => opcode::Read::new(file, memory, len).offset(operation.offset).build(),
            Verb::Write => opcode::Write::new(file, memory, len).offset(operation.offset).build(),
        };
        let entry = entry.user_data(number as u64);
        // JUSTIFICATION: the only way to hand an operation to io_uring; one call carries out all scattered parts of a request at once, and
        // it can be waited for with a deadline, which pread(2) cannot.
        // SAFETY: `push` demands that the operation's memory and file stay valid until its completion. The memory is never moved or
        // resized, lent out only while nothing is in flight (`buffer`, ring-B1), and kept for ever by `drop` if something still is; `run`
        // checked the part. The file is held likewise (ring-B2).
        #[expect(unsafe_code, reason = "see above")]
        unsafe { self.uring.submission().push(&entry) }.map_err(|_| {
            io::Error::other("the submission queue is full: it has as many places as may fly")
        })?;
        self.flying += 1;
        Ok(())
    }

    /// Submits queued operations and waits for `want` completions; true if the deadline came first.
    fn enter(&mut self, want: usize, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::from(left);
        match self.uring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&left)) {
            Ok(_) => Ok(false),
            Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::TIME) => Ok(true),
                // A signal, or the kernel is short of memory for a moment: nothing is lost, and the caller tries again.
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(Instant::now() > deadline),
                _ => Err(e),
            },
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.is_settled() {
            // The kernel may still write into the buffer: memory (ring-B1) and descriptor (ring-B2) are kept for ever.
            self.memory.keep_for_ever();
            std::mem::forget(self.file.clone());
        }
    }
}
