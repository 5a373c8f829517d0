//! Create: makes a regular or special file, or opens an existing one. CreateWith: makes a regular file with content.

use types::crc::verify_fragments;
use types::*;
use wire::meta::{Create, CreateReply, CreateWith, OpenReply};

use crate::inode::load_named;
use crate::make::{Content, Made, Seed, make};
use crate::open::{Wanted, need_open, open_reply};
use crate::{Ctx, Txn};

/// A character device of this number is a whiteout, with which overlayfs marks removed names. It leads to no driver, so Linux allows
/// everyone to make one.
pub const WHITEOUT_DEV: u32 = 0;

pub fn create(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Create) -> Result<CreateReply, Fault> {
    match req.kind {
        Kind::Dir | Kind::Symlink => {
            return Err(Fault::new(Code::Invalid, "directories and symlinks have calls of their own"));
        }
        Kind::Char if req.rdev == WHITEOUT_DEV => {}
        Kind::Char | Kind::Block if !req.cred.may_all() => {
            return Err(Fault::new(Code::Perm, "only root makes device files"));
        }
        _ => {}
    }
    let Create { parent, kind, mode, umask, rdev, now, want, .. } = req;
    let seed =
        Seed { kind, mode, umask, rdev, content: Content::None, cred: &req.cred, now, want, may_want: false };
    match make(ctx, txn, parent, &req.name, seed)? {
        Made::New(mut inode) => {
            assert!(inode.attr.kind == kind, "a new file is of the requested kind");
            Ok(CreateReply { made: true, open: open_reply(ctx, txn, &mut inode, req.write)? })
        }
        Made::Taken { fid, is_ours: true } => {
            let mut inode = load_named(txn, fid, parent)?;
            Ok(CreateReply { made: true, open: open_reply(ctx, txn, &mut inode, req.write)? })
        }
        Made::Taken { .. } if req.exclusive => Err(Code::Exists.into()),
        Made::Taken { fid, .. } => open_existing(ctx, txn, &req, fid),
    }
}

/// Makes a new file, its name and its content, all or nothing.
pub fn create_with(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    req: CreateWith,
    bulk: &[u8],
) -> Result<OpenReply, Fault> {
    // 1. Verify the bytes.
    if let Err(at) = verify_fragments(0, bulk, &req.crcs) {
        let of = String::from_utf8_lossy(&req.name.0);
        return Err(Fault::new(Code::BadChecksum, format!("bytes at {at} of the new file '{of}'")));
    }
    // 2. Make the file with them.
    let CreateWith { parent, mode, umask, now, written, want, .. } = req;
    let content = if bulk.is_empty() { Content::None } else { Content::Bytes(bulk, written) };
    let kind = Kind::File;
    let seed = Seed { kind, mode, umask, rdev: 0, content, cred: &req.cred, now, want, may_want: true };
    let mut inode = match make(ctx, txn, parent, &req.name, seed)? {
        Made::New(inode) => {
            assert!(inode.attr.size == bulk.len() as u64, "a new file has all of its content");
            inode
        }
        // In a replay. The file was made with its content and may have changed since, so it stays as it is.
        Made::Taken { fid, is_ours: true } => load_named(txn, fid, parent)?,
        Made::Taken { .. } => return Err(Code::Exists.into()),
    };
    open_reply(ctx, txn, &mut inode, true)
}

/// The name exists: the rest of an `open` with `O_CREAT`.
fn open_existing(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: &Create, fid: Fid) -> Result<CreateReply, Fault> {
    let mut inode = load_named(txn, fid, req.parent)?;
    match inode.attr.kind {
        Kind::Dir => return Err(Code::IsDir.into()),
        // The caller follows the symlink: it looks the target up again.
        Kind::Symlink => return Err(Code::Exists.into()),
        _ => {}
    }
    need_open(
        &inode,
        &req.cred,
        Wanted { read: req.read, write: req.write, append: req.append, truncate: false },
    )?;
    Ok(CreateReply { made: false, open: open_reply(ctx, txn, &mut inode, req.write)? })
}

#[cfg(test)]
mod tests;
