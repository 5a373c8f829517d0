//! Files without a name.

use types::{Attr, Cred, Fault, Fid};
use wire::meta::Tmpfile;

use crate::Fs;
use crate::cache::api::{Handle, Mode, OpenFlags};
use crate::cache::files::For;

impl Fs {
    /// Makes and opens a regular file without a name (`O_TMPFILE`). It is removed with its last descriptor, unless `link` gives it a name before;
    /// `exclusive` forbids that. Striping, group and ACL are as for a file in `parent`.
    pub fn tmpfile(
        &self,
        parent: Fid,
        mode: impl Into<Mode>,
        flags: OpenFlags,
        cred: &Cred,
    ) -> Result<(Attr, Handle), Fault> {
        self.refuse_observer()?;
        let deadline = self.deadline();
        let Mode { bits: mode, umask } = mode.into();
        let (now, cred) = (self.now(), cred.clone());
        let req = Tmpfile { parent, mode, umask, exclusive: flags.exclusive, now, cred, want: Fid(0) };
        let times_told = self.id.sharing.times_told();
        let answer = self.ask_until(parent, &req, deadline)?;
        let fid = answer.reply.inode.attr.fid;
        // No other call knows the file yet, so it need not be in the table before.
        let file = self.files.pin(fid, if flags.write { For::Writing } else { For::Reading });
        file.meta.lock().is_orphan = true;
        _ = self.id.sharing.note_open(&file);
        let attr = {
            let order = file.lock_order(deadline);
            order.and_then(|_order| {
                let attr = answer.reply.inode.attr;
                self.take_open(&file, answer.reply, answer.mark, deadline).map(|_| attr)
            })
        };
        let attr = attr.and_then(|attr| self.hold_made(&file, attr, times_told, deadline));
        self.make_handle(file, flags, attr, deadline).map(|(handle, attr)| (attr, handle))
    }
}
