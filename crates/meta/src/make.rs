//! Makes an inode with its first name: the common part of Create, MakeDir and Symlink.

use types::*;
use wire::changelog::ChangeOp;
use wire::meta::{FLAG_NOATIME, FLAG_NODUMP};

use crate::acl::Acl;
use crate::inode::{
    DIR_BLOCKS, DIR_SIZE, GROUP_EXEC, MODE_BITS, SETGID, STICKY, load_inode, need_room, store_inode, touch,
};
use crate::names::{self, Slot};
use crate::records::{InodeRecord, Parent};
use crate::{Ctx, Txn, access, inline, keys, note, stripe, totals};

/// The `chattr` flags that new files take from their directory, as on ext4.
const FLAGS_INHERITED: u32 = FLAG_NODUMP | FLAG_NOATIME;

/// The properties of a new inode.
pub struct Seed<'a> {
    pub kind: Kind,
    pub mode: u32,
    /// Ignored if the directory has a default ACL.
    pub umask: u32,
    pub rdev: u32,
    pub content: Content<'a>,
    pub cred: &'a Cred,
    pub now: Time,
    /// In a replay: the fid of the first answer. Else 0, or a fid that `LeaseDir` gave.
    pub want: Fid,
    /// A fid of `LeaseDir` may be wanted.
    pub may_want: bool,
}

/// The content of a new inode.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    None,
    /// The target of a symlink.
    Target(&'a [u8]),
    /// The bytes of a regular file, and the time at which they were written.
    Bytes(&'a [u8], Time),
}

/// The new inode, or the inode that has the name already.
#[expect(clippy::large_enum_variant, reason = "taken apart at once where it is returned; never kept")]
pub enum Made {
    New(InodeRecord),
    /// The name exists. In a replay this very request may have made it.
    Taken {
        fid: Fid,
        is_ours: bool,
    },
}

/// Makes an inode and its entry in `parent`, unless the name exists.
pub fn make(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    parent: Fid,
    name: &[u8],
    seed: Seed<'_>,
) -> Result<Made, Fault> {
    // 1. Check the name. As in Linux, an existing name is reported before a missing right to write.
    names::validate(name)?;
    let mut dir = crate::inode::load_dir(txn, parent)?;
    access::need_search(&dir, seed.cred)?;
    let at = match names::find_slot(txn, parent, name)? {
        Slot::Free(at) => at,
        Slot::Taken(found) => {
            let fid = found.entry.fid;
            // [S-claims] The replay flag is the client's claim. A judged session can only have made files of its own user.
            let may_be = |inode: InodeRecord| ctx.judge.is_none() || inode.attr.uid == seed.cred.uid;
            // A client that got no answer asks for the same fid again.
            let may_ask_again = ctx.replay || (seed.may_want && ctx.judge.is_none());
            let is_ours = may_ask_again && fid == seed.want && load_inode(txn, fid).is_ok_and(may_be);
            return Ok(Made::Taken { fid, is_ours });
        }
    };
    // 2. Check rights and free space.
    access::need_change(&dir, seed.cred)?;
    need_room(ctx)?;
    // 3. Make the inode and its entry; update the parent and the totals.
    let (cred, content) = (seed.cred, seed.content);
    let inode = make_at(ctx, txn, &dir, (at, name), seed)?;
    if inode.is_dir() {
        dir.attr.nlink = dir.attr.nlink.saturating_add(1);
    }
    touch(&mut dir, inode.attr.btime);
    store_inode(txn, &dir);
    note::named(txn, op_of(inode.attr.kind), inode.fid(), (parent, name), cred);
    if let Content::Bytes(..) = content {
        note::changed(txn, ChangeOp::Write, inode.fid(), None);
    }
    Ok(Made::New(inode))
}

/// Makes the inode and its entry at a place of `dir` that is free, or that this transaction frees.
pub fn make_at(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    dir: &InodeRecord,
    (at, name): (Parent, &[u8]),
    seed: Seed<'_>,
) -> Result<InodeRecord, Fault> {
    let content = seed.content;
    // meta-I5: the client took the content under the limit that it got with the lease of the directory.
    let was_taken = ctx.replay || (seed.may_want && seed.want != Fid(0) && ctx.judge.is_none());
    let mut inode = inode_from(fid_for(ctx, txn, &seed), dir, seed);
    inode.parents.push(at);
    assert!(inode.attr.nlink == if inode.is_dir() { 2 } else { 1 }, "meta-I4: a new inode has one name");
    assert!(inode.fid() != dir.fid(), "a new inode is not its own directory");
    debug_assert!(txn.get(&keys::inode(inode.fid())).is_none(), "mds-O5: a new inode has a new fid");
    if let Content::Bytes(bytes, written) = content {
        inline::fill(ctx, txn, &mut inode, (bytes, written), was_taken)?;
    }
    store_inode(txn, &inode);
    names::put_entry(txn, at, inode.fid(), inode.attr.kind, name);
    totals::inode_made(txn);
    Ok(inode)
}

fn op_of(kind: Kind) -> ChangeOp {
    match kind {
        Kind::File => ChangeOp::Create,
        Kind::Dir => ChangeOp::MakeDir,
        Kind::Symlink => ChangeOp::Symlink,
        _ => ChangeOp::MakeNode,
    }
}

/// The fid that the client knows already, if it is free; otherwise a new one. A client knows it in a replay, or if `LeaseDir` gave it; a judged
/// session is given none.
fn fid_for(ctx: &Ctx<'_>, txn: &mut dyn Txn, &Seed { want, may_want, .. }: &Seed<'_>) -> Fid {
    let may_want = ctx.replay || (may_want && ctx.judge.is_none());
    let wanted = may_want && want.counter() >= Fid::FIRST && want.allocating_shard() == ctx.shard;
    let is_free = wanted && txn.get(&keys::inode(want)).is_none();
    match is_free {
        true => want,
        false => txn.next_fid(),
    }
}

/// Makes an inode without a name: an orphan. `dir` gives the inherited properties.
pub fn make_nameless(ctx: &Ctx<'_>, txn: &mut dyn Txn, dir: &InodeRecord, seed: Seed<'_>) -> InodeRecord {
    let mut inode = inode_from(fid_for(ctx, txn, &seed), dir, seed);
    inode.attr.nlink = 0;
    assert!(inode.parents.is_empty(), "meta-I4: an inode without a name has no hint");
    totals::inode_made(txn);
    inode
}

fn inode_from(fid: Fid, dir: &InodeRecord, seed: Seed<'_>) -> InodeRecord {
    let Seed { kind, mode, umask, rdev, content, cred, now, .. } = seed;
    let is_dir = kind == Kind::Dir;
    let (mode, gid) = inherited(kind, mode, &dir.attr, cred);
    assert!(mode & !MODE_BITS == 0, "a new inode has the bits of a mode only");
    let (access_acl, mode) = match kind {
        Kind::Symlink => (Acl::default(), mode),
        _ if dir.default_acl.is_empty() => (Acl::default(), mode & !(umask & 0o777)),
        _ => dir.default_acl.inherited(mode),
    };
    let target = if let Content::Target(path) = content { path } else { &[] };
    let size = if is_dir { DIR_SIZE } else { target.len() as u64 };
    let mut inode = InodeRecord::new(Attr {
        fid,
        kind,
        mode,
        uid: cred.uid,
        gid,
        nlink: if is_dir { 2 } else { 1 },
        rdev: if matches!(kind, Kind::Char | Kind::Block) { rdev } else { 0 },
        size,
        blocks: if is_dir { DIR_BLOCKS } else { 0 },
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    });
    inode.target = target.to_vec();
    inode.access_acl = access_acl;
    inode.flags = dir.flags & FLAGS_INHERITED;
    if is_dir {
        inode.default_acl = dir.default_acl.clone();
    }
    if matches!(kind, Kind::File | Kind::Dir) {
        inode.spec = stripe::inherit_spec(dir);
    }
    inode
}

/// Mode and group: a setgid directory passes its group to new files, and the bit as well to directories.
fn inherited(kind: Kind, mode: u32, dir: &Attr, cred: &Cred) -> (u32, u32) {
    let from_dir = dir.mode & SETGID != 0;
    let gid = if from_dir { dir.gid } else { cred.gid };
    let mode = match kind {
        // As Linux's mkdir: setuid and setgid are ignored, and only inherited.
        Kind::Dir => mode & (0o777 | STICKY) | if from_dir { SETGID } else { 0 },
        // A caller outside the group must not make a program that runs as the group.
        _ if from_dir && mode & GROUP_EXEC != 0 && !access::keeps_setgid(cred, gid) => {
            mode & MODE_BITS & !SETGID
        }
        _ => mode & MODE_BITS,
    };
    (mode, gid)
}
