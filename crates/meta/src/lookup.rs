//! Lookup: a name to its inode. Two gets when the name is there.

use types::*;
use wire::meta::Inode;

use crate::inode::{load_inode, load_named};
use crate::sharing::For;
use crate::{Ctx, View, access, names};

pub fn lookup(ctx: &Ctx<'_>, view: &dyn View, parent: Fid, name: &[u8], cred: &Cred) -> Result<Inode, Fault> {
    names::validate(name)?;
    // Root may search everywhere: the directory's record is not even looked at.
    if cred.uid != 0 {
        access::need_search(&load_inode(view, parent)?, cred)?;
    }
    match names::find_entry(view, parent, name)? {
        Some(found) => Ok(load_named(view, found.entry.fid, parent)?.shown(ctx, For::Looking)),
        None => Err(absent(view, parent)),
    }
}

/// Why there is no such entry: only a directory that exists can say that a name does not.
fn absent(view: &dyn View, parent: Fid) -> Fault {
    match load_inode(view, parent) {
        Ok(dir) if dir.is_dir() => Code::NotFound.into(),
        Ok(_) => Code::NotDir.into(),
        Err(fault) => fault,
    }
}

#[cfg(test)]
mod tests;
