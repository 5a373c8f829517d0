//! Credentials of an open, and the proof that this client may open a file again that it has open.

use types::{Cred, Time};
use wire::meta::{Open, OpenRead};
use wire::object::Capability;

use crate::cache::api::OpenFlags;
use crate::cache::files::File;

/// The reason of an open at the MDT.
#[derive(Clone, Copy)]
pub(crate) enum Asks<'a> {
    /// A new descriptor. The caller needs permission.
    New(OpenFlags, &'a Cred),
    /// Again, for existing descriptors. The capability that they have proves their right.
    Again,
}

impl Asks<'_> {
    /// The request. `write`: a descriptor of the file needs a capability for writing.
    pub fn request(self, file: &File, write: bool, now: Time) -> Open {
        let (flags, cred) = match self {
            Asks::New(flags, cred) => (flags, cred.clone()),
            Asks::Again => (OpenFlags::default(), Cred::root()),
        };
        let OpenFlags { read, append, appends_itself, truncate, .. } = flags;
        let append = append || appends_itself;
        let (held, keep_write) = (file.held(), write && !flags.write);
        Open { fid: file.fid, read, write: flags.write, append, truncate, keep_write, held, now, cred }
    }
}

/// The request as `OpenRead`, if the open changes nothing; with content of up to `want` bytes.
pub(crate) fn read_only(open: &Open, want: u32) -> Option<OpenRead> {
    let Open { fid, read, write, append: _, truncate, keep_write, ref held, now: _, ref cred } = *open;
    let changes = write || truncate || keep_write;
    (!changes).then(|| OpenRead { fid, read, held: held.clone(), cred: cred.clone(), want })
}

impl File {
    /// The capability of the last open.
    pub fn held(&self) -> Option<Capability> {
        self.meta.lock().cap.clone()
    }
}
