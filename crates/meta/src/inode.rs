//! Loads and stores inode records, and makes the small changes that many operations share.

use types::*;

use crate::records::{InodeRecord, Parent};
use crate::{Ctx, Txn, View, keys};

/// Bits of `Attr::mode` above the nine of read, write and execute.
pub const SETUID: u32 = 0o4000;
pub const SETGID: u32 = 0o2000;
pub const STICKY: u32 = 0o1000;
/// Execute by the group. With it, setgid has its own meaning; without it, setgid once meant mandatory locks.
pub const GROUP_EXEC: u32 = 0o010;
/// All bits that `Attr::mode` may hold.
pub const MODE_BITS: u32 = 0o7777;

/// The size that `stat` shows for every directory, as ext4 does for small ones. Entries have no size of their own here.
pub const DIR_SIZE: u64 = 4096;
pub const DIR_BLOCKS: u64 = DIR_SIZE / 512;

/// The inode of `fid`. `Stale` if there is none (any more), `Damaged` if its record does not decode.
pub fn load_inode(view: &dyn View, fid: Fid) -> Result<InodeRecord, Fault> {
    let value = view.get(&keys::inode(fid)).ok_or(Code::Stale)?;
    decode(&value, fid)
}

/// The inode of an entry. An entry's inode exists (meta-I2), so its absence is damage.
pub fn load_named(view: &dyn View, fid: Fid, parent: Fid) -> Result<InodeRecord, Fault> {
    match view.get(&keys::inode(fid)) {
        Some(value) => decode(&value, fid),
        None => {
            let why = format!("directory {parent} names file {fid}, which has no inode; run stria fsck");
            Err(Fault::new(Code::Damaged, why))
        }
    }
}

/// The directory of a request for names. A removed one is `NotFound`, as on ext4, where it still exists but has no names. With `Stale`
/// the kernel would retry, and a loop that makes and removes a name could give a program `ESTALE`.
pub fn load_parent(view: &dyn View, fid: Fid) -> Result<InodeRecord, Fault> {
    load_inode(view, fid).map_err(|fault| match fault.code {
        Code::Stale => Code::NotFound.into(),
        _ => fault,
    })
}

/// A directory whose names are to be searched or changed. A removed directory that is still open has no names.
pub fn load_dir(view: &dyn View, fid: Fid) -> Result<InodeRecord, Fault> {
    let dir = load_parent(view, fid)?;
    match dir.is_dir() {
        false => Err(Code::NotDir.into()),
        true if dir.attr.nlink == 0 => Err(Code::NotFound.into()),
        true => Ok(dir),
    }
}

pub fn store_inode(txn: &mut dyn Txn, inode: &InodeRecord) {
    txn.put(keys::inode(inode.fid()), inode.encode());
}

fn decode(value: &[u8], fid: Fid) -> Result<InodeRecord, Fault> {
    InodeRecord::decode(fid, value)
        .map_err(|e| Fault::new(Code::Damaged, format!("inode record of file {fid}: {e}; run stria fsck")))
}

/// Updates a directory's times after a change of its names.
pub fn touch(dir: &mut InodeRecord, now: Time) {
    dir.attr.mtime = now;
    dir.attr.ctime = now;
}

/// Most parent hints of an inode. A hint has 17 bytes, and each change of an inode writes its whole record: hints for each of 65,000
/// links would be a megabyte. Links beyond it count but have no hint.
pub const HINTS_MAX: usize = 256;

/// Adds a hint for one more link, at `at`.
pub fn add_hint(inode: &mut InodeRecord, at: Parent) {
    if inode.parents.len() < HINTS_MAX {
        inode.parents.push(at);
    }
}

/// Moves a link of an inode from `from` to `to`. A link without a hint gets one if there is space.
pub fn move_link(inode: &mut InodeRecord, from: Parent, to: Parent) {
    match inode.parents.iter_mut().find(|p| **p == from) {
        Some(link) => *link = to,
        None => add_hint(inode, to),
    }
    assert!(
        inode.parents.contains(&to) || inode.parents.len() >= HINTS_MAX,
        "meta-I2: a moved link has a hint if there is space"
    );
}

/// Refuses an operation that would let a full MDT grow.
pub fn need_room(ctx: &Ctx<'_>) -> Result<(), Fault> {
    match ctx.space.is_full {
        true => Err(Fault::new(Code::NoSpace, "the MDT is full; remove files or enlarge it")),
        false => Ok(()),
    }
}
