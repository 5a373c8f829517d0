//! Formatting: makes a volume on a medium.

use types::{Incarnation, Seq, Uuid};

use super::media::{self, LogLabel, LogMedium};
use super::superblock::{self, LOG_BEGIN, Region, Regions, SUPERBLOCK_BYTES, Superblock};
use super::{FS_NAME_BYTES_MAX, Format, LOG_BYTES_MIN, Label, Layout, LogPoint, Volume, VolumeError};
use crate::{Disk, content};

/// Regions begin and end at whole pages, the data region at a whole MiB, so that its large blocks are aligned on the medium.
const PAGE_BYTES: u64 = 4096;
const DATA_ALIGN_BYTES: u64 = 1 << 20;
/// Formatting reserves at most this share of the medium of each checkpoint slot: more than the slot of an OST, and 128 MiB on an
/// MDT of 8 GiB, which a quarter of a million files fill. It always reserves `SLOT_BYTES_RESERVED_MIN`, which the smallest OSTs' slots
/// have.
const SLOT_SHARE: u64 = 64;
const SLOT_BYTES_RESERVED_MIN: u64 = 4 << 20;

/// Bytes that formatting reserves of each checkpoint slot, from its begin on.
pub fn slot_bytes_reserved(medium_bytes: u64) -> u64 {
    (medium_bytes / SLOT_SHARE).max(SLOT_BYTES_RESERVED_MIN).next_multiple_of(PAGE_BYTES)
}

/// A medium that becomes the log of a volume, and holds nothing else.
#[derive(Clone, Copy)]
pub struct NewLog<'a> {
    pub disk: &'a dyn Disk,
    /// The log's uuid: a new one at each formatting.
    pub uuid: Uuid,
}

impl Volume {
    /// How a medium of this size, and an own medium of the log if there is one, would be divided, or why it cannot be.
    pub fn plan(
        medium_bytes: u64,
        log_medium: Option<LogMedium>,
        format: &Format,
    ) -> Result<Layout, VolumeError> {
        check_label(&format.label)?;
        let layout = divide(medium_bytes, log_medium.map(|l| l.bytes), format)?.layout();
        Ok(Layout { log_medium: log_medium.map(|l| l.uuid), ..layout })
    }

    /// Makes a fresh, cleanly stopped volume. Without `force` a medium that holds anything in its first MiB is refused;
    /// with it, everything on the medium is lost. Flushed on return.
    pub fn format(disk: &dyn Disk, format: &Format, force: bool) -> Result<(), VolumeError> {
        Volume::format_on(disk, None, format, force)
    }

    /// As `format`, with the log on a medium of its own; `force` applies to both.
    pub fn format_on(
        disk: &dyn Disk,
        log: Option<NewLog<'_>>,
        format: &Format,
        force: bool,
    ) -> Result<(), VolumeError> {
        // 1. Refuse before anything is changed.
        let log_medium = log.map(|l| LogMedium { uuid: l.uuid, bytes: l.disk.size() });
        let regions = divide(disk.size(), log_medium.map(|l| l.bytes), format)?;
        check_label(&format.label)?;
        // Unreadable or foreign superblocks do not matter here: they will be overwritten.
        let old = superblock::read(disk).ok().and_then(|f| f.best);
        if old.as_ref().is_some_and(|o| o.incarnation.0 >= u32::MAX - 1 && o.label.uuid == format.label.uuid)
        {
            return Err(VolumeError::BadFormat(
                "the volume's starts are used up; format it under a new uuid".into(),
            ));
        }
        if !force && !is_blank(disk)? {
            let what = if old.is_some() { "it holds a Stria volume" } else { "its first MiB has other data" };
            return Err(VolumeError::NotBlank(what));
        }
        if !force
            && let Some(log) = log
            && !is_blank(log.disk)?
        {
            return Err(VolumeError::NotBlank("the first MiB of the log's device has data"));
        }
        // 2. Erase the old volume's superblocks, so that a crash from here on leaves no volume rather than half of one.
        let failed = |e| VolumeError::Failed(format!("formatting failed: {e}"));
        if force {
            // Also where the first MiB is zero: some formats keep their descriptors at the end.
            wipe(disk).map_err(failed)?;
            log.map_or(Ok(()), |l| wipe(l.disk)).map_err(failed)?;
        }
        // 3. Reserve the space that promises depend on, while a failure still costs nothing.
        reserve(disk, log.map(|l| l.disk), &regions)?;
        // 4. Write the log's label. It is not valid until a superblock names it.
        if let Some(NewLog { disk: medium, uuid }) = log {
            let Label { kind, fs_name, uuid: volume, .. } = format.label.clone();
            let label =
                LogLabel { uuid, volume, kind, fs_name, ring: regions.log, medium_bytes: medium.size() };
            for place in superblock::PLACES {
                medium.write_at(&label.encode(), place).map_err(failed)?;
            }
            medium.flush().map_err(failed)?;
        }
        // 5. Write the new superblocks. Under the same uuid, incarnation and the log's uuid tell old log entries apart.
        let of_old = old.map_or(0, |o| o.incarnation.0);
        // Under another uuid any number will do.
        let incarnation = Incarnation(if of_old >= u32::MAX - 1 { 1 } else { of_old + 1 });
        let mut sb = Superblock {
            compat: 0,
            ro_compat: 0,
            incompat: if log.is_some() { superblock::LOG_ELSEWHERE } else { 0 },
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
            log_medium,
            note: Vec::new(),
        };
        for generation in 1..=2 {
            sb.generation = generation;
            assert!(sb.reads_back(), "a superblock that is written can be read");
            disk.write_at(&sb.encode(), superblock::place_of(generation)).map_err(failed)?;
            disk.flush().map_err(failed)?;
        }
        Ok(())
    }
}

fn divide(medium_bytes: u64, log_medium_bytes: Option<u64>, format: &Format) -> Result<Regions, VolumeError> {
    let bad = |what: String| VolumeError::BadFormat(what);
    if format.log_bytes < LOG_BYTES_MIN {
        return Err(bad(format!(
            "a log of {} bytes is below the least of {LOG_BYTES_MIN}",
            format.log_bytes
        )));
    }
    let too_big = || bad(format!("log and checkpoints do not fit on {medium_bytes} bytes"));
    let mut at = LOG_BEGIN;
    let mut take = |bytes: u64, limit: u64| -> Result<Region, VolumeError> {
        let bytes = bytes.max(PAGE_BYTES).checked_next_multiple_of(PAGE_BYTES).ok_or_else(too_big)?;
        let region = Region { begin: at, bytes };
        at = at.checked_add(bytes).filter(|end| *end <= limit).ok_or_else(too_big)?;
        Ok(region)
    };
    let log = match log_medium_bytes {
        None => take(format.log_bytes, medium_bytes)?,
        Some(limit) => {
            let too_big =
                || bad(format!("a log of {} bytes does not fit on {limit} bytes", format.log_bytes));
            let bytes = format.log_bytes.checked_next_multiple_of(PAGE_BYTES).ok_or_else(too_big)?;
            let ring = Region { begin: LOG_BEGIN, bytes };
            Some(ring).filter(|r| media::is_ring(*r, limit)).ok_or_else(too_big)?
        }
    };
    let mut slot = || take(format.checkpoint_bytes, medium_bytes);
    let slots = [slot()?, slot()?];
    // A medium that ends before the next MiB has an empty data region, which is enough for an MDT.
    let end = medium_bytes / PAGE_BYTES * PAGE_BYTES;
    let begin = at.next_multiple_of(DATA_ALIGN_BYTES).min(end);
    Ok(Regions { log, slots, data: Region { begin, bytes: end - begin } })
}

/// Reserves superblocks and log wholly, so that an append never meets a full host below a sparse file. Of the checkpoint slots only a share
/// of the medium is reserved: OSTs have smaller slots, and those of an MDT are nearly its whole medium, which would not be sparse any more.
/// A checkpoint that needs more and meets a full host is abandoned, and the log goes on until it is full.
fn reserve(disk: &dyn Disk, log: Option<&dyn Disk>, regions: &Regions) -> Result<(), VolumeError> {
    let slot_bytes_max = slot_bytes_reserved(disk.size());
    let head = Region { begin: 0, bytes: LOG_BEGIN };
    let mut wanted: Vec<(&dyn Disk, Region)> = vec![(disk, head), (log.unwrap_or(disk), regions.log)];
    wanted.extend(log.map(|l| (l, head)));
    wanted
        .extend(regions.slots.map(|s| (disk, Region { begin: s.begin, bytes: s.bytes.min(slot_bytes_max) })));
    for (medium, region) in &wanted {
        if let Err(e) = medium.reserve(region.begin, region.bytes) {
            let wanted = wanted.iter().map(|(_, region)| region.len()).sum();
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

/// Erases the old volume; from the first flush on there is none. Zeroes head and tail, where all known formats keep their descriptors, so
/// that a program that probes the medium later finds only the new volume.
fn wipe(disk: &dyn Disk) -> std::io::Result<()> {
    let (size, head) = (disk.size(), content::HEAD_BYTES.min(disk.size()));
    for place in superblock::PLACES.into_iter().filter(|p| p + SUPERBLOCK_BYTES as u64 <= size) {
        disk.write_at(&[0; SUPERBLOCK_BYTES], place)?;
    }
    disk.flush()?;
    disk.discard(LOG_BEGIN.min(size), size.saturating_sub(LOG_BEGIN))?;
    disk.write_at(&vec![0; head as usize], 0)?;
    assert!(head <= size, "head and tail lie within the medium");
    let tail = content::TAIL_BYTES.min(size - head);
    disk.write_at(&vec![0; tail as usize], size - tail)
}
