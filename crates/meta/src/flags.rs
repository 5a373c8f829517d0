//! SetFlags: sets the flags of `chattr`. Only root may change the two that protect a file, and they bind root too; see `access`.

use types::*;
use wire::changelog::WHAT_FLAGS;
use wire::meta::{FLAG_APPEND, FLAG_IMMUTABLE, FLAGS_KEPT, Inode, SetFlags};

use crate::inode::{load_inode, store_inode};
use crate::{Ctx, Txn, access, note};

pub fn set_flags(_: &Ctx<'_>, txn: &mut dyn Txn, req: SetFlags) -> Result<Inode, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    if !matches!(inode.attr.kind, Kind::File | Kind::Dir) {
        return Err(Fault::new(Code::Unsupported, "only regular files and directories have flags"));
    }
    access::need_owner(&inode, &req.cred)?;
    let (now, wanted) = (inode.flags & FLAGS_KEPT, req.flags);
    if (now ^ wanted) & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 && !req.cred.may_all() {
        return Err(Fault::new(Code::Perm, "only root makes files immutable or append-only, or ends that"));
    }
    if wanted & !FLAGS_KEPT != 0 {
        return Err(Fault::new(Code::Unsupported, format!("flags {:#x} are not kept", wanted & !FLAGS_KEPT)));
    }
    // As ext4: a file that stays immutable cannot change its other flags.
    if now & wanted & FLAG_IMMUTABLE != 0 && now != wanted {
        access::need_mutable(&inode)?;
    }
    inode.flags = inode.flags & !FLAGS_KEPT | wanted;
    assert!(inode.flags & FLAGS_KEPT == wanted, "the file has exactly the requested flags");
    inode.attr.ctime = req.now;
    store_inode(txn, &inode);
    note::attributes(txn, req.fid, WHAT_FLAGS, &req.cred);
    Ok(inode.to_wire())
}

#[cfg(test)]
mod tests;
