//! A file's `chattr` flags.

use types::{Code, Cred, Fault, Fid};
use wire::meta::{FLAG_APPEND, FLAG_IMMUTABLE, GetAttr, SetFlags};

use crate::Fs;
use crate::cache::files::Meta;

impl Fs {
    /// `FLAG_*` of `wire::meta`.
    pub fn flags(&self, fid: Fid) -> Result<u32, Fault> {
        Ok(self.ask(fid, &GetAttr { fid })?.flags)
    }

    /// Sets exactly these flags. They hold at once for descriptors that are open here.
    pub fn set_flags(&self, fid: Fid, flags: u32, cred: &Cred) -> Result<(), Fault> {
        self.refuse_observer()?;
        let file = self.files.get(fid);
        let inode = self.ask(fid, &SetFlags { fid, flags, now: self.now(), cred: cred.clone() })?;
        if let Some(file) = file {
            file.meta.lock().flags = inode.flags;
        }
        Ok(())
    }
}

impl Meta {
    /// Refuses a write to objects that the flags forbid. The MDT refuses writes of inline content.
    pub fn need_writable(&self, fid: Fid, offset: u64) -> Result<(), Fault> {
        let is_append = offset >= self.progress.size;
        match self.flags & (FLAG_IMMUTABLE | FLAG_APPEND) {
            0 => Ok(()),
            FLAG_APPEND if is_append => Ok(()),
            _ => Err(Fault::new(Code::Perm, format!("file {fid} is immutable or append-only"))),
        }
    }
}
