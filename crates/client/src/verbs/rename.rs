//! Rename. The MDT keeps a file that a rename replaces until this client releases it; see `removed`.

use std::time::Instant;

use types::{Cred, Fault, Fid};
use wire::codec::Bytes;
use wire::meta::{RENAME_EXCHANGE, Rename, WatchDir};

use crate::Fs;
use crate::cache::leased::{Moved, Moving};

impl Fs {
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
        // Until the answer is there: what is looked up later shows the state after it.
        let _moving = self.kernel_renames((parent, name), (new_parent, new_name), flags, deadline);
        let (name, new_name, now) = (Bytes::from(name), Bytes::from(new_name), self.now());
        // `hold`: the replaced file stays for programs that have it open, or are about to open it.
        let (cred, want) = (cred.clone(), Fid(0));
        let req = Rename { parent, name, new_parent, new_name, flags, hold: true, now, cred, want };
        if let Some(gone) = self.ask_until(parent, &req, deadline)?.reply.replaced {
            self.note_removed(&gone, deadline);
        }
        Ok(())
    }

    /// client-LE5: the kernel moves entries with their time-outs. So this client is told of changes in the directory to which one comes, or the
    /// time-out ends first.
    fn kernel_renames<'a>(
        &'a self,
        from: (Fid, &[u8]),
        to: (Fid, &[u8]),
        flags: u32,
        deadline: Instant,
    ) -> Moving<'a> {
        let leased = &self.id.leased;
        let (moving, moved) = leased.kernel_moves(from, to, flags & RENAME_EXCHANGE != 0);
        for (to, moved) in [to.0, from.0].into_iter().zip(moved) {
            let Some(Moved { left, is_noted }) = moved else { continue };
            let is_told = || from.0 == to || leased.is_told_of(to) || self.watch(to, deadline);
            if !is_noted || !is_told() {
                std::thread::sleep(left.min(deadline.saturating_duration_since(Instant::now())));
            }
        }
        moving
    }

    /// From here on this client is told of changes of names in the directory. Nothing is a fault: the caller then waits.
    fn watch(&self, dir: Fid, deadline: Instant) -> bool {
        let since = self.id.leased.since();
        let told = self.ask_until(dir, &WatchDir { dir }, deadline);
        told.is_ok_and(|answer| answer.reply.is_told) && self.id.leased.is_unchanged(dir, since)
    }
}
