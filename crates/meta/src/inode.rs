//! Loading and storing inode records, and the small changes that many operations make to them.

use types::*;

use crate::records::{InodeRecord, Parent};
use crate::{Ctx, Txn, View, keys};

/// Bits of `Attr::mode` beside the nine of read, write and execute.
pub const SETUID: u32 = 0o4000;
pub const SETGID: u32 = 0o2000;
pub const STICKY: u32 = 0o1000;
/// Execute by the group: with it setgid means what it says, without it once meant mandatory locks.
pub const GROUP_EXEC: u32 = 0o010;
/// All bits that `Attr::mode` may hold.
pub const MODE_BITS: u32 = 0o7777;

/// What `stat` says of every directory, as ext4 does of small ones. Entries have no size of their own here.
pub const DIR_SIZE: u64 = 4096;
pub const DIR_BLOCKS: u64 = DIR_SIZE / 512;

/// The inode of `fid`; `Stale` if there is none (any more), `Damaged` if its record does not decode.
pub fn load_inode(view: &dyn View, fid: Fid) -> Result<InodeRecord, Fault> {
    let value = view.get(&keys::inode(fid)).ok_or(Code::Stale)?;
    decode(&value, fid)
}

/// The inode that an entry names. The entry promised it (meta-I2), so its absence is damage.
pub fn load_named(view: &dyn View, fid: Fid, parent: Fid) -> Result<InodeRecord, Fault> {
    match view.get(&keys::inode(fid)) {
        Some(value) => decode(&value, fid),
        None => {
            let why = format!("directory {parent} names file {fid}, which has no inode; run stria fsck");
            Err(Fault::new(Code::Damaged, why))
        }
    }
}

/// The directory whose names a call asks for. One that was removed is `NotFound`, as on ext4, where it is still there and has no names.
/// `Stale` would be the kernel's to try again, and a name made and removed in a loop would be `ESTALE` to the program.
pub fn load_parent(view: &dyn View, fid: Fid) -> Result<InodeRecord, Fault> {
    load_inode(view, fid).map_err(|fault| match fault.code {
        Code::Stale => Code::NotFound.into(),
        _ => fault,
    })
}

/// A directory in which names are about to be looked for or changed. One that was removed but is still open has no names.
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

/// The names in a directory changed.
pub fn touch(dir: &mut InodeRecord, now: Time) {
    dir.attr.mtime = now;
    dir.attr.ctime = now;
}

/// Parent hints that an inode keeps at most. A hint has 17 bytes, and each change of an inode writes its whole record: with a hint
/// for each of 65,000 links that would be a megabyte. Links beyond it count and have no hint.
pub const HINTS_MAX: usize = 256;

/// An inode has one more link, at `at`.
pub fn add_hint(inode: &mut InodeRecord, at: Parent) {
    if inode.parents.len() < HINTS_MAX {
        inode.parents.push(at);
    }
}

/// The link at `from` of an inode lies at `to` now. One without a hint gets one if there is room.
pub fn move_link(inode: &mut InodeRecord, from: Parent, to: Parent) {
    match inode.parents.iter_mut().find(|p| **p == from) {
        Some(link) => *link = to,
        None => add_hint(inode, to),
    }
}

/// Refuses what would grow a full MDT.
pub fn need_room(ctx: &Ctx<'_>) -> Result<(), Fault> {
    match ctx.space.is_full {
        true => Err(Fault::new(Code::NoSpace, "the MDT is full; remove files or enlarge it")),
        false => Ok(()),
    }
}
