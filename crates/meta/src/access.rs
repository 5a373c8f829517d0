//! Who may do what: permission bits, ownership, the sticky bit. Exactly as Linux decides, never stricter.

use types::*;

use crate::inode::STICKY;
use crate::records::InodeRecord;

pub const READ: u32 = 4;
pub const WRITE: u32 = 2;
pub const EXEC: u32 = 1;

/// Whether `cred` has all of `wanted` (bits READ, WRITE, EXEC) on a file or directory. Root has everything.
pub fn allows(attr: &Attr, cred: &Cred, wanted: u32) -> bool {
    let shift = match () {
        _ if cred.uid == 0 => return true,
        _ if cred.uid == attr.uid => 6,
        _ if cred.is_in_group(attr.gid) => 3,
        _ => 0,
    };
    attr.mode >> shift & wanted == wanted
}

pub fn need(inode: &InodeRecord, cred: &Cred, wanted: u32) -> Result<(), Fault> {
    if allows(&inode.attr, cred, wanted) {
        return Ok(());
    }
    let bits = [(READ, 'r'), (WRITE, 'w'), (EXEC, 'x')];
    let letters: String =
        bits.iter().filter(|(bit, _)| wanted & bit != 0).map(|(_, letter)| letter).collect();
    Err(Fault::new(Code::Access, format!("uid {} has no '{letters}' on file {}", cred.uid, inode.fid())))
}

/// May look names up in a directory.
pub fn need_search(dir: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    need(dir, cred, EXEC)
}

/// May add or remove names in a directory.
pub fn need_change(dir: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    need(dir, cred, WRITE | EXEC)
}

/// May take the name of `victim` out of `dir`: change it, and in a sticky directory own one of the two.
pub fn need_remove(dir: &InodeRecord, victim: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    need_change(dir, cred)?;
    let owns = is_owner(dir, cred) || is_owner(victim, cred);
    match dir.attr.mode & STICKY != 0 && !owns {
        true => Err(Fault::new(
            Code::Perm,
            format!("directory {} is sticky and file {} is another's", dir.fid(), victim.fid()),
        )),
        false => Ok(()),
    }
}

/// The owner, or root.
pub fn is_owner(inode: &InodeRecord, cred: &Cred) -> bool {
    cred.uid == 0 || cred.uid == inode.attr.uid
}

pub fn need_owner(inode: &InodeRecord, cred: &Cred) -> Result<(), Fault> {
    match is_owner(inode, cred) {
        true => Ok(()),
        false => {
            Err(Fault::new(Code::Perm, format!("file {} belongs to uid {}", inode.fid(), inode.attr.uid)))
        }
    }
}

/// May keep the setgid bit of a file of group `gid`.
pub fn keeps_setgid(cred: &Cred, gid: u32) -> bool {
    cred.uid == 0 || cred.is_in_group(gid)
}

#[cfg(test)]
mod tests;
