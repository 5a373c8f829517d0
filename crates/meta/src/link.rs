//! Link: adds a name to an inode that is not a directory.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{Inode, Link};

use crate::inode::{add_hint, load_dir, load_inode, need_room, store_inode, touch};
use crate::names::{self, Slot};
use crate::records::LINKABLE;
use crate::sharing::For;
use crate::{Ctx, Txn, access, keys, note};

/// ext4's limit.
pub const LINKS_MAX: u32 = 65_000;

pub fn link(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Link) -> Result<Inode, Fault> {
    names::validate(&req.name)?;
    let mut inode = load_inode(txn, req.fid)?;
    let mut dir = load_dir(txn, req.parent)?;
    access::need_search(&dir, &req.cred)?;
    let at = match names::find_slot(txn, req.parent, &req.name)? {
        Slot::Free(at) => at,
        // In a replay whose link survived, this is the request's own link.
        Slot::Taken(found) if ctx.replay && found.entry.fid == req.fid => {
            return Ok(inode.shown(ctx, For::Looking));
        }
        Slot::Taken(_) => return Err(Code::Exists.into()),
    };
    access::need_change(&dir, &req.cred)?;
    if inode.is_dir() {
        return Err(Fault::new(Code::Perm, "a directory has one name"));
    }
    access::need_unprotected(&inode)?;
    match inode.attr.nlink {
        0 if inode.flags & LINKABLE != 0 => {
            // The file's first name: it is no longer an orphan.
            need_room(ctx)?;
            txn.delete(&keys::orphan(req.fid));
            inode.flags &= !LINKABLE;
        }
        // An orphan that had names stays one: its purge is decided already.
        0 => return Err(Code::NotFound.into()),
        n if n >= LINKS_MAX => return Err(Code::TooManyLinks.into()),
        _ => need_room(ctx)?,
    }
    inode.attr.nlink += 1;
    assert!(inode.attr.nlink <= LINKS_MAX, "links are bounded");
    assert!(!inode.is_dir(), "meta-I2: a directory has one name");
    inode.attr.ctime = req.now;
    add_hint(&mut inode, at);
    store_inode(txn, &inode);
    names::put_entry(txn, at, req.fid, inode.attr.kind, &req.name);
    touch(&mut dir, req.now);
    store_inode(txn, &dir);
    note::named(txn, ChangeOp::Link, req.fid, (req.parent, &req.name), &req.cred);
    Ok(inode.shown(ctx, For::Looking))
}

#[cfg(test)]
mod tests;
