//! Small writes: their bytes go into the log entry, and to memory. One sequential device write serves many of them. The destager moves
//! the bytes to the data region later, in large writes (destage.rs).
//!
//! store-W1: space for a patch is promised before it is acknowledged, so that destaging never lacks space.
//! store-W2: the fuller overlay and log are, the longer a small write waits, and when they are full its thread destages. So writes slow
//! down before the log is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use types::PAGE_SIZE;

use crate::records::codec::{OBJECT_BYTES_MAX, PATCHED_PAGE_BYTES};
use crate::records::error::StoreError;
use crate::records::patch::Fragment;
use crate::records::record::{PatchRecord, Record, cuts};
use crate::state::engine::{Engine, Stop};
use crate::state::room::Wish;
use crate::verbs::write::Written;
use crate::{Done, Write};

/// Fill level of overlay or log, per mille, from which on the destager works.
pub(crate) const FILL_PRESSED: u64 = 500;
/// From this level on writes wait for the destager, the longer the fuller.
const FILL_SLOW: u64 = 700;
/// From this level on writers destage themselves.
const FILL_FULL: u64 = 900;
/// The longest wait below `FILL_FULL`.
const WAIT_MAX: Duration = Duration::from_millis(4);
/// Rounds that a writer destages before its write goes to the data region instead.
const HELP_ROUNDS_MAX: usize = 4;

/// State of the pages of a small write.
struct Lacking {
    /// Pages without bytes and without reserved space.
    pages: u32,
    /// Pages without a promise of space: neither patched nor reserved.
    unpromised: u64,
    /// Pages without space in the index yet: neither patched nor reserved.
    unindexed: u64,
    /// The index has the object.
    exists: bool,
    /// The write covers whole pages only, and none of them has bytes.
    is_fresh: bool,
}

impl Engine {
    /// Logs a small write; `None` if the caller should write it to the data region instead.
    pub(crate) fn write_small(&self, w: &Write<'_>) -> Result<Option<Done>, StoreError> {
        if w.data.len() as u64
            >= self.tuned.patch_bytes_max.load(Ordering::Relaxed).min(self.overlay_bytes_max() / 8)
        {
            return Ok(None);
        }
        let cuts = cuts(w.offset, w.data.len());
        let found = self.lacking_small(w, &cuts);
        // In a mirror a change that comes alone costs a trip to the other member under the tail's lock, and patches share one.
        let goes_whole = self.settings.patch_whole || self.is_mirrored();
        if !goes_whole && cuts.iter().all(|(_, _, len)| *len == PAGE_SIZE) {
            return Ok(None);
        }
        if found.is_fresh && w.data.len() > self.settings.patch_new_bytes_max as usize {
            return Ok(None);
        }
        if !self.admit_patch()? {
            return Ok(None);
        }
        // The bytes are copied before any lock is taken.
        let mut rest = w.data;
        let fragments = cuts.iter().zip(w.crcs).map(|((page, skip, len), crc)| {
            let (now, later) = rest.split_at(*len);
            rest = later;
            Fragment::new(*page, *skip, now, *crc)
        });
        let record = Arc::new(Record::Patch(PatchRecord {
            object: w.object,
            offset: w.offset,
            mtime: w.mtime,
            lease: w.lease,
            fragments: fragments.collect(),
        }));
        let end = w.offset + w.data.len() as u64;
        let mut found = found;
        loop {
            if !found.exists || found.unindexed > 0 {
                self.check_index_room(OBJECT_BYTES_MAX + found.unindexed * PATCHED_PAGE_BYTES, Wish::Write)?;
            }
            // store-W1
            let held = self.hold(found.unpromised, w.holder)?;
            let done = self.commit(w.origin, record.clone(), || {
                let attrs = self.pass_gate(&w.object, w.gate)?;
                let now = self.lacking_small(w, &cuts);
                if now.unpromised > held.pages {
                    return Err(Stop::Again);
                }
                let (len, granted) = (attrs.len.max(end), held.is_granted());
                Ok(Written { len, pages: now.pages, granted }.to_answer())
            });
            match done {
                Ok(done) => {
                    held.keep();
                    self.recorder.patched(w.data.len());
                    return Ok(Some(done));
                }
                // A new round means that another thread has cut, punched or destaged here.
                Err(Stop::Again) => found = self.lacking_small(w, &cuts),
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
    }

    fn lacking_small(&self, w: &Write<'_>, cuts: &[(u32, usize, usize)]) -> Lacking {
        let all = cuts.len() as u64;
        let is_whole = cuts.iter().all(|(_, _, len)| *len == PAGE_SIZE);
        let Some(object) = self.index.get(&w.object) else {
            return Lacking {
                pages: all as u32,
                unpromised: all,
                unindexed: all,
                exists: false,
                is_fresh: is_whole,
            };
        };
        let state = object.read();
        let (first, limit) = (cuts[0].0, cuts[0].0 + all as u32);
        let reserved = state.reserved.count(first, limit);
        let has = state.count(first, limit);
        let patched = state.patches.range(first, limit).count() as u64;
        debug_assert!(has + reserved <= all, "a reserved page has no bytes");
        debug_assert!(patched + reserved <= all, "a reserved page has no patch");
        Lacking {
            pages: (all - has - reserved) as u32,
            unpromised: all - patched - reserved,
            unindexed: all - patched - reserved,
            exists: true,
            is_fresh: is_whole && has == 0,
        }
    }

    /// store-W2. False if overlay or log have no space for the write.
    fn admit_patch(&self) -> Result<bool, StoreError> {
        for _ in 0..HELP_ROUNDS_MAX {
            let fill = self.fullness();
            if fill < FILL_PRESSED {
                return Ok(true);
            }
            self.overlay.ring();
            if fill < FILL_SLOW {
                return Ok(true);
            }
            if fill < FILL_FULL {
                self.overlay
                    .wait_eased(WAIT_MAX * (fill - FILL_SLOW) as u32 / (FILL_FULL - FILL_SLOW) as u32);
                return Ok(true);
            }
            let _wait = spent::waiting(spent::Cause::Log);
            match self.help() {
                Ok(true) => {}
                Err(e @ StoreError::Volume(_)) => return Err(e),
                // The host of a sparse medium may be full, or the place of another patch unwritable. The write goes to the data region
                // and gets an error of its own there, if any.
                Ok(false) | Err(_) => return Ok(false),
            }
        }
        Ok(self.fullness() < FILL_FULL)
    }

    /// The fill level of overlay or log, whichever is fuller, per mille of the share of small writes. They may take three quarters of
    /// the log; the rest is for entries that must always find space there.
    pub(crate) fn fullness(&self) -> u64 {
        let overlay = self.overlay.pages() * PAGE_SIZE as u64 * 1000 / self.overlay_bytes_max();
        let log = self.vol.log_used() * 4000 / (self.vol.log_capacity() * 3);
        overlay.max(log)
    }

    pub(crate) fn overlay_bytes_max(&self) -> u64 {
        self.tuned.overlay_bytes_max.load(Ordering::Relaxed).min(self.vol.log_capacity() / 2).max(1)
    }
}
