//! GetAttr: reads a fid's inode, also of an unlinked file that is held open. GetAttrs: reads several.

use types::*;
use wire::Wire;
use wire::meta::{FIDS_MAX, GetAttr, GetAttrs, GetAttrsReply, Inode};

use crate::inode::load_inode;
use crate::sharing::For;
use crate::{Ctx, View};

/// Most bytes of inodes in a reply. Layouts may be long, so a reply may have fewer inodes than requested.
const INODES_BYTES_MAX: usize = 1 << 20;

pub fn getattr(ctx: &Ctx<'_>, view: &dyn View, req: GetAttr) -> Result<Inode, Fault> {
    Ok(load_inode(view, req.fid)?.shown(ctx, For::Looking))
}

pub fn getattrs(ctx: &Ctx<'_>, view: &dyn View, req: GetAttrs) -> Result<GetAttrsReply, Fault> {
    if req.fids.len() > FIDS_MAX {
        return Err(Fault::new(Code::BadRequest, format!("more than {FIDS_MAX} fids")));
    }
    let (mut inodes, mut bytes) = (Vec::with_capacity(req.fids.len()), 0);
    for fid in req.fids {
        let inode = match getattr(ctx, view, GetAttr { fid }) {
            Ok(_) if !ctx.may_use(view, fid)? => None,
            Ok(inode) => Some(inode),
            Err(fault) if fault.code == Code::Stale => None,
            Err(fault) => return Err(fault),
        };
        bytes += inode.to_bytes().len();
        if bytes > INODES_BYTES_MAX && !inodes.is_empty() {
            break;
        }
        inodes.push(inode);
    }
    assert!(inodes.len() <= FIDS_MAX, "an answer has at most one inode per fid");
    Ok(GetAttrsReply { inodes })
}
