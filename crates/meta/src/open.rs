//! Open by fid: attributes, layout and the capability for the objects. A write open of a file with objects marks it as being written.

use types::*;
use wire::meta::{FileState, Open, OpenReply};
use wire::object::{Capability, RIGHT_READ, RIGHT_WRITE};

use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
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
    if write && inode.layout.is_some() && inode.state == FileState::Settled {
        inode.state = FileState::Writing(ctx.session);
        store_inode(txn, inode);
    }
    let rights = if write { RIGHT_READ | RIGHT_WRITE } else { RIGHT_READ };
    let cap =
        inode.layout.as_ref().map(|l| l.generation).map(|g| capability(ctx, txn, inode.fid(), g, rights));
    Ok(OpenReply { inode: inode.to_wire(), cap })
}

/// A capability with a new lease version.
pub fn capability(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    fid: Fid,
    generation: Generation,
    rights: u8,
) -> Capability {
    let lease = txn.next_lease();
    (ctx.make_cap)(fid, generation, rights, lease)
}
