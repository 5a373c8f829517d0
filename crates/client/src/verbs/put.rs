//! Put: a new file with all its content, in one call; of a small one, in one request.

use types::crc::fragment_crcs;
use types::{Attr, Buf, Code, Cred, Fault, Fid, INLINE_MAX};
use wire::codec::Bytes;
use wire::meta::CreateWith;

use crate::Fs;
use crate::cache::api::{Mode, OpenFlags};
use crate::cache::files::For;
use crate::session::request::Answer;

impl Fs {
    /// Makes a regular file with `bytes`. An existing name is `Exists`. A file up to `inline_max` is made whole or not at all. A longer one is
    /// created, written and closed like any other, so a failure may leave a part of it.
    pub fn put(
        &self,
        parent: Fid,
        name: &[u8],
        mode: impl Into<Mode>,
        bytes: &[u8],
        cred: &Cred,
    ) -> Result<Attr, Fault> {
        self.refuse_observer()?;
        let mode = mode.into();
        if bytes.len() <= INLINE_MAX as usize {
            match self.put_small(parent, name, mode, bytes, cred) {
                // The directory has a lower inline limit.
                Err(fault) if fault.code == Code::NeedLayout => {}
                put => return put,
            }
        }
        let flags = OpenFlags { exclusive: true, write: true, ..OpenFlags::default() };
        let (attr, handle) = self.create(parent, name, mode, flags, cred)?;
        let written = self.write(handle, 0, bytes).and_then(|_| self.getattr(attr.fid));
        let flushed = self.flush(handle);
        self.release(handle);
        written.and_then(|attr| flushed.map(|()| attr))
    }

    fn put_small(
        &self,
        parent: Fid,
        name: &[u8],
        Mode { bits: mode, umask }: Mode,
        bytes: &[u8],
        cred: &Cred,
    ) -> Result<Attr, Fault> {
        let (deadline, now) = (self.deadline(), self.now());
        let crcs = fragment_crcs(0, bytes);
        let req = CreateWith {
            parent,
            name: Bytes::from(name),
            mode,
            umask,
            crcs,
            now,
            written: now,
            cred: cred.clone(),
            want: Fid(0),
        };
        // As in `create`: the MDT has it as open here until it is closed.
        let name_lock = self.names.lock(parent, name, deadline)?;
        let Answer { reply, .. } =
            self.mdt(parent)?.exchange(parent, &req, bytes, &mut Buf::new(), deadline)?;
        let fid = reply.inode.attr.fid;
        let file = {
            let _fid_lock = self.names.lock_fid(fid, deadline)?;
            self.files.pin(fid, For::Writing)
        };
        _ = self.id.sharing.note_open(&file);
        drop(name_lock);
        self.unpin(&file, For::Writing, deadline);
        Ok(reply.inode.attr)
    }
}
