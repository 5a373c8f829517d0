//! The ordered records of an MDT: `Key` to bytes, behind a contract (version 2) that several engines can implement.
//!
//! An engine has one writer at a time and any number of readers. Each `apply` makes a new version of the records. A reader or a snapshot
//! shows one version. The module `conformance` checks these promises for every implementation:
//! kv-K1: every reader and snapshot taken after `apply` returned sees the whole batch; none taken before `apply` began sees any of it.
//!     A reader or snapshot never changes, however long it is kept.
//! kv-K2: a checkpoint opens as exactly the snapshot that it was written from, with the same `seq`. A checkpoint that was cut or changed
//!     is refused, never opened in part. The owner's log has the changes after that seq.
//! kv-K3: every value carries its CRC32C from the moment it was made; `get` and `range` verify it and name the damaged key.
//! kv-K4: taking a reader or a snapshot waits for the writer no longer than a pointer exchange takes, and reading waits for nothing.
//!     A reader serves one request on one thread. Taking one writes no memory that other threads use, with two exceptions: the version has
//!     changed since this thread's last reader, or a leaf has its "used" bit clear.
//! kv-K5: memory has a bound, beside the changes since the last checkpoint: `tidy` keeps it, and reports when those are too many.
//!     `Size::bytes` counts what a checkpoint of the records takes.
//! kv-K6: a view that outlives a request is a snapshot: it costs the memory of the changes made since, and no reader's time.
//! kv-K7: `get` and `range` never read the medium. A record that lies only there is `Miss::Absent`: the caller calls `load` and starts the
//!     read over, also over a view taken before. `apply` needs the leaves that it changes in memory: `admits` checks that.
//! kv-K8: damage is `Miss::Damage`, never absence.
//! kv-K9: if the medium returns other bytes than were written, the records in those bytes are damaged, and no others; a checkpoint and
//!     the next start go on around them. While the medium returns an error, those records are neither read nor changed.
//!
//! Refused: durability of single batches. The MDT's log and checkpoints (crate `disk`) survive a crash; a table does not.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

#[cfg(any(test, feature = "away"))]
pub mod away;
pub mod checkpoint;
pub mod conformance;
mod home;
mod leaf;
mod medium;
mod memtable;
mod published;
mod table;
mod tree;
mod value;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use types::{Key, Seq, Word};

pub use checkpoint::StreamError;
pub use medium::{Medium, leaves_bytes};
pub use table::Table;
pub use value::{Damage, VALUE_MAX, Value};

/// Records with one writer at a time and any number of readers. Each engine has its own way to make a new one.
pub trait Engine: Send + Sync + Sized + 'static {
    /// The records as of the last applied batch, for one request on this thread (kv-K4).
    type Reader<'a>: View
    where
        Self: 'a;
    /// The same, kept for any time and used from any thread (kv-K6).
    type Snap: View + Clone + Send + Sync + 'static;

    fn reader(&self) -> Self::Reader<'_>;
    fn snapshot(&self) -> Self::Snap;

    /// Makes the changes visible, all at once, in order: of two changes of one key the later counts. `upto` is the last log entry whose
    /// changes are in the table afterwards; it never falls. Callers that need a certain order of batches hold a lock of their own around
    /// the call. `admits` must have accepted the keys, and no `tidy` may have run since.
    fn apply(&self, upto: Seq, batch: Batch);

    /// Can `apply` take changes of these keys? The answer holds until the next `tidy`; `move_changes` does not affect it.
    fn admits<'k>(&self, _keys: impl Iterator<Item = &'k Key>) -> Result<(), Absent> {
        Ok(())
    }

    /// Marks a key range as known empty: no key with `from <= key < to` ever had a record. New records there are then not taken for
    /// survivors of a damaged range. Call it only where `apply` may be called.
    fn bare(&self, _from: &Key, _to: &Key) -> Result<(), Absent> {
        Ok(())
    }

    /// Moves the latest changes to the tree, so that the next checkpoint does not write them once more. Call it only where `apply` may be
    /// called; it takes as long as a batch of some hundred changes, or a thousand if `move_changes` is late.
    fn settle(&self) {}

    /// Brings into memory the records that a view could not show. Takes as long as the medium does: never call it under a writer's lock.
    /// An error means that the medium returned nothing, and says nothing about the records; wrong bytes are damage from here on (kv-K9).
    fn load(&self, what: Absent) -> io::Result<()>;

    /// One step of keeping memory within its bound, short enough for a thread that waits behind it. Call it only where `apply` may be
    /// called.
    fn tidy(&self) -> Tidied {
        Tidied::Done
    }

    /// Waits until `tidy` has work, until `wake` is called, or for `at_most`.
    fn until_untidy(&self, at_most: Duration) {
        std::thread::sleep(at_most);
    }
    /// Gives some of the space that was freed a while ago back to the medium; under a sparse file it returns to the host. A background
    /// thread calls it once per commit interval.
    fn discard(&self) -> io::Result<()> {
        Ok(())
    }
    /// Ends `until_untidy` and `move_changes`.
    fn wake(&self) {}

    /// Waits for changes that `apply` left to be moved to the tree, at most `at_most`, and moves them. Runs beside `apply`, on one thread.
    /// If no thread calls this, `apply` moves them itself.
    fn move_changes(&self, at_most: Duration) {
        std::thread::sleep(at_most);
    }

    /// The same records without the leaves that were loaded for this snapshot, for a caller that walks more records than fit in memory.
    /// It costs a look at each leaf's name.
    fn forgotten(&self, of: &Self::Snap) -> Self::Snap {
        of.clone()
    }

    /// Loads a part of the records while there is memory for it. False: memory is full, or nothing is left to load. `from`: where this part
    /// begins, and afterwards where the next one does.
    fn warm(&self, _from: &mut Key) -> io::Result<bool> {
        Ok(false)
    }

    /// Writes a stream from which `open` restores this snapshot; runs beside `apply`. `rest`: records of the owner's that go into the
    /// stream and that no view shows.
    fn checkpoint(
        &self,
        of: &Self::Snap,
        rest: &mut dyn Iterator<Item = (Key, Value)>,
        out: &mut dyn io::Write,
    ) -> io::Result<()>;

    /// The last checkpoint is now the one that `open` will be given, or, with false, never will be: its place may be written over.
    fn end_checkpoint(&self, _is_named: bool) {}

    /// On an empty engine: restores the snapshot that the checkpoint was written from. `at`: that snapshot's `seq`. `is_rest` sees every
    /// record of the stream and returns true for those of the owner.
    fn open(
        self,
        at: Seq,
        from: &mut dyn io::Read,
        is_rest: &mut dyn FnMut(&Key, &Value) -> bool,
    ) -> Result<Self, StreamError>;

    /// The size up to which a checkpoint always finds space. Unlimited for an engine without a medium.
    fn room(&self) -> Room {
        Room { leaves_bytes: u64::MAX / 2, head_bytes: u64::MAX / 2 }
    }

    fn figures(&self) -> Figures;

    /// Reads leaves that the last checkpoint named from the medium itself, and checks them: at most `max`, those that begin behind `after`.
    /// Takes as long as the medium does. An engine without a medium has none.
    fn check_leaves(&self, _after: Option<&Key>, _max: usize) -> CheckedLeaves {
        CheckedLeaves::default()
    }

    /// Key ranges that the newest version knows to be lost. It looks at all leaves.
    fn lost(&self) -> u64 {
        0
    }

    /// Words that all readers read and none may write (kv-K4), for a test that counts writes with breakpoints.
    fn words(&self) -> Vec<Word> {
        Vec::new()
    }
}

/// Takes a record's key, value and stored CRC; an error of its own ends the walk.
pub type TakeRecord<'a> = dyn FnMut(&Key, &[u8], u32) -> io::Result<()> + 'a;

/// One version of the records.
pub trait View {
    /// The value of `key`, verified.
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss>;
    /// Visits records with `from <= key < to` in key order until `f` returns false.
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss>;
    /// Visits every record in key order, with its CRC as stored and unverified: for checkpoints and checks. Reads the medium if necessary.
    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()>;
    fn size(&self) -> Size;
    /// Bytes that a checkpoint of this view takes on the medium, an estimate.
    fn medium_bytes(&self) -> u64 {
        self.size().bytes
    }
    /// The last log entry whose changes are in this view.
    fn seq(&self) -> Seq;
}

/// The findings of a step of `Engine::tidy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidied {
    Done,
    More,
    /// As `More`; and much memory cannot be freed because it changed since the last checkpoint: a checkpoint is due.
    Unwritten,
}

/// Why a view cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miss {
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Absent(#[from] Absent),
}

/// A record that, if it exists, lies only on the medium: pass it to `Engine::load`. It also names the leaves that are likely to be wanted
/// next.
#[derive(Clone, Debug, thiserror::Error)]
#[error("record {key:?} is not in memory")]
pub struct Absent {
    pub key: Key,
    leaves: Vec<Arc<home::Away>>,
    /// Leaves that are likely to be wanted next.
    ahead: Vec<Arc<home::Away>>,
}

impl Absent {
    /// For an engine that finds the record by its key.
    pub fn of(key: Key) -> Absent {
        Absent { key, leaves: Vec::new(), ahead: Vec::new() }
    }

    /// Loads both at once. The second miss may rest on a wrong assumption after the first one, so it counts only as read-ahead.
    pub fn join(&mut self, more: Absent) {
        if self.ahead.len() < ABSENT_MAX {
            self.ahead.extend(more.leaves);
            self.ahead.extend(more.ahead);
        }
    }
}

/// Leaves that are loaded at once: those of the inodes of one page of a listing, which may be all over the table.
const ABSENT_MAX: usize = 4096;

impl PartialEq for Absent {
    fn eq(&self, other: &Absent) -> bool {
        self.key == other.key
    }
}
impl Eq for Absent {}

/// The size of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Size {
    pub records: u64,
    /// Bytes that the records take in a checkpoint, without the framing of the stream.
    pub bytes: u64,
}

/// Statistics of an engine at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Figures {
    /// Of the newest version.
    pub size: Size,
    /// Older versions that are in memory because a reader uses them, or used them last.
    pub states_kept: usize,
    /// Leaves in memory, with the names of all leaves.
    pub memory_bytes: u64,
    /// The bound of `memory_bytes`.
    pub memory_bytes_max: u64,
    pub leaves: u64,
    /// Since the start: leaves loaded, evicted, and found damaged.
    pub loads: u64,
    pub evictions: u64,
    pub broken: u64,
    /// Since the start: how often `move_changes` moved changes.
    pub moves: u64,
}

/// The findings of `Engine::check_leaves`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckedLeaves {
    pub leaves: u64,
    pub records: u64,
    /// Bytes read, in whole pages.
    pub bytes: u64,
    /// First keys of the leaves that the medium does not give as they were written.
    pub bad: Vec<Key>,
    /// Where the next call goes on; `None`: no leaf is left.
    pub next: Option<Key>,
    /// The medium did not answer in time, which says nothing about a leaf: the next call reads it again.
    pub is_passing: bool,
}

/// The largest checkpoint that always finds space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bound of `View::medium_bytes`.
    pub leaves_bytes: u64,
    /// Bound of the stream, if it only names leaves.
    pub head_bytes: u64,
}

/// Bytes of a record in a checkpoint beside its key and value: key length, value length, CRC.
pub const RECORD_OVERHEAD_BYTES: u64 = 1 + 4 + 4;

/// Bytes that a record takes in a checkpoint.
pub fn record_bytes(key: &Key, value_len: usize) -> u64 {
    RECORD_OVERHEAD_BYTES + key.as_bytes().len() as u64 + value_len as u64
}

/// One change: the new value, or `None` for a deletion.
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
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().map(|change| &change.key)
    }
}
