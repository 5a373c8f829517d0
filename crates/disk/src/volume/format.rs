//! Making a volume on a medium.

use types::{Incarnation, Seq};

use super::superblock::{self, LOG_BEGIN, Region, Regions, SUPERBLOCK_BYTES, Superblock};
use super::{FS_NAME_BYTES_MAX, Format, LOG_BYTES_MIN, Label, Layout, LogPoint, Volume, VolumeError};
use crate::{Disk, content};

/// Regions begin and end at whole pages, the data region at whole MiB so that its large blocks are aligned on the medium.
const PAGE_BYTES: u64 = 4096;
const DATA_ALIGN_BYTES: u64 = 1 << 20;
/// Of each checkpoint slot at most this share of the medium is reserved when it is formatted: twice the slot of an OST, and
/// 128 MiB of an MDT of 8 GiB, which a quarter of a million files fill.
const SLOT_SHARE: u64 = 64;

impl Volume {
    /// How a medium of this size would be divided, or why it cannot be.
    pub fn plan(medium_bytes: u64, format: &Format) -> Result<Layout, VolumeError> {
        check_label(&format.label)?;
        Ok(divide(medium_bytes, format)?.layout())
    }

    /// Makes a fresh, cleanly stopped volume. Without `force` a medium that holds anything in its first MiB is refused;
    /// with it, everything on the medium is given up. Flushed on return.
    pub fn format(disk: &dyn Disk, format: &Format, force: bool) -> Result<(), VolumeError> {
        // 1. Refuse before anything is touched.
        let regions = divide(disk.size(), format)?;
        check_label(&format.label)?;
        let blank = is_blank(disk)?;
        // Unreadable or foreign superblocks do not matter here: they are to be overwritten.
        let old = superblock::read(disk).ok().and_then(|f| f.best);
        if !blank && !force {
            let what = if old.is_some() { "it holds a Stria volume" } else { "its first MiB has other data" };
            return Err(VolumeError::NotBlank(what));
        }
        // 2. Take the old volume's superblocks away, so that a crash from here on leaves no volume rather than half of one.
        let failed = |e| VolumeError::Failed(format!("formatting failed: {e}"));
        // By force also where the first MiB is zero: some keep their descriptors at the end.
        if force {
            for place in superblock::PLACES {
                disk.write_at(&[0; SUPERBLOCK_BYTES], place).map_err(failed)?;
            }
            disk.flush().map_err(failed)?;
            disk.discard(LOG_BEGIN, disk.size() - LOG_BEGIN).map_err(failed)?;
            wipe_ends(disk).map_err(failed)?;
        }
        // 3. The space that no promise can be kept without, while failing is still free.
        reserve(disk, &regions)?;
        // 4. The new ones. Under the same uuid, old log entries are told apart by the incarnation.
        let incarnation = Incarnation(old.map_or(1, |o| o.incarnation.0.saturating_add(1)));
        let mut sb = Superblock {
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            generation: 0,
            label: format.label.clone(),
            clean: true,
            incarnation,
            cut_pos: 0,
            cut_incarnation: incarnation,
            regions,
            log_start: LogPoint { seq: Seq(0), pos: 0 },
            flushed_seq: Seq(0),
            prepared: 0,
            checkpoint: None,
            medium_bytes: disk.size(),
        };
        for generation in 1..=2 {
            sb.generation = generation;
            disk.write_at(&sb.encode(), superblock::place_of(generation)).map_err(failed)?;
            disk.flush().map_err(failed)?;
        }
        Ok(())
    }
}

fn divide(medium_bytes: u64, format: &Format) -> Result<Regions, VolumeError> {
    let bad = |what: String| VolumeError::BadFormat(what);
    if format.log_bytes < LOG_BYTES_MIN {
        return Err(bad(format!(
            "a log of {} bytes is below the least of {LOG_BYTES_MIN}",
            format.log_bytes
        )));
    }
    let too_big = || bad(format!("log and checkpoints do not fit on {medium_bytes} bytes"));
    let mut at = LOG_BEGIN;
    let mut take = |bytes: u64| -> Result<Region, VolumeError> {
        let bytes = bytes.max(PAGE_BYTES).checked_next_multiple_of(PAGE_BYTES).ok_or_else(too_big)?;
        let region = Region { begin: at, bytes };
        at = at.checked_add(bytes).filter(|end| *end <= medium_bytes).ok_or_else(too_big)?;
        Ok(region)
    };
    let log = take(format.log_bytes)?;
    let slots = [take(format.checkpoint_bytes)?, take(format.checkpoint_bytes)?];
    // A medium that ends before the next MiB has an empty data region: enough for an MDT.
    let end = medium_bytes / PAGE_BYTES * PAGE_BYTES;
    let begin = at.next_multiple_of(DATA_ALIGN_BYTES).min(end);
    Ok(Regions { log, slots, data: Region { begin, bytes: end - begin } })
}

/// Superblocks and log wholly, so that an append never meets a full host below a sparse file; of the checkpoint slots a share
/// of the medium: OSTs have smaller ones, and those of an MDT are nearly all of its medium, which would not be sparse any more.
/// A checkpoint that outgrows that and meets a full host is given up, and the log goes on until it is full.
fn reserve(disk: &dyn Disk, regions: &Regions) -> Result<(), VolumeError> {
    let slot_bytes_max = (disk.size() / SLOT_SHARE).next_multiple_of(PAGE_BYTES);
    let mut wanted = vec![Region { begin: 0, bytes: regions.log.begin + regions.log.bytes }];
    wanted.extend(regions.slots.map(|s| Region { begin: s.begin, bytes: s.bytes.min(slot_bytes_max) }));
    for region in &wanted {
        if let Err(e) = disk.reserve(region.begin, region.bytes) {
            let wanted = wanted.iter().map(Region::len).sum();
            return Err(match crate::is_full(&e) {
                true => VolumeError::NoRoom { wanted, source: e },
                false => VolumeError::Failed(format!("formatting failed: {e}")),
            });
        }
    }
    Ok(())
}

pub(super) fn check_label(label: &Label) -> Result<(), VolumeError> {
    if !(1..=FS_NAME_BYTES_MAX).contains(&label.fs_name.len()) {
        let what =
            format!("the file system's name must have 1 to {FS_NAME_BYTES_MAX} bytes: {:?}", label.fs_name);
        return Err(VolumeError::BadFormat(what));
    }
    Ok(())
}

fn is_blank(disk: &dyn Disk) -> Result<bool, VolumeError> {
    let what = "cannot read the medium's head";
    content::is_zero(disk).map_err(|source| VolumeError::Read { what, source })
}

/// Head and tail, where all that is known keeps its descriptors: who probes the medium later must find this volume alone.
fn wipe_ends(disk: &dyn Disk) -> std::io::Result<()> {
    let (size, head) = (disk.size(), content::HEAD_BYTES.min(disk.size()));
    disk.write_at(&vec![0; head as usize], 0)?;
    let tail = content::TAIL_BYTES.min(size - head);
    disk.write_at(&vec![0; tail as usize], size - tail)
}
