//! The ordered table of an MDT's records: `Key` to bytes, with snapshots that cost nothing.
//!
//! Promises, checked for every implementation by `conformance`:
//! K1: an applied batch is seen, whole, by every snapshot taken after `apply` returned, and by none taken before it began.
//! K2: a checkpoint that loads gives exactly the records of the snapshot it was written from; one that was cut or changed
//!     is refused, never loaded in part.
//! K3: every value carries its CRC32C from the moment it was made; `get` and `range` verify it and name the damaged key.
//! K4: taking a snapshot waits for the writer no longer than it exchanges a pointer; reading from one waits for nobody.
//! K5: memory follows the records: `Size::bytes` counts what a checkpoint of them takes.
//!
//! Refused: durability. The MDT's log and checkpoints (crate `disk`) are what survives.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

pub mod checkpoint;
pub mod conformance;
mod table;
mod value;

use std::sync::Arc;

use types::Key;

pub use checkpoint::{StreamError, load_checkpoint, write_checkpoint};
pub use table::{Table, TableSnapshot};
pub use value::{Damage, VALUE_MAX, Value};

/// A table of records with one writer at a time and any number of readers.
pub trait Kv: Send + Sync {
    type Snap: Snapshot;
    /// The table as of the last applied batch. O(1).
    fn snapshot(&self) -> Self::Snap;
    /// Makes the changes visible, all at once, in order: of two changes of one key the later counts. Callers that need
    /// their batches in a certain order hold a lock of their own around the call.
    fn apply(&self, batch: Batch);
}

/// The table at one moment; it does not change however long it is kept.
pub trait Snapshot: Clone + Send + Sync {
    /// The value of `key`, verified.
    fn get(&self, key: &Key) -> Result<Option<Arc<[u8]>>, Damage>;
    /// Visits records with `from <= key < to` in key order until `f` returns false.
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Damage>;
    /// Visits every record in key order, with its CRC as stored and unverified: for checkpoints and checks.
    fn each(&self, f: &mut dyn FnMut(&Key, &Value) -> std::io::Result<()>) -> std::io::Result<()>;
    fn size(&self) -> Size;
}

/// What a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Size {
    pub records: u64,
    /// Bytes that the records take in a checkpoint, without the stream's own frame.
    pub bytes: u64,
}

/// Bytes of a record in a checkpoint beside its key and value: key length, value length, CRC.
pub const RECORD_OVERHEAD_BYTES: u64 = 1 + 4 + 4;

/// Bytes that a record takes in a checkpoint.
pub fn record_bytes(key: &Key, value_len: usize) -> u64 {
    RECORD_OVERHEAD_BYTES + key.as_bytes().len() as u64 + value_len as u64
}

/// One change: the new value, or `None` for gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    pub value: Option<Value>,
}

/// Changes that become visible together.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Batch(pub Vec<Change>);

impl Batch {
    pub fn new() -> Batch {
        Batch::default()
    }
    pub fn put(&mut self, key: Key, value: Value) {
        self.0.push(Change { key, value: Some(value) })
    }
    pub fn delete(&mut self, key: Key) {
        self.0.push(Change { key, value: None })
    }
}
