//! Cuts bytes past the file's end that a partly refused write has left: one object refused its part, and others took theirs.
//!
//! The file's size follows the contiguous part, so these bytes lie past the end. If the file grew later, they would show where zeros belong.

use std::sync::Arc;
use std::time::Instant;

use plan::size::{cuts, proven};
use types::Fault;

use crate::Fs;
use crate::cache::files::{Body, File};

impl Fs {
    /// Called after a failed write. If the cut fails now, it is done before the file grows, as long as the file is open.
    pub(crate) fn tidy_up(&self, file: &Arc<File>, deadline: Instant) {
        if !file.meta.lock().overshot {
            return;
        }
        let done = file.own_body(deadline).and_then(|body| self.cut_overshoot(file, &body, deadline));
        if let Err(fault) = done {
            tracing::warn!("file {}: bytes past its end are not cut off yet: {fault}", file.fid);
        }
    }

    /// Called before a write at `at`, since the bytes would show in the gap before it.
    pub(crate) fn tidy_gap(&self, file: &Arc<File>, at: u64, deadline: Instant) {
        let is_due = {
            let meta = file.meta.lock();
            meta.overshot && at > meta.progress.size
        };
        if is_due {
            self.tidy_up(file, deadline);
        }
    }

    /// Cuts such bytes. The caller holds the body exclusively.
    pub(crate) fn cut_overshoot(&self, file: &File, body: &Body, deadline: Instant) -> Result<(), Fault> {
        // 1. Take the present size, since another write may have extended the file meanwhile.
        let (size, cap) = {
            let meta = file.meta.lock();
            if !meta.overshot {
                return Ok(());
            }
            (meta.progress.size, meta.cap.clone())
        };
        let (Some(layout), Some(cap)) = (&body.layout, cap) else { return Ok(()) };
        let objects: Vec<_> = {
            let meta = file.meta.lock();
            let is_there = |o, bit| bit || meta.progress.has_written(o);
            let all = layout.objects(file.fid).filter(|(o, _, bit)| is_there(*o, *bit));
            all.map(|(o, mirror, _)| (o, mirror)).collect()
        };
        // 2. Find objects with bytes past it. Reserved space there has no bytes.
        let mut stats = self.glimpse(&cap, objects.iter().copied(), deadline)?;
        stats.iter_mut().for_each(|s| s.reserved_end = 0);
        let cuts = cuts(layout, size, &stats);
        let marks = self.cut_objects(&cap, layout, &cuts, deadline)?;
        let blocks = proven(layout, &self.glimpse(&cap, objects.into_iter(), deadline)?).blocks;
        // 3. The next flush of the file covers the cuts.
        let mut meta = file.meta.lock();
        for ((object, _), mark) in cuts.iter().zip(marks) {
            meta.progress.wrote(*object, true, mark);
        }
        meta.progress.blocks = blocks;
        meta.overshot = false;
        Ok(())
    }
}
