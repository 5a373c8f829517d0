//! Group flush: one device flush serves all threads whose entries were written before it began.
//!
//! Threads that flush after each write come back in step: a flush that serves them wakes them all. The first to return would flush
//! for itself alone, and the others would wait for the flush after that one. The flush leader therefore waits first, until as many threads
//! have arrived as at the last flush (at most `GATHER_MAX`). It waits at most as long as one flush takes, which is what the others would wait otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
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
    /// Called when flushes are parked that no thread is about to serve.
    on_parked: OnceLock<Hook>,
}

struct Hook(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// A flush leader is flushing, or waits for other threads.
    is_led: bool,
    /// Threads that wait for the flush under way, or for the next one.
    waiting: Vec<Waiter>,
    /// The same without threads.
    parked: Vec<Parked>,
    /// Threads that took part in the last flush or waited for the next one when it ended.
    expected: usize,
    /// Duration of the last flush.
    took: Duration,
}

/// Called once the entries are durable, or the volume has failed.
pub type OnFlushed = Box<dyn FnOnce(Result<Seq, VolumeError>) + Send>;

/// A flush that is waited for without a thread.
struct Parked {
    want: u64,
    done: OnFlushed,
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parked {}", self.want)
    }
}

impl Inner {
    fn arrived(&self) -> usize {
        self.waiting.len() + self.parked.len() + 1
    }

    /// Those whose entries are durable, with the log durable up to position `flushed`; all if the volume has failed.
    fn take_parked(&mut self, flushed: u64, has_failed: bool) -> Vec<Parked> {
        self.parked.extract_if(.., |p| p.want <= flushed || has_failed).collect()
    }
}

/// A thread that is parked until a leader wakes it.
#[derive(Debug)]
struct Waiter {
    /// The position up to which the log must be flushed before the thread may return.
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
        self.flush_or_park(|| None).expect("a flush that is not parked has ended")
    }

    /// As `flush`, but if another thread flushes now, it parks what `park` returns (called under a lock), and returns `None`.
    pub fn flush_or_park(
        &self,
        park: impl FnOnce() -> Option<OnFlushed>,
    ) -> Option<Result<Seq, VolumeError>> {
        if let Err(e) = self.check_started() {
            self.end_parked();
            return Some(Err(e));
        }
        let want = self.seen.pos.load(Ordering::Acquire);
        let mut park = Some(park);
        loop {
            let mut group = self.group.inner.lock();
            let flushed_pos = self.flushed_pos.load(Ordering::Acquire);
            let flushed = self.check_alive().map(|()| self.flushed_seq());
            if flushed.is_err() || flushed_pos >= want {
                // A thread that needs no flush, or finds the volume failed, passes leadership to a waiter.
                let next = if group.is_led { None } else { group.waiting.pop() };
                let done = group.take_parked(flushed_pos, flushed.is_err());
                drop(group);
                next.into_iter().for_each(Waiter::call);
                self.call_parked(done);
                self.tell_parked();
                return Some(flushed);
            }
            if !group.is_led {
                group.is_led = true;
                let wait = spent::waiting(spent::Cause::Device);
                while group.arrived() < group.expected {
                    let at_most = group.took.min(GATHER_MAX);
                    if self.group.gathered.wait_for(&mut group, at_most).timed_out() {
                        break;
                    }
                }
                drop(group);
                drop(wait);
                if let Err(e) = self.flush_for_group() {
                    return Some(Err(e));
                }
                continue;
            }
            if let Some(done) = park.take().and_then(|park| park()) {
                group.parked.push(Parked { want, done });
                if group.arrived() == group.expected {
                    self.group.gathered.notify_one();
                }
                return None;
            }
            // The flush under way may have begun before this thread's entry was written: then the next one serves it.
            let is_called = Arc::new(AtomicBool::new(false));
            group.waiting.push(Waiter { want, thread: std::thread::current(), is_called: is_called.clone() });
            if group.arrived() == group.expected {
                self.group.gathered.notify_one();
            }
            drop(group);
            let _wait = spent::waiting(spent::Cause::Device);
            while !is_called.load(Ordering::Acquire) {
                std::thread::park();
            }
        }
    }

    /// Runs the leader's flush. Afterwards wakes the waiters that it served, or all of them if it failed; and one of the others, which
    /// leads the next flush.
    fn flush_for_group(&self) -> Result<(), VolumeError> {
        let began = Instant::now();
        let done = self.flush_device();
        let mut called = Vec::new();
        let parked;
        {
            let mut group = self.group.inner.lock();
            assert!(group.is_led, "one leader flushes at a time, and only it ends its flush");
            group.took = began.elapsed();
            group.expected = group.arrived();
            group.is_led = false;
            let flushed = self.flushed_pos.load(Ordering::Acquire);
            let is_done = |w: &mut Waiter| w.want <= flushed || done.is_err();
            called.extend(group.waiting.extract_if(.., is_done));
            called.extend(group.waiting.pop());
            parked = group.take_parked(flushed, done.is_err());
        }
        called.into_iter().for_each(Waiter::call);
        self.call_parked(parked);
        self.tell_parked();
        done
    }

    fn call_parked(&self, parked: Vec<Parked>) {
        for Parked { want, done } in parked {
            let flushed = self.check_alive().map(|()| self.flushed_seq());
            assert!(
                flushed.is_err() || self.flushed_pos.load(Ordering::Acquire) >= want,
                "disk-V3: a flush that is told has happened"
            );
            done(flushed);
        }
    }

    /// The volume has failed or is closed: no flush serves parked ones any more.
    fn end_parked(&self) {
        let parked = self.group.inner.lock().take_parked(0, true);
        for Parked { done, .. } in parked {
            done(self.check_started().map(|()| self.flushed_seq()));
        }
    }

    /// `ring` is called when flushes are parked that no thread is about to serve. It has another thread call `flush`, and waits for nothing.
    pub fn on_parked(&self, ring: Box<dyn Fn() + Send + Sync>) {
        // A second hook is not set: a volume has one owner.
        let _ = self.group.on_parked.set(Hook(ring));
    }

    fn tell_parked(&self) {
        if self.has_parked() {
            self.group.on_parked.get().into_iter().for_each(|hook| (hook.0)());
        }
    }

    /// True if flushes are parked that no thread is about to serve.
    pub fn has_parked(&self) -> bool {
        let group = self.group.inner.lock();
        !group.is_led && group.waiting.is_empty() && !group.parked.is_empty()
    }

    /// disk-M3: flushes the data's medium first.
    pub(super) fn flush_media(&self) -> Result<(), VolumeError> {
        self.disk.flush().map_err(|e| self.fail("flush", e))?;
        if !Arc::ptr_eq(&self.disk, &self.log) {
            self.log.flush().map_err(|e| self.fail("flush of the log's medium", e))?;
        }
        Ok(())
    }

    /// Runs one device flush, and tells the parked flushes that it served.
    pub(super) fn flush_now(&self) -> Result<(), VolumeError> {
        let done = self.flush_device();
        let flushed = self.flushed_pos.load(Ordering::Acquire);
        let parked = self.group.inner.lock().take_parked(flushed, done.is_err());
        self.call_parked(parked);
        done
    }

    /// Runs one device flush, and raises `flushed_seq` and `sealed_seq`.
    fn flush_device(&self) -> Result<(), VolumeError> {
        self.check_alive()?;
        // disk-V3, disk-V7: entries up to `seq` were written before the flush begins, so the flush makes them durable. `mark` is stored in
        // one of them and becomes durable too. The tail lock is not held.
        let pos = self.seen.pos.load(Ordering::Acquire);
        let mark = self.seen.mark.load(Ordering::Acquire);
        let seq = self.seen.seq.load(Ordering::Acquire);
        assert!(mark <= seq, "disk-V3: a flush mark is in an entry that was written");
        self.flush_media()?;
        self.flushed_seq.fetch_max(seq, Ordering::AcqRel);
        self.sealed_seq.fetch_max(mark, Ordering::AcqRel);
        // A thread that sees the position finds its entry among the flushed ones.
        self.flushed_pos.fetch_max(pos, Ordering::AcqRel);
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
        let waiter = Waiter {
            want: volume.seen.pos.load(Ordering::Acquire) + 1,
            thread: std::thread::current(),
            is_called: is_called.clone(),
        };
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
        let end = volume.seen.pos.load(Ordering::Acquire);
        let all: Vec<_> = [end, end + 1, end, end + 1, end + 1].into_iter().map(wait).collect();
        volume.group.inner.lock().is_led = true;
        volume.flush_for_group().unwrap();
        let called: Vec<bool> = all.iter().map(|c| c.load(Ordering::Acquire)).collect();
        assert_eq!(called, [true, false, true, false, true]);
        assert_eq!(volume.group.inner.lock().expected, 6, "five waiters and the leader");
    }

    /// Parks a flush while another thread leads. The list gets its outcome.
    fn park(volume: &Volume, told: &Arc<Mutex<Vec<Result<u64, ()>>>>) {
        let told = told.clone();
        volume.group.inner.lock().is_led = true;
        let done = move |flushed: Result<Seq, VolumeError>| {
            told.lock().push(flushed.map(|seq| seq.0).map_err(drop));
        };
        assert!(volume.flush_or_park(|| Some(Box::new(done))).is_none(), "it is parked");
    }

    #[test]
    fn a_parked_flush_is_told_by_the_first_flush_that_has_its_entries() {
        let volume = started(formatted());
        let (told, rung) = (Arc::default(), Arc::new(std::sync::atomic::AtomicU32::new(0)));
        let count = rung.clone();
        volume.on_parked(Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst)));
        volume.append(types::Epoch(1), b"one").unwrap();
        park(&volume, &told);
        assert!(!volume.has_parked(), "the leader serves it");
        volume.flush_for_group().unwrap();
        assert_eq!(*told.lock(), [Ok(1)]);
        // Entries that came while the device flushed are left to the next flush, which another thread must lead.
        volume.append(types::Epoch(1), b"two").unwrap();
        park(&volume, &told);
        // As if its entry had been written while the first flush ran.
        let end = volume.seen.pos.load(Ordering::Acquire);
        volume.group.inner.lock().parked[0].want = end + 1;
        volume.flush_for_group().unwrap();
        assert_eq!((told.lock().len(), volume.has_parked()), (1, true));
        assert_eq!(rung.load(Ordering::SeqCst), 1, "another thread is asked to lead");
        volume.append(types::Epoch(1), b"three").unwrap();
        assert_eq!(volume.flush().unwrap(), Seq(3));
        assert_eq!((told.lock()[1], volume.has_parked()), (Ok(3), false));
    }

    #[test]
    fn parked_flushes_end_when_the_volume_fails() {
        let disk = Arc::new(crate::FaultyDisk::new(formatted()));
        let volume = started(disk.clone());
        let told = Arc::default();
        volume.append(types::Epoch(1), b"one").unwrap();
        park(&volume, &told);
        disk.fail(crate::Op::Flush, crate::When::Always);
        volume.flush_for_group().unwrap_err();
        assert_eq!(*told.lock(), [Err(())]);
    }

    #[test]
    fn parked_flushes_end_with_a_checkpoint_or_a_closed_volume() {
        let volume = started(formatted());
        let told = Arc::default();
        volume.append(types::Epoch(1), b"one").unwrap();
        park(&volume, &told);
        volume.flush_now().unwrap();
        assert_eq!(*told.lock(), [Ok(1)]);
        volume.append(types::Epoch(1), b"two").unwrap();
        park(&volume, &told);
        volume.group.inner.lock().is_led = false;
        volume.close_clean().unwrap();
        volume.flush().unwrap_err();
        assert_eq!(told.lock().len(), 2, "{:?}", told.lock());
    }

    #[test]
    fn a_flush_that_nobody_leads_is_carried_out_and_not_parked() {
        let volume = started(formatted());
        volume.append(types::Epoch(1), b"one").unwrap();
        let flushed = volume.flush_or_park(|| unreachable!("nothing is under way"));
        assert_eq!(flushed.expect("carried out").unwrap(), Seq(1));
    }
}
