//! The superblock: 4 KiB at 0 and again at 64 KiB. Format: docs/formats/volume.md.
//!
//! A copy is valid if its magic and CRC are; of two valid copies the one with the higher generation counts. If its content is not
//! understood, the volume is refused: the older copy describes a state that is no longer true.

use std::ops::Range;

use types::{Epoch, Incarnation, MirrorId, Seq, TargetId, Uuid};

use super::bytes::*;
use super::media::{LogMedium, is_ring};
use super::{Kind, Label, Layout, LogPoint, VolumeError};
use crate::Disk;

pub const SUPERBLOCK_BYTES: usize = 4096;
pub const PLACES: [u64; 2] = [0, 64 * 1024];
pub const FS_NAME_BYTES: usize = 64;
/// Where the log ring begins: behind both copies.
pub const LOG_BEGIN: u64 = 128 * 1024;

const MAGIC: [u8; 8] = *b"STRIAVOL";
const VERSION: u32 = 1;
/// Features of this release. An unknown bit: compat is ignored, ro_compat forbids writing, incompat forbids opening.
const RO_COMPAT: u64 = 0;
const INCOMPAT: u64 = LOG_ELSEWHERE | ENTRIES_OF_OPS | MARKS_WITHOUT_SEQ | NOTE;
/// The log ring is on a medium of its own.
pub const LOG_ELSEWHERE: u64 = 1;
/// Log entries may hold several operations. An MDT's volume gets this feature at the first start by a release that knows it.
pub const ENTRIES_OF_OPS: u64 = 2;
/// Log entries may be marks without a seq. A volume gets this feature at the first start by a release that knows it.
pub const MARKS_WITHOUT_SEQ: u64 = 4;
/// The volume has a note of its owner. A release without notes must not open it: the member of a mirror would forget what it promised.
pub const NOTE: u64 = 8;
/// First byte behind the fields, without a note; from here to the CRC all bytes are zero.
const FIELDS_END: usize = 352;
/// Length of the note, two reserved bytes, and the note.
const NOTE_AT: usize = 356;
/// Longest note in bytes.
pub const NOTE_BYTES_MAX: usize = 2048;

/// A range of the medium, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Region {
    pub begin: u64,
    pub bytes: u64,
}

impl Region {
    pub fn len(&self) -> u64 {
        self.bytes
    }
    pub fn range(&self) -> Range<u64> {
        self.begin..self.begin + self.bytes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    pub log: Region,
    pub slots: [Region; 2],
    pub data: Region,
}

/// The valid checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRef {
    pub slot: u8,
    /// Bytes in the slot, chunk headers included.
    pub stream_bytes: u64,
    /// Bytes that the owner wrote.
    pub payload_bytes: u64,
    /// The last entry whose changes it has.
    pub seq: Seq,
    /// Over all chunk headers; see `checkpoint`.
    pub crc: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub compat: u64,
    pub ro_compat: u64,
    pub incompat: u64,
    pub generation: u64,
    pub label: Label,
    pub clean: bool,
    pub incarnation: Incarnation,
    /// disk-V2: entries at or behind `cut_pos` are valid only from `cut_incarnation` on.
    pub cut_pos: u64,
    pub cut_incarnation: Incarnation,
    pub regions: Regions,
    /// Entries after this point are replayed.
    pub log_start: LogPoint,
    pub flushed_seq: Seq,
    pub prepared: u64,
    pub checkpoint: Option<CheckpointRef>,
    pub medium_bytes: u64,
    /// Only with `LOG_ELSEWHERE`; then the ring of `regions` is on this medium.
    pub log_medium: Option<LogMedium>,
    /// Bytes that the owner keeps here. Not empty with `NOTE`, and empty without.
    pub note: Vec<u8>,
}

/// The place of the superblock with this generation.
pub fn place_of(generation: u64) -> u64 {
    PLACES[(generation % 2) as usize]
}

pub struct Found {
    pub best: Option<Superblock>,
    pub copies_good: u8,
}

/// Reads both copies. `best` is `None` if neither is valid.
pub fn read(disk: &dyn Disk) -> Result<Found, VolumeError> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut trouble = None;
    for place in PLACES {
        if place + SUPERBLOCK_BYTES as u64 > disk.size() {
            continue;
        }
        let mut block = vec![0; SUPERBLOCK_BYTES];
        match disk.read_at(&mut block, place) {
            Ok(()) if counts(&block) => found.push(block),
            Ok(()) => {}
            // The other copy may still be readable.
            Err(e) => trouble = Some(e),
        }
    }
    let copies_good = found.len() as u8;
    match found.into_iter().max_by_key(|b| generation_of(b)) {
        Some(block) => Ok(Found { best: Some(decode(&block)?), copies_good }),
        None => match trouble {
            Some(source) => Err(VolumeError::Read { what: "cannot read the superblock", source }),
            None => Ok(Found { best: None, copies_good }),
        },
    }
}

pub fn counts(block: &[u8]) -> bool {
    block[..8] == MAGIC && is_sealed(block)
}
fn generation_of(block: &[u8]) -> u64 {
    u64_at(block, 40)
}

impl Superblock {
    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; SUPERBLOCK_BYTES];
        let (o, l) = (&mut b[..], &self.label);
        put(o, 0, &MAGIC);
        put_u32(o, 8, VERSION);
        put_u64(o, 16, self.compat);
        put_u64(o, 24, self.ro_compat);
        put_u64(o, 32, self.incompat);
        put_u64(o, 40, self.generation);
        put(o, 48, &l.fs_uuid.0);
        put(o, 64, &l.uuid.0);
        o[80] = l.kind as u8;
        o[81] = self.clean as u8;
        o[82] = l.fs_name.len() as u8;
        put_u32(o, 84, l.target.0);
        put_u32(o, 88, l.index);
        put_u32(o, 92, l.mirror.0);
        put_u32(o, 96, l.epoch.0);
        put_u32(o, 100, self.incarnation.0);
        put_u64(o, 104, self.cut_pos);
        put_u32(o, 112, self.cut_incarnation.0);
        for (i, r) in self.regions.all().into_iter().enumerate() {
            put_u64(o, 120 + 16 * i, r.begin);
            put_u64(o, 128 + 16 * i, r.bytes);
        }
        put_u64(o, 184, self.log_start.pos);
        put_u64(o, 192, self.log_start.seq.0);
        put_u64(o, 200, self.flushed_seq.0);
        put_u64(o, 208, self.prepared);
        if let Some(c) = &self.checkpoint {
            o[216] = c.slot + 1;
            put_u64(o, 224, c.stream_bytes);
            put_u64(o, 232, c.payload_bytes);
            put_u64(o, 240, c.seq.0);
            put_u32(o, 248, c.crc);
        }
        put(o, 256, l.fs_name.as_bytes());
        put_u64(o, 320, self.medium_bytes);
        if let Some(log) = self.log_medium {
            put(o, 328, &log.uuid.0);
            put_u64(o, 344, log.bytes);
        }
        if !self.note.is_empty() {
            assert!(self.note.len() <= NOTE_BYTES_MAX, "a note fits its place");
            put(o, FIELDS_END, &(self.note.len() as u16).to_le_bytes());
            put(o, NOTE_AT, &self.note);
        }
        seal(o);
        b
    }

    /// Does its encoding decode to the same? For checks before a write.
    pub fn reads_back(&self) -> bool {
        decode(&self.encode()).is_ok_and(|read| read == *self)
    }

    pub fn has_ops(&self) -> bool {
        self.incompat & ENTRIES_OF_OPS != 0
    }

    pub fn has_marks_without_seq(&self) -> bool {
        self.incompat & MARKS_WITHOUT_SEQ != 0
    }

    pub fn check_features(&self, read_only: bool) -> Result<(), VolumeError> {
        check_incompat(self.incompat)?;
        let ro_compat = self.ro_compat & !RO_COMPAT;
        if ro_compat != 0 && !read_only {
            let what = format!("unknown features {ro_compat:#x} forbid writing; it can be opened read-only");
            return Err(VolumeError::Unsupported(what));
        }
        Ok(())
    }

    /// The medium may have grown since it was formatted. A smaller one lacks a part of the volume.
    pub fn check_fits(&self, medium_bytes: u64) -> Result<(), VolumeError> {
        if medium_bytes < self.medium_bytes {
            return Err(VolumeError::Malformed("the medium is smaller than when it was formatted"));
        }
        Ok(())
    }
}

impl Regions {
    fn all(&self) -> [Region; 4] {
        [self.log, self.slots[0], self.slots[1], self.data]
    }

    pub fn layout(&self) -> Layout {
        let slots = self.slots.map(|s| s.range());
        Layout { log_medium: None, log: self.log.range(), slots, data: self.data.range() }
    }

    /// Regions are in order, within the medium and disjoint, and the ring is whole pages. A ring on its own medium is checked by itself.
    fn are_valid(&self, medium_bytes: u64, elsewhere: Option<LogMedium>) -> bool {
        let of_log = if elsewhere.is_some() { Region { begin: LOG_BEGIN, bytes: 0 } } else { self.log };
        let mut at = LOG_BEGIN;
        let in_order = [of_log, self.slots[0], self.slots[1], self.data].into_iter().all(|r| {
            let ok = r.begin >= at && r.begin.checked_add(r.bytes).is_some_and(|end| end <= medium_bytes);
            at = r.begin.saturating_add(r.bytes);
            ok
        });
        in_order && is_ring(self.log, elsewhere.map_or(medium_bytes, |l| l.bytes))
    }
}

fn check_incompat(incompat: u64) -> Result<(), VolumeError> {
    match incompat & !INCOMPAT {
        0 => Ok(()),
        unknown => Err(VolumeError::Unsupported(format!("unknown incompatible features {unknown:#x}"))),
    }
}

/// Decodes a block whose magic and CRC are valid.
fn decode(b: &[u8]) -> Result<Superblock, VolumeError> {
    let version = u32_at(b, 8);
    if version != VERSION {
        return Err(VolumeError::Unsupported(format!(
            "superblock version {version}; this release knows {VERSION}"
        )));
    }
    decode_fields(b).map_err(|e| match e {
        // An unknown incompatible feature may change the meaning of any field: then report the feature, not the field.
        VolumeError::Malformed(_) => check_incompat(u64_at(b, 32)).err().unwrap_or(e),
        e => e,
    })
}

fn decode_fields(b: &[u8]) -> Result<Superblock, VolumeError> {
    let region = |i: usize| Region { begin: u64_at(b, 120 + 16 * i), bytes: u64_at(b, 128 + 16 * i) };
    let sb = Superblock {
        compat: u64_at(b, 16),
        ro_compat: u64_at(b, 24),
        incompat: u64_at(b, 32),
        generation: u64_at(b, 40),
        label: decode_label(b)?,
        clean: match b[81] {
            0 => false,
            1 => true,
            _ => return Err(VolumeError::Malformed("clean flag")),
        },
        incarnation: Incarnation(u32_at(b, 100)),
        cut_pos: u64_at(b, 104),
        cut_incarnation: Incarnation(u32_at(b, 112)),
        regions: Regions { log: region(0), slots: [region(1), region(2)], data: region(3) },
        log_start: LogPoint { pos: u64_at(b, 184), seq: Seq(u64_at(b, 192)) },
        flushed_seq: Seq(u64_at(b, 200)),
        prepared: u64_at(b, 208),
        checkpoint: decode_checkpoint(b)?,
        medium_bytes: u64_at(b, 320),
        log_medium: (u64_at(b, 32) & LOG_ELSEWHERE != 0)
            .then(|| LogMedium { uuid: Uuid(array_at(b, 328)), bytes: u64_at(b, 344) }),
        note: decode_note(b)?,
    };
    // An unknown feature may use the reserved bytes; `check_features` reports it.
    let unknown = (sb.incompat & !INCOMPAT) | (sb.ro_compat & !RO_COMPAT) | sb.compat;
    let of_log = if sb.log_medium.is_some() { FIELDS_END } else { 328 };
    let behind = if sb.note.is_empty() { FIELDS_END } else { NOTE_AT + sb.note.len() };
    let rest = [of_log..FIELDS_END, behind..SUPERBLOCK_BYTES - 4];
    let reserved = [12..16, 83..84, 116..120, 217..224, 252..256].into_iter().chain(rest);
    if unknown == 0 && { reserved }.any(|r| b[r].iter().any(|x| *x != 0)) {
        return Err(VolumeError::Malformed("reserved bytes are not zero"));
    }
    if !sb.regions.are_valid(sb.medium_bytes, sb.log_medium) {
        return Err(VolumeError::Malformed("region table"));
    }
    // Positions and numbers rise by what a device can write. Numbers near the end of u64 cannot be real, and would overflow.
    let numbers = [sb.log_start.pos, sb.log_start.seq.0, sb.flushed_seq.0, sb.cut_pos, sb.generation];
    if numbers.into_iter().any(|n| n > u64::MAX >> 2) || sb.incarnation.0 == u32::MAX {
        return Err(VolumeError::Malformed("a position or number is out of range"));
    }
    if !sb.log_start.pos.is_multiple_of(8) {
        return Err(VolumeError::Malformed("log start"));
    }
    if sb.checkpoint.is_some_and(|c| c.seq > sb.flushed_seq) {
        return Err(VolumeError::Malformed("a checkpoint of entries that were never flushed"));
    }
    if sb.checkpoint.is_some_and(|c| c.stream_bytes > sb.regions.slots[c.slot as usize].bytes) {
        return Err(VolumeError::Malformed("checkpoint length"));
    }
    Ok(sb)
}

fn decode_label(b: &[u8]) -> Result<Label, VolumeError> {
    let name = b.get(256..256 + b[82] as usize).filter(|n| (1..=FS_NAME_BYTES).contains(&n.len()));
    let name =
        name.and_then(|n| String::from_utf8(n.to_vec()).ok()).ok_or(VolumeError::Malformed("fs name"))?;
    Ok(Label {
        kind: match b[80] {
            1 => Kind::Mdt,
            2 => Kind::Ost,
            _ => return Err(VolumeError::Malformed("kind")),
        },
        fs_name: name,
        fs_uuid: Uuid(array_at(b, 48)),
        uuid: Uuid(array_at(b, 64)),
        target: TargetId(u32_at(b, 84)),
        index: u32_at(b, 88),
        mirror: MirrorId(u32_at(b, 92)),
        epoch: Epoch(u32_at(b, 96)),
    })
}

fn decode_note(b: &[u8]) -> Result<Vec<u8>, VolumeError> {
    if u64_at(b, 32) & NOTE == 0 {
        return Ok(Vec::new());
    }
    let len = usize::from(u16::from_le_bytes(array_at(b, FIELDS_END)));
    if !(1..=NOTE_BYTES_MAX).contains(&len) || b[FIELDS_END + 2..NOTE_AT] != [0, 0] {
        return Err(VolumeError::Malformed("length of the note"));
    }
    Ok(b[NOTE_AT..NOTE_AT + len].to_vec())
}

fn decode_checkpoint(b: &[u8]) -> Result<Option<CheckpointRef>, VolumeError> {
    let slot = match b[216] {
        0 => return Ok(None),
        n @ (1 | 2) => n - 1,
        _ => return Err(VolumeError::Malformed("checkpoint slot")),
    };
    Ok(Some(CheckpointRef {
        slot,
        stream_bytes: u64_at(b, 224),
        payload_bytes: u64_at(b, 232),
        seq: Seq(u64_at(b, 240)),
        crc: u32_at(b, 248),
    }))
}

#[cfg(test)]
mod tests;
