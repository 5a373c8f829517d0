//! Formatting a medium: the sizes of the log and of the checkpoint slots.

use disk::Disk;
use disk::volume::{Format, Label, Volume};

use crate::records::error::StoreError;
use crate::state::engine::Engine;

/// How a medium is divided, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub log_bytes: u64,
    /// Of each of the two slots.
    pub checkpoint_bytes: u64,
}

/// The log is 1/64 of the medium, within bounds. 256 MiB hold two million small writes, which replay in seconds, and checkpoints
/// at half of it are minutes apart under full load. Below 1 MiB one checkpoint would follow the other immediately.
const LOG_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=LOG_BYTES_MAX;
pub const LOG_BYTES_MAX: u64 = 256 << 20;
/// A checkpoint slot is 1/96 of the medium. In both together, objects may take 32 bytes per 4 KiB page: enough for a medium full of 16 KiB
/// objects. Smaller files are inline in the MDT unless that is turned off; then the index may fill before the data region.
const SLOT_SHARE: u64 = 96;
const SLOT_BYTES_MIN: u64 = 3 << 20;

/// The division of a medium of `medium_bytes`.
pub fn geometry(medium_bytes: u64) -> Geometry {
    Geometry {
        log_bytes: (medium_bytes / 64).clamp(*LOG_BYTES.start(), *LOG_BYTES.end()),
        checkpoint_bytes: (medium_bytes / SLOT_SHARE).max(SLOT_BYTES_MIN),
    }
}

impl Engine {
    /// Makes an empty OST on a medium. Without `force` a medium that holds something is refused.
    pub fn format(disk: &dyn Disk, label: Label, force: bool) -> Result<(), StoreError> {
        Engine::format_as(disk, label, geometry(disk.size()), force)
    }

    /// As `format`, with a division of the caller's choice.
    pub fn format_as(
        disk: &dyn Disk,
        label: Label,
        division: Geometry,
        force: bool,
    ) -> Result<(), StoreError> {
        let Geometry { log_bytes, checkpoint_bytes } = division;
        Volume::format(disk, &Format { label, log_bytes, checkpoint_bytes }, force)?;
        Ok(())
    }
}
