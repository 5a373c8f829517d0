//! The OST engine: objects on one volume, copy-on-write, checksummed to the page, recovered after any crash.
//!
//! `ObjectStore` is what the daemon sees; `Engine` is the engine. It promises:
//! - store-S1 (whole pages): a write goes to newly allocated pages; after a crash each page is old or new, never mixed.
//! - store-S2 (verified): fragment CRCs are verified on arrival before anything is written, page CRCs on every read.
//! - store-S3 (one order): log order is apply order; the answer, the slot and the change are one log entry.
//! - store-O1 (reuse): space is reused only after the entry that superseded it is sealed.
//! - store-O2 (recovery): the data of entries after the last flush mark is verified; the log is cut at the first that fails.
//! - store-S4 (zeros): bytes of an object's last page past its length are zero, so that extension reads zeros.
//! - store-S5 (full): a full medium refuses writes before anything is written; removing always works.
//! - store-O5 (incarnation): a new incarnation is durable before anything is served under it; no incarnation is served twice.
//! - store-S6 (reserved): a write to reserved pages finds space, whatever else was written meanwhile.
//!
//! It refuses requests that fail their gate (the caller's rule), bad checksums, and writes that do not fit. It has no clock and no thread
//! of its own: the daemon calls `flush`, `seal` and `checkpoint`. Byte formats: docs/formats/ost.md. It keeps the state of the scrub and
//! verifies parts of objects for it (scrub.rs).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

mod records;
mod state;
mod upkeep;
mod verbs;

#[cfg(test)]
mod tests;

pub use records::error::{DamageKind, StoreError};
pub use records::index_report::{BadLeaf, IndexStats, VerifiedLeaves};
pub use records::scrub_state::{Pass, SCRUB_EVERY_SEC, SCRUB_RATE, Scrub, Scrubbing};
pub use records::settings::Settings;
pub use records::shipped::{CONTENT_BYTES_MAX, Place, Shipped, StageId};
pub use state::engine::Engine;
pub use state::grants::GRANT_SEC;
pub use state::mirror::Companion;
pub use state::room::{DAMAGE_MAX, SESSIONS_MAX};
pub use state::service::Service;
pub use state::stats::{DeviceStats, SmallStats, Stats, UserStats};
pub use state::waste::{MIXED_FILES, Mix, SubBlock, Waste};
pub use upkeep::compare::{Look, Seen, Walk};
pub use upkeep::fill::{Filled, Filling};
pub use upkeep::format::{Geometry, LOG_BYTES_MAX, geometry};
pub use upkeep::repair::{Given, Lost};
pub use upkeep::scrub::Verified;
pub use upkeep::survey::{Amount, ClassUse, Cursor, RUN_CLASSES, SUB_BLOCK_CLASSES, SpaceReport, Survey};
pub use verbs::damage::Recorded;
pub use verbs::list::Readable;
pub use verbs::reserve::Reservation;
pub use verbs::write::Written;

use std::time::Duration;

use disk::volume::Label;
use types::{Buf, Epoch, Fault, Fid, Incarnation, ObjectId, Seq, SessionId, Time};

/// Called once entries are durable, or the volume has failed.
pub type OnFlushed = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Objects on a medium. Every method may be called from any thread; changes to different objects do their data I/O at once.
pub trait ObjectStore: Send + Sync {
    /// Writes bytes. Makes the object if there is none. Answer: see `Written`.
    fn write(&self, write: &Write<'_>) -> Result<Done, StoreError>;
    /// Reads up to `len` bytes at `offset` into `into`; fewer at the object's end; holes are zeros. `crcs` gets one CRC per
    /// fragment. `Ok(false)`: there is no such object.
    fn read(&self, read: &Read<'_>, into: &mut Buf, crcs: &mut Vec<u32>) -> Result<bool, StoreError>;
    /// Cuts or extends an object. An absent one stays absent. Answer: the object's length.
    fn truncate(&self, truncate: &Truncate<'_>) -> Result<Done, StoreError>;
    /// Promises space to each page of a range that has none, or to no page. Makes the object if there is none. Answer: see
    /// `reserve::Reservation`.
    fn reserve(&self, reserve: &Reserve<'_>) -> Result<Done, StoreError>;
    /// Ends promises that no write has used.
    fn release(&self, release: &Release<'_>) -> Result<Done, StoreError>;
    /// Makes bytes zeros: whole pages become holes, or stay reserved. An absent object stays absent. Answer: the object's length.
    fn punch(&self, punch: &Punch<'_>) -> Result<Done, StoreError>;
    /// Offsets of the first page with bytes and of the first without, at or after an offset. A reserved page has no bytes.
    fn seek(&self, object: ObjectId, offset: u64, gate: Gate<'_>) -> Result<Found, StoreError>;
    /// The first reserved range at or after `offset`, in bytes by pages.
    fn seek_reserved(
        &self,
        object: ObjectId,
        offset: u64,
        gate: Gate<'_>,
    ) -> Result<Option<(u64, u64)>, StoreError>;
    /// Removes objects. Ignores absent ones.
    fn destroy(&self, objects: &[ObjectId], origin: Option<Origin>) -> Result<Done, StoreError>;
    /// Raises the lease version that an object has seen; the object need not exist. Logs nothing if the version does not rise.
    fn fence(&self, object: ObjectId, lease: u64) -> Result<(), StoreError>;
    /// `None`: there is no such object.
    fn stat(&self, object: ObjectId) -> Result<Option<Attrs>, StoreError>;
    /// The lease version that the object has seen, existing or not.
    fn lease(&self, object: ObjectId) -> Result<u64, StoreError>;
    /// Existing objects in id order after `after`, at most `max`; true if there are more.
    fn list(&self, after: Option<ObjectId>, max: usize)
    -> Result<(Vec<(ObjectId, Attrs)>, bool), StoreError>;
    /// The greatest id that the store knows.
    fn last_object(&self) -> Option<ObjectId>;
    /// Reads and checks pages of an object from page `from` on, `pages_max` at most.
    fn verify(&self, object: ObjectId, from: u32, pages_max: u32) -> Result<Verified, StoreError>;
    /// Existing objects after `after`, at most `max`. Ends where a lost part of the index begins, and at empty ranges, so its cost is
    /// bounded.
    fn list_readable(&self, after: Option<ObjectId>, max: usize) -> Result<Readable, StoreError>;
    /// Verifies leaves of the index whose first object is in `(after, until]`, up to the first bad one or a number of bytes.
    fn verify_leaves(&self, after: ObjectId, until: ObjectId) -> Result<VerifiedLeaves, StoreError>;
    /// The last kept state of the scrub.
    fn scrub(&self) -> Scrub;
    /// Keeps the state of the scrub over restarts.
    fn set_scrub(&self, scrub: Scrub) -> Result<(), StoreError>;

    /// Makes everything acknowledged so far durable, at both members of a mirror. Entries up to the result are flushed.
    fn flush(&self) -> Result<Seq, StoreError>;
    /// As `flush`, but if another thread flushes now, it keeps what `park` returns until that is done, and returns `None`.
    fn flush_or_park(&self, park: &mut dyn FnMut() -> Option<OnFlushed>) -> Option<Result<Seq, StoreError>>;
    /// True if flushes are parked that no thread is about to serve.
    fn has_parked(&self) -> bool;
    /// `ring` is called then. It has another thread call `flush`, and waits for nothing.
    fn on_parked(&self, ring: Box<dyn Fn() + Send + Sync>);
    /// Logs the flushed seq if it is not logged yet, so that the next flush makes superseded space reusable.
    fn mark(&self) -> Result<(), StoreError>;
    /// True if an acknowledged entry is not flushed, or a flushed one not sealed.
    fn is_dirty(&self) -> bool;
    /// True if the log is long enough for a checkpoint.
    fn is_checkpoint_due(&self) -> bool;
    /// Writes the index out, so that the log before it is no longer needed.
    fn checkpoint(&self) -> Result<(), StoreError>;
    /// Destages old small writes, or all if nothing was written since the last call. The background calls it once per commit interval. It
    /// also checks whether the medium has hung for too long, which fails the store.
    fn destage(&self) -> Result<(), StoreError>;
    /// Waits until the log or the memory for small writes fills. True: call `relieve`.
    fn wait_pressed(&self, at_most: Duration) -> bool;
    /// Destages small writes until there is space for others.
    fn relieve(&self) -> Result<(), StoreError>;
    /// Discards space that was freed 60 to 120 calls ago and is still free. The background calls it once per commit interval.
    fn discard(&self) -> Result<(), StoreError>;
    /// Writes a checkpoint and the mark of a clean stop, and flushes. Refuses changes afterwards.
    fn close(&self) -> Result<(), StoreError>;

    /// Begins a session, which then has slots. A second call does nothing. If there is no space (`SESSIONS_MAX`, or a full index), drops
    /// the session that was idle for longest, which is a dead client's.
    fn begin_session(&self, session: SessionId) -> Result<(), StoreError>;
    fn end_session(&self, session: SessionId) -> Result<(), StoreError>;
    fn session_count(&self) -> usize;
    /// The last request of each slot, in order. `None`: no such session.
    fn slots(&self, session: SessionId) -> Option<Vec<Slot>>;
    /// The last request of one slot. `None`: no such session or slot.
    fn slot(&self, session: SessionId, slot: u32) -> Option<Slot>;

    /// Sets a session's grant for `GRANT_SEC` to the wanted bytes, or as many as possible. Returns the bytes granted.
    fn grant(&self, session: SessionId, bytes: u64, now_sec: u64) -> u64;
    /// Ends grants that were not renewed in time.
    fn lapse_grants(&self, now_sec: u64);
    /// Sessions with grants, and the bytes of each.
    fn grants(&self) -> Vec<(SessionId, u64)>;

    /// Records a piece of damage. At most `DAMAGE_MAX` are kept.
    fn record_damage(&self, damage: Damage) -> Result<Recorded, StoreError>;
    /// Known damage, in the order of objects.
    fn damage(&self) -> Vec<Damage>;
    /// Clears the recorded damage of a file (of all files for fid 0).
    fn clear_damage(&self, fid: Fid) -> Result<(), StoreError>;

    fn label(&self) -> Label;
    /// Flushed on return.
    fn set_label(&self, label: Label) -> Result<(), StoreError>;
    fn usage(&self) -> Usage;
    /// Free space and its fragmentation.
    fn space(&self) -> SpaceReport;
    /// Space that objects use: of about `objects_max` objects from `at` on, and where to go on.
    fn survey(&self, at: Cursor, objects_max: u64) -> Result<(Survey, Option<Cursor>), StoreError>;
    /// Counters since the store was opened.
    fn stats(&self) -> Stats;
    /// Sets the time when the target's service began, unless it is set. The next checkpoint keeps it.
    fn begin_service(&self, now_sec: u64);
    fn health(&self) -> Health;
    /// Mirror seq of the last entry that every member in sync has.
    fn last_seq(&self) -> Seq;
    /// As mirror seq. It never falls.
    fn flushed_seq(&self) -> Seq;
    fn incarnation(&self) -> Incarnation;
    /// Sets the epoch of later entries. It never falls.
    fn set_epoch(&self, epoch: Epoch);
}

/// The caller's rule, asked with the object's attributes at the moment of the change. It runs under the store's short lock, so it must be
/// quick and must not call the store. It must not depend on the mtime, which small overwrites under way may still raise. It may be asked
/// more than once.
pub type Gate<'a> = &'a (dyn Fn(&Attrs) -> Result<(), Fault> + Sync);

/// Bytes to write. `crcs`: one per fragment (see `types::crc`).
pub struct Write<'a> {
    pub object: ObjectId,
    pub offset: u64,
    pub data: &'a [u8],
    pub crcs: &'a [u32],
    /// The object keeps the latest mtime that it has seen.
    pub mtime: Time,
    /// The object keeps the highest lease version that it has seen.
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
    /// The session whose grant may be used if there is no other space.
    pub holder: Option<SessionId>,
}

pub struct Read<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    pub gate: Gate<'a>,
}

pub struct Truncate<'a> {
    pub object: ObjectId,
    /// Bytes.
    pub len: u64,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

pub struct Reserve<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes; at least 1.
    pub len: u64,
    /// Least length of the object afterwards, in bytes.
    pub end: u64,
    pub mtime: Time,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

pub struct Release<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes; at least 1.
    pub len: u64,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

pub struct Punch<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes; at least 1. Past the object's end only reservations are punched.
    pub len: u64,
    pub leave: Leave,
    pub mtime: Time,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

/// State of pages with bytes after they were punched. Pages without bytes stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Holes. Pages that were only reserved become holes too.
    Hole,
    /// Their space stays promised.
    Reserved,
}

/// Result of `seek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Found {
    pub exists: bool,
    /// `None`: no bytes from there on.
    pub data: Option<u64>,
    /// There is always a hole, at the latest behind the end.
    pub hole: u64,
}

/// The request behind a change. The log entry of the change records it (exactly once).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
}

/// A change was made (acknowledged, not yet flushed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Mirror seq of the change's log entry; 0 if nothing changed.
    pub seq: Seq,
    /// The answer: an object's length in bytes, 0, or a value of the call's own type.
    pub answer: u64,
}

/// The last request of a slot. Sequence 0: none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot {
    pub sequence: u32,
    pub seq: Seq,
    pub answer: u64,
}

/// An object as acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attrs {
    /// False for an object that was never written. Only its lease version may be known.
    pub exists: bool,
    /// Bytes.
    pub len: u64,
    /// Bytes on the medium, reserved ones too.
    pub used: u64,
    /// End of the last reserved page in bytes; 0: none is reserved.
    pub reserved_end: u64,
    pub mtime: Time,
    /// Highest lease version seen.
    pub lease: u64,
}

/// One piece of known damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    pub object: ObjectId,
    /// Offset of the bad page in the object, in bytes.
    pub offset: u64,
    pub kind: DamageKind,
    /// Seconds since 1970.
    pub found_sec: u64,
    /// The page has its bytes again, from the other member of the mirror.
    pub is_repaired: bool,
}

/// Health of the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Why the store refuses changes, if it does.
    pub failure: Option<String>,
    /// Why some objects cannot be read, if so. All others can.
    pub index_damage: Option<String>,
    /// Number of superblock copies, of two, that were good at open.
    pub superblock_copies: u8,
}

/// Space and counts, for `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub bytes_total: u64,
    /// Bytes that are free and not promised, now or once waiting entries are sealed.
    pub bytes_free: u64,
    /// Bytes that writes may still take. The rest is the reserve for truncation.
    pub bytes_available: u64,
    pub objects: u64,
    /// Number of further objects that the index has space for.
    pub objects_free: u64,
    pub log_bytes_used: u64,
    pub log_bytes_total: u64,
}
