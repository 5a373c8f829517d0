//! Migration of a file's objects to other OSTs, while programs use the file (decision 0077).
//!
//! meta-M1: all bytes are in flushed objects of a new generation before one entry replaces the layout and puts the old one into the unlink
//! log. So a crash leaves the old layout or the new one.
//! meta-M2: a migration begins and ends under one exclusive lease of the file's content, or while its session is alone. So no other session
//! has changed the content since the copy began.
//! meta-M3: a stripe changes its OST only if it has no object, and only away from a draining OST. Objects never move under their names.
//! meta-M4: new layouts leave draining OSTs out as long as there are others.

use types::*;
use wire::Empty;
use wire::changelog::ChangeOp;
use wire::meta::{
    CutOver, CutOverReply, DropPending, FileState, Migrate, MigrateReply, Repoint, RepointReply,
};
use wire::object::{RIGHT_READ, RIGHT_WRITE};

use crate::grow::{give_up, mark_written};
use crate::inode::{load_inode, store_inode};
use crate::open::capability;
use crate::records::InodeRecord;
use crate::sharing::{self, For};
use crate::{Ctx, Txn, note, reap, stripe};

pub fn migrate(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Migrate) -> Result<MigrateReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    check_layout(&inode, req.generation)?;
    check_use(ctx, &inode, req.token)?;
    if ctx.space.is_full {
        return Err(Fault::new(Code::NoSpace, "the MDT is full; remove files or enlarge it"));
    }
    // Of an earlier migration that was not ended.
    give_up(txn, &mut inode);
    inode.generation = Generation(inode.generation.0 + 1);
    let layout = stripe::make_layout(ctx, req.fid, inode.spec.as_ref(), inode.generation, &req.avoid)?;
    if layout.components.iter().any(|c| c.mirrors.iter().any(|m| ctx.draining.contains(m))) {
        return Err(Fault::new(
            Code::NoSpace,
            "all OSTs are draining; add one, or take the mark of one back",
        ));
    }
    inode.pending = Some(layout.clone());
    store_inode(txn, &inode);
    assert!(Some(layout.generation) > inode.layout.as_ref().map(|l| l.generation), "generations rise");
    let cap = capability(ctx, txn, req.fid, layout.generation, RIGHT_READ | RIGHT_WRITE, false);
    Ok(MigrateReply { inode: inode.shown(ctx, For::Looking), layout, cap })
}

pub fn cut_over(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: CutOver) -> Result<CutOverReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    check_layout(&inode, req.from)?;
    check_use(ctx, &inode, req.token)?;
    if inode.attr.size != req.size {
        let why = format!("file {}: {} bytes were copied, it has {}", req.fid, req.size, inode.attr.size);
        return Err(Fault::new(Code::Stale, why));
    }
    let mut layout = match inode.pending.take() {
        Some(pending) if pending.generation == req.generation => pending,
        _ => {
            let why = format!("file {}: no pending layout of generation {}", req.fid, req.generation);
            return Err(Fault::new(Code::Stale, why));
        }
    };
    mark_written(&mut layout, &req.written)?;
    assert!(layout.generation > req.from, "meta-M1: the new objects have other names");
    if let Some(old) = inode.layout.replace(layout) {
        reap::bury(txn, req.fid, &old);
    }
    inode.attr.blocks = req.blocks;
    // The new objects are flushed, so the whole size is proven (meta-H1).
    if let FileState::Shared { era, .. } = inode.state {
        inode.state = FileState::Shared { era, proven: inode.attr.size };
    }
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Layout, req.fid, None);
    Ok(CutOverReply { inode: inode.shown(ctx, For::Looking) })
}

pub fn drop_pending(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: DropPending) -> Result<Empty, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    let is_meant = match inode.layout {
        Some(_) => inode.pending.as_ref().is_some_and(|l| l.generation == req.generation),
        // The lease keeps off a client that lets the file grow.
        None => {
            check_lease(ctx, req.fid, req.token)?;
            inode.pending.is_some() && req.generation == Generation(0)
        }
    };
    if is_meant {
        give_up(txn, &mut inode);
        store_inode(txn, &inode);
    }
    Ok(Empty {})
}

pub fn repoint(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Repoint) -> Result<RepointReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    let layout = check_layout(&inode, req.generation)?;
    check_use(ctx, &inode, req.token)?;
    if layout.components.len() != usize::from(req.components) {
        return Err(Fault::new(Code::Stale, format!("file {}: its tail has moved meanwhile", req.fid)));
    }
    let (mut layout, open) = (layout.clone(), stripe::open_osts(ctx));
    let leaves = |mirror: &MirrorId| req.empty.contains(mirror) && ctx.draining.contains(mirror);
    if open.iter().any(leaves) {
        return Err(Fault::new(
            Code::NoSpace,
            "all OSTs are draining; add one, or take the mark of one back",
        ));
    }
    for (c, component) in layout.components.iter_mut().enumerate() {
        for stripe in 0..component.mirrors.len() {
            if !leaves(&component.mirrors[stripe]) {
                continue;
            }
            // meta-M3.
            if component.is_written(stripe as u16) {
                let why = format!("file {}: stripe {stripe} of component {c} has an object", req.fid);
                return Err(Fault::new(Code::BadRequest, why));
            }
            component.mirrors[stripe] = another(&open, &component.mirrors, req.fid, c + stripe);
        }
    }
    debug_assert!(layout.is_valid(), "types-I3: each stripe has an OST");
    give_up(txn, &mut inode);
    inode.layout = Some(layout);
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Layout, req.fid, None);
    Ok(RepointReply { inode: inode.shown(ctx, For::Looking) })
}

/// One of `open` that is not among `taken`, if there is one. Files take turns.
fn another(open: &[MirrorId], taken: &[MirrorId], fid: Fid, turn: usize) -> MirrorId {
    let begin = (fid.counter() as usize).wrapping_add(turn);
    let nth = |n: usize| open[begin.wrapping_add(n) % open.len()];
    (0..open.len()).map(nth).find(|m| !taken.contains(m)).unwrap_or_else(|| nth(0))
}

/// The layout, if it is the one that the client saw.
fn check_layout(inode: &InodeRecord, generation: Generation) -> Result<&Layout, Fault> {
    inode.layout.as_ref().filter(|l| l.generation == generation).ok_or_else(|| {
        let why = format!("file {}: its layout is not of generation {generation}", inode.fid());
        Fault::new(Code::Stale, why)
    })
}

/// meta-M2, of a file whose size is known and that has a name. An orphan is soon gone.
fn check_use(ctx: &Ctx<'_>, inode: &InodeRecord, token: u64) -> Result<(), Fault> {
    let fid = inode.fid();
    if inode.attr.nlink == 0 {
        return Err(Fault::new(Code::Stale, format!("file {fid} is unlinked, and open somewhere")));
    }
    check_lease(ctx, fid, token)?;
    match sharing::is_left_over(ctx, inode) {
        false => Ok(()),
        true => Err(Fault::new(Code::Stale, format!("file {fid}: a dead session left its size unknown"))),
    }
}

fn check_lease(ctx: &Ctx<'_>, fid: Fid, token: u64) -> Result<(), Fault> {
    match ctx.is_shared() && !ctx.sharing.is_some_and(|s| s.holds_alone(fid, token)) {
        false => Ok(()),
        true => Err(Fault::new(Code::Stale, format!("file {fid}: its lease is not held any more"))),
    }
}

#[cfg(test)]
mod tests;
