//! Unlink: removes a name. With the last one the inode is removed too, or becomes an orphan if a client holds it open.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{Unlink, UnlinkReply};

use crate::inode::{load_dir, load_named, store_inode, touch};
use crate::{Ctx, Txn, access, names, note, reap};

pub fn unlink(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Unlink) -> Result<UnlinkReply, Fault> {
    names::validate(&req.name)?;
    let mut dir = load_dir(txn, req.parent)?;
    access::need_search(&dir, &req.cred)?;
    let found = names::need_entry(txn, req.parent, &req.name)?;
    let victim = load_named(txn, found.entry.fid, req.parent)?;
    access::need_remove(&dir, &victim, &req.cred)?;
    if victim.is_dir() {
        return Err(Code::IsDir.into());
    }
    names::remove_entry(txn, found.at);
    touch(&mut dir, req.now);
    store_inode(txn, &dir);
    let left = reap::lose_link(ctx, txn, victim, found.at, req.held, req.now);
    note::unnamed(txn, ChangeOp::Unlink, &left, (req.parent, &req.name), &req.cred);
    Ok(left)
}

#[cfg(test)]
mod tests;
