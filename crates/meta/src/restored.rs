//! What a record becomes in an MDT that is restored from a backup.

use types::{Fid, Generation, Kind};
use wire::codec::Malformed;

use crate::records::InodeRecord;

/// So many layouts a file may have been given since the backup: their objects are there yet, with bytes of that life, and the next layout
/// must name others.
pub const GENERATIONS_PASSED: u32 = 1 << 16;

/// An inode's record; `None`: it stays as it is.
pub fn inode(fid: Fid, value: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut record = InodeRecord::decode(fid, value)?;
    if record.attr.kind != Kind::File {
        return Ok(None);
    }
    record.generation = Generation(record.generation.0.saturating_add(GENERATIONS_PASSED));
    Ok(Some(record.encode()))
}
