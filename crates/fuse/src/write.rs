//! Writes: where their bytes go, and the set-id bits that any change of content clears.

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
    /// The kernel has the bytes in its pages already.
    Cached(u64),
    /// Pages of a shared mapping: at this offset, up to the end of the file.
    Mapped(u64),
    /// At the end of the file, which is here if the kernel knows it. Among other clients it may not. `has_pages`: as for `Cached`.
    End {
        end: u64,
        has_pages: bool,
    },
}

impl Door {
    /// Clears the set-id bits of a file whose content changes.
    pub fn drop_privileges(&self, rq: &Request, fid: Fid) -> Result<Attr, Fault> {
        let attr = self.fs.getattr(fid)?;
        if !self.loses_privileges(rq, attr.mode, attr.gid) {
            return Ok(attr);
        }
        // The MDT clears them in the file's current mode, which another mount may be changing. The caller need not own the file.
        let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
        let cred = if self.fs.is_judged() { self.reader(rq) } else { self.cred(rq) };
        let attr = self.fs.setattr(fid, &set, &cred)?;
        // The reply to a write cannot carry the new mode, and the kernel runs programs by the mode that it knows.
        self.forget.attributes(fid);
        Ok(attr)
    }

    fn loses_privileges(&self, rq: &Request, mode: u32, gid: u32) -> bool {
        loses_privileges(mode, || is_root(rq) || self.cred(rq).is_in_group(gid))
    }

    /// Clears set-id bits before the first byte is written, if the kernel marked the write.
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
        let look = self.set_id.look(Instant::now(), self.fs.seasons_shared());
        if self.fs.is_shared() {
            let (mode, gid) = self.fs.mode_and_group(fid)?;
            return match self.loses_privileges(rq, mode, gid) {
                true => self.drop_privileges(rq, fid).map(drop),
                false => Ok(()),
            };
        }
        if !self.set_id.is_clear(handle.0, look) {
            let mode = self.drop_privileges(rq, fid)?.mode;
            // Bits that a write by a group member keeps must be cleared by a stranger's write through the same descriptor.
            if !has_set_id(mode) {
                self.set_id.learn_clear(handle.0, look);
            }
        }
        Ok(())
    }

    pub(crate) fn put(&self, handle: Handle, place: Place, data: &[u8]) -> Result<usize, Fault> {
        match place {
            Place::At(offset) => self.fs.write(handle, offset, data),
            Place::Cached(offset) => self.fs.write_cached(handle, offset, data),
            Place::Mapped(offset) => self.fs.write_mapped(handle, offset, data).map(|()| data.len()),
            Place::End { end, has_pages } => self.fs.append_at(handle, end, data, has_pages),
        }
    }
}
