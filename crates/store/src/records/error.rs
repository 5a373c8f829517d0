//! Errors of the store. Every variant but `Volume(Failed)` and `Ended` is definite: the change was not made.

use types::{Code, Fault, ObjectId, Seq};

/// The kind of a damage. The numbers are on wire and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DamageKind {
    /// The bytes do not match their checksum.
    Checksum = 1,
    /// The object should exist and does not.
    Missing = 2,
    /// The medium reported an error.
    Medium = 3,
    /// A leaf of the index is lost. The record names its first object; the state of all objects in it is unknown. The offset is on the
    /// medium.
    Index = 4,
}

impl DamageKind {
    pub fn from_u8(n: u8) -> Option<DamageKind> {
        use DamageKind::*;
        [Checksum, Missing, Medium, Index].into_iter().find(|k| *k as u8 == n)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The bytes changed on the way. The caller sends them again.
    #[error("object {object}: bytes at {offset} arrived with a wrong checksum; send them again")]
    BadChecksum { object: ObjectId, offset: u64 },
    /// A page of the object cannot be returned as it was written. The caller records the damage.
    #[error("object {object}: page at {offset} is damaged ({kind:?}); see `stria damage`")]
    Damaged { object: ObjectId, offset: u64, kind: DamageKind },
    /// Nothing was written.
    #[error("no space: {0}; delete files or add a target")]
    NoSpace(&'static str),
    /// The caller's gate refused the request.
    #[error("{0}")]
    Refused(Fault),
    #[error("too many {what} (limit {max})")]
    TooMany { what: &'static str, max: usize },
    /// The volume's content is malformed although its checksums match: a bug or a foreign volume.
    #[error("corrupt index: {0}; run fsck")]
    Corrupt(String),
    /// A part of the index cannot be read: the state of its objects is unknown, and no checkpoint can be made.
    #[error(
        "the index cannot be read at medium offset {at}: {source}; if that stays so, format the target anew and copy its files back"
    )]
    Index { at: u64, source: std::io::Error },
    /// The page may be readable later; it is not known to be damaged.
    #[error("object {object}: page at {offset} cannot be read now: the device hangs")]
    Hung { object: ObjectId, offset: u64 },
    /// The medium failed while data was written.
    #[error("object {object}: writing at medium offset {at}: {source}")]
    Medium { object: ObjectId, at: u64, source: std::io::Error },
    /// Freed space could not be discarded on the medium; it is free nevertheless.
    #[error("discarding at medium offset {at}: {source}")]
    Discard { at: u64, source: std::io::Error },
    /// The other member of the mirror may have the change. A repeat with the same slot is answered once the target is back.
    #[error("this target's part in its mirror has ended: {0}; it is opened anew")]
    Ended(String),
    /// An entry of the mirror does not fit this member's log, or cannot be taken.
    #[error("an entry of the mirror cannot be taken: {0}; this member is opened anew")]
    Foreign(String),
    /// The log cannot be cut there. The member becomes empty and is filled.
    #[error(
        "the checkpoint has entries up to {end}, and those behind {after} are to be cut; this member is filled anew"
    )]
    Ahead { end: Seq, after: Seq },
    /// The log no longer has entries that the other member lacks.
    #[error("the log has no entry of mirror seq {0} any more; the other member begins anew")]
    Trimmed(Seq),
    #[error(transparent)]
    Volume(#[from] disk::volume::VolumeError),
}

impl From<StoreError> for Fault {
    fn from(e: StoreError) -> Fault {
        let code = match e {
            StoreError::Refused(fault) => return fault,
            StoreError::Volume(e) => return e.into(),
            StoreError::BadChecksum { .. } => Code::BadChecksum,
            StoreError::Damaged { .. } => Code::Damaged,
            StoreError::NoSpace(_) => Code::NoSpace,
            StoreError::TooMany { .. } => Code::Busy,
            StoreError::Ended(_) => Code::NotReady,
            StoreError::Foreign(_) => Code::Invalid,
            StoreError::Ahead { .. } => Code::Stale,
            StoreError::Trimmed(_) => Code::NotFound,
            StoreError::Hung { .. }
            | StoreError::Corrupt(_)
            | StoreError::Index { .. }
            | StoreError::Medium { .. }
            | StoreError::Discard { .. } => Code::Io,
        };
        Fault::new(code, e.to_string())
    }
}
