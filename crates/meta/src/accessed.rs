//! Accessed: updates access times by Linux's `relatime`.

use types::*;
use wire::Empty;
use wire::accessed::{Accessed, ReadTime};
use wire::meta::FLAG_NOATIME;

use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
use crate::{Ctx, Txn, access};

const DAY_SECONDS: i64 = 24 * 60 * 60;

pub fn accessed(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Accessed) -> Result<Empty, Fault> {
    for read in &req.reads {
        // The inode may be gone by now, and its times with it.
        let Ok(mut inode) = load_inode(txn, read.fid) else { continue };
        if !ctx.may_use(txn, read.fid)? {
            continue;
        }
        if is_due(&inode, read) && access::allows(&inode, &req.cred, access::READ) {
            assert!(inode.attr.atime < read.atime, "an access time only rises here");
            inode.attr.atime = read.atime;
            store_inode(txn, &inode);
        }
    }
    Ok(Empty {})
}

fn is_due(inode: &InodeRecord, read: &ReadTime) -> bool {
    let Attr { atime, mtime, ctime, .. } = inode.attr;
    let is_old = atime <= mtime || atime <= ctime || read.atime.sec.saturating_sub(atime.sec) >= DAY_SECONDS;
    inode.flags & FLAG_NOATIME == 0 && atime < read.atime && (read.sure || is_old)
}

#[cfg(test)]
mod tests;
