//! Fsync, and the errors that close reports.

use types::{Fault, Fid};

use crate::Fs;
use crate::cache::api::Handle;
use crate::cache::hold::To;
use crate::session::section::Section;

impl Fs {
    /// close(2): waits for the writes behind, and reports lost data of this file; does not wait for the medium.
    pub fn flush(&self, handle: Handle) -> Result<(), Fault> {
        let file = &self.opened(handle)?.file;
        self.behind.await_close(file.fid, self.deadline());
        self.check_poison(file)
    }

    /// True if `flush` cannot fail: all targets are in this process, so that no restart loses an acknowledged change. Errors of the medium show
    /// at fsync, as on a local file system.
    pub fn is_fate_shared(&self) -> bool {
        self.cluster.is_fate_shared()
    }

    /// Returns when the file's bytes, size, times and entry are durable. `data_only` would allow less, but saves nothing.
    ///
    /// The mtime of an overwrite is durable with its bytes, since objects keep it. After a power loss the MDT's flushed `Writing` state makes the
    /// next client ask the objects. So one device flush is enough if neither size nor written bits changed.
    pub fn fsync(&self, handle: Handle, _data_only: bool) -> Result<(), Fault> {
        let opened = self.opened(handle)?;
        let (file, deadline) = (&opened.file, self.deadline());
        self.check_poison(file)?;
        let is_cut = file.meta.lock().cutting.is_some();
        let to = if self.is_shared() && !is_cut { To::Read } else { To::Change };
        let section = self.section(file, to, deadline)?;
        if is_cut {
            self.finish_cut(file, deadline)?;
        }
        if section.is_among_others() {
            return self.fsync_for_all(&section);
        }
        // 1. Flush every object with unflushed bytes.
        let order = file.lock_order(deadline)?;
        let (snapshot, is_untold) = {
            let meta = file.meta.lock();
            (meta.progress.snapshot(), meta.progress.is_data_untold())
        };
        self.flush_marks(file, &snapshot.marks, deadline)?;
        // 2. Report size, times and written bits.
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
        // 3. Flush the MDT's entries of the file: its creation, its inline content, step 2.
        let mark = file.meta.lock().mdt_mark;
        if let Some(mark) = mark {
            self.flush_marks(file, &[mark], deadline)?;
        }
        // Changes by name, or before it was opened here, have no mark at the file.
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

    /// Beside other clients: flushes the bytes of all of them.
    fn fsync_for_all(&self, section: &Section<'_>) -> Result<(), Fault> {
        let (file, deadline) = (&section.file, section.deadline);
        let order = file.lock_order(deadline)?;
        let snapshot = file.meta.lock().progress.snapshot();
        let layout = file.share_body(deadline)?.layout.clone();
        if let Some(layout) = layout {
            // This client's marks first: a restarted target may have lost some of them.
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

    /// Makes every acknowledged change at the MDT durable: names, attributes, sizes. One log has them all.
    pub fn fsync_meta(&self, fid: Fid) -> Result<(), Fault> {
        let mdt = self.mdt(fid)?;
        // This client does not know the acknowledged changes of other clients, so beside them it always flushes.
        if mdt.is_all_flushed() && !self.is_shared() { Ok(()) } else { mdt.flush(self.deadline()) }
    }

    /// Makes every change of names that was acknowledged durable.
    pub fn fsync_dir(&self, dir: Fid) -> Result<(), Fault> {
        self.fsync_meta(dir)?;
        // A creation that could not be replayed after a restart of the MDT is a loss of its parent too.
        match self.id.losses.of(dir) {
            Some(fault) => {
                self.id.losses.forget(dir);
                Err(fault)
            }
            None => Ok(()),
        }
    }

    /// Closes the descriptor. It cannot report an error; `flush` came before.
    pub fn release(&self, handle: Handle) {
        self.release_owned(handle, None);
    }

    /// As `release`. `flock`: owner of flock locks that end with the open file description.
    pub fn release_owned(&self, handle: Handle, flock: Option<u64>) {
        if let Some(opened) = self.files.take_handle(handle) {
            self.release_locks(handle, opened.file.fid, flock, self.deadline());
            self.close(&opened, self.deadline());
        }
    }
}
