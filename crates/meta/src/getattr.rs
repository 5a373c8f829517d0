//! GetAttr: a fid's inode, also of one that has no name any more but is held open.

use types::*;
use wire::meta::{GetAttr, Inode};

use crate::inode::load_inode;
use crate::sharing::For;
use crate::{Ctx, View};

pub fn getattr(ctx: &Ctx<'_>, view: &dyn View, req: GetAttr) -> Result<Inode, Fault> {
    Ok(load_inode(view, req.fid)?.shown(ctx, For::Looking))
}
