//! A write over several objects of which one refused its part: what the others took past the file's end is cut off again.
//!
//! Such bytes belong to nobody: the file's size follows what is contiguous. Left where they are, they would show as soon as the file
//! is made longer, where zeros belong.

use std::sync::Arc;
use std::time::Instant;

use plan::size::{cuts, proven};
use types::Fault;

use crate::Fs;
use crate::cache::files::{Body, File};

impl Fs {
    /// After a write that failed. What cannot be done now is done before the file is made longer, as long as it is open.
    pub(crate) fn tidy_up(&self, file: &Arc<File>, deadline: Instant) {
        if !file.meta.lock().overshot {
            return;
        }
        let done = file.own_body(deadline).and_then(|body| self.cut_overshoot(file, &body, deadline));
        if let Err(fault) = done {
            tracing::warn!("file {}: bytes past its end are not cut off yet: {fault}", file.fid);
        }
    }

    /// Before a write at `at`: what was not cut off would show in the gap that it leaves.
    pub(crate) fn tidy_gap(&self, file: &Arc<File>, at: u64, deadline: Instant) {
        let is_due = {
            let meta = file.meta.lock();
            meta.overshot && at > meta.progress.size
        };
        if is_due {
            self.tidy_up(file, deadline);
        }
    }

    /// `body` is owned.
    pub(crate) fn cut_overshoot(&self, file: &File, body: &Body, deadline: Instant) -> Result<(), Fault> {
        // 1. The size as it is now: another write may have reached further meanwhile.
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
        // 2. Objects with bytes past it. (Space that is reserved there is no byte.)
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
