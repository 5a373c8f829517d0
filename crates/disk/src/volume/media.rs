//! The media of a volume: one medium, or two where the log has one of its own.
//!
//! disk-M1: the volume's superblock names its log medium by uuid, and the log's label names itself and the volume. Both must agree, so that
//!     neither can be replaced by another unnoticed.
//! disk-M2: the label is written once, when the volume is formatted, so no order between writes to the two media has to be kept for it.
//! disk-M3: a flush flushes the data's medium first and the log's second. A flushed entry therefore has its data. An unflushed one
//!     may lie on the log's medium without its data, which recovery verifies anyway (disk-O2): no mark covers it (disk-V3).

use std::sync::Arc;

use types::Uuid;

use super::bytes::*;
use super::superblock::{LOG_BEGIN, PLACES, Region, SUPERBLOCK_BYTES};
use super::{FS_NAME_BYTES_MAX, Kind, VolumeError};
use crate::Disk;

/// The media of a volume, given to open it.
#[derive(Clone)]
pub struct Media {
    pub main: Arc<dyn Disk>,
    /// The log's medium, if it has one of its own.
    pub log: Option<Arc<dyn Disk>>,
}

impl From<Arc<dyn Disk>> for Media {
    fn from(main: Arc<dyn Disk>) -> Media {
        Media { main, log: None }
    }
}
impl<D: Disk + 'static> From<Arc<D>> for Media {
    fn from(main: Arc<D>) -> Media {
        Media { main, log: None }
    }
}

const MAGIC: [u8; 8] = *b"STRIALOG";
const VERSION: u32 = 1;
/// First byte behind the fields; from here to the CRC all bytes are zero.
const FIELDS_END: usize = 168;

/// The label of a log's own medium, in 4 KiB at 0 and again at 64 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLabel {
    /// The log's uuid.
    pub uuid: Uuid,
    /// The volume's uuid.
    pub volume: Uuid,
    pub kind: Kind,
    pub fs_name: String,
    pub(super) ring: Region,
    /// Size of the medium when it was formatted.
    pub(super) medium_bytes: u64,
}

impl std::fmt::Display for LogLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.kind == Kind::Mdt { "MDT" } else { "OST" };
        let LogLabel { uuid, volume, fs_name, .. } = self;
        write!(f, "log {uuid} of Stria {kind} with uuid {volume}, of file system '{fs_name}'")
    }
}

impl LogLabel {
    /// `None` if neither copy is a label.
    pub fn read(disk: &dyn Disk) -> Result<Option<LogLabel>, VolumeError> {
        let mut trouble = None;
        for place in PLACES.into_iter().filter(|p| p + SUPERBLOCK_BYTES as u64 <= disk.size()) {
            let mut block = vec![0; SUPERBLOCK_BYTES];
            match disk.read_at(&mut block, place) {
                Ok(()) if counts(&block) => return decode(&block).map(Some),
                Ok(()) => {}
                // The other copy may still be readable.
                Err(e) => trouble = Some(e),
            }
        }
        match trouble {
            Some(source) => Err(VolumeError::Read { what: "cannot read the label of the log", source }),
            None => Ok(None),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; SUPERBLOCK_BYTES];
        let o = &mut b[..];
        put(o, 0, &MAGIC);
        put_u32(o, 8, VERSION);
        put(o, 40, &self.uuid.0);
        put(o, 56, &self.volume.0);
        o[72] = self.kind as u8;
        o[73] = self.fs_name.len() as u8;
        put_u64(o, 80, self.ring.begin);
        put_u64(o, 88, self.ring.bytes);
        put_u64(o, 96, self.medium_bytes);
        put(o, 104, self.fs_name.as_bytes());
        seal(o);
        b
    }
}

pub(super) fn counts(block: &[u8]) -> bool {
    block[..8] == MAGIC && is_sealed(block)
}

/// Decodes a block whose magic and CRC are valid.
fn decode(b: &[u8]) -> Result<LogLabel, VolumeError> {
    let version = u32_at(b, 8);
    let incompat = u64_at(b, 32);
    if version != VERSION || incompat != 0 {
        let what =
            format!("log label of version {version}, features {incompat:#x}; this release knows {VERSION}");
        return Err(VolumeError::Unsupported(what));
    }
    let bad = VolumeError::Malformed;
    let reserved = [12..32, 74..80, FIELDS_END..SUPERBLOCK_BYTES - 4];
    if reserved.into_iter().any(|r| b[r].iter().any(|x| *x != 0)) {
        return Err(bad("reserved bytes of the log's label are not zero"));
    }
    let name = b.get(104..104 + b[73] as usize).filter(|n| (1..=FS_NAME_BYTES_MAX).contains(&n.len()));
    let name =
        name.and_then(|n| String::from_utf8(n.to_vec()).ok()).ok_or(bad("fs name of the log's label"))?;
    let kind = match b[72] {
        1 => Kind::Mdt,
        2 => Kind::Ost,
        _ => return Err(bad("kind of the log's label")),
    };
    let (ring, medium_bytes) = (Region { begin: u64_at(b, 80), bytes: u64_at(b, 88) }, u64_at(b, 96));
    if !is_ring(ring, medium_bytes) {
        return Err(bad("ring of the log's label"));
    }
    Ok(LogLabel {
        uuid: Uuid(array_at(b, 40)),
        volume: Uuid(array_at(b, 56)),
        kind,
        fs_name: name,
        ring,
        medium_bytes,
    })
}

/// The ring is behind the labels or superblocks, within the medium, and in whole pages.
pub(super) fn is_ring(ring: Region, medium_bytes: u64) -> bool {
    let end = ring.begin.checked_add(ring.bytes);
    ring.begin >= LOG_BEGIN
        && end.is_some_and(|end| end <= medium_bytes)
        && ring.bytes >= super::LOG_BYTES_MIN
        && ring.bytes.is_multiple_of(4096)
}

/// The log medium that a superblock names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMedium {
    pub uuid: Uuid,
    /// Size of the medium when it was formatted.
    pub bytes: u64,
}

/// disk-M1: the medium of the log, if it is the right one.
pub(super) fn log_of(
    media: &Media,
    volume: Uuid,
    ring: Region,
    named: Option<LogMedium>,
) -> Result<Arc<dyn Disk>, VolumeError> {
    let (named, log) = match (named, &media.log) {
        (None, None) => return Ok(media.main.clone()),
        (None, Some(_)) => {
            return Err(VolumeError::LogForeign("this volume has its log on its own medium".into()));
        }
        (Some(named), None) => return Err(VolumeError::LogMissing { log: named.uuid }),
        (Some(named), Some(log)) => (named, log),
    };
    let wanted = format!("log {} is wanted", named.uuid);
    let Some(label) = LogLabel::read(&**log)? else {
        return Err(VolumeError::LogForeign(format!("it holds no log, and {wanted}")));
    };
    if label.uuid != named.uuid || label.volume != volume || label.ring != ring {
        return Err(VolumeError::LogForeign(format!("it is {label}, and {wanted}")));
    }
    if log.size() < named.bytes {
        return Err(VolumeError::Malformed("the log's medium is smaller than when it was formatted"));
    }
    Ok(log.clone())
}
