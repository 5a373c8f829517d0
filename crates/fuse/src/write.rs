//! Writes: where their bytes go, and the set-id bits that go with any change of content.

use std::time::Instant;

use client::{Handle, SetAttr};
use fusedev::Request;
use types::{Attr, Fault, Fid};

use crate::cred::is_root;
use crate::door::Door;
use crate::setid::{has_set_id, loses_privileges};

/// Where the bytes of a write go.
#[derive(Clone, Copy)]
pub enum Place {
    At(u64),
    /// Pages of a shared mapping: there, as far as the file reaches.
    Mapped(u64),
    /// There, as the kernel knows it. Among other clients it does not.
    End(u64),
}

impl Door {
    /// Takes set-id bits away from a file whose content changes.
    pub fn drop_privileges(&self, rq: &Request, fid: Fid) -> Result<Attr, Fault> {
        let attr = self.fs.getattr(fid)?;
        let is_in_group = || is_root(rq) || self.cred(rq).is_in_group(attr.gid);
        if !loses_privileges(attr.mode, is_in_group) {
            return Ok(attr);
        }
        // The MDT takes them from the mode that the file has by then: another mount may be changing it. Who asks need not own it.
        let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
        let cred = if self.fs.is_judged() { self.reader(rq) } else { self.cred(rq) };
        let attr = self.fs.setattr(fid, &set, &cred)?;
        // The answer to a write has no room for the new mode, and the kernel runs programs by the one it knows.
        self.forget.attributes(fid);
        Ok(attr)
    }

    /// Set-id bits go before the first byte comes, if the kernel says that the writer may not keep them.
    pub(crate) fn kill_privileges(
        &self,
        rq: &Request,
        fid: Fid,
        handle: Handle,
        kill: bool,
    ) -> Result<(), Fault> {
        if !kill {
            return Ok(());
        }
        let look = self.set_id.look(Instant::now());
        let is_shared = self.fs.is_shared();
        if is_shared || !self.set_id.is_clear(handle.0, look) {
            let mode = self.drop_privileges(rq, fid)?.mode;
            // What a member of the group leaves would go with a stranger's write through the same descriptor.
            if !is_shared && !has_set_id(mode) {
                self.set_id.learn_clear(handle.0, look);
            }
        }
        Ok(())
    }

    pub(crate) fn put(&self, handle: Handle, place: Place, data: &[u8]) -> Result<usize, Fault> {
        match place {
            Place::At(offset) => self.fs.write(handle, offset, data),
            Place::Mapped(offset) => self.fs.write_mapped(handle, offset, data).map(|()| data.len()),
            Place::End(end) => self.fs.append_at(handle, end, data),
        }
    }
}
