//! Paths of a fid, from the parent hints of inodes.

use types::*;
use wire::codec::Bytes;
use wire::meta::{PathOf, PathOfReply, PathsOf, PathsOfReply};

use crate::inode::{HINTS_MAX, load_inode};
use crate::records::{EntryRecord, InodeRecord, Parent};
use crate::{Ctx, View, keys};

/// Deepest path. PATH_MAX allows 2,048 names of one letter; twice that ends a loop, which only damage can make.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most bytes of all paths in a reply. The first path is included whatever its length.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The path of the first hint.
pub fn path_of(ctx: &Ctx<'_>, view: &dyn View, req: PathOf) -> Result<PathOfReply, Fault> {
    ctx.need_root()?;
    let (top, fid) = (ctx.top(), ctx.or_top(req.fid));
    let inode = load_inode(view, fid)?;
    let first = ctx.hints(view, &inode)?.first().copied();
    if first.is_none() && fid != top {
        return Err(without_hints(fid, &inode));
    }
    Ok(PathOfReply { path: Bytes(path_by(view, top, fid, first)?) })
}

/// One path per hint, in the order of the hints.
pub fn paths_of(ctx: &Ctx<'_>, view: &dyn View, req: PathsOf) -> Result<PathsOfReply, Fault> {
    ctx.need_root()?;
    let (top, fid) = (ctx.top(), ctx.or_top(req.fid));
    let inode = load_inode(view, fid)?;
    if fid == top {
        return Ok(PathsOfReply { names: 1, paths: vec![Bytes::from(&b"/"[..])] });
    }
    let hints = ctx.hints(view, &inode)?;
    if hints.is_empty() {
        return Err(without_hints(fid, &inode));
    }
    let (mut paths, mut bytes) = (Vec::new(), 0);
    for parent in &hints {
        let path = path_by(view, top, fid, Some(*parent))?;
        bytes += path.len();
        if bytes > ANSWER_BYTES_MAX && !paths.is_empty() {
            break;
        }
        paths.push(Bytes(path));
    }
    // A directory has one name, whatever its link count.
    let names = match inode.attr.kind {
        Kind::Dir => 1,
        // Names outside of the session's root are not counted.
        _ if ctx.root.is_some() => hints.len() as u32,
        _ => inode.attr.nlink,
    };
    Ok(PathsOfReply { names, paths })
}

/// The path from `top` in which `parent` names `fid`; above that by first hints.
pub(crate) fn path_by(view: &dyn View, top: Fid, fid: Fid, parent: Option<Parent>) -> Result<Vec<u8>, Fault> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let (mut at, mut hint) = (fid, parent);
    while at != top {
        if names.len() >= DEPTH_MAX {
            return Err(Fault::new(
                Code::Loop,
                format!("file {fid}: its parents make no path; run stria fsck"),
            ));
        }
        let parent = match hint.take() {
            Some(parent) => parent,
            None => {
                let inode = load_inode(view, at)?;
                inode.parents.first().copied().ok_or_else(|| without_hints(at, &inode))?
            }
        };
        let entry = view.get(&keys::entry(parent.fid, parent.h64, parent.collision));
        let Some(entry) = entry.and_then(|v| EntryRecord::decode(&v).ok()) else {
            return Err(Fault::new(
                Code::Damaged,
                format!("file {fid}: its entry is missing; run stria fsck"),
            ));
        };
        names.push(entry.name);
        at = parent.fid;
    }
    names.reverse();
    let mut path = vec![b'/'];
    path.extend(names.join(&b'/'));
    assert!(path.starts_with(b"/"), "a path begins at the root");
    Ok(path)
}

fn without_hints(fid: Fid, inode: &InodeRecord) -> Fault {
    if inode.attr.nlink > 0 {
        let detail = format!(
            "file {fid} has {} names, and the {HINTS_MAX} that are remembered with it are gone; find -inum finds the others",
            inode.attr.nlink
        );
        return Fault::new(Code::NotFound, detail);
    }
    Fault::new(Code::NotFound, format!("file {fid} has no name any more (unlinked, still open)"))
}
