//! Open by fid: returns attributes, layout and the capability for the objects. Opening a file with objects for writing marks it as being
//! written.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{FileState, Open, OpenRead, OpenReadReply, OpenReply};
use wire::object::{Capability, RIGHT_READ, RIGHT_WRITE};
use wire::shared::{Enter, EnterReply, LeaseKind};

use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
use crate::sharing::{self, For};
use crate::{Ctx, Txn, View, access, inline, note, truncate};

pub fn open(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Open) -> Result<OpenReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    if inode.is_dir() && (req.write || req.truncate) {
        return Err(Code::IsDir.into());
    }
    let Open { read, write, append, truncate, keep_write, .. } = req;
    need_open(&inode, &req.cred, Wanted { read, write, append, truncate })?;
    // Existing descriptors keep their rights, even if the file's permissions changed since (meta-J2).
    let held = req.held.as_ref();
    if keep_write && !may_recover(ctx, &inode) {
        ctx.need_proof(held, req.fid, RIGHT_WRITE)?;
    } else if !(read || write || keep_write) {
        ctx.need_proof(held, req.fid, RIGHT_READ)?;
    }
    if req.truncate && inode.attr.kind == Kind::File {
        truncate::empty(txn, &mut inode, req.now);
        store_inode(txn, &inode);
        note::changed(txn, ChangeOp::Truncate, req.fid, Some(&req.cred));
    }
    open_reply(ctx, txn, &mut inode, write || keep_write)
}

/// Opens without changing records. `None` where `open` would change records or assign a lease number: a dead session is fenced by a new
/// one, and sharing sessions need a common one.
pub fn open_read(
    ctx: &Ctx<'_>,
    view: &dyn View,
    req: OpenRead,
    out: &mut Buf,
) -> Result<OpenReadReply, Fault> {
    let inode = load_inode(view, req.fid)?;
    need_open(&inode, &req.cred, Wanted { read: req.read, write: false, append: false, truncate: false })?;
    if !req.read {
        ctx.need_proof(req.held.as_ref(), req.fid, RIGHT_READ)?;
    }
    if sharing::is_left_over(ctx, &inode) {
        return Ok(OpenReadReply { open: None, crcs: None });
    }
    let cap = match &inode.layout {
        Some(layout) => match sharing::lease_to_read(ctx) {
            Some(lease) => Some((ctx.make_cap)(inode.fid(), layout.generation, RIGHT_READ, lease)),
            None => return Ok(OpenReadReply { open: None, crcs: None }),
        },
        None => inline_proof(ctx, &inode, RIGHT_READ),
    };
    let comes_along = req.read && req.want > 0 && inode.attr.size <= u64::from(req.want);
    let crcs = match comes_along && inline::require_inline(&inode).is_ok() {
        true => Some(inline::content(view, &inode, 0, inode.attr.size as usize, out)?),
        false => None,
    };
    Ok(OpenReadReply { open: Some(OpenReply { inode: inode.shown(ctx, For::Using), cap }), crcs })
}

/// meta-J2: the proof for inline content. No OST ever gets it, so it needs no lease version.
fn inline_proof(ctx: &Ctx<'_>, inode: &InodeRecord, rights: u8) -> Option<Capability> {
    ctx.judge.as_ref().map(|_| (ctx.make_cap)(inode.fid(), inode.generation, rights, 0))
}

/// True if the session may recover the file: a dead session left it unsettled, and the caller may write it.
fn may_recover(ctx: &Ctx<'_>, inode: &InodeRecord) -> bool {
    let may_write = |j: &crate::Judge<'_>| j.is_anybody || access::allows(inode, &j.cred, access::WRITE);
    sharing::is_left_over(ctx, inode) && ctx.judge.as_ref().is_some_and(may_write)
}

/// The access modes of a new descriptor.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
}

/// Checks that `cred` may open the file with these modes. An append-only file may only be opened for appending.
pub fn need_open(inode: &InodeRecord, cred: &Cred, wanted: Wanted) -> Result<(), Fault> {
    let Wanted { read, write, append, truncate } = wanted;
    let write_bit = if write || truncate { access::WRITE } else { 0 };
    let read_bit = if read && !may_run(inode, cred) { access::READ } else { 0 };
    if read_bit | write_bit != 0 {
        access::need(inode, cred, read_bit | write_bit)?;
    }
    match truncate || (write && !append) {
        true => access::need_unprotected(inode),
        false => Ok(()),
    }
}

/// Running a file means opening it for reading. The request does not distinguish the two; the caller's kernel did.
fn may_run(inode: &InodeRecord, cred: &Cred) -> bool {
    inode.attr.kind == Kind::File && access::allows(inode, cred, access::EXEC)
}

/// The answer to an open or create of `inode`. With `write`, a settled file with objects becomes `Writing(session)`. A file that another
/// session left unsettled keeps its state, which tells the client to recover it first.
pub fn open_reply(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    inode: &mut InodeRecord,
    write: bool,
) -> Result<OpenReply, Fault> {
    let is_left_over = sharing::is_left_over(ctx, inode);
    if write && inode.layout.is_some() && !is_left_over {
        let state = sharing::writing(ctx, inode);
        // A session that continues to write changes nothing.
        if state != inode.state {
            inode.state = state;
            store_inode(txn, inode);
        }
    }
    assert!(
        !write || inode.layout.is_none() || inode.state != FileState::Settled,
        "a file with objects that is open for writing is not settled"
    );
    let rights = if write { RIGHT_READ | RIGHT_WRITE } else { RIGHT_READ };
    let cap = match &inode.layout {
        Some(layout) => Some(capability(ctx, txn, inode.fid(), layout.generation, rights, is_left_over)),
        None => inline_proof(ctx, inode, rights),
    };
    Ok(OpenReply { inode: inode.shown(ctx, For::Using), cap })
}

/// The call `Enter`, after the lease was granted; `kind` is the granted one: an open of the content as it is now. A user without the right to read the file gets
/// its attributes and no capability: `stat` needs a shared lease of a file that another session writes.
pub fn enter(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Enter) -> Result<EnterReply, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    let right = if req.write { RIGHT_WRITE } else { RIGHT_READ };
    let open = match ctx.need_proof(req.held.as_ref(), req.fid, right) {
        Err(fault) if fault.code == Code::Access && !req.write && req.kind == LeaseKind::Shared => {
            OpenReply { inode: inode.shown(ctx, For::Using), cap: None }
        }
        proof => {
            proof?;
            open_reply(ctx, txn, &mut inode, req.write)?
        }
    };
    Ok(EnterReply { granted: Some(req.kind), open: Some(open) })
}

/// A capability with a new lease version, or with the common one of the sharing sessions. With `fence` the version is new, which fences a
/// dead session.
pub fn capability(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    fid: Fid,
    generation: Generation,
    rights: u8,
    fence: bool,
) -> Capability {
    let lease = sharing::lease(ctx, txn, fence);
    (ctx.make_cap)(fid, generation, rights, lease)
}

#[cfg(test)]
mod tests;
