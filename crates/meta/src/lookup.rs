//! Lookup: resolves a name to its inode, with two gets if the name exists. The name `..` leads from a directory to its parent, by the
//! parent hint.

use types::*;
use wire::meta::Inode;

use crate::inode::{load_dir, load_inode, load_named, load_parent};
use crate::sharing::For;
use crate::{Ctx, View, access, names};

/// A kernel that has a directory's handle but no path to it goes up by this name.
const UP: &[u8] = b"..";

pub fn lookup(ctx: &Ctx<'_>, view: &dyn View, parent: Fid, name: &[u8], cred: &Cred) -> Result<Inode, Fault> {
    if name == UP {
        return parent_of(ctx, view, parent, cred);
    }
    names::validate(name)?;
    // Root may search everywhere, so the directory's record is not needed.
    if !cred.may_all() {
        access::need_search(&load_parent(view, parent)?, cred)?;
    }
    match names::find_entry(view, parent, name)? {
        Some(found) => Ok(load_named(view, found.entry.fid, parent)?.shown(ctx, For::Looking)),
        None => Err(absent(view, parent)),
    }
}

/// The parent of `dir`; the session's root is its own parent.
fn parent_of(ctx: &Ctx<'_>, view: &dyn View, dir: Fid, cred: &Cred) -> Result<Inode, Fault> {
    let below = load_dir(view, dir)?;
    access::need_search(&below, cred)?;
    if dir == ctx.top() {
        return Ok(below.shown(ctx, For::Looking));
    }
    let Some(hint) = below.parents.first() else {
        let why = format!("directory {dir} has no parent hint; run stria fsck");
        return Err(Fault::new(Code::Damaged, why));
    };
    match load_inode(view, hint.fid) {
        Ok(parent) => Ok(parent.shown(ctx, For::Looking)),
        Err(fault) if fault.code == Code::Stale => {
            let why =
                format!("directory {dir} lies in directory {}, which has no inode; run stria fsck", hint.fid);
            Err(Fault::new(Code::Damaged, why))
        }
        Err(fault) => Err(fault),
    }
}

/// The refusal for an absent name: `NotFound` only if the directory exists.
fn absent(view: &dyn View, parent: Fid) -> Fault {
    match load_parent(view, parent) {
        Ok(dir) if dir.is_dir() => Code::NotFound.into(),
        Ok(_) => Code::NotDir.into(),
        Err(fault) => fault,
    }
}

#[cfg(test)]
mod tests;
