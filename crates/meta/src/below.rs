//! The root of a session: a directory that its client sees as the file system's root (a nodemap's), and the check of each call against it.
//!
//! meta-R1: a session with a root reaches a directory only if its parents lead to the root, and another file only if a parent hint of it is
//!     such a directory, or if the session has the file open. To the session all others do not exist (`Stale`).
//! meta-R2: a call is checked over the same records as its rule reads, so no rename comes in between.
//! meta-R3: each call has one row in `named`, which lists the files that it names. A call without one is refused.
//!
//! The hints of a file are its first `HINTS_MAX` names. A file with more is reached by its fid only if one of these lies below the root.

use types::{Code, Fault, Fid, Kind};
use wire::accessed::Accessed;
use wire::batch::Batch;
use wire::lock::{AwaitLocks, CancelLock, DropOwner, Lock, LockKind, Reclaim, TestLock};
use wire::meta::*;
use wire::notice::Listen;
use wire::purge::Dying;
use wire::session::{Attach, Detach, Flush, KeepAlive, TargetStat};
use wire::shared::{CatchUp, Close, Enter, Hold, Leave};
use wire::{Reader, Request, Wire};

use crate::inode::load_inode;
use crate::path_of::DEPTH_MAX;
use crate::records::{InodeRecord, Parent};
use crate::{Ctx, View, orphan_holder};

/// The root of a session, with the directories that were found below it.
pub trait Below {
    fn top(&self) -> Fid;
    /// True: it was found below, and no directory has moved since.
    fn has(&self, dir: Fid) -> bool;
    /// These directories lie below, in the view of the check.
    fn learn(&self, dirs: &[Fid]);
}

/// The use that a call makes of a file that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Uses it, or names in it.
    Use(Fid),
    /// Gives it another name. That a session has it open is not enough, or it would bring a file back that was taken out.
    Name(Fid),
    /// As `Use`, outside of the records: a lock or a watch would outlast the time at which there is no such file.
    Existing(Fid),
}

/// How a call is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// It names no file, or gives back only what its session has.
    Free,
    Files(Vec<Named>),
    /// Its rule leaves out each file that may not be used.
    Each,
    /// It is about the whole file system.
    Refused,
}

/// meta-R3.
pub fn named(call: u16, body: &[u8]) -> Result<Check, Fault> {
    macro_rules! rows {
        ($($($request:ident)* => |$r:ident| $check:expr;)*) => {
            match call {
                $($($request::CALL => {
                    let $r = $request::from_bytes(body).map_err(|e| malformed(call, e))?;
                    Ok($check)
                })*)*
                _ => named_first(call, body),
            }
        };
    }
    let all = |fids: &[Named]| Check::Files(fids.to_vec());
    rows! {
        Rename => |r| all(&[Named::Use(r.parent), Named::Use(r.new_parent)]);
        Link => |r| all(&[Named::Name(r.fid), Named::Use(r.parent)]);
        // A lock may be given back, wherever its file is.
        Lock => |r| if r.kind == LockKind::Unlock { Check::Free } else { all(&[Named::Existing(r.fid)]) };
        TestLock => |r| all(&[Named::Existing(r.fid)]);
        WatchDir => |r| all(&[Named::Existing(r.dir)]);
    }
}

/// The calls whose body begins with the one file that they name, and those that name none.
fn named_first(call: u16, body: &[u8]) -> Result<Check, Fault> {
    match call {
        Lookup::CALL
        | Create::CALL
        | CreateWith::CALL
        | MakeDir::CALL
        | Symlink::CALL
        | Unlink::CALL
        | RemoveDir::CALL
        | ReadDir::CALL
        | Tmpfile::CALL
        | LeaseDir::CALL
        | Counts::CALL
        | GetAttr::CALL
        | SetAttr::CALL
        | ReadLink::CALL
        | GetXattr::CALL
        | SetXattr::CALL
        | RemoveXattr::CALL
        | ListXattr::CALL
        | Open::CALL
        | OpenRead::CALL
        | Enter::CALL
        | ReadInline::CALL
        | WriteInline::CALL
        | AllocateInline::CALL
        | SeekInline::CALL
        | Grow::CALL
        | Switch::CALL
        | MoveTail::CALL
        | Settle::CALL
        | Truncate::CALL
        | SetStripe::CALL
        | GetStripe::CALL
        | SetFlags::CALL => {
            let fid = Fid::get(&mut Reader::new(body)).map_err(|e| malformed(call, e))?;
            Ok(Check::Files(vec![Named::Use(fid)]))
        }
        // The root of the file system stands for that of the session, since its inode number is that of any mount's root.
        PathOf::CALL | PathsOf::CALL => {
            let fid = Fid::get(&mut Reader::new(body)).map_err(|e| malformed(call, e))?;
            Ok(if fid == Fid::ROOT { Check::Free } else { Check::Files(vec![Named::Use(fid)]) })
        }
        GetAttrs::CALL | Accessed::CALL | Hold::CALL | Reclaim::CALL | Batch::CALL => Ok(Check::Each),
        Attach::CALL
        | KeepAlive::CALL
        | Detach::CALL
        | Flush::CALL
        | TargetStat::CALL
        | Listen::CALL
        | CatchUp::CALL
        | Dying::CALL
        | Release::CALL
        | Leave::CALL
        | LeaveDir::CALL
        | Close::CALL
        | CancelLock::CALL
        | DropOwner::CALL
        | AwaitLocks::CALL => Ok(Check::Free),
        _ => Ok(Check::Refused),
    }
}

fn malformed(call: u16, e: wire::codec::Malformed) -> Fault {
    Fault::new(Code::BadRequest, format!("call {call:#06x}: {e}"))
}

/// Refuses a call that names a file outside of the session's root. A session without one pays this one branch.
pub fn check(ctx: &Ctx<'_>, view: &dyn View, call: u16, body: &[u8]) -> Result<(), Fault> {
    let Some(root) = ctx.root else { return Ok(()) };
    match named(call, body)? {
        Check::Free | Check::Each => Ok(()),
        Check::Refused => Err(Code::Access.into()),
        Check::Files(files) => {
            for named in files {
                if !may(ctx, root, view, named)? {
                    return Err(Code::Stale.into());
                }
            }
            Ok(())
        }
    }
}

/// meta-R1. A file that is not there is for the rule to refuse.
fn may(ctx: &Ctx<'_>, root: &dyn Below, view: &dyn View, named: Named) -> Result<bool, Fault> {
    let (Named::Use(fid) | Named::Name(fid) | Named::Existing(fid)) = named;
    if fid == root.top() || root.has(fid) {
        return Ok(true);
    }
    let inode = match load_inode(view, fid) {
        Err(fault) if fault.code == Code::Stale => return Ok(!matches!(named, Named::Existing(_))),
        inode => inode?,
    };
    if inode.is_dir() {
        return Ok(is_below(root, view, &inode) || is_held(ctx, view, &inode));
    }
    let is_below = inode.parents.iter().any(|parent| is_dir_below(root, view, parent.fid));
    Ok(is_below
        || is_held(ctx, view, &inode)
        || !matches!(named, Named::Name(_)) && ctx.sharing.is_some_and(|s| s.is_open_here(fid)))
}

/// True for a file without a name that stays for this session.
fn is_held(ctx: &Ctx<'_>, view: &dyn View, inode: &InodeRecord) -> bool {
    let here = || ctx.sharing.is_some_and(|s| s.is_open_here(inode.fid()));
    inode.attr.nlink == 0 && (orphan_holder(view, inode.fid()) == Some(ctx.session) || here())
}

/// True if the directory is there, and its parents lead to the root.
pub fn is_dir_below(root: &dyn Below, view: &dyn View, dir: Fid) -> bool {
    // A file is never learned: it may leave by a rename that moves no directory.
    let leads = |inode: InodeRecord| inode.is_dir() && is_below(root, view, &inode);
    dir == root.top() || root.has(dir) || load_inode(view, dir).is_ok_and(leads)
}

/// True if the parents of a directory lead to the root.
fn is_below(root: &dyn Below, view: &dyn View, dir: &InodeRecord) -> bool {
    let mut passed = vec![dir.fid()];
    let mut up = dir.parents.first().map(|parent| parent.fid);
    // A damaged tree may have a loop.
    while let Some(at) = up.filter(|_| passed.len() < DEPTH_MAX) {
        if at == root.top() || root.has(at) {
            root.learn(&passed);
            return true;
        }
        if at == Fid::ROOT {
            return false;
        }
        passed.push(at);
        up = load_inode(view, at).ok().and_then(|dir| Some(dir.parents.first()?.fid));
    }
    false
}

/// The directory of this path, name by name; `None`: there is none.
pub fn dir_of_path<'n>(
    view: &dyn View,
    mut names: impl Iterator<Item = &'n str>,
) -> Result<Option<Fid>, Fault> {
    names.try_fold(Some(Fid::ROOT), |at, name| {
        let Some(dir) = at else { return Ok(None) };
        let found = crate::names::find_entry(view, dir, name.as_bytes())?;
        Ok(found.filter(|found| found.entry.kind == Kind::Dir).map(|found| found.entry.fid))
    })
}

impl Ctx<'_> {
    /// The root that the session sees.
    pub fn top(&self) -> Fid {
        self.root.map_or(Fid::ROOT, |root| root.top())
    }
    /// The session's root for the file system's root, and every other file for itself.
    pub fn or_top(&self, fid: Fid) -> Fid {
        if fid == Fid::ROOT { self.top() } else { fid }
    }
    /// True if the session may use the file.
    pub fn may_use(&self, view: &dyn View, fid: Fid) -> Result<bool, Fault> {
        self.root.map_or(Ok(true), |root| may(self, root, view, Named::Use(fid)))
    }
    /// As `may_use`; false for a file that is not there.
    pub fn may_hold(&self, view: &dyn View, fid: Fid) -> Result<bool, Fault> {
        self.root.map_or(Ok(true), |root| may(self, root, view, Named::Existing(fid)))
    }
    /// The parent hints that the session may see.
    pub fn hints(&self, view: &dyn View, inode: &InodeRecord) -> Result<Vec<Parent>, Fault> {
        let mut hints = inode.parents.clone();
        if let Some(root) = self.root {
            hints.retain(|hint| is_dir_below(root, view, hint.fid));
        }
        Ok(hints)
    }
}

#[cfg(test)]
mod tests;
