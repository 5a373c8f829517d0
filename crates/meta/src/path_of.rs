//! The path of a fid, by the parent hints that every inode carries.

use types::*;
use wire::codec::Bytes;
use wire::meta::{PathOf, PathOfReply};

use crate::inode::{HINTS_MAX, load_inode};
use crate::records::EntryRecord;
use crate::{Ctx, View, keys};

/// Deepest path: PATH_MAX allows 2,048 names of one letter; twice that ends any loop that damage could make.
const DEPTH_MAX: usize = 4096;

pub fn path_of(ctx: &Ctx<'_>, view: &dyn View, req: PathOf) -> Result<PathOfReply, Fault> {
    ctx.need_root()?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut fid = req.fid;
    while fid != Fid::ROOT {
        if names.len() >= DEPTH_MAX {
            return Err(Fault::new(
                Code::Loop,
                format!("file {}: its parents make no path; run stria fsck", req.fid),
            ));
        }
        let inode = load_inode(view, fid)?;
        let Some(parent) = inode.parents.first() else {
            if inode.attr.nlink > 0 {
                let detail = format!(
                    "file {} has {} names, and the {HINTS_MAX} that are remembered with it are gone; find -inum finds the others",
                    req.fid, inode.attr.nlink
                );
                return Err(Fault::new(Code::NotFound, detail));
            }
            return Err(Fault::new(
                Code::NotFound,
                format!("file {} has no name any more (unlinked, still open)", req.fid),
            ));
        };
        let entry = view.get(&keys::entry(parent.fid, parent.h64, parent.collision));
        let Some(entry) = entry.and_then(|v| EntryRecord::decode(&v).ok()) else {
            return Err(Fault::new(
                Code::Damaged,
                format!("file {}: its entry is missing; run stria fsck", req.fid),
            ));
        };
        names.push(entry.name);
        fid = parent.fid;
    }
    names.reverse();
    let mut path = vec![b'/'];
    path.extend(names.join(&b'/'));
    Ok(PathOfReply { path: Bytes(path) })
}
