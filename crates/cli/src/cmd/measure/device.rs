//! A device or file that a measurement may overwrite.

use std::path::Path;

use disk::content::{self, Content};
use disk::{Disk, FileDisk};

use crate::exit::Failure;

/// A device counts as blank if this many bytes at its begin are zero.
const HEAD_BYTES: usize = 1 << 20;

/// Opens a device that may be overwritten. Refuses one that is too small, or that has content unless forced, as `stria mkfs` does. Writes
/// nothing.
pub fn take(device: &Path, bytes_min: u64, better: &str, force: bool) -> anyhow::Result<FileDisk> {
    let refuse = |why: String, next: &str| Failure::unusable(device.display(), why, next);
    let disk =
        FileDisk::open(device).map_err(|e| refuse(e.to_string(), "give a block device or a regular file"))?;
    if disk.size() < bytes_min {
        let why = format!("{} bytes are too few", disk.size());
        let next = format!("give a device of at least {} MiB, {better}", bytes_min >> 20);
        return Err(refuse(why, &next).into());
    }
    if force {
        return Ok(disk);
    }
    let next = "look at the medium (`dmesg`)";
    match content::look(&disk).map_err(|e| Failure::failed(device.display(), e, next))? {
        Content::Blank => Ok(disk),
        found => {
            let next = "give another device, or --force if all of it may be lost";
            Err(refuse(format!("it holds: {found}"), next).into())
        }
    }
}

/// Opens the device and makes it blank. It is not discarded: a loop device would return its file's blocks, and every first write would have
/// to allocate new ones.
pub fn blank(device: &Path) -> anyhow::Result<FileDisk> {
    let disk = FileDisk::open(device)?;
    disk.write_at(&vec![0; HEAD_BYTES], 0)?;
    Ok(disk)
}
