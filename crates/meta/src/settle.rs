//! Settle (rule plan-O3): updates size, times and written bits that flushed bytes have proven.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{FileState, Settle, SettleReply};
use wire::object::RIGHT_WRITE;

use crate::grow::mark_written;
use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
use crate::{Ctx, Txn, note, sharing};

pub fn settle(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Settle) -> Result<SettleReply, Fault> {
    if req.size > FILE_SIZE_MAX {
        return Err(Code::FileTooBig.into());
    }
    let mut inode = load_inode(txn, req.fid)?;
    if is_no_news(&inode, &req) {
        return Ok(SettleReply { attr: inode.attr });
    }
    need_concern(ctx, &inode)?;
    ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_WRITE)?;
    let Some(layout) = inode.layout.as_mut().filter(|l| l.generation == req.generation) else {
        return Err(Fault::new(
            Code::Stale,
            format!("file {}: its layout is not of generation {}", req.fid, req.generation),
        ));
    };
    mark_written(layout, &req.written)?;
    // 1. Size: it rises with the written bytes; only a shrink in progress sets it.
    let is_left_over = sharing::is_left_over(ctx, &inode);
    let mut proven = sharing::proven(&inode);
    let before = inode.attr.size;
    inode.attr.size = match inode.state {
        FileState::Truncating { .. } if !req.is_part => req.size,
        FileState::Truncating { .. } => before,
        // meta-H1: a size reported in an earlier era counts only as far as it was flushed, or as the objects prove it.
        FileState::Shared { proven, .. } if is_left_over && !req.is_part => proven.max(req.size),
        _ => inode.attr.size.max(req.size),
    };
    assert!(
        inode.attr.size >= before || matches!(inode.state, FileState::Truncating { .. }) || is_left_over,
        "a size falls only by truncation, or to the proven bytes of an earlier era"
    );
    if !req.hint {
        proven = proven.max(req.size);
    }
    // 2. Times and blocks.
    let mtime = match req.hint && inode.mtime_set_at == Time::default() {
        // Programs detect changes by mtime, and the writer's clock may be behind. So mtime must rise.
        true => req.mtime.max(just_after(inode.attr.mtime)),
        false => req.mtime,
    };
    if is_newer_write(&inode, mtime) {
        (inode.attr.mtime, inode.mtime_set_at) = (mtime, Time::default());
        inode.attr.ctime = inode.attr.ctime.max(mtime);
    }
    inode.attr.blocks = match req.is_part {
        true => inode.attr.blocks.saturating_add(req.blocks),
        false => req.blocks,
    };
    // 3. State.
    inode.state = match ctx.sharing.filter(|s| s.is_shared()) {
        // A session that writes beside others does not know what a dead one of them wrote: the next user of the file asks the objects.
        Some(_) if is_left_over && req.is_part => match inode.state {
            FileState::Shared { era, .. } => FileState::Shared { era, proven: proven.min(inode.attr.size) },
            state => state,
        },
        Some(others) => {
            let proven = proven.min(inode.attr.size);
            let is_last = req.done && !req.hint && !others.written_elsewhere(req.fid);
            match is_last && proven == inode.attr.size {
                true => FileState::Settled,
                false => FileState::Shared { era: others.era(), proven },
            }
        }
        None if req.done => FileState::Settled,
        None => FileState::Writing(ctx.session),
    };
    assert!(
        !matches!(inode.state, FileState::Shared { proven, .. } if proven > inode.attr.size),
        "meta-H1: no more bytes are proven than the file has"
    );
    store_inode(txn, &inode);
    let op = if inode.state == FileState::Settled { ChangeOp::Close } else { ChangeOp::Write };
    note::changed(txn, op, req.fid, None);
    Ok(SettleReply { attr: inode.attr })
}

/// Settles a file that no session has open for writing any more, if all of it is flushed. (The last writer's update may have come while
/// another still wrote.) A file of another era than `now` needs recovery from its objects instead.
pub fn rest(txn: &mut dyn Txn, fid: Fid, now: u64) -> Result<(), Fault> {
    let mut inode = match load_inode(txn, fid) {
        Err(fault) if fault.code == Code::Stale => return Ok(()),
        found => found?,
    };
    if matches!(inode.state, FileState::Shared { era, proven } if era == now && proven >= inode.attr.size) {
        inode.state = FileState::Settled;
        store_inode(txn, &inode);
        note::changed(txn, ChangeOp::Close, fid, None);
    }
    Ok(())
}

fn just_after(time: Time) -> Time {
    match time.nsec {
        999_999_999 => Time::new(time.sec.saturating_add(1), 0),
        nsec => Time::new(time.sec, nsec + 1),
    }
}

/// True if a settled file would not change, as with an `fsync` by a program that only reads it.
fn is_no_news(inode: &InodeRecord, req: &Settle) -> bool {
    let is_same = inode.layout.as_ref().is_some_and(|l| l.generation == req.generation);
    inode.state == FileState::Settled
        && is_same
        && req.written.is_empty()
        && req.blocks == if req.is_part { 0 } else { inode.attr.blocks }
        && req.size <= inode.attr.size
        && !is_newer_write(inode, req.mtime)
}

/// A judged session may settle only files that it writes, and no settled ones. Otherwise it could make any file longer.
fn need_concern(ctx: &Ctx<'_>, inode: &InodeRecord) -> Result<(), Fault> {
    let is_its = match inode.state {
        FileState::Settled => false,
        FileState::Shared { .. } => true,
        FileState::Writing(session) | FileState::Truncating { session, .. } => session == ctx.session,
    };
    match ctx.judge.is_none() || is_its || sharing::is_left_over(ctx, inode) {
        true => Ok(()),
        false => Err(Fault::new(
            Code::Access,
            format!("file {} is not written by this session, so it cannot settle it", inode.fid()),
        )),
    }
}

/// True if mtime becomes `told`, the time of a write. Among writes the latest counts, in whatever order they are reported. A time that a
/// user set is replaced by writes after that moment, whether it is earlier or later than theirs, and by none before.
fn is_newer_write(inode: &InodeRecord, told: Time) -> bool {
    match inode.mtime_set_at == Time::default() {
        true => told > inode.attr.mtime,
        // The client may report the time that was set, which is not the time of a write.
        false => told > inode.mtime_set_at && told != inode.attr.mtime,
    }
}

#[cfg(test)]
mod tests;
