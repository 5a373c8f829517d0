//! The `Open` request: a new open on behalf of a caller, or a repeated one for descriptors that exist. The capability of the last open
//! (`held`) proves to the MDT that this client may continue.

use types::{Cred, Time};
use wire::meta::{Open, OpenRead};
use wire::object::Capability;

use crate::cache::api::OpenFlags;
use crate::cache::files::File;

/// Why the MDT is asked to open a file.
#[derive(Clone, Copy)]
pub(crate) enum Asks<'a> {
    /// For a new descriptor: the caller must be allowed to.
    New(OpenFlags, &'a Cred),
    /// Again, for existing descriptors: their earlier open proves their right.
    Again,
}

impl Asks<'_> {
    /// `write`: the capability must allow writing, because one of the file's descriptors needs it.
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

/// The same, if it is an open that changes nothing; with content of up to `want` bytes.
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
