//! Unlink and rmdir: names go, and inodes with them unless this client has them open, or calls may be on their way to them.
//!
//! The MDT does not know whether a file is open; the client reports it (`held`). The name lock keeps the answer true until the
//! MDT has acted. What a rename replaces is held in any case, and other removals while path walks meet them; see `removed`.

use std::time::Instant;

use types::{Attr, Code, Cred, Fault, Fid};
use wire::codec::Bytes;
use wire::meta::{Lookup, RemoveDir, Unlink, UnlinkReply};

use crate::Fs;

impl Fs {
    pub fn unlink(&self, parent: Fid, name: &[u8], cred: &Cred) -> Result<(), Fault> {
        self.refuse_observer()?;
        let deadline = self.deadline();
        let _name_lock = self.names.lock(parent, name, deadline)?;
        if let Some(removed) = self.remove_here((parent, name), cred, deadline) {
            return removed;
        }
        let quiet = self.files.quiet();
        let victim = self.victim(quiet.is_some(), parent, name, cred, deadline)?;
        let fid_lock = match victim {
            Some(fid) => Some(self.names.lock_fid(fid, deadline)?),
            None => None,
        };
        let held = victim.is_some_and(|fid| self.files.is_held(fid));
        let req = Unlink { parent, name: Bytes::from(name), held, now: self.now(), cred: cred.clone() };
        let gone = self.ask_until(parent, &req, deadline)?.reply;
        if gone.kept {
            // To keep it another one may have to be released, under a lock of its own: two unlinks would wait for each other.
            drop(fid_lock);
        }
        self.note_removed(&gone, deadline);
        Ok(())
    }

    pub fn rmdir(&self, parent: Fid, name: &[u8], cred: &Cred) -> Result<(), Fault> {
        self.refuse_observer()?;
        let (name, held, now) = (Bytes::from(name), false, self.now());
        let req = RemoveDir { parent, name, held, now, cred: cred.clone() };
        let deadline = self.deadline();
        let gone = self.ask_until(parent, &req, deadline)?.reply;
        self.note_removed(&gone, deadline);
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

    /// A file that the MDT kept is released later, also if it is open here. After the close of its last descriptor another call by path
    /// may still be under way.
    pub(crate) fn note_removed(&self, gone: &UnlinkReply, deadline: Instant) {
        let Attr { fid, nlink, .. } = gone.attr;
        if nlink > 0 {
            return;
        }
        self.id.gone.remember(gone.attr);
        if gone.kept {
            return self.keep_removed(fid, deadline);
        }
        self.id.gone.add(fid, None);
        if let Some(file) = self.files.get(fid) {
            // The file is closed and removed: its pending settle is dropped.
            file.meta.lock().is_gone = true;
        }
    }
}
