//! Open by fid: attributes, layout and the capability for the objects. A write open of a file with objects marks it as being written.

use types::*;
use wire::meta::{Open, OpenReply};
use wire::object::{Capability, RIGHT_READ, RIGHT_WRITE};
use wire::shared::{Enter, EnterReply};

use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
use crate::sharing::{self, For};
use crate::{Ctx, Txn, truncate};

pub fn open(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Open) -> Result<OpenReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    if inode.is_dir() && (req.write || req.truncate) {
        return Err(Code::IsDir.into());
    }
    if req.truncate && inode.attr.kind == Kind::File {
        truncate::empty(txn, &mut inode, req.now);
        store_inode(txn, &inode);
    }
    open_reply(ctx, txn, &mut inode, req.write)
}

/// The answer to an open or create of `inode`. With `write`, a settled file with objects becomes `Writing(session)`; a file that another
/// session left unsettled keeps its state, which tells the client to recover it first.
pub fn open_reply(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    inode: &mut InodeRecord,
    write: bool,
) -> Result<OpenReply, Fault> {
    let is_left_over = sharing::is_left_over(ctx, inode);
    if write && inode.layout.is_some() && !is_left_over {
        let state = sharing::writing(ctx, inode);
        // One session that goes on writing changes nothing.
        if state != inode.state {
            inode.state = state;
            store_inode(txn, inode);
        }
    }
    let rights = if write { RIGHT_READ | RIGHT_WRITE } else { RIGHT_READ };
    let cap = inode
        .layout
        .as_ref()
        .map(|l| l.generation)
        .map(|g| capability(ctx, txn, inode.fid(), g, rights, is_left_over));
    Ok(OpenReply { inode: inode.shown(ctx, For::Using), cap })
}

/// The call `Enter`, which the executor has let in: an open of the content as it is now.
pub fn enter(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Enter) -> Result<EnterReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    let open = open_reply(ctx, txn, &mut inode, req.write)?;
    Ok(EnterReply { granted: true, open: Some(open) })
}

/// A capability with a new lease version, or with the one that those who share have in common; a dead session is fenced.
pub fn capability(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    fid: Fid,
    generation: Generation,
    rights: u8,
    fence: bool,
) -> Capability {
    let lease = sharing::lease(ctx, txn, fence);
    (ctx.make_cap)(fid, generation, rights, lease)
}
