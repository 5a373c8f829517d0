//! Group flush: one device flush serves all threads whose entries were written before it began.
//!
//! One thread is the flush leader; the others wait. After a flush the leader wakes the threads that it served, and one more, which leads next.
//!
//! Writers that flush each write arrive together, because one flush wakes them all. The first to arrive would flush for itself alone while
//! the others wait for the flush after that. So a leader first waits until as many threads have arrived as last time. It waits at most as
//! long as a flush takes, which the others would wait otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::Seq;

use super::{Volume, VolumeError};

/// Longest wait of a leader for others to arrive, however slow the device is.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// Threads that flush.
#[derive(Debug, Default)]
pub(super) struct Group {
    inner: Mutex<Inner>,
    /// As many threads have arrived as are expected.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// A leader flushes, or waits for others to arrive.
    has_leader: bool,
    waiting: Vec<Waiter>,
    /// Threads that were here at the end of the last flush, served or waiting for the next.
    expected: usize,
    /// Duration of the last flush.
    took: Duration,
}

#[derive(Debug)]
struct Waiter {
    /// The seq that is to be flushed.
    want: u64,
    thread: Thread,
    is_called: Arc<AtomicBool>,
}

impl Waiter {
    /// Wakes the thread.
    fn call(self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Volume {
    /// Makes durable every entry appended before the call, and all data written to the medium before those entries. Returns the
    /// flushed_seq. Does not ask the device if all is flushed already. A failed flush fails the volume for good, since the medium may
    /// have any part of it.
    pub fn flush(&self) -> Result<Seq, VolumeError> {
        self.check_started()?;
        let want = self.last_seq().0;
        loop {
            let mut group = self.group.inner.lock();
            let flushed = self.check_alive().map(|()| self.flushed_seq());
            if flushed.as_ref().map_or(true, |seq| seq.0 >= want) {
                // This thread may have been woken to lead. It need not, so it wakes the next waiter, which would wait for ever otherwise.
                let next = if group.has_leader { None } else { group.waiting.pop() };
                drop(group);
                next.into_iter().for_each(Waiter::call);
                return flushed;
            }
            if !group.has_leader {
                group.has_leader = true;
                while group.waiting.len() + 1 < group.expected {
                    let at_most = group.took.min(GATHER_MAX);
                    if self.group.gathered.wait_for(&mut group, at_most).timed_out() {
                        break;
                    }
                }
                drop(group);
                self.flush_for_group()?;
                continue;
            }
            // The flush under way may have begun before this thread's entry was written. Then the next one serves it.
            let is_called = Arc::new(AtomicBool::new(false));
            group.waiting.push(Waiter { want, thread: std::thread::current(), is_called: is_called.clone() });
            if group.waiting.len() + 1 == group.expected {
                self.group.gathered.notify_one();
            }
            drop(group);
            while !is_called.load(Ordering::Acquire) {
                std::thread::park();
            }
        }
    }

    /// The leader's flush. Afterwards it wakes the threads that it served, and one more to lead next. A failed flush wakes all of them.
    fn flush_for_group(&self) -> Result<(), VolumeError> {
        let began = Instant::now();
        let done = self.flush_now();
        let mut called = Vec::new();
        {
            let mut group = self.group.inner.lock();
            group.took = began.elapsed();
            group.expected = group.waiting.len() + 1;
            group.has_leader = false;
            let flushed = self.flushed_seq().0;
            let is_done = |w: &mut Waiter| w.want <= flushed || done.is_err();
            called.extend(group.waiting.extract_if(.., is_done));
            called.extend(group.waiting.pop());
        }
        called.into_iter().for_each(Waiter::call);
        done
    }

    /// disk-M3: flushes the data's medium first.
    pub(super) fn flush_media(&self) -> Result<(), VolumeError> {
        self.disk.flush().map_err(|e| self.fail("flush", e))?;
        if !Arc::ptr_eq(&self.disk, &self.log) {
            self.log.flush().map_err(|e| self.fail("flush of the log's medium", e))?;
        }
        Ok(())
    }

    /// One device flush, which raises flushed_seq and sealed_seq.
    pub(super) fn flush_now(&self) -> Result<(), VolumeError> {
        self.check_alive()?;
        // disk-V3, disk-V7: read before the flush begins. Entries up to `seq` are written, and one of them has the mark.
        let mark = self.seen.mark.load(Ordering::Acquire);
        let seq = self.seen.seq.load(Ordering::Acquire);
        self.flush_media()?;
        assert!(mark <= seq, "disk-V3: a mark speaks of entries before the one that has it");
        self.flushed_seq.fetch_max(seq, Ordering::AcqRel);
        self.sealed_seq.fetch_max(mark, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{formatted, started};
    use super::*;

    #[test]
    fn a_thread_woken_to_lead_that_was_served_meanwhile_wakes_the_next() {
        let volume = started(formatted());
        volume.append(types::Epoch(1), b"x").unwrap();
        // As a checkpoint's flush does: it wakes no waiter.
        volume.flush_now().unwrap();
        let is_called = Arc::new(AtomicBool::new(false));
        let waiter = Waiter { want: 2, thread: std::thread::current(), is_called: is_called.clone() };
        volume.group.inner.lock().waiting.push(waiter);
        assert_eq!(volume.flush().unwrap(), Seq(1));
        assert!(is_called.load(Ordering::Acquire), "or that thread would wait for ever");
    }

    #[test]
    fn a_flush_calls_those_it_served_and_one_more() {
        let volume = started(formatted());
        let wait = |want| {
            let is_called = Arc::new(AtomicBool::new(false));
            let waiter = Waiter { want, thread: std::thread::current(), is_called: is_called.clone() };
            volume.group.inner.lock().waiting.push(waiter);
            is_called
        };
        volume.append(types::Epoch(1), b"x").unwrap();
        let all: Vec<_> = [1, 2, 1, 2, 2].into_iter().map(wait).collect();
        volume.flush_for_group().unwrap();
        let called: Vec<bool> = all.iter().map(|c| c.load(Ordering::Acquire)).collect();
        assert_eq!(called, [true, false, true, false, true]);
        assert_eq!(volume.group.inner.lock().expected, 6, "with the leader");
    }
}
