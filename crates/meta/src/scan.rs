//! Scan: reads every record of the name space in key order, a page at a time, for fsck.

use types::*;
use wire::codec::Bytes;
use wire::meta::{Scan, ScanRecord, ScanReply};

use crate::records::{self, EntryRecord, InodeRecord};
use crate::{Ctx, View, inline, keys};

/// Most records of a page, and about the most bytes.
const RECORDS_MAX: usize = 4096;
const BYTES_MAX: usize = 1 << 20;
/// Size of a record on the wire, where numbers have fixed length, about: this much, plus this factor for each of its bytes.
const INODE_BYTES: usize = 128;
const WIRE_BYTES_PER_BYTE: usize = 4;

pub fn scan(_: &Ctx<'_>, view: &dyn View, req: Scan) -> Result<ScanReply, Fault> {
    let Some(after) = Key::new(&req.after.0) else { return Err(Code::BadRequest.into()) };
    let max = (req.max as usize).clamp(1, RECORDS_MAX);
    let (mut records, mut last, mut bytes, mut more) = (Vec::new(), after, 0, false);
    let mut broken = None;
    let begin = if req.after.0.is_empty() { keys::kind_start(keys::ENTRY) } else { after };
    view.range(&begin, &keys::kind_start(keys::SESSION), &mut |key, value| {
        if *key == after {
            return true;
        }
        if records.len() >= max || bytes >= BYTES_MAX {
            more = true;
            return false;
        }
        bytes += INODE_BYTES + WIRE_BYTES_PER_BYTE * value.len();
        last = *key;
        match decode(view, key, value) {
            Ok(record) => records.extend(record),
            Err(e) => broken = Some(Fault::new(Code::Damaged, format!("record {key:?}: {e}"))),
        }
        broken.is_none()
    });
    assert!(records.len() <= max, "a page has no more records than requested");
    assert!(last >= after, "a scan never goes back");
    match broken {
        Some(fault) => Err(fault),
        None => Ok(ScanReply { records, last: Bytes(last.as_bytes().to_vec()), more }),
    }
}

fn decode(view: &dyn View, key: &Key, value: &[u8]) -> Result<Option<ScanRecord>, wire::Malformed> {
    let fid = keys::parse_fid(key).unwrap_or_default();
    Ok(match key.as_bytes().first() {
        Some(&keys::ENTRY) => {
            let e = EntryRecord::decode(value)?;
            Some(ScanRecord::Entry { parent: fid, name: Bytes(e.name), fid: e.fid, kind: e.kind })
        }
        Some(&keys::INODE) => {
            let i = InodeRecord::decode(fid, value)?;
            Some(ScanRecord::Inode {
                inode: i.to_wire(),
                inline_bytes: if i.is_inline() { inline::stored_bytes(view, fid) } else { 0 },
                parents: i.parents.iter().map(|p| p.fid).collect(),
                pending: i.pending,
            })
        }
        Some(&keys::ORPHAN) => Some(ScanRecord::Orphan { fid, session: records::decode_orphan(value)? }),
        Some(&keys::DEAD) => Some(ScanRecord::Dead { fid, layout: records::decode_dead(value)? }),
        _ => None,
    })
}
