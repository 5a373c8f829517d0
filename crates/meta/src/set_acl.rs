//! ACLs as the attributes `system.posix_acl_access` and `system.posix_acl_default`, through which programs set and read them.

use types::*;

use crate::access;
use crate::acl::Acl;
use crate::inode::SETGID;
use crate::records::InodeRecord;

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Selects one of an inode's two lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    Access,
    Default,
}

pub fn get(inode: &InodeRecord, which: Which) -> Result<Vec<u8>, Fault> {
    need_able(inode)?;
    let acl = match which {
        Which::Access => &inode.access_acl,
        Which::Default => &inode.default_acl,
    };
    match acl.is_empty() {
        true => Err(Code::NoData.into()),
        false => Ok(acl.to_xattr()),
    }
}

/// Sets a list; an empty one removes it. An access ACL also sets the mode, and is not kept if the mode expresses it.
pub fn set(inode: &mut InodeRecord, which: Which, acl: Acl, cred: &Cred) -> Result<(), Fault> {
    need_able(inode)?;
    access::need_unprotected(inode)?;
    access::need_owner(inode, cred)?;
    match which {
        Which::Default if inode.is_dir() => inode.default_acl = acl,
        Which::Default if acl.is_empty() => {}
        Which::Default => return Err(Fault::new(Code::Access, "only directories have a default ACL")),
        Which::Access if acl.is_empty() => inode.access_acl = acl,
        Which::Access => {
            let drop = if access::keeps_setgid(cred, inode.attr.gid) { 0 } else { SETGID };
            inode.attr.mode = inode.attr.mode & !0o777 & !drop | acl.mode_bits();
            assert!(inode.attr.mode & 0o777 == acl.mode_bits(), "an access ACL and the mode agree");
            inode.access_acl = if acl.is_minimal() { Acl::default() } else { acl };
        }
    }
    Ok(())
}

/// The names that a listing shows.
pub fn names(inode: &InodeRecord) -> impl Iterator<Item = &'static [u8]> {
    let lists = [(&inode.access_acl, ACCESS), (&inode.default_acl, DEFAULT)];
    lists.into_iter().filter(|(acl, _)| !acl.is_empty()).map(|(_, name)| name)
}

fn need_able(inode: &InodeRecord) -> Result<(), Fault> {
    match inode.attr.kind {
        Kind::Symlink => Err(Fault::new(Code::Unsupported, "symlinks have no ACL")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
