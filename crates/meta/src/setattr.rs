//! SetAttr: changes mode, owner, group and times, with the permissions of Linux. `Truncate` changes sizes.

use types::*;
use wire::meta::{Inode, SET_ATIME, SET_GID, SET_KILLPRIV, SET_MODE, SET_MTIME, SET_TOUCH, SET_UID, SetAttr};

use crate::access::{self, WRITE};
use crate::inode::{GROUP_EXEC, MODE_BITS, SETGID, SETUID, load_inode, store_inode};
use crate::records::InodeRecord;
use crate::sharing::For;
use crate::{Ctx, Txn, note};

const KNOWN: u32 = SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME | SET_KILLPRIV | SET_TOUCH;

pub fn setattr(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: SetAttr) -> Result<Inode, Fault> {
    if req.valid & !KNOWN != 0 {
        return Err(Fault::new(Code::BadRequest, format!("attribute bits {:#x}", req.valid & !KNOWN)));
    }
    let mut inode = load_inode(txn, req.fid)?;
    // 1. Check all parts: all or nothing.
    need_chown(&inode, &req)?;
    need_chgrp(&inode, &req)?;
    if req.valid & SET_MODE != 0 {
        access::need_owner(&inode, &req.cred)?;
    }
    need_utimes(&inode, &req)?;
    need_changeable(&inode, &req)?;
    need_content(ctx, &inode, &req)?;
    // 2. Mode: from the old owner's bits and the new group.
    inode.attr.mode = new_mode(&inode, &req);
    debug_assert!(inode.attr.mode & !MODE_BITS == 0, "an inode has the bits of a mode only");
    if req.valid & SET_MODE != 0 {
        inode.access_acl.set_mode(inode.attr.mode);
        assert!(
            inode.access_acl.is_empty() || inode.access_acl.mode_bits() == inode.attr.mode & 0o777,
            "an access ACL and the mode agree"
        );
    }
    // 3. The other attributes.
    let Attr { uid, gid, atime, mtime, ctime, .. } = &mut inode.attr;
    let fields: [(u32, &mut u32, u32); 2] = [(SET_UID, uid, req.uid), (SET_GID, gid, req.gid)];
    let times: [(u32, &mut Time, Time); 2] = [(SET_ATIME, atime, req.atime), (SET_MTIME, mtime, req.mtime)];
    fields.into_iter().filter(|f| req.valid & f.0 != 0).for_each(|(_, field, value)| *field = value);
    times.into_iter().filter(|f| req.valid & f.0 != 0).for_each(|(_, field, value)| *field = value);
    *ctime = req.now;
    if req.valid & SET_MTIME != 0 {
        inode.mtime_set_at = req.now;
    }
    store_inode(txn, &inode);
    note::attributes(txn, req.fid, what(&req), &req.cred);
    Ok(inode.shown(ctx, For::Looking))
}

/// The changed attributes, for the changelog. Clearing the set-id bits is a change of the mode.
fn what(req: &SetAttr) -> u32 {
    let mode = if req.valid & SET_KILLPRIV != 0 { SET_MODE } else { 0 };
    req.valid & (SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME) | mode
}

/// True if both times become *now*. As on Linux, a single time counts as chosen by the caller, even if it is the present one.
fn is_touch(req: &SetAttr) -> bool {
    let both = SET_ATIME | SET_MTIME;
    req.valid & SET_TOUCH != 0 && req.valid & both == both
}

/// Checks `chattr` flags. An immutable file allows no change, not even of its ctime by a request without attributes. An append-only file
/// allows to set both times to *now*.
fn need_changeable(inode: &InodeRecord, req: &SetAttr) -> Result<(), Fault> {
    let sets_times = req.valid & (SET_ATIME | SET_MTIME) != 0 && !is_touch(req);
    match req.valid & (SET_MODE | SET_UID | SET_GID) != 0 || sets_times {
        true => access::need_unprotected(inode),
        false => access::need_mutable(inode),
    }
}

/// The set-id bits are cleared after a change of content, so the caller needs the right to make one.
fn need_content(ctx: &Ctx<'_>, inode: &InodeRecord, req: &SetAttr) -> Result<(), Fault> {
    if req.valid & SET_KILLPRIV == 0 {
        return Ok(());
    }
    // A client's kernel that checks rights has checked this too.
    match ctx.judge.is_some() && !access::is_owner(inode, &req.cred) {
        true => ctx.need_write(req.held.as_ref(), inode, &req.cred),
        false => Ok(()),
    }
}

/// Only root may change the owner; the owner may set its own uid.
fn need_chown(inode: &InodeRecord, req: &SetAttr) -> Result<(), Fault> {
    let stays = req.uid == inode.attr.uid && req.cred.uid == inode.attr.uid;
    match req.valid & SET_UID == 0 || req.cred.may_all() || stays {
        true => Ok(()),
        false => Err(Fault::new(Code::Perm, format!("only root may give file {} to another", inode.fid()))),
    }
}

/// The owner may choose among its groups.
fn need_chgrp(inode: &InodeRecord, req: &SetAttr) -> Result<(), Fault> {
    let owner = req.cred.uid == inode.attr.uid;
    let stays = owner && (req.gid == inode.attr.gid || req.cred.is_in_group(req.gid));
    match req.valid & SET_GID == 0 || req.cred.may_all() || stays {
        true => Ok(()),
        false => Err(Fault::new(
            Code::Perm,
            format!("uid {} may not give file {} to group {}", req.cred.uid, inode.fid(), req.gid),
        )),
    }
}

/// The owner may set any time; a caller with the right to write may set both to the present.
fn need_utimes(inode: &InodeRecord, req: &SetAttr) -> Result<(), Fault> {
    let asks = req.valid & (SET_ATIME | SET_MTIME) != 0;
    match asks && !access::is_owner(inode, &req.cred) {
        true if is_touch(req) => access::need(inode, &req.cred, WRITE),
        true => access::need_owner(inode, &req.cred),
        false => Ok(()),
    }
}

/// The mode after this request: as requested, or without the set-id bits that a change of owner clears.
fn new_mode(inode: &InodeRecord, req: &SetAttr) -> u32 {
    let Attr { mode, gid, .. } = inode.attr;
    if req.valid & SET_MODE != 0 {
        let gid = if req.valid & SET_GID != 0 { req.gid } else { gid };
        let drop = if access::keeps_setgid(&req.cred, gid) { 0 } else { SETGID };
        return req.mode & MODE_BITS & !drop;
    }
    if req.valid & (SET_UID | SET_GID | SET_KILLPRIV) == 0 || inode.is_dir() {
        return mode;
    }
    // A program must not run as its new owner without that owner's consent. Root's chown clears the bits too.
    let keeps_setgid = mode & GROUP_EXEC == 0 && access::keeps_setgid(&req.cred, gid);
    mode & !SETUID & if keeps_setgid { MODE_BITS } else { !SETGID }
}

#[cfg(test)]
mod tests;
