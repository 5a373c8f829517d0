//! Settle (rule O3): the MDT learns what flushed bytes have proven.

use types::*;
use wire::meta::{FileState, Settle, SettleReply};

use crate::grow::mark_written;
use crate::inode::{load_inode, store_inode};
use crate::{Ctx, Txn};

pub fn settle(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Settle) -> Result<SettleReply, Fault> {
    if req.size > FILE_SIZE_MAX {
        return Err(Code::FileTooBig.into());
    }
    let mut inode = load_inode(txn, req.fid)?;
    let Some(layout) = inode.layout.as_mut().filter(|l| l.generation == req.generation) else {
        return Err(Fault::new(
            Code::Stale,
            format!("file {}: its layout is not of generation {}", req.fid, req.generation),
        ));
    };
    mark_written(layout, &req.written)?;
    // 1. Size: it rises with what was written; only a shrink that is under way sets it.
    inode.attr.size = match inode.state {
        FileState::Truncating { .. } => req.size,
        _ => inode.attr.size.max(req.size),
    };
    // 2. Times and blocks.
    if req.mtime > inode.attr.mtime && req.mtime > inode.mtime_set_at {
        inode.attr.mtime = req.mtime;
        inode.attr.ctime = inode.attr.ctime.max(req.mtime);
    }
    inode.attr.blocks = req.blocks;
    // 3. State.
    inode.state = if req.done { FileState::Settled } else { FileState::Writing(ctx.session) };
    store_inode(txn, &inode);
    Ok(SettleReply { attr: inode.attr })
}
