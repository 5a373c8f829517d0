//! RemoveDir: removes an empty directory, its name and its inode.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{RemoveDir, UnlinkReply};

use crate::inode::{load_dir, load_named, store_inode, touch};
use crate::{Ctx, Txn, access, names, note, reap};

pub fn rmdir(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: RemoveDir) -> Result<UnlinkReply, Fault> {
    if *req.name == *b".." {
        // The parent has at least the directory from which `..` was looked up.
        return Err(Code::NotEmpty.into());
    }
    names::validate(&req.name)?;
    let mut dir = load_dir(txn, req.parent)?;
    access::need_search(&dir, &req.cred)?;
    let found = names::need_entry(txn, req.parent, &req.name)?;
    let victim = load_named(txn, found.entry.fid, req.parent)?;
    access::need_remove(&dir, &victim, &req.cred)?;
    if !victim.is_dir() {
        return Err(Code::NotDir.into());
    }
    if !names::is_empty(txn, victim.fid()) {
        return Err(Code::NotEmpty.into());
    }
    names::remove_entry(txn, found.at);
    dir.attr.nlink = dir.attr.nlink.saturating_sub(1);
    touch(&mut dir, req.now);
    store_inode(txn, &dir);
    let left = reap::lose_link(ctx, txn, victim, found.at, req.held, req.now);
    note::unnamed(txn, ChangeOp::RemoveDir, &left, (req.parent, &req.name), &req.cred);
    Ok(left)
}

#[cfg(test)]
mod tests;
