//! Access times: a client reports many reads to an MDT in one request, a moment after they happened.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls};

bodies! {
    /// Reports read times of many inodes. An inode takes the new atime if it is newer and, as with `relatime`, its old atime is not newer
    /// than mtime and ctime or is a day old. ctime does not change. Skipped: inodes that are gone, that have `FLAG_NOATIME`, or that
    /// `cred` may not read.
    Accessed { reads: Vec<ReadTime>, cred: Cred }
    /// One read. `sure`: the client knows an mtime newer than the MDT may have, and the old atime is older than it.
    ReadTime { fid: Fid, atime: Time, sure: bool }
}

calls! {
    0x0220 Accessed => Empty, mutate;
}
