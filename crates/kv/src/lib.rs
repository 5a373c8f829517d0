//! The ordered records of an MDT: `Key` to bytes, behind a contract that several engines can keep (version 2).
//!
//! An engine has one writer at a time, any number of readers, and states: each `apply` makes a new one. Promises, checked for
//! every implementation by `conformance`:
//! kv-K1: an applied batch is seen, whole, by every reader and snapshot taken after `apply` returned, and by none taken before it
//!     began; neither changes however long it is kept.
//! kv-K2: what a checkpoint opens as is exactly the snapshot that it was written from, with that one's `seq`; one that was cut or
//!     changed is refused, never opened in part. The owner's log has what came after that seq.
//! kv-K3: every value carries its CRC32C from the moment it was made; `get` and `range` verify it and name the damaged key.
//! kv-K4: taking a reader or a snapshot waits for the writer no longer than it exchanges a pointer, and reading waits for nobody.
//!     A reader is for one request on one thread: taking one writes nothing that other threads read or write, unless the state
//!     has changed since that thread's last one, or what is read was not read for long (a bit of it says so).
//! kv-K5: memory has a bound, beside what changed since the last checkpoint: `tidy` keeps it, and says when that is too much.
//!     `Size::bytes` counts what a checkpoint of the records takes.
//! kv-K6: what is kept longer than a request is a snapshot: it costs the memory of what changed since, and no reader's time.
//! kv-K7: `get` and `range` never read the medium. What lies only there is `Miss::Absent`; `load` brings it, then the reading starts
//!     over, also over a view from before. `apply` needs what it changes in memory: `admits` says whether it is.
//! kv-K8: damage is `Miss::Damage`, never absence.
//! kv-K9: where the medium gives back other bytes than were written, that is damage of the records that lay there, and of no others; a
//!     checkpoint and the next start go on around it. While it gives none, those records are neither read nor changed.
//!
//! Refused: durability of single batches. The MDT's log and checkpoints (crate `disk`) are what survives.

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

/// Records with one writer at a time and any number of readers. How a new one is made is the engine's own affair.
pub trait Engine: Send + Sync + Sized + 'static {
    /// The state as of the last applied batch, for one request on this thread (kv-K4).
    type Reader<'a>: View
    where
        Self: 'a;
    /// The same, for as long as one likes and for any thread (kv-K6).
    type Snap: View + Clone + Send + Sync + 'static;

    fn reader(&self) -> Self::Reader<'_>;
    fn snapshot(&self) -> Self::Snap;

    /// Makes the changes visible, all at once, in order: of two changes of one key the later counts. `upto` is the last entry of
    /// the log that is in the state then; it never falls. Callers that need their batches in a certain order hold a lock of
    /// their own around the call. What `admits` said must hold yet.
    fn apply(&self, upto: Seq, batch: Batch);

    /// Can `apply` take changes of these keys? It holds until the next `tidy`, whatever `move_changes` does.
    fn admits<'k>(&self, _keys: impl Iterator<Item = &'k Key>) -> Result<(), Absent> {
        Ok(())
    }

    /// No key with `from <= key < to` ever had a record, so none is lost there: what is made from here on is no island in what is lost. By who
    /// may call `apply`.
    fn bare(&self, _from: &Key, _to: &Key) -> Result<(), Absent> {
        Ok(())
    }

    /// Moves the latest changes to where a checkpoint of them leaves them: without that, the next one writes them once more. By who may call
    /// `apply`; takes as long as a batch of some hundred changes, or a thousand if `move_changes` is late.
    fn settle(&self) {}

    /// Brings into memory what a view had to pass over. Takes as long as the medium does: never under a writer's lock. An error says
    /// that the medium did not give it, and nothing of what it is; where it gives wrong bytes, that is damage from here on (kv-K9).
    fn load(&self, what: Absent) -> io::Result<()>;

    /// A step of keeping memory within its bound, short enough for who waits behind it. By who may call `apply`.
    fn tidy(&self) -> Tidied {
        Tidied::Done
    }

    /// Waits until there is something for `tidy` to do, or somebody calls `wake`, or that long.
    fn until_untidy(&self, at_most: Duration) {
        std::thread::sleep(at_most);
    }
    /// Gives some of the space that was freed a while ago back to the medium, which under a sparse file is the host's. For the background, once
    /// in a commit interval.
    fn discard(&self) -> io::Result<()> {
        Ok(())
    }
    /// Ends `until_untidy` and `move_changes`.
    fn wake(&self) {}

    /// Waits for changes that `apply` left to be put in their places, or that long, and does it: beside `apply`, and for one thread.
    /// Without one that calls this `apply` does it all.
    fn move_changes(&self, at_most: Duration) {
        std::thread::sleep(at_most);
    }

    /// The same state without what was brought for it: for who goes through a state that may be larger than memory. It costs a look
    /// at each leaf's name.
    fn forgotten(&self, of: &Self::Snap) -> Self::Snap {
        of.clone()
    }

    /// Brings a part of what is not in memory while there is room for it; false: there is none, or nothing to bring. `from`: where it
    /// begins, and where the next part does.
    fn warm(&self, _from: &mut Key) -> io::Result<bool> {
        Ok(false)
    }

    /// Writes what `open` makes this state from; runs beside `apply`. `rest`: records of the owner's that go with it and that no
    /// view shows.
    fn checkpoint(
        &self,
        of: &Self::Snap,
        rest: &mut dyn Iterator<Item = (Key, Value)>,
        out: &mut dyn io::Write,
    ) -> io::Result<()>;

    /// The checkpoint that was made last is what `open` will be given, or it never will be: where it wrote to, others may.
    fn end_checkpoint(&self, _is_named: bool) {}

    /// Of an empty engine: the state that a checkpoint was written from. `at`: that state's `seq`. `is_rest` is shown every record of the
    /// stream, and takes those of the owner by saying true.
    fn open(
        self,
        at: Seq,
        from: &mut dyn io::Read,
        is_rest: &mut dyn FnMut(&Key, &Value) -> bool,
    ) -> Result<Self, StreamError>;

    /// Where the next checkpoint always finds room. Of an engine without a medium: no end of it.
    fn room(&self) -> Room {
        Room { leaves_bytes: u64::MAX / 2, head_bytes: u64::MAX / 2 }
    }

    fn figures(&self) -> Figures;

    /// Stretches that the newest state knows to be lost. It looks at the places of all leaves.
    fn lost(&self) -> u64 {
        0
    }

    /// What all readers look at and none is to write (kv-K4), for who counts that with breakpoints.
    fn words(&self) -> Vec<Word> {
        Vec::new()
    }
}

/// Takes a record's key, value and stored CRC; an error of its own ends the walk.
pub type TakeRecord<'a> = dyn FnMut(&Key, &[u8], u32) -> io::Result<()> + 'a;

/// One state of the records.
pub trait View {
    /// The value of `key`, verified.
    fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss>;
    /// Visits records with `from <= key < to` in key order until `f` returns false.
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss>;
    /// Visits every record in key order, with its CRC as stored and unverified: for checkpoints and checks. Reads the medium if it must.
    fn each(&self, f: &mut TakeRecord<'_>) -> io::Result<()>;
    fn size(&self) -> Size;
    /// What a checkpoint of it takes on the medium, about.
    fn medium_bytes(&self) -> u64 {
        self.size().bytes
    }
    /// The last entry of the log that is in here.
    fn seq(&self) -> Seq;
}

/// What `Engine::tidy` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidied {
    Done,
    More,
    /// As `More`; and much cannot go, because it changed since the last checkpoint: it is time for one.
    Unwritten,
}

/// Why a view has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miss {
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Absent(#[from] Absent),
}

/// A record, if there is one, that lies only on the medium: for `Engine::load`. With what is likely to be wanted next.
#[derive(Clone, Debug, thiserror::Error)]
#[error("record {key:?} is not in memory")]
pub struct Absent {
    pub key: Key,
    leaves: Vec<Arc<home::Away>>,
    /// Those that are likely to be wanted next.
    ahead: Vec<Arc<home::Away>>,
}

impl Absent {
    /// Of an engine that finds it by its key.
    pub fn of(key: Key) -> Absent {
        Absent { key, leaves: Vec::new(), ahead: Vec::new() }
    }

    /// Both are brought at once. Who misses the other one after this one may be on a wrong way, so it is not wanted yet.
    pub fn join(&mut self, more: Absent) {
        if self.ahead.len() < ABSENT_MAX {
            self.ahead.extend(more.leaves);
            self.ahead.extend(more.ahead);
        }
    }
}

/// Leaves that are brought at once: those of the inodes of a page of a listing, which may be all over the table.
const ABSENT_MAX: usize = 4096;

impl PartialEq for Absent {
    fn eq(&self, other: &Absent) -> bool {
        self.key == other.key
    }
}
impl Eq for Absent {}

/// What a state holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Size {
    pub records: u64,
    /// Bytes that the records take in a checkpoint, without the stream's own frame.
    pub bytes: u64,
}

/// What an engine has at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Figures {
    /// Of the newest state.
    pub size: Size,
    /// Older states that are in memory because a reader is, or was, in them.
    pub states_kept: usize,
    /// Leaves in memory, with the names of all.
    pub memory_bytes: u64,
    /// Its bound.
    pub memory_bytes_max: u64,
    pub leaves: u64,
    /// Since the start: brought, taken out of memory, and found to be damaged.
    pub loads: u64,
    pub evictions: u64,
    pub broken: u64,
    /// Since the start: so often `move_changes` moved changes.
    pub moves: u64,
}

/// What a checkpoint may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of `View::medium_bytes`.
    pub leaves_bytes: u64,
    /// Of its stream, if that only names leaves.
    pub head_bytes: u64,
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
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().map(|change| &change.key)
    }
}
