//! Rename: moves a name, replaces another, or exchanges both (`RENAME_EXCHANGE`). With `RENAME_WHITEOUT` a whiteout gets the old name.
//! Checks are in Linux's order.
//!
//! One MDT holds the whole name space, so the walk up from the new parent that prevents loops sees one consistent tree.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, Rename, RenameReply};

use crate::create::WHITEOUT_DEV;
use crate::inode::{load_dir, load_inode, load_named, move_link, need_room, store_inode, touch};
use crate::make::{Content, Seed, make_at};
use crate::names::{self, Found, Slot};
use crate::note::{Other, named, renamed};
use crate::records::{InodeRecord, Parent};
use crate::{Ctx, Txn, View, access, reap};

/// Most ancestors that a walk up visits. More are a loop, which only damage can make.
const DEPTH_MAX: usize = 1 << 20;

/// The directories of a rename. `to` is `None` if both are the same, so that no record is changed in two copies.
struct Dirs {
    from: InodeRecord,
    to: Option<InodeRecord>,
}

impl Dirs {
    fn to(&self) -> &InodeRecord {
        self.to.as_ref().unwrap_or(&self.from)
    }
    fn to_mut(&mut self) -> &mut InodeRecord {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
    fn differ(&self) -> bool {
        self.to.is_some()
    }
    fn store(mut self, txn: &mut dyn Txn, now: Time) {
        for dir in [Some(&mut self.from), self.to.as_mut()].into_iter().flatten() {
            touch(dir, now);
            store_inode(txn, dir);
        }
    }
}

/// The reply if no file lost its name and no whiteout was made.
const DONE: RenameReply = RenameReply { replaced: None, whiteout: Fid(0) };

/// A name with its place and inode.
struct Named {
    at: Parent,
    inode: InodeRecord,
}

pub fn rename(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Rename) -> Result<RenameReply, Fault> {
    // 1. Check the names and flags.
    names::validate(&req.name)?;
    names::validate(&req.new_name)?;
    let exchange = req.flags & RENAME_EXCHANGE != 0;
    let known = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
    if req.flags & !known != 0 || exchange && req.flags != RENAME_EXCHANGE {
        return Err(Fault::new(Code::Invalid, format!("rename flags {:#x}", req.flags)));
    }
    // 2. Load the directories and the present entries.
    let dirs = load_dirs(txn, &req)?;
    let Found { at, entry } = names::need_entry(txn, req.parent, &req.name)?;
    let slot = names::find_slot(txn, req.new_parent, &req.new_name)?;
    match &slot {
        Slot::Taken(_) if req.flags & RENAME_NOREPLACE != 0 => return Err(Code::Exists.into()),
        Slot::Free(_) if exchange => return Err(Code::NotFound.into()),
        // Two names of one inode: POSIX keeps both.
        Slot::Taken(found) if found.entry.fid == entry.fid => return Ok(DONE),
        _ => {}
    }
    // 3. Move, or refuse to.
    let source = Named { at, inode: load_named(txn, entry.fid, req.parent)? };
    match slot {
        Slot::Free(at) => move_to(ctx, txn, &req, dirs, source, at),
        Slot::Taken(found) => {
            let target = Named { at: found.at, inode: load_named(txn, found.entry.fid, req.new_parent)? };
            match exchange {
                true => swap(txn, &req, dirs, source, target),
                false => replace(ctx, txn, &req, dirs, source, target),
            }
        }
    }
}

fn load_dirs(view: &dyn View, req: &Rename) -> Result<Dirs, Fault> {
    let from = load_dir(view, req.parent)?;
    access::need_search(&from, &req.cred)?;
    let to = (req.new_parent != req.parent).then(|| load_dir(view, req.new_parent)).transpose()?;
    if let Some(to) = &to {
        access::need_search(to, &req.cred)?;
    }
    Ok(Dirs { from, to })
}

/// Moves to a free name.
fn move_to(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    req: &Rename,
    mut dirs: Dirs,
    source: Named,
    at: Parent,
) -> Result<RenameReply, Fault> {
    refuse_loop(txn, &source.inode, &dirs, req.new_parent)?;
    access::need_remove(&dirs.from, &source.inode, &req.cred)?;
    access::need_change(dirs.to(), &req.cred)?;
    need_adopt(&source.inode, &dirs, &req.cred)?;
    need_room(ctx)?;
    if source.inode.is_dir() && dirs.differ() {
        dirs.from.attr.nlink = dirs.from.attr.nlink.saturating_sub(1);
        let to = dirs.to_mut();
        to.attr.nlink = to.attr.nlink.saturating_add(1);
    }
    let fid = source.inode.fid();
    let whiteout = leave(ctx, txn, req, &dirs.from, source.at)?;
    settle_in(txn, source, at, &req.new_name, req.now);
    dirs.store(txn, req.now);
    renamed(txn, fid, req, Other::None);
    note_whiteout(txn, req, whiteout);
    Ok(RenameReply { whiteout, ..DONE })
}

/// Removes the old name, or gives it to a whiteout.
fn leave(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    req: &Rename,
    from: &InodeRecord,
    at: Parent,
) -> Result<Fid, Fault> {
    if req.flags & RENAME_WHITEOUT == 0 {
        names::remove_entry(txn, at);
        return Ok(Fid(0));
    }
    need_room(ctx)?;
    let seed = Seed {
        kind: Kind::Char,
        mode: 0,
        umask: 0,
        rdev: WHITEOUT_DEV,
        content: Content::None,
        cred: &req.cred,
        now: req.now,
        want: req.want,
        may_want: false,
    };
    Ok(make_at(ctx, txn, from, (at, &req.name), seed)?.fid())
}

/// Notes the whiteout. It comes after the note of the rename: only then is the old name free for it.
fn note_whiteout(txn: &mut dyn Txn, req: &Rename, whiteout: Fid) {
    if whiteout != Fid(0) {
        named(txn, ChangeOp::MakeNode, whiteout, (req.parent, &req.name), &req.cred);
    }
}

/// Moves to a name whose present file loses it.
fn replace(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    req: &Rename,
    mut dirs: Dirs,
    source: Named,
    target: Named,
) -> Result<RenameReply, Fault> {
    refuse_loop(txn, &source.inode, &dirs, req.new_parent)?;
    access::need_remove(&dirs.from, &source.inode, &req.cred)?;
    access::need_remove(dirs.to(), &target.inode, &req.cred)?;
    match (source.inode.is_dir(), target.inode.is_dir()) {
        (true, false) => return Err(Code::NotDir.into()),
        (false, true) => return Err(Code::IsDir.into()),
        _ => need_adopt(&source.inode, &dirs, &req.cred)?,
    }
    if target.inode.is_dir() && !names::is_empty(txn, target.inode.fid()) {
        return Err(Code::NotEmpty.into());
    }
    if source.inode.is_dir() {
        // The old parent has one subdirectory less; the new one gains one and loses one.
        dirs.from.attr.nlink = dirs.from.attr.nlink.saturating_sub(1);
    }
    let fid = source.inode.fid();
    let whiteout = leave(ctx, txn, req, &dirs.from, source.at)?;
    settle_in(txn, source, target.at, &req.new_name, req.now);
    dirs.store(txn, req.now);
    let replaced = reap::lose_link(ctx, txn, target.inode, target.at, req.hold, req.now);
    renamed(txn, fid, req, Other::Lost(&replaced));
    note_whiteout(txn, req, whiteout);
    Ok(RenameReply { replaced: Some(replaced), whiteout })
}

/// Exchanges the inodes of two names.
fn swap(
    txn: &mut dyn Txn,
    req: &Rename,
    mut dirs: Dirs,
    source: Named,
    target: Named,
) -> Result<RenameReply, Fault> {
    refuse_loop(txn, &source.inode, &dirs, req.new_parent)?;
    refuse_loop(txn, &target.inode, &dirs, req.parent)?;
    access::need_remove(&dirs.from, &source.inode, &req.cred)?;
    access::need_remove(dirs.to(), &target.inode, &req.cred)?;
    need_adopt(&source.inode, &dirs, &req.cred)?;
    need_adopt(&target.inode, &dirs, &req.cred)?;
    if dirs.differ() && source.inode.is_dir() != target.inode.is_dir() {
        let came = if target.inode.is_dir() { 1 } else { -1 };
        dirs.from.attr.nlink = dirs.from.attr.nlink.saturating_add_signed(came);
        dirs.to_mut().attr.nlink = dirs.to().attr.nlink.saturating_add_signed(-came);
    }
    let (here, there) = (source.at, target.at);
    let (fid, other) = (source.inode.fid(), target.inode.fid());
    settle_in(txn, source, there, &req.new_name, req.now);
    settle_in(txn, target, here, &req.name, req.now);
    dirs.store(txn, req.now);
    renamed(txn, fid, req, Other::Exchanged(other));
    Ok(DONE)
}

/// Writes the entry and the parent hint of a name that is now at `at`.
fn settle_in(txn: &mut dyn Txn, named: Named, at: Parent, name: &[u8], now: Time) {
    let Named { at: before, mut inode } = named;
    move_link(&mut inode, before, at);
    inode.attr.ctime = now;
    names::put_entry(txn, at, inode.fid(), inode.attr.kind, name);
    store_inode(txn, &inode);
}

/// A directory's `..` changes with its parent, which needs the right to write to it.
fn need_adopt(moved: &InodeRecord, dirs: &Dirs, cred: &Cred) -> Result<(), Fault> {
    match moved.is_dir() && dirs.differ() {
        true => access::need(moved, cred, access::WRITE),
        false => Ok(()),
    }
}

/// Refuses to move a directory below itself.
fn refuse_loop(view: &dyn View, moved: &InodeRecord, dirs: &Dirs, new_parent: Fid) -> Result<(), Fault> {
    if !moved.is_dir() || !dirs.differ() {
        return Ok(());
    }
    let mut at = new_parent;
    for _ in 0..DEPTH_MAX {
        if at == moved.fid() {
            return Err(Fault::new(
                Code::Invalid,
                format!("directory {} cannot move below itself", moved.fid()),
            ));
        }
        if at == Fid::ROOT {
            return Ok(());
        }
        let Some(up) = load_inode(view, at)?.parents.first().map(|p| p.fid) else { break };
        at = up;
    }
    Err(Fault::new(
        Code::Damaged,
        format!("directory {new_parent}: its parents do not lead to the root; run stria fsck"),
    ))
}

#[cfg(test)]
mod tests;
