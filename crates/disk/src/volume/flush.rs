//! Group flush: who waits is served by one device flush that began after his entries were written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::Seq;

use super::{Volume, VolumeError};

impl Volume {
    /// Makes durable every entry appended before the call, and what was written to the medium before those entries.
    /// Returns the flushed_seq. If all is flushed already the device is not asked. A failed flush fails the volume for good:
    /// nobody can know what it left.
    pub fn flush(&self) -> Result<Seq, VolumeError> {
        let want = {
            let tail = self.tail.lock();
            tail.check_started()?;
            tail.seq
        };
        let mut running = self.flushing.lock();
        loop {
            self.check_alive()?;
            let flushed = self.flushed_seq();
            if flushed.0 >= want {
                return Ok(flushed);
            }
            if *running {
                // The flush under way may have begun before our entry; then the next round is ours.
                self.flush_ended.wait(&mut running);
                continue;
            }
            *running = true;
            drop(running);
            let done = self.flush_now();
            running = self.flushing.lock();
            *running = false;
            self.flush_ended.notify_all();
            done?;
        }
    }

    /// M3: the data first.
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
        // Entries up to here were written before the flush begins; the last one's mark becomes durable with it (V3, V7).
        let (seq, mark) = {
            let tail = self.tail.lock();
            (tail.seq, tail.mark)
        };
        self.flush_media()?;
        self.flushed_seq.fetch_max(seq, Ordering::AcqRel);
        self.sealed_seq.fetch_max(mark, Ordering::AcqRel);
        Ok(())
    }
}
