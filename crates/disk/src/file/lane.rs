//! A lane carries out one request's reads and writes: by io_uring, or, where that is forbidden, by a thread with pread(2) and pwrite(2).
//!
//! A lane has a buffer of its own in a huge page. While operations are under way, the buffer belongs to the kernel (or the thread), also
//! after the caller has stopped waiting; `is_settled` says when it is back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ring::{Batch, Buffers, Ended, Operation, Verb};

pub trait Lane: Send {
    /// Panics while operations are under way.
    fn buffer(&mut self) -> &mut [u8];
    /// Carries out the operations on parts of the buffer; `results` gets the bytes that each moved, or means nothing after an error or
    /// `Overdue`.
    fn run(
        &mut self,
        operations: &[Operation],
        results: &mut Vec<io::Result<usize>>,
        patience: Duration,
    ) -> io::Result<Ended>;
    /// Checks, without waiting, whether the buffer is back.
    fn is_settled(&mut self) -> bool;
}

impl Lane for Batch {
    fn buffer(&mut self) -> &mut [u8] {
        Batch::buffer(self)
    }
    fn run(
        &mut self,
        operations: &[Operation],
        results: &mut Vec<io::Result<usize>>,
        patience: Duration,
    ) -> io::Result<Ended> {
        Batch::run(self, operations, results, patience)
    }
    fn is_settled(&mut self) -> bool {
        Batch::is_settled(self)
    }
}

/// Moves bytes between a buffer and a place; returns their number as `pread` and `pwrite` do.
pub type Carry = dyn Fn(Verb, &mut [u8], u64) -> io::Result<usize> + Send + Sync;

pub fn by_calls(file: Arc<File>) -> Arc<Carry> {
    Arc::new(move |verb, bytes, offset| match verb {
        Verb::Read => file.read_at(bytes, offset),
        Verb::Write => file.write_at(bytes, offset),
    })
}

/// A thread that does one operation after the other. It ends when the lane is dropped and its last operation is done. Dropping a lane that
/// has its buffer waits for that: its thread holds the claimed file, and opening the disk again at once would be refused.
pub struct ThreadLane {
    /// `None`: the thread has it.
    memory: Option<Buffers>,
    /// `None`: the lane is being closed.
    to: Option<SyncSender<Load>>,
    from: Receiver<Load>,
    thread: Option<JoinHandle<()>>,
}

/// The buffer on its way to the thread and back.
struct Load {
    memory: Buffers,
    operations: Vec<Operation>,
    results: Vec<io::Result<usize>>,
}

impl ThreadLane {
    pub fn new(carry: Arc<Carry>, bytes: usize) -> io::Result<ThreadLane> {
        let memory = Some(Buffers::new(1, bytes)?);
        // One load exists, so a channel of one place is enough.
        let (to, inbox) = sync_channel::<Load>(1);
        let (outbox, from) = sync_channel(1);
        let thread = std::thread::Builder::new().name("disk-io".into()).spawn(move || {
            while let Ok(mut load) = inbox.recv() {
                let bytes = load.memory.get(0);
                let carry = |o: &Operation| carry(o.verb, &mut bytes[o.part.clone()], o.offset);
                load.results.extend(load.operations.iter().map(carry));
                if outbox.send(load).is_err() {
                    return;
                }
            }
        })?;
        Ok(ThreadLane { memory, to: Some(to), from, thread: Some(thread) })
    }
}

impl Drop for ThreadLane {
    fn drop(&mut self) {
        self.to = None;
        if self.is_settled()
            && let Some(thread) = self.thread.take()
        {
            // The thread has no work left that could panic.
            let _ = thread.join();
        }
    }
}

impl Lane for ThreadLane {
    fn buffer(&mut self) -> &mut [u8] {
        self.memory.as_mut().expect("a buffer in flight is the thread's").get(0)
    }

    fn run(
        &mut self,
        operations: &[Operation],
        results: &mut Vec<io::Result<usize>>,
        patience: Duration,
    ) -> io::Result<Ended> {
        let memory = self.memory.take().expect("a buffer in flight is the thread's");
        let mut load = Load { memory, operations: operations.to_vec(), results: std::mem::take(results) };
        load.results.clear();
        let gone = || io::Error::other("the thread of a disk is gone");
        self.to.as_ref().and_then(|to| to.send(load).ok()).ok_or_else(gone)?;
        // The operations run one after the other, and each may take its time.
        let count = u32::try_from(operations.len()).unwrap_or(u32::MAX).max(1);
        match self.from.recv_timeout(patience.saturating_mul(count)) {
            Ok(load) => {
                (self.memory, *results) = (Some(load.memory), load.results);
                Ok(Ended::Done)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Ended::Overdue),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    fn is_settled(&mut self) -> bool {
        if let Ok(load) = self.from.try_recv() {
            self.memory = Some(load.memory);
        }
        self.memory.is_some()
    }
}
