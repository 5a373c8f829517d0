//! Giving freed space back to the medium, which under a sparse file is the host's.
//!
//! store-D1: a run is taken out of the free space while it is discarded, so nobody's bytes can be in it. store-D2: only what no recovery wants
//! to see is ever free (store-O1), so a discard is as safe as a reuse. store-D3: which space is due is `disk::freed`'s to say: none that was just
//! freed, and all in the end, also what an earlier process freed. store-D4: so much stays free meanwhile that no writer misses what is out.
//! store-D5: what a hung device may yet discard stays out until the next start.

use std::io::ErrorKind;

use disk::alloc::{Buddy, Run};
use disk::freed::RUNS_MAX;
use types::PAGE_SIZE;

use crate::records::error::StoreError;
use crate::state::engine::Engine;
use crate::state::space::{Space, reserve_pages};

impl Space {
    /// store-D1: takes out the next run to discard.
    fn take_discardable(&mut self) -> Option<Run> {
        let (promised, total) = (self.promised_pages(), self.total_pages());
        // store-D4
        let may =
            |buddy: &Buddy| buddy.free_pages().saturating_sub(promised) >= total / 8 + reserve_pages(total);
        self.freed.take(&mut self.buddy, may)
    }

    fn return_discarded(&mut self, run: Run) {
        self.freed.return_run(&mut self.buddy, run);
    }
}

impl Engine {
    /// A round: discards some of what was freed a while ago and is free still.
    pub(crate) fn discard_freed(&self) -> Result<(), StoreError> {
        let _one = self.discarding.lock();
        let is_short = disk::is_host_short(&**self.vol.disk());
        self.space.lock().freed.age(is_short);
        for _ in 0..RUNS_MAX {
            let Some(run) = self.space.lock().take_discardable() else { break };
            let (at, len) = (self.at(run.start), run.pages as u64 * PAGE_SIZE as u64);
            let done = self.vol.disk().discard(at, len);
            // store-D5: else it could erase what was written there meanwhile, and acknowledged.
            match done.as_ref().is_err_and(|e| e.kind() == ErrorKind::TimedOut) {
                true => self.vol.check_media()?,
                false => self.space.lock().return_discarded(run),
            }
            done.map_err(|source| StoreError::Discard { at, source })?;
        }
        Ok(())
    }
}
