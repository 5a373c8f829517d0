//! Inline-to-object migration: an inline file outgrows its record.
//!
//! meta-O4: all bytes are in flushed objects before one entry switches the layout and drops the inline bytes. `Grow` assigns a layout.
//! The client writes all bytes to the objects and flushes them. Then `Switch` changes the layout and drops the inline bytes in one entry.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{FileState, Grow, GrowReply, Switch, SwitchReply, WrittenBits};
use wire::object::{RIGHT_READ, RIGHT_WRITE};

use crate::inode::{load_inode, store_inode};
use crate::open::capability;
use crate::records::InodeRecord;
use crate::sharing::{self, For};
use crate::{Ctx, Txn, inline, note, reap, stripe};

pub fn grow(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Grow) -> Result<GrowReply, Fault> {
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_WRITE)?;
    let mut inode = load_inode(txn, req.fid)?;
    if inode.attr.kind != Kind::File {
        return Err(Code::Invalid.into());
    }
    let switched = match inode.layout {
        Some(_) => true,
        None => {
            let layout = give_layout(ctx, txn, &mut inode, &req.avoid)?;
            // An empty file has no bytes to copy, so it switches at once.
            let switched = inode.attr.size == 0;
            match switched {
                true => {
                    inode.layout = Some(layout);
                    note::changed(txn, ChangeOp::Layout, req.fid, None);
                }
                false => inode.pending = Some(layout),
            }
            switched
        }
    };
    if switched && inode.state == FileState::Settled {
        inode.state = sharing::writing(ctx, &inode);
    }
    store_inode(txn, &inode);
    let Some(layout) = inode.layout.clone().or_else(|| inode.pending.clone()) else {
        return Err(Code::Invalid.into());
    };
    assert!(switched == inode.layout.is_some(), "meta-O4: a file has its layout or a pending one");
    assert!(switched || inode.attr.size > 0, "meta-O4: only a file with bytes needs a copy");
    let cap = capability(ctx, txn, inode.fid(), layout.generation, RIGHT_READ | RIGHT_WRITE, false);
    Ok(GrowReply { inode: inode.shown(ctx, For::Using), layout, cap, switched })
}

/// Assigns a layout of a new generation. Objects of an earlier migration that never switched go to the purge list.
fn give_layout(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    inode: &mut InodeRecord,
    avoid: &[MirrorId],
) -> Result<Layout, Fault> {
    if ctx.space.is_full {
        return Err(Fault::new(Code::NoSpace, "the MDT is full; remove files or enlarge it"));
    }
    give_up(txn, inode);
    assert!(inode.pending.is_none(), "meta-O4: one migration at a time");
    inode.generation = Generation(inode.generation.0 + 1);
    let layout = stripe::make_layout(ctx, inode.fid(), inode.spec.as_ref(), inode.generation, avoid)?;
    assert!(layout.generation == inode.generation, "a generation names one layout of a file");
    Ok(layout)
}

/// meta-O4: a migration copies the record as it was at its begin. A change by a client with a section abandons the migration: the client
/// that began it has died or was stopped, and its late `Switch` must not bring the old bytes back. A client without a section must wait
/// for the migration.
pub fn change_record(txn: &mut dyn Txn, inode: &mut InodeRecord, in_section: bool) -> Result<(), Fault> {
    if inode.pending.is_some() && !in_section {
        return Err(Code::NeedSection.into());
    }
    give_up(txn, inode);
    Ok(())
}

/// Abandons a layout that was assigned but never switched to: its objects, if there are any, go to the purge list.
pub(crate) fn give_up(txn: &mut dyn Txn, inode: &mut InodeRecord) {
    if let Some(pending) = inode.pending.take() {
        reap::bury(txn, inode.fid(), &pending);
    }
}

pub fn switch(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Switch) -> Result<SwitchReply, Fault> {
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_WRITE)?;
    let mut inode = load_inode(txn, req.fid)?;
    let mut layout = match inode.pending.take() {
        // The pending layout of a file with objects belongs to a migration, which ends by `CutOver`.
        Some(pending) if pending.generation == req.generation && inode.layout.is_none() => pending,
        _ => {
            return Err(Fault::new(
                Code::Stale,
                format!("file {}: no pending layout of generation {}", req.fid, req.generation),
            ));
        }
    };
    mark_written(&mut layout, &req.written)?;
    assert!(layout.generation == req.generation, "meta-O4: the file switches to the copied objects");
    inode.layout = Some(layout);
    inode.state = sharing::writing(ctx, &inode);
    inline::delete_pages(txn, req.fid, 0);
    debug_assert!(inline::stored_bytes(txn, req.fid) == 0, "meta-O4: the switch drops the inline bytes");
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Layout, req.fid, None);
    Ok(SwitchReply { inode: inode.shown(ctx, For::Using) })
}

/// Adds reported written bits to a layout. Bits of stripes that do not exist are refused.
pub fn mark_written(layout: &mut Layout, written: &[WrittenBits]) -> Result<(), Fault> {
    for w in written {
        let Some(component) = layout.components.get_mut(w.component as usize) else {
            return Err(Fault::new(
                Code::BadRequest,
                format!("component {} of {}", w.component, layout.components.len()),
            ));
        };
        let count = component.mirrors.len();
        for (word, bits) in w.bits.iter().enumerate() {
            for bit in (0..64).filter(|b| bits >> b & 1 == 1) {
                let stripe = word * 64 + bit;
                if stripe >= count {
                    return Err(Fault::new(Code::BadRequest, format!("stripe {stripe} of {count}")));
                }
                component.set_written(stripe as u16);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
