//! Group flush: who waits is served by one device flush that began after his entries were written.
//!
//! Writers that flush each write come back in step: the flush that serves them wakes them all, and the first to be back would
//! flush for himself alone while the others wait for the next one. So who flushes waits first until as many have come as were
//! here last time; at most as long as a flush takes, which is what the others would wait otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::Seq;

use super::{Volume, VolumeError};

/// Nobody waits longer than this for others to come, however slow the device.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// Where those who flush meet.
#[derive(Debug, Default)]
pub(super) struct Group {
    inner: Mutex<Inner>,
    /// As many are here as are expected.
    gathered: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Someone flushes, or gathers those whom he will flush for.
    is_led: bool,
    waiting: Vec<Waiter>,
    /// How many were here at the end of the last flush, served or waiting for the next.
    expected: usize,
    /// How long the last flush took.
    took: Duration,
}

#[derive(Debug)]
struct Waiter {
    want: u64,
    thread: Thread,
    is_called: Arc<AtomicBool>,
}

impl Waiter {
    fn call(self) {
        self.is_called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Volume {
    /// Makes durable every entry appended before the call, and what was written to the medium before those entries.
    /// Returns the flushed_seq. If all is flushed already the device is not asked. A failed flush fails the volume for good:
    /// nobody can know what it left.
    pub fn flush(&self) -> Result<Seq, VolumeError> {
        self.check_started()?;
        let want = self.last_seq().0;
        loop {
            let mut group = self.group.inner.lock();
            let flushed = self.check_alive().map(|()| self.flushed_seq());
            if flushed.as_ref().map_or(true, |seq| seq.0 >= want) {
                // Who was called to lead, and need not, calls the next.
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
            // The flush under way may have begun before our entry; then the next round is ours.
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

    /// The leader's flush. Afterwards those are called whom it served, or who are to be told that it failed, and of the others one, who
    /// leads next.
    fn flush_for_group(&self) -> Result<(), VolumeError> {
        let began = Instant::now();
        let done = self.flush_now();
        let mut called = Vec::new();
        {
            let mut group = self.group.inner.lock();
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

    /// disk-M3: the data first.
    pub(super) fn flush_media(&self) -> Result<(), VolumeError> {
        self.disk.flush().map_err(|e| self.fail("flush", e))?;
        if !Arc::ptr_eq(&self.disk, &self.log) {
            self.log.flush().map_err(|e| self.fail("flush of the log's medium", e))?;
        }
        Ok(())
    }

    /// One device flush, and what follows from it.
    pub(super) fn flush_now(&self) -> Result<(), VolumeError> {
        self.check_alive()?;
        // Entries up to here were written before the flush begins, and the mark was in one of them: it becomes durable with it (disk-V3, disk-V7).
        let mark = self.seen.mark.load(Ordering::Acquire);
        let seq = self.seen.seq.load(Ordering::Acquire);
        self.flush_media()?;
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
    fn who_is_called_to_lead_and_was_served_meanwhile_calls_the_next() {
        let volume = started(formatted());
        volume.append(types::Epoch(1), b"x").unwrap();
        // As a checkpoint's flush does: nobody who waits is called.
        volume.flush_now().unwrap();
        let is_called = Arc::new(AtomicBool::new(false));
        let waiter = Waiter { want: 2, thread: std::thread::current(), is_called: is_called.clone() };
        volume.group.inner.lock().waiting.push(waiter);
        assert_eq!(volume.flush().unwrap(), Seq(1));
        assert!(is_called.load(Ordering::Acquire), "or he would wait for ever");
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
        assert_eq!(volume.group.inner.lock().expected, 6, "with who flushed");
    }
}
