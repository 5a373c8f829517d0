//! `fallocate` and `lseek` of inline content. Reserved space is stored as pages of zeros that are marked as reserved, so a later write
//! there takes no more space of the MDT.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{AllocateInline, AllocateInlineReply, SeekInline, SeekInlineReply};
use wire::object::{RIGHT_READ, RIGHT_WRITE};

use crate::inline::{count_blocks, load_page, page_len, require_inline};
use crate::inode::{load_inode, store_inode};
use crate::records::InlinePage;
use crate::stripe::inline_max;
use crate::{Ctx, Txn, View, access, grow, keys, note};

const PAGE: u64 = PAGE_SIZE as u64;
/// `SeekInlineReply` has one bit per page.
const _: () = assert!(INLINE_MAX as u64 <= 64 * PAGE);

pub fn allocate_inline(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    req: AllocateInline,
) -> Result<AllocateInlineReply, Fault> {
    // 1. Check the range. Space past the end is not reserved inline; objects can have it.
    let end = req.offset.checked_add(req.len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(Code::FileTooBig)?;
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_WRITE)?;
    let mut inode = load_inode(txn, req.fid)?;
    access::need_mutable(&inode)?;
    if req.erase {
        access::need_unprotected(&inode)?;
    }
    require_inline(&inode)?;
    let size = inode.attr.size;
    if req.allocate && (end > inline_max(ctx, &inode) as u64 || (end > size && !req.grow)) {
        return Err(Code::NeedLayout.into());
    }
    grow::change_record(txn, &mut inode, true)?;
    // 2. Make bytes zeros. A range that reaches past the end includes the whole last page.
    let zeros_end = if end > size { size.next_multiple_of(PAGE) } else { end };
    if req.erase && req.offset < zeros_end {
        erase(txn, req.fid, req.offset, zeros_end, req.allocate)?;
    }
    // 3. Reserve space for the rest.
    if req.allocate {
        let is_new = reserve(txn, req.fid, req.offset, end)?;
        if is_new && end > ctx.space.inline_max as u64 {
            return Err(Code::NeedLayout.into());
        }
        if is_new && ctx.space.is_full {
            return Err(Fault::new(Code::NoSpace, "the MDT is full; remove files or enlarge it"));
        }
    }
    // 4. Size, blocks and times, in the same entry.
    inode.attr.size = if req.grow { size.max(end) } else { size };
    inode.attr.blocks = count_blocks(txn, req.fid);
    (inode.attr.mtime, inode.attr.ctime) = (req.now, req.now);
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Write, req.fid, None);
    assert!(inode.attr.size >= size, "an allocation never makes a file shorter");
    Ok(AllocateInlineReply { attr: inode.attr })
}

/// The pages of a range, each with its part of the range.
fn parts(begin: u64, end: u64) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> {
    let part = move |page: u64| {
        let at = |offset: u64| offset.clamp(page * PAGE, (page + 1) * PAGE) - page * PAGE;
        (page as u32, at(begin) as usize..at(end) as usize)
    };
    (begin / PAGE..end.div_ceil(PAGE)).map(part)
}

fn erase(txn: &mut dyn Txn, fid: Fid, begin: u64, end: u64, is_kept: bool) -> Result<(), Fault> {
    for (page, part) in parts(begin, end) {
        let key = keys::inline(fid, page);
        let Some((len, is_reserved)) = txn.get(&key).map(|v| (page_len(&v), InlinePage::is_reserved(&v)))
        else {
            continue;
        };
        match (part.len() == PAGE_SIZE, is_kept) {
            (true, true) => txn.put(key, InlinePage::encode_reserved(len)),
            (true, false) => txn.delete(&key),
            (false, _) if is_reserved => {}
            (false, _) => {
                let mut bytes = load_page(txn, fid, page)?;
                let to = part.end.min(bytes.len());
                bytes[part.start.min(to)..to].fill(0);
                txn.put(key, InlinePage::encode(&bytes));
            }
        }
    }
    Ok(())
}

/// Reserves space; true if it takes space that was not taken before.
fn reserve(txn: &mut dyn Txn, fid: Fid, begin: u64, end: u64) -> Result<bool, Fault> {
    let mut is_new = false;
    for (page, part) in parts(begin, end) {
        let key = keys::inline(fid, page);
        let there = txn.get(&key).map(|v| (page_len(&v), InlinePage::is_reserved(&v)));
        if there.is_some_and(|(len, _)| len >= part.end) {
            continue;
        }
        is_new = true;
        match there.is_some_and(|(_, is_reserved)| !is_reserved) {
            true => {
                let mut bytes = load_page(txn, fid, page)?;
                bytes.resize(part.end, 0);
                txn.put(key, InlinePage::encode(&bytes));
            }
            false => txn.put(key, InlinePage::encode_reserved(part.end)),
        }
    }
    Ok(is_new)
}

pub fn seek_inline(ctx: &Ctx<'_>, view: &dyn View, req: SeekInline) -> Result<SeekInlineReply, Fault> {
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_READ)?;
    let inode = load_inode(view, req.fid)?;
    require_inline(&inode)?;
    let size = inode.attr.size;
    let pages = (req.offset / PAGE) as u32..size.div_ceil(PAGE) as u32;
    let is_data = |page: &u32| {
        view.get(&keys::inline(req.fid, *page)).is_some_and(|value| !InlinePage::is_reserved(&value))
    };
    let at = |page: u32| (page as u64 * PAGE).max(req.offset);
    let data = pages.clone().find(is_data).map(at);
    let hole = pages.clone().find(|page| !is_data(page)).map_or(size, at);
    // Any offset may be asked for; past the end there is nothing to find.
    let is_past = req.offset >= size;
    assert!(is_past || data.is_none_or(|data| (req.offset..size).contains(&data)), "data lies in the range");
    assert!(
        is_past || (req.offset..=size).contains(&hole),
        "every file has a hole at its end, at the latest"
    );
    let is_kept = |page| view.get(&keys::inline(req.fid, page)).is_some_and(|v| InlinePage::is_reserved(&v));
    let reserved = (0..size.div_ceil(PAGE) as u32).filter(|p| is_kept(*p)).map(|p| 1 << p).sum();
    Ok(SeekInlineReply { data, hole, size, reserved })
}

#[cfg(test)]
mod tests;
