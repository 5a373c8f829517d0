//! What a target says of its space, as the mount's `stria.df` attribute carries it.

use serde::{Deserialize, Serialize};

/// MDT or OST, as the attribute spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Mdt,
    Ost,
}

/// The numbers of one target that `df` shows; fields that it does not need are passed over. Bytes; inodes (MDT) or objects (OST).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpace {
    pub kind: Kind,
    pub index: u32,
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_available: u64,
    pub files_total: u64,
    pub files_free: u64,
}

impl TargetSpace {
    pub fn is_mdt(&self) -> bool {
        self.kind == Kind::Mdt
    }
}
