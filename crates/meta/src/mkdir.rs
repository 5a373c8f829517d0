//! MakeDir: makes an empty directory. Its `.` and `..` are not stored as entries; they count in `nlink` (meta-I4).

use types::*;
use wire::meta::{Inode, MakeDir};

use crate::inode::load_named;
use crate::make::{Content, Made, Seed, make};
use crate::{Ctx, Txn};

pub fn mkdir(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: MakeDir) -> Result<Inode, Fault> {
    let MakeDir { parent, mode, umask, now, want, .. } = req;
    let seed = Seed {
        kind: Kind::Dir,
        mode,
        umask,
        rdev: 0,
        content: Content::None,
        cred: &req.cred,
        now,
        want,
        may_want: false,
    };
    match make(ctx, txn, parent, &req.name, seed)? {
        Made::New(inode) => Ok(inode.to_wire()),
        Made::Taken { fid, is_ours: true } => Ok(load_named(txn, fid, parent)?.to_wire()),
        Made::Taken { .. } => Err(Code::Exists.into()),
    }
}

#[cfg(test)]
mod tests;
