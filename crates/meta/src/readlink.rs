//! ReadLink: reads a symlink's target.

use types::*;
use wire::codec::Bytes;
use wire::meta::{ReadLink, ReadLinkReply};

use crate::inode::load_inode;
use crate::{Ctx, View};

pub fn readlink(_: &Ctx<'_>, view: &dyn View, req: ReadLink) -> Result<ReadLinkReply, Fault> {
    let inode = load_inode(view, req.fid)?;
    match inode.attr.kind {
        Kind::Symlink => Ok(ReadLinkReply { target: Bytes(inode.target) }),
        _ => Err(Fault::new(Code::Invalid, format!("file {} is no symlink", req.fid))),
    }
}
