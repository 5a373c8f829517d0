//! Truncate. Four cases, each in one entry; only a shrink of objects leaves work for the client.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{FileState, Truncate, TruncateReply};
use wire::object::{RIGHT_READ, RIGHT_WRITE};

use crate::inode::{load_inode, store_inode};
use crate::open::capability;
use crate::records::InodeRecord;
use crate::sharing::For;
use crate::stripe::inline_max;
use crate::{Ctx, Txn, access, grow, inline, note, reap};

pub fn truncate(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Truncate) -> Result<TruncateReply, Fault> {
    if req.size > FILE_SIZE_MAX {
        return Err(Code::FileTooBig.into());
    }
    let mut inode = load_inode(txn, req.fid)?;
    match inode.attr.kind {
        Kind::File => {}
        Kind::Dir => return Err(Code::IsDir.into()),
        _ => return Err(Code::Invalid.into()),
    }
    ctx.need_write(req.held.as_ref(), &inode, &req.cred)?;
    access::need_unprotected(&inode)?;
    let mut pending = false;
    if req.size == 0 {
        // Empty: old objects, if any, go to the purge list; the file becomes inline again.
        empty(txn, &mut inode, req.now);
    } else if inode.layout.is_none() {
        if req.size > inline_max(ctx, &inode) as u64 {
            return Err(Code::NeedLayout.into());
        }
        grow::change_record(txn, &mut inode, true)?;
        if req.size < inode.attr.size {
            inline::cut(txn, req.fid, req.size)?;
        }
        inode.attr.size = req.size;
        inode.attr.blocks = inline::count_blocks(txn, req.fid);
    } else {
        // An unsettled file may have bytes past the recorded size, so its objects must be cut too. A cut to the present size frees
        // reserved space past it.
        let unsettled = inode.state != FileState::Settled;
        pending = req.size <= inode.attr.size || unsettled;
        if pending {
            inode.state = FileState::Truncating { session: ctx.session, size: req.size };
        }
        inode.attr.size = req.size;
    }
    assert!(inode.attr.size == req.size, "a truncate sets the size");
    assert!(
        !pending || matches!(inode.state, FileState::Truncating { .. }),
        "a shrink of objects is recorded until it is complete"
    );
    inode.attr.mtime = req.now;
    inode.attr.ctime = req.now;
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Truncate, req.fid, Some(&req.cred));
    let generation = inode.layout.as_ref().map(|l| l.generation);
    let cap = generation.map(|g| capability(ctx, txn, req.fid, g, RIGHT_READ | RIGHT_WRITE, false));
    Ok(TruncateReply { inode: inode.shown(ctx, For::Using), cap, pending })
}

/// Makes a file empty and inline: size 0, no layout, old objects in the unlink log.
pub fn empty(txn: &mut dyn Txn, inode: &mut InodeRecord, now: Time) {
    inline::delete_pages(txn, inode.fid(), 0);
    for layout in [inode.layout.take(), inode.pending.take()].into_iter().flatten() {
        reap::bury(txn, inode.fid(), &layout);
    }
    (inode.attr.size, inode.attr.blocks) = (0, 0);
    inode.state = FileState::Settled;
    inode.attr.mtime = now;
    inode.attr.ctime = now;
}
