//! Setattr: modes, owners, times. A size is set by truncate.

use types::{Attr, Cred, Fault, Fid};
use wire::meta as m;

use crate::Fs;
use crate::cache::api::SetAttr;

impl Fs {
    /// Changes the attributes of `set`, and returns all attributes.
    pub fn setattr(&self, fid: Fid, set: &SetAttr, cred: &Cred) -> Result<Attr, Fault> {
        self.refuse_observer()?;
        let deadline = self.deadline();
        // 1. The size first. It sets mtime, and a given mtime overrules that.
        let mut attr = match set.size {
            Some(size) => Some(self.truncate(fid, size, cred, deadline)?),
            None => None,
        };
        if set.atime.is_some() {
            self.forget_accessed(fid);
        }
        // 2. The other attributes, in one entry.
        let bits = [
            (set.mode.is_some(), m::SET_MODE),
            (set.uid.is_some(), m::SET_UID),
            (set.gid.is_some(), m::SET_GID),
            (set.atime.is_some(), m::SET_ATIME),
            (set.mtime.is_some(), m::SET_MTIME),
            (set.touch, m::SET_TOUCH),
            (set.kill_privileges, m::SET_KILLPRIV),
        ];
        let valid = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        if valid != 0 {
            attr = Some(self.set_record(fid, set, valid, cred, deadline)?);
        }
        match attr {
            Some(attr) => Ok(attr),
            None => self.getattr(fid),
        }
    }

    fn set_record(
        &self,
        fid: Fid,
        set: &SetAttr,
        valid: u32,
        cred: &Cred,
        deadline: std::time::Instant,
    ) -> Result<Attr, Fault> {
        let file = self.files.get(fid);
        let held = file.as_ref().filter(|_| set.kill_privileges).and_then(|file| file.held());
        let req = m::SetAttr {
            fid,
            held,
            valid,
            mode: set.mode.unwrap_or(0),
            uid: set.uid.unwrap_or(0),
            gid: set.gid.unwrap_or(0),
            atime: set.atime.unwrap_or_default(),
            mtime: set.mtime.unwrap_or_default(),
            now: self.now(),
            cred: cred.clone(),
        };
        let Some(file) = file else {
            return self.attr_of(&self.ask_until(fid, &req, deadline)?.reply, None);
        };
        // client-WB1: a write that ends later sets the time again.
        self.await_behind(&file, deadline)?;
        // Ordered with updates, which report an mtime too: an older one must not replace the one that is set here.
        let order = file.lock_order(deadline)?;
        let answer = self.ask_until(fid, &req, deadline)?;
        {
            let mut meta = file.meta.lock();
            meta.saw(answer.mark);
            if let Some(mtime) = set.mtime {
                meta.progress.set_mtime(mtime);
            }
        }
        drop(order);
        self.attr_of(&answer.reply, Some(file))
    }
}
