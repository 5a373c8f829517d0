//! Why a volume refused.

use std::io;

use types::{Code, Fault};

use super::replay::Lost;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// `format` without force found something on the medium.
    #[error("the medium is not blank ({0}); format with force to overwrite it")]
    NotBlank(&'static str),
    /// The wanted sizes or names are impossible. Nothing was written.
    #[error("cannot format so: {0}")]
    BadFormat(String),
    #[error("no superblock: neither copy is valid; this is not a Stria volume, or its head was overwritten")]
    NoSuperblock,
    /// A newer release wrote the volume, or it has a feature that this release does not know.
    #[error("the volume needs a newer release: {0}")]
    Unsupported(String),
    /// The checksum is valid, but the content is impossible.
    #[error("superblock is malformed: {0}")]
    Malformed(&'static str),
    /// The file system below lacks the space that must be reserved before anything is promised. The volume was not formatted.
    #[error("no room for the log and the checkpoints, which take {wanted} bytes at once: {source}")]
    NoRoom { wanted: u64, source: io::Error },
    /// The volume's log is on a medium of its own, and the caller did not give it.
    #[error("its log is on another device, log {log}, which was not given")]
    LogMissing { log: types::Uuid },
    /// The medium given for the log does not belong to this volume.
    #[error("the device given for its log is not the right one: {0}")]
    LogForeign(String),
    #[error("the volume was opened read-only")]
    ReadOnly,
    /// The caller broke the order of the volume's life.
    #[error("{0}")]
    WrongOrder(&'static str),
    /// Nothing was appended. Make a checkpoint, which trims the log, and try again.
    #[error("log full: {used} of {capacity} bytes used and {wanted} wanted; a checkpoint makes room")]
    LogFull { used: u64, capacity: u64, wanted: u64 },
    /// A checkpoint trimmed the entries behind `after`.
    #[error(
        "the log begins with entry {first}, and entries behind {after} were asked for; copy the whole content instead"
    )]
    LogTrimmed { after: types::Seq, first: types::Seq },
    /// Nothing was appended.
    #[error("log entry of {len} bytes exceeds the limit of {max}")]
    TooLarge { len: usize, max: usize },
    /// The old checkpoint stays valid.
    #[error("checkpoint exceeds its slot of {capacity} bytes; format with a larger checkpoint size")]
    CheckpointFull { capacity: u64 },
    /// The old checkpoint and the whole log stay valid; try again later.
    #[error("the checkpoint could not be written, the one before it stands: {0}")]
    CheckpointWrite(io::Error),
    /// The caller's stream of a checkpoint failed. The old checkpoint stays valid.
    #[error("the state could not be written out for a checkpoint: {0}")]
    CheckpointSource(io::Error),
    /// A flushed log entry is unreadable: durable data is lost.
    #[error("{0}")]
    LogDamaged(Lost),
    /// A write or flush failed: the volume promises nothing more. Unflushed entries may or may not be on the medium.
    #[error("the volume has failed and must be opened anew: {0}")]
    Failed(String),
    /// A read failed.
    #[error("{what}: {source}")]
    Read { what: &'static str, source: io::Error },
}

impl VolumeError {
    /// A copy of the error for another caller whose entry shared the failed write.
    pub fn for_another(&self) -> VolumeError {
        match self {
            VolumeError::LogFull { used, capacity, wanted } => {
                VolumeError::LogFull { used: *used, capacity: *capacity, wanted: *wanted }
            }
            VolumeError::TooLarge { len, max } => VolumeError::TooLarge { len: *len, max: *max },
            VolumeError::WrongOrder(why) => VolumeError::WrongOrder(why),
            VolumeError::ReadOnly => VolumeError::ReadOnly,
            VolumeError::Failed(why) => VolumeError::Failed(why.clone()),
            other => VolumeError::Failed(other.to_string()),
        }
    }
}

impl From<VolumeError> for Fault {
    fn from(e: VolumeError) -> Fault {
        let code = match &e {
            VolumeError::LogFull { .. } => Code::Busy,
            VolumeError::TooLarge { .. } => Code::TooLong,
            VolumeError::LogTrimmed { .. } => Code::Stale,
            VolumeError::CheckpointFull { .. } | VolumeError::NoRoom { .. } => Code::NoSpace,
            VolumeError::CheckpointWrite(e) if crate::is_full(e) => Code::NoSpace,
            VolumeError::ReadOnly => Code::ReadOnly,
            VolumeError::WrongOrder(_) => Code::NotReady,
            VolumeError::NotBlank(_) => Code::Exists,
            VolumeError::BadFormat(_) | VolumeError::LogForeign(_) => Code::Invalid,
            VolumeError::LogMissing { .. } => Code::NotFound,
            VolumeError::Unsupported(_) => Code::Unsupported,
            VolumeError::NoSuperblock | VolumeError::Malformed(_) | VolumeError::LogDamaged(_) => {
                Code::Damaged
            }
            VolumeError::CheckpointWrite(_)
            | VolumeError::CheckpointSource(_)
            | VolumeError::Failed(_)
            | VolumeError::Read { .. } => Code::Io,
        };
        Fault::new(code, e.to_string())
    }
}
