//! Discarding freed space (TRIM), which for a sparse file returns it to the host file system.
//!
//! store-D1: a run is out of the allocator while it is discarded, so no write can use it. store-D2: no page that a recovery may read is
//! ever free (store-O1), so a discard is as safe as a reuse. store-D3: `disk::freed` decides which space is due: none that was just freed,
//! and in the end all of it, also space that an earlier process freed. store-D4: enough space stays free meanwhile that no writer misses
//! the run being discarded. store-D5: a run that a hung device may still discard stays out of the allocator until the next start.

use std::io::ErrorKind;

use disk::alloc::{Buddy, Run};
use disk::freed::RUNS_MAX;
use types::PAGE_SIZE;

use crate::records::error::StoreError;
use crate::state::engine::Engine;
use crate::state::space::{Space, reserve_pages};

impl Space {
    /// store-D1: takes the next run to discard out of the allocator.
    fn take_discardable(&mut self) -> Option<Run> {
        let (promised, total) = (self.promised_pages(), self.total_pages());
        // store-D4
        let may =
            |buddy: &Buddy| buddy.free_pages().saturating_sub(promised) >= total / 8 + reserve_pages(total);
        let run = self.freed.take(&mut self.buddy, may)?;
        assert!(run.end() <= total, "store-D1: only the data region is discarded");
        assert!(self.promised_pages() <= self.free_pages(), "store-D4: promised pages stay free meanwhile");
        Some(run)
    }

    fn return_discarded(&mut self, run: Run) {
        self.freed.return_run(&mut self.buddy, run);
    }
}

impl Engine {
    /// One round: discards up to `RUNS_MAX` runs that were freed a while ago and are still free.
    pub(crate) fn discard_freed(&self) -> Result<(), StoreError> {
        let _one = self.discarding.lock();
        let is_short = disk::is_host_short(&**self.vol.disk());
        self.space.lock().freed.age(is_short);
        for _ in 0..RUNS_MAX {
            let Some(run) = self.space.lock().take_discardable() else { break };
            let (at, len) = (self.at(run.start), run.pages as u64 * PAGE_SIZE as u64);
            let done = self.vol.disk().discard(at, len);
            // store-D5: a late discard would erase data written there since, and acknowledged.
            match done.as_ref().is_err_and(|e| e.kind() == ErrorKind::TimedOut) {
                true => self.vol.check_media()?,
                false => self.space.lock().return_discarded(run),
            }
            done.map_err(|source| StoreError::Discard { at, source })?;
        }
        Ok(())
    }
}
