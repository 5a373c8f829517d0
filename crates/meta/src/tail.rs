//! Moves the tail of a growing file to OSTs with free space (decision 0050): the layout is made anew from an offset on, where no object
//! has bytes.
//!
//! meta-T1: objects keep their names: existing ones stay in the layout under their numbers, if only in an empty component.
//! meta-T2: the layout is changed only if it is still the one that the client saw.

use types::layout::COMPONENTS_MAX;
use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{FileState, MoveTail, MoveTailReply, StripeComponent};
use wire::object::RIGHT_WRITE;

use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
use crate::sharing::For;
use crate::{Ctx, Txn, note, stripe};

/// Up to this number of components, empty ones are kept: an OST may remember leases of their objects, which the file's removal then
/// clears.
const KEPT_MAX: usize = 16;

pub fn move_tail(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: MoveTail) -> Result<MoveTailReply, Fault> {
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_WRITE)?;
    let mut inode = load_inode(txn, req.fid)?;
    if req.from > FILE_SIZE_MAX {
        return Err(Code::FileTooBig.into());
    }
    let fresh = fresh(ctx, &inode, &req)?;
    let fid = inode.fid();
    let Some(layout) = inode.layout.as_mut().filter(|l| l.generation == req.generation) else {
        let why = format!("file {fid}: its layout is not of generation {}", req.generation);
        return Err(Fault::new(Code::Stale, why));
    };
    if layout.components.len() != usize::from(req.components)
        || matches!(inode.state, FileState::Truncating { .. })
    {
        return Err(Fault::new(Code::Stale, format!("file {fid}: its layout or size is being changed")));
    }
    // meta-T2 refuses late requests, beside the rules of slots.
    layout.components = joined(layout, &req, fresh)
        .ok_or_else(|| Fault::new(Code::NoSpace, format!("file {fid}: its tail has moved too often")))?;
    debug_assert!(layout.is_valid(), "types-I1: a tail ends where the file may end");
    assert!(layout.generation == req.generation, "meta-T1: objects keep their names");
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Layout, fid, None);
    Ok(MoveTailReply { inode: inode.shown(ctx, For::Using) })
}

/// The components from `from` on that the striping requests, on OSTs with free space.
fn fresh(ctx: &Ctx<'_>, inode: &InodeRecord, req: &MoveTail) -> Result<Vec<Component>, Fault> {
    let wanted: Vec<StripeComponent> =
        stripe::wanted(inode.spec.as_ref()).into_iter().filter(|c| c.end > req.from).collect();
    if stripe::open_osts(ctx).iter().all(|m| req.avoid.contains(m)) {
        return Err(Fault::new(Code::NoSpace, "no OST has room"));
    }
    if wanted.first().is_some_and(|c| stripe::is_pinned(ctx, c)) {
        let why = format!("file {}: its striping names the OST that it is on", inode.fid());
        return Err(Fault::new(Code::NoSpace, why));
    }
    Ok(stripe::lay(ctx, inode.fid(), &wanted, &req.avoid))
}

/// The components up to `from`, then `fresh`. `None`: too many.
fn joined(layout: &Layout, req: &MoveTail, mut fresh: Vec<Component>) -> Option<Vec<Component>> {
    let old = &layout.components;
    let is_used = |c: &Component| c.written.iter().any(|w| *w != 0);
    // meta-T1
    let begun = (0..old.len()).filter(|c| layout.start_of(*c) < req.from).count();
    let used = old.iter().rposition(is_used).map_or(0, |c| c + 1).max(usize::from(req.keep)).max(begun);
    let kept = if old.len() + fresh.len() <= KEPT_MAX { old.len() } else { used.min(old.len()) };
    let mut all: Vec<Component> = old[..kept].to_vec();
    all.iter_mut().for_each(|c| c.end = c.end.min(req.from));
    if kept + fresh.len() > COMPONENTS_MAX {
        // The last component that may exist covers all the rest.
        fresh.truncate(1);
        fresh[0].end = u64::MAX;
    }
    assert!(kept >= begun, "meta-T1: a component with bytes stays");
    assert!(all.iter().all(|c| c.end <= req.from), "the old components end where the new ones begin");
    all.extend(fresh);
    (all.len() <= COMPONENTS_MAX).then_some(all)
}

#[cfg(test)]
mod tests;
