//! Removal of inodes without names, and of objects without a layout.
//!
//! An orphan (no name, but held open) keeps its inode and has an orphan record with its holder's session. Objects that no layout names
//! have a record in the unlink log (meta-I3), until the purge has destroyed them and calls `forget_dead`.

use types::*;
use wire::Empty;
use wire::meta::{Release, UnlinkReply};

use crate::inode::{load_inode, store_inode};
use crate::records::{self, InodeRecord, Parent};
use crate::{Ctx, Txn, View, inline, keys, totals};

/// Removes the link at `from` from an inode. The last link (a directory's only one) removes the inode, unless a session holds it open.
pub fn lose_link(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    mut inode: InodeRecord,
    from: Parent,
    held: bool,
    now: Time,
) -> UnlinkReply {
    inode.parents.retain(|p| *p != from);
    inode.attr.nlink = if inode.is_dir() { 0 } else { inode.attr.nlink.saturating_sub(1) };
    inode.attr.ctime = now;
    assert!(!inode.is_dir() || inode.attr.nlink == 0, "meta-I4: a removed directory has no links");
    // meta-H2: a session that has it open keeps it. mds-GR1: so does the removing session while path walks meet removals.
    let holder = match held || ctx.keeps_removed() {
        true => Some(ctx.session),
        false => ctx.opened_elsewhere(inode.fid()),
    };
    match (inode.attr.nlink, holder) {
        (0, None) => drop_inode(txn, &inode),
        (0, Some(holder)) => {
            txn.put(keys::orphan(inode.fid()), records::encode_orphan(holder));
            store_inode(txn, &inode);
        }
        _ => store_inode(txn, &inode),
    }
    UnlinkReply { attr: inode.attr, kept: inode.attr.nlink == 0 && holder == Some(ctx.session) }
}

/// Deletes all records of an inode; its objects go to the purge list.
pub fn drop_inode(txn: &mut dyn Txn, inode: &InodeRecord) {
    let fid = inode.fid();
    txn.delete(&keys::inode(fid));
    if txn.get(&keys::xattrs(fid)).is_some() {
        txn.delete(&keys::xattrs(fid));
    }
    if inode.is_inline() {
        inline::delete_pages(txn, fid, 0);
    }
    [&inode.layout, &inode.pending].into_iter().flatten().for_each(|layout| bury(txn, fid, layout));
    debug_assert!(txn.get(&keys::inode(fid)).is_none(), "a dropped inode is gone");
    totals::inode_dropped(txn);
}

/// meta-I3: the objects of `layout` are destroyed once this entry is flushed.
pub fn bury(txn: &mut dyn Txn, fid: Fid, layout: &Layout) {
    debug_assert!(layout.is_valid(), "meta-I3: the purge finds every object of the layout");
    txn.put(keys::dead(fid, layout.generation), records::encode_dead(layout));
}

/// The call `Release`: the holder closed its last descriptor.
pub fn release(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Release) -> Result<Empty, Fault> {
    // The orphan has another holder if that session had it open too, and was recorded when the last name was removed.
    if orphan_holder(txn, req.fid) == Some(ctx.session) {
        leave_orphan(txn, req.fid, ctx.opened_elsewhere(req.fid))?;
    }
    Ok(Empty {})
}

/// A holder releases an orphan: the `next` holder gets it, or without one it is removed (meta-H2).
pub fn leave_orphan(txn: &mut dyn Txn, fid: Fid, next: Option<SessionId>) -> Result<(), Fault> {
    match next {
        None => reap(txn, fid),
        Some(holder) => {
            if txn.get(&keys::orphan(fid)).is_some() {
                txn.put(keys::orphan(fid), records::encode_orphan(holder));
            }
            Ok(())
        }
    }
}

/// The session that holds an orphan.
pub fn orphan_holder(view: &dyn View, fid: Fid) -> Option<SessionId> {
    records::decode_orphan(&view.get(&keys::orphan(fid))?).ok()
}

/// Removes an orphan. A fid that is not an orphan stays as it is: it has names again, or is gone already.
pub fn reap(txn: &mut dyn Txn, fid: Fid) -> Result<(), Fault> {
    if txn.get(&keys::orphan(fid)).is_none() {
        return Ok(());
    }
    txn.delete(&keys::orphan(fid));
    match load_inode(txn, fid) {
        Ok(inode) if inode.attr.nlink == 0 => drop_inode(txn, &inode),
        Ok(_) => {}
        Err(fault) if fault.code == Code::Stale => {}
        Err(fault) => return Err(fault),
    }
    Ok(())
}

/// Up to `max` orphans after `after`, with the sessions that hold them open. Records that do not decode are left for fsck.
pub fn orphans(view: &dyn View, after: Fid, max: usize) -> Vec<(Fid, SessionId)> {
    let mut found = Vec::new();
    let begin = keys::orphan(Fid(after.0.saturating_add(1)));
    view.range(&begin, &keys::kind_start(keys::ORPHAN + 1), &mut |key, value| {
        found.extend(keys::parse_fid(key).zip(orphan_in(key, value)));
        found.len() < max
    });
    found
}

/// The session that holds an orphan, if this is an orphan's record.
pub fn orphan_in(key: &Key, value: &[u8]) -> Option<SessionId> {
    key.as_bytes().first().filter(|kind| **kind == keys::ORPHAN)?;
    records::decode_orphan(value).ok()
}

/// The first `max` layouts of the unlink log in key order. Records that do not decode are left for fsck.
pub fn dead_list(view: &dyn View, max: usize) -> Vec<(Fid, Layout)> {
    let mut found = Vec::new();
    view.range(&keys::kind_start(keys::DEAD), &keys::kind_start(keys::DEAD + 1), &mut |key, value| {
        if found.len() < max {
            found.extend(keys::parse_fid(key).zip(records::decode_dead(value).ok()));
        }
        found.len() < max
    });
    found
}

/// True if this is a record of `dead_list`.
pub fn is_dead(key: &Key) -> bool {
    key.as_bytes().first() == Some(&keys::DEAD)
}

/// Deletes the record of a generation whose objects are destroyed.
pub fn forget_dead(txn: &mut dyn Txn, fid: Fid, generation: Generation) {
    txn.delete(&keys::dead(fid, generation));
}

#[cfg(test)]
mod tests;
