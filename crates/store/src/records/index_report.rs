//! Reports of the index: verified leaves, and its state in memory.

use types::ObjectId;

/// The result of verifying leaves of the index, up to the first bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VerifiedLeaves {
    pub bytes: u64,
    pub bad: Option<BadLeaf>,
    /// The first object of the last leaf verified; the leaves after it are left. `None`: none is left.
    pub end: Option<ObjectId>,
}

/// A leaf that the medium does not return as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLeaf {
    /// Its first object.
    pub first: ObjectId,
    /// Its place on the medium, bytes.
    pub at: u64,
    /// Memory has its content, and the next checkpoint writes it elsewhere: no data is lost.
    pub is_saved: bool,
}

/// State of the index in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IndexStats {
    /// Objects (estimated) and leaves.
    pub memory_bytes: u64,
    /// Its limit. Objects in use, or not in a checkpoint yet, stay in memory beyond it; then a checkpoint is due.
    pub memory_bytes_max: u64,
    /// Leaves of the last checkpoint, and those of them in memory.
    pub leaves: u64,
    pub leaves_loaded: u64,
    /// Since the last checkpoint began.
    pub objects_changed: u64,
}
