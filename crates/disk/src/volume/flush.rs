//! Group flush: one device flush serves all threads whose entries were written before it began.
//!
//! Threads that flush after each write come back in step: a flush that serves them wakes them all. The first to return would flush
//! for itself alone, and the others would wait for the flush after that one. The flush leader therefore waits first, until as many threads
//! have arrived as at the last flush (at most `GATHER_MAX`). It waits at most as long as one flush takes, which is what the others would wait otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::Seq;

use super::{Volume, VolumeError};

/// Longest time that a flush leader waits for other threads, however slow the device is.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// The threads that want a flush.
#[derive(Debug, Default)]
pub(super) struct Group {
    inner: Mutex<Inner>,
    /// Signalled when the expected number of threads has arrived.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// A flush leader is flushing, or waits for other threads.
    is_led: bool,
    /// Threads that wait for the flush under way, or for the next one.
    waiting: Vec<Waiter>,
    /// Threads that took part in the last flush or waited for the next one when it ended.
    expected: usize,
    /// Duration of the last flush.
    took: Duration,
}

/// A thread that is parked until a leader wakes it.
#[derive(Debug)]
struct Waiter {
    /// The seq that must be flushed before the thread may return.
    want: u64,
    thread: Thread,
    /// Set before the thread is unparked, because `park` may also return without a wake-up.
    is_called: Arc<AtomicBool>,
}

impl Waiter {
    fn call(self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Volume {
    /// Makes durable every entry appended before the call, and everything written to the medium before those entries. Returns the
    /// flushed_seq. If all entries are flushed already, the device is not used. A failed flush fails the volume for good, because it is
    /// unknown which writes it left on the medium.
    pub fn flush(&self) -> Result<Seq, VolumeError> {
        self.check_started()?;
        let want = self.last_seq().0;
        loop {
            let mut group = self.group.inner.lock();
            let flushed = self.check_alive().map(|()| self.flushed_seq());
            if flushed.as_ref().map_or(true, |seq| seq.0 >= want) {
                // A thread that needs no flush, or finds the volume failed, passes leadership to a waiter.
                let next = if group.is_led { None } else { group.waiting.pop() };
                drop(group);
                next.into_iter().for_each(Waiter::call);
                return flushed;
            }
            if !group.is_led {
                group.is_led = true;
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
            // The flush under way may have begun before this thread's entry was written: then the next one serves it.
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

    /// Runs the leader's flush. Afterwards wakes the waiters that it served, or all of them if it failed; and one of the others, which
    /// leads the next flush.
    fn flush_for_group(&self) -> Result<(), VolumeError> {
        let began = Instant::now();
        let done = self.flush_now();
        let mut called = Vec::new();
        {
            let mut group = self.group.inner.lock();
            assert!(group.is_led, "one leader flushes at a time, and only it ends its flush");
            group.took = began.elapsed();
            group.expected = group.waiting.len() + 1;
            group.is_led = false;
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

    /// Runs one device flush, and raises `flushed_seq` and `sealed_seq`.
    pub(super) fn flush_now(&self) -> Result<(), VolumeError> {
        self.check_alive()?;
        // disk-V3, disk-V7: entries up to `seq` were written before the flush begins, so the flush makes them durable. `mark` is stored in
        // one of them and becomes durable too. The tail lock is not held.
        let mark = self.seen.mark.load(Ordering::Acquire);
        let seq = self.seen.seq.load(Ordering::Acquire);
        assert!(mark <= seq, "disk-V3: a flush mark is in an entry that was written");
        self.flush_media()?;
        self.flushed_seq.fetch_max(seq, Ordering::AcqRel);
        self.sealed_seq.fetch_max(mark, Ordering::AcqRel);
        // In this order: both only rise.
        let (sealed, flushed) = (self.sealed_seq(), self.flushed_seq());
        assert!(sealed <= flushed, "disk-V3: an entry is flushed before it is sealed");
        assert!(flushed <= self.last_seq(), "disk-V3: an entry is written before it is flushed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{formatted, started};
    use super::*;

    #[test]
    fn a_waiter_that_is_flushed_already_wakes_the_next_leader() {
        let volume = started(formatted());
        volume.append(types::Epoch(1), b"x").unwrap();
        // As a checkpoint's flush does: it wakes no waiter.
        volume.flush_now().unwrap();
        let is_called = Arc::new(AtomicBool::new(false));
        let waiter = Waiter { want: 2, thread: std::thread::current(), is_called: is_called.clone() };
        volume.group.inner.lock().waiting.push(waiter);
        assert_eq!(volume.flush().unwrap(), Seq(1));
        assert!(is_called.load(Ordering::Acquire), "otherwise the waiter would wait for ever");
    }

    #[test]
    fn a_flush_wakes_the_waiters_it_served_and_one_new_leader() {
        let volume = started(formatted());
        let wait = |want| {
            let is_called = Arc::new(AtomicBool::new(false));
            let waiter = Waiter { want, thread: std::thread::current(), is_called: is_called.clone() };
            volume.group.inner.lock().waiting.push(waiter);
            is_called
        };
        volume.append(types::Epoch(1), b"x").unwrap();
        let all: Vec<_> = [1, 2, 1, 2, 2].into_iter().map(wait).collect();
        volume.group.inner.lock().is_led = true;
        volume.flush_for_group().unwrap();
        let called: Vec<bool> = all.iter().map(|c| c.load(Ordering::Acquire)).collect();
        assert_eq!(called, [true, false, true, false, true]);
        assert_eq!(volume.group.inner.lock().expected, 6, "five waiters and the leader");
    }
}
