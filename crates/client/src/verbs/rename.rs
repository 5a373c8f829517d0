//! Rename. The MDT keeps a file that a rename replaces until this client releases it; see `removed`.

use types::{Cred, Fault, Fid};
use wire::codec::Bytes;
use wire::meta::Rename;

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
        let (name, new_name, now) = (Bytes::from(name), Bytes::from(new_name), self.now());
        // `hold`: the replaced file stays for programs that have it open, or are about to open it.
        let (cred, want) = (cred.clone(), Fid(0));
        let req = Rename { parent, name, new_parent, new_name, flags, hold: true, now, cred, want };
        if let Some(gone) = self.ask_until(parent, &req, deadline)?.reply.replaced {
            self.note_removed(&gone, deadline);
        }
        Ok(())
    }
}
