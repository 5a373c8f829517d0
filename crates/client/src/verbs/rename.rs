//! Rename. The MDT keeps a file that a rename replaces until this client releases it; see `removed`.

use std::time::Instant;

use types::{Cred, Fault, Fid};
use wire::codec::Bytes;
use wire::meta::{RENAME_EXCHANGE, Rename, WatchDir};

use crate::Fs;

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
        self.kernel_renames((parent, name), (new_parent, new_name), flags, deadline);
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
    fn kernel_renames(&self, from: (Fid, &[u8]), to: (Fid, &[u8]), flags: u32, deadline: Instant) {
        let leased = &self.id.leased;
        let is_exchange = flags & RENAME_EXCHANGE != 0;
        let moves = [Some((from, to)), is_exchange.then_some((to, from))];
        for (from, to) in moves.into_iter().flatten() {
            let Some((left, is_noted)) = leased.kernel_moves(from, to) else { continue };
            let is_told = || from.0 == to.0 || leased.is_told_of(to.0) || self.watch(to.0, deadline);
            if !is_noted || !is_told() {
                std::thread::sleep(left.min(deadline.saturating_duration_since(Instant::now())));
            }
        }
    }

    /// From here on this client is told of changes of names in the directory. Nothing is a fault: the caller then waits.
    fn watch(&self, dir: Fid, deadline: Instant) -> bool {
        let since = self.id.leased.since();
        let told = self.ask_until(dir, &WatchDir { dir }, deadline);
        told.is_ok_and(|answer| answer.reply.is_told) && self.id.leased.is_unchanged(dir, since)
    }
}
