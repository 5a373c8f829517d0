//! Lookup and getattr: attributes of the MDT, with local changes on top that are not reported yet.

use std::sync::Arc;
use std::time::Instant;

use types::{Attr, Code, Cred, Fault, Fid, Kind};
use wire::codec::Bytes;
use wire::meta::{FIDS_MAX, FileState, GetAttr, GetAttrs, Inode, Lookup};

use crate::Fs;
use crate::cache::files::File;

impl Fs {
    /// The attributes of the file called `name` in `parent`, for root.
    pub fn lookup(&self, parent: Fid, name: &[u8]) -> Result<Attr, Fault> {
        self.lookup_as(parent, name, &Cred::root())
    }

    /// The attributes of the file called `name` in `parent`. `.` is `parent` itself, of whatever kind it is; `..` the directory above it.
    pub fn lookup_as(&self, parent: Fid, name: &[u8], cred: &Cred) -> Result<Attr, Fault> {
        if name == b"." {
            return self.attr_by_handle(parent);
        }
        let inode = self.ask(parent, &Lookup { parent, name: Bytes::from(name), cred: cred.clone() })?;
        self.attr_of(&inode, None)
    }

    pub fn getattr(&self, fid: Fid) -> Result<Attr, Fault> {
        // Taken before the request: the file may be reported and leave the table before the answer is read.
        let file = self.files.get(fid);
        match self.ask(fid, &GetAttr { fid }) {
            Ok(inode) => self.attr_of(&inode, file),
            // Removed here a moment ago, and still open in a program.
            Err(fault) if fault.code == Code::Stale => self.id.gone.attr_of(fid).ok_or(fault),
            Err(fault) => Err(fault),
        }
    }

    /// Attributes for a file handle. `Stale` once the last name is gone, even if the file is open: a number from outside opens no removed file.
    fn attr_by_handle(&self, fid: Fid) -> Result<Attr, Fault> {
        let file = self.files.get(fid);
        let inode = self.ask(fid, &GetAttr { fid })?;
        match inode.attr.nlink {
            0 => Err(Fault::new(Code::Stale, format!("file {fid} has no name any more"))),
            _ => self.attr_of(&inode, file),
        }
    }

    /// As `getattr` of each, with few requests. `None`: the file is gone.
    pub fn getattrs(&self, fids: &[Fid]) -> Result<Vec<Option<Attr>>, Fault> {
        let mut attrs = Vec::with_capacity(fids.len());
        while attrs.len() < fids.len() {
            let some: Vec<Fid> = fids[attrs.len()..].iter().take(FIDS_MAX).copied().collect();
            let files: Vec<_> = some.iter().map(|fid| self.files.get(*fid)).collect();
            let inodes = self.ask(some[0], &GetAttrs { fids: some.clone() })?.inodes;
            if inodes.is_empty() {
                return Err(Fault::new(Code::Io, "the MDT tells of none of the files that it was asked for"));
            }
            for ((inode, file), fid) in inodes.into_iter().zip(files).zip(some) {
                attrs.push(match inode {
                    Some(inode) => Some(self.attr_of(&inode, file)?),
                    None => self.id.gone.attr_of(fid),
                });
            }
        }
        Ok(attrs)
    }

    /// The size, as reads see it, of a file that is open here while this client is alone.
    pub fn size_known(&self, fid: Fid) -> Option<u64> {
        let file = self.files.get(fid).filter(|_| !self.is_shared())?;
        let size = file.meta.lock().progress.size;
        Some(size)
    }

    /// Replaces attributes by local ones. Beside other clients only those count that were not reported since they attached.
    pub(crate) fn overlay(&self, file: &File, attr: Attr, deadline: Instant) -> Result<Attr, Fault> {
        match self.knows_better(file) {
            true => file.overlay(attr, deadline),
            false => Ok(attr),
        }
    }
    fn knows_better(&self, file: &File) -> bool {
        !self.is_shared() || {
            let meta = file.meta.lock();
            meta.knows_better && meta.progress.is_untold()
        }
    }

    /// The attributes to show for an inode of the MDT. A file of a dead session is recovered first.
    pub(crate) fn attr_of(&self, inode: &Inode, file: Option<Arc<File>>) -> Result<Attr, Fault> {
        self.attr_until(inode, file, self.deadline())
    }

    /// As `attr_of`. Past the deadline it does not wait.
    pub(crate) fn attr_until(
        &self,
        inode: &Inode,
        file: Option<Arc<File>>,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        if inode.attr.kind != Kind::File || self.settings.observer {
            return Ok(inode.attr);
        }
        match file.or_else(|| self.files.get(inode.attr.fid)) {
            Some(file) if file.is_loaded() && self.knows_better(&file) => {
                return file.overlay(inode.attr, deadline);
            }
            // Not in the table, or about to be, or just being changed. `recover` waits for that.
            _ => {}
        }
        match inode.state {
            FileState::Settled | FileState::Shared { .. } => Ok(inode.attr),
            // Beside other clients this client has reported its writes.
            FileState::Writing(session) if session == self.session() && self.is_shared() => Ok(inode.attr),
            FileState::Writing(_) | FileState::Truncating { .. } => {
                self.recover(inode.attr.fid, deadline).or_else(|fault| match fault.code {
                    // This user may not recover the file, so the MDT's attributes are shown.
                    Code::Access => Ok(inode.attr),
                    _ => Err(fault),
                })
            }
        }
    }
}
