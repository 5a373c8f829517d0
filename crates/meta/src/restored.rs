//! Changes to the records of an MDT that is restored from a backup.

use types::{Fid, Generation, Kind};
use wire::codec::Malformed;

use crate::records::InodeRecord;

/// Most layouts that a file may have been assigned since the backup. Their objects still exist, with bytes of that time, so the next
/// layout must name other objects.
pub const GENERATIONS_PASSED: u32 = 1 << 16;

/// The new record of an inode; `None` if it stays as it is.
pub fn inode(fid: Fid, value: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut record = InodeRecord::decode(fid, value)?;
    if record.attr.kind != Kind::File {
        return Ok(None);
    }
    record.generation = Generation(record.generation.0.saturating_add(GENERATIONS_PASSED));
    Ok(Some(record.encode()))
}
