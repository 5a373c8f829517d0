//! Tmpfile: makes a regular file without a name, held open by its session. `Link` gives it its first name, unless it was made exclusive.

use types::*;
use wire::meta::{OpenReply, Tmpfile};

use crate::inode::{load_dir, load_inode, need_room, store_inode};
use crate::make::{Content, Seed, make_nameless};
use crate::open::open_reply;
use crate::records::{self, LINKABLE};
use crate::{Ctx, Txn, access, keys};

pub fn tmpfile(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: Tmpfile) -> Result<OpenReply, Fault> {
    let Tmpfile { parent, mode, umask, exclusive, now, cred, want } = req;
    // In a replay whose file survived, this is the request's own file.
    if ctx.replay && txn.get(&keys::orphan(want)).is_some() {
        let mut made = load_inode(txn, want)?;
        return open_reply(ctx, txn, &mut made, true);
    }
    let dir = load_dir(txn, parent)?;
    access::need_change(&dir, &cred)?;
    need_room(ctx)?;
    let seed = Seed {
        kind: Kind::File,
        mode,
        umask,
        rdev: 0,
        content: Content::None,
        cred: &cred,
        now,
        want,
        may_want: false,
    };
    let mut inode = make_nameless(ctx, txn, &dir, seed);
    inode.flags |= if exclusive { 0 } else { LINKABLE };
    txn.put(keys::orphan(inode.fid()), records::encode_orphan(ctx.session));
    store_inode(txn, &inode);
    open_reply(ctx, txn, &mut inode, true)
}

#[cfg(test)]
mod tests;
