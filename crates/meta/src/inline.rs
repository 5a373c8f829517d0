//! Inline content: pages of up to 4 KiB in the MDT's records, each with its own CRC.
//!
//! An absent page, and the part of a read after a short page, reads as zeros. No page has bytes past the file's size, except reserved
//! space.

use types::crc::{crc32c, fragments, verify_fragments};
use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{Place, ReadInline, ReadInlineReply, WriteInline, WriteInlineReply};
use wire::object::{RIGHT_READ, RIGHT_WRITE};

use crate::inode::{load_inode, store_inode};
use crate::records::{InlinePage, InodeRecord};
use crate::stripe::inline_max;
use crate::{Ctx, Txn, View, access, grow, keys, note};

pub fn write_inline(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    req: WriteInline,
    bulk: &[u8],
) -> Result<WriteInlineReply, Fault> {
    // 1. Verify the bytes.
    if let Err(at) = verify_fragments(0, bulk, &req.crcs) {
        let detail = format!("the bytes from {at} on that were to be written to file {}", req.fid);
        return Err(Fault::new(Code::BadChecksum, detail));
    }
    // 2. Check that the file can take them.
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_WRITE)?;
    let mut inode = load_inode(txn, req.fid)?;
    access::need_mutable(&inode)?;
    require_inline(&inode)?;
    let size = inode.attr.size;
    let (offset, bulk) = match req.place {
        Place::At(offset) => (offset, bulk),
        Place::End => (size, bulk),
        Place::Within(offset) => {
            (offset, &bulk[..size.saturating_sub(offset).min(bulk.len() as u64) as usize])
        }
    };
    if offset < size {
        access::need_unprotected(&inode)?;
    }
    if bulk.is_empty() {
        return Ok(WriteInlineReply { attr: inode.attr });
    }
    if !req.in_section && !ctx.replay && ctx.leased_elsewhere(req.fid) {
        return Err(Code::NeedSection.into());
    }
    grow::change_record(txn, &mut inode, req.in_section)?;
    let end = offset.checked_add(bulk.len() as u64).ok_or(Code::FileTooBig)?;
    let is_kept = || is_kept(txn, &inode, offset, end);
    if end > inline_max(ctx, &inode) as u64 || (end > ctx.space.inline_max as u64 && !is_kept()) {
        return Err(Code::NeedLayout.into());
    }
    if ctx.space.is_full && !is_kept() {
        return Err(Fault::new(Code::NoSpace, "the MDT is full; remove files or enlarge it"));
    }
    // 3. Write page by page: each is merged with its old bytes, verified.
    let is_dense = inode.attr.blocks == inode.attr.size.div_ceil(512) && offset <= inode.attr.size;
    for (at, len) in fragments(offset, bulk.len()) {
        write_fragment(txn, &inode, offset + at as u64, &bulk[at..at + len])?;
    }
    // 4. Size and times, in the same entry.
    inode.attr.size = inode.attr.size.max(end);
    assert!(inode.attr.size >= size, "a write never makes a file shorter");
    inode.attr.blocks = match is_dense {
        true => inode.attr.size.div_ceil(512),
        false => count_blocks(txn, req.fid),
    };
    inode.attr.mtime = req.now;
    inode.attr.ctime = req.now;
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Write, req.fid, None);
    Ok(WriteInlineReply { attr: inode.attr })
}

/// Writes the content of a file that is being made. `was_taken`: its client has told programs already that it is written.
pub fn fill(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    inode: &mut InodeRecord,
    (bytes, now): (&[u8], Time),
    was_taken: bool,
) -> Result<(), Fault> {
    let limit = if was_taken { INLINE_MAX } else { inline_max(ctx, inode) };
    if bytes.len() > limit.min(ctx.space.inline_max) as usize {
        return Err(Code::NeedLayout.into());
    }
    for (page, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
        txn.put(keys::inline(inode.fid(), page as u32), InlinePage::encode(bytes));
    }
    inode.attr.size = bytes.len() as u64;
    inode.attr.blocks = inode.attr.size.div_ceil(512);
    (inode.attr.mtime, inode.attr.ctime) = (now, now);
    Ok(())
}

/// True if every byte of the range has a page, so that a write takes no new space.
fn is_kept(view: &(impl View + ?Sized), inode: &InodeRecord, begin: u64, end: u64) -> bool {
    fragments(begin, (end - begin) as usize).all(|(at, len)| {
        let offset = begin + at as u64;
        let to = (offset % PAGE_SIZE as u64) as usize + len;
        let page = view.get(&keys::inline(inode.fid(), (offset / PAGE_SIZE as u64) as u32));
        page.is_some_and(|value| page_len(&value) >= to)
    })
}

fn write_fragment(txn: &mut dyn Txn, inode: &InodeRecord, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
    let page = (offset / PAGE_SIZE as u64) as u32;
    let from = (offset % PAGE_SIZE as u64) as usize;
    let key = keys::inline(inode.fid(), page);
    let mut merged = match (from, bytes.len()) {
        (0, PAGE_SIZE) => Vec::new(),
        _ => load_page(txn, inode.fid(), page)?,
    };
    merged.resize(merged.len().max(from + bytes.len()), 0);
    merged[from..from + bytes.len()].copy_from_slice(bytes);
    assert!(merged.len() <= PAGE_SIZE, "a fragment stays within its page");
    txn.put(key, InlinePage::encode(&merged));
    Ok(())
}

pub fn read_inline(
    ctx: &Ctx<'_>,
    view: &dyn View,
    req: ReadInline,
    out: &mut Buf,
) -> Result<ReadInlineReply, Fault> {
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_READ)?;
    let inode = load_inode(view, req.fid)?;
    require_inline(&inode)?;
    let len = (req.len as u64).min(inode.attr.size.saturating_sub(req.offset)).min(BULK_MAX as u64) as usize;
    let crcs = content(view, &inode, req.offset, len, out)?;
    Ok(ReadInlineReply { crcs, size: inode.attr.size })
}

/// Reads a range within the file; returns the CRCs of its fragments.
pub fn content(
    view: &dyn View,
    inode: &InodeRecord,
    begin: u64,
    len: usize,
    out: &mut Buf,
) -> Result<Vec<u32>, Fault> {
    let space = out.space(len);
    for (at, n) in fragments(begin, len) {
        let offset = begin + at as u64;
        let from = (offset % PAGE_SIZE as u64) as usize;
        let page = load_page(view, inode.fid(), (offset / PAGE_SIZE as u64) as u32)?;
        let have = page.len().saturating_sub(from).min(n);
        space[at..at + have].copy_from_slice(&page[from.min(page.len())..from.min(page.len()) + have]);
        space[at + have..at + n].fill(0);
    }
    let crcs: Vec<u32> = fragments(begin, len).map(|(at, n)| crc32c(&space[at..at + n])).collect();
    debug_assert!(verify_fragments(begin, space, &crcs).is_ok(), "a client accepts the CRCs");
    Ok(crcs)
}

pub fn require_inline(inode: &InodeRecord) -> Result<(), Fault> {
    match inode.attr.kind {
        Kind::File if inode.layout.is_none() => Ok(()),
        Kind::File => Err(Code::NotInline.into()),
        Kind::Dir => Err(Code::IsDir.into()),
        _ => Err(Code::Invalid.into()),
    }
}

/// The verified bytes of a page; empty if it is absent.
pub fn load_page(view: &(impl View + ?Sized), fid: Fid, page: u32) -> Result<Vec<u8>, Fault> {
    let Some(value) = view.get(&keys::inline(fid, page)) else { return Ok(Vec::new()) };
    match InlinePage::decode(&value) {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(e) => Err(Fault::new(Code::Damaged, format!("inline page {page} of file {fid}: {e}"))),
    }
}

/// Cuts inline content to `size` bytes: later pages are deleted, the last one is trimmed.
pub fn cut(txn: &mut dyn Txn, fid: Fid, size: u64) -> Result<(), Fault> {
    let whole = size.div_ceil(PAGE_SIZE as u64) as u32;
    delete_pages(txn, fid, whole);
    let rest = (size % PAGE_SIZE as u64) as usize;
    if rest > 0 {
        let key = keys::inline(fid, whole - 1);
        let is_reserved = txn.get(&key).is_some_and(|value| InlinePage::is_reserved(&value));
        let mut last = load_page(txn, fid, whole - 1)?;
        if last.len() > rest {
            last.truncate(rest);
            txn.put(
                key,
                if is_reserved { InlinePage::encode_reserved(rest) } else { InlinePage::encode(&last) },
            );
        }
    }
    Ok(())
}

/// Deletes the pages from `first` on.
pub fn delete_pages(txn: &mut dyn Txn, fid: Fid, first: u32) {
    let mut doomed = Vec::new();
    txn.range(&keys::inline(fid, first), &keys::inline(Fid(fid.0 + 1), 0), &mut |k, _| {
        doomed.push(*k);
        true
    });
    doomed.iter().for_each(|k| txn.delete(k));
    debug_assert!(txn.get(&keys::inline(fid, first)).is_none(), "a deleted page is gone");
}

/// Blocks of 512 bytes of an inline file's pages.
pub fn count_blocks(view: &(impl View + ?Sized), fid: Fid) -> u64 {
    let mut blocks = 0;
    view.range(&keys::inline(fid, 0), &keys::inline(Fid(fid.0 + 1), 0), &mut |_, value| {
        blocks += page_len(value).div_ceil(512) as u64;
        true
    });
    blocks
}

/// Bytes that a page holds or reserves.
pub fn page_len(value: &[u8]) -> usize {
    value.len().saturating_sub(InlinePage::HEAD_BYTES)
}

/// Bytes in an inline file's pages, for fsck.
pub fn stored_bytes(view: &dyn View, fid: Fid) -> u64 {
    let mut total = 0;
    view.range(&keys::inline(fid, 0), &keys::inline(Fid(fid.0 + 1), 0), &mut |_, v| {
        total += page_len(v) as u64;
        true
    });
    total
}
