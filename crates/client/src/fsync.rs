//! Fsync, and what close says.

use types::{Fault, Fid};

use crate::Fs;
use crate::api::Handle;

impl Fs {
    /// close(2): reports lost data of this file; does not wait for the medium.
    pub fn flush(&self, handle: Handle) -> Result<(), Fault> {
        self.check_poison(&self.opened(handle)?.file)
    }

    /// Returns when the file's bytes, size and entry are durable. `data_only`: what a reader of the bytes does not need
    /// (mtime of an overwrite) may wait.
    pub fn fsync(&self, handle: Handle, data_only: bool) -> Result<(), Fault> {
        let opened = self.opened(handle)?;
        let (file, deadline) = (&opened.file, self.deadline());
        self.check_poison(file)?;
        if file.meta.lock().cutting.is_some() {
            self.finish_cut(file, deadline)?;
        }
        // 1. Bytes: on every object with unflushed ones, whoever wrote them.
        let order = file.lock_order(deadline)?;
        let (snapshot, is_untold) = {
            let meta = file.meta.lock();
            let is_untold =
                if data_only { meta.progress.is_data_untold() } else { meta.progress.is_untold() };
            (meta.progress.snapshot(), is_untold)
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
        // 3. The MDT's entries that concern it: its making, its inline content, what step 2 told.
        let mark = file.meta.lock().mdt_mark;
        let Some(mark) = mark else { return self.check_poison(file) };
        self.flush_marks(file, &[mark], deadline)?;
        let mut meta = file.meta.lock();
        if meta.mdt_mark == Some(mark) {
            meta.mdt_mark = None;
        }
        Ok(())
    }

    /// Makes every change of names that was acknowledged durable. (One log serves all directories.)
    pub fn fsync_dir(&self, dir: Fid) -> Result<(), Fault> {
        let mdt = self.mdt(dir)?;
        if !mdt.is_all_flushed() {
            mdt.flush(self.deadline())?;
        }
        // Creations that could not be replayed after a restart of the MDT stand under fid 0 or their parent.
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
        if let Some(opened) = self.files.take_handle(handle) {
            self.close(&opened, self.deadline());
        }
    }
}
