//! ReadDir: reads a page of entries in cookie order. A cookie is the entry's place in key order, so it stays valid over restarts and over
//! changes of other entries.

use types::*;
use wire::codec::Bytes;
use wire::meta::{DirEntry, Inode, ReadDir, ReadDirReply};

use crate::access::{self, EXEC, READ};
use crate::inode::load_parent;
use crate::records::{EntryRecord, InodeRecord, Parent};
use crate::sharing::For;
use crate::{Ctx, View, keys, names};

/// Most entries of a page, and the bytes of records after which it ends, so that it fits one reply.
pub const ENTRIES_MAX: usize = 4096;
pub const BYTES_MAX: usize = 1 << 20;
/// Bytes of an entry on the wire, without its name.
const ENTRY_BYTES: usize = 4 + 8 + 1 + 8 + 1;
/// Bytes of an inode on the wire without its layout, and of a component without its lists; about.
const INODE_BYTES: usize = 128;
const COMPONENT_BYTES: usize = 20;

pub fn readdir(ctx: &Ctx<'_>, view: &dyn View, req: ReadDir) -> Result<ReadDirReply, Fault> {
    let dir = load_parent(view, req.dir)?;
    if !dir.is_dir() {
        return Err(Code::NotDir.into());
    }
    access::need(&dir, &req.cred, READ)?;
    // Attributes are only for callers that may look the names up.
    let plus = req.plus && access::allows(&dir, &req.cred, EXEC);
    let max = (req.max as usize).clamp(1, ENTRIES_MAX);
    let (mut entries, mut bytes, mut more, mut fault) = (Vec::new(), 0, false, None);
    view.range(&keys::entry_after(req.dir, req.cookie), &keys::entries_end(req.dir), &mut |key, value| {
        if entries.len() >= max || bytes >= BYTES_MAX {
            more = true;
            return false;
        }
        match entry_of(ctx, view, key, value, plus) {
            Ok((entry, size)) => {
                bytes += size;
                entries.push(entry);
            }
            Err(f) => fault = Some(f),
        }
        fault.is_none()
    });
    assert!(entries.len() <= max, "a page has no more entries than requested");
    assert!(!more || !entries.is_empty(), "a listing goes on");
    match fault {
        Some(fault) => Err(fault),
        None => {
            let up = dir.parents.first().filter(|_| req.dir != ctx.top());
            Ok(ReadDirReply { parent: up.map_or(req.dir, |p| p.fid), entries, more })
        }
    }
}

/// An entry for the listing, and its size in bytes.
fn entry_of(
    ctx: &Ctx<'_>,
    view: &dyn View,
    key: &Key,
    value: &[u8],
    plus: bool,
) -> Result<(DirEntry, usize), Fault> {
    let (fid, h64, collision) = keys::parse_entry(key).unwrap_or_default();
    let entry = EntryRecord::decode(value).map_err(|e| names::broken(Parent { fid, h64, collision }, e))?;
    let mut size = ENTRY_BYTES + entry.name.len();
    // An entry without a readable inode is listed too, so that an administrator can see its name.
    let record = plus.then(|| view.get(&keys::inode(entry.fid))).flatten();
    let inode =
        record.and_then(|r| InodeRecord::decode(entry.fid, &r).ok()).map(|i| i.shown(ctx, For::Looking));
    size += inode.as_ref().map_or(0, wire_bytes);
    let cookie = types::hash::cookie(h64, collision);
    Ok((DirEntry { name: Bytes(entry.name), fid: entry.fid, kind: entry.kind, cookie, inode }, size))
}

/// Bytes of an inode in the reply, about: its record is much shorter.
fn wire_bytes(inode: &Inode) -> usize {
    let components = inode.layout.iter().flat_map(|l| &l.components);
    let bytes = components.map(|c| COMPONENT_BYTES + 4 * c.mirrors.len() + 8 * c.written.len());
    INODE_BYTES + bytes.sum::<usize>()
}

#[cfg(test)]
mod tests;
