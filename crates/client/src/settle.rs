//! Settling: the MDT learns sizes, times and written bits after the bytes that prove them are flushed (C2, rule O3).
//!
//! In the background, once per commit interval: each dirty target is flushed once, for all files together.

use std::sync::Arc;
use std::time::Instant;

use plan::settle::Snapshot;
use plan::size::proven;
use types::{Code, Fault, TargetId};
use wire::meta::Settle;

use crate::Fs;
use crate::files::File;
use crate::truncate::mark_written;

impl Fs {
    /// One round of the background thread. Files that cannot be settled now are tried again in the next round.
    pub(crate) fn settle_round(&self, deadline: Instant) {
        let queue = self.files.take_queue();
        if queue.is_empty() {
            return;
        }
        // 1. C2: what is told is what stands here before the flush.
        let snapshots: Vec<Snapshot> = queue.iter().map(|f| f.meta.lock().progress.snapshot()).collect();
        // 2. Each target once.
        let flushed = self.flush_for(&snapshots, deadline);
        // 3. Each file.
        for (file, snapshot) in queue.iter().zip(&snapshots) {
            let result = match snapshot.marks.iter().find(|m| !flushed.contains(&m.target)) {
                Some(mark) => {
                    Err(Fault::new(Code::NotReady, format!("target {} was not flushed", mark.target)))
                }
                None => self.settle_after_flush(file, snapshot, deadline),
            };
            if let Err(fault) = result {
                tracing::warn!("file {} is not settled yet: {fault}", file.fid);
            }
            self.files.dequeued(file);
            self.files.enqueue(file);
        }
    }

    /// Settles until nothing is left, or until the deadline.
    pub(crate) fn settle_all(&self, deadline: Instant) -> Result<(), Fault> {
        let mut last = Ok(());
        while Instant::now() < deadline {
            self.files.all().iter().for_each(|f| self.files.enqueue(f));
            self.settle_round(deadline);
            let left = self.files.all().into_iter().find(|f| f.meta.lock().needs_settling());
            let Some(file) = left else { return Ok(()) };
            last = Err(Fault::new(Code::Timeout, format!("file {} could not be settled", file.fid)));
            if !self.wait_a_little(deadline) {
                break;
            }
        }
        last
    }

    fn wait_a_little(&self, deadline: Instant) -> bool {
        self.mdt(types::Fid::ROOT).is_ok_and(|mdt| mdt.wait(plan::retry::BACKOFF_MAX / 10, deadline))
    }

    /// Flushes every target that the snapshots name, once; returns those that are flushed.
    fn flush_for(&self, snapshots: &[Snapshot], deadline: Instant) -> Vec<TargetId> {
        let mut flushed: Vec<TargetId> = Vec::new();
        let mut asked = Vec::new();
        for mark in snapshots.iter().flat_map(|s| &s.marks) {
            if flushed.contains(&mark.target)
                || asked.iter().any(|l: &Arc<crate::link::Link>| l.target == mark.target)
            {
                continue;
            }
            if let Some(link) = self.cluster.target(mark.target) {
                asked.push(link);
            }
        }
        // A target that is down must not hold up the settling of files that have nothing on it.
        let soon = deadline.min(Instant::now() + self.settings.commit_interval.max(plan::retry::BACKOFF_MAX));
        match self.flush_links(asked.clone(), soon) {
            Ok(()) => flushed.extend(asked.iter().map(|l| l.target)),
            Err(_) => {
                let soon = deadline.min(Instant::now() + plan::retry::BACKOFF_MAX);
                flushed.extend(asked.iter().filter(|l| l.flush(soon).is_ok()).map(|l| l.target));
            }
        }
        flushed
    }

    fn settle_after_flush(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let due = file.meta.lock().cutting.is_some();
        if due {
            return self.finish_cut(file, deadline);
        }
        let _order = file.lock_order(deadline)?;
        self.settle_snapshot(file, snapshot, deadline)
    }

    /// Tells the MDT a snapshot whose marks are flushed. `order` is held.
    pub(crate) fn settle_snapshot(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        deadline: Instant,
    ) -> Result<(), Fault> {
        // 1. A mark may have been lost in a restart instead of flushed.
        self.flush_marks(file, &snapshot.marks, deadline)?;
        let (is_valid, is_due, done, cap) = {
            let mut meta = file.meta.lock();
            let is_valid = meta.progress.is_valid(snapshot);
            if is_valid {
                meta.progress.flushed(snapshot);
            }
            // `done`: nobody writes any more, and this is all there is.
            let done = meta.writers == 0 && meta.progress.is_still(snapshot);
            (is_valid, meta.needs_settling(), done, meta.cap.clone())
        };
        if !is_valid || !is_due {
            return Ok(());
        }
        let (generation, objects) = {
            let body = file.share_body(deadline)?;
            let Some(layout) = &body.layout else {
                // Inline by now: the MDT knows it all.
                let mut meta = file.meta.lock();
                meta.progress.was_told(snapshot);
                meta.is_marked = false;
                return Ok(());
            };
            let is_written = |o, bit| bit || file.meta.lock().progress.has_written(o);
            let objects: Vec<_> = layout
                .objects(file.fid)
                .filter(|(o, _, bit)| is_written(*o, *bit))
                .map(|(o, m, _)| (o, m))
                .collect();
            (layout.generation, done.then(|| (layout.clone(), objects)))
        };
        // 2. At the end the blocks are counted rather than estimated.
        let mut blocks = snapshot.blocks;
        if let (Some((layout, objects)), Some(cap)) = (objects, cap)
            && let Ok(stats) = self.glimpse(&cap, objects.into_iter(), deadline)
        {
            blocks = proven(&layout, &stats).blocks;
        }
        // 3. Tell.
        let Snapshot { size, mtime, ref written, .. } = *snapshot;
        let req = Settle { fid: file.fid, generation, size, blocks, mtime, written: written.clone(), done };
        match self.ask_until(file.fid, &req, deadline) {
            Ok(answer) => {
                self.learn_written(file, snapshot, deadline)?;
                let mut meta = file.meta.lock();
                meta.progress.was_told(snapshot);
                if done {
                    meta.progress.blocks = blocks;
                }
                meta.is_marked = !done;
                meta.saw(answer.mark);
                Ok(())
            }
            Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => {
                let mut meta = file.meta.lock();
                if meta.pins > 0 {
                    // The file or its objects went without our doing, while it is open here: these bytes are lost.
                    let why = format!("file {}: its objects are not the file's any more: {fault}", file.fid);
                    meta.poison.get_or_insert(Fault::new(Code::Io, why));
                }
                // Removed after its last close: there is nothing to tell any more.
                meta.progress.was_told(snapshot);
                meta.is_marked = false;
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// The layout's own bits follow what the MDT was told, so that pieces carry them.
    fn learn_written(&self, file: &File, snapshot: &Snapshot, deadline: Instant) -> Result<(), Fault> {
        let is_news = {
            let body = file.share_body(deadline)?;
            let known = |component: u16, stripe: u16| {
                body.layout
                    .as_ref()
                    .and_then(|l| l.components.get(component as usize))
                    .is_none_or(|c| c.is_written(stripe))
            };
            snapshot.written.iter().any(|w| {
                (0..w.bits.len() as u16 * 64)
                    .any(|s| w.bits[s as usize / 64] >> (s % 64) & 1 == 1 && !known(w.component, s))
            })
        };
        if is_news && let Some(layout) = &mut file.own_body(deadline)?.layout {
            snapshot.written.iter().for_each(|w| mark_written(layout, w));
        }
        Ok(())
    }
}
