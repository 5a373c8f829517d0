//! Version 1 of inodes and entries: fields of fixed length. It is read but never written.

use types::*;
use wire::codec::{Bytes, Malformed, Reader, Wire};
use wire::meta::FLAGS_KEPT;

use super::{EntryRecord, InodeRecord, LINKABLE, Parent};
use crate::inode::MODE_BITS;

/// An inode, after its version byte.
pub fn inode(fid: Fid, mut r: Reader<'_>) -> Result<InodeRecord, Malformed> {
    let r = &mut r;
    let attr: Attr = Wire::get(r)?;
    if attr.fid != fid {
        return Err(Malformed("it is of another file"));
    }
    let (state, generation) = (Wire::get(r)?, Wire::get(r)?);
    let count = u32::get(r)? as usize;
    if count > r.remaining() / 17 {
        return Err(Malformed("parents"));
    }
    let mut parents = Vec::with_capacity(count);
    for _ in 0..count {
        parents.push(Parent { fid: Wire::get(r)?, h64: Wire::get(r)?, collision: Wire::get(r)? });
    }
    let record = InodeRecord {
        attr,
        state,
        generation,
        parents,
        layout: Wire::get(r)?,
        pending: Wire::get(r)?,
        spec: Wire::get(r)?,
        target: Bytes::get(r)?.0,
        mtime_set_at: Wire::get(r)?,
        flags: Wire::get(r)?,
        access_acl: Wire::get(r)?,
        default_acl: Wire::get(r)?,
    };
    r.end()?;
    // No program ever wrote values that version 2 cannot hold.
    let is_odd = record.attr.mode & !MODE_BITS != 0 || record.parents.iter().any(|p| p.h64 as u8 != 0);
    match record.flags & !(FLAGS_KEPT | LINKABLE) {
        0 if !is_odd => Ok(record),
        0 => Err(Malformed("mode, or hash of a name")),
        _ => Err(Malformed("flags that are not known")),
    }
}

/// An entry, after its version byte.
pub fn entry(mut r: Reader<'_>) -> Result<EntryRecord, Malformed> {
    let (fid, kind) = (Wire::get(&mut r)?, Wire::get(&mut r)?);
    Ok(EntryRecord { fid, kind, name: r.take(r.remaining())?.to_vec() })
}
