//! The records of a new file system: the root directory, the totals, and the mark that counts are kept.

use types::*;

use crate::inode::{DIR_BLOCKS, DIR_SIZE, store_inode};
use crate::records::InodeRecord;
use crate::{Txn, counts, totals};

/// Makes the root directory, mode 0755, owned by root. It has no name, so it has no parent hint.
pub fn format(txn: &mut dyn Txn, now: Time) {
    store_inode(
        txn,
        &InodeRecord::new(Attr {
            fid: Fid::ROOT,
            kind: Kind::Dir,
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            rdev: 0,
            size: DIR_SIZE,
            blocks: DIR_BLOCKS,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        }),
    );
    totals::inode_made(txn);
    counts::begin(txn);
}
