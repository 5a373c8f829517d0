//! Access rights: permission bits and ACLs, ownership, the sticky bit, `chattr` flags. The decisions are exactly those of Linux, never
//! stricter.

use types::*;

use wire::meta::{FLAG_APPEND, FLAG_IMMUTABLE};

use crate::inode::STICKY;
use crate::records::InodeRecord;

pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const EXEC: u32 = 1;
/// The group class of a mode.
const GROUP_ALL: u32 = 0o070;

/// True if `cred` has all of `wanted` (bits READ, WRITE, EXEC) on a file or directory. Root has every right, and so has a caller that the
/// client's kernel has checked.
pub fn allows(inode: &InodeRecord, cred: &Cred, wanted: u32) -> bool {
    let attr = &inode.attr;
    // Linux uses an ACL only if the group class has any bit: without one, no named user or group gets a right from it.
    let has_acl = !inode.access_acl.is_empty() && attr.mode & GROUP_ALL != 0;
    let shift = match () {
        _ if cred.may_all() => return true,
        _ if cred.uid == attr.uid => 6,
        _ if has_acl => return inode.access_acl.allows(attr.gid, cred, wanted),
        _ if cred.is_in_group(attr.gid) => 3,
        _ => 0,
    };
    attr.mode >> shift & wanted == wanted
}

pub fn need(inode: &InodeRecord, cred: &Cred, wanted: u32) -> Result<(), Fault> {
    assert!(wanted & !(READ | WRITE | EXEC) == 0, "a rule asks for known rights");
    if wanted & WRITE != 0 {
        need_mutable(inode)?;
    }
    if allows(inode, cred, wanted) {
        return Ok(());
    }
    let bits = [(READ, 'r'), (WRITE, 'w'), (EXEC, 'x')];
    let letters: String =
        bits.iter().filter(|(bit, _)| wanted & bit != 0).map(|(_, letter)| letter).collect();
    Err(Fault::new(Code::Access, format!("uid {} has no '{letters}' on file {}", cred.uid, inode.fid())))
}

/// Refuses a change of an immutable file, also by root.
pub fn need_mutable(inode: &InodeRecord) -> Result<(), Fault> {
    refuse_flags(inode, FLAG_IMMUTABLE)
}

/// Refuses a change that is not an append: of attributes, links, or existing bytes.
pub fn need_unprotected(inode: &InodeRecord) -> Result<(), Fault> {
    refuse_flags(inode, FLAG_IMMUTABLE | FLAG_APPEND)
}

fn refuse_flags(inode: &InodeRecord, flags: u32) -> Result<(), Fault> {
    let word = match inode.flags & flags {
        0 => return Ok(()),
        f if f & FLAG_IMMUTABLE != 0 => "immutable (chattr -i lets it be changed)",
        _ => "append-only (chattr -a lets it be changed)",
    };
    Err(Fault::new(Code::Perm, format!("file {} is {word}", inode.fid())))
}

/// Needs the right to look up names in a directory.
pub fn need_search(dir: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    need(dir, cred, EXEC)
}

/// Needs the right to add or remove names in a directory.
pub fn need_change(dir: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    need(dir, cred, WRITE | EXEC)
}

/// Needs the right to remove the name of `victim` from `dir`: to change `dir`, and in a sticky directory to own one of the two.
pub fn need_remove(dir: &InodeRecord, victim: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    need_change(dir, cred)?;
    need_unprotected(dir)?;
    need_unprotected(victim)?;
    let owns = is_owner(dir, cred) || is_owner(victim, cred);
    match dir.attr.mode & STICKY != 0 && !owns {
        true => Err(Fault::new(
            Code::Perm,
            format!("directory {} is sticky and file {} is another's", dir.fid(), victim.fid()),
        )),
        false => Ok(()),
    }
}

/// True for the owner and for root.
pub fn is_owner(inode: &InodeRecord, cred: &Cred) -> bool {
    cred.may_all() || cred.uid == inode.attr.uid
}

pub fn need_owner(inode: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    match is_owner(inode, cred) {
        true => Ok(()),
        false => {
            Err(Fault::new(Code::Perm, format!("file {} belongs to uid {}", inode.fid(), inode.attr.uid)))
        }
    }
}

/// True if the caller may keep the setgid bit of a file of group `gid`.
pub fn keeps_setgid(cred: &Cred, gid: u32) -> bool {
    cred.may_all() || cred.is_in_group(gid)
}

#[cfg(test)]
mod tests;
