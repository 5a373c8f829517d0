//! Fsync, and the fault that close reports.

use types::{Fault, Fid};

use crate::Fs;
use crate::cache::api::Handle;
use crate::session::sharing::{Section, To};

impl Fs {
    /// close(2): reports lost data of this file; does not wait for the medium.
    pub fn flush(&self, handle: Handle) -> Result<(), Fault> {
        self.check_poison(&self.opened(handle)?.file)
    }

    /// True if `flush` has nothing to find out: all targets are in this process, so no restart of one can lose what it
    /// acknowledged. (Errors of the medium show at fsync, as on a local file system.)
    pub fn is_fate_shared(&self) -> bool {
        self.cluster.is_fate_shared()
    }

    /// Returns when the file's bytes, size, times and entry are durable. (`data_only` would allow less; nothing is saved by it.)
    ///
    /// The mtime of an overwrite is durable with its bytes: objects keep it. After a power loss, the MDT's flushed `Writing` state
    /// makes the next client to look at the file ask them. So one device flush is enough where neither size nor written bits changed.
    pub fn fsync(&self, handle: Handle, _data_only: bool) -> Result<(), Fault> {
        let opened = self.opened(handle)?;
        let (file, deadline) = (&opened.file, self.deadline());
        self.check_poison(file)?;
        let section = self.section(file, To::Change, deadline)?;
        if file.meta.lock().cutting.is_some() {
            self.finish_cut(file, deadline)?;
        }
        if section.is_among_others() {
            return self.fsync_for_all(&section);
        }
        // 1. Bytes: flush every target with unflushed bytes of this file, from any descriptor.
        let order = file.lock_order(deadline)?;
        let (snapshot, is_untold) = {
            let meta = file.meta.lock();
            (meta.progress.snapshot(), meta.progress.is_data_untold())
        };
        self.flush_marks(file, &snapshot.marks, deadline)?;
        // 2. Size, times, written bits.
        match is_untold {
            true => self.settle_snapshot(file, &snapshot, deadline)?,
            false => {
                let mut meta = file.meta.lock();
                if meta.progress.is_valid(&snapshot) {
                    meta.progress.flushed(&snapshot);
                }
            }
        }
        drop(order);
        // 3. The MDT's entries that concern it: its making, its inline content, the settle of step 2.
        let mark = file.meta.lock().mdt_mark;
        if let Some(mark) = mark {
            self.flush_marks(file, &[mark], deadline)?;
        }
        // Changes by name, or from before it was opened here, are under no mark of the file.
        let mdt = self.mdt(file.fid)?;
        if !mdt.is_all_flushed() {
            mdt.flush(deadline)?;
        }
        self.check_poison(file)?;
        let mut meta = file.meta.lock();
        if meta.mdt_mark == mark {
            meta.mdt_mark = None;
        }
        Ok(())
    }

    /// Among others: whatever any of them has written.
    fn fsync_for_all(&self, section: &Section<'_>) -> Result<(), Fault> {
        let (file, deadline) = (&section.file, section.deadline);
        let order = file.lock_order(deadline)?;
        let snapshot = file.meta.lock().progress.snapshot();
        let layout = file.share_body(deadline)?.layout.clone();
        if let Some(layout) = layout {
            // Own marks first: a target that restarted may have lost some of them.
            self.flush_marks(file, &snapshot.marks, deadline)?;
            self.flush_objects(&layout, file.fid, deadline)?;
            self.tell_flushed(file, &snapshot, deadline)?;
        }
        drop(order);
        self.mdt(file.fid)?.flush(deadline)?;
        self.check_poison(file)
    }

    /// `fsync`, if the descriptor was opened for synchronous changes.
    pub fn sync_if_asked(&self, handle: Handle) -> Result<(), Fault> {
        if self.opened(handle)?.flags.sync { self.fsync(handle, true) } else { Ok(()) }
    }

    /// Makes every change at the MDT that was acknowledged durable: names, attributes, sizes that were set. (One log serves all.)
    pub fn fsync_meta(&self, fid: Fid) -> Result<(), Fault> {
        let mdt = self.mdt(fid)?;
        // What others had acknowledged, this client does not know of.
        if mdt.is_all_flushed() && !self.is_shared() { Ok(()) } else { mdt.flush(self.deadline()) }
    }

    /// Makes every change of names that was acknowledged durable.
    pub fn fsync_dir(&self, dir: Fid) -> Result<(), Fault> {
        self.fsync_meta(dir)?;
        // Creations that could not be replayed after a restart of the MDT stand under their parent, too.
        match self.id.losses.of(dir) {
            Some(fault) => {
                self.id.losses.forget(dir);
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// The descriptor is closed. Nothing can be reported any more; `flush` came before.
    pub fn release(&self, handle: Handle) {
        self.release_owned(handle, None);
    }

    /// As `release`; `flock` is the owner of flock locks that go with the open file description.
    pub fn release_owned(&self, handle: Handle, flock: Option<u64>) {
        if let Some(opened) = self.files.take_handle(handle) {
            self.release_locks(handle, opened.file.fid, flock, self.deadline());
            self.close(&opened, self.deadline());
        }
    }
}
