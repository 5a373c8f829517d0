//! Symlink: stores the target in the inode record. The target is a byte string, and need not exist.

use types::*;
use wire::meta::{Inode, Symlink};

use crate::inode::load_named;
use crate::make::{Content, Made, Seed, make};
use crate::{Ctx, Txn};

pub fn symlink(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Symlink) -> Result<Inode, Fault> {
    let Symlink { parent, name, target, now, cred, want } = req;
    match target.len() {
        // As Linux does for an empty path.
        0 => return Err(Code::NotFound.into()),
        n if n > SYMLINK_MAX => return Err(Code::NameTooLong.into()),
        _ if target.contains(&0) => {
            return Err(Fault::new(Code::Invalid, "a symlink's target must not hold NUL"));
        }
        _ => {}
    }
    let seed = Seed {
        kind: Kind::Symlink,
        mode: 0o777,
        umask: 0,
        rdev: 0,
        content: Content::Target(&target.0),
        cred: &cred,
        now,
        want,
        may_want: false,
    };
    match make(ctx, txn, parent, &name, seed)? {
        Made::New(inode) => Ok(inode.to_wire()),
        Made::Taken { fid, is_ours: true } => Ok(load_named(txn, fid, parent)?.to_wire()),
        Made::Taken { .. } => Err(Code::Exists.into()),
    }
}

#[cfg(test)]
mod tests;
