//! Unlink, rmdir and rename: names go, and files with them unless somebody here has them open.
//!
//! The MDT does not know who has a file open; the client says so (`held`). The name lock keeps the answer true until the
//! MDT has acted. What a rename replaces is held in any case; see `replaced`.

use std::time::Instant;

use types::{Attr, Code, Cred, Fault, Fid, Kind};
use wire::codec::Bytes;
use wire::meta::{Lookup, Release, RemoveDir, Rename, Unlink, UnlinkReply};

use crate::Fs;

impl Fs {
    pub fn unlink(&self, parent: Fid, name: &[u8], cred: &Cred) -> Result<(), Fault> {
        self.refuse_observer()?;
        let deadline = self.deadline();
        let _name_lock = self.names.lock(parent, name, deadline)?;
        let quiet = self.files.quiet();
        let victim = self.victim(quiet.is_some(), parent, name, cred, deadline)?;
        let _fid_lock = match victim {
            Some(fid) => Some(self.names.lock_fid(fid, deadline)?),
            None => None,
        };
        let held = victim.is_some_and(|fid| self.files.is_held(fid));
        let req = Unlink { parent, name: Bytes::from(name), held, now: self.now(), cred: cred.clone() };
        let gone = self.ask_until(parent, &req, deadline)?.reply;
        self.note_unlinked(&gone, held, deadline);
        Ok(())
    }

    pub fn rmdir(&self, parent: Fid, name: &[u8], cred: &Cred) -> Result<(), Fault> {
        self.refuse_observer()?;
        let req = RemoveDir { parent, name: Bytes::from(name), now: self.now(), cred: cred.clone() };
        let gone = self.ask(parent, &req)?;
        self.id.gone.remember(gone.attr);
        Ok(())
    }

    /// `flags` as renameat2(2).
    pub fn rename(
        &self,
        parent: Fid,
        name: &[u8],
        new_parent: Fid,
        new_name: &[u8],
        flags: u32,
        cred: &Cred,
    ) -> Result<(), Fault> {
        self.refuse_observer()?;
        let deadline = self.deadline();
        let _name_locks = self.names.lock_two((parent, name), (new_parent, new_name), deadline)?;
        let (name, new_name, now) = (Bytes::from(name), Bytes::from(new_name), self.now());
        // Whoever has the replaced file open, or is about to, keeps it.
        let (cred, want) = (cred.clone(), Fid(0));
        let req = Rename { parent, name, new_parent, new_name, flags, hold: true, now, cred, want };
        if let Some(gone) = self.ask_until(parent, &req, deadline)?.reply.replaced {
            match gone.attr.kind {
                Kind::Dir => self.note_unlinked(&gone, false, deadline),
                _ => self.note_replaced(&gone, deadline),
            }
        }
        Ok(())
    }

    /// The file that a name stands for, if it matters: with nothing open here (`is_quiet`) nothing can be held.
    fn victim(
        &self,
        is_quiet: bool,
        parent: Fid,
        name: &[u8],
        cred: &Cred,
        deadline: Instant,
    ) -> Result<Option<Fid>, Fault> {
        if is_quiet {
            return Ok(None);
        }
        match self.ask_until(
            parent,
            &Lookup { parent, name: Bytes::from(name), cred: cred.clone() },
            deadline,
        ) {
            Ok(answer) => Ok(Some(answer.reply.attr.fid)),
            // The MDT says what is wrong with it in its answer to the request itself.
            Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDir | Code::NameTooLong) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn note_replaced(&self, gone: &UnlinkReply, deadline: Instant) {
        let Attr { fid, nlink, .. } = gone.attr;
        // Also one that is open: when its last descriptor is closed at once, another open may still be on its way.
        if nlink == 0 {
            self.id.gone.remember(gone.attr);
            self.keep_replaced(fid, deadline);
        }
    }

    fn note_unlinked(&self, gone: &UnlinkReply, held: bool, deadline: Instant) {
        let Attr { fid, nlink, .. } = gone.attr;
        if nlink > 0 {
            return;
        }
        if !held {
            self.id.gone.add(fid, None);
            self.id.gone.remember(gone.attr);
        }
        let is_open = self.files.get(fid).is_some_and(|file| {
            let mut meta = file.meta.lock();
            match held && meta.pins > 0 {
                true => meta.is_orphan = true,
                // Closed, and now gone: what was still to be told of it is told to nobody.
                false => meta.is_gone = true,
            }
            meta.pins > 0
        });
        if held && !is_open {
            // The last descriptor was closed while the MDT was asked: nobody else will let it go.
            self.id.gone.add(fid, None);
            if let Err(fault) = self.ask_until(fid, &Release { fid }, deadline) {
                tracing::warn!("file {fid}, unlinked and closed, stays until this session ends: {fault}");
            }
        }
    }
}
