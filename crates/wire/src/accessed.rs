//! Access times: what reads tell an MDT, many at once and a moment later.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls};

bodies! {
    /// These were read. An inode's atime becomes the one named if that is newer and, as by `relatime`, the old one is not newer than
    /// mtime and ctime, or a day old. ctime stays. Passed over: what is gone, has `FLAG_NOATIME`, or `cred` may not read.
    Accessed { reads: Vec<ReadTime>, cred: Cred }
    /// `sure`: the client knows a newer mtime than the MDT may; the old atime is older than that.
    ReadTime { fid: Fid, atime: Time, sure: bool }
}

calls! {
    0x0220 Accessed => Empty, mutate;
}
